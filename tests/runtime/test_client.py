"""The stock runtime in its own process: answers, refusals, crashes, and how it begins and ends."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import etdev
from etdev import compat
from etdev.errors import MissingRequirementError
from etdev.program import write
from etdev.runtime.child import Child
from etdev.runtime.stock import ProgramFailureError, RuntimeCrashError, StockRuntime, worker
from support.files import chain
from support.projects import write_project
from support.stock import shared_runtime
from support.verification import prepare

pytestmark = [pytest.mark.own_runtime, pytest.mark.integration]

CONFIG = """
    version = 1
    [project]
    name = "zoo"
    [model]
    entry = "model:Zoo"
    [constants]
    answer = 42
    label = "zoo"
    [methods.forward]
    inputs = [{ name = "x", dtype = "float32", shape = [2, 3] }]
    [methods.step]
    inputs = []
    [methods.types]
    inputs = [
        { name = "whole", dtype = "int64", shape = [2] },
        { name = "truth", dtype = "bool", shape = [2] },
        { name = "half", dtype = "bfloat16", shape = [] },
    ]
    [targets.cpu]
"""

MODEL = """
    import torch
    from torch import nn

    class Zoo(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x):
            return x * 2

        def step(self):
            self.count.add_(1)
            return self.count.clone()

        def types(self, whole, truth, half):
            return {"whole": whole + whole, "rest": (truth.logical_not(), None, half + half)}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with several methods, one of them stateful."""
    result = etdev.build(write_project(tmp_path_factory.mktemp("zoo"), CONFIG, model=MODEL), verify=False, environ={})
    return result.path("cpu")


@pytest.fixture
def runtime(program: Path) -> StockRuntime:
    shared = shared_runtime()
    shared.load(program)
    return shared


def pid(runtime: StockRuntime) -> int:
    return runtime._child.process_id


def test_what_the_runtime_and_a_file_have(runtime: StockRuntime, program: Path) -> None:
    assert {"aten::add.out", "executorch_prim::et_view.default"} <= runtime.operators
    assert "quantized_decomposed::quantize_per_tensor.out" in runtime.operators
    assert "XnnpackBackend" in runtime.usable_backends <= runtime.backends
    assert runtime.load(program) == ("answer", "forward", "label", "step", "types")


def test_values_of_every_kind(runtime: StockRuntime) -> None:
    (doubled,) = runtime.call("forward", (torch.ones(2, 3),))
    assert torch.equal(doubled, torch.full((2, 3), 2.0))

    inputs = (torch.tensor([1, 2**60]), torch.tensor([True, False]), torch.tensor(1.5, dtype=torch.bfloat16))
    found = runtime.call("types", inputs)
    expected = (torch.tensor([2, 2**61]), torch.tensor([False, True]), None, torch.tensor(3.0).bfloat16())
    assert len(found) == 4
    assert found[2] is None
    for value, wanted in zip(found, expected, strict=True):
        assert value is wanted is None or (value.dtype == wanted.dtype and torch.equal(value, wanted))

    assert runtime.call("answer", ()) == (42,)
    assert runtime.call("label", ()) == ("zoo",)


def test_inputs_are_made_contiguous(runtime: StockRuntime) -> None:
    given = torch.arange(6.0).reshape(3, 2).t()
    (found,) = runtime.call("forward", (given,))
    assert torch.equal(found, given * 2)


def test_state_is_carried_on_unless_fresh_state_is_asked_for(runtime: StockRuntime) -> None:
    assert [runtime.call("step", (), fresh=True)[0].item() for _ in range(2)] == [1, 1]
    assert [runtime.call("step", ())[0].item() for _ in range(2)] == [2, 3]


def test_loading_again_gives_initial_state(runtime: StockRuntime, program: Path) -> None:
    runtime.call("step", ())
    runtime.load(program)
    assert runtime.call("step", ())[0].item() == 1


SHARING = """
    version = 1
    [model]
    entry = "model:Sharing"
    share_state = true
    [methods.step]
    inputs = []
    [methods.leap]
    inputs = []
    [methods.own]
    inputs = []
    [targets.cpu]
"""

SHARING_MODEL = """
    import torch
    from torch import nn

    class Sharing(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.full((1,), 5.0))
            self.register_buffer("mine", torch.zeros(1))

        def step(self):
            self.count.add_(1)
            return self.count.clone()

        def leap(self):
            self.count.add_(10)
            return self.count.clone()

        def own(self):
            self.mine.add_(1)
            return self.mine.clone()
"""


@pytest.fixture(scope="module")
def sharing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods whose state lies at the same place of a buffer of its own, and one with other state."""
    return prepare(tmp_path_factory.mktemp("sharing"), "cpu", SHARING, model=SHARING_MODEL).candidate.path


CALLS = ("step", "leap", "own", "step", "own", "leap")


@pytest.mark.parametrize(
    ("shared", "counted"),
    [(True, [6, 16, 1, 17, 2, 27]), (False, [6, 15, 1, 7, 2, 25])],
    ids=["shared", "separate"],
)
def test_methods_share_their_memory_or_do_not(sharing: Path, shared: bool, counted: list[int]) -> None:
    """Initial values are written when a method is loaded: 16 was 15 while methods were loaded at their first call."""
    runtime = shared_runtime()
    assert runtime.load(sharing, shared=shared) == ("leap", "own", "step")
    for _ in range(2):
        answers = [runtime.call(method, (), fresh=index == 0)[0] for index, method in enumerate(CALLS)]
        assert answers == counted


@pytest.mark.nightly
def test_a_crash_does_not_end_the_sharing(sharing: Path) -> None:
    with StockRuntime() as runtime:
        runtime.load(sharing, shared=True)
        os.kill(pid(runtime), signal.SIGKILL)
        with pytest.raises(RuntimeCrashError):
            runtime.call("step", ())
        assert [runtime.call(name, (), fresh=name == "step")[0].item() for name in ("step", "leap")] == [6, 16]


@pytest.mark.parametrize("shared", [True, False])
def test_an_unknown_method_is_refused_in_the_runtimes_own_words(sharing: Path, shared: bool) -> None:
    runtime = shared_runtime()
    runtime.load(sharing, shared=shared)
    with pytest.raises(ProgramFailureError, match="backward"):
        runtime.call("backward", ())
    assert runtime.call("own", ())[0] == 1


@pytest.mark.parametrize(
    ("method", "inputs", "logged"),
    [
        pytest.param("forward", (), "Expected 1, but got 0", id="too few inputs"),
        pytest.param("forward", (torch.ones(2, 3).double(),), "unexpected scalar type", id="another dtype"),
        pytest.param("forward", (torch.ones(4, 3),), "4", id="too large"),
        pytest.param("backward", (), "backward", id="no such method"),
    ],
)
def test_a_refused_call_says_why_and_the_next_one_works(
    runtime: StockRuntime, method: str, inputs: tuple[torch.Tensor, ...], logged: str
) -> None:
    with pytest.raises(ProgramFailureError) as caught:
        runtime.call(method, inputs)
    assert logged in str(caught.value)
    assert not isinstance(caught.value, RuntimeCrashError)
    assert len(runtime.call("forward", (torch.ones(2, 3),))) == 1


_BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "garbage": lambda content: b"this is not a program" * 50,
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
}


@pytest.mark.parametrize("kind", _BROKEN)
def test_a_broken_file_is_refused(runtime: StockRuntime, program: Path, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "broken.pte"
    file.write_bytes(_BROKEN[kind](program.read_bytes()))

    with pytest.raises(ProgramFailureError):
        runtime.load(file)
    assert runtime.load(program)


def test_a_missing_file_is_refused(runtime: StockRuntime, tmp_path: Path) -> None:
    with pytest.raises(ProgramFailureError, match=r"nowhere\.pte"):
        runtime.load(tmp_path / "nowhere.pte")


def test_nothing_is_printed(runtime: StockRuntime, capfd: pytest.CaptureFixture[str]) -> None:
    runtime.call("forward", (torch.ones(2, 3),))
    with pytest.raises(ProgramFailureError):
        runtime.call("forward", ())
    assert tuple(capfd.readouterr()) == ("", "")


def test_calls_from_several_threads_do_not_mix(runtime: StockRuntime) -> None:
    """A metric may use a thread pool; without a lock the messages of two calls ran into each other."""
    inputs = [torch.full((2, 3), float(number)) for number in range(40)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda value: runtime.call("forward", (value,))[0], inputs))
    assert all(torch.equal(value, given * 2) for value, given in zip(found, inputs, strict=True))


def test_ctrl_c_is_left_to_the_parent(runtime: StockRuntime) -> None:
    """Ctrl-C in a terminal reaches the whole process group."""
    os.kill(pid(runtime), signal.SIGINT)
    assert runtime.call("answer", ()) == (42,)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL], ids=lambda number: number.name)
@pytest.mark.sampled(1)
def test_a_crash_is_named_and_the_next_program_gets_a_new_process(program: Path, number: signal.Signals) -> None:
    """One crashed target made every later target of the same build fail."""
    with StockRuntime() as runtime:
        runtime.load(program)
        first = pid(runtime)
        os.kill(first, signal.SIGSTOP)  # The call below stays unanswered until the signal comes.
        killer = threading.Timer(0.3, lambda: (os.kill(first, number), os.kill(first, signal.SIGCONT)))
        killer.start()
        with pytest.raises(RuntimeCrashError, match=f"ended with signal {number.name}"):
            runtime.call("forward", (torch.ones(2, 3),))
        killer.join()

        with pytest.raises(RuntimeCrashError, match=number.name):  # It has lost its program, not forgotten why.
            runtime.call("forward", (torch.ones(2, 3),))
        if number == signal.SIGSEGV:
            runtime.load(program)
        assert runtime.call("step", (), fresh=True)[0].item() == 1  # Loads again by itself.
        assert pid(runtime) != first


def test_a_program_that_hangs_is_killed(program: Path) -> None:
    """It hung the build for ever."""
    with StockRuntime() as runtime:
        runtime.load(program)
        first = pid(runtime)
        os.kill(first, signal.SIGSTOP)
        runtime.limit = 0.3
        with pytest.raises(RuntimeCrashError, match=r"^the runtime did not answer within 0\.3 s, so its process was"):
            runtime.call("forward", (torch.ones(2, 300_000),))  # More than a pipe holds: already sending it hangs.
        assert not alive(first)

        runtime.limit = 60
        assert runtime.call("answer", (), fresh=True) == (42,)


def test_a_runtime_that_hangs_while_it_starts_is_killed() -> None:
    with StockRuntime(limit=0.1) as runtime:
        os.kill(pid(runtime), signal.SIGSTOP)
        with pytest.raises(MissingRequirementError, match=r"cannot start: .* did not answer within 0\.1 s"):
            assert runtime.operators


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("[cpuinfo_utils.cpp:71] Reading file /sys/devices/soc0/image_version", False),
        ("[method.cpp:1493] arg 4 with type id 5", False),
        ("[method.cpp:1483] KernelCall failed at instruction 0:0 in operator aten::embedding.out: 0x12", True),
        ("Failed to load /x y/torchao/_C_mxfp8.cpython-310-x86_64-linux-gnu.so: Could not load this library", False),
        (
            "W1121 10:50:02.282000 31491 torch/utils/_pytree.py:630] <enum 'KernelPreference'> is an Enum subclass and",
            False,
        ),
        ("Failed to load the weights", True),
        ("W1 is not a matrix", True),
        ("I0 lost", True),
        ("W1121 10:50:02.282000 31491 my_ops.py:1] no kernel for this machine", True),
    ],
)
def test_only_what_the_wheels_print_on_every_start_is_left_out(line: str, shown: bool) -> None:
    child = Child(lambda *_: [], limit=1)
    with tempfile.TemporaryFile(buffering=0) as child._log:
        child._log.write(f"before\n{line}\n".encode())
        assert child._logged(len("before\n")) == (line if shown else "")


def test_custom_kernels_are_imported_from_their_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my_ops.py").write_text(
        "import os, pathlib\n"
        "print('loud')\n"
        "os.write(1, b'louder')\n"
        "pathlib.Path(__file__).with_name('imported').touch()\n"
    )
    with StockRuntime(imports=["my_ops"], path=[tmp_path]) as runtime:
        assert runtime.operators
        assert (tmp_path / "imported").exists()
    assert tuple(capfd.readouterr()) == ("", "")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        pytest.param("import no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing'", id="raises"),
        pytest.param("import os; os._exit(3)", "ended with exit code 3", id="exits"),
    ],
)
@pytest.mark.nightly
def test_imports_that_fail_are_an_error_each_time(tmp_path: Path, source: str, said: str) -> None:
    """The second question was answered as if the runtime had no operators at all."""
    (tmp_path / "my_ops.py").write_text(source)
    with StockRuntime(imports=["my_ops"], path=[tmp_path]) as runtime:
        for _ in range(2 if "import no" in source else 1):
            with pytest.raises(MissingRequirementError, match="cannot start with my_ops") as caught:
                assert runtime.operators
            assert said in str(caught.value)


@pytest.mark.nightly
def test_a_runtime_that_cannot_be_imported_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended as "a bug in etdev"."""
    (tmp_path / "executorch").mkdir()
    (tmp_path / "executorch" / "__init__.py").write_text("raise ImportError('libtorch.so: cannot open')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (
        StockRuntime() as runtime,
        pytest.raises(MissingRequirementError, match=r"cannot start: ImportError: libtorch\.so") as caught,
    ):
        assert runtime.backends
    assert caught.value.hint is not None
    assert "etdev doctor" in caught.value.hint


def test_the_child_ends_with_the_block() -> None:
    with StockRuntime() as runtime:
        child = pid(runtime)
        assert alive(child)
    assert not alive(child)


def test_the_child_ends_when_its_parent_is_killed() -> None:
    script = (
        "import time\n"
        "from etdev.runtime.stock import StockRuntime\n"
        "with StockRuntime() as runtime:\n"
        "    print(runtime._child.process_id, flush=True)\n"
        "    time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert alive(child)
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 60
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not alive(child)


def alive(process: int) -> bool:
    """Whether a process runs (a zombie that waits for its parent does not)."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.nightly
def test_a_relative_path_is_of_the_folder_of_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child started in another folder."""
    write(chain(1), tmp_path / "chain.pte")
    with StockRuntime() as runtime:
        monkeypatch.chdir(tmp_path)
        assert runtime.load(Path("chain.pte")) == ("forward",)


def test_the_runtime_starts_without_openvino(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its extension module has another name in each version of executorch."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "openvino" else find(name))
    library = worker._import_library()
    assert library.__name__ == compat.runtime_module()
    assert "XnnpackBackend" in library._get_registered_backend_names()
