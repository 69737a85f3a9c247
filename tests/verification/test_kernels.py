"""Check *kernels*: what a file asks for against what the target's runtime has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from etdev.errors import ConfigError
from etdev.pipeline.project.runtime_contents import (
    Requirements,
    RuntimeContents,
    check_runtime_settings,
    library_operators,
    target_runtime,
)
from etdev.runtime.stock import StockRuntime
from etdev.verification.checks.kernels import check_kernels
from support.projects import LINEAR_CONFIG, make_project
from support.stock import shared_runtime
from support.verification import Prepared

ADD, MUL, VIEW, SYM = "aten::add.out", "aten::mul.out", "executorch_prim::et_view.default", "aten::sym_size.int"
TEST = "the test runtime"
RUNTIME = RuntimeContents(frozenset({ADD}), frozenset({"XnnpackBackend"}), False, TEST, TEST)
CLOSED = RuntimeContents(frozenset({ADD}), frozenset({"XnnpackBackend"}), True, TEST, TEST)
EVERYTHING = RuntimeContents(None, frozenset(), False, "all.yaml")


def asks(operators: Mapping[str, Iterable[str]], delegates: Mapping[str, Iterable[str]]) -> Requirements:
    return Requirements(
        {method: frozenset(names) for method, names in operators.items()},
        {method: frozenset(names) for method, names in delegates.items()},
    )


@pytest.mark.parametrize(
    ("contents", "operators", "delegates", "status", "summary"),
    [
        pytest.param(RUNTIME, (ADD,), (), "passed", "1 operator in the test runtime", id="operators"),
        pytest.param(
            RUNTIME,
            (),
            ("XnnpackBackend",),
            "passed",
            "0 operators and XnnpackBackend in the test runtime",
            id="a backend",
        ),
        pytest.param(RUNTIME, (ADD, VIEW, SYM), (), "passed", "3 operators in the test runtime", id="primitives"),
        pytest.param(EVERYTHING, (ADD, MUL), (), "passed", "2 operators in all.yaml", id="everything"),
        pytest.param(
            RUNTIME,
            (ADD, MUL),
            (),
            "failed",
            "method 'forward' needs operators that the test runtime lacks: aten::mul.out",
            id="an operator is missing",
        ),
        pytest.param(
            CLOSED,
            (ADD,),
            ("CudaBackend",),
            "failed",
            "method 'forward' needs backends that the test runtime lacks: CudaBackend",
            id="a backend is missing",
        ),
        pytest.param(
            RUNTIME,
            (ADD,),
            ("CudaBackend",),
            "not run",
            "neither the test runtime nor the config's `runtime.backends` has CudaBackend",
            id="a backend that nobody knows",
        ),
        pytest.param(
            RUNTIME,
            (ADD,),
            ("EtdevReferenceBackend",),
            "not run",
            "the backend EtdevReferenceBackend is etdev's own, and no ExecuTorch runtime has it",
            id="etdev's own backend",
        ),
        pytest.param(
            CLOSED,
            (ADD,),
            ("EtdevReferenceBackend",),
            "not run",
            "the backend EtdevReferenceBackend is etdev's own, and no ExecuTorch runtime has it",
            id="etdev's own backend, which no list of backends has",
        ),
        pytest.param(
            RUNTIME,
            (ADD,),
            ("CudaBackend", "EtdevReferenceBackend"),
            "not run",
            "neither the test runtime nor the config's `runtime.backends` has CudaBackend",
            id="etdev's own backend beside another",
        ),
        pytest.param(
            RUNTIME,
            (MUL,),
            ("CudaBackend",),
            "failed",
            "method 'forward' needs operators that the test runtime lacks: aten::mul.out",
            id="a missing operator outweighs an unknown backend",
        ),
    ],
)
def test_contents(
    contents: RuntimeContents, operators: tuple[str, ...], delegates: tuple[str, ...], status: str, summary: str
) -> None:
    found = check_kernels(contents, asks({"forward": operators}, {"forward": delegates}))

    assert (found.status, found.summary) == (status, summary)
    assert not found.gate
    assert found.problems == ((summary,) if status == "failed" else ())


def test_every_method_that_lacks_something_is_named() -> None:
    found = check_kernels(
        CLOSED, asks({"encode": (MUL,), "decode": (ADD,)}, {"encode": (), "decode": ("CudaBackend",)})
    )

    assert [problem.split()[1] for problem in found.problems] == ["'encode'", "'decode'"]


def test_the_libraries_together_are_the_wheel() -> None:
    wheel = shared_runtime().operators
    portable, optimized, quantized = (library_operators(name, wheel) for name in ("portable", "optimized", "quantized"))

    assert {"aten::add.out", "aten::permute_copy.out"} <= portable & optimized
    assert "aten::linear.out" in optimized - portable
    assert "quantized_decomposed::quantize_per_tensor.out" in quantized - portable - optimized
    assert wheel <= portable | optimized | quantized


@pytest.mark.parametrize(
    ("settings", "status", "said"),
    [
        ((), "passed", "1 operator in the wheel's runtime"),
        (
            ('targets.cpu.runtime.kernels=["portable"]',),
            "failed",
            "method 'forward' needs operators that a runtime with portable kernels lacks: aten::linear.out",
        ),
        (
            ('targets.cpu.runtime.kernels=["portable", "optimized"]',),
            "passed",
            "1 operator in a runtime with portable and optimized kernels",
        ),
        (('targets.cpu.runtime.backends=["CudaBackend"]',), "passed", "1 operator in the wheel's runtime"),
    ],
)
def test_the_config_says_what_the_runtime_has(
    linear: Prepared, settings: tuple[str, ...], status: str, said: str
) -> None:
    checks = linear.judge(*settings, operators={"forward": ("aten::linear.out",)})

    assert checks["kernels"].status == status
    assert said in checks["kernels"].summary
    assert checks["runtime"].status == "passed"  # The wheel has them, whatever the target lacks.


@pytest.mark.nightly
def test_a_closed_list_of_backends(quantized: Prepared) -> None:
    assert quantized.judge()["kernels"].summary.endswith("XnnpackBackend in the wheel's runtime")
    refused = quantized.judge("targets.int8.runtime.backends=[]")["kernels"]
    assert refused.status == "failed"
    assert refused.summary.endswith("backends that the config's `runtime.backends` lacks: XnnpackBackend")
    assert refused.where is not None
    assert refused.where.endswith("(targets.int8.runtime.backends)")
    listed = quantized.judge('targets.int8.runtime.backends=["XnnpackBackend"]')["kernels"]
    assert listed.summary.endswith("in the wheel's runtime, XnnpackBackend in the config's `runtime.backends`")


@pytest.mark.parametrize(
    ("operator", "settings", "where", "hint"),
    [
        (
            "aten::relu.out",
            ('["quantized"]',),
            "model.py:12, in forward (aten::relu.out)",
            "or replace the op",
        ),
        ("aten::addmm.out", ('["quantized"]',), "model.py:12, in forward (aten::addmm.out)", "runtime.kernels"),
        (
            "aten::linear.out",
            ('["portable"]',),
            "model.py:12, in forward (aten::linear.out)",
            "add 'optimized' to",
        ),
        ("aten::topk.values", ('["quantized"]',), "(targets.cpu.runtime.kernels)", "add 'portable' or"),
    ],
)
def test_a_missing_operator_names_the_line_that_needs_it(
    linear: Prepared, operator: str, settings: tuple[str, ...], where: str, hint: str
) -> None:
    """A decomposed op stands in no line by its name: `addmm` is what becomes of `linear`."""
    check = linear.judge(
        *(f"targets.cpu.runtime.kernels={text}" for text in settings), operators={"forward": (operator,)}
    )["kernels"]

    assert check.status == "failed"
    assert check.where is not None
    assert check.where.endswith(where)
    assert check.hint is not None
    assert hint in check.hint


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"operators": {"forward": ("my::op.out",)}}, "the wheel's runtime has no kernel for my::op.out"),
        ({"delegates": {"forward": ("MyBackend",)}}, "the wheel's runtime has no backend MyBackend"),
        (
            {"delegates": {"forward": ("OpenvinoBackend",)}},
            "the wheel's runtime does not find a library for its backend OpenvinoBackend",
        ),
    ],
)
def test_what_the_wheel_lacks_is_not_run(
    linear: Prepared, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], reason: str
) -> None:
    """A target may have what the wheel has not: then nothing of it can be run here, and nothing is claimed."""
    monkeypatch.setattr(StockRuntime, "usable_backends", frozenset({"XnnpackBackend"}))
    settings = ('targets.cpu.runtime.backends=["MyBackend", "OpenvinoBackend"]',)
    checks = linear.judge(*settings, **changes)

    assert (checks["runtime"].status, checks["accuracy"].status) == ("not run", "not run")
    assert reason in checks["runtime"].summary


_SELECTED = "operators:\n  aten::add.out:\n    is_root_operator: true\n  'aten::mul.out': {}\n"


@pytest.mark.parametrize(
    ("text", "has", "lacks"),
    [(_SELECTED, {ADD, MUL}, {"aten::relu.out"}), ("include_all_operators: true\n", {ADD, "any::op"}, set())],
)
def test_selected_operators(tmp_path: Path, text: str, has: set[str], lacks: set[str]) -> None:
    project = make_project(tmp_path, LINEAR_CONFIG + '[targets.cpu]\nruntime.operators = "selected.yaml"\n')
    (tmp_path / "selected.yaml").write_text(text)
    contents = target_runtime(project, "cpu", frozenset({"aten::relu.out"}), frozenset())

    assert contents.operators_label == "selected.yaml"
    assert check_kernels(contents, asks({"forward": has}, {})).status == "passed"
    for name in lacks:
        assert check_kernels(contents, asks({"forward": {name}}, {})).status == "failed"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(None, "selected.yaml cannot be read", id="missing"),
        pytest.param(b"operators: [", "selected.yaml cannot be read", id="no YAML"),
        pytest.param(b"\xff\xfe\x00", "selected.yaml cannot be read", id="no text"),
        pytest.param(b"- aten::add.out\n", "selected.yaml does not contain a table", id="a list"),
        pytest.param(b"", "selected.yaml does not contain a table", id="empty"),
        pytest.param(b"operators: [aten::add.out]\n", "selected.yaml has no table `operators`", id="another form"),
    ],
)
def test_a_bad_list_of_operators_is_an_error_of_the_config(tmp_path: Path, content: bytes | None, said: str) -> None:
    config = LINEAR_CONFIG + '    [targets.cpu]\n    runtime.operators = "selected.yaml"\n'
    project = make_project(tmp_path, config)
    if content is not None:
        (tmp_path / "selected.yaml").write_bytes(content)

    with pytest.raises(ConfigError) as caught:
        check_runtime_settings(project, "cpu")
    (problem,) = caught.value.problems
    assert said in problem.message
    assert problem.key == "targets.cpu.runtime.operators"
    assert problem.line == 9
    assert problem.hint
