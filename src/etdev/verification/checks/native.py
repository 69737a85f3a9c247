"""Check *native*: runs the program in ExecuTorch's own C++ runtime, in memory of exactly the planned sizes.

The runtime allocates the planned buffers on the program's devices. It copies data between the host and the devices, and
runs each delegate on its device. Guard bytes surround the buffers, and unused bytes contain poison. The outputs are
compared with those of eager PyTorch, as in the check *runtime*. If the stock Python runtime can run the program, its
outputs must be bit-identical.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from etdev.devices import Device
from etdev.errors import MissingRequirementError
from etdev.execution.availability import named, simulated
from etdev.execution.native import open_native
from etdev.execution.runtimes import Runtime
from etdev.inspection.transfers import transfers
from etdev.pipeline.project.places import native_library_places
from etdev.pipeline.results.result import CheckResult
from etdev.pipeline.results.result_parts import MemoryOutside
from etdev.program import Program
from etdev.program import model as m
from etdev.program.devices import named_devices
from etdev.runtime.native import MemoryMeter, NativeRuntime, is_steady
from etdev.runtime.native.measured import DeviceCounts
from etdev.runtime.stock import ProgramFailureError
from etdev.verification.answers import not_run
from etdev.verification.check import Check, Need
from etdev.verification.checks.replay import effort
from etdev.verification.checks.runtime import compare_with_model
from etdev.verification.compare import same_bits
from etdev.verification.outside import memory_outside
from etdev.verification.subject import Subject


class NativeCheck(Check):
    """Does ExecuTorch's C++ runtime compute the same as PyTorch, in memory of exactly the planned sizes?"""

    name = "native"
    needs = (Need.CONFIG, Need.PROGRAM, Need.SOUND, Need.TORCH)

    def run(self, subject: Subject) -> CheckResult:
        """Run the same samples as the check *replay*, and compare the outputs."""
        program, built = subject.program, subject.built
        stock = None if subject.stock_obstacle else subject.stock_calls
        built = replace(built, effort=effort(program, alone=stock is None))
        mapped = simulated(named_devices(program), subject.device_map)
        note = "; equal to the stock runtime's, bit by bit" if stock else ""
        note += f"; {named(mapped)} simulated" if mapped else ""
        try:
            libraries = native_library_places(built.project)
            with open_native(program, subject.device_map, libraries=libraries) as native:
                runtime = WitnessedRuntime(program, native, stock)
                result = compare_with_model(self.name, built, runtime, note)
        except MissingRequirementError as error:
            return not_run(self.name, error.message, hint=error.hint)
        return result if result.status != "passed" else _with_outside(result, runtime.outside or subject.outside)


class WitnessedRuntime:
    """The native runtime with extra checks of each call.

    A call fails if it writes outside of the program's memory. It also fails if its outputs differ from those of the
    stock runtime.
    """

    def __init__(self, program: Program, native: NativeRuntime, stock: Runtime | None) -> None:
        self._plans = {plan.name: plan for plan in program.execution_plan}
        self._native, self._stock = native, stock
        self._copied: dict[Device, DeviceCounts] = {}
        self._meter = MemoryMeter(program) if is_steady(program) else None
        self._lock = Lock()
        """Lock that permits one call at a time, because a metric may call the program from several threads."""

    @property
    def outside(self) -> tuple[MemoryOutside, ...] | None:
        """Memory of each method outside of its planned buffers; None if these calls do not show that of all methods."""
        if self._meter is None or self._meter.found.keys() != self._plans.keys():
            return None
        return memory_outside(self._meter.found)

    def load(self, file: Path, *, shared: bool = False, data: Sequence[Path] = ()) -> tuple[str, ...]:
        if self._stock is not None:
            with _of_stock():
                self._stock.load(file, shared=shared, data=data)
        self._copied = {}
        return self._native.load(file, shared=shared, data=data)

    def call(self, method: str, inputs: Sequence[Any], *, fresh: bool = False) -> tuple[Any, ...]:
        with self._lock:
            outputs = self._native.call(method, inputs, fresh=fresh)
            called = self._native.called
            assert called is not None
            if called.damages:
                raise ProgramFailureError("; ".join(called.damages))
            if self._meter is not None and method not in self._meter.found:
                self._meter.add(self._native, method)
            plan = self._plans[method]
            self._check_buffers(plan)
            self._check_copies(plan, called.devices)
            if self._stock is not None:
                with _of_stock():
                    expected = self._stock.call(method, inputs, fresh=fresh)
                _compare(outputs, expected)
            return outputs

    def _check_buffers(self, plan: m.ExecutionPlan) -> None:
        """Raise an error if the allocated buffers do not match the planned buffers in the file."""
        planned = [(plan.buffer_device(index), size) for index, size in enumerate(plan.non_const_buffer_sizes) if index]
        found = [(buffer.device, buffer.size) for buffer in self._native.opened[plan.name].buffers]
        if len(found) < len(planned):
            raise ProgramFailureError(
                f"the runtime allocated {len(found)} planned buffers, but the file states {len(planned)}"
            )
        for number, (wanted, has) in enumerate(zip(planned, found, strict=False), 1):
            if wanted[0] != has[0] or wanted[1] > has[1]:
                raise ProgramFailureError(
                    f"the runtime allocated {has[1]} bytes on {has[0]} for planned buffer {number}, but the file "
                    f"states {wanted[1]} bytes on {wanted[0]}"
                )

    def _check_copies(self, plan: m.ExecutionPlan, devices: dict[Device, DeviceCounts]) -> None:
        """Raise an error if the last call copied more or fewer bytes than the file states.

        Methods with jumps or dynamic shapes are not checked, because the bytes that they copy depend on the call.
        """
        before, self._copied = self._copied, devices
        if not plan.is_fixed:
            return
        stated: Counter[tuple[str, bool]] = Counter()
        for item in transfers(plan):
            stated[item.device, item.to_device] += item.nbytes
        made: Counter[tuple[str, bool]] = Counter()
        for sign, counts in ((1, devices), (-1, before)):
            for device, each in counts.items():
                made[str(device), True] += sign * each.bytes_in
                made[str(device), False] += sign * each.bytes_out
        for name in sorted({name for name, _ in (*stated, *made)}):
            found, wanted = ([counts[name, to_device] for to_device in (True, False)] for counts in (made, stated))
            if found != wanted:
                raise ProgramFailureError(
                    f"a call copied {found[0]:,} bytes to {name} and {found[1]:,} bytes back, but "
                    f"the file states {wanted[0]:,} bytes and {wanted[1]:,} bytes"
                )


def _with_outside(result: CheckResult, outside: tuple[MemoryOutside, ...] | str) -> CheckResult:
    """Return a passed result with the memory outside of the plan, or with the reason why it is not known."""
    if isinstance(outside, str):
        return result.model_copy(
            update={"summary": f"{result.summary}; memory outside of the plan is not known: {outside}"}
        )
    return result.model_copy(update={"memory_outside": outside})


@contextmanager
def _of_stock() -> Iterator[None]:
    """Inside the block, change the message of each error to state that the stock runtime failed."""
    try:
        yield
    except ProgramFailureError as error:
        raise ProgramFailureError(f"the stock runtime, which runs for comparison, failed: {error}") from error


def _compare(outputs: Sequence[Any], expected: Sequence[Any]) -> None:
    """Raise an error if the outputs are not bit-identical to ``expected``, the outputs of the stock runtime."""
    if len(outputs) != len(expected):
        raise ProgramFailureError(
            f"the native runtime returned {len(outputs)} outputs, but the stock runtime returned {len(expected)}"
        )
    for position, (found, wanted) in enumerate(zip(outputs, expected, strict=True)):
        if not same_bits(found, wanted):
            raise ProgramFailureError(f"output {position} is not bit-identical to that of the stock runtime")
