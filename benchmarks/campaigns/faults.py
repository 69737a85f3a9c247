"""Commands with a fault at a change of files: killed, interrupted, a full or slow disk, the clock, a damaged cache.

Each trial runs a command of the command line in a process of its own, with one fault at its n-th call that changes a
file (``faults.c``, compiled with ``cc`` and preloaded): SIGKILL, SIGTERM, SIGINT, the error ENOSPC, EIO or EACCES,
once or from then on, or the clock goes back by up to ten years. Some trials have a slow disk, some damage files of the
cache before, also a single byte, and some run two to eight commands at once. The commands: a build from a full cache, a
relink in place, a deployment, a report page, ``cache gc``. Builds from nothing, which only a fault can cause, are the
only ones that import torch.

Demanded: exit codes that say what happened, and never 70. Every output is the old one or the new one, as a whole. The
next run ends by itself within 300 s, exits with 0, and leaves the right outputs and nothing else.

With ``--each ENOSPC``, the trials are all changes of all commands instead: the disk is full from that change on.

    python benchmarks/campaigns/faults.py [--count N] [--seconds S] [--seed N] [--start N] [--each ERROR]
"""

from __future__ import annotations

import argparse
import atexit
import ctypes
import errno
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from campaign import Run, Settings, Trial, main

import etdev
from etdev.files import TEMPORARY_SUFFIX
from pipeline.cache.killing import wrong_in_cache
from support.projects import LINEAR, LINEAR_CONFIG, write_project

SECONDS = 300.0
"""A fault can make a build start from nothing, and others wait for it."""
_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
_ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES)
_BACK = (60, 86_400, 315_360_000)
"""Seconds by which a clock goes back."""
_SLOW = 20_000
"""Microseconds before each change of a file on a slow disk."""
_CODES = {
    "build": {0, 4, 130},
    "relink": {0, 4, 130},
    "deploy": {0, 4, 6, 130},
    "report": {0, 4, 130},
    "gc": {0, 4, 130},
}
"""Exit codes of each command after a fault; a process that is killed has none."""
_MORE = """
    [targets.cpu]
    [deploy.here]
    target = "cpu"
    uri = "file:served"
"""
_CHANGING = ("results.json", "report.json", ".html")
"""Files that state times or machines."""


@dataclass(frozen=True)
class _Command:
    """A command, and the outputs that it must leave whole."""

    name: str
    arguments: tuple[str, ...]
    prepare: Callable[[Path], None]
    """Change a copy of the finished project so that the command has something to do."""
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class _Fault:
    """A fault at the ``turn``-th change of files: an error, a signal, or a clock that goes back."""

    turn: int
    error: int = 0
    signal: int = 0
    lasting: int = 0
    """1 if all changes from this one on fail."""
    slow: int = 0
    """Microseconds before each change."""
    back: int = 0
    """Seconds by which the clock goes back."""

    @property
    def name(self) -> str:
        if self.back:
            return "clock back"
        return signal.Signals(self.signal).name if self.signal else errno.errorcode[self.error]


def _drawn(chance: random.Random, turn: int) -> _Fault:
    slow = _SLOW if not chance.randrange(8) else 0
    kind = chance.choice(("signal", "signal", "error", "error", "clock"))
    if kind == "signal":
        return _Fault(turn, signal=int(chance.choice(_SIGNALS)), slow=slow)
    if kind == "error":
        return _Fault(turn, error=chance.choice(_ERRORS), lasting=chance.randrange(2), slow=slow)
    return _Fault(turn, back=chance.choice(_BACK), slow=slow)


def _without_build(folder: Path) -> None:
    shutil.rmtree(folder / "build")
    (folder / "etdev.lock").unlink()


def _without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink(missing_ok=True)


COMMANDS = (
    _Command("build", ("build", "-q"), _without_build, ("build/cpu/tiny.pte", "etdev.lock")),
    _Command("relink", ("relink", "plain.pte", "-o", "plain.pte"), lambda _: None, ("plain.pte",)),
    _Command("deploy", ("deploy", "here", "--stale", "-q"), lambda _: None, ()),
    _Command("report", ("report", "plain.pte", "-q"), _without("plain.html"), ("plain.html",)),
    _Command("gc", ("cache", "gc", "--size", "1KiB"), lambda _: None, ()),
)


def _preloaded(settings: Settings) -> None:
    """Start this process again with the faults preloaded, if they are not."""
    if "ETDEV_FAULTS" in os.environ:
        return
    library = settings.folder / "faults.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library), "ETDEV_FAULTS": "1"}
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def _project(folder: Path) -> Path:
    """Return a copy of a finished project with its cache; build it in ``work`` if it is not there.

    The cache only serves builds in the same folder, so all trials run there.
    """
    copy, place = folder / "project", folder / "work"
    sources = hashlib.sha256()
    for path in sorted(Path(etdev.__file__).parent.rglob("*.py")):
        sources.update(path.read_bytes())
    mark = copy / "done"  # Another version of etdev builds again.
    if not mark.exists() or mark.read_text() != sources.hexdigest():
        shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(copy, ignore_errors=True)
        write_project(place, LINEAR_CONFIG + _MORE, model=LINEAR)
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        environment["ETDEV_CACHE_DIR"] = str((place / "cache").resolve())
        command = [sys.executable, "-m", "etdev", "build", "-q", "-c", "etdev.toml"]
        subprocess.run(command, check=True, env=environment, cwd=place)
        shutil.copy(place / "build" / "cpu" / "tiny.object.pte", place / "plain.pte")
        (place / "done").write_text(sources.hexdigest())
        shutil.copytree(place, copy, symlinks=True)
    return copy


class _Campaign:
    """Trials of faults."""

    def __init__(self, settings: Settings) -> None:
        _preloaded(settings)
        self.seed, self.each = settings.seed, settings.options.each
        self.project = _project(settings.folder)
        self.faults = ctypes.CDLL(None)
        self.work = (settings.folder / "work").resolve()
        self.logs = Path(tempfile.mkdtemp())
        os.environ["NO_COLOR"] = "1"
        # Imported before the process is split, or each command would do it.
        import etdev.cli.app
        import etdev.cli.build
        import etdev.cli.deploy
        import etdev.cli.relink
        import etdev.cli.report
        import etdev.pipeline.builder.build
        import etdev.pipeline.deploy
        import etdev.pipeline.relink  # noqa: F401

        atexit.register(shutil.rmtree, self.logs, ignore_errors=True)
        self.changes: dict[str, int] = {}
        self.expected: dict[str, dict[str, str]] = {}
        for command in COMMANDS:
            folder = self._copy(command)
            code, said = self._wait([self._start(command, folder, _Fault(1 << 40), counted=True)])[0]
            if code:
                raise SystemExit(f"{command.name} fails without a fault: {code} {said}")
            self.changes[command.name] = int((folder / "count").read_text())
            self.expected[command.name] = _contents(folder, command)

    def run(self, number: int) -> Trial:
        chance = random.Random(f"{self.seed} {number}")
        if self.each:
            places = [(command, turn) for command in COMMANDS for turn in range(1, self.changes[command.name] + 1)]
            if number >= len(places):
                return Trial(ends=["after the last change"], most={"number of changes": len(places)})
            command, turn = places[number]
            fault = _Fault(turn, error=getattr(errno, self.each), lasting=1)
        else:
            command = chance.choice(COMMANDS)
            fault = _drawn(chance, chance.randint(1, max(self.changes[command.name], 1)))
        folder = self._copy(command)
        trial = Trial(ends=[command.name])
        try:
            self._trial(chance, command, fault, folder, trial)
            if trial.wrong:
                listed = "\n".join(str(path.relative_to(folder)) for path in sorted(folder.rglob("*")))
                trial.files = {".log": listed.encode()}
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if "torch" in sys.modules:
            trial.wrong.append("campaign: torch is imported")
        return trial

    def _trial(self, chance: random.Random, command: _Command, fault: _Fault, folder: Path, trial: Trial) -> None:
        before = _contents(folder, command)
        if not self.each and not chance.randrange(6):
            self._damage_cache(chance, folder)
            trial.ends.append("damaged cache")
        name = fault.name
        trial.ends += [name, *(["slow disk"] if fault.slow else [])]
        count = 1 if self.each else chance.choice((1, 1, 1, chance.randint(2, 8)))
        if count > 1:
            trial.ends.append("several at once")
        pids = [self._start(command, folder, fault if not at else None, log=at) for at in range(count)]
        where = f"{command.name}, {name} at change {fault.turn} of {self.changes[command.name]}"
        for at, (code, said) in enumerate(self._wait(pids)):
            trial.ends.append(f"exit code {code}")
            if code == "hang":
                trial.wrong.append(f"hang: {where}")
            elif not isinstance(code, int) or (code >= 0 and code not in ({0} if fault.back else _CODES[command.name])):
                trial.wrong.append(f"exit code {code}: {where}, process {at}: {said[-700:]}")
            elif code == 4 and "bug" in said:
                trial.wrong.append(f"bug: {where}: {said[-700:]}")
        self._check(command, folder, before, where, trial)

    def _check(self, command: _Command, folder: Path, before: dict[str, str], where: str, trial: Trial) -> None:
        """Check what is there after the fault, and after another run without one."""
        expected, found = self.expected[command.name], _contents(folder, command)
        for name in command.outputs:
            if found.get(name) not in (before.get(name), expected.get(name), None):
                trial.wrong.append(f"torn: {name}: {where}")
            if name in before and name not in found:
                trial.wrong.append(f"lost: {name}: {where}")
        code, said = self._wait([self._start(command, folder, None)])[0]
        if code != 0:
            trial.wrong.append(f"next run: {code}: {where}: {said[-700:]}")
            return
        found = _contents(folder, command)
        for name in sorted({*found, *expected}):
            if found.get(name) != expected.get(name) and not (command.name == "relink" and name in command.outputs):
                trial.wrong.append(f"next run: {name} {_difference(found.get(name), expected.get(name))}: {where}")
        if "damaged cache" in trial.ends:
            return
        wrong = [
            name
            for name in wrong_in_cache(folder / "cache")
            if not name.endswith(TEMPORARY_SUFFIX) and not name.startswith("native/")
        ]
        trial.wrong += [f"cache: {name}: {where}" for name in wrong]

    @staticmethod
    def _damage_cache(chance: random.Random, folder: Path) -> None:
        files = sorted(path for path in (folder / "cache").rglob("*") if path.is_file())
        for path in chance.sample(files, min(2, len(files))):
            content = path.read_bytes()
            at = chance.randrange(max(len(content), 1))
            byte = (
                content[:at]
                + bytes(one ^ (1 << chance.randrange(8)) for one in content[at : at + 1])
                + content[at + 1 :]
            )
            damaged = chance.choice((b"", content[: len(content) // 2], content + b"x", byte, byte))
            path.chmod(0o644)
            path.write_bytes(damaged)

    # Processes

    def _copy(self, command: _Command) -> Path:
        """Put the finished project in its place, as the command needs it."""
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.project, self.work, symlinks=True)
        command.prepare(self.work)
        return self.work

    def _start(
        self, command: _Command, folder: Path, fault: _Fault | None, *, counted: bool = False, log: int = 0
    ) -> int:
        pid = os.fork()
        if not pid:
            self._command(command, folder, fault, counted=counted, log=log)
        return pid

    def _command(self, command: _Command, folder: Path, fault: _Fault | None, *, counted: bool, log: int) -> NoReturn:
        """Run the command in a process that was just split off."""
        code = 1
        try:
            os.chdir(folder)
            os.environ["ETDEV_CACHE_DIR"] = str(folder / "cache")
            out = os.open(self.logs / f"{log}.log", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
            os.dup2(out, 1)
            os.dup2(out, 2)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            from etdev.cli import app

            if fault is not None:
                self.faults.fault_arm(
                    *(ctypes.c_long(fault.turn), fault.error, fault.signal, fault.lasting),
                    *(ctypes.c_long(fault.slow), ctypes.c_long(fault.back)),
                )
            code = app.run(list(command.arguments))
            seen = self.faults.fault_disarm()
            if counted:
                (folder / "count").write_text(str(seen))
        except BaseException as error:  # noqa: BLE001 - an error that the command line let through
            os.write(2, repr(error).encode())
            code = 71
        finally:
            os._exit(code)

    def _wait(self, pids: list[int]) -> list[tuple[int | str, str]]:
        """Return the exit code of each process, or ``hang``, and what it said."""
        end, found = time.monotonic() + SECONDS, []
        for at, pid in enumerate(pids):
            while True:
                done, status = os.waitpid(pid, os.WNOHANG)
                if done or time.monotonic() > end:
                    break
                time.sleep(0.002)
            code: int | str = os.waitstatus_to_exitcode(status) if done else "hang"
            if not done:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            log = self.logs / f"{at}.log"
            found.append((code, log.read_text(errors="replace") if log.exists() else ""))
            log.unlink(missing_ok=True)
        return found


def _contents(folder: Path, command: _Command) -> dict[str, str]:
    """Return a digest for each file outside of the cache; of files that state times, only that they are there."""
    found = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if name.startswith("cache/") or "__pycache__" in name or name in ("count", "done") or path.is_dir():
            continue
        if name.startswith("served/"):  # Releases have the time in their names.
            name = "/".join(part for part in path.relative_to(folder).parts if not part[:4].isdigit())
        changing = name.endswith(_CHANGING) and name not in command.outputs
        found[name] = "" if changing or path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def _difference(found: str | None, expected: str | None) -> str:
    return "is missing" if found is None else "is left over" if expected is None else "differs"


def make(settings: Settings) -> Run:
    """Return the trial of each number."""
    return _Campaign(settings).run


def _options(parser: argparse.ArgumentParser) -> None:
    names = [errno.errorcode[error] for error in _ERRORS]
    parser.add_argument("--each", choices=names, help="all changes of files fail from each one on, in turn")


if __name__ == "__main__":
    sys.exit(main("faults", make, doc=__doc__, count=1_000, hang=900, options=_options))
