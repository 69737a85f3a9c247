"""Links of small models, to be broken, and the outcomes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etdev.errors import EtdevError
from etdev.linker import LinkOptions, link
from etdev.pipeline.stages.emit import ObjectProgram
from etdev.program import Program, write
from etdev.runtime.stock import ProgramFailureError, RuntimeCrashError, StockRuntime
from pipeline.stages.emit import test_emit, test_notes, test_state
from pipeline.stages.emit.emitting import Case, Emitted, emit
from validator.mutants import Mutant, Subject, mutants

FOUR = {"x": "float32 [4]"}
PQX = {"p": "bool []", "q": "bool []", "x": "float32 [4, 8]"}
MODELS: dict[str, Case] = {
    "a cache and slices": Case(
        """
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
            self.register_buffer("cache", torch.zeros(6, 8))
            self.register_buffer("count", torch.full((1,), 3.0))
        def forward(self, x, at):
            self.count += 1
            self.cache[at] = self.a(x)
            y = torch.cat([self.cache[0:3] * 2, self.b(self.cache[3:6]).relu()], 0)
            u, v = torch.split(y.view(2, 3, 8), 1, 0)
            return (u - v).softmax(-1) + self.count, y.t().reshape(8, 2, 3)
        """,
        {"forward": {"x": "float32 [1, 8]", "at": "int64 [1]"}},
    ),
    "conditions and views": Case(
        """
        def forward(self, p, q, x):
            def both(a):
                u, v = torch.cond(q, lambda b: (b + 1, b * 2), lambda b: (b * 3, b - 1), (a,))
                return u.view(8, 4).view(4, 8) + v, v.exp()
            u, v = torch.cond(p, both, lambda a: (a - 5, a.relu()), (x,))
            w = torch.cond(q, lambda a: a.sin() - 2, lambda a: a.cos() * 5, (v,))
            return u.reshape(2, 16), u + v, w - x
        """,
        {"forward": PQX},
    ),
    "sizes that vary": Case(
        """
        def __init__(self):
            super().__init__()
            self.layer, self.norm = nn.Linear(6, 6), nn.LayerNorm(6)
        def forward(self, x):
            y = self.norm(self.layer(x).relu() + x)
            return y.view(-1).exp(), torch.cat([y, x * 2], 0).softmax(-1), (y * y.mean(-1, keepdim=True)).tanh()
        """,
        {"forward": {"x": 'float32 ["n", 6]'}},
        dims="dims.n = { min = 2, max = 7 }",
    ),
}
"""Models with all that a link handles: views, slices, parts of a whole, in place, state, branches."""
OTHERS: dict[str, Case] = {
    **test_emit.CASES,
    "private state": test_state.PRIVATE,
    "frozen state": test_state.FROZEN,
    "a model with notes": test_notes.MODEL,
}


def subject_of(name: str, made: Emitted) -> Subject:
    """Return the link of a small model, with a few calls in a row."""
    methods = [(method, list(itertools.islice(made.calls(method), 4))) for method in made.exported.methods]
    calls = [(method, inputs) for _ in range(2) for method, choices in methods for inputs in choices]
    return linked(name, made.object, [(method, _in_range(inputs)) for method, inputs in calls])


def _in_range(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Limit integers, which are indices into caches of at least four rows."""
    return tuple(
        item if item.dtype.is_floating_point or str(item.dtype) == "torch.bool" else item.abs() % 4 for item in inputs
    )


def linked(name: str, made: ObjectProgram, calls: Sequence[tuple[str, tuple[Any, ...]]]) -> Subject:
    """Link an object program."""
    return Subject(name, made.program, link(made.program, LinkOptions(), made.sidecar), made.sidecar, calls)


def make(name: str, case: Case, folder: Path) -> Subject:
    """Emit a small model, and link it."""
    return subject_of(name, emit(folder, case))


@dataclass
class Tally:
    """Counts of the mutants of one kind, by outcome."""

    made: int = 0
    """Mutants that are programs at all."""
    changed: int = 0
    """Mutants that compute something else, or fail."""
    rejected: int = 0
    changed_and_rejected: int = 0


@dataclass
class Trial:
    """Outcomes of mutants, and the mutants that were not refused."""

    kinds: dict[str, Tally] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)

    def total(self) -> Tally:
        """Return the tally of all kinds."""
        sums: Counter[str] = Counter()
        for tally in self.kinds.values():
            sums.update(vars(tally))
        return Tally(**sums)


def try_mutants(subjects: Iterable[Subject], each: int, runtime: StockRuntime, folder: Path, seed: int = 0) -> Trial:
    """Run up to ``each`` mutants of every kind of each link, and compare them with the link."""
    trial = Trial()
    for subject in subjects:
        wanted = outputs_of(subject, subject.linked.program, runtime, folder)
        assert not isinstance(wanted, str), f"{subject.name}: {wanted}"
        for mutant in mutants(subject, each, seed):
            _try(subject, mutant, wanted, trial, runtime, folder)
    return trial


def _try(
    subject: Subject, mutant: Mutant, wanted: list[bytes], trial: Trial, runtime: StockRuntime, folder: Path
) -> None:
    try:
        found = outputs_of(subject, mutant.program, runtime, folder)
    except EtdevError:
        return  # It is not a program any more.
    proved = subject.validate(mutant).proved
    tally = trial.kinds.setdefault(mutant.kind, Tally())
    changed = found != wanted
    tally.made += 1
    tally.changed += changed
    tally.rejected += not proved
    tally.changed_and_rejected += changed and not proved
    if changed and proved:
        trial.missed.append(f"{subject.name}, {mutant.kind}, {mutant.what}")


def outputs_of(subject: Subject, program: Program, runtime: StockRuntime, folder: Path) -> list[bytes] | str:
    """Return all bits of all outputs of all calls, or the error."""
    file = folder / "mutant.pte"
    write(program, file)
    try:
        runtime.load(file)
        return [bits for method, inputs in subject.calls for bits in output_bits(runtime.call(method, inputs))]
    except RuntimeCrashError:
        return "crash"
    except ProgramFailureError:
        return "failure"


def output_bits(values: Iterable[Any]) -> Iterator[bytes]:
    """Yield all bits of outputs, with their types and shapes."""
    for value in values:
        tensor = hasattr(value, "numpy")
        yield repr((value.dtype, tuple(value.shape)) if tensor else value).encode()
        if tensor:
            yield value.contiguous().numpy().tobytes()
