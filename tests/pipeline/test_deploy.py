"""E5, B7: what was built becomes a release with a manifest, or is refused; ``etdev.deploy`` brings it to its place."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import etdev
from etdev.deployment.manifest import parse_manifest
from etdev.errors import DeployError, ExitCode, MissingRequirementError, UsageError
from etdev.pipeline.api import open_project
from etdev.pipeline.deploy import DeployResult, list_project
from etdev.pipeline.deployable import make_release
from etdev.pipeline.project import Project
from etdev.pipeline.results.result import CheckResult, DataFile, outcome
from etdev.program import Program, write
from support.files import chain, delegated
from support.on_devices import two_devices
from support.projects import LINEAR_CONFIG, write_project
from support.reports import method_result, write_report

CONFIG = (
    LINEAR_CONFIG
    + """
    [targets.cpu]
    [deploy.here]
    target = "cpu"
    uri = "file:served"
    keep = 1
    """
)
PASSED = (
    CheckResult(name="bytes", status="passed", summary="1 method read back"),
    CheckResult(name="replay", status="not run", summary="there is no torch"),
)


def built(folder: Path, program: Program | None = None, checks: tuple[CheckResult, ...] = PASSED, **more: Any) -> Path:
    """A project whose target ``cpu`` was built into this program with these checks; its config."""
    config = write_project(folder, CONFIG)
    place = folder / "build" / "cpu" / "tiny.pte"
    place.parent.mkdir(parents=True, exist_ok=True)
    write(program or chain(2), place)
    write_report(
        place,
        versions={"etdev": "0.1.0", "python": "3.11.7", "torch": "2.13.0", "executorch": "1.4.1", "numpy": "2.3.5"},
        status=outcome(checks),
        methods=(method_result(libraries=("portable", "optimized")),),
        memory={"cpu": 640, "cuda:0": 64},
        checks=checks,
        **more,
    )
    return config


def opened(config: Path) -> Project:
    return open_project(config, environ={})


class TestManifest:
    def test_what_it_says(self, tmp_path: Path) -> None:
        weights = DataFile(name="tiny.ptd", size=7, sha256=hashlib.sha256(b"weights").hexdigest())
        config = built(tmp_path, data=(weights,))
        content = (tmp_path / "build/cpu/tiny.pte").read_bytes()
        (tmp_path / "build/cpu/tiny.ptd").write_bytes(b"weights")
        (tmp_path / "build/cpu/other.ptd").write_bytes(b"of an earlier build")
        (tmp_path / "build/cpu/tiny.operators.yaml").write_bytes(b"not for the target")
        (tmp_path / "build/cpu/tiny.etrecord").write_bytes(b"not for the target")
        (tmp_path / "etdev.lock").write_bytes(b"locked")

        release = make_release(opened(config), "cpu")

        assert json.loads(release.content) == {
            "format": 1,
            "project": "tiny",
            "target": "cpu",
            "program": "tiny.pte",
            "files": [
                {"name": "tiny.pte", "size": len(content), "sha256": hashlib.sha256(content).hexdigest()},
                {"name": "tiny.ptd", "size": 7, "sha256": hashlib.sha256(b"weights").hexdigest()},
            ],
            "versions": {"etdev": "0.1.0", "python": "3.11.7", "torch": "2.13.0", "executorch": "1.4.1"},
            "needs": {
                "executorch": "1.4.1",
                "devices": [],
                "operators": ["aten::add.out", "aten::cos.out", "aten::sin.out"],
                "delegates": [],
                "libraries": ["optimized", "portable"],
                "memory": {"cpu": 640, "cuda:0": 64},
            },
            "verification": [
                {"name": "bytes", "status": "passed", "summary": "1 method read back"},
                {"name": "replay", "status": "not run", "summary": "there is no torch"},
            ],
            "lock": hashlib.sha256(b"locked").hexdigest(),
        }
        assert release.sources["tiny.ptd"].read_bytes() == b"weights"
        assert parse_manifest(release.content) == release.manifest

    def test_devices_and_delegates_are_those_of_the_file(self, tmp_path: Path) -> None:
        on_devices = make_release(opened(built(tmp_path / "a", two_devices())), "cpu").manifest.needs
        assert on_devices.devices == ("cuda:0", "cuda:1")
        assert on_devices.delegates == ("EtdevReferenceBackend",)
        assert make_release(opened(built(tmp_path / "b", delegated())), "cpu").manifest.needs.delegates == (
            "XnnpackBackend",
        )

    def test_it_depends_on_content_alone(self, tmp_path: Path) -> None:
        first, second = (make_release(opened(built(tmp_path / name)), "cpu") for name in "ab")
        assert (first.content, first.digest) == (second.content, second.digest)
        other = make_release(opened(built(tmp_path / "c", chain(3))), "cpu")
        assert other.digest != first.digest


def _no_report(folder: Path) -> None:
    (folder / "report.json").unlink()


def _other_report(folder: Path) -> None:
    (folder / "report.json").write_text('{"format": 2}')


def _other_file(folder: Path) -> None:
    write(chain(5), folder / "tiny.pte")


def _no_file(folder: Path) -> None:
    (folder / "tiny.pte").unlink()


def _rejected_file(folder: Path) -> None:
    (folder / "tiny.pte").rename(folder / "tiny.pte.rejected")


def _failed(check: str, *, gate: bool) -> tuple[CheckResult, ...]:
    return (*PASSED, CheckResult(name=check, status="failed", summary="too bad", gate=gate))  # type: ignore[arg-type]


class TestRefused:
    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (_no_file, "it was not built"),
            (_rejected_file, "the last build rejected it"),
            (_no_report, "there is no report of the build"),
            (_other_report, "this report is damaged or is of another version of etdev"),
            (_other_file, "the file has changed since it was built: its sha256 is "),
        ],
    )
    def test_files(self, change: Callable[[Path], None], said: str, tmp_path: Path) -> None:
        config = built(tmp_path)
        change(tmp_path / "build" / "cpu")
        self._check(config, said)

    @pytest.mark.parametrize(
        ("name", "content", "said"),
        [
            ("tiny.ptd", b"others", "the file has changed since it was built: its sha256 is "),
            ("tiny.ptd", None, "cannot read the file"),
            ("two words.ptd", b"weights", "a release cannot contain a file with the name 'two words.ptd'"),
        ],
    )
    def test_weights(self, name: str, content: bytes | None, said: str, tmp_path: Path) -> None:
        config = built(tmp_path, data=(DataFile(name=name, size=7, sha256=hashlib.sha256(b"weights").hexdigest()),))
        if content is not None:
            (tmp_path / "build" / "cpu" / name).write_bytes(content)
        self._check(config, said)

    @pytest.mark.parametrize(
        ("checks", "said"),
        [
            (_failed("runtime", gate=False), "was rejected: runtime: too bad"),
            (_failed("accuracy", gate=True), "missed a gate: accuracy: too bad"),
            ((), "was built without verification"),
            ((PASSED[1],), "was built without verification"),
        ],
    )
    def test_verification(self, checks: tuple[CheckResult, ...], said: str, tmp_path: Path) -> None:
        self._check(built(tmp_path, checks=checks), said)

    def test_a_required_check_that_did_not_run(self, tmp_path: Path) -> None:
        self._check(built(tmp_path, required=("replay",)), "requires checks that did not run: replay")

    def _check(self, config: Path, said: str) -> None:
        with pytest.raises(DeployError) as caught:
            etdev.deploy(config, "here", environ={})
        assert said in caught.value.message
        assert caught.value.exit_code == ExitCode.DEPLOY_FAILED
        assert caught.value.where is not None
        assert caught.value.hint is not None
        assert not (config.parent / "served").exists()


class TestDeploy:
    def test_there_and_back(self, tmp_path: Path) -> None:
        config = built(tmp_path)
        planned = etdev.deploy(config, "here", dry_run=True, environ={})
        assert (planned.dry_run, planned.action, planned.before) == (True, "published", None)
        assert not (tmp_path / "served").exists()

        first = etdev.deploy(config, "here", environ={})
        assert (first.name, first.target, first.uri, first.action) == ("here", "cpu", "file:served", "published")
        assert [file.name for file in first.files] == ["tiny.pte"]
        assert first.not_run == ("replay",)
        served = tmp_path / "served" / "current"
        assert (served / "tiny.pte").read_bytes() == (tmp_path / "build/cpu/tiny.pte").read_bytes()
        assert parse_manifest((served / "manifest.json").read_bytes()).target == "cpu"
        assert etdev.deploy(config, "here", environ={}).action == "unchanged"

        built(tmp_path, chain(3))
        second = etdev.deploy(config, "here", environ={})
        assert (second.action, second.before) == ("published", first.release)
        back = etdev.deploy(config, "here", rollback=True, environ={})
        assert (back.action, back.release, back.files) == ("switched", first.release, ())
        found = list_project(opened(config), "here").releases
        assert [(item.name, item.current) for item in found] == [(second.release, False), (first.release, True)]
        assert DeployResult.model_validate_json(back.model_dump_json()) == back

    def test_the_function_stays_one(self, tmp_path: Path) -> None:
        """No module of the same name takes its place once it was called."""
        config = built(tmp_path)
        for _ in range(2):
            etdev.deploy(config, "here", environ={})
        assert callable(etdev.deploy)

    def test_a_name_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="no deployment 'here2'") as caught:
            etdev.deploy(built(tmp_path), "here2", environ={})
        assert caught.value.hint == "did you mean 'here'?"

    def test_a_rollback_has_no_dry_run(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="`--dry-run` cannot be used together with `--rollback`"):
            etdev.deploy(built(tmp_path), "here", rollback=True, dry_run=True, environ={})

    def test_an_error_names_the_target(self, tmp_path: Path) -> None:
        config = built(tmp_path)
        with pytest.raises(DeployError, match="nothing is deployed at the target yet") as caught:
            etdev.deploy(config, "here", rollback=True, environ={})
        assert caught.value.where == "file:served"

    @pytest.mark.parametrize(("scheme", "package"), [("sftp", "asyncssh"), ("s3", "boto3")])
    def test_a_package_that_is_missing(
        self, scheme: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(MissingRequirementError, match=f"needs the package '{package}'") as caught:
            etdev.deploy(built(tmp_path), "here", overrides=[f"deploy.here.uri={scheme}://hosted/x"], environ={})
        assert caught.value.hint == 'pip install "etdev[deploy]"'

    def test_a_password_that_is_not_there(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("asyncssh")
        monkeypatch.delenv("BOARD_PASSWORD", raising=False)
        overrides = ["deploy.here.uri=sftp://h/x", "deploy.here.password_env=BOARD_PASSWORD"]
        with pytest.raises(MissingRequirementError, match="variable BOARD_PASSWORD is not set"):
            etdev.deploy(built(tmp_path), "here", overrides=overrides, environ={})

    def test_a_folder_is_relative_to_the_file_that_states_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = built(tmp_path / "project")
        monkeypatch.chdir(tmp_path)
        etdev.deploy(config, "here", environ={})
        assert (tmp_path / "project" / "served" / "current").is_symlink()
