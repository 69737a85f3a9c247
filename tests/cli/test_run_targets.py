"""``etdev run TARGET`` and ``etdev bench TARGET``: the config's samples where no inputs are given (E4)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cli.running import Run
from etdev.cli import app
from etdev.program import write
from support.files import chain
from support.projects import write_project

CONFIG = """
    version = 1
    [project]
    name = "tiny"
    imports = ["ops"]
    [model]
    entry = "model:nothing"
    [methods.forward]
    inputs = [{{ name = "x", dtype = "float32", shape = ["n"] }}]
    dims.n.max = {most}
    {samples}
    [targets.cpu]
"""
SAMPLES = """
    import torch
    import ops

    assert ops.registered

    def samples():
        print("made here")
        yield (torch.full((4,), 1.0),)
        yield (torch.full((4,), 2.0),)

    def long():
        return [(torch.zeros(4),), (torch.zeros(5),)]

    def whole():
        return [(torch.zeros(4, dtype=torch.int64),)]
"""


def target(samples: str = 'samples = "data:samples"', most: int | str = 4) -> None:
    """A target ``cpu`` here, whose file computes the sine of four numbers."""
    write_project(Path(), CONFIG.format(samples=samples, most=most), data=SAMPLES, ops="registered = True\n")
    Path("build/cpu").mkdir(parents=True, exist_ok=True)
    write(chain(1), "build/cpu/tiny.pte")


def test_sizes_that_only_the_config_excludes(run: Run) -> None:
    """ExecuTorch's runtime takes all sizes up to the maximum, and a U-Net of four levels then fails inside."""
    np.save("four.npy", np.zeros(4, np.float32))
    for dims, said in (
        ("8\n    dims.n.min = 5", "axis 0 is 4, which is outside 'n' = 5..8"),
        ("9\n    dims.n.multiple_of = 3", "axis 0 is 4, which is outside 'n' = 3..9 in steps of 3"),
    ):
        target(most=dims)
        code, _, err = run("cpu", "--input", "four.npy")
        assert (code, said in err) == (2, True), err
        assert "help: pass a size that the config declares: etdev.toml:" in err
    assert run("build/cpu/tiny.pte", "--input", "four.npy")[0] == 0


def largest(out: str) -> list[float]:
    return [call["outputs"][0]["largest"] for call in json.loads(out)["calls"]]


def sines(*values: float) -> Any:
    return pytest.approx([torch.tensor(value).sin().item() for value in values])


def test_the_samples_of_the_config(run: Run) -> None:
    target()
    code, out, err = run("cpu", "--output", "json")

    assert (code, err) == (0, "made here\n")
    assert largest(out) == sines(1, 2)
    assert json.loads(out)["inputs"] == "2 samples of data:samples"
    assert "  inputs     2 samples of data:samples\n" in run("cpu")[1]
    assert run("build/cpu/tiny.pte")[0] == 2


def test_what_is_given_or_made_up_goes_before_the_samples(run: Run) -> None:
    target()
    _, given, err = run("cpu", "--input", "0=y.npy", "--output", "json")
    _, made_up, also = run("cpu", "--random", "--seed", "3", "--output", "json")

    assert err == also == ""
    assert (largest(given), json.loads(given)["inputs"]) == (sines(10), None)
    assert json.loads(made_up)["inputs"] == "random, seed 3"


def test_samples_are_measured(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    target()
    quick = ("--calls", "4", "--warmup", "1", "--transport", "thread", "--workers", "1", "--quiet")
    capfd.readouterr()
    assert app.run(["bench", "cpu", *quick, "--output", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["inputs"] == "2 samples of data:samples"


@pytest.mark.parametrize(
    ("samples", "most", "code", "said"),
    [
        (
            "",
            4,
            2,
            (
                "method 'forward' needs inputs, and the config sets no samples for it\nhelp: pass `--input` "
                "(input 0: float32 [4]), or use `--random`"
            ),
        ),
        (
            'samples = "data:long"',
            5,
            2,
            (
                "sample 1 of 'data:long' does not match this file: input 0 is float32 [4], but the value "
                "is float32 [5]: axis 0 is 5, not 4\nhelp: "
            ),
        ),
        ('samples = "data:long"', 4, 4, "sample 1: input 'x' has the shape [5], but is declared as [n]"),
        ('samples = "data:whole"', 4, 4, "sample 0: input 'x' is int64, but is declared as float32"),
        ('samples = "data:none"', 4, 2, "has no attribute 'none'"),
    ],
)
def test_samples_that_do_not_fit(run: Run, samples: str, most: int, code: int, said: str) -> None:
    target(samples, most)
    found, out, err = run("cpu")

    assert (found, out) == (code, "")
    assert said in err


@pytest.mark.parametrize("name", ["x.npy", "./x.npy", "x.txt", "x.npz", "named.npz", "x.safetensors"])
def test_a_lone_input_needs_no_name(run: Run, name: str) -> None:
    x = np.arange(4, dtype=np.float32)
    np.savez("x.npz", x)
    np.savez("named.npz", **{"0": x, "other": x + 1})
    Path("x.txt").write_text("0 1 2 3")
    if name.endswith("safetensors"):
        pytest.importorskip("safetensors.torch").save_file({"0": torch.tensor(x)}, name)
    _, expected, _ = run("chain.pte", "--input", "0=x.npy", "--output", "json")
    code, out, err = run("chain.pte", "--input", name, "--input", name, "--output", "json")

    assert (code, err) == (0, "")
    assert largest(out) == largest(expected) * 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nowhere.npy", "cannot read input 0: nowhere.npy: No such file"),
        ("model.pt", "input 0: etdev does not read files like 'model.pt', because they may run code"),
        ("3", "input 0 is float32 [4], but the value is one number"),
        ("y=x.npy", "method 'forward' has no input 'y'"),
    ],
)
def test_a_lone_input_that_is_none(run: Run, text: str, said: str) -> None:
    code, _, err = run("chain.pte", "--input", text)

    assert code == 2
    assert said in err
