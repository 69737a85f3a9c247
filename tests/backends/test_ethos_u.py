"""Options of the backend ``ethos-u``, its packages, and names in Vela's config files."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from etdev import backends, tosa_tools
from etdev.backends import base
from etdev.backends.base import OptionIssue
from etdev.backends.ethos_u import EthosU, vela
from etdev.backends.ethos_u.options import EthosUOptions
from etdev.errors import MissingRequirementError

INI = """
[System_Config.Fast]
core_clock=1e9
[System_Config.Slow]
core_clock=1e6
[Memory_Mode.Shared]
arena_mem_area=Axi0
"""
NPU = EthosU()


def options(**given: object) -> EthosUOptions:
    return EthosUOptions.model_validate({"target": "ethos-u55-128", **given})


def issues(**given: object) -> list[OptionIssue]:
    return [*NPU.check_options(options(**given))]


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("optimise=Size", "'optimise=Size' is not a flag"),
        ("--optimise Size", "'--optimise Size' is not a flag"),
        ("--config=a.ini", "etdev itself sets the flag --config"),
        ("--output-dir=x", "etdev itself sets the flag --output-dir"),
    ],
)
def test_flags_are_checked(flag: str, message: str) -> None:
    (issue,) = issues(extra_flags=["--optimise=Size", flag])
    assert (issue.path, issue.message) == (("extra_flags", 1), message)
    assert issue.hint


@pytest.mark.skipif(vela.version() is None, reason="ethos-u-vela is not installed")
def test_flags_and_names_are_those_of_the_installed_vela() -> None:
    (issue,) = issues(extra_flags=["--optimize=Size"])
    assert issue.message == f"vela {vela.version()} has no flag --optimize"
    assert issue.hint == "did you mean '--optimise'?"
    (issue,) = issues(memory_mode="Shared_Ram")
    assert issue.message.endswith("has no section [Memory_Mode.Shared_Ram]")
    assert issue.hint == "did you mean 'Shared_Sram'?"


def test_a_memory_mode_that_the_processor_lacks() -> None:
    mode = {"memory_mode": "Dedicated_Sram"}
    assert [*NPU.check_options(options(target="ethos-u85-256", **mode))] == []
    (issue,) = NPU.check_options(options(target="ethos-u55-128", **mode))
    assert (issue.path, issue.message) == (("memory_mode",), "ethos-u55-128 has no memory mode Dedicated_Sram")


def test_names_are_those_of_the_config_file(tmp_path: Path) -> None:
    path = tmp_path / "a b.ini"
    path.write_text(INI)
    assert [*NPU.check_files(options(config=str(path), system_config="Fast", memory_mode="Shared"))] == []
    system, memory = NPU.check_files(options(config=str(path), system_config="Fats", memory_mode="Dedicated"))
    assert (system.path, system.hint) == (("system_config",), "did you mean 'Fast'?")
    assert (memory.path, memory.hint) == (("memory_mode",), "names there: Shared")


@pytest.mark.parametrize("content", [b"no section = 1\n", b"\xff\xfe"])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.ini"
    path.write_bytes(content)
    (issue,) = NPU.check_files(options(config=str(path)))
    assert issue.path == ("config",)
    assert issue.message.startswith(f"{path} is not a config file of Vela: ")


def test_the_name_in_a_program_depends_on_the_content_alone(tmp_path: Path) -> None:
    one, other = tmp_path / "one.ini", tmp_path / "other.ini"
    one.write_text(INI)
    other.write_text(INI)
    assert vela.config_name(str(one)) == vela.config_name(str(other)) != vela.config_name(None)
    other.write_text(INI + "\n")
    assert vela.config_name(str(one)) != vela.config_name(str(other))


def test_a_missing_package_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"torch": "2.13.0", "executorch": "1.5.1"}

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(base.importlib.util, "find_spec", lambda name: object() if name in versions else None)
    monkeypatch.setenv(tosa_tools.VARIABLE, str(tmp_path))
    state = NPU.availability()
    assert (state.available, state.remedy) == (False, 'pip install "etdev[ethos-u]"')
    assert state.reason == "the package 'ethos-u-vela' is not installed"

    versions["ethos-u-vela"] = "5.2.0"
    state = NPU.availability()
    assert state.reason == f"the package 'tosa-tools' is neither installed nor in {tmp_path}"
    assert state.remedy == (
        f'pip install --no-deps --target "{tmp_path}" tosa-tools==2026.8.0 ml-dtypes==0.5.3, or set ETDEV_TOSA_TOOLS '
        "to a folder that contains both packages"
    )

    folder = tmp_path / "tosa_tools-2026.8.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: tosa-tools\nVersion: 2026.8.0\n")
    state = NPU.availability()
    assert state.reason.startswith("the package 'ml-dtypes', which 'tosa-tools' needs, is neither installed nor in ")

    (tmp_path / "ml_dtypes").mkdir()
    state = NPU.availability()
    assert state.available
    assert state.reason == "torch 2.13.0, executorch 1.5.1, ethos-u-vela 5.2.0, tosa-tools 2026.8.0"


def test_the_folder_is_on_the_module_path_only_for_the_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tosa_tools.VARIABLE, str(tmp_path))
    with pytest.raises(MissingRequirementError, match="cannot be imported: the package 'tosa-tools' is") as caught:
        tosa_tools.importable().__enter__()
    assert caught.value.hint == tosa_tools.remedy()
    monkeypatch.setattr(tosa_tools, "problem", lambda: None)
    monkeypatch.setattr(tosa_tools, "_MODULES", ("a_module_of_the_folder",))
    (tmp_path / "a_module_of_the_folder.py").touch()
    (tmp_path / "tests.py").write_text("raise AssertionError")
    with tosa_tools.importable():
        assert sys.path[-1] == str(tmp_path)
    assert str(tmp_path) not in sys.path
    assert "a_module_of_the_folder" in sys.modules
    monkeypatch.delitem(sys.modules, "a_module_of_the_folder")


def test_a_name_with_a_hyphen_is_a_module_with_an_underscore() -> None:
    assert backends.get("ethos-u").name == "ethos-u"
