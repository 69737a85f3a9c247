"""Transports to targets. The scheme of the target's URI selects the transport."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

from etdev import plugins
from etdev.config.destinations import Destination
from etdev.deployment.transports.base import Transport
from etdev.errors import DeployError, MissingRequirementError
from etdev.plugins import DEPLOY_TRANSPORTS

DEPLOY_EXTRA = 'pip install "etdev[deploy]"'


@dataclass(frozen=True, slots=True)
class Connection:
    """A destination of deployments, with the settings for connecting to it."""

    destination: Destination
    base: Path
    """Folder on this machine in which commands run. A relative destination is relative to this folder."""
    known_hosts: Path | None = None
    password_env: str | None = None
    endpoint_url: str | None = None


def open_transport(reach: Connection) -> Transport:
    """Return the transport for a destination. The transport connects when its context is entered.

    Raises :class:`~etdev.errors.MissingRequirementError` if a package that the transport needs is not installed.
    """
    destination = reach.destination
    plugins.check_name(DEPLOY_TRANSPORTS, destination.scheme)
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
    return _load_plugin(reach)


def _load_plugin(reach: Connection) -> Transport:
    """Return the transport that another package registers for the destination's scheme."""
    scheme = reach.destination.scheme
    create = plugins.load(DEPLOY_TRANSPORTS, scheme)
    with plugins.translated(DEPLOY_TRANSPORTS, scheme, DeployError):
        found: Transport = create(reach)
        return found


def _require(package: str, scheme: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise MissingRequirementError(
            f"a deployment to `{scheme}:` needs the package {package!r}, which is not installed", hint=DEPLOY_EXTRA
        )
