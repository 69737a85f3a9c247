"""Profiles and overrides use names that a file defines: a misspelled target is not a new one."""

from __future__ import annotations

import gc
import time
from pathlib import Path

import pytest

from config.support import MINIMAL, load, problems
from etdev.config.names import NAMED_TABLES

FULL = MINIMAL + (
    "[targets.int8]\nquantize = 'static'\nbudget.file = '1KiB'\n"
    "[quantize.static]\nscheme = 'pt2e-xnnpack'\ndynamic = true\n"
    "[deploy.phone]\ntarget = 'int8'\nuri = 'file:out'\n"
    "[constants]\nrelease = 1\n"
)
MISSPELLED = {
    "targets.int9.budget.file='1KiB'": ("target", "targets.int9", "did you mean `int8`? Add the new target"),
    "targets={int9={budget={file='1KiB'}}}": ("target", "targets.int9", "did you mean `int8`? Add the new target"),
    "targets.int9.new=true": ("target", "targets.int9", "did you mean `int8`? Add the new target"),
    "targets.other={}": ("target", "targets.other", "targets here: cpu, int8; add the new target"),
    "methods.forwrd.samples='data:f'": ("method", "methods.forwrd", "did you mean `forward`? Add the new method"),
    "quantize.statik.per_channel=false": (
        "quantization scheme",
        "quantize.statik",
        "did you mean `static`? Add the new quantization scheme",
    ),
    "deploy.fone.keep=1": ("deployment", "deploy.fone", "did you mean `phone`? Add the new deployment"),
    "constants.relase=2": (
        "constant method",
        "constants.relase",
        ("did you mean `release`? Add the new constant method"),
    ),
}


@pytest.mark.parametrize("argument", MISSPELLED)
def test_a_misspelled_name_in_an_override(argument: str, tmp_path: Path) -> None:
    word, key, hint = MISSPELLED[argument]
    found = problems(tmp_path, FULL, "etdev.toml", argument)
    unknown = [problem for problem in found if problem.rule == "unknown-name"]
    assert [(p.where, p.key, p.message) for p in unknown] == [
        (f"--set {argument}", key, f"`{key}`: no config file defines this {word}")
    ]
    assert unknown[0].hint == f"{hint} to the config file"
    assert [problem.message for problem in found if problem.rule == "missing-key"] == []


def test_a_misspelled_name_in_a_variable(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, FULL, environ={"ETDEV__TARGETS__INT9__BUDGET__FILE": "1KiB"})
    assert found.where == "environment variable ETDEV__TARGETS__INT9__BUDGET__FILE"
    assert found.message == "`targets.int9`: no config file defines this target"


@pytest.mark.parametrize(
    ("table", "content", "hint"),
    [
        ("targets.int9", "budget.file = 1", "did you mean `int8`? For a new target, set `new` to true in this table"),
        ("methods.forwrd", "samples = 'data:f'", "did you mean `forward`? For a new method, set"),
        ("quantize.statik", "per_channel = false", "did you mean `static`? For a new quantization scheme, set"),
        ("deploy.fone", "keep = 1", "did you mean `phone`? For a new deployment, set"),
        ("targets.other", "new = false", "targets here: cpu, int8; for a new target, set"),
    ],
)
def test_a_misspelled_name_in_a_profile(table: str, content: str, hint: str, tmp_path: Path) -> None:
    text = f"{FULL}[profiles.ci.{table}]\n{content}\n"
    for profile in (None, "ci"):
        (found,) = problems(tmp_path, text, profile=profile)
        line = text.count("\n") - 1
        column = len("[profiles.ci.") + table.index(".") + 2
        assert (found.where, found.key) == (f"etdev.toml:{line}:{column}", f"profiles.ci.{table}")
        assert (found.rule, (found.hint or "")[: len(hint)]) == ("unknown-name", hint)


def test_other_mistakes_in_a_misspelled_table_are_said_at_once(tmp_path: Path) -> None:
    text = FULL + "[profiles.ci.targets.int9]\nbudgit = 1\n"
    found = problems(tmp_path, text)
    assert [problem.key for problem in found] == ["profiles.ci.targets.int9", "profiles.ci.targets.int9.budgit"]


NEW = FULL + (
    "[profiles.big.targets.large]\nnew = true\nbudget.file = 7\n"
    "[profiles.big.methods.decode]\nnew = true\ninputs = []\n"
    "[profiles.big.quantize.dynamic]\nnew = true\nscheme = 'pt2e-xnnpack'\ndynamic = true\n"
    "[profiles.big.deploy.host]\nnew = true\ntarget = 'large'\nuri = 'file:out'\n"
    "[profiles.other]\n"
)


def test_new_names_of_a_profile(tmp_path: Path) -> None:
    loaded = load(tmp_path, NEW, "etdev.toml", "targets.large.budget.file=8", profile="big")
    assert loaded.config.targets["large"].budget.file == 8
    for table, name in zip(NAMED_TABLES, ADDED, strict=True):
        assert name in getattr(loaded.config, table)
    assert ("targets", "large", "new") not in loaded.origins
    assert "large" not in load(tmp_path, NEW).config.targets


ADDED = ("decode", "dynamic", "large", "host")
"""By table, as in ``NAMED_TABLES``."""


def test_a_name_of_another_profile_in_an_override(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, NEW, "etdev.toml", "targets.large.budget.file=8", profile="other")
    assert found.message == "`targets.large`: no config file defines this target"
    assert found.hint == "use `--profile big`, which defines this target"


@pytest.mark.parametrize(
    ("value", "message", "position"),
    [
        ("true", "`profiles.ci.targets.int8.new` is true, but a file defines this target", 7),
        ('"yes"', '`profiles.ci.targets.int8.new` is "yes"; expected true or false', 7),
    ],
)
def test_new_that_cannot_be(value: str, message: str, position: int, tmp_path: Path) -> None:
    text = f"{FULL}[profiles.ci.targets.int8]\nnew = {value}\n"
    (found,) = problems(tmp_path, text)
    assert (found.message, found.column) == (message, position)


def test_new_outside_of_a_profile_is_an_unknown_key(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, MINIMAL + "new = true\n")
    assert found.message == "unknown key `targets.cpu.new`"


def test_a_saved_program_need_not_declare_its_method(tmp_path: Path) -> None:
    text = "version = 1\n[model]\npt2 = 'm.pt2'\ntrust = true\n[targets.cpu]\n"
    load(tmp_path, text, "etdev.toml", "methods.forward.samples='data:f'")
    (found,) = problems(tmp_path, text, "etdev.toml", "methods.forwrd.samples='data:f'")
    assert found.message == "`methods.forwrd`: a `pt2` model has only the method `forward`"


@pytest.mark.nightly
def test_time_is_linear_in_the_number_of_profiles(tmp_path: Path) -> None:
    """Each profile was validated together with all others: 1,500 took 1.65 s, and twice as many four times as long."""

    def seconds(count: int) -> float:
        text = MINIMAL + "".join(f"[profiles.p{number}.targets.cpu]\nbudget.file = 7\n" for number in range(count))
        start = time.process_time()
        load(tmp_path, text)
        return time.process_time() - start

    seconds(10)
    gc.disable()  # Its time grows with all that the process holds.
    try:
        assert min(seconds(1600) for _ in range(3)) < 20 * min(seconds(200) for _ in range(3))
    finally:
        gc.enable()
