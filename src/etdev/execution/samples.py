"""Default inputs for a target's method: the samples in the config."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from etdev.errors import UsageError
from etdev.execution.call_inputs import Calls, input_label
from etdev.execution.fit import misfit
from etdev.execution.float_ends import quantized_inputs
from etdev.pipeline.project import Project
from etdev.pipeline.project.progress import Silent, StageClock
from etdev.pipeline.project.quiet import quiet_libraries
from etdev.pipeline.project.usercode import UserCode
from etdev.pipeline.stages.inputs import samples_at
from etdev.pipeline.stages.models import Models
from etdev.program import model as m
from etdev.program.analysis.quantized_ends import QuantizedEnd


def config_calls(
    project: Project, plan: m.ExecutionPlan, names: Sequence[str], ends: Sequence[QuantizedEnd] = ()
) -> Calls | None:
    """Return a call for each sample in ``[methods.NAME] samples``; None if the config does not set samples.

    ``ends`` contains the method's quantized inputs and outputs. Floats for quantized inputs are quantized.

    This function runs the user's code. Raises :class:`~etdev.errors.LoadError` if a sample does not match the method in
    the config. Raises :class:`~etdev.errors.UsageError` if a sample does not match the method in the file.
    """
    declared = project.config.methods.get(plan.name)
    if declared is None or declared.samples is None:
        return None
    from etdev.pipeline.project.imports import register_imports

    key = ("methods", plan.name, "samples")
    where, entry = project.where(*key), declared.samples
    with quiet_libraries(), UserCode() as user:
        register_imports(project, user)
        signature = Models(project, user).signatures(StageClock(plan.name, Silent()))[plan.name]
        given = samples_at(project, user, entry, signature, key)
        samples = [quantized_inputs({plan.name: ends}, plan.name, sample) for sample in given]
    for number, sample in enumerate(samples):
        _require_fit(plan, names, sample, f"sample {number} of {entry!r}", where)
    return Calls(samples, source=f"{len(samples):,} sample{'s' * (len(samples) != 1)} of {entry}")


def _require_fit(plan: m.ExecutionPlan, names: Sequence[str], sample: Sequence[Any], what: str, where: str) -> None:
    """Raise an error if a sample does not match the inputs of the method in the file.

    The config may have changed since the file was built. ``what`` describes the sample in the message.
    """
    problem: str | None = f"its length is {len(sample)}, but the number of inputs is {len(plan.inputs)}"
    if len(sample) == len(plan.inputs):
        fits = (
            misfit(plan.values[index], value, input_label(names, position))
            for position, (index, value) in enumerate(zip(plan.inputs, sample, strict=True))
        )
        problem = next((one for one in fits if one is not None), None)
    if problem is not None:
        raise UsageError(
            f"{what} does not match this file: {problem}",
            where=where,
            hint="build the target again with `etdev build`, because the config has changed",
        )
