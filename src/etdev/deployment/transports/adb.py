"""``adb:``: a folder on an Android device, accessed with the program ``adb``.

The pointer is the symbolic link ``current``. ``sha256sum`` computes the digests of files on the device.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from etdev.deployment.transports.base import SMOKE_SECONDS, CommandResult, Fingerprint, tail
from etdev.deployment.transports.folder import NOT_A_LINK, POINTER, REMOVE_IT
from etdev.errors import DeployError, MissingRequirementError

if TYPE_CHECKING:
    from etdev.config.destinations import Destination

_PROGRAM = "adb"
_SECONDS = 600
"""Time limit of a step in seconds. It allows for the upload of a large file."""
_ABSENT = 44
"""Exit code of etdev's own commands on the device if a file or folder does not exist."""


class AdbTransport:
    """A folder on an Android device, accessed with commands of the program ``adb``."""

    def __init__(self, destination: Destination) -> None:
        self._root = destination.path.rstrip("/")
        self._serial = destination.host
        self._program = _PROGRAM

    def __enter__(self) -> Self:
        found = shutil.which(_PROGRAM)
        if found is None:
            raise MissingRequirementError(
                "a deployment to `adb:` needs the program `adb`, which is not on the PATH",
                hint="install Android's platform tools",
            )
        self._program = found
        state = self._adb("get-state")
        if state.returncode != 0 or state.stdout.strip() != b"device":
            raise DeployError(
                f"no device responds: {tail(state.stderr or state.stdout)}",
                where=self._where(""),
                hint="choose a device from `adb devices`, and write adb://SERIAL/PATH",
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing, because the transport does not keep a connection open."""

    def check(self) -> None:
        folder = shlex.quote(self._root)
        nearest = f'd={folder}; while [ ! -e "$d" ]; do d=$(dirname "$d"); done; [ -d "$d" ] && [ -w "$d" ]'
        done = self._shell(nearest)
        if done.returncode != 0:
            raise DeployError(
                "permission denied",
                where=self._where(""),
                hint="use a folder in /data/local/tmp, to which `adb shell` can write",
            )

    def names(self, folder: str) -> list[str]:
        place = self._quoted(folder)
        found = self._ask(f"[ -d {place} ] || exit {_ABSENT}; ls -1A {place}", folder)
        return sorted(found.decode(errors="surrogateescape").split("\n")[:-1]) if found else []

    def read(self, path: str) -> bytes | None:
        place = self._quoted(path)
        return self._ask(f"[ -e {place} ] || exit {_ABSENT}; cat {place}", path)

    def fingerprint(self, path: str) -> Fingerprint | None:
        place = self._quoted(path)
        found = self._ask(f"[ -e {place} ] || exit {_ABSENT}; sha256sum < {place} && wc -c < {place}", path)
        if found is None:
            return None
        words = found.decode(errors="replace").split()
        try:
            return Fingerprint(int(words[-1]), words[0].lstrip("\\"))
        except (ValueError, IndexError):
            raise DeployError(f"unexpected output of `sha256sum`: {tail(found)!r}", where=self._where(path)) from None

    def write(self, path: str, content: bytes) -> None:
        with tempfile.NamedTemporaryFile(prefix="etdev-") as file:
            file.write(content)
            file.flush()
            self.upload(path, Path(file.name))

    def upload(self, path: str, source: Path) -> None:
        self._do(f"mkdir -p {self._parent(path)}", path)
        pushed = self._adb("push", str(source), f"{self._root}/{path}")
        if pushed.returncode != 0:
            raise DeployError(f"`adb push` failed: {tail(pushed.stderr or pushed.stdout)}", where=self._where(path))

    def rename(self, folder: str, to: str, last: str) -> None:
        # If the new name were an existing folder, `mv` would not fail: it would move the folder into it.
        place = self._quoted(to)
        move = f"mkdir -p {self._parent(to)} && [ ! -e {place} ] && sync && mv {self._quoted(folder)} {place}"
        self._do(move, to)

    def remove(self, path: str) -> None:
        self._do(f"rm -rf {self._quoted(path)}", path)

    def current(self) -> str | None:
        place = self._quoted(POINTER)
        ask = f"if [ -L {place} ]; then readlink {place}; else [ ! -e {place} ] && exit {_ABSENT}; exit 1; fi"
        done = self._shell(ask)
        if done.returncode == _ABSENT:
            return None
        if done.returncode != 0:
            raise DeployError(tail(done.stderr) or NOT_A_LINK, where=self._where(POINTER), hint=REMOVE_IT)
        return done.stdout.decode(errors="replace").strip()

    def switch(self, path: str, temporary: str) -> None:
        """Replace the pointer atomically: create a new link, and rename it to the pointer's name.

        If the device's ``mv`` does not support ``-T``, use ``ln -sfn``, which is not atomic.
        """
        new, pointer, target = self._quoted(temporary), self._quoted(POINTER), shlex.quote(path)
        rename = f"ln -s {target} {new} && sync && mv -fT {new} {pointer} 2>/dev/null"
        self._do(f"{{ {rename}; }} || {{ rm -f {new}; ln -sfn {target} {pointer}; }}", POINTER)

    def location(self, path: str) -> str:
        return f"{self._root}/{path}"

    def run(self, command: Sequence[str], environment: dict[str, str]) -> CommandResult:
        variables = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
        done = self._shell(" ".join([*variables, shlex.join(command)]), seconds=SMOKE_SECONDS)
        return CommandResult(done.returncode, tail(done.stdout + done.stderr))

    def _ask(self, script: str, path: str) -> bytes | None:
        """Run a command on the device, and return its output, or None if ``path`` does not exist."""
        done = self._shell(script)
        if done.returncode == _ABSENT:
            return None
        if done.returncode != 0:
            raise DeployError(tail(done.stderr or done.stdout) or "the device refused", where=self._where(path))
        return done.stdout

    def _do(self, script: str, path: str) -> None:
        self._ask(script, path)

    def _shell(self, script: str, seconds: int = _SECONDS) -> subprocess.CompletedProcess[bytes]:
        return self._adb("shell", script, seconds=seconds)

    def _adb(self, *arguments: str, seconds: int = _SECONDS) -> subprocess.CompletedProcess[bytes]:
        chosen = ["-s", self._serial] if self._serial else []
        try:
            return subprocess.run(
                [self._program, *chosen, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise DeployError(f"`adb {arguments[0]}` did not end within {seconds} s", where=self._where("")) from None
        except OSError as error:
            raise DeployError(f"`adb` cannot be run: {error.strerror}", where=self._program) from error

    def _quoted(self, path: str) -> str:
        return shlex.quote(f"{self._root}/{path}" if path else self._root)

    def _parent(self, path: str) -> str:
        return shlex.quote(f"{self._root}/{path}".rpartition("/")[0])

    def _where(self, path: str) -> str:
        return f"adb:{self._root}/{path}".rstrip("/")
