"""Sessions: calls in order on one fresh state, in the stock runtime and in eager PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import etdev
from etdev.errors import LoadError, VerifyError
from etdev.pipeline.api import open_project
from etdev.pipeline.project.usercode import UserCode
from etdev.pipeline.stages.artifacts import ExportedModel
from etdev.pipeline.stages.eager import Session
from etdev.pipeline.stages.inputs import Call
from etdev.runtime.stock import ProgramFailureError
from support.projects import write_project
from support.stock import shared_runtime
from support.verification import Prepared, prepare

CONFIG = """
    version = 1
    [model]
    entry = "model:Account"
    share_state = true
    [methods.put]
    inputs = [{ name = "x", dtype = "float32", shape = [4] }]
    [methods.take]
    inputs = [{ name = "x", dtype = "float32", shape = [4] }]
    [methods.look]
    inputs = [{ name = "x", dtype = "float32", shape = [4] }]
    samples = "data:samples"
    [targets.cpu]
    verify.sessions = "data:sessions"
"""

MODEL = """
    import torch
    from torch import nn

    class Account(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.full((4,), 5.0))
            self.register_buffer("visits", torch.zeros(4))
            self.fails = False

        def put(self, x):
            self.total.add_(x)
            return self.total * 1

        def take(self, x):
            if self.fails and x[0] == 3:
                raise ValueError("no credit")
            self.total = self.total - x
            return self.total * 1

        def look(self, x):
            self.visits.add_(1)
            return self.total + x, self.visits + x
"""

DATA = """
    import torch

    one, three = torch.ones(4), torch.full((4,), 3.0)

    def samples():
        return [(one,)]

    def sessions():
        yield [("put", (one,)), ("take", (three,)), ("look", (one,)), ("put", [three]), ("look", (one,))]
        yield [["look", (three,)], ("look", (three,))]

    def accuracy(run):
        found = [run.method("put")(one), run.method("take")(three), run.method("look")(0 * one)]
        return found[-1][0][0].item()

    def one_put():
        return [[("put", (one,))]]

    def nothing():
        return []

    def number():
        return 3

    def no_list():
        return ["put"]

    def no_calls():
        yield []

    def one_session():
        return [("put", (one,)), ("take", (one,))]

    def no_pair():
        return [[("put", (one,)), "take"]]

    def three_values():
        return [[("put", one, one)]]

    def method_last():
        return [[((one,), "put")]]

    def unknown_method():
        return [[("put", (one,)), ("tak", (one,))]]

    def foreign_method():
        return [[("forward", (one,))]]

    def bare_tensor():
        return [[("put", one)]]

    def wrong_inputs():
        yield [("put", (one,))]
        yield [("put", (one,)), ("take", (torch.ones(3),))]

    def raising():
        yield [("put", (one,))]
        raise OSError("the data set is gone")
"""


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Three methods that share ``total``; one only reads it."""
    return prepare(tmp_path_factory.mktemp("account"), "cpu", CONFIG, model=MODEL, data=DATA)


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """The same, each method with a plan of its own."""
    config = CONFIG.replace("share_state = true", "share_state = false")
    return prepare(tmp_path_factory.mktemp("apart"), "cpu", config, model=MODEL, data=DATA)


@pytest.mark.integration
def test_calls_of_a_session_share_their_state_and_sessions_do_not(account: Prepared) -> None:
    check = account.judge()["runtime"]

    assert check.status == "passed", check.problems
    assert check.summary == (
        "5 samples and 2 sessions with a total of 7 calls, then 9 calls in a row, max abs error 0; equal"
    )
    assert [(output.method, output.output) for output in check.outputs] == [
        ("put", 0),
        ("take", 0),
        ("look", 0),
        ("look", 1),
    ]


@pytest.mark.nightly
def test_without_shared_state_each_method_has_its_own(apart: Prepared) -> None:
    check = apart.judge()["runtime"]

    assert check.status == "passed", check.problems
    assert check.summary == (
        "5 samples and 2 sessions with a total of 7 calls, then 9 calls in a row, max abs error 0; equal"
    )


def test_a_program_that_shares_its_state_unasked_is_broken(account: Prepared) -> None:
    """A loader that gives each method its own memory does not show it, one that does not does."""
    check = account.judge("model.share_state=false")["runtime"]

    assert (check.status, check.gate) == ("failed", False)
    assert check.summary.endswith("by default (session 0, call 3 with all methods in one memory)")
    assert [output.max_abs_error for output in check.outputs] == [0, 0, 0, 0]


@pytest.mark.integration
def test_a_program_that_does_not_share_its_state_is_broken(apart: Prepared) -> None:
    check = apart.judge("model.share_state=true")["runtime"]

    assert (check.status, check.gate) == ("failed", False)
    assert check.summary.startswith("output 0 of 'put' has an error of 3, but float32 allows at most 0.00")
    assert check.summary.endswith("by default (session 0, call 3)")


def test_the_metric_is_run_on_shared_state(account: Prepared, apart: Prepared) -> None:
    gate = 'targets.cpu.verify.accuracy={ fn = "data:accuracy", min = 0 }'
    assert account.judge(gate)["accuracy"].value == 3
    assert apart.judge(gate)["accuracy"].value == 5


def otherwise(account: Prepared, look: Callable[[Any, torch.Tensor], Any]) -> ExportedModel:
    """The models of a program, as if its method ``look`` were another one."""
    reference = account.candidate.reference
    module = copy.deepcopy(module_of(account))
    module.__class__ = type("Account", (type(module),), {"look": look})
    return replace(reference, eager={name: partial(getattr(module, name)) for name in reference.eager})


def module_of(account: Prepared) -> Any:
    return account.candidate.float_model.eager["put"].func.__self__  # type: ignore[attr-defined]


def test_a_wrong_value_in_a_session_is_named(account: Prepared) -> None:
    def look(self: Any, x: torch.Tensor) -> Any:
        self.visits.add_(1)
        return self.total + x, self.visits + x + (self.visits > 1)

    model = otherwise(account, look)
    check = account.judge(float_model=model, reference=model)["runtime"]

    assert (check.status, check.gate) == ("failed", False)
    assert check.problems == (
        "output 1 of 'look' has an error of 1, but float32 allows at most 0.004 by default (session 0, call 4)",
    )


def test_a_missed_tolerance_in_a_session_is_a_gate(account: Prepared) -> None:
    def look(self: Any, x: torch.Tensor) -> Any:
        self.visits.add_(1)
        return self.total + x, self.visits + x + (self.visits > 1) * 5e-4

    model = otherwise(account, look)
    check = account.judge("targets.cpu.verify.atol=1e-4", float_model=model, reference=model)["runtime"]

    assert (check.status, check.gate) == ("failed", True)
    assert check.problems[0].startswith("output 1 of 'look' exceeds the config's tolerance (atol 0.0001, rtol 0) by ")
    assert check.problems[0].endswith(" in the sessions")
    assert len(check.problems) == 1
    assert [round(output.max_abs_error, 5) for output in check.outputs] == [0, 0, 0, 0.0005]


ONE_PUT = 'targets.cpu.verify.sessions="data:one_put"'


def test_calls_in_a_row_end_where_eager_pytorch_refuses_one(account: Prepared) -> None:
    """The order is etdev's own: the model may refuse it."""

    def look(self: Any, x: torch.Tensor) -> Any:
        self.visits.add_(1)
        if self.visits[0] > 1:
            raise IndexError("no more visits")
        return self.total + x, self.visits + x

    model = otherwise(account, look)
    check = account.judge(ONE_PUT, float_model=model, reference=model)["runtime"]

    assert check.status == "passed", check.problems
    assert check.summary == (
        "5 samples and 1 session of 1 call, then 3 calls in a row, max abs error 0; equal; call 3 in a row, of 'look', "
        "fails in eager PyTorch too: IndexError; weak: random inputs for take"
    )


def test_calls_in_a_row_are_not_held_to_limits_of_the_config(account: Prepared) -> None:
    def look(self: Any, x: torch.Tensor) -> Any:
        self.visits.add_(1)
        return self.total + x, self.visits + x + (self.visits > 1) * 5e-4

    model = otherwise(account, look)
    check = account.judge(ONE_PUT, "targets.cpu.verify.atol=1e-4", float_model=model, reference=model)["runtime"]

    assert check.status == "passed", check.problems
    assert max(output.max_abs_error for output in check.outputs) == 0


def test_eager_state_is_left_as_it_was(account: Prepared) -> None:
    module = module_of(account)
    before = module.total
    account.judge()
    assert module.total is before
    assert (before.tolist(), module.visits.tolist()) == ([5.0] * 4, [0.0] * 4)


@given(methods=st.lists(st.sampled_from(["put", "take", "look"]), max_size=8), shared=st.booleans())
@settings(deadline=None, max_examples=40)
@pytest.mark.nightly
def test_eager_sessions_are_the_modules_own_calls(account: Prepared, methods: list[str], shared: bool) -> None:
    """On one module if state is shared, else on one for each method; in-place changes and assignments alike."""
    project = open_project(account.config, overrides=[f"model.share_state={str(shared).lower()}"], environ={})
    own = {name: copy.deepcopy(module_of(account)) for name in set(methods)}
    one = copy.deepcopy(module_of(account))
    with UserCode() as user:
        session = Session(project, user, account.candidate.reference)
        for index, method in enumerate(methods):
            x = torch.full((4,), float(index))
            found = session.compute(Call(method, (x,)), "here", "there")
            wanted = getattr(one if shared else own[method], method)(x)
            wanted = wanted if isinstance(wanted, tuple) else (wanted,)
            assert [value.tolist() for value in found] == [value.tolist() for value in wanted]


@pytest.mark.integration
def test_a_session_of_methods_with_copies_of_one_state_is_refused(tmp_path: Path) -> None:
    """The model has the same copies, so the comparison passed, and the file ignored what another method wrote."""
    config = write_project(tmp_path, CONFIG.replace("    share_state = true\n", ""), model=MODEL, data=DATA)
    with pytest.raises(VerifyError, match="each have their own copy of total: a method does not see") as caught:
        etdev.build(config)
    assert str(caught.value.where).endswith("(targets.cpu.verify.sessions)")
    assert caught.value.hint == "set `model.share_state`: true shares the state, false keeps the copies"
    stated = etdev.build(config, overrides=["model.share_state=false"])["cpu"]
    assert stated.status == "built"
    alone = etdev.build(config, overrides=[ONE_PUT])["cpu"]
    assert alone.status == "built"
    with pytest.raises(VerifyError, match="each have their own copy of total"):
        etdev.verify(config)


def test_only_methods_that_no_session_calls_are_weak(account: Prepared) -> None:
    check = account.judge('targets.cpu.verify.sessions="data:one_put"')["runtime"]

    assert check.summary.startswith("5 samples and 1 session of 1 call, ")
    assert check.summary.endswith("weak: random inputs for take")


class Altered:
    """The stock runtime, but later calls of a method in a session do something else."""

    def __init__(self, method: str, instead: Callable[[tuple[Any, ...], bool], tuple[Any, ...]]) -> None:
        self._runtime, self._method, self._instead = shared_runtime(), method, instead
        self._shared = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def load(self, file: Path, *, shared: bool = False, data: Path | None = None) -> tuple[str, ...]:
        self._shared = shared
        return self._runtime.load(file, shared=shared, data=data)

    def call(self, method: str, inputs: Sequence[Any], *, fresh: bool = False) -> tuple[Any, ...]:
        outputs = self._runtime.call(method, inputs, fresh=fresh)
        return self._instead(outputs, self._shared) if method == self._method and not fresh else outputs


def test_a_call_that_fails_ends_the_check(account: Prepared) -> None:
    def fail(outputs: tuple[Any, ...], shared: bool) -> tuple[Any, ...]:
        raise ProgramFailureError("RuntimeError: told to")

    check = account.judge(runtime=Altered("look", fail))["runtime"]

    assert (check.status, check.gate) == ("failed", False)
    assert check.problems == ("method 'look' failed on session 0, call 2 (inputs [4]): RuntimeError: told to",)


def test_another_number_of_outputs_ends_the_check(account: Prepared) -> None:
    check = account.judge(runtime=Altered("look", lambda outputs, shared: outputs[:1]))["runtime"]

    assert (check.status, check.gate) == ("failed", False)
    assert check.problems == ("method 'look' returns 1 outputs, but eager PyTorch returns 2 (session 0, call 2)",)


def test_state_of_ones_own_has_to_be_right_in_any_memory(apart: Prepared) -> None:
    """ExecuTorch's own planner lays the state of one method over the temporaries of another."""
    clobbered = Altered("put", lambda outputs, shared: (outputs[0] * 0,) if shared else outputs)
    check = apart.judge(runtime=clobbered)["runtime"]

    assert (check.status, check.gate) == ("failed", False)
    assert check.problems[0].startswith("output 0 of 'put' has an error of 9, but float32 allows at most 0.009 ")
    assert check.problems[0].endswith("(session 0, call 3 with all methods in one memory)")


_A_LIST = "return or yield sessions, each a list of pairs (method, inputs)"
_DECLARED = "the config declares x: float32 [4]"


@pytest.mark.parametrize(
    ("sessions", "message", "hint"),
    [
        ("nothing", "'data:nothing' returned no sessions", "check that the function finds its data"),
        ("number", "'data:number' returned an int, not an iterable of lists of calls", _A_LIST),
        ("no_list", "'data:no_list': session 0 is not a list of calls: it is a str", _A_LIST),
        ("no_calls", "'data:no_calls': session 0 is not a list of calls: it is empty", _A_LIST),
        (
            "one_session",
            "'data:one_session': session 0, call 0: it is a str, not a pair (method, inputs)",
            _A_LIST,
        ),
        ("no_pair", "'data:no_pair': session 0, call 1: it is a str, not a pair (method, inputs)", _A_LIST),
        (
            "three_values",
            (
                "'data:three_values': session 0, call 0: it contains a str, a tensor of shape [4], a tensor "
                "of shape [4] instead of a method's name and its inputs"
            ),
            _A_LIST,
        ),
        (
            "method_last",
            (
                "'data:method_last': session 0, call 0: it contains a tuple, a str instead of a method's "
                "name and its inputs"
            ),
            _A_LIST,
        ),
        (
            "unknown_method",
            "'data:unknown_method': session 0, call 1: there is no method 'tak'",
            "did you mean 'take'?",
        ),
        (
            "foreign_method",
            "'data:foreign_method': session 0, call 0: there is no method 'forward'",
            "the methods are: put, take, look",
        ),
        (
            "bare_tensor",
            (
                "'data:bare_tensor': session 0, call 0: method 'put' does not accept the inputs: it is a "
                "tensor of shape [4], not a tuple of tensors such as (x,)"
            ),
            _DECLARED,
        ),
        (
            "wrong_inputs",
            (
                "'data:wrong_inputs': session 1, call 1: method 'take' does not accept the inputs: input 'x' "
                "has the shape [3], but is declared as [4]: axis 0 is 3 instead of 4"
            ),
            _DECLARED,
        ),
        ("raising", "'data:raising' failed at session 1: OSError: the data set is gone (data.py:", None),
        ("absent", "'data' has no attribute 'absent' (from 'data:absent')", None),
    ],
)
@pytest.mark.sampled(5)
def test_bad_sessions_are_an_error_at_their_key(
    account: Prepared, sessions: str, message: str, hint: str | None
) -> None:
    setting = f'targets.cpu.verify.sessions="data:{sessions}"'
    with pytest.raises(LoadError) as caught:
        account.judge(setting)
    assert caught.value.message.startswith(message)
    assert caught.value.where == f"--set {setting} (targets.cpu.verify.sessions)"
    assert caught.value.hint == hint or sessions == "absent"


def test_an_eager_model_that_fails_in_a_session_is_an_error(account: Prepared) -> None:
    module = module_of(account)
    module.fails = True
    try:
        with pytest.raises(VerifyError) as caught:
            account.judge()
    finally:
        module.fails = False
    assert caught.value.message.startswith(
        "method 'take' failed in eager PyTorch: session 0, call 1: ValueError: no credit (model.py:"
    )
    assert caught.value.where is not None
    assert caught.value.where.endswith("(targets.cpu.verify.sessions)")


QUANTIZED = """
    version = 1
    [model]
    entry = "model:Blend"
    share_state = true
    [methods.push]
    inputs = [{ name = "x", dtype = "float32", shape = [2, 16] }]
    samples = "data:samples"
    [methods.pull]
    inputs = [{ name = "x", dtype = "float32", shape = [2, 16] }]
    samples = "data:samples"
    [quantize.int8]
    scheme = "pt2e-xnnpack"
    calibration = { push = "data:samples", pull = "data:samples" }
    [targets.int8]
    quantize = "int8"
    partitioners = [{ backend = "xnnpack" }]
    verify.sessions = "data:sessions"
"""

BLEND = """
    import torch
    from torch import nn

    class Blend(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)
            self.register_buffer("memory", torch.zeros(2, 16))

        def push(self, x):
            self.memory.add_(self.first(x))
            return self.second(self.memory.tanh())

        def pull(self, x):
            self.memory.mul_(0.5)
            return self.second(self.memory + x)
"""

BLENDED = """
    import torch

    def inputs(count):
        generator = torch.Generator().manual_seed(0)
        return [(torch.randn(2, 16, generator=generator),) for _ in range(count)]

    def samples():
        return inputs(8)

    def sessions():
        return [[("push" if index % 3 else "pull", x) for index, x in enumerate(inputs(9))]]
"""


@pytest.mark.integration
@pytest.mark.nightly
def test_a_quantized_program_is_compared_with_the_quantized_model_on_its_state(tmp_path: Path) -> None:
    """Each method is quantized by itself, so that the state that they share is in two modules."""
    prepared = prepare(tmp_path, "int8", QUANTIZED, model=BLEND, data=BLENDED)
    check = prepared.judge()["runtime"]

    assert check.status == "passed", check.problems
    assert "16 samples and 1 session of 9 calls, " in check.summary
    unasked = prepared.judge("model.share_state=false")["runtime"]
    assert (unasked.status, unasked.gate) == ("failed", False)
    assert "dB against the quantized model before lowering" in unasked.summary
