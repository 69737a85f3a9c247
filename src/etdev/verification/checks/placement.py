"""Check *placement*: compares the devices of tensors, planned buffers, copies and delegate arguments.

If the target has memory banks, the check also compares the file with the banks' sizes and with the config's pins.

This check only reads the file, and uses no devices. The check *device* allocates memory on devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice

from etdev.devices import HOST, Device
from etdev.inspection.transfers import transfers
from etdev.pipeline.results.result import CheckResult
from etdev.pipeline.stages.link.nested import device_memory
from etdev.program import Program
from etdev.program.devices import named_devices
from etdev.program.footprint import planned_memory
from etdev.program.sidecar.notes import noted_inputs
from etdev.units import format_size
from etdev.verification.answers import Finding, not_run
from etdev.verification.bank_rules import bank_problems, unknown_state
from etdev.verification.check import Check, Need
from etdev.verification.placement_rules import (
    agreement_problems,
    buffer_problems,
    instruction_problems,
    tensor_problems,
)
from etdev.verification.subject import Subject

_MOST_PROBLEMS = 20


class PlacementCheck(Check):
    """Do tensors, planned buffers, copies and arguments of delegates agree on their devices and banks?"""

    name = "placement"
    needs = (Need.PROGRAM,)

    def run(self, subject: Subject) -> CheckResult:
        """Check the file against the target's alignment and memory limits.

        If a limit is missed, the help is in the result of the check *budget*.
        """
        origin = subject.origin
        if origin is None:
            return check_placement(subject.program).result(self.name)
        settings = origin.project.config.targets[origin.target]
        names = {name: [item.name for item in of.inputs] for name, of in origin.reference.signatures.items()}
        known = noted_inputs(origin.notes)
        wrong = tuple(bank_problems(subject.program, settings.memory, names, known))
        if wrong:
            hint = f"build it again (`{origin.build_command}`) with the current `memory` of the config"
            return Finding.of(wrong).result(self.name, where=origin.place("memory"), hint=hint)
        found = check_placement(subject.program, alignment=settings.memory.alignment, capacity=settings.budget.memory)
        if found.gate:
            return found.result(self.name)
        unknown = unknown_state(subject.program, settings.memory, known)
        if found.status == "passed" and unknown is not None:
            hint = f"build it again (`{origin.build_command}`): the build notes the inputs of each call"
            return not_run(self.name, unknown, where=origin.place("memory", "pin", "state"), hint=hint)
        hint = f"build it again (`{origin.build_command}`); if that does not help, report this and attach the model"
        return found.result(self.name, where=origin.place("partitioners"), hint=hint)


def check_placement(program: Program, *, alignment: int = 1, capacity: Mapping[str, int] | None = None) -> Finding:
    """Check the devices and addresses that a file states, and every instruction that depends on them.

    Addresses of tensors on devices must be multiples of ``alignment`` bytes. ``capacity`` maps each device to its
    available bytes. If the memory plan exceeds a device's capacity, the finding is a missed limit.
    """
    problems = list(islice(_problems(program, alignment), _MOST_PROBLEMS + 1))
    if len(problems) > _MOST_PROBLEMS:
        problems[_MOST_PROBLEMS:] = ["there are more problems of this kind"]
    if problems:
        return Finding.of(problems)
    return Finding.of(tuple(_over_capacity(program, capacity or {})), _summary(program), gate=True)


def _problems(program: Program, alignment: int) -> Iterator[str]:
    yield from agreement_problems(program)
    for plan in program.execution_plan:
        yield from chain(buffer_problems(plan), tensor_problems(plan, alignment), instruction_problems(plan))


def _over_capacity(program: Program, capacity: Mapping[str, int]) -> Iterator[str]:
    """Yield one sentence for each device whose planned memory exceeds its capacity.

    The host is omitted, because the check *budget* compares its memory with the limit.
    """
    for device, sizes in device_memory(program).items() if capacity else ():
        if device != str(HOST) and device in capacity and sum(sizes) > capacity[device]:
            yield f"the planned memory on {device} exceeds its budget: the check `budget` states by how much"


def _summary(program: Program) -> str:
    devices = named_devices(program)
    if not devices:
        return "all memory is on the host"
    memory = planned_memory(program)
    parts = [_on(program, device, memory.get(str(device), 0)) for device in devices]
    copies = [item.to_device for plan in program.execution_plan for item in transfers(plan)]
    there, back = copies.count(True), copies.count(False)
    copied = f"{there:,} {'copy' if there == 1 else 'copies'} to devices and {back:,} back"
    return f"{', '.join(parts)}; {copied}; every argument is on the device on which it is used"


def _on(program: Program, device: Device, size: int) -> str:
    tensors = sum(tensor.device == device for plan in program.execution_plan for _, tensor in plan.tensors())
    return f"{device} {tensors:,} tensor{'s' * (tensors != 1)} in {format_size(size)}"
