"""What a release is made of: licences and components."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

pytest.importorskip("cyclonedx", reason="needs the dependency group `release`")

from etdev.compat import SUPPORTED, TESTED
from etdev.page.vendor import ECHARTS
from release import licences, packages, sbom
from release.tag import problem


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("dist") / "etdev-0.1.0-py3-none-any.whl"
    place.write_bytes(b"content")
    return place


def test_the_page_of_licences_is_current(repository: Path) -> None:
    lacking = [name for name in packages.missing() if name != "numba"]
    pinned = (repository / "constraints.txt").read_text(encoding="utf-8").lower().splitlines()
    lacking += [
        some.name
        for some in packages.packages()
        if f"{some.name}=={some.version.partition('+')[0]}".lower() not in pinned
    ]
    if lacking or sys.version_info[:2] != (3, 11):
        pytest.skip(f"the page is of Python 3.11 and of constraints.txt, and this environment is not: {lacking}")
    text = (repository / "docs" / "licences.md").read_text(encoding="utf-8")
    assert text == licences.page(packages.packages()), "run `make docs`"


def test_every_package_of_a_plain_installation_has_a_licence() -> None:
    found = [some for some in packages.packages() if some.needed_by == "etdev"]
    assert {"numpy", "pydantic", "typer"} <= {some.name for some in found}
    assert all(some.licence for some in found)
    assert not [some.name for some in found if re.search(r"\bA?GPL", some.licence)]


def test_components_name_versions_and_digests(wheel: Path, tmp_path: Path) -> None:
    sbom.main(wheel, tmp_path / "sbom.json")
    found = json.loads((tmp_path / "sbom.json").read_text(encoding="utf-8"))
    assert (found["bomFormat"], found["metadata"]["component"]["name"]) == ("CycloneDX", "etdev")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert found["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": digest}]
    components = {component["name"]: component for component in found["components"]}
    assert components["echarts"]["hashes"] == [{"alg": "SHA-256", "content": ECHARTS.sha256}]
    assert components["numpy"]["purl"].startswith("pkg:pypi/numpy@")
    needs = {item["ref"]: item.get("dependsOn", []) for item in found["dependencies"]}
    assert "pypi-numpy" in needs["etdev"]
    assert "pypi-pydantic-core" in needs["pypi-pydantic"]
    assert "pypi-pydantic-core" not in needs["etdev"]


def test_the_components_are_in_the_form_of_their_schema(wheel: Path, tmp_path: Path) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    sbom.main(wheel, tmp_path / "sbom.json")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str((tmp_path / "sbom.json").read_text()) is None


@pytest.mark.parametrize(
    ("tag", "heading", "said"),
    [
        ("v1.2.0", "## [1.2.0] - 2026-12-01", None),
        ("v1.2", "## [1.2.0] - 2026-12-01", "the tag is v1.2, and the version of the code is 1.2.0"),
        ("v1.2.0", "## [1.1.0] - 2026-12-01", "CHANGELOG.md has no section [1.2.0]"),
        ("v1.2.0", "## [1.2.0] - unreleased", "CHANGELOG.md says of 1.2.0: unreleased"),
    ],
)
def test_a_tag_is_that_of_the_code_and_the_changelog(tag: str, heading: str, said: str | None) -> None:
    found = problem(tag, "1.2.0", f"# Changelog\n\n{heading}\n")
    assert (found is None) == (said is None)
    assert said is None or (found or "").startswith(said)


def test_the_workflows_are_yaml_and_only_one_may_publish(repository: Path) -> None:
    folder = repository / ".github" / "workflows"
    found = {path.name: YAML(typ="safe", pure=True).load(path) for path in folder.glob("*.yml")}
    assert found.keys() == {"ci.yml", "release.yml"}
    assert all(workflow["permissions"] == {"contents": "read"} for workflow in found.values())
    jobs = found["release.yml"]["jobs"]
    assert {name for name, job in jobs.items() if job.get("permissions")} == {"publish"}
    assert jobs["publish"]["needs"] == "build"
    scripts = [
        step["run"]
        for workflow in found.values()
        for job in workflow["jobs"].values()
        for step in job["steps"]
        if "run" in step
    ]
    assert ".ci/run" in scripts
    assert not [script for script in scripts if "${{" in script], "an expression in a script can run commands"


def test_the_page_of_versions_is_that_of_the_code(repository: Path) -> None:
    rows = dict(
        re.findall(
            r"^\| (\w+) \| (.+) \|$", (repository / "docs" / "compatibility.md").read_text("utf-8"), re.MULTILINE
        )
    )
    assert rows["executorch"] == f"`{SUPPORTED.removeprefix('executorch')}` | {', '.join(TESTED)}"
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    build = dict(re.findall(r"^(\w+)([<>=].*)$", "\n".join(project["optional-dependencies"]["build"]), re.MULTILINE))
    pins = dict(
        re.findall(r"^(\w+)==(.+)$", (repository / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    )
    for name in ("torch", "torchao"):
        assert rows[name] == f"`{build[name]}` | {pins[name]}"
    assert project["requires-python"] == ">=3.11,<3.14"
    assert rows["Python"].startswith("3.11 to 3.13 | ")
