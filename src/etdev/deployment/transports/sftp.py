"""``sftp:``: a folder on another machine, over SSH. The pointer is the symbolic link ``current``.

The server is identified by a host key, which must be in a file of known hosts. The user logs in with a key from the
agent or from ``~/.ssh``, or with a password from the environment. ``~/.ssh/config`` applies, except its settings of
known hosts.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from etdev.deployment.transports.base import PIECE, SMOKE_SECONDS, CommandResult, Fingerprint, Fingerprinter, tail
from etdev.deployment.transports.folder import NOT_A_LINK, POINTER, REMOVE_IT
from etdev.errors import DeployError, MissingRequirementError

if TYPE_CHECKING:
    import asyncssh

    from etdev.config.destinations import Destination

T = TypeVar("T")
_CONNECT_SECONDS = 20
_KEEP_ALIVE_SECONDS = 15
"""Seconds between two keep-alive messages. The connection ends after three messages without an answer."""


@dataclass(frozen=True)
class Login:
    """Data for authentication: the file with the server's host keys, and the user's password."""

    known_hosts: Path
    password: str | None = None

    def __repr__(self) -> str:
        """Return a text without the password, so that tracebacks do not contain it."""
        return f"Login(known_hosts={str(self.known_hosts)!r})"


class SftpTransport:
    """A folder on another machine, used as the target.

    The server must support renames that replace an existing file (``posix-rename@openssh.com``).
    """

    def __init__(self, destination: Destination, login: Login) -> None:
        self._destination = destination
        self._login = login
        self._root = destination.path.rstrip("/")
        self._loop = asyncio.Runner()
        self._held = AsyncExitStack()

    def __enter__(self) -> Self:
        try:
            with self._errors(""):
                self._wait(self._connect())
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._loop, suppress(OSError, TimeoutError):
            self._wait(self._hang_up())

    async def _connect(self) -> None:
        import asyncssh

        self._connection = await self._held.enter_async_context(
            asyncssh.connect(self._destination.host or "", **self._settings())
        )
        self._sftp = await self._held.enter_async_context(self._connection.start_sftp_client())
        try:  # The file does not exist. The error shows if the server supports the operation.
            await self._sftp.posix_rename(f"{self._root}/.etdev-absent", f"{self._root}/.etdev-absent")
        except asyncssh.SFTPOpUnsupported:
            raise DeployError(
                "the SFTP server lacks posix-rename@openssh.com, which etdev needs to move the pointer atomically",
                where=str(self._destination),
                hint="use OpenSSH's sftp-server on that machine",
            ) from None
        except asyncssh.SFTPError:
            pass

    def _settings(self) -> dict[str, Any]:
        if not self._login.known_hosts.is_file():
            raise DeployError(
                f"the file {str(self._login.known_hosts)!r} with the trusted host keys does not exist",
                where=str(self._destination),
                hint=self._trust_hint(),
            )
        settings: dict[str, Any] = {
            "known_hosts": str(self._login.known_hosts),
            "connect_timeout": _CONNECT_SECONDS,
            "login_timeout": _CONNECT_SECONDS,
            "keepalive_interval": _KEEP_ALIVE_SECONDS,
            "keepalive_count_max": 3,
        }
        if self._destination.user:
            settings["username"] = self._destination.user
        if self._destination.port is not None:
            settings["port"] = self._destination.port
        if self._login.password is not None:
            settings["password"] = self._login.password
        return settings

    async def _hang_up(self) -> None:
        async with asyncio.timeout(5):
            await self._held.aclose()

    def check(self) -> None:
        with self._errors(""):
            self._wait(self._check())

    async def _check(self) -> None:
        import asyncssh

        path = self._root
        while path and not await self._sftp.exists(path):
            path = path.rpartition("/")[0]
        if not await self._sftp.isdir(path or "/"):
            raise DeployError("a part of the path is a file, not a folder", where=self._where(""))
        mode = (await self._sftp.stat(path or "/")).permissions
        if mode is not None and not mode & 0o222:
            raise asyncssh.SFTPPermissionDenied("the folder is not writable")

    def names(self, folder: str) -> list[str]:
        import asyncssh

        with self._errors(folder):
            try:
                found = self._wait(self._sftp.listdir(self._path(folder)))
            except asyncssh.SFTPNoSuchFile:
                return []
        return sorted(str(name) for name in found if name not in (".", ".."))

    def read(self, path: str) -> bytes | None:
        import asyncssh

        async def content() -> bytes:
            return b"".join([piece async for piece in self._pieces(path)])

        with self._errors(path):
            try:
                return self._wait(content())
            except asyncssh.SFTPNoSuchFile:
                return None

    def fingerprint(self, path: str) -> Fingerprint | None:
        import asyncssh

        async def found() -> Fingerprint:
            content = Fingerprinter()
            async for piece in self._pieces(path):
                content.add(piece)
            return content.result

        with self._errors(path):
            try:
                return self._wait(found())
            except asyncssh.SFTPNoSuchFile:
                return None

    async def _pieces(self, path: str) -> AsyncIterator[bytes]:
        async with self._sftp.open(self._path(path), "rb") as file:
            while piece := await file.read(PIECE):
                yield piece

    def write(self, path: str, content: bytes) -> None:
        async def written() -> None:
            await self._sftp.makedirs(self._parent(path), exist_ok=True)
            async with self._sftp.open(self._path(path), "wb") as file:
                await file.write(content)

        with self._errors(path):
            self._wait(written())

    def upload(self, path: str, source: Path) -> None:
        async def uploaded() -> None:
            await self._sftp.makedirs(self._parent(path), exist_ok=True)
            await self._sftp.put(str(source), self._path(path))

        with self._errors(path):
            self._wait(uploaded())

    def rename(self, folder: str, to: str, last: str) -> None:
        async def renamed() -> None:
            await self._sftp.makedirs(self._parent(to), exist_ok=True)
            await self._sftp.posix_rename(self._path(folder), self._path(to))

        with self._errors(to):
            self._wait(renamed())

    def remove(self, path: str) -> None:
        import asyncssh

        async def removed() -> None:
            if await self._is_link(path) or not await self._sftp.isdir(self._path(path)):
                await self._sftp.remove(self._path(path))
            else:
                await self._sftp.rmtree(self._path(path))

        with self._errors(path):
            try:
                self._wait(removed())
            except asyncssh.SFTPNoSuchFile:
                return

    async def _is_link(self, path: str) -> bool:
        import asyncssh

        attributes = await self._sftp.lstat(self._path(path))
        return bool(attributes.type == asyncssh.FILEXFER_TYPE_SYMLINK)

    def current(self) -> str | None:
        import asyncssh

        async def target() -> str:
            if not await self._is_link(POINTER):
                raise DeployError(NOT_A_LINK, where=self._where(POINTER), hint=REMOVE_IT)
            return str(await self._sftp.readlink(self._path(POINTER)))

        with self._errors(POINTER):
            try:
                return self._wait(target())
            except asyncssh.SFTPNoSuchFile:
                return None

    def switch(self, path: str, temporary: str) -> None:
        async def switched() -> None:
            await self._sftp.symlink(path, self._path(temporary))
            await self._sftp.posix_rename(self._path(temporary), self._path(POINTER))

        with self._errors(POINTER):
            self._wait(switched())

    def location(self, path: str) -> str:
        return self._path(path)

    def run(self, command: Sequence[str], environment: dict[str, str]) -> CommandResult:
        variables = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
        line = " ".join(["env", *variables, shlex.join(command)])
        with self._errors(""):
            try:
                done = self._wait(self._run(line))
            except TimeoutError:
                raise DeployError(f"the command {command[0]!r} did not end within {SMOKE_SECONDS} s") from None
        return CommandResult(-1 if done.exit_status is None else done.exit_status, tail(done.stdout))

    async def _run(self, line: str) -> asyncssh.SSHCompletedProcess:
        import asyncssh

        return await self._connection.run(line, stdin=asyncssh.DEVNULL, stderr=asyncssh.STDOUT, timeout=SMOKE_SECONDS)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(work)

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def _parent(self, path: str) -> str:
        return self._path(path).rpartition("/")[0]

    def _where(self, path: str) -> str:
        return f"{self._destination}/{path}".rstrip("/")

    def _trust_hint(self) -> str:
        host, port = self._destination.host, self._destination.port
        chosen = f"-p {port} " if port is not None else ""
        return (
            f"compare the keys from `ssh-keyscan {chosen}{host}` with those from the machine's owner, "
            f"and add them to {self._login.known_hosts}"
        )

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        import asyncssh

        where = self._where(path)
        try:
            yield
        except asyncssh.HostKeyNotVerifiable as error:
            raise DeployError(
                f"the host key is not known: {error.reason}", where=str(self._destination), hint=self._trust_hint()
            ) from error
        except asyncssh.PermissionDenied as error:
            raise DeployError(
                f"the server refused the login: {error.reason}",
                where=str(self._destination),
                hint="add a key to the agent (`ssh-add -l` lists its keys), or set `password_env`",
            ) from error
        except (asyncssh.SFTPConnectionLost, asyncssh.SFTPNoConnection, asyncssh.DisconnectError) as error:
            raise DeployError(f"the connection ended: {error.reason}", where=where) from error
        except asyncssh.Error as error:
            raise DeployError(f"the server refused the operation: {error.reason}", where=where) from error
        except TimeoutError as error:
            raise DeployError("the server did not answer in time", where=where) from error
        except (OSError, ValueError) as error:  # ValueError: a key file that cannot be read.
            raise DeployError(f"the connection failed: {error}", where=where) from error


def password_of(variable: str | None) -> str | None:
    """Return the password in an environment variable, or None if ``variable`` is None."""
    if variable is None:
        return None
    password = os.environ.get(variable)
    if not password:
        raise MissingRequirementError(
            f"the environment variable {variable} is not set; it must contain the password",
            where="password_env",
            hint=f"set {variable}, or remove `password_env` to log in with a key",
        )
    return password
