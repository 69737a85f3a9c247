"""E1: what a config names next to it is looked for, and nothing of it is imported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from config.support import MINIMAL, load
from etdev.cli import app
from etdev.config.references import References, check_references

RAISES = "raise RuntimeError('validate runs no code')\n"
MODEL = RAISES + "def make(): ...\n"
LOCAL = MINIMAL.replace('entry = "model:make"', 'hf = "./net"')


def _check(folder: Path, text: str, files: Mapping[str, str]) -> References:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return check_references(load(folder, text))


ABSENT = {
    "weights": (
        MINIMAL.replace('make"', 'make"\nweights = "wieghts.safetensors"'),
        {"model.py": MODEL, "weights.safetensors": ""},
        "4:11",
        "`model.weights`: there is no file {folder}/wieghts.safetensors",
        'did you mean "weights.safetensors"?',
    ),
    "a file that the model reads": (
        MINIMAL.replace('make"', 'make"\ninputs = ["model.py", "data/vocab.txt"]'),
        {"model.py": MODEL},
        "4:23",
        "`model.inputs[1]`: there is no file {folder}/data/vocab.txt",
        "make or download it before the build",
    ),
    "a saved program": (
        "version = 1\n[model]\npt2 = 'm.pt2'\ntrust = true\n[targets.cpu]\n",
        {},
        "3:7",
        "`model.pt2`: there is no file {folder}/m.pt2",
        "make or download it before the build",
    ),
    "a transformers directory": (
        LOCAL,
        {"net/model.safetensors": ""},
        "3:6",
        "`model.hf`: there is no file {folder}/net/config.json",
        "save the model there with model.save_pretrained",
    ),
    "selected operators": (
        MINIMAL + 'runtime.operators = "ops.yaml"\n',
        {"model.py": MODEL},
        "7:21",
        "`targets.cpu.runtime.operators`: there is no file {folder}/ops.yaml",
        "make or download it before the build",
    ),
    "a module": (
        MINIMAL,
        {"modle.py": MODEL},
        "3:9",
        "`model.entry`: there is no module 'model' in {folder}",
        'did you mean "modle"?',
    ),
    "a file in the place of its module": (
        MINIMAL.replace("model:make", "model.py:make"),
        {"model.py": MODEL},
        "3:9",
        "`model.entry`: there is no module 'model.py' in {folder}",
        'did you mean "model"?',
    ),
    "a module of a package that is there": (
        MINIMAL.replace("model:make", "nets.tinny:make"),
        {"nets/tiny.py": MODEL},
        "3:9",
        "`model.entry`: there is no module 'nets.tinny' in {folder}",
        'did you mean "tiny"?',
    ),
    "a module that would be nowhere": (
        MINIMAL + '[project]\nimports = ["etdev_no_such_module"]\n',
        {"model.py": MODEL},
        "8:12",
        "`project.imports[0]`: there is no module 'etdev_no_such_module' in {folder}, and it is not installed here",
        None,
    ),
}


@pytest.mark.parametrize(("text", "files", "place", "message", "hint"), ABSENT.values(), ids=ABSENT)
def test_what_is_not_there_may_yet_come(
    text: str, files: dict[str, str], place: str, message: str, hint: str | None, tmp_path: Path
) -> None:
    found = _check(tmp_path, text, files)
    (problem,) = found.absent
    assert found.wrong == ()
    assert (problem.where, problem.rule) == (f"etdev.toml:{place}", "missing-file")
    assert (problem.message, problem.hint) == (message.format(folder=tmp_path), hint)


WRONG = {
    "a function that the module lacks": (
        MINIMAL,
        {"model.py": RAISES + "def maker(): ...\n"},
        "`model.entry`: {folder}/model.py does not define 'make'",
        'did you mean "maker"?',
    ),
    "a function that the module lacks, with a similar name inside another function": (
        MINIMAL,
        {"model.py": RAISES + "def build():\n    maker = 1\n    return maker\n"},
        "`model.entry`: {folder}/model.py does not define 'make'",
        None,
    ),
    "a folder for weights": (
        MINIMAL.replace('make"', 'make"\nweights = "w.safetensors"'),
        {"model.py": MODEL, "w.safetensors/part": ""},
        "`model.weights`: {folder}/w.safetensors is a folder",
        "use the path of a file in it",
    ),
    "a file for a directory": (
        LOCAL,
        {"net": ""},
        "`model.hf`: {folder}/net is a file",
        "use the path of the directory that has config.json",
    ),
}


@pytest.mark.parametrize(("text", "files", "message", "hint"), WRONG.values(), ids=WRONG)
def test_what_is_there_and_cannot_be_meant_is_an_error(
    text: str, files: dict[str, str], message: str, hint: str, tmp_path: Path
) -> None:
    found = _check(tmp_path, text, files)
    (problem,) = found.wrong
    assert found.absent == ()
    assert (problem.rule, problem.message, problem.hint) == ("reference", message.format(folder=tmp_path), hint)


UNTOLD = {
    "defined": MODEL,
    "a class": "class make: ...\n",
    "assigned in a branch": "if True:\n    make = 3\n",
    "imported": "from other import something as make\n",
    "a star": "from other import *\n",
    "looked up": "def __getattr__(name): ...\n",
    "written into the module": "globals()['ma' + 'ke'] = 3\n",
    "written into its dict": "import sys\nsys.modules[__name__].__dict__['make'] = 3\n",
    "in the module's place": "import sys\nsys.modules[__name__] = type('Namespace', (), {'make': 3})\n",
    "the rest of a match": "match {}:\n    case {**make}: ...\n",
    "no Python": "def (\n",
}


@pytest.mark.parametrize("source", UNTOLD.values(), ids=UNTOLD)
def test_a_name_that_may_be_there_is_not_complained_of(source: str, tmp_path: Path) -> None:
    assert _check(tmp_path, MINIMAL, {"model.py": source}) == References((), ())


@pytest.mark.parametrize("entry", ["json:loads", "nets.tiny:Net.make", "nets:make", "nets:tiny.Net"])
def test_modules_that_are_installed_or_in_packages(entry: str, tmp_path: Path) -> None:
    files = {"nets/__init__.py": "from nets.tiny import make\n", "nets/tiny.py": RAISES + "class Net: ...\n"}
    assert _check(tmp_path, MINIMAL.replace("model:make", entry), files) == References((), ())


def test_a_folder_does_not_hide_an_installed_package(tmp_path: Path) -> None:
    """As for Python: a folder without `__init__.py` comes behind every package."""
    (tmp_path / "json").mkdir()
    assert _check(tmp_path, MINIMAL.replace("model:make", "json.decoder:JSONDecoder"), {}) == References((), ())


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (MINIMAL.replace('make"', f'make"\nweights = "{"w" * 300}.safetensors"'), "model.weights"),
        (MINIMAL.replace("model:make", f"{'m' * 300}:make"), "model.entry"),
    ],
    ids=["a file", "a module"],
)
def test_a_name_that_no_file_can_have_is_absent(text: str, key: str, tmp_path: Path) -> None:
    (problem,) = _check(tmp_path, text, {"model.py": MODEL}).absent
    assert problem.key == key


def test_every_key_that_names_a_module_is_followed(tmp_path: Path) -> None:
    text = MINIMAL.replace("[1, 8] }]", '[1, 8] }]\nsamples = "a:f"') + (
        'verify.accuracy = { fn = "b:f", min = 1 }\nverify.sessions = "c:f"\nmemory.planner = "d:f"\n'
        '[quantize.q]\nscheme = "pt2e-xnnpack"\ncalibration = "e:f"\n'
        '[quantize.r]\nscheme = "pt2e-xnnpack"\ncalibration = { forward = "g:f" }\n'
    )
    found = _check(tmp_path, 'constants = "h:f"\n' + text, {"model.py": MODEL})
    assert {problem.key for problem in found.absent} == {
        "constants",
        "methods.forward.samples",
        "targets.cpu.verify.accuracy.fn",
        "targets.cpu.verify.sessions",
        "targets.cpu.memory.planner",
        "quantize.q.calibration",
        "quantize.r.calibration.forward",
    }


def test_validate_shows_both_kinds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A warning leaves exit code 0, for hooks that run before what makes the file; a mistake gives 2."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "etdev.toml").write_text(MINIMAL.replace('make"', 'make"\nweights = "w.safetensors"'))
    (tmp_path / "model.py").write_text(MODEL)
    assert app.run(["validate"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out == (
        "etdev.toml: ok, 1 warning (1 target, 1 method, 0 profiles)\n"
        f"etdev.toml:4:11: warning: `model.weights`: there is no file {tmp_path}/w.safetensors\n"
        "  help: make or download it before the build\n"
    )
    assert app.run(["validate", "-q"]) == 0
    assert capsys.readouterr().out == captured.out.partition("\n")[2], "a warning is not hidden"
    assert app.run(["validate", "--output", "github", "-q"]) == 0
    assert capsys.readouterr().out.startswith("::warning file=etdev.toml,line=4,col=11,title=etdev%3A missing-file::")
    assert app.run(["validate", "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["problems"], [item["key"] for item in document["warnings"]]) == ([], ["model.weights"])

    for quiet in ([], ["-q"]):
        assert app.run(["validate", "--strict", *quiet]) == 2
        out = capsys.readouterr().out
        assert out == captured.out.replace("ok, 1 warning", "1 warning")
    assert app.run(["validate", "--strict", "--output", "json"]) == 2
    assert len(json.loads(capsys.readouterr().out)["warnings"]) == 1

    (tmp_path / "model.py").write_text("def build(): ...\n")
    assert app.run(["validate"]) == 2
    assert capsys.readouterr().err.startswith("error: etdev.toml:3:9: `model.entry`: ")


def test_strict_takes_a_config_without_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "etdev.toml").write_text(MINIMAL)
    (tmp_path / "model.py").write_text(MODEL)
    assert app.run(["validate", "--strict"]) == 0
    assert capsys.readouterr().out == "etdev.toml: ok (1 target, 1 method, 0 profiles)\n"
