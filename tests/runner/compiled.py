"""Generated projects that are compiled and run, with the pool sizes that they need."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from etdev.program import read
from etdev.runner import PoolSizes, ProgramFile, project_files, write_project
from etdev.runner.identifiers import identifiers
from etdev.runtime.native import lookup_bytes
from etdev.runtime.native.toolchain import Missing, Toolchain, find_toolchain

BIG = PoolSizes(1 << 20, 1 << 20)


def tools() -> Toolchain:
    """The tools that compile a project; skips if one is missing."""
    found = find_toolchain()
    if isinstance(found, Missing):
        pytest.skip(f"{found.reason}: {found.remedy}")
    return found


@dataclass(frozen=True)
class Compiled:
    """A project that was compiled."""

    folder: Path
    name: str

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        program = self.folder / "build" / f"{self.name}_runner"
        command = [os.fspath(program), *map(os.fspath, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    def calls(self, out: Path, calls: Sequence[tuple[str, Sequence[Any]]]) -> tuple[list[list[Any]], str]:
        """Make calls in a row. The outputs of each, tensors as bytes and others as printed, and what was printed."""
        out.mkdir(parents=True)
        arguments: list[str | Path] = ["--out", out, "--memory"]
        for number, (method, inputs) in enumerate(calls):
            arguments += ["--call", method]
            for position, value in enumerate(inputs):
                if isinstance(value, torch.Tensor):
                    file = out / f"in.{number}.{position}"
                    file.write_bytes(raw(value))
                    arguments += [
                        "--in",
                        f"{position}={file}",
                        "--shape",
                        f"{position}={'x'.join(map(str, value.shape))}",
                    ]
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        found: list[list[Any]] = []
        for number, (method, _) in enumerate(calls):
            block = done.stdout.split(f"call {number}  {method}  ")[1].split("\ncall ")[0]
            outputs = []
            for position, text in re.findall(r"^  output (\d+)  (.*)$", block, re.MULTILINE):
                file = out / f"{number}.{method}.{position}.bin"
                outputs.append(file.read_bytes() if file.exists() else text)
            found.append(outputs)
        return found, done.stdout


def raw(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor as they are in memory, in its own order of dimensions."""
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def expected(outputs: Sequence[Any]) -> list[Any]:
    """Outputs of another runtime, in the form of :meth:`Compiled.calls`."""
    return [raw(value) if isinstance(value, torch.Tensor) else _printed(value) for value in outputs]


def _printed(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else f"{value:.17g}" if isinstance(value, float) else str(value)


def source(file: Path, data: Sequence[Path] = (), **pools: PoolSizes) -> ProgramFile:
    program = read(file)
    return ProgramFile(
        file.name,
        file.read_bytes(),
        program,
        {plan.name: pools.get(plan.name, BIG) for plan in program.execution_plan},
        "by a test",
        {path.name: path.read_bytes() for path in data},
    )


def compiled(found: ProgramFile, folder: Path, *, embed: bool = False) -> Compiled:
    """Write a project and compile it. Warnings are errors."""
    write_project(folder, project_files(found, embed=embed))
    compile_project(folder)
    return Compiled(folder, found.stem.replace(" ", "_"))


def compile_project(folder: Path, flags: str = "") -> None:
    """Compile a project, or compile it again after a change. Raises an AssertionError with what the compiler says."""
    found = tools()
    settings = [
        f"-DCMAKE_PREFIX_PATH={found.package}",
        f"-DCMAKE_CXX_COMPILER={found.compiler}",
        "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON",
        "-DCMAKE_BUILD_TYPE=Debug",
        f"-DCMAKE_CXX_FLAGS={flags}",
    ]
    for command in (["-S", folder, "-B", folder / "build", *settings], ["--build", folder / "build"]):
        done = subprocess.run([found.cmake, *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stdout + done.stderr


def measured(file: Path, folder: Path, data: Sequence[Path] = ()) -> ProgramFile:
    """Return the program with the pool sizes that it needs, as a runner with large pools counts them."""
    large = compiled(source(file, data), folder)
    sizes = {}
    methods = [plan.name for plan in read(file).execution_plan]
    for method, name in zip(methods, identifiers(methods), strict=True):
        done = large.run("--memory", "--call", method)
        assert done.returncode == 0, done.stderr
        own = re.search(rf"::{name}::kMethodPoolBytes  (\d+) of", done.stdout)
        temp = re.search(r"::kTempPoolBytes  (\d+) of", done.stdout)
        assert own is not None
        assert temp is not None
        plan = next(plan for plan in read(file).execution_plan if plan.name == method)
        sizes[method] = PoolSizes(int(own[1]), max(int(temp[1]), lookup_bytes(plan)))
    return source(file, data, **sizes)
