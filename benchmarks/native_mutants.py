"""Broken links and broken plans in ExecuTorch's C++ runtime: how many are noticed there, and by what.

Links are broken as in mutants.py; those count that compute something else in the stock runtime. Plans are broken in two
ways: a tensor is moved over another one that is in use at the same time, or a planned buffer is one byte too small.
Every one runs in the C++ runtime, call after call on one state, without and with poison. It is noticed if the runtime
refuses it, if it crashes or writes outside of a buffer, or if any bit of any output is another one. The column `proof`
has the number that the validator or the strict reader refuses. Ends with 1 if one that is noticed is not refused.

    python benchmarks/native_mutants.py [--links N] [--plans N] [--seed N]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

HERE = Path(__file__).resolve().parent
# A script next to this one has the name of the tests' folder.
sys.path[:] = [str(HERE.parent / "tests"), *(item for item in sys.path if item != str(HERE))]

if TYPE_CHECKING:
    from etdev.program import Program
    from etdev.runtime.native import NativeRuntime
    from validator.mutants import Subject

CHECKS = ("etdev.program.writer.check_program", "etdev.program.reader.check_program")
"""Checks of the writer and the reader. Both refuse plans that are too small before any runtime sees them."""
LIMIT = 10
"""Seconds that a runtime may take for one load or call. A broken jump may be an endless loop."""


def main() -> int:
    """Print a row for links and one for each way to break a plan."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", type=int, default=200, metavar="N", help="links that compute something else")
    parser.add_argument("--plans", type=int, default=200, metavar="N", help="broken plans")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    from etdev.pipeline.project.quiet import quiet_libraries
    from etdev.runtime.native import NativeRuntime, host_executable
    from etdev.runtime.stock import StockRuntime
    from validator.subjects import MODELS, OTHERS, make

    print("| broken | made | refused | crash or guard | bits | bits with poison | noticed | proof | both |")
    print(f"| --- |{' ---: |' * 8}")
    missed = 0
    with tempfile.TemporaryDirectory() as place, quiet_libraries(), StockRuntime(limit=LIMIT) as stock:
        folder = Path(place)
        subjects = [make(name, case, folder / str(n)) for n, (name, case) in enumerate({**MODELS, **OTHERS}.items())]
        host = host_executable()
        with NativeRuntime(host, watch=False, limit=LIMIT) as plain, NativeRuntime(host, limit=LIMIT) as poisoned:
            trial = _Trial(plain, poisoned, folder)
            for subject, made, proved in _links(subjects, arguments.links, arguments.seed, stock, folder):
                missed += trial.add("links", subject, made, refused=not proved)
            for kind, subject, made, proved in _plans(subjects, arguments.plans, arguments.seed):
                missed += trial.add(kind, subject, made, refused=not proved)
    trial.print()
    return 1 if missed else 0


class _Trial:
    """Counts of broken programs, by kind."""

    def __init__(self, plain: NativeRuntime, poisoned: NativeRuntime, folder: Path) -> None:
        self._plain, self._poisoned, self._folder = plain, poisoned, folder
        self._wanted: dict[str, Any] = {}
        self._counts: dict[str, Counter[str]] = {}

    def add(self, kind: str, subject: Subject, made: Program, *, refused: bool) -> bool:
        """Run a broken program. Return whether it is noticed and the proof does not refuse it."""
        if subject.name not in self._wanted:
            self._wanted[subject.name] = self._outcome(self._plain, subject, subject.linked.program)
        wanted = self._wanted[subject.name]
        first = self._outcome(self._plain, subject, made)
        second = self._outcome(self._poisoned, subject, made)
        counts = self._counts.setdefault(kind, Counter())
        reasons = {outcome for outcome in (first, second) if isinstance(outcome, str)}
        counts["made"] += 1
        counts["refused"] += "refused" in reasons
        counts["guard"] += "guard" in reasons
        counts["bits"] += not reasons and first != wanted
        counts["poison"] += not reasons and first == wanted and second != wanted
        noticed = bool(reasons) or first != wanted or second != wanted
        counts["noticed"] += noticed
        counts["proof"] += refused
        counts["both"] += noticed and refused
        return noticed and not refused

    def _outcome(self, runtime: NativeRuntime, subject: Subject, made: Program) -> list[bytes] | str:
        from etdev.program import write
        from etdev.runtime.stock import ProgramFailureError, RuntimeCrashError
        from validator.subjects import output_bits

        file = self._folder / "mutant.pte"
        found: list[bytes] = []
        with _unchecked():
            write(made, file)
            try:
                runtime.load(file, shared=True)
                for method, inputs in subject.calls:
                    found += output_bits(runtime.call(method, inputs))
                    if runtime.called is not None and runtime.called.damages:
                        return "guard"
            except RuntimeCrashError:
                return "guard"
            except ProgramFailureError:
                return "refused"
        return found

    def print(self) -> None:
        """Print a row for each kind."""
        for kind, counts in self._counts.items():
            names = ("made", "refused", "guard", "bits", "poison", "noticed", "proof", "both")
            print(f"| {kind} | {' | '.join(str(counts[name]) for name in names)} |")


@contextmanager
def _unchecked() -> Iterator[None]:
    """Write and read programs that the strict reader refuses."""
    with ExitStack() as stack:
        for check in CHECKS:
            stack.enter_context(mock.patch(check))
        yield


def _links(
    subjects: Sequence[Subject], most: int, seed: int, stock: Any, folder: Path
) -> Iterator[tuple[Subject, Program, bool]]:
    """Yield broken links that compute something else in the stock runtime, and whether the proof accepts them."""
    from etdev.errors import EtdevError
    from validator.mutants import mutants
    from validator.subjects import outputs_of

    each = max(2, most // (10 * len(subjects)) + 1)
    made = 0
    for subject in subjects:
        wanted = outputs_of(subject, subject.linked.program, stock, folder)
        for mutant in mutants(subject, each, seed):
            try:
                changed = outputs_of(subject, mutant.program, stock, folder) != wanted
            except EtdevError:
                continue  # It is not a program any more.
            if changed:
                yield subject, mutant.program, subject.validate(mutant).proved
                made += 1
                if made == most:
                    return


def _plans(subjects: Sequence[Subject], most: int, seed: int) -> Iterator[tuple[str, Subject, Program, bool]]:
    """Yield plans with one overlap, and plans with a buffer that is a byte too small, in turn."""
    draw = random.Random(seed)
    made = 0
    while made < most:
        subject = draw.choice(subjects)
        kind = ("one overlap", "one byte too small")[made % 2]
        program = _overlapping(subject, draw) if made % 2 == 0 else _too_small(subject, draw)
        if program is None:
            continue
        yield kind, subject, program, _is_accepted(subject, program)
        made += 1


def _is_accepted(subject: Subject, program: Program) -> bool:
    """Return whether both the strict reader and the validator accept a program."""
    from etdev.errors import EtdevError
    from etdev.program import Blob, parse, serialize
    from etdev.validator import validate_link

    with _unchecked():
        content = serialize(program)
    try:
        parse(Blob(content))
    except EtdevError:
        return False
    return validate_link(subject.before, program, subject.links(), shared_state=subject.linked.shared_state).proved


def _overlapping(subject: Subject, draw: random.Random) -> Program | None:
    """Move a storage over another one that is in use at the same time."""
    from etdev.errors import LinkError
    from etdev.program.analysis.storage import method_memory
    from etdev.program.delegates import delegate_inputs

    program = subject.linked.program
    number = draw.randrange(len(program.execution_plan))
    plan = program.execution_plan[number]
    try:
        storages = [each for each in method_memory(plan, delegate_inputs(program, plan)).storages if each.size]
    except LinkError:
        return None
    pairs = [
        (one, other)
        for one in storages
        for other in storages
        if one is not other
        and one.memory_id == other.memory_id
        and one.size <= other.size
        and (one.start < other.end and other.start < one.end)
    ]
    if not pairs:
        return None
    one, other = draw.choice(pairs)
    values = list(plan.values)
    for index in one.values:
        value: Any = values[index]
        place = value.allocation_info
        values[index] = replace(
            value, allocation_info=replace(place, memory_offset=place.memory_offset - one.offset + other.offset)
        )
    plans = list(program.execution_plan)
    plans[number] = replace(plan, values=tuple(values))
    return replace(program, execution_plan=tuple(plans))


def _too_small(subject: Subject, draw: random.Random) -> Program | None:
    """Take a byte from a planned buffer of all methods."""
    program = subject.linked.program
    sizes = [plan.non_const_buffer_sizes for plan in program.execution_plan]
    known = [
        index for index in range(1, max(map(len, sizes))) if any(len(each) > index and each[index] for each in sizes)
    ]
    if not known:
        return None
    index = draw.choice(known)
    most = max(each[index] for each in sizes if len(each) > index)
    plans = tuple(
        replace(
            plan,
            non_const_buffer_sizes=tuple(
                min(size, most - 1) if at == index else size for at, size in enumerate(plan.non_const_buffer_sizes)
            ),
        )
        for plan in program.execution_plan
    )
    return replace(program, execution_plan=plans)


if __name__ == "__main__":
    sys.exit(main())
