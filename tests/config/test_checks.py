"""E1: rules that join several keys; each at the place of the value that breaks it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from config.support import MINIMAL, load, problems
from etdev.config.describe.grammar import find, grammar_of
from etdev.config.issues import Issue
from etdev.config.keys import format_key
from etdev.config.models import LINK_KEYS, Config
from etdev.config.raw import Raw

HASH = "0123456789abcdef0123456789abcdef01234567"
METHOD = '[methods.forward]\ninputs = [{ name = "x", dtype = "float32", shape = [1] }]\n'
SECOND = METHOD.replace("forward", "second")
STATIC = '[quantize.q]\nscheme = "pt2e-xnnpack"\n'
QUANTIZED = STATIC + 'calibration = "a:b"\n[targets.b]\nquantize = "q"\n'
PT2 = 'pt2 = "m.pt2"\ntrust = true\n'


def model(lines: str, rest: str = METHOD) -> str:
    """A config with these lines in ``[model]``, which begin at line 3."""
    return f"version = 1\n[model]\n{lines}[targets.cpu]\n{rest}"


VALID = {
    "entry": model('entry = "a:b"\nkwargs = { a = 1 }\nweights = "w.safetensors"\n'),
    "local directory": model('hf = "./dir"\nkwargs = { a = 1 }\n'),
    "parent directory": model('hf = "../dir"\n'),
    "absolute directory": model('hf = "/dir"\n'),
    "hub": model(f'hf = "org/name"\nrevision = "{HASH}"\n'),
    "pt2 without methods": model(PT2, ""),
    "pt2 with samples": model(PT2, '[methods.forward]\nsamples = "a:b"\n'),
    "pt2 calibrated": model(PT2, STATIC + 'calibration = "a:b"\n'),
    "pt2 calibrated by a table": model(PT2, STATIC + 'calibration = { forward = "a:b" }\n'),
    "unused scheme": model('entry = "a:b"\n', METHOD + STATIC + "dynamic = true\n"),
    "dynamic with calibration": model('entry = "a:b"\n', METHOD + STATIC + 'dynamic = true\ncalibration = "a:b"\n'),
    "portable alone": MINIMAL + 'partitioners = [{ backend = "portable" }]\n',
    "portable last": MINIMAL + 'partitioners = [{ backend = "xnnpack" }, { backend = "portable" }]\n',
    "min alone": MINIMAL + 'verify.accuracy = { fn = "a:b", min = 1 }\n',
    "planner of one's own": MINIMAL + 'memory = { planner = "planners:mine", alignment = 1 }\n',
    "quantized ends": MINIMAL + QUANTIZED + 'io.forward.quantized = ["x", "output3"]\n',
    "quantized ends of a saved program": model(
        PT2, STATIC + 'calibration = "a:b"\n[targets.b]\nquantize = "q"\nio.forward.quantized = ["anything"]\n'
    ),
    "io by name and position": MINIMAL + 'io.forward = { inputs = { x = "caller" }, outputs = { 0 = "host" } }\n',
    "io of a saved program": model(PT2, '[targets.b]\nio.forward.inputs = { anything = "caller" }\n'),
    "state shared by one method": MINIMAL.replace("[methods", "share_state = true\n[methods"),
    "equal limits": MINIMAL + 'verify.accuracy = { fn = "a:b", min = 1, max = 1.0 }\n',
}

# Text, place, part of the message.
INVALID = {
    "no source": (model("kwargs = {}\n"), "2:1", "expected one of `entry`, `hf` and `pt2`"),
    "two sources": (
        model('hf = "./a"\nentry = "a:b"\n'),
        "4:9",
        "`model.hf` already states where the model comes from",
    ),
    "pt2 untrusted": (model('pt2 = "m.pt2"\n', ""), "3:7", "`model.pt2` needs `trust` to be true"),
    "pt2 distrusted": (model('pt2 = "m.pt2"\ntrust = false\n', ""), "4:9", "`model.pt2` needs `trust` to be true"),
    "trust for nothing": (model('entry = "a:b"\ntrust = true\n'), "4:9", "only a `pt2` model needs this key"),
    "hub without revision": (model('hf = "org/name"\n'), "3:6", "which needs `revision`"),
    "revision of a directory": (model(f'hf = "./x"\nrevision = "{HASH}"\n'), "4:12", "only a model from the hub"),
    "revision of an entry": (model(f'entry = "a:b"\nrevision = "{HASH}"\n'), "4:12", "only a model from the hub"),
    "weights that may be a pickle": (
        model('entry = "a:b"\nweights = "w.pt"\n'),
        "4:11",
        '`model.weights` is "w.pt"; expected the path of a .safetensors file',
    ),
    "weights of hf": (model('hf = "./x"\nweights = "w"\n'), "4:11", "a `hf` model has its own weights"),
    "weights of pt2": (model(PT2 + 'weights = "w"\n', ""), "5:11", "a `pt2` model has its own weights"),
    "kwargs of pt2": (model(PT2 + "kwargs = {}\n", ""), "5:10", "a `pt2` model is already complete"),
    "no methods": (model('entry = "a:b"\n', ""), "1:1", "`methods` contains no method to export"),
    "no inputs": (model('entry = "a:b"\n', "[methods.forward]\n"), "5:1", "`methods.forward.inputs` is missing"),
    "second method of pt2": (model(PT2, SECOND), "6:1", "a `pt2` model has only the method `forward`"),
    "dimension without inputs": (model(PT2, "[methods.forward.dims.n]\nmax = 3\n"), "6:1", "is not used in a shape"),
    "constant like a method": (MINIMAL + "[constants]\nforward = 1\n", "8:11", "have the same name"),
    "constant too large": (
        MINIMAL + "[constants]\nbig = 9223372036854775808\n",
        "8:7",
        "expected a whole number of 64 bits",
    ),
    "constant too large in a list": (
        MINIMAL + "[constants]\nbig = [1, -9223372036854775809]\n",
        "8:11",
        "`constants.big[1]` is -9223372036854775809; expected a whole number of 64 bits",
    ),
    "no constant in a list": (MINIMAL + "[constants]\nnone = []\n", "8:8", "`constants.none` is an empty list"),
    "constants of no function": (
        MINIMAL.replace("version = 1\n", 'version = 1\nconstants = "model"\n'),
        "2:13",
        '`constants` is "model"; expected "module:callable"',
    ),
    "infinite constant": (MINIMAL + "[constants]\nbig = inf\n", "8:7", "`constants.big` is inf; expected"),
    "unused dimension": (
        MINIMAL + "[methods.forward.dims.batch]\nmax = 3\n",
        "7:1",
        "`methods.forward.dims.batch` is not used in a shape",
    ),
    "empty range": (
        MINIMAL.replace("[1, 8]", '["n"]') + "[methods.forward.dims.n]\nmin = 4\nmax = 3\n",
        "8:7",
        "`methods.forward.dims.n.min` is 4, more than `max`, which is 3",
    ),
    "no multiple": (
        MINIMAL.replace("[1, 8]", '["n"]') + "[methods.forward.dims.n]\nmax = 15\nmultiple_of = 8\n",
        "8:7",
        "`methods.forward.dims.n.max` is 15, which is not a multiple of `multiple_of`, 8",
    ),
    "minimum that is no multiple": (
        MINIMAL.replace("[1, 8]", '["n"]') + "[methods.forward.dims.n]\nmin = 1\nmax = 16\nmultiple_of = 8\n",
        "8:7",
        "`methods.forward.dims.n.min` is 1, which is not a multiple of `multiple_of`, 8",
    ),
    "multiple of nothing": (
        MINIMAL.replace("[1, 8]", '["n"]') + "[methods.forward.dims.n]\nmax = 16\nmultiple_of = 0\n",
        "9:15",
        "`methods.forward.dims.n.multiple_of` is 0; expected a whole number",
    ),
    "two inputs of one name": (
        MINIMAL.replace("inputs = [", 'inputs = [\n{ name = "x", dtype = "int8", shape = [1] },\n'),
        "7:10",
        '`methods.forward.inputs[1].name` is "x", which is already the name of input 0',
    ),
    "static without calibration": (MINIMAL + STATIC, "7:1", "`quantize.q.calibration` is missing"),
    "one callable for two methods": (
        MINIMAL + SECOND + STATIC + 'calibration = "a:b"\n',
        "11:15",
        "is one callable, but there are 2 methods",
    ),
    "calibration of no method": (
        MINIMAL + STATIC + 'calibration = { forwad = "a:b" }\n',
        "9:26",
        "`quantize.q.calibration.forwad`: there is no such method",
    ),
    "a method left out": (
        MINIMAL + SECOND + STATIC + 'calibration = { forward = "a:b" }\n',
        "11:15",
        "`quantize.q.calibration.second` is missing",
    ),
    "8da4w of pt2": (model(PT2, '[quantize.q]\nscheme = "8da4w"\n'), "7:10", "8da4w needs the eager module"),
    "portable first": (
        MINIMAL + 'partitioners = [{ backend = "portable" }, { backend = "xnnpack" }]\n',
        "7:29",
        '`targets.cpu.partitioners[0].backend` is "portable", which takes all remaining ops',
    ),
    "targets of one folder": (
        MINIMAL + "[targets.CPU]\n",
        "7:1",
        "`targets.CPU` and `targets.cpu` are the same folder on some file systems",
    ),
    "a target with the name of a file in other case": (
        MINIMAL + '[targets."Results.JSON"]\n',
        "7:1",
        '`targets."Results.JSON"` is the name of a file that a build writes',
    ),
    "a target in the place of a file": (
        MINIMAL + '[targets."results.json"]\n',
        "7:1",
        '`targets."results.json"` is the name of a file that a build writes',
    ),
    "a cluster without Ray": (
        MINIMAL + '[run]\nray_address = "head:6379"\n',
        "8:15",
        "`run.ray_address` has no effect unless",
    ),
    "kernels and operators": (
        MINIMAL + 'runtime = { operators = "x.yaml", kernels = ["portable"] }\n',
        "7:25",
        "`targets.cpu.runtime.operators` and `kernels` cannot be used together",
    ),
    "io of no method": (
        MINIMAL + 'io.forwad.inputs = "caller"\n',
        "7:4",
        "`targets.cpu.io.forwad`: there is no such method",
    ),
    "io of no method of a saved program": (
        model(PT2, '[targets.b]\nio.decode.inputs = "caller"\n'),
        "7:4",
        "`targets.b.io.decode`: there is no such method",
    ),
    "io of no input": (
        MINIMAL + 'io.forward.inputs = { y = "caller" }\n',
        "7:27",
        "`targets.cpu.io.forward.inputs.y`: `forward` has no such input",
    ),
    "quantized ends of a float target": (
        MINIMAL + 'io.forward.quantized = "all"\n',
        "7:24",
        "`targets.cpu.io.forward.quantized` needs `targets.cpu.quantize`: the target is not quantized",
    ),
    "quantized ends of a dynamic scheme": (
        MINIMAL + QUANTIZED.replace('calibration = "a:b"', "dynamic = true") + 'io.forward.quantized = "all"\n',
        "12:24",
        "`targets.b.io.forward.quantized` needs static quantization, but `quantize.q` computes scales",
    ),
    "quantized ends of 8da4w": (
        MINIMAL + '[quantize.q]\nscheme = "8da4w"\n[targets.b]\nquantize = "q"\nio.forward.quantized = "all"\n',
        "11:24",
        "`targets.b.io.forward.quantized` needs static quantization, but `quantize.q` computes scales",
    ),
    "quantized ends of no input": (
        MINIMAL + QUANTIZED + 'io.forward.quantized = ["x", "y"]\n',
        "12:30",
        '`targets.b.io.forward.quantized[1]`: `forward` has no input or output "y"',
    ),
    "quantized ends of integers": (
        MINIMAL.replace("float32", "int64") + QUANTIZED + 'io.forward.quantized = ["x"]\n',
        "12:25",
        '`targets.b.io.forward.quantized[0]`: the input "x" is int64, and only inputs of float32 are quantized',
    ),
    "memory of a device that is none": (
        MINIMAL + 'budget.memory = { gpu = "1KiB" }\n',
        "7:25",
        (
            '`targets.cpu.budget.memory.gpu` is a limit of "gpu", which is neither a device (cpu, cuda:0 to cuda:127) '
            "nor a bank (the target has no banks)"
        ),
    ),
    "memory of an impossible device": (
        MINIMAL + 'budget.memory = { "cuda:128" = "1KiB" }\n',
        "7:19",
        (
            '`targets.cpu.budget.memory."cuda:128"`: "cuda:128" is not a valid name; expected a device '
            "(cpu, cuda:0 to cuda:127) or a memory bank"
        ),
    ),
    "two limits of one device": (
        MINIMAL + 'budget.memory = { "cuda:0" = "1KiB", CUDA = "2KiB" }\n',
        "7:45",
        '`targets.cpu.budget.memory.CUDA` is a second limit of cuda:0, in addition to "cuda:0"',
    ),
    "gate of nothing": (
        MINIMAL + 'verify.accuracy = { fn = "a:b" }\n',
        "7:19",
        "`targets.cpu.verify.accuracy` has no limit",
    ),
    "latency of nothing": (
        MINIMAL + 'budget.latency = { method = "forward" }\n',
        "7:18",
        "`targets.cpu.budget.latency` contains no limit; expected `p50`, `p95`, `p99`, or several of them",
    ),
    "latency of no method": (
        MINIMAL + 'budget.latency = { p95 = 1, method = "forwad" }\n',
        "7:38",
        '`targets.cpu.budget.latency.method` is "forwad", which is not a method',
    ),
    "latency of one of two methods": (
        MINIMAL + 'budget.latency.p95 = "1 s"\n' + SECOND,
        "7:8",
        "`targets.cpu.budget.latency.method` is missing: the program has several methods",
    ),
    "latency in another unit": (
        MINIMAL + 'budget.latency.p95 = "1 hour"\n',
        "7:22",
        '`targets.cpu.budget.latency.p95` is "1 hour"; expected a duration such as "12ms" (units: us, µs, ms, s, min)',
    ),
    "no time at all": (
        MINIMAL + 'budget.latency.p95 = "0ms"\n',
        "7:22",
        '`targets.cpu.budget.latency.p95` is "0ms"; expected a duration',
    ),
    "more than all": (
        MINIMAL + "budget.delegated = 1.5\n",
        "7:20",
        "`targets.cpu.budget.delegated` is 1.5; expected a number from 0 to 1",
    ),
    "growth against nothing": (
        MINIMAL + 'budget.growth.file = "0%"\n',
        "7:8",
        "`targets.cpu.budget.growth` needs a baseline, but there is no `baseline.from`",
    ),
    "growth of nothing stated": (
        MINIMAL + 'budget.growth.file = "two"\n[baseline]\nfrom = "old"\n',
        "7:22",
        '`targets.cpu.budget.growth.file` is "two"; expected a percentage such as "2%", a size such as',
    ),
    "less than nothing": (
        MINIMAL + 'budget.growth.file = -1\n[baseline]\nfrom = "old"\n',
        "7:22",
        "`targets.cpu.budget.growth.file` is -1; expected a percentage",
    ),
    "baseline of an option": (
        MINIMAL + '[baseline]\nfrom = "git:--help"\n',
        "8:8",
        '`baseline.from` is "git:--help"; expected "git:REF", or the path of a .pte file or of a folder',
    ),
    "baseline without a name": (MINIMAL + '[baseline]\nfrom = "git:"\n', "8:8", '`baseline.from` is "git:"; expected'),
    "gate without a gap": (
        MINIMAL + 'verify.accuracy = { fn = "a:b", min = 2, max = 1 }\n',
        "7:39",
        "`targets.cpu.verify.accuracy.min` is 2, more than `max`, which is 1",
    ),
    "nan": (MINIMAL + "verify.atol = nan\n", "7:15", "`targets.cpu.verify.atol` is nan; expected a finite number"),
    "negative": (MINIMAL + "verify.rtol = -1\n", "7:15", "expected a finite number of at least 0"),
    "date among the arguments": (
        model('entry = "a:b"\nkwargs = { a = [2020-01-01] }\n'),
        "4:17",
        "`model.kwargs.a[0]` is 2020-01-01; expected",
    ),
    "dynamic quantization with one scale per tensor": (
        MINIMAL + '[quantize.q]\nscheme = "pt2e-xnnpack"\ndynamic = true\nper_channel = false\n',
        "10:15",
        "`quantize.q.per_channel` is false, but no delegate takes dynamic quantization with one scale per tensor",
    ),
    "number of the wrong scheme": (
        MINIMAL + '[quantize.q]\nscheme = "8da4w"\ngroup_size = 8\n',
        "9:14",
        "`quantize.q.group_size` is 8; expected a whole number of at least 32, in multiples of 32",
    ),
}


@pytest.mark.parametrize("case", VALID)
def test_valid(case: str, tmp_path: Path) -> None:
    load(tmp_path, VALID[case])


@pytest.mark.parametrize("case", INVALID)
def test_invalid(case: str, tmp_path: Path) -> None:
    text, place, message = INVALID[case]
    (found,) = problems(tmp_path, text)
    assert found.where == f"etdev.toml:{place}"
    assert message in found.message


def test_all_kinds_of_problems_come_at_once(tmp_path: Path) -> None:
    """E1: what pydantic finds, what the rules find, and what backends find."""

    def check(config: Raw) -> Iterable[Issue]:
        yield Issue(("targets", "cpu", "quantize"), "not today", "own-rule", "tomorrow")

    text = MINIMAL + 'quantize = "q"\nverify = { atol = true, accuracy = { fn = "a:b" } }\n'
    found = problems(tmp_path, text, checks=(check,))
    assert [(p.line, p.rule) for p in found] == [
        (7, "reference"),
        (7, "own-rule"),
        (8, "wrong-type"),
        (8, "missing-key"),
    ]


def test_bytes_in_compile_specs(tmp_path: Path) -> None:
    steps = 'partitioners = [{ backend = "x", compile_specs = { a = 1, b = "t", c = { base64 = "AP8=" } } }]\n'
    in_toml = load(tmp_path, MINIMAL + steps).config.targets["cpu"].partitioners
    assert in_toml[0].compile_specs == {"a": 1, "b": "t", "c": b"\x00\xff"}
    in_yaml = """
version: 1
model: {entry: "a:b"}
methods: {forward: {inputs: [{name: x, dtype: int8, shape: [1]}]}}
targets: {cpu: {partitioners: [{backend: x, compile_specs: {a: 1, b: t, c: !!binary AP8=}}]}}
"""
    assert load(tmp_path, in_yaml, "etdev.yaml").config.targets["cpu"].partitioners == in_toml
    for wrong in ("true", "1.5", "{}", '{ base64 = "?" }', "[]", "2020-01-01"):
        text = MINIMAL + f'partitioners = [{{ backend = "x", compile_specs.a = {wrong} }}]\n'
        (found,) = problems(tmp_path, text)
        assert (found.key, found.column) == ("targets.cpu.partitioners[0].compile_specs.a", 52)


@pytest.mark.parametrize("value", [0, -8, 3, 24, 32768, "true", "1.5", '"16"'])
def test_an_alignment_is_a_power_of_two(value: object, tmp_path: Path) -> None:
    (found,) = problems(tmp_path, MINIMAL + f"memory.alignment = {value}\n")
    assert found.message == f"`targets.cpu.memory.alignment` is {value}; expected a power of two from 1 to 16384"


def test_what_only_the_linker_reads_are_keys() -> None:
    """The cache of what comes before the linker leaves these out, so one that is misspelled would be left in."""
    for path in LINK_KEYS:
        assert find(grammar_of(Config), path), format_key(path)


def test_sizes(tmp_path: Path) -> None:
    for text, size in (("'64KiB'", 65536), ("'1.5 MB'", 1_500_000), ("12", 12), ("'0B'", 0), ("'0.5KiB'", 512)):
        assert load(tmp_path, MINIMAL + f"budget.file = {text}\n").config.targets["cpu"].budget.file == size
    for text in ("'64'", "'KiB'", "'64 kb'", "'0.3B'", "'-1KiB'", "true", "1.5", "'1e3KiB'", "'9999999999999GiB'"):
        (found,) = problems(tmp_path, MINIMAL + f"budget.file = {text}\n")
        assert found.message.startswith("`targets.cpu.budget.file` is")


def test_yaml_is_version_1_2(tmp_path: Path) -> None:
    text = """
version: 0x1
model:
  entry: "a:b"
  kwargs: {on: on, no: no, y: y, t: true, o: 0o17, d: 012, f: 1e3, i: -.inf, s: 2020-01-01,
    q: "1", e: '', p: "\\ud83d\\ude00"}
methods: {forward: {inputs: [{name: x, dtype: int8, shape: [1]}]}}
targets: {1: {}, 1.0: {}, null: {}}
"""
    config = load(tmp_path, text, "etdev.yaml").config
    assert config.model.kwargs == {
        "on": "on",
        "no": "no",
        "y": "y",
        "t": True,
        "o": 15,
        "d": 12,
        "f": 1000.0,
        "i": float("-inf"),
        "s": "2020-01-01",
        "q": "1",
        "e": "",
        "p": "\U0001f600",
    }
    assert list(config.targets) == ["1", "1.0", "null"]
