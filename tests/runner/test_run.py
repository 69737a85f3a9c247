"""Generated projects compile without warnings, and compute what the stock runtime computes. 11."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

pytest.importorskip("executorch", reason="needs the extra `build`")

import torch

import etdev
from etdev.program import flat_tensor, write
from etdev.program import model as m
from etdev.program.signature_table import SIGNATURES
from etdev.runner import make_project, project_files, write_project
from etdev.runner.libraries import BACKENDS, kernels_of
from etdev.runtime.native import NativeRuntime, lookup_bytes
from program.hand import tensor
from runner.compiled import Compiled, compile_project, compiled, expected, measured, raw, tools
from runner.models import BANKED, BANKED_MODEL, CONFIG, MODEL, SMALL, SMALL_CONFIG
from support.files import ADD, chain, channels_last, method, program
from support.native import native_host
from support.projects import write_project as write_config
from support.stock import shared_runtime

pytestmark = pytest.mark.integration

Calls = list[tuple[str, list[Any]]]


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    tools()


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Path:
    """The output folder of the project with many methods; every night, also for XNNPACK."""
    config = write_config(tmp_path_factory.mktemp("many"), CONFIG, model=MODEL)
    assert etdev.build(config, targets=[] if pytestconfig.getoption("--nightly") else ["cpu"]).ok
    return config.parent / "build"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of the project with one method."""
    config = write_config(tmp_path_factory.mktemp("small"), SMALL_CONFIG, model=SMALL)
    assert etdev.build(config).ok
    return config.parent / "build"


def session() -> Calls:
    """Calls of all methods, on one state."""
    torch.manual_seed(0)
    x, xs, p = torch.randn(2, 4), torch.randn(3, 4), torch.tensor(True)
    mixed = [torch.tensor([5, -2, 7]), torch.tensor([True, False, True]), torch.randn(2, 2).half()]
    return [
        ("forward", [torch.randn(4, 8)]),
        ("add", [torch.randn(8)]),
        ("forward", [torch.randn(1, 8)]),
        ("read", []),
        ("add", [torch.randn(8)]),
        ("read", []),
        ("mixed", mixed),
        *((name, [~p if flip else p, x]) for name in ("choose", "pick") for flip in (False, True, False)),
        ("rows", [xs]),
        ("running", [xs]),
        ("empty", [x]),
        ("fixed", []),
        ("caller", [torch.randn(5), torch.randn(5)]),
        ("caller", [torch.randn(5), torch.randn(5)]),
        ("get_answer", []),
        ("get_scale", []),
        ("read", []),
    ]


def by_the_stock_runtime(file: Path, calls: Calls, data: Sequence[Path] = ()) -> list[list[Any]]:
    runtime = shared_runtime()
    runtime.load(file, shared=True, data=data)
    return [expected(runtime.call(method, inputs)) for method, inputs in calls]


@pytest.fixture(scope="module")
def exact(many: Path, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """The project for the portable target, with pools of the measured sizes."""
    folder = tmp_path_factory.mktemp("exact") / "project"
    return compiled(measured(many / "cpu" / "many.pte", folder), folder)


def test_outputs_are_those_of_the_stock_runtime(many: Path, exact: Compiled, tmp_path: Path) -> None:
    found, _ = exact.calls(tmp_path / "out", session())
    assert found == by_the_stock_runtime(many / "cpu" / "many.pte", session())


def test_no_byte_of_a_pool_is_left(exact: Compiled) -> None:
    used = re.findall(r"kMethodPoolBytes  (\d+) of (\d+) bytes", exact.run("--memory").stdout)
    assert len(used) == 13
    assert all(one == other for one, other in used)


@pytest.mark.parametrize("target", ["cpu", "xnn"])
@pytest.mark.nightly
def test_the_native_host_measures_the_same(many: Path, tmp_path: Path, target: str) -> None:
    native_host()
    file = many / target / "many.pte"
    made = make_project(tmp_path / "made", file)
    counted = measured(file, tmp_path / "counted").pools
    found = made.facts.source.pools
    assert {name: pools.method for name, pools in found.items()} == {
        name: pools.method for name, pools in counted.items()
    }
    for plan in made.facts.source.program.execution_plan:
        # The runtime uses a part of the memory that it wants for the lookup of kernels.
        assert found[plan.name].temp >= lookup_bytes(plan)
        assert found[plan.name].temp == lookup_bytes(plan) or found[plan.name].temp == counted[plan.name].temp
    if target == "cpu":
        layout = made.facts.layout
        assert all(made.facts.scaling(method).counted == found[method.name].method for method in layout.methods)


@pytest.mark.nightly
def test_delegates_and_arrays(many: Path, tmp_path: Path) -> None:
    found = measured(many / "xnn" / "many.pte", tmp_path / "large")
    exact = compiled(found, tmp_path / "exact", embed=True)
    assert not (tmp_path / "exact" / "many.pte").exists()
    outputs, _ = exact.calls(tmp_path / "out", session())
    assert outputs == by_the_stock_runtime(many / "xnn" / "many.pte", session())


@pytest.mark.parametrize(
    ("constant", "named"),
    [
        ("forward::kMethodPoolBytes", "many::forward::kMethodPoolBytes is too small"),
        ("read::kMethodPoolBytes", "many::read::kMethodPoolBytes is too small"),
        ("add::kBuffer2Bytes", "many::add::kBuffer2Bytes is too small"),
        ("kTempPoolBytes", "many::kTempPoolBytes is too small"),
    ],
)
@pytest.mark.sampled(1)
def test_one_byte_less_fails_and_is_named(exact: Compiled, tmp_path: Path, constant: str, named: str) -> None:
    folder = copied(exact, tmp_path)
    shrink(folder / "many_memory.h", constant)
    compile_project(folder)
    done = Compiled(folder, "many").run("--call", "forward", "--call", "add")
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith(f"many_runner: {named}: ")
    assert done.stderr.strip().endswith("Raise it in many_memory.h")


@pytest.mark.parametrize(
    ("constant", "said"),
    [
        ("kArena2Bytes", "kArena2Bytes is too small for add::kBuffer2Bytes"),
        ("kIoBytes", "kIoBytes is too small for the inputs and outputs"),
    ],
)
@pytest.mark.sampled(1)
def test_static_memory_of_one_byte_less_does_not_compile(
    exact: Compiled, tmp_path: Path, constant: str, said: str
) -> None:
    folder = copied(exact, tmp_path)
    shrink(folder / "many_memory.h", constant)
    with pytest.raises(AssertionError, match=said):
        compile_project(folder)


def copied(project: Compiled, folder: Path) -> Path:
    place = folder / "project"
    shutil.copytree(project.folder, place, ignore=shutil.ignore_patterns("build"))
    return place


def shrink(header: Path, constant: str) -> None:
    """Take one byte from a constant of a header."""
    *spaces, name = constant.split("::")
    text = header.read_text()
    start = text.index(f"namespace {spaces[0]} ") if spaces else 0
    before, after = text[:start], text[start:]
    after, count = re.subn(rf"({name} = )(\d+)", lambda found: f"{found[1]}{int(found[2]) - 1}", after, count=1)
    assert count == 1
    header.write_text(before + after)


@pytest.mark.nightly
def test_names_of_methods(tmp_path: Path) -> None:
    """Names that the project has itself, and names that are the same in C++."""
    names = [
        "Load",
        "Pool",
        "loader",
        "io",
        "arena_1",
        "pool_forward",
        "forward",
        "class",
        "kTempPoolBytes",
        "a-b",
        "a.b",
    ]
    (plan,) = chain(1).execution_plan
    file = tmp_path / "two words.pte"
    write(replace(chain(1), execution_plan=tuple(replace(plan, name=name) for name in names)), file)
    made = compiled(measured(file, tmp_path / "project"), tmp_path / "project")
    x = torch.linspace(-1, 1, 4)
    outputs, _ = made.calls(tmp_path / "out", [(name, [x]) for name in names])
    assert outputs == [[raw(x.sin())]] * len(names)


@pytest.mark.nightly
def test_inputs_that_are_not_tensors(tmp_path: Path) -> None:
    """The program fixes their values. Here, only the factor is used: ``x + 3 * y``."""
    scalars = (
        m.Int(3),
        m.Int(-(2**63)),
        m.Double(0.1),
        m.Double(float("-inf")),
        m.Bool(True),
        m.String('a"\n'),
        m.Null(),
    )
    values = [*(tensor(4, at=16 * index) for index in range(3)), *scalars]
    calls = [m.KernelCall(0, (0, 1, 3, 2, 2))]
    inputs = (0, 1, *range(3, len(values)))
    file = tmp_path / "scaled.pte"
    write(program(method(values, calls, inputs=inputs, outputs=(2, 3, 5, 7), operators=(ADD,))), file)
    made = compiled(measured(file, tmp_path / "project"), tmp_path / "project")
    x, y = torch.randn(4), torch.randn(4)
    outputs, _ = made.calls(tmp_path / "out", [("forward", [x, y])])
    assert outputs == [[raw(x + 3 * y), "3", "0.10000000000000001", "true"]]
    done = made.run("--in", "2=x")
    assert done.stderr.strip().endswith("input 2 of forward is not a tensor: its value is part of the program")


@pytest.mark.parametrize("planned", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.nightly
def test_tensors_in_another_order_of_dimensions(tmp_path: Path, planned: bool) -> None:
    file = tmp_path / "image.pte"
    write(channels_last(planned=planned), file)
    made = compiled(measured(file, tmp_path / "project"), tmp_path / "project")
    image = torch.randn(2, 3, 4, 5)
    (tmp_path / "in").write_bytes(raw(image.permute(0, 2, 3, 1)))
    (tmp_path / "out").mkdir()
    done = made.run("--in", f"0={tmp_path / 'in'}", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    found = [(tmp_path / "out" / f"0.forward.{number}.bin").read_bytes() for number in range(2)]
    runtime = shared_runtime()
    runtime.load(file)
    last, plain = runtime.call("forward", (image,))
    torch.testing.assert_close((last, plain), (image.sin(), image.sin()))
    assert found == [raw(last.permute(0, 2, 3, 1)), raw(plain)]


@pytest.mark.parametrize("embed", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.nightly
def test_nothing_but_a_constant(tmp_path: Path, embed: bool) -> None:
    """No arena, no input, no kernel."""
    file = tmp_path / "answer.pte"
    write(program(method([m.Int(42)], [], inputs=(), outputs=(0,), operators=(), sizes=())), file)
    made = compiled(measured(file, tmp_path / "large"), tmp_path / "project", embed=embed)
    assert made.calls(tmp_path / "out", [("forward", [])])[0] == [["42"]]


def test_no_memory_comes_from_the_heap(exact: Compiled) -> None:
    """The object file of the runner asks no allocator for memory."""
    (found,) = (exact.folder / "build").rglob("runner.cc.o")
    symbols = subprocess.run(["nm", "-u", found], capture_output=True, text=True, check=True).stdout.split()
    assert not {"malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign", "_Znwm", "_Znam"} & set(symbols)
    assert any("load_method" in name for name in symbols)


OBJECTS = """
    #include <executorch/runtime/backend/interface.h>
    #include <executorch/runtime/executor/memory_manager.h>
    #include <executorch/runtime/executor/merged_data_map.h>
    #include <executorch/runtime/executor/method.h>
    #include <executorch/runtime/kernel/operator_registry.h>
    using namespace executorch::runtime;
    using executorch::aten::Tensor;
    constexpr size_t word = sizeof(void*);
    static_assert(word == WORD);
    static_assert(sizeof(EValue) == 16 && alignof(EValue) == 8);
    static_assert(sizeof(executorch::aten::TensorImpl) == 8 * word);
    static_assert(sizeof(FreeableBuffer) == (word == 8 ? 40 : 32) && alignof(FreeableBuffer) == 8);
    static_assert(sizeof(BoxedEvalueList<int64_t>) == 3 * word && sizeof(BoxedEvalueList<Tensor>) == 3 * word);
    static_assert(sizeof(Tensor) == word && sizeof(std::optional<Tensor>) == 2 * word);
    static_assert(sizeof(executorch::aten::ArrayRef<char>) == 2 * word && sizeof(InstructionArgs) == 2 * word);
    static_assert(sizeof(CompileSpec) == 3 * word && sizeof(internal::MergedDataMap) == 3 * word);
    static_assert(sizeof(TensorMeta) == 3 * word && sizeof(OpFunction) == word);
"""


@pytest.mark.parametrize("word", [8, 4])
def test_sizes_of_the_objects_that_are_counted(tmp_path: Path, word: int) -> None:
    """As the compiler sees them in ExecuTorch's headers; for 32 bits with integers aligned as Arm does."""
    (tmp_path / "gnu").mkdir()
    (tmp_path / "gnu" / "stubs-32.h").touch()
    (tmp_path / "objects.cc").write_text(dedent(OBJECTS).replace("WORD", str(word)))
    (tmp_path / "empty.cc").write_text("#include <optional>\n#include <variant>\n#include <cinttypes>\n")
    compiler = str(tools().compiler)
    include = tools().package / "include"
    own = [tmp_path, include, include / "executorch" / "runtime" / "core" / "portable_type" / "c10"]
    command = [
        "c++",
        "-std=c++17",
        "-fsyntax-only",
        "-DC10_USING_CUSTOM_GENERATED_MACROS",
        *(f"-I{one}" for one in own),
    ]
    if word == 4:
        machine = Path("/usr/include") / f"{platform.machine()}-linux-gnu"
        library = machine / "c++" / subprocess.check_output([compiler, "-dumpversion"], text=True).strip()
        command += ["-m32", "-malign-double", "-idirafter", str(machine), f"-I{library}"]
        if subprocess.run([*command, tmp_path / "empty.cc"], capture_output=True).returncode:
            pytest.skip("this compiler has no headers for 32 bits")
    done = subprocess.run([*command, tmp_path / "objects.cc"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_tables_of_operators_and_backends_are_those_of_the_package() -> None:
    names = {line.partition("(")[0] for line in SIGNATURES.strip().splitlines()}
    with NativeRuntime(native_host(), watch=False) as native:
        assert native.operators <= names
        assert {name for name in names if kernels_of(name) is not None} == native.operators
        assert set(BACKENDS) <= native.backends


def small_calls() -> Calls:
    torch.manual_seed(0)
    return [("forward", [torch.randn(2, 32)]) for _ in range(2)]


@pytest.mark.parametrize("target", [pytest.param("portable", marks=pytest.mark.slow), "xnn"])
@pytest.mark.parametrize("embed", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.sampled(1)
def test_weights_in_a_file(small: Path, tmp_path: Path, target: str, embed: bool) -> None:
    program, weights = small / target / "small-one.pte", small / target / "w.ptd"
    found = measured(program, tmp_path / "large", [weights])
    exact = compiled(found, tmp_path / "exact", embed=embed)
    outputs, text = exact.calls(tmp_path / "out", small_calls())
    assert outputs == by_the_stock_runtime(program, small_calls(), [weights])
    size = next(iter(found.pools.values())).method
    assert f"kMethodPoolBytes  {size} of {size} bytes" in text


@pytest.mark.nightly
def test_weights_in_several_files(small: Path, tmp_path: Path) -> None:
    program, weights = small / "portable" / "small-one.pte", small / "portable" / "w.ptd"
    whole = flat_tensor.read(weights)
    assert len(whole.named_data) > 1
    files = []
    for number, item in enumerate(whole.named_data):
        files.append(tmp_path / f"w{number}.ptd")
        flat_tensor.write(replace(whole, named_data=(item,)), files[-1])
    exact = compiled(measured(program, tmp_path / "large", files), tmp_path / "exact")
    outputs, _ = exact.calls(tmp_path / "out", small_calls())
    assert outputs == by_the_stock_runtime(program, small_calls(), files)

    (tmp_path / "exact" / "w0.ptd").write_bytes(b"short")
    done = exact.run()
    assert done.returncode == 1
    assert "w0.ptd has less than the" in done.stderr


@pytest.mark.nightly
def test_quantized_kernels(small: Path, tmp_path: Path) -> None:
    program = small / "int8" / "small-one.pte"
    found = measured(program, tmp_path / "large")
    files = project_files(found)
    assert b"executorch::kernels_quantized" in files["CMakeLists.txt"]
    outputs, _ = compiled(found, tmp_path / "exact").calls(tmp_path / "out", small_calls())
    assert outputs == by_the_stock_runtime(program, small_calls())


SMALLER = " for the largest sizes; pass smaller sizes with --shape 0=SIZES"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--call", "nothing"], 2, "many.pte has no method nothing"),
        (["--times", "0"], 2, "--times 0: this is not a number above 0"),
        (["--times", "2", "--call", "read"], 2, "--times must come after a --call"),
        (["--wrong"], 2, "there is no option --wrong; see --help"),
        (["--call"], 2, "--call needs a value; see --help"),
        (["--shape", "0=5x8"], 2, "--shape 0=5x8: size 0 must be at most 4"),
        (["--shape", "0=5"], 2, "--shape 0=5: input 0 of forward has 2 sizes"),
        (["--in", "1=x"], 2, "--in 1=x: method forward has 1 input, numbered from 0, as in 0=..."),
        (["--in", "0=/dev/null"], 1, f"/dev/null has less than the 128 bytes expected{SMALLER}"),
        (["--in", "0=/dev/null", "--shape", "0=1x8"], 1, "/dev/null has less than the 32 bytes expected"),
        (["--in", "0=/nothing"], 1, "cannot open /nothing"),
        (["--files", "/nothing"], 1, "cannot open /nothing/many.pte"),
        (["--call", "mixed", "--shape", "0=2"], 1, "method mixed does not take this as input 0 (Error::NotSupported)"),
    ],
)
def test_wrong_arguments(exact: Compiled, arguments: list[str], code: int, said: str) -> None:
    done = exact.run(*arguments)
    assert (done.returncode, done.stderr.strip().splitlines()[-1]) == (code, f"many_runner: {said}")


def test_calls_are_repeated_on_one_state(exact: Compiled, tmp_path: Path) -> None:
    ones = tmp_path / "ones"
    ones.write_bytes(raw(torch.ones(8)))
    done = exact.run("--call", "add", "--times", "3", "--in", f"0={ones}", "--call", "read")
    assert done.stdout.splitlines()[-1].startswith("  output 0  Float [8]: 6.5 ")
    assert "call 3  read" in done.stdout


@pytest.mark.nightly
def test_a_project_is_compiled_in_any_folder(exact: Compiled, tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    write_project(folder, {path.name: path.read_bytes() for path in exact.folder.iterdir() if path.is_file()})
    compile_project(folder)
    assert Compiled(folder, "many").run().returncode == 0


@pytest.fixture(scope="module")
def banked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project of a program with memory banks, whose methods share state."""
    config = write_config(tmp_path_factory.mktemp("banked"), BANKED, model=BANKED_MODEL)
    assert etdev.build(config).ok
    file = config.parent / "build" / "mcu" / "banked.pte"
    folder = config.parent / "project"
    make_project(folder, file)
    return folder


def banked_calls() -> Calls:
    torch.manual_seed(0)
    return [(name, [torch.randn(4, 64)]) for name in ("forward", "peek", "forward", "peek")]


def arena_sections(folder: Path) -> dict[str, tuple[str, int]]:
    """Return the section and the address modulo 64 of each arena in the compiled ``runner.cc``."""
    (made,) = folder.rglob("runner.cc.o")
    shown = subprocess.run(["objdump", "-t", "-C", made], capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"^([0-9a-f]+)\s.*?\sO?\s*(\.\S+)\s+[0-9a-f]+ .*::arena_(\w+)_$", shown, re.MULTILINE)
    return {name: (section, int(address, 16) % 64) for address, section, name in rows}


@pytest.mark.skipif(shutil.which("objdump") is None or shutil.which("ld") is None, reason="needs binutils")
@pytest.mark.nightly
def test_arenas_are_in_the_sections_of_their_banks(banked: Path, tmp_path: Path) -> None:
    wanted = by_the_stock_runtime(banked / "banked.pte", banked_calls())
    header = (banked / "banked_memory.h").read_text()
    assert "Arena dtcm: state and temporaries." in header
    assert re.search(r"kArenaSramBytes = [1-9]\d*;  // Arena sram: temporaries\.", header)
    found = {}
    for flags in ("", "-DBANKED_BANK_SECTIONS", "-DBANKED_BANK_SECTIONS -DBANKED_DTCM_SECTION='\".bss.tcm\"'"):
        folder = tmp_path / str(len(found))
        shutil.copytree(banked, folder)
        compile_project(folder, flags)
        outputs, _ = Compiled(folder, "banked").calls(folder / "out", banked_calls())
        assert outputs == wanted
        found[folder] = arena_sections(folder)
    hosted, placed, renamed = found.values()
    assert hosted == {"dtcm": (".bss", 0), "sram": (".bss", 0)}
    assert placed == {"dtcm": (".bss.etdev-bank.dtcm", 0), "sram": (".bss.etdev-bank.sram", 0)}
    assert renamed == {"dtcm": (".bss.tcm", 0), "sram": (".bss.etdev-bank.sram", 0)}
    check_linker_script(list(found)[1], banked)


def check_linker_script(folder: Path, project: Path) -> None:
    """Link with the lines of the README: each arena is in the region of its bank, and a smaller region is too small.

    A variable with the name of a bank is not in the bank, also if each variable has a section of its own.
    """
    readme = (project / "README.md").read_text()
    text = re.findall(r"^       (MEMORY\n(?:       .*\n)+)", readme, re.MULTILINE)[0]
    text = text.replace("DTCM_ADDRESS", "0x20000000").replace("SRAM_ADDRESS", "0x30000000")
    rest = "MEMORY { REST : ORIGIN = 0x1000000, LENGTH = 16M }\nSECTIONS { .rest : { *(*) } > REST }\n"
    (made,) = folder.rglob("runner.cc.o")
    other = folder / "other.o"
    source = "char dtcm[4096]; char sram[16];\n"
    subprocess.run(["cc", "-c", "-fdata-sections", "-xc", "-", "-o", other], input=source, text=True, check=True)

    def link(script: str) -> subprocess.CompletedProcess[str]:
        (folder / "script.ld").write_text(script + rest)
        command = ["ld", "--unresolved-symbols=ignore-all", "-T", folder / "script.ld", "-o", folder / "firmware"]
        return subprocess.run([*command, made, other], capture_output=True, text=True)

    done = link(text)
    assert done.returncode == 0, done.stderr
    shown = subprocess.run(["nm", "-C", folder / "firmware"], capture_output=True, text=True, check=True).stdout
    places = {name: int(at, 16) for at, name in re.findall(r"^([0-9a-f]+) . .*::arena_(\w+)_$", shown, re.MULTILINE)}
    variables = re.findall(r"^([0-9a-f]+) \w (?:dtcm|sram)$", shown, re.MULTILINE)
    assert [0x1000000 <= int(address, 16) < 0x2000000 for address in variables] == [True, True]
    assert places == {"dtcm": 0x20000000, "sram": 0x30000000}
    assert (folder / "firmware").stat().st_size < made.stat().st_size  # The arenas take no bytes of the file.
    small = link(text.replace("LENGTH = 2048", "LENGTH = 512"))
    assert small.returncode != 0
    assert "region `DTCM' overflowed" in small.stderr
