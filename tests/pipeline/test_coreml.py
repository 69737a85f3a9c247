"""Core ML: lowering only, on any system."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import etdev
from etdev import backends
from etdev.program import read
from support.projects import LINEAR, LINEAR_CONFIG, write_project

STATE = backends.get("coreml").availability()

CONFIG = (
    LINEAR_CONFIG
    + """
    [targets.apple]
    partitioners = [{ backend = "coreml", options = { minimum_target = "iOS17", precision = "float32" } }]
"""
)


@pytest.mark.integration
@pytest.mark.skipif(not STATE.available, reason=f"coreml: {STATE.reason}; {STATE.remedy}")
@pytest.mark.nightly
def test_a_model_is_lowered(tmp_path: Path) -> None:
    first = etdev.build(write_project(tmp_path, CONFIG, model=LINEAR))["apple"]
    (method,) = first.methods
    assert method.delegate_calls == {"CoreMLBackend": 1}
    assert method.undelegated == ()
    checks = {check.name: check.status for check in first.checks}
    assert (checks["bytes"], checks["plan"], checks["runtime"]) == ("passed", "passed", "not run")


CONVOLUTIONS = """
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layers = torch.nn.Sequential(*(torch.nn.Conv2d(4, 4, 3, padding=1) for _ in range(3)))
            self.last = torch.nn.Linear(4, 10)

        def forward(self, image):
            return self.last(self.layers(image).relu().mean((2, 3))).softmax(-1)

        def features(self, image):
            return self.layers(image).sigmoid()
"""
TWO_METHODS = """
    version = 1
    project.name = "net"
    model.entry = "model:Net"
    [methods.forward]
    inputs = [{ name = "image", dtype = "float32", shape = [1, 4, 8, 8] }]
    [methods.features]
    inputs = [{ name = "image", dtype = "float32", shape = [1, 4, 8, 8] }]
    [targets.apple]
    partitioners = [{ backend = "coreml" }]
"""


@pytest.mark.integration
@pytest.mark.skipif(not STATE.available, reason=f"coreml: {STATE.reason}; {STATE.remedy}")
@pytest.mark.nightly
def test_two_builds_have_the_same_bytes(tmp_path: Path) -> None:
    """With several methods, too. Another model has another identifier, by which a device finds the compiled model."""
    found, other = [], CONVOLUTIONS.replace("seed(0)", "seed(1)")
    for name, source in zip(("one", "two", "other"), (CONVOLUTIONS, CONVOLUTIONS, other), strict=True):
        config = write_project(tmp_path / name, TWO_METHODS, model=source)
        built = etdev.build(config, cache=False, verify=False)
        found.append(built.path("apple").read_bytes())
        assert read(built.path("apple")).execution_plan[0].delegates[0].id == "CoreMLBackend"
    assert found[0] == found[1]
    first, third = (_identifiers(content) for content in (found[0], found[2]))
    assert first
    assert first.isdisjoint(third)


def _identifiers(content: bytes) -> set[bytes]:
    return set(re.findall(rb'"identifier": ?"(executorch_[0-9a-f-]{36})"', content))


def test_names_of_parts_are_consistent() -> None:
    from etdev.backends.coreml.packages import _named_by_path

    def manifest(*names: str) -> dict[str, object]:
        items = {name: {"path": f"com.apple.CoreML/{number}"} for number, name in enumerate(names)}
        return {"fileFormatVersion": "1.0.0", "itemInfoEntries": items, "rootModelIdentifier": names[0]}

    one, other = (_named_by_path(manifest(*names)) for names in (("b", "a"), ("x", "y")))
    assert json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert one["itemInfoEntries"][one["rootModelIdentifier"]] == {"path": "com.apple.CoreML/0"}
