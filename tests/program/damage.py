"""Reads, inspects and links damaged versions of files: ``python damage.py FOLDER SEED COUNTS... FILES...``.

The script runs in its own process, so that it can measure its memory. COUNTS are those of versions with random bytes in
header and flatbuffer, with one field changed, and truncated. It prints JSON: the number of files with each outcome, and
everything that should not have happened.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

# Run as a script, by a Python that need not know where the tests are.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from etdev.errors import ProgramError
from etdev.inspection.inspect import inspect
from etdev.pipeline.relink import relink
from etdev.program import read, write
from program.sites import Site, header_sites, sites

SECONDS = 1.0
BYTES = 500 << 20
SMALL = (0, 1, 2, 3, 4, 7, 8, 16, -1, -2, -4, -8, -64)
INTERESTING = (*SMALL, 127, 128, 255, 256, 0x7FFF, 0xFFFF, 1 << 16, 1 << 20, 1 << 31)
"""Numbers at the limits of types, and small ones that point to a neighbour."""


def random_bytes(content: bytes, chance: random.Random) -> bytearray:
    """Change one to eight bytes of header and flatbuffer."""
    damaged, end = bytearray(content), _program_size(content)
    for _ in range(chance.randint(1, 8)):
        damaged[chance.randrange(end)] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    return damaged


def field_aware(content: bytes, chance: random.Random) -> bytearray:
    """Change one number: to a limit, to a neighbour of its old value, or to another number of its kind."""
    found = _all_sites(content)
    kind = chance.choice(sorted({site.kind for site in found}))
    site = chance.choice([site for site in found if site.kind == kind])
    damaged, other = bytearray(content), chance.choice([each for each in found if each.kind == kind])
    values = (chance.choice(INTERESTING), site.read(content) + chance.randint(-9, 9), other.read(content))
    site.write(damaged, chance.choice(values))
    return damaged


def truncated(content: bytes, chance: random.Random) -> bytearray:
    """Truncate the file, somewhere in its flatbuffer or in its segments."""
    return bytearray(content[: chance.randrange(_program_size(content) if chance.random() < 0.5 else len(content))])


KINDS = (random_bytes, field_aware, truncated)

_SITES: dict[bytes, list[Site]] = {}


def _all_sites(content: bytes) -> list[Site]:
    if content not in _SITES:
        _SITES[content] = [*header_sites(content), *sites(content)]
    return _SITES[content]


def _program_size(content: bytes) -> int:
    return int.from_bytes(content[16:24], "little") if content[8:12] == b"eh00" else len(content)


def _versions(
    damage: Callable[[bytes, random.Random], bytearray], files: list[Path], count: int, seed: int
) -> Iterator[tuple[str, bytearray]]:
    chance = random.Random(f"{seed} {damage.__name__}")
    contents = [file.read_bytes() for file in files]
    for number in range(count):
        which = number % len(files)
        yield f"{damage.__name__} {number} of {files[which].name}, seed {seed}", damage(contents[which], chance)


def main(arguments: list[str]) -> None:
    """Damage, read, write and read again, inspect and link."""
    folder, seed = Path(arguments[0]), int(arguments[1])
    counts, files = [int(count) for count in arguments[2:5]], [Path(name) for name in arguments[5:]]
    # A program that takes gigabytes fails, and does not crash the machine.
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    wrong, ends, slowest = [], Counter[str](), 0.0
    for damage, count in zip(KINDS, counts, strict=True):
        for name, content in _versions(damage, files, count, seed):
            (folder / "damaged.pte").write_bytes(content)
            start = time.process_time()
            try:
                end = _read(folder)
            except BaseException as error:  # noqa: BLE001 - any other is what is looked for
                end = "wrong"
                wrong.append(f"{name}: {type(error).__name__}: {error}")
            ends[end] += 1
            slowest = max(slowest, time.process_time() - start)
    print(json.dumps({"wrong": wrong, "ends": ends, "slowest": slowest, "peak": peak()}))


def peak() -> int:
    """Return the peak memory of this process in bytes. ``getrusage`` may return its parent's, from before the exec."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def _read(folder: Path) -> str:
    try:
        program = read(folder / "damaged.pte")
    except ProgramError as error:
        return "refused" if error.message else "refused without a word"
    if program.unknown_fields:
        return "unknown fields"
    write(program, folder / "again.pte")
    assert read(folder / "again.pte") == program
    inspect(folder / "damaged.pte")
    try:
        relink(folder / "damaged.pte", folder / "linked.pte")
    except ProgramError as error:
        return "not linked" if error.message else "not linked without a word"
    return "linked"


if __name__ == "__main__":
    main(sys.argv[1:])
