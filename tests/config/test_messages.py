"""E1: the text that a user reads, word for word, for the mistakes that are made most."""

# ruff: noqa: E501 - lines as the user sees them

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from config.support import MINIMAL, emit, problems, said

CASES = {
    "misspelled key": (
        MINIMAL + 'quantise = "int8"\n',
        "etdev.toml:7:1: unknown key `targets.cpu.quantise`\n  help: did you mean `quantize`?\n",
    ),
    "misspelled key that is set": (
        MINIMAL + 'quantize = "int8"\nquantise = "int8"\n[quantize.int8]\nscheme = "8da4w"\n',
        "etdev.toml:8:1: unknown key `targets.cpu.quantise`\n  help: did you mean `quantize`, which is set already?\n",
    ),
    "misspelled key as similar to one that is not set": (
        MINIMAL + 'verify.accuracy = { fn = "a:b", min = 1, mx = 2 }\n',
        "etdev.toml:7:42: unknown key `targets.cpu.verify.accuracy.mx`\n  help: did you mean `max`?\n",
    ),
    "scheme that is not there": (
        MINIMAL + 'quantize = "int4"\n',
        (
            'etdev.toml:7:12: `targets.cpu.quantize` is "int4", but there is no `quantize.int4`\n'
            "  help: add a table `quantize.int4`\n"
        ),
    ),
    "key of another table": (
        MINIMAL + "atol = 0.1\n",
        "etdev.toml:7:1: unknown key `targets.cpu.atol`\n  help: `atol` is a key of `targets.cpu.verify`\n",
    ),
    "key of another scheme": (
        MINIMAL + '[quantize.int4]\nscheme = "8da4w"\ncalibration = "data:samples"\n',
        (
            "etdev.toml:9:1: unknown key `quantize.int4.calibration`\n"
            "  help: the keys are: scheme, group_size, embedding_bits, keep_float\n"
        ),
    ),
    "constants in a bank": (
        MINIMAL + 'memory.banks = [{ name = "sram", id = 1, size = "1MiB" }]\nmemory.pin.constants = "sram"\n',
        (
            "etdev.toml:8:12: unknown key `targets.cpu.memory.pin.constants`\n"
            "  help: constants stay in the file, for example in flash, and take no memory of a bank; the keys of `pin` "
            "are: inputs, outputs, state, delegates\n"
        ),
    ),
    "key of a later version": (
        MINIMAL + '[serve]\ntarget = "cpu"\n',
        (
            "etdev.toml:7:2: unknown key `serve`\n"
            "  help: the keys are: version, extends, project, model, constants, methods, quantize, targets, baseline, deploy, "
            "run, profiles\n"
        ),
    ),
    "quoted number": (
        MINIMAL + 'verify.atol = "1e-3"\n',
        (
            'etdev.toml:7:15: `targets.cpu.verify.atol` is "1e-3"; expected a finite number of at least 0\n'
            "  help: write 1e-3, without quotes\n"
        ),
    ),
    "another text where a choice or a boolean is expected": (
        MINIMAL + 'runner = "embedded"\n',
        (
            'etdev.toml:7:10: `targets.cpu.runner` is "embedded"; expected true or false or "embed"\n'
            '  help: did you mean "embed"?\n'
        ),
    ),
    "quoted boolean where a choice is expected, too": (
        MINIMAL + 'runner = "yes"\n',
        (
            'etdev.toml:7:10: `targets.cpu.runner` is "yes"; expected true or false or "embed"\n'
            "  help: write true, without quotes\n"
        ),
    ),
    "one name for a list": (
        MINIMAL + 'verify.require = "runtime"\n',
        (
            'etdev.toml:7:18: `targets.cpu.verify.require` is "runtime"; expected a list, each element one of "bytes", '
            '"plan", "placement", "kernels", "budget", "growth", "runtime", "replay", "tosa", "native", "device", '
            '"accuracy", "latency"\n'
            '  help: write a list: ["runtime"]\n'
        ),
    ),
    "one table for a list of tables": (
        MINIMAL + 'partitioners = { backend = "xnnpack" }\n',
        (
            "etdev.toml:7:16: `targets.cpu.partitioners` is a table; expected a list, each element a table\n"
            "  help: write a list of tables: [{ … }]\n"
        ),
    ),
    "what PyTorch calls a type": (
        MINIMAL.replace("float32", "float"),
        (
            'etdev.toml:5:33: `methods.forward.inputs[0].dtype` is "float"; expected one of "float32", "float64", "float16",'
            ' "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool"\n'
            '  help: did you mean "float32"?\n'
        ),
    ),
    "misspelled choice": (
        MINIMAL.replace("float32", "flot32"),
        (
            'etdev.toml:5:33: `methods.forward.inputs[0].dtype` is "flot32"; expected one of "float32", "float64", "float16",'
            ' "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool"\n'
            '  help: did you mean "float32"?\n'
        ),
    ),
    "misspelled choice beside a callable": (
        MINIMAL + 'memory.planner = "gredy"\n',
        (
            'etdev.toml:7:18: `targets.cpu.memory.planner` is "gredy"; expected one of "naive", "greedy", "best" or '
            '"module:callable"\n'
            '  help: did you mean "greedy"?\n'
        ),
    ),
    "operator without a name": (
        MINIMAL + 'inplace.add = ["relu", "aten::"]\n',
        ('etdev.toml:7:24: `targets.cpu.inplace.add[1]` is "aten::"; expected an operator such as "aten::relu.out"\n'),
    ),
    "one operator for a list": (
        MINIMAL + 'inplace.remove = "relu"\n',
        (
            'etdev.toml:7:18: `targets.cpu.inplace.remove` is "relu"; expected a list, each element an operator such as '
            '"aten::relu.out"\n'
            '  help: write a list: ["relu"]\n'
        ),
    ),
    "misspelled choice beside a list": (
        MINIMAL + 'inplace.ops = "defalt"\n',
        (
            'etdev.toml:7:15: `targets.cpu.inplace.ops` is "defalt"; expected one of "default", "none"\n'
            '  help: did you mean "default"?\n'
        ),
    ),
    "owner that is none": (
        MINIMAL + 'io.forward.inputs = "devise"\n',
        (
            'etdev.toml:7:21: `targets.cpu.io.forward.inputs` is "devise"; expected one of "host", "device", "caller"\n'
            '  help: did you mean "device"?\n'
        ),
    ),
    **{
        f"device that is none: {name}": (
            MINIMAL + f'[[targets.cpu.partitioners]]\nbackend = "cuda"\ndevice = "{name}"\n',
            (
                f'etdev.toml:9:10: `targets.cpu.partitioners[0].device` is "{name}"; '
                "expected a device (cpu, cuda:0 to cuda:127)\n"
            ),
        )
        for name in ("gpu", "cuda:-1", "cuda:128", "cuda:", "cpu:1", "mps", "xpu:0", "")
    },
    "one size for a table of them": (
        MINIMAL + 'budget.memory = "256KiB"\n',
        (
            'etdev.toml:7:17: `targets.cpu.budget.memory` is "256KiB"; expected a table from a device '
            '(cpu, cuda:0 to cuda:127) or a memory bank to a size such as "64KiB" (units: B, kB, MB, GB, KiB, MiB, GiB) or a whole number '
            "of bytes\n"
            '  help: write a table: memory = { cpu = "256KiB" }\n'
        ),
    ),
    "budget of another device": (
        MINIMAL + 'budget.memory = { cpuu = "256KiB" }\n',
        (
            'etdev.toml:7:26: `targets.cpu.budget.memory.cpuu` is a limit of "cpuu", which is neither a device '
            "(cpu, cuda:0 to cuda:127) nor a bank (the target has no banks)\n  help: did you mean `cpu`?\n"
        ),
    ),
    "size without a unit that exists": (
        MINIMAL + 'budget.file = "64K"\n',
        (
            'etdev.toml:7:15: `targets.cpu.budget.file` is "64K"; expected a size such as "64KiB" '
            "(units: B, kB, MB, GB, KiB, MiB, GiB) or a whole number of bytes\n"
            '  help: write "64KiB" or "64kB"\n'
        ),
    ),
    **{
        f"size with a unit that is nearly one: {written}": (
            MINIMAL + f'budget.file = "{written}"\n',
            (
                f'etdev.toml:7:15: `targets.cpu.budget.file` is "{written}"; expected a size such as "64KiB" '
                "(units: B, kB, MB, GB, KiB, MiB, GiB) or a whole number of bytes\n" + hint
            ),
        )
        for written, hint in {
            "64KB": '  help: write "64KiB" or "64kB"\n',
            "1.5 mib": '  help: write "1.5MiB" or "1.5MB"\n',
            "7b": '  help: write "7B"\n',
            "7 bytes": "",
            "7 TB": "",
        }.items()
    },
    "dynamic dimension without a maximum": (
        MINIMAL.replace("[1, 8]", '["batch", 8]') + "[methods.forward.dims.batch]\nmin = 2\n",
        (
            "etdev.toml:7:1: `methods.forward.dims.batch.max` is missing; expected a whole number from 1 to "
            "2147483647\n"
            "  help: Maximum size. Required, because memory is planned for it.\n"
        ),
    ),
    "undeclared dimension": (
        MINIMAL.replace("[1, 8]", '["batch", 8]'),
        (
            'etdev.toml:5:53: `methods.forward.inputs[0].shape[0]` is "batch", which `methods.forward.dims` does not declare\n'
            "  help: declare it: [methods.forward.dims] with batch = { max = 32 }\n"
        ),
    ),
    "no version": (
        MINIMAL.replace("version = 1\n", ""),
        "etdev.toml:1:1: `version` is missing; expected 1\n  help: add version = 1\n",
    ),
    "a partitioner by name": (
        MINIMAL + 'partitioners = ["xnnpack"]\n',
        (
            'etdev.toml:7:17: `targets.cpu.partitioners[0]` is "xnnpack"; expected a table\n'
            '  help: write a table in the list: [{ backend = "xnnpack" }]\n'
        ),
    ),
    "partitioners as text": (
        MINIMAL + 'partitioners = "xnnpack"\n',
        (
            'etdev.toml:7:16: `targets.cpu.partitioners` is "xnnpack"; expected a list, each element a table\n'
            '  help: write a table in the list: [{ backend = "xnnpack" }]\n'
        ),
    ),
    "a shape as text": (
        MINIMAL.replace("[1, 8]", '"1x8"'),
        (
            'etdev.toml:5:52: `methods.forward.inputs[0].shape` is "1x8"; expected a list, each element a whole number '
            "from 0 to 2147483647 or a name of letters, digits and `_` that does not begin with a digit\n"
            "  help: write a list: [1, 8]\n"
        ),
    ),
    "an input by name": (
        MINIMAL.replace("inputs = [{ name", 'inputs = ["x", { name'),
        (
            'etdev.toml:5:11: `methods.forward.inputs[0]` is "x"; expected a table\n'
            "  help: the table needs: name, dtype, shape\n"
        ),
    ),
    "no model": (
        MINIMAL.replace('[model]\nentry = "model:make"\n', ""),
        "etdev.toml:1:1: `model` is missing; expected a table\n  help: Source of the model.\n",
    ),
    "hub model without a revision": (
        MINIMAL.replace('entry = "model:make"', 'hf = "org/name"'),
        (
            'etdev.toml:3:6: `model.hf` is "org/name", a name on the hub, which needs `revision`\n'
            '  help: add the commit hash as `revision`; for a local directory, write "./org/name"\n'
        ),
    ),
    "reference to a scheme": (
        MINIMAL + 'quantize = "int"\n[quantize.int8]\nscheme = "8da4w"\n',
        'etdev.toml:7:12: `targets.cpu.quantize` is "int", but there is no `quantize.int`\n  help: did you mean "int8"?\n',
    ),
    "scheme of another processor": (
        MINIMAL
        + 'quantize = "int8"\npartitioners = [{ backend = "ethos-u", options = { target = "ethos-u55-128" } }]\n'
        + '[quantize.int8]\nscheme = "pt2e-xnnpack"\ndynamic = true\n',
        (
            'etdev.toml:7:12: `targets.cpu.quantize` is "int8" with the scheme "pt2e-xnnpack", but ethos-u takes only ops '
            'quantized for Ethos-U\n  help: use the scheme "arm-ethos-u"\n'
        ),
    ),
    "scheme of another processor than a Cortex-M": (
        MINIMAL
        + 'quantize = "int8"\npartitioners = [{ backend = "cortex-m" }]\n'
        + '[quantize.int8]\nscheme = "pt2e-xnnpack"\ncalibration = "model:data"\n',
        (
            'etdev.toml:7:12: `targets.cpu.quantize` is "int8" with the scheme "pt2e-xnnpack", but cortex-m takes only ops '
            'quantized for Cortex-M\n  help: use the scheme "cortex-m"\n'
        ),
    ),
    "scheme of Cortex-M for what an Ethos-U takes first": (
        MINIMAL
        + 'quantize = "m"\npartitioners = [{ backend = "cortex-m" }, '
        + '{ backend = "ethos-u", options = { target = "ethos-u55-128" } }]\n'
        + '[quantize.m]\nscheme = "cortex-m"\ncalibration = "model:data"\n',
        (
            'etdev.toml:7:12: `targets.cpu.quantize` is "m" with the scheme "cortex-m", but ethos-u takes only ops '
            'quantized for Ethos-U\n  help: use the scheme "arm-ethos-u"\n'
        ),
    ),
    "runner of a Cortex-M": (
        MINIMAL
        + 'quantize = "m"\npartitioners = [{ backend = "cortex-m" }]\nrunner = true\n'
        + '[quantize.m]\nscheme = "cortex-m"\ncalibration = "model:data"\n',
        (
            "etdev.toml:9:10: `targets.cpu.runner` is true, but a runner is built from the libraries of ExecuTorch's "
            "wheel, which have no kernels of cortex-m\n"
            "  help: remove it, and build the program into the firmware as docs/mcu.md describes\n"
        ),
    ),
    "runner of an Ethos-U": (
        MINIMAL
        + 'quantize = "npu"\npartitioners = [{ backend = "ethos-u", options = { target = "ethos-u85-256" } }]\n'
        + 'runner = "embed"\n'
        + '[quantize.npu]\nscheme = "arm-ethos-u"\ntarget = "ethos-u85-256"\ncalibration = "model:data"\n',
        (
            'etdev.toml:9:10: `targets.cpu.runner` is "embed", but a runner is built from the libraries of ExecuTorch\'s '
            "wheel, which have no driver of Ethos-U\n"
            "  help: remove it, and build the program into the firmware as docs/mcu.md describes\n"
        ),
    ),
    "scheme for another Ethos-U": (
        MINIMAL
        + 'quantize = "npu"\npartitioners = [{ backend = "ethos-u", options = { target = "ethos-u85-256" } }]\n'
        + '[quantize.npu]\nscheme = "arm-ethos-u"\ntarget = "ethos-u55-128"\ncalibration = "model:data"\n',
        (
            'etdev.toml:8:61: `targets.cpu.partitioners[0].options.target` is "ethos-u85-256", but "npu" quantizes for '
            '"ethos-u55-128"\n  help: set `quantize.npu.target` to the same processor\n'
        ),
    ),
    "duplicate key": (
        MINIMAL + "[targets.cpu.budget]\nfile = 1\n[targets.cpu.budget]\nfile = 2\n",
        (
            "etdev.toml:9:14: `targets.cpu.budget` is defined twice; the first time at etdev.toml:7:14\n"
            "  help: keep one of them\n"
        ),
    ),
    "several at once, in the order of the file": (
        'version = 2\nmodle = 3\n[targets."a b"]\nbudget = { file = -1 }\n',
        (
            "etdev.toml:1:11: `version` is 2; expected 1\n"
            "etdev.toml:2:1: unknown key `modle`\n  help: did you mean `model`?\n"
            'etdev.toml:3:10: `targets."a b"`: "a b" is not a valid name; expected a name of letters, digits, `.`, `_` and `-` '
            "that begins with a letter or digit\n"
            'etdev.toml:4:19: `targets."a b".budget.file` is -1; expected a size such as "64KiB" '
            "(units: B, kB, MB, GB, KiB, MiB, GiB) or a whole number of bytes\n"
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_text(case: str, tmp_path: Path) -> None:
    text, expected = CASES[case]
    assert said(tmp_path, text) == expected


YAML = {
    "a word that YAML 1.1 took for true": (
        "version: 1\nmodel: {pt2: m.pt2, trust: yes}\ntargets: {cpu: {}}\n",
        'etdev.yaml:2:28: `model.trust` is "yes"; expected true or false\n  help: write true, without quotes\n',
    ),
    "a table without content": (
        "version: 1\nmodel: {pt2: m.pt2, trust: true}\ntargets:\n  cpu:\n",
        (
            "etdev.yaml:4:3: `targets.cpu` is null; expected a table\n"
            "  help: remove the key, or write {} for an empty table\n"
        ),
    ),
    "a date": (
        "version: 1\nmodel: {pt2: m.pt2, trust: true}\ntargets: {cpu: {budget: {file: 2020-01-01}}}\n",
        (
            'etdev.yaml:3:32: `targets.cpu.budget.file` is "2020-01-01"; expected a size such as "64KiB" '
            "(units: B, kB, MB, GB, KiB, MiB, GiB) or a whole number of bytes\n"
        ),
    ),
}


@pytest.mark.parametrize("case", YAML)
def test_text_for_yaml(case: str, tmp_path: Path) -> None:
    text, expected = YAML[case]
    assert said(tmp_path, text, "etdev.yaml") == expected


NOTATION = {
    "a method": (
        {"version": 1, "model": {"entry": "model:make"}, "targets": {"cpu": {}}},
        'add one: [methods.forward] with inputs = [{ name = "x", dtype = "float32", shape = [1, 8] }]',
        'add one: inputs: [{ name: "x", dtype: "float32", shape: [1, 8] }] under methods.forward',
    ),
    "trust": (
        {"version": 1, "model": {"pt2": "m.pt2"}, "targets": {"cpu": {}}},
        "add `trust = true` if you trust the source of the file",
        "add `trust: true` if you trust the source of the file",
    ),
    "a table": (
        {"version": 1, "model": {"pt2": "m.pt2", "trust": True}, "targets": {"cpu": {"budget": {"memory": 7}}}},
        "write a table: memory = { cpu = 7 }",
        "write a table: memory: { cpu: 7 }",
    ),
}


@pytest.mark.parametrize(("data", "toml", "yaml"), NOTATION.values(), ids=NOTATION)
def test_hints_are_in_the_notation_of_the_file(data: dict[str, Any], toml: str, yaml: str, tmp_path: Path) -> None:
    """Users of YAML were given TOML to write."""
    for form, hint in (("toml", toml), ("yaml", yaml)):
        (found,) = problems(tmp_path, emit(data, form)[0], f"etdev.{form}")
        assert found.hint == hint
