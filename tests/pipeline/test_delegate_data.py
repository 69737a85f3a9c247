"""Data that backends keep in files of their own: each file is an artifact, from emission to deployment. 14."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("executorch", reason="needs the extra `build`")

import etdev
from etdev.errors import EmitError, ExitCode, LinkError, MissingRequirementError, UsageError
from etdev.execution.run import RunOptions, run_file
from etdev.inspection.report.document import file_document
from etdev.pipeline.api import open_project
from etdev.pipeline.cache.lock import LockStaleError
from etdev.pipeline.deployable import make_release
from etdev.pipeline.relink import relink
from etdev.pipeline.results.result import CheckResult, TargetResult
from etdev.program import flat_tensor, read
from etdev.program.data_files.joined import read_joined
from etdev.program.footprint import named_bytes
from etdev.program.model import ScalarType
from etdev.verification.read_back import read_contents
from etdev.verification.verify_file import verify_files
from support.blob_backend import CODE
from support.plugins import Site
from support.projects import LINEAR, LINEAR_CONFIG, SAMPLES, write_project

pytestmark = pytest.mark.integration

TARGETS = """
    samples = "data:samples"
    [targets.apart]
    partitioners = [{ backend = "blob", device = "cuda:0" }]
    [targets.both]
    external_weights = "w.ptd"
    partitioners = [{ backend = "blob", device = "cuda:0", compile_specs = { table_tag = "table.ptd" } }]
"""
WEIGHTS = (32 * 32 + 32) * 4
"""Bytes."""


@pytest.fixture(scope="module", autouse=True)
def blob(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The backend is there."""
    with pytest.MonkeyPatch.context() as patch:
        site = Site(tmp_path_factory.mktemp("site"), patch)
        site.install("blob", {"etdev.backends": {"blob": "support.blob_backend:backend"}})
        yield


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a project that was built."""
    config = write_project(tmp_path_factory.mktemp("data"), LINEAR_CONFIG + TARGETS, model=LINEAR, data=SAMPLES)
    result = etdev.build(config)
    assert result.ok
    return config.parent


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(built, tmp_path / "project"))


def files(folder: Path, target: str) -> tuple[Path, list[Path]]:
    place = folder / "build" / target
    return place / "tiny.pte", sorted(place.glob("*.ptd"))


def reported(folder: Path, target: str) -> TargetResult:
    text = (folder / "build" / target / "report.json").read_text()
    return TargetResult.model_validate(json.loads(text)["targets"][0])


def bytes_check(target: TargetResult) -> CheckResult:
    return next(check for check in target.checks if check.name == "bytes")


def keys(path: Path) -> set[str]:
    return {item.key.rpartition("_")[0][-6:] or item.key for item in flat_tensor.read(path).named_data}


@pytest.mark.parametrize(
    ("target", "names"),
    [("apart", ["aoti_cuda_blob.ptd"]), ("both", ["aoti_cuda_blob.ptd", "table.ptd", "w.ptd"])],
)
def test_every_file_is_written(built: Path, target: str, names: list[str]) -> None:
    program, data = files(built, target)
    assert [path.name for path in data] == names
    (blob,) = flat_tensor.read(data[0]).named_data
    assert blob.key.endswith("_weights_blob")
    assert len(flat_tensor.read(data[0]).segments[0].data) == WEIGHTS
    result = reported(built, target)
    assert [(item.name, item.of_delegates) for item in result.data] == [(name, name != "w.ptd") for name in names]
    assert [item.size for item in result.data] == [path.stat().st_size for path in data]
    assert bytes_check(result).summary.endswith("read back, with its external data")
    table = 32 * 32 * 4 if target == "both" else 0
    assert result.figures is not None
    assert result.figures.weights == WEIGHTS + len(CODE) + table
    assert named_bytes(read_joined(program, data)) == WEIGHTS + len(CODE) + table


def test_the_layout_of_a_tensor_is_kept(built: Path) -> None:
    (table,) = flat_tensor.read(built / "build/both/table.ptd").named_data
    assert table.key == "table"
    assert table.tensor_layout == flat_tensor.TensorLayout(ScalarType.FLOAT, (32, 32), (0, 1))


def test_other_data_stays_where_the_config_says(built: Path) -> None:
    assert named_bytes(read(built / "build/apart/tiny.pte")) == len(CODE)
    assert named_bytes(read(built / "build/both/tiny.pte")) == 0
    assert len(flat_tensor.read(built / "build/both/w.ptd").segments[0].data) == len(CODE)


# Building again


def test_the_cache_puts_every_file_back(folder: Path) -> None:
    etdev.build(folder / "etdev.toml", targets=["both"], verify=False)
    program, data = files(folder, "both")
    before = [path.read_bytes() for path in (program, *data)]
    for path in (program, *data):
        path.write_bytes(b"damaged")
    result = etdev.build(folder / "etdev.toml", targets=["both"], verify=False)["both"]
    assert result.notes[-1] == "unchanged: taken from the cache"
    assert [path.read_bytes() for path in (program, *data)] == before
    config = folder / "etdev.toml"
    config.write_text(config.read_text() + '[targets.both.memory]\nplanner = "naive"\n')
    data[0].unlink()
    result = etdev.build(config, targets=["both"], verify=False)["both"]
    assert any(note.startswith("linked again") for note in result.notes)
    assert [path.read_bytes() for path in data] == before[1:]


def test_the_lock_knows_every_file(folder: Path) -> None:
    lock = folder / "etdev.lock"
    digests = {item.name: item.sha256 for item in reported(folder, "both").data}
    assert all(f'"{name}" = "{digest}"' in lock.read_text() for name, digest in digests.items())
    lock.write_text(lock.read_text().replace(digests["table.ptd"], "0" * 64))
    with pytest.raises(LockStaleError, match=r"both: the data file table.ptd's sha256 is .*, the lock has 0000"):
        etdev.build(folder / "etdev.toml", targets=["both"], verify=False, locked=True)


# Verifying


def test_a_missing_file_is_told(folder: Path) -> None:
    missing = folder / "build/apart/aoti_cuda_blob.ptd"
    missing.unlink()
    (result,) = etdev.verify(folder / "etdev.toml", targets=["apart"]).targets
    assert result.exit_code == ExitCode.BUILD_FAILED
    assert bytes_check(result).summary == (
        f"its data file {missing}: cannot read the external data: there is no such file"
    )


def test_a_file_without_its_data_is_told(folder: Path) -> None:
    """Also where nothing says any more what was built: the notes of the object program know what is looked up."""
    flat_tensor.write(flat_tensor.FlatTensor(), folder / "build/both/table.ptd")
    report = folder / "build/both/report.json"
    report.write_text(report.read_text().replace('"sha256"', '"sha512"'))
    (result,) = etdev.verify(folder / "etdev.toml", targets=["both"]).targets
    assert "'table', which a delegate of method 'forward' needs, is in no file" in bytes_check(result).problems


def test_a_file_alone_lacks_its_data(built: Path, tmp_path: Path) -> None:
    beside, data = files(built, "both")
    assert verify_files([beside]).files[0].status == "good", "the report next to the program names its data"
    program = Path(shutil.copy(beside, tmp_path))
    (found,) = verify_files([program]).files
    check = found.checks[0]
    assert (check.name, check.status, found.status) == ("bytes", "failed", "rejected")
    assert "_so_blob', which the delegate CudaBackend of method 'forward' needs, is in no file" in check.summary
    assert len(check.problems) == 2
    others = {other.name: other.status for other in found.checks}
    assert (others["plan"], others["placement"], others["replay"]) == ("passed", "passed", "not run")
    assert check.hint == "pass each file with missing data as `--data FILE.ptd`"
    assert len(read_contents(program, data[:1]).problems) == 1
    assert not read_contents(program, data).problems


def test_inspect_and_relink_say_it(built: Path, tmp_path: Path) -> None:
    program, data = files(built, "apart")
    (missing,) = etdev.inspect(program).external_data
    assert missing.endswith("_weights_blob")
    assert relink(program, tmp_path / "still.pte").external_data == (missing,)
    result = relink(program, tmp_path / "one.pte", data=data)
    assert (result.external_data, result.data) == ((), (str(data[0]),))
    assert named_bytes(read(tmp_path / "one.pte")) == WEIGHTS + len(CODE)


def test_run_says_it(built: Path) -> None:
    program, data = files(built, "apart")
    with pytest.raises(UsageError, match=r"the program needs weights from another file: '.*_weights_blob'"):
        run_file(program, RunOptions(random=True))
    with pytest.raises(MissingRequirementError, match="CudaBackend"):
        run_file(program, RunOptions(random=True, data=tuple(data)))


def test_a_build_fails_if_a_delegate_looks_up_what_nothing_holds(tmp_path: Path) -> None:
    config = _config('device = "cuda:0", compile_specs = { forget = "ON" }')
    result = etdev.build(write_project(tmp_path, config, model=LINEAR))["apart"]
    assert (result.status, result.exit_code) == ("rejected", ExitCode.BUILD_FAILED)
    assert "_weights_blob', which the delegate CudaBackend of method 'forward' needs" in bytes_check(result).summary


# Shipping


def test_a_release_has_every_file(built: Path) -> None:
    release = make_release(open_project(built / "etdev.toml", environ={}), "both")
    assert [file.name for file in release.manifest.files] == ["tiny.pte", "aoti_cuda_blob.ptd", "table.ptd", "w.ptd"]


def test_the_page_has_every_file(built: Path) -> None:
    (page,) = file_document(built / "build/both/tiny.pte").programs
    assert [file.name for file in page.files] == ["tiny.pte", "aoti_cuda_blob.ptd", "table.ptd", "w.ptd"]
    assert page.without is None
    sections = {file.name: [(part.name, part.items) for part in file.sections[:1]] for file in page.files}
    assert sections["table.ptd"] == [("named data", (("table", 32 * 32 * 4, "looked up by delegates"),))]


# What cannot be


def _config(more: str) -> str:
    return LINEAR_CONFIG + f'\n    [targets.apart]\n    partitioners = [{{ backend = "blob", {more} }}]\n'


def test_a_name_that_leads_elsewhere(tmp_path: Path) -> None:
    config = _config('device = "cuda:0", compile_specs = { blob_tag = "../blob" }')
    project = write_project(tmp_path, config, model=LINEAR)
    with pytest.raises(EmitError, match=r"a file '../blob', which is not a plain file name"):
        etdev.build(project, verify=False)
    assert not (tmp_path / "build/blob.ptd").exists()


def test_two_names_for_one_file(tmp_path: Path) -> None:
    config = _config('device = "cuda:0", compile_specs = { blob_tag = "x", table_tag = "X.ptd" }')
    with pytest.raises(
        EmitError, match=r"backends tag data for the files 'x' and 'X.ptd', but these names are the same file"
    ):
        etdev.build(write_project(tmp_path, config, model=LINEAR), verify=False)


def test_the_name_of_the_external_weights(folder: Path) -> None:
    config = folder / "etdev.toml"
    config.write_text(config.read_text().replace('"w.ptd"', '"Table.ptd"'))
    with pytest.raises(
        LinkError, match=r"`external_weights` is 'Table.ptd', but a backend .* uses that name"
    ) as caught:
        etdev.build(config, targets=["both"], verify=False)
    assert "(targets.both.external_weights)" in str(caught.value.where)
