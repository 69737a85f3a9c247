"""Frame of the campaigns: numbered trials in a process that may crash, counts, and a file for each finding.

A campaign is a function that makes a function from a number to a :class:`Trial`. The trial of a number depends on the
seed and the number alone, so any finding can be run again with ``--start N --count 1``. The trials run in a child
process. If it crashes or hangs, that is a finding, and a new process goes on with the next number.
"""

from __future__ import annotations

import argparse
import gc
import json
import mmap
import os
import re
import selectors
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

ROOT = Path(__file__).resolve().parents[2]
_EACH = 3
"""Findings of one kind whose files are stored; the others are only counted."""
_NUMBER = struct.Struct("<q")


@dataclass
class Trial:
    """What one trial found."""

    ends: list[str] = field(default_factory=list)
    """Stages that it reached, and their outcomes; each is counted."""
    wrong: list[str] = field(default_factory=list)
    """Violated demands. The part before a colon and the place at the end say which kind it is."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Files that show what is wrong, by suffix."""
    most: dict[str, float] = field(default_factory=dict)
    """Figures of which the run reports the largest."""


@dataclass(frozen=True)
class Settings:
    """What a campaign is told."""

    seed: int
    folder: Path
    """Folder for files that the campaign wants to keep; the findings are in ``found`` below it."""
    options: argparse.Namespace


Run = Callable[[int], Trial]


class Hang(BaseException):
    """A stage that took too long. Not an ``Exception``, so that no stage catches it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise :class:`Hang` in the block after so many seconds."""

    def end(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def kind_of(wrong: str) -> str:
    """Return the text of a finding without its numbers: findings of one kind differ in these alone."""
    return re.sub(r"0x[0-9a-f]+|[0-9]+(?!:)(?![0-9]*\))", "N", wrong)


def describe(error: BaseException) -> str:
    """Return the type and text of an error, and the last places in the code that it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [at for at in frames if "/etdev/" in at.filename] or list(frames)
    places = ", ".join(f"{Path(at.filename).name}:{at.lineno}" for at in own[-3:])
    return f"{type(error).__name__}: {str(error)[:300]} ({places})"


def main(
    name: str,
    make: Callable[[Settings], Run],
    *,
    doc: str | None,
    count: int,
    hang: float = 60,
    options: Callable[[argparse.ArgumentParser], None] = lambda _: None,
) -> int:
    """Run a campaign with the arguments of the command line; return 1 if it found anything.

    A trial that takes longer than ``hang`` seconds is killed, and a finding.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=count, help=f"number of trials (default: {count:,})")
    parser.add_argument("--seconds", type=float, default=None, help="end after so many seconds")
    parser.add_argument("--start", type=int, default=0, metavar="N", help="first trial; goes on with an earlier run")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "campaigns" / name, help="place of all files")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    parser.add_argument("--worker", nargs="*", type=int, help=argparse.SUPPRESS)
    options(parser)
    found = parser.parse_args()
    found.folder.mkdir(parents=True, exist_ok=True)
    if found.worker is not None:
        _work(make(Settings(found.seed, found.folder, found)), found)
        return 0
    return _Parent(name, found, hang).run()


# The child


def _work(run: Run, found: argparse.Namespace) -> None:
    """Run trials from ``--start`` on, and write what they found to the pipe that was stdout."""
    start, stop, pipe, *skipped = found.worker
    out = os.fdopen(pipe, "w")
    with (found.folder / "at").open("r+b") as file:
        at = mmap.mmap(file.fileno(), _NUMBER.size)
    gc.collect()
    gc.freeze()  # The modules of torch are many objects, and they stay.
    ends, most, told = Counter[str](), dict[str, float](), time.monotonic()
    for number in range(start, stop):
        trial = Trial()
        if number not in skipped:
            _NUMBER.pack_into(at, 0, number)
            try:
                trial = run(number)
            except Exception as error:  # noqa: BLE001 - a mistake of the campaign itself is a finding, too
                trial = Trial(wrong=[f"campaign: {describe(error)}"])
        ends.update(trial.ends)
        for key, value in trial.most.items():
            most[key] = max(most.get(key, value), value)
        for kind, text in trial.files.items() if trial.wrong else ():
            _finding(found, number, kind).write_bytes(text)
        if trial.wrong or number == stop - 1 or time.monotonic() - told > 1:
            line = {"next": number + 1, "ends": ends, "most": most, "number": number, "wrong": trial.wrong}
            out.write(json.dumps(line) + "\n")
            out.flush()
            ends, most, told = Counter(), {}, time.monotonic()


def _finding(found: argparse.Namespace, number: int, suffix: str) -> Path:
    folder = found.folder / "found"
    folder.mkdir(exist_ok=True)
    return folder / f"{found.seed}-{number}{suffix}"


# The parent


class _Parent:
    """Process that starts the others and adds up what they found."""

    def __init__(self, name: str, found: argparse.Namespace, hang: float) -> None:
        self.name, self.found, self.hang = name, found, hang
        self.next, self.stop = found.start, found.start + found.count
        self.ends, self.kinds = Counter[str](), Counter[str]()
        self.most: dict[str, float] = {}
        self.wrong: list[str] = []
        self.skipped: list[int] = []
        self.begin = time.monotonic()

    def run(self) -> int:
        interrupted = False
        for number in (signal.SIGINT, signal.SIGTERM):  # Also in the background, where a shell has them ignored.
            signal.signal(number, _interrupt)
        try:
            while self.next < self.stop and not self._is_over():
                self._one_process()
        except KeyboardInterrupt:
            interrupted = True
        self._save()
        self._report(interrupted or self.next < self.stop)
        return 1 if self.wrong else 0

    def _is_over(self) -> bool:
        return self.found.seconds is not None and time.monotonic() - self.begin > self.found.seconds

    def _one_process(self) -> None:
        """Start a process, and listen until it ends or has to."""
        at = self.found.folder / "at"
        at.write_bytes(_NUMBER.pack(-1))
        reading, writing = os.pipe()
        command = [sys.executable, *_script(), *_given(), "--worker", self.next, self.stop, writing, *self.skipped]
        log = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
        with subprocess.Popen(
            [str(part) for part in command], pass_fds=[writing], stdout=log, stderr=log, start_new_session=True
        ) as process:
            os.close(writing)
            try:
                with os.fdopen(reading, "rb") as pipe:
                    hung = self._listen(pipe, at)
            finally:
                # Its own children, such as runtimes, are in its session.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL if not self._done_by(process) else signal.SIGTERM)
                code = process.wait()
        log.seek(0)
        text = log.read().decode(errors="replace")[-2000:]
        log.close()
        if self.next < self.stop and not self._is_over():
            (number,) = _NUMBER.unpack(at.read_bytes())
            if number < 0:
                raise SystemExit(f"the campaign did not start:\n{text}")
            ending = f"no answer for {self.hang:g} s" if hung else f"the process ended with {code}"
            self._add_wrong(number, [f"crash: {ending}"], text)
            self.skipped.append(number)

    def _done_by(self, process: subprocess.Popen[bytes]) -> bool:
        """Return whether the process ends by itself; its last line may come a moment before its end."""
        if self.next < self.stop:
            return False
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        return process.poll() is not None

    def _listen(self, pipe: BinaryIO, at: Path) -> bool:
        """Read lines until the process ends, time is over, or the trial takes too long (returns True)."""
        os.set_blocking(pipe.fileno(), False)
        left, seen, since = b"", at.read_bytes(), time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while not self._is_over():
                if selector.select(0.5):
                    piece = os.read(pipe.fileno(), 1 << 16)
                    if not piece:
                        return False
                    *lines, left = (left + piece).split(b"\n")
                    for line in lines:
                        self._add(json.loads(line))
                    since = time.monotonic()
                now = at.read_bytes()
                if now != seen:
                    seen, since = now, time.monotonic()
                elif time.monotonic() - since > max(self.hang, 120 if now == _NUMBER.pack(-1) else 0):
                    return True
        return False

    def _add(self, line: dict[str, Any]) -> None:
        self.next = line["next"]
        self.ends.update(line["ends"])
        for key, value in line["most"].items():
            self.most[key] = max(self.most.get(key, value), value)
        self._add_wrong(line["number"], line["wrong"], "")
        self._save()

    def _add_wrong(self, number: int, wrong: list[str], log: str) -> None:
        if not wrong:
            return
        kind = kind_of(wrong[0])
        self.kinds[kind] += 1
        if self.kinds[kind] > _EACH:
            for file in (self.found.folder / "found").glob(f"{self.found.seed}-{number}.*"):
                file.unlink()
            return
        text = "\n".join([*wrong, *([log] if log else [])]) + "\n"
        _finding(self.found, number, ".txt").write_text(text)
        self.wrong.append(f"{number}: {'; '.join(wrong)}")
        print(f"found {self.wrong[-1]}", file=sys.stderr, flush=True)

    def _save(self) -> None:
        """Keep the counts next to the findings, so that no interrupt loses them."""
        place = self.found.folder / f"counts-{self.found.seed}-{self.found.start}.json"
        place.write_text(json.dumps(self._counts(), indent=1))

    def _counts(self) -> dict[str, Any]:
        return {
            "campaign": self.name,
            "seed": self.found.seed,
            "start": self.found.start,
            "next": self.next,
            "trials": self.next - self.found.start,
            "seconds": round(time.monotonic() - self.begin, 1),
            "ends": dict(sorted(self.ends.items())),
            "most": self.most,
            "kinds": dict(self.kinds),
            "wrong": self.wrong,
        }

    def _report(self, unfinished: bool) -> None:
        counts = self._counts()
        if self.found.json:
            print(json.dumps(counts))
            return
        print(f"{self.name}: {counts['trials']:,} trials in {counts['seconds']:,} s, seed {self.found.seed}")
        for end, number in counts["ends"].items():
            print(f"  {end:<40} {number:>12,}")
        for key, value in self.most.items():
            print(f"  {'largest ' + key:<40} {value:>12,.2f}")
        print(f"{sum(self.kinds.values())} findings of {len(self.kinds)} kinds")
        if self.wrong:
            print(f"their files are in {self.found.folder / 'found'}")
        if unfinished:
            print(f"go on with --seed {self.found.seed} --start {self.next} --count {self.stop - self.next}")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _script() -> list[str]:
    return [os.path.abspath(sys.argv[0])]


def _given() -> list[str]:
    return sys.argv[1:]
