"""The native host as a process: how it starts and crashes, what it is asked at the same time, and where it is kept."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
import torch

from etdev.errors import EtdevError, MissingRequirementError, UsageError
from etdev.program import Program
from etdev.program import model as m
from etdev.runtime.native import Missing, NativeRuntime, find_toolchain, host_executable
from etdev.runtime.native.devices import simulated_devices
from etdev.runtime.native.executable import _compile, _key, _run
from etdev.runtime.stock import RuntimeCrashError
from program.hand import tensor
from support.files import chain, counters, method, program
from support.native import native_host, saved
from support.on_devices import two_devices

X = torch.linspace(-2, 2, 4)


@pytest.fixture
def native() -> Iterator[NativeRuntime]:
    with NativeRuntime(native_host(), devices=simulated_devices(2)) as runtime:
        yield runtime


def endless() -> Program:
    return program(method([tensor(4, at=0), m.Bool(False)], [m.JumpFalseCall(1, 0)], outputs=(0,)))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("content", [b"#!/bin/sh\nexit 3\n", b"\x7fELF of another machine"], ids=["ends", "no program"])
def test_an_executable_that_cannot_start_is_a_requirement(tmp_path: Path, content: bytes) -> None:
    """It may come from another machine, or its libraries may be gone."""
    host = tmp_path / "host"
    host.write_bytes(content)
    host.chmod(0o755)
    gc.collect()  # What earlier tests left open closes before the count.
    before = descriptors()
    with pytest.raises(MissingRequirementError, match="cannot start") as caught, NativeRuntime(host) as runtime:
        assert runtime.operators
    assert caught.value.where == str(host)
    assert "ETDEV_NATIVE_HOST" in (caught.value.hint or "")
    assert descriptors() <= before


def test_a_host_of_another_version_says_so(native: NativeRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etdev.runtime.native.wire.VERSION", 99)
    with pytest.raises(MissingRequirementError, match="another version of the protocol"):
        assert native.operators


def test_an_answer_that_was_not_read_is_not_the_next_requests(
    native: NativeRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = saved(chain(1), tmp_path)
    native.load(file)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("etdev.runtime.native.client.receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            native.call("forward", (X,))
    assert native.load(file) == ("forward",)
    torch.testing.assert_close(native.call("forward", (X,)), (X.sin(),))


def test_a_request_that_waits_for_one_that_crashes_fails_too(tmp_path: Path) -> None:
    with NativeRuntime(native_host(), watch=False) as native:
        native.load(saved(endless(), tmp_path))
        native.open("forward")
        native._child.limit = 0.05
        raised: list[BaseException] = []

        def call() -> None:
            try:
                native.call("forward", (X,))
            except (RuntimeCrashError, AssertionError) as error:
                raised.append(error)

        threads = [Thread(target=call) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [type(error) for error in raised] == [RuntimeCrashError] * 3
    assert {str(error) for error in raised} == {"the runtime did not answer within 0.05 s, so its process was killed"}


ORPHAN = """
import os, signal
from etdev.runtime.child import Child

child = Child(lambda reading, writing: ["sleep", "1000"], limit=60)
child.start()
print(child.process_id, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_child_that_reads_no_request_ends_with_the_process_that_started_it() -> None:
    """As in an endless call. Killed, that process cannot end its child."""
    done = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    child = Path("/proc") / done.stdout.strip() / "stat"
    deadline = time.monotonic() + 10
    while child.exists() and child.read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline, "the child runs on"
        time.sleep(0.05)


def test_each_thread_has_the_figures_of_its_own_calls(native: NativeRuntime, tmp_path: Path) -> None:
    native.load(saved(chain(1), tmp_path))
    native.call("forward", (X,), repeat=3)
    found: list[int] = []

    def call(repeat: int) -> None:
        for _ in range(20):
            native.call("forward", (X,), repeat=repeat)
            assert native.called is not None
            found.append(len(native.called.seconds) - repeat)

    threads = [Thread(target=call, args=(repeat,)) for repeat in (1, 2, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [0] * 60
    assert native.called is not None
    assert len(native.called.seconds) == 3


def test_threads_open_a_method_once(native: NativeRuntime, tmp_path: Path) -> None:
    """Opened again, it would lose the state of the calls before."""
    native.load(saved(counters(), tmp_path))
    found: list[float] = []
    threads = [Thread(target=lambda: found.append(native.call("first", (X * 0 + 1,))[0][0].item())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(1, 9))


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1, object(), torch.empty(1 << 31, 0)])
def test_an_input_that_no_program_takes_is_named(native: NativeRuntime, tmp_path: Path, value: object) -> None:
    native.load(saved(program(method([tensor(4, at=0), m.Int(3)], [], inputs=(0, 1), outputs=(0,))), tmp_path))
    with pytest.raises(UsageError, match=r"input 1 of method 'forward' (is|has)"):
        native.call("forward", (X, value))
    torch.testing.assert_close(native.call("forward", (X, 3)), (X,))


def test_a_string_is_an_input(native: NativeRuntime, tmp_path: Path) -> None:
    plan = method([m.String("text"), tensor(4, at=0)], [], inputs=(0, 1), outputs=(1, 0))
    native.load(saved(program(plan), tmp_path))
    found, text = native.call("forward", ("text", X))
    assert torch.equal(found, X)
    assert text == "text"


def test_a_crash_between_calls_is_not_that_of_the_last_call(native: NativeRuntime, tmp_path: Path) -> None:
    native.load(saved(chain(1), tmp_path))
    native.call("forward", (X,))
    with pytest.raises(RuntimeCrashError, match="SIGABRT") as caught:
        native.register_twice()
    assert "forward" not in str(caught.value)


def test_a_path_may_have_bytes_that_are_no_text(native: NativeRuntime, tmp_path: Path) -> None:
    file = saved(chain(1), tmp_path).rename(tmp_path / os.fsdecode(b"\xff.pte"))
    native.load(file)
    torch.testing.assert_close(native.call("forward", (X,)), (X.sin(),))


def test_what_a_device_sees_lies_between_pages_that_cannot_be_accessed(native: NativeRuntime, tmp_path: Path) -> None:
    native.load(saved(two_devices(), tmp_path))
    native.open("forward")
    lines = Path(f"/proc/{native.process_id}/maps").read_text(encoding="utf-8").splitlines()
    maps = [(*(int(part, 16) for part in line.split()[0].split("-")), line) for line in lines]
    found = [index for index, (_, _, line) in enumerate(maps) if "etdev-device" in line]
    assert len(found) == 2
    for index in found:
        before, (start, end, line), after = maps[index - 1 : index + 2]
        assert "rw-s" in line
        assert (before[1], after[0]) == (start, end)
        assert "---p" in before[2]
        assert "---p" in after[2]


def test_a_compiler_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    native_host()
    monkeypatch.setenv("CXX", "no-such-compiler -O3")
    found = find_toolchain.__wrapped__()
    assert isinstance(found, Missing)
    assert found.reason == "CXX is 'no-such-compiler -O3', which names 'no-such-compiler', which is not a program"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on ``PATH`` with a compiler and launchers."""
    native_host()
    for name in ("my-c++", "ccache", "distcc"):
        (tmp_path / name).write_text('#!/bin/sh\nexec "$@"\n', encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path


@pytest.mark.parametrize(
    ("named", "compiler", "arguments", "launchers"),
    [
        ("my-c++", "my-c++", (), ()),
        ("my-c++ -m64 '-DNAME=a b'", "my-c++", ("-m64", "-DNAME=a b"), ()),
        ("ccache my-c++ -m64", "my-c++", ("-m64",), ("ccache",)),
        ("ccache distcc my-c++", "my-c++", (), ("ccache", "distcc")),
    ],
)
def test_the_compiler_may_have_arguments_and_launchers(
    programs: Path,
    monkeypatch: pytest.MonkeyPatch,
    named: str,
    compiler: str,
    arguments: tuple[str, ...],
    launchers: tuple[str, ...],
) -> None:
    monkeypatch.setenv("CXX", named)
    found = find_toolchain.__wrapped__()
    assert not isinstance(found, Missing)
    assert found.compiler == programs / compiler
    assert found.arguments == arguments
    assert found.launchers == tuple(programs / name for name in launchers)


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ("ccache", "does not name a compiler"),
        ("ccache no-such-compiler", "names 'no-such-compiler', which is not a program"),
        ("my-c++ 'a", "No closing quotation"),
    ],
)
def test_a_wrong_compiler_is_explained(
    programs: Path, monkeypatch: pytest.MonkeyPatch, named: str, reason: str
) -> None:
    monkeypatch.setenv("CXX", named)
    found = find_toolchain.__wrapped__()
    assert isinstance(found, Missing)
    assert reason in found.reason


@pytest.mark.parametrize("name", ["CXXFLAGS", "LDFLAGS", "LIBRARY_PATH"])
def test_a_host_belongs_to_the_flags_that_it_was_compiled_with(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    native_host()
    tools = find_toolchain()
    assert not isinstance(tools, Missing)
    before = _key(tools, [])
    monkeypatch.setenv(name, "-Lfolder")
    assert _key(tools, []) != before
    monkeypatch.delenv(name)
    assert _key(tools, []) == before
    assert _key(replace(tools, arguments=("-m64",)), []) != before


@pytest.mark.slow
@pytest.mark.integration
def test_a_host_is_compiled_by_way_of_a_launcher(tmp_path: Path) -> None:
    """CMake calls the launcher with the compiler and its arguments."""
    tools = find_toolchain()
    if isinstance(tools, Missing):
        pytest.skip(tools.reason)
    log = tmp_path / "log"
    (tmp_path / "ccache").write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec "$@"\n', encoding="utf-8")
    (tmp_path / "ccache").chmod(0o755)
    _compile(replace(tools, launchers=(tmp_path / "ccache",), arguments=("-DFROM_CXX=1",)), tmp_path / "build")
    lines = log.read_text(encoding="utf-8").splitlines()
    assert len(lines) >= 9
    assert all(line.startswith(f"{tools.compiler} -DFROM_CXX=1") for line in lines)
    with NativeRuntime(tmp_path / "build" / "etdev-native-host") as native:
        assert native.operators


def test_a_cache_that_cannot_be_written_is_a_requirement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    native_host()
    (tmp_path / "file").touch()
    monkeypatch.delenv("ETDEV_NATIVE_HOST", raising=False)
    monkeypatch.setenv("ETDEV_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(MissingRequirementError, match="cannot be stored in the cache") as caught:
        host_executable()
    assert "ETDEV_CACHE_DIR" in (caught.value.hint or "")


def test_a_compilers_output_may_be_no_text() -> None:
    with pytest.raises(EtdevError, match="cmake failed to compile"):
        _run(["sh", "-c", r"printf 'error: \377'; exit 1"], "compile")


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda host: host.write_bytes(b"\x7fELF"), id="cut"),
        pytest.param(lambda host: host.unlink(), id="removed"),
        pytest.param(lambda host: (host.parent / "sha256").write_bytes(b"\xff" * 64), id="wrong digest"),
        pytest.param(lambda host: (host.parent / "sha256").unlink(), id="no digest"),
    ],
)
def test_a_damaged_host_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], object]
) -> None:
    """Each run of it would end with a signal, until a user removed it from the cache."""

    def compiled(_: object, build: Path) -> None:
        (build / "etdev-native-host").write_bytes(b"an executable")

    native_host()
    monkeypatch.delenv("ETDEV_NATIVE_HOST", raising=False)
    monkeypatch.setattr("etdev.runtime.native.executable._compile", compiled)
    monkeypatch.setenv("ETDEV_CACHE_DIR", str(tmp_path))
    host = host_executable()
    damage(host)
    notices: list[str] = []
    assert host_executable(notices.append) == host
    assert host.read_bytes() == b"an executable"
    assert len(notices) == 1
    assert host_executable(notices.append) == host
    assert len(notices) == 1
