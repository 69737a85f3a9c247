"""Hypothesis strategies for valid programs, over all of the schema."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import TypeVar

from hypothesis import strategies as st

from etdev.program import Blob
from etdev.program import model as m

_T = TypeVar("_T")

_NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12)
_TEXTS = st.text(max_size=12)
_I8, _I32 = st.integers(-128, 127), st.integers(-(1 << 31), (1 << 31) - 1)
_U32, _I64 = st.integers(0, (1 << 32) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
_DEVICES = st.just((m.DeviceType.CPU, 0)) | st.tuples(st.just(m.DeviceType.CUDA), st.integers(0, 127))
_BLOBS = st.binary(max_size=40).map(Blob)


def _tuples(items: st.SearchStrategy[_T], *, smallest: int = 0, most: int = 4) -> st.SearchStrategy[tuple[_T, ...]]:
    return st.lists(items, min_size=smallest, max_size=most).map(tuple)


@cache
def _indices(count: int, *, most: int = 5) -> st.SearchStrategy[tuple[int, ...]]:
    return _tuples(st.integers(0, count - 1), most=most) if count else st.just(())


_PLAIN_VALUES: tuple[st.SearchStrategy[m.Value], ...] = (
    st.just(m.Null()),
    st.builds(m.Int, _I64),
    st.builds(m.Bool, st.booleans()),
    st.builds(m.Double, st.floats()),
    st.builds(m.String, _TEXTS),
    st.builds(m.DoubleList, _tuples(st.floats())),
    st.builds(m.BoolList, _tuples(st.booleans(), most=9)),
)


@cache
def _lists(
    kind: type[m.IntList | m.TensorList | m.OptionalTensorList], indices: tuple[int, ...]
) -> st.SearchStrategy[m.Value]:
    """Draw lists of values. Hypothesis checks each strategy that is made anew, so these are made once."""
    return st.builds(kind, _tuples(st.sampled_from(indices)) if indices else st.just(()))


@st.composite
def programs(draw: st.DrawFn) -> m.Program:
    """Draw programs that keep every rule of ``check``."""
    segments = draw(_segments())
    some_bytes = any(segment.offset or segment.data for segment in segments)
    inline = not segments or draw(st.booleans())
    constant_buffer = draw(_tuples(_BLOBS)) if inline else ()
    with_state = draw(st.lists(st.integers(0, len(segments) - 1), unique=True, max_size=2)) if segments else []
    head = m.Program(
        (),
        version=draw(_U32),
        constant_buffer=constant_buffer,
        backend_delegate_data=draw(_tuples(_BLOBS)),
        segments=segments,
        constant_segment=draw(st.none() | _constant_segments(segments, empty=inline)),
        mutable_data_segments=tuple(draw(_subsegments(segments, index)) for index in with_state),
        named_data=draw(_named_data(segments)),
        header_length=draw(st.sampled_from([24, 32] if some_bytes else [None, 24, 32])),
        segment_alignment=draw(st.sampled_from([16, 128, 4096])),
        inline_alignment=draw(st.sampled_from([16, 64])),
    )
    plans = [draw(_plans(head, name)) for name in draw(st.lists(_NAMES, unique=True, max_size=3))]
    return m.Program(**{name: getattr(head, name) for name in m.Program.__slots__} | {"execution_plan": tuple(plans)})


@st.composite
def _segments(draw: st.DrawFn) -> tuple[m.Segment, ...]:
    end, segments = 0, []
    for gap, data in draw(st.lists(st.tuples(st.integers(0, 40), _BLOBS), max_size=4)):
        segments.append(m.Segment(end + gap, data))
        end += gap + len(data)
    return tuple(segments)


@st.composite
def _subsegments(draw: st.DrawFn, segments: tuple[m.Segment, ...], index: int) -> m.SubsegmentOffsets:
    inside = st.integers(0, len(segments[index].data))
    return m.SubsegmentOffsets(index, draw(_tuples(inside, most=5)))


@st.composite
def _constant_segments(draw: st.DrawFn, segments: tuple[m.Segment, ...], *, empty: bool) -> m.SubsegmentOffsets:
    if empty:
        return m.SubsegmentOffsets(draw(_U32), ())
    return draw(_subsegments(segments, draw(st.integers(0, len(segments) - 1))))


@st.composite
def _named_data(draw: st.DrawFn, segments: tuple[m.Segment, ...]) -> tuple[m.NamedData, ...]:
    keys = draw(st.lists(_TEXTS, unique=True, max_size=3)) if segments else []
    return tuple(m.NamedData(key, draw(st.integers(0, len(segments) - 1))) for key in keys)


@st.composite
def _plans(draw: st.DrawFn, program: m.Program, name: str) -> m.ExecutionPlan:
    sizes = draw(_tuples(st.integers(0, 1 << 40), most=4))
    operators = draw(_tuples(st.builds(m.Operator, _NAMES, _TEXTS.map(lambda text: text.replace("\0", "")))))
    delegates = draw(_tuples(_delegates(program)))
    count = draw(st.integers(0, 8))
    values: list[m.Value] = []
    for _ in range(count):
        values.append(draw(_values(program, sizes, tuple(values), count)))
    with_device = draw(st.lists(st.integers(1, len(sizes) - 1), unique=True)) if len(sizes) > 1 else []
    return m.ExecutionPlan(
        name=name,
        values=tuple(values),
        inputs=draw(_indices(count)),
        outputs=draw(_indices(count)),
        chains=draw(_tuples(_chains(values, len(operators), len(delegates)), smallest=1, most=2)),
        operators=operators,
        delegates=delegates,
        non_const_buffer_sizes=sizes,
        non_const_buffer_device=tuple(m.NonConstBufferDevice(i, *draw(_DEVICES)) for i in with_device),
        container_meta_type=draw(st.none() | st.builds(m.ContainerMetadata, _TEXTS, _TEXTS)),
    )


@st.composite
def _delegates(draw: st.DrawFn, program: m.Program) -> m.BackendDelegate:
    lists = {
        m.DataLocation.INLINE: len(program.backend_delegate_data),
        m.DataLocation.SEGMENT: len(program.segments),
    }
    places = [(location, index) for location, count in lists.items() for index in range(count)]
    if not places:
        return draw(st.nothing())
    specs = _tuples(st.builds(m.CompileSpec, _NAMES, st.binary(max_size=8)), most=2)
    return m.BackendDelegate(draw(_NAMES), m.BackendDelegateDataReference(*draw(st.sampled_from(places))), draw(specs))


@st.composite
def _values(
    draw: st.DrawFn, program: m.Program, sizes: tuple[int, ...], before: tuple[m.Value, ...], count: int
) -> m.Value:
    tensors = [index for index, value in enumerate(before) if isinstance(value, m.Tensor)]
    integers = [index for index, value in enumerate(before) if isinstance(value, m.Int)]
    optional = [-1, *tensors, *(index for index, value in enumerate(before) if isinstance(value, m.Null))]
    lists = {m.IntList: integers, m.TensorList: tensors, m.OptionalTensorList: optional}
    of_values = (_lists(kind, tuple(indices)) for kind, indices in lists.items())
    return draw(st.one_of(_tensors(program, sizes), *_PLAIN_VALUES, *of_values))


@st.composite
def _tensors(draw: st.DrawFn, program: m.Program, buffers: tuple[int, ...]) -> m.Tensor:
    kind = draw(st.sampled_from(m.ScalarType))
    dynamism = draw(st.sampled_from(m.TensorShapeDynamism))
    unbounded = dynamism is m.TensorShapeDynamism.DYNAMIC_UNBOUND
    shape = draw(_tuples(_I32 if unbounded else st.integers(0, 3), most=draw(st.sampled_from([3, m.MAX_RANK]))))
    size = 0 if unbounded else prod(shape) * kind.itemsize
    extra = draw(st.none() | _extras())
    external = extra is not None and extra.location is m.TensorDataLocation.EXTERNAL
    room = [index for index, total in enumerate(buffers) if index and total >= size]
    place = None
    if room and draw(st.booleans()):
        buffer = draw(st.sampled_from(room))
        place = m.AllocationDetails(buffer, draw(st.integers(0, buffers[buffer] - size)))
    data = 0
    if external:
        data = draw(_U32)
    elif not unbounded:
        data = draw(st.sampled_from([0, *_data_indices(program, size, extra, planned=place is not None)]))
    return m.Tensor(
        scalar_type=kind,
        sizes=shape,
        dim_order=tuple(draw(st.permutations(range(len(shape))))),
        shape_dynamism=dynamism,
        data_buffer_idx=data,
        allocation_info=place,
        extra_tensor_info=extra,
        requires_grad=draw(st.booleans()),
        layout=draw(_I8),
    )


@st.composite
def _extras(draw: st.DrawFn) -> m.ExtraTensorInfo:
    location = draw(st.sampled_from(m.TensorDataLocation))
    name = draw(_NAMES if location is m.TensorDataLocation.EXTERNAL else st.none() | st.just("") | _NAMES)
    return m.ExtraTensorInfo(draw(st.integers(0, 1)), name, location, *draw(_DEVICES))


def _data_indices(program: m.Program, size: int, extra: m.ExtraTensorInfo | None, *, planned: bool) -> list[int]:
    """Return indices of data of that many bytes, for a constant or for an initial value."""
    subsegments = program.constant_segment
    if planned:
        index = extra.mutable_data_segments_idx if extra else 0
        parts = program.mutable_data_segments
        subsegments = parts[index] if index < len(parts) else None
    elif program.constant_buffer:
        return [index for index, blob in enumerate(program.constant_buffer) if index and len(blob) >= size]
    if subsegments is None or not subsegments.offsets:
        return []
    end = len(program.segments[subsegments.segment_index].data)
    return [index for index, offset in enumerate(subsegments.offsets) if index and offset + size <= end]


@st.composite
def _chains(draw: st.DrawFn, values: list[m.Value], operators: int, delegates: int) -> m.Chain:
    count = draw(st.integers(0, 6)) if values else 0
    value, args = st.integers(0, max(len(values) - 1, 0)), _indices(len(values))
    calls: list[st.SearchStrategy[m.Instruction]] = [st.builds(m.FreeCall, value)]
    tensors = [index for index, item in enumerate(values) if isinstance(item, m.Tensor)]
    numbers = [index for index, item in enumerate(values) if isinstance(item, m.Null | m.Int | m.Bool | m.Double)]
    calls += [st.builds(m.MoveCall, some, some) for some in map(st.sampled_from, filter(None, (tensors, numbers)))]
    if conditions := [index for index, item in enumerate(values) if _is_condition(item)]:
        calls.append(st.builds(m.JumpFalseCall, st.sampled_from(conditions), st.integers(0, count)))
    if operators:
        calls.append(st.builds(m.KernelCall, st.integers(0, operators - 1), args))
    if delegates:
        calls.append(st.builds(m.DelegateCall, st.integers(0, delegates - 1), args))
    frames = _tuples(st.builds(m.Frame, _TEXTS, _I32, _TEXTS, _TEXTS), most=2)
    return m.Chain(
        instructions=tuple(draw(st.one_of(calls)) for _ in range(count)),
        inputs=draw(args),
        outputs=draw(args),
        stacktrace=draw(_tuples(frames, most=2)),
    )


def _is_condition(value: m.Value) -> bool:
    return isinstance(value, m.Bool) or (isinstance(value, m.Tensor) and value.scalar_type is m.ScalarType.BOOL)
