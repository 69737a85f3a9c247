"""E5, E2: `verify` and `deploy` say when config, code or weights are not any more what the file was built from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("executorch", reason="needs the extra `build`")

import etdev
from etdev.cli import app
from etdev.errors import DeployError
from etdev.pipeline.api import open_project
from etdev.pipeline.since_built import SinceBuilt, since_built
from support.projects import LINEAR, LINEAR_CONFIG, write_project

pytestmark = pytest.mark.integration

MORE = """
    [targets.cpu.memory]
    planner = "best"
    [profiles.apart.targets.cpu.inplace]
    ops = "none"
    [profiles.strict.targets.cpu.verify]
    atol = 1.0
    [deploy.here]
    target = "cpu"
    uri = "file:served"
"""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that is built and verified."""
    folder = tmp_path_factory.mktemp("since")
    etdev.build(write_project(folder, LINEAR_CONFIG + MORE, model=f"    import sizes\n{LINEAR}", sizes="", unused=""))
    return folder


@pytest.fixture
def built(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, with what was built: the working folder."""
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def since(folder: Path, profile: str | None = None) -> SinceBuilt:
    project = open_project(folder / "etdev.toml", profile=profile, environ={})
    return since_built(project, "cpu")


def append(name: str, text: str = "\n# more\n") -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text((folder / name).read_text() + text)


def replaced(old: str, new: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        config = folder / "etdev.toml"
        assert old in config.read_text()
        config.write_text(config.read_text().replace(old, new))

    return change


def test_nothing_has_changed(built: Path) -> None:
    found = since(built)
    assert (found.changed, found.missing, found.said, found.unknown) == ((), (), None, None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (append("model.py"), "model.py has changed"),
        (append("sizes.py"), "sizes.py has changed"),
        (replaced('"best"', '"naive"'), 'targets.cpu.memory.planner is "naive", and was not set'),
    ],
    ids=["code", "an import", "a setting"],
)
def test_what_has_changed_is_named(change: Callable[[Path], object], said: str, built: Path) -> None:
    change(built)
    found = since(built)
    assert said in "; ".join(found.changed)
    assert found.said is not None
    assert found.said.startswith("since it was built, ")
    assert found.said.endswith(": run `etdev build cpu` to build it again")


def test_the_command_names_a_config_that_is_not_the_default(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reproducer: the command was printed without `-c`, and failed in the folder of the user."""
    append("model.py")(built)
    monkeypatch.chdir(built.parent)
    said = since(built).said
    assert said is not None
    assert said.endswith(f": run `etdev build -c {built.name}/etdev.toml cpu` to build it again")


@pytest.mark.parametrize("change", [append("unused.py"), append("etdev.toml")], ids=["a file not read", "a comment"])
def test_what_does_not_matter(change: Callable[[Path], object], built: Path) -> None:
    change(built)
    assert since(built).said is None


def test_versions_do_not_matter(built: Path) -> None:
    """A program is deployed where neither torch nor executorch are."""
    lock = built / "etdev.lock"
    lock.write_text(lock.read_text().replace('torch = "2', 'torch = "1'))
    assert since(built).said is None


def test_a_file_that_is_not_here_is_unknown(built: Path) -> None:
    (built / "model.py").unlink()
    found = since(built)
    assert found.said is None
    assert found.unknown is not None
    assert "model.py does not exist any more" in found.unknown


@pytest.mark.nightly
def test_another_build_is_known_by_the_cache(built: Path) -> None:
    """Builds of a profile are not in the lock."""
    etdev.build(built / "etdev.toml", profile="apart")
    assert since(built, "apart").said is None
    assert since(built).changed == ('targets.cpu.inplace.ops is not set, and was "none"',)


@pytest.mark.nightly
def test_of_two_builds_of_the_same_bytes_the_nearest_counts(built: Path) -> None:
    """What the lock knows of the same file may be older: a build with a profile does not write it."""
    append("model.py")(built)
    etdev.build(built / "etdev.toml", profile="strict")
    assert since(built).said is None


def test_a_file_that_nobody_knows(built: Path) -> None:
    append("model.py")(built)
    (built / "etdev.lock").unlink()
    assert since(built).said is None


@pytest.mark.nightly
def test_external_weights_tell_builds_of_the_same_program_apart(tmp_path: Path) -> None:
    """The cache knows builds from both versions of the code, whose programs are equal byte by byte."""
    external = "    [targets.cpu]\n    external_weights = 'w.ptd'\n"
    config = write_project(tmp_path, LINEAR_CONFIG + external, model=LINEAR)
    first = etdev.build(config)
    model = tmp_path / "model.py"
    model.write_text(model.read_text().replace("manual_seed(1)", "manual_seed(2)"))
    assert etdev.build(config)["cpu"].sha256 == first["cpu"].sha256
    assert since(tmp_path).said is None
    model.write_text(model.read_text().replace("manual_seed(2)", "manual_seed(1)"))
    assert since(tmp_path).changed == ("model.py has changed",)


def test_a_file_that_is_new_in_a_folder_that_was_listed(tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    listing = "    import os\n    os.listdir(os.path.join(os.path.dirname(__file__), 'parts'))\n"
    etdev.build(write_project(tmp_path, LINEAR_CONFIG + "    [targets.cpu]\n", model=listing + LINEAR), verify=False)
    assert since(tmp_path).said is None
    (parts / "new").touch()
    assert since(tmp_path).changed == ("files were added to parts or removed from it",)


def test_a_file_that_cannot_be_read(built: Path) -> None:
    """The command that goes on to read it has words for it."""
    append("model.py")(built)
    artifact = open_project(built / "etdev.toml").artifact("cpu")
    artifact.unlink()
    artifact.mkdir()
    assert since(built).said is None


def test_a_damaged_lock_says_nothing(built: Path) -> None:
    (built / "etdev.lock").write_text("version = [")
    assert since(built).said is None


def test_verify_does_not_blame_the_backend(built: Path) -> None:
    path = built / "model.py"
    assert "relu()" in path.read_text()
    path.write_text(path.read_text().replace("relu()", "tanh()"))
    result = etdev.verify(built / "etdev.toml")["cpu"]
    failed = [check for check in result.checks if check.status == "failed"]
    said = "since it was built, model.py has changed: run `etdev build cpu` to build it again"
    assert [check.name for check in failed] == ["runtime", "replay", "native"]
    assert {check.hint for check in failed} == {said}
    assert result.notes[0] == said


def test_deploy_refuses_unless_told(built: Path) -> None:
    append("model.py")(built)
    config = built / "etdev.toml"
    with pytest.raises(DeployError, match=r"since it was built, model\.py has changed") as caught:
        etdev.deploy(config, "here")
    assert caught.value.hint == "use `--stale` to deploy the files as they were built"
    assert not (built / "served").exists()
    with pytest.raises(DeployError, match=r"model\.py has changed"):
        etdev.deploy(config, "here", dry_run=True)
    assert etdev.deploy(config, "here", stale=True).action == "published"
    assert etdev.deploy(config, "here", rollback=False, stale=True).action == "unchanged"


def test_deploy_says_what_it_cannot_tell(built: Path) -> None:
    """Where only what was built and the config are, it is deployed all the same."""
    (built / "model.py").unlink()
    result = etdev.deploy(built / "etdev.toml", "here", dry_run=True)
    assert [note for note in result.notes if "model.py does not exist any more" in note]
    assert json.loads(result.model_dump_json())["notes"]


@pytest.mark.parametrize("command", ["inspect cpu", "diff cpu cpu", "report cpu --output html=page.html"])
@pytest.mark.sampled(1)
def test_commands_on_a_target_say_it(
    command: str, built: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(built)
    assert app.run(command.split()) == 0
    assert "since it was built" not in capfd.readouterr().err
    etdev.build(built / "etdev.toml", profile="apart")
    assert app.run(command.split()) == 0
    assert "since it was built" not in capfd.readouterr().err, "they take no profile"
    append("model.py")(built)
    assert app.run(command.split()) == 0
    assert "cpu: since it was built, model.py has changed: run `etdev build cpu`" in capfd.readouterr().err


@pytest.mark.parametrize("command", ["inspect cpu", "diff cpu cpu"])
def test_commands_on_a_target_name_overridden_keys(
    command: str, built: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A trial build had replaced the file, and its figures passed for those of the config."""
    monkeypatch.chdir(built)
    assert app.run(["build", "cpu", "--no-verify", "--set", "targets.cpu.memory.planner=naive"]) == 0
    capfd.readouterr()
    assert app.run(command.split()) == 0
    note = 'cpu: it was built with settings that are not from the config: targets.cpu.memory.planner = "naive"'
    assert note in capfd.readouterr().err
    assert app.run(["build", "cpu", "--no-verify"]) == 0
    capfd.readouterr()
    assert app.run(command.split()) == 0
    assert "not from the config" not in capfd.readouterr().err


@pytest.mark.parametrize("command", ["inspect cpu", "run cpu --random"])
@pytest.mark.sampled(1)
def test_commands_on_a_target_say_that_its_file_is_another(
    command: str, built: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One byte of a weight had changed, and a C++ project was made of the file without a word."""
    monkeypatch.chdir(built)
    file = open_project(built / "etdev.toml").artifact("cpu")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert app.run(command.split()) == 0
    assert "cpu: its file is not the one that the build wrote: its sha256 is" in capfd.readouterr().err
