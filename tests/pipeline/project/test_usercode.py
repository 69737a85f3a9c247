"""Importing the user's modules: fresh in each build, apart from each other, and leaving the process as it was (E2)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

from etdev.errors import LoadError
from etdev.pipeline.project.user_modules import is_below, packages_of_modules
from etdev.pipeline.project.usercode import UserCode, translated
from support.stages import Failure, check_failure

WHERE = "etdev.toml:1:1 (key)"


def _write(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def _call(folder: Path, entry: str) -> object:
    """What the entry returns, in a build of its own."""
    with UserCode() as user:
        return user.get(entry, folder, WHERE)()


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Each test leaves the module search and, but for registered modules, the modules of the process alone."""
    path, hooks, finders, modules = list(sys.path), list(sys.path_hooks), list(sys.meta_path), dict(sys.modules)
    yield
    assert (sys.path, sys.path_hooks, sys.meta_path) == (path, hooks, finders)
    left = {name for name in sys.modules.keys() - modules.keys() if name.startswith("etdev_test_")}
    changed = {name for name in modules if sys.modules.get(name) is not modules[name]}
    assert (left - {"etdev_test_ops"}, changed) == (set(), set())


def test_an_edit_between_builds_is_seen(tmp_path: Path) -> None:
    """Also one within the same second that keeps the file's size, which Python's bytecode cache takes for the same."""
    for width in "123":
        _write(tmp_path, etdev_test_model=f"import etdev_test_helper\ndef f(): return etdev_test_helper.x, {width}\n")
        _write(tmp_path, etdev_test_helper=f"x = {width}\n")
        for path in tmp_path.glob("*.py"):
            os.utime(path, (1e9, 1e9))
        assert _call(tmp_path, "etdev_test_model:f") == (int(width), int(width))
    assert not list(tmp_path.glob("__pycache__"))


def test_projects_with_modules_of_the_same_name_do_not_mix(tmp_path: Path) -> None:
    for name in ("a", "b", "a", "b"):
        folder = _write(
            tmp_path / name, data=f"name = '{name}'\n", model="def f():\n    import data\n    return data.name\n"
        )
        assert _call(folder, "model:f") == name


def test_a_module_that_is_loaded_already_makes_room_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ModuleType("data")
    other.__file__ = "/somewhere/else/data.py"
    monkeypatch.setitem(sys.modules, "data", other)
    monkeypatch.setitem(sys.modules, "data.part", ModuleType("data.part"))
    folder = _write(tmp_path, data="def f(): return 1\n")
    assert _call(folder, "data:f") == 1
    assert sys.modules["data"] is other


def test_a_folder_of_files_does_not_hide_an_installed_package(tmp_path: Path) -> None:
    """A folder ``json/`` with no Python in it stands next to the config; ``json:loads`` is still the library's."""
    (tmp_path / "json").mkdir()
    with UserCode() as user:
        assert user.get("json:loads", tmp_path, WHERE) is sys.modules["json"].loads


def test_a_module_is_imported_once_in_a_build(tmp_path: Path) -> None:
    folder = _write(
        tmp_path / "real", etdev_test_model="calls = []\ndef f():\n    calls.append(1)\n    return len(calls)\n"
    )
    link = tmp_path / "link"
    link.symlink_to(folder)
    for base in (folder, link):
        with UserCode() as user:
            assert [user.get("etdev_test_model:f", base, WHERE)() for _ in range(3)] == [1, 2, 3]
        assert "etdev_test_model" not in sys.modules


def test_lines_are_named_through_a_symbolic_link(tmp_path: Path) -> None:
    folder = _write(tmp_path / "real", etdev_test_model="def f():\n    raise ValueError('no')\n")
    link = tmp_path / "link"
    link.symlink_to(folder)
    with UserCode() as user:
        function = user.get("etdev_test_model:f", link, WHERE)

        def run() -> None:
            with translated(user, LoadError, "it failed", where=WHERE):
                function()

        check_failure(run, Failure(LoadError, WHERE, "it failed: ValueError: no (etdev_test_model.py:2, in f)"))


def test_the_folder_that_names_a_module_comes_first(tmp_path: Path) -> None:
    """Two config files in different folders, joined by ``extends``: each finds its own modules."""
    one = _write(tmp_path / "one", model="def f(): return 1\n", metric="def f(): return 1\n")
    two = _write(tmp_path / "two", data="def f(): return 2\n", metric="def f(): return 2\n")
    with UserCode() as user:
        assert user.get("model:f", one, WHERE)() == 1
        assert user.get("data:f", two, WHERE)() == 2
        assert user.get("metric:f", one, WHERE)() == 1
        check_failure(
            lambda: user.get("metric:f", two, WHERE),
            Failure(
                LoadError,
                WHERE,
                "two config files refer to different modules with the name 'metric': "
                f"{one / 'metric.py'} and {two / 'metric.py'}",
                "rename one of the two modules",
            ),
        )


HELPED = {
    "import": "import helpers\ndef f(): return helpers.name\n",
    "from": "from helpers import name\ndef f(): return name\n",
    "in a function": "def f():\n    import helpers\n    return helpers.name\n",
    "of a package's module": "def f():\n    from kit import helpers\n    return helpers.name\n",
}
"""Code whose ``f`` answers with the name of the folder that its helper module stands in."""


def _two_folders(tmp_path: Path, model: str, data: str) -> tuple[Path, Path]:
    """main/model.py and base/data.py, with ``helpers`` and ``kit.helpers`` (no package) in both folders."""
    folders = []
    for name, module, text in (("main", "model", model), ("base", "data", data)):
        helper = f"name = {name!r}\n"
        folders.append(_write(tmp_path / name, helpers=helper, **{module: text}))
        _write(tmp_path / name / "kit", helpers=helper)
    return folders[0], folders[1]


@pytest.mark.parametrize("way", HELPED)
@pytest.mark.parametrize("called", [True, False], ids=["called before", "not called"])
def test_two_helpers_of_one_name_are_not_mixed_up(tmp_path: Path, way: str, called: bool) -> None:
    main, base = _two_folders(tmp_path, HELPED[way], HELPED[way])
    name = "kit.helpers" if "kit" in HELPED[way] else "helpers"
    paths = [folder / f"{name.replace('.', '/')}.py" for folder in (main, base)]
    with UserCode() as user:
        function = user.get("model:f", main, WHERE)
        if called:
            assert function() == "main"
        check_failure(
            lambda: user.get("data:f", base, WHERE),
            Failure(
                LoadError,
                WHERE,
                f"the code of two config files imports different modules with the name {name!r}: "
                f"{paths[0]} and {paths[1]}",
                "rename one of the two modules",
            ),
        )


def test_a_config_and_a_helper_mean_two_modules_of_one_name(tmp_path: Path) -> None:
    main, base = _two_folders(tmp_path, HELPED["in a function"], "")
    with UserCode() as user:
        user.get("model:f", main, WHERE)
        with pytest.raises(
            LoadError,
            match=r"imports different modules with the name 'helpers': .*main.helpers.py and .*base.helpers.py",
        ):
            user.get("helpers:f", base, WHERE)


@pytest.mark.parametrize("way", HELPED)
def test_a_helper_that_only_one_folder_imports_comes_from_there(tmp_path: Path, way: str) -> None:
    """Also late, when the other folder comes first in the module search."""
    main, base = _two_folders(tmp_path, HELPED[way], "def f(): return 'no helper'\n")
    with UserCode() as user:
        model, data = user.get("model:f", main, WHERE), user.get("data:f", base, WHERE)
        assert (model(), data()) == ("main", "no helper")


@pytest.mark.parametrize("way", HELPED)
def test_a_helper_may_be_shared(tmp_path: Path, way: str) -> None:
    """It stands in one of the folders; code in both imports it."""
    main, base = _two_folders(tmp_path, HELPED[way], HELPED[way])
    for path in (main / "helpers.py", main / "kit/helpers.py"):
        path.unlink()
    (main / "kit").rmdir()
    with UserCode() as user:
        data, model = user.get("data:f", base, WHERE), user.get("model:f", main, WHERE)
        assert (model(), data()) == ("base", "base")


def test_modules_inside_packages_may_have_one_name(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = _write(
            tmp_path / name, **{f"run_{name}": f"from kit_{name}.helpers import name\ndef f(): return name\n"}
        )
        _write(folder / f"kit_{name}", __init__="from . import helpers\n", helpers=f"name = {name!r}\n")
    with UserCode() as user:
        assert [user.get(f"run_{name}:f", tmp_path / name, WHERE)() for name in ("one", "two")] == ["one", "two"]


def test_a_library_that_both_folders_import_is_not_theirs(tmp_path: Path) -> None:
    """``json`` is loaded already, so a json.py beside a config hides it from nobody."""
    main, base = (
        _write(tmp_path / name, json="", **{f"run_{name}": "import json\ndef f(): return json.dumps(1)\n"})
        for name in ("main", "base")
    )
    with UserCode() as user:
        assert [user.get(f"run_{folder.name}:f", folder, WHERE)() for folder in (main, base)] == ["1", "1"]


def test_what_the_process_imports_anyway_is_not_forgotten(tmp_path: Path) -> None:
    """etdev installed from its sources, with a config in the repository's root."""
    folder = _write(tmp_path / "src", etdev_test_installed="def f(): return 1\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        with UserCode() as user:
            assert user.get("etdev_test_installed:f", tmp_path, WHERE)() == 1
        assert "etdev_test_installed" in sys.modules
        del sys.modules["etdev_test_installed"]


def test_a_config_around_the_sources_of_etdev(repository: Path) -> None:
    """Leaving a build does not forget etdev itself."""
    with UserCode() as user:
        user.get("etdev.pipeline.project.versions:versions", repository, WHERE)
    assert "etdev.pipeline.project.versions" in sys.modules


# custom ops -----------------------------------------------------------------------------------------------------------


def _register(folder: Path, name: str) -> None:
    with UserCode() as user:
        user.register([name], folder, WHERE)
        assert Path(sys.modules[name].__file__ or "").parent == folder


def test_ops_are_registered_once_in_a_process(tmp_path: Path) -> None:
    counter = "import builtins\nbuiltins.etdev_test = getattr(builtins, 'etdev_test', 0) + 1\n"
    one, two = (_write(tmp_path / name, etdev_test_ops=counter) for name in ("one", "two"))
    for folder in (one, one, two, one, two):
        _register(folder, "etdev_test_ops")
    assert sys.modules["builtins"].etdev_test == 2  # type: ignore[attr-defined]
    del sys.modules["builtins"].etdev_test, sys.modules["etdev_test_ops"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/a/b", True), ("/a/b/", True), ("/a/b/c.py", True), ("/a/bc", False), ("/a", False), ("b", False), ("", False)],
)
def test_a_path_below_a_folder(path: str, expected: bool) -> None:
    """A folder whose name only begins alike is another one."""
    assert is_below(path, "/a/b") is expected
    assert is_below(path, Path("/a/b")) is expected
    assert is_below(path, "/") is path.startswith("/")


def test_packages_that_provide_modules() -> None:
    """The same as Python finds, which parses the file lists of all packages."""
    every = metadata.packages_distributions()
    for module in ("pytest", "_pytest", "numpy", "typing_extensions", "tree_sitter", "etdev", "os", "nothing"):
        assert packages_of_modules({module}) == set(every.get(module, ())), module
    assert packages_of_modules({"pytest", "numpy", "os"}) == {"pytest", "numpy"}
    assert packages_of_modules(set()) == set()
