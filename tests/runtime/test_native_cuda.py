"""CUDA's calls of the native host, with a library that takes the place of CUDA's and keeps all memory on the host."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from etdev.devices import Device, DeviceType
from etdev.program import model as m
from etdev.runtime.device_map import NO_MAP
from etdev.runtime.native import Missing, NativeRuntime, find_toolchain
from etdev.runtime.native.devices import Devices, simulated_devices
from etdev.runtime.stock import ProgramFailureError
from etdev.verification.standalone_native import native_alone
from runtime.test_native_devices import with_state
from support.native import native_host, saved
from support.on_devices import across, two_devices, two_devices_plan

X = torch.linspace(-2, 2, 4)
CUDA = 2

LIBRARY = r"""
#include <cstdlib>
#include <cstring>
extern "C" {
int cudaSetDevice(int ordinal) { return ordinal > 4 ? 101 : 0; }
int cudaMalloc(void** found, size_t size) {
  *found = std::malloc(size);
  std::memset(*found, 0x7f, size);  // Memory of an earlier program.
  return 0;
}
int cudaFree(void* memory) { std::free(memory); return 0; }
int cudaMemcpy(void* target, const void* source, size_t size, int) { std::memcpy(target, source, size); return 0; }
const char* cudaGetErrorString(int) { return "invalid device ordinal"; }
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    native_host()
    tools = find_toolchain()
    if isinstance(tools, Missing):
        pytest.skip(f"{tools.reason}: {tools.remedy}")
    folder = tmp_path_factory.mktemp("cuda")
    (folder / "cuda.cc").write_text(LIBRARY, encoding="utf-8")
    subprocess.run([tools.compiler, "-shared", "-fPIC", "-o", "libcudart.so", "cuda.cc"], cwd=folder, check=True)
    return str(folder / "libcudart.so")


def test_copies_are_those_of_the_program_as_on_simulated_devices(library: str, tmp_path: Path) -> None:
    """A delegate on a GPU reads and writes the GPU's memory; the host's stand-in for it has to copy."""
    file, counted = saved(two_devices(), tmp_path), []
    for devices in (Devices(CUDA, library=library, ordinals={0: 3, 1: 4}), simulated_devices(2)):
        with NativeRuntime(native_host(), devices=devices) as native:
            native.load(file)
            for _ in range(2):
                torch.testing.assert_close(native.call("forward", (X,)), (X.sin().sin().sin(),))
            assert native.called is not None
            counts = native.called.devices[Device(DeviceType.CUDA, 0)]
            counted.append((counts.copies_in, counts.bytes_in, counts.copies_out, counts.bytes_out))
    assert counted == [(2, 32, 2, 32)] * 2


def test_state_on_a_device_begins_with_zeros(library: str, tmp_path: Path) -> None:
    with NativeRuntime(native_host(), devices=Devices(CUDA, library=library)) as native:
        native.load(saved(with_state(), tmp_path))
        torch.testing.assert_close(native.call("forward", (X,)), (torch.zeros(4),))
        torch.testing.assert_close(native.call("forward", (X,)), (X.sin().sin().sin(),))
        torch.testing.assert_close(native.call("forward", (X,), fresh=True), (torch.zeros(4),))


def test_an_error_of_cuda_is_an_error_of_the_program(library: str, tmp_path: Path) -> None:
    with NativeRuntime(native_host(), devices=Devices(CUDA, library=library, ordinals={0: 5})) as native:
        native.load(saved(two_devices(), tmp_path))
        with pytest.raises(ProgramFailureError, match="cudaSetDevice failed: invalid device ordinal"):
            native.open("forward")


@pytest.fixture
def present(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library takes the place of CUDA's in checks, too."""
    monkeypatch.setattr("etdev.execution.native.absent", lambda named, device_map: None)
    monkeypatch.setattr("etdev.runtime.native.devices.cuda_runtime_library", lambda: library)


@pytest.mark.usefixtures("present")
def test_the_check_device_runs_a_file_in_cudas_memory(tmp_path: Path) -> None:
    found = native_alone(saved(two_devices(), tmp_path), (), two_devices(), NO_MAP)
    assert (found.status, found.problems) == ("passed", ())
    assert found.summary == "2 calls on random inputs, outputs equal to the interpreter's within tolerance"


@pytest.mark.usefixtures("present")
def test_the_check_device_sees_other_outputs(tmp_path: Path) -> None:
    """The file computes with other instructions than the program that it is compared with."""
    plan = two_devices_plan()
    shorter = replace(plan, chains=(m.Chain((*plan.instructions[:3], m.KernelCall(3, (3, 3, 8, 4, 4)),
                                             *plan.instructions[4:])),),
                      values=(*plan.values, m.Int(1)))  # fmt: skip
    found = native_alone(saved(across(shorter), tmp_path), (), two_devices(), NO_MAP)
    assert found.status == "failed"
    assert found.problems[0].startswith("output 0 has an error of ")


def test_without_cuda_the_reason_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etdev.execution.native.absent", lambda named, device_map: "no CUDA device")
    found = native_alone(saved(two_devices(), tmp_path), (), two_devices(), NO_MAP)
    assert (found.status, found.summary) == ("not run", "no CUDA device")
