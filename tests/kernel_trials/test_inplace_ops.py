"""What a config makes of the in-place table, and operators that are tried before they are used (C2, C3, C4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest

pytest.importorskip("executorch", reason="needs the extra `build`")

from etdev import compat
from etdev.errors import ConfigError
from etdev.kernel_trials import custom_ops as inplace_ops
from etdev.kernel_trials import trial as inplace_trial
from etdev.kernel_trials.case import Case
from etdev.kernel_trials.cases import cases
from etdev.kernel_trials.custom_ops import InPlaceOps, resolve_ops
from etdev.kernel_trials.op_schema import operator_schema
from etdev.kernel_trials.trial import Trial, try_operator
from etdev.pipeline.project import Project
from etdev.pipeline.project.usercode import UserCode
from etdev.program.analysis.inplace import DEFAULT, Donor
from etdev.runtime.stock import StockRuntime
from support.projects import LINEAR_CONFIG

pytestmark = pytest.mark.integration

Make = Callable[..., Project]


@pytest.fixture(scope="module")
def runtime() -> Iterator[StockRuntime]:
    """Not the one that other tests share: kernels that are wrong in place may write anywhere."""
    with StockRuntime() as own:
        yield own


@pytest.fixture(autouse=True)
def one_process(runtime: StockRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inplace_ops, "runtime_for", lambda project: nullcontext(runtime))


def resolve(project: Make, settings: str) -> InPlaceOps:
    """What ``[targets.cpu.inplace]`` makes of the table. Its settings begin at line 9."""
    config = LINEAR_CONFIG + "[targets.cpu.inplace]\n" + settings
    opened = project("\n".join(line.strip() for line in config.splitlines()).lstrip("\n"))
    with UserCode() as user:
        return resolve_ops(opened, "cpu", user)


RELU = {"aten::relu.out": (Donor(0),)}
ADD = {name: DEFAULT[name] for name in ("aten::add.out", "aten::add.Scalar_out")}

KNOWN = {
    "default": ("", dict(DEFAULT)),
    "none": ('ops = "none"', {}),
    "none and one": ('ops = "none"\nadd = ["aten.relu.default"]', RELU),
    "list": ('ops = ["relu", "aten::add.Scalar_out", "aten.add.Tensor"]', RELU | ADD),
    "all overloads": ('ops = ["add"]', ADD),
    "one of them removed": (
        'ops = ["add"]\nremove = ["aten.add.Tensor"]',
        {"aten::add.Scalar_out": ADD["aten::add.Scalar_out"]},
    ),
    "removed from the default": ('remove = ["relu"]', {name: DEFAULT[name] for name in DEFAULT if name not in RELU}),
    "removed though not there": ('ops = "none"\nremove = ["relu"]', {}),
    "added and removed": ('ops = "none"\nadd = ["relu"]\nremove = ["aten::relu.out"]', {}),
    "added though there": ('add = ["relu"]', dict(DEFAULT)),
}


@pytest.mark.parametrize("case", KNOWN)
def test_operators_of_the_table_are_taken_without_a_trial(
    case: str, project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C2: nothing is run for what etdev's table has."""
    monkeypatch.setattr(inplace_ops, "runtime_for", None)
    settings, table = KNOWN[case]
    assert resolve(project, settings) == InPlaceOps(table)


REFUSED = {
    "mm": (
        'add = ["mm"]',
        (
            '9:8: `targets.cpu.inplace.add[0]` is "mm": aten::mm.out cannot work in place',
            "self -> out: ",
            "mat2 -> out: ",
        ),
    ),
    "flip": (
        'ops = ["relu", "flip"]',
        ("`targets.cpu.inplace.ops[1]`", "self -> out: differs at [2], dims (0,) float32: 1 of 2"),
    ),
    "overlap found by the kernel": ('add = ["constant_pad_nd"]', ("cases fail with shared memory", "0x12")),
    "too few shapes": ('add = ["argmax"]', ("on 5 shapes", "a conclusion needs at least 8 shapes")),
    "no kernel": (
        'add = ["silu", "aten::relux.out"]',
        ('`add[0]` is "silu": there is no such', 'did you mean "aten::relu.out"'),
    ),
    "no output": ('add = ["aten::_local_scalar_dense"]', ("could not be tried: PyTorch has no schema",)),
    "no case": ('add = ["_conj_physical"]', ("could not be tried: its kernel accepted no case",)),
    "removed misspelling": (
        'remove = ["softmaxx"]',
        ("`targets.cpu.inplace.remove[0]`", 'did you mean "aten::_softmax.out"'),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.sampled(1)
def test_operators_that_are_not_right_in_place_are_refused(case: str, project: Make) -> None:
    """C2: with the difference, at the key that names the operator; exit code 2."""
    settings, parts = REFUSED[case]
    with pytest.raises(ConfigError) as caught:
        resolve(project, settings)
    text = str(caught.value)
    assert text.startswith("etdev.toml:9:")
    for part in parts:
        assert part.replace("`add", "`targets.cpu.inplace.add") in text


def test_operators_that_are_right_in_place_are_used(project: Make) -> None:
    """C2: each position by itself; what was tried is said, and that it is no more than tried."""
    found = resolve(project, 'ops = ["relu"]\nadd = ["aten.addmm.default"]')
    assert found.table == RELU | {"aten::addmm.out": (Donor(0),)}
    (tried,) = found.tried
    assert (tried.operator, tried.positions) == ("aten::addmm.out", ("self -> out",))
    assert tried.tested.startswith("tested on 22 shapes with float32, ")
    assert tried.tested.endswith(f", with the kernels of executorch {compat.installed()}'s wheel")


def test_a_trial_is_made_once(project: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def count(runtime: object, schema: object) -> tuple[Trial, ...]:
        made.append(schema.operator)  # type: ignore[attr-defined]
        return (Trial("aten::flip.out", Donor(0), "self", "out", identical=9, shapes=9, dtypes=("float32",)),)

    monkeypatch.setattr(inplace_ops, "try_operator", count)
    monkeypatch.setattr(inplace_ops, "_TRIALS", {})
    first = resolve(project, 'ops = "none"\nadd = ["flip"]')
    assert first.table == {"aten::flip.out": (Donor(0),)}
    assert resolve(project, 'ops = "none"\nadd = ["aten::flip.out"]') == first
    assert made == ["aten::flip.out"]


def test_what_is_removed_is_not_tried(project: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inplace_ops, "try_operator", None)
    assert resolve(project, 'ops = "none"\nadd = ["permute_copy"]\nremove = ["permute_copy"]').table == {}


VERDICTS = {
    "aten::neg.out": ["self -> out: safe"],
    "aten::mm.out": ["self -> out: unsafe", "mat2 -> out: unsafe"],
    "aten::permute_copy.out": ["self -> out: unsafe"],
    "aten::clone.out": ["self -> out: identity"],
    "aten::scatter.src_out": ["self -> out: safe", "index -> out: unsafe", "src -> out: unsafe"],
    "aten::pow.Scalar_out": ["exponent -> out: safe"],
    "aten::constant_pad_nd.out": ["self -> out: refused"],
    "aten::glu.out": ["self -> out: not run"],
}


@pytest.mark.parametrize("operator", VERDICTS)
@pytest.mark.sampled(1)
def test_verdicts(operator: str, runtime: StockRuntime) -> None:
    """C3: every input by itself."""
    schema = operator_schema(operator)
    assert schema is not None
    trials = try_operator(runtime, schema)
    assert [f"{trial.argument} -> {trial.output}: {trial.verdict}" for trial in trials] == VERDICTS[operator]


@pytest.mark.parametrize("operator", ["aten::mm.out", "aten::linear.out", "aten::flip.out"])
def test_one_size_is_enough_to_refuse(operator: str, runtime: StockRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    """C2: a product may look right up to 33 and be wrong at 64."""

    def only(*question: object) -> tuple[Case, ...]:
        return tuple(case for case in cases(*question) if case.outputs[0].shape == (64, 64))  # type: ignore[arg-type]

    monkeypatch.setattr(inplace_trial, "cases", only)
    schema = operator_schema(operator)
    assert schema is not None
    ran = [trial for trial in try_operator(runtime, schema) if trial.verdict != "not run"]
    assert ran
    assert all(trial.verdict == "unsafe" and trial.example.startswith("[64, 64]") for trial in ran)


def test_operators_that_pytorch_does_not_know_have_no_schema() -> None:
    assert operator_schema("nobodys::op.out") is None
    assert operator_schema("aten::relu.nothing") is None
