"""Translation of ``torch.export``'s errors into the terms of the config and of the user's code.

This module recognizes the messages of torch 2.13. An unknown message is passed on with the location of the error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from etdev.errors import ExportError
from etdev.pipeline.project import Project
from etdev.pipeline.project.usercode import UserCode
from etdev.pipeline.stages.inputs import Signature
from etdev.pipeline.stages.multiples import SIZE_OF_INPUT, declared_name
from etdev.pipeline.stages.trials import Remedy, find_remedy, on_fakes, tensor_sizes

if TYPE_CHECKING:
    import torch

_GUARD = re.compile(
    r"Not all values of (?P<dim>\w+) = .*? satisfy the generated guard (?P<guard>.+?)\.?$", re.MULTILINE
)
_EQUAL = re.compile(r"The values of (?P<first>\w+) = .*? and (?P<second>\w+) = .*? must always be equal")
_BROADCAST = re.compile(r"The size of tensor a \(s\d+\) must match the size of tensor b \(s\d+\)")
_UNKNOWN_OUTPUT = re.compile(r"Found <class '(?P<kind>.+?)'> in output, which is not a known type")
_ASSIGNED = re.compile(r"Node copy__default\w* of type call_function is missing nn_module_stack")
_RANGE_FIX = re.compile(r"^\s*(?P<dim>\w+) = Dim\('\w+'(?:, min=(?P<min>\d+))?(?:, max=(?P<max>\d+))?\)", re.MULTILINE)
_MULTIPLE_OF_FACTOR = re.compile(r"(?:\d+\*)?\bfactor_of_(\w+)")
_NUMBER = re.compile(r"\b\d{1,9}\b")
_FIXED = re.compile(r"^\s*(?P<dim>\w+) = (?P<size>\d+)\s*$", re.MULTILINE)
_SPECIALIZED = re.compile(
    r"You marked (?:\d+\*factor_of_)?(?P<dim>\w+) as dynamic but your code specialized it to be a constant "
    r"\((?P<size>\d+)\)"
)
_MULTIPLE = re.compile(r"^\s*(?P<dim>\w+) = (?P<factor>\d+)\*_\w+\s*$", re.MULTILINE)


def explain_export_error(
    error: Exception, project: Project, user: UserCode, signature: Signature, module: torch.nn.Module
) -> ExportError:
    """Return the error to raise in place of ``error``, which a call or export of ``module`` raised.

    If the model itself raised ``error``, call the model with other inputs to find inputs that it accepts.
    """
    kinds: dict[str, Callable[[Exception, Project, UserCode, Signature], ExportError]] = {
        "UserError": _guard,
        "ConstraintViolationError": _guard,
        "GuardOnDataDependentSymNode": _data_dependent,
        "PendingUnbackedSymbolNotFound": _data_dependent,
    }
    explained = kinds.get(type(error).__name__, _model_error)(error, project, user, signature)
    remedy = None
    if explained.hint is None:
        sizes = tensor_sizes(module) | set(map(int, _NUMBER.findall(_first_line(error, signature))))
        remedy = find_remedy(signature, on_fakes(module), sizes)
    if remedy is not None:
        return unfit_input(error, project, user, signature, remedy)
    explained.hint = explained.hint or f"the config declares {signature.describe()}"
    return explained


def unfit_input(
    error: Exception, project: Project, user: UserCode, signature: Signature, remedy: Remedy
) -> ExportError:
    """Return the error for a method that fails on its declared inputs but runs with the change in ``remedy``."""
    place = user.place(error.__traceback__)
    return ExportError(
        f"method {signature.method!r} does not accept {remedy.found}: {type(error).__name__}: "
        + _first_line(error, signature)
        + (f" ({place})" if place else ""),
        where=project.where("methods", signature.method, *remedy.key),
        hint=remedy.hint,
    )


def _guard(error: Exception, project: Project, user: UserCode, signature: Signature) -> ExportError:
    """Return the error for a model that works only in part of a dynamic dimension's range."""
    text = str(error).partition("\n\nThe error above occurred")[0]
    equal = _EQUAL.search(text)
    if equal:
        return _must_be_equal(equal["first"], equal["second"], project, signature)
    violated = _GUARD.search(text)
    fixed = {match["dim"]: int(match["size"]) for form in (_FIXED, _SPECIALIZED) for match in form.finditer(text)}
    dim = violated["dim"] if violated else next((name for name in fixed if name in signature.dims), None)
    if dim is None or dim not in signature.dims:
        return _model_error(error, project, user, signature)
    declared = signature.dims[dim]
    where = project.where("methods", signature.method, "dims", dim)
    range_text = declared.describe()
    if dim in fixed:
        return ExportError(
            f"the model works only with {dim!r} = {fixed[dim]}, not with all of {range_text}",
            where=where,
            hint=f"write {fixed[dim]} instead of {dim!r} in the shapes, or change the model so that the size is "
            "not fixed",
        )
    return ExportError(
        f"the model does not work the same way for all sizes {range_text} of {dim!r}"
        + (f": it depends on {_condition(violated['guard'], dim)}" if violated else ""),
        where=where,
        hint=_guard_remedy(text, dim, violated["guard"] if violated else ""),
    )


def _must_be_equal(
    first: str, second: str, project: Project, signature: Signature, place: str | None = None
) -> ExportError:
    stated = [declared_name(name, signature) for name in (first, second)]
    if stated != [first, second]:  # A factor of a dimension in multiples.
        return ExportError(
            f"the model needs {stated[0]} and {stated[1]} to be equal",
            where=project.where("methods", signature.method, "dims"),
            hint="fix one of the sizes: `dims` cannot state this",
        )
    return ExportError(
        f"the model needs {first!r} and {second!r} to be equal" + (f" ({place})" if place else ""),
        where=project.where("methods", signature.method, "dims", first),
        hint=f"write {first!r} in the shapes instead of {second!r}",
    )


def _condition(guard: str, dim: str) -> str:
    return SIZE_OF_INPUT.sub(dim, guard).strip()


def _guard_remedy(text: str, dim: str, guard: str) -> str:
    for match in _MULTIPLE.finditer(text):
        if match["dim"] == dim:
            factor = match["factor"]
            return f"only multiples of {factor} work: set `multiple_of` of {dim!r} to {factor}, or fix the size"
    for match in _RANGE_FIX.finditer(text):
        if match["dim"] == dim and (match["min"] or match["max"]):
            bounds = [f"{key} {match[key]}" for key in ("min", "max") if match[key]]
            return f"declare the range {', '.join(bounds)}, which works; or write the branch with torch.cond"
    if "*min(" in guard:  # A product of sizes and strides: export asks if a tensor can be viewed.
        return "fix the size, or use flatten and unflatten instead of view and reshape to merge and split axes"
    return "fix the size, or write the branch with torch.cond"


def _data_dependent(error: Exception, project: Project, user: UserCode, signature: Signature) -> ExportError:
    """Return the error for a model whose control flow or sizes depend on the values of a tensor."""
    place = user.place(error.__traceback__)
    expression = re.search(r"data-dependent expression (.+?) \(unhinted", str(error))
    number = "extract" in str(error)[:60] or (expression is not None and expression[1].isalnum())
    doing = "turns a tensor's value into a number" if number else "branches on a tensor's value"
    return ExportError(
        f"method {signature.method!r} {doing}"
        + (f" at {place}" if place else "")
        + ", but the value is known only at run time"
        + (f" (the condition is {expression[1]})" if expression and not place else ""),
        where=project.where("methods", signature.method),
        hint="use torch.where or torch.cond instead of `if`; bound a size with torch._check(n <= 128)"
        if not number
        else "keep the value a tensor; a size may be `n = t.long().item()`, bounded with torch._check(n <= 128)",
    )


def _model_error(error: Exception, project: Project, user: UserCode, signature: Signature) -> ExportError:
    """Return the error for a model that raises an exception on inputs of the declared types."""
    text = _first_line(error, signature)
    place = user.place(error.__traceback__)
    where = project.where("methods", signature.method)
    if _ASSIGNED.search(text):
        return ExportError(
            f"method {signature.method!r} assigns an input or another buffer to a buffer, "
            "which torch.export cannot trace",
            where=where,
            hint="copy the value into the buffer: `self.NAME.copy_(value)` instead of `self.NAME = value`",
        )
    returned = _UNKNOWN_OUTPUT.search(text)
    if returned:
        return ExportError(
            f"method {signature.method!r} returns an object of the type {returned['kind'].rpartition('.')[2]}",
            where=where,
            hint="return tensors, or tuples, lists and dicts of tensors",
        )
    if _BROADCAST.search(text) and len(signature.dims) == 2:
        one, other = signature.dims
        return _must_be_equal(one, other, project, signature, place)
    return ExportError(
        f"method {signature.method!r} raised {type(error).__name__} while it was traced: {text}"
        + (f" ({place})" if place else ""),
        where=where,
    )


def _first_line(error: Exception, signature: Signature) -> str:
    """Return the first line of the error's message.

    If the config has only one dynamic dimension, its name replaces torch's symbol (``s77``).
    """
    text = next(iter(str(error).strip().splitlines()), "no message")
    text = _MULTIPLE_OF_FACTOR.sub(r"\1", text)
    symbols = set(re.findall(r"\bs\d+\b", text))
    if len(symbols) == 1 and len(signature.dims) == 1:
        return re.sub(r"\bs\d+\b", next(iter(signature.dims)), text)
    return text
