"""Check *native*: run the program in ExecuTorch's own C++ runtime, in memory of exactly the planned sizes.

The runtime allocates the planned buffers on the devices that the file names, copies between them and runs the delegates
there. Bytes around the buffers are guarded, and bytes that are not in use hold poison. The outputs are compared with
eager PyTorch's, as in the check *runtime*, and bit by bit with the stock Python runtime's if that can run the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from etdev.devices import Device
from etdev.errors import MissingRequirementError
from etdev.execution.availability import named, simulated
from etdev.execution.native import open_native
from etdev.inspection.transfers import transfers
from etdev.pipeline.results.result import CheckResult
from etdev.program import Program
from etdev.program import model as m
from etdev.program.devices import named_devices
from etdev.runtime.native import NativeRuntime
from etdev.runtime.native.measured import DeviceCounts
from etdev.runtime.stock import ProgramFailureError, StockRuntime
from etdev.verification.answers import not_run
from etdev.verification.check import Check, Need
from etdev.verification.checks.replay import effort
from etdev.verification.checks.runtime import compare_with_model
from etdev.verification.compare import same_bits
from etdev.verification.subject import Subject


class NativeCheck(Check):
    """Does ExecuTorch's C++ runtime compute what PyTorch computes, in memory of exactly the planned sizes?"""

    name = "native"
    needs = (Need.CONFIG, Need.PROGRAM, Need.SOUND, Need.TORCH)

    def run(self, subject: Subject) -> CheckResult:
        """Run as many samples as the check *replay* does, and compare the outputs."""
        program, built = subject.program, subject.built
        stock = None if subject.stock_obstacle else subject.stock
        built = replace(built, effort=effort(program, alone=stock is None))
        mapped = simulated(named_devices(program), subject.device_map)
        note = "; equal to the stock runtime's, bit by bit" if stock else ""
        note += f"; {named(mapped)} simulated" if mapped else ""
        try:
            with open_native(program, subject.device_map) as native:
                outside = subject.outside if isinstance(subject.outside, tuple) else ()
                runtime = _Witnessed(program, native, stock)
                return compare_with_model(self.name, built, runtime, note, memory_outside=outside)
        except MissingRequirementError as error:
            return not_run(self.name, error.message, hint=error.hint)


class _Witnessed:
    """The native runtime, whose calls fail if they leave their memory or differ from the stock runtime's."""

    def __init__(self, program: Program, native: NativeRuntime, stock: StockRuntime | None) -> None:
        self._plans = {plan.name: plan for plan in program.execution_plan}
        self._native, self._stock = native, stock
        self._copied: dict[Device, DeviceCounts] = {}

    def load(self, file: Path, *, shared: bool = False, data: Sequence[Path] = ()) -> tuple[str, ...]:
        if self._stock is not None:
            self._stock.load(file, shared=shared, data=data)
        self._copied = {}
        return self._native.load(file, shared=shared, data=data)

    def call(self, method: str, inputs: Sequence[Any], *, fresh: bool = False) -> tuple[Any, ...]:
        outputs = self._native.call(method, inputs, fresh=fresh)
        called = self._native.called
        assert called is not None
        if called.damages:
            raise ProgramFailureError("; ".join(called.damages))
        plan = self._plans[method]
        self._check_buffers(plan)
        self._check_copies(plan, called.devices)
        if self._stock is not None:
            _compare(outputs, self._stock.call(method, inputs, fresh=fresh))
        return outputs

    def _check_buffers(self, plan: m.ExecutionPlan) -> None:
        """Raise an error if the runtime has allocated other planned buffers than the file states."""
        planned = [(plan.buffer_device(index), size) for index, size in enumerate(plan.non_const_buffer_sizes) if index]
        found = [(buffer.device, buffer.size) for buffer in self._native.opened[plan.name].buffers]
        if len(found) < len(planned):
            raise ProgramFailureError(f"{len(found)} planned buffers were allocated, not {len(planned)}")
        for number, (wanted, has) in enumerate(zip(planned, found, strict=False), 1):
            if wanted[0] != has[0] or wanted[1] > has[1]:
                raise ProgramFailureError(
                    f"planned buffer {number} has {has[1]} bytes on {has[0]}, not {wanted[1]} on {wanted[0]}"
                )

    def _check_copies(self, plan: m.ExecutionPlan, devices: dict[Device, DeviceCounts]) -> None:
        """Raise an error if the runtime has copied other bytes than the copies of the method.

        Only for methods without jumps and dynamic shapes: the copies of others depend on the call.
        """
        before, self._copied = self._copied, devices
        values = [tensor for _, tensor in plan.tensors()]
        if any(isinstance(call, m.JumpFalseCall) for call in plan.instructions) or any(
            tensor.shape_dynamism is not m.TensorShapeDynamism.STATIC for tensor in values
        ):
            return
        for device, counts in devices.items():
            there = sum(item.nbytes for item in transfers(plan) if item.to_device and item.device == str(device))
            back = sum(item.nbytes for item in transfers(plan) if not item.to_device and item.device == str(device))
            earlier = before.get(device)
            found = (
                counts.bytes_in - (earlier.bytes_in if earlier else 0),
                counts.bytes_out - (earlier.bytes_out if earlier else 0),
            )
            if found != (there, back):
                raise ProgramFailureError(
                    f"a call copied {found[0]:,} bytes to {device} and {found[1]:,} back; "
                    f"the file states {there:,} and {back:,}"
                )


def _compare(outputs: Sequence[Any], expected: Sequence[Any]) -> None:
    """Raise an error if outputs are not those of the stock runtime, bit by bit."""
    if len(outputs) != len(expected):
        raise ProgramFailureError(f"{len(outputs)} outputs, and {len(expected)} in the stock runtime")
    for position, (found, wanted) in enumerate(zip(outputs, expected, strict=True)):
        if not same_bits(found, wanted):
            raise ProgramFailureError(f"output {position} is not that of the stock runtime, bit by bit")
