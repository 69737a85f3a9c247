"""Paths that a config or a command line names are read only if they are files: a pipe would be waited for, for ever."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from config.support import MINIMAL, load, problems
from etdev.cli import app
from etdev.config.module_files import defined_names
from etdev.config.parsing.document import MAX_BYTES
from etdev.config.references import check_references
from etdev.errors import EtdevError
from etdev.execution.arrays import read_arrays
from etdev.files import SpecialFileError, file_sha256, open_file, read_file
from etdev.inspection.diff import diff
from etdev.inspection.inspect import inspect_memory
from etdev.inspection.provenance import provenance
from etdev.pipeline.cache.digests import Digests
from etdev.program import write
from etdev.program.mapped import map_file
from etdev.program.sidecar import read_sidecar
from etdev.verification.verify_file import verify_files
from support.files import chain

SAID = "this is a pipe, a device or a socket"


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    """End a process that waits: no process ever writes into these pipes."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise AssertionError("it waits for a pipe")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, 20)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def _pipe(folder: Path, name: str) -> Path:
    os.mkfifo(folder / name)
    return folder / name


@pytest.mark.parametrize("read", [open_file, read_file, file_sha256, Digests().of])
def test_what_is_no_file_is_refused(read: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(_pipe(tmp_path, "pipe"))
    for place in (tmp_path / "pipe", tmp_path / "link", Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(SpecialFileError, match=SAID):
            read(place)
    with pytest.raises(IsADirectoryError):
        read(tmp_path)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("a.pte", map_file),
        ("a.pte", inspect_memory),
        ("a.pte", lambda path: verify_files([path])),
        ("a.pte", lambda path: diff(path, path)),
        ("a.json", read_sidecar),
        ("a.npy", read_arrays),
        ("a.safetensors", read_arrays),
    ],
    ids=["--data", "inspect", "verify", "diff", "sidecar", "--input", "--input safetensors"],
)
def test_files_of_the_command_line(name: str, read: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(EtdevError, match=SAID) as refused:
        read(_pipe(tmp_path, name))
    assert refused.value.hint == "name a regular file"


def test_extends_names_a_pipe(tmp_path: Path) -> None:
    _pipe(tmp_path, "below.toml")
    (found,) = problems(tmp_path, 'extends = "below.toml"\n' + MINIMAL)
    assert found.where == "etdev.toml:1:11"
    assert found.message == f"`extends` names `below.toml`: cannot read the file: {SAID}"
    assert found.hint == "name a regular file"


def test_a_config_that_is_a_pipe(tmp_path: Path) -> None:
    _pipe(tmp_path, "etdev.yaml")
    (found,) = problems(tmp_path, None, "etdev.yaml")
    assert (found.where, found.message) == ("etdev.yaml", f"cannot read the file: {SAID}")


def test_a_config_that_is_too_large_says_the_limit(tmp_path: Path) -> None:
    (tmp_path / "below.toml").write_text("#" * (MAX_BYTES + 1))
    (found,) = problems(tmp_path, 'extends = "below.toml"\n' + MINIMAL)
    assert "the file is larger than 256 KiB, the maximum size of a config" in found.message


def test_files_that_a_config_names(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def make(): ...\n")
    for name in ("weights.safetensors", "data.bin", "ops.yaml"):
        _pipe(tmp_path, name)
    text = MINIMAL.replace('make"', 'make"\nweights = "weights.safetensors"\ninputs = ["data.bin"]')
    found = check_references(load(tmp_path, text + 'runtime.operators = "ops.yaml"\n'))
    assert [(problem.key, problem.message) for problem in found.wrong] == [
        ("model.weights", f"`model.weights`: {tmp_path}/weights.safetensors is a pipe, a device or a socket"),
        ("model.inputs[0]", f"`model.inputs[0]`: {tmp_path}/data.bin is a pipe, a device or a socket"),
        (
            "targets.cpu.runtime.operators",
            f"`targets.cpu.runtime.operators`: {tmp_path}/ops.yaml is a pipe, a device or a socket",
        ),
    ]


def test_files_beside_a_program_are_not_waited_for(tmp_path: Path) -> None:
    _pipe(tmp_path, "report.json")
    assert "cannot be read" in str(provenance(tmp_path / "a.pte", ""))
    assert defined_names(_pipe(tmp_path, "model.py")) is None


def test_weights_that_are_a_pipe(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from etdev.pipeline.stages.load.weights import load_weights

    with pytest.raises(EtdevError, match=SAID):
        load_weights(torch.nn.Linear(1, 1), _pipe(tmp_path, "w.safetensors"), "etdev.toml:4:11")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("inspect loop.pte", 2),
        ("relink loop.pte -o x.pte", 2),
        ("relink ok.pte -o loop/x.pte", 4),
        ("relink ok.pte --data loop.pte -o x.pte", 2),
        ("diff ok.pte loop.pte", 2),
        ("report loop.pte", 2),
        ("inspect ok.pte --output json=loop", 0),
        ("validate loop.pte", 2),
        ("validate loop.pte/x.toml", 2),
        ("build -c loop.pte", 2),
        ("init loop.pte --yes", 4),
        ("init loop.pte/x --yes", 4),
    ],
)
def test_a_link_to_itself_is_an_error_with_its_name(
    command: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each ended with 70: to follow such a link raises an error of its own kind. A file may replace it."""
    for name in ("loop.pte", "loop"):
        (tmp_path / name).symlink_to(name)
    write(chain(2), tmp_path / "ok.pte")
    monkeypatch.chdir(tmp_path)
    assert app.run(command.split()) == code
    said = capsys.readouterr().err
    assert ("loop" in said) == (code != 0)
    assert "bug in etdev" not in said
