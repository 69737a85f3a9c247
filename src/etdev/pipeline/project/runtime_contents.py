"""Operators and backends of a target's runtime. The config lists them, or else the executorch wheel does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etdev.backends.kernels import listed_operators
from etdev.errors import ConfigError
from etdev.files import read_file
from etdev.pipeline.project import Project
from etdev.program import Program

_PRIMITIVE = re.compile(r"^(executorch_prim::|aten::sym_|aten::_local_scalar_dense$)")
"""Pattern for the operators that are part of the runtime itself, not of a kernel library."""

WHEEL = "the wheel's runtime"
"""Label of the operators and backends of the ExecuTorch wheel."""

_BACKENDS = "the config's `runtime.backends`"


@dataclass(frozen=True)
class RuntimeContents:
    """Operators and backends that a runtime has."""

    operators: frozenset[str] | None
    """Names of the operators; None means every operator."""
    backends: frozenset[str]
    closed: bool
    """True if ``backends`` lists all of the runtime's backends, False if the runtime may have others."""
    operators_label: str = WHEEL
    """Name of the source of ``operators``, used as the subject of a sentence in messages."""
    backends_label: str = WHEEL


def runtime_files(project: Project, target: str) -> list[Path]:
    """Return the files that the config names to describe a target's runtime."""
    operators = project.config.targets[target].runtime.operators
    return [] if operators is None else [project.loaded.resolve("targets", target, "runtime", "operators")]


def target_runtime(
    project: Project, target: str, wheel_operators: frozenset[str], wheel_backends: frozenset[str]
) -> RuntimeContents:
    """Return the operators and backends of the target's runtime: from the config if set there, else from the wheel."""
    settings = project.config.targets[target].runtime
    operators: frozenset[str] | None = wheel_operators
    label = WHEEL
    if settings.operators is not None:
        operators = selected_operators(project, target)
        label = Path(settings.operators).name
    elif settings.kernels is not None:
        operators = frozenset().union(*(library_operators(name, wheel_operators) for name in settings.kernels))
        label = f"a runtime with {' and '.join(settings.kernels) or 'no'} kernels"
    if settings.backends is None:
        return RuntimeContents(operators, wheel_backends, closed=False, operators_label=label)
    return RuntimeContents(operators, frozenset(settings.backends), True, label, _BACKENDS)


def check_runtime_settings(project: Project, target: str) -> None:
    """Read the file in `runtime.operators`, so that a build with an unreadable file fails early.

    Raises :class:`~etdev.errors.ConfigError`, with the location of the key, if the file is not valid.
    """
    if project.config.targets[target].runtime.operators is not None:
        selected_operators(project, target)


def needed_libraries(operators: Iterable[str]) -> tuple[str, ...]:
    """Return the names of ExecuTorch's kernel libraries that contain these operators, sorted.

    An operator that is in ``portable`` does not require ``optimized``. The wheel lists the operators of all libraries
    except ``optimized``. An ATen operator outside these lists requires ``optimized``. Any other operator outside the
    lists may be custom, and requires no library.
    """
    listed = {name: library_operators(name, frozenset()) for name in ("portable", "quantized", "cortex-m")}
    found = set()
    for name in operators:
        library = next((library for library, operators in listed.items() if name in operators), None)
        if library is not None:
            found.add(library)
        elif name.startswith("aten::") and _PRIMITIVE.match(name) is None:
            found.add("optimized")
    return tuple(sorted(found))


def library_operators(library: str, wheel_operators: frozenset[str]) -> frozenset[str]:
    """Return the operators of one of ExecuTorch's kernel libraries, from the lists in the wheel.

    The wheel has no list for ``optimized``, ExecuTorch's merge of its optimized kernels with ``portable``. For
    ``optimized``, return all operators in the wheel's registry except the quantized ones.
    """
    return wheel_operators - listed_operators("quantized") if library == "optimized" else listed_operators(library)


def selected_operators(project: Project, target: str) -> frozenset[str] | None:
    """Return the operators in the file of `runtime.operators`; None if the file includes all operators.

    ExecuTorch's selective build uses the same file. Raises :class:`~etdev.errors.ConfigError`, with the location of the
    key, if the file is not valid.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    path = project.loaded.resolve("targets", target, "runtime", "operators")
    try:
        data: Any = YAML(typ="safe", pure=True).load(read_file(path).decode("utf-8"))
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise _bad_operators(project, target, f"{path} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise _bad_operators(project, target, f"{path} does not contain a table")
    if data.get("include_all_operators"):
        return None
    operators = data.get("operators")
    if not isinstance(operators, dict):
        raise _bad_operators(project, target, f"{path} has no table `operators`")
    return frozenset(str(name) for name in operators)


def _bad_operators(project: Project, target: str, message: str) -> ConfigError:
    hint = "set it to the YAML file that ExecuTorch's gen_oplist writes"
    return project.error(message, "targets", target, "runtime", "operators", hint=hint, rule="config")


@dataclass(frozen=True)
class Requirements:
    """Operators and delegates that each method of a file needs from the runtime."""

    operators: Mapping[str, frozenset[str]]
    """Maps each method to the names of its operators, such as ``aten::add.out``."""
    delegates: Mapping[str, frozenset[str]]
    """Maps each method to the ids of its delegates, such as ``XnnpackBackend``."""


def requirements(found: Program) -> Requirements:
    """Return the operators and delegates that each method of a program refers to."""
    return Requirements(
        operators={
            plan.name: frozenset(f"{op.name}.{op.overload}" if op.overload else op.name for op in plan.operators)
            for plan in found.execution_plan
        },
        delegates={plan.name: frozenset(item.id for item in plan.delegates) for plan in found.execution_plan},
    )
