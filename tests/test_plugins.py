"""Extension points: names without imports, and one clear error for each way in which a plug-in fails."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from etdev import backends, planner, plugins, templates
from etdev.cli import app
from etdev.cli.calls import check_transport
from etdev.config.describe.schema import json_schema
from etdev.config.destinations import FORMS, Destination, DestinationError, parse_destination
from etdev.config.reference import reference
from etdev.deployment.transports import Connection, open_transport
from etdev.errors import ConfigError, DeployError, EtdevError, LinkError, MissingRequirementError, UsageError
from etdev.linker.planners import get_planner
from etdev.pipeline.cache.digests import Digests
from etdev.pipeline.cache.facts import linked_facts, locked_facts, object_facts
from etdev.pipeline.project.options import BuildOptions
from etdev.pipeline.relink import relink
from etdev.planner import Buffer, Problem
from etdev.plugins import BACKENDS, DEPLOY_TRANSPORTS, EXECUTORS, PLANNERS, TEMPLATES, WORKER_TRANSPORTS, Group
from etdev.runtime.orchestrator.transports import open_transport as open_workers
from support.plugins import Site
from support.projects import LINEAR_CONFIG, make_project

Install = Callable[..., None]
ALL = (BACKENDS, EXECUTORS, PLANNERS, DEPLOY_TRANSPORTS, WORKER_TRANSPORTS, TEMPLATES)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path / "site-packages", monkeypatch)


@pytest.fixture
def mine(site: Site) -> Install:
    """Installs the package ``mine-package``, which registers ``mine`` in a group."""

    def install(group: Group, source: str, value: str = "mine_package:mine") -> None:
        site.install("mine-package", {group.name: {"mine": value}}, {"mine_package.py": source})

    return install


def test_built_in_names() -> None:
    assert set(PLANNERS.built_in) == planner.PLANNERS.keys()
    assert TEMPLATES.built_in == tuple(templates.TEMPLATES)
    assert DEPLOY_TRANSPORTS.built_in == tuple(FORMS)
    assert {*backends.get("reference").delegate_ids} == {*EXECUTORS.built_in}


@pytest.mark.parametrize("group", ALL, ids=lambda group: group.name)
def test_names_import_nothing(mine: Install, group: Group) -> None:
    mine(group, "raise SystemExit('must not be imported')")
    assert plugins.names(group) == (*group.built_in, "mine")
    assert plugins.distribution(group, "mine").name == "mine-package"
    assert plugins.distribution(group, group.built_in[0]) is None
    assert "mine_package" not in sys.modules


BROKEN = {
    "it cannot be imported": (
        "import nothing_of_this_name",
        (
            "the planner 'mine' of 'mine-package' cannot be imported: "
            "ModuleNotFoundError: No module named 'nothing_of_this_name'"
        ),
        "update or remove the package 'mine-package'",
    ),
    "it ends the process": (
        "raise SystemExit(1)",
        "the planner 'mine' of 'mine-package' cannot be imported: SystemExit: 1",
        "update or remove the package 'mine-package'",
    ),
    "the object is missing": (
        "",
        (
            "the planner 'mine' of 'mine-package' cannot be imported: "
            "AttributeError: module 'mine_package' has no attribute 'mine'"
        ),
        "update or remove the package 'mine-package'",
    ),
    "a member is missing": (
        "mine = 3",
        (
            "'mine_package:mine', which 'mine-package' registers as the planner 'mine', is not a planner: "
            "it lacks __call__"
        ),
        "a planner must be a function from an etdev.planner.Problem to offsets, or use the decorator `bank_planner`",
    ),
    "it is a class": (
        "class mine: pass",
        "'mine_package:mine', which 'mine-package' registers as the planner 'mine', is not a planner: it is a class",
        "register an instance of the class",
    ),
}


@pytest.mark.parametrize(("source", "message", "hint"), BROKEN.values(), ids=BROKEN)
def test_an_object_that_does_not_load(mine: Install, source: str, message: str, hint: str) -> None:
    mine(PLANNERS, source)
    with pytest.raises(MissingRequirementError) as caught:
        plugins.load(PLANNERS, "mine")
    assert (caught.value.message, caught.value.hint, caught.value.exit_code) == (message, hint, 3)


def test_a_name_of_etdevs_own(site: Site) -> None:
    site.install("thief", {"etdev.planners": {"best": "thief:plan"}})
    assert plugins.names(PLANNERS) == PLANNERS.built_in
    for use in (plugins.check_name, plugins.load, plugins.distribution):
        with pytest.raises(MissingRequirementError) as caught:
            use(PLANNERS, "best")
        assert caught.value.message == ("the package 'thief' registers the planner 'best', which is a built-in name")
        assert caught.value.hint == "update or remove the package 'thief'"
    assert get_planner("greedy") == "greedy"


def test_a_name_of_two_packages(site: Site) -> None:
    for package in ("b-package", "a-package"):
        site.install(package, {"etdev.planners": {"mine": "somewhere:plan"}})
    assert plugins.names(PLANNERS) == (*PLANNERS.built_in, "mine")
    with pytest.raises(MissingRequirementError) as caught:
        plugins.load(PLANNERS, "mine")
    assert caught.value.message == "the planner 'mine' is registered by 'a-package' and 'b-package'"
    assert caught.value.hint == "keep one of these packages"


@pytest.mark.parametrize("group", ALL, ids=lambda group: group.name)
def test_a_name_that_nothing_has(group: Group) -> None:
    for use in (plugins.check_name, plugins.load, plugins.distribution):
        with pytest.raises(KeyError):
            use(group, "none of these")


# Planners


def config(planner_name: str) -> str:
    return f'{LINEAR_CONFIG}    [targets.cpu]\n    memory.planner = "{planner_name}"\n'


def test_a_planner_in_a_config(mine: Install, tmp_path: Path) -> None:
    """The config imports nothing, and the package's version is a fact of the link and not of the export."""
    mine(PLANNERS, "raise SystemExit('must not be imported')")
    project = make_project(tmp_path, config("mine"))
    digests, options = Digests(), BuildOptions()
    assert linked_facts(project, "cpu", options, digests).versions["mine-package"] == "1.0"
    assert locked_facts(project, "cpu").versions["mine-package"] == "1.0"
    assert "mine-package" not in object_facts(project, "cpu").versions
    assert "mine_package" not in sys.modules


@pytest.mark.parametrize(
    ("name", "hint"), [("mien", 'did you mean "mine"?'), ("bets", 'did you mean "best"?'), ("zzz", None)]
)
def test_an_unknown_planner_in_a_config(mine: Install, tmp_path: Path, name: str, hint: str | None) -> None:
    mine(PLANNERS, "")
    with pytest.raises(ConfigError) as caught:
        make_project(tmp_path, config(name))
    assert caught.value.message == (
        f'`targets.cpu.memory.planner` is "{name}"; expected one of "naive", "greedy", "best", "mine" or '
        '"module:callable"'
    )
    assert caught.value.hint == hint


def test_the_schema_and_the_reference_do_not_depend_on_plug_ins(mine: Install) -> None:
    before = json_schema(), reference("")
    mine(PLANNERS, "")
    assert (json_schema(), reference("")) == before


def test_a_planner_that_raises(mine: Install) -> None:
    mine(PLANNERS, "def mine(problem): return [1 // 0]")
    plan = get_planner("mine")
    assert callable(plan)
    with pytest.raises(LinkError) as caught:
        plan(Problem((Buffer(16, 0, 1),)))
    message = "the planner 'mine' of 'mine-package' failed: ZeroDivisionError: integer division or modulo by zero"
    assert (caught.value.message, caught.value.hint) == (message, "update or remove the package 'mine-package'")


def test_relink_lists_planners(mine: Install, tmp_path: Path) -> None:
    mine(PLANNERS, "")
    with pytest.raises(UsageError) as caught:
        relink(tmp_path / "a.pte", tmp_path / "b.pte", planner="none")
    assert caught.value.hint == "one of: best, greedy, mine, naive"


# Transports


def test_a_destination_of_another_package(mine: Install) -> None:
    mine(DEPLOY_TRANSPORTS, "def mine(connection): return connection")
    found = {
        "mine://host/a/b": Destination("mine", "/a/b", "host"),
        "MINE://me@host:7/a": Destination("mine", "/a", "host", "me", 7),
        "mine:a/b": Destination("mine", "a/b"),
    }
    for uri, destination in found.items():
        assert parse_destination(uri) == destination
        assert parse_destination(str(destination)) == destination
        reach = Connection(destination, Path())
        assert open_transport(reach) is reach
    for uri, message in {"mine://me:secret@host/a": "contains a password", "mine:a/../b": "contains `..`"}.items():
        with pytest.raises(DestinationError, match=message) as caught:
            parse_destination(uri)
        assert "secret" not in f"{caught.value}{caught.value.hint}"
    with pytest.raises(DestinationError) as unknown:
        parse_destination("other:a")
    assert unknown.value.hint.endswith(", mine:PATH or mine://[USER@]HOST[:PORT]/PATH")


def test_a_deployment_of_another_package_may_have_every_key(mine: Install, tmp_path: Path) -> None:
    mine(DEPLOY_TRANSPORTS, "raise SystemExit('must not be imported')")
    keys = 'endpoint_url = "https://host"\nsmoke = ["true"]\npassword_env = "SECRET"\nknown_hosts = "hosts"\n'
    lines = f'[deploy.board]\ntarget = "cpu"\nuri = "mine://host/a"\n{keys}'
    project = make_project(tmp_path, LINEAR_CONFIG + "    [targets.cpu]\n" + lines)
    assert project.config.deploy["board"].uri == "mine://host/a"


FAILING = {
    "deploy": (
        DEPLOY_TRANSPORTS,
        lambda: open_transport(Connection(Destination("mine", "/a"), Path())),
        DeployError,
    ),
    "workers": (WORKER_TRANSPORTS, lambda: open_workers("mine", []), MissingRequirementError),
}


@pytest.mark.parametrize(("group", "use", "kind"), FAILING.values(), ids=FAILING)
def test_a_transport_that_cannot_be_made(
    mine: Install, group: Group, use: Callable[[], object], kind: type[EtdevError]
) -> None:
    mine(group, "def mine(given): raise OSError('no such cable')")
    with pytest.raises(kind) as caught:
        use()
    assert caught.value.message == f"the {group.kind} 'mine' of 'mine-package' failed: OSError: no such cable"


def test_worker_transports_by_name(mine: Install) -> None:
    mine(WORKER_TRANSPORTS, "")
    assert check_transport("mine") == "mine"
    with pytest.raises(UsageError) as caught:
        check_transport("none")
    assert caught.value.hint == "use one of: thread, process, ray, mine"


# Templates


def test_a_template_that_does_not_work(mine: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine(TEMPLATES, "mine = 3")
    assert app.run(["init", "--list"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("mine "))
    assert "not usable: 'mine_package:mine', which 'mine-package' registers as the template 'mine'" in line
    assert app.run(["init", str(tmp_path / "new"), "--template", "mine"]) == 3
    assert "help: a template must be an etdev.templates.Template" in capsys.readouterr().err
    assert app.run(["init", str(tmp_path / "new"), "--template", "none"]) == 2
    assert "help: use one of: minimal, vision, mcu, multi-device, ci, llm, mine" in capsys.readouterr().err


def test_a_template_without_its_file(mine: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = f"""
from pathlib import Path
from etdev.templates import Template
mine = Template("mine", ("missing.py",), folder=Path({str(tmp_path)!r}))
"""
    mine(TEMPLATES, source)
    assert app.run(["init", str(tmp_path / "new"), "--template", "mine"]) == 3
    said = capsys.readouterr().err
    assert "the template 'mine' cannot be read: No such file or directory" in said
    assert "missing.py" in said
    assert not (tmp_path / "new").exists()
