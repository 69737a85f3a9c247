"""``etdev run``: inputs from files, the choice of the runtime, what is said and what is written (E4, B8)."""

from __future__ import annotations

import hashlib
import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cli.running import SIMULATED, Run
from etdev.cli import app
from etdev.errors import MissingRequirementError
from etdev.execution import run as run_module
from etdev.program import model as m
from etdev.program import write
from program.hand import tensor
from support.files import chain, method, program
from support.reports import method_result, write_report


def answers(out: str) -> list[list[dict[str, Any]]]:
    return [call["outputs"] for call in json.loads(out)["calls"]]


X, Y, N = ("--input", "0=x.npy"), ("--input", "1=y.npy"), ("--input", "2=3")


def test_the_text(run: Run) -> None:
    code, out, err = run("scaled.pte", *X, *Y, *N)

    assert (code, err) == (0, "")
    heading, why, outputs, time = out.splitlines()
    assert heading == "scaled.pte  forward, by etdev's interpreter"
    assert why == "  why        it is not here"
    digest = hashlib.sha256(np.arange(30, 34, dtype=np.float32).tobytes()).hexdigest()
    assert outputs == f"  outputs    0  float32 [4]  min 30, max 33, mean 31.5  sha256 {digest[:16]}"
    assert time.startswith("  time       ")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([np.nan] * 4, "all 4 elements NaN or infinite"),
        ([1, 2, np.inf, 3], "min 31, max 33, mean 32, 1 element NaN or infinite"),
    ],
)
def test_what_is_no_number_is_said(run: Run, values: list[float], said: str) -> None:
    np.save("x.npy", np.array(values, dtype=np.float32))
    code, out, _ = run("scaled.pte", *X, *Y, *N)

    assert code == 0
    assert f"  outputs    0  float32 [4]  {said}  sha256 " in out


def test_a_method_that_takes_no_inputs(run: Run) -> None:
    write(program(method([tensor(4, at=0)], [m.KernelCall(1, (0, 0, 0))], inputs=())), Path("alone.pte"))
    code, out, err = run("alone.pte", "--input", "x.npy")
    assert (code, out) == (2, "")
    assert err == "error: --input: method 'forward' has no inputs\nhelp: remove the option `--input`\n"


def test_times_have_a_unit_that_fits(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0, 0, 2.51, 10, 10.0015, 20, 20.0025, 21])
    monkeypatch.setattr(run_module.time, "perf_counter", lambda: next(clock))
    _, out, _ = run("counter.pte", *X, "--repeat", "3")

    assert out.endswith("  time       2.51 s for the first call; 2.00 ms for later calls (median of 2)\n")


@pytest.mark.parametrize(
    ("scalar_type", "shown", "values"),
    [(m.ScalarType.LONG, "3, -5, 7", [3, -5, 7]), (m.ScalarType.BOOL, "true, false, true", [True, False, True])],
)
def test_the_values_of_a_few_integers(
    run: Run, scalar_type: m.ScalarType, shown: str, values: list[int | bool]
) -> None:
    write(program(method([replace(tensor(3, at=0), scalar_type=scalar_type)], [], outputs=(0,))), Path("same.pte"))
    given = ("--input", json.dumps(values))
    code, out, _ = run("same.pte", *given)

    assert (code, f"[3]  values {shown}  sha256 " in out) == (0, True), out
    (output,), *_ = answers(run("same.pte", *given, "--output", "json")[1])
    assert (output["values"], output["largest"]) == (values, max(values))


def test_many_integers_are_figures(run: Run) -> None:
    numbers = replace(tensor(17, at=0), scalar_type=m.ScalarType.LONG)
    write(program(method([numbers], [], outputs=(0,))), Path("same.pte"))
    code, out, _ = run("same.pte", "--input", json.dumps([*range(17)]))
    assert (code, "int64 [17]  min 0, max 16, mean 8" in out) == (0, True)


def test_outputs_are_written_and_told_apart(run: Run) -> None:
    run("scaled.pte", *X, *Y, *N, "--save", "out")
    (first,), *_ = answers(run("scaled.pte", *X, *Y, *N, "--output", "json")[1])
    (other,), *_ = answers(run("scaled.pte", *X, *Y, "--input", "2=4", "--output", "json")[1])

    assert np.load("out/output-0.npy").tolist() == [30, 31, 32, 33]
    assert first["digest"] != other["digest"]


def test_outputs_are_not_written_below_a_file(run: Run) -> None:
    """It ended with 70."""
    Path("out").write_text("")
    code, _, err = run("scaled.pte", *X, *Y, *N, "--save", "out")
    assert code == 4
    assert "out/output-0.npy: cannot write the file: a part of the path is a file, not a folder" in err


def test_an_input_that_is_given_again_begins_the_next_call_on_the_same_state(run: Run) -> None:
    code, out, _ = run("counter.pte", *X, "--input", "0=y.npy", *X, "--output", "json", "--save", "out")

    assert code == 0
    assert [call[0]["largest"] for call in answers(out)] == [3, 13, 16]
    assert [call[0]["saved"] for call in answers(out)] == [f"out/call-{number}.output-0.npy" for number in range(3)]
    assert np.load("out/call-1.output-0.npy").tolist() == [10, 11, 12, 13]


def test_repeated_calls_go_on_with_the_state(run: Run) -> None:
    _, out, _ = run("counter.pte", *X, "--repeat", "3", "--output", "json")

    assert [call[0]["largest"] for call in answers(out)] == [3, 6, 9]


def test_made_up_inputs_depend_on_the_seed_alone(run: Run) -> None:
    digests = [
        answers(run("chain.pte", "--random", "--seed", seed, "--output", "json")[1])[0][0]["digest"] for seed in "001"
    ]

    assert digests[0] == digests[1] != digests[2]


def test_names_stand_in_the_report_beside_the_file(run: Run) -> None:
    described = method_result(inputs=("left: float32 [4]", "right: float32 [4]", "n: int64 []"))
    write_report(Path("scaled.pte").absolute(), artifact="build/cpu/scaled.pte", methods=(described,))
    np.save("shape.npy", np.zeros(2))

    code, _, _ = run("scaled.pte", "--input", "right=y.npy", "--input", "n=3", "--input", "left=x.npy")
    assert code == 0
    _, _, err = run("scaled.pte", "--input", "lefft=x.npy")
    _, _, other = run("scaled.pte", "--input", "0=y.npy", "--input", "right=shape.npy")
    assert "input 'right' is float32 [4], but the value is float64 [2]" in other
    _, _, other = run("scaled.pte", "--input", "0=y.npy")
    assert "there is no value for inputs 'right' and 'n'\n" in other
    assert (
        "method 'forward' has no input 'lefft'\nhelp: did you mean 'left'? use the name or position of an "
        "input: left: float32 [4], right:"
    ) in err


@pytest.mark.parametrize("name", ["values.npz", "values.safetensors"])
def test_files_of_several_inputs(run: Run, name: str) -> None:
    x, y = np.arange(4, dtype=np.float32), np.full(4, 10, dtype=np.float32)
    if name.endswith("npz"):
        np.savez(name, **{"0": x, "1": y})
    else:
        pytest.importorskip("safetensors.torch").save_file({"0": torch.tensor(x), "1": torch.tensor(y)}, name)
    code, out, _ = run("scaled.pte", "--input", name, *N, "--output", "json")

    assert (code, answers(out)[0][0]["largest"]) == (0, 33)
    assert run("scaled.pte", "--input", f"0={name}", "--input", f"1={name}", *N)[0] == 0


@pytest.mark.parametrize("text", ["0 1 2 3", "0,1\n2,3\n", "0, 1, 2, 3"])
def test_numbers_in_a_text(run: Run, text: str) -> None:
    Path("x.txt").write_text(text)

    assert answers(run("scaled.pte", "--input", "0=x.txt", *Y, *N, "--output", "json")[1])[0][0]["largest"] == 33


def test_sizes_below_the_largest(run: Run) -> None:
    np.save("x.npy", np.arange(3, dtype=np.float32))
    np.save("y.npy", np.arange(3, dtype=np.float32))

    assert answers(run("bound.pte", *X, *Y, *N, "--output", "json")[1])[0][0]["shape"] == [3]


def test_other_byte_orders(run: Run) -> None:
    np.save("x.npy", np.arange(4, dtype=">f4"))

    assert answers(run("scaled.pte", *X, *Y, *N, "--output", "json")[1])[0][0]["largest"] == 33


def test_on_simulated_devices(run: Run) -> None:
    code, out, _ = run("two.pte", *X, *SIMULATED, "--output", "json")

    expected = torch.arange(4.0).sin().sin().sin()
    assert code == 0
    assert answers(out)[0][0]["largest"] == pytest.approx(expected.max().item())


def test_tensors_that_the_caller_owns_on_a_device_are_brought_there_and_back(run: Run) -> None:
    code, out, _ = run("resident.pte", *X, "--device-map", "cuda:0=sim", "--output", "json")

    assert code == 0
    assert answers(out)[0][0]["largest"] == pytest.approx(torch.arange(4.0).sin().max().item())


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nowhere.pte", "--random"], 2, "nowhere.pte"),
        (
            ["chain.pte"],
            2,
            (
                "method 'forward' needs inputs, and the file has no samples\nhelp: pass `--input` "
                "(input 0: float32 [4]), or use `--random`"
            ),
        ),
        (["scaled.pte", *X, *Y, *N, *X], 2, "there is no value for inputs 1 and 2 in call 1"),
        (["scaled.pte", *X, "--random"], 2, "--random: `--random` and `--input` cannot be used together"),
        (["scaled.pte", "--input", "3=x.npy"], 2, "method 'forward' has no input '3'"),
        (
            ["scaled.pte", "--input", "x.npy"],
            2,
            "'x.npy' does not state the name of an input\nhelp: write `NAME=x.npy`",
        ),
        (["scaled.pte", "--input", "0=y.npz"], 2, "cannot read input 0: y.npz: No such file"),
        (
            ["scaled.pte", "--input", "0=long.npy"],
            2,
            ("input 0 is float32 [4], but the value is float32 [5]: axis 0 is 5, not 4"),
        ),
        (["bound.pte", "--input", "0=long.npy"], 2, "input 0 is float32 [4] at most, but the value is float32 [5]"),
        (
            ["scaled.pte", "--input", "0=whole.npy"],
            2,
            "input 0 is float32 [4], but the value is int64 [4]\nhelp: convert",
        ),
        (["scaled.pte", "--input", "0=deep.npy"], 2, "input 0 is float32 [4], but the value is float32 [1, 1, 4]"),
        (["scaled.pte", "--input", "0=few.txt"], 2, "input 0 is float32 [4], but few.txt contains 3 numbers"),
        (["scaled.pte", "--input", "0=words.txt"], 2, "input 0: words.txt must contain only numbers\nhelp: separate"),
        (
            ["scaled.pte", "--input", "0=model.onnx"],
            2,
            "input 0: model.onnx is not in a format that etdev can read",
        ),
        (
            ["scaled.pte", "--input", "0=objects.npy"],
            2,
            "input 0: objects.npy contains Python objects, which etdev does not read",
        ),
        (["scaled.pte", "--input", "0=broken.npz"], 2, "input 0: broken.npz is damaged or incomplete\nhelp: write it"),
        (["scaled.pte", "--input", "0=short.npy"], 2, "input 0: short.npy is damaged or incomplete\nhelp: write it"),
        (["scaled.pte", "--input", "0=header.npy"], 2, "input 0: header.npy is damaged or incomplete\nhelp: write it"),
        (["scaled.pte", "--input", "0=empty.npy"], 2, "input 0: empty.npy is not a .npy file\nhelp: write it again"),
        (["scaled.pte", "--input", "text.npz"], 2, "text.npz is not a .npz file\nhelp: write it again: `numpy.savez"),
        (["scaled.pte", "--input", "b.safetensors"], 2, "b.safetensors is damaged or incomplete\nhelp: write it again"),
        (["scaled.pte", "--input", "2=many"], 2, "input 2 must be a single int, but its value is 'many'"),
        (
            ["scaled.pte", "--input", f"2={1 << 63}"],
            2,
            "input 2 must be an integer of 64 bits, but its value is 9223372036854775808",
        ),
        (["scaled.pte", "--input", "0=two.npz"], 2, "two.npz contains 'a', 'b', but no array for input 0"),
        (
            ["scaled.pte", "--random", "--method", "backward"],
            2,
            "the program has no method 'backward'\nhelp: choose one with `--method`: forward",
        ),
        (
            ["scaled.pte", "--random", "--runtime", "fast"],
            2,
            "there is no runtime 'fast'\nhelp: use one of: stock, native, replay",
        ),
        (["scaled.pte", "--random", "--runtime", "stock"], 3, "it is not here\nhelp: remove `--runtime stock`"),
        (
            ["scaled.pte", "--random", "--device-map", "gpu=sim"],
            2,
            "--device-map: 'gpu' is not a device\nhelp: use one of",
        ),
        (
            ["scaled.pte", "--random", "--device-map", "cuda:0"],
            2,
            "--device-map: 'cuda:0' is not a pair `DEVICE=sim` or `DEVICE=DEVICE`\nhelp: write",
        ),
        (["scaled.pte", "--random", "--output", "json=scaled.pte"], 2, "is a file that the command itself reads"),
    ],
)
def test_wrong_usage(run: Run, arguments: list[str], code: int, said: str) -> None:
    np.save("long.npy", np.zeros(5, dtype=np.float32))
    np.save("deep.npy", np.zeros((1, 1, 4), dtype=np.float32))
    np.save("whole.npy", np.zeros(4, dtype=np.int64))
    np.save("objects.npy", np.array([{}], dtype=object))
    np.savez("two.npz", a=np.zeros(4), b=np.zeros(4))
    Path("few.txt").write_text("1 2 3")
    Path("words.txt").write_text("one two")
    Path("broken.npz").write_bytes(b"PK\3\4 and no more")
    whole = Path("x.npy").read_bytes()
    Path("short.npy").write_bytes(whole[:-3])
    Path("header.npy").write_bytes(whole[:20] + b"{((" + whole[23:])
    Path("empty.npy").touch()
    Path("text.npz").write_text("no archive")
    Path("b.safetensors").write_bytes(bytes(40))
    found, out, err = run(*arguments)

    assert (found, out) == (code, "")
    assert said in err
    assert "pickle" not in err


@pytest.mark.parametrize("suffix", ["pt", "pth", "pkl", "bin"])
def test_nothing_is_unpickled(run: Run, suffix: str) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path("spcheck").touch, ()

    Path(f"x.{suffix}").write_bytes(pickle.dumps(Trap()))
    code, _, err = run("scaled.pte", "--input", f"0=x.{suffix}")

    assert (code, Path("spcheck").exists()) == (2, False)
    assert "etdev does not read files like" in err


def test_a_program_that_fails(run: Run) -> None:
    plan = method(
        [tensor(4, at=0), tensor(4, at=16)], [m.KernelCall(0, (0, 0, 1, 1))], operators=(m.Operator("aten::mm", "out"),)
    )
    write(program(plan), "failing.pte")
    code, out, err = run("failing.pte", "--random")

    assert (code, out) == (4, "")
    assert err.startswith("error: failing.pte: the program failed: ")


def test_without_a_device_it_says_how_to_simulate_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etdev.execution.availability.cuda_is_visible", lambda: False)
    code, _, err = run("two.pte", *X)

    assert code == 3
    assert "no CUDA device\nhelp: use `--device-map cuda:0=sim,cuda:1=sim` to simulate cuda:0 and cuda:1\n" in err


@pytest.mark.parametrize(
    ("device_map", "said"),
    [
        ("cuda:0=sim", "the program uses cuda:1, but the device map has entries only for cuda:0"),
        ("cuda:0=sim,cuda:5=sim", "the program uses cuda:1, but the device map has entries only for cuda:0 and cuda:5"),
        ("", "the device map is empty"),
        (",", "the device map is empty"),
        ("cuda:0=sim,", "the device map 'cuda:0=sim,' has an empty pair next to a comma"),
        ("cuda:0=", "'cuda:0=' is not a pair `DEVICE=sim` or `DEVICE=DEVICE`"),
    ],
)
def test_a_device_map_that_does_not_do(run: Run, device_map: str, said: str) -> None:
    code, out, err = run("two.pte", *X, "--device-map", device_map)

    first, hint = err.splitlines()
    assert (code, out, first) == (2, "", f"error: --device-map: {said}")
    assert hint.startswith("help: ")
    assert hint.count("cuda:0=sim,cuda:1=sim") == 1


def test_a_device_that_the_program_does_not_have_is_said(run: Run) -> None:
    code, out, _ = run("two.pte", *X, "--device-map", "cuda:0=sim,cuda:1=sim,cuda:5=sim")

    assert code == 0
    assert "  note       no program uses cuda:5 of the device map; used devices: cuda:0 and cuda:1\n" in out
    assert "used devices: none" in run("chain.pte", "--random", *SIMULATED)[1]
    assert "note" not in run("two.pte", *X, *SIMULATED)[1]


def test_the_stock_runtime_runs_what_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("executorch", reason="executorch brings the stock runtime")
    monkeypatch.chdir(tmp_path)
    write(chain(2), "chain.pte")
    found = {}
    for runtime in ("stock", "replay"):
        assert app.run(["run", "chain.pte", "--random", "--runtime", runtime, "--output", "json"]) == 0
        found[runtime] = json.loads(capfd.readouterr().out)

    assert [result["runtime"] for result in found.values()] == ["stock", "replay"]
    assert found["stock"]["calls"][0]["outputs"][0]["mean"] == pytest.approx(
        found["replay"]["calls"][0]["outputs"][0]["mean"]
    )


def test_a_stock_runtime_that_does_not_start_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoRuntime:
        @property
        def operators(self) -> frozenset[str]:
            raise MissingRequirementError("no such library")

    assert "no such library" in str(run_module._stock_obstacle(chain(1), NoRuntime()))  # type: ignore[arg-type]


CONFIG = """
version = 1
[project]
name = "tiny"
[model]
entry = "model:make"
[methods.forward]
inputs = [{ name = "x", dtype = "float32", shape = [4] }]
[targets.portable]
"""


def test_a_target_is_the_file_that_was_built_for_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "etdev.toml").write_text(CONFIG)
    code, _, err = run("portable", *X)
    assert code == 2
    assert "the target 'portable' was not built" in err
    assert "run `etdev build portable`" in err
    built = tmp_path / "build" / "portable" / "tiny.pte"
    built.parent.mkdir(parents=True)
    write(chain(1), str(built))
    assert run("portable", *X)[0] == 0
    assert run("portable", *X, "-c", "etdev.toml")[0] == 0
    code, _, err = run("portabel", *X)
    assert code == 2
    assert "there is no target 'portabel'\nhelp: did you mean 'portable'?" in err


def test_what_is_neither_a_file_nor_a_target(run: Run) -> None:
    code, _, err = run("portable", *X)
    assert code == 2
    assert "'portable' is not a file, and cannot be a target because this folder has no config" in err
