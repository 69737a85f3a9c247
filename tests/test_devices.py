"""Names of devices: B4, B6."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from etdev.devices import HOST, Device, DeviceNameError, DeviceType, parse_device
from etdev.errors import ProgramError
from etdev.program import read


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("cpu", HOST),
        ("CPU", HOST),
        ("cpu:0", HOST),
        ("cuda", Device(DeviceType.CUDA, 0)),
        ("cuda:0", Device(DeviceType.CUDA, 0)),
        (" Cuda:1 ", Device(DeviceType.CUDA, 1)),
        ("cuda:127", Device(DeviceType.CUDA, 127)),
    ],
)
def test_names(text: str, device: Device) -> None:
    assert parse_device(text) == device
    assert parse_device(str(device)) == device


@pytest.mark.parametrize(
    "text",
    ["", "gpu", "mps", "cuda:-1", "cuda:128", "cuda:", "cuda:x", "cuda:0:1", "cpu:1", "xcuda", "cuda:\u0661", "cuda 0"],
)
def test_what_is_no_device_is_refused_with_the_names_there_are(text: str) -> None:
    with pytest.raises(DeviceNameError) as caught:
        parse_device(text)
    assert "cpu, cuda:0 to cuda:127" in (caught.value.hint or "")


def test_devices_are_ordered_as_buffers_are() -> None:
    names = ["cuda:10", "cuda:2", "cpu", "cuda:0"]
    assert [str(device) for device in sorted(map(parse_device, names))] == ["cpu", "cuda:0", "cuda:2", "cuda:10"]


ADDED = """
import sys, types
from pathlib import Path

import etdev

# The one place, with the one line that adds a type.
source = Path(etdev.__file__).with_name("devices.py")
text = source.read_text()
assert text.count("    CUDA = 1\\n") == 1
module = types.ModuleType("etdev.devices")
sys.modules["etdev.devices"] = module
exec(compile(text.replace("    CUDA = 1\\n", "    CUDA = 1\\n    NPU = 2\\n"), str(source), "exec"), module.__dict__)

import torch
from etdev import backends
from etdev.devices import Device, DeviceType, parse_device
from etdev.program import read, write
from etdev.program.devices import delegate_device, named_devices
from etdev.runtime.device_map import parse_device_map, registry_for
from etdev.runtime.memory import DeviceMemoryBuffer
from etdev.runtime.method import load_program
from support.on_devices import two_devices

file, linked = Path(sys.argv[1]) / "a.pte", Path(sys.argv[1]) / "b.pte"
npus = tuple(Device(DeviceType.NPU, index) for index in range(2))
assert tuple(map(parse_device, ("npu", "NPU:1"))) == npus

# The schema: what is written is what is read.
made = two_devices("npu")
write(made, file)
assert read(file) == made
assert named_devices(read(file)) == npus

# The linker: it takes the old placement back, and derives its own from the delegates.
etdev.relink(file, linked)
(plan,) = read(linked).execution_plan
assert [delegate_device(delegate) for delegate in plan.delegates] == list(npus)
assert [Device(entry.device_type, entry.device_index) for entry in plan.non_const_buffer_device] == list(npus)
assert {str(tensor.device) for _, tensor in plan.tensors()} == {"cpu", "npu:0", "npu:1"}

# A run, in memory of simulated devices of the type.
device_map = parse_device_map("npu:0=sim,npu:1=sim")
x = torch.tensor([0.5, -1.0, 2.0, 3.0])
for path in (file, linked):
    registry = registry_for(device_map)
    with load_program(path, registry=registry) as program:
        (found,) = program.execute("forward", (x,))
        torch.testing.assert_close(found, x.sin().sin().sin())
        assert registry.get(DeviceType.NPU).counters.allocations >= 2
    assert registry.get(DeviceType.NPU).counters.live_allocations == 0

# A config may name it, too.
assert "npu" in backends.get("reference").device_types
"""


@pytest.mark.integration
@pytest.mark.nightly
def test_a_type_is_added_in_one_place(tmp_path: Path) -> None:
    """B4: the new type is written, read, linked and run. A runtime without it refuses the file: so does etdev."""
    pytest.importorskip("torch", reason="needs the extra `build`")
    subprocess.run([sys.executable, "-c", ADDED, tmp_path], check=True, cwd=Path(__file__).parent)
    with pytest.raises(ProgramError, match="device_type"):
        read(tmp_path / "a.pte")
