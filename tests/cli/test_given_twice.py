"""An option with one value may be given once; others may be repeated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from cli.running import Run
from etdev.cli import app
from etdev.cli.lazy import LazyGroup


def _options(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each option of each command with the words that name the command."""
    if isinstance(command, LazyGroup):
        for name in command.entries:
            yield from _options(command.get_command(None, name), (*path, name))
    else:
        yield from ((path, item) for item in command.params if item.param_type_name == "option")


def _with_one_value() -> Iterator[Any]:
    for path, option in _options(get_command(app.app)):
        if not (option.multiple or option.is_flag or option.count):
            yield pytest.param(path, option.opts, id=" ".join((*path, max(option.opts, key=len))))


@pytest.mark.parametrize(("path", "names"), [*_with_one_value()])
def test_a_second_value_is_refused(path: tuple[str, ...], names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """By each of its names, with the same value too."""
    for name in names:
        assert app.run([*path, names[0], "7", name, "7"]) == 2
        head, remedy = capsys.readouterr().err.splitlines()
        shown = max(names, key=len)
        assert head == f"error: {shown}: this option takes one value, and the command line has two: '7' and '7'"
        assert remedy.startswith("help: ")


def test_the_remedy_for_methods_names_the_ways_to_call_several(run: Run) -> None:
    code, out, err = run("chain.pte", "--method", "prefill", "--method=decode")
    assert (code, out) == (2, "")
    assert err == (
        "error: --method: this option takes one value, and the command line has two: 'prefill' and 'decode'\n"
        "help: call each method with a command of its own. To call several methods on the same state, list the calls "
        "in `verify.sessions`, or use the `--call` of a project of `etdev runner`\n"
    )


def test_repeatable_options_and_flags_are_not_refused(run: Run) -> None:
    code, _, err = run(
        "scaled.pte", "--quiet", "-q", "--input", "0=x.npy", "--input", "1=y.npy", "--input", "2=1", "--output", "text",
        "--output", "json=a.json",
    )  # fmt: skip
    assert (code, err) == (0, "")


def test_each_command_line_is_read_for_itself(run: Run) -> None:
    """Two command lines of one process, as in a test of a user's own, each have one value."""
    for _ in range(2):
        assert run("chain.pte", "--random", "--seed", "1")[0] == 0


def test_the_text_of_each_repeatable_option_says_so() -> None:
    silent = [
        (*path, *option.opts)
        for path, option in _options(get_command(app.app))
        if option.multiple and "Repeatable" not in option.help
    ]
    assert silent == []
