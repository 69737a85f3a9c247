"""``etdev run``: call a method of a ``.pte`` and show what comes out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from etdev.cli.common import DeviceMapOption, OutputOption
from etdev.cli.output import TEXT, paint, parse_outputs
from etdev.cli.text import columns, count, line, lines, printable
from etdev.errors import UsageError

if TYPE_CHECKING:
    from etdev.pipeline.run import CallResult, OutputResult, RunResult

_RUNTIMES = ("stock", "replay")


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .pte from any toolchain.", show_default=False)],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=FILE",
            help="An input, by name or position: .npy, .npz, .safetensors, .txt or .csv; or a number where the program "
            "takes one. Repeatable; an input that is given again begins the next call, on the same state.",
            show_default=False,
        ),
    ] = None,
    random: Annotated[bool, typer.Option("--random", help="Make inputs up, of the largest sizes.")] = False,
    seed: Annotated[int, typer.Option(metavar="N", help="Of --random.", min=0)] = 0,
    method: Annotated[str, typer.Option(metavar="NAME", help="The method to call.")] = "forward",
    repeat: Annotated[int, typer.Option(metavar="N", help="How often to make the calls.", min=1, max=100_000)] = 1,
    runtime: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="stock (ExecuTorch's own) or replay (etdev's interpreter). Default: stock if it can run the program.",
            show_default=False,
        ),
    ] = None,
    device_map: DeviceMapOption = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write each output there, as .npy.", show_default=False),
    ] = None,
    output: OutputOption = None,
) -> int:
    """Call a method of a .pte, and say what comes out: shapes, figures and a digest of each output.

    Files that may run code when they are read (.pt, .pkl) are refused. Formats of --output: text, json.
    """
    outputs = parse_outputs(output, allowed=(TEXT, "json"))
    outputs.refuse(file)
    from etdev.pipeline.options import check_device_map
    from etdev.pipeline.run import RunOptions, run_file

    options = RunOptions(
        method=method,
        inputs=tuple(inputs or ()),
        random=random,
        seed=seed,
        repeat=repeat,
        runtime=_runtime(runtime),
        device_map=check_device_map(device_map),
        save=save,
    )
    result = run_file(file, options)
    outputs.write({TEXT: lambda: render(result), "json": lambda: result.model_dump_json(indent=2)})
    return 0


def _runtime(name: str | None) -> Any:
    if name is not None and name not in _RUNTIMES:
        raise UsageError(f"there is no runtime {name!r}", where="--runtime", hint=f"one of: {', '.join(_RUNTIMES)}")
    return name


def render(result: RunResult, stream: TextIO | None = None) -> str:
    """A heading, then the outputs of each call."""
    stream = stream or sys.stdout
    heading = paint(printable(result.file), "bright_white", stream=stream)
    how = "in the stock runtime" if result.runtime == "stock" else "by etdev's interpreter"
    blocks = [f"{heading}  {printable(result.method)}, {how}"]
    if result.reason is not None:
        blocks.append(line("why", printable(result.reason)))
    for number, call in enumerate(result.calls):
        label = f"call {number}" if len(result.calls) > 1 else "outputs"
        blocks += lines(label, columns([_row(item) for item in call.outputs]) or ["none"])
    blocks += lines("saved", [printable(item.saved) for call in result.calls for item in call.outputs if item.saved])
    blocks.append(line("time", "; ".join(_times(result.calls))))
    return "\n".join(blocks)


def _row(item: OutputResult) -> tuple[str, ...]:
    if item.value is not None:
        return str(item.position), item.type, printable(item.value)
    shape = f"{item.dtype} {list(item.shape or ())}"
    figures = "no elements" if item.smallest is None else ""
    if item.smallest is not None:
        figures = f"min {item.smallest:.6g}, max {item.largest:.6g}"
        figures += "" if item.mean is None else f", mean {item.mean:.6g}"
    strange = f", {count(item.strange, 'element')} NaN or infinite" if item.strange else ""
    return str(item.position), shape, f"{figures}{strange}", f"sha256 {item.digest}"


def _times(calls: tuple[CallResult, ...]) -> Iterator[str]:
    seconds = [call.seconds for call in calls]
    yield f"{seconds[0] * 1000:.3g} ms" + (" for the first call" if len(seconds) > 1 else "")
    if len(seconds) > 1:
        yield f"{median(seconds[1:]) * 1000:.3g} ms for those after it (median of {len(seconds) - 1:,})"
