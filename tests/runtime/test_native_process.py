"""The native host as a process: how it starts and crashes, what it is asked at the same time, and where it is kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
import torch

from etdev.errors import EtdevError, MissingRequirementError
from etdev.program import Program
from etdev.program import model as m
from etdev.runtime.native import Missing, NativeRuntime, find_toolchain, host_executable
from etdev.runtime.native.devices import simulated_devices
from etdev.runtime.native.executable import _run
from etdev.runtime.stock import RuntimeCrashError
from program.hand import tensor
from support.files import chain, method, program
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
    before = descriptors()
    with pytest.raises(MissingRequirementError, match="cannot start") as caught, NativeRuntime(host) as runtime:
        assert runtime.operators
    assert caught.value.where == str(host)
    assert "ETDEV_NATIVE_HOST" in (caught.value.hint or "")
    assert descriptors() == before


def test_a_host_of_another_version_says_so(native: NativeRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etdev.runtime.native.wire.VERSION", 2)
    with pytest.raises(MissingRequirementError, match="another version of the protocol"):
        assert native.operators


def test_an_answer_that_was_not_read_is_not_the_next_requests(
    native: NativeRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = saved(chain(1), tmp_path)
    native.load(file)

    def interrupted(_: object) -> None:
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
    assert found.reason == "CXX is 'no-such-compiler -O3', which is no program"


def test_a_cache_that_cannot_be_written_is_a_requirement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    native_host()
    (tmp_path / "file").touch()
    monkeypatch.delenv("ETDEV_NATIVE_HOST", raising=False)
    monkeypatch.setenv("ETDEV_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(MissingRequirementError, match="cannot be kept in the cache") as caught:
        host_executable()
    assert "ETDEV_CACHE_DIR" in (caught.value.hint or "")


def test_a_compilers_output_may_be_no_text() -> None:
    with pytest.raises(EtdevError, match="cmake failed to compile"):
        _run(["sh", "-c", r"printf 'error: \377'; exit 1"], "compile")
