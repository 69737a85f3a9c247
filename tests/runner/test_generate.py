"""Generated projects: bytes, sizes and refusals. No compiler is needed. 11."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from etdev.devices import DeviceType
from etdev.errors import ExitCode, ProgramError, RunnerError
from etdev.program import Program
from etdev.program import model as m
from etdev.program.bank_report import BankUse
from etdev.runner import PoolSizes, ProgramFile, project_files
from etdev.runner.embed import c_array
from etdev.runner.identifiers import identifier, identifiers, string_literal
from etdev.runner.layout import make_layout, plan_alignment
from etdev.runner.libraries import needed_libraries
from etdev.runner.pools import scaling
from etdev.runtime.native.measure import lookup_bytes
from program.analysis.test_quantized_ends import END, OUT, described
from program.hand import content, loop, tensor, unbounded
from support.files import banked, channels_last, delegated, method, program


@pytest.fixture
def source(tmp_path: Path) -> ProgramFile:
    """A program with one method: float32 [4] -> float32 [4]."""
    return of(loop(), tmp_path)


def of(program: Program, folder: Path, name: str = "tiny.pte") -> ProgramFile:
    pools = {plan.name: PoolSizes(1000, lookup_bytes(plan)) for plan in program.execution_plan}
    try:
        data = content(program, folder)
    except ProgramError:  # A part of a program, for a project that is refused.
        data = b""
    return ProgramFile(name, data, program, pools, "by a test")


def with_plan(program: Program, **changes: object) -> Program:
    return replace(program, execution_plan=(replace(program.execution_plan[0], **changes),))


@pytest.mark.parametrize(
    ("heap", "said"),
    [
        (4096, ("at most 4096 bytes, as measured", ", at most 4,096 bytes as measured.")),
        (None, ("its size is unknown", "matrices.")),
    ],
)
def test_the_heap_of_delegates_is_stated(tmp_path: Path, heap: int | None, said: tuple[str, str]) -> None:
    source = of(delegated(), tmp_path)
    made = project_files(replace(source, pools={"forward": PoolSizes(1000, 0, heap)}))
    header, readme = (made[name].decode() for name in ("tiny_memory.h", "README.md"))
    assert f"// The heap is in use, too, by XnnpackBackend: {said[0]}." in header
    assert said[1] in readme


def test_the_heap_of_kernels_is_stated(source: ProgramFile) -> None:
    """Matrix products of optimized kernels pack their operands there."""
    made = project_files(replace(source, pools={"forward": PoolSizes(1000, 0, 4096)}))
    header, readme = (made[name].decode() for name in ("tiny_memory.h", "README.md"))
    assert "// The heap is in use, too, by kernels: at most 4096 bytes, as measured." in header
    assert "by kernels: this memory is in no plan, for example packed matrices, at most 4,096 bytes" in readme


def test_a_heap_that_is_not_in_use_is_not_mentioned(source: ProgramFile) -> None:
    made = project_files(replace(source, pools={"forward": PoolSizes(1000, 0, 0)}))
    assert "heap is in use" not in "".join(made[name].decode() for name in ("tiny_memory.h", "README.md"))


def test_quantized_ends(tmp_path: Path) -> None:
    """The header has what converts integers; a project has no method for a constant of it."""
    files = project_files(of(described(END, replace(OUT, scale=1.0), get_width=32), tmp_path))
    header, readme = (files[name].decode() for name in ("tiny_memory.h", "README.md"))
    assert "inline constexpr size_t kMethodCount = 2;" in header
    inside = header.partition("namespace forward {")[2].partition("}  // namespace forward")[0]
    assert "inline constexpr float kInput0Scale = 0.5f;" in inside
    assert "inline constexpr int32_t kInput0ZeroPoint = -3;" in inside
    assert "inline constexpr int32_t kInput0Min = -128;" in inside
    assert "inline constexpr int32_t kInput0Max = 127;" in inside
    assert "inline constexpr float kOutput1Scale = 1.0f;" in inside
    assert "kInput1" not in header
    assert "forward_input0_scale" not in header + files["runner.cc"].decode()
    row = "| `forward` | Char [4] (scale 0.5, zero point -3), Float [4] | Float [4], Byte [4] (scale 1, zero point 7) |"
    assert row in readme


def test_files(source: ProgramFile) -> None:
    files = project_files(source)
    assert sorted(files) == [
        "CMakeLists.txt",
        "README.md",
        "main.cc",
        "runner.cc",
        "runner.h",
        "tiny.operators.yaml",
        "tiny.pte",
        "tiny_memory.h",
    ]
    assert files["tiny.pte"] == source.content
    embedded = project_files(source, embed=True)
    assert sorted({*files, *embedded} - {*files}) == ["file_0.c"]
    assert "tiny.pte" not in embedded


def test_the_readme_states_the_order_of_dimensions(tmp_path: Path) -> None:
    readme = project_files(of(channels_last(planned=True), tmp_path))["README.md"].decode()
    last = "Float [2, 3, 4, 5] in memory order 0, 2, 3, 1"
    assert f"| `forward` | {last} | {last}, Float [2, 3, 4, 5] |" in readme


def test_bytes_are_the_same_each_time(source: ProgramFile) -> None:
    for embed in (False, True):
        assert project_files(source, embed=embed) == project_files(source, embed=embed)


@pytest.mark.parametrize("embed", [False, True])
def test_no_mark_of_a_template_is_left(source: ProgramFile, embed: bool) -> None:
    for name, text in project_files(source, embed=embed).items():
        if name != "tiny.pte":
            assert not re.search(rb"@[A-Z_]+@|//@", text), name
            assert text.endswith(b"\n")
            assert not re.search(rb"[ \t]\n", text), name


def test_sizes_of_the_header(source: ProgramFile) -> None:
    header = project_files(source)["tiny_memory.h"].decode()
    sizes = dict(re.findall(r"size_t (k\w+) =\s+(\d+)", header))
    assert sizes["kFileBytes0"] == str(len(source.content))
    assert sizes["kBuffer1Bytes"] == sizes["kArena1Bytes"] == "32"
    assert sizes["kMethodPoolBytes"] == "1000"
    # The widest call has five arguments; a lookup needs 40 bytes for each.
    assert sizes["kTempPoolBytes"] == "200"
    assert "#define TINY_POOL_MARGIN 0" in header
    assert "#define TINY_ARENA_1_ATTRIBUTES" in header


def test_estimate_for_32_bits(source: ProgramFile) -> None:
    plan = source.program.execution_plan[0]
    found = scaling(plan)
    assert found.counted32 < found.counted < 2 * found.counted32
    assert found.estimate(found.counted) == found.counted32
    assert found.estimate(found.counted + 100) == found.counted32 + 100
    assert (lookup_bytes(plan), lookup_bytes(plan, 4)) == (200, 140)
    readme = project_files(source)["README.md"].decode()
    assert f"| 1,000 | {found.estimate(1000):,} |" in readme
    assert "| 200 | 140 |" in readme


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        (0, "No part of the methods' pools belongs to delegates."),
        (1, "belongs to delegates:\n  1 byte. The estimate keeps this rest"),
        (1000, "belongs to delegates:\n  1,000 bytes. The estimate keeps this rest"),
    ],
)
def test_the_part_of_delegates_in_the_pools(source: ProgramFile, pool: int, said: str) -> None:
    """A reproducer: the README said "here 0 bytes belongs to delegates"."""
    counted = scaling(source.program.execution_plan[0]).counted
    made = project_files(replace(source, pools={"forward": PoolSizes(counted + pool, 200)}))
    assert said in made["README.md"].decode()


def test_a_smaller_input_of_a_dynamic_program(source: ProgramFile) -> None:
    """A reproducer: only `--help` named the option."""
    plan = source.program.execution_plan[0]
    at = plan.inputs[0]
    value = plan.values[at]
    assert isinstance(value, m.Tensor)
    bounded = replace(value, shape_dynamism=m.TensorShapeDynamism.DYNAMIC_BOUND)
    dynamic = with_plan(source.program, values=(*plan.values[:at], bounded, *plan.values[at + 1 :]))
    fixed, made = project_files(source), project_files(replace(source, program=dynamic))
    assert "tiny_runner --in 0=input0.bin --shape 0=4 --out out" in made["README.md"].decode()
    assert "pass smaller sizes with --shape" in made["main.cc"].decode()
    assert "--shape" not in fixed["README.md"].decode()
    assert "pass smaller sizes" not in fixed["main.cc"].decode()


def test_operators_for_a_selective_build(source: ProgramFile) -> None:
    """Those of the runtime itself are always there."""
    readme = project_files(source)["README.md"].decode()
    assert '-DEXECUTORCH_SELECT_OPS_LIST="aten::add.out"\n' in readme
    alone = with_plan(source.program, operators=(m.Operator("executorch_prim::add", "Scalar"),) * 3)
    assert b"this program needs none but" in project_files(replace(source, program=alone))["README.md"]


def test_a_wide_array(source: ProgramFile) -> None:
    text = b"".join(c_array(bytes(range(250)) * 700, "name", 128, "Comment.")).decode()
    numbers = re.findall(r"0x[0-9a-f]+(?=,)", text)
    found = b"".join(int(number, 16).to_bytes(8, "little") for number in numbers)
    assert found[: 250 * 700] == bytes(range(250)) * 700
    assert found[250 * 700 :].strip(b"\0") == b""
    assert f"name[{len(numbers)}]" in text


def test_names() -> None:
    assert [identifier(name) for name in ("small-one", "7b", "class", "a__b", "é")] == [
        "small_one",
        "n7b",
        "class_",
        "a_b",
        "program_",
    ]
    assert identifiers(["a-b", "a.b", "a_b"]) == ["a_b", "a_b_2", "a_b_3"]
    assert string_literal('a"b\\\n?é') == r'"a\042b\134\012\077\303\251"'


def test_names_in_a_file_are_not_code(tmp_path: Path) -> None:
    name = 'a\n#error b)" \\'
    found = project_files(of(with_plan(loop(), name=name), tmp_path))
    for file, text in found.items():
        assert b"\n#error" not in text or file == "tiny.pte", file
    assert b'"a\\012#error b)\\042 \\134"' in found["runner.cc"]
    assert b"// Method a?#error b)? ?." in found["tiny_memory.h"]


def test_the_alignment_of_a_plan() -> None:
    plans = [with_plan(loop(), values=(tensor(4, at=offset), tensor(4, at=0))) for offset in (0, 16, 64, 96, 256, 4)]
    assert [plan_alignment(plan) for plan in plans] == [128, 16, 64, 32, 128, 16]


def test_names_of_files(tmp_path: Path) -> None:
    """CMake's names have no spaces, and no quotes."""
    files = project_files(of(loop(), tmp_path, 'my "best" model.pte'))
    assert "my_best_model.pte" in files
    assert b"project(my_best_model_runner LANGUAGES CXX)" in files["CMakeLists.txt"]
    assert b"namespace my_best_model {" in files["my_best_model_memory.h"]
    data = {"my_best_model.pte": b"", "w.ptd": b""}
    with pytest.raises(RunnerError, match=r"two files with the name my_best_model\.pte"):
        project_files(replace(of(loop(), tmp_path, "my best model.pte"), data=data))


def test_names_of_a_project_are_not_names_of_methods() -> None:
    """Functions and types of the templates cannot be namespaces, too."""
    text = "".join(files("etdev.runner").joinpath("project", name).read_text() for name in ("runner.h", "runner.cc"))
    code = re.sub(r"//.*", "", text)
    types = re.findall(r"^(?:enum )?(?:class|struct) (\w+)", code, re.MULTILINE)
    functions = re.findall(r"^(?:\[\[\w+\]\] )?[\w:<>&*]+(?: [\w:<>&*]+)*[ &*](\w+)\(", code, re.MULTILINE)
    aliases = re.findall(r"^using [\w:]*::(\w+);", code, re.MULTILINE)
    variables = re.findall(r"^(?:Slot<[\w:]+>|\w+) (\w+)(?:\[\w+\])?(?: = .*)?;", code, re.MULTILINE)
    assert {"Load", "SetInput", "Problem"} <= set(functions)
    assert {"Pool", "File"} <= set(types)
    assert {"program", "temp_pool", "data_files"} <= set(variables)
    found = {*types, *functions, *aliases, *variables}
    assert [name for name in sorted(found) if identifier(name) == name] == []


def test_an_empty_input_of_the_caller_is_not_taken_for_a_planned_one() -> None:
    """A reproducer: the memory for inputs and outputs had room for the largest input a second time."""
    values = (tensor(1000), tensor(0, 4), tensor(4, at=0))
    layout = make_layout(program(method(values, (), inputs=(0, 1))), "x.pte")
    assert layout.io == 4032


def test_methods_share_temporaries_and_state(tmp_path: Path) -> None:
    layout = make_layout(two(state_in=2), "x.pte")
    assert [(arena.constant, arena.size, arena.use) for arena in layout.arenas] == [
        ("kArena1Bytes", 48, "temporaries"),
        ("kArena2Bytes", 16, "state"),
    ]


def test_state_among_temporaries_is_kept_apart(tmp_path: Path) -> None:
    """A file from elsewhere may keep state of one method where another one has temporaries."""
    layout = make_layout(two(state_in=1), "x.pte")
    assert [(arena.constant, arena.size) for arena in layout.arenas] == [
        ("one::kArena1Bytes", 48),
        ("two::kArena1Bytes", 48),
    ]
    assert all(method.arenas[0].method == method.identifier for method in layout.methods)


BANKS = (BankUse("D-TCM", 2, 128, 64, 1, 64, None, 32), BankUse("auto", 1, 4096, 48, 4, 48, None, 16))


def test_arenas_have_the_names_of_banks(tmp_path: Path) -> None:
    found = project_files(replace(of(banked(8, 16), tmp_path), banks=BANKS, alignment=32))
    header, cc, readme = (found[name].decode() for name in ("tiny_memory.h", "runner.cc", "README.md"))
    sizes = dict(re.findall(r"size_t (k\w+) =\s+(\d+)", header))
    assert (sizes["kArenaD_tcmBytes"], sizes["kBankD_tcmBytes"]) == ("64", "128")
    assert (sizes["kArenaAuto_Bytes"], sizes["kBankAuto_Bytes"], sizes["kArenaAlignment"]) == ("48", "4096", "32")
    assert "kArena1Bytes" not in header + cc
    assert "alignas(kArenaAlignment) Block<kArenaD_tcmBytes> arena_d_tcm_ TINY_ARENA_D_TCM_ATTRIBUTES;" in cc
    assert 'static_assert(kArenaD_tcmBytes <= kBankD_tcmBytes, "kArenaD_tcmBytes is larger than the bank D-TCM");' in cc
    assert "  D_TCM (rw) : ORIGIN = D_TCM_ADDRESS, LENGTH = 128\n" in readme
    assert "  .bank_d_tcm (NOLOAD) : ALIGN(32) { *(.bss.etdev-bank.d_tcm) } > D_TCM\n" in readme
    assert "| `kArenaD_tcmBytes`: temporaries, of 128 in bank `D-TCM` | 64 | 64 |" in readme


def test_without_banks_there_are_no_sections(source: ProgramFile) -> None:
    found = project_files(source)
    text = b"".join(found[name] for name in ("tiny_memory.h", "runner.cc", "README.md"))
    assert b"BANK" not in text
    assert b"TINY_ARENA_1_ATTRIBUTES" in found["README.md"]


def test_methods_share_a_bank_with_state_and_temporaries(tmp_path: Path) -> None:
    """As the link plans them: state of all methods is at one address, and no temporary of any method is there."""
    found = two(state_in=2, mixed=True)
    shared = [("kArena1Bytes", None), ("kArena2Bytes", None)]
    assert [(arena.constant, arena.method) for arena in make_layout(found, "x.pte").arenas] == shared
    layout = make_layout(found, "x.pte", banks=BANKS)
    assert [(arena.constant, arena.use) for arena in layout.arenas] == [
        ("kArenaAuto_Bytes", "temporaries"),
        ("kArenaD_tcmBytes", "state and temporaries"),
    ]


def test_state_that_a_temporary_of_another_method_overwrites_is_kept_apart() -> None:
    found = two(state_in=2, mixed=True, swapped=True)
    assert [arena.constant for arena in make_layout(found, "x.pte").arenas] == [
        "kArena1Bytes",
        "one::kArena2Bytes",
        "two::kArena2Bytes",
    ]


def test_private_state_of_methods_is_kept_apart() -> None:
    """State in buffer 1 is private, also if no method has temporaries there."""
    layout = make_layout(two(state_in=1, temporaries_in=2), "x.pte")
    assert [(arena.constant, arena.size, arena.use) for arena in layout.arenas] == [
        ("one::kArena1Bytes", 16, "state"),
        ("two::kArena1Bytes", 16, "state"),
        ("kArena2Bytes", 48, "temporaries"),
    ]
    one = two(state_in=1, temporaries_in=2)
    alone = make_layout(replace(one, execution_plan=one.execution_plan[:1]), "x.pte")
    assert [arena.constant for arena in alone.arenas] == ["kArena1Bytes", "kArena2Bytes"]


def two(state_in: int, *, temporaries_in: int = 1, mixed: bool = False, swapped: bool = False) -> Program:
    """Two methods ``x, y = x + state, x + state + state``, each with its state in a buffer.

    With ``mixed``, ``y`` is after the state; if ``swapped``, it is in front of the state of the second method.
    """
    used = {temporaries_in: 48, state_in: 48 if state_in == temporaries_in else 32 if mixed else 16}
    plans = []
    for name in ("one", "two"):
        info = m.ExtraTensorInfo(fully_qualified_name="state")
        place, out = (16, 0) if swapped and name == "two" else (32 if state_in == temporaries_in else 0, 16)
        state = tensor(4, at=place, buffer=state_in, extra_tensor_info=info)
        last = tensor(4, at=out, buffer=state_in if mixed else temporaries_in)
        values = (tensor(4, at=0, buffer=temporaries_in), last, m.Int(1), state)
        calls = (m.KernelCall(0, (0, 3, 2, 1, 1)), m.KernelCall(0, (3, 0, 2, 3, 3)))
        sizes = (0, *(used[index] for index in sorted(used)))
        operators = (m.Operator("aten::add", "out"),)
        plans.append(m.ExecutionPlan(name, values, (0,), (1,), (m.Chain(calls),), operators, (), sizes))
    return replace(loop(), execution_plan=tuple(plans))


def test_memory_of_inputs_and_outputs() -> None:
    """Planned inputs share their memory; each input and output that is not planned has its own."""
    values = (tensor(100), tensor(4, at=0), tensor(8, at=16), tensor(5), tensor(6), tensor(2, data=1))
    plan = m.ExecutionPlan(
        "forward", values, (0, 1, 2), (3, 3, 0, 4, 5), (m.Chain((m.MoveCall(1, 4),)),), (), (), (0, 48)
    )
    (found,) = make_layout(replace(loop(), execution_plan=(plan,)), "x.pte").methods
    own, first, second = (slot.offset for slot in found.inputs)
    assert own == 0
    assert first == second
    # Not the repeated output, the returned input, the result of a branch, or the constant.
    assert [(slot.output, slot.size) for slot in found.outputs] == [(0, 20)]
    assert found.outputs[0].offset >= 400
    assert first >= found.outputs[0].offset + 20


def test_libraries(source: ProgramFile) -> None:
    found = needed_libraries(source.program, "x.pte")
    assert [library.component for library in found] == ["runtime", "kernels_optimized"]
    cmake = project_files(source)["CMakeLists.txt"].decode()
    assert "find_package(executorch 1.5 REQUIRED COMPONENTS\n  runtime\n  kernels_optimized)" in cmake
    quantized = with_plan(source.program, operators=(m.Operator("quantized_decomposed::add", "out"),))
    assert [item.component for item in needed_libraries(quantized, "x")] == ["runtime", "kernels_quantized"]


def refused() -> dict[str, tuple[Program, str, str]]:
    """Programs for which there is no project, with the message and the hint."""
    made = loop()
    delegate = m.BackendDelegate("MyBackend", m.BackendDelegateDataReference(m.DataLocation.INLINE, 0))
    cuda = (m.NonConstBufferDevice(1, DeviceType.CUDA, 0),)
    return {
        "a custom operator": (
            with_plan(made, operators=(m.Operator("mine::op"),)),
            "no library of ExecuTorch's wheel has a kernel for mine::op, which method 'forward' calls",
            "change the model or the target",
        ),
        "kernels of a microcontroller": (
            with_plan(made, operators=(m.Operator("cortex_m::quantized_add", "out"),)),
            "no library of ExecuTorch's wheel has a kernel for cortex_m::quantized_add.out",
            "and docs/mcu.md the way into the firmware",
        ),
        "a backend of a plug-in": (
            with_plan(made, delegates=(delegate,)),
            "a runner does not support the backend MyBackend, which method 'forward' needs",
            "a runner supports XnnpackBackend and OpenvinoBackend",
        ),
        "a backend of a microcontroller": (
            with_plan(made, delegates=(replace(delegate, id="EthosUBackend"),)),
            "a runner does not support the backend EthosUBackend, which method 'forward' needs",
            "load it in ExecuTorch's Arm runner, as docs/mcu.md describes",
        ),
        "a device": (
            with_plan(made, non_const_buffer_device=cuda),
            "method 'forward' has planned memory on cuda:0, but a runner has memory only on the host",
            "build a target whose partitioners have no `device`",
        ),
        "no method": (replace(made, execution_plan=()), "the program has no methods", "choose a program with methods"),
        "sizes without a maximum": (unbounded(), "output 0 of method 'forward' has sizes without a maximum", "maximum"),
        "too much memory": (
            with_plan(made, non_const_buffer_sizes=(0, 1 << 31)),
            "the project would have 2,147,4",
            "`Module`",
        ),
    }


@pytest.mark.parametrize("name", refused())
def test_refused(tmp_path: Path, name: str) -> None:
    program, message, hint = refused()[name]
    with pytest.raises(RunnerError) as caught:
        project_files(of(program, tmp_path))
    assert caught.value.message.startswith(message)
    assert hint in (caught.value.hint or "")
    assert caught.value.where == "tiny.pte"
    assert caught.value.exit_code == ExitCode.BUILD_FAILED
