"""Reader and writer refuse a kernel call that does not match its signature, with its path."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from etdev.program import Program, signature_table
from etdev.program import model as m
from etdev.program.signature_table import SIGNATURES
from etdev.program.signatures import RunTimeNumber, find_signature
from program import hand

OPERATORS = tuple(line.partition("(")[0] for line in SIGNATURES.strip().splitlines())
GENERATOR = Path(__file__).parents[2] / "benchmarks" / "signatures.py"
TENSOR, OTHER, NUMBER, ABSENT, TRUTH, SIZES, FLOAT = range(7)
VALUES: tuple[m.Value, ...] = (
    hand.tensor(2, at=0),
    hand.tensor(2, at=16),
    m.Int(2),
    m.Null(),
    m.Bool(True),
    m.IntList((NUMBER,)),
    m.Double(0.5),
)


def program(name: str, *args: int, values: tuple[m.Value, ...] = VALUES, inputs: tuple[int, ...] = ()) -> Program:
    """Build a program with one call."""
    base, _, overload = name.partition(".")
    loop = hand.loop()
    plan = replace(
        loop.execution_plan[0],
        values=values,
        inputs=inputs,
        outputs=(),
        operators=(m.Operator(base, overload),),
        chains=(m.Chain((m.KernelCall(0, args),)),),
        non_const_buffer_sizes=(0, 1024),
    )
    return replace(loop, execution_plan=(plan,))


def fitting(name: str) -> tuple[tuple[m.Value, ...], tuple[int, ...]]:
    """Return values and arguments of a call that matches; each argument is its own value."""
    signature = find_signature(name)
    assert signature is not None
    values: list[m.Value] = [hand.tensor(2, at=0), m.Int(1)]
    args: list[int] = []
    for parameter in signature.parameters:
        kind = min(parameter.accepts - {m.Null, RunTimeNumber}, key=lambda kind: kind.__name__)
        args.append(len(values))
        values.append(
            {
                m.Tensor: hand.tensor(2, at=len(values) * 16),
                m.TensorList: m.TensorList((0,)),
                m.OptionalTensorList: m.OptionalTensorList((-1, 0)),
                m.IntList: m.IntList((1,)),
                m.DoubleList: m.DoubleList((1.0,)),
                m.BoolList: m.BoolList((True,)),
                m.Int: m.Int(0),
                m.Bool: m.Bool(False),
                m.Double: m.Double(0.0),
                m.String: m.String("none"),
            }[kind]
        )
    if signature.returns and not signature.outputs:
        args.append(args[0])
    elif signature.outputs > 1:
        args.append(len(values))
        values.append(m.TensorList(tuple(args[-1 - signature.outputs : -1])))
    elif signature.returns:
        args.append(args[-1])
    return tuple(values), tuple(args)


@pytest.mark.integration
@pytest.mark.nightly
def test_the_table_is_that_of_the_installed_runtime() -> None:
    """The command runs in its own process, because the available schemas depend on earlier imports."""
    pytest.importorskip("executorch", reason="executorch has the operators")
    done = subprocess.run([sys.executable, GENERATOR], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == Path(signature_table.__file__).read_text(encoding="utf-8")
