"""The template ``llm`` (E3): its files generate what transformers generates, in ExecuTorch's own LLM runner."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("executorch", reason="needs the extra `build`")
pytest.importorskip("transformers", reason="needs the extra `hf`")

import torch
import transformers

import etdev
from etdev.config.tables.schemes import Int8DynamicInt4Weight
from etdev.pipeline.api import open_project
from etdev.pipeline.results.result import BuildResult
from etdev.pipeline.stages.quantize.int8_int4 import quantize_module
from etdev.program import Program, read
from etdev.program.analysis.effects import operator_name
from etdev.program.model import AllocationDetails, Int, KernelCall, Tensor
from etdev.program.sidecar import read_sidecar
from etdev.runtime.native import Missing, find_toolchain
from etdev.templates import render
from etdev.templates.create import create_project, plan_project
from support import pages

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

MODULES = ("model", "data")
GENERATE = """
import json, sys
from pathlib import Path
from data import STEPS
from generate import generate
found = [generate(Path(sys.argv[1]), prompt, STEPS) for prompt in json.loads(sys.argv[3])]
Path(sys.argv[2]).write_text(json.dumps(found))
"""
LONG = """This is the farmer sowing his corn,
That kept the cock that crowed in the morn,
That waked the priest all shaven and shorn,
That married the man all tattered and torn,"""
SMALL = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": [2, 3],
}
ARCHITECTURES = {
    "llama": ("Llama", {}),
    "qwen": ("Qwen3", {}),
    "a window in each layer": ("Mistral", {"sliding_window": 4}),
    "a window in every other layer, scores with a cap": (
        "Gemma2",
        {"sliding_window": 4, "attn_logit_softcapping": 2.0},
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project as generated."""
    place = tmp_path_factory.mktemp("llm") / "talk"
    create_project(plan_project(place, render("llm", "talk")))
    return place


@pytest.fixture
def modules(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """The modules of the project, forgotten afterwards."""
    monkeypatch.syspath_prepend(folder)
    before = {name: sys.modules.pop(name) for name in MODULES if name in sys.modules}
    import data
    import model

    try:
        yield {"model": model, "data": data}
    finally:
        for name in MODULES:
            del sys.modules[name]
        sys.modules.update(before)


@pytest.fixture(scope="module")
def portable(folder: Path) -> BuildResult:
    """The target ``float`` on the runtime's own kernels, whose lowering is quick; its limits are for XNNPACK."""
    changes = ["targets.float.partitioners=[]", "targets.float.budget={ memory = { cpu = '256KiB' } }"]
    return etdev.build(folder / "etdev.toml", targets=["float"], overrides=changes, environ={})


def program(result: BuildResult, target: str) -> Program:
    return read(result.path(target))


def operators(found: Program, method: str) -> set[str]:
    return {operator_name(operator) for operator in found.method(method).operators}


def calls(found: Program, operator: str) -> list[KernelCall]:
    """Calls of an operator in ``forward``."""
    plan = found.method("forward")
    every = [call for chain in plan.chains for call in chain.instructions if isinstance(call, KernelCall)]
    return [call for call in every if operator_name(plan.operators[call.op_index]) == operator]


def place(found: Program, value: int) -> AllocationDetails | None:
    """Where a tensor of ``forward`` lies."""
    tensor = found.method("forward").values[value]
    assert isinstance(tensor, Tensor)
    return tensor.allocation_info


def runner_generates(folder: Path, file: Path, prompts: Sequence[str]) -> list[str]:
    """What ``generate.py`` of the project answers. In a process of its own: the runner prints, and it
    brings a second copy of the runtime."""
    answers = folder / "answers.json"
    subprocess.run(
        [sys.executable, "-c", GENERATE, str(file), str(answers), json.dumps(prompts)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([".", *sys.path])},
        check=True,
        capture_output=True,
    )
    found: list[str] = json.loads(answers.read_text())
    return found


def text(data: Any, tokens: list[int]) -> str:
    """Of tokens one by one, as the runner prints them."""
    return "".join(data.tokenizer().decode([token]) for token in tokens)


def test_the_build_passes_every_check_that_runs(portable: BuildResult) -> None:
    assert portable.ok
    checks = {check.name: check for check in portable["float"].checks}
    for name in ("bytes", "plan", "placement", "kernels", "budget", "runtime", "replay", "accuracy"):
        assert checks[name].status == "passed", checks[name].summary
    assert "3 sessions with a total of 48 calls" in checks["runtime"].summary
    assert "weak" not in checks["runtime"].summary


@pytest.mark.slow
def test_the_runner_generates_what_transformers_generates(
    folder: Path, portable: BuildResult, modules: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    data: Any = modules["data"]
    monkeypatch.setattr(data, "PROMPTS", (*data.PROMPTS, LONG))
    assert data.encode(LONG).shape[1] > 32  # More than a call takes.
    wanted = [text(data, following[0].tolist()) for _, following in data.generated()]
    assert wanted[0].startswith(",\nThat worried the cat,\nThat killed the rat,")
    assert runner_generates(folder, portable.path("float"), data.PROMPTS) == wanted


def test_the_cache_is_there_once_and_is_never_copied(portable: BuildResult) -> None:
    """A token is written into keys and values in place, and the products of attention read them where they are."""
    found = program(portable, "float")
    file = portable.path("float")
    states = read_sidecar(file.with_name(f"{file.stem}.object.json")).methods["forward"].state
    assert {state.name for state in states} == {"keys_0", "values_0", "keys_1", "values_1"}
    assert operators(found, "forward").isdisjoint({"aten::copy_", "aten::clone.out", "aten::repeat.out"})
    written = [
        (place(found, call.args[0]), place(found, call.args[-1])) for call in calls(found, "aten::index_put.out")
    ]
    assert len(written) == len(states)
    assert all(cache == output for cache, output in written)


def test_it_answers_what_runners_ask(portable: BuildResult) -> None:
    found = program(portable, "float")
    answers = {
        plan.name: [plan.values[index] for index in plan.outputs]
        for plan in found.execution_plan
        if plan.name != "forward"
    }
    numbers = {name: [value.int_val for value in values if isinstance(value, Int)] for name, values in answers.items()}
    assert (numbers["get_max_seq_len"], numbers["get_max_context_len"]) == ([32], [128])
    assert (numbers["get_vocab_size"], numbers["get_bos_id"], numbers["get_eos_ids"]) == ([384], [0], [1])
    assert {"use_kv_cache", "use_sdpa_with_kv_cache", "enable_dynamic_shape", "get_n_layers"} <= answers.keys()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_other_models(
    name: str, tmp_path: Path, modules: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompt, one token and two more on the template's cache, and all at once in transformers."""
    kind, more = ARCHITECTURES[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SMALL, **more, attn_implementation="eager")
    net = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(8 if parameter.dim() > 1 else 1)  # Scores as large as trained ones.
    net.save_pretrained(tmp_path)
    model: Any = modules["model"]
    monkeypatch.setattr(model, "FOLDER", tmp_path)
    made = model.make(32)
    tokens = torch.randint(4, 96, (1, 9))
    with torch.no_grad():
        wanted = net(tokens).logits[0]
        for start, end in ((0, 6), (6, 7), (7, 9)):
            found = made(tokens[:, start:end], torch.tensor([start]))
            torch.testing.assert_close(found[0], wanted[end - 1], atol=1e-4, rtol=1e-4)
    assert model.constants(made)["get_eos_ids"] == [2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("embedding_bits", [None, 8])
def test_in_4_bits_the_runner_generates_what_the_quantized_model_generates(
    folder: Path, modules: dict[str, ModuleType], embedding_bits: int | None
) -> None:
    """By XNNPACK, the target as generated; greedy decoding of the quantized model in eager PyTorch."""
    changes = [] if embedding_bits is None else [f"quantize.int4.embedding_bits={embedding_bits}"]
    result = etdev.build(folder / "etdev.toml", targets=["int4"], overrides=changes, environ={})
    assert result.ok
    settings = open_project(folder / "etdev.toml", overrides=changes, environ={}).config.quantize["int4"]
    assert isinstance(settings, Int8DynamicInt4Weight)
    data: Any = modules["data"]
    quantized = quantize_module(modules["model"].make(128), settings, lambda *_: "")
    wanted = [text(data, greedy(quantized, prompt, data.STEPS)) for prompt, _ in data.generated()]
    assert runner_generates(folder, result.path("int4"), data.PROMPTS) == wanted


def greedy(model: torch.nn.Module, tokens: torch.Tensor, steps: int) -> list[int]:
    """What the model finds likeliest, token by token."""
    found: list[int] = []
    start = 0
    with torch.no_grad():
        for _ in range(steps):
            logits = model(tokens, torch.tensor([start]))
            start += tokens.shape[1]
            tokens = logits.argmax(dim=1, keepdim=True)
            found.append(int(tokens))
    return found


PAGES = Path(__file__).resolve().parents[2] / "docs"
CHUNK = 3
"""Smaller than the prompt, so that it is several calls."""


def _by_the_page_in_python(folder: Path, file: Path, prompt: torch.Tensor) -> list[int]:
    """The tokens of the loop in docs/llm.md."""
    (block,) = [block for block in pages.blocks(PAGES / "llm.md") if block.language == "python"]
    (folder / "loop.py").write_text(
        f"{block.text}\nimport json, sys\nprompt = torch.tensor({prompt.tolist()})\n"
        f"print(json.dumps(list(generate(sys.argv[1], prompt, {CHUNK}, 16))))\n",
        encoding="utf-8",
    )
    command = [sys.executable, "loop.py", file]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=300)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def _by_the_page_in_cpp(folder: Path, file: Path, prompt: torch.Tensor) -> list[int]:
    """The tokens of the same loop in C++, compiled as docs/cpp.md says."""
    tools = find_toolchain()
    if isinstance(tools, Missing):
        pytest.skip(tools.reason)
    (block,) = [block for block in pages.blocks(PAGES / "llm.md") if block.language == "cpp"]
    text = (PAGES / "cpp.md").read_text(encoding="utf-8")
    (folder / "main.cc").write_text(block.text, encoding="utf-8")
    (folder / "CMakeLists.txt").write_text(pages.files(text)["CMakeLists.txt"], encoding="utf-8")
    for command in pages.commands(text):
        if command.line.startswith("cmake"):
            code, printed = pages.run(command.line, folder)
            assert code == 0, printed
    arguments = [file, CHUNK, 16, *prompt[0].tolist()]
    done = subprocess.run(
        [folder / "app" / "app", *map(str, arguments)], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stderr.endswith(" tokens per second\n")
    return [int(line) for line in done.stdout.split()]


@pytest.mark.slow
def test_split_into_two_methods(folder: Path, modules: dict[str, ModuleType]) -> None:
    """Two methods on the same cache, in the stock runtime; the runner takes the file, too."""
    from executorch.runtime import Runtime

    changes = ["targets.float.partitioners=[]"]
    result = etdev.build(folder / "etdev.toml", targets=["float"], profile="split", overrides=changes, environ={})
    (runtime,) = (check for check in result["float"].checks if check.name == "runtime")
    assert runtime.status == "passed"
    assert "3 sessions with a total of 48 calls" in runtime.summary
    plans = {plan.name: plan for plan in program(result, "float").execution_plan}
    temporaries = {name: plans[name].non_const_buffer_sizes[1] for name in ("read_prompt", "next_token")}
    assert temporaries["next_token"] < temporaries["read_prompt"] / 10
    loaded = Runtime.get().load_program(result.path("float"))
    methods = {name: loaded.load_method(name) for name in ("read_prompt", "next_token")}
    data: Any = modules["data"]
    prompt, following = data.generated()[0]
    calls = data.session("read_prompt", "next_token", prompt, following)
    found = [int(methods[name].execute(list(inputs))[0].argmax()) for name, inputs in calls]
    assert found == following[0].tolist()
    assert _by_the_page_in_python(folder, result.path("float"), prompt) == found
    assert _by_the_page_in_cpp(folder, result.path("float"), prompt) == found
    assert runner_generates(folder, result.path("float"), data.PROMPTS[:1]) == [text(data, found)]
