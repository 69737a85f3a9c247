"""Links of small models on two devices, to be broken, and the checks that find each mutant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from etdev.linker import Linked, LinkOptions, link
from etdev.pipeline.stages.link.nested import link_nested, nested_program
from etdev.program import Program
from etdev.program.check import FlawError, check_structure
from etdev.runtime.device_map import parse_device_map
from etdev.runtime.replay import ReplayRuntime
from etdev.runtime.stock import ProgramFailureError
from etdev.validator import Correspondence, validate_link
from etdev.verification.checks.placement import check_placement
from etdev.verification.compare import Difference
from support.projects import make_project
from support.stages import emit
from validator.device_mutants import DeviceMutant, device_mutants
from validator.reads import Call, Reads, read_by_instructions

CHECKS = ("plan", "placement", "replay")
_ROUNDS = 4
"""Calls of each method on one state."""
_HEADER = """\
import torch
from torch import nn

def layers(count, width=16):
    torch.manual_seed(0)
    return nn.ModuleList(nn.Linear(width, width) for _ in range(count))

class Net(nn.Module):
"""
_CONFIG = """\
version = 1
model.entry = "model:Net"
"""
_PART = """\
[[targets.t.partitioners]]
backend = "reference"
device = "{}"
options = {{ own_state = false, own_weights = {}, modules = ["{}"] }}
"""


@dataclass(frozen=True)
class Case:
    """Model, with the device of each of its modules."""

    text: str
    """Body of the class ``Net``."""
    parts: Sequence[tuple[str, str]]
    """Pattern of modules and their device."""
    methods: Mapping[str, Sequence[Sequence[int | str]]] = field(default_factory=lambda: {"forward": [(4, 16)]})
    """Shapes of the inputs; a string is a dimension of any size up to four."""
    own_weights: bool = True

    def config(self) -> str:
        """Return the whole config."""
        lines = [_CONFIG]
        for name, shapes in self.methods.items():
            inputs = [
                f'{{ name = "x{number}", dtype = "float32", shape = {list(shape)} }}'
                for number, shape in enumerate(shapes)
            ]
            lines += [f"[methods.{name}]", f"inputs = [{', '.join(inputs)}]"]
            if any("n" in shape for shape in shapes):
                lines.append("dims.n = { min = 1, max = 4 }")
        own = str(self.own_weights).lower()
        return "\n".join([*lines, *(_PART.format(device, own, modules) for modules, device in self.parts)])


CASES = {
    "parts on two devices": Case(
        """
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = layers(3)
    def forward(self, x):
        y = self.a(x).relu()
        z = self.b(y.sin()) + y
        return self.c(z.cos() * y), z
""",
        [("[ac]", "cuda:0"), ("b", "cuda:1")],
    ),
    "shared inputs": Case(
        """
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = layers(3)
    def forward(self, x, y):
        left, right = self.a(x), self.b(x)
        return left + right + x.cos(), self.c(y) * left, self.b(y)
""",
        [("[ac]", "cuda:0"), ("b", "cuda:1")],
        {"forward": [(4, 16), (4, 16)]},
    ),
    "weights as arguments": Case(
        """
    def __init__(self):
        super().__init__()
        self.a, self.b = layers(2)
    def forward(self, x):
        y = self.a(x).exp()
        return self.b(y).tanh() - self.a(y.sin())
""",
        [("a", "cuda:0"), ("b", "cuda:1")],
        own_weights=False,
    ),
    "state on one device": Case(
        """
    class Memory(nn.Module):
        def __init__(self):
            super().__init__()
            self.project, self.back = layers(2)
            self.register_buffer("cache", torch.linspace(-1, 1, 64).view(4, 16))
            self.register_buffer("other", torch.zeros(4, 16))
        def forward(self, x):
            self.cache.mul_(0.5)
            self.cache.add_(self.project(x))
            self.other.add_(x)
            return self.cache.softmax(-1) - self.other
    def __init__(self):
        super().__init__()
        self.memory, self.last = Net.Memory(), layers(1)[0]
    def forward(self, x):
        y = self.memory(x)
        return self.last(y.sin()) + self.memory.back(y.cos()), y
""",
        [("memory", "cuda:0"), ("last", "cuda:1")],
    ),
    "state of host and device": Case(
        """
    def __init__(self):
        super().__init__()
        self.a, self.b = layers(2)
        self.register_buffer("count", torch.zeros(4, 16))
        self.register_buffer("total", torch.ones(4, 16))
    def forward(self, x):
        self.count.add_(1)
        self.total.add_(self.a(self.count))
        y = self.b(self.total * x)
        return y.sin() + self.count, self.a(y)
""",
        [("a", "cuda:0"), ("b", "cuda:1")],
    ),
    "a branch": Case(
        """
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = layers(3)
    def forward(self, x):
        y = self.a(x)
        z = torch.cond(x.sum() > 0, lambda y: (y.sin() + y).cos(), lambda y: y.cos() * 2, (y,))
        return self.b(z) + z.exp(), self.c(z).tanh() * y
""",
        [("[ac]", "cuda:0"), ("b", "cuda:1")],
    ),
    "rows that vary": Case(
        """
    def __init__(self):
        super().__init__()
        self.a, self.b = layers(2)
    def forward(self, x):
        y = self.a(x).relu()
        return self.b(y.sin()) + y, self.a(y.exp().tanh()).softmax(-1)
""",
        [("a", "cuda:0"), ("b", "cuda:1")],
        {"forward": [("n", 16)]},
    ),
    "two methods": Case(
        """
    def __init__(self):
        super().__init__()
        self.a, self.b = layers(2)
        self.register_buffer("seen", torch.zeros(4, 16))
    def forward(self, x):
        self.seen.add_(self.a(x))
        return self.b(self.seen.sin()), self.a(x.cos())
    def check(self, x, y):
        return self.a(self.b(x) + y).relu() - x
""",
        [("a", "cuda:0"), ("b", "cuda:1")],
        {"forward": [(4, 16)], "check": [(4, 16), (4, 16)]},
    ),
}


@dataclass(frozen=True)
class DeviceSubject:
    """Link to be broken."""

    name: str
    before: Program
    linked: Linked
    delegate_inputs: Mapping[str, Mapping[int, int]]
    """Per method, position before the link of each delegate call → how many of its arguments are inputs."""
    calls: Sequence[tuple[str, tuple[torch.Tensor, ...]]]

    def proved(self, mutant: DeviceMutant) -> bool:
        """Return whether the check *plan* accepts a mutant."""
        links = {}
        for report in self.linked.methods:
            there = {name: position for position, name in enumerate(mutant.names[report.name])}
            moved = {before: there[after] for before, after in report.renumbered.items() if after in there}
            links[report.name] = Correspondence(moved, self.delegate_inputs[report.name])
        return validate_link(self.before, mutant.program, links, shared_state=self.linked.shared_state).proved

    def reads(self, program: Program, names: Mapping[str, Sequence[int]]) -> Reads:
        """Return the content that the instructions of the program, or of a mutant, read."""
        inputs = {
            plan.name: [
                len(nested_program(self.linked.program, plan, index).execution_plan[0].inputs)
                for index in range(len(plan.delegates))
            ]
            for plan in self.linked.program.execution_plan
        }
        calls = [Call(method, seed, (seed % 2 == 0,)) for seed, (method, _) in enumerate(self.calls)]
        return read_by_instructions(program, calls, inputs, names)


def make_subject(name: str, folder: Path) -> DeviceSubject:
    """Build a case as a build does it."""
    case = CASES[name]
    project = make_project(folder, case.config(), model=_HEADER + case.text)
    made = emit(project, "t")
    before, _ = link_nested(made.program, LinkOptions())
    linked = link(before, LinkOptions(), made.sidecar)
    inputs = {method: notes.delegate_inputs for method, notes in made.sidecar.methods.items()}
    return DeviceSubject(name, before, linked, inputs, list(_calls(case)))


def _calls(case: Case) -> Iterator[tuple[str, tuple[torch.Tensor, ...]]]:
    """Yield calls in which conditions on the sign of a sum go both ways; dimensions have their largest size."""
    generator = torch.Generator().manual_seed(0)
    for number in range(_ROUNDS):
        for method, shapes in case.methods.items():
            sizes = [[4 if size == "n" else int(size) for size in shape] for shape in shapes]
            yield method, tuple(torch.randn(size, generator=generator) + (-1) ** number for size in sizes)


@dataclass
class Tally:
    """Counts of mutants by outcome."""

    made: int = 0
    """Mutants that the strict reader accepts as programs."""
    changed: int = 0
    """Mutants in which some instruction reads other content."""
    found: Counter[str] = field(default_factory=Counter)
    """Check → number of changed mutants that it refuses."""
    alone: Counter[str] = field(default_factory=Counter)
    """Check → number of changed mutants that only it refuses."""
    any: int = 0
    """Number of changed mutants that some check refuses."""
    harmless: int = 0
    """Mutants that are refused although no instruction reads other content."""

    def add(self, other: Tally) -> None:
        """Add the counts of another tally."""
        self.made, self.changed = self.made + other.made, self.changed + other.changed
        self.found, self.alone = self.found + other.found, self.alone + other.alone
        self.any, self.harmless = self.any + other.any, self.harmless + other.harmless


@dataclass
class Trial:
    """Outcomes of mutants, and the mutants that no check refused."""

    kinds: dict[str, Tally] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)

    def total(self) -> Tally:
        """Return the tally of all kinds."""
        whole = Tally()
        for tally in self.kinds.values():
            whole.add(tally)
        return whole


def try_device_mutants(subjects: Iterable[DeviceSubject], each: int, seed: int = 0) -> Trial:
    """Run every check on up to ``each`` mutants of every kind of each link."""
    trial = Trial()
    with ReplayRuntime(parse_device_map("cuda:0=sim,cuda:1=sim")) as runtime:
        for subject in subjects:
            program = subject.linked.program
            names = {plan.name: range(len(plan.chains[0].instructions)) for plan in program.execution_plan}
            right = DeviceMutant("", "", program, {name: tuple(each) for name, each in names.items()})
            wanted = _replayed(subject, program, runtime)
            assert wanted is not None
            assert not _refusals(subject, right, wanted, runtime)
            reads = subject.reads(program, names)
            for mutant in device_mutants(subject.name, program, each, seed):
                _try(subject, mutant, reads, wanted, runtime, trial)
    return trial


def _try(
    subject: DeviceSubject,
    mutant: DeviceMutant,
    reads: Reads,
    wanted: list[torch.Tensor],
    runtime: ReplayRuntime,
    trial: Trial,
) -> None:
    try:
        check_structure(mutant.program)
    except FlawError:
        return  # It is not a program any more.
    found = subject.reads(mutant.program, mutant.names)
    changed = any(what != reads[key] for key, what in found.items())
    refusals = _refusals(subject, mutant, wanted, runtime)
    tally = trial.kinds.setdefault(mutant.kind, Tally())
    tally.made += 1
    tally.changed += changed
    if not changed:
        tally.harmless += bool(refusals)
        return
    tally.any += bool(refusals)
    tally.found.update(refusals)
    if len(refusals) == 1:
        tally.alone.update(refusals)
    if not refusals:
        trial.missed.append(f"{subject.name}, {mutant.kind}, {mutant.what}")


def _refusals(
    subject: DeviceSubject, mutant: DeviceMutant, wanted: list[torch.Tensor], runtime: ReplayRuntime
) -> list[str]:
    """Return the checks that refuse a program."""
    found = _replayed(subject, mutant.program, runtime)
    refused = {
        "plan": not subject.proved(mutant),
        "placement": check_placement(mutant.program, alignment=LinkOptions().alignment).status != "passed",
        "replay": found is None or _is_off(found, wanted),
    }
    return [check for check in CHECKS if refused[check]]


def _replayed(subject: DeviceSubject, program: Program, runtime: ReplayRuntime) -> list[torch.Tensor] | None:
    """Return all outputs of all calls; None if one fails."""
    try:
        runtime.load(program)
        return [value for method, inputs in subject.calls for value in runtime.call(method, inputs)]
    except ProgramFailureError:
        return None


def _is_off(found: list[Any], wanted: list[torch.Tensor]) -> bool:
    """Return whether outputs differ, by the criterion of the check against eager."""
    for value, right in zip(found, wanted, strict=True):
        difference = Difference("float32")
        difference.add(value, right, "call")
        if difference.problems or difference.excess > 0:
            return True
    return False
