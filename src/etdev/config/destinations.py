"""Destinations of deployments: parses and checks ``file:``, ``sftp:``, ``s3:`` and ``adb:`` URIs.

Other packages may register further schemes. For these, this module checks only the general URI syntax, and the
package's transport checks the rest.
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
"""Pattern of a valid URI by scheme, as shown in messages."""

OPTIONS: dict[str, tuple[str, ...]] = {
    "smoke": ("file", "sftp", "adb"),
    "known_hosts": ("sftp",),
    "password_env": ("sftp",),
    "endpoint_url": ("s3",),
}
"""Keys of a deployment that only some of etdev's schemes use, with these schemes.

Schemes of other packages may use all of these keys.
"""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):")


class DestinationError(ValueError):
    """Error for a URI that is not a valid destination; its message never repeats text that may be a secret."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Destination:
    """Destination of a deployment, parsed from its URI."""

    scheme: str
    path: str
    """Folder at the destination, relative only for ``file`` and for schemes of other packages.

    For ``s3``, the prefix of all keys, without slashes at its ends.
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
        raise DestinationError("has no scheme that etdev supports", f"use one of: {', '.join(forms)}")
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
    """Return the scheme of a URI; None if no transport supports it. The rest of the URI may be invalid."""
    found = _SCHEME.match(uri)
    name = found["scheme"].lower() if found else ""
    return name if name in plugins.names(DEPLOY_TRANSPORTS) else None


def _form(scheme: str) -> str:
    """Return the pattern of a scheme's URIs for messages."""
    return FORMS.get(scheme, f"{scheme}:PATH or {scheme}://[USER@]HOST[:PORT]/PATH")


def _split(uri: str, scheme: str) -> SplitResult:
    form = f"write {_form(scheme)}"
    if not uri.isprintable() or " " in uri.partition("/")[0]:
        raise DestinationError("has characters that are not valid in a URI", form)
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        raise DestinationError("does not have a valid host and port", form) from None
    may_have_user = scheme not in ("file", "s3", "adb")
    if parts.password is not None or ("@" in parts.netloc and not may_have_user):
        hint = "set `password_env` to the name of the variable with the password" if may_have_user else "remove it"
        raise DestinationError("contains a password or a key, which must not be in a config", hint)
    if parts.query or parts.fragment:
        raise DestinationError("has a query or a fragment, which would have no effect", form)
    return parts


def _check_path(path: str, scheme: str) -> None:
    if ".." in path.split("/") and scheme != "file":
        raise DestinationError("has `..` in its path", "write the path without it")
    if not path.isprintable():
        raise DestinationError("has characters in its path that cannot be printed", f"write {_form(scheme)}")


def _file(parts: SplitResult, path: str) -> Destination:
    if parts.netloc not in ("", "localhost"):
        raise DestinationError("names a host", "write file:///PATH for a folder on this machine, or sftp://HOST/PATH")
    if not path.strip("/"):
        raise DestinationError("does not have a folder", f"write {FORMS['file']}")
    return Destination("file", path)


def _sftp(parts: SplitResult, path: str) -> Destination:
    if not parts.hostname:
        raise DestinationError("does not have a host", f"write {FORMS['sftp']}")
    if not path.strip("/"):
        raise DestinationError("does not have a folder", f"write {FORMS['sftp']}")
    return Destination("sftp", path, parts.hostname, unquote(parts.username) if parts.username else None, parts.port)


def _s3(parts: SplitResult, path: str) -> Destination:
    if not _BUCKET.fullmatch(parts.netloc):
        raise DestinationError("does not have a bucket", f"write {FORMS['s3']}")
    prefix = path.strip("/")
    if "//" in prefix:
        raise DestinationError("has an empty part in its prefix", f"write {FORMS['s3']}")
    return Destination("s3", prefix, parts.netloc)


def _adb(parts: SplitResult, path: str) -> Destination:
    if not path.startswith("/") or not path.strip("/"):
        raise DestinationError("does not have an absolute path on the device", f"write {FORMS['adb']}")
    return Destination("adb", path, parts.netloc or None)
