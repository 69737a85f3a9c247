"""Object programs carry no device information, but delegates keep what they were compiled with (B1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from etdev.pipeline.stages.emit import emission as stage
from etdev.program.model import CompileSpec, DeviceType, KernelCall
from pipeline.stages.emit.emitting import PX, Case, Emitted, emit

SPECS = (CompileSpec("target_device", b"cuda:0"), CompileSpec("level", b"3"))


def _compiled_for_a_device(manager: Any) -> Any:
    """As a backend with these compile specs lowers: every delegate has them, one list for all."""
    from executorch.exir.backend.compile_spec_schema import CompileSpec as Spec
    from executorch.exir.lowered_backend_module import LoweredBackendModule

    shared = [Spec(spec.key, spec.value) for spec in SPECS]
    for module in manager.exported_program("forward").graph_module.modules():
        if isinstance(module, LoweredBackendModule):
            module._compile_specs = shared
    return manager


CASE = Case(
    """
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
    def forward(self, p, x):
        y = torch.cond(p, lambda a: a.sin(), lambda a: a.cos(), (self.a(x),))
        return self.b(y), x.erf()
    """,
    {"forward": PX},
    backend="xnnpack",
    lower_more=_compiled_for_a_device,
)


def _device_traces(made: Emitted) -> tuple[int, int]:
    """Number of tensors that are not on the CPU, and of copies between devices."""
    plan = made.plan()
    infos = [tensor.extra_tensor_info for _, tensor in plan.tensors()]
    calls = [call for call in plan.chains[0].instructions if isinstance(call, KernelCall)]
    return (
        sum(info is not None and info.device_type is not DeviceType.CPU for info in infos),
        sum(plan.operators[call.op_index].name.startswith("et_copy::") for call in calls),
    )


def test_devices_are_left_to_the_linker(tmp_path: Path) -> None:
    made = emit(tmp_path, CASE)

    assert [delegate.compile_specs for delegate in made.plan().delegates] == [SPECS, SPECS]
    assert _device_traces(made) == (0, 0)
    assert made.plan().non_const_buffer_device == ()
    assert made.object.sidecar.methods["forward"].delegate_inputs.keys() == {1, 8}
    made.check_addresses()
    # The linked program has copies, which the stock runtime cannot make.


@pytest.mark.integration
def test_upstream_would_tag_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the other key, executorch 1.4.1 tags and copies."""

    @contextmanager
    def shown(*_: object) -> Iterator[None]:
        yield

    monkeypatch.setattr(stage, "hidden_devices", shown)
    tagged, copies = _device_traces(emit(tmp_path, CASE))

    assert tagged > 0
    assert copies > 0


@pytest.mark.nightly
def test_the_lowered_model_has_its_key_again(tmp_path: Path) -> None:
    kept = []

    def remember(manager: Any) -> Any:
        from executorch.exir.lowered_backend_module import LoweredBackendModule

        modules = _compiled_for_a_device(manager).exported_program("forward").graph_module.modules()
        kept.extend(module for module in modules if isinstance(module, LoweredBackendModule))
        return manager

    emit(tmp_path, Case(CASE.text, CASE.methods, backend="xnnpack", lower_more=remember))

    assert [spec.key for module in kept for spec in module.compile_specs] == ["target_device", "level"] * 2
