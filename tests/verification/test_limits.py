"""Budgets and growth of programs written by hand: what a missed limit says, and what cannot be judged (E2)."""

from __future__ import annotations

import io
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from etdev.cli.rendering.build_result import render_result
from etdev.cli.rendering.detail import Detail
from etdev.cli.reports.findings import of_result
from etdev.config.types import allowed_growth
from etdev.devices import DeviceType
from etdev.errors import ConfigError, MissingRequirementError, UsageError
from etdev.files import file_sha256
from etdev.inspection.measure import measure_program, weight_bytes
from etdev.pipeline.builder.summary import describe_unused
from etdev.pipeline.cache import linked_facts
from etdev.pipeline.cache.digests import Digests
from etdev.pipeline.project import Project
from etdev.pipeline.project.baseline_source import check_baseline
from etdev.pipeline.project.options import BuildOptions
from etdev.pipeline.results.result import BuildResult, CheckResult, DataFile, MethodResult, TargetResult, UndelegatedOps
from etdev.pipeline.results.verdict import unjudged_checks
from etdev.program import Blob, Program, flat_tensor, read, write
from etdev.program import model as m
from etdev.program.data_files.external import externalize
from etdev.program.data_files.joined import names_in
from etdev.verification.checks.budget import check_budget
from etdev.verification.checks.growth import check_growth
from etdev.verification.limits import Measured
from program.hand import tensor
from support import reports
from support.files import ADD, banked, chain, cos, delegated, method, program, sin
from support.on_devices import file_of, two_devices
from support.projects import LINEAR_CONFIG, make_project

OPS = reports.method_result(
    delegate_calls={"XnnpackBackend": 1},
    delegated_ops=9,
    undelegated=(UndelegatedOps(op="aten.sin.default", count=2), UndelegatedOps(op="aten.cos.default", count=1)),
)


def weighted(*sizes: int) -> Program:
    """``x`` and constants of so many numbers, added one after the other."""
    values = [tensor(4, at=0), *(tensor(size, data=index) for index, size in enumerate(sizes, start=1)), m.Int(1)]
    out = tensor(4, at=16)
    calls = [
        m.KernelCall(0, (0, index, len(values) - 1, len(values), len(values))) for index in range(1, len(sizes) + 1)
    ]
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + 4 * size)
    return program(
        method([*values, out], calls, operators=(ADD,)),
        segments=(m.Segment(0, Blob(bytes(offsets[-1]))),),
        constant_segment=m.SubsegmentOffsets(0, (0, *offsets[:-1])),
    )


def looking_up() -> Program:
    """A delegate with weights that it looks up by name, apart from its blob."""
    made = delegated()
    segments = (*made.segments, m.Segment(256, Blob(bytes(32))))
    return replace(made, segments=segments, named_data=(m.NamedData("weights", 2),))


def tied(*sizes: int) -> Program:
    """A program with constants of these sizes, whose delegate looks up the bytes of all of them by name."""
    made = weighted(*sizes)
    segments = (*made.segments, m.Segment(256, Blob(b"blob")), m.Segment(512, made.segments[0].data))
    place = m.BackendDelegateDataReference(m.DataLocation.SEGMENT, 1)
    plan = replace(made.execution_plan[0], delegates=(m.BackendDelegate("Own", place, ()),))
    return replace(made, execution_plan=(plan,), segments=segments, named_data=(m.NamedData("weights", 2),))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def measured(folder: Path, found: Program, *methods: MethodResult) -> Measured:
    file = folder / "found.pte"
    write(found, file)
    return Measured(file, file.stat().st_size, read(file), methods)


def project(folder: Path, target: str, *tables: str) -> Project:
    """A project whose target ``cpu`` has these lines, with further tables."""
    return make_project(folder, dedent(LINEAR_CONFIG) + "\n".join(["[targets.cpu]", target, *tables]))


Budget = Callable[..., CheckResult]


@pytest.fixture
def budget(folder: Path) -> Budget:
    def judge(limits: str, found: Program, *methods: MethodResult) -> CheckResult:
        return check_budget(
            project(folder, f"budget = {{ {limits} }}"),
            "cpu",
            measured(folder, found, *methods),
            lambda: "not measured",
        )

    return judge


@pytest.mark.parametrize(
    ("limit", "found", "problem"),
    [
        pytest.param(
            "file = 100",
            weighted(4, 4),
            "file: {size:,} bytes, {more:,} more than budget.file (100); flatbuffer",
            id="file: its sections",
        ),
        pytest.param(
            "weights = 40",
            weighted(4, 8, 2),
            "weights: 56 bytes, 16 more than budget.weights (40); float32 [8] for aten::add.out 32 bytes, float32 [4] "
            "for aten::add.out 16 bytes, float32 [2] for aten::add.out 8 bytes",
            id="weights: the largest constants",
        ),
        pytest.param(
            "weights = 1",
            weighted(4, 4),
            "weights: 32 bytes, 31 more than budget.weights (1); float32 [4] for aten::add.out x2 32 bytes",
            id="weights: those of one shape together",
        ),
        pytest.param(
            'memory = { "cuda:1" = 31 }',
            two_devices(),
            "memory of cuda:1: 32 bytes, 1 more than budget.memory.cuda:1 (31); at instruction 5 of 'forward' "
            "(EtdevReferenceBackend): float32 [4] of EtdevReferenceBackend 16 bytes, float32 [4] of "
            "et_copy::_h2d_copy.out 16 bytes",
            id="memory: the tensors at the peak",
        ),
        pytest.param(
            "copies = 0",
            two_devices(),
            "copies in a call of 'forward': 64 bytes, 64 more than budget.copies (0); float32 [4] back from cuda:0 16 "
            "bytes, float32 [4] back from cuda:1 16 bytes, float32 [4] to cuda:0 16 bytes and 1 more",
            id="copies: the largest transfers",
        ),
        pytest.param(
            "delegated = 0.76",
            chain(1),
            "9 of 12 ops delegated: 75%, less than budget.delegated (76%); on the runtime's own kernels: aten.sin 2, "
            "aten.cos 1",
            id="delegated: the ops that are not",
        ),
    ],
)
def test_a_missed_budget_names_what_is_responsible(budget: Budget, limit: str, found: Program, problem: str) -> None:
    check = budget(limit, found, OPS)

    size = Path("found.pte").stat().st_size
    assert (check.status, check.gate) == ("failed", True)
    assert check.problems[0].startswith(problem.format(size=size, more=size - 100))
    (failure,) = check.failures
    assert failure.message == check.problems[0]
    assert failure.where.startswith("etdev.toml:9:")
    assert "budget." in failure.hint


def test_each_missed_limit_has_its_own_place_and_remedy(budget: Budget) -> None:
    check = budget("file = 1, delegated = 1, weights = '1MiB'", weighted(4), OPS)

    assert [(item.where.rpartition(" ")[2], item.hint) for item in check.failures] == [
        (
            "(targets.cpu.budget.file)",
            (
                "quantize the model, move the weights (16 B) to a file next to it (`external_weights`), "
                "or raise budget.file"
            ),
        ),
        (
            "(targets.cpu.budget.delegated)",
            "add a backend that takes these ops (partitioners), or lower budget.delegated",
        ),
    ]


def test_what_holds_is_said(budget: Budget) -> None:
    check = budget("weights = '1KiB', memory = { cpu = '1KiB', 'cuda:0' = 0 }, delegated = 0.75", weighted(4), OPS)

    assert (check.status, check.failures) == ("passed", ())
    assert check.summary == (
        "weights 16 B of 1.00 KiB, memory of cpu 32 B of 1.00 KiB, memory of cuda:0 0 B of 0 B, "
        "9 of 12 ops delegated (at least 75%)"
    )


@pytest.mark.parametrize("found", [chain(1), delegated()], ids=["no delegate", "a delegate that states nothing"])
def test_memory_that_no_delegate_states_is_called_so(budget: Budget, found: Program) -> None:
    check = budget("scratch = '1KiB', fast_scratch = 0", found)

    assert check.status == "passed"
    assert check.summary == (
        "scratch: no delegate of the file states that it needs this memory, "
        "fast scratch: no delegate of the file states that it needs this memory"
    )


def test_a_share_that_nobody_knows_any_more_is_not_judged(budget: Budget) -> None:
    check = budget("delegated = 0, file = '1MiB'", chain(1))

    assert check.status == "not run"
    assert check.summary.startswith(
        "budget.delegated: neither the file nor a report.json of its build states the number"
    )
    assert "; judged: file " in check.summary


def test_a_missed_limit_does_not_hide_one_that_was_not_compared(budget: Budget) -> None:
    """A build without CMake that missed `budget.memory` said nothing about `budget.ram`."""
    check = budget("memory = { cpu = 1 }, ram = '1MiB'", chain(1))

    assert (check.status, len(check.failures)) == ("failed", 1)
    assert "; not compared: budget.ram: not measured; known: at least " in check.summary
    assert check.unjudged is not None
    assert check.unjudged.endswith("(targets.cpu.budget.ram)")
    target = TargetResult(
        name="cpu", status="gate failed", artifact="a.pte", size=1, sha256="0", quantize=None, checks=(check,)
    )
    assert unjudged_checks(target.checks) == [], "it failed, so it is not listed as not run"
    result = BuildResult(project="p", config="etdev.toml", versions={}, targets=(target,))
    for detail in Detail:
        assert render_result(result, detail, io.StringIO()).count("not compared: budget.ram: not measured") == 1
    assert [(found.rule, found.level) for found in of_result(result)] == [
        ("budget", "error"),
        ("not-judged", "warning"),
    ]


def test_all_of_no_ops_are_delegated(budget: Budget) -> None:
    none = OPS.model_copy(update={"delegated_ops": 0, "undelegated": ()})
    assert budget("delegated = 1", chain(1), none).status == "passed"


@pytest.mark.parametrize(("limit", "status"), [("file = 1", "failed"), ("weights = 1", "not run"), ("", "not run")])
def test_a_file_that_cannot_be_read_has_a_size_all_the_same(folder: Path, limit: str, status: str) -> None:
    found = Measured(folder / "none.pte", 7, None)
    assert (
        check_budget(project(folder, f"budget = {{ {limit} }}"), "cpu", found, lambda: "not measured").status == status
    )


# Growth.

Growth = Callable[..., CheckResult]


def write_report(
    folder: Path, before: Program, *, keep: bool = True, weights: int | None = None, **changes: Any
) -> None:
    """The output folder ``old`` of a build of target ``cpu``, whose report may state other weights than its file."""
    place = folder / "old" / "cpu"
    place.mkdir(parents=True, exist_ok=True)
    write(before, place / "tiny.pte")
    size = (place / "tiny.pte").stat().st_size
    figures = measure_program(read(place / "tiny.pte"), size)
    if weights is not None:
        figures = figures.model_copy(update={"weights": weights})
    reports.write_report(place / "tiny.pte", **({"artifact": "old/cpu/tiny.pte", "figures": figures} | changes))
    if not keep:
        (place / "tiny.pte").unlink()


@pytest.fixture
def growth(folder: Path) -> Growth:
    def judge(limits: str, found: Program, source: str = "old") -> CheckResult:
        made = project(folder, f"budget.growth = {{ {limits} }}", f'[baseline]\nfrom = "{source}"')
        check_baseline(made, ("cpu",))
        return check_growth(made, "cpu", measured(folder, found), found)

    return judge


@pytest.mark.parametrize(
    ("limit", "status"),
    [
        ("weights = '50%'", "passed"),
        ("weights = '49.9%'", "failed"),
        ("weights = 16", "passed"),
        ("weights = 15", "failed"),
    ],
)
def test_growth_by_percent_and_by_bytes(growth: Growth, folder: Path, limit: str, status: str) -> None:
    write_report(folder, weighted(8))

    check = growth(limit, weighted(8, 4))

    assert check.status == status
    if status == "passed":
        assert check.summary == "against old/cpu: weights 16 B more, of 16 B"
    else:
        assert check.gate
        assert check.summary.startswith(
            "weights: 48 bytes, 16 (50%) more than the 32 of old/cpu; budget.growth.weights allows "
        )
        assert check.summary.endswith("; float32 [4] for aten::add.out +16 bytes")
        assert check.failures[0].where == "etdev.toml:9:29 (targets.cpu.budget.growth.weights)"


def test_without_the_file_of_the_baseline_the_present_parts_are_named(growth: Growth, folder: Path) -> None:
    write_report(folder, weighted(8), keep=False)

    assert growth("weights = 0", weighted(8, 4)).summary.endswith(
        "; float32 [8] for aten::add.out 32 bytes, float32 [4] for aten::add.out 16 bytes"
    )


def test_memory_grows_on_each_device(growth: Growth, folder: Path) -> None:
    write(chain(1), folder / "old.pte")

    check = growth("memory = '0%', copies = 1000", two_devices(), "old.pte")

    assert [problem.partition(";")[0] for problem in check.problems] == [
        "memory of cpu: 64 bytes, 32 (100%) more than the 32 of old.pte",
        "memory of cuda:0: 32 bytes, 32 more than the 0 of old.pte",
        "memory of cuda:1: 32 bytes, 32 more than the 0 of old.pte",
    ]
    assert "): float32 [4] of et_copy::_d2h_copy.out +16 bytes" in check.problems[0]
    assert "move a part of the model to another device" in check.failures[1].hint


def outside(folder: Path, before: Program) -> Program:
    """The program without its weights, which are in the output folder ``old`` next to it."""
    found, data = externalize(before)
    weights = folder / "old" / "cpu" / "w.ptd"
    weights.parent.mkdir(parents=True)
    flat_tensor.write(data, weights)
    beside = DataFile(name="w.ptd", size=weights.stat().st_size, sha256=file_sha256(weights))
    write_report(folder, found, data=(beside,), weights=weight_bytes(before, pooled=names_in(weights)))
    return found


@pytest.mark.parametrize("before", [looking_up(), weighted(8)])
def test_a_file_with_its_report_has_the_weights_beside_it(growth: Growth, folder: Path, before: Program) -> None:
    outside(folder, before)

    assert growth("weights = 0", before, "old/cpu/tiny.pte").summary == "against old/cpu/tiny.pte: weights the same"


def test_equal_bytes_in_a_data_file_are_one_part_of_the_growth(folder: Path) -> None:
    """The data ``weights`` has the bytes of a constant, so the file of ``external_weights`` stores it once."""
    made = project(folder, "budget.growth = { weights = 0 }", '[baseline]\nfrom = "old/cpu/tiny.pte"')
    before, after = (tied(size) for size in (4, 8))
    kept, data = outside(folder, before), folder / "old" / "cpu" / "w.ptd"
    assert kept.named_data == ()
    found = replace(measured(folder, after), pooled=names_in(data))

    assert check_growth(made, "cpu", found, after).summary.endswith("; float32 [8] for aten::add.out +32 bytes")


def test_what_is_beside_a_file_names_what_grew(growth: Growth, folder: Path) -> None:
    outside(folder, weighted(8))

    assert growth("weights = 0", weighted(8, 4), "old/cpu/tiny.pte").summary.endswith(
        "float32 [4] for aten::add.out +16 bytes"
    )


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (weighted(8), "tiny.pte has weights in another file"),
        (looking_up(), "tiny.pte does not state whether its delegates have weights in another file"),
    ],
)
@pytest.mark.parametrize("report", [None, "{", '{"targets": [{"sha256": "0"}]}'])
def test_weights_that_a_file_alone_does_not_tell_are_not_judged(
    growth: Growth, folder: Path, before: Program, reason: str, report: str | None
) -> None:
    outside(folder, before)
    place = folder / "old" / "cpu" / "report.json"
    place.unlink()
    if report is not None:
        place.write_text(report)

    check = growth("weights = 0, copies = 0", before, "old/cpu/tiny.pte")

    assert check.status == "not run"
    assert check.summary == (
        f"budget.growth.weights: old/cpu/{reason}: set `baseline.from` to the folder of the baseline's build, "
        "or to a commit with the lock of that build (`git:REF`); judged: copies in a call the same"
    )
    assert check.unjudged == "etdev.toml:9:29 (targets.cpu.budget.growth.weights)"
    assert growth("copies = 0", before, "old/cpu/tiny.pte").status == "passed"
    enough = growth(f"weights = {weight_bytes(before)}", before, "old/cpu/tiny.pte")
    assert (enough.status, enough.unjudged) == ("passed", None)
    size = f"{weight_bytes(before)} B"
    assert enough.summary == f"against old/cpu/tiny.pte: weights at most {size} more, of {size}"


def test_delegates_without_weights_have_none_that_grow(growth: Growth, folder: Path) -> None:
    found = replace(delegated(), named_data=())
    write(found, folder / "old.pte")

    assert growth("weights = 0", found, "old.pte").summary == "against old.pte: weights no more, of 0 B"


@given(
    growth=st.one_of(st.integers(0, 100), st.integers(0, 200).map("{}%".format)),
    least=st.integers(0, 100),
    more=st.integers(0, 100),
    found=st.integers(0, 300),
)
def test_what_is_kept_against_the_least_is_kept_against_more(
    growth: int | str, least: int, more: int, found: int
) -> None:
    """Why a baseline that does not tell all of its weights may pass a limit, and never fails one."""
    if found - least <= allowed_growth(growth, least):
        assert found - (least + more) <= allowed_growth(growth, least + more)


def test_what_shrinks_or_stays_passes(growth: Growth, folder: Path) -> None:
    write(weighted(8, 8), folder / "old.pte")

    check = growth("weights = 0, memory = 0, copies = 0", weighted(8), "old.pte")

    assert check.summary == ("against old.pte: weights 32 B less, memory of cpu the same, copies in a call the same")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": "other"}, "old/cpu/report.json has no build of this target"),
        ({"status": "rejected"}, "old/cpu/report.json has no good build of this target"),
        (None, "there is no old"),
    ],
)
def test_where_there_is_no_baseline_nothing_is_judged(
    growth: Growth, folder: Path, changes: dict[str, Any] | None, reason: str
) -> None:
    """A first build, or a new target."""
    if changes is not None:
        write_report(folder, chain(1), **changes)

    check = growth("file = 0", chain(1))

    assert (check.status, check.summary) == ("not run", f"there is no baseline: {reason}")


def test_a_target_that_the_baseline_did_not_build(growth: Growth, folder: Path) -> None:
    (folder / "old").mkdir()
    assert growth("file = 0", chain(1)).summary == "there is no baseline: there is no old/cpu/report.json"


@pytest.mark.parametrize("content", ["{", "{}", '{"targets": [{"name": "cpu"}]}', '{"targets": [3]}', "\xff"])
def test_a_report_that_is_none_is_an_error(growth: Growth, folder: Path, content: str) -> None:
    (folder / "old" / "cpu").mkdir(parents=True)
    (folder / "old" / "cpu" / "report.json").write_text(content, encoding="latin-1")

    with pytest.raises(
        ConfigError, match=r"report\.json: this report is damaged or is of another version of etdev"
    ) as caught:
        growth("file = 0", chain(1))
    assert caught.value.where == "etdev.toml:11:8"


def test_a_file_stands_for_one_target(folder: Path) -> None:
    limits = "budget.growth.file = 0"
    made = project(folder, limits, "[targets.other]", limits, "[targets.free]", '[baseline]\nfrom = "old.pte"')

    check_baseline(made, ("cpu", "free"))
    with pytest.raises(ConfigError, match="is one file, but 2 targets have limits for growth: cpu, other"):
        check_baseline(made, ("cpu", "other", "free"))


@pytest.mark.parametrize("source", ["build", "build/cpu/tiny.pte", "./build/"])
def test_the_output_of_the_build_itself_is_no_baseline(growth: Growth, source: str) -> None:
    """A build that misses the limit would be the next one's baseline."""
    with pytest.raises(ConfigError, match="the project's own output"):
        growth("file = 0", chain(1), source)


@pytest.fixture
def git(folder: Path) -> Callable[..., str]:
    """A repository in the folder: runs git there."""
    environment = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")

    def git(*arguments: str) -> str:
        command = ["git", *who, *arguments]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout

    git("init", "--quiet", "--initial-branch=main")
    return git


def lock_of(found: Measured) -> str:
    figures = measure_program(found.program or chain(1), found.size).model_dump(exclude_none=True)
    target = {"sha256": "0", "figures": figures, "versions": {}, "settings": {}, "files": {}}
    return tomli_w.dumps({"version": 1, "targets": {"cpu": target}})


@pytest.mark.parametrize("reference", ["main", "v1", "HEAD~1"])
def test_growth_since_a_commit(growth: Growth, folder: Path, git: Callable[..., str], reference: str) -> None:
    (folder / "etdev.lock").write_text(lock_of(measured(folder, weighted(8))))
    git("add", "etdev.lock")
    git("commit", "--quiet", "-m", "a lock")
    git("tag", "v1")
    if reference == "HEAD~1":
        git("commit", "--quiet", "--allow-empty", "-m", "another")
    (folder / "etdev.lock").write_text(lock_of(measured(folder, weighted(8, 8))))

    check = growth("weights = 0", weighted(8, 4), f"git:{reference}")

    assert check.status == "failed"
    assert check.summary == (
        f"weights: 48 bytes, 16 (50%) more than the 32 of git:{reference}; budget.growth.weights allows 0 bytes; "
        "float32 [8] for aten::add.out 32 bytes, float32 [4] for aten::add.out 16 bytes"
    )


@pytest.mark.parametrize(
    ("lock", "reason"),
    [
        (None, "git:main has no etdev.lock"),
        ("version = 1\n", "the etdev.lock of git:main does not contain this target"),
    ],
)
def test_a_commit_without_the_target(
    growth: Growth, folder: Path, git: Callable[..., str], lock: str | None, reason: str
) -> None:
    if lock is not None:
        (folder / "etdev.lock").write_text(lock)
        git("add", "etdev.lock")
    git("commit", "--quiet", "--allow-empty", "-m", "one")

    assert growth("file = 0", chain(1), "git:main").summary == f"there is no baseline: {reason}"


def test_nothing_is_committed_yet(growth: Growth, git: Callable[..., str]) -> None:
    assert growth("file = 0", chain(1), "git:main").summary.endswith("git:main has no etdev.lock")


def test_a_commit_that_the_clone_lacks_is_no_first_build(
    growth: Growth, folder: Path, git: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a shallow clone, where the gate would be passed unseen."""
    git("commit", "--quiet", "--allow-empty", "-m", "one")

    with pytest.raises(MissingRequirementError, match="this clone has no commit 'origin/main'") as caught:
        growth("file = 0", chain(1), "git:origin/main")
    assert "fetch-depth: 0" in str(caught.value.hint)
    assert caught.value.where == "etdev.toml:11:8 (baseline.from)"
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(MissingRequirementError, match="git cannot be run"):
        growth("file = 0", chain(1), "git:main")


def test_a_folder_that_is_in_no_repository(growth: Growth, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(MissingRequirementError, match="is not in a git repository"):
        growth("file = 0", chain(1), "git:main")


def test_a_damaged_lock_is_an_error(growth: Growth, folder: Path, git: Callable[..., str]) -> None:
    (folder / "etdev.lock").write_text("version = 2\n")
    git("add", "etdev.lock")
    git("commit", "--quiet", "-m", "a lock")
    with pytest.raises(UsageError) as caught:
        growth("file = 0", chain(1), "git:main")
    assert caught.value.where == "git:main:etdev.lock"


def test_a_cached_target_goes_by_its_baseline(folder: Path) -> None:
    """What is found again must have been judged against the same figures."""
    made = project(folder, "budget.growth.file = 0", '[baseline]\nfrom = "old"')
    free = project(folder / "free", "", '[baseline]\nfrom = "../old"')

    def facts(of: Project) -> object:
        return linked_facts(of, "cpu", BuildOptions(), Digests()).settings

    first, unlimited = facts(made), facts(free)
    write_report(folder, chain(1))
    assert facts(made) != first
    file = project(folder / "file", "budget.growth.file = 0", '[baseline]\nfrom = "../old/cpu/tiny.pte"')
    reported = facts(file)
    (folder / "old" / "cpu" / "report.json").unlink()
    assert facts(file) != reported
    assert facts(free) == unlimited


@given(st.integers(0, 2**63), st.integers(0, 10**6), st.integers(0, 3))
def test_a_percentage_is_exact_and_rounded_down(before: int, digits: int, places: int) -> None:
    whole, fraction = divmod(digits, 10**places)
    text = f"{whole}.{fraction:0{places}d}%" if places else f"{whole}%"

    allowed = allowed_growth(text, before)

    assert allowed * 100 * 10**places <= before * digits < (allowed + 1) * 100 * 10**places
    assert allowed_growth(allowed, before) == allowed


def test_weights_of_a_program_in_a_delegate_are_named(budget: Budget) -> None:
    around = replace(two_devices(), segments=(m.Segment(0, Blob()), m.Segment(128, Blob(file_of(weighted(6))))))
    assert budget("weights = 1", around).summary.endswith("; float32 [6] for aten::add.out 24 bytes")


def test_named_data_counts_for_the_weights(budget: Budget) -> None:
    made = replace(weighted(4), named_data=(m.NamedData("k" * 64, 0),))
    assert "data 'kkkkkkkkkkkkkkkk' of delegates 16 bytes" in budget("weights = 1", made).summary


# Memory banks.

BANKS = 'memory.banks = [{ name = "fast", id = 2, size = "1KiB" }, { name = "slow", id = 1, size = "4KiB" }]'
NAMES = {1: "slow", 2: "fast"}


def in_banks(folder: Path, found: Program) -> Measured:
    return replace(measured(folder, found), banks=NAMES)


@pytest.mark.parametrize(
    ("limit", "problem"),
    [
        (
            "fast = 63",
            (
                "memory of bank fast: 64 bytes, 1 more than budget.memory.fast (63); at instruction 0 of 'forward' "
                "(aten::cos.out): float32 [16] of aten::cos.out 64 bytes"
            ),
        ),
        (
            "fast = 64, slow = 47, cpu = 112",
            (
                "memory of bank slow: 48 bytes, 1 more than budget.memory.slow (47); while filling the inputs of "
                "'forward': float32 [8] of input 0 32 bytes"
            ),
        ),
        ("cpu = 111", "memory of cpu: 112 bytes, 1 more than budget.memory.cpu (111); at instruction 0"),
        ("fast = 64, slow = 48, cpu = 112", None),
    ],
)
def test_budget_of_a_bank(folder: Path, limit: str, problem: str | None) -> None:
    made = project(folder, f"{BANKS}\nbudget.memory = {{ {limit} }}")
    check = check_budget(made, "cpu", in_banks(folder, banked(8, 16)), lambda: "not measured")
    if problem is None:
        assert check.status == "passed"
        assert (
            check.summary
            == "memory of bank fast 64 B of 64 B, memory of bank slow 48 B of 48 B, memory of cpu 112 B of 112 B"
        )
        return
    assert check.problems[0].startswith(problem), check.problems[0]
    assert len(check.problems) == 1
    of_bank = "lower the `size` of this bank, so that the linker uses the other banks more" in str(check.hint)
    assert of_bank == ("cpu" not in problem)


@pytest.mark.parametrize("with_report", [True, False])
def test_growth_of_each_bank(folder: Path, with_report: bool) -> None:
    if with_report:
        figures = measure_program(banked(8, 16), 1, banks=NAMES)
        write_report(folder, banked(8, 16), figures=figures, banks=reports.bank_report(48, 64))
    else:
        write(banked(8, 16), folder / "old.pte")
    source = "old" if with_report else "old.pte"
    made = project(folder, f"{BANKS}\nbudget.growth.memory = '10%'", f'[baseline]\nfrom = "{source}"')
    check = check_growth(made, "cpu", in_banks(folder, banked(6, 18)), banked(6, 18))
    of = "old/cpu" if with_report else source
    assert [problem.partition(";")[0] for problem in check.problems] == [
        f"memory of bank fast: 72 bytes, 8 (12.5%) more than the 64 of {of}"
    ]
    assert "float32 [18] of aten::cos.out +72 bytes" in check.problems[0]
    same = check_growth(made, "cpu", in_banks(folder, banked(8, 16)), banked(8, 16))
    assert (
        same.summary
        == f"against {of}: memory of cpu the same, memory of bank slow the same, memory of bank fast the same"
    )


@pytest.mark.parametrize(
    ("known", "cause"),
    [
        (True, "float32 [8] of aten::sin.out +32 bytes"),
        (False, "float32 [16] of aten::cos.out 64 bytes, float32 [8] of aten::sin.out 32 bytes"),
    ],
)
def test_the_cause_of_growth_is_from_the_same_bank_of_the_baseline(folder: Path, known: bool, cause: str) -> None:
    """The ids of the banks were swapped since the baseline, and the tensor of ``sin`` moved to the bank ``fast``."""
    ids = {"fast": 1, "slow": 2}
    before, after = (
        program(method([tensor(4, at=0, buffer=slow), tensor(16, at=0, buffer=fast), last], [cos(0, 1), sin(1, 2)]))
        for slow, fast, last in ((2, 1, tensor(8, at=16, buffer=2)), (1, 2, tensor(8, at=64, buffer=2)))
    )
    made = reports.bank_report(48, 64)
    banks = replace(made, banks=tuple(replace(bank, index=ids[bank.name]) for bank in made.banks)) if known else None
    figures = measure_program(before, 1, banks={index: name for name, index in ids.items()})
    write_report(folder, before, figures=figures, banks=banks)
    settings = project(folder, f"{BANKS}\nbudget.growth.memory = 0", '[baseline]\nfrom = "old"')
    (problem,) = check_growth(settings, "cpu", in_banks(folder, after), after).problems
    assert problem.startswith("memory of bank fast: 96 bytes, 32 (50%) more than the 64 of old/cpu;"), problem
    assert problem.endswith(cause), problem


def test_buffers_of_devices_in_a_baseline_are_not_banks(folder: Path) -> None:
    place = m.NonConstBufferDevice(2, DeviceType.CUDA, 0)
    plan = replace(chain(1).execution_plan[0], non_const_buffer_sizes=(0, 48, 8), non_const_buffer_device=(place,))
    write(replace(chain(1), execution_plan=(plan,)), folder / "old.pte")
    made = project(folder, f"{BANKS}\nbudget.growth.memory = '500%'", '[baseline]\nfrom = "old.pte"')
    check = check_growth(made, "cpu", in_banks(folder, banked(8, 16)), banked(8, 16))
    assert "memory of bank slow the same" in check.summary
    assert "bank fast" not in check.summary


def test_banks_that_the_baseline_lacks_do_not_grow(folder: Path) -> None:
    write(chain(6), folder / "old.pte")
    made = project(folder, f"{BANKS}\nbudget.growth.memory = 0", '[baseline]\nfrom = "old.pte"')
    check = check_growth(made, "cpu", in_banks(folder, banked(8, 16)), banked(8, 16))
    assert check.summary == "against old.pte: memory of cpu the same, memory of bank slow 64 B less"


def test_figures_of_banks_are_in_the_lock_of_a_banked_target_only(folder: Path) -> None:
    made = measure_program(banked(8, 16), 1, banks=NAMES)
    assert made.banks == {"slow": 48, "fast": 64}
    assert sum(made.banks.values()) == made.memory["cpu"]
    assert "banks" not in measure_program(chain(1), 1).model_dump(exclude_none=True)


@pytest.mark.parametrize(
    ("found", "limits", "notes"),
    [
        (banked(8, 16), 'fast = 64, slow = 48, "cuda:0" = 1', ["the program uses no memory on cuda:0, although "]),
        (banked(8, 0), "fast = 64, slow = 48, cpu = 1", ["the program uses no memory in bank fast, although "]),
    ],
)
def test_limits_of_unused_memory_are_noted(folder: Path, found: Program, limits: str, notes: list[str]) -> None:
    made = project(folder, f"{BANKS}\nbudget.memory = {{ {limits} }}")
    said = list(describe_unused(made, "cpu", found))
    assert [note.partition("etdev.toml")[0] for note in said] == notes
