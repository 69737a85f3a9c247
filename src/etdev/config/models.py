"""Frozen models of the config file: one class per table, one described field per key.

These models, with the limits in :mod:`etdev.config.budget`, are the single source of the validation, the JSON Schema
(``etdev schema``), ``etdev config explain`` and ``docs/config.md``. A key is listed here only if this version gives it
an effect. Code that needs the origin of a value (relative paths, positions) is in :mod:`etdev.config.loader`. Rules
that involve several keys are in :mod:`etdev.config.checks`. Nothing here accesses the file system.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from etdev.config.budget import Baseline, Budget
from etdev.config.check_names import CheckName
from etdev.config.keys import KeyPath
from etdev.config.operation import Deploy, Run
from etdev.config.registered import PlannerName
from etdev.config.table import Table
from etdev.config.types import (
    Alignment,
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
    Position,
    SafeName,
    Text,
)

DType = Literal["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool"]
KernelLibrary = Literal["portable", "optimized", "quantized"]
Owner = Literal["host", "device", "caller"]
"""Owner of the memory of an input or output.

``host``: the program's plan, on the host. ``device``: the caller, on the device where the value is used or made.
``caller``: the caller, on the host.
"""


Constant = bool | int | Number | str
"""Value that a constant method returns, or one item of the list that it returns."""
Constants = dict[Identifier, Constant | Annotated[Many[Constant], Field(min_length=1)]]
"""Values of constant methods, by name."""

Size = Annotated[int, Field(ge=1, le=2**31 - 1)]
"""Size of one dimension; the runtime stores sizes in 32 bits."""


class Project(Table):
    """The project as a whole."""

    name: SafeName | None = Field(
        None, description="Name of the built files (`build/TARGET/NAME.pte`). Default: the name of the config's folder."
    )
    imports: Many[ModuleName] = Field(
        (), description="Python modules next to the config that register custom ops; imported before the model."
    )
    out: Text = Field("build", description="Folder that the artifacts are written to.")


class ModelSource(Table):
    """Source of the model: exactly one of `entry`, `hf` and `pt2`."""

    entry: Entry | None = Field(
        None, description="`module:callable` next to the config file; called with `kwargs`, returns the `nn.Module`."
    )
    kwargs: dict[str, Any] = Field(
        default_factory=dict,
        description="Keyword arguments of `entry`, or the attributes of `hf`'s configuration that are overridden.",
    )
    weights: Text | None = Field(
        None,
        description="A `.safetensors` file with the weights of `entry`'s module. Names and shapes must match exactly.",
    )
    hf: Text | None = Field(
        None,
        description="A local transformers directory (`./dir`), or a model name on the hub, which needs `revision`.",
    )
    revision: CommitHash | None = Field(None, description="The full commit hash that pins a hub model named by `hf`.")
    pt2: Text | None = Field(None, description="A program saved by `torch.export.save`. Needs `trust = true`.")
    trust: bool = Field(
        False, description="Says that the `pt2` file is trusted: loading one may run code that it contains."
    )
    inputs: Many[Text] = Field(
        (),
        description="Other files that the model's code reads. When one changes, a build exports the model again.",
    )
    share_state: bool = Field(False, description="Methods share the buffers of the same name.")


class Input(Table):
    """One tensor that a method takes."""

    name: Identifier = Field(
        description="Name in messages and in the report. For `hf`, the model's argument of this name takes the input; "
        "otherwise inputs are passed in this order."
    )
    dtype: DType = Field(description="Element type.")
    shape: Many[Size | Identifier] = Field(
        description="Sizes: a number, or the name of a dynamic dimension declared under `dims`."
    )


class Dim(Table):
    """The range of a dynamic dimension."""

    min: Size = Field(1, description="Smallest size.")
    max: Size = Field(description="Largest size. Required: it is what memory gets planned for.")


class Method(Table):
    """One method of the program: `[methods.X]` exports `module.X`."""

    inputs: Many[Input] | None = Field(
        None, description="The tensors that the method takes, in order. Required, except for a `pt2` model."
    )
    dims: dict[Identifier, Dim] = Field(
        default_factory=dict, description="Dynamic dimensions that the shapes of `inputs` name."
    )
    samples: Entry | None = Field(
        None,
        description="`module:callable` giving an iterable of tuples of tensors, one tensor per input. Verification "
        "runs each on fresh state. Without it, random inputs are used and the report says `weak`.",
    )


class Pt2eXnnpack(Table):
    """Static or dynamic int8 quantization by PT2E with the XNNPACK quantizer, after export."""

    scheme: Literal["pt2e-xnnpack"] = Field(description="The quantization scheme.")
    calibration: Entry | dict[Identifier, Entry] | None = Field(
        None,
        description="`module:callable` giving inputs to calibrate on, in the form of a method's `samples`; with "
        "several methods a table from method to callable. Required unless `dynamic`.",
    )
    per_channel: bool = Field(True, description="One scale per output channel of a weight, instead of one per tensor.")
    dynamic: bool = Field(False, description="Compute activation scales at run time (linear layers only).")


class Int8DynamicInt4Weight(Table):
    """`8da4w`: torchao's int8 dynamic activations and grouped int4 weights, on linear layers, before export."""

    scheme: Literal["8da4w"] = Field(description="The quantization scheme.")
    group_size: int = Field(
        32, ge=32, multiple_of=32, description="Weights per scale. Must divide the input width of every linear layer."
    )


Scheme = Annotated[Pt2eXnnpack | Int8DynamicInt4Weight, Field(discriminator="scheme")]


class Partitioner(Table):
    """One step of lowering: the backend takes what it can from what the earlier steps left."""

    backend: Text = Field(description="Name of a backend; `etdev doctor` lists them.")
    device: DeviceName | None = Field(
        None,
        description="Where the backend's delegates run: `cpu`, `cuda:0`, `cuda:1` and so on, one that the backend "
        "serves. It is written as the compile spec `target_device`; for `cpu` none is written. Default: the backend's "
        "own, which `etdev doctor` lists first.",
    )
    options: dict[str, Any] = Field(default_factory=dict, description="The backend's own options, checked by it.")
    compile_specs: dict[Text, CompileSpecValue] = Field(
        default_factory=dict,
        description="Compile specs handed to the backend. Keys that the backend does not know are refused.",
    )


class Accuracy(Table):
    """Gate on the project's own metric."""

    fn: Entry = Field(
        description="`module:callable`, called as `fn(run) -> float`, where `run(*inputs)` calls the built program in "
        "the stock runtime, `run.map(iterable)` over many inputs, `run.method(name)` another method."
    )
    min: Number | None = Field(None, description="Smallest value that passes.")
    max: Number | None = Field(None, description="Largest value that passes.")


class Verify(Table):
    """Requirements of verification beyond its defaults."""

    atol: Number | None = Field(
        None, ge=0, description="Largest absolute error against the reference. A gate, on top of etdev's default."
    )
    rtol: Number | None = Field(None, ge=0, description="Largest error relative to the reference; used with `atol`.")
    min_snr_db: Number | None = Field(
        None, description="Smallest signal-to-noise ratio of any output against the float model, in dB."
    )
    accuracy: Accuracy | None = Field(None, description="Gate on the project's own metric.")
    sessions: Entry | None = Field(
        None,
        description="`module:callable` giving lists of (method, inputs) run in order on one fresh state, for programs "
        "with state.",
    )
    require: Many[CheckName] = Field(
        (), description="Checks that must have run: one that did not makes the build end with exit code 3."
    )


class Memory(Table):
    """Layout of planned memory."""

    planner: PlannerName | Entry = Field(
        "best",
        description="`best` reaches the least memory that a plan can have on almost every model, `greedy` places "
        "values in ExecuTorch's order, `naive` reuses nothing; `module:callable` is given a planning problem and "
        "returns offsets. Other packages may register more names (docs/extending.md).",
    )
    alignment: Alignment = Field(16, description="Bytes that every planned address is a multiple of.")
    tiling: Literal["auto", "off", "always"] = Field(
        "auto",
        description="Ops in pieces, one after the other, need less memory and more instructions, which make the file "
        "larger. `auto` tiles where the memory saved is larger than the growth of the file, `always` wherever it saves "
        "memory, `off` nowhere. Read by lowering, so a change of it builds from the export on.",
    )


class MethodIo(Table):
    """Owners of the memory of a method's inputs and outputs.

    * `host`: the program's plan, on the host.
    * `device`: the caller, on the device of the delegates that use the input or make the output. Neither copied nor
      planned.
    * `caller`: the caller, on the host. Not planned.
    """

    inputs: Owner | dict[Identifier, Owner] = Field(
        "host", description="Of all inputs, or a table from an input's name. Inputs that it leaves out are `host`."
    )
    outputs: Owner | dict[Position, Owner] = Field(
        "host",
        description='Of all outputs, or a table from an output\'s position: `{ 0 = "caller" }`. Outputs that it leaves '
        "out are `host`.",
    )


class Elide(Table):
    """Copies that the linker removes."""

    views: bool = Field(True, description="Removes copies that only change the shape.")
    slices: bool = Field(True, description="Reads parts of a tensor (`slice`, `select`, `split`) where the whole is.")
    cat: bool = Field(True, description="Computes what `cat` and `stack` put together at its place in their output.")
    write_back: bool = Field(True, description="Computes the new content of a buffer in the buffer itself.")
    constants: bool = Field(
        True,
        description="Puts weights into the file as they are needed, where the program would permute or cut them, if "
        "file and memory together do not grow.",
    )


class InPlace(Table):
    """Operators that may write an output into the memory of an input that is no longer needed."""

    ops: Literal["default", "none"] | Many[OperatorName] = Field(
        "default",
        description="`default` is etdev's own table, `none` turns it off; or a list. `relu`, `aten.relu.default` and "
        "`aten::relu.out` name the same operator; a name without an overload means all of them.",
    )
    add: Many[OperatorName] = Field(
        (),
        description="Further operators. One that is not in etdev's table is tried first, with the runtime's kernels on "
        "many shapes, and refused if a result differs.",
    )
    remove: Many[OperatorName] = Field((), description="Operators to leave out.")


class TargetRuntime(Table):
    """Kernels and backends of the runtime on the device. Default: those of the installed executorch wheel."""

    kernels: Many[KernelLibrary] | None = Field(None, description="Kernel libraries that the runtime is linked with.")
    operators: Text | None = Field(
        None, description="A selected-operators YAML of ExecuTorch's selective build, instead of `kernels`."
    )
    backends: Many[Text] | None = Field(
        None, description="Registered names of the runtime's backends, for example `XnnpackBackend`."
    )


class Target(Table):
    """One artifact to build: `build/TARGET/NAME.pte`."""

    quantize: SafeName | None = Field(None, description="Name of a `[quantize.X]` table to apply.")
    partitioners: Many[Partitioner] = Field(
        (), description="Backends in the order in which they are offered the program. None means `portable`."
    )
    lowering: Literal["kernels", "stock"] = Field(
        "kernels",
        description="`kernels` computes what is left to the runtime's kernels by those that are fast, if the runtime "
        "has the optimized library; `stock` leaves it as ExecuTorch lowers it.",
    )
    memory: Memory = Field(default_factory=Memory, description="How planned memory is laid out.")
    io: dict[Identifier, MethodIo] = Field(
        default_factory=dict, description="Per method, the owner of the memory of its inputs and outputs."
    )
    elide: Elide = Field(default_factory=Elide, description="Which copies the linker removes.")
    inplace: InPlace = Field(default_factory=InPlace, description="Which operators may write an output over an input.")
    external_weights: DataFileName | None = Field(
        None,
        description="Name of a file next to the program, such as `weights.ptd`, that its weights are written to: the "
        "constants, and what delegates look up by name. Default: they are inside the program. A backend may have files "
        "of its own as well.",
    )
    etrecord: bool = Field(False, description="Writes `NAME.etrecord` next to the program, for ExecuTorch's Inspector.")
    selected_operators: bool = Field(
        False,
        description="Writes `NAME.operators.yaml` next to the program: the operators that it needs, for a selective "
        "build of ExecuTorch's runtime.",
    )
    runner: bool = Field(
        False,
        description="Writes a C++ project that runs the program in static memory to the folder `runner` next to the "
        "program (`etdev runner`).",
    )
    verify: Verify = Field(default_factory=Verify, description="Tolerances, gates and required checks.")
    budget: Budget = Field(default_factory=Budget, description="Limits on the artifact.")
    runtime: TargetRuntime = Field(default_factory=TargetRuntime, description="The runtime that the artifact is for.")


class Config(Table):
    """A whole config, after all layers are merged."""

    version: FormatVersion = Field(description="Version of the config format.")
    extends: Many[Text] | Text = Field(
        (), description="Config files that this one builds on, relative to it; later ones win over earlier ones."
    )
    project: Project = Field(default_factory=Project, description="The project as a whole.")
    model: ModelSource = Field(description="Where the model comes from.")
    constants: Entry | Constants = Field(
        default_factory=dict,
        description="Constant methods: programs answer these values without running anything. A list is several "
        "answers of one method. Or `module:callable`, called with the model, that returns such a table.",
    )
    methods: dict[Identifier, Method] = Field(
        default_factory=dict, description="Methods to export. At least one, except for a `pt2` model."
    )
    quantize: dict[SafeName, Scheme] = Field(
        default_factory=dict, description="Quantization schemes, by a name of your own that targets refer to."
    )
    targets: dict[SafeName, Target] = Field(min_length=1, description="What to build.")
    baseline: Baseline | None = Field(None, description="What `budget.growth` of targets compares with.")
    deploy: dict[SafeName, Deploy] = Field(
        default_factory=dict, description="Where built targets are deployed to, by a name of your own."
    )
    run: Run = Field(default_factory=Run, description="Where targets are built, and how many at a time.")
    profiles: dict[SafeName, dict[str, Any]] = Field(
        default_factory=dict,
        description="Named overlays, chosen with `--profile`. May hold any key but `version`, `extends`, `profiles`. A "
        "method, target, quantization scheme or deployment that no file defines needs `new = true` in its table.",
    )


LINK_KEYS: tuple[KeyPath, ...] = (
    ("targets", "*", "memory", "planner"),
    ("targets", "*", "memory", "alignment"),
    ("targets", "*", "io"),
    ("targets", "*", "elide"),
    ("targets", "*", "inplace"),
    ("targets", "*", "external_weights"),
)
"""Keys that only the linker reads. If only these change, a build links again but does not export, lower or emit.

``*`` is any name. ``model.share_state`` is not one of them: emission uses it to decide which buffers of a method are
state.
"""
