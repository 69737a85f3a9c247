"""Texts for ``runner.cc``: static memory, and tables with facts about the methods.

Names of variables end with ``_``, so that they differ from the C++ names of methods. The C++ name of a method ends with
``_`` only if the name would otherwise be a reserved word.
"""

from __future__ import annotations

from collections.abc import Iterator

from etdev.program import model as m
from etdev.runner.facts import Facts
from etdev.runner.header import attribute
from etdev.runner.identifiers import comment, string_literal
from etdev.runner.layout import MethodLayout


def table_texts(facts: Facts) -> dict[str, str]:
    """Return the texts for the placeholders of the template ``runner.cc``."""
    names = [array_name(facts, number) for number in range(len(facts.files))]
    return {
        "EXTERNS": "\n".join(f"extern const uint64_t {name}[];" for name in names) if facts.embed else "",
        "MEMORY": "\n".join(_memory(facts)),
        "TABLES": "\n".join(
            [line for method in facts.layout.methods for line in _method(facts, method)] + _list(facts)
        ),
        "CLEAR": "\n".join(f"  Clear({arena.name}_.span());" for arena in facts.layout.arenas),
        "FILES": "\n".join(_files(facts)),
    }


def array_name(facts: Facts, number: int) -> str:
    """Return the name of the C array for a file. The program has the number 0, and data files follow."""
    return f"{facts.identifier}_file_{number}"


def _memory(facts: Facts) -> Iterator[str]:
    for arena in facts.layout.arenas:
        yield f"alignas(kArenaAlignment) Block<{arena.constant}> {arena.name}_ {attribute(facts, arena)};"
        if arena.bank is not None:
            text = f"{arena.constant} is larger than the bank {comment(arena.bank.name)}"
            yield f'static_assert({arena.constant} <= {arena.bank.constant}, "{text}");'
    for method in facts.layout.methods:
        yield f"alignas(kPoolAlignment) Block<{method.identifier}::kMethodPoolBytes> pool_{method.identifier}_;"
    yield "alignas(kPoolAlignment) Block<kTempPoolBytes> temp_memory;"
    yield "alignas(kIoAlignment) Block<kIoBytes> io;"
    yield f'static_assert(kIoBytes >= {facts.layout.io}, "kIoBytes is too small for the inputs and outputs");'
    if not facts.embed:
        for number in range(len(facts.files)):
            yield f"alignas(kFileAlignment) Block<kFileBytes{number}> file_{number}_;"


def _files(facts: Facts) -> Iterator[str]:
    for number, (name, _) in enumerate(facts.files):
        if facts.embed:
            where = f"reinterpret_cast<const uint8_t*>({array_name(facts, number)})"
            yield f"    {{{string_literal(name)}, {where}, kFileBytes{number}}},"
        else:
            yield f"    {{{string_literal(name)}, file_{number}_.at(0), kFileBytes{number}, file_{number}_.at(0)}},"


def _method(facts: Facts, method: MethodLayout) -> Iterator[str]:
    name = method.identifier
    if method.inputs:
        yield f"const InputFacts inputs_{name}_[] = {{"
        yield from (f"    {_input(slot.value, slot.offset)}," for slot in method.inputs)
        yield "};"
    if method.outputs:
        yield f"const OutputFacts outputs_{name}_[] = {{"
        yield from (f"    {{{slot.output}, {slot.offset}, {slot.size}}}," for slot in method.outputs)
        yield "};"
    if method.buffers:
        pairs = list(zip(method.buffers, method.arenas, strict=True))
        yield f"Span<uint8_t> buffers_{name}_[] = {{"
        yield from (f"    {arena.name}_.span({name}::kBuffer{index}Bytes)," for (index, _), arena in pairs)
        yield "};"
        yield f"const char* const buffer_constants_{name}_[] = {{"
        yield from (f'    "{facts.identifier}::{name}::kBuffer{index}Bytes",' for (index, _), _ in pairs)
        yield "};"
        for (index, _), arena in pairs:
            need = f"{name}::kBuffer{index}Bytes"
            yield f'static_assert({arena.constant} >= {need}, "{arena.constant} is too small for {need}");'


def _input(value: m.Value, offset: int) -> str:
    match value:
        case m.Tensor():
            return f"{{Kind::kTensor, {offset}, {value.nbytes}, 0, 0.0, nullptr}}"
        case m.Int():
            return f"{{Kind::kInt, 0, 0, {_integer(value.int_val)}, 0.0, nullptr}}"
        case m.Bool():
            return f"{{Kind::kBool, 0, 0, {int(value.bool_val)}, 0.0, nullptr}}"
        case m.Double():
            return f"{{Kind::kDouble, 0, 0, 0, {_double(value.double_val)}, nullptr}}"
        case m.String():
            return f"{{Kind::kString, 0, 0, 0, 0.0, {string_literal(value.string_val)}}}"
        case _:
            return "{Kind::kNone, 0, 0, 0, 0.0, nullptr}"


def _integer(value: int) -> str:
    return f"INT64_C({value})" if value > -(2**63) else "INT64_MIN"


def _double(value: float) -> str:
    if value != value:
        return "NAN"
    if value in {float("inf"), float("-inf")}:
        return "HUGE_VAL" if value > 0 else "-HUGE_VAL"
    return value.hex()


def _list(facts: Facts) -> list[str]:
    lines = ["", "const MethodFacts kMethods[kMethodCount] = {"]
    for method in facts.layout.methods:
        name, buffers = method.identifier, len(method.buffers)
        inputs = f"inputs_{name}_" if method.inputs else "nullptr"
        outputs = f"outputs_{name}_" if method.outputs else "nullptr"
        spans, constants = (f"buffers_{name}_", f"buffer_constants_{name}_") if buffers else ("nullptr", "nullptr")
        lines += [
            f"    {{{string_literal(method.name)}, {inputs}, {len(method.inputs)}, {outputs}, {len(method.outputs)},",
            f"     {spans}, {constants}, {buffers}, pool_{name}_.span(),",
            f'     "{facts.identifier}::{name}::kMethodPoolBytes", {name}::kTempBytes}},',
        ]
    return [*lines, "};"]
