"""Weights from safetensors: strict about names and shapes, forgiving about what carries no risk (E2)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from etdev.errors import MismatchError
from etdev.pipeline.project import Project
from etdev.pipeline.stages.load.weights import load_weights
from support.stages import Failure, check_failure, load

torch = pytest.importorskip("torch", reason="needs the extra `build`")
save_file = pytest.importorskip("safetensors.torch", reason="needs the extra `build`").save_file

WHERE = "etdev.toml:4:11 (model.weights)"
FITS = "check that `model.kwargs` make the same architecture as when the weights were saved"
CONFIG = """
version = 1
[model]
entry = "model:make"
weights = "WEIGHTS"
[methods.forward]
inputs = [{ name = "x", dtype = "float32", shape = [2, 4] }]
[targets.cpu]
"""
MODEL = "from torch import nn\ndef make(): return nn.Linear(4, 3)\n"


def _layers(count: int) -> torch.nn.Module:
    return torch.nn.ModuleDict({f"l{index}": torch.nn.Linear(2, 2, bias=False) for index in range(count)})


def _weights(**shapes: list[int]) -> dict[str, torch.Tensor]:
    return {name.replace("__", "."): torch.ones(shape) for name, shape in shapes.items()}


MISFITS = {
    "missing": (_layers(2), _weights(l0__weight=[2, 2]), "missing: l1.weight"),
    "unexpected": (_layers(1), _weights(l0__weight=[2, 2], l0__bias=[2]), "unexpected: l0.bias"),
    "another shape": (
        _layers(1),
        _weights(l0__weight=[2, 3]),
        "of another shape: l0.weight (file [2, 3], model [2, 2])",
    ),
    "a scalar for a vector": (
        torch.nn.BatchNorm1d(1, affine=False),
        _weights(running_mean=[], running_var=[1], num_batches_tracked=[]),
        "of another shape: running_mean (file [], model [1])",
    ),
    "all at once": (
        _layers(2),
        _weights(l0__weight=[1], other=[1]),
        "missing: l1.weight; unexpected: other; of another shape: l0.weight (file [1], model [2, 2])",
    ),
    "many": (
        _layers(10),
        {},
        "missing: " + ", ".join(f"l{index}.weight" for index in range(8)) + " and 2 more",
    ),
}


@pytest.mark.parametrize(("module", "weights", "problem"), MISFITS.values(), ids=MISFITS)
def test_what_does_not_fit_is_listed_and_nothing_is_loaded(
    tmp_path: Path, module: torch.nn.Module, weights: dict[str, torch.Tensor], problem: str
) -> None:
    """Judging point 7: weights of another shape."""
    save_file(weights, tmp_path / "w.safetensors")
    before = {name: value.clone() for name, value in module.state_dict().items()}
    check_failure(
        lambda: load_weights(module, tmp_path / "w.safetensors", WHERE),
        Failure(MismatchError, WHERE, f"the weights in w.safetensors do not match the model: {problem}", FITS),
    )
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


SAVE = (
    "save the weights without it, like the script in docs/models.md: "
    "{{name.removeprefix({0!r}): tensor for name, tensor in state.items()}}"
)
PREFIXES = {
    "of DistributedDataParallel": (
        {"module.l0.weight": [2, 2], "module.l1.weight": [2, 2]},
        (
            "every name in the file begins with 'module.' (torch's DataParallel and DistributedDataParallel "
            "add this prefix): "
        )
        + SAVE.format("module."),
    ),
    "of nobody that is known": (
        {"net.body.l0.weight": [2, 2], "net.body.l1.weight": [2, 2]},
        "every name in the file begins with 'net.body.': " + SAVE.format("net.body."),
    ),
    "of some names only": ({"module.l0.weight": [2, 2], "l1.weight": [2, 2]}, FITS),
    "beside others": ({"module.l0.weight": [2, 2], "module.l1.weight": [2, 2], "module.head": [2]}, FITS),
}


@pytest.mark.parametrize(("weights", "hint"), PREFIXES.values(), ids=PREFIXES)
def test_a_prefix_before_every_name_is_told(tmp_path: Path, weights: dict[str, list[int]], hint: str) -> None:
    save_file({name: torch.ones(shape) for name, shape in weights.items()}, tmp_path / "w.safetensors")
    with pytest.raises(MismatchError) as caught:
        load_weights(_layers(2), tmp_path / "w.safetensors", WHERE)
    assert caught.value.hint == hint


def test_a_prefix_that_only_the_model_has_is_told(tmp_path: Path) -> None:
    save_file({"l0.weight": torch.ones(2, 2)}, tmp_path / "w.safetensors")
    with pytest.raises(
        MismatchError, match=r"every name in the model begins with 'inner[.]', but no name in the file does"
    ):
        load_weights(torch.nn.ModuleDict({"inner": _layers(1)}), tmp_path / "w.safetensors", WHERE)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no file {path}"),
        (b"", "{path} cannot be read: …"),
        (b"\x10\0\0\0\0\0\0\0{}", "{path} cannot be read: …"),
    ],
    ids=["missing", "empty", "cut"],
)
def test_files_that_cannot_be_loaded(
    project: Callable[..., Project], tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "w.safetensors"
    if content is not None:
        path.write_bytes(content)
    made = project(CONFIG.replace("WEIGHTS", path.name), model=MODEL)
    hint = "correct the path, or make or download the file before the build" if content is None else None
    check_failure(lambda: load(made), Failure(MismatchError, WHERE, message.replace("{path}", str(path)), hint))


def test_no_pickle_is_opened(project: Callable[..., Project], tmp_path: Path) -> None:
    """A pickle that says it is safetensors runs nothing."""
    marker = tmp_path / "ran"
    pickle = f"cposix\nsystem\n(S'touch {marker}'\ntR."
    (tmp_path / "w.safetensors").write_text(pickle)
    with pytest.raises(MismatchError, match="cannot be read"):
        load(project(CONFIG.replace("WEIGHTS", "w.safetensors"), model=MODEL))
    assert not marker.exists()


def test_weights_are_loaded(project: Callable[..., Project], tmp_path: Path) -> None:
    save_file({"weight": torch.full([3, 4], 7.0), "bias": torch.arange(3.0)}, tmp_path / "w.safetensors")
    loaded = load(project(CONFIG.replace("WEIGHTS", "w.safetensors"), model=MODEL))
    assert loaded.module(torch.ones(1, 4)).tolist() == [[28.0, 29.0, 30.0]]
    assert loaded.notes == ()


def test_another_dtype_is_converted_and_noted(tmp_path: Path) -> None:
    module = torch.nn.Linear(1, 1)
    save_file({"weight": torch.ones(1, 1, dtype=torch.float16), "bias": torch.ones(1)}, tmp_path / "w.safetensors")
    notes = load_weights(module, tmp_path / "w.safetensors", WHERE)
    assert notes == ("weights converted: torch.float16 to torch.float32",)
    assert (module.weight.item(), module.weight.dtype) == (1.0, torch.float32)


@pytest.mark.parametrize("name", ["embedding.weight", "head.weight"])
def test_tied_weights_need_one_of_their_names(tmp_path: Path, name: str) -> None:
    module = torch.nn.ModuleDict({"embedding": torch.nn.Embedding(3, 2), "head": torch.nn.Linear(2, 3, bias=False)})
    module["head"].weight = module["embedding"].weight
    save_file({name: torch.full([3, 2], 5.0)}, tmp_path / "w.safetensors")
    load_weights(module, tmp_path / "w.safetensors", WHERE)
    assert module["head"].weight is module["embedding"].weight
    assert module["head"].weight.eq(5).all()


def test_state_that_is_no_tensor_is_not_asked_for(tmp_path: Path) -> None:
    class Extra(torch.nn.Linear):
        def get_extra_state(self) -> object:
            return {"steps": 3}

    module = Extra(1, 1)
    save_file({"weight": torch.ones(1, 1), "bias": torch.ones(1)}, tmp_path / "w.safetensors")
    load_weights(module, tmp_path / "w.safetensors", WHERE)
    assert module.weight.item() == 1
