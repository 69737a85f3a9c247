"""Device programs that were broken on purpose: how many read something else, and which check finds it.

The small models of the tests, built for two devices with the reference backend. A judge that shares no code with the
linker and its judges says what each instruction reads, byte by byte (tests/validator/reads.py); the checks *plan*,
*placement* and *replay* are asked one by one. The same mutants are made each time. Ends with 1 if one that reads
something else is refused by none, or if there are fewer than 500 of them.

    python benchmarks/device_mutants.py [--each N] [--seed N]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

HERE = Path(__file__).resolve().parent
# A script next to this one has the name of the tests' folder.
sys.path[:] = [str(HERE.parent / "tests"), *(item for item in sys.path if item != str(HERE))]

if TYPE_CHECKING:
    from validator.device_subjects import Tally

FEWEST = 500


def main() -> int:
    """Print a row for each kind of mutant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=12, help="mutants of each kind and model")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    from etdev.pipeline.project.quiet import quiet_libraries
    from validator.device_subjects import CASES, CHECKS, make_subject, try_device_mutants

    def row(name: str, tally: Tally) -> str:
        found = [tally.found[check] for check in CHECKS]
        alone = [tally.alone[check] for check in CHECKS]
        return f"| {' | '.join(map(str, (name, tally.made, tally.changed, *found, *alone, tally.any)))} |"

    with tempfile.TemporaryDirectory() as place, quiet_libraries():
        subjects = [make_subject(name, Path(place) / str(number)) for number, name in enumerate(CASES)]
        trial = try_device_mutants(subjects, arguments.each, arguments.seed)
    names = ["kind", "made", "read something else", *CHECKS, *(f"{check} alone" for check in CHECKS), "any"]
    print(f"| {' | '.join(names)} |\n|{' --- |' * len(names)}")
    for kind, tally in trial.kinds.items():
        print(row(kind, tally))
    total = trial.total()
    print(row(f"all, of {len(subjects)} models", total))
    for missed in trial.missed:
        print(f"refused by none: {missed}", file=sys.stderr)
    return 1 if trial.missed or total.changed < FEWEST else 0


if __name__ == "__main__":
    sys.exit(main())
