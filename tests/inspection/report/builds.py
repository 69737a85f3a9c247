"""Files with what a build leaves next to them, without a build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from etdev.files import file_sha256
from etdev.linker.options import Elision, InPlace
from etdev.pipeline.results.result import CheckResult, DataFile
from etdev.program import Blob, Program, flat_tensor, write
from etdev.program import model as m
from etdev.program.data_files.external import externalize
from etdev.program.info import BufferInfo
from etdev.program.sidecar import MethodNotes, Sidecar, Source, write_sidecar
from program.hand import tensor
from support.files import ADD, method
from support.files import program as make_program
from support.reports import method_result, write_report

CHECKS = (
    CheckResult(name="bytes", status="passed", summary="1 method, 2 instructions read back"),
    CheckResult(name="budget", status="failed", summary="over", gate=True, problems=("file 2 of 1",), hint="less"),
    CheckResult(name="device", status="not run", summary="the program has no memory on devices"),
)


def line(number: int) -> Source:
    """A line of a model."""
    return Source("model.py", number, "forward", f"x = x.sin()  # {number}")


def built_file(
    folder: Path, program: Program, *, name: str = "tiny", modules: Mapping[int, str] | None = None, **fields: Any
) -> Path:
    """``NAME.pte`` with ``report.json`` and ``NAME.object.json``: of an object program with one instruction more.

    Its first instruction was removed; the others stand one earlier in the file. ``modules`` are those of the file.
    """
    file = folder / f"{name}.pte"
    write(program, file)
    count = sum(len(chain.instructions) for chain in program.execution_plan[0].chains)
    notes = MethodNotes(
        sources={position: line(10 + position) for position in range(count + 1)},
        modules={position + 1: path for position, path in (modules or {}).items()},
    )
    sidecar = folder / f"{name}.object.json"
    write_sidecar(Sidecar({program.execution_plan[0].name: notes}), sidecar)
    described = method_result(
        program.execution_plan[0].name,
        inputs=("images: float32 [4]",),
        buffers=(BufferInfo(index=1, device="cpu", size=64, lower_bound=32, greedy=48, state=False),),
        renumbered={position + 1: position for position in range(count)},
        copy_decisions=(Elision(0, "aten::view_copy.out", "alias", 16),),
        inplace_decisions=(InPlace(1, "aten::sin.out", 0, None, 16, "its operand is used later"),),
    )
    settings: dict[str, Any] = {"methods": (described,), "checks": CHECKS, "sidecar_sha256": file_sha256(sidecar)}
    write_report(file, **({"status": "gate failed"} | settings | fields))
    return file


def two_files(folder: Path, *, reported: bool = True) -> tuple[Path, Path]:
    """A program that adds a weight of its own and one in another file, whose bytes have another name too, with a
    delegate's data; and that file."""
    names = [m.ExtraTensorInfo(fully_qualified_name=name) for name in ("layer.weight", "tied.weight")]
    values = [tensor(4, at=0), tensor(4, data=1), *(tensor(4, data=1, extra_tensor_info=info) for info in names)]
    calls = [m.KernelCall(0, (0, index, 5, 4, 4)) for index in (2, 3)]
    plan = method([*values, tensor(4, at=16), m.Int(1)], calls, outputs=(4,), operators=(ADD,))
    made = make_program(
        plan, segments=(m.Segment(0, Blob(bytes(16))),), constant_segment=m.SubsegmentOffsets(0, (0, 0))
    )
    outside, data = externalize(made)
    more = flat_tensor.NamedData("blob", len(data.segments))
    end = data.segments[-1].offset + len(data.segments[-1].data)
    data = replace(
        data,
        segments=(*data.segments, m.Segment(end + -end % 128, Blob(bytes(40)))),
        named_data=(*data.named_data, more),
    )
    flat_tensor.write(data, folder / "w.ptd")
    beside = DataFile(name="w.ptd", size=(folder / "w.ptd").stat().st_size, sha256=file_sha256(folder / "w.ptd"))
    file = built_file(folder, outside, data=(beside,))
    if not reported:
        (folder / "report.json").unlink()
    return file, folder / "w.ptd"
