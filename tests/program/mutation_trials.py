"""Reads, inspects, links and verifies mutated programs: ``python mutation_trials.py FOLDER SEED COUNT FILES...``.

The script runs in its own process with limits on memory, so that one program cannot stop the others. It prints JSON:
the number of programs with each outcome, and everything that should not have happened.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

# Run as a script, by a Python that need not know where the tests are.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from etdev.errors import LinkError, ProgramError, UnlinkableError
from etdev.inspection.inspect import inspect
from etdev.pipeline.relink import relink
from etdev.program import Program, read, writer
from etdev.runtime.device_map import DeviceMap, parse_device_map
from etdev.runtime.interpreter.settings import Bounds
from etdev.verification import standalone_replay as unaided
from etdev.verification.checks.placement import check_placement
from etdev.verification.checks.plan import check_alone
from program.damage import peak
from program.mutations import mutated

SECONDS = 5.0
BYTES = 3 << 30
_REPLAYED = 24
"""One in so many programs is replayed, since replay takes most of the time."""


def _encoded(program: Program) -> bytes | None:
    """Return the program's file, unchecked; None if a field does not hold what it should."""
    with mock.patch.object(writer, "check_program"):
        try:
            return writer.serialize(program)
        except (ProgramError, OverflowError, ValueError):
            return None


def _steps(file: Path, number: int) -> Iterator[str]:
    """Run all commands on a file, and yield the outcome of each."""
    try:
        program = read(file)
    except ProgramError as error:
        yield "refused" if error.path and error.message else "refused without a path"
        return
    inspect(file)
    yield "read"
    try:
        relink(file, file.with_name("linked.pte"))
        yield "linked"
    except UnlinkableError as error:
        yield "not linked" if error.message else "not linked without a word"
    except LinkError as error:
        yield f"wrong link: {error.message}"
    plan, placement = check_alone(program, foreign=True), check_placement(program)
    yield f"plan {plan.status}"
    yield f"placement {placement.status}"
    if number % _REPLAYED == 0 and "failed" not in (plan.status, placement.status):
        yield f"replay {unaided.replay_alone(program, _MAP).status}"


_MAP: DeviceMap = parse_device_map("cuda:0=sim,cuda:1=sim")


def main(arguments: list[str]) -> None:
    """Mutate programs, and run all commands on each."""
    folder, seed, count = Path(arguments[0]), int(arguments[1]), int(arguments[2])
    programs = [(Path(name).name, read(name)) for name in arguments[3:]]
    unaided._BOUNDS = Bounds(steps=1_000, memory=1 << 28)  # Endless loops end earlier than in commands.
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    wrong, ends, slowest, file = [], Counter[str](), 0.0, folder / "mutated.pte"
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        origin, program = programs[number % len(programs)]
        content = _encoded(mutated(program, chance))
        if content is None:
            ends["not encoded"] += 1
            continue
        file.write_bytes(content)
        start = time.process_time()
        found: list[str] = []
        try:
            found.extend(_steps(file, number // len(programs)))
        except BaseException as error:  # noqa: BLE001 - any other is what is looked for
            where = "; ".join(
                f"{Path(at.filename).name}:{at.lineno}" for at in traceback.extract_tb(error.__traceback__)[-3:]
            )
            found.append(f"wrong: {type(error).__name__}: {error} ({where})")
        seconds = time.process_time() - start
        if seconds > SECONDS:
            found.append(f"wrong: {seconds:.1f} s")
        slowest = max(slowest, seconds)
        for end in found:
            if end.startswith(("wrong", "refused without", "not linked without")):
                wrong.append(f"{number} of {origin}, seed {seed}: {end}")
                if (folder / "keep").exists():
                    (folder / "keep" / f"{seed}-{number}.pte").write_bytes(content)
        ends.update(end.partition(":")[0] for end in found)
    print(json.dumps({"wrong": wrong, "ends": ends, "slowest": slowest, "peak": peak()}))


if __name__ == "__main__":
    main(sys.argv[1:])
