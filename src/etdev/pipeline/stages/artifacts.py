"""The artifacts that one stage of a build passes to the next.

They are frozen: a stage changes no artifact but makes a new one. Types of torch and executorch are imported for type
checking only. So importing this module imports neither package.
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
    """The model as loaded from the user's code, a transformers directory or a saved program."""

    module: torch.nn.Module
    """The module in eval mode. For a saved program, this is the module that ``ExportedProgram.module()`` returns."""
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
    """The exported methods; empty if an earlier build's object program is linked again, so that no export is needed."""
    eager: Mapping[str, Callable[..., Any]]
    """Functions that compute each method eagerly: with the float module, or with the quantized one."""
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
    """Outputs of the quantized model that earlier runs computed; outputs of this run are added."""


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
    """The decision whether to tile the method; None if no decision was necessary."""


@dataclass(frozen=True)
class EmittedFiles:
    """An object program that was emitted to be measured, with its sidecar and record."""

    path: Path
    folder: TemporaryDirectory[str]
    """Temporary folder that has only these files. It is removed together with this object."""


@dataclass(frozen=True)
class LoweredModel:
    """Edge programs with the delegates' blobs inside."""

    manager: Any
    """``executorch.exir.EdgeProgramManager``."""
    delegations: tuple[Delegation, ...]
    stateful: frozenset[str]
    """Methods that change buffers, so that their results depend on the order of calls."""
    replaced: tuple[ReplacedOps, ...] = ()
    emitted: EmittedFiles | None = None
    """The object program if it was emitted already to be measured, else None."""

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of the lowered methods, in order. These can be all methods of the model or some of them."""
        return tuple(item.method for item in self.delegations)


@dataclass(frozen=True)
class WrittenFile:
    """A file at a temporary path, until verification accepts or rejects it."""

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
