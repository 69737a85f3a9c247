"""``etdev.lock``: what was built from what, and that it is still so (judging point 2; E2)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

pytest.importorskip("executorch", reason="needs the extra `build`")

import etdev
from etdev.errors import UsageError
from etdev.pipeline.api import open_project
from etdev.pipeline.builder import build as build_module
from etdev.pipeline.cache import locked_facts
from etdev.pipeline.cache.digests import Digests
from etdev.pipeline.cache.lock import Lock, LockStaleError, check_inputs, read_lock
from etdev.pipeline.project.options import BuildOptions
from etdev.pipeline.project.versions import package_version
from support.projects import LINEAR, LINEAR_CONFIG, make_project, write_project

pytestmark = pytest.mark.integration

TARGETS = """
    [targets.cpu]
    [targets.naive.memory]
    planner = "plans:naive"
    [profiles.ci.targets.cpu]
    verify.atol = 1.0
    [profiles.other.targets.cpu]
    memory.alignment = 64
"""
PLANS = """
    import sizes

    def naive(problem):
        return [sum(b.size + -b.size % 16 for b in problem.buffers[:at]) for at in range(len(problem.buffers))]
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with its lock."""
    folder = tmp_path_factory.mktemp("locked")
    config = write_project(folder, LINEAR_CONFIG + TARGETS, model=LINEAR, plans=PLANS, sizes="", unused="")
    etdev.build(config, verify=False)
    return folder


@pytest.fixture
def config(built: Path, tmp_path: Path) -> Path:
    """A copy without what was built."""
    for name in ("etdev.toml", "etdev.lock", "model.py", "plans.py", "sizes.py", "unused.py"):
        (tmp_path / name).write_bytes((built / name).read_bytes())
    return tmp_path / "etdev.toml"


def lock_of(config: Path) -> Lock:
    path = config.with_name("etdev.lock")
    return read_lock(path.read_text(), str(path))


def test_what_a_lock_says(built: Path) -> None:
    lock = lock_of(built / "etdev.toml")
    assert list(lock.targets) == ["cpu", "naive"]
    content = (built / "build" / "naive" / "tiny.pte").read_bytes()
    naive = lock.targets["naive"]
    assert naive.sha256 == hashlib.sha256(content).hexdigest()
    assert naive.figures.file == len(content)
    assert naive.files == {
        name: hashlib.sha256((built / name).read_bytes()).hexdigest() for name in ("model.py", "plans.py", "sizes.py")
    }
    assert set(lock.targets["cpu"].files) == {"model.py"}
    assert naive.settings["targets.this.memory.planner"] == "plans:naive"
    assert naive.versions["executorch"]


@pytest.mark.nightly
def test_equal_inputs_give_equal_locks(built: Path, config: Path) -> None:
    """In another folder, from an empty cache, one target after the other."""
    config.with_name("etdev.lock").unlink()
    etdev.build(config, targets=["naive"], verify=False)
    assert list(lock_of(config).targets) == ["naive"]
    etdev.build(config, targets=["cpu"], verify=False)
    assert config.with_name("etdev.lock").read_bytes() == (built / "etdev.lock").read_bytes()


def test_a_lock_that_holds(config: Path) -> None:
    before = config.with_name("etdev.lock").stat()
    assert etdev.build(config, verify=False, locked=True).ok
    assert etdev.build(config, verify=False, locked=True, profile="ci").ok
    assert etdev.build(config, verify=False).ok
    after = config.with_name("etdev.lock").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def _append(name: str, text: str = "# A comment.\n") -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text((folder / name).read_text() + text)


@pytest.mark.parametrize(
    ("change", "settings", "stale"),
    [
        (_append("model.py"), {}, ["cpu: model.py has changed", "naive: model.py has changed"]),
        (_append("sizes.py"), {}, ["naive: sizes.py has changed"]),
        (_append("unused.py"), {}, []),
        (_append("etdev.toml"), {}, []),
        (
            lambda folder: (folder / "sizes.py").unlink(),
            {},
            ["naive: sizes.py does not exist any more, or cannot be read"],
        ),
        (lambda _: None, {"profile": "other"}, ["cpu: targets.cpu.memory.alignment is 64, and was not set"]),
        (
            lambda _: None,
            {"overrides": ["model.share_state=true"], "targets": ["cpu"]},
            ["cpu: model.share_state is true, and was not set"],
        ),
        (
            _append("etdev.toml", "[targets.new]\n"),
            {"targets": ["new"]},
            ["new: the lock does not have this target; a build enters the targets that pass all checks and limits"],
        ),
    ],
)
@pytest.mark.sampled(3)
def test_what_moved_is_named(
    config: Path, change: Callable[[Path], object], settings: dict[str, object], stale: list[str]
) -> None:
    """Before anything is built."""
    change(config.parent)
    if not stale:
        assert etdev.build(config, verify=False, locked=True).ok
        return
    with pytest.raises(LockStaleError) as caught:
        etdev.build(config, verify=False, locked=True, **settings)  # type: ignore[arg-type]
    assert caught.value.exit_code == 5
    assert [line.strip() for line in caught.value.message.splitlines()[1:]] == stale
    assert not (config.parent / "build").exists()


def test_other_bytes_are_told(config: Path) -> None:
    path = config.with_name("etdev.lock")
    digest = lock_of(config).targets["cpu"].sha256
    path.write_text(path.read_text().replace(digest, "0" * 64))
    with pytest.raises(LockStaleError, match=r"the program's sha256 is .*, the lock has 000000000000…"):
        etdev.build(config, verify=False, locked=True)


def test_another_version_is_told(config: Path) -> None:
    path = config.with_name("etdev.lock")
    now = metadata.version("executorch")
    path.write_text(path.read_text().replace(f'executorch = "{now}"', 'executorch = "1.4.0"'))
    with pytest.raises(LockStaleError, match=rf'executorch is "{now}", and was "1.4.0"'):
        etdev.build(config, verify=False, locked=True)


def _with_packages(monkeypatch: pytest.MonkeyPatch, **installed: str | None) -> None:
    """Have another environment: these packages in these versions, or missing."""

    def version(name: str) -> str | None:
        return installed[name] if name in installed else package_version(name)

    monkeypatch.setattr("etdev.pipeline.project.versions.package_version", version)


@pytest.mark.parametrize("installed", [None, "1.2.3"])
@pytest.mark.parametrize("name", ["openvino", "nncf", "transformers", "safetensors", "triton"])
def test_packages_that_no_build_of_the_target_uses_may_differ(
    config: Path, monkeypatch: pytest.MonkeyPatch, name: str, installed: str | None
) -> None:
    _with_packages(monkeypatch, **{name: installed})
    project = open_project(config)
    check_inputs(project, lock_of(config), {"cpu": locked_facts(project, "cpu")}, Digests())


@pytest.mark.parametrize(
    ("name", "override"),
    [
        ("torchao", "project.name='x'"),
        ("openvino", 'targets.cpu.partitioners=[{ backend = "openvino" }]'),
        ("nncf", 'targets.cpu.partitioners=[{ backend = "openvino" }]'),
        ("triton", 'targets.cpu.partitioners=[{ backend = "cuda" }]'),
        ("safetensors", 'model.weights="w.safetensors"'),
    ],
)
def test_packages_that_a_build_of_the_target_uses_are_locked(
    config: Path, monkeypatch: pytest.MonkeyPatch, name: str, override: str
) -> None:
    _with_packages(monkeypatch, **{name: "1.2.3"})
    project = open_project(config, overrides=[override])
    assert locked_facts(project, "cpu").versions[name] == "1.2.3"


def test_no_lock_is_told(config: Path) -> None:
    config.with_name("etdev.lock").unlink()
    with pytest.raises(LockStaleError, match="there is no lock") as caught:
        etdev.build(config, verify=False, locked=True)
    assert caught.value.where == str(config.with_name("etdev.lock"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<<<<<<< HEAD\n", "this file is not an etdev lock"),
        ("version = 2\n", "this file is not an etdev lock, or is of another version of etdev: version"),
        ("version = 1\n[targets.cpu]\nsha256 = 5\n", "targets.cpu.sha256"),
        ("version = 1\nmore = 1\n", "more: Extra inputs are not permitted"),
    ],
)
def test_a_damaged_lock_is_left_as_it_is(config: Path, text: str, message: str) -> None:
    path = config.with_name("etdev.lock")
    path.write_text(text)
    for locked in (False, True):
        with pytest.raises(UsageError) as caught:
            etdev.build(config, verify=False, locked=locked)
        assert message in caught.value.message
        assert caught.value.where == str(path)
    assert path.read_text() == text


@pytest.mark.nightly
def test_settings_from_elsewhere_are_not_locked(config: Path) -> None:
    before = config.with_name("etdev.lock").read_bytes()
    for settings in ({"profile": "other"}, {"overrides": ["targets.cpu.memory.alignment=32"]}):
        etdev.build(config, targets=["cpu"], verify=False, **settings)  # type: ignore[arg-type]
    assert config.with_name("etdev.lock").read_bytes() == before


@pytest.mark.nightly
def test_a_target_that_misses_a_gate_is_not_locked(config: Path) -> None:
    before = lock_of(config)
    _append("etdev.toml", "[targets.cpu.budget]\nfile = 1\n[targets.cpu.elide]\nviews = false\n")(config.parent)
    assert etdev.build(config).exit_code == 1
    after = lock_of(config)
    assert after.targets == before.targets


@pytest.mark.nightly
def test_a_target_that_is_gone_goes_from_the_lock(config: Path) -> None:
    config.write_text(config.read_text().replace('[targets.naive.memory]\nplanner = "plans:naive"\n', ""))
    etdev.build(config, verify=False)
    assert list(lock_of(config).targets) == ["cpu"]


def test_two_configs_in_one_folder_have_two_locks(config: Path) -> None:
    """Another config keeps its targets in a lock of its own, and takes none out of the first one."""
    before = config.with_name("etdev.lock").read_bytes()
    other = config.with_name("board.toml")
    other.write_text(config.read_text().replace("[targets.naive.memory]", "[targets.board.memory]"))
    etdev.build(other, verify=False, overrides=["targets.cpu.memory.alignment=64"])  # It is not in a lock.
    assert not config.with_name("board.lock").exists()
    etdev.build(other, verify=False)
    assert config.with_name("etdev.lock").read_bytes() == before
    assert list(read_lock(config.with_name("board.lock").read_text(), "").targets) == ["board", "cpu"]
    for place in (config, other):
        assert etdev.build(place, verify=False, locked=True).ok


def test_a_lock_that_stays_as_it_is_needs_no_place_to_write(tmp_path: Path) -> None:
    project = make_project(tmp_path, LINEAR_CONFIG + "\n[targets.cpu]\n")
    (tmp_path / ".etdev.lock.held").mkdir()
    assert "was not written" in "".join(build_module._lock(project, BuildOptions(), None, {}))
    project.lock.write_text("version = 1\n")
    assert list(build_module._lock(project, BuildOptions(), None, {})) == []


def test_what_a_killed_build_left_beside_the_lock_goes(tmp_path: Path) -> None:
    """It was killed after it had written the lock, so the next build has nothing to write."""
    project = make_project(tmp_path, LINEAR_CONFIG + "\n[targets.cpu]\n")
    project.lock.write_text("version = 1\n")
    (tmp_path / ".etdev.lock.held").write_text("123")
    assert list(build_module._lock(project, BuildOptions(), None, {})) == []
    assert not (tmp_path / ".etdev.lock.held").exists()
    assert project.lock.read_text() == "version = 1\n"
