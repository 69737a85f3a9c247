"""The command ``build --dry-run``: imports the project's code and checks shapes, without lowering."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from etdev.errors import VerifyError, describe_exception
from etdev.pipeline.project import Project
from etdev.pipeline.project.empty_inputs import empty_inputs
from etdev.pipeline.project.float_targets import float_targets
from etdev.pipeline.project.options import BuildOptions, choose_targets
from etdev.pipeline.project.quiet import quiet_libraries
from etdev.pipeline.project.runtime_contents import check_runtime_settings
from etdev.pipeline.project.torch_tensors import Tensors, iter_tensors
from etdev.pipeline.project.usercode import UserCode
from etdev.pipeline.results.result import Part
from etdev.pipeline.stages.artifacts import LoadedModel
from etdev.pipeline.stages.calibration import CalibrationData
from etdev.pipeline.stages.eager import compute
from etdev.pipeline.stages.export import as_forward, check_call, method_of, signatures, unexported_model
from etdev.pipeline.stages.export_errors import explain_export_error, unfit_input
from etdev.pipeline.stages.inputs import Signature, make_inputs, read_sessions, samples_at
from etdev.pipeline.stages.load.model import load_model
from etdev.pipeline.stages.lower import require_backends
from etdev.pipeline.stages.quantize import check_loaded
from etdev.pipeline.stages.trials import find_dtype, on_fakes, on_numbers, sizes_to_try

if TYPE_CHECKING:
    import torch


class CheckedMethod(Part):
    """A method that the dry run called without an error."""

    name: str
    inputs: str
    """Declared inputs, such as ``image: float32 [batch, 1, 8, 8]``."""
    outputs: tuple[str, ...]
    """Outputs for the maximum of every dynamic dimension, such as ``float32 [32, 10]``."""
    sizes: tuple[dict[str, int], ...]
    """One item for each call on fake tensors. An item maps each dynamic dimension to its size in the call."""
    samples: bool
    """True if the call on real tensors used the config's first sample.

    False if the call used random inputs of the smallest sizes.
    """


class DryRun(Part):
    """The result of a dry run that found no error."""

    targets: tuple[str, ...]
    methods: tuple[CheckedMethod, ...]
    notes: tuple[str, ...]


def describe_calls(method: CheckedMethod) -> str:
    """Describe the calls of a method, such as ``batch = 1, 32, 16, 31; computed on the first sample``."""
    if not method.inputs:
        return "no inputs"
    names = method.sizes[0]
    sizes = "; ".join(f"{name} = {', '.join(str(choice[name]) for choice in method.sizes)}" for name in names)
    sample = "the first sample" if method.samples else "random inputs, because there are no samples"
    return f"{sizes or 'the declared sizes'}; computed on {sample}"


def dry_run(project: Project, options: BuildOptions) -> DryRun:
    """Load the model, call each method with several sizes and on its first sample, and check all other samples.

    Each method is also called on random inputs of its largest sizes; a note states if this call fails.

    A dry run raises the same errors as a build, but takes less time. It does not run ``torch.export`` or any later
    stage. Errors of these stages are not found.
    """
    names = choose_targets(project, options.targets)
    for name in names:
        require_backends(project, name)
        check_runtime_settings(project, name)
    with quiet_libraries(verbose=options.verbose), UserCode() as user:
        loaded = load_model(project, user)
        methods = tuple(
            _check_method(project, user, loaded, signature) for signature in signatures(project, loaded).values()
        )
        notes = dict.fromkeys((*loaded.notes, *_warnings(project, names)))
        for signature in signatures(project, loaded).values():
            notes |= dict.fromkeys(_note_on_largest(project, user, loaded, signature))
        for name in names:
            if (scheme := project.config.targets[name].quantize) is not None:
                check_loaded(project, loaded, scheme)
            notes |= dict.fromkeys(_check_calibration(project, user, name, signatures(project, loaded)))
            _check_metric(project, user, name)
            _check_sessions(project, user, name, signatures(project, loaded))
    return DryRun(targets=names, methods=methods, notes=tuple(notes))


def _warnings(project: Project, targets: Iterable[str]) -> Iterator[str]:
    """Yield the warnings of the config as notes: float targets of integer backends, and inputs without elements."""
    for problem in (*float_targets(project.loaded, targets), *empty_inputs(project.loaded)):
        yield f"warning: {problem.where}: {problem.message}; {problem.hint}"


def _check_method(project: Project, user: UserCode, loaded: LoadedModel, signature: Signature) -> CheckedMethod:
    name = signature.method
    check_call(project, method_of(project, loaded.module, name), signature)
    outputs = _fake_calls(project, user, loaded, signature)
    declared = project.config.methods.get(name)
    entry = declared.samples if declared is not None else None
    if entry is not None:
        samples = samples_at(project, user, entry, signature, ("methods", name, "samples"))
    else:
        samples = iter([make_inputs(signature, signature.smallest(), seed=2)])
    _call(project, user, loaded, signature, next(samples))
    for _ in samples:  # Each sample is checked as it is read.
        pass
    return CheckedMethod(
        name=name,
        inputs=signature.describe(),
        outputs=outputs,
        sizes=tuple(sizes_to_try(signature)),
        samples=entry is not None,
    )


def _fake_calls(project: Project, user: UserCode, loaded: LoadedModel, signature: Signature) -> tuple[str, ...]:
    """Call a method on fake tensors of various sizes; return descriptions of the outputs for the largest sizes."""
    outputs: tuple[str, ...] = ()
    with as_forward(loaded.module, signature.method):
        for choice in sizes_to_try(signature):
            try:
                result = on_fakes(loaded.module)(signature, choice)
            except Exception as error:
                raise explain_export_error(error, project, user, signature, loaded.module) from error
            if choice == signature.largest():
                outputs = tuple(map(_described, iter_tensors(result)))
    return outputs


def _call(project: Project, user: UserCode, loaded: LoadedModel, signature: Signature, inputs: Tensors) -> None:
    """Call a method on real tensors, in the same way as verification.

    Fake tensors do not find all errors: they accept dtypes that no kernel accepts.
    """
    model = unexported_model(project, loaded, {})
    try:
        compute(project, user, model, signature.method, inputs)
    except VerifyError as error:
        remedy = find_dtype(signature, on_numbers(model.eager[signature.method]))
        cause = error.__cause__
        if remedy is None or not isinstance(cause, Exception):
            raise
        raise unfit_input(cause, project, user, signature, remedy) from cause


def _note_on_largest(project: Project, user: UserCode, loaded: LoadedModel, signature: Signature) -> Iterator[str]:
    """Yield a note if the method fails at its largest sizes, which fake tensors do not always find.

    It is not an error, because the values of random inputs may be the reason.
    """
    if not signature.dims:
        return
    largest = signature.largest()
    model = unexported_model(project, loaded, {})
    try:
        compute(project, user, model, signature.method, make_inputs(signature, largest))
    except VerifyError as error:
        sizes = ", ".join(f"{name} = {size}" for name, size in largest.items())
        yield (
            f"warning: {project.where('methods', signature.method, 'dims')}: method {signature.method!r} fails at its "
            f"largest sizes ({sizes}), on random inputs: {describe_exception(error.__cause__ or error)}; narrow the "
            "range of the dims, unless the values of random inputs are the reason"
        )


def _described(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _check_calibration(
    project: Project, user: UserCode, target: str, declared: dict[str, Signature]
) -> tuple[str, ...]:
    """Read the calibration data of a target, and return the notes on it."""
    name = project.config.targets[target].quantize
    if name is None:
        return ()
    data = CalibrationData(project, user, name)
    for signature in declared.values():
        for _ in (data.read(signature) or ()) if signature.inputs else ():
            pass
    return data.notes()


def _check_metric(project: Project, user: UserCode, target: str) -> None:
    gate = project.config.targets[target].verify.accuracy
    if gate is not None:
        key = ("targets", target, "verify", "accuracy", "fn")
        user.get(gate.fn, project.base(*key), project.where(*key))


def _check_sessions(project: Project, user: UserCode, target: str, declared: dict[str, Signature]) -> None:
    entry = project.config.targets[target].verify.sessions
    if entry is not None:
        key = ("targets", target, "verify", "sessions")
        where = project.where(*key)
        function = user.get(entry, project.base(*key), where)
        next(iter(read_sessions(user, function, entry, declared, where)), None)
