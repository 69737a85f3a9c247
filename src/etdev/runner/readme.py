"""Texts for a project's ``README.md``."""

from __future__ import annotations

from collections.abc import Iterator

from etdev.program import model as m
from etdev.program.signatures import operator_name
from etdev.runner.facts import Facts
from etdev.runner.header import section_macro
from etdev.runner.identifiers import comment
from etdev.runner.layout import ArenaBank, MethodLayout
from etdev.runner.libraries import RUNTIME, kernels_of
from etdev.units import format_count


def readme_conditions(facts: Facts) -> set[str]:
    """Return the names of the true conditions in the template ``README.md``."""
    return {
        *(["banks"] if _banked(facts) else []),
        *(["several"] if len(facts.layout.methods) > 1 else []),
        *(["dynamic"] if _shape_example(facts) else []),
        *(["heap"] if facts.heap_users else []),
        *(["kernels"] if _operators(facts) else []),
        *(["openvino"] if "OpenvinoBackend" in facts.backends else []),
    }


def readme_texts(facts: Facts) -> dict[str, str]:
    """Return the texts for the placeholders of the template ``README.md``."""
    names = [name for name, _ in facts.files]
    return {
        "ORIGIN": "" if facts.source.target is None else f" for the target `{comment(facts.source.target)}`",
        "C_COMPILER": ", a C compiler" if facts.embed else "",
        "EXAMPLE": _example(facts),
        "SHAPE_EXAMPLE": _shape_example(facts),
        "SIGNATURES": "\n".join(_signatures(facts)),
        "FILE_WORDS": " and ".join(f"`{name}`" for name in names),
        "FILE_LIST": ", ".join(f"`{name}`" for name in names),
        "DATA_WORDS": " and its data" if facts.source.data else "",
        "LIBRARIES": ", ".join(f"`{library.component}`" for library in facts.libraries),
        "MEMORY_TABLE": "\n".join(_memory(facts)),
        "MEASURED": f" {facts.source.measured}",
        "REMAINDER": _remainder(facts),
        "OPERATORS": ",".join(_operators(facts)),
        "HEAP": " and ".join(facts.heap_users),
        "HEAP_BYTES": "" if facts.heap is None else f", at most {facts.heap:,} bytes as measured",
        "LINKER_SCRIPT": "\n".join(f"       {line}" for line in _linker_script(facts)),
        "SECTION_EXAMPLE": "".join(section_macro(facts, bank) for bank in _banked(facts)[:1]),
    }


def _banked(facts: Facts) -> list[ArenaBank]:
    return [arena.bank for arena in facts.layout.arenas if arena.bank is not None]


def _linker_script(facts: Facts) -> Iterator[str]:
    """Yield the lines of a linker script that place the arenas of banks; the user replaces the addresses."""
    alignment = facts.source.alignment
    regions = [(bank.identifier.upper(), bank) for bank in _banked(facts)]
    yield from ("MEMORY", "{")
    yield from (f"  {name} (rw) : ORIGIN = {name}_ADDRESS, LENGTH = {bank.capacity}" for name, bank in regions)
    yield from ("}", "SECTIONS", "{")
    for name, bank in regions:
        yield f"  .bank_{bank.identifier} (NOLOAD) : ALIGN({alignment}) {{ *({bank.section}) }} > {name}"
    yield "}"


def _operators(facts: Facts) -> list[str]:
    """Return the sorted operators whose kernels are not in the runtime itself."""
    plans = facts.source.program.execution_plan
    names = {operator_name(operator) for plan in plans for operator in plan.operators}
    return sorted(name for name in names if kernels_of(name) != RUNTIME)


def _example(facts: Facts) -> str:
    method = next(method for method in facts.layout.methods if method.name == facts.default_method)
    tensors = [number for number, slot in enumerate(method.inputs) if isinstance(slot.value, m.Tensor)]
    return "".join(f" --in {number}=input{number}.bin" for number in tensors)


def _shape_example(facts: Facts) -> str:
    """Return options that pass the sizes of a dynamic input; an empty text if all inputs have fixed sizes."""
    methods = sorted(facts.layout.methods, key=lambda method: method.name != facts.default_method)
    for method in methods:
        for number, slot in enumerate(method.inputs):
            if isinstance(slot.value, m.Tensor) and not slot.value.is_static:
                call = "" if method.name == facts.default_method else f" --call {method.name}"
                return f"{call} --in {number}=input{number}.bin --shape {number}={'x'.join(map(str, slot.value.sizes))}"
    return ""


def _signatures(facts: Facts) -> Iterator[str]:
    yield "| method | inputs | outputs |"
    yield "|---|---|---|"
    for method in facts.layout.methods:
        values = [slot.value for slot in method.inputs], [method.plan.values[index] for index in method.plan.outputs]
        inputs, outputs = (
            ", ".join(_described(value) + _quantized(method, side, at) for at, value in enumerate(each))
            for side, each in zip(("input", "output"), values, strict=True)
        )
        yield f"| `{comment(method.name)}` | {inputs or 'none'} | {outputs or 'none'} |"


def _quantized(method: MethodLayout, side: str, position: int) -> str:
    """Return the scale and zero point of an input or output as text; an empty text if it is not quantized."""
    found = (end for end in method.ends if (end.side, end.position) == (side, position))
    return "".join(f" (scale {end.scale:.6g}, zero point {end.zero_point})" for end in found)


def _described(value: m.Value) -> str:
    if not isinstance(value, m.Tensor):
        return type(value).__name__.lower()
    bound = "" if value.is_static else "up to "
    order = "" if value.is_in_order else f" in memory order {', '.join(map(str, value.dim_order))}"
    return f"{value.scalar_type.name.capitalize()} {bound}[{', '.join(map(str, value.sizes))}]{order}"


def _memory(facts: Facts) -> Iterator[str]:
    layout = facts.layout
    for arena in layout.arenas:
        bank = "" if arena.bank is None else f", of {arena.bank.capacity:,} in bank `{comment(arena.bank.name)}`"
        yield _row(f"`{arena.constant}`: {arena.use}{bank}", arena.size)
    for method in layout.methods:
        yield _method_row(facts, method)
    yield _row("`kTempPoolBytes`: temporary memory of all methods", facts.temp, facts.temp32)
    yield _row("`kIoBytes`: inputs, and outputs that are not planned", layout.io)
    if not facts.embed:
        for number, (name, content) in enumerate(facts.files):
            yield _row(f"`kFileBytes{number}`: `{name}`", len(content))
    yield f"| **together** | **{facts.ram:,}** | **{facts.ram32:,}** |"


def _row(name: str, size: int, size32: int | None = None) -> str:
    return f"| {name} | {size:,} | {size if size32 is None else size32:,} |"


def _method_row(facts: Facts, method: MethodLayout) -> str:
    name = f"`{method.identifier}::kMethodPoolBytes`: pool of `{comment(method.name)}`"
    return _row(name, facts.pools(method.name).method, facts.estimate32(method))


def _remainder(facts: Facts) -> str:
    methods = facts.layout.methods
    rest = sum(max(facts.pools(method.name).method - facts.scaling(method).counted, 0) for method in methods)
    if rest == 0:
        who, kept = "No part of the methods' pools belongs to delegates.", "The temporary memory of kernels is"
        return f"{who}\n  {kept} as it was measured."
    who, kept = "The rest of the methods' pools belongs to delegates:", "The estimate keeps this rest"
    return (
        f"{who}\n  {format_count(rest, 'byte')}. {kept} as it was measured, and the temporary memory of kernels, too."
    )
