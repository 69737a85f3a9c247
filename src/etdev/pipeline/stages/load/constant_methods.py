"""Values of a program's constant methods, from a table in the config or from a function in the user's code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from etdev.config.models import Constants
from etdev.errors import LoadError
from etdev.pipeline.project import Project
from etdev.pipeline.project.usercode import UserCode, translated

if TYPE_CHECKING:
    import torch

_TABLE: TypeAdapter[Constants] = TypeAdapter(Constants, config=ConfigDict(strict=True))


def constants_of(project: Project, user: UserCode, module: torch.nn.Module) -> Constants:
    """Return the values of the constant methods that the config's ``constants`` defines.

    Raises :class:`~etdev.errors.LoadError` if a function does not return a valid table.
    """
    given = project.config.constants
    if not isinstance(given, str):
        return given
    where = project.where("constants")
    function = user.get(given, project.base("constants"), where)
    with translated(user, LoadError, f"{given!r} failed", where=where):
        found = function(module)
    if not isinstance(found, Mapping):
        raise LoadError(
            f"{given!r} returned {type(found).__name__} instead of a table of constant methods",
            where=where,
            hint='return a dict, for example {"get_max_seq_len": 128}',
        )
    for name, value in found.items():
        problem = _problem(project, name, value)
        if problem is not None:
            message, hint = problem
            raise LoadError(f"{given!r}: the constant {name!r} {message}", where=where, hint=hint)
    return _TABLE.validate_python(dict(found))


def _problem(project: Project, name: Any, value: Any) -> tuple[str, str] | None:
    """Return the problem with a constant, as a phrase, and a hint; None if the constant is valid."""
    if name in (project.config.methods or {"forward"}):  # The default is the method of a saved program.
        return "has the name of a method", "choose another name: methods and constant methods share one set of names"
    answers = list(value) if isinstance(value, list | tuple) else [value]
    try:
        _TABLE.validate_python({name: value})
        legible = all(
            isinstance(answer, bool | int | float | str) for answer in answers
        )  # isinstance accepts a tensor as a float.
    except ValidationError as error:
        if any(problem["loc"][-1] == "[key]" for problem in error.errors()):
            return "has an invalid name", "use letters, digits and `_`, and no digit at the start"
        legible = False
    if not legible:
        shown = repr(value) if isinstance(value, str | float | list | tuple) else f"a {type(value).__name__}"
        return f"is {shown}", "return a bool, an int, a finite float, a text, or a list of such values"
    if any(isinstance(answer, int) and not -(2**63) <= answer < 2**63 for answer in answers):
        return (
            "contains an integer of more than 64 bits",
            "use 64-bit integers, because a program cannot store larger ones",
        )
    return None
