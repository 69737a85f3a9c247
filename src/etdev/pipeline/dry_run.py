"""``build --dry-run``: import everything that the config names and check shapes; lower and write nothing."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from etdev.pipeline.artifacts import LoadedModel
from etdev.pipeline.export import as_forward, check_call, held_back, method_of, signatures
from etdev.pipeline.export_errors import explain_export_error
from etdev.pipeline.inputs import Signature, make_inputs, read_samples, read_sessions
from etdev.pipeline.load import iter_tensors, load_model
from etdev.pipeline.lower import require_backends
from etdev.pipeline.noise import quiet_libraries
from etdev.pipeline.options import BuildOptions, choose_targets
from etdev.pipeline.project import Project
from etdev.pipeline.usercode import UserCode
from etdev.pipeline.verify.kernels import check_runtime_settings


class CheckedMethod(BaseModel):
    """One method whose shapes fit."""

    model_config = ConfigDict(frozen=True)

    name: str
    inputs: str
    """``image: float32 [batch, 1, 8, 8]``."""
    outputs: tuple[str, ...]
    """``float32 [32, 10]``, with every dynamic dimension at its maximum."""
    samples: bool
    """Whether the config names samples, the first of which fits."""


class DryRun(BaseModel):
    """What a dry run found to be in order."""

    model_config = ConfigDict(frozen=True)

    targets: tuple[str, ...]
    methods: tuple[CheckedMethod, ...]
    notes: tuple[str, ...]


def dry_run(project: Project, options: BuildOptions) -> DryRun:
    """Load the model, call each method on fake tensors of its largest and smallest sizes, check the first samples.

    Raises what a build would raise for the same mistakes, in less time.
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
        for name in names:
            _check_calibration(project, user, name, signatures(project, loaded))
            _check_metric(project, user, name)
            _check_sessions(project, user, name, signatures(project, loaded))
    return DryRun(targets=names, methods=methods, notes=loaded.notes)


def _check_method(project: Project, user: UserCode, loaded: LoadedModel, signature: Signature) -> CheckedMethod:
    name = signature.method
    check_call(project, method_of(project, loaded.module, name), signature)
    _fake_call(project, user, loaded, signature, signature.smallest())
    outputs = _fake_call(project, user, loaded, signature, signature.largest())
    declared = project.config.methods.get(name)
    entry = declared.samples if declared is not None else None
    if entry is not None:
        _check_first(project, user, entry, signature, ("methods", name, "samples"))
    return CheckedMethod(name=name, inputs=signature.describe(), outputs=outputs, samples=entry is not None)


def _fake_call(
    project: Project, user: UserCode, loaded: LoadedModel, signature: Signature, sizes: dict[str, int]
) -> tuple[str, ...]:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    try:
        with (
            as_forward(loaded.module, signature.method),
            torch.no_grad(),
            held_back(),
            FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv()) as mode,  # symbols for values of tensors
        ):
            inputs = tuple(mode.from_tensor(tensor, static_shapes=True) for tensor in make_inputs(signature, sizes))
            result = loaded.module.forward(*inputs)
    except Exception as error:
        raise explain_export_error(error, project, user, signature) from error
    return tuple(f"{str(item.dtype).removeprefix('torch.')} {list(item.shape)}" for item in iter_tensors(result))


def _check_calibration(project: Project, user: UserCode, target: str, declared: dict[str, Signature]) -> None:
    name = project.config.targets[target].quantize
    given = getattr(project.config.quantize[name], "calibration", None) if name is not None else None
    if isinstance(given, str):
        _check_first(project, user, given, next(iter(declared.values())), ("quantize", str(name), "calibration"))
    for method, entry in given.items() if isinstance(given, dict) else ():
        _check_first(project, user, entry, declared[method], ("quantize", str(name), "calibration", method))


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


def _check_first(project: Project, user: UserCode, entry: str, signature: Signature, key: tuple[str, ...]) -> None:
    where = project.where(*key)
    function = user.get(entry, project.base(*key), where)
    next(iter(read_samples(user, function, entry, signature, where)))
