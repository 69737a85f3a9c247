"""Transports, which carry commands to workers: threads, processes, Ray actors, or workers of a plugin.

All transports have the same interface and pass the same tests.
"""

from __future__ import annotations

from collections.abc import Sequence

from etdev import plugins
from etdev.errors import MissingRequirementError
from etdev.plugins import WORKER_TRANSPORTS
from etdev.runtime.orchestrator.errors import PlacementError
from etdev.runtime.orchestrator.spec import WorkerSpec
from etdev.runtime.orchestrator.transports.base import Transport

TRANSPORTS = WORKER_TRANSPORTS.built_in
RAY_EXTRA = 'pip install "etdev[ray]"'


def open_transport(
    name: str, specs: Sequence[WorkerSpec], *, seed: int | None = None, ray_address: str | None = None
) -> Transport:
    """Return the transport with this name; the caller must start it.

    Raises :class:`~etdev.errors.UsageError` for an unknown name, and :class:`~etdev.errors.MissingRequirementError` if
    Ray is not installed or a plugin fails.
    """
    known = plugins.names(WORKER_TRANSPORTS)
    if name not in known:
        raise PlacementError(f"there is no transport {name!r}", hint=f"use one of {', '.join(known)}")
    plugins.check_name(WORKER_TRANSPORTS, name)
    if name == "thread":
        from etdev.runtime.orchestrator.transports.thread import ThreadTransport

        return ThreadTransport(specs, seed=seed)
    if name == "process":
        from etdev.runtime.orchestrator.transports.process import ProcessTransport

        return ProcessTransport(specs)
    if name == "ray":
        _require_ray()
        from etdev.runtime.orchestrator.transports.ray import RayTransport

        return RayTransport(specs, address=ray_address)
    create = plugins.load(WORKER_TRANSPORTS, name)
    with plugins.translated(WORKER_TRANSPORTS, name, MissingRequirementError):
        found: Transport = create(specs)
        return found


def _require_ray() -> None:
    try:
        import ray  # noqa: F401
    except ImportError as error:
        raise MissingRequirementError(
            f"the transport `ray` needs the package ray: {error}", hint=f"install it: {RAY_EXTRA}"
        ) from error
