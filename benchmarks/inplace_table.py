"""Which kernels may write their output over one of their inputs: runs every kernel of the installed runtime.

Prints a row for each input and output that can have one shape: `safe` (the same bits in all cases), `unsafe` (other
bits in some), `identity` (the output is the input wherever both have one shape), `few` (the same bits, on too few
shapes to tell), `refused` (the kernel fails when they share memory), `not run`. Takes some minutes.
`tests/program/data/inplace_table-VERSION.csv` are its outputs with the tested versions of executorch on x86-64. Their
verdicts are the same.

    python benchmarks/inplace_table.py [--op NAME ...]
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Iterator

from etdev.kernel_trials.op_schema import Schema, operator_schema
from etdev.kernel_trials.trial import Trial, try_operator
from etdev.runtime.stock import StockRuntime

HEADER = ("op", "position", "verdict", "note")


def rows(runtime: StockRuntime, operators: Iterable[str]) -> Iterator[tuple[str, str, str, str]]:
    """A row for each input that was tried, or one that says why there is none."""
    for operator in operators:
        schema = operator_schema(operator)
        if schema is None:
            yield operator, "-", "not run", "PyTorch knows no schema for it"
        elif reason := _why_not(schema):
            yield operator, "-", "not run", reason
        else:
            trials = try_operator(runtime, schema)
            ran = [trial for trial in trials if trial.verdict != "not run"]
            for trial in ran or trials[:1]:
                yield operator, f"{trial.argument}->{trial.output}", trial.verdict, _note(trial)


def _why_not(schema: Schema) -> str | None:
    if not schema.outputs:
        return "it has no output of its own"
    if not any(True for _ in schema.donors()):
        return "no input or no output is a single tensor"
    return None


def _note(trial: Trial) -> str:
    return str(trial).partition(": ")[2]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", action="append", metavar="NAME", help="only this operator, as in aten::add.out")
    wanted = parser.parse_args().op
    import executorch.kernels.quantized  # noqa: F401 - PyTorch learns the schemas of its operators

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(HEADER)
    with StockRuntime() as runtime:
        for row in rows(runtime, wanted or sorted(runtime.operators)):
            writer.writerow(row)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
