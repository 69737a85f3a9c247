"""A kernel call that does not fit its operator's signature is refused, by reader and writer, with its path."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from etdev.errors import ProgramError
from etdev.program import Program, write
from etdev.program import model as m
from etdev.program.check import check_program
from etdev.program.flaw import FlawError
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
    """A program with one call."""
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
    """Values and arguments of a call that fits: each argument is a value of its own."""
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


def generator() -> ModuleType:
    """The command that makes the table."""
    spec = importlib.util.spec_from_file_location("signatures_command", GENERATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_that_of_the_installed_runtime() -> None:
    pytest.importorskip("executorch", reason="executorch has the operators")
    command = generator()
    assert "\n".join(command.signatures()) == SIGNATURES.strip()
    assert command.render(SIGNATURES.strip().splitlines()) == (
        Path(command.signature_table.__file__).read_text(encoding="utf-8")
    )


@pytest.mark.parametrize("name", OPERATORS)
def test_a_call_fits_with_every_argument_and_not_without_one(name: str) -> None:
    values, args = fitting(name)
    check_program(program(name, *args, values=values))
    for number in range(len(args)):
        with pytest.raises(FlawError):
            check_program(program(name, *args[:number], *args[number + 1 :], values=values))


CALL = "execution_plan[0].chains[0].instructions[0].kernel_call.args"
FLAWS: dict[str, tuple[str, tuple[int, ...], str, str]] = {
    "too few arguments": (
        "aten::view_copy.out",
        (0, 1, 1),
        CALL,
        "takes 4 values with its outputs, and the call has 3",
    ),
    "none": ("aten::sym_size.int", (), CALL, "takes 3 values with its outputs, and the call has 0"),
    "a number for a list of sizes": (
        "aten::view_copy.out",
        (TENSOR, NUMBER, OTHER, OTHER),
        f"{CALL}[1]",
        "aten::view_copy.out takes a list of integers as `size`, but value 2 is an integer",
    ),
    "a number for a tensor": (
        "aten::sym_size.int",
        (NUMBER, NUMBER, NUMBER),
        f"{CALL}[0]",
        "takes a tensor as `self`, but value 2 is an integer",
    ),
    "an integer for a float": (
        "aten::native_dropout.out",
        (TENSOR, NUMBER, ABSENT, TENSOR, OTHER, 7),
        f"{CALL}[1]",
        "takes a float as `p`, but value 2 is an integer",
    ),
    "nothing for a number": (
        "aten::select_copy.int_out",
        (TENSOR, ABSENT, NUMBER, OTHER, OTHER),
        f"{CALL}[1]",
        "takes an integer as `dim`, but value 3 is absent",
    ),
    "a float for what may be absent": (
        "aten::slice_copy.Tensor_out",
        (TENSOR, NUMBER, FLOAT, ABSENT, NUMBER, OTHER, OTHER),
        f"{CALL}[2]",
        "takes an integer or none, as `start`, but value 6 is a float",
    ),
    "a number as output": (
        "aten::relu.out",
        (TENSOR, NUMBER, NUMBER),
        f"{CALL}[1]",
        "takes a tensor as output, but value 2 is an integer",
    ),
    "another output than it writes": (
        "aten::relu.out",
        (TENSOR, TENSOR, OTHER),
        f"{CALL}[2]",
        "returns its outputs, but value 1 is another",
    ),
    "a list of other outputs": (
        "aten::native_dropout.out",
        (TENSOR, FLOAT, ABSENT, OTHER, TENSOR, 7),
        f"{CALL}[5]",
        "returns its outputs, but value 7 is another",
    ),
    "in place, and another result": (
        "aten::copy_",
        (TENSOR, OTHER, TRUTH, OTHER),
        f"{CALL}[3]",
        "returns its first argument, but value 1 is another",
    ),
    "a truth value as size": (
        "aten::sym_size.int",
        (TENSOR, NUMBER, TRUTH),
        f"{CALL}[2]",
        "takes an integer as output, but value 4 is a truth value",
    ),
}


@pytest.mark.parametrize("name", FLAWS)
def test_a_call_that_does_not_fit_is_refused(name: str, tmp_path: Path) -> None:
    operator, args, path, message = FLAWS[name]
    values = (*VALUES, m.TensorList((TENSOR, OTHER)))
    with pytest.raises(ProgramError) as refused:
        write(program(operator, *args, values=values), tmp_path / "a.pte")
    assert refused.value.path == path
    assert message in refused.value.message


@pytest.mark.parametrize("operator", ["my::op.out", "aten::not_an_operator.out", "executorch_prim::another.Scalar"])
def test_an_unknown_operator_takes_anything(operator: str) -> None:
    check_program(program(operator, ABSENT, NUMBER))


def test_a_number_that_is_absent_in_the_file_may_be_set_at_run_time() -> None:
    call = ("aten::select_copy.int_out", TENSOR, NUMBER, ABSENT, OTHER, OTHER)
    check_program(program(*call, inputs=(ABSENT,)))
    moved = program(*call)
    plan = moved.execution_plan[0]
    chain = m.Chain((m.MoveCall(NUMBER, ABSENT), *plan.chains[0].instructions))
    check_program(replace(moved, execution_plan=(replace(plan, chains=(chain,)),)))
    with pytest.raises(FlawError, match="value 3 is absent"):
        check_program(moved)


COPIES = {
    "scalar_type": {"scalar_type": m.ScalarType.INT},
    "sizes": {"sizes": (1,)},
    "shape_dynamism": {"shape_dynamism": m.TensorShapeDynamism.DYNAMIC_BOUND},
    "dim_order": {"sizes": (2, 1), "dim_order": (1, 0)},
}


@pytest.mark.parametrize("operator", ["et_copy::_h2d_copy.out", "et_copy::_d2h_copy.out"])
@pytest.mark.parametrize("field", COPIES)
def test_a_copy_between_host_and_device_changes_nothing(operator: str, field: str) -> None:
    first = hand.tensor(2, 1, at=0) if field == "dim_order" else VALUES[TENSOR]
    same = (first, first, *VALUES[2:])
    check_program(program(operator, TENSOR, OTHER, OTHER, values=same))
    other = replace(first, **COPIES[field])  # type: ignore[arg-type]
    with pytest.raises(FlawError, match=f"the copy, value 1, has the {field}") as refused:
        check_program(program(operator, TENSOR, OTHER, OTHER, values=(first, other, *VALUES[2:])))
    assert refused.value.path == f"{CALL}[1]"


def test_no_kernel_writes_a_constant() -> None:
    values = (VALUES[TENSOR], hand.tensor(2, extra_tensor_info=_EXTERNAL), *VALUES[2:])
    with pytest.raises(FlawError, match="writes value 1, which is a constant") as refused:
        check_program(program("aten::relu.out", TENSOR, OTHER, OTHER, values=values))
    assert refused.value.path == f"{CALL}[1]"
    with pytest.raises(FlawError, match="writes value 1, which is a constant"):
        check_program(program("aten::copy_", OTHER, TENSOR, TRUTH, OTHER, values=values))
    check_program(program("aten::copy_", TENSOR, OTHER, TRUTH, TENSOR, values=values))


_EXTERNAL = m.ExtraTensorInfo(fully_qualified_name="weight", location=m.TensorDataLocation.EXTERNAL)
