"""Object programs are right in the stock runtime, and no two of their tensors share a byte (E2)."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from etdev.errors import EmitError, WriteError
from etdev.pipeline.project.places import object_place, sidecar_place
from etdev.pipeline.project.quiet import quiet_libraries
from etdev.pipeline.stages.emit import emit_object
from etdev.pipeline.stages.emit.instructions import MismatchError
from etdev.program import read
from etdev.program.model import DelegateCall
from etdev.program.sidecar import read_sidecar
from pipeline.stages.emit.delegating import delegate_every_sum
from pipeline.stages.emit.emitting import PQX, PX, Case, Emitted, X, emit, prepare
from support.stages import Failure, check_failure

NESTED = """
def forward(self, p, q, x):
    def both(a):
        u, v = torch.cond(q, lambda b: (b + 1, b * 2), lambda b: (b * 3, b - 1), (a,))
        return u.view(8, 4).view(4, 8) + v, v
    u, v = torch.cond(p, both, lambda a: (a - 5, a.relu()), (x,))
    return u.reshape(2, 16), u + v
"""
CASES = {
    "a condition alone": Case(
        "def forward(self, p, x): return torch.cond(p, lambda a: a + 1, lambda a: a * 3, (x,))", {"forward": PX}
    ),
    "a view of a condition's result": Case(
        """
        def forward(self, p, x):
            y = torch.cond(p, lambda a: a + 1, lambda a: a * 3, (x,))
            return y.view(-1) + 1, y.view(8, 4).t() * 2
        """,
        {"forward": PX},
    ),
    "nested conditions": Case(NESTED, {"forward": PQX}),
    "a condition that ends with a condition": Case(
        """
        def forward(self, p, q, x):
            def inner(a): return torch.cond(q, lambda b: b + 1, lambda b: b * 3, (a,))
            return torch.cond(p, inner, lambda a: a - 5, (x,))
        """,
        {"forward": PQX},
    ),
    "views of what lies in channels-last order": Case(
        """
        def forward(self, x):
            y = (x + 1).to(memory_format=torch.channels_last)
            return y.flatten(2), y.unsqueeze(0), y.squeeze(0), torch.cond(x.sum() > 0, self.one, self.other, (y,))

        def one(self, y): return y.flatten(1) + 1

        def other(self, y): return y.flatten(1) * 2
        """,
        {"forward": {"x": "float32 [1, 3, 4, 5]"}},
    ),
    "two conditions side by side": Case(
        """
        def forward(self, p, q, x):
            a = torch.cond(p, lambda a: a + 1, lambda a: a * 3, (x,))
            b = torch.cond(q, lambda a: a - 2, lambda a: a * 5, (x,))
            return a * 10 + b, a
        """,
        {"forward": PQX},
    ),
    "a map and a view of its result": Case(
        "def forward(self, xs, y): return torch_map(lambda x, y: (x + y).view(8).view(2, 4), xs, y).view(-1) * 2",
        {"forward": {"xs": "float32 [3, 2, 4]", "y": "float32 [2, 4]"}},
    ),
    "copies of what a map and a scan return": Case(
        """
        def forward(self, xs):
            rows = torch_map(lambda x: x.tanh(), xs)
            ys = scan(lambda carry, x: (carry + x, carry * x), torch.zeros(4), xs)[1]
            return nn.functional.dropout(rows, 0.5, False).tanh(), ys.clone()
        """,
        {"forward": {"xs": "float32 [3, 4]"}},
    ),
    "a condition in a map": Case(
        """
        def forward(self, p, xs, y):
            def body(x, y, p): return torch.cond(p, lambda a: a + 1, lambda a: a * 3, (x + y,))
            return torch_map(body, xs, y, p) + 1
        """,
        {"forward": {"p": "bool []", "xs": "float32 [3, 2, 4]", "y": "float32 [2, 4]"}},
    ),
    "a scan": Case(
        """
        def forward(self, start, xs):
            def body(carry, x):
                now = carry * 0.5 + x
                return now, now.relu() + 1
            carry, ys = scan(body, start, xs, dim=0)
            return carry * 2, ys + 1
        """,
        {"forward": {"start": "float32 [4]", "xs": "float32 [5, 4]"}},
    ),
    "several outputs and a list": Case(
        """
        def forward(self, x):
            values, indices = torch.topk(x, 3)
            largest, at = x.max(dim=1)
            a, b, c = torch.split(x, [1, 2, 1], 0)
            return values + 1, indices, largest, at, torch.cat([b, a, c, b], 0), torch.stack([a, c], 0)
        """,
        {"forward": X},
    ),
    "bounded sizes": Case(
        """
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 4)
        def forward(self, x): return self.layer(x).relu().view(-1), torch.cat([x, x * 2], 0)
        """,
        {"forward": {"x": 'float32 ["n", 6]'}},
        dims="dims.n = { min = 2, max = 7 }",
    ),
    "inputs as outputs": Case(
        "def forward(self, x, y): return x, y * 1, x", {"forward": {"x": "float32 [3]", "y": "float32 [3]"}}
    ),
    "no inputs, and constant methods": Case(
        """
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.arange(6.0))
        def forward(self): return self.table
        def doubled(self): return self.table + self.table
        """,
        {"forward": {}, "doubled": {}},
        more="constants = { length = 128 }",
    ),
    "delegates and kernels": Case(
        """
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)
        def forward(self, x):
            y = self.a(x).relu().erf()
            return self.b(y) + y[:, :4], y.flip(1)
        """,
        {"forward": X},
        backend="xnnpack",
    ),
    "delegates around a condition": Case(
        """
        def forward(self, p, x):
            y = x * 2 + x.relu()
            return torch.cond(p, lambda a: (a + 1).sigmoid() * a, lambda a: (a * 3 - 1).tanh(), (y,)) + y
        """,
        {"forward": PX},
        backend="xnnpack",
    ),
}
INSIDE = {
    "in nested branches": Case(
        """
        def forward(self, p, q, x):
            def inner(a): return torch.cond(q, lambda b: (b + b).sin() - b, lambda b: b * 3, (a,))
            y = torch.cond(p, lambda a: inner((a + a).cos()), lambda a: (a - a * 2) + a, (x,))
            return y + x, x.sin() - y
        """,
        {"forward": PQX},
    ),
    "in a map": Case(
        "def forward(self, xs, y): return torch_map(lambda x, y: ((x + y).relu() - y).sin(), xs, y) + xs",
        {"forward": {"xs": "float32 [3, 2, 4]", "y": "float32 [2, 4]"}},
    ),
    "in a scan": Case(
        """
        def forward(self, start, xs):
            def body(carry, x):
                now = carry + x
                return now, (now.sin() - x).cos()
            carry, ys = scan(body, start, xs, dim=0)
            return carry + start, ys + xs
        """,
        {"forward": {"start": "float32 [4]", "xs": "float32 [5, 4]"}},
    ),
}
"""XNNPACK's own partitioner does not look into branches and loop bodies."""


PARTS = ("a condition alone", "a condition that ends with a condition", "two conditions side by side")
"""Left to the integration run: parts of what nested conditions and conditions in maps show."""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[pytest.mark.integration] if name in PARTS else [])
        for name, case in CASES.items()
    ],
)
@pytest.mark.sampled(2)
def test_an_object_program_is_right(tmp_path: Path, case: Case) -> None:
    made = emit(tmp_path, case)

    made.check_addresses()
    made.check_answers()


@pytest.mark.parametrize("case", INSIDE.values(), ids=INSIDE)
@pytest.mark.nightly
def test_delegates_inside_branches_and_loops(tmp_path: Path, case: Case) -> None:
    made = emit(tmp_path, replace(case, lower_more=delegate_every_sum))

    made.check_addresses()
    made.check_answers()
    assert _outputs_of_delegates(made) == {1}, "a sum has one output, so all other arguments are inputs"
    assert len(made.plan().delegates) > 2


def _outputs_of_delegates(made: Emitted) -> set[int]:
    inputs = made.object.sidecar.methods["forward"].delegate_inputs
    calls = {
        index: call for index, call in enumerate(made.plan().chains[0].instructions) if isinstance(call, DelegateCall)
    }
    assert set(inputs) == set(calls)
    return {len(call.args) - inputs[index] for index, call in calls.items()}


def test_both_files_say_what_was_handed_on(tmp_path: Path) -> None:
    made = emit(tmp_path, CASES["delegates and kernels"])

    assert made.object.path == tmp_path / "build" / "cpu" / f"{tmp_path.name}.object.pte"
    assert read(made.object.path) == made.object.program
    assert read_sidecar(sidecar_place(made.object.path)) == made.object.sidecar
    assert sorted(item.name for item in made.object.path.parent.iterdir()) == [
        f"{tmp_path.name}.object.json",
        f"{tmp_path.name}.object.pte",
    ]


@pytest.mark.integration
@pytest.mark.nightly
def test_the_files_do_not_depend_on_the_folder(tmp_path: Path) -> None:
    case = replace(CASES["a scan"], more='project.name = "same"')
    contents = []
    for folder in ("one", "another/below"):
        made = emit(tmp_path / folder, case)
        contents.append((made.object.path.read_bytes(), sidecar_place(made.object.path).read_bytes()))

    assert contents[0] == contents[1]


SCRIPT = """
import sys
from pathlib import Path
from pipeline.stages.emit import test_emit, test_state
from pipeline.stages.emit.emitting import emit
for index, case in enumerate((test_emit.CASES["delegates and kernels"], test_state.PRIVATE)):
    emit(Path(sys.argv[1]) / f"{index}", case)
"""


@pytest.mark.slow
def test_the_files_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    contents = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[3])}
        subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path / seed)], check=True, env=environment)
        files = sorted((tmp_path / seed).rglob("*.object.*"))
        contents.append([(file.relative_to(tmp_path / seed), file.read_bytes()) for file in files])

    assert len(contents[0]) == 4
    assert contents[0] == contents[1]


@pytest.mark.nightly
def test_a_failure_leaves_the_files_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, exported, lowered = prepare(tmp_path, CASES["bounded sizes"])
    place = object_place(project, "cpu")
    place.parent.mkdir(parents=True)
    for file in (place, sidecar_place(place)):
        file.write_text("before")
    monkeypatch.setattr("etdev.pipeline.stages.emit.emission.describe_method", _mismatch)
    with quiet_libraries():
        check_failure(
            lambda: emit_object(project, lowered, exported, "cpu", place),
            Failure(
                EmitError,
                f"{tmp_path / 'etdev.toml'}:11:1 (targets.cpu)",
                "the emitted method 'forward' does not match its graph: instruction 3 is odd",
                "use executorch 1.5.1 or 1.4.1, or report this and attach the model",
            ),
        )

    assert [file.read_text() for file in sorted(place.parent.iterdir())] == ["before", "before"]


def _mismatch(*_: object) -> None:
    raise MismatchError("instruction 3 is odd")


def test_notes_of_an_earlier_program_do_not_stay_beside_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where notes are, they are those of the program: they go before it comes, and are written after it."""
    project, exported, lowered = prepare(tmp_path, CASES["inputs as outputs"])
    place = object_place(project, "cpu")
    place.parent.mkdir(parents=True)
    sidecar_place(place).write_text("before")

    def full(*_: object) -> None:
        raise WriteError("the disk is full")

    monkeypatch.setattr("etdev.pipeline.stages.emit.emission.write_sidecar", full)
    with quiet_libraries(), pytest.raises(WriteError, match="the disk is full"):
        emit_object(project, lowered, exported, "cpu", place)

    assert [file.name for file in place.parent.iterdir()] == [place.name]


def test_sizes_that_were_narrowed_are_refused(tmp_path: Path) -> None:
    project, exported, lowered = prepare(tmp_path, CASES["bounded sizes"])
    signature = exported.signatures["forward"]
    wider = replace(signature, dims={"n": signature.dims["n"].model_copy(update={"max": 9})})
    exported = replace(exported, signatures={"forward": wider})
    with quiet_libraries():
        check_failure(
            lambda: emit_object(project, lowered, exported, "cpu", object_place(project, "cpu")),
            Failure(
                EmitError,
                f"{tmp_path / 'etdev.toml'}:7:10 (methods.forward.inputs)",
                "the emitted method 'forward' takes 'x' up to [7, 6], but the config declares [9, 6]",
                (
                    "lowering narrowed a dynamic dimension; declare a fixed size for the dimension, or report "
                    "this and attach the model"
                ),
            ),
        )


@pytest.mark.nightly
def test_what_upstream_cannot_emit_is_named(tmp_path: Path) -> None:
    """What upstream raises is said in the terms of the config."""
    case = Case(
        """
        def forward(self, x):
            return torch.ops.higher_order.while_loop(lambda a: a.sum() < 9, lambda a: (a + 1,), (x,), ())[0]
        """,
        {"forward": X},
    )
    project, exported, lowered = prepare(tmp_path, case)
    with quiet_libraries(), pytest.raises(EmitError, match="ExecuTorch cannot emit while_loop"):
        emit_object(project, lowered, exported, "cpu", object_place(project, "cpu"))
