"""Files with what a build leaves beside them, without a build."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etdev.files import file_sha256
from etdev.linker.options import Elision, InPlace
from etdev.pipeline.result import BufferResult, BuildResult, MethodResult, RungResult, TargetResult
from etdev.program import Program, write
from etdev.program.sidecar import MethodNotes, Sidecar, Source, write_sidecar

RUNGS = (
    RungResult(rung="bytes", status="passed", summary="1 method, 2 instructions read back"),
    RungResult(rung="budget", status="failed", summary="over", gate=True, problems=("file 2 of 1",), hint="less"),
    RungResult(rung="device", status="not run", summary="the program has no memory on devices"),
)


def line(number: int) -> Source:
    """A line of a model."""
    return Source("model.py", number, "forward", f"x = x.sin()  # {number}")


def built_file(folder: Path, program: Program, *, name: str = "tiny", **fields: Any) -> Path:
    """``NAME.pte`` with ``report.json`` and ``NAME.object.json``: of an object program with one instruction more.

    Its first instruction was removed; the others stand one earlier in the file.
    """
    file = folder / f"{name}.pte"
    write(program, file)
    count = sum(len(chain.instructions) for chain in program.execution_plan[0].chains)
    notes = MethodNotes(sources={position: line(10 + position) for position in range(count + 1)})
    sidecar = folder / f"{name}.object.json"
    write_sidecar(Sidecar({program.execution_plan[0].name: notes}), sidecar)
    method = MethodResult(
        name=program.execution_plan[0].name,
        inputs=("images: float32 [4]",),
        stateful=False,
        delegate_calls={},
        delegated_ops=0,
        undelegated=(),
        operators=(),
        buffers=(BufferResult(index=1, device="cpu", size=64, lower_bound=32, greedy=48, state=False),),
        renumbered={position + 1: position for position in range(count)},
        copy_decisions=(Elision(0, "aten::view_copy.out", "alias", 16),),
        inplace_decisions=(InPlace(1, "aten::sin.out", 0, None, 16, "its operand is used later"),),
    )
    write_report(file, {"methods": (method,), "rungs": RUNGS, "sidecar_sha256": file_sha256(sidecar), **fields})
    return file


def write_report(file: Path, fields: Mapping[str, Any]) -> BuildResult:
    """``report.json`` of a file that is there."""
    settings: dict[str, Any] = {
        "name": "cpu",
        "status": "gate failed",
        "artifact": file.name,
        "size": file.stat().st_size,
        "sha256": file_sha256(file),
        "quantize": None,
    }
    result = BuildResult(
        project="tiny",
        config=str(file.parent / "etdev.toml"),
        versions={"etdev": "0.1.0"},
        targets=(TargetResult(**(settings | dict(fields))),),
    )
    (file.parent / "report.json").write_text(result.model_dump_json(), encoding="utf-8")
    return result
