"""Tables of a method: arguments, delegates, operators, state, copies and the link's decisions."""

from __future__ import annotations

from collections.abc import Iterator

from etdev.page.model import Table
from etdev.pipeline.results.result import MethodResult
from etdev.program.info import Argument, MethodInfo

_MEMORY = {
    "planned": "planned memory",
    "caller": "memory of the caller",
    "constant": "a constant of the file",
    "alias": "memory of another tensor",
}


def method_tables(info: MethodInfo, built: MethodResult | None) -> tuple[Table, ...]:
    """Return the tables about a method; omit tables without rows."""
    tables = (
        _arguments("Inputs", info.inputs, built.inputs if built is not None else ()),
        _arguments("Outputs", info.outputs, ()),
        _delegates(info),
        _delegate_memory(built),
        Table("Operators", ("operator", "calls"), tuple((name, str(calls)) for name, calls in info.operators.items())),
        _state(info),
        Table(
            "Copies between tensors",
            ("operator", "kind", "calls", "bytes in a call"),
            tuple((item.operator, item.kind.replace("_", "-"), str(item.calls), item.nbytes) for item in info.copies),
            sizes=(3,),
        ),
        *(() if built is None else (_copy_decisions(built), _inplace_decisions(built))),
    )
    return tuple(table for table in tables if table.rows)


def _arguments(title: str, arguments: tuple[Argument, ...], declared: tuple[str, ...]) -> Table:
    """Return a table of a method's inputs or outputs; ``declared`` contains their names and types in the config."""
    rows = tuple(
        (
            declared[position] if position < len(declared) else str(position),
            str(argument),
            argument.nbytes,
            argument.device or "",
            _MEMORY.get(argument.memory or "", ""),
        )
        for position, argument in enumerate(arguments)
    )
    return Table(title, ("which", "type", "bytes", "device", "in"), rows, sizes=(2,))


def _delegates(info: MethodInfo) -> Table:
    rows = tuple(
        (
            str(index),
            item.id,
            str(item.calls),
            item.blob_bytes,
            ", ".join(map(str, item.compile_specs)),
        )
        for index, item in enumerate(info.delegates)
    )
    return Table("Delegates", ("index", "backend", "calls", "blob", "compile specs"), rows, sizes=(3,))


def _delegate_memory(built: MethodResult | None) -> Table:
    """Return a table of the memory that compilers state for delegates. It has no rows if there is no such memory."""
    found = built.delegate_memory if built is not None else ()
    kinds = list(dict.fromkeys(kind for item in found for kind in item.named_sizes()))
    rows: tuple[tuple[str | int | None, ...], ...] = tuple(
        (str(item.delegate), item.id, *(item.named_sizes().get(kind, 0) for kind in kinds)) for item in found
    )
    sizes = tuple(range(2, 2 + len(kinds)))
    return Table("Memory of delegates", ("index", "backend", *kinds), rows, sizes=sizes)


def _state(info: MethodInfo) -> Table:
    labels = {buffer.index: buffer.label for buffer in info.buffers}
    rows = tuple(
        (
            item.name,
            item.size,
            f"{labels[item.buffer]} at {item.offset:,}",
            "shared by methods" if item.shared else "private",
            "in the file" if item.initialized else "zeros",
        )
        for item in info.state
    )
    return Table("State", ("name", "bytes", "where", "shared", "initial value"), rows, sizes=(1,))


def _copy_decisions(built: MethodResult) -> Table:
    rows = tuple(
        (
            _position(built, item.instruction),
            item.operator,
            item.kind.replace("_", "-"),
            item.action,
            item.nbytes,
            item.reason,
        )
        for item in built.copy_decisions
    )
    columns = ("instruction", "operator", "kind", "result", "bytes", "why")
    return Table("Decisions on copies", columns, rows, sizes=(4,), note=_POSITIONS)


def _inplace_decisions(built: MethodResult) -> Table:
    return Table(
        "Decisions on outputs in place",
        ("instruction", "operator", "output", "over argument", "bytes", "why not"),
        tuple(_inplace_rows(built)),
        sizes=(4,),
        note=_POSITIONS,
    )


def _inplace_rows(built: MethodResult) -> Iterator[tuple[str | int | None, ...]]:
    for item in built.inplace_decisions:
        over = "" if item.argument is None else str(item.argument)
        where = _position(built, item.instruction)
        yield where, item.operator, str(item.output), over, item.nbytes, item.reason


_POSITIONS = "Positions are those in the file; an instruction that the link removed has none."


def _position(built: MethodResult, instruction: int) -> str:
    position = built.renumbered.get(instruction)
    return "" if position is None else str(position)
