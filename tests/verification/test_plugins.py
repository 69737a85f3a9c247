"""Checks of other packages: one file is enough, and what it finds counts as what etdev's own checks find."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from etdev.backends.opening import open_config
from etdev.cli import app
from etdev.config.check_names import BUILT_IN, check_names
from etdev.config.describe.schema import schema_text
from etdev.errors import ConfigError, MissingRequirementError, VerifyError
from etdev.pipeline.results.result import outcome
from etdev.program import write
from etdev.verification import order
from etdev.verification.verify_file import verify_files
from support.files import chain
from support.plugins import Packages
from support.projects import LINEAR, LINEAR_CONFIG, SAMPLES, write_project
from support.verification import Prepared

GOOD = '''\
"""A check that refuses float64."""

from etdev.program.model import ScalarType
from etdev.verification import Check, CheckResult, Need, Subject, failed, passed


class NoFloat64(Check):
    name = "no-float64"
    needs = (Need.PROGRAM,)

    def run(self, subject: Subject) -> CheckResult:
        problems = [
            f"value {index} of method {plan.name!r} is float64"
            for plan in subject.program.execution_plan
            for index, tensor in plan.tensors()
            if tensor.scalar_type is ScalarType.DOUBLE
        ]
        if problems:
            return failed(self.name, problems, hint="convert the model to float32: `model.float()`")
        return passed(self.name, "no tensor is float64")
'''
FAILING = GOOD.replace("ScalarType.DOUBLE", "ScalarType.FLOAT")
GATE = FAILING.replace("problems, hint", "problems[:1], gate=True, hint")
IDLE = GOOD + '\n    def applies(self, subject):\n        return "it has no numbers"\n'
WITH_CONFIG = GOOD.replace("Need.PROGRAM", "Need.CONFIG")
PLAIN = """
from etdev.verification import passed

class Anything:
    name, needs = "anything", ()

    def applies(self, subject):
        return None

    def run(self, subject):
        return passed(self.name, "seen after " + ", ".join(subject.results))
"""

Install = Callable[..., None]


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a package with one check."""
    packages = Packages(tmp_path / "site-packages", "etdev.checks", monkeypatch)

    def install(source: str, name: str = "no-float64", attribute: str = "NoFloat64", package: str = "toy") -> None:
        packages.install(f"etdev_test_{package}", name, source, attribute)

    return install


def test_the_order_is_the_one_of_the_names() -> None:
    assert [check.name for check in order.BUILT_IN] == list(BUILT_IN)


def test_it_runs_after_the_others(plugin: Install, linear: Prepared) -> None:
    plugin(PLAIN + "\nchecked = Anything()", "anything", "checked", "plain")  # An object needs no base class.
    plugin(GOOD)
    checks = linear.judge()

    assert tuple(checks) == (*BUILT_IN, "anything", "no-float64") == check_names()
    assert checks["anything"].summary == f"seen after {', '.join(BUILT_IN)}"
    assert (checks["no-float64"].status, checks["no-float64"].summary) == ("passed", "no tensor is float64")


def test_a_failure_rejects_the_file_unless_it_is_a_gate(plugin: Install, linear: Prepared) -> None:
    plugin(FAILING)
    checks = linear.judge()
    assert checks["no-float64"].problems[0] == "value 0 of method 'forward' is float64"
    assert outcome(tuple(checks.values())) == "rejected"
    plugin(GATE)
    assert outcome(tuple(linear.judge().values())) == "gate failed"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple]:
    """Run a command line in the folder of a project: exit code, stdout, stderr."""
    config = LINEAR_CONFIG + '    samples = "data:samples"\n    [targets.cpu]\n'
    write_project(tmp_path / "project", config, model=LINEAR, data=SAMPLES)
    monkeypatch.chdir(tmp_path / "project")

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = app.run(arguments)
        return code, *capfd.readouterr()

    return run


def reported() -> dict[str, str]:
    """The checks of the target in its report."""
    (target,) = json.loads(Path("build/cpu/report.json").read_text())["targets"]
    return {check["name"]: check["status"] for check in target["checks"]}


@pytest.mark.integration
@pytest.mark.nightly
def test_in_a_build(plugin: Install, run: Callable[..., tuple]) -> None:
    """A check that fails, one that passes from the cache, one that did not run but is required."""
    plugin(FAILING)
    code, out, _ = run("build", "-v", "--output", "text", "--output", "sarif=found.sarif")
    assert code == 4
    assert "  no-float64 failed   value 0 of method 'forward' is float64\n" in out
    assert "             help: convert the model to float32: `model.float()`\n" in out
    assert out.endswith("tiny: 1 target, 1 rejected (no-float64)\n")
    assert (reported()["no-float64"], Path("build/cpu/tiny.pte").exists()) == ("failed", False)
    assert '"ruleId": "no-float64"' in Path("found.sarif").read_text()

    plugin(GOOD)
    assert run("build", "--require", "no-float64")[0] == 0
    assert list(reported()) == [*BUILT_IN, "no-float64"]
    code, out, _ = run("build", "-v", "--require", "no-float64")
    assert (code, "  no-float64 passed   no tensor is float64\n" in out) == (0, True)
    assert "nothing has changed" in out or "unchanged" in out
    assert run("report", "cpu", "--output", "html=page.html")[0] == 0
    assert "no-float64" in Path("page.html").read_text()

    plugin(IDLE)  # Its module has changed, so the target is verified again.
    code, out, _ = run("build", "--set", "targets.cpu.verify.require=['no-float64']")
    assert (code, "  no-float64 not run  required, but it has no numbers\n" in out) == (3, True)
    assert run("build", "--no-verify")[0] == 0
    assert reported()["no-float64"] == "not run"


def test_of_a_file(plugin: Install, run: Callable[..., tuple]) -> None:
    write(chain(1), Path("chain.pte"))
    plugin(GOOD)
    assert "  no-float64 passed   no tensor is float64\n" in run("verify", "chain.pte")[1]
    plugin(WITH_CONFIG)
    code, out, _ = run("verify", "chain.pte", "--require", "no-float64")
    assert code == 3
    assert "  no-float64 not run  required, but this check needs the config that the file was built from\n" in out


def test_in_a_config(plugin: Install, tmp_path: Path) -> None:
    plugin("raise SystemExit('must not be imported')")
    config = LINEAR_CONFIG + '    [targets.cpu]\n    verify.require = ["NAME"]\n'
    loaded = open_config(write_project(tmp_path, config.replace("NAME", "no-float64")), environ={})
    assert loaded.config.targets["cpu"].verify.require == ("no-float64",)
    assert '"no-float64"' in schema_text()
    with pytest.raises(ConfigError) as caught:
        open_config(write_project(tmp_path, config.replace("NAME", "no-flot64")), environ={})
    (problem,) = caught.value.problems
    assert (problem.rule, problem.hint) == ("wrong-value", 'did you mean "no-float64"?')


BROKEN = {
    "it cannot be imported": (
        "import nothing_of_this_name",
        "no-float64",
        (
            "the check 'no-float64' of 'etdev_test_toy' cannot be imported: ModuleNotFoundError: No module named "
            "'nothing_of_this_name'"
        ),
        "update or remove the package 'etdev_test_toy'",
    ),
    "it is not a check": (
        "NoFloat64 = 3",
        "no-float64",
        (
            "'etdev_test_toy:NoFloat64', which 'etdev_test_toy' registers as the check 'no-float64', is not a "
            "check: it lacks applies, name, needs, run"
        ),
        "a check must have the members of etdev.verification.Check, and the same name as its entry point",
    ),
    "it has another name": (
        GOOD,
        "float64",
        "the entry point 'float64' in 'etdev_test_toy' provides a check with another name: 'no-float64'",
        "a check must have the members of etdev.verification.Check, and the same name as its entry point",
    ),
    "etdev has the name": (
        GOOD,
        "plan",
        "the package 'etdev_test_toy' registers the check 'plan', which is a built-in name",
        "update or remove the package 'etdev_test_toy'",
    ),
}


@pytest.mark.parametrize(("source", "name", "message", "hint"), BROKEN.values(), ids=BROKEN)
def test_a_plugin_that_does_not_work(
    plugin: Install, linear: Prepared, source: str, name: str, message: str, hint: str
) -> None:
    plugin(source, name)
    with pytest.raises(MissingRequirementError) as caught:
        linear.judge()
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_two_packages_with_one_name(plugin: Install) -> None:
    plugin(GOOD)
    plugin(GOOD, package="again")
    with pytest.raises(
        MissingRequirementError, match=r"the check 'no-float64' is registered by 'etdev_test_again' and"
    ):
        check_names()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return {}['x']", "the check 'no-float64' of 'etdev_test_toy' failed: KeyError: 'x'"),
        ("return None", "`run` returned None instead of a result of this check"),
        ("return subject.results['plan']", "instead of a result of this check"),
    ],
)
def test_an_error_in_a_check_names_its_package(plugin: Install, linear: Prepared, body: str, message: str) -> None:
    plugin(GOOD.replace("        problems = [", f"        {body}\n        problems = ["))
    with pytest.raises(VerifyError) as caught:
        linear.judge()
    assert message in caught.value.message
    assert caught.value.hint == "update or remove the package 'etdev_test_toy'"


def test_a_check_states_what_it_needs(plugin: Install, tmp_path: Path) -> None:
    plugin(GOOD.replace("        problems = [", "        return subject.built\n        problems = ["))
    write(chain(1), tmp_path / "chain.pte")
    with pytest.raises(VerifyError, match=r"uses the config must have `Need\.CONFIG` in its `needs`"):
        verify_files([tmp_path / "chain.pte"])
