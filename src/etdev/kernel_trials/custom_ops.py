"""Operators that the link of a target may run in place: the built-in table, with the changes from the config.

If an operator in the config is not in the built-in table, etdev tries it with the installed runtime's kernels. The
report states that a trial is not a proof: the number of cases is finite, and other runtimes have other kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from etdev.config.describe.notation import literal
from etdev.config.keys import KeyPath, format_key
from etdev.errors import ConfigError, Problem
from etdev.kernel_trials.op_schema import operator_schema
from etdev.kernel_trials.trial import Trial, try_operator
from etdev.pipeline.project import Project
from etdev.pipeline.project.imports import register_imports
from etdev.pipeline.project.stock import runtime_for
from etdev.pipeline.project.usercode import UserCode
from etdev.program.analysis.inplace import DEFAULT, Donor, nearest_operators, parse_operator
from etdev.runtime.stock import StockRuntime


@dataclass(frozen=True, slots=True)
class TriedOp:
    """An operator that the config adds, and the results of its trial."""

    operator: str
    """Name of the operator, such as ``aten::addmm.out``."""
    positions: tuple[str, ...]
    """Pairs of an input and an output that may share memory, such as ``self -> out``."""
    tested: str
    """Description of what was tested: the number of shapes, the element types and the kernels."""

    def __str__(self) -> str:
        return f"{self.operator} may work in place ({', '.join(self.positions)}): {self.tested}"


@dataclass(frozen=True, slots=True)
class InPlaceOps:
    """Operators that a link may run in place."""

    table: Mapping[str, tuple[Donor, ...]]
    tried: tuple[TriedOp, ...] = ()
    """Operators in ``table`` whose trials succeeded."""


@dataclass(frozen=True, slots=True)
class _Named:
    """An operator as it is written in an entry of the config, and the key of that entry."""

    text: str
    key: KeyPath


_TRIALS: dict[tuple[str, tuple[str, ...], Path], tuple[Trial, ...]] = {}
"""Cached results of the trials in this process.

The key contains the operator, the modules that register kernels, and the folder of these modules.
"""


def resolve_ops(project: Project, target: str, user: UserCode) -> InPlaceOps:
    """Return the operators that may run in place according to the target's config table ``inplace``.

    First try the operators that are not in the built-in table. A trial takes seconds; all trials run in a separate
    stock runtime. Raises :class:`~etdev.errors.ConfigError` if the runtime lacks an operator or an operator cannot work
    in place. The error lists all of these operators. Raises :class:`~etdev.errors.MissingRequirementError` if no
    runtime is installed.
    """
    settings = project.config.targets[target].inplace
    key: KeyPath = ("targets", target, "inplace")
    listed = () if isinstance(settings.ops, str) else settings.ops
    wanted = [_Named(text, (*key, "ops", number)) for number, text in enumerate(listed)]
    wanted += [_Named(text, (*key, "add", number)) for number, text in enumerate(settings.add)]
    unwanted = [_Named(text, (*key, "remove", number)) for number, text in enumerate(settings.remove)]
    table: dict[str, tuple[Donor, ...]] = dict(DEFAULT) if settings.ops == "default" else {}
    for item in wanted:
        table |= {name: DEFAULT[name] for name in parse_operator(item.text)}
    foreign = [item for item in wanted if not parse_operator(item.text)]
    tried: tuple[TriedOp, ...] = ()
    if foreign:
        register_imports(project, user)
        with runtime_for(project) as runtime:
            names = _require_operators(project, runtime, foreign)
            left_out = _named_by(project, unwanted, {**DEFAULT, **names})
            added, tried = _try_all(project, runtime, {name: names[name] for name in names if name not in left_out})
        table |= added
    else:
        left_out = _named_by(project, unwanted, DEFAULT)
    return InPlaceOps({name: donors for name, donors in table.items() if name not in left_out}, tried)


def _require_operators(project: Project, runtime: StockRuntime, wanted: Sequence[_Named]) -> dict[str, KeyPath]:
    """Return the operators of the runtime that match the config entries ``wanted``.

    The result maps each operator to the key of the first entry that matches it. Raises
    :class:`~etdev.errors.ConfigError` if an entry matches no operator of the runtime.
    """
    found: dict[str, KeyPath] = {}
    problems = []
    for item in wanted:
        names = parse_operator(item.text, runtime.operators)
        found |= {name: found.get(name, item.key) for name in names}
        if not names:
            near = nearest_operators(item.text, {*DEFAULT, *runtime.operators})
            hint = (
                f"did you mean {_one_of(near)}?"
                if near
                else "to register custom kernels, name their modules in `project.imports`"
            )
            message = f"there is no such operator among {_kernels(project)}"
            problems.append(_problem(project, item.key, message, hint))
    if problems:
        raise ConfigError(tuple(problems))
    return found


def _named_by(project: Project, unwanted: Sequence[_Named], known: Iterable[str]) -> set[str]:
    """Return the operators in ``known`` that match an entry in ``unwanted``. The entries are from the key ``remove``.

    Raises :class:`~etdev.errors.ConfigError` if an entry does not match any operator in ``known``.
    """
    found: set[str] = set()
    problems = []
    for item in unwanted:
        names = parse_operator(item.text, known)
        found.update(names)
        if not names:
            near = nearest_operators(item.text, known)
            hint = f"did you mean {_one_of(near)}?" if near else "remove this entry"
            problems.append(_problem(project, item.key, "there is no in-place operator with that name", hint))
    if problems:
        raise ConfigError(tuple(problems))
    return found


def _try_all(
    project: Project, runtime: StockRuntime, names: Mapping[str, KeyPath]
) -> tuple[dict[str, tuple[Donor, ...]], tuple[TriedOp, ...]]:
    """Try operators that are not in the built-in table.

    ``names`` maps each operator to its config key. Return the inputs that each operator may overwrite, and a report on
    each operator. Raises :class:`~etdev.errors.ConfigError` for operators that cannot work in place.
    """
    table: dict[str, tuple[Donor, ...]] = {}
    tried, problems = [], []
    for name, key in names.items():
        trials = _trials(project, runtime, name)
        safe = [trial for trial in trials if trial.verdict in ("safe", "identity")]
        if safe:
            table[name] = tuple(trial.donor for trial in safe)
            tried.append(_report(project, name, safe))
        else:
            problems.append(_refusal(project, name, key, trials))
    if problems:
        raise ConfigError(tuple(problems))
    return table, tuple(tried)


def _trials(project: Project, runtime: StockRuntime, operator: str) -> tuple[Trial, ...]:
    """Return a trial for each pair of an input and an output; empty if the operator cannot be tried."""
    key = (operator, project.config.project.imports, project.base("project", "imports"))
    if key not in _TRIALS:
        schema = operator_schema(operator)
        _TRIALS[key] = try_operator(runtime, schema) if schema else ()
    return _TRIALS[key]


def _report(project: Project, operator: str, safe: list[Trial]) -> TriedOp:
    positions = tuple(f"{trial.argument} -> {trial.output}" for trial in safe)
    shapes = min(trial.shapes for trial in safe)
    kinds = ", ".join(kind for kind in safe[0].dtypes if all(kind in trial.dtypes for trial in safe))
    return TriedOp(operator, positions, f"tested on {shapes:,} shapes with {kinds}, with {_kernels(project)}")


def _kernels(project: Project) -> str:
    imports = project.config.project.imports
    wheel = f"the kernels of executorch {metadata.version('executorch')}'s wheel"
    return f"{wheel} and of {', '.join(imports)}" if imports else wheel


def _refusal(project: Project, operator: str, key: KeyPath, trials: tuple[Trial, ...]) -> Problem:
    seen = "; ".join(str(trial) for trial in trials if trial.verdict != "not run")
    if seen:
        message = f"{operator} cannot work in place: a trial with {_kernels(project)} found {seen}"
    elif trials:
        message = (
            f"{operator} could not be tried: its kernel accepted no case in which an output has the shape of an input"
        )
    else:
        message = f"{operator} could not be tried: PyTorch has no schema for it with separate input and output tensors"
    return _problem(project, key, message, "remove this entry")


def _one_of(names: tuple[str, ...]) -> str:
    return " or ".join(map(literal, names[:4]))


def _problem(project: Project, key: KeyPath, message: str, hint: str) -> Problem:
    _, target, _, name, number = key
    value = getattr(project.config.targets[str(target)].inplace, str(name))[int(number)]
    message = f"`{format_key(key)}` is {literal(value)}: {message}"
    return project.loaded.problem(message, *key, hint=hint, rule="in-place")
