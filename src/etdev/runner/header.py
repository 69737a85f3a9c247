"""Texts for ``NAME_memory.h``: sizes and alignments of all static memory."""

from __future__ import annotations

from collections.abc import Iterator

from etdev.program.analysis.quantized_ends import QuantizedEnd
from etdev.runner.facts import Facts
from etdev.runner.identifiers import comment
from etdev.runner.layout import IO_ALIGNMENT, Arena, ArenaBank, MethodLayout
from etdev.runner.pools import POOL_ALIGNMENT


def header_texts(facts: Facts) -> dict[str, str]:
    """Return the texts for the placeholders of the template ``memory.h``."""
    source, layout = facts.source, facts.layout
    sizes = [_constant(f"kFileBytes{number}", len(content), name) for number, (name, content) in enumerate(facts.files)]
    shared = [arena for arena in layout.arenas if arena.method is None]
    return {
        "ORIGIN": f", target {comment(source.target)}" if source.target is not None else "",
        "MEASURED": f" {source.measured}",
        "ATTRIBUTES": "".join(_attribute(facts, arena) for arena in layout.arenas),
        "DATA_WORDS": " and its data files" if source.data else "",
        "FILE_COUNT": str(len(facts.files)),
        "FILES": "\n".join(sizes),
        "FILE_ALIGNMENT": str(facts.file_alignment),
        "METHOD_COUNT": str(len(layout.methods)),
        "METHODS": "\n\n".join("\n".join(_method(facts, method)) for method in layout.methods),
        "ARENA_ALIGNMENT": str(source.alignment),
        "ARENAS": "\n".join(_arena(arena, layout.methods) for arena in shared)
        or "// There are none: no method has planned memory.",
        "TEMP": f"{facts.temp} + kPoolMargin",
        "POOL_ALIGNMENT": str(POOL_ALIGNMENT),
        "IO": str(layout.io),
        "IO_ALIGNMENT": str(IO_ALIGNMENT),
        "RAM": _ram(facts),
        "HEAP": _heap(facts),
    }


def attribute(facts: Facts, arena: Arena) -> str:
    """Return the name of the macro that contains the attributes of an arena."""
    return f"{facts.macro}_{arena.name.upper()}_ATTRIBUTES"


def _attribute(facts: Facts, arena: Arena) -> str:
    name = attribute(facts, arena)
    default = f"#ifndef {name}\n#define {name}\n#endif\n"
    if arena.bank is None:
        return default
    section = section_macro(facts, arena.bank)
    return (
        f"#ifdef {facts.macro}_BANK_SECTIONS\n"
        f'#ifndef {section}\n#define {section} "{arena.bank.section}"\n#endif\n'
        f"#ifndef {name}\n#define {name} __attribute__((section({section})))\n#endif\n"
        f"#endif\n{default}"
    )


def section_macro(facts: Facts, bank: ArenaBank) -> str:
    """Return the name of the macro that contains the name of a bank's section."""
    return f"{facts.macro}_{bank.identifier.upper()}_SECTION"


def _constant(name: str, value: object, note: str) -> str:
    return f"inline constexpr size_t {name} = {value};  // {note}"


def _method(facts: Facts, method: MethodLayout) -> Iterator[str]:
    yield f"namespace {method.identifier} {{  // Method {comment(method.name)}."
    for (index, size), arena in zip(method.buffers, method.arenas, strict=True):
        yield _constant(f"kBuffer{index}Bytes", size, f"Of arena {arena.label}.")
    for arena in method.arenas:
        if arena.method is not None:
            yield _constant(arena.local_constant, arena.size, f"Arena of this method: {arena.use}.")
    estimate = f"On 32 bits: about {facts.estimate32(method)}."
    yield _constant("kMethodPoolBytes", f"{facts.pools(method.name).method} + kPoolMargin", estimate)
    yield _constant("kTempBytes", facts.pools(method.name).temp, "Of the pool for temporary memory.")
    yield from (line for end in method.ends for line in _quantized(end))
    yield f"}}  // namespace {method.identifier}"


def _quantized(end: QuantizedEnd) -> Iterator[str]:
    """Yield the constants for converting between floats and the integers of an input or output."""
    name = f"k{end.side.capitalize()}{end.position}"
    scale, zero_point, low, high = (f"{name}{what}" for what in ("Scale", "ZeroPoint", "Min", "Max"))
    yield f"inline constexpr float {scale} = {_float(end.scale)};  // float = (integer - {zero_point}) * {scale}."
    yield f"inline constexpr int32_t {zero_point} = {end.zero_point};"
    yield f"inline constexpr int32_t {low} = {end.quant_min};  // Clamp integers to {low}..{high}."
    yield f"inline constexpr int32_t {high} = {end.quant_max};"


def _float(value: float) -> str:
    """Return a C++ literal of type ``float``, with enough digits to identify the value."""
    text = f"{value:.9g}"
    return f"{text}f" if {*text} & {*".e"} else f"{text}.0f"


def _arena(arena: Arena, methods: tuple[MethodLayout, ...]) -> str:
    users = ", ".join(
        f"{comment(method.name)} {size}" for method in methods for index, size in method.buffers if index == arena.index
    )
    needed = _constant(arena.constant, arena.size, f"Arena {arena.label}: {arena.use}. Needed by {users}.")
    if arena.bank is None:
        return needed
    note = f"Size of the bank {comment(arena.bank.name)}, which has the memory id {arena.index}."
    return f"{needed}\n{_constant(arena.bank.constant, arena.bank.capacity, note)}"


def _heap(facts: Facts) -> str:
    if not facts.heap_users:
        return ""
    size = "its size is unknown" if facts.heap is None else f"at most {facts.heap} bytes, as measured"
    return f"\n// The heap is in use, too, by {' and '.join(facts.heap_users)}: {size}."


def _ram(facts: Facts) -> str:
    terms = [arena.constant for arena in facts.layout.arenas]
    terms += [f"{method.identifier}::kMethodPoolBytes" for method in facts.layout.methods]
    terms += ["kTempPoolBytes", "kIoBytes"]
    if not facts.embed:
        terms += [f"kFileBytes{number}" for number in range(len(facts.files))]
    return "\n    " + " +\n    ".join(terms)
