"""Partitioners of a config against their backends, with positions (E1); devices that a backend serves (B4, B7)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from etdev import backends
from etdev.backends.check import check_partitioners
from etdev.backends.devices import placed_specs
from etdev.config.loader import load_config
from etdev.config.raw import Raw
from etdev.errors import ConfigError

CONFIG = """version = 1
model.entry = "model:make"
[methods.forward]
inputs = [{{ name = "x", dtype = "float32", shape = [2, {size}] }}]
{more}
[[targets.cpu.partitioners]]
backend = "xnnpack"
[[targets.cpu.partitioners]]
{step}
"""
KEY = "targets.cpu.partitioners[1]"
OTHER_BACKEND = "remove the device, or choose a backend that supports it; `etdev doctor` lists the devices of backends"

CASES = {
    "unknown, a near name": (
        'backend = "xnnpak"',
        "9:11",
        f"{KEY}.backend",
        "there is no backend 'xnnpak'",
        "did you mean 'xnnpack'?",
        "unknown-backend",
    ),
    "unknown": (
        'backend = "qnn"',
        "9:11",
        f"{KEY}.backend",
        "there is no backend 'qnn'",
        "available backends: portable, xnnpack, openvino, vulkan, cuda, reference, ethos-u, cortex-m, coreml",
        "unknown-backend",
    ),
    "misspelled option": (
        'backend = "xnnpack"\noptions = { per_op_modes = true }',
        "10:13",
        f"{KEY}.options.per_op_modes",
        f"unknown key `{KEY}.options.per_op_modes`",
        "did you mean `per_op_mode`?",
        "unknown-key",
    ),
    "wrongly typed option": (
        'backend = "xnnpack"\noptions.per_op_mode = 1',
        "10:23",
        f"{KEY}.options.per_op_mode",
        f"`{KEY}.options.per_op_mode` is 1; expected true or false",
        None,
        "wrong-type",
    ),
    "wrong choice": (
        'backend = "xnnpack"\noptions.precisions = ["fp32", "int8"]',
        "10:31",
        f"{KEY}.options.precisions[1]",
        f'`{KEY}.options.precisions[1]` is "int8"; expected one of "fp32", "static_quant", "dynamic_quant"',
        None,
        "wrong-value",
    ),
    "option of a backend that has none": (
        'backend = "portable"\noptions = { speed = 3 }',
        "10:13",
        f"{KEY}.options.speed",
        f"unknown key `{KEY}.options.speed`",
        "this table has no keys",
        "unknown-key",
    ),
    "compile spec of a backend that reads none": (
        'backend = "xnnpack"\ncompile_specs = { level = 3 }',
        "10:27",
        f"{KEY}.compile_specs.level",
        "the backend 'xnnpack' reads no compile specs, so 'level' would have no effect",
        None,
        "compile-spec",
    ),
    "unknown compile spec": (
        'backend = "openvino"\ncompile_specs = { devise = "CPU" }',
        "10:28",
        f"{KEY}.compile_specs.devise",
        "openvino has no compile spec 'devise'",
        "use 'device', for example \"CPU\"",
        "compile-spec",
    ),
    "compile spec of the wrong type": (
        'backend = "openvino"\ncompile_specs = { device = 3 }',
        "10:28",
        f"{KEY}.compile_specs.device",
        "openvino's compile spec 'device' must be a name, for example \"CPU\"",
        None,
        "compile-spec",
    ),
    "device that the backend does not serve": (
        'backend = "xnnpack"\ndevice = "cuda:0"',
        "10:10",
        f"{KEY}.device",
        "the backend 'xnnpack' does not run on cuda:0; it supports cpu",
        OTHER_BACKEND,
        "device",
    ),
    "the host for a backend of GPUs": (
        'backend = "cuda"\ndevice = "cpu"',
        "10:10",
        f"{KEY}.device",
        "the backend 'cuda' does not run on cpu; it supports cuda",
        OTHER_BACKEND,
        "device",
    ),
    "compile spec of a device that the backend does not serve": (
        'backend = "xnnpack"\ncompile_specs.target_device = "cuda:1"',
        "10:31",
        f"{KEY}.compile_specs.target_device",
        "the backend 'xnnpack' does not run on cuda:1; it supports cpu",
        OTHER_BACKEND,
        "device",
    ),
    "device against its compile spec": (
        'backend = "cuda"\ndevice = "cuda:0"\ncompile_specs = { target_device = "cuda:1" }',
        "11:35",
        f"{KEY}.compile_specs.target_device",
        "the compile spec 'target_device' is cuda:1, but the partitioner's `device` is cuda:0",
        "keep one of the two",
        "device",
    ),
    **{
        f"compile spec of no device: {text}": (
            f'backend = "cuda"\ncompile_specs = {{ target_device = {text} }}',
            "10:35",
            f"{KEY}.compile_specs.target_device",
            f"the compile spec 'target_device' is {shown}, which is not a device",
            "use one of cpu, cuda:0 to cuda:127",
            "device",
        )
        for text, shown in {
            '"gpu"': "'gpu'",
            '"cuda:-1"': "'cuda:-1'",
            '"cuda:128"': "'cuda:128'",
            "0": "0",
            '{ base64 = "Y3VkYTp4" }': "b'cuda:x'",
            '{ base64 = "/w==" }': "b'\\xff'",
        }.items()
    },
    "host as the compile spec of a backend that reads none": (
        'backend = "xnnpack"\ncompile_specs = { target_device = "cpu" }',
        "10:35",
        f"{KEY}.compile_specs.target_device",
        "the backend 'xnnpack' reads no compile specs, so 'target_device' would have no effect",
        None,
        "compile-spec",
    ),
    "misspelled compile spec of cuda": (
        'backend = "cuda"\ncompile_specs = { max_autotun = "ON" }',
        "10:33",
        f"{KEY}.compile_specs.max_autotun",
        "cuda does not know the compile spec 'max_autotun' and would ignore it",
        "did you mean 'max_autotune'?",
        "compile-spec",
    ),
    "unknown compile spec of cuda": (
        'backend = "cuda"\ncompile_specs = { speed = 3 }',
        "10:27",
        f"{KEY}.compile_specs.speed",
        "cuda does not know the compile spec 'speed' and would ignore it",
        (
            "use one of: platform, max_autotune, emulate_precision_casts, autotune_at_compile_time, "
            "autotune_pointwise, triton_kernel_mode, low_memory_mode, shim_library_path"
        ),
        "compile-spec",
    ),
    "generated compile spec of cuda": (
        'backend = "cuda"\ncompile_specs = { method_name = "forward" }',
        "10:33",
        f"{KEY}.compile_specs.method_name",
        "the compile spec 'method_name' is reserved: etdev writes it for each method",
        "remove this compile spec",
        "compile-spec",
    ),
    "switch of cuda that is neither": (
        'backend = "cuda"\ncompile_specs = { low_memory_mode = "true" }',
        "10:37",
        f"{KEY}.compile_specs.low_memory_mode",
        'cuda\'s compile spec \'low_memory_mode\' is "true"; expected "ON" or "OFF"',
        None,
        "compile-spec",
    ),
    "mode of cuda's kernels that is neither": (
        'backend = "cuda"\ncompile_specs = { triton_kernel_mode = "auto" }',
        "10:40",
        f"{KEY}.compile_specs.triton_kernel_mode",
        'cuda\'s compile spec \'triton_kernel_mode\' is "auto"; expected "ON" or "OFF"',
        None,
        "compile-spec",
    ),
    "platform of cuda that is none": (
        'backend = "cuda"\ncompile_specs = { platform = "window" }',
        "10:30",
        f"{KEY}.compile_specs.platform",
        'cuda\'s compile spec \'platform\' is "window"; expected "linux" or "windows"',
        'did you mean "windows"?',
        "compile-spec",
    ),
    "library path of cuda on linux": (
        'backend = "cuda"\ncompile_specs = { shim_library_path = "lib" }',
        "10:39",
        f"{KEY}.compile_specs.shim_library_path",
        "cuda's compile spec 'shim_library_path' is for Windows only",
        'remove this compile spec, or set "platform" to "windows"',
        "compile-spec",
    ),
    "part that is no range": (
        'backend = "reference"\noptions.part = [0.5, 0.2]',
        "10:16",
        f"{KEY}.options.part",
        f"`{KEY}.options.part` is a list; expected two numbers from 0 to 1, the smaller one first",
        None,
        "wrong-value",
    ),
    "compile spec of the reference backend": (
        'backend = "reference"\ncompile_specs = { target = "cuda:0" }',
        "10:28",
        f"{KEY}.compile_specs.target",
        "the backend 'reference' reads only the compile spec of the device, so 'target' would have no effect",
        'state the device with the key `device`, such as "cuda:0"',
        "compile-spec",
    ),
    "wrongly typed option of vulkan": (
        'backend = "vulkan"\noptions.storage = "image"',
        "10:19",
        f"{KEY}.options.storage",
        f'`{KEY}.options.storage` is "image"; expected one of "buffer", "texture-3d", "texture-2d"',
        None,
        "wrong-value",
    ),
    "dynamic dimensions": (
        'backend = "openvino"',
        "9:11",
        f"{KEY}.backend",
        "the backend 'openvino' needs static shapes, but method 'forward' has dynamic dimensions",
        "write fixed numbers in the shapes of forward",
        "dynamic-shapes",
    ),
}


@pytest.mark.parametrize(("step", "place", "key", "message", "hint", "rule"), CASES.values(), ids=CASES)
def test_each_mistake_has_its_place(
    tmp_path: Path, step: str, place: str, key: str, message: str, hint: str | None, rule: str
) -> None:
    dynamic = rule == "dynamic-shapes"
    text = CONFIG.format(step=step, size='"n"' if dynamic else 4, more="dims.n = { max = 8 }" if dynamic else "")
    (tmp_path / "etdev.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(environ={}, cwd=tmp_path, checks=(check_partitioners,))
    (problem,) = caught.value.problems
    assert (problem.where, problem.key, problem.message, problem.hint, problem.rule) == (
        f"etdev.toml:{place}",
        key,
        message,
        hint,
        rule,
    )


def test_a_share_of_delegated_ops_needs_a_backend_with_delegates(tmp_path: Path) -> None:
    """A build for Cortex-M missed the limit at its end, and advised to add a backend for ops that it had taken."""
    step = 'backend = "cortex-m"\n[targets.cpu.budget]\ndelegated = 0.5'
    one = CONFIG.format(step=step, size=4, more="")
    (tmp_path / "etdev.toml").write_text(one)
    load_config(environ={}, cwd=tmp_path, checks=(check_partitioners,))  # XNNPACK has delegates.
    (tmp_path / "etdev.toml").write_text(one.replace('"xnnpack"', '"cortex-m"'))
    with pytest.raises(ConfigError) as caught:
        load_config(environ={}, cwd=tmp_path, checks=(check_partitioners,))
    (problem,) = caught.value.problems
    assert (problem.key, problem.message, problem.hint) == (
        "targets.cpu.budget.delegated",
        (
            "`targets.cpu.budget.delegated` cannot be reached: no backend of the target ('cortex-m') has delegates; "
            "all ops run on kernels"
        ),
        "remove this limit, or add a backend with delegates",
    )


OPERATORS = {
    "near another": ('["mul", "addmmm"]', "10:23", 1, "addmmm", "did you mean 'aten::addmm.out'?"),
    "near none": ('["zzz::qqq"]', "10:16", 0, "zzz::qqq", "use operators of ExecuTorch's portable library"),
}


@pytest.mark.parametrize(("ops", "place", "number", "name", "hint"), OPERATORS.values(), ids=OPERATORS)
def test_an_operator_that_there_is_not_is_told_before_anything_is_built(
    tmp_path: Path, ops: str, place: str, number: int, name: str, hint: str
) -> None:
    if importlib.util.find_spec("executorch") is None:
        pytest.skip("the lists of kernels are part of executorch")
    step = f'backend = "reference"\noptions.ops = {ops}'
    (tmp_path / "etdev.toml").write_text(CONFIG.format(step=step, size=4, more=""))
    with pytest.raises(ConfigError) as caught:
        load_config(environ={}, cwd=tmp_path, checks=(check_partitioners,))

    (problem,) = caught.value.problems
    assert (problem.where, problem.key) == (f"etdev.toml:{place}", f"{KEY}.options.ops[{number}]")
    assert problem.message == f"the backend 'reference' has no kernel for the operator {name!r}"
    assert problem.hint == hint


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"targets": 3},
        {"targets": {"cpu": 3}},
        {"targets": {"cpu": {"partitioners": 3}}},
        {"targets": {"cpu": {"partitioners": [3, {}, {"backend": 3}]}}},
        {"targets": {"cpu": {"partitioners": [{"backend": "xnnpack", "options": 3, "compile_specs": 3}]}}},
        {"methods": {"forward": 3}, "targets": {"cpu": {"partitioners": [{"backend": "xnnpack"}]}}},
    ],
)
def test_what_is_wrong_otherwise_is_left_to_the_models(data: dict[str, object]) -> None:
    assert list(check_partitioners(Raw(data))) == []


VALID = {
    "cuda": 'backend = "cuda"',
    "cuda, the second one": 'backend = "cuda"\ndevice = "CUDA:1"\ncompile_specs = { target_device = "cuda:1" }',
    "cuda for windows": (
        'backend = "cuda"\ncompile_specs = { platform = "windows", shim_library_path = "lib", max_autotune = "off" }'
    ),
    "xnnpack on the host": 'backend = "xnnpack"\ndevice = "cpu"',
    "small letters": 'backend = "cuda"\ncompile_specs = { triton_kernel_mode = "on", low_memory_mode = "Off" }',
    "reference, by overload": 'backend = "reference"\noptions.ops = ["aten.sum.dim_IntList", "add_", "linear"]',
    "vulkan": 'backend = "vulkan"\noptions = { storage = "texture-3d", buffer_limit = "64MiB" }',
}


@pytest.mark.parametrize("step", VALID.values(), ids=VALID)
def test_what_is_right_is_taken(tmp_path: Path, step: str) -> None:
    (tmp_path / "etdev.toml").write_text(CONFIG.format(step=step, size=4, more=""))
    load_config(environ={}, cwd=tmp_path, checks=(check_partitioners,))


@pytest.mark.parametrize(
    ("name", "device", "specs", "placed"),
    [
        ("cuda", None, {}, {"target_device": "cuda:0"}),
        ("cuda", "cuda:1", {"max_autotune": "ON"}, {"max_autotune": "ON", "target_device": "cuda:1"}),
        ("cuda", None, {"target_device": b"CUDA"}, {"target_device": "cuda:0"}),
        ("reference", None, {}, {}),
        ("reference", "cpu", {"target_device": "cpu"}, {}),
        ("reference", "cuda:0", {}, {"target_device": "cuda:0"}),
        ("xnnpack", "cpu", {}, {}),
    ],
)
def test_the_device_becomes_a_compile_spec(
    name: str, device: str | None, specs: dict[str, str | bytes], placed: dict[str, str]
) -> None:
    """B1: by its one name; the host is written nowhere."""
    assert placed_specs(backends.get(name), device, specs) == placed
