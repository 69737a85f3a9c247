"""Transports to targets, by the scheme of their URI."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

from etdev.config.destinations import Destination
from etdev.deployment.transports.base import Transport
from etdev.errors import MissingRequirementError

DEPLOY_EXTRA = 'pip install "etdev[deploy]"'


@dataclass(frozen=True, slots=True)
class Connection:
    """Settings for reaching a destination."""

    destination: Destination
    base: Path
    """Folder for relative paths, and for commands that run on this machine."""
    known_hosts: Path | None = None
    password_env: str | None = None
    endpoint_url: str | None = None


def open_transport(reach: Connection) -> Transport:
    """Return the transport of a destination. Raises :class:`~etdev.errors.MissingRequirementError`.

    Entering the transport connects.
    """
    destination = reach.destination
    match destination.scheme:
        case "file":
            from etdev.deployment.transports.folder import FolderTransport

            return FolderTransport(Path(os.path.normpath(reach.base / destination.path)), reach.base)
        case "sftp":
            _require("asyncssh", "sftp")
            from etdev.deployment.transports.sftp import Login, SftpTransport, password_of

            known_hosts = reach.known_hosts or Path("~/.ssh/known_hosts").expanduser()
            return SftpTransport(destination, Login(known_hosts, password_of(reach.password_env)))
        case "s3":
            _require("boto3", "s3")
            from etdev.deployment.transports.s3 import S3Transport

            return S3Transport(destination, reach.endpoint_url)
        case "adb":
            from etdev.deployment.transports.adb import AdbTransport

            return AdbTransport(destination)


def _require(package: str, scheme: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise MissingRequirementError(
            f"deploying to {scheme}: needs the package {package!r}, which is not installed", hint=DEPLOY_EXTRA
        )
