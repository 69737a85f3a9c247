"""An SSH server on loopback, in a thread: SFTP, and commands in a shell."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import asyncssh

PASSWORD = "open sesame"


class SftpServer:
    """Lets in whoever has the key of ``folder``; with ``password``, by :data:`PASSWORD` alone. Without
    ``posix_rename``, it cannot rename over what is there."""

    def __init__(self, folder: Path, *, posix_rename: bool = True, password: bool = False) -> None:
        self._folder = folder
        self._posix_rename = posix_rename
        self._password = password
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._connections: list[asyncssh.SSHServerConnection] = []
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._listener = self._wait(self._listen())
        self.port = self._listener.get_port()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._loop.close()

    def hang_up(self) -> None:
        """End all connections."""
        for connection in self._connections:
            self._loop.call_soon_threadsafe(connection.abort)

    async def _listen(self) -> asyncssh.SSHAcceptor:
        import asyncssh

        class ByPassword(asyncssh.SSHServer):
            def password_auth_supported(self) -> bool:
                return True

            def validate_password(self, username: str, password: str) -> bool:
                return password == PASSWORD

        class NoPosixRename(asyncssh.SFTPServer):
            def posix_rename(self, oldpath: bytes, newpath: bytes) -> None:
                raise asyncssh.SFTPOpUnsupported("Unsupported")

        settings: dict[str, Any] = {"server_factory": ByPassword} if self._password else {}
        if not self._password:
            settings["authorized_client_keys"] = str(self._folder / "authorized_keys")
        return await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[str(self._folder / "host_key")],
            sftp_factory=asyncssh.SFTPServer if self._posix_rename else NoPosixRename,
            process_factory=_run_command,
            acceptor=self._connections.append,
            **settings,
        )

    async def _close(self) -> None:
        self._listener.close()
        await self._listener.wait_closed()

    def _wait(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=30)


async def _run_command(process: asyncssh.SSHServerProcess[bytes]) -> None:
    command = await asyncio.create_subprocess_shell(
        process.command or "", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await command.communicate()
    process.stdout.write(output.decode())  # type: ignore[arg-type]
    process.exit(command.returncode or 0)
