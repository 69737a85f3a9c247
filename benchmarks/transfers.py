"""Bytes that a call copies between host and devices: ExecuTorch's files, these linked again, and etdev's.

Each program is lowered once, through the reference backend, and emitted twice: by ExecuTorch, whose
`PropagateDevicePass` puts in copies, and by etdev, which links. ExecuTorch's file is also linked as `etdev relink` does
it. What both of etdev's files compute on simulated devices is compared with eager PyTorch, call after call on a state.
Prints copies and planned memory of each; ends with 1 if etdev copies more than ExecuTorch, if it copies a byte of state
that one device alone touches, or if a result is off by more than 1e-4 of its largest element.

    python benchmarks/transfers.py [--only NAME ...]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo_parts import PROJECT as ZOO

OWN = ZOO.with_name("transfers_project")
TOLERANCE = 1e-4
"""Of the largest element of an output."""
CALLS = 3


@dataclass(frozen=True, slots=True)
class Part:
    """What one partitioner of the reference backend takes."""

    device: str
    options: str
    """TOML of an inline table."""

    def __str__(self) -> str:
        return f'{{ backend = "reference", device = "{self.device}", options = {self.options} }}'


def modules(device: str, *patterns: str) -> Part:
    """Ops of modules."""
    return Part(device, f"{{ modules = {json.dumps(patterns)} }}")


def ops(device: str, *names: str) -> Part:
    """Operators."""
    return Part(device, f"{{ ops = {json.dumps(names)} }}")


HALVES = (Part("cuda:0", "{ part = [0.0, 0.5] }"), Part("cuda:1", "{ part = [0.5, 1.0] }"))


@dataclass(frozen=True, slots=True)
class Subject:
    """A model and where its parts run."""

    model: str
    """Of the zoo, or of ``transfers_project``."""
    about: str
    parts: Sequence[Part]
    crossing: int | None = None
    """Bytes of state that several devices touch; None for a program without state."""


SUBJECTS: Mapping[str, Subject] = {
    "shared input": Subject(
        "shared",
        "one input for three delegates on two devices, and the host",
        (modules("cuda:0", "first"), modules("cuda:0", "second"), modules("cuda:1", "other")),
    ),
    "several users": Subject(
        "users",
        "an output for delegates of its device and of another, and the host",
        (
            *(modules("cuda:0", name) for name in ("base", "same", "again")),
            modules("cuda:1", "other"),
        ),
    ),
    "host between": Subject(
        "between", "two devices, the host between them", (modules("cuda:0", "first"), modules("cuda:1", "second"))
    ),
    "branch": Subject(
        "branch",
        "a branch on the host between delegates of one device",
        (modules("cuda:0", "before"), modules("cuda:0", "after")),
    ),
    "tied": Subject("tied", "a weight for two devices", (modules("cuda:0", "first"), modules("cuda:1", "second"))),
    "bert, halves": Subject("bert", "cut once, in the middle", HALVES),
    "bert, layers": Subject(
        "bert",
        "attention and feed-forward layers on two devices",
        (modules("cuda:0", "*attention*"), modules("cuda:1", "*intermediate*", "*output*")),
    ),
    "vit": Subject("vit", "products on one device, all else on the host", (ops("cuda:0", "linear", "bmm", "mm"),)),
    "mobilenet": Subject("mobilenet-v2", "convolutions on one device", (ops("cuda:0", "convolution"),)),
    "clip": Subject(
        "clip", "a device for texts, one for images", (modules("cuda:0", "*text*"), modules("cuda:1", "*vision*"))
    ),
    "t5": Subject(
        "t5", "encoder and decoder on two devices", (modules("cuda:0", "*encoder*"), modules("cuda:1", "*decoder*"))
    ),
    "decoder, own": Subject("llama-decode", "a key-value cache in its delegate", (Part("cuda:0", "{}"),), crossing=0),
    "decoder, shared": Subject(
        "llama-decode", "a key-value cache next to its delegate", (Part("cuda:0", "{ own_state = false }"),), crossing=0
    ),
    "decoder, cut": Subject(
        "llama-decode",
        "key-value caches beside delegates of two devices",
        tuple(Part(part.device, part.options.replace("}", ", own_state = false }")) for part in HALVES),
        crossing=48,  # How long the caches are: one device reads it, the other counts on.
    ),
}


@dataclass(frozen=True, slots=True)
class Count:
    """What one file copies in a call, and the memory that it plans."""

    copies: int
    h2d_bytes: int
    d2h_bytes: int
    state_bytes: int
    """Of those, bytes of what is kept between calls."""
    memory: Mapping[str, int]
    """Bytes by device."""

    @property
    def total(self) -> int:
        """Bytes, both ways."""
        return self.h2d_bytes + self.d2h_bytes


@dataclass(frozen=True, slots=True)
class Row:
    """A program in all its forms."""

    executorch: Count
    relinked: Count | str
    etdev: Count
    error: float
    """Of etdev's files' outputs, over the largest element of that output."""


def count(program: Any, inputs: Mapping[int, int]) -> Count:
    """Of a program of one method; ``inputs`` says how many arguments of each delegate call are inputs."""
    from etdev.inspection.transfers import transfers_per_call
    from etdev.program.analysis.storage import method_memory
    from etdev.program.devices import D2H_COPY, H2D_COPY
    from etdev.program.footprint import planned_memory
    from etdev.program.model import KernelCall

    plan = program.method("forward")
    memory = method_memory(plan, inputs)
    kept = {value for storage in memory.storages if storage.persistent for value in storage.values}
    copies = [
        call.args[:2]
        for chain in plan.chains
        for call in chain.instructions
        if isinstance(call, KernelCall) and plan.operators[call.op_index].name in (H2D_COPY, D2H_COPY)
    ]
    found = transfers_per_call(plan)
    state = sum(plan.values[value].nbytes for pair in copies for value in pair if value in kept)
    return Count(len(copies), found.h2d_bytes, found.d2h_bytes, state, planned_memory(program))


def measure(subject: Subject, folder: Path) -> Row:
    """Lower, emit both ways, link, count and replay."""
    from executorch.exir import ExecutorchBackendConfig

    from etdev.errors import EtdevError
    from etdev.kernel_trials.custom_ops import resolve_ops
    from etdev.linker import link_foreign
    from etdev.pipeline.api import open_project
    from etdev.pipeline.project.places import object_place
    from etdev.pipeline.project.progress import Silent, StageClock
    from etdev.pipeline.project.usercode import UserCode
    from etdev.pipeline.stages.emit import emit_object
    from etdev.pipeline.stages.link.linking import link_program
    from etdev.pipeline.stages.load.model import load_model
    from etdev.pipeline.stages.lower import lower_model
    from etdev.pipeline.stages.models import Models
    from etdev.program import parse
    from etdev.program.blob import Blob
    from etdev.program.delegates import delegate_inputs

    base, inputs = declared(subject.model)
    project = open_project(
        base / "etdev.toml",
        overrides=[
            f"project.out={json.dumps(str(folder))}",
            f"model.kwargs={{ name = {json.dumps(subject.model)} }}",
            f"methods.forward.inputs=[{', '.join(inputs)}]",
            f"targets.t.partitioners=[{', '.join(map(str, subject.parts))}]",
        ],
        environ={},
    )
    with UserCode() as user:
        _, exported = Models(project, user).prepare("t", StageClock("t", Silent()))
        lowered = lower_model(project, exported, "t")
        theirs = parse(Blob(bytes(deepcopy(lowered.manager).to_executorch(ExecutorchBackendConfig()).buffer)))
        objects = emit_object(project, lowered, exported, "t", object_place(project, "t"))
        eager = load_model(project, user).module  # Export leaves its traces in some.
        ours = link_program(project, "t", user, objects, exported.signatures, resolve_ops(project, "t", user))
    split = delegate_inputs(theirs, theirs.method("forward"))
    files = {"etdev": ours.linked.program}
    try:
        again = link_foreign(theirs)
        (method,) = again.methods
        if method.kept is None:
            files["relinked"] = again.program
            arguments = {method.renumbered[position]: inputs for position, inputs in split.items()}
        relinked: Count | str = method.kept or count(again.program, arguments)
    except EtdevError as error:
        relinked = error.message
    calls = [sample(subject.model, number) for number in range(CALLS)]
    error = max(replayed(program, eager, calls) for program in files.values())
    return Row(count(theirs, split), relinked, count(ours.linked.program, ours.delegate_inputs["forward"]), error)


def declared(model: str) -> tuple[Path, list[str]]:
    """The project of a model, and its inputs as TOML."""
    from architectures import BY_NAME

    if model not in BY_NAME:
        return OWN, ['{ name = "x", dtype = "float32", shape = [8, 64] }']
    return ZOO, [
        f'{{ name = "{item.name}", dtype = "{item.dtype}", shape = {list(item.shape)} }}'
        for item in BY_NAME[model].inputs
    ]


def sample(model: str, call: int) -> tuple[Any, ...]:
    """Inputs of the call of that number, the same each time."""
    import torch
    from architectures import BY_NAME, random_inputs

    if model in BY_NAME:
        return random_inputs(BY_NAME[model], call)
    return (torch.randn(8, 64, generator=torch.Generator().manual_seed(call)),)


def replayed(program: Any, eager: Any, calls: Sequence[tuple[Any, ...]]) -> float:
    """The largest error of an output on simulated devices, over its largest element."""
    import torch

    from etdev.runtime.device_map import parse_device_map
    from etdev.runtime.replay import ReplayRuntime

    eager, worst = deepcopy(eager), 0.0
    with ReplayRuntime(parse_device_map("cuda:0=sim,cuda:1=sim")) as runtime, torch.no_grad():
        runtime.load(program)
        for number, inputs in enumerate(calls):
            wanted = eager(*inputs)
            wanted = wanted if isinstance(wanted, tuple) else (wanted,)
            for found, expected in zip(runtime.call("forward", inputs, fresh=not number), wanted, strict=True):
                worst = max(worst, float((found - expected).abs().max() / expected.abs().max()))
    return worst


def main() -> int:
    """Measure, print the tables and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(SUBJECTS), metavar="NAME")
    arguments = parser.parse_args()

    from etdev.pipeline.project.quiet import quiet_libraries

    rows: dict[str, Row] = {}
    for name in arguments.only or SUBJECTS:
        with tempfile.TemporaryDirectory() as folder, quiet_libraries():
            rows[name] = measure(SUBJECTS[name], Path(folder))
        print(f"{name}: done", file=sys.stderr, flush=True)
    print(*table(rows), sep="\n")
    missed = [text for name, row in rows.items() for text in shortcomings(SUBJECTS[name], row)]
    for text in missed:
        print(text, file=sys.stderr)
    return int(bool(missed))


def table(rows: Mapping[str, Row]) -> list[str]:
    """In Markdown."""
    kinds, devices = ("ExecuTorch", "etdev"), ("cpu", "cuda:0", "cuda:1")
    lines = [
        f"| program | | {' | '.join(f'{kind}: copies | to devices, B | back, B' for kind in kinds)} | error |",
        f"|---|---|{'---:|' * 7}",
    ]
    for name, row in rows.items():
        copied = (f"{item.copies} | {item.h2d_bytes:,} | {item.d2h_bytes:,}" for item in (row.executorch, row.etdev))
        lines.append(f"| {name} | {SUBJECTS[name].about} | {' | '.join(copied)} | {row.error:.0e} |")
    lines += [
        "",
        f"| planned, B | {' | '.join(f'{kind}: {device}' for kind in kinds for device in devices)} |",
        f"|---|{'---:|' * 6}",
    ]
    for name, row in rows.items():
        planned = (f"{item.memory.get(device, 0):,}" for item in (row.executorch, row.etdev) for device in devices)
        lines.append(f"| {name} | {' | '.join(planned)} |")
    others = [f"{name}, relinked: {row.relinked}" for name, row in rows.items() if row.relinked != row.etdev]
    return [*lines, "", *(others or ["relinked: copies and memory of etdev's in all of them"])]


def shortcomings(subject: Subject, row: Row) -> list[str]:
    """What must not be."""
    found = []
    for kind, item in (("etdev", row.etdev), ("relinked", row.relinked)):
        if isinstance(item, Count) and (item.total > row.executorch.total or item.copies > row.executorch.copies):
            found.append(f"{subject.model}: {kind} copies {item}, ExecuTorch {row.executorch}")
    if subject.crossing is not None and row.etdev.state_bytes > subject.crossing:
        found.append(f"{subject.model}: {row.etdev.state_bytes} bytes of state are copied")
    if not row.error <= TOLERANCE:
        found.append(f"{subject.model}: off by {row.error}")
    return found


if __name__ == "__main__":
    sys.exit(main())
