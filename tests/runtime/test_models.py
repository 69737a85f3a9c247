"""Replay of models: files of executorch's own, and etdev's before and after the link, against eager PyTorch."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from executorch.exir import to_edge
from torch.export import export
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from etdev.linker import LinkOptions, link
from etdev.linker.link import link_foreign
from etdev.program import Program, read
from etdev.runtime.replay import ReplayRuntime, missing_executors, missing_kernels
from etdev.runtime.stock import ProgramFailureError
from pipeline.stages.emit.emitting import Case, Emitted, emit
from pipeline.stages.emit.test_emit import CASES
from pipeline.stages.emit.test_state import PRIVATE
from program import real
from support.stock import shared_runtime

pytestmark = pytest.mark.integration

FILES: dict[str, tuple[Callable[[Path], real.RealFile], bool]] = {
    "layers": (real.portable, False),
    "branches": (real.branches, False),
    "loops": (real.loops, False),
    "state": (real.state, False),
    "methods": (real.methods, False),
    "shared state": (real.shared, True),
    "dynamic": (real.dynamic, False),
}
"""Files of executorch's own, and whether their methods need the same memory."""


@pytest.mark.parametrize("name", FILES)
@pytest.mark.sampled(2)
def test_a_file_of_executorch_computes_what_it_does_in_the_stock_runtime(tmp_path: Path, name: str) -> None:
    make, shared = FILES[name]
    file = make(tmp_path)
    stock = shared_runtime()
    with ReplayRuntime() as replay:
        assert replay.load(file.pte, shared=shared) == stock.load(file.pte, shared=shared)
        for fresh in (False, True):
            for number, (method, inputs) in enumerate(file.calls):
                restart = fresh and number == 0
                found = replay.call(method, inputs, fresh=restart)
                torch.testing.assert_close(found, stock.call(method, inputs, fresh=restart))


def test_a_file_with_data_elsewhere_is_refused_by_name(tmp_path: Path) -> None:
    file = real.external(tmp_path)
    with ReplayRuntime() as replay, pytest.raises(Exception, match=r"'conv.weight'.* is in another file"):
        replay.load(file.pte)


def test_data_of_the_wheels_own_are_taken(tmp_path: Path) -> None:
    file = real.external(tmp_path)
    stock = shared_runtime()
    with ReplayRuntime() as replay:
        assert replay.load(file.pte, data=(file.ptd,)) == stock.load(file.pte, data=(file.ptd,))
        for method, inputs in file.calls:
            torch.testing.assert_close(replay.call(method, inputs), stock.call(method, inputs))


@pytest.mark.nightly
def test_what_a_replay_lacks_is_known_before_it(tmp_path: Path) -> None:
    file = real.xnnpack(tmp_path)
    assert missing_executors(read(file.pte)) == ("XnnpackBackend",)
    assert missing_kernels(read(file.pte)) == ()
    assert missing_executors(read(real.portable(tmp_path).pte)) == ()


def versions(made: Emitted) -> dict[str, Program]:
    """The object program, what is linked from it, and what is linked from that as from anybody's file."""
    options = LinkOptions(share_state=made.project.config.model.share_state)
    linked = link(made.object.program, options, made.object.sidecar).program
    return {"object": made.object.program, "linked": linked, "linked again": link_foreign(linked).program}


def check(made: Emitted, *methods: str, rounds: int = 2) -> None:
    """Each version computes what eager PyTorch does, call after call."""
    for version, program in versions(made).items():
        with ReplayRuntime() as replay:
            replay.load(program)
            for method in methods or tuple(made.exported.methods):
                eager = deepcopy(made.exported.eager[method])
                calls = itertools.chain(*itertools.tee(made.calls(method), rounds))
                for number, inputs in enumerate(calls):
                    with torch.no_grad():
                        wanted = eager(*(item.clone() for item in inputs))
                    found = replay.call(method, inputs, fresh=number == 0)
                    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
                    torch.testing.assert_close(found, wanted, msg=lambda text, v=version: f"{v}: {text}")


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.backend == "portable"])
@pytest.mark.sampled(2)
def test_a_model_is_replayed_as_eager_computes_it(tmp_path: Path, name: str) -> None:
    check(emit(tmp_path, CASES[name]))


def test_state_is_replayed_from_its_initial_value_on(tmp_path: Path) -> None:
    check(emit(tmp_path, PRIVATE), "forward", "down")


MODELS = {
    "convolutions": Case(
        """
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 8, 3, padding=1, stride=2), nn.Conv2d(8, 8, 3, groups=8)
            self.norm = nn.BatchNorm2d(8)
        def forward(self, x): return nn.functional.max_pool2d(self.norm(self.b(self.a(x).relu())), 2, 2)
        """,
        {"forward": {"x": "float32 [1, 3, 16, 16]"}},
    ),
    "attention": Case(
        """
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(11, 16)
            self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        def forward(self, x): return self.layer(self.table(x))
        """,
        {"forward": {"x": "int64 [1, 6]"}},
    ),
    "a dynamic batch": Case(
        """
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(1, 4, 3), nn.Linear(16, 4)
        def forward(self, x): return self.b(self.a(x).relu().flatten(1)).softmax(-1)
        """,
        {"forward": {"x": 'float32 ["n", 1, 4, 4]'}},
        dims="dims.n = { min = 1, max = 5 }",
    ),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.nightly
def test_a_network_is_replayed_as_eager_computes_it(tmp_path: Path, name: str) -> None:
    check(emit(tmp_path, MODELS[name]))


@pytest.mark.slow
def test_a_decoder_keeps_its_cache(repository: Path, tmp_path: Path) -> None:
    module = (repository / "examples/transformer/model.py").read_text()
    made = emit(tmp_path, Case("", {"decode": {"token": "int64 [1, 1]", "position": "int64 [1]"}}, module=module))
    for program in versions(made).values():
        eager = deepcopy(made.exported.eager["decode"])
        with ReplayRuntime() as replay:
            replay.load(program)
            for position in range(6):
                inputs = (torch.tensor([[position * 7 % 11]]), torch.tensor([position]))
                with torch.no_grad():
                    wanted = eager(*inputs)
                found = replay.call("decode", inputs, fresh=position == 0)
                torch.testing.assert_close(found[0], wanted if isinstance(wanted, torch.Tensor) else wanted[0])


@pytest.mark.nightly
def test_a_quantized_model_is_replayed_as_the_stock_runtime_computes_it(tmp_path: Path) -> None:
    importlib.import_module("executorch.kernels.quantized")
    x = (torch.linspace(0, 1, 4)[None],)
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(export(real.Two().eval(), x).module(), quantizer)
    prepared(*x)
    file = real._save(to_edge(export(convert_pt2e(prepared), x)), tmp_path, "quantized")
    stock = shared_runtime()
    stock.load(file)
    with ReplayRuntime() as replay:
        replay.load(file)
        torch.testing.assert_close(replay.call("forward", x), stock.call("forward", x))


def test_stock_files_that_overwrite_what_they_read_are_refused(tmp_path: Path) -> None:
    """Two conditions side by side, planned by executorch 1.4: its runtime answers, wrongly."""

    class Two(torch.nn.Module):
        def forward(self, p: torch.Tensor, q: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            a = torch.cond(p, lambda a: a + 1, lambda a: a * 3, (x,))
            b = torch.cond(q, lambda a: a - 2, lambda a: a * 5, (x,))
            return a * 10 + b

    inputs = (torch.tensor(False), torch.tensor(False), torch.ones(4, 8))
    file = real._save(to_edge(export(Two(), inputs)), tmp_path, "two")
    with ReplayRuntime() as replay:
        try:
            replay.load(file)
            found = replay.call("forward", inputs)
        except ProgramFailureError as error:
            assert "overwrote these bytes" in str(error)  # noqa: PT017 - either way it does not pass
        else:
            assert not torch.allclose(found[0], Two()(*inputs))
