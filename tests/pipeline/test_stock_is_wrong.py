"""Models that ExecuTorch builds into something else, without a word, and etdev builds right (E2).

Each is exported once, built by hand as ExecuTorch's documentation does it and by etdev, object program and link; both
files run in the stock runtime. ``WRONG_IN`` says for each case with which versions of ExecuTorch that was seen. If a
case is right with one of them, or with a version that nobody has looked at yet, the test fails and says what to change.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch.export import ExportedProgram

from etdev import compat
from etdev.linker import LinkOptions, link
from etdev.pipeline.project.quiet import quiet_libraries
from etdev.pipeline.stages.writes import separate_copies
from etdev.program import write
from etdev.runtime.stock.client import ProgramFailureError
from pipeline.stages.emit import test_emit as objects
from pipeline.stages.emit.emitting import Case, Emitted, emit
from support.stock import shared_runtime

pytestmark = pytest.mark.integration

FOUR = {"x": "float32 [4]"}
CASES = {
    name: objects.CASES[name]
    for name in (
        "two conditions side by side",
        "a view of a condition's result",
        "nested conditions",
        "views of what lies in channels-last order",
    )
} | {
    "an initial value": Case(
        """
        def __init__(self):
            super().__init__()
            self.register_buffer("level", torch.full((4,), 7.0))
        def forward(self, x):
            self.level.add_(x)
            return self.level * 2
        """,
        {"forward": FOUR},
    ),
    "a delay line": Case(
        """
        def __init__(self):
            super().__init__()
            self.register_buffer("older", torch.zeros(4))
            self.register_buffer("newer", torch.zeros(4))
        def forward(self, x):
            y = self.older + x
            self.older.copy_(self.newer)
            self.newer.copy_(x)
            return y
        """,
        {"forward": FOUR},
    ),
    "two buffers that change places": Case(
        """
        def __init__(self):
            super().__init__()
            self.register_buffer("one", torch.full((4,), 5.0))
            self.register_buffer("other", torch.full((4,), 7.0))
        def forward(self, x):
            one = self.one.clone()
            self.one.copy_(self.other)
            self.other.copy_(one)
            return self.one + x
        """,
        {"forward": FOUR},
    ),
    "a buffer with the name of an input": Case(
        """
        def __init__(self):
            super().__init__()
            self.register_buffer("x", torch.zeros(4))
        def forward(self, x):
            self.x.add_(x)
            return self.x * 1
        """,
        {"forward": FOUR},
    ),
    "a buffer that is returned before another takes its place": Case(
        """
        def __init__(self):
            super().__init__()
            self.register_buffer("state", torch.zeros(4))
        def forward(self, x):
            before = self.state
            self.state = self.state + x
            return before
        """,
        {"forward": FOUR},
    ),
}
SEPARATE = "methods that count for themselves"
WRONG_IN = dict.fromkeys((*CASES, SEPARATE), ("1.5.1", "1.4.1"))
"""By case: the tested versions of ExecuTorch that build something else."""
COUNTERS = Case(
    """
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(4))
    def forward(self, x):
        self.count.add_(x)
        return self.count * 1
    def down(self, x):
        self.count.sub_(x)
        return self.count * 1
    """,
    {"forward": FOUR, "down": FOUR},
)
"""Each method counts for itself."""


def emit_with_exports(folder: Path, case: Case) -> tuple[Emitted, dict[str, ExportedProgram]]:
    """The object program of a case, and each method as ``torch.export`` gives it."""
    plain: list[ExportedProgram] = []

    def separate(program: ExportedProgram) -> None:
        plain.append(deepcopy(program))
        separate_copies(program)

    with patch("etdev.pipeline.stages.export.separate_copies", separate):
        made = emit(folder, case)
    return made, dict(zip(made.exported.methods, plain, strict=True))


def both_ways(made: Emitted, programs: dict[str, ExportedProgram]) -> tuple[Path, Path]:
    """The file by etdev, and the one that plain ExecuTorch makes of the same exports."""
    from executorch.exir import to_edge_transform_and_lower

    folder = made.object.path.parent
    by_etdev, by_hand = folder / "etdev.pte", folder / "hand.pte"
    write(link(made.object.program, LinkOptions(), made.object.sidecar).program, by_etdev)
    with quiet_libraries():
        emitted = to_edge_transform_and_lower(programs).to_executorch()
    with by_hand.open("wb") as file:
        emitted.write_to_file(file)
    return by_etdev, by_hand


def check_plain(name: str, right: bool) -> None:
    """Compare what plain ExecuTorch makes of a case with what is known of the installed version."""
    version = compat.installed()
    assert version in compat.TESTED, f"find out whether executorch {version} builds {name!r} right, for WRONG_IN"
    if version in WRONG_IN[name]:
        assert not right, f"executorch {version} builds {name!r} right: change WRONG_IN, and what the docs say of it"
    else:
        assert right, f"executorch {version} builds {name!r} wrong: change WRONG_IN"


def is_eager(made: Emitted, file: Path) -> bool:
    """Does the file compute what the model does, with every truth value, called three times?"""
    runtime = shared_runtime()
    runtime.load(file)
    for inputs in [*made.calls("forward")] * 3:
        with torch.no_grad():
            wanted = made.exported.eager["forward"](*(item.clone() for item in inputs))
        try:
            answers = runtime.call("forward", inputs)
        except ProgramFailureError:
            return False
        if not same(answers, wanted if isinstance(wanted, tuple) else (wanted,)):
            return False
    return True


def same(answers: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    return all(torch.allclose(one, other, atol=1e-5) for one, other in zip(answers, wanted, strict=True))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(4)
def test_etdev_builds_right_what_plain_executorch_does_not(name: str, tmp_path: Path) -> None:
    made, programs = emit_with_exports(tmp_path, CASES[name])
    start = deepcopy(made.exported.eager)
    by_etdev, by_hand = both_ways(made, programs)

    assert is_eager(made, by_etdev)
    made.exported.eager.update(start)  # type: ignore[attr-defined]
    check_plain(name, is_eager(made, by_hand))


@pytest.mark.parametrize("shared", [True, False], ids=["one memory for all methods", "memory for each method"])
@pytest.mark.nightly
def test_methods_that_count_for_themselves(shared: bool, counters: tuple[Path, Path]) -> None:
    """Two methods with private state: right under both kinds of loaders, plain ExecuTorch's file under one."""
    by_etdev, by_hand = counters
    ones, wanted = torch.ones(4), [("forward", 1.0), ("forward", 2.0), ("down", -1.0), ("forward", 3.0), ("down", -2.0)]

    def count(file: Path) -> list[tuple[str, float]]:
        runtime = shared_runtime()
        runtime.load(file, shared=shared)
        return [(method, float(runtime.call(method, (ones,))[0][0])) for method, _ in wanted]

    assert count(by_etdev) == wanted
    if shared:
        check_plain(SEPARATE, count(by_hand) == wanted)
    else:
        assert count(by_hand) == wanted


@pytest.fixture(scope="module")
def counters(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return both_ways(*emit_with_exports(tmp_path_factory.mktemp("counters"), COUNTERS))
