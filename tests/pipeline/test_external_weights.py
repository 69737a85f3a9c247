"""Weights in a file of their own: built, verified from both files, cached, locked; a wrong file is told. E2."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("executorch", reason="needs the extra `build`")

import torch

import etdev
from etdev import compat
from etdev.errors import ExitCode, ProgramError, UsageError
from etdev.execution.bench import BenchOptions, bench_file
from etdev.execution.run import RunOptions, run_file
from etdev.execution.timing import Thoroughness
from etdev.pipeline.cache.lock import LockStaleError
from etdev.pipeline.relink import relink
from etdev.program import flat_tensor, read
from etdev.program.data_files.external import external_names
from etdev.program.data_files.joined import read_joined
from etdev.program.footprint import constant_bytes, named_bytes
from etdev.runtime.stock import ProgramFailureError, StockRuntime
from etdev.verification.read_back import read_contents
from etdev.verification.verify_file import verify_files
from support.projects import LINEAR, LINEAR_CONFIG, SAMPLES, write_project
from support.stock import shared_runtime

pytestmark = pytest.mark.integration

TARGETS = """
    samples = "data:samples"
    [targets.portable]
    external_weights = "w.ptd"
    selected_operators = true
    [targets.xnnpack]
    external_weights = "w.ptd"
    partitioners = [{ backend = "xnnpack" }]
    verify.accuracy = { fn = "data:score", min = 3 }
    [targets.inside]
"""
WEIGHTS = (32 * 32 + 32) * 4
"""Bytes."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a project that was built."""
    config = write_project(tmp_path_factory.mktemp("external"), LINEAR_CONFIG + TARGETS, model=LINEAR, data=SAMPLES)
    result = etdev.build(config)
    assert result.ok
    (config.parent / "result.json").write_text(result.model_dump_json())
    return config.parent


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(built, tmp_path / "project"))


def pair(folder: Path, target: str) -> tuple[Path, Path]:
    place = folder / "build" / target
    return place / "tiny.pte", place / "w.ptd"


@pytest.mark.parametrize("target", ["portable", "xnnpack"])
def test_what_is_written(built: Path, target: str) -> None:
    program, data = pair(built, target)
    assert constant_bytes(read(program)) + named_bytes(read(program)) == 0
    assert sum(len(segment.data) for segment in flat_tensor.read(data).segments) == WEIGHTS
    joined = read_joined(program, data)
    assert constant_bytes(joined) + named_bytes(joined) >= WEIGHTS
    result = json.loads((program.parent / "report.json").read_text())["targets"][0]
    assert [item["name"] for item in result["data"]] == ["w.ptd"]
    assert (result["size"], result["data"][0]["size"]) == (program.stat().st_size, data.stat().st_size)
    assert result["figures"]["file"] == program.stat().st_size
    assert result["figures"]["weights"] >= WEIGHTS
    checks = {check["name"]: (check["status"], check["summary"]) for check in result["checks"]}
    assert checks["bytes"][1].endswith("read back, with its external data")
    assert checks["runtime"][0] == "passed"


def test_keys_are_the_names_of_the_module(built: Path) -> None:
    program, data = pair(built, "portable")
    names = {item.key: item.tensor_layout and item.tensor_layout.sizes for item in flat_tensor.read(data).named_data}
    assert names == {"layer.weight": (32, 32), "layer.bias": (32,)}
    assert external_names(read(program)) == ("layer.bias", "layer.weight")


def test_a_program_with_weights_inside_names_none(built: Path) -> None:
    program = read(built / "build/inside/tiny.pte")
    assert not any(tensor.extra_tensor_info for _, tensor in program.execution_plan[0].tensors())
    assert not (built / "build/inside/w.ptd").exists()


def test_the_accuracy_runs_both_files(built: Path) -> None:
    result = json.loads((built / "result.json").read_text())["targets"][1]
    checks = {check["name"]: check["status"] for check in result["checks"]}
    assert checks["accuracy"] == "passed"


def test_operators_are_listed(built: Path) -> None:
    assert "aten::linear.out:" in (built / "build/portable/tiny.operators.yaml").read_text()


# Building again


@pytest.mark.nightly
def test_the_cache_puts_both_files_back(folder: Path) -> None:
    etdev.build(folder / "etdev.toml", targets=["portable"], verify=False)
    program, data = pair(folder, "portable")
    before = [path.read_bytes() for path in (program, data, program.with_suffix(".operators.yaml"))]
    for path in (program, data, program.with_suffix(".operators.yaml")):
        path.write_bytes(b"damaged")
    result = etdev.build(folder / "etdev.toml", targets=["portable"], verify=False)["portable"]
    assert result.notes[-1] == "unchanged: taken from the cache"
    assert [path.read_bytes() for path in (program, data, program.with_suffix(".operators.yaml"))] == before


@pytest.mark.nightly
def test_weights_go_inside_without_an_export(folder: Path) -> None:
    program, data = pair(folder, "portable")
    lines = [
        line
        for line in (folder / "etdev.toml").read_text().splitlines()
        if "external_weights" not in line and "selected_operators" not in line
    ]
    etdev.build(folder / "etdev.toml", targets=["portable"], verify=False)
    (folder / "etdev.toml").write_text("\n".join(lines) + "\n")
    result = etdev.build(folder / "etdev.toml", targets=["portable"], verify=False)["portable"]
    assert any(note.startswith("linked again") for note in result.notes)
    assert "export" not in result.seconds
    assert not data.exists()
    assert not program.with_suffix(".operators.yaml").exists()
    assert result.data == ()
    assert constant_bytes(read(program)) >= WEIGHTS


@pytest.mark.nightly
def test_the_lock_knows_the_weights(folder: Path) -> None:
    lock = folder / "etdev.lock"
    digest = json.loads((folder / "result.json").read_text())["targets"][0]["data"][0]["sha256"]
    assert f'"w.ptd" = "{digest}"' in lock.read_text()
    lock.write_text(lock.read_text().replace(digest, "0" * 64))
    with pytest.raises(LockStaleError, match=r"portable: the data file w.ptd's sha256 is .*, the lock has 0000"):
        etdev.build(folder / "etdev.toml", targets=["portable"], verify=False, locked=True)


# A wrong file


def _others(folder: Path) -> Path:
    """Weights of another layer, in a file of the same form."""
    _, data = pair(folder, "portable")
    found = flat_tensor.read(data)
    segments = tuple(
        segment.__class__(segment.offset, flat_tensor.reader.Blob(bytes(len(segment.data))))
        for segment in found.segments
    )
    other = folder / "other.ptd"
    flat_tensor.write(flat_tensor.FlatTensor(segments, found.named_data), other)
    return other


def test_other_weights_are_told(folder: Path) -> None:
    _, data = pair(folder, "portable")
    shutil.copy(_others(folder), data)
    result = etdev.verify(folder / "etdev.toml", targets=["portable"])["portable"]
    assert result.exit_code == ExitCode.BUILD_FAILED
    checks = {check.name: check for check in result.checks}
    assert checks["bytes"].summary.startswith(
        "the file or its data has changed since the build: its data file w.ptd differs: its sha256 is "
    )
    assert checks["runtime"].status == "failed"


def test_weights_of_another_target_are_told(folder: Path) -> None:
    shutil.copy(pair(folder, "xnnpack")[1], pair(folder, "portable")[1])
    checks = etdev.verify(folder / "etdev.toml", targets=["portable"])["portable"].checks
    assert any(
        "'layer.weight', the data of value 0 of method 'forward', is missing" in problem
        for problem in checks[0].problems
    )


def test_missing_weights_are_told(folder: Path) -> None:
    pair(folder, "portable")[1].unlink()
    (result,) = etdev.verify(folder / "etdev.toml", targets=["portable"]).targets
    assert result.status == "rejected"
    missing = pair(folder, "portable")[1]
    assert f"its data file {missing}: cannot read the external data: there is no such file" in (
        result.checks[0].summary
    )


# Files


def outputs(runtime: StockRuntime, file: Path, data: tuple[Path, ...], *, shared: bool = False) -> torch.Tensor:
    assert runtime.load(file, data=data, shared=shared) == ("forward",)
    (found,) = runtime.call("forward", [torch.linspace(-1, 1, 64).view(2, 32)])
    return found


@pytest.mark.parametrize("target", ["portable", "xnnpack"])
def test_the_stock_runtime_takes_both_files(built: Path, target: str, tmp_path: Path) -> None:
    """As they are; joined, for the loader that gives methods the same memory; and joined by relink."""
    program, data = pair(built, target)
    result = relink(program, tmp_path / "one.pte", data=data)
    assert (result.external_data, result.data) == ((), (str(data),))
    assert not external_names(read(tmp_path / "one.pte"))
    runtime = shared_runtime()
    expected = outputs(runtime, built / "build/inside/tiny.pte", ())
    for found in (
        outputs(runtime, program, (data,)),
        outputs(runtime, program, (data,), shared=True),
        outputs(runtime, tmp_path / "one.pte", ()),
    ):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_the_stock_runtime_is_not_given_data_that_do_not_fit(built: Path) -> None:
    """It would end in a crash: a delegate of XNNPACK does not look whether its data is there."""
    (program, _), (_, data) = pair(built, "portable"), pair(built, "xnnpack")
    with pytest.raises(ProgramFailureError, match=r"'layer.weight', the data of value 0 .* is missing"):
        shared_runtime().load(program, data=(data,))


def test_run_by_the_interpreter(built: Path) -> None:
    program, data = pair(built, "portable")
    found = run_file(program, RunOptions(random=True, data=(data,), runtime="replay"))
    assert found.runtime == "replay"
    inside = run_file(built / "build/inside/tiny.pte", RunOptions(random=True, runtime="replay"))
    assert found.calls[0].outputs == inside.calls[0].outputs


@pytest.mark.slow
def test_bench(built: Path) -> None:
    program, data = pair(built, "portable")
    quick = Thoroughness(warmup=0, calls=1, seconds=0)
    assert bench_file(program, BenchOptions(random=True, data=(data,), thoroughness=quick)).throughput[0].calls == 1


def test_without_the_option_the_error_says_it(built: Path) -> None:
    program, _ = pair(built, "portable")
    with pytest.raises(UsageError, match=r"weights from another file: 'layer.bias' and 1 more") as caught:
        run_file(program, RunOptions(random=True))
    assert caught.value.hint == "pass that file: `--data FILE.ptd`"


@pytest.mark.parametrize(
    ("target", "needs"),
    [
        ("portable", "'layer.weight', which value 0 of method 'forward' needs, is in no file"),
        ("xnnpack", "', which the delegate XnnpackBackend of method 'forward' needs, is in no file"),
    ],
)
def test_a_program_alone_fails(built: Path, target: str, needs: str) -> None:
    """A delegate of XNNPACK takes the runtime down where its data is not there."""
    program, data = pair(built, target)
    first, *others = read_contents(program).problems
    assert len(others) == 1
    assert needs in first
    with pytest.raises(UsageError, match="the program needs weights from another file"):
        run_file(program, RunOptions(random=True))
    assert not read_contents(program, [data]).problems


def test_data_of_another_program(built: Path) -> None:
    program, _ = pair(built, "portable")
    with pytest.raises(ProgramError, match=r"'layer.weight', the data of value 0 .* is missing") as caught:
        run_file(program, RunOptions(random=True, data=(pair(built, "xnnpack")[1],)))
    assert caught.value.where == str(pair(built, "xnnpack")[1])
    assert f"written with {program}" in (caught.value.hint or "")


@pytest.mark.slow
def test_verify_of_a_file(built: Path) -> None:
    program, data = pair(built, "portable")
    (found,) = verify_files([program], data=(data,)).files
    assert {check.name: check.status for check in found.checks if check.status == "passed"}.keys() >= {
        "bytes",
        "replay",
    }


SHARED = """
    import torch
    from torch import nn

    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(2)
            self.layer = nn.Linear(4, 4)
            self.register_buffer("sum", torch.full((4,), 2.0))

        def forward(self, x):
            self.sum.add_(self.layer(x))
            return self.sum * 1

        def peek(self, x):
            return self.layer(x) + self.sum
"""
SESSIONS = """
    import torch

    def sessions():
        return [[("forward", (torch.ones(4),)), ("peek", (torch.ones(4),)), ("forward", (torch.ones(4),))]]
"""


@pytest.mark.nightly
def test_methods_that_share_state_and_weights(tmp_path: Path) -> None:
    """Verification joins them for the runtime, whose loader took no data file before executorch 1.5."""
    config = write_project(
        tmp_path,
        """
        version = 1
        [project]
        name = "tiny"
        [model]
        entry = "model:Shared"
        share_state = true
        [methods.forward]
        inputs = [{ name = "x", dtype = "float32", shape = [4] }]
        [methods.peek]
        inputs = [{ name = "x", dtype = "float32", shape = [4] }]
        [targets.portable]
        external_weights = "w.ptd"
        verify.sessions = "data:sessions"
        """,
        model=SHARED,
        data=SESSIONS,
    )
    result = etdev.build(config)["portable"]
    assert result.status == "built"
    assert "1 session of 3 calls" in next(check.summary for check in result.checks if check.name == "runtime")
    program, data = pair(tmp_path, "portable")
    assert {item.key for item in flat_tensor.read(data).named_data} >= {"layer.weight", "layer.bias"}
    assert read(program).mutable_data_segments
    if compat.installed() != "1.4.1":
        one = torch.ones(4)
        runtime = shared_runtime()
        runtime.load(program, data=(data,), shared=True)
        expected = [runtime.call(name, (one,))[0].tolist() for name in ("forward", "peek", "forward")]
        done = subprocess.run(
            [sys.executable, "-c", IN_PYTHON, str(program), str(data)], capture_output=True, text=True, check=True
        )
        assert json.loads(done.stdout) == expected


TIED = """
    import torch
    from torch import nn

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(64, 32)
        def forward(self, ids):
            return nn.functional.linear(self.table(ids), self.table.weight)
        def embed(self, ids):
            return self.table(ids) * 2
"""


def test_weights_that_kernels_and_delegates_use_count_as_often_as_they_are_stored(tmp_path: Path) -> None:
    """XNNPACK and the kernel of an embedding have the same weight: twice in a program, once in a data file."""
    config = write_project(
        tmp_path,
        """
        version = 1
        [project]
        name = "tiny"
        [model]
        entry = "model:Tied"
        [methods.forward]
        inputs = [{ name = "ids", dtype = "int64", shape = [1, 8] }]
        samples = "data:ids"
        [methods.embed]
        inputs = [{ name = "ids", dtype = "int64", shape = [1, 8] }]
        samples = "data:ids"
        [targets.portable]
        partitioners = [{ backend = "xnnpack" }]
        external_weights = "w.ptd"
        budget.weights = 9000
        [targets.inside]
        partitioners = [{ backend = "xnnpack" }]
        budget.weights = 9000
        """,
        model=TIED,
        data="import torch\ndef ids():\n    yield (torch.arange(8).reshape(1, 8),)\n",
    )
    result = etdev.build(config)
    table = 64 * 32 * 4
    apart, inside = result["portable"], result["inside"]
    assert apart.figures is not None
    assert inside.figures is not None
    stored = sum(len(segment.data) for segment in flat_tensor.read(pair(tmp_path, "portable")[1]).segments)
    assert table <= apart.figures.weights == stored < table + 256
    assert inside.figures.weights == stored + table
    assert (apart.status, inside.status) == ("built", "gate failed")
    (budget,) = (check for check in inside.checks if check.name == "budget")
    assert "table.weight" not in budget.summary
    assert etdev.verify(config, targets=["portable"])["portable"].status == "built"


IN_PYTHON = """
import json, sys
from pathlib import Path
import torch
from executorch.runtime import Runtime
program = Runtime.get().load_program(Path(sys.argv[1]), data_path=Path(sys.argv[2]))
methods = {name: program.load_method(name) for name in ("forward", "peek")}
calls = [methods[name].execute([torch.ones(4)])[0].tolist() for name in ("forward", "peek", "forward")]
print(json.dumps(calls))
"""
"""The calls that docs/deploy.md describes for a program with a data file and shared state."""


RETURNED = """
    import torch
    from torch import nn

    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(32, 32)
            self.register_buffer("k", torch.arange(6.0))
        def forward(self, x):
            return self.layer(x), self.k
"""


@pytest.mark.nightly
def test_a_returned_constant_stays_in_the_program(tmp_path: Path) -> None:
    """From a data file, ExecuTorch's loader would return empty memory, and the checks would reject the build."""
    config = write_project(
        tmp_path, LINEAR_CONFIG + TARGETS.replace("    verify.accuracy = { fn = \"data:score\", min = 3 }\n", ""),
        model=RETURNED, data=SAMPLES,
    )  # fmt: skip
    result = etdev.build(config)
    assert result.ok, result
    for target in ("portable", "xnnpack"):
        assert "k" not in external_names(read(tmp_path / "build" / target / "tiny.pte"))
        assert tmp_path.joinpath("build", target, "w.ptd").stat().st_size > WEIGHTS
