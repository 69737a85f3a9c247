"""Models of the zoo, cut for two simulated devices, compute what eager PyTorch does, with poison (A5, B2, B5)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

pytest.importorskip("executorch", reason="needs the extra `build`")
pytest.importorskip("transformers", reason="needs the extra `hf`")

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "devices.py"


def _run(results: Path, *arguments: str) -> list[dict[str, object]]:
    """What the benchmark says of each program, if it is content."""
    command = [sys.executable, str(BENCHMARK), "--results", str(results), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return [cut for file in sorted(results.glob("*.json")) for cut in json.loads(file.read_text())["cuts"]]


@pytest.mark.slow
def test_a_few_models_on_two_devices(tmp_path: Path) -> None:
    """The first and the last ops on devices, the host between them; a decoder whose cache stays where it is."""
    (ends,) = _run(tmp_path / "image", "--only", "vit", "--cut", "ends")
    (layers,) = _run(tmp_path / "decoder", "--only", "llama-decode", "--cut", "layers")
    for cut in (ends, layers):
        assert cut["delegates"] >= 2  # type: ignore[operator]
        assert {"cuda:0", "cuda:1"} <= cut["memory"].keys()  # type: ignore[attr-defined]
    cache = 6 * 2 * 4 * 256 * 16 * 4  # Layers, keys and values, heads, positions, width, bytes of an element.
    assert layers["h2d_bytes"] + layers["d2h_bytes"] < cache / 50  # type: ignore[operator]


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_the_zoo_on_two_devices(tmp_path: Path) -> None:
    assert len(_run(tmp_path)) >= 42
