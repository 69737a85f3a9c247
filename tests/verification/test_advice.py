"""Advice about a missed limit names what the program has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from etdev.config.tables.schemes import CortexM, Int8DynamicInt4Weight, Pt2eXnnpack, Scheme
from etdev.decisions import TilingDecision
from etdev.pipeline.project import Project
from etdev.pipeline.results.result import MethodResult, UndelegatedOps
from etdev.program import model as m
from etdev.verification.advice import advise, more_accurate
from etdev.verification.limits import Measured
from program.analysis.test_quantized_ends import END, OUT, described
from program.hand import tensor
from support.files import method, program, sin
from support.reports import method_result
from verification.test_limits import weighted

CONFIG = """
version = 1
[model]
entry = "model:make"
[methods.forward]
inputs = [{ name = "x", dtype = "float32", shape = [4] }]
[targets.cpu]
"""
DELEGATE = "let a delegate take ops (partitioners), "
INPUTS = "make the largest inputs smaller (their shapes), or raise budget.memory"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param(0, DELEGATE + INPUTS, id="no state"),
        pytest.param(4, DELEGATE + INPUTS, id="little state"),
        pytest.param(
            64,
            f"{DELEGATE}make the state smaller (256 B; the largest is 'cache'), {INPUTS}",
            id="more state than other memory",
        ),
    ],
)
def test_state_that_takes_much_of_the_memory(project: Callable[..., Project], state: int, expected: str) -> None:
    made = project(CONFIG, model="")
    name = m.ExtraTensorInfo(fully_qualified_name="cache")
    values = [tensor(32, at=0), tensor(32, at=128)]
    kept = [tensor(state, at=256, extra_tensor_info=name)] if state else []
    found = program(method([*values, *kept], [sin(0, 1)], outputs=(1,)))

    assert advise(made, "cpu", Measured(Path("p.pte"), 0, found), "budget.memory", "memory", "cpu") == expected


@pytest.mark.parametrize(
    ("forms", "width", "advised"),
    [({"linear": 2}, 512, True), ({"linear": 2}, 16, False), ({}, 512, False)],
    ids=["copies of operands", "operands too small for the heap", "no forms"],
)
def test_products_that_take_heap(
    project: Callable[..., Project], forms: dict[str, int], width: int, advised: bool
) -> None:
    made = project(CONFIG, model="")
    values = [replace(tensor(1), sizes=(width, width), dim_order=(0, 1))] * 3
    call, operators = m.KernelCall(0, (0, 1, 2, 2)), (m.Operator("aten::mm", "out"),)
    found = program(method(values, [call], outputs=(2,), operators=operators))
    measured = Measured(Path("p.pte"), 0, found, methods=(method_result(forms=forms),))
    advice = advise(made, "cpu", measured, "budget.ram", "ram")
    assert ('set `lowering` to "stock"' in advice) == advised
    assert advice.endswith("or raise budget.ram")


@pytest.mark.parametrize(("backend", "advised"), [("xnnpack", True), ("cortex-m", False), ("ethos-u", False)])
def test_a_data_file_takes_the_same_flash(project: Callable[..., Project], backend: str, advised: bool) -> None:
    options = ', options = { target = "ethos-u55-128" }' if backend == "ethos-u" else ""
    made = project(CONFIG + f'partitioners = [{{ backend = "{backend}"{options} }}]', model="")
    advice = advise(made, "cpu", Measured(Path("p.pte"), 0, weighted(1_000)), "budget.file", "file")
    assert ("`external_weights`" in advice) == advised


INT8 = """quantize = "int8"
[quantize.int8]
scheme = "pt2e-xnnpack"
dynamic = true
"""
STATIC = INT8.replace("dynamic = true", 'calibration = "model:make"')


def test_a_delegate_that_an_op_splits_and_floats_at_the_ends(project: Callable[..., Project]) -> None:
    """A reproducer: the remedies of a vision model were an op and `io`, and the advice named neither."""
    made = project(CONFIG + 'partitioners = [{ backend = "xnnpack" }]\n' + STATIC, model="")
    found = program(method([tensor(32, at=0), tensor(32, at=128)], [sin(0, 1)], outputs=(1,)))
    sine = UndelegatedOps(op="aten.sin.default", count=2, reasons=("xnnpack: unknown op",), source="model.py:20")
    mean = UndelegatedOps(op="aten.mean.dim", count=1, reasons=("xnnpack: only keepdim=True",), source="model.py:21")
    relu = UndelegatedOps(op="aten.relu", count=9)
    ints = UndelegatedOps(op="aten.sin.default", count=2, reasons=("xnnpack: invalid dtype",), source="model.py:9")
    split = method_result(delegate_calls={"XnnpackBackend": 2}, undelegated=(relu, mean, sine))
    change = "let a delegate also take `aten.sin.default` (model.py:20; xnnpack: unknown op), "
    ends = "take and return integers (`io.forward.quantized`), "

    def advice(item: MethodResult) -> str:
        measured = Measured(Path("p.pte"), 0, found, (item,))
        return advise(made, "cpu", measured, "budget.memory", "memory", "cpu")

    assert advice(split) == change + ends + INPUTS
    assert advice(split.model_copy(update={"undelegated": (relu, mean)})) == ends + INPUTS, "no tensor at the peak"
    assert advice(split.model_copy(update={"undelegated": (relu, ints)})) == ends + INPUTS, "positions of tokens"


def test_an_output_that_is_most_of_the_memory(project: Callable[..., Project]) -> None:
    made = project(CONFIG + 'partitioners = [{ backend = "xnnpack" }]\n', model="")
    values = [tensor(8, at=0), tensor(64, at=32)]
    found = program(method(values, [sin(0, 1)], outputs=(1,), sizes=(288,)))
    measured = Measured(Path("p.pte"), 0, found, (method_result(),))
    caller = "let the caller provide output 0 of 'forward' (256 B; set `io.forward.outputs` to \"caller\"), "
    assert advise(made, "cpu", measured, "budget.memory", "memory", "cpu") == caller + INPUTS

    (plan,) = found.execution_plan
    outside = replace(
        plan, values=(values[0], replace(values[1], allocation_info=None)), non_const_buffer_sizes=(0, 64)
    )
    measured = Measured(Path("p.pte"), 0, replace(found, execution_plan=(outside,)), (method_result(),))
    assert advise(made, "cpu", measured, "budget.memory", "memory", "cpu") == INPUTS


@pytest.mark.parametrize("scheme", ["", 'quantize = "int8"\n[quantize.int8]\nscheme = "8da4w"\n', INT8])
def test_integers_are_advised_only_where_they_are_accepted(project: Callable[..., Project], scheme: str) -> None:
    """`io` refuses them for a float target, and for schemes that compute scales at run time."""
    made = project(CONFIG + 'partitioners = [{ backend = "xnnpack" }]\n' + scheme, model="")
    found = program(method([tensor(32, at=0), tensor(32, at=128)], [sin(0, 1)], outputs=(1,)))
    measured = Measured(Path("p.pte"), 0, found, (method_result(),))
    assert advise(made, "cpu", measured, "budget.memory", "memory", "cpu") == INPUTS


@pytest.mark.parametrize(
    ("settings", "operator", "advised"),
    [("", "aten::embedding", True), ("embedding_bits = 4", "aten::embedding", False), ("", "aten::sin", False)],
)
def test_embeddings_in_float_are_named(
    project: Callable[..., Project], settings: str, operator: str, advised: bool
) -> None:
    scheme = f'quantize = "int4"\n[quantize.int4]\nscheme = "8da4w"\n{settings}\n'
    made = project(CONFIG + 'partitioners = [{ backend = "xnnpack" }]\n' + scheme, model="")
    found = program(method([tensor(4, at=0), tensor(4, at=16)], [sin(0, 1)], outputs=(1,)))
    (plan,) = found.execution_plan
    plan = replace(plan, operators=tuple(replace(op, name=operator) for op in plan.operators))
    measured = Measured(Path("p.pte"), 0, replace(found, execution_plan=(plan,)))
    for figure in ("file", "weights"):
        advice = advise(made, "cpu", measured, f"budget.{figure}", figure)
        assert ("(`embedding_bits` in `quantize.int4`)" in advice) == advised


@pytest.mark.parametrize("kind", [m.ScalarType.INT, m.ScalarType.BYTE])
def test_integers_are_not_advised_for_ends_without_floats(project: Callable[..., Project], kind: m.ScalarType) -> None:
    made = project(CONFIG + 'partitioners = [{ backend = "xnnpack" }]\n' + STATIC, model="")
    values = [replace(tensor(32, at=place), scalar_type=kind) for place in (0, 128)]
    found = program(method(values, [sin(0, 1)], outputs=(1,)))
    measured = Measured(Path("p.pte"), 0, found, (method_result(),))
    assert advise(made, "cpu", measured, "budget.memory", "memory", "cpu") == INPUTS


EXTERNAL = "move the weights (16 B) to a file next to it (`external_weights`), "
TILED = method_result(tiling=TilingDecision(tiled=True, memory_saved=9_000, file_growth=4_096))
WHOLE = method_result(tiling=TilingDecision(tiled=False, memory_saved=90, file_growth=4_096))


@pytest.mark.parametrize(
    ("settings", "found", "methods", "expected"),
    [
        pytest.param("", weighted(4), (), f"quantize the model, {EXTERNAL}or raise budget.file", id="a float model"),
        pytest.param(INT8, weighted(4), (WHOLE,), f"{EXTERNAL}or raise budget.file", id="quantized"),
        pytest.param(
            'external_weights = "w.ptd"\n' + INT8, weighted(4), (), "raise budget.file", id="with its weights elsewhere"
        ),
        pytest.param(
            INT8,
            described(),
            (TILED,),
            'set `memory.tiling` to "off", because tiles take 4.00 KiB, or raise budget.file',
            id="tiled",
        ),
        pytest.param(
            INT8,
            described(END, OUT),
            (),
            "list fewer inputs and outputs in `io.forward.quantized` (10 constant methods describe them), "
            "or raise budget.file",
            id="with quantized ends",
        ),
        pytest.param(INT8, None, (), "raise budget.file", id="a file that cannot be read"),
    ],
)
def test_a_file_that_is_too_large(
    project: Callable[..., Project],
    settings: str,
    found: m.Program | None,
    methods: tuple[MethodResult, ...],
    expected: str,
) -> None:
    made = project(CONFIG + settings, model="")
    assert advise(made, "cpu", Measured(Path("p.pte"), 0, found, methods), "budget.file", "file") == expected


@pytest.mark.parametrize(
    ("scheme", "advice"),
    [
        (
            Pt2eXnnpack(scheme="pt2e-xnnpack", calibration="data:samples"),
            (
                "calibrate on more or other data, keep sensitive modules in float (`keep_float`), "
                "use a scheme with more bits"
            ),
        ),
        (
            Pt2eXnnpack(scheme="pt2e-xnnpack", dynamic=True),
            "keep sensitive modules in float (`keep_float`), use a scheme with more bits",
        ),
        (CortexM(scheme="cortex-m"), "calibrate on more or other data, use a scheme with more bits"),
        (
            Int8DynamicInt4Weight(scheme="8da4w", group_size=64, embedding_bits=8),
            "make `group_size` smaller, keep sensitive modules in float (`keep_float`), use a scheme with more bits",
        ),
        (
            Int8DynamicInt4Weight(scheme="8da4w"),
            "keep sensitive modules in float (`keep_float`), use a scheme with more bits",
        ),
    ],
)
def test_advice_on_accuracy_fits_the_scheme(scheme: Scheme, advice: str) -> None:
    """`8da4w` was told to calibrate, which it never does."""
    assert more_accurate(scheme) == advice
