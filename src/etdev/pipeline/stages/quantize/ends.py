"""Quantized inputs and outputs: applies ``[targets.X.io.Y] quantized`` to an exported model before lowering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from etdev.config.describe.notation import literal
from etdev.config.issues import CONFLICT, REFERENCE
from etdev.config.keys import KeyPath, format_key, suggest
from etdev.errors import ConfigError
from etdev.pipeline.project import Project
from etdev.pipeline.stages.artifacts import ExportedMethod, ExportedModel
from etdev.pipeline.stages.inputs import Signature
from etdev.pipeline.stages.lower_errors import line_of_node
from etdev.pipeline.stages.quantize.ends_graph import (
    InputConversion,
    OutputConversion,
    StaysFloatError,
    copy_program,
    find_input,
    find_output,
    float_outputs,
    quantize_input,
    quantize_output,
    remove_useless_casts,
)
from etdev.pipeline.stages.writes import written_inputs
from etdev.program.analysis.quantized_ends import Side

if TYPE_CHECKING:
    from torch.export import ExportedProgram

End = tuple[Side, int]
"""An input or output of a method: its side, and its position among the inputs or outputs."""


def with_quantized_ends(
    project: Project, exported: ExportedModel, target: str, methods: Sequence[str]
) -> ExportedModel:
    """Return the model with integer inputs and outputs where the target's ``io`` requires integers.

    The result also has the constant methods that describe these integers. ``exported`` is not changed. Raises
    :class:`~etdev.errors.ConfigError` for an unknown name, and for an input or output that is not quantized.
    """
    settings = project.config.targets[target].io
    changed: dict[str, ExportedMethod] = {}
    constants: dict[str, int | float] = {}
    for name in methods:
        if name not in settings or not settings[name].quantized:
            continue
        key = ("targets", target, "io", name, "quantized")
        method, signature = exported.methods[name], exported.signatures[name]
        program, found = _quantized(project, key, method.program, signature)
        changed[name] = replace(method, program=program)
        for conversion in found:
            constants |= conversion.end.constants(name)
        _refuse_used_names(project, key, constants, exported)
    return replace(exported, methods={**exported.methods, **changed}, constants={**exported.constants, **constants})


def wanted_inputs(quantized: str | Sequence[str], signature: Signature) -> tuple[int, ...]:
    """Return the positions of the inputs to quantize, according to a value of the key ``quantized``."""
    return tuple(
        position
        for position, item in enumerate(signature.inputs)
        if (item.dtype == "float32" if quantized == "all" else item.name in quantized)
    )


def _quantized(
    project: Project, key: KeyPath, program: ExportedProgram, signature: Signature
) -> tuple[ExportedProgram, list[InputConversion | OutputConversion]]:
    written = written_inputs(program)
    names = _names(signature, len(written), list(float_outputs(program)))
    program = copy_program(program)
    remove_useless_casts(program)
    found: dict[End, InputConversion | OutputConversion] = {}
    reasons: dict[End, StaysFloatError] = {}
    for end in names:
        try:
            found[end] = _conversion(program, end, written)
        except StaysFloatError as error:
            reasons[end] = error
    wanted = _wanted(project, key, names)
    for end in wanted:
        if end in reasons:
            raise _stays_float(project, key, end, names, reasons[end], [names[other] for other in found])
    chosen = [found[end] for end in wanted]
    for conversion in chosen:
        if isinstance(conversion, InputConversion):
            quantize_input(conversion)
        else:
            quantize_output(program, conversion)
    program.graph.lint()
    program.graph_module.recompile()
    return program, chosen


def _conversion(program: ExportedProgram, end: End, written: Sequence[str]) -> InputConversion | OutputConversion:
    side, position = end
    if side == "output":
        return find_output(program, position, len(written))
    if program.graph_signature.user_inputs[position] in written:
        raise StaysFloatError("the method changes this input")
    return find_input(program, position)


def _names(signature: Signature, changed: int, outputs: Sequence[bool]) -> dict[End, str]:
    """Return the names of all float32 inputs and outputs.

    The program first returns the inputs that the method changes, then the method's own outputs. ``changed`` is the
    number of these inputs. ``outputs`` has True for each own output that is float32, False for the others.
    """
    names: dict[End, str] = {}
    for position, item in enumerate(signature.inputs):
        if item.dtype == "float32":
            names["input", position] = item.name
    for position, is_float in enumerate(outputs, changed):
        if is_float:
            names["output", position] = f"output{position}"
    return names


def _wanted(project: Project, key: KeyPath, names: Mapping[End, str]) -> list[End]:
    """Return the inputs and outputs that the config names, inputs first."""
    quantized = project.config.targets[str(key[1])].io[str(key[3])].quantized
    if quantized == "all":
        return list(names)
    ends: dict[str, End] = {}
    for end, name in names.items():
        ends.setdefault(name, end)  # An input wins against an output with the same name.
    for index, name in enumerate(quantized):
        if name not in ends:
            hint = suggest(name, ends, f"its float inputs and outputs: {', '.join(ends) or 'none'}", repr)
            message = f"`{format_key((*key, index))}`: method {key[3]!r} has no float input or output {name!r}"
            raise project.error(message, *key, index, hint=hint, rule=REFERENCE)
    return [end for name, end in ends.items() if name in quantized]


def _stays_float(
    project: Project, key: KeyPath, end: End, names: Mapping[End, str], error: StaysFloatError, good: Sequence[str]
) -> ConfigError:
    what = f"input {names[end]!r}" if end[0] == "input" else f"output {end[1]}"
    where = "" if error.node is None else line_of_node(project, error.node)
    message = f"`{format_key(key)}`: {what} of method {key[3]!r} is not quantized: {error}{where}"
    hint = f"quantize only the others: {literal({'quantized': list(good)})[2:-2]}" if good else "remove this key"
    if error.remedy is not None:
        hint = f"{error.remedy}; or {hint}"
    return project.error(message, *key, hint=hint, rule=CONFLICT)


def _refuse_used_names(
    project: Project, key: KeyPath, constants: Mapping[str, int | float], exported: ExportedModel
) -> None:
    """Raise an error if a method or a constant method of the model already has a name in ``constants``."""
    used = next((name for name in constants if name in exported.constants or name in exported.signatures), None)
    if used is not None:
        message = f"`{format_key(key)}` adds the constant method {used!r}, but the model already has a method {used!r}"
        raise project.error(message, *key, hint="rename that method", rule=CONFLICT)
