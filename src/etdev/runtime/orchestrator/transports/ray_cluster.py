"""Ray cluster of this process: its own, or one that it joins. A process has one at a time for all users."""

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
"""Bytes of shared memory for data in transit; Ray uses files beyond that."""
_REACHED_SECONDS = 10.0
_LONGEST = 30
"""Maximum characters of a temporary folder's path, for which Ray's socket names are short enough."""
_NOT_JOINED = "start a cluster with `ray start --head`, or leave the address out: Ray starts its own then"
_TOKEN = secrets.token_hex(32)
"""Token that clusters require. Ray reads it once per process."""
_ENVIRONMENT = {
    "RAY_AUTH_TOKEN": _TOKEN,  # Needed to run code through Ray's ports. Ray writes none to the home folder.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ports on the loopback interface only, which also starts faster.
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",  # Ray would kill workers for the memory of other programs.
}
"""Environment of a process with a cluster of its own, and of the cluster's processes."""
_SET_BY_RAY = ("RAY_AUTH_MODE", "RAY_CLIENT_MODE", "PYTHONBREAKPOINT")


class Cluster:
    """Connection of this process to a cluster. :meth:`close` ends it, and also the cluster if this process started it.

    A thread opens the connection and lives as long as the connection. The system ends Ray's processes with the thread
    that started them.
    """

    def __init__(self, address: str | None) -> None:
        self.address = address
        """Requested address; None for a cluster of its own."""
        self._made, self._end = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._restore: dict[str, str | None] = {}
        self._folder = ""
        self._thread = threading.Thread(target=self._hold, name="etdev ray", daemon=True)
        atexit.register(self.close)

    def open(self) -> None:
        """Start or join the cluster. Raises :class:`~etdev.errors.MissingRequirementError` if that fails."""
        self._thread.start()
        try:
            self._made.wait()
        except BaseException:
            self._end.set()  # The cluster then ends as soon as it has started.
            raise
        if self._error is not None:
            self.close()
            what = (
                "Ray starts no cluster here" if self.address is None else f"no Ray cluster is joined at {self.address}"
            )
            hint = None if self.address is None else _NOT_JOINED
            words = (str(self._error).strip() or type(self._error).__name__).splitlines()[0]
            raise MissingRequirementError(f"{what}: {words}", hint=hint) from self._error

    def close(self) -> None:
        """Leave the cluster, or end it if this process started it. A second call has no effect."""
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
        logging.getLogger("ray._private.worker").setLevel(logging.ERROR)  # It sometimes warns in spite of the settings.
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
    """Cluster of this process, and the number of its users."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cluster: Cluster | None = None
        self._users = 0

    def join(self, address: str | None) -> None:
        """Add a user of the cluster. The first one starts or joins it.

        A cluster that other code in this process started or joined is used, but not ended.
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
        """Remove a user. The last one ends the cluster."""
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
                f"this process has a Ray cluster at {joined or here} already, and cannot join the one at {address}",
                hint="close the orchestrators that use it, or `ray.shutdown()` it",
            )


SHARED = _Shared()


def _check_reached(address: str) -> None:
    """Raise an error within seconds for an unreachable address. Ray itself tries for minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), _REACHED_SECONDS).close()


def _print_nothing(nothing: bool) -> None:
    """Disable or enable Ray's output about ended workers, which none of its settings disables."""
    worker: Any = importlib.import_module("ray._private.worker")
    worker._worker_logs_enabled = not nothing


def _short_folder() -> str | None:
    usual = tempfile.gettempdir()
    return "/tmp" if len(usual) > _LONGEST and Path("/tmp").is_dir() else usual
