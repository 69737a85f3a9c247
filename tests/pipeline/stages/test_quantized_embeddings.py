"""Embeddings with weights of 4 and 8 bits, from quantization to ExecuTorch's runtimes (E2)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import etdev
from etdev.errors import ExportError, QuantizeError
from etdev.pipeline.project import Project
from support.stages import Failure, check_failure, quantize

pytestmark = pytest.mark.integration

torch = pytest.importorskip("torch", reason="needs the extra `build`")

CONFIG = """
version = 1
[model]
entry = "model:Net"
[methods.forward]
inputs = [{ name = "tokens", dtype = "int64", shape = [1, "n"] }]
dims.n = { max = 16 }
samples = "model:samples"
[quantize.small]
scheme = "8da4w"
SETTINGS
[targets.cpu]
quantize = "small"
partitioners = [{ backend = "xnnpack" }]
"""
KEY = "etdev.toml:10:18 (quantize.small.embedding_bits)"
MODEL = """
    import torch
    from torch import nn

    class Scaled(nn.Embedding):
        def forward(self, x):
            return 8 * super().forward(x)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.words = EMBEDDING
            self.other_path = self.words
            self.head = nn.Linear(64, 50, bias=False)
            self.head.weight = nn.Parameter(self.words.weight[:50].clone())

        def forward(self, tokens):
            return self.head(self.other_path(tokens)), self.words(tokens)

    def samples():
        return [(torch.arange(50).roll(shift)[None, :16],) for shift in range(0, 50, 16)]
"""
EMBEDDING = "nn.Embedding(50, 64, padding_idx=3)"


def made(project: Callable[..., Project], settings: str, embedding: str = EMBEDDING) -> Project:
    return project(CONFIG.replace("SETTINGS", settings), model=MODEL.replace("EMBEDDING", embedding))


@pytest.mark.parametrize(("bits", "largest"), [(8, 127.5), (4, 7.5)])
def test_each_weight_is_at_most_half_a_step_off(project: Callable[..., Project], bits: int, largest: float) -> None:
    """Steps are those of the group of 32 weights; one module with two paths stays one."""
    module = quantize(made(project, f"embedding_bits = {bits}")).eager["forward"]
    assert module.words is module.other_path  # type: ignore[attr-defined]
    torch.manual_seed(3)
    right = torch.nn.Embedding(50, 64, padding_idx=3).weight.detach()
    _, found = module(torch.arange(50)[None])
    steps = right.unflatten(1, (2, 32)).abs().amax(-1, keepdim=True) / largest
    assert ((found[0] - right).unflatten(1, (2, 32)).abs() <= 0.5 * steps + 1e-6).all()


def test_a_built_program_has_small_embeddings(project: Callable[..., Project]) -> None:
    """All runtimes have the kernels, and they compute the same as the quantized model."""
    sizes = {}
    for settings in ("", "embedding_bits = 8", "embedding_bits = 4"):
        root = made(project, settings).loaded.root
        target = etdev.build(root / "etdev.toml")["cpu"]
        checks = {check.name: check.status for check in target.checks}
        assert (target.status, checks["runtime"]) == ("built", "passed")
        assert checks["native"] in ("passed", "not run")  # There may be no compiler.
        sizes[settings] = target.size
        (ops,) = (method.operators for method in target.methods)
        kernel = {"": "aten::embedding.out", "embedding_bits = 8": "quantized_decomposed::embedding_byte.out"}
        assert kernel.get(settings, "quantized_decomposed::embedding_4bit.out") in ops
    floats, bytes_, halves = sizes.values()
    weights = 50 * 64
    assert floats - bytes_ == pytest.approx(3 * weights - 50 * 2 * 4, abs=600)
    assert bytes_ - halves == pytest.approx(weights / 2, abs=100)


@pytest.mark.parametrize(
    ("settings", "embedding", "where", "message", "hint"),
    [
        pytest.param(
            "embedding_bits = 4",
            "Scaled(50, 64)",
            KEY,
            "the embedding 'words' is a Scaled, so it computes more than ExecuTorch's quantized embedding",
            "name 'words' in `keep_float`, or use a plain `torch.nn.Embedding` in the model",
            id="derived",
        ),
        pytest.param(
            "embedding_bits = 4",
            "nn.Embedding(50, 64, max_norm=1.0)",
            KEY,
            "the embedding 'words' has `max_norm`, so it computes more than ExecuTorch's quantized embedding",
            "name 'words' in `keep_float`, or use a plain `torch.nn.Embedding` in the model",
            id="norm",
        ),
        pytest.param(
            "embedding_bits = 4",
            "nn.Embedding(50, 64); self.words.register_forward_hook(lambda *given: 2 * given[-1])",
            KEY,
            "the embedding 'words' has hooks, so it computes more than ExecuTorch's quantized embedding",
            "name 'words' in `keep_float`, or use a plain `torch.nn.Embedding` in the model",
            id="hooks",
        ),
        pytest.param(
            'embedding_bits = 4\nkeep_float = ["words", "other_path"]',
            EMBEDDING,
            KEY,
            "`embedding_bits` is set, but the model has no embedding to quantize",
            "remove `embedding_bits`",
            id="none",
        ),
        pytest.param(
            "embedding_bits = 4\ngroup_size = 128",
            EMBEDDING,
            "etdev.toml:11:14 (quantize.small.group_size)",
            "group_size 128 does not divide the width of head (64), other_path (64), words (64)",
            "set `group_size` to 32 or 64, or name 'head', 'other_path', 'words' in `keep_float`",
            id="width",
        ),
        pytest.param(
            "group_size = 32",
            "nn.Embedding(50, 64); self.odd = nn.Linear(65, 1)",
            "etdev.toml:10:14 (quantize.small.group_size)",
            "group_size 32 does not divide the width of odd (65)",
            "name 'odd' in `keep_float`, because no multiple of 32 divides all widths",
            id="odd",
        ),
    ],
)
def test_embeddings_that_cannot_be_quantized(
    project: Callable[..., Project], settings: str, embedding: str, where: str, message: str, hint: str
) -> None:
    check_failure(lambda: quantize(made(project, settings, embedding)), Failure(QuantizeError, where, message, hint))


TYPES = """
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(50, 64)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.block = Block().to(torch.TYPE)
            self.same_block = self.block
            self.head = nn.Linear(64, 50)

        def forward(self, tokens):
            found = self.same_block.words(tokens)
            return self.head(found.float()), found

    def samples():
        return [(torch.arange(start, start + 16, dtype=torch.int32)[None],) for start in range(0, 34, 8)]
"""


@pytest.mark.parametrize(("dtype", "bits"), [("float16", 4), ("bfloat16", 4), ("bfloat16", 8)])
def test_other_dtypes_of_weights_and_indices(project: Callable[..., Project], dtype: str, bits: int) -> None:
    """Reproducers: scales of 16 bits gave wrong values, int32 ended the process, a shared block was replaced twice."""
    config = CONFIG.replace("SETTINGS", f"embedding_bits = {bits}").replace("int64", "int32")
    root = project(config, model=TYPES.replace("TYPE", dtype)).loaded.root
    target = etdev.build(root / "etdev.toml")["cpu"]
    (runtime,) = (check for check in target.checks if check.name == "runtime")
    assert runtime.status == "passed"
    (errors,) = (output for output in runtime.outputs if output.output == 1)
    assert errors.max_abs_error == 0


@pytest.mark.parametrize("bits", [4, 8])
def test_an_embedding_may_stay_in_float(project: Callable[..., Project], bits: int) -> None:
    second = "nn.Embedding(50, 64); self.positions = nn.Embedding(16, 64)"
    module = quantize(made(project, f'embedding_bits = {bits}\nkeep_float = ["positions"]', second)).eager["forward"]
    kinds = {name: type(part).__name__ for name, part in module.named_children()}  # type: ignore[attr-defined]
    assert kinds == {"words": "QuantizedEmbedding", "head": "Linear", "positions": "Embedding"}


def test_a_model_that_reads_the_weight_itself(project: Callable[..., Project]) -> None:
    """With 8 bits, the model computed with the integers."""
    reading = MODEL.replace("EMBEDDING", EMBEDDING).replace(
        "self.head(self.other_path(tokens))", "self.other_path(tokens) @ self.words.weight.float().T"
    )
    made = project(CONFIG.replace("SETTINGS", "embedding_bits = 8"), model=reading)
    with pytest.raises(ExportError, match="reads the `weight` of an embedding that `embedding_bits` quantizes: name"):
        quantize(made)
