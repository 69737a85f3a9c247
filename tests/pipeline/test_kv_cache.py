"""A decoder with a cache of keys and values: one of each, no copy of one per token, and the tokens of eager PyTorch."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
import torch

from etdev.linker import LinkOptions, link
from etdev.program import Program, write
from etdev.program.analysis.effects import operator_name
from etdev.program.model import KernelCall
from pipeline.stages.emit.emitting import Case, Emitted, emit
from support.stock import shared_runtime

pytestmark = pytest.mark.integration

LENGTH, WIDTH, CACHES = 64, 64, 4
"""Positions of a cache, its elements at each, and how many there are: keys and values of two layers."""


@pytest.fixture(scope="module")
def emitted(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Emitted:
    """The method of the example that goes on with one token."""
    module = (repository / "examples/transformer/model.py").read_text()
    case = Case("", {"decode": {"token": "int64 [1, 1]", "position": "int64 [1]"}}, module=module)
    return emit(tmp_path_factory.mktemp("decoder"), case)


def linked(made: Emitted, **options: object) -> Program:
    return link(made.object.program, LinkOptions(**options), made.object.sidecar).program  # type: ignore[arg-type]


def operators(program: Program) -> list[str]:
    plan = program.method("decode")
    calls = [call for chain in plan.chains for call in chain.instructions]
    return [operator_name(plan.operators[call.op_index]) for call in calls if isinstance(call, KernelCall)]


def test_there_is_one_copy_of_each_cache(emitted: Emitted) -> None:
    found, plain = linked(emitted), linked(emitted, elide=frozenset())
    assert len(emitted.object.sidecar.methods["decode"].state) == CACHES
    assert operators(plain).count("aten::copy_") == CACHES
    assert "aten::copy_" not in operators(found)
    caches = CACHES * LENGTH * WIDTH * 4
    sizes = [program.method("decode").non_const_buffer_sizes[1] for program in (found, plain)]
    assert caches <= sizes[0] < caches + LENGTH * WIDTH * 4 + 4096
    assert sizes[0] < sizes[1]


def test_64_tokens_are_those_of_eager_pytorch(emitted: Emitted, tmp_path: Path) -> None:
    write(linked(emitted), tmp_path / "decoder.pte")
    runtime = shared_runtime()
    runtime.load(tmp_path / "decoder.pte")
    eager = deepcopy(emitted.exported.eager["decode"])
    token, tokens, wanted = 7, [], []
    for position in range(LENGTH):
        inputs = torch.tensor([[token]]), torch.tensor([position])
        (logits,) = runtime.call("decode", inputs)
        with torch.no_grad():
            expected = eager(*inputs)
        tokens.append(int(logits.argmax()))
        wanted.append(int((expected if isinstance(expected, torch.Tensor) else expected[0]).argmax()))
        token = tokens[-1]
    assert len(tokens) == 64
    assert tokens == wanted
