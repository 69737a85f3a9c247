"""Semantic checks of a program: every index and extent refers to existing data.

The reader runs these checks on programs that it has decoded. The writer runs them on programs before writing. The
checks also reject programs that would make the runtime fail or crash. Sources of the rules: ``program.fbs``,
``runtime/executor/method.cpp``, ``tensor_parser_*.cpp`` and ``program.cpp`` of executorch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from etdev.devices import MAX_INDEX, DeviceType
from etdev.program import model as m
from etdev.program.check_calls import check_calls, check_signatures
from etdev.program.flaw import FlawError
from etdev.program.indices import check_index, check_name, check_value_indices
from etdev.program.segments import check_order

_MOST_BYTES = (1 << 63) - 1
"""Maximum number of elements or bytes of a tensor, because the runtime counts them in signed 64-bit integers."""


def check_program(program: m.Program) -> None:
    """Raise :class:`FlawError` for the first flaw of a program."""
    check_structure(program)
    for index, plan in enumerate(program.execution_plan):
        try:
            check_signatures(plan)
        except FlawError as flaw:
            raise flaw.within("execution_plan", f"[{index}]") from None


def check_structure(program: m.Program) -> None:
    """Raise :class:`FlawError` for the first flaw that does not depend on operator signatures."""
    _check_segments(program)
    _check_data(program)
    _unique((plan.name for plan in program.execution_plan), "execution_plan", "name")
    for index, plan in enumerate(program.execution_plan):
        try:
            _check_plan(program, plan)
        except FlawError as flaw:
            raise flaw.within("execution_plan", f"[{index}]") from None


def _check_segments(program: m.Program) -> None:
    end = check_order(program.segments)
    if end and program.header_length is None:
        raise FlawError("a file without an extended header cannot have bytes after the flatbuffer", "segments")
    if program.header_length not in (None, 24, 32):
        raise FlawError(f"expected 24, 32 or None, found {program.header_length}", "header_length")
    for name in ("segment_alignment", "inline_alignment"):
        alignment = getattr(program, name)
        if alignment < 1 or alignment & (alignment - 1):
            raise FlawError(f"expected a power of two, found {alignment}", name)


def _check_data(program: m.Program) -> None:
    if program.constant_segment is not None:
        _check_subsegments(program, program.constant_segment, "constant_segment")
        if program.constant_buffer and len(program.constant_segment.offsets) > 1:
            raise FlawError("constants are both in constant_segment and in constant_buffer", "constant_buffer")
    for index, subsegments in enumerate(program.mutable_data_segments):
        _check_subsegments(program, subsegments, "mutable_data_segments", f"[{index}]")
    used = [subsegments.segment_index for subsegments in program.mutable_data_segments]
    if len(set(used)) < len(used):
        raise FlawError("two items refer to the same segment", "mutable_data_segments")
    _unique((data.key for data in program.named_data), "named_data", "key")
    for index, data in enumerate(program.named_data):
        check_index(data.segment_index, program.segments, "segments", "named_data", f"[{index}]", "segment_index")


def _check_subsegments(program: m.Program, subsegments: m.SubsegmentOffsets, *path: str) -> None:
    if not subsegments.offsets:
        return
    index = subsegments.segment_index
    check_index(index, program.segments, "segments", *path, "segment_index")
    size = len(program.segments[index].data)
    for number, offset in enumerate(subsegments.offsets):
        if offset > size:
            raise FlawError(
                f"offset {offset} is past the end of a segment of {size} bytes", *path, "offsets", f"[{number}]"
            )


def _check_plan(program: m.Program, plan: m.ExecutionPlan) -> None:
    check_name(plan.name, "name")
    for index, size in enumerate(plan.non_const_buffer_sizes):
        if size < 0:
            raise FlawError(f"expected a size of 0 or more, found {size}", "non_const_buffer_sizes", f"[{index}]")
    _check_buffer_devices(plan)
    for index, operator in enumerate(plan.operators):
        check_name(operator.name, "operators", f"[{index}]", "name")
        check_name(operator.overload, "operators", f"[{index}]", "overload", may_be_empty=True)
    for index, delegate in enumerate(plan.delegates):
        try:
            _check_delegate(program, delegate)
        except FlawError as flaw:
            raise flaw.within("delegates", f"[{index}]") from None
    _check_values(program, plan)
    check_value_indices(plan.inputs, plan, "inputs")
    check_value_indices(plan.outputs, plan, "outputs")
    if not plan.chains:
        raise FlawError("a method needs at least one chain", "chains")
    check_calls(plan)


def _check_buffer_devices(plan: m.ExecutionPlan) -> None:
    seen: set[int] = set()
    for index, entry in enumerate(plan.non_const_buffer_device):
        path = ("non_const_buffer_device", f"[{index}]", "buffer_idx")
        check_index(entry.buffer_idx, plan.non_const_buffer_sizes, "non_const_buffer_sizes", *path)
        if entry.buffer_idx == 0:
            raise FlawError("buffer 0 is reserved", *path)
        if entry.buffer_idx in seen:
            raise FlawError(f"buffer {entry.buffer_idx} already has a device", *path)
        seen.add(entry.buffer_idx)
        _check_device(entry.device_type, entry.device_index, "non_const_buffer_device", f"[{index}]")


def _check_device(kind: DeviceType, index: int, *path: str) -> None:
    most = 0 if kind is DeviceType.CPU else MAX_INDEX
    if not 0 <= index <= most:
        raise FlawError(
            f"{index} is not an index of a device of type {kind.name}: expected 0 to {most}", *path, "device_index"
        )


def _check_delegate(program: m.Program, delegate: m.BackendDelegate) -> None:
    check_name(delegate.id, "id")
    for index, spec in enumerate(delegate.compile_specs):
        check_name(spec.key, "compile_specs", f"[{index}]", "key", may_be_empty=True)
    if delegate.processed.location is m.DataLocation.INLINE:
        check_index(
            delegate.processed.index, program.backend_delegate_data, "backend_delegate_data", "processed", "index"
        )
    else:
        check_index(delegate.processed.index, program.segments, "segments", "processed", "index")


# Values


def _check_values(program: m.Program, plan: m.ExecutionPlan) -> None:
    for index, value in enumerate(plan.values):
        try:
            if isinstance(value, m.Tensor):
                _check_tensor(program, plan, value)
            elif isinstance(value, m.IntList):
                check_value_indices(value.items, plan, "int_list", "items")
            elif isinstance(value, m.TensorList):
                _check_tensor_list(plan, index, value.items, "tensor_list")
            elif isinstance(value, m.OptionalTensorList):
                _check_tensor_list(plan, index, value.items, "optional_tensor_list")
        except FlawError as flaw:
            raise flaw.within("values", f"[{index}]") from None


def _check_tensor_list(plan: m.ExecutionPlan, index: int, items: tuple[int, ...], kind: str) -> None:
    for number, item in enumerate(items):
        path = (kind, "items", f"[{number}]")
        optional = kind == "optional_tensor_list"
        if optional and item == -1:
            continue
        check_index(item, plan.values, "values", *path)
        if item >= index:
            raise FlawError(f"value {item} must have a lower index than its list: the runtime relies on that", *path)
        found = plan.values[item]
        if not isinstance(found, m.Tensor) and not (optional and isinstance(found, m.Null)):
            raise FlawError(f"expected a tensor, but value {item} is a {type(found).__name__}", *path)


def _check_tensor(program: m.Program, plan: m.ExecutionPlan, tensor: m.Tensor) -> None:
    try:
        _check_shape(tensor)
        extra = tensor.extra_tensor_info
        if tensor.is_external and not (extra and extra.fully_qualified_name):
            raise FlawError("a tensor with external data needs a name", "extra_tensor_info", "fully_qualified_name")
        if extra:
            _check_device(extra.device_type, extra.device_index, "extra_tensor_info")
        if extra and extra.fully_qualified_name:
            check_name(extra.fully_qualified_name, "extra_tensor_info", "fully_qualified_name")
        if tensor.allocation_info is not None:
            _check_allocation(plan, tensor, tensor.allocation_info)
        if tensor.data_buffer_idx and not tensor.is_external:
            _check_tensor_data(program, tensor)
    except FlawError as flaw:
        raise flaw.within("tensor") from None


def _check_shape(tensor: m.Tensor) -> None:
    rank = len(tensor.sizes)
    if rank > m.MAX_RANK:
        raise FlawError(f"expected at most {m.MAX_RANK} dimensions, found {rank}", "sizes")
    if len(tensor.dim_order) != rank or sorted(tensor.dim_order) != list(range(rank)):
        order = ", ".join(map(str, tensor.dim_order))
        raise FlawError(f"expected each of {rank} dimensions once, found ({order})", "dim_order")
    if tensor.storage_offset:
        raise FlawError(
            f"expected 0, the only offset that the runtime supports, found {tensor.storage_offset}", "storage_offset"
        )
    if tensor.shape_dynamism is m.TensorShapeDynamism.DYNAMIC_UNBOUND:
        return
    for number, size in enumerate(tensor.sizes):
        if size < 0:
            raise FlawError(f"expected a size of 0 or more, found {size}", "sizes", f"[{number}]")
    if tensor.nbytes > _MOST_BYTES:
        raise FlawError(f"the tensor has {tensor.nbytes} bytes, more than a signed 64-bit integer can count", "sizes")


def _check_allocation(plan: m.ExecutionPlan, tensor: m.Tensor, allocation: m.AllocationDetails) -> None:
    buffers = plan.non_const_buffer_sizes
    if not 1 <= allocation.memory_id < len(buffers):
        raise FlawError(
            f"expected a buffer from 1 to {len(buffers) - 1}, found {allocation.memory_id}"
            if len(buffers) > 1
            else f"the method has no buffers, found buffer {allocation.memory_id}",
            "allocation_info",
            "memory_id",
        )
    unbounded = tensor.shape_dynamism is m.TensorShapeDynamism.DYNAMIC_UNBOUND
    size, offset = 0 if unbounded else tensor.nbytes, allocation.memory_offset
    if offset < 0 or offset + size > buffers[allocation.memory_id]:
        raise FlawError(
            f"{size} bytes at offset {offset} do not fit in buffer {allocation.memory_id}, "
            f"which has {buffers[allocation.memory_id]} bytes",
            "allocation_info",
        )


def _check_tensor_data(program: m.Program, tensor: m.Tensor) -> None:
    """Check that the file contains all bytes of a constant or of an initial value."""
    path = ("data_buffer_idx",)
    if tensor.shape_dynamism is m.TensorShapeDynamism.DYNAMIC_UNBOUND:
        raise FlawError("a tensor with data in the file must have known sizes", "shape_dynamism")
    if tensor.allocation_info is not None:
        number = tensor.extra_tensor_info.mutable_data_segments_idx if tensor.extra_tensor_info else 0
        parts = program.mutable_data_segments
        check_index(number, parts, "mutable_data_segments", "extra_tensor_info", "mutable_data_segments_idx")
        subsegments = parts[number]
    elif program.constant_buffer:
        check_index(tensor.data_buffer_idx, program.constant_buffer, "constant_buffer", *path)
        found = len(program.constant_buffer[tensor.data_buffer_idx])
        if found < tensor.nbytes:
            raise FlawError(f"the tensor has {tensor.nbytes} bytes, but its data has {found}", *path)
        return
    else:
        subsegments = program.constant_segment or m.SubsegmentOffsets(0, ())
    check_index(tensor.data_buffer_idx, subsegments.offsets, "offsets", *path)
    offset = subsegments.offsets[tensor.data_buffer_idx]
    size = len(program.segments[subsegments.segment_index].data)
    if offset + tensor.nbytes > size:
        why = f"{tensor.nbytes} bytes at offset {offset} reach past the end of a segment of {size} bytes"
        raise FlawError(why, *path)


def _unique(names: Iterable[str], vector: str, field: str) -> None:
    found = Counter(names)
    for name, count in found.items():
        if count > 1:
            raise FlawError(f"{count} items have the {field} {name!r}", vector)
