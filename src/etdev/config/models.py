"""Frozen models of the config file: one class for each table, one field for each key.

These models, with the limits in :mod:`etdev.config.budget`, define the validation, the JSON Schema
(``etdev schema``), ``etdev config explain`` and ``docs/config.md``. Every key has an effect in this version. Code that
needs the origin of a value (relative paths, positions) is in :mod:`etdev.config.loader`. Rules that involve several
keys are in :mod:`etdev.config.checks`. This module does not access the file system.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from etdev.config.budget import Baseline, Budget
from etdev.config.check_names import CheckName
from etdev.config.keys import KeyPath
from etdev.config.operation import Deploy, Run
from etdev.config.table import Table
from etdev.config.tables.io import MethodIo
from etdev.config.tables.memory import Memory
from etdev.config.tables.schemes import Scheme
from etdev.config.types import (
    CommitHash,
    CompileSpecValue,
    DataFileName,
    DeviceName,
    Entry,
    FormatVersion,
    Identifier,
    Many,
    ModuleName,
    Number,
    OperatorName,
    PositiveShare,
    SafeName,
    Text,
)

DType = Literal["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool"]
KernelLibrary = Literal["portable", "optimized", "quantized", "cortex-m"]

Constant = bool | int | Number | str
"""A value that a constant method returns, or one item of a returned list."""
Constants = dict[Identifier, Constant | Annotated[Many[Constant], Field(min_length=1)]]
"""Maps the name of a constant method to the value that the method returns."""

FixedSize = Annotated[int, Field(ge=0, le=2**31 - 1)]
"""Size of a dimension that does not vary, 0 for a tensor without elements; the runtime stores sizes in 32 bits."""
DimSize = Annotated[int, Field(ge=1, le=2**31 - 1)]
"""Size of a dynamic dimension. Verification runs the smallest size, and at 0 many ops have no result."""


class Project(Table):
    """Settings of the whole project."""

    name: SafeName | None = Field(
        None, description="Name of the built files (`build/TARGET/NAME.pte`). Default: the name of the config's folder."
    )
    imports: Many[ModuleName] = Field(
        (),
        description="Python modules next to the config that register custom ops; etdev imports them before the model.",
    )
    native_libraries: Many[Text] = Field(
        (),
        description="Shared libraries with backends and kernels in C++, for the native runtime (docs/extending.md).",
    )
    out: Text = Field("build", description="Folder for the artifacts.")


class ModelSource(Table):
    """Source of the model: exactly one of `entry`, `hf` and `pt2`."""

    entry: Entry | None = Field(
        None, description="`module:callable` next to the config file; called with `kwargs`, it returns the `nn.Module`."
    )
    kwargs: dict[str, Any] = Field(
        default_factory=dict,
        description="Keyword arguments of `entry`, or attributes of `hf`'s configuration to override.",
    )
    weights: Text | None = Field(
        None,
        description="A `.safetensors` file with the weights of `entry`'s module. Names and shapes must match exactly.",
    )
    hf: Text | None = Field(
        None,
        description="A local transformers directory (`./dir`), or a model name on the hub, which needs `revision`.",
    )
    revision: CommitHash | None = Field(None, description="The full commit hash of the hub model in `hf`.")
    pt2: Text | None = Field(None, description="A program saved by `torch.export.save`. Needs `trust = true`.")
    trust: bool = Field(
        False, description="True to trust the `pt2` file: loading such a file may run code that it contains."
    )
    inputs: Many[Text] = Field(
        (),
        description="Other files that the model's code reads. If one of them changes, a build exports the model again.",
    )
    share_state: bool = Field(False, description="True if methods share buffers of the same name.")


class Input(Table):
    """One input tensor of a method."""

    name: Identifier = Field(
        description="Name in messages and in the report. For `hf`, the name of the model's argument; otherwise, "
        "inputs are passed in this order."
    )
    dtype: DType = Field(description="Element type.")
    shape: Many[FixedSize | Identifier] = Field(
        description="Sizes, each a number or the name of a dynamic dimension in `dims`."
    )


class Dim(Table):
    """The range of a dynamic dimension."""

    min: DimSize = Field(1, description="Minimum size. If only `multiple_of` is set, it is the minimum.")
    max: DimSize = Field(description="Maximum size. Required, because memory is planned for it.")
    multiple_of: DimSize = Field(
        1,
        description="All sizes are multiples of this number, as a model needs that halves images and joins the results "
        "with what it had. `min` and `max` must be multiples, too.",
    )

    @model_validator(mode="before")
    @classmethod
    def _start_at_multiple(cls, given: Any) -> Any:
        step = given.get("multiple_of") if isinstance(given, dict) else None
        return {"min": step, **given} if type(step) is int and step > 0 else given

    @property
    def sizes(self) -> range:
        """All sizes of the dimension."""
        return range(self.min, self.max + 1, self.multiple_of)

    def describe(self) -> str:
        """Return the sizes as text: ``1..32``, or ``32..256 in steps of 8``."""
        step = "" if self.multiple_of == 1 else f" in steps of {self.multiple_of}"
        return f"{self.min}..{self.max}{step}"


class Method(Table):
    """One method of the program: `[methods.X]` exports `module.X`."""

    inputs: Many[Input] | None = Field(
        None, description="The input tensors of the method, in order. Required, except for a `pt2` model."
    )
    dims: dict[Identifier, Dim] = Field(
        default_factory=dict, description="Dynamic dimensions, by the name that the shapes of `inputs` use."
    )
    samples: Entry | None = Field(
        None,
        description="`module:callable` that returns an iterable of tuples of tensors, one tensor for each input. "
        "Verification runs each tuple on fresh state. Without samples, random inputs are used and "
        "the report says `weak`.",
    )


class Partitioner(Table):
    """One step of lowering: the backend takes ops that no earlier step took."""

    backend: Text = Field(description="Name of a backend; `etdev doctor` lists them.")
    device: DeviceName | None = Field(
        None,
        description="Device of the backend's delegates: `cpu`, `cuda:0`, `cuda:1` and so on. The backend must "
        "support it. It becomes the compile spec `target_device`, except for `cpu`. Default: the "
        "backend's default device, which `etdev doctor` lists first.",
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="The backend's own options; the backend checks them."
    )
    compile_specs: dict[Text, CompileSpecValue] = Field(
        default_factory=dict,
        description="Compile specs for the backend. Keys that the backend does not know are errors.",
    )


class Accuracy(Table):
    """Limits on the project's own metric."""

    fn: Entry = Field(
        description="`module:callable`, called as `fn(run) -> float`. `run(*inputs)` calls the built program in "
        "the stock runtime, `run.map(iterable)` calls it on many inputs, `run.method(name)` selects "
        "another method."
    )
    min: Number | None = Field(None, description="Minimum value of the metric.")
    max: Number | None = Field(None, description="Maximum value of the metric.")
    max_drop: Number | None = Field(
        None,
        ge=0,
        description="Maximum amount by which the metric may be below that of the float model in eager PyTorch. For a "
        "metric that is better if higher. `fn` is then also called with the float model.",
    )
    max_rise: Number | None = Field(
        None,
        ge=0,
        description="Maximum amount by which the metric may be above that of the float model in eager PyTorch. For a "
        "metric that is better if lower. `fn` is then also called with the float model.",
    )


class Verify(Table):
    """Requirements for the verification of a target, in addition to the default checks."""

    atol: Number | None = Field(
        None,
        ge=0,
        description="Maximum absolute error of a float output against the reference. A gate, in addition to etdev's "
        "default tolerance.",
    )
    rtol: Number | None = Field(None, ge=0, description="Maximum error relative to the reference; used with `atol`.")
    min_snr_db: Number | None = Field(
        None, description="Minimum signal-to-noise ratio of each float output against the float model, in dB."
    )
    min_agreement: PositiveShare | None = Field(
        None,
        description="Share of the elements of each output of integers or truth values that must equal the reference, "
        "over all samples and sessions: above 0, at most 1. Replaces the default, under which all must be equal. Lower "
        "it for a method that computes an index, such as a token id, because a tie may pick another one.",
    )
    min_close: PositiveShare | None = Field(
        None,
        description="Share of the elements of each float output that must be within etdev's default tolerance, over "
        "all samples and sessions: above 0, at most 1. Replaces the default, under which all must be. Set it for a "
        "method that orders rows by score, such as a detector, because a tie may swap two rows.",
    )
    accuracy: Accuracy | None = Field(None, description="Limits on the project's own metric.")
    sessions: Entry | None = Field(
        None,
        description="`module:callable` that returns lists of (method, inputs), each run in order on one fresh "
        "state, for programs with state.",
    )
    require: Many[CheckName] = Field(
        (), description="Checks that must run: if one of them does not run, the build ends with exit code 3."
    )


class Elide(Table):
    """Copies that the linker removes."""

    views: bool = Field(True, description="Remove copies that only change the shape.")
    slices: bool = Field(
        True, description="Read parts of a tensor (`slice`, `select`, `split`) directly from the whole tensor."
    )
    cat: bool = Field(True, description="Compute the parts of `cat` and `stack` directly in their output.")
    write_back: bool = Field(True, description="Compute the new content of a buffer directly in the buffer.")
    constants: bool = Field(
        True,
        description="Store weights in the file permuted or cut, as the program needs them, if the total of file "
        "and memory does not grow.",
    )


class InPlace(Table):
    """Operators that may write an output into the memory of an input that is no longer needed."""

    ops: Literal["default", "none"] | Many[OperatorName] = Field(
        "default",
        description="`default` is etdev's own table, `none` turns this off; or a list. `relu`, "
        "`aten.relu.default` and `aten::relu.out` name the same operator; a name without an overload "
        "means all overloads.",
    )
    add: Many[OperatorName] = Field(
        (),
        description="Additional operators. If an operator is not in etdev's table, its kernel is first tried on "
        "many shapes, and rejected if a result differs.",
    )
    remove: Many[OperatorName] = Field((), description="Operators to exclude.")


class TargetRuntime(Table):
    """Kernels and backends of the runtime on the device. Default: as in the installed executorch wheel."""

    kernels: Many[KernelLibrary] | None = Field(None, description="Kernel libraries that the runtime is linked with.")
    operators: Text | None = Field(
        None, description="A selected-operators YAML of ExecuTorch's selective build, instead of `kernels`."
    )
    backends: Many[Text] | None = Field(
        None, description="Registered names of the runtime's backends, such as `XnnpackBackend`."
    )


class Target(Table):
    """One artifact to build: `build/TARGET/NAME.pte`."""

    quantize: SafeName | None = Field(None, description="Name of the `[quantize.X]` table to apply.")
    partitioners: Many[Partitioner] = Field(
        (), description="Backends, in the order in which they take ops. None means `portable`."
    )
    lowering: Literal["kernels", "stock"] = Field(
        "kernels",
        description="`kernels` lets lowering replace ops outside delegates with ops that have fast kernels, if "
        "the runtime has the optimized library; `stock` keeps ExecuTorch's lowering.",
    )
    memory: Memory = Field(default_factory=Memory, description="Layout of planned memory.")
    io: dict[Identifier, MethodIo] = Field(
        default_factory=dict, description="Memory and data types of inputs and outputs, by method."
    )
    elide: Elide = Field(default_factory=Elide, description="Copies that the linker removes.")
    inplace: InPlace = Field(default_factory=InPlace, description="Operators that may write an output over an input.")
    external_weights: DataFileName | None = Field(
        None,
        description="Name of a data file next to the program for its weights, such as `weights.ptd`: the "
        "constants, and the data that delegates look up by name. Default: the weights are inside the "
        "program. A backend may have data files of its own as well.",
    )
    etrecord: bool = Field(
        False, description="True to write `NAME.etrecord` next to the program, for ExecuTorch's Inspector."
    )
    selected_operators: bool = Field(
        False,
        description="True to write `NAME.operators.yaml` next to the program: the operators that the program "
        "needs, for a selective build of ExecuTorch's runtime.",
    )
    runner: bool | Literal["embed"] = Field(
        False,
        description="True to write a C++ project that runs the program in static memory, in the folder `runner` next "
        'to the program (`etdev runner`). "embed" makes the program a C array, as firmware needs it.',
    )
    verify: Verify = Field(default_factory=Verify, description="Tolerances, gates and required checks.")
    budget: Budget = Field(default_factory=Budget, description="Limits on the artifact.")
    runtime: TargetRuntime = Field(
        default_factory=TargetRuntime, description="The runtime for which the artifact is built."
    )


class Config(Table):
    """A whole config, after all layers are merged."""

    version: FormatVersion = Field(description="Version of the config format.")
    extends: Many[Text] | Text = Field(
        (), description="Config files that this config extends, relative to it; later files override earlier ones."
    )
    project: Project = Field(default_factory=Project, description="Settings of the whole project.")
    model: ModelSource = Field(description="Source of the model.")
    constants: Entry | Constants = Field(
        default_factory=dict,
        description="Constant methods: the program returns these values without running instructions. For a "
        "list, the method returns several values. Or a `module:callable` that takes the model and "
        "returns such a table.",
    )
    methods: dict[Identifier, Method] = Field(
        default_factory=dict, description="Methods to export. At least one, except for a `pt2` model."
    )
    quantize: dict[SafeName, Scheme] = Field(
        default_factory=dict, description="Quantization schemes, by a name that you choose and that targets refer to."
    )
    targets: dict[SafeName, Target] = Field(min_length=1, description="Targets to build, by a name that you choose.")
    baseline: Baseline | None = Field(None, description="The baseline for `budget.growth` of targets.")
    deploy: dict[SafeName, Deploy] = Field(
        default_factory=dict, description="Destinations of built targets, by a name that you choose."
    )
    run: Run = Field(default_factory=Run, description="Where targets are built, and how many at the same time.")
    profiles: dict[SafeName, dict[str, Any]] = Field(
        default_factory=dict,
        description="Named overlays, chosen with `--profile`. They may contain all keys except `version`, "
        "`extends` and `profiles`. A method, target, quantization scheme or deployment that no file "
        "defines needs `new = true` in its table.",
    )


LINK_KEYS: tuple[KeyPath, ...] = (
    ("targets", "*", "memory", "planner"),
    ("targets", "*", "memory", "alignment"),
    ("targets", "*", "memory", "order"),
    ("targets", "*", "memory", "banks"),
    ("targets", "*", "memory", "pin"),
    ("targets", "*", "io", "*", "inputs"),
    ("targets", "*", "io", "*", "outputs"),
    ("targets", "*", "elide"),
    ("targets", "*", "inplace"),
    ("targets", "*", "external_weights"),
)
"""Keys that only the linker reads. If only these keys change, a build skips export, lowering and emission.

``*`` represents any name. ``model.share_state`` is not included, because emission uses this key to choose the buffers
that are state.
"""
