"""The Ray cluster of this process. The process starts or joins the cluster, and all its orchestrators share it."""

from __future__ import annotations

import atexit
import importlib
import logging
import os
import secrets
import shutil
import socket
import tempfile
import threading
from pathlib import Path
from typing import Any

import ray

from etdev.errors import MissingRequirementError, UsageError

_STORE = 256 << 20
"""Size in bytes of the shared memory for data in transit; if it is full, Ray uses files."""
_REACHED_SECONDS = 10.0
_LONGEST = 30
"""Maximum length of the temporary folder's path; longer paths make the names of Ray's sockets too long."""
_NOT_JOINED = "start a cluster with `ray start --head`, or omit the address, so that Ray starts one"
_TOKEN = secrets.token_hex(32)
"""Token that the cluster requires from clients; Ray reads it once for each process."""
_ENVIRONMENT = {
    "RAY_AUTH_TOKEN": _TOKEN,  # Without a token, other users could run code through Ray's ports.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Use ports of the loopback interface only. This starts faster, too.
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",  # Otherwise Ray may kill workers because other programs use memory.
}
"""Environment variables of this process while it runs its own cluster; the cluster's processes inherit them."""
_SET_BY_RAY = ("RAY_AUTH_MODE", "RAY_CLIENT_MODE", "PYTHONBREAKPOINT")


class Cluster:
    """Connection of this process to a Ray cluster; :meth:`close` also ends the cluster if this process started it.

    A thread opens the connection, because Ray's processes end with the thread that started them. The thread runs until
    the connection is closed.
    """

    def __init__(self, address: str | None) -> None:
        self.address = address
        """Address of the cluster to join; None to start one."""
        self._made, self._end = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._restore: dict[str, str | None] = {}
        self._folder = ""
        self._thread = threading.Thread(target=self._hold, name="etdev ray", daemon=True)
        atexit.register(self.close)

    def open(self) -> None:
        """Start or join the cluster. Raises :class:`~etdev.errors.MissingRequirementError` if this fails."""
        self._thread.start()
        try:
            self._made.wait()
        except BaseException:
            self._end.set()  # The thread ends the cluster as soon as it has started.
            raise
        if self._error is not None:
            self.close()
            what = (
                "Ray cannot start a cluster" if self.address is None else f"cannot join a Ray cluster at {self.address}"
            )
            hint = None if self.address is None else _NOT_JOINED
            words = (str(self._error).strip() or type(self._error).__name__).splitlines()[0]
            raise MissingRequirementError(f"{what}: {words}", hint=hint) from self._error

    def close(self) -> None:
        """Leave the cluster, or end it if this process started it; a second call has no effect."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()
        atexit.unregister(self.close)

    def _hold(self) -> None:
        try:
            try:
                self._connect()
            except BaseException as error:  # noqa: BLE001 - raised in the waiting thread
                self._error = error
            self._made.set()
            self._end.wait()
        finally:
            self._disconnect()

    def _connect(self) -> None:
        constants: Any = importlib.import_module("ray._private.ray_constants")
        settings = {"namespace": "etdev", "log_to_driver": False, "logging_level": "error"}
        logging.getLogger("ray._private.worker").setLevel(logging.ERROR)  # The settings do not silence all warnings.
        if self.address is not None:
            _check_reached(self.address)
            ray.init(address=self.address, **settings)
        else:
            self._set_environment()
            self._folder = tempfile.mkdtemp(prefix="etdev-ray-", dir=_short_folder())
            before, constants.ENABLE_RAY_CLUSTER = getattr(constants, "ENABLE_RAY_CLUSTER", None), False
            try:
                ray.init(
                    address="local",
                    num_cpus=0,
                    object_store_memory=_STORE,
                    include_dashboard=False,
                    _temp_dir=self._folder,
                    **settings,
                )
            finally:
                constants.ENABLE_RAY_CLUSTER = before
        _print_nothing(True)

    def _disconnect(self) -> None:
        ray.shutdown()
        _print_nothing(False)
        for name, value in self._restore.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _set_environment(self) -> None:
        self._restore = {name: os.environ.get(name) for name in (*_ENVIRONMENT, *_SET_BY_RAY)}
        os.environ.update(_ENVIRONMENT)


class _Shared:
    """The cluster that all orchestrators of this process share, and the number of orchestrators that use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cluster: Cluster | None = None
        self._users = 0

    def join(self, address: str | None) -> None:
        """Add an orchestrator as a user. For the first user, start or join the cluster.

        If other code in this process already uses a cluster, use that cluster, and do not end it.
        """
        with self._lock:
            if self._cluster is None and not ray.is_initialized():
                cluster = Cluster(address)
                cluster.open()
                self._cluster = cluster
            else:
                self._check(address)
            self._users += 1

    def leave(self) -> None:
        """Remove an orchestrator as a user. After the last user, end or leave the cluster."""
        with self._lock:
            self._users -= 1
            if not self._users and self._cluster is not None:
                cluster, self._cluster = self._cluster, None
                cluster.close()

    def _check(self, address: str | None) -> None:
        joined = self._cluster.address if self._cluster else None
        here = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", joined, here):
            raise UsageError(
                f"this process already has a Ray cluster at {joined or here}, so it cannot join "
                f"the cluster at {address}",
                hint="close the orchestrators that use this cluster, or call `ray.shutdown()`",
            )


SHARED = _Shared()


def _check_reached(address: str) -> None:
    """Raise an error within seconds if an address cannot be reached; Ray itself would try for minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), _REACHED_SECONDS).close()


def _print_nothing(nothing: bool) -> None:
    """Disable Ray's messages about ended workers if ``nothing`` is True; otherwise enable these messages."""
    worker: Any = importlib.import_module("ray._private.worker")
    worker._worker_logs_enabled = not nothing


def _short_folder() -> str | None:
    usual = tempfile.gettempdir()
    return "/tmp" if len(usual) > _LONGEST and Path("/tmp").is_dir() else usual
