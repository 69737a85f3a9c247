"""Tests of two built files. The build ran one of them with etdev; a test runs the other in ExecuTorch's own runtime.

Start the tests with `pytest`. They build only targets that have changed.
"""

import pytest
from executorch.runtime import Runtime

import etdev
from data import wines

SIMULATED = "cuda:0=sim,cuda:1=sim"


@pytest.fixture(scope="module")
def built() -> etdev.BuildResult:
    result = etdev.build("etdev.toml", device_map=SIMULATED)
    assert result.ok
    return result


def test_each_stage_is_on_its_device(built: etdev.BuildResult) -> None:
    (method,) = etdev.inspect(built.path("two-devices")).methods
    assert [buffer.device for buffer in method.buffers] == ["cpu", "cuda:0", "cuda:1"]


def test_no_executorch_runtime_has_run_it(built: etdev.BuildResult) -> None:
    """Only etdev's interpreter has run the file.

    With real devices and ExecuTorch's CUDA backend, require the check `device` here.
    """
    checks = {check.name: check.status for check in built["two-devices"].checks}
    assert (checks["replay"], checks["runtime"]) == ("passed", "not run")


def test_the_file_for_cpus_names_growers(built: etdev.BuildResult) -> None:
    measurements, growers = wines(held_out=True)
    program = Runtime.get().load_program(built.path("cpu"))
    (logits,) = program.load_method("forward").execute([measurements[:32]])
    assert (logits.argmax(dim=1) == growers[:32]).sum() >= 30
