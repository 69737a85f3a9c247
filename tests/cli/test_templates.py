"""E3: every template is a project that does what its own README says, as generated."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from ruamel.yaml import YAML

from etdev import tosa_tools
from etdev.cli import app
from etdev.templates import TEMPLATES, render
from etdev.templates.existing import read_project
from support.projects import LINEAR, LINEAR_CONFIG, write_project

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One for all: `ci` is added to what `minimal` has built."""
    return str(tmp_path_factory.mktemp("shared cache"))


def commands(document: str) -> list[str]:
    """The commands that a document has, those that install something left out: its indented lines."""
    lines = re.findall(r"^ {4}(.*)$", document, re.MULTILINE)
    return [line for line in lines if "pip install" not in line]


def run_script(lines: list[str], folder: Path, **variables: str) -> str:
    """Run the lines in one shell, which ends at the first that fails; what they print."""
    binaries = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": os.pathsep.join((binaries, os.environ["PATH"])), **variables}
    command = ["bash", "-euxo", "pipefail", "-c", "\n".join(lines)]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=870,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def commit(folder: Path) -> None:
    """Make the folder a repository with one commit of all its files."""
    run_script(["git init -q -b main", "git add -A", "git -c user.name=x -c user.email=x@x.x commit -qm x"], folder)


def passed(report: Path) -> set[str]:
    """The checks that passed of all the targets of a report, none of which failed."""
    checks = [check for target in json.loads(report.read_text())["targets"] for check in target["checks"]]
    assert not [check for check in checks if check["status"] == "failed"]
    return {check["name"] for check in checks if check["status"] == "passed"}


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_placeholder_is_filled(template: str) -> None:
    assert not [path for path, content in render(template, "x").items() if re.search(rb"\{\{\w+\}\}", content)]


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_files_are_those_of_its_folder(template: str, repository: Path) -> None:
    folder = repository / "src" / "etdev" / "templates" / template
    stored = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    written = {path.removeprefix(".") for path in TEMPLATES[template].files}
    assert {path for path in stored if "__pycache__" not in path} == written


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "template",
    [
        pytest.param(name, marks=[pytest.mark.slow, *[pytest.mark.nightly] * (name not in ("minimal", "ci"))])
        for name in TEMPLATES
    ],
)
def test_the_commands_of_its_documents_work(template: str, tmp_path: Path, cache: str) -> None:
    pytest.importorskip("executorch", reason="needs the extra `build`")
    folder = tmp_path / "project"
    assert app.run(["init", str(folder), "--template", template]) == 0
    commit(folder)

    documents = [path for path in TEMPLATES[template].files if path.endswith(".md")]
    scripts = [commands((folder / path).read_text()) for path in documents]
    assert any(TEMPLATES[template].build in line for script in scripts for line in script)
    for script in scripts:
        run_script(script, folder, ETDEV_CACHE_DIR=cache)

    reports = list(folder.glob("build/*/report.json"))
    assert reports
    for report in reports:
        assert {"bytes", "plan", "accuracy"} <= passed(report)


@pytest.mark.nightly
def test_the_commented_target_of_minimal_works(tmp_path: Path) -> None:
    pytest.importorskip("executorch", reason="needs the extra `build`")
    assert app.run(["init", str(tmp_path / "project")]) == 0
    config = tmp_path / "project" / "etdev.toml"
    active, _, commented = config.read_text().partition("#\n# [quantize.int8]")
    config.write_text(active + "[quantize.int8]" + commented.replace("\n# ", "\n").replace("\n#\n", "\n"))
    assert app.run(["build", "-c", str(config), "-t", "cpu-int8"]) == 0


# The files for CI systems.


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of a repository with the template `ci`, as CI systems make one."""
    assert app.run(["init", str(tmp_path / "project"), "--template", "ci"]) == 0
    commit(tmp_path / "project")
    run_script(["git clone -q project clone"], tmp_path)
    return tmp_path / "clone"


def without_installation(scripts: list[str]) -> list[str]:
    """The scripts that call something else than pip."""
    return [script for script in scripts if "pip install" not in script]


@pytest.mark.slow
def test_what_the_ci_files_call_works(clone: Path, cache: str) -> None:
    """Every script of GitHub's and GitLab's file, as for a pull request; only the installation is left out."""
    pytest.importorskip("executorch", reason="needs the extra `build`")
    yaml = YAML(typ="safe", pure=True)
    job = yaml.load(clone / ".github/workflows/etdev.yml")["jobs"]["etdev"]
    scripts = without_installation([step["run"] for step in job["steps"] if "run" in step])
    assert len(scripts) == 3
    assert "${{" not in "".join(scripts)
    assert job["env"] == {"ETDEV_CACHE_DIR": "${{ github.workspace }}/.etdev-cache"}
    summary = clone.parent / "summary.md"
    github = {"GITHUB_BASE_REF": "main", "GITHUB_STEP_SUMMARY": str(summary), "GITHUB_WORKSPACE": str(clone)}
    run_script(scripts, clone, CI="true", ETDEV_CACHE_DIR=cache, **github)
    assert json.loads((clone / "etdev.sarif").read_text())["runs"][0]["results"] == []
    identical = "`.base/build/cpu/project.pte` and `build/cpu/project.pte` are identical\n"
    assert identical in summary.read_text()
    assert passed(clone / "build/cpu/report.json") >= {"runtime", "accuracy"}

    (include,) = yaml.load(clone / ".gitlab-ci.yml")["include"]
    job = yaml.load(clone / include["local"])["etdev"]
    scripts = without_installation(job["script"])
    assert len(scripts) == 3
    assert job["variables"]["ETDEV_CACHE_DIR"] == "$CI_PROJECT_DIR/.etdev-cache"
    variables = {"ETDEV_CACHE_DIR": cache, "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main"}
    run_script(scripts, clone, CI="true", **variables)
    assert identical in (clone / "etdev-diff.md").read_text()
    assert [path for path in job["artifacts"]["paths"] if not list(clone.glob(path))] == ["build/*/*.ptd"]
    assert not (clone / ".base").exists()


def test_ci_is_added_to_a_project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing of the project is touched, and the commands are those that build it where there are no devices."""
    assert app.run(["init", str(tmp_path), "--template", "multi-device", "--name", "x"]) == 0
    own = tmp_path / ".pre-commit-config.yaml"
    own.write_text("repos: []\n")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    capsys.readouterr()
    assert app.run(["init", str(tmp_path), "--template", "ci"]) == 0

    assert {path: path.read_bytes() for path in before} == before
    shown = capsys.readouterr().err
    assert (
        "Kept your file .pre-commit-config.yaml. Add these lines to the file under `repos:`:\n\n      - repo: local\n"
        in shown
    )
    command = "etdev build --device-map cuda:0=sim,cuda:1=sim --profile ci"
    assert shown.endswith(f"Next: cd {tmp_path} && {command}\n")
    for path in (".github/workflows/etdev.yml", ".gitlab/etdev.yml", "ci/compare.sh", "CI.md"):
        assert command in (tmp_path / path).read_text()

    assert "Kept your file .gitignore. Add these lines to the file:\n\n    etdev.sarif\n    etdev.md\n\n" in shown

    ignored = tmp_path / ".gitignore"
    ignored.write_bytes(ignored.read_bytes() + b"etdev.sarif\netdev.md\n")
    own.write_bytes(b"default_stages: [commit]\n" + render("ci", "x")[own.name])
    assert app.run(["init", str(tmp_path), "--template", "ci"]) == 0
    assert "Kept" not in capsys.readouterr().err


def test_ci_ignores_what_its_commands_write(tmp_path: Path) -> None:
    """After the commands of CI, `build/` and `etdev.sarif` were untracked files."""
    config = dedent(LINEAR_CONFIG).replace('name = "tiny"', 'name = "tiny"\nout = "made/here"')
    write_project(tmp_path, config + "[targets.cpu]\n")
    assert app.run(["init", str(tmp_path), "--template", "ci"]) == 0
    ignored = (tmp_path / ".gitignore").read_text().splitlines()
    assert ignored[:3] == ["made/here/", "etdev.sarif", "etdev.md"]
    for path in (".github/workflows/etdev.yml", ".gitlab/etdev.yml"):
        written = re.findall(r"--output \w+=(\S+)", (tmp_path / path).read_text())
        assert written
        assert {*written} <= {*ignored}
    assert {*render("minimal", "x")[".gitignore"].decode().splitlines()} <= {
        *render("ci", "x")[".gitignore"].decode().splitlines()
    }, "the template replaces the file of its base"


_OPENVINO = "[[targets.cpu.partitioners]]\nbackend = 'openvino'\n"


@pytest.mark.parametrize(
    ("model", "targets", "extras"),
    [
        ("entry = 'model:Linear'", "[targets.cpu]\n", "build"),
        ("hf = './model'", "[targets.cpu]\n", "build,hf"),
        ("entry = 'model:Linear'", _OPENVINO, "build,openvino"),
        ("hf = './model'", _OPENVINO, "build,hf,openvino"),
        ("entry = 'model:Linear'", "[targets.cpu]\nbudget.ram = '64KiB'\n", "build,native"),
        ("entry = 'model:Linear'", "[targets.cpu]\nrunner = true\n", "build,native"),
        ("entry = 'model:Linear'", "[targets.cpu]\nverify.require = ['native']\n", "build,native"),
        ("entry = 'model:Linear'", "[targets.cpu]\n[run]\nexecutor = 'ray'\n", "build,ray"),
    ],
)
def test_ci_installs_what_the_config_needs(tmp_path: Path, model: str, targets: str, extras: str) -> None:
    (tmp_path / "broken.py").write_text("import transformers\nthis is no python")
    write_project(tmp_path, dedent(LINEAR_CONFIG).replace('entry = "model:Linear"', model) + targets)
    assert app.run(["init", str(tmp_path), "--template", "ci"]) == 0
    for path in (".github/workflows/etdev.yml", ".gitlab/etdev.yml", "CI.md"):
        assert f'pip install "etdev[{extras}]"' in (tmp_path / path).read_text()


_SCHEME = "[targets.cpu]\nquantize = 'q'\n[quantize.q]\ncalibration = 'model:samples'\nscheme = "
_PREFIX = "$(python -c 'import sys; print(sys.prefix)')"
_TOSA_TOOLS = f' && pip install --no-deps --target "{_PREFIX}/share/tosa-tools" tosa-tools=='


@pytest.mark.parametrize(
    ("targets", "extras", "tools"),
    [
        ("[targets.cpu]\n", "build", ""),
        ("[[targets.cpu.partitioners]]\nbackend = 'ethos-u'\n", "build,ethos-u", _TOSA_TOOLS),
        ("[[targets.cpu.partitioners]]\nbackend = 'cortex-m'\n", "build", _TOSA_TOOLS),
        (f"{_SCHEME}'arm-ethos-u'\ntarget = 'ethos-u55-128'\n", "build", _TOSA_TOOLS),
        (f"{_SCHEME}'cortex-m'\n", "build", _TOSA_TOOLS),
        (f"{_SCHEME}'pt2e-xnnpack'\n", "build", ""),
    ],
)
def test_ci_installs_tools_of_arm(tmp_path: Path, targets: str, extras: str, tools: str) -> None:
    write_project(tmp_path, dedent(LINEAR_CONFIG) + targets)
    assert app.run(["init", str(tmp_path), "--template", "ci"]) == 0
    command = f'pip install "etdev[{extras}]"'
    (step,) = (
        step["run"]
        for step in YAML(typ="safe").load((tmp_path / ".github/workflows/etdev.yml").read_text())["jobs"]["etdev"][
            "steps"
        ]
        if step.get("name") == "Install"
    )
    script = YAML(typ="safe").load((tmp_path / ".gitlab/etdev.yml").read_text())["etdev"]["script"][0]
    by_hand = next(line for line in (tmp_path / "CI.md").read_text().splitlines() if line.startswith("    pip"))
    for found in (step, script, by_hand.strip().replace(" pre-commit", "", 1)):
        assert found.startswith(f"{command}{tools}")
        assert ("tosa" in found) == bool(tools)


def test_the_command_in_ci_installs_into_the_folder_that_etdev_reads(tmp_path: Path) -> None:
    """Only ``pip`` itself is replaced."""
    script = f'pip() {{ printf "%s\\n" "$@"; }}\n{tosa_tools.portable_command()}'
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    found = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, env={"PATH": path})
    assert str(Path(sys.prefix, "share", "tosa-tools")) in found.stdout.splitlines()


@pytest.mark.parametrize(
    ("source", "extras"),
    [
        ("import os, transformers.utils\n", "build,hf"),
        ("def load():\n    from transformers import AutoModel\n", "build,hf"),
        ("from .transformers import x  # import transformers\n", "build"),
    ],
)
def test_ci_installs_what_the_modules_import(tmp_path: Path, source: str, extras: str) -> None:
    """The config of the template `llm` names a function, and what that needs is in its module."""
    write_project(tmp_path, dedent(LINEAR_CONFIG) + "[targets.cpu]\n", model=source)
    assert read_project(tmp_path).extras == extras


def test_ci_installs_what_llm_needs(tmp_path: Path) -> None:
    assert app.run(["init", str(tmp_path), "--template", "llm"]) == 0
    assert read_project(tmp_path).extras == "build,hf"


@pytest.mark.slow
@pytest.mark.parametrize("out", ["build", pytest.param("../built", marks=pytest.mark.nightly)])
def test_what_differs_from_a_base_is_said(tmp_path: Path, cache: str, out: str) -> None:
    """Of a project in a folder of a repository, which names its files itself, wherever they are."""
    pytest.importorskip("executorch", reason="needs the extra `build`")
    folder = tmp_path / "repository" / "my model"
    write_project(folder, LINEAR_CONFIG.replace('name = "tiny"', f'out = "{out}"') + "[targets.cpu]\n", model=LINEAR)
    assert app.run(["init", str(folder), "--template", "ci"]) == 0
    commit(folder.parent)
    shown = run_script(["etdev build -q", "bash ci/compare.sh HEAD"], folder, ETDEV_CACHE_DIR=cache)

    file = f"{out}/cpu/my_model.pte"
    assert (folder / file).is_file()
    assert f"`.base/my model/build/cpu/my_model.pte` and `{file}` are identical\n" in shown
    yaml = YAML(typ="safe", pure=True)
    paths = yaml.load(folder / ".gitlab/etdev.yml")["etdev"]["artifacts"]["paths"]
    assert paths[:2] == [f"{out}/*/*.pte", f"{out}/*/*.ptd"]
    job = yaml.load(folder / ".github/workflows/etdev.yml")["jobs"]["etdev"]
    assert job["steps"][-1]["with"]["path"].split()[:2] == paths[:2]


@pytest.mark.slow
@pytest.mark.nightly
def test_what_differs_is_told_by_target(tmp_path: Path, cache: str) -> None:
    """Whatever else lies in the folder: files of an earlier name of the project, of a target that is gone, rejected
    ones; and the project was called something else before."""
    pytest.importorskip("executorch", reason="needs the extra `build`")
    folder = tmp_path / "repository"
    targets = "[targets.a]\n[targets.b]\nlowering = 'stock'\n"
    config = write_project(folder, dedent(LINEAR_CONFIG) + targets, model=LINEAR)
    assert app.run(["init", str(folder), "--template", "ci"]) == 0
    commit(folder)
    config.write_text(config.read_text().replace('"tiny"', '"new"') + "[targets.c]\nmemory.planner = 'naive'\n")
    run_script(["etdev build -q"], folder, ETDEV_CACHE_DIR=cache)
    for left in ("a/aaa.pte", "a/tiny.pte", "gone/my old.pte", "b/new.pte.rejected"):
        (folder / "build" / left).parent.mkdir(exist_ok=True)
        (folder / "build" / left).write_bytes(b"left here")
    shown = run_script(["bash ci/compare.sh HEAD"], folder, ETDEV_CACHE_DIR=cache)

    compared = [line for line in shown.splitlines() if line.startswith("`.base/")]
    assert compared == [f"`.base/build/{name}/new.pte` and `build/{name}/new.pte` are identical" for name in "ab"]
    run_script(["etdev build -q -t c"], folder, ETDEV_CACHE_DIR=cache)
    shown = run_script(["bash ci/compare.sh HEAD"], folder, ETDEV_CACHE_DIR=cache)
    assert shown.endswith("No target was built both here and at `HEAD`.\n")
    assert not (folder / ".base").exists()


def test_nothing_is_compared_where_nothing_was_built(clone: Path) -> None:
    """A file that no build tells of is none of the project's; and without a commit the script says what it takes."""
    (clone / "build" / "cpu").mkdir(parents=True)
    (clone / "build" / "cpu" / "project.pte").write_bytes(b"left here")
    shown = run_script(["bash ci/compare.sh HEAD", "bash ci/compare.sh || true"], clone)
    assert "There is no file in `build` to compare with `HEAD`.\n" in shown
    assert "name a commit, as in: bash ci/compare.sh origin/main\n" in shown
    assert not (clone / ".base").exists()


def test_ci_needs_a_folder_that_its_files_can_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_project(tmp_path, LINEAR_CONFIG.replace('name = "tiny"', 'out = "$(touch x)"') + "[targets.cpu]\n")
    assert app.run(["init", str(tmp_path), "--template", "ci"]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["etdev.toml"]
    assert capsys.readouterr().err.startswith("error: etdev.toml:3:11: the folder name")


@pytest.mark.parametrize(
    ("path", "own"),
    [
        (".pre-commit-config.yaml", "default_stages: [commit]\n"),
        (".pre-commit-config.yaml", "repos:  # ours\n  - repo: local\n    hooks:\n      - id: other\n"),
        (".gitlab-ci.yml", "include:\n  - local: other.yml\n"),
    ],
)
def test_what_is_added_as_told_is_what_was_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, own: str
) -> None:
    """Lines pasted where they are said to belong make no key twice, and a second time nothing is lacking."""
    assert app.run(["init", str(tmp_path), "-q"]) == 0
    (tmp_path / path).write_text(own)
    assert app.run(["init", str(tmp_path), "--template", "ci"]) == 0
    said, lines = capsys.readouterr().err.split(f"Kept your file {path}. ")[1].split("\n\n")[:2]
    assert said == (
        "Add these lines to the file:"
        if "commit]" in own
        else f"Add these lines to the file under `{own.partition(':')[0]}:`:"
    )
    pasted = lines.removeprefix("    ").replace("\n    ", "\n") + "\n"
    (tmp_path / path).write_text(own + pasted)

    yaml = YAML(typ="safe", pure=True)
    before, wanted, after = (yaml.load(text) for text in (own, render("ci", "x")[path], own + pasted))
    for key, entries in wanted.items():
        assert after[key] == [*before.get(key, []), *entries]
    assert {**after, **before}.keys() == {*before, *wanted}
    assert app.run(["init", str(tmp_path), "--template", "ci"]) == 0
    assert f"Kept your file {path}" not in capsys.readouterr().err


@pytest.mark.parametrize("out", [".", "../made", "/made"])
def test_git_ignores_no_folder_around_the_project(tmp_path: Path, out: str) -> None:
    config = dedent(LINEAR_CONFIG).replace('name = "tiny"', f'name = "tiny"\nout = "{out}"')
    write_project(tmp_path, config + "[targets.cpu]\n")
    assert app.run(["init", str(tmp_path), "--template", "ci"]) == 0
    assert (tmp_path / ".gitignore").read_text().splitlines()[0] == "etdev.sarif"


def test_ci_names_no_project_that_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["init", str(tmp_path), "--name", "x", "-q"]) == 0
    assert app.run(["init", str(tmp_path), "--template", "ci", "--name", "y"]) == 2
    assert capsys.readouterr().err.startswith(
        "error: --name: 'ci' is added to the existing project in this folder, so a new name has no effect\n"
    )
    assert not (tmp_path / "CI.md").exists()


def test_ci_is_not_added_to_a_project_that_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Which command builds it is in the config."""
    (tmp_path / "etdev.toml").write_text("version = 1\nnope = 1\n")
    assert app.run(["init", str(tmp_path), "--template", "ci"]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["etdev.toml"]
    assert "error: etdev.toml:2:1: unknown key `nope`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "is_config"),
    [
        ("etdev.toml", True),
        ("models/a/etdev.yaml", True),
        (".github/workflows/etdev.yml", False),
        ("models/.hidden/etdev.toml", False),
        ("my-etdev.toml", False),
        ("etdev.toml.bak", False),
    ],
)
def test_which_files_the_hooks_take(repository: Path, path: str, is_config: bool) -> None:
    yaml = YAML(typ="safe", pure=True)
    (published,) = yaml.load(repository / ".pre-commit-hooks.yaml")
    (local,) = yaml.load(render("ci", "x")[".pre-commit-config.yaml"])["repos"][0]["hooks"]
    for hook in (published, local):
        assert hook["entry"] == "etdev validate"
        assert bool(re.search(hook["files"], path)) == is_config
