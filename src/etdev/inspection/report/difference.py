"""Content of the page of ``etdev diff``: two programs and their differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import takewhile
from pathlib import Path

from etdev._version import __version__
from etdev.inspection.diff import ProgramDiff, count_copied, count_in_place, diff
from etdev.inspection.naming import dtype_name
from etdev.inspection.report.dataflow import STATE
from etdev.inspection.report.document import ReadProgram, program_page, read_program
from etdev.inspection.report.weights import weight_changes, weights
from etdev.page import Document, render
from etdev.page.model import NONE, DiffPage, Figure, MethodDiffPage, MethodPage, ProgramPage, Texts
from etdev.program import model as m
from etdev.program.info import MethodInfo, ProgramInfo

_MOST_PAIRS = 2_000_000
"""Maximum number of pairs of equal instructions. If there are more, :func:`align` ignores frequent instructions."""


def diff_page(a: Path, b: Path, found: ProgramDiff | None = None) -> str:
    """Return the HTML page about two programs. ``found`` is their comparison, if it is known.

    Raises :class:`~etdev.errors.ProgramError`.
    """
    return render(diff_document(a, b, found))


def diff_document(a: Path, b: Path, found: ProgramDiff | None = None) -> Document:
    """Return the content of the page about two programs. Raises :class:`~etdev.errors.ProgramError`."""
    texts = Texts()
    found = found or diff(a, b)
    reads = read_program(a), read_program(b)
    pages = program_page(reads[0], texts), program_page(reads[1], texts)
    compared = DiffPage(
        verdict=_verdict(found),
        figures=tuple(_figures(found.a, found.b)),
        methods=tuple(_methods(found, reads, pages, texts)),
        only_a=_missing(found.a, found.b),
        only_b=_missing(found.b, found.a),
        weights=weight_changes(
            weights(reads[0].program, found.a, reads[0].known), weights(reads[1].program, found.b, reads[1].known)
        ),
        uncounted=_uncounted(found.a, found.b),
    )
    return Document(
        title=f"{pages[0].name} and {pages[1].name}",
        made_by=f"etdev {__version__}",
        programs=pages,
        texts=texts.all(),
        diff=compared,
    )


def _verdict(found: ProgramDiff) -> str:
    if found.identical:
        return "The files are identical, byte for byte."
    if found.same_program:
        return "The files contain the same program. Only its layout in the file differs."
    same = [method.name for method in found.methods if method.same]
    unchanged = f" Unchanged methods: {', '.join(same)}." if same else ""
    constants = "Their constants are the same." if found.same_weights else "Their constants differ."
    return f"The programs differ. {constants}{unchanged}"


def _missing(a: ProgramInfo, b: ProgramInfo) -> tuple[str, ...]:
    names = {method.name for method in b.methods}
    return tuple(method.name for method in a.methods if method.name not in names and not method.describes_end)


def _figures(a: ProgramInfo, b: ProgramInfo) -> Iterator[Figure]:
    yield Figure("size of the file", a.size, b.size, nbytes=True)
    sections = a.sections.parts(), b.sections.parts()
    for name in dict.fromkeys((*sections[0], *sections[1])):
        yield Figure(name, sections[0].get(name, 0), sections[1].get(name, 0), nbytes=True)
    if any("named data" in section for section in sections):  # Data of delegates, such as weights.
        yield Figure("constants and named data", _weights(sections[0]), _weights(sections[1]), nbytes=True)
    for device in dict.fromkeys((*a.memory, *b.memory)):
        yield Figure(f"planned memory, {device}", a.memory.get(device, 0), b.memory.get(device, 0), nbytes=True)


def _weights(sections: Mapping[str, int]) -> int:
    return sections.get("constants", 0) + sections.get("named data", 0)


def _uncounted(a: ProgramInfo, b: ProgramInfo) -> str | None:
    """Return a note that memory inside delegates is not counted; None if neither program has delegates."""
    has_delegates = any(method.delegates for info in (a, b) for method in info.methods)
    return "Memory inside delegates is not counted." if has_delegates else None


def _methods(
    found: ProgramDiff, reads: Sequence[ReadProgram], pages: Sequence[ProgramPage], texts: Texts
) -> Iterator[MethodDiffPage]:
    by_name = [{method.name: method for method in page.methods} for page in pages]
    for method in found.methods:
        shown = [names.get(method.name) for names in by_name]
        if shown[0] is None or shown[1] is None:
            continue  # A constant method that describes a quantized input or output is not on the page.
        plans = [read.program.method(method.name) for read in reads]
        infos = found.a.method(method.name), found.b.method(method.name)
        yield _method(method.name, plans, (shown[0], shown[1]), infos, texts)


def _method(
    name: str,
    plans: Sequence[m.ExecutionPlan],
    pages: tuple[MethodPage, MethodPage],
    infos: tuple[MethodInfo, MethodInfo],
    texts: Texts,
) -> MethodDiffPage:
    rows = align(*instruction_keys(plans, pages, texts.all()))
    pairs = tuple(_value_pairs(plans, pages, rows, texts.all()))
    planned = [(one, other) for one, other in pairs if _place(plans[0], one) and _place(plans[1], other)]
    moved = [pair for pair in planned if _place(plans[0], pair[0]) != _place(plans[1], pair[1])]
    return MethodDiffPage(
        name=name,
        figures=tuple(_method_figures(*infos)),
        instruction_a=tuple(one for one, _ in rows),
        instruction_b=tuple(other for _, other in rows),
        matched=len(planned),
        moved_a=tuple(one for one, _ in moved),
        moved_b=tuple(other for _, other in moved),
    )


def _method_figures(a: MethodInfo, b: MethodInfo) -> Iterator[Figure]:
    first, second = ({buffer.index: buffer for buffer in info.buffers} for info in (a, b))
    for index in sorted({*first, *second}):
        one, other = first.get(index), second.get(index)
        label = next(buffer.label for buffer in (one, other) if buffer is not None)
        yield Figure(label, one.size if one else 0, other.size if other else 0, nbytes=True)
    peaks = [{peak.buffer: peak.nbytes for peak in info.peaks} for info in (a, b)]
    for index in sorted({*peaks[0], *peaks[1]}):
        yield Figure(f"peak of buffer {index}", peaks[0].get(index), peaks[1].get(index), nbytes=True)
    yield Figure("instructions", a.instructions, b.instructions, nbytes=False)
    yield Figure("bytes copied in a call", count_copied(a), count_copied(b), nbytes=True)
    yield Figure("outputs in place", count_in_place(a), count_in_place(b), nbytes=False)
    for name in sorted({*a.operators, *b.operators}):
        calls = a.operators.get(name, 0), b.operators.get(name, 0)
        if calls[0] != calls[1]:
            yield Figure(f"calls of {name}", calls[0], calls[1], nbytes=False)
    called = _called(a), _called(b)
    for name in sorted({*called[0], *called[1]}):
        yield Figure(f"calls of {name}", called[0][name], called[1][name], nbytes=False)


def _called(method: MethodInfo) -> Counter[str]:
    """Map each backend to the number of calls of its delegates."""
    found: Counter[str] = Counter()
    for delegate in method.delegates:
        found[delegate.id] += delegate.calls
    return found


def instruction_keys(
    plans: Sequence[m.ExecutionPlan], pages: tuple[MethodPage, MethodPage], texts: Sequence[str]
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return a key for each instruction of two methods: the operator, the module, and the types of the outputs.

    The module is left out if one of the methods has no modules.
    """
    with_modules = all(any(number >= 0 for number in page.graph.module) for page in pages)
    found = []
    for plan, page in zip(plans, pages, strict=True):
        keys = []
        for position, written in enumerate(_operands(page)):
            module = page.graph.module[position] if with_modules else NONE
            types = (_type(plan, value) for value in written[1])
            keys.append((texts[page.instructions.operator[position]], "" if module < 0 else texts[module], *types))
        found.append(keys)
    return found[0], found[1]


def _operands(page: MethodPage) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield the values that each instruction reads, and those that it writes."""
    start = 0
    for reads, writes in zip(page.graph.reads, page.graph.writes, strict=True):
        middle, end = start + reads, start + reads + writes
        yield page.graph.arguments[start:middle], page.graph.arguments[middle:end]
        start = end


def _type(plan: m.ExecutionPlan, value: int) -> str:
    tensor = plan.values[value]
    return f"{dtype_name(tensor.scalar_type)} {tensor.sizes}" if isinstance(tensor, m.Tensor) else ""


def align(a: Sequence[tuple[str, ...]], b: Sequence[tuple[str, ...]]) -> list[tuple[int, int]]:
    """Return pairs of positions of equal items, in order. :data:`NONE` marks an item that is in one sequence only."""
    head = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
    rest_a, rest_b = a[head:], b[head:]
    ends = zip(reversed(rest_a), reversed(rest_b), strict=False)
    tail = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], ends))
    middle_a, middle_b = rest_a[: len(rest_a) - tail], rest_b[: len(rest_b) - tail]
    counts = Counter(middle_a), Counter(middle_b)
    many = sum(count * counts[1][key] for key, count in counts[0].items()) > _MOST_PAIRS
    rows = [(position, position) for position in range(head)]
    matcher = SequenceMatcher(None, middle_a, middle_b, autojunk=many)
    for kind, start_a, end_a, start_b, end_b in matcher.get_opcodes():
        if kind == "equal":
            rows += zip(range(head + start_a, head + end_a), range(head + start_b, head + end_b), strict=True)
        else:
            rows += [(head + position, NONE) for position in range(start_a, end_a)]
            rows += [(NONE, head + position) for position in range(start_b, end_b)]
    rows += [(len(a) - number, len(b) - number) for number in range(tail, 0, -1)]
    return rows


def _value_pairs(
    plans: Sequence[m.ExecutionPlan],
    pages: tuple[MethodPage, MethodPage],
    rows: Sequence[tuple[int, int]],
    texts: Sequence[str],
) -> Iterator[tuple[int, int]]:
    """Yield pairs of corresponding values, one from each method.

    These values correspond: inputs at the same position, state of the same name, outputs of corresponding instructions.
    """
    written = [[values for _, values in _operands(page)] for page in pages]
    same = [(written[0][one], written[1][other]) for one, other in rows if one >= 0 and other >= 0]
    first, second = (_state(page, texts) for page in pages)
    state = [((first[name],), (second[name],)) for name in first if name in second]
    seen: tuple[set[int], set[int]] = set(), set()
    for ones, others in [(plans[0].inputs, plans[1].inputs), *state, *same]:
        for one, other in zip(ones, others, strict=False):
            if one not in seen[0] and other not in seen[1]:
                seen[0].add(one)
                seen[1].add(other)
                yield one, other


def _state(page: MethodPage, texts: Sequence[str]) -> dict[str, int]:
    """Map names of state to value indices, for the state that a method reads."""
    ends = zip(page.graph.ends.kind, page.graph.ends.name, page.graph.ends.value, strict=True)
    return {texts[name]: value for kind, name, value in ends if texts[kind] == STATE}


def _place(plan: m.ExecutionPlan, value: int) -> tuple[int, int] | None:
    tensor = plan.values[value]
    if not isinstance(tensor, m.Tensor) or tensor.allocation_info is None or not tensor.nbytes:
        return None
    return tensor.allocation_info.memory_id, tensor.allocation_info.memory_offset
