"""Parser of the destinations of deployments: ``file:``, ``sftp:``, ``s3:`` and ``adb:`` URIs.

Other packages may register further schemes. For these schemes, this module checks only the general URI syntax. The
package's transport checks the rest of the URI.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

from etdev import plugins
from etdev.plugins import DEPLOY_TRANSPORTS

FORMS: dict[str, str] = {
    "file": "file:///PATH or file:RELATIVE",
    "sftp": "sftp://[USER@]HOST[:PORT]/PATH",
    "s3": "s3://BUCKET/PREFIX",
    "adb": "adb:/PATH or adb://SERIAL/PATH",
}
"""Maps a scheme to the form of a valid URI, for messages."""

OPTIONS: dict[str, tuple[str, ...]] = {
    "smoke": ("file", "sftp", "adb"),
    "known_hosts": ("sftp",),
    "password_env": ("sftp",),
    "endpoint_url": ("s3",),
}
"""Keys of a deployment that only some built-in schemes support. Each key maps to the schemes that support the key.

Schemes of other packages may support all of these keys.
"""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):")


class DestinationError(ValueError):
    """Error for an invalid destination URI. The message never repeats text of the URI that may be a secret."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Destination:
    """Destination of a deployment, parsed from its URI."""

    scheme: str
    path: str
    """Folder at the destination. The path can be relative only for ``file`` and for schemes of other packages.

    For ``s3``, this is the prefix of all object keys, without leading and trailing slashes.
    """
    host: str | None = None
    """Host for ``sftp``, bucket for ``s3``, or serial number of the device for ``adb``."""
    user: str | None = None
    port: int | None = None

    def __str__(self) -> str:
        if self.host is None:
            return f"{self.scheme}:{self.path}"
        user = f"{self.user}@" if self.user else ""
        is_address = ":" in self.host and self.scheme not in ("s3", "adb")
        host = f"[{self.host}]" if is_address else self.host
        port = f":{self.port}" if self.port is not None else ""
        return f"{self.scheme}://{user}{host}{port}/{self.path.lstrip('/')}"


def parse_destination(uri: str) -> Destination:
    """Parse the URI of a destination. Raises :class:`DestinationError` if the URI is invalid."""
    scheme = scheme_of(uri)
    if scheme is None:
        forms = map(_form, plugins.names(DEPLOY_TRANSPORTS))
        raise DestinationError("the URI has no scheme that etdev supports", f"use one of: {', '.join(forms)}")
    parts = _split(uri, scheme)
    path = unquote(parts.path)
    _check_path(path, scheme)
    match scheme:
        case "file":
            return _file(parts, path)
        case "sftp":
            return _sftp(parts, path)
        case "s3":
            return _s3(parts, path)
        case "adb":
            return _adb(parts, path)
    user = unquote(parts.username) if parts.username else None
    return Destination(scheme, path, parts.hostname, user, parts.port)


def scheme_of(uri: str) -> str | None:
    """Return the scheme of a URI; None if no transport supports the scheme. The rest of the URI may be invalid."""
    found = _SCHEME.match(uri)
    name = found["scheme"].lower() if found else ""
    return name if name in plugins.names(DEPLOY_TRANSPORTS) else None


def _form(scheme: str) -> str:
    """Return the form of a valid URI with this scheme, for messages."""
    return FORMS.get(scheme, f"{scheme}:PATH or {scheme}://[USER@]HOST[:PORT]/PATH")


def _split(uri: str, scheme: str) -> SplitResult:
    form = f"write {_form(scheme)}"
    if not uri.isprintable() or " " in uri.partition("/")[0]:
        raise DestinationError("the URI has invalid characters", form)
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        raise DestinationError("the URI does not have a valid host and port", form) from None
    may_have_user = scheme not in ("file", "s3", "adb")
    if parts.password is not None or ("@" in parts.netloc and not may_have_user):
        hint = (
            "set `password_env` to the name of the variable with the password"
            if may_have_user
            else "remove the part before `@`"
        )
        raise DestinationError("the URI contains a password or a key, which must not be in a config", hint)
    if parts.query or parts.fragment:
        raise DestinationError("the URI has a query or a fragment, which would have no effect", form)
    return parts


def _check_path(path: str, scheme: str) -> None:
    if ".." in path.split("/") and scheme != "file":
        raise DestinationError("the path of the URI contains `..`", "remove `..` from the path")
    if not path.isprintable():
        raise DestinationError("the path of the URI has characters that cannot be printed", f"write {_form(scheme)}")


def _file(parts: SplitResult, path: str) -> Destination:
    if parts.netloc not in ("", "localhost"):
        raise DestinationError(
            "the URI has a host, but `file:` refers to this machine",
            "write file:///PATH for a folder on this machine, or sftp://HOST/PATH",
        )
    if not path.strip("/"):
        raise DestinationError("the URI does not have a folder", f"write {FORMS['file']}")
    return Destination("file", path)


def _sftp(parts: SplitResult, path: str) -> Destination:
    if not parts.hostname:
        raise DestinationError("the URI does not have a host", f"write {FORMS['sftp']}")
    if not path.strip("/"):
        raise DestinationError("the URI does not have a folder", f"write {FORMS['sftp']}")
    return Destination("sftp", path, parts.hostname, unquote(parts.username) if parts.username else None, parts.port)


def _s3(parts: SplitResult, path: str) -> Destination:
    if not _BUCKET.fullmatch(parts.netloc):
        raise DestinationError("the URI does not have a valid bucket name", f"write {FORMS['s3']}")
    prefix = path.strip("/")
    if "//" in prefix:
        raise DestinationError("the prefix in the URI has an empty part", f"write {FORMS['s3']}")
    return Destination("s3", prefix, parts.netloc)


def _adb(parts: SplitResult, path: str) -> Destination:
    if not path.startswith("/") or not path.strip("/"):
        raise DestinationError("the URI does not have an absolute path on the device", f"write {FORMS['adb']}")
    return Destination("adb", path, parts.netloc or None)
