"""Links into memory banks, broken on purpose: tensors in other banks, over each other, against a pin, past the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from etdev.config.tables.memory import Memory
from etdev.errors import BanksError
from etdev.linker import LinkOptions, link
from etdev.linker.banks import Banks
from etdev.linker.pins import Pins
from etdev.planner.banks import COST_RATIO, Bank
from etdev.program import model as m
from etdev.program.footprint import planned_memory
from etdev.runtime.stock import StockRuntime
from etdev.verification.bank_rules import bank_problems
from etdev.verification.checks.plan import check_memory_plan
from validator.mutants import KINDS, Mutant, MutatedMethod, NothingToBreakError, Subject, mutants
from validator.subjects import Tally, Trial, outputs_of

ALIGNMENT = 16
ADDRESSES = ("shifted", "places swapped", "laid over", "laid over with its aliases", "in place of an operand")
"""Kinds of mutants with wrong addresses. They also move tensors between banks."""
BANKED = ("same offset in another bank", "free place in another bank", "pin ignored", "past the end of a bank")
"""Kinds of mutants that only programs in banks have."""
_FORBIDDEN = BANKED[2:]
"""Kinds that break a rule of the config even if the outputs are equal."""
_PINS: tuple[dict[str, str], ...] = (
    {},
    {"inputs": "fast"},
    {"outputs": "fast"},
    {"state": "fast", "outputs": "slow"},
    {"inputs": "slow", "outputs": "fast"},
)


@dataclass(frozen=True)
class BankedSubject:
    """Link into a fast and a slow bank, to be broken."""

    subject: Subject
    memory: Memory
    """The banks and the pins, as a config has them."""
    inputs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Names of the inputs of each method."""

    def refuses(self, mutant: Mutant) -> bool:
        """Return whether the proof, the check of the plan or the rules of banks refuse a mutant."""
        return (
            not self.subject.validate(mutant).proved
            or check_memory_plan(mutant.program, self.subject.delegate_inputs).status == "failed"
            or any(bank_problems(mutant.program, self.memory, self.inputs, self.subject.delegate_inputs))
        )


def each_in_banks(subjects: Iterable[Subject]) -> Iterator[BankedSubject]:
    """Link each program in three ways, with different sizes and pins."""
    for number, subject in enumerate(subjects):
        for share in (2, 3, 4):
            banked = _in_banks(subject, share, _PINS[(number + share) % len(_PINS)])
            if banked:
                yield banked


def _in_banks(subject: Subject, share: int, pin: Mapping[str, str]) -> BankedSubject | None:
    """Link again into two banks, or return None if the tensors do not fit.

    The fast bank is ``1/share`` as large as the memory without banks. ``pin`` is the table of the config, whose values
    must be the names of banks.
    """
    peak = -(-sum(planned_memory(subject.linked.program).values()) // ALIGNMENT) * ALIGNMENT
    fast = max(peak // share // ALIGNMENT, 1) * ALIGNMENT
    memory = Memory.model_validate(
        {
            "banks": [{"name": "fast", "id": 1, "size": fast}, {"name": "slow", "id": 2, "size": 2 * peak}],
            "pin": pin,
        }
    )
    plans = subject.linked.program.execution_plan
    ends = {
        "inputs": {plan.name: plan.inputs for plan in plans},
        "outputs": {plan.name: plan.outputs for plan in plans},
    }
    pinned = {
        end: {name: dict.fromkeys(range(len(values)), pin[end]) for name, values in found.items()}
        for end, found in ends.items()
        if end in pin
    }
    pins = Pins(**pinned, state={"": pin["state"]} if "state" in pin else {})
    banks = Banks(
        tuple(
            Bank(bank.name, bank.size, ALIGNMENT, bank.cost or COST_RATIO**number)  # type: ignore[arg-type]
            for number, bank in enumerate(memory.banks)
        ),
        (1, 2),
        pins,
    )
    try:
        linked = link(subject.before, LinkOptions(banks=banks, alignment=ALIGNMENT), subject.sidecar)
    except BanksError:
        return None
    name = f"{subject.name}, fast bank of 1/{share}, {dict(pin) or 'no pins'}"
    inputs = {plan.name: [f"input {number}" for number in range(len(plan.inputs))] for plan in plans}
    return BankedSubject(replace(subject, name=name, linked=linked), memory, inputs)


def try_banked(
    subjects: Iterable[BankedSubject], each: int, runtime: StockRuntime, folder: Path, seed: int = 0
) -> Trial:
    """Run up to ``each`` mutants of every kind of each link.

    A mutant is harmful if its outputs differ, or if it breaks a pin or exceeds a bank.
    """
    trial = Trial()
    for banked in subjects:
        wanted = outputs_of(banked.subject, banked.subject.linked.program, runtime, folder)
        assert not isinstance(wanted, str), f"{banked.subject.name}: {wanted}"
        for mutant in mutants(banked.subject, each, seed, kinds=_kinds(banked.memory)):
            found = outputs_of(banked.subject, mutant.program, runtime, folder)
            harmful = found != wanted or mutant.kind in _FORBIDDEN
            refused = banked.refuses(mutant)
            tally = trial.kinds.setdefault(mutant.kind, Tally())
            tally.made += 1
            tally.changed += harmful
            tally.rejected += refused
            tally.changed_and_rejected += harmful and refused
            if harmful and not refused:
                trial.missed.append(f"{banked.subject.name}, {mutant.kind}, {mutant.what}")
    return trial


def _kinds(memory: Memory) -> dict[str, Callable[[MutatedMethod], tuple[str, m.ExecutionPlan]]]:
    """Return the kinds of mutants for these banks, by name."""
    sizes = {bank.id: bank.size for bank in memory.banks}

    def same_offset_in_another_bank(method: MutatedMethod) -> tuple[str, m.ExecutionPlan]:
        index = method.pick(method.planned())
        place = method.place(index)
        other = 3 - place.memory_id
        return f"value {index} in bank {other}", method.with_place(index, other, place.memory_offset)

    def free_place_in_another_bank(method: MutatedMethod) -> tuple[str, m.ExecutionPlan]:
        index = method.pick(method.planned())
        other = 3 - method.place(index).memory_id
        end = _used(method.plan, other)
        if end + method.at(index).nbytes > sizes[other]:
            raise NothingToBreakError
        method.plan = _grown(method.plan, other, end + method.at(index).nbytes)
        return f"value {index} after bank {other}", method.with_place(index, other, end)

    def pin_ignored(method: MutatedMethod) -> tuple[str, m.ExecutionPlan]:
        index = method.pick(sorted(_pinned(method, memory)))
        other = 3 - method.place(index).memory_id
        end = _used(method.plan, other)
        if end + method.at(index).nbytes > sizes[other]:
            raise NothingToBreakError
        return f"values at {index} in bank {other}", _moved(method, index, other, end)

    def past_the_end_of_a_bank(method: MutatedMethod) -> tuple[str, m.ExecutionPlan]:
        index = method.pick(method.planned())
        bank = method.place(index).memory_id
        end = (sizes[bank] - method.at(index).nbytes) // ALIGNMENT * ALIGNMENT + ALIGNMENT
        return f"values at {index} at byte {end} of bank {bank}", _moved(method, index, bank, end)

    own = (same_offset_in_another_bank, free_place_in_another_bank, pin_ignored, past_the_end_of_a_bank)
    return {name: KINDS[name] for name in ADDRESSES} | dict(zip(BANKED, own, strict=True))


def _used(plan: m.ExecutionPlan, bank: int) -> int:
    """Return the first free byte after all tensors of a bank."""
    sizes = plan.non_const_buffer_sizes
    return -(-sizes[bank] // ALIGNMENT) * ALIGNMENT if bank < len(sizes) else 0


def _grown(plan: m.ExecutionPlan, bank: int, size: int) -> m.ExecutionPlan:
    """Return the method with a buffer of at least ``size`` bytes."""
    sizes = [*plan.non_const_buffer_sizes, *[0] * (bank + 1 - len(plan.non_const_buffer_sizes))]
    sizes[bank] = max(sizes[bank], size)
    return replace(plan, non_const_buffer_sizes=tuple(sizes))


def _moved(method: MutatedMethod, index: int, bank: int, offset: int) -> m.ExecutionPlan:
    """Move all tensors that start among the bytes of a tensor, so that they keep their distances."""
    old, end = method.place(index), method.place(index).memory_offset + method.at(index).nbytes
    for value in method.planned():
        place = method.place(value)
        if place.memory_id == old.memory_id and old.memory_offset <= place.memory_offset < end:
            start = offset + place.memory_offset - old.memory_offset
            method.plan = _grown(method.plan, bank, start + method.at(value).nbytes)
            method.plan = method.with_place(value, bank, start)
    return method.plan


def _pinned(method: MutatedMethod, memory: Memory) -> Iterator[int]:
    """Yield the tensors that a pin concerns."""
    plan, pin = method.plan, memory.pin
    found = [*(plan.inputs if pin.inputs else ()), *(plan.outputs if pin.outputs else ())]
    if pin.state:
        found += [index for index, tensor in plan.tensors() if tensor.extra_tensor_info is not None]
    yield from {index for index in found if method.is_planned(index) and method.at(index).nbytes}
