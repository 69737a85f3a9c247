"""Merging of separately emitted methods into one program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from etdev.program import model as m
from etdev.program.blob import Blob
from etdev.program.segments import CONSTANT_ALIGNMENT, SEGMENT_ALIGNMENT, align, laid_out


def merge_methods(parts: Mapping[str, m.Program]) -> m.Program:
    """Merge programs that were emitted with one method each, and optionally with constant methods.

    The keys of ``parts`` are names of methods, in the order in which one lowering would process them. The result equals
    the program that ExecuTorch would emit from all methods together. The methods of the result are sorted by name. The
    constant methods of all parts follow, and each of them occurs once. Data that is equal in several parts is stored
    once, at the position of the first reference to it.

    Raises :class:`ValueError` for a program with data in the flatbuffer or in another file. ExecuTorch does not emit
    such programs.
    """
    merge = _Merge()
    plans = [merge.method(parts[name], parts[name].method(name)) for name in sorted(parts)]
    for part in parts.values():
        merge.name_data(part)
    constants: dict[str, m.ExecutionPlan] = {}
    for part in parts.values():
        for plan in part.execution_plan:
            if plan.name not in parts:
                constants.setdefault(plan.name, plan)
    return merge.program(next(iter(parts.values())), [*plans, *constants.values()])


@dataclass
class _Pool:
    """Data of constants or of initial values. Each blob occurs once and has an index. Index 0 is reserved."""

    alignment: int
    """Alignment of each blob in bytes. ExecuTorch aligns constants, but not initial values of planned tensors."""
    data: list[Blob] = field(default_factory=lambda: [Blob()])
    known: dict[Blob, int] = field(default_factory=dict)

    def add(self, data: Blob) -> int:
        """Return the index of a blob. Add the blob if it is new."""
        if data not in self.known:
            self.known[data] = len(self.data)
            self.data.append(data)
        return self.known[data]

    def segment(self) -> tuple[Blob, tuple[int, ...]]:
        """Return all data as one segment, and the offset of each blob."""
        parts, offsets, end = [Blob()], [], 0
        for data in self.data:
            start = align(end, self.alignment)
            parts += [Blob(bytes(start - end)), data]
            offsets.append(start)
            end = start + len(data)
        return Blob.joined(parts), tuple(offsets)


@dataclass
class _Merge:
    """Data of the programs that were merged so far."""

    constants: _Pool = field(default_factory=lambda: _Pool(CONSTANT_ALIGNMENT))
    initial: _Pool = field(default_factory=lambda: _Pool(1))
    blobs: dict[Blob, int] = field(default_factory=dict)
    """Maps a delegate blob to its index."""
    named: dict[str, Blob] = field(default_factory=dict)

    def method(self, part: m.Program, plan: m.ExecutionPlan) -> m.ExecutionPlan:
        """Return a method whose indices refer to the merged data. A delegate's index refers to the merged blobs."""
        if part.constant_buffer or part.backend_delegate_data:
            raise ValueError(f"method {plan.name!r} has data inside the flatbuffer")
        values = tuple(self._tensor(part, one) if isinstance(one, m.Tensor) else one for one in plan.values)
        delegates = tuple(
            replace(one, processed=replace(one.processed, index=self._blob(part, one))) for one in plan.delegates
        )
        return replace(plan, values=values, delegates=delegates)

    def _tensor(self, part: m.Program, tensor: m.Tensor) -> m.Tensor:
        if tensor.is_external:
            raise ValueError("a tensor has its data in another file")
        if not tensor.data_buffer_idx:
            return tensor
        pool, where = (
            (self.constants, part.constant_segment)
            if tensor.allocation_info is None
            else (self.initial, part.mutable_data_segments[0])
        )
        assert where is not None
        data = part.segments[where.segment_index].data.cut(where.offsets[tensor.data_buffer_idx], tensor.nbytes)
        return replace(tensor, data_buffer_idx=pool.add(data))

    def _blob(self, part: m.Program, delegate: m.BackendDelegate) -> int:
        return self.blobs.setdefault(part.segments[delegate.processed.index].data, len(self.blobs))

    def name_data(self, part: m.Program) -> None:
        """Add a part's named data, which delegates look up."""
        for item in part.named_data:
            data = part.segments[item.segment_index].data
            if self.named.setdefault(item.key, data) != data:
                raise ValueError(f"two methods have different data under the name {item.key!r}")

    def program(self, like: m.Program, plans: Sequence[m.ExecutionPlan]) -> m.Program:
        """Return the merged program, with the version and the alignments of ``like``."""
        data, offsets = self.constants.segment()
        segments, mutable = [data], list[m.SubsegmentOffsets]()
        if len(self.initial.data) > 1:
            initial, starts = self.initial.segment()
            mutable.append(m.SubsegmentOffsets(len(segments), starts))
            segments.append(initial)
        first = len(segments)
        segments += self.blobs
        places: dict[Blob, int] = {}
        for item in self.named.values():
            if item not in places:
                places[item] = len(segments)
                segments.append(item)
        return replace(
            like,
            execution_plan=tuple(_with_segments(plan, first) for plan in plans),
            segments=laid_out(segments, SEGMENT_ALIGNMENT),
            constant_segment=m.SubsegmentOffsets(0, offsets),
            mutable_data_segments=tuple(mutable),
            named_data=tuple(m.NamedData(key, places[item]) for key, item in self.named.items()),
        )


def _with_segments(plan: m.ExecutionPlan, first: int) -> m.ExecutionPlan:
    """Replace the indices of merged blobs in a method's delegates by indices of segments. Return the method.

    The first merged blob is in the segment ``first``.
    """
    delegates = tuple(
        replace(one, processed=replace(one.processed, index=first + one.processed.index)) for one in plan.delegates
    )
    return replace(plan, delegates=delegates)
