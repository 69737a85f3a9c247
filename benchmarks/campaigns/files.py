"""Damaged ``.pte`` and ``.ptd`` files through every command that reads a file.

Each trial damages one file: random bytes, one number of a table, truncation, places and sizes of segments, or a program
with mistakes that is a valid flatbuffer. It is read and checked. Shares of the accepted files are described, relinked,
compared, verified, made a page of, and run in the interpreter, the native runtime and the stock runtime.

Demanded: no error but an ``EtdevError``, no stage over 10 s, at most 256 MiB over the file's size, no crash, no control
character in a text. A stage that runs the program may take more memory, because the file says how much. A relinked file
has the same bits as the file before in the stock runtime, if that one runs there and reads no unwritten bytes.

    python benchmarks/campaigns/files.py [--count N] [--seconds S] [--seed N] [--start N] [--every N] [--files FILE ...]
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from campaign import Hang, Run, Settings, Trial, describe, main, time_limit
from file_commands import BYTES, SECONDS, Commands, reset_peak, status

from etdev.errors import ProgramError
from etdev.program import Blob, Program, flat_tensor, parse, write, writer
from program import damage, hand, mutations

MADE = (
    "portable", "branches", "loops", "state", "methods", "shared", "dynamic", "external", "xnnpack", "xnnpack_inline",
    "xnnpack_int8", "xnnpack_view",
)  # fmt: skip
KINDS = (
    (damage.random_bytes, 30), (damage.field_aware, 25), (damage.truncated, 5), (damage.extents, 10), (None, 30),
)  # fmt: skip
_DATA = 10
"""One file in so many is a data file."""
_BATCH = 50
"""Reads between two looks at the memory that they took."""


def base_files(settings: Settings) -> list[Path]:
    """Return the files to damage; make them if the folder lacks them."""
    if settings.options.files:
        return [Path(file) for file in settings.options.files]
    folder = settings.folder / "base"
    if not (folder / "done").exists():
        from program import real
        from support.on_devices import two_devices

        folder.mkdir(exist_ok=True)
        (folder / "external").exists() and [file.unlink() for file in (folder / "external").iterdir()]
        (folder / "external").exists() and (folder / "external").rmdir()
        for name, program in {"everything": hand.everything(), "loop": hand.loop(), "devices": two_devices()}.items():
            write(program, folder / f"{name}.pte")
        for name in MADE:
            getattr(real, name)(folder)
        (folder / "done").touch()
    return sorted([*folder.rglob("*.pte"), *folder.rglob("*.ptd")])


class _Files:
    """The files to damage, and the damaged file of each number."""

    def __init__(self, files: list[Path], seed: int) -> None:
        self.seed = seed
        self.programs = [(file, file.read_bytes()) for file in files if file.suffix == ".pte"]
        self.data = [(file, file.read_bytes()) for file in files if file.suffix == ".ptd"]
        self.parsed = {file: parse(Blob(content)) for file, content in self.programs}

    def chance(self, number: int, use: str) -> random.Random:
        return random.Random(f"{self.seed} {number} {use}")

    def damaged(self, number: int, most: int = 3) -> tuple[Path, str, bytes | None]:
        """Return the original, the kind of damage, and the content; None if a mistake cannot be encoded."""
        chance = self.chance(number, "damage")
        is_data = bool(self.data) and not chance.randrange(_DATA)
        file, content = chance.choice(self.data if is_data else self.programs)
        kind = chance.choices([kind for kind, _ in KINDS], [weight for _, weight in KINDS])[0]
        if kind is None and not is_data:
            return file, "mutated", encoded(mutations.mutated(self.parsed[file], chance, most))
        kind = kind or damage.field_aware
        return file, kind.__name__, bytes(kind(content, chance))


def encoded(program: Program) -> bytes | None:
    """Return the program's file, unchecked; None if a field does not hold what it should."""
    with mock.patch.object(writer, "check_program"):
        try:
            return writer.serialize(program)
        except (ProgramError, OverflowError, ValueError):
            return None


class _Campaign:
    """Trials of damaged files."""

    def __init__(self, settings: Settings) -> None:
        self.files = _Files(base_files(settings), settings.seed)
        self._place = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        self.commands = Commands(self.files.chance, settings.options.every, Path(self._place.name))
        self.since: list[int] = []
        import torch  # noqa: F401 - its memory is not that of the first stage that needs it

        resource.setrlimit(resource.RLIMIT_AS, (32 << 30, 32 << 30))
        self.before = reset_peak()

    def run(self, number: int) -> Trial:
        origin, kind, content = self.files.damaged(number)
        trial = Trial(ends=[kind])
        if content is None:
            trial.ends.append("not encoded")
            return trial
        accepted = self._read(origin, content, trial)
        self._look_at_memory(number, trial)
        if accepted is not None:
            data = ()
            if origin.suffix == ".ptd":
                data, content = self._with_data(origin, content)
                accepted = parse(Blob(content))
            self.commands.run(number, content, accepted, trial, data)
            self.before = reset_peak()
        if trial.wrong:
            trial.files = {origin.suffix: self._smaller(number, origin, kind, trial)}
        return trial

    def _read(self, origin: Path, content: bytes, trial: Trial) -> Program | None:
        """Read and check a file. Return a program if the commands shall run on it."""
        start = time.monotonic()
        try:
            with time_limit(SECONDS):
                read = flat_tensor.parse if origin.suffix == ".ptd" else parse
                found: Any = read(Blob(content), where="damaged")
        except ProgramError as error:
            trial.ends.append(f"read {origin.suffix} refused")
            if not error.message.strip():
                trial.wrong.append("read: refused without a word")
            return None
        except Hang:
            trial.wrong.append(f"read: no end after {SECONDS:g} s")
            return None
        except Exception as error:  # noqa: BLE001 - what is looked for
            trial.wrong.append(f"read: {describe(error)}")
            return None
        finally:
            trial.most["seconds of read"] = time.monotonic() - start
        trial.ends.append(f"read {origin.suffix} accepted")
        return found

    def _with_data(self, origin: Path, content: bytes) -> tuple[tuple[Path, ...], bytes]:
        """Return the damaged data file, and the program that needs it."""
        place = self.commands.folder / "damaged.ptd"
        place.unlink(missing_ok=True)
        place.write_bytes(content)
        owners = [whole for file, whole in self.files.programs if file.parent == origin.parent]
        return (place,), owners[0]

    def _look_at_memory(self, number: int, trial: Trial) -> None:
        """Look at the memory of some reads at once; if they took too much, at each of them."""
        self.since.append(number)
        if len(self.since) < _BATCH:
            return
        grown = status("VmHWM") - self.before
        trial.most["MiB of read"] = grown / (1 << 20)
        if grown > BYTES:
            for other in self.since:
                origin, _, content = self.files.damaged(other)
                before = reset_peak()
                if content is not None:
                    with suppress(ProgramError):
                        (flat_tensor.parse if origin.suffix == ".ptd" else parse)(Blob(content))
                if status("VmHWM") - before > BYTES:
                    trial.wrong.append(f"read: {(status('VmHWM') - before) >> 20} MiB for trial {other}")
        self.since, self.before = [], reset_peak()

    def _smaller(self, number: int, origin: Path, kind: str, trial: Trial) -> bytes:
        """Return the file with as little damage as shows the same."""
        _, _, content = self.files.damaged(number)
        assert content is not None
        shows = partial(self._shows, number, origin, trial.wrong[0].partition(" (")[0].partition(":")[2][:40])
        if kind == "mutated":
            for most in (1, 2):
                _, _, other = self.files.damaged(number, most)
                if other is not None and shows(other):
                    return other
            return content
        original = dict([*self.files.programs, *self.files.data])[origin]
        return _fewer_bytes(original, content, shows)

    def _shows(self, number: int, origin: Path, wrong: str, content: bytes) -> bool:
        trial = Trial()
        accepted = self._read(origin, content, trial)
        if accepted is not None and origin.suffix == ".pte":
            self.commands.run(number, content, accepted, trial)
        return any(wrong in each for each in trial.wrong)


def _fewer_bytes(original: bytes, content: bytes, shows: Callable[[bytes], bool]) -> bytes:
    """Return content with as many bytes of the original as possible that still shows what is wrong."""
    if len(original) != len(content):
        return content
    for position in [at for at, pair in enumerate(zip(original, content, strict=True)) if pair[0] != pair[1]]:
        other = content[:position] + original[position : position + 1] + content[position + 1 :]
        if shows(other):
            content = other
    return content


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--files", nargs="*", metavar="FILE", help="files to damage instead of the usual ones")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="run stages N times as often as usual")


def make(settings: Settings) -> Run:
    """Return the trial of each number."""
    return _Campaign(settings).run


if __name__ == "__main__":
    sys.exit(main("files", make, doc=__doc__, count=1_000_000, hang=120, options=_options))
