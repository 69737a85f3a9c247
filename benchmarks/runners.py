"""Runners of the zoo's models: memory, outputs against the stock runtime, and pools that are one byte smaller.

Each model is built by etdev, `etdev runner` writes its C++ project, and the project is compiled without warnings. It
is called once on random inputs. Its outputs have to be those of ExecuTorch's Python runtime, bit by bit. Then one pool
after the other is made one byte smaller: the project has to fail, and to name the pool. Ends with 1 if any of that is
not so.

    python benchmarks/runners.py [--only NAME ...] [--backend NAME ...] [--folder DIR]
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from zoo_parts import PROJECT
from zoo_parts.key import versions
from zoo_parts.steps import declarations

MODELS = ("resnet", "mobilenet-v2", "convnext", "vit", "swin", "bert", "gpt2", "mamba", "t5", "whisper")
BACKENDS = ("portable", "xnnpack")
POOLS = ("kMethodPoolBytes", "kTempPoolBytes")
ROW = "{:14} {:8} {:>11} {:>8} {:>8} {:>6} {:>6} {:>6}  {}"


def main() -> int:
    """Print a row per model and backend."""
    from architectures import BY_NAME

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(BY_NAME), default=MODELS, metavar="NAME", help="these models")
    parser.add_argument("--backend", nargs="+", choices=BACKENDS, default=BACKENDS, metavar="NAME")
    parser.add_argument("--folder", type=Path, help="where projects stay; default: a temporary folder")
    arguments = parser.parse_args()
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, {', '.join(versions())}")
    print("Bytes: planned, pool of `forward`, estimate of it on 32 bits, temporary, delegates' part of the pool.")
    print(ROW.format("model", "backend", "planned", "pool", "32 bits", "temp", "others", "s", "(to compile), trouble"))
    good = True
    with tempfile.TemporaryDirectory() as temporary:
        place = arguments.folder or Path(temporary)
        for name in arguments.only:
            for backend in arguments.backend:
                good = _measure(name, backend, place / name / backend) and good
    return 0 if good else 1


def _measure(name: str, backend: str, folder: Path) -> bool:
    import etdev
    from etdev.errors import EtdevError
    from etdev.runner import make_project

    config = PROJECT / "etdev.toml"
    try:
        etdev.build(config, targets=[backend], verify=False, overrides=declarations(name, folder), environ={})
        file = folder / backend / "zoo.pte"
        project = folder / "project"
        facts = make_project(project, file).facts
    except EtdevError as error:
        print(ROW.format(name, backend, *[""] * 6, error))
        return False
    start = monotonic()
    trouble = _compile(project)
    seconds = monotonic() - start
    troubles = [trouble] if trouble else [*_outputs(name, file, project), *_smaller(project)]
    (method,) = facts.layout.methods
    pools, scaling = facts.pools(method.name), facts.scaling(method)
    sizes = [sum(arena.size for arena in facts.layout.arenas), pools.method, facts.estimate32(method), facts.temp]
    figures = [f"{size:,}" for size in (*sizes, pools.method - scaling.counted)]
    print(ROW.format(name, backend, *figures, f"{seconds:.1f}", "; ".join(troubles)), flush=True)
    return not troubles


def _compile(project: Path) -> str:
    """Return what the compiler complains about."""
    from etdev.runtime.native.toolchain import Toolchain, find_toolchain

    tools = find_toolchain()
    assert isinstance(tools, Toolchain)
    cmake, build = os.fspath(tools.cmake), os.fspath(project / "build")
    strict = ["-DCMAKE_COMPILE_WARNING_AS_ERROR=ON", f"-DCMAKE_PREFIX_PATH={tools.package}"]
    for command in ([cmake, "-S", os.fspath(project), "-B", build, *strict], [cmake, "--build", build]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return (done.stdout + done.stderr).strip().splitlines()[-1]
    return ""


def _call(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [os.fspath(project / "build" / "zoo_runner"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _outputs(name: str, file: Path, project: Path) -> Iterator[str]:
    """Yield what is not as in the stock runtime."""
    from architectures import BY_NAME, random_inputs

    from etdev.runtime.stock import StockRuntime

    inputs: Sequence[Any] = random_inputs(BY_NAME[name], 0)
    arguments = ["--out", os.fspath(project), "--memory"]
    for position, value in enumerate(inputs):
        (project / f"input{position}").write_bytes(_raw(value))
        arguments += ["--in", f"{position}={project / f'input{position}'}"]
    done = _call(project, *arguments)
    if done.returncode:
        yield done.stderr.strip().splitlines()[-1]
        return
    if not re.search(r"kMethodPoolBytes  (\d+) of \1 bytes", done.stdout):
        yield "not all of the pool is used"
    with StockRuntime() as runtime:
        runtime.load(file, shared=True)
        for position, value in enumerate(runtime.call("forward", inputs)):
            if (project / f"0.forward.{position}.bin").read_bytes() != _raw(value):
                yield f"output {position} differs"


def _raw(tensor: Any) -> bytes:
    import torch

    found: bytes = tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return found


def _smaller(project: Path) -> Iterator[str]:
    """Yield the pools that may be one byte smaller."""
    header = project / "zoo_memory.h"
    text = header.read_text()
    for name in POOLS:
        if re.search(rf"{name} = 0\b", text):
            continue
        header.write_text(re.sub(rf"({name} = )(\d+)", lambda found: f"{found[1]}{int(found[2]) - 1}", text))
        trouble = _compile(project)
        done = _call(project)
        if trouble or done.returncode != 1 or f"{name} is too small" not in done.stderr:
            yield f"{name} of one byte less: {trouble or done.stderr[-200:]}"
    header.write_text(text)


if __name__ == "__main__":
    sys.exit(main())
