"""Names of devices: B4, B6."""

from __future__ import annotations

import pytest

from etdev import devices
from etdev.devices import HOST, Device, DeviceNameError, DeviceType, parse_device


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


def test_a_type_is_added_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    from enum import IntEnum

    more = IntEnum("DeviceType", {"CPU": 0, "CUDA": 1, "VULKAN": 2})  # type: ignore[misc]
    monkeypatch.setattr(devices, "DeviceType", more)
    assert str(parse_device("vulkan:3")) == "vulkan:3"
    assert devices.valid_names() == "cpu, cuda:0 to cuda:127, vulkan:0 to vulkan:127"
