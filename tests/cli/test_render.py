"""A result as text: the golden file, and the words for each ending."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from etdev.cli.rendering.build_result import render_result
from etdev.cli.rendering.delegates import describe_delegation, rejection_texts
from etdev.cli.rendering.detail import Detail
from etdev.cli.rendering.verdict import describe_files
from etdev.config.check_names import BUILT_IN
from etdev.decisions import Elision, InPlace, TilingDecision
from etdev.pipeline.results.decision_counts import count_copies, count_inplace
from etdev.pipeline.results.file_result import FileResult, FilesResult
from etdev.pipeline.results.reasons import NO_DEVICES, NO_LIMIT, NO_METRIC
from etdev.pipeline.results.result import (
    BuildResult,
    CheckResult,
    DataFile,
    MethodResult,
    OutputError,
    TargetResult,
    UndelegatedOps,
    outcome,
)
from etdev.pipeline.results.result_parts import DelegateMemory, MemoryOutside
from etdev.program.info import BufferInfo, Transfers
from support.reports import bank_report


def _golden(detail: Detail) -> Path:
    return Path(__file__).parent / "golden" / f"result-{detail.name.lower()}.txt"


def checks(**answers: CheckResult) -> tuple[CheckResult, ...]:
    later = "nobody asked for it"
    return tuple(answers.get(name, CheckResult(name=name, status="not run", summary=later)) for name in BUILT_IN)


def answer(check: str, status: str, *problems: str, summary: str = "", **fields: Any) -> CheckResult:
    return CheckResult(name=check, status=status, summary=summary or problems[0], problems=problems, **fields)


def method(name: str, calls: dict[str, int], delegated: int, **undelegated: int) -> MethodResult:
    rest = tuple(UndelegatedOps(op=f"aten.{op}.default", count=count) for op, count in undelegated.items())
    return MethodResult(
        name=name,
        inputs=(),
        stateful=False,
        delegate_calls=calls,
        delegated_ops=delegated,
        undelegated=rest,
        operators=(),
    )


def linked(name: str, *buffers: BufferInfo, copied: list[Elision], outputs: list[InPlace]) -> MethodResult:
    """A method with what the linker did to it."""
    return method(name, {}, 0, add=2).model_copy(
        update={
            "buffers": buffers,
            "copies": count_copies(copied),
            "inplace": count_inplace(outputs),
            "copy_decisions": tuple(copied),
            "inplace_decisions": tuple(outputs),
        }
    )


def buffer(size: int, *, index: int = 1, greedy: int = 0, state: bool = False) -> BufferInfo:
    """A buffer whose plan is optimal."""
    return BufferInfo(index=index, device="cpu", size=size, lower_bound=size, greedy=greedy or size, state=state)


def target(name: str, found: tuple[CheckResult, ...], **fields: Any) -> TargetResult:
    settings = {"artifact": f"build/{name}/digits.pte", "size": 132_160, "sha256": "0" * 64, "quantize": None}
    return TargetResult(name=name, status=outcome(found), checks=found, **(settings | fields))


GOOD_RUNTIME = answer(
    "runtime",
    "passed",
    summary="24 samples, max abs error 8.6e-06; SNR 128.6 dB",
    outputs=(
        OutputError(method="forward", output=0, dtype="float32", max_abs_error=8.6e-6, allowed=0.013, snr_db=128.6),
    ),
)
ERROR = OutputError(
    method="encode", output=0, dtype="float32", max_abs_error=8.6e-6, allowed=1e-6, snr_db=128.6, float_snr_db=41.2
)
KERNELS = answer("kernels", "passed", summary="7 operators in the wheel's runtime")

VIEW = Elision(3, "aten::view_copy.out", "alias", 512)
KEPT = Elision(4, "aten::slice_copy.Tensor_out", "kept", 512, "its output has another size", "slices")
CAT = Elision(9, "aten::cat.out", "placed", 1_024, kind="cat")
OVER = InPlace(5, "aten::add.out", 0, 1, 2_048)
APART = InPlace(6, "aten::add.out", 0, None, 2_048, "argument 0 is needed afterwards")

RESULT = BuildResult(
    project="digits",
    config=str(Path.cwd() / "etdev.toml"),
    overrides={
        "methods.forward.samples": "data:few",
        "targets.portable.memory.planner": "naive",
        "targets.portable.partitioners": [{"backend": "xnnpack"}],
        "targets.gpu.budget.copies": 7,
    },
    versions={"etdev": "0.1.0"},
    targets=(
        target(
            "portable",
            checks(
                kernels=KERNELS,
                runtime=GOOD_RUNTIME,
                budget=answer("budget", "passed", summary="file 129 KiB of 144 KiB", value=132_160),
                accuracy=answer("accuracy", "passed", summary="data:accuracy = 0.991667 (at least 0.95)", value=0.99),
            ),
            methods=(method("forward", {}, 0, convolution=3, relu=3, addmm=1),),
            seconds={"load": 1.91, "export": 0.82, "lower": 12.3, "verify": 63.7},
            notes=("weights converted: torch.float16 to torch.float32",),
        ),
        target(
            "gpu",
            checks(
                placement=answer("placement", "passed", summary="cuda:0 2 tensors in 32 B"),
                runtime=answer("runtime", "not run", summary="the stock Python runtime has no devices"),
                replay=answer("replay", "passed", summary="24 samples, max abs error 0; equal; cuda:0 simulated"),
                device=answer("device", "not run", summary="cuda:0 cannot allocate 64 bytes", lacking=True),
            ),
            methods=(
                method("forward", {"EtdevReferenceBackend": 2}, 4, add=1).model_copy(
                    update={"buffers": (buffer(32),), "transfers": Transfers(49_152, 34_048)}
                ),
            ),
            memory={"cpu": 0, "cuda:0": 32},
        ),
        target(
            "replayed",
            checks(replay=answer("replay", "passed", summary="24 samples, max abs error 0; equal; cuda:0 simulated")),
        ),
        target(
            "several-methods",
            checks(
                kernels=KERNELS,
                runtime=answer(
                    "runtime",
                    "failed",
                    "output 0 of 'encode' exceeds the config's tolerance (atol 1e-06, rtol 0) by 7.6e-06 "
                    "on the samples",
                    "output 1 of 'encode' has 28.1 dB against the float model on the samples, but min_snr_db is 30",
                    gate=True,
                    where="etdev.toml:31:12 (targets.several-methods.verify.atol)",
                    hint="allow an absolute error of 8.6e-06, the largest of this output, because kernels round "
                    "differently from eager PyTorch; or compute the output in a wider dtype",
                    outputs=(
                        ERROR,
                        ERROR.model_copy(update={"output": 1, "float_snr_db": 28.1}),
                        ERROR.model_copy(update={"output": 2, "max_abs_error": 0.0, "snr_db": None}),
                        OutputError(
                            method="many",
                            output=0,
                            dtype="int64",
                            max_abs_error=0,
                            allowed=0,
                            snr_db=None,
                            elements=1_024,
                            differing=3,
                        ),
                    ),
                ),
            ),
            quantize="pt2e-xnnpack",
            data=(DataFile(name="digits.ptd", size=122_536, sha256="1" * 64),),
            methods=(
                method("encode", {"XnnpackBackend": 2}, 14, view_copy=1),
                method("decode_with_a_long_name", {"XnnpackBackend": 1}, 5),
                method("many", {}, 0, **{f"op{number}": number for number in range(1, 10)}),
            ),
        ),
        target(
            "broken",
            checks(
                kernels=answer(
                    "kernels",
                    "failed",
                    "method 'forward' needs operators that the wheel's runtime lacks: aten::sort.values",
                ),
                runtime=CheckResult(
                    name="runtime",
                    status="not run",
                    summary="the wheel's runtime has no kernel for aten::sort.values",
                ),
            ),
            artifact="build/broken/digits.pte.rejected",
            size=900,
        ),
        target("unmet", checks(kernels=KERNELS, runtime=GOOD_RUNTIME), required=("device", "runtime")),
        target("elsewhere", checks(kernels=KERNELS), artifact="/srv/programs/digits.pte"),
        target(
            "one-buffer",
            checks(kernels=KERNELS),
            methods=(linked("forward", buffer(524_288), copied=[VIEW], outputs=[]),),
            memory={"cpu": 524_288},
        ),
        target(
            "measured",
            checks(
                native=answer(
                    "native",
                    "passed",
                    summary="24 samples, max abs error 0; equal",
                    memory_outside=(
                        MemoryOutside("forward", 8_024, 440, 1_448),
                        MemoryOutside("encode", 2_000, 520, 0),
                    ),
                ),
            ),
            methods=(linked("forward", buffer(524_288), copied=[VIEW], outputs=[]),),
            memory={"cpu": 524_288},
        ),
        target(
            "state",
            checks(kernels=KERNELS),
            methods=(
                linked(
                    "prefill",
                    buffer(147_456, greedy=163_840),
                    buffer(65_536, index=2, state=True),
                    copied=[VIEW, CAT, KEPT],
                    outputs=[OVER, APART],
                ),
                linked("decode", buffer(65_536, index=2, state=True), copied=[VIEW, KEPT], outputs=[OVER]),
            ),
            memory={"cpu": 212_992},
            shared_state=("cache",),
        ),
    ),
    notes=("use `--device-map cuda:0=sim` to simulate cuda:0",),
)


def test_the_golden_texts() -> None:
    """Everything that a result can hold. Write it with ``python tests/cli/test_render.py``, and read the diff."""
    for shown in (Detail.LINE, Detail.SHORT, Detail.FULL):
        assert render_result(RESULT, shown, io.StringIO()) == _golden(shown).read_text(encoding="utf-8")


def test_ram_is_not_stated_without_the_planned_memory() -> None:
    """`etdev verify` called it "planned memory 0"."""
    found = answer("native", "passed", summary="fine", memory_outside=(MemoryOutside("forward", 1, 2, 3),))
    for memory, stated in (({}, False), ({"cpu": 0}, True)):
        verified = target("cpu", checks(native=found), memory=memory)
        text = render_result(RESULT.model_copy(update={"targets": (verified,)}), Detail.FULL, io.StringIO())
        assert ("  ram  " in text) == stated


def test_each_decision_is_listed_when_asked_for() -> None:
    """C4: each candidate with its reason."""
    said = render_result(RESULT, Detail.DECISIONS, io.StringIO()).partition("\nstate  ")[2]

    assert [line for line in said.splitlines() if "instruction" in line or "code: " in line or "fill: " in line] == [
        "  views      prefill: 1 of 1 copy removed, 512 bytes fewer to copy in a call",
        "             instruction 3 (aten::view_copy.out, 512 bytes): alias",
        "  slices     prefill: 0 of 1 copy removed",
        "             instruction 4 (aten::slice_copy.Tensor_out, 512 bytes): kept: its output has another size",
        "  cat        prefill: 1 of 1 copy removed, 1,024 bytes fewer to copy in a call",
        "             instruction 9 (aten::cat.out, 1,024 bytes): placed",
        "  in place   prefill: 1 of 2 outputs over an operand, 2,048 bytes",
        "             instruction 5 (aten::add.out, 2,048 bytes): over argument 1",
        "             instruction 6 (aten::add.out, 2,048 bytes): not: argument 0 is needed afterwards",
        "  views      decode: 1 of 1 copy removed, 512 bytes fewer to copy in a call",
        "             instruction 3 (aten::view_copy.out, 512 bytes): alias",
        "  slices     decode: 0 of 1 copy removed",
        "             instruction 4 (aten::slice_copy.Tensor_out, 512 bytes): kept: its output has another size",
        "  in place   decode: 1 of 1 output over an operand, 2,048 bytes",
        "             instruction 5 (aten::add.out, 2,048 bytes): over argument 1",
    ]


def test_what_there_was_nothing_to_ask_of_is_one_line() -> None:
    """No check that did not run is left out, and each keeps its reason."""
    reasons = {
        "growth": NO_LIMIT,
        "latency": NO_LIMIT,
        "accuracy": NO_METRIC,
        "device": NO_DEVICES,
        "replay": "no time",
    }
    answers = {name: answer(name, "not run", summary=reason) for name, reason in reasons.items()}
    answers["replay"] = answers["replay"].model_copy(update={"hint": "wait for it"})
    found = checks(**{name: answer(name, "passed", summary="fine") for name in BUILT_IN} | answers)
    shown = render_result(RESULT.model_copy(update={"targets": (target("cpu", found),)}), Detail.FULL, io.StringIO())
    assert [line for line in shown.splitlines() if "not run" in line] == [
        (
            "  not run    growth, latency: the config sets no limit; device: the program has no memory on devices; "
            "accuracy: the config names no metric"
        ),
        "  not run    replay: no time",
    ]
    lines = shown.splitlines()
    assert lines[lines.index("  not run    replay: no time") + 1] == "                      help: wait for it"


def test_a_limit_that_was_not_compared_is_not_only_counted() -> None:
    """A build with `budget.ram` was green without CMake, and the short text named the check alone."""
    summary, hint = "budget.ram: no CMake was found", "install CMake"
    ram = answer("budget", "not run", summary=summary, hint=hint, unjudged="etdev.toml:9:1")
    growth = answer("growth", "not run", summary="there is no baseline yet", unjudged="etdev.toml:8:1")
    found = target("cpu", checks(runtime=GOOD_RUNTIME, budget=ram, growth=growth))
    for detail in (Detail.LINE, Detail.SHORT):
        shown = render_result(RESULT.model_copy(update={"targets": (found,)}), detail, io.StringIO())
        assert [line for line in shown.splitlines() if " not run  " in line] == [
            "  budget     not run  budget.ram: no CMake was found"
        ]
        assert "help: install CMake" in shown
    for detail in (Detail.LINE, Detail.SHORT, Detail.FULL):
        verdict = render_result(RESULT.model_copy(update={"targets": (found,)}), detail, io.StringIO())
        assert "1 good except for a limit that was not compared (budget)" in verdict


@pytest.mark.parametrize(
    ("found", "required", "verdict"),
    [
        (checks(runtime=GOOD_RUNTIME), (), "good"),
        (checks(kernels=KERNELS), (), "built but not run"),
        (checks(), (), "built but not run"),
        (checks(runtime=GOOD_RUNTIME), ("device",), "without a required check (device)"),
        (checks(budget=answer("budget", "failed", "large", gate=True)), (), "missed a gate (budget)"),
        (checks(kernels=answer("kernels", "failed", "none")), (), "rejected (kernels)"),
    ],
)
def test_the_verdict(found: tuple[CheckResult, ...], required: tuple[str, ...], verdict: str) -> None:
    """What was never run was called good."""
    result = RESULT.model_copy(update={"targets": (target("cpu", found, required=required),)})

    assert render_result(result, Detail.FULL, io.StringIO()).splitlines()[-1] == f"digits: 1 target, 1 {verdict}"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (method("m", {}, 0), "0, all on the runtime's own kernels: none"),
        (method("m", {"X": 1}, 4), "4: 4 in 1 call of X"),
        (
            method("m", {"X": 1}, 4, add=1),
            "5: 4 in 1 call of X, 1 on the runtime's own kernels: aten.add",
        ),
        (
            method("m", {"X": 2, "Y": 1}, 4, add=2),
            "6: 4 in 2 calls of X, 1 call of Y, 2 on the runtime's own kernels, splitting the delegate: aten.add x2",
        ),
    ],
)
def test_delegation_in_words(result: MethodResult, text: str) -> None:
    assert describe_delegation(result) == text
    assert " more" not in describe_delegation(result, verbose=True)


def test_reasons_for_ops_outside_delegates() -> None:
    """The most frequent ops with a reason, few reasons for each; ops without a reason have no line."""
    several = UndelegatedOps(op="aten.mean.dim", count=1, reasons=("a: 1", "a: \x1b", "b: 3", "b: 4"), module="head")
    placed = UndelegatedOps(op="aten.abs.default", count=2, reasons=("a: 1",), module="", source="model.py:3")
    plain = [UndelegatedOps(op=f"aten.op{number}", count=1, reasons=("a: 1",)) for number in range(7)]
    without = UndelegatedOps(op="aten.erf.default", count=3, module="head", source="model.py:4")
    found = method("m", {"X": 1}, 4).model_copy(update={"undelegated": (several, placed, *plain, without)})
    assert list(rejection_texts(found)) == [
        "aten.abs  model.py:3: a: 1",
        "aten.mean.dim  head: a: 1; a: \\x1b; b: 3; 1 more reason in report.json",
        *(f"aten.op{number}: a: 1" for number in range(6)),
        "reasons for 1 more op are in report.json",
    ]


@pytest.mark.parametrize("detail", [Detail.SHORT, Detail.FULL])
@pytest.mark.parametrize(
    ("methods", "calls"), [(("forward", "width"), "in a call"), (("a", "b"), "if each method is called once")]
)
def test_traffic_of_banks_counts_a_call_of_each_method(detail: Detail, methods: tuple[str, ...], calls: str) -> None:
    """The constant method ``width`` has no planned memory."""
    results = tuple(linked(name, *[buffer(64)] * (name != "width"), copied=[], outputs=[]) for name in methods)
    built = target("mcu", (GOOD_RUNTIME,), methods=results, memory={"cpu": 64}, banks=bank_report(48, 64))
    text = render_result(RESULT.model_copy(update={"targets": (built,)}), detail, io.StringIO())
    assert f"moved {calls}: 64 B in fast, 48 B in slow; " in text


@pytest.mark.parametrize("executing", ["runtime", "replay", "native", "device", None])
def test_a_file_is_called_executed_if_a_check_ran_it(executing: str | None) -> None:
    checks = tuple(answer(name, "passed", summary="well") for name in ("plan", executing) if name)
    file = FileResult(file="a.pte", size=1, sha256="0" * 64, status="good", checks=checks)
    said = "good in all checks that ran" + ("" if executing else ", but not executed")
    assert describe_files(FilesResult(versions={}, files=(file,))) == f"1 file, 1 {said}"


def test_what_delegates_need_in_addition_to_banks() -> None:
    by_compiler = DelegateMemory(0, "EthosUBackend", {"scratch": 2048, "fast_scratch": 512, "sram": 2048})
    methods = (
        method("first", {"EthosUBackend": 1}, 0).model_copy(update={"delegate_memory": (by_compiler,)}),
        method("second", {"XnnpackBackend": 2, "EthosUBackend": 1}, 0),
    )
    built = target("mcu", (), methods=methods, banks=bank_report(48, 64))
    text = render_result(RESULT.model_copy(update={"targets": (built,)}), Detail.SHORT, io.StringIO())
    assert (
        "not in the banks: fast scratch 512 B of EthosUBackend, scratch 2.00 KiB of EthosUBackend, run-time memory of "
        "XnnpackBackend\n" in text
    )


def test_colour_only_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[" in render_result(RESULT, Detail.FULL, Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in render_result(RESULT, Detail.FULL, Terminal())


def test_the_json_is_plain_json() -> None:
    """No NaN, no Infinity: any parser reads it."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert json.loads(RESULT.model_dump_json(), parse_constant=refuse)["format"] == 1


if __name__ == "__main__":
    for detail in (Detail.LINE, Detail.SHORT, Detail.FULL):
        _golden(detail).write_text(render_result(RESULT, detail, io.StringIO()), encoding="utf-8")


@pytest.mark.parametrize(
    ("decision", "line"),
    [
        (TilingDecision(True, 12_000, 4_000), "tiled: 12,000 bytes less memory, 4,000 bytes more file"),
        (
            TilingDecision(False, 12_000, 40_000),
            "not tiled: it would need 12,000 bytes less memory, 40,000 bytes more file",
        ),
        (TilingDecision(False, -16, 40_000), "not tiled: it would not save memory"),
        (TilingDecision(False, reason="by estimate"), None),
    ],
)
def test_a_decision_about_tiling_has_both_figures(decision: TilingDecision, line: str | None) -> None:
    tiled = method("forward", {}, 0, add=2).model_copy(update={"forms": {"tiling": 3}, "tiling": decision})
    result = RESULT.model_copy(update={"targets": (target("cpu", checks(), methods=(tiled,)),)})
    text = render_result(result, Detail.FULL, io.StringIO())
    assert ("tiled" in text) == (line is not None)
    assert line is None or line in text


@pytest.mark.parametrize(
    ("peaks", "line"),
    [
        ((12_000,), "a convolution keeps its slow kernel: another form would need about 12,000 bytes of memory"),
        (
            (12_000, 9_000),
            "2 convolutions keep their slow kernel: another form would need about 12,000 bytes of memory",
        ),
    ],
)
def test_convolutions_that_keep_a_slow_kernel_are_named(peaks: tuple[int, ...], line: str) -> None:
    slow = method("forward", {}, 0, add=2).model_copy(update={"slow_convolutions": peaks})
    result = RESULT.model_copy(update={"targets": (target("cpu", checks(), methods=(slow,)),)})
    assert line in render_result(result, Detail.FULL, io.StringIO())
