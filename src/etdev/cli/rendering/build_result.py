"""A :class:`~etdev.pipeline.results.result.BuildResult` as text for people."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from etdev.cli.rendering.banks import bank_lines
from etdev.cli.rendering.delegates import delegate_memory_texts, describe_delegation, outside_of_banks, rejection_texts
from etdev.cli.rendering.detail import Detail
from etdev.cli.rendering.link_decisions import decision_lines, describe_order, kind_name
from etdev.cli.rendering.output import paint
from etdev.cli.rendering.text import count, escaped, line, lines, printable
from etdev.cli.rendering.verdict import describe_files, describe_verdict, file_verdict, override_texts
from etdev.decisions import TilingDecision
from etdev.execution.availability import advises_map
from etdev.pipeline.results.decision_counts import KINDS
from etdev.pipeline.results.never_ran import never_ran
from etdev.pipeline.results.reasons import NOTHING_TO_ASK
from etdev.pipeline.results.result import BuildResult, CheckResult, FailedTarget, OutputError, TargetResult
from etdev.pipeline.results.result_parts import ram_parts
from etdev.pipeline.results.verdict import check_names, target_verdict, unjudged_checks
from etdev.units import format_seconds, format_size

if TYPE_CHECKING:
    from etdev.pipeline.results.file_result import FileResult, FilesResult
    from etdev.program.info import BufferInfo

_COLOURS = {"passed": "green", "failed": "red", "not run": "yellow"}


def render_result(result: BuildResult, shown: Detail, stream: TextIO | None = None) -> str:
    """Return the result as text: a block of lines for each target, and a summary line."""
    stream = stream or sys.stdout
    if shown is Detail.LINE:
        texts = [text for target in result.targets for text in _one_line(result, target, stream)]
        texts += [text for failed in result.failed for text in _failed_lines(failed, stream)]
        return "\n".join([*texts, _summary(result)]) + "\n"
    block = _short_lines if shown is Detail.SHORT else partial(_target_lines, verbose=shown is Detail.DECISIONS)
    blocks = ["\n".join(block(result, target, stream)) for target in result.targets]
    blocks += ["\n".join(_failed_lines(failed, stream)) for failed in result.failed]
    return "\n\n".join([*blocks, *_notes(result.notes), _summary(result)]) + "\n"


def render_files(result: FilesResult, shown: Detail, stream: TextIO | None = None) -> str:
    """Return the result of verifying files without a config: a block for each file, and a summary line."""
    stream = stream or sys.stdout
    if shown is Detail.LINE:
        texts = []
        for file in result.files:
            texts += [f"{paint(printable(file.file), stream=stream)}  {file_verdict(file)}"]
            texts += _open_check_lines(file.checks, file.unmet, stream)
        return "\n".join(texts) + "\n"
    blocks = ["\n".join(_checked_file_lines(file, stream)) for file in result.files]
    return "\n\n".join([*blocks, *_notes(result.notes), describe_files(result)]) + "\n"


def _summary(result: BuildResult) -> str:
    return f"{result.project}: {describe_verdict(result)}"


def _notes(texts: Sequence[str]) -> list[str]:
    """Return a list with one block of all notes on the build or verification. Without notes, the list is empty."""
    return ["\n".join(f"note: {text}" for text in texts)] if texts else []


def _checked_file_lines(file: FileResult, stream: TextIO) -> Iterator[str]:
    heading = paint(printable(file.file), stream=stream)
    yield f"{heading}  {format_size(file.size)} ({file.size:,} bytes)"
    yield from _verification_lines(file.checks, file.unmet, stream)


def _one_line(result: BuildResult, target: TargetResult, stream: TextIO) -> Iterator[str]:
    memory = f", {_sizes(target.memory)} planned" if target.memory else ""
    keys = len(override_texts(result, target))
    stated = f", {count(keys, 'key')} overridden" if keys else ""
    heading = paint(target.name, stream=stream)
    yield f"{heading}  {target_verdict(target)}, {format_size(target.size)}{memory}{stated}  {_place(result, target)}"
    yield from _open_check_lines(target.checks, target.unmet, stream)
    yield from _warning_lines(target, stream)


def _short_lines(result: BuildResult, target: TargetResult, stream: TextIO) -> Iterator[str]:
    yield f"{paint(target.name, stream=stream)}  {_place(result, target)}  {format_size(target.size)}"
    yield from lines("set", override_texts(result, target))
    yield from _data_lines(target)
    if target.banks is not None:
        yield from bank_lines(target.banks, [method.buffers for method in target.methods])
        yield from lines("", outside_of_banks(target))
    elif target.memory:
        greedy = _greedy(target)
        other = "the same" if greedy == target.memory else _sizes(greedy)
        yield line("memory", f"{_sizes(target.memory)} planned; ExecuTorch's planner on this program: {other}")
    yield from _short_verification(target.checks, target.unmet, stream)
    yield from _remarks(target, stream)


def _short_verification(checks: Sequence[CheckResult], unmet: Sequence[CheckResult], stream: TextIO) -> Iterator[str]:
    """Yield a line with the numbers of checks that passed, failed and did not run.

    Then yield lines about failed checks, about required checks that did not run, and about limits that were not
    compared.
    """
    passed = sum(check.status == "passed" for check in checks)
    failed = [check for check in checks if check.status == "failed"]
    skipped = [check for check in checks if check.status == "not run" and check not in unmet]
    unasked = sum(check.summary in NOTHING_TO_ASK for check in skipped)
    others = [check for check in skipped if check.summary not in NOTHING_TO_ASK]
    counts = [f"{passed} passed"] if passed or not failed else []
    counts += [f"{len(failed)} failed ({check_names(failed)})"] if failed else []
    counts += [f"{unasked} not needed"] if unasked else []
    counts += [f"{len(others)} not run ({check_names(others)})"] if others else []
    yield line("checks", ", ".join(counts))
    yield from _open_check_lines(checks, unmet, stream)


def _open_check_lines(checks: Sequence[CheckResult], unmet: Sequence[CheckResult], stream: TextIO) -> Iterator[str]:
    """Yield lines about failed checks, required checks that did not run, and limits that were not compared."""
    yield from _failed_check_lines(checks, stream)
    yield from _unmet_lines(unmet, stream)
    for check in unjudged_checks(check for check in checks if check not in unmet):
        yield line(check.name, f"{paint('not run', _COLOURS['not run'], stream=stream)}  {escaped(check.summary)}")
        yield from _advice_lines(check)


def _place(result: BuildResult, target: TargetResult) -> Path:
    path = result.path(target.name)
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _sizes(memory: Mapping[str, int]) -> str:
    """Return the memory sizes as text, such as ``5.06 KiB``. Add device names unless the host is the only device."""
    if list(memory) == ["cpu"]:
        return format_size(memory["cpu"])
    return ", ".join(f"{device} {format_size(size)}" for device, size in memory.items())


def _greedy(target: TargetResult) -> dict[str, int]:
    """Map each device to the planned bytes that ExecuTorch's planner ``greedy`` would need."""
    found = dict(target.memory)  # In this sum, state that methods share counts once.
    for method in target.methods:
        for buffer in method.buffers:
            found[buffer.device] += (buffer.greedy or 0) - buffer.size
    return found


def _data_lines(target: TargetResult) -> Iterator[str]:
    for data in target.data:
        yield line("data", f"{data.name}  {format_size(data.size)} ({data.size:,} bytes)")


def _remarks(target: TargetResult, stream: TextIO) -> Iterator[str]:
    yield from _warning_lines(target, stream)
    for text in target.notes:
        yield line("note", text)


def _warning_lines(target: TargetResult, stream: TextIO) -> Iterator[str]:
    warning = never_ran(target)
    if warning is not None:
        yield line("warning", paint(warning.message, "yellow", stream=stream))
        yield line("", f"help: {warning.hint}")
    for found in target.warnings:
        yield line("warning", paint(escaped(found.message), "yellow", stream=stream))
        yield from lines("", [f"at {escaped(found.where)}", f"help: {escaped(found.hint)}"])


def _target_lines(result: BuildResult, target: TargetResult, stream: TextIO, *, verbose: bool) -> Iterator[str]:
    scheme = f", {target.quantize}" if target.quantize else ""
    heading = paint(target.name, stream=stream)
    yield f"{heading}  {_place(result, target)}  {format_size(target.size)} ({target.size:,} bytes{scheme})"
    yield from lines("set", override_texts(result, target))
    yield from _data_lines(target)
    for method in target.methods:
        label = "ops" if len(target.methods) == 1 else method.name
        yield line(label, describe_delegation(method, verbose=verbose))
        yield from (line("", text) for text in rejection_texts(method))
        if method.forms:
            counts = ", ".join(f"{name} {number}" for name, number in method.forms.items())
            yield line("", f"in other forms: {counts}")
        if method.tiling is not None and method.tiling.memory_saved is not None:
            yield line("", _tiling(method.tiling))
        if method.slow_convolutions:
            yield line("", _slow(method.slow_convolutions))
        if method.order is not None:
            yield line("", describe_order(method.order))
        for tensor in method.quantized:
            yield line("", f"quantized: {tensor}")
    yield from _memory_lines(target)
    yield from (line("", text) for text in delegate_memory_texts(target))
    yield from _ram_lines(target)
    if verbose:
        for method in target.methods:
            name = method.name if len(target.methods) > 1 else None
            yield from decision_lines(method.copy_decisions, method.inplace_decisions, verbose=True, method=name)
    yield from _verification_lines(target.checks, target.unmet, stream)
    yield from _remarks(target, stream)
    if target.seconds:
        total = format_seconds(sum(target.seconds.values()))
        stages = ", ".join(f"{stage} {format_seconds(seconds)}" for stage, seconds in target.seconds.items())
        yield line("time", f"{total}: {stages}")


def _tiling(decision: TilingDecision) -> str:
    """Return a tiling decision as text: ``tiled: 12,000 bytes less memory, 4,000 bytes more file``."""
    saved, growth = decision.memory_saved or 0, decision.file_growth or 0
    if not decision.tiled and saved <= 0:
        return "not tiled: it would not save memory"
    which, would = ("tiled", "") if decision.tiled else ("not tiled", "it would need ")
    memory, file = (f"{abs(size):,} bytes {'more' if size > 0 else 'less'}" for size in (-saved, growth))
    reason = f" ({decision.reason})" if decision.reason else ""
    return f"{which}: {would}{memory} memory, {file} file{reason}"


def _slow(peaks: Sequence[int]) -> str:
    """Return a text on convolutions that keep a slow kernel.

    For each of these convolutions, ``peaks`` has the bytes of memory that a faster form would need.
    """
    kept = "a convolution keeps its" if len(peaks) == 1 else f"{len(peaks)} convolutions keep their"
    return f"{kept} slow kernel: another form would need about {max(peaks):,} bytes of memory"


def _failed_lines(failed: FailedTarget, stream: TextIO) -> Iterator[str]:
    yield f"{paint(failed.name, stream=stream)}  not built"
    for error in failed.errors:
        yield line("error", f"{paint('failed', _COLOURS['failed'], stream=stream)}   {escaped(error.message)}")
        yield from _remedy_lines(error.where, error.hint)


def _memory_lines(target: TargetResult) -> Iterator[str]:
    """Yield the planned memory: the total for each device, and the size of each buffer of each method."""
    buffers = [(method.name, buffer) for method in target.methods for buffer in method.buffers]
    if not buffers:
        return
    if target.banks is not None:
        yield from bank_lines(target.banks, [method.buffers for method in target.methods])
        yield from lines("", outside_of_banks(target))
    totals = ", ".join(f"{device} {format_size(size)}" for device, size in target.memory.items())
    decided = "".join(f", {text}" for text in (_copies_removed(target), _in_place(target)) if text)
    if len(buffers) == 1:
        yield line("memory", f"{totals} ({_compared(buffers[0][1])}){decided}")
        yield from _transfer_lines(target)
        return
    yield line("memory", f"{totals}{decided}")
    for name, buffer in buffers:
        kind = "state" if buffer.state else buffer.label
        yield line("", f"{name}, {kind}: {format_size(buffer.size)} ({_compared(buffer)})")
    yield from _transfer_lines(target)
    if target.shared_state:
        names = ", ".join(target.shared_state)
        yield line("", f"shared by methods: {names}; the program's loader must give all methods the same buffers")


def _ram_lines(target: TargetResult) -> Iterator[str]:
    """Yield a line with the RAM that the program needs on this machine, if the check *native* measured it."""
    planned = target.memory.get("cpu")
    if planned is None:  # A result of `etdev verify` does not state it.
        return
    for check in target.checks:
        parts = ram_parts(planned, check.memory_outside) if check.memory_outside else None
        if parts is not None:
            named = ", ".join(f"{name} {size:,}" for name, size in parts.items())
            yield line("ram", f"{sum(parts.values()):,} bytes on this machine: {named}")


def _transfer_lines(target: TargetResult) -> Iterator[str]:
    """Yield the bytes that a call of each method copies between the host and devices."""
    for method in target.methods:
        if method.transfers.total:
            name = f"{method.name}, " if len(target.methods) > 1 else ""
            yield line("", f"{name}copied in a call: {method.transfers}")


def _copies_removed(target: TargetResult) -> str:
    """Return a text with the number of removed copies, such as ``18 copies removed (16 views, 2 slices)``.

    If there is only one kind, the text is ``2 copies removed (views)``.
    """
    removed: Counter[str] = Counter()
    for method in target.methods:
        removed.update({item.kind: item.removed for item in method.copies if item.removed})
    if not removed:
        return ""
    total = removed.total()
    kinds = ", ".join(count(removed[kind], kind_name(kind).removesuffix("s")) for kind in KINDS if kind in removed)
    kinds = kinds if len(removed) > 1 else kinds.partition(" ")[2]
    return f"{total:,} {'copy' if total == 1 else 'copies'} removed ({kinds})"


def _in_place(target: TargetResult) -> str:
    """Return a text such as ``54 of 56 in place``: kernels can write 56 outputs in place, and 54 of them are."""
    taken = sum(method.inplace.taken for method in target.methods)
    considered = sum(method.inplace.considered for method in target.methods)
    return f"{taken:,} of {considered:,} in place" if considered else ""


def _compared(buffer: BufferInfo) -> str:
    """Return a text that compares a buffer's size with the lower bound and with the size that ``greedy`` plans."""
    if buffer.state:
        return "kept between calls"
    if buffer.greedy is None:
        return "in a bank"
    greedy = f"greedy {'the same' if buffer.greedy == buffer.size else format_size(buffer.greedy or 0)}"
    if buffer.lower_bound is None:
        return greedy
    least = "optimal" if buffer.size <= buffer.lower_bound else f"lower bound {format_size(buffer.lower_bound)}"
    return f"{least}; {greedy}"


def _verification_lines(checks: Sequence[CheckResult], unmet: Sequence[CheckResult], stream: TextIO) -> Iterator[str]:
    """Yield lines about the checks: checks that ran, then required checks that did not run, then all other checks.

    The first check that compares several outputs also has a line for each of them.
    """
    compared = next((check for check in checks if len(check.outputs) > 1), None)
    for check in checks:
        if check.status != "not run":
            yield from _check_lines(check, stream)
        if check is compared:
            yield from (line("", f"         {_output_text(output)}") for output in check.outputs)
    yield from _unmet_lines(unmet, stream)
    yield from _not_run_lines([check for check in checks if check.status == "not run" and check not in unmet])


def _output_text(output: OutputError) -> str:
    """Return the deviation of an output as text: ``output 1 of 'encode': max abs error 8.6e-06; SNR 128.6 dB``."""
    if output.elements is not None and not output.max_abs_error:
        found = f"{output.differing or 0:,} of {output.elements:,} elements differ"
    else:
        found = f"max abs error {output.max_abs_error:.2g}; "
        found += "equal" if output.snr_db is None else f"SNR {output.snr_db:.1f} dB"
    to_float = "" if output.float_snr_db is None else f", {output.float_snr_db:.1f} dB against float"
    return f"output {output.output} of {output.method!r}: {found}{to_float}"


def _unmet_lines(unmet: Sequence[CheckResult], stream: TextIO) -> Iterator[str]:
    for check in unmet:
        yield line(check.name, f"{paint('not run', 'red', stream=stream)}  required, but {escaped(check.summary)}")
        yield from _advice_lines(check)


def _failed_check_lines(checks: Sequence[CheckResult], stream: TextIO) -> Iterator[str]:
    for check in checks:
        if check.status == "failed":
            yield from _check_lines(check, stream)


def _check_lines(check: CheckResult, stream: TextIO) -> Iterator[str]:
    status = paint(check.status, _COLOURS[check.status], stream=stream)
    yield line(check.name, f"{status}   {escaped(check.summary)}")
    if check.failures:
        first, *others = check.failures
        yield from _remedy_lines(first.where, first.hint)
        for failure in others:
            yield line("", f"         {escaped(failure.message)}")
            yield from _remedy_lines(failure.where, failure.hint)
        return
    for problem in check.problems[1:]:
        yield line("", f"         {escaped(problem)}")
    yield from _remedy_lines(check.where, check.hint)


def _remedy_lines(where: str | None, hint: str | None) -> Iterator[str]:
    if where is not None:
        yield line("", f"         at {where}")
    if hint is not None:
        yield line("", f"         help: {hint}")


def _advice_lines(check: CheckResult) -> Iterator[str]:
    """Yield a line on how to make a check run, unless a note on the whole result has the same advice."""
    if not advises_map(check.hint):
        yield from _remedy_lines(None, check.hint)


def _not_run_lines(skipped: Sequence[CheckResult]) -> Iterator[str]:
    """Yield one line for each reason why checks did not run. Checks without anything to check share one line."""
    groups: dict[str, list[CheckResult]] = {}
    for check in skipped:
        groups.setdefault(check.summary, []).append(check)
    texts: dict[str, list[str]] = {}
    for reason, checks in groups.items():
        shared = "" if reason in NOTHING_TO_ASK else reason
        texts.setdefault(shared, []).append(f"{check_names(checks)}: {escaped(reason)}")
    for reason, parts in texts.items():
        yield line("not run", "; ".join(parts))
        if reason:
            yield from _advice_lines(groups[reason][0])
