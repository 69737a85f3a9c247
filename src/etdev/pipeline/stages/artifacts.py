"""The artifacts that the stages of a build pass on. They are frozen: a stage makes a new one and changes none.

The torch and executorch types of their fields are imported only for type checking, so that this module imports neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from etdev.config.models import Constants

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from etdev.decisions import TilingDecision
    from etdev.pipeline.project.torch_tensors import Tensors
    from etdev.pipeline.results.result import UndelegatedOps
    from etdev.pipeline.stages.inputs import Signature
    from etdev.pipeline.stages.known_outputs import KnownOutputs


@dataclass(frozen=True)
class LoadedModel:
    """The model from the user's code, a transformers directory or a saved program."""

    module: torch.nn.Module
    """In eval mode. For a saved program, the module that the program unlifts to."""
    program: ExportedProgram | None = None
    """The exported program if the model was saved after export, else None."""
    notes: tuple[str, ...] = ()
    constants: Constants = field(default_factory=dict)
    """Values of the constant methods."""


@dataclass(frozen=True)
class ExportedMethod:
    """One method as a graph of ATen ops with its parameters."""

    program: ExportedProgram
    example: Tensors
    """The inputs that it was traced with."""


@dataclass(frozen=True)
class ExportedModel:
    """All methods of the program, by name, in the config's order."""

    methods: Mapping[str, ExportedMethod]
    """Empty for a model that is not exported because an earlier build's object program is linked again."""
    eager: Mapping[str, Callable[..., Any]]
    """Functions that compute each method without lowering: the float module, or the quantized one."""
    signatures: Mapping[str, Signature]
    """The inputs of each method."""
    outputs: Mapping[str, int]
    """Number of tensors that each method returns."""
    scheme: str | None = None
    """The quantization scheme that was applied; None for the float model."""
    constants: Constants = field(default_factory=dict)
    """Values of the constant methods."""
    notes: tuple[str, ...] = ()
    """Notes from quantization, for the report."""
    known: KnownOutputs | None = None
    """Outputs that need not be computed again, and outputs to remember."""


@dataclass(frozen=True)
class Delegation:
    """The split of one method between delegates and kernels."""

    method: str
    calls: Mapping[str, int]
    """Number of delegate calls by delegate id."""
    delegated_ops: int
    undelegated: tuple[UndelegatedOps, ...]


@dataclass(frozen=True)
class ReplacedOps:
    """The changes of kernel-aware lowering to one method."""

    method: str
    forms: Mapping[str, int]
    """Number of ops by the form that replaced them (:data:`etdev.lowering.forms.FORMS`)."""
    tiling: TilingDecision | None = None
    """None if no decision was necessary."""


@dataclass(frozen=True)
class EmittedFiles:
    """An object program that was emitted to be measured, with its sidecar and record."""

    path: Path
    folder: TemporaryDirectory[str]
    """Folder of its files only; it is removed with this object."""


@dataclass(frozen=True)
class LoweredModel:
    """Edge programs with the delegates' blobs inside."""

    manager: Any
    """``executorch.exir.EdgeProgramManager``."""
    delegations: tuple[Delegation, ...]
    stateful: frozenset[str]
    """Methods that change buffers, so that the order of calls matters."""
    replaced: tuple[ReplacedOps, ...] = ()
    emitted: EmittedFiles | None = None
    """The object program if it was emitted already to be measured, else None."""

    @property
    def methods(self) -> tuple[str, ...]:
        """The lowered methods, in order: all of the model, or some."""
        return tuple(item.method for item in self.delegations)


@dataclass(frozen=True)
class WrittenFile:
    """A file at its temporary place until verification accepts or rejects it."""

    path: Path
    size: int
    """Bytes."""
    sha256: str


@dataclass(frozen=True)
class WrittenProgram:
    """The files of a program."""

    program: WrittenFile
    data: tuple[WrittenFile, ...] = ()
    """Its data files, in the order of their names."""
