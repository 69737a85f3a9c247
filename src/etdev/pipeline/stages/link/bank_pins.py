"""Memory banks of a target: converts the config's names of inputs, outputs, state and backends for the linker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from etdev.config.issues import REFERENCE
from etdev.config.keys import KeyPath, format_key, suggest
from etdev.config.tables.memory import Memory
from etdev.linker.banks import Banks
from etdev.linker.pins import Pins
from etdev.pipeline.project import Project
from etdev.pipeline.stages.artifacts import Emitted
from etdev.pipeline.stages.inputs import Signature
from etdev.planner.banks import COST_RATIO, Bank


def target_banks(project: Project, target: str, objects: Emitted, signatures: Mapping[str, Signature]) -> Banks | None:
    """Return the banks and the pins of a target, or None if the config has no banks.

    Raises :class:`~etdev.errors.ConfigError` if a pin names an input, an output, a state or a backend that no method
    has.
    """
    memory = project.config.targets[target].memory
    if not memory.banks:
        return None
    pin = memory.pin
    inputs = {name: [item.name for item in found.inputs] for name, found in signatures.items()}
    outputs = {
        plan.name: [str(number) for number in range(len(plan.outputs))]
        for plan in objects.program.execution_plan
        if plan.name in signatures
    }
    state = sorted({note.name for notes in objects.sidecar.methods.values() for note in notes.state})
    backends = sorted({item.id for plan in objects.program.execution_plan for item in plan.delegates})
    key = ("targets", target, "memory", "pin")
    if not isinstance(pin.state, str):
        _check_names(project, (*key, "state"), pin.state, state, "state")
    elif not state:
        message = f"`{format_key((*key, 'state'))}`: no method of the program has state"
        raise project.error(message, *key, "state", hint="remove it", rule=REFERENCE)
    _check_names(project, (*key, "delegates"), pin.delegates, backends, "backend")
    return Banks(
        tuple(_banks(memory)),
        tuple(bank.id for bank in memory.banks),
        Pins(
            _ends(project, (*key, "inputs"), pin.inputs, inputs),
            _ends(project, (*key, "outputs"), pin.outputs, outputs),
            {"": pin.state} if isinstance(pin.state, str) else pin.state,
            pin.delegates,
        ),
    )


def _banks(memory: Memory) -> Iterator[Bank]:
    """Yield the banks with their alignments and costs, defaults included."""
    cost = Fraction(1, COST_RATIO)
    for bank in memory.banks:
        cost = Fraction(bank.cost) if bank.cost is not None else cost * COST_RATIO
        yield Bank(bank.name, bank.size, bank.alignment or memory.alignment, cost)


def _ends(
    project: Project, key: KeyPath, pins: str | Mapping[str, str], names: Mapping[str, list[str]]
) -> dict[str, dict[int, str]]:
    """Return the bank of each pinned input or output, by method and position.

    ``names`` maps each method to the names of all its inputs, or of all its outputs.
    """
    if isinstance(pins, str):
        return {method: dict.fromkeys(range(len(found)), pins) for method, found in names.items()}
    known = sorted({name for found in names.values() for name in found})
    _check_names(project, key, pins, known, str(key[-1]).removesuffix("s"))
    return {
        method: {position: pins[name] for position, name in enumerate(found) if name in pins}
        for method, found in names.items()
    }


def _check_names(project: Project, key: KeyPath, pins: Mapping[str, str], known: list[str], kind: str) -> None:
    for name in pins:
        if name not in known:
            listed = f"the program has {', '.join(known)}" if known else f"the program has no {kind}"
            message = f"`{format_key((*key, name))}`: no method of the program has the {kind} {name!r}"
            raise project.error(message, *key, name, hint=suggest(name, known, listed, repr), rule=REFERENCE)
