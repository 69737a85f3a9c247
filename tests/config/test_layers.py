"""E1: which layer wins, and where each value came from."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from config.support import MINIMAL, load, problems
from etdev.config.layers import Origin
from etdev.config.loader import LoadedConfig, load_config
from etdev.config.parsing.config_files import has_config
from etdev.errors import ConfigError


def _files(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".toml").write_text(text)


def _env(folder: Path, environ: Mapping[str, str], text: str = MINIMAL, *arguments: str) -> LoadedConfig:
    return load(folder, text, "etdev.toml", *arguments, environ=environ)


def test_each_layer_lies_over_the_one_before(tmp_path: Path) -> None:
    """E1: defaults < extends < file < profile < environment < --set."""
    text = MINIMAL.replace("[model]", 'extends = "below.toml"\n[model]') + "[profiles.ci.project]\n"
    _files(tmp_path, below='project.out = "extends"\n')
    environ = {"ETDEV__PROJECT__OUT": "environment"}

    def out(text: str, *arguments: str, **options: object) -> tuple[str, str | Origin | None]:
        loaded = load(tmp_path, text, "etdev.toml", *arguments, **options)
        origin = loaded.origins.get(("project", "out"))
        return loaded.config.project.out, origin and origin.layer

    assert out(MINIMAL) == ("build", None)
    assert out(text) == ("extends", "extends")
    in_file = text.replace("[model]", 'project.out = "file"\n[model]')
    assert out(in_file) == ("file", "file")
    in_profile = in_file + 'out = "profile"\n'
    assert out(in_profile) == ("file", "file")
    assert out(in_profile, profile="ci") == ("profile", "profile")
    assert out(in_profile, profile="ci", environ=environ) == ("environment", "environment")
    assert out(in_profile, "project.out=a", "project.out=b", profile="ci", environ=environ) == ("b", "command line")


def test_tables_merge_and_lists_are_replaced(tmp_path: Path) -> None:
    text = MINIMAL + (
        "verify = { atol = 0.5, rtol = 0.5, require = ['bytes', 'plan'] }\n"
        "[profiles.ci.targets.cpu]\nverify = { atol = 1.0, require = ['runtime'] }\n"
    )
    verify = load(tmp_path, text, profile="ci").config.targets["cpu"].verify
    assert (verify.atol, verify.rtol, verify.require) == (1.0, 0.5, ("runtime",))


def test_origins(tmp_path: Path) -> None:
    """E1: file, line, column and folder of every value."""
    text = MINIMAL.replace("[model]", 'extends = ["sub/below.toml"]\n[model]') + (
        "[profiles.ci.targets.cpu]\nbudget.file = 7\n"
    )
    _files(tmp_path, sub__below='[project]\nname = "n"\nimports = ["a", "b"]\n')
    loaded = load(
        tmp_path,
        text,
        "etdev.toml",
        "targets.cpu.verify.atol=1",
        profile="ci",
        environ={"ETDEV__MODEL__WEIGHTS": "w.safetensors"},
    )

    assert loaded.origins["project", "imports", 1] == Origin("extends", "sub/below.toml", tmp_path / "sub", 3, 17)
    assert loaded.origins["version",] == Origin("file", "etdev.toml", tmp_path, 1, 11)
    assert loaded.origins["targets", "cpu", "budget", "file"] == Origin("profile", "etdev.toml", tmp_path, 9, 15)
    assert loaded.origins["model", "weights"] == Origin(
        "environment", "environment variable ETDEV__MODEL__WEIGHTS", tmp_path
    )
    assert loaded.origins["targets", "cpu", "verify", "atol"] == Origin(
        "command line", "--set targets.cpu.verify.atol=1", tmp_path
    )
    assert ("project", "out") not in loaded.origins
    assert loaded.where("methods", "forward", "inputs", 0, "dtype") == "etdev.toml:6:33"
    assert loaded.where("methods", "forward", "dims") == "etdev.toml:5:1"
    assert loaded.where("constants") == "etdev.toml:1:1"
    assert loaded.where("model", "weights") == "environment variable ETDEV__MODEL__WEIGHTS"
    assert loaded.origin("constants") is None
    assert loaded.files == (tmp_path / "etdev.toml", tmp_path / "sub/below.toml")


def test_overrides_are_values_of_variables_and_of_the_command_line(tmp_path: Path) -> None:
    """The last one of a key, lists and new tables as a whole; not what the file states, nor where a build runs."""
    text = f"{MINIMAL}\nmemory.planner = 'best'\n[profiles.ci.targets.cpu]\nverify.atol = 1.0\n"
    found = load(
        tmp_path,
        text,
        "etdev.toml",
        "targets.cpu.memory.planner=naive",
        "targets.cpu.budget={ file = '1MB', memory = { cpu = '2MB' } }",
        "targets.cpu.partitioners=[{ backend = 'xnnpack' }]",
        environ={"ETDEV__TARGETS__CPU__MEMORY__PLANNER": "greedy", "ETDEV__RUN__JOBS": "2"},
        profile="ci",
    )
    assert found.overrides == {
        "targets.cpu.memory.planner": "naive",
        "targets.cpu.budget.file": "1MB",
        "targets.cpu.budget.memory.cpu": "2MB",
        "targets.cpu.partitioners": [{"backend": "xnnpack"}],
    }
    assert load(tmp_path, profile="ci").overrides == {}


def test_paths_resolve_beside_the_file_that_states_them(tmp_path: Path) -> None:
    _files(tmp_path, a__below='model.weights = "../w.safetensors"\nproject.out = "out"\n')
    _files(tmp_path, b__etdev=MINIMAL.replace("[model]", 'extends = "../a/below.toml"\n[model]'))
    loaded = load(tmp_path, name="b/etdev.toml")

    assert loaded.resolve("model", "weights") == tmp_path / "w.safetensors"
    assert loaded.resolve("project", "out") == tmp_path / "a/out"
    assert loaded.root == tmp_path / "b"
    overridden = load(
        tmp_path, None, "b/etdev.toml", "project.out=x", environ={"ETDEV__MODEL__WEIGHTS": "y.safetensors"}
    )
    assert overridden.resolve("project", "out") == tmp_path / "b/x"
    assert overridden.resolve("model", "weights") == tmp_path / "b/y.safetensors"
    assert load(tmp_path, MINIMAL).resolve("project", "out") == tmp_path / "build"


def test_extends_in_turn_and_through_two_ways(tmp_path: Path) -> None:
    _files(
        tmp_path,
        root='project.name = "root"\nproject.out = "root"\n',
        left='extends = "root.toml"\nproject.name = "left"\n',
        right='extends = "root.toml"\n',
    )
    loaded = load(tmp_path, MINIMAL.replace("[model]", 'extends = ["left.toml", "right.toml"]\n[model]'))
    # The later file wins, with what it extends.
    assert (loaded.config.project.name, loaded.config.project.out) == ("root", "root")


def test_a_cycle_of_extends(tmp_path: Path) -> None:
    _files(tmp_path, b='extends = ["c.toml"]\n', c='version = 1\nextends = "b.toml"\n')
    (found,) = problems(tmp_path, 'extends = "b.toml"\n' + MINIMAL)
    assert (found.where, found.rule) == ("c.toml:2:11", "reference")
    assert found.message == "`extends` makes a cycle: b.toml -> c.toml -> b.toml"


@pytest.mark.parametrize(
    ("extends", "message"),
    [
        ("none.toml", "`extends[1]` names `none.toml`: there is no such file"),
        ("folder.toml", "`extends[1]` names `folder.toml`: this is a folder"),
        ("https://example.org/x.toml", "`extends[1]` is a URL; only local files can be extended"),
        ("etdev.toml", "`extends[1]` makes a cycle: etdev.toml -> etdev.toml"),
    ],
)
def test_extends_that_cannot_be_followed(extends: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    _files(tmp_path, fine="")
    (found,) = problems(tmp_path, f'extends = ["fine.toml", "{extends}"]\n' + MINIMAL)
    assert (found.where, found.message) == ("etdev.toml:1:25", message)


def test_a_problem_stands_in_the_file_that_has_it(tmp_path: Path) -> None:
    _files(tmp_path, sub__below='version = 3\n[project]\nnome = "x"\n')
    found = problems(tmp_path, 'extends = "sub/below.toml"\n' + MINIMAL)
    assert [(problem.where, problem.key) for problem in found] == [
        ("sub/below.toml:1:11", "version"),
        ("sub/below.toml:3:1", "project.nome"),
    ]


def test_syntax_errors_of_all_files_come_at_once(tmp_path: Path) -> None:
    _files(tmp_path, a="x =\n", b="\ny =\n")
    found = problems(tmp_path, 'extends = ["a.toml", "b.toml"]\n' + MINIMAL)
    assert [problem.where for problem in found] == ["a.toml:1:4", "b.toml:2:4"]


def test_all_profiles_are_validated(tmp_path: Path) -> None:
    """E1: whichever is chosen, each problem once, at its own place, under the key that is written there."""
    text = MINIMAL + (
        "verify.accuracy = { fn = 'data:f', max = 0.5 }\nnope = 1\n"
        "[profiles.a.targets.cpu]\nbudgit = 1\n"
        "[profiles.b.targets.cpu.verify.accuracy]\nmin = 0.9\n"
        "[profiles.c]\nextends = 'x'\n"
    )
    expected = {
        ("etdev.toml:8:1", "unknown key `targets.cpu.nope`"),
        ("etdev.toml:10:1", "unknown key `profiles.a.targets.cpu.budgit`"),
        ("etdev.toml:12:7", "`profiles.b.targets.cpu.verify.accuracy.min` is 0.9, more than `max`, which is 0.5"),
        ("etdev.toml:14:1", "`profiles.c.extends`: a profile cannot contain `extends`"),
    }
    for profile in (None, "a", "b", "c"):
        assert {(p.where, p.message) for p in problems(tmp_path, text, profile=profile)} == expected


def test_a_problem_that_a_profile_brings_about_elsewhere(tmp_path: Path) -> None:
    text = (
        MINIMAL
        + "quantize = 'x'\n[quantize.x]\nscheme = '8da4w'\n[profiles.a]\nmodel = { pt2 = 'm.pt2', trust = true }\n"
    )
    messages = [problem.message for problem in problems(tmp_path, text)]
    assert any(message.endswith("(with the profile `a`)") for message in messages)


def test_an_unknown_profile(tmp_path: Path) -> None:
    text = MINIMAL + "[profiles.release]\n"
    (found,) = problems(tmp_path, text, profile="relese")
    assert (found.message, found.hint) == ("there is no profile `relese`", "did you mean `release`?")
    (found,) = problems(tmp_path, text, profile="xyz")
    assert (found.where, found.hint) == ("--profile xyz", "the profiles are: release")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("model:make", "model:make"),
        ('"quoted"', "quoted"),
        ("'''raw'''", "raw"),
        ("x = 1\ny = 2", "x = 1\ny = 2"),
        ("", ""),
        ("[unclosed", "[unclosed"),
    ],
)
def test_values_are_toml_and_else_text(value: str, expected: str, tmp_path: Path) -> None:
    loaded = load(
        tmp_path, MINIMAL, "etdev.toml", f"model.kwargs.a={value}", environ={"ETDEV__MODEL__KWARGS__B": value}
    )
    assert loaded.config.model.kwargs == {"a": expected, "b": expected}


def test_values_of_other_types(tmp_path: Path) -> None:
    arguments = (
        "targets.cpu.budget={file='1KiB'}",
        "targets.cpu.verify.require=['runtime']",
        'model.kwargs."a b".c=1.5',
    )
    config = load(tmp_path, MINIMAL, "etdev.toml", *arguments).config
    assert config.targets["cpu"].budget.file == 1024
    assert config.targets["cpu"].verify.require == ("runtime",)
    assert config.model.kwargs == {"a b": {"c": 1.5}}


@pytest.mark.parametrize(
    ("argument", "key", "message"),
    [
        ("version", "", "there is no `=`"),
        ("=1", "", "`` is not a key"),
        ("a b=1", "", "`a b` is not a key"),
        ("a.=1", "", "`a.` is not a key"),
        ("[a]\nb=1", "", "`[a] b` is not a key"),
        ("a\nb=1", "", "`a b` is not a key"),
        ("targets.cpu.partitioners[0].backend=x", "", "`targets.cpu.partitioners[0].backend` is not a key"),
        (
            "targets.cpu.partitioners.0.backend=x",
            "targets.cpu.partitioners.0.backend",
            (
                "`targets.cpu.partitioners.0.backend` is in the list `targets.cpu.partitioners`, "
                "whose elements cannot be set one by one"
            ),
        ),
        ("extends=x", "extends", "`extends` cannot be set here, because it is read before overrides are applied"),
        (
            "profiles.ci.version=1",
            "profiles.ci.version",
            "`profiles` cannot be set here, because it is read before overrides are applied",
        ),
        ("project.nam=x", "project.nam", "unknown key `project.nam`"),
        ("version.x=1", "version", "`version` is a table; expected 1"),
        ("project.name=3", "project.name", None),
    ],
)
def test_set_that_cannot_be(argument: str, key: str, message: str | None, tmp_path: Path) -> None:
    (found,) = problems(tmp_path, MINIMAL, "etdev.toml", argument)
    assert (found.key, found.line) == (key, None)
    assert found.source == f"--set {' '.join(argument.split())}"
    assert message is None or found.message == message


def test_names_of_variables(tmp_path: Path) -> None:
    """E1: case does not count, and `_` matches `-`, against what is there; other names are lower case."""
    text = MINIMAL + "[targets.My-Target]\n[targets.my_other]\n"
    environ = {
        "ETDEV__TARGETS__MY_TARGET__VERIFY__MIN_SNR_DB": "3",
        "ETDEV__targets__My_Other__verify__atol": "1",
        "ETDEV__TARGETS__CPU__BUDGET": '{ file = "1KiB" }',
        "ETDEV__MODEL__KWARGS__Wide": "true",
        "ETDEV_SHARED": "/nowhere",
        "PATH": "/bin",
    }
    config = _env(tmp_path, environ, text).config
    assert config.targets["My-Target"].verify.min_snr_db == 3
    assert config.targets["my_other"].verify.atol == 1
    assert config.targets["cpu"].budget.file == 1024
    assert config.model.kwargs == {"wide": True}


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"ETDEV__PROJECT__NAM": "x"}, "unknown key `project.nam`"),
        ({"ETDEV__": "x"}, "the name does not contain a key to set"),
        ({"ETDEV__PROJECT____NAME": "x"}, "the name does not contain a key to set"),
        ({"ETDEV__TARGETS__A_B__QUANTIZE": "x"}, "the name matches `targets.a-b` and `targets.a_b`"),
        (
            {"ETDEV__TARGETS__CPU__VERIFY__REQUIRE__0": "x"},
            "`targets.cpu.verify.require.0` is in the list `targets.cpu.",
        ),
        ({"ETDEV__EXTENDS": "x"}, "`extends` cannot be set here, because it is read before overrides are applied"),
        ({"ETDEV__PROJECT__OUT": "1"}, "`project.out` is 1; expected text that is not empty"),
        (
            {"ETDEV__PROJECT__OUT": "a", "ETDEV__project__out": "b"},
            "this sets `project.out`, and so does ETDEV__PROJECT__OUT",
        ),
    ],
)
def test_variables_that_cannot_be(environ: dict[str, str], message: str, tmp_path: Path) -> None:
    (found,) = problems(tmp_path, MINIMAL + "[targets.a-b]\n[targets.a_b]\n", environ=environ)
    assert found.message.startswith(message)
    assert found.source == f"environment variable {list(environ)[-1]}"
    assert found.line is None


def test_longer_variables_lie_over_shorter_ones(tmp_path: Path) -> None:
    environ = {"ETDEV__PROJECT__OUT": "long", "ETDEV__PROJECT": '{ out = "short", name = "n" }'}
    project = _env(tmp_path, environ).config.project
    assert (project.out, project.name) == ("long", "n")


def test_text_that_was_meant_as_toml(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, MINIMAL, "etdev.toml", 'project.imports=["a"')
    assert found.hint == "write the value as valid TOML; other values are read as text"


def test_the_environment_of_the_process_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETDEV__PROJECT__OUT", "x")
    assert load(tmp_path, MINIMAL).config.project.out == "build"


def _find(folder: Path) -> LoadedConfig:
    return load_config(environ={}, cwd=folder)


def test_which_file_is_found(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no config in") as none:
        _find(tmp_path)
    assert (none.value.exit_code, none.value.hint) == (
        2,
        "run `etdev init` to write a config, or use `-c FILE` for a config in another folder",
    )
    _files(tmp_path, pyproject="[tool.other]\n")
    with pytest.raises(ConfigError, match="there is no config in"):
        _find(tmp_path)
    in_tool = re.sub(r"^\[", "[tool.etdev.", MINIMAL, flags=re.MULTILINE)
    (tmp_path / "pyproject.toml").write_text(f"[tool.etdev]\n{in_tool}")
    assert _find(tmp_path).name == "pyproject.toml"
    assert _find(tmp_path).where("model", "entry") == "pyproject.toml:4:9"
    (tmp_path / "etdev.yml").write_text("version: 1\nmodel: {pt2: a, trust: true}\ntargets: {cpu: {}}\n")
    assert _find(tmp_path).name == "etdev.yml"
    (tmp_path / "etdev.toml").write_text(MINIMAL)
    with pytest.raises(
        ConfigError, match=r"this folder has several config files: `etdev.toml` and `etdev.yml`"
    ) as several:
        _find(tmp_path)
    assert several.value.hint == "choose one: `-c etdev.toml`"


@pytest.mark.parametrize(
    "content",
    [
        b"[tool.etdev-extra]\n# not [tool.etdev]\n",
        b"[tool.etdevx]\na = 'b'\n",
        b"# [tool.etdev]\n",
        b"tool = 3\n",
        b"[tool.etdev]\na = \n",
        b"[tool.etdev]\n# \xff\n",
        b"a = " + b"[" * 5000,
    ],
)
def test_a_pyproject_that_is_no_config(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(content)
    assert not has_config(tmp_path)
    with pytest.raises(ConfigError, match="there is no config in"):
        _find(tmp_path)


def test_a_pyproject_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.etdev]\n")
    assert has_config(tmp_path)

    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    assert not has_config(tmp_path)


def test_a_folder_with_the_name_of_a_config(tmp_path: Path) -> None:
    (tmp_path / "etdev.toml").mkdir()
    with pytest.raises(ConfigError) as folder:
        _find(tmp_path)
    assert [(p.where, p.message) for p in folder.value.problems] == [("etdev.toml", "this is a folder")]
    (tmp_path / "etdev.yml").write_text("version: 1\nmodel: {pt2: a, trust: true}\ntargets: {cpu: {}}\n")
    assert _find(tmp_path).name == "etdev.yml"


def test_pyproject_without_the_required_keys(tmp_path: Path) -> None:
    found = problems(tmp_path, "[tool.x]\n[tool.etdev]\nversion = 1\n[tool.etdev.modell]\n", "pyproject.toml")
    assert [(p.where, p.key) for p in found] == [("pyproject.toml:2:1", "targets"), ("pyproject.toml:4:13", "modell")]


def test_names_of_files_in_messages(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a/etdev.toml").write_text("x = 1\n")
    below = problems(tmp_path, name="a/etdev.toml")[0]
    beside = problems(tmp_path, name=os.path.join("..", "a", "etdev.toml"), cwd=tmp_path / "b")[0]
    assert below.source == "a/etdev.toml"
    assert beside.source == str(tmp_path / "a/etdev.toml")
