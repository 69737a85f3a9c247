"""Programs written by hand: content that executorch does not emit, and programs that tests change."""

from __future__ import annotations

from pathlib import Path

from etdev.program import Blob, parse, write
from etdev.program.model import (
    AllocationDetails,
    BackendDelegate,
    BackendDelegateDataReference,
    Bool,
    BoolList,
    Chain,
    CompileSpec,
    ContainerMetadata,
    DataLocation,
    DelegateCall,
    DeviceType,
    Double,
    DoubleList,
    ExecutionPlan,
    ExtraTensorInfo,
    Frame,
    FreeCall,
    Int,
    IntList,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    NamedData,
    NonConstBufferDevice,
    Null,
    Operator,
    OptionalTensorList,
    Program,
    ScalarType,
    Segment,
    String,
    SubsegmentOffsets,
    Tensor,
    TensorDataLocation,
    TensorList,
    TensorShapeDynamism,
)


def tensor(*sizes: int, at: int | None = None, buffer: int = 1, data: int = 0, **more: object) -> Tensor:
    """Return a float tensor in default order, at an offset of a planned buffer."""
    place = None if at is None else AllocationDetails(buffer, at)
    return Tensor(
        ScalarType.FLOAT,
        sizes,
        tuple(range(len(sizes))),
        allocation_info=place,
        data_buffer_idx=data,
        **more,  # type: ignore[arg-type]
    )


def loop(*, times: int = 3) -> Program:
    """Return ``y = 2 * x``, then ``y = 2 * y`` in a loop that jumps back. float32 [4] -> float32 [4]."""
    values = (tensor(4, at=0), tensor(4, at=16), Int(1), Int(0), Int(times), Bool(False))
    x, y, one, count, limit, done = range(6)
    plan = ExecutionPlan(
        name="forward",
        values=values,
        inputs=(x,),
        outputs=(y,),
        chains=(
            Chain(
                (
                    KernelCall(0, (x, x, one, y, y)),
                    KernelCall(0, (y, y, one, y, y)),
                    KernelCall(1, (count, one, count)),
                    KernelCall(2, (count, limit, done)),
                    JumpFalseCall(done, 1),
                )
            ),
        ),
        operators=(
            Operator("aten::add", "out"),
            Operator("executorch_prim::add", "Scalar"),
            Operator("executorch_prim::ge", "Scalar"),
        ),
        delegates=(),
        non_const_buffer_sizes=(0, 32),
    )
    return _without_constants(plan)


def unbounded() -> Program:
    """Return a program with an unbounded tensor: its sizes in the file mean nothing, and it has no planned place."""
    free = tensor(-1, 3, shape_dynamism=TensorShapeDynamism.DYNAMIC_UNBOUND)
    plan = ExecutionPlan("forward", (free, free), (0,), (1,), (Chain((MoveCall(0, 1),)),), (), (), (0,))
    return _without_constants(plan)


def _without_constants(plan: ExecutionPlan) -> Program:
    """Return a program as executorch writes it; the runtime refuses a file without ``constant_segment``."""
    return Program(
        (plan,), segments=(Segment(0, Blob()),), constant_segment=SubsegmentOffsets(0, (0,)), header_length=None
    )


def everything() -> Program:
    """Return a program with every table, every kind of value, call and data, and no field at its default."""
    extra = ExtraTensorInfo(0, "state", TensorDataLocation.SEGMENT, DeviceType.CUDA, 1)
    external = ExtraTensorInfo(fully_qualified_name="weight", location=TensorDataLocation.EXTERNAL)
    values = (
        tensor(2, 2, at=(1 << 32) + 16, shape_dynamism=TensorShapeDynamism.DYNAMIC_BOUND),
        tensor(2, data=1),
        tensor(2, at=0, buffer=2, data=1, extra_tensor_info=extra),
        tensor(3, extra_tensor_info=external),
        Tensor(ScalarType.BYTE, (1, 2, 3), (0, 2, 1), requires_grad=True, layout=1),
        Null(),
        Int(-(1 << 63)),
        Bool(True),
        Double(-0.0),
        String("naïve"),
        IntList((6,)),
        DoubleList((0.5, float("nan"), float("-inf"))),
        BoolList((True, False)),
        TensorList((0, 4)),
        OptionalTensorList((0, -1, 5)),
    )
    calls = (
        KernelCall(1, (0, 1, 2)),
        DelegateCall(1, (0, 2)),
        MoveCall(0, 2),
        JumpFalseCall(7, 5),
        FreeCall(4),
    )
    frames = ((Frame("model.py", 7, "forward", "x + 1"),), (), (), (), ())
    plan = ExecutionPlan(
        name="forward",
        values=values,
        inputs=(0,),
        outputs=(2, 3),
        chains=(Chain(calls, (0,), (2,), frames),),
        operators=(Operator("aten::relu", "out"), Operator("my::op")),
        delegates=(
            BackendDelegate("Inline", BackendDelegateDataReference(DataLocation.INLINE, 1)),
            BackendDelegate(
                "InSegment", BackendDelegateDataReference(DataLocation.SEGMENT, 2), (CompileSpec("key", b"\0\xff"),)
            ),
        ),
        non_const_buffer_sizes=(0, 1 << 33, 64),
        non_const_buffer_device=(NonConstBufferDevice(2, DeviceType.CUDA, 1),),
        container_meta_type=ContainerMetadata("in", "out"),
    )
    return Program(
        execution_plan=(plan,),
        version=1,
        backend_delegate_data=(Blob(b""), Blob(b"inline")),
        segments=(
            Segment(0, Blob(bytes(range(24)))),
            Segment(128, Blob(b"12345678" * 3)),
            Segment(256, Blob(b"delegate")),
        ),
        constant_segment=SubsegmentOffsets(0, (0, 16)),
        mutable_data_segments=(SubsegmentOffsets(1, (0, 8)),),
        named_data=(NamedData("blob", 2),),
    )


def content(program: Program, folder: Path) -> bytes:
    """Return the bytes of a program's file."""
    file = folder / "program.pte"
    write(program, file)
    return file.read_bytes()


def again(program: Program, folder: Path) -> Program:
    """Write a program and read it."""
    return parse(Blob(content(program, folder)))
