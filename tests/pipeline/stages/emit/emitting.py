"""Small models as object programs, and what must hold for each of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import torch

from etdev.linker import LinkOptions, link
from etdev.pipeline.project import Project
from etdev.pipeline.project.places import object_place
from etdev.pipeline.project.progress import Silent, StageClock
from etdev.pipeline.project.quiet import quiet_libraries
from etdev.pipeline.project.usercode import UserCode
from etdev.pipeline.relink import relink
from etdev.pipeline.stages.artifacts import ExportedModel, LoweredModel
from etdev.pipeline.stages.emit import ObjectProgram, emit_object
from etdev.pipeline.stages.emit.virtual_addresses import ALIGNMENT, GAP, MEMORY_ID
from etdev.pipeline.stages.inputs import make_inputs
from etdev.pipeline.stages.lower import lower_model
from etdev.pipeline.stages.models import Models
from etdev.program import write
from etdev.program.model import ExecutionPlan
from support.projects import make_project
from support.stock import shared_runtime

HEADER = """\
import torch
from torch import nn
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan


class Net(nn.Module):
"""
FIRST_LINE = HEADER.count("\n") + 1
"""Line of ``model.py`` where a case's own text begins."""

X = {"x": "float32 [4, 8]"}
PX = {"p": "bool []", **X}
PQX = {"p": "bool []", "q": "bool []", **X}
"""Inputs: name to dtype and shape."""


@dataclass(frozen=True)
class Case:
    """A model and how it is lowered."""

    text: str
    """The body of the class ``Net``."""
    methods: Mapping[str, Mapping[str, str]]
    backend: str = "portable"
    more: str = ""
    """A further line of the config, outside of tables."""
    lowering: str = "kernels"
    dims: str = ""
    """A further line of every method's table."""
    share: bool = False
    module: str = ""
    """All of ``model.py``, which has a function ``make``, instead of ``text``."""
    lower_more: Callable[[Any], Any] | None = None
    """From the lowered program manager to the one to emit."""

    def config(self) -> str:
        """The whole config."""
        lines = ["version = 1", self.more]
        entry = "model:make" if self.module else "model:Net"
        lines += ["[model]", f'entry = "{entry}"', f"share_state = {str(self.share).lower()}"]
        for method, inputs in self.methods.items():
            lines += [f"[methods.{method}]", "inputs = ["]
            for name, kind in inputs.items():
                dtype, _, shape = kind.partition(" ")
                lines.append(f'    {{ name = "{name}", dtype = "{dtype}", shape = {shape} }},')
            lines += ["]", self.dims]
        lines += [
            "[targets.cpu]",
            f'partitioners = [{{ backend = "{self.backend}" }}]',
            f'lowering = "{self.lowering}"',
        ]
        return "\n".join([*lines, ""])


@dataclass(frozen=True)
class Emitted:
    """An object program with the models that it came from."""

    project: Project
    exported: ExportedModel
    lowered: LoweredModel
    object: ObjectProgram

    def plan(self, method: str = "forward") -> ExecutionPlan:
        """A method of the program."""
        return self.object.program.method(method)

    def calls(self, method: str) -> Iterator[tuple[torch.Tensor, ...]]:
        """Inputs of every size and every truth value."""
        signature = self.exported.signatures[method]
        choices = [signature.largest(), *([signature.smallest()] if signature.dims else [])]
        truths = [index for index, item in enumerate(signature.inputs) if item.dtype == "bool"]
        for seed, choice in enumerate(choices):
            for values in itertools.product((True, False), repeat=len(truths)):
                inputs = list(make_inputs(signature, choice, seed))
                for index, value in zip(truths, values, strict=True):
                    inputs[index] = torch.tensor(value)
                yield tuple(inputs)

    def check_addresses(self) -> None:
        """No two planned tensors share a byte, neighbours keep their distance, and all are inside the buffer."""
        for plan in self.object.program.execution_plan:
            planned = [tensor for _, tensor in plan.tensors() if tensor.allocation_info is not None]
            places = sorted((tensor.allocation_info.memory_offset, tensor.nbytes) for tensor in planned)  # type: ignore[union-attr]
            assert {tensor.allocation_info.memory_id for tensor in planned} <= {MEMORY_ID}  # type: ignore[union-attr]
            ends = [*(offset for offset, _ in places[1:]), *plan.non_const_buffer_sizes[1:]]
            for (offset, size), end in zip(places, ends, strict=False):
                assert offset % ALIGNMENT == 0
                assert offset + size + GAP <= end

    def check_answers(self, *methods: str, rounds: int = 2) -> None:
        """The stock runtime computes what eager PyTorch does, call after call, each method on state of its own: from
        the object program, from what is linked from it, and from what is linked again without the sidecar."""
        linked, again = (self.object.path.with_name(name) for name in ("linked.pte", "again.pte"))
        options = LinkOptions(share_state=self.project.config.model.share_state)
        write(link(self.object.program, options, self.object.sidecar).program, linked)
        relink(linked, again)
        for file in (self.object.path, linked, again):
            self._check_file(file, methods or tuple(self.exported.methods), rounds)

    def _check_file(self, file: Path, methods: Sequence[str], rounds: int) -> None:
        runtime = shared_runtime()
        for method in methods:
            runtime.load(file)
            eager = deepcopy(self.exported.eager[method])  # It starts with the initial state, as the file does.
            for inputs in itertools.chain(*itertools.tee(self.calls(method), rounds)):
                with torch.no_grad():
                    wanted = eager(*(item.clone() for item in inputs))
                answers = runtime.call(method, inputs)
                wanted = wanted if isinstance(wanted, tuple) else (wanted,)
                torch.testing.assert_close(answers, wanted, equal_nan=True)


def prepare(folder: Path, case: Case) -> tuple[Project, ExportedModel, LoweredModel]:
    """A case up to the stage before."""
    model = case.module or HEADER + indent(dedent(case.text).strip("\n"), "    ") + "\n"
    project = make_project(folder, case.config(), model=model)
    with quiet_libraries(), UserCode() as user:
        _, exported = Models(project, user).prepare("cpu", StageClock("cpu", Silent()))
        lowered = lower_model(project, exported, "cpu")
        if case.lower_more is not None:
            lowered = replace(lowered, manager=case.lower_more(lowered.manager))
    return project, exported, lowered


def emit(folder: Path, case: Case, **options: Any) -> Emitted:
    """The object program of a case, where a build would put it."""
    project, exported, lowered = prepare(folder, case)
    with quiet_libraries():
        made = emit_object(project, lowered, exported, "cpu", object_place(project, "cpu"), **options)
    return Emitted(project, exported, lowered, made)
