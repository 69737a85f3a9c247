"""docs/models.md: its files are what its commands need, and its commands do what it says (E2, E3)."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from etdev.config.references import check_references
from etdev.pipeline.api import open_project
from support.commands import run_etdev
from support.stages import load

pytestmark = pytest.mark.integration

torch = pytest.importorskip("torch", reason="needs the extra `build`")

_FILE = re.compile(r"^`(?P<name>[\w.]+)`:\n\n```\w+\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^ {4}(?P<line>(?:python|etdev) .*)$", re.MULTILINE)
_SESSION = re.compile(r"^\$ etdev (?P<arguments>.*)\n(?P<output>(?:(?!```).+\n)+)", re.MULTILINE)


@pytest.fixture
def page(repository: Path) -> str:
    return (repository / "docs" / "models.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(page: str, tmp_path: Path) -> Path:
    """A project of the page's files."""
    for match in _FILE.finditer(page):
        (tmp_path / match["name"]).write_text(match["text"], encoding="utf-8")
    return tmp_path


def _model(folder: Path) -> torch.nn.Module:
    (folder / "seed.toml").write_text(
        (folder / "etdev.toml").read_text().replace('weights = "weights.safetensors"\n', "")
    )
    return load(open_project(folder / "seed.toml", environ={})).module


def _convert(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "convert.py", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_configs_are_valid_and_name_what_the_page_makes(folder: Path) -> None:
    assert {file.name for file in folder.glob("*.toml")} == {"etdev.toml", "hf.toml", "pt2.toml"}
    absent = {
        name: [problem.key for problem in check_references(open_project(folder / name, environ={}).loaded).absent]
        for name in ("etdev.toml", "hf.toml", "pt2.toml")
    }
    assert absent == {"etdev.toml": ["model.weights"], "hf.toml": ["model.hf"], "pt2.toml": ["model.pt2"]}


@pytest.mark.nightly
def test_every_prefix_of_the_table_is_converted(page: str, folder: Path) -> None:
    """A state by itself and one among other things, shared tensors included, become weights that the model takes."""
    model = _model(folder)
    prefixes = re.findall(r"^\| `(.*)convolve\.weight` \|.*\| (?:`(.*)`|none) \|$", page, re.MULTILINE)
    assert {found for found, _ in prefixes} == {"", "module.", "model.", "_orig_mod."}
    assert all(found == stated for found, stated in prefixes)
    for found, stated in (prefixes[0], prefixes[-1]):
        state = {f"{found}{name}": tensor for name, tensor in model.state_dict().items()}
        torch.save({"state_dict": state, "epoch": 3} if found else state, folder / "checkpoint.pt")
        done = _convert(folder, "checkpoint.pt", "weights.safetensors", *([stated] if stated else []))
        assert done.returncode == 0, done.stderr
        loaded = load(open_project(folder / "etdev.toml", environ={})).module
        assert all(torch.equal(value, model.state_dict()[name]) for name, value in loaded.state_dict().items())


@pytest.mark.nightly
def test_tensors_that_share_memory_are_converted(folder: Path) -> None:
    shared = torch.ones(3, 2)
    torch.save({"embedding.weight": shared, "head.weight": shared}, folder / "checkpoint.pt")
    assert _convert(folder, "checkpoint.pt", "w.safetensors").stdout == "2 tensors: embedding.weight, head.weight ...\n"


def test_a_checkpoint_of_other_objects_is_refused(folder: Path) -> None:
    torch.save({"state_dict": {}, "options": Path("data")}, folder / "checkpoint.pt")
    done = _convert(folder, "checkpoint.pt", "weights.safetensors")
    assert done.returncode != 0
    assert "Weights only load failed" in done.stderr
    assert not (folder / "weights.safetensors").exists()


@pytest.mark.slow
@pytest.mark.nightly
def test_its_commands_work(page: str, folder: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs the extra `hf`")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    transformers.BertModel(transformers.BertConfig(vocab_size=20, **sizes)).save_pretrained(folder / "bert")
    state = {f"module.{name}": tensor for name, tensor in _model(folder).state_dict().items()}
    torch.save({"state_dict": state}, folder / "checkpoint.pt")
    for match in _COMMAND.finditer(page):
        program, *arguments = shlex.split(match["line"])
        done = (
            run_etdev(*arguments, folder=folder)
            if program == "etdev"
            else subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False)
        )
        assert done.returncode == 0, (match["line"], done.stderr)
    assert list((folder / "build" / "cpu").glob("*.pte"))
    (session,) = _SESSION.finditer(page)
    done = run_etdev(*shlex.split(session["arguments"]), folder=folder)
    assert (done.returncode, done.stderr) == (4, session["output"])
