"""Runs a model on two simulated devices: ``python -m zoo_parts.on_devices MODEL KEY FILE [CUT ...]`` writes the result.

Each cut of the model is a target of its own. A process for each model, which gives all memory back.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree, ignore_patterns
from time import monotonic
from typing import TYPE_CHECKING, Any

from zoo_parts import PROJECT
from zoo_parts.outputs import CALLS, Outputs, eager_outputs, relative_error
from zoo_parts.result import Part

if TYPE_CHECKING:
    from etdev.pipeline.results.result import BuildResult
    from etdev.program.model import ExecutionPlan

FORMAT = 3
"""Of the files."""
DEVICE_MAP = "cuda:0=sim,cuda:1=sim"
TOLERANCE = 1e-4
"""Of an output's largest magnitude."""


def _parts(*parts: tuple[str, str]) -> str:
    """A list of partitioners in TOML: device, options."""
    items = (
        f'{{ backend = "reference", device = "{device}", options = {{ {options} }} }}' for device, options in parts
    )
    return f"[{', '.join(items)}]"


_PRODUCTS = 'ops = ["linear", "mm", "bmm", "addmm", "convolution"], own_weights = false'
CUTS: Mapping[str, str] = {
    "ends": _parts(("cuda:0", "part = [0.0, 0.4]"), ("cuda:1", "part = [0.6, 1.0]")),
    "layers": _parts(
        ("cuda:0", 'modules = ["*.[02468]"], own_state = false'),
        ("cuda:1", 'modules = ["*.[13579]"], own_state = false'),
    ),
    "products": _parts(("cuda:0", f"{_PRODUCTS}, part = [0.0, 0.5]"), ("cuda:1", f"{_PRODUCTS}, part = [0.5, 1.0]")),
    "whole": _parts(("cuda:0", "own_state = false")),
}
"""Where models are cut: the first and the last ops, with the host between them; modules of even and of odd numbers,
with state outside of delegates; products of matrices and convolutions alone, with weights as arguments; all on one
device."""


class Cut(Part):
    """What came of one cut."""

    name: str
    instructions: int = 0
    delegates: int = 0
    copies: int = 0
    """Instructions."""
    h2d_bytes: int = 0
    """Bytes that one call of each method copies to devices, at the largest sizes."""
    d2h_bytes: int = 0
    memory: Mapping[str, int] = {}
    """Device → planned bytes, those of nested programs among them."""
    error: float | None = None
    """Largest difference from eager PyTorch over the largest magnitude of the output; None if there was no result."""
    native_error: float | None = None
    """The same in ExecuTorch's C++ runtime; None if there was no result, or if that runtime cannot be compiled here."""
    native: bool = False
    """Whether that runtime can be compiled here."""
    seconds: float = 0.0
    """Of all calls together."""
    trouble: str = ""

    @property
    def good(self) -> bool:
        """Whether it computes what eager PyTorch does."""
        found = [self.error, *([self.native_error] if self.native else [])]
        return not self.trouble and all(error is not None and error <= TOLERANCE for error in found)


class OnDevices(Part):
    """What came of one model."""

    key: str
    model: str
    seconds: float = 0.0
    """With its builds."""
    cuts: tuple[Cut, ...] = ()
    trouble: str = ""

    @property
    def good(self) -> bool:
        """Whether all cuts are."""
        return not self.trouble and bool(self.cuts) and all(cut.good for cut in self.cuts)


@dataclass(frozen=True, slots=True)
class Subject:
    """A project with a target for each cut, and what eager PyTorch computes."""

    build: Callable[[Sequence[str]], BuildResult]
    """Of targets."""
    targets: Sequence[str]
    calls: Sequence[tuple[str, tuple[Any, ...]]]
    """Method and inputs of each call. All calls run on one state."""
    expected: Callable[[], Outputs]


EXAMPLES = ("examples/gpu", "examples/transformer")
"""Projects that count as models, by their folders."""
_TRANSFORMER_CUTS = {
    "layers": _parts(
        ("cuda:0", 'modules = ["*.0"], own_state = false'), ("cuda:1", 'modules = ["*.1"], own_state = false')
    ),
    "products": CUTS["products"],
}
"""Cuts of examples/transformer, whose two methods share state. They have to leave the state outside of delegates."""


def _of_zoo(name: str, folder: Path, cuts: Sequence[str]) -> Subject:
    from architectures import BY_NAME, random_inputs

    import etdev
    from zoo_parts.steps import declarations

    overrides = [*declarations(name, folder), *(f"targets.{cut}.partitioners={CUTS[cut]}" for cut in cuts)]

    def build(targets: Sequence[str]) -> BuildResult:
        return etdev.build(PROJECT / "etdev.toml", targets=targets, verify=False, overrides=overrides, environ={})

    calls = [("forward", random_inputs(BY_NAME[name], call)) for call in range(CALLS)]
    return Subject(build, cuts, calls, lambda: eager_outputs(name))


def _of_gpu_example(folder: Path) -> Subject:
    import etdev

    place = PROJECT.parents[1] / "examples/gpu"
    sys.path.insert(0, str(place))
    from data import test_samples

    inputs = list(test_samples())[:CALLS]

    def build(targets: Sequence[str]) -> BuildResult:
        overrides = [f"project.out={json.dumps(str(folder))}"]
        return etdev.build(place / "etdev.toml", targets=targets, verify=False, overrides=overrides, environ={})

    def expected() -> Outputs:
        import torch
        from safetensors.torch import load_file

        from model import make

        model = make().eval()
        model.load_state_dict(load_file(place / "weights.safetensors"))
        with torch.no_grad():
            return [model(*each) for each in inputs]

    return Subject(build, ["two-devices", "resident"], [("forward", each) for each in inputs], expected)


def _of_transformer_example(folder: Path) -> Subject:
    import etdev

    place = folder / "transformer"
    copytree(PROJECT.parents[1] / "examples/transformer", place, ignore=ignore_patterns("build"))
    sys.path.insert(0, str(place))
    from data import sessions

    calls = sessions()[0]
    cuts = "".join(f"  {name}: {{}}\n" for name in _TRANSFORMER_CUTS)
    config = place / "etdev.yaml"
    config.write_text(config.read_text().replace("\ntargets:\n", f"\ntargets:\n{cuts}"))

    def build(targets: Sequence[str]) -> BuildResult:
        overrides = [f"targets.{name}.partitioners={_TRANSFORMER_CUTS[name]}" for name in targets]
        return etdev.build(config, targets=targets, verify=False, overrides=overrides, environ={})

    def expected() -> Outputs:
        import torch

        from model import make

        model = make().eval()
        with torch.no_grad():
            return [getattr(model, method)(*inputs) for method, inputs in calls]

    return Subject(build, list(_TRANSFORMER_CUTS), calls, expected)


def measure(name: str, key: str, cuts: Sequence[str]) -> OnDevices:
    """Build and run some cuts; what fails is a trouble."""
    begin = monotonic()
    with tempfile.TemporaryDirectory() as place:
        subject = _subject(name, Path(place), cuts)
        expected = subject.expected()
        built = _build(subject)
        found = tuple(_cut(target, built, subject, expected) for target in subject.targets)
    return OnDevices(key=key, model=name, cuts=found, seconds=round(monotonic() - begin, 1))


def _subject(name: str, folder: Path, cuts: Sequence[str]) -> Subject:
    match name:
        case "examples/gpu":
            return _of_gpu_example(folder)
        case "examples/transformer":
            return _of_transformer_example(folder)
    return _of_zoo(name, folder, cuts)


def _build(subject: Subject) -> BuildResult | None:
    """All targets, which share one export; None if one of them cannot be built."""
    from etdev.errors import EtdevError

    try:
        return subject.build(subject.targets)
    except EtdevError:
        return None


def _cut(target: str, built: BuildResult | None, subject: Subject, expected: Outputs) -> Cut:
    try:
        return _run(target, built or subject.build([target]), subject, expected)
    except Exception as error:  # noqa: BLE001 - it is the result
        return Cut(name=target, trouble=" ".join(f"{type(error).__name__}: {error}".split()))


def _run(target: str, built: BuildResult, subject: Subject, expected: Outputs) -> Cut:
    from etdev.inspection.transfers import transfers_per_call
    from etdev.program import model as m
    from etdev.program import read
    from etdev.program.devices import D2H_COPY, H2D_COPY
    from etdev.program.footprint import planned_memory
    from etdev.runtime.device_map import parse_device_map
    from etdev.runtime.native import Missing, find_toolchain
    from etdev.runtime.replay import ReplayRuntime
    from etdev.verification.checks.placement import check_placement

    program = read(built.path(target))
    plans = program.execution_plan
    calls = [(plan, call) for plan in plans for chain in plan.chains for call in chain.instructions]
    names = [plan.operators[call.op_index].name for plan, call in calls if isinstance(call, m.KernelCall)]
    moved = [transfers_per_call(plan) for plan in plans]
    placement = check_placement(program)
    begin = monotonic()
    with ReplayRuntime(parse_device_map(DEVICE_MAP)) as runtime:
        runtime.load(program, shared=len(plans) > 1)
        found = [value for method, inputs in subject.calls for value in runtime.call(method, inputs)]
    native, trouble = _natively(built.path(target), plans, subject)
    return Cut(
        name=target,
        native_error=None if native is None else relative_error(native, expected, len(subject.calls)),
        native=not isinstance(find_toolchain(), Missing),
        instructions=len(calls),
        delegates=sum(isinstance(call, m.DelegateCall) for _, call in calls),
        copies=sum(name in (H2D_COPY, D2H_COPY) for name in names),
        h2d_bytes=sum(each.h2d_bytes for each in moved),
        d2h_bytes=sum(each.d2h_bytes for each in moved),
        memory=dict(Counter(planned_memory(program)) + Counter(built[target].nested_memory)),
        error=relative_error(found, expected, len(subject.calls)),
        seconds=round(monotonic() - begin, 2),
        trouble=trouble if placement.status == "passed" else f"placement: {placement.summary}",
    )


def _natively(file: Path, plans: Sequence[ExecutionPlan], subject: Subject) -> tuple[Outputs | None, str]:
    """Return the outputs of all calls in ExecuTorch's C++ runtime, and any wrong count of copies or damaged byte."""
    from etdev.inspection.transfers import transfers_per_call
    from etdev.program.model import TensorShapeDynamism
    from etdev.runtime.native import Missing, NativeRuntime, find_toolchain, host_executable
    from etdev.runtime.native.devices import simulated_devices
    from etdev.runtime.stock import ProgramFailureError

    if isinstance(find_toolchain(), Missing):
        return None, ""
    moved = {plan.name: transfers_per_call(plan) for plan in plans}
    # The report states the bytes of the largest sizes.
    static = all(tensor.shape_dynamism is TensorShapeDynamism.STATIC for plan in plans for _, tensor in plan.tensors())
    found: list[Any] = []
    most = (0, 0)
    try:
        with NativeRuntime(host_executable(), devices=simulated_devices(2)) as runtime:
            runtime.load(file, shared=len(plans) > 1)
            for number, (method, inputs) in enumerate(subject.calls, 1):
                found += runtime.call(method, inputs)
                assert runtime.called is not None
                counts = runtime.called.devices.values()
                copied = sum(each.bytes_in for each in counts), sum(each.bytes_out for each in counts)
                most = most[0] + moved[method].h2d_bytes, most[1] + moved[method].d2h_bytes
                if copied != most if static else (copied[0] > most[0] or copied[1] > most[1]):
                    return None, f"{number} calls copied {copied} bytes in C++, and {most} by the report"
                if runtime.called.damages:
                    return None, f"C++: {runtime.called.damages[0]}"
    except ProgramFailureError as error:
        return None, f"C++: {error}"
    return found, ""


def main() -> None:
    """Measure, in one thread, and write the result."""
    import torch

    from etdev.pipeline.project.quiet import quiet_libraries

    name, key, file, *cuts = sys.argv[1:]
    torch.set_num_threads(1)
    with quiet_libraries():
        result = measure(name, key, cuts or list(CUTS))
    Path(file).write_text(result.model_dump_json(indent=1) + "\n")


if __name__ == "__main__":
    main()
