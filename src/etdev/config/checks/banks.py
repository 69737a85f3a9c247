"""Checks of memory banks: the names and ids of banks, and the pins that assign tensors to banks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from etdev.config.describe.notation import literal
from etdev.config.issues import CONFLICT, DUPLICATE, MISSING_KEY, REFERENCE, Issue
from etdev.config.keys import suggest
from etdev.config.raw import Raw, listed
from etdev.config.types import canonical_device


def check_banks(config: Raw) -> Iterator[Issue]:
    """Check the banks of each target, and the pins that assign tensors to these banks."""
    for target in config["targets"].tables:
        memory = target["memory"]
        banks = memory["banks"].elements
        if banks:
            yield from _check_names(banks)
            yield from _check_ids(banks)
            yield from _check_alignments(banks, memory["alignment"])
            yield from _check_pins(memory["pin"], [bank["name"].value for bank in banks])
            yield from _check_pinned_inputs(config, memory["pin"]["inputs"])
        elif memory["pin"].table and memory.lacks("banks"):
            text = "needs memory banks, but there is no `memory.banks`"
            yield memory["pin"].issue(text, CONFLICT, "add `memory.banks`, or remove the pins")


def _check_names(banks: list[Raw]) -> Iterator[Issue]:
    seen: set[object] = set()
    for bank in banks:
        name = bank["name"].value
        if isinstance(name, str):
            if name in seen:
                yield bank["name"].issue(
                    f"is {literal(name)}, the name of another bank", DUPLICATE, "rename one of them"
                )
            seen.add(name)
            with suppress(ValueError):
                canonical_device(name)
                text = f"is {literal(name)}, the name of a device"
                yield bank["name"].issue(text, CONFLICT, "rename the bank: `budget.memory` takes both kinds of names")


def _check_ids(banks: list[Raw]) -> Iterator[Issue]:
    """Report each memory id that two banks have. If all ids differ, report the first gap in their sequence."""
    seen: set[int] = set()
    numbers = [bank["id"].value for bank in banks]
    if not all(isinstance(number, int) and not isinstance(number, bool) and number > 0 for number in numbers):
        return
    for bank, number in zip(banks, numbers, strict=True):
        if number in seen:
            yield bank["id"].issue(f"is {number}, the memory id of another bank", DUPLICATE, "give it another id")
        seen.add(number)
    if len(seen) == len(banks) and seen != set(range(1, len(banks) + 1)):
        missing = min(set(range(1, len(banks) + 1)) - seen)
        largest = max(banks, key=lambda bank: bank["id"].value)
        text = f"is {largest['id'].value}, but no bank has the memory id {missing}"
        yield largest["id"].issue(text, MISSING_KEY, f"number the banks from 1 to {len(banks)}")


def _check_alignments(banks: list[Raw], alignment: Raw) -> Iterator[Issue]:
    least = alignment.value if isinstance(alignment.value, int) else 16
    for bank in banks:
        found = bank["alignment"].value
        if isinstance(found, int) and not isinstance(found, bool) and 0 < found < least:
            text = f"is {found}, less than `memory.alignment`, which is {least}"
            yield bank["alignment"].issue(text, CONFLICT, f"set it to at least {least}, or lower `memory.alignment`")


def _check_pins(pin: Raw, names: list[object]) -> Iterator[Issue]:
    if not all(isinstance(name, str) for name in names):
        return
    known = [str(name) for name in names]
    for kind in ("inputs", "outputs", "state", "delegates"):
        entry = pin[kind]
        for item in [entry[key] for key in entry.table] or ([entry] if isinstance(entry.value, str) else []):
            if isinstance(item.value, str) and item.value not in known:
                hint = suggest(item.value, known, listed("banks", known))
                yield item.issue(f"is {literal(item.value)}, which is not a bank", REFERENCE, hint)


def _check_pinned_inputs(config: Raw, pins: Raw) -> Iterator[Issue]:
    """Report each pin of an input that no method declares."""
    declared = [method["inputs"] for method in config["methods"].tables]
    names = [tensor["name"].value for inputs in declared for tensor in inputs.elements]
    is_known = declared and all(isinstance(inputs.value, list) for inputs in declared)
    if not is_known or not config.is_settled("methods") or not all(isinstance(name, str) for name in names):
        return
    known = list(dict.fromkeys(names))
    for name in pins.table:
        if name not in known:
            hint = suggest(name, known, listed("inputs", known, "remove it: the methods take no inputs"))
            yield pins[name].issue(": no method has such an input", REFERENCE, hint)
