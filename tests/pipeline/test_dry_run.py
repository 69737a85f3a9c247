"""``build --dry-run``: finds what a build would stumble over, and writes nothing (E2)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from etdev.errors import (
    ExportError,
    LoadError,
    MismatchError,
    MissingRequirementError,
    QuantizeError,
    UsageError,
    VerifyError,
)
from etdev.pipeline.api import open_project
from etdev.pipeline.dry_run import CheckedMethod, DryRun, describe_calls, dry_run
from etdev.pipeline.project import Project
from etdev.pipeline.project.options import BuildOptions
from support.stages import Failure, check_failure

torch = pytest.importorskip("torch", reason="needs the extra `build`")

CONFIG = """
version = 1
[model]
entry = "model:Net"
[methods.forward]
inputs = [{ name = "x", dtype = "float32", shape = ["n", 4] }]
dims.n = { max = 8 }
samples = "data:samples"
[quantize.small]
scheme = "pt2e-xnnpack"
calibration = "data:calibration"
[targets.cpu]
quantize = "small"
[targets.cpu.verify]
accuracy = { fn = "data:accuracy", min = 0.5 }
[targets.other]
"""
MODEL = """import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        BODY
"""
DATA = """
    import torch

    def samples():
        return [(torch.ones(2, 4),)]

    calibration = samples

    def accuracy(run):
        raise RuntimeError("a dry run has no program to measure")
"""
METHOD = "etdev.toml:4:1 (methods.forward)"
DECLARED = "the config declares x: float32 [n, 4]"
AT = "model.py:11, in forward"


def _model(body: str) -> str:
    return MODEL.replace("BODY", body)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.nightly
def test_the_example_passes_and_nothing_is_written(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn", reason="the example's data comes with scikit-learn")
    for name in ("etdev.toml", "model.py", "data.py", "weights.safetensors"):
        (tmp_path / name).write_bytes((repository / "examples" / "digits" / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    before = _files(tmp_path)
    found = dry_run(open_project(environ={}), BuildOptions())
    assert found == DryRun(
        targets=("portable", "xnnpack", "xnnpack-int8"),
        methods=(
            CheckedMethod(
                name="forward",
                inputs="images: float32 [batch, 1, 8, 8]",
                outputs=("float32 [32, 10]",),
                sizes=({"batch": 1}, {"batch": 32}, {"batch": 16}, {"batch": 31}),
                samples=True,
            ),
        ),
        notes=(),
    )
    assert _files(tmp_path) == before


GOOD = {
    "a value as a size": ("n = x[0, 0].long().item(); torch._check(n <= 3); return x[:, :n].sum(1)", "float32 [8]"),
    "a branch by torch.cond": (
        "return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))",
        "float32 [8, 4]",
    ),
    "a constant made on the way": ("return x + torch.tensor([1.0, 2.0, 3.0, 4.0])", "float32 [8, 4]"),
    "state, changed": ("self.count.add_(1); return x + self.count", "float32 [8, 4]"),
    "state, assigned": ("self.count = self.count + 1; return x + self.count", "float32 [8, 4]"),
    "several outputs": ("return {'a': x, 'b': [x.long(), x > 0]}", "float32 [8, 4], int64 [8, 4], bool [8, 4]"),
}


@pytest.mark.parametrize(("body", "outputs"), GOOD.values(), ids=GOOD)
@pytest.mark.sampled(2)
def test_what_exports_passes(project: Callable[..., Project], body: str, outputs: str) -> None:
    """What a build takes, a dry run takes too; outputs are those of the largest sizes."""
    found = dry_run(project(CONFIG, model=_model(body), data=DATA), BuildOptions())
    assert ", ".join(found.methods[0].outputs) == outputs


BAD = {
    "shapes": (
        "return self.linear(x[:, :3])",
        (
            "method 'forward' raised RuntimeError while it was traced: a and b must have same reduction dim, "
            f"but got [1, 3] X [4, 3]. ({AT})"
        ),
        DECLARED,
    ),
    "a branch on a value": (
        "return x if x.sum() > 0 else -x",
        f"method 'forward' branches on a tensor's value at {AT}, but the value is known only at run time",
        "use torch.where or torch.cond instead of `if`; bound a size with torch._check(n <= 128)",
    ),
    "the model raises": (
        "raise ValueError('no')",
        f"method 'forward' raised ValueError while it was traced: no ({AT})",
        DECLARED,
    ),
}


@pytest.mark.parametrize(("body", "message", "hint"), BAD.values(), ids=BAD)
def test_mistakes_in_the_model(
    project: Callable[..., Project], capfd: pytest.CaptureFixture[str], body: str, message: str, hint: str
) -> None:
    made = project(CONFIG, model=_model(body), data=DATA)
    check_failure(lambda: dry_run(made, BuildOptions()), Failure(ExportError, METHOD, message, hint))
    assert "Traceback" not in capfd.readouterr().err


SIZES = {
    "the largest": (
        "return self.linear(x if x.shape[0] < 8 else x[:, :3])",
        "n = 8 (x: float32 [n, 4]): RuntimeError: a and b must have same reduction dim, but got [8, 3] X [4, 3].",
        "narrow the range: the largest size that runs is 7",
    ),
    "one between, where both ends are taken": (
        "return x + torch.zeros(8, 4)",
        (
            "n = 4 (x: float32 [n, 4]): RuntimeError: Attempting to broadcast a dimension of length 8 at -2! "
            "Mismatching argument at index 1 had torch.Size([8, 4]); "
            "but expected shape should be broadcastable to [4, 4]"
        ),
        (
            "narrow the range, or change the model so that the size is not fixed: the method runs with n "
            "= 1 and with n = 8"
        ),
    ),
    "all but one": (
        "return x.reshape(8, 4)",
        "n = 1 (x: float32 [n, 4]): RuntimeError: shape '[8, 4]' is invalid for input of size 4",
        "narrow the range, or write 8 instead of 'n' in the shapes: the method runs with n = 8",
    ),
}


@pytest.mark.parametrize(("body", "message", "hint"), SIZES.values(), ids=SIZES)
def test_sizes_that_export_would_refuse(project: Callable[..., Project], body: str, message: str, hint: str) -> None:
    """A dry run calls with sizes all over a range: what both ends take, a size between them may not."""
    made = project(CONFIG, model=_model(body), data=DATA)
    where = "etdev.toml:6:10 (methods.forward.dims.n)"
    text = f"method 'forward' does not accept {message} ({AT})"
    check_failure(lambda: dry_run(made, BuildOptions()), Failure(ExportError, where, text, hint))


def test_a_dtype_that_only_a_computation_refuses(project: Callable[..., Project]) -> None:
    """Fake tensors multiply float64 by float32; no kernel does. An export takes it, too."""
    config = CONFIG.replace("float32", "float64")
    data = DATA.replace("torch.ones(2, 4)", "torch.ones(2, 4, dtype=torch.float64)")
    made = project(config, model=_model("return self.linear(x)"), data=data)
    where = "etdev.toml:5:33 (methods.forward.inputs[0].dtype)"
    message = "method 'forward' does not accept input 'x' as float64 [n, 4]: RuntimeError: mat1 and mat2 must have…"
    hint = 'set `dtype` to "float32", with which the method runs'
    check_failure(lambda: dry_run(made, BuildOptions()), Failure(ExportError, where, message, hint))


def test_a_model_that_refuses_its_first_sample(project: Callable[..., Project]) -> None:
    body = "torch._assert_async(x.sum() < 0); return x"
    made = project(CONFIG, model=_model(body), data=DATA)
    with pytest.raises(VerifyError, match="method 'forward' failed in eager PyTorch on its own samples"):
        dry_run(made, BuildOptions())


def _data(old: str, new: str) -> str:
    assert old in DATA
    return DATA.replace(old, new)


AROUND = {
    "samples of another shape": (
        _data("(2, 4)", "(9, 4)"),
        Failure(
            LoadError,
            "etdev.toml:7:11 (methods.forward.samples)",
            "'data:samples' returns inputs that method 'forward' does not accept: sample 0: input 'x' has "
            "the shape [9, 4], but is declared as [n, 4]: axis 0 is 9, which is outside 'n' = 1..8",
            f"{DECLARED}; if the samples are right, extend the range of 'n' to include 9",
        ),
    ),
    "another shape in a later sample": (
        _data("[(torch.ones(2, 4),)]", "[(torch.ones(2, 4),), (torch.ones(9, 4),)]"),
        Failure(
            LoadError,
            "etdev.toml:7:11 (methods.forward.samples)",
            "'data:samples' returns inputs that method 'forward' does not accept: sample 1: input 'x' has "
            "the shape [9, 4], but is declared as [n, 4]: axis 0 is 9, which is outside 'n' = 1..8",
            f"{DECLARED}; if the samples are right, extend the range of 'n' to include 9",
        ),
    ),
    "NaN in calibration data": (
        _data("calibration = samples", "calibration = lambda: [*samples(), (torch.ones(1, 4) * float('nan'),)]"),
        Failure(
            QuantizeError,
            "etdev.toml:10:15 (quantize.small.calibration)",
            "'data:calibration' returns inputs that cannot calibrate method 'forward': sample 1: 4 of 4 values of "
            "input 'x' are infinite or NaN",
            "repair 'x' in the data, or leave such samples out; in a mask, use a large finite number instead",
        ),
    ),
    "infinity in calibration data": (
        _data("calibration = samples", "calibration = lambda: [*samples(), (1 / torch.arange(4.0)[None],)]"),
        Failure(
            QuantizeError,
            "etdev.toml:10:15 (quantize.small.calibration)",
            "'data:calibration' returns inputs that cannot calibrate method 'forward': sample 1: 1 of 4 values of "
            "input 'x' are infinite or NaN",
            "repair 'x' in the data, or leave such samples out; in a mask, use a large finite number instead",
        ),
    ),
    "calibration missing": (
        _data("calibration = samples", ""),
        Failure(
            MismatchError,
            "etdev.toml:10:15 (quantize.small.calibration)",
            "'data' has no attribute 'calibration' (from 'data:calibration')",
            "its attributes are: accuracy, samples",
        ),
    ),
    "metric missing": (
        _data("def accuracy", "def acuracy"),
        Failure(
            MismatchError,
            "etdev.toml:14:19 (targets.cpu.verify.accuracy.fn)",
            "'data' has no attribute 'accuracy' (from 'data:accuracy')",
            "did you mean 'acuracy'?",
        ),
    ),
}


@pytest.mark.parametrize(("data", "failure"), AROUND.values(), ids=AROUND)
def test_mistakes_around_the_model(project: Callable[..., Project], data: str, failure: Failure) -> None:
    made = project(CONFIG, model=_model("return x"), data=data)
    check_failure(lambda: dry_run(made, BuildOptions()), failure)


def test_infinite_values_are_valid_samples(project: Callable[..., Project]) -> None:
    data = _data("[(torch.ones(2, 4),)]", "[(-1 / torch.arange(4.0)[None],)]")
    made = project(CONFIG, model=_model("return x.exp()"), data=data)
    assert dry_run(made, BuildOptions(targets=("other",))).notes == ()


def test_calibration_data_with_one_value_only_gets_a_note(project: Callable[..., Project]) -> None:
    made = project(CONFIG, model=_model("return x"), data=DATA)
    (note,) = dry_run(made, BuildOptions()).notes
    assert note.startswith("the calibration data of input 'x' of method 'forward' has one value only, 1: ")
    data = _data("calibration = samples", "calibration = lambda: [*samples(), (torch.zeros(1, 4),)]")
    assert dry_run(project(CONFIG, model=_model("return x"), data=data), BuildOptions()).notes == ()


def test_a_maximum_at_which_the_model_fails_gets_a_note(project: Callable[..., Project]) -> None:
    """Fake tensors do not find an index that is out of range."""
    model = """
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.positions = nn.Embedding(16, 4)

            def forward(self, x):
                return x + self.positions(torch.arange(x.shape[0]))
    """
    config = """
        version = 1
        [model]
        entry = "model:Net"
        [methods.forward]
        inputs = [{ name = "x", dtype = "float32", shape = ["n", 4] }]
        dims.n = { max = MAX }
        [targets.cpu]
    """
    (note,) = dry_run(project(config.replace("MAX", "17"), model=model), BuildOptions()).notes
    assert note.startswith("warning: etdev.toml:")
    assert "method 'forward' fails at its largest sizes (n = 17), on random inputs: IndexError: index out of " in note
    assert not dry_run(project(config.replace("MAX", "16"), model=model), BuildOptions()).notes


def test_a_missing_module(project: Callable[..., Project], tmp_path: Path) -> None:
    made = project(CONFIG, data=DATA)
    message = f"there is no module 'model', neither in {tmp_path} nor among the installed packages"
    expected = Failure(MismatchError, "etdev.toml:3:9 (model.entry)", message, "its modules are: data")
    check_failure(lambda: dry_run(made, BuildOptions()), expected)


def test_only_the_chosen_targets_are_checked(project: Callable[..., Project]) -> None:
    made = project(CONFIG, model=_model("return x"), data=_data("def accuracy", "def acuracy"))
    assert dry_run(made, BuildOptions(targets=("oth*",))).targets == ("other",)
    with pytest.raises(UsageError, match="no target matches 'gpu'"):
        dry_run(made, BuildOptions(targets=("gpu",)))


def test_a_backend_that_is_missing(project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch) -> None:
    from etdev.backends.base import Availability
    from etdev.backends.xnnpack import Xnnpack

    monkeypatch.setattr(Xnnpack, "availability", lambda self: Availability(False, "there is none", "get one"))
    made = project(CONFIG + 'partitioners = [{ backend = "xnnpack" }]\n', model=_model("return x"), data=DATA)
    where = "etdev.toml:16:29 (targets.other.partitioners[0].backend)"
    message = "the backend 'xnnpack' cannot be used here: there is none"
    check_failure(lambda: dry_run(made, BuildOptions()), Failure(MissingRequirementError, where, message, "get one"))


KEEPS = {
    "a function's cache": (
        "import functools\nimport torch\n@functools.cache\ndef scale(n): return torch.ones(n)\n",
        "return self.linear(x) * scale(3)",
        "outputs",
    ),
    "a buffer": (
        "",
        "hasattr(self, 'scale') or self.register_buffer('scale', torch.ones(3)); return self.linear(x) * self.scale",
        "buffers",
    ),
}


@pytest.mark.parametrize(("above", "body", "what"), KEEPS.values(), ids=KEEPS)
def test_a_tensor_that_is_kept_from_a_call_without_values(
    above: str, body: str, what: str, project: Callable[..., Project]
) -> None:
    """It gave a traceback of torch in the middle of a build, and a dry run let it pass."""
    made = project(CONFIG, model=above + MODEL.replace("BODY", body), data=DATA)
    with pytest.raises(VerifyError, match=f"the model has {what} without values") as caught:
        dry_run(made, BuildOptions())
    assert str(caught.value.where).endswith(METHOD)
    assert "in `__init__`, register" in str(caught.value.hint)


@pytest.mark.parametrize(
    "body",
    [
        "self.scale = vars(self).get('scale', torch.ones(3)); return self.linear(x) * self.scale",
        "self.kept['scale'] = self.kept.get('scale', torch.ones(3)); return self.linear(x) * self.kept['scale']",
    ],
    ids=["an attribute", "a dict"],
)
def test_calls_without_values_leave_nothing_in_the_model(body: str, project: Callable[..., Project]) -> None:
    """As an export: what such a model keeps is computed anew for the sample."""
    model = MODEL.replace('self.register_buffer("count"', 'self.kept = {}; self.register_buffer("count"')
    found = dry_run(project(CONFIG, model=model.replace("BODY", body), data=DATA), BuildOptions())
    assert found.methods[0].outputs == ("float32 [8, 3]",)


@pytest.mark.parametrize(
    ("inputs", "sizes", "samples", "said"),
    [
        ("x: float32 [n]", ({"n": 1}, {"n": 8}), True, "n = 1, 8; computed on the first sample"),
        ("x: float32 [2]", ({},), False, "the declared sizes; computed on random inputs, because there are no samples"),
        ("", ({},), False, "no inputs"),
    ],
)
def test_what_a_method_was_called_with(
    inputs: str, sizes: tuple[dict[str, int], ...], samples: bool, said: str
) -> None:
    method = CheckedMethod(name="forward", inputs=inputs, outputs=(), sizes=sizes, samples=samples)
    assert describe_calls(method) == said
