"""The artifacts that one stage of a build passes to the next.

Artifacts are frozen: a stage makes a new artifact instead of changing one. Importing this module does not import torch
or executorch, because it needs their types for type checking only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from etdev.config.models import Constants
from etdev.pipeline.stages.known_outputs import KnownOutputs

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from etdev.decisions import TilingDecision
    from etdev.pipeline.project.source_lines import SourceLines
    from etdev.pipeline.project.torch_tensors import Tensors
    from etdev.pipeline.results.result import UndelegatedOps
    from etdev.pipeline.stages.inputs import Signature
    from etdev.program import Program
    from etdev.program.sidecar import Sidecar
    from etdev.program.sidecar.records import DelegateRecord


@dataclass(frozen=True)
class LoadedModel:
    """The model as loaded from the user's code, a transformers directory or a saved program."""

    module: torch.nn.Module
    """The module in eval mode. For a saved program, the result of ``ExportedProgram.module()``."""
    program: ExportedProgram | None = None
    """The saved program if the model was loaded from a saved program, else None."""
    notes: tuple[str, ...] = ()
    constants: Constants = field(default_factory=dict)
    """Values of the constant methods."""


@dataclass(frozen=True)
class ExportedMethod:
    """One method as a graph of ATen ops with its parameters."""

    program: ExportedProgram
    example: Tensors
    """The inputs that the method was traced with."""


@dataclass(frozen=True, slots=True)
class LocalError:
    """Error of a quantized module whose inputs are those of the float model."""

    module: str
    """Path of the module; the name of the op if the op is in no inner module."""
    snr_db: float
    """SNR, in dB, of the module's op with the largest error."""


@dataclass(frozen=True)
class ExportedModel:
    """All methods of the model, by name, in the config's order."""

    methods: Mapping[str, ExportedMethod]
    """The exported methods; empty if an earlier object program is linked again, so that no export is needed."""
    eager: Mapping[str, Callable[..., Any]]
    """Maps each method to a function that runs the float module or the quantized module eagerly."""
    signatures: Mapping[str, Signature]
    """The declared inputs of each method."""
    outputs: Mapping[str, int]
    """Number of tensors that each method returns."""
    scheme: str | None = None
    """The quantization scheme that was applied; None for the float model."""
    constants: Constants = field(default_factory=dict)
    """Values of the constant methods."""
    notes: tuple[str, ...] = ()
    """Notes from quantization, for the report."""
    local_errors: Mapping[str, Callable[[Tensors], list[LocalError]]] = field(default_factory=dict)
    """Maps each method that PT2E quantized to a function that measures the error of each module on a sample."""
    known: KnownOutputs = field(init=False, default_factory=KnownOutputs)
    """Outputs of earlier eager calls, so that the same calls do not run again. A changed copy of the model has none."""


@dataclass(frozen=True)
class Delegation:
    """Counts of one method's ops: the ops in delegates, and the ops that kernels run."""

    method: str
    calls: Mapping[str, int]
    """Number of calls of each delegate, by delegate id."""
    delegated_ops: int
    undelegated: tuple[UndelegatedOps, ...]


@dataclass(frozen=True)
class ReplacedOps:
    """The ops that kernel-aware lowering replaced in one method."""

    method: str
    forms: Mapping[str, int]
    """Number of replaced ops by form (:data:`etdev.lowering.forms.FORMS`)."""
    tiling: TilingDecision | None = None
    """The decision whether to tile the method; None if there was nothing to decide."""
    slow_convolutions: tuple[int, ...] = ()
    """One estimate for each convolution that keeps a slow kernel to save memory.

    The estimate is the peak, in bytes, that the method would have with a faster kernel for this convolution.
    """


@dataclass(frozen=True, slots=True)
class Emitted:
    """An emitted program: the input of the link. Its constants and blobs may be in memory."""

    program: Program
    sidecar: Sidecar


@dataclass(frozen=True, slots=True)
class EmittedTrial(Emitted):
    """An object program in memory. Lowering emitted the program to measure its costs.

    The sidecar has only the facts that the link needs.
    """

    complete: Callable[[], Emitted]
    """Function that returns the program with its whole sidecar. The function reads the graphs of the lowered model."""


@dataclass(frozen=True)
class EmittedFiles:
    """An object program in files, with sidecar and ETRecord. Lowering emitted the program to measure its costs."""

    path: Path
    folder: TemporaryDirectory[str]
    """Temporary folder that contains only the files of the object program. Deleting this object removes the folder."""


@dataclass(frozen=True)
class LoweredModel:
    """Edge programs that contain the blobs of delegates."""

    manager: Any
    """``executorch.exir.EdgeProgramManager``."""
    delegations: tuple[Delegation, ...]
    stateful: frozenset[str]
    """Names of the methods that change buffers. Their results depend on the order of calls."""
    replaced: tuple[ReplacedOps, ...] = ()
    emitted: EmittedFiles | EmittedTrial | None = None
    """The object program, if it was already emitted to choose between forms; None otherwise."""
    records: Mapping[str, DelegateRecord] = field(default_factory=dict)
    """Records of compiled delegates, by the SHA-256 of the blob."""
    lines: SourceLines | None = None
    """Lookup for the source lines of ops outside delegates; None if the target has no partitioner."""

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of the lowered methods, in order: all methods of the model or some of them."""
        return tuple(item.method for item in self.delegations)


@dataclass(frozen=True)
class WrittenFile:
    """A file at a temporary path, until verification accepts or rejects it."""

    path: Path
    size: int
    """Size in bytes."""
    sha256: str


@dataclass(frozen=True)
class WrittenProgram:
    """The written program with its data files."""

    program: WrittenFile
    data: tuple[WrittenFile, ...] = ()
    """The data files, sorted by name."""
    weights: Path | None = None
    """Path of the data file of ``external_weights``; None if the config does not set this key."""
