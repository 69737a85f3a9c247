"""Links that were broken on purpose: how many compute something else, and how many of those the validator refuses.

The small models of the tests, and a few of the zoo, which are built first. Every mutant runs in the stock runtime, on
the same inputs as what it was made from, call after call on one state; it has changed if any bit of any output has, or
if it fails. The same mutants are made each time. Ends with 1 if a mutant that computes something else is not refused.

    python benchmarks/mutants.py [--each N] [--models NAME ...] [--seed N] [--banks]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import zoo_parts  # noqa: F401 - lets the zoo's modules be imported

HERE = Path(__file__).resolve().parent
# A script next to this one has the name of the tests' folder.
sys.path[:] = [str(HERE.parent / "tests"), *(item for item in sys.path if item != str(HERE))]

if TYPE_CHECKING:
    from validator.subjects import Subject

ZOO = ("bert", "llama-decode", "segformer")


def small(folder: Path) -> Iterator[Subject]:
    """The models of the tests."""
    from validator.subjects import MODELS, OTHERS, make

    for number, (name, case) in enumerate({**MODELS, **OTHERS}.items()):
        yield make(name, case, folder / str(number))


def zoo(name: str, folder: Path) -> Subject:
    """A model of the zoo, called twice."""
    from architectures import BY_NAME, random_inputs
    from zoo_parts.steps import build_step

    from etdev.pipeline.project.places import sidecar_place
    from etdev.pipeline.stages.emit import ObjectProgram
    from etdev.program import read
    from etdev.program.sidecar import read_sidecar
    from validator.subjects import linked

    built = build_step(name, "portable", [], folder)
    made = ObjectProgram(read(built.object), read_sidecar(sidecar_place(built.object)), built.object)
    calls = [("forward", random_inputs(BY_NAME[name], call)) for call in range(2)]
    return linked(name, made, calls)


def main() -> int:
    """Print a row for each kind of mutant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=12, help="mutants of each kind and model")
    parser.add_argument("--models", nargs="*", default=list(ZOO), metavar="NAME", help="models of the zoo")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--banks", action="store_true", help="break links into memory banks")
    arguments = parser.parse_args()

    from etdev.pipeline.project.quiet import quiet_libraries
    from etdev.runtime.stock import StockRuntime
    from validator.banked_mutants import each_in_banks, try_banked
    from validator.subjects import Tally, Trial, try_mutants

    def row(name: str, tally: Tally) -> str:
        return f"| {name} | {tally.made} | {tally.changed} | {tally.rejected} | {tally.changed_and_rejected} |"

    with tempfile.TemporaryDirectory() as place, quiet_libraries(), StockRuntime(limit=60) as runtime:
        folder = Path(place)
        subjects = [*small(folder), *(zoo(name, folder / name) for name in arguments.models)]
        trial: Trial
        if arguments.banks:
            trial = try_banked(each_in_banks(subjects), arguments.each, runtime, folder, arguments.seed)
        else:
            trial = try_mutants(subjects, arguments.each, runtime, folder, arguments.seed)
    print("| kind | made | result changed | rejected | changed and rejected |\n| --- | --- | --- | --- | --- |")
    for kind, tally in sorted(trial.kinds.items()):
        print(row(kind, tally))
    print(row(f"all, of {len(subjects)} models", trial.total()))
    for missed in trial.missed:
        print(f"not rejected: {missed}", file=sys.stderr)
    return 1 if trial.missed else 0


if __name__ == "__main__":
    sys.exit(main())
