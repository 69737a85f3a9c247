"""Random modules as source code: each line is one operation, and was run when it was drawn.

A module is a file, so that a finding is one, too. Operations that fail in eager PyTorch, or whose results are not
finite, are left out. Random choices do not depend on values, so the same chance draws the same module.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

_SIZES = (1, 1, 2, 3, 4, 5, 8)
_MOST = 4096
"""Most elements of a value."""
_UNARY = (
    "torch.relu({a})", "torch.sigmoid({a})", "torch.tanh({a})", "-{a}", "{a}.abs()", "torch.sqrt({a}.abs())",
    "{a} * 2", "{a} + 0.5", "1 - {a}", "{a}.clamp(-1, 1)", "torch.exp({a}.clamp(-3, 3))", "F.gelu({a})",
    "F.silu({a})", "F.hardswish({a})", "F.leaky_relu({a})", "{a}.softmax(-1)", "{a}.log_softmax(-1)",
    "{a}.to(torch.float16).to(torch.float32)", "{a}.clone()", "torch.round({a})", "F.pad({a}, (1, 2))",
    "{a}.half()", "{a}.bfloat16()", "{a}.to(torch.int64)", "{a} > 0.5",
)  # fmt: skip
_BINARY = (
    "{a} + {b}", "{a} - {b}", "{a} * {b}", "torch.maximum({a}, {b})", "{a} / ({b}.abs() + 1)",
    "torch.where({a} > {b}, {a}, {b})", "torch.cat([{a}, {b}], 0)", "torch.cat([{a}, {b}], -1)",
    "torch.stack([{a}, {b}])", "{a} @ {b}", "{a}.matmul({b}.transpose(-1, -2))", "torch.add({a}, {b}, alpha=2)",
)  # fmt: skip
_VIEWS = (
    "{a}.reshape(-1)", "{a}.unsqueeze(0)", "{a}.unsqueeze(-1)", "{a}.squeeze()", "{a}.transpose(0, -1)",
    "{a}.flatten()", "{a}[:1]", "{a}[1:]", "{a}[..., 1:]", "{a}[0]", "{a}[-1]", "{a}[::2]", "{a}[..., :2]",
    "{a}.chunk(2, 0)[-1]", "{a}.split(1, 0)[0]", "{a}.unbind(0)[0]", "{a}.expand(2, *{a}.shape)", "{a}.flip(0)",
    "{a}.select(-1, 0)", "{a}.narrow(0, 0, 1)", "{a}.permute(*reversed(range({a}.dim()))).contiguous()",
    "{a}.repeat(2, *[1] * ({a}.dim() - 1))", "{a}.roll(1, 0)", "{a}[:0]",
)  # fmt: skip
_REDUCED = (
    "{a}.sum()", "{a}.mean(-1)", "{a}.mean(0, keepdim=True)", "{a}.amax(-1)", "{a}.sum(0)", "{a}.cumsum(0)",
    "{a}.var(-1, unbiased=False)", "{a}.topk(1, -1)[0]", "{a}.sort(-1)[0]", "{a}.argmax(-1)", "{a}.min()",
)  # fmt: skip
_INTS = (
    "{a} + 1",
    "{a} * 2",
    "{a}.to(torch.float32)",
    "{a} // 2",
    "{a} == 0",
    "{a}.clamp(0, 3)",
    "{a}.to(torch.int32)",
)
_BOOLS = ("~{a}", "{a}.to(torch.float32)", "{a}.any()", "{a}.to(torch.int64)", "{a} & {a}")
_COND = (
    "torch.cond({a}.sum() > 0, lambda v: v * 2, lambda v: v - 1, ({a},))",
    "torch.cond({a}.mean() < 0, lambda v: v.abs() + 1, lambda v: v.neg().exp(), ({a}.clamp(-2, 2),))",
    "torch.add(*torch.cond({a}.sum() > 0, lambda v: (v * 2, v + 1), lambda v: (v.abs(), v - 1), ({a},)))",
    "torch.cond({a}.sum() > 0, lambda v: torch.cond(v.amax() > 1, torch.exp, torch.tanh, (v,)), torch.sin, ({a},))",
)
_LOOPS = {
    "map": (
        "torch_map(lambda row, one: row * 2 + one, {a}, {a}[0] * 1)",
        "torch_map(lambda row, one: (row - one).tanh().sum(), {a}, {a}[-1] + 1)",
    ),
    "scan": (
        "torch_scan(lambda c, row: (c + row, c * row), {a}[0] * 0, {a})[1]",
        "torch_scan(lambda c, row: (c * 0.5 + row, c.tanh()), {a}[0] * 1, {a})[0]",
        "torch_scan(lambda c, row: (c + row.abs(), c - row), {a}[-1] * 2, {a}, reverse=True)[1]",
        "(lambda c, rows: c + rows[-1])(*torch_scan(lambda c, row: (c - row, c * 2), {a}[0] + 1, {a}))",
    ),
    # ExecuTorch refuses it, so etdev has to, in order.
    "while": ("torch_while(lambda n, v: n < 3, lambda n, v: (n + 1, v * 0.5 + 1), (torch.tensor(0), {a}))[1]",),
}
_IN_PLACE = (
    "{t} = {a}.clone(); {t}.add_(1)", "{t} = {a} * 1; {t}[0] = {t}[-1] * 2", "{t} = {a} + 0; {t}.mul_({a})",
    "{t} = torch.zeros_like({a}); {t}.copy_({a})", "{t} = {a} * 3; {t}[..., :1].add_(5)", "{t} = {a} - 1; {t}.relu_()",
)  # fmt: skip
_STATE = (
    "self.{s}.add_(1); {t} = self.{s} + 0", "{t} = self.{s} * 2; self.{s}.copy_({t} + 1)",
    "{t} = self.{s} - 1; self.{s}.mul_(0.5); {t} = {t} + self.{s}",
    "self.{s}[:1].add_({a}.mean()); {t} = self.{s}.clone()",
)  # fmt: skip
OPERATIONS = {
    "unary": _UNARY,
    "binary": _BINARY,
    "views": _VIEWS,
    "reduced": _REDUCED,
    "int": _INTS,
    "bool": _BOOLS,
    "cond": _COND,
    **_LOOPS,
    "in place": _IN_PLACE,
    "state": _STATE,
}
"""Lines by kind, without those that call a layer. ``{a}`` and ``{b}`` are values, and ``{s}`` is a buffer."""
_KINDS = (
    *("unary", "unary", "binary", "binary", "views", "views", "views", "reduced", "layer", "layer", "cond"),
    *("in place", "state", "loop"),
)
_IMPORTS = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops import while_loop as torch_while
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan as torch_scan
"""


@dataclass
class Drawn:
    """A module's source, and the inputs of its methods."""

    lines: dict[str, list[str]]
    layers: list[str]
    inputs: dict[str, list[tuple[str, str, tuple[int, ...]]]]
    """Name, dtype and shape of each input, by method."""
    outputs: dict[str, list[str]]
    dynamic: bool = False
    has_content: bool = False
    """Buffers begin with numbers, which plain ExecuTorch only keeps if it is told to; otherwise with zeros."""
    kinds: set[str] = field(default_factory=set)

    def source(self) -> str:
        """Return the module's text; the class is ``Net``."""
        text = [
            _IMPORTS, "", "class Net(nn.Module):", "    def __init__(self):", "        super().__init__()",
            "        torch.manual_seed(0)", *(f"        {line}" for line in self.layers),
        ]  # fmt: skip
        for method, lines in self.lines.items():
            names = ", ".join(name for name, _, _ in self.inputs[method])
            text += ["", f"    def {method}(self, {names}):", *(f"        {line}" for line in lines)]
            outputs = self.outputs[method]
            text += [f"        return {', '.join(outputs)}"]
        return "\n".join(text) + "\n"

    def buffers(self) -> list[str]:
        """Return the names of all buffers."""
        return re.findall(r"register_buffer\('(\w+)'", "\n".join(self.layers))

    def with_more_outputs(self) -> Drawn:
        """Return the module whose methods also return multiples of all buffers, and of what control flow returned.

        XNNPACK refuses copies.
        """
        state = [f"self.{name} * 3" for name in self.buffers()]
        outputs = {}
        for method, found in self.outputs.items():
            text = "\n".join(self.lines[method])
            flow = re.findall(r"^(t\d+) = .*torch(?:\.cond|_map|_scan)\(", text, re.MULTILINE)
            outputs[method] = [*found, *state, *(f"{name} * 3" for name in flow)]
        return replace(self, outputs=outputs)

    def with_other_content(self) -> Drawn:
        """Return the module whose buffers do not begin with zeros."""
        layers = [re.sub(r"torch\.zeros\((.+)\)\)$", r"torch.rand(\1) * 1.7)", layer) for layer in self.layers]
        return replace(self, layers=layers, has_content=True)

    def with_other_branches(self, *, inner: bool = False) -> Drawn:
        """Return the module that takes the other branch of each condition, or of those inside of another one."""
        pattern = r"(?<=lambda v: )torch\.cond\(([^,]+)," if inner else r"torch\.cond\(([^,]+),"
        lines = {
            method: [re.sub(pattern, r"torch.cond(torch.logical_not(\1),", line) for line in found]
            for method, found in self.lines.items()
        }
        return replace(self, lines=lines)

    def with_other_operands(self) -> Drawn:
        """Return the module whose conditions have different operands, so that no two of them have the same results."""
        lines = {
            method: [
                re.sub(r"^(.*), \((.+?),(\)+)$", rf"\1, (\2 * {number},\3", line) if "torch.cond(" in line else line
                for number, line in enumerate(found, start=2)
            ]
            for method, found in self.lines.items()
        }
        return replace(self, lines=lines)


def module(source: str) -> nn.Module:
    """Return the module of a source."""
    space: dict[str, Any] = {}
    exec(compile(source, "model.py", "exec"), space)
    made: nn.Module = space["Net"]().eval()
    return made


def tensor(dtype: str, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Return an input: normally distributed floats, integers from 0 to 3, or bools."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == "bool":
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype.startswith("int"):
        return torch.randint(0, 4, shape, generator=generator).to(getattr(torch, dtype))
    return torch.randn(shape, generator=generator).to(getattr(torch, dtype))


class _Drawing:
    def __init__(self, chance: random.Random, most: int) -> None:
        self.chance, self.most = chance, most
        self.made = Drawn({}, [], {}, {})
        self.space: dict[str, Any] = {}
        self.self = nn.Module()
        exec(_IMPORTS, self.space)
        self.space["self"] = self.self
        self.count = 0

    def method(self, name: str) -> None:
        """Draw a method."""
        chance, made = self.chance, self.made
        for key in [key for key in self.space if key[0] in "xt" and key[1:].isdigit()]:
            del self.space[key]
        made.inputs[name], made.lines[name] = [], []
        first = tuple(chance.choice(_SIZES) for _ in range(chance.choice((1, 2, 2, 3, 4))))
        for number in range(chance.choice((1, 1, 2, 3))):
            shape = first
            if not chance.randrange(3):
                shape = tuple(chance.choice((0, *_SIZES) if number else _SIZES) for _ in range(chance.randrange(4)))
            dtype = chance.choice(("float32",) * 7 + ("int64", "bool")) if number else "float32"
            made.inputs[name].append((f"x{number}", dtype, shape))
            self.space[f"x{number}"] = tensor(dtype, shape, number)
        for _ in range(min(chance.randint(1, 8), self.most)):
            self._line(name)
        values = sorted(self._values(), key=lambda key: (key[0], int(key[1:])))
        results = [key for key in values if key[0] == "t"]
        outputs = [results[-1]] if results else [f"{values[0]} * 1"]
        outputs += [chance.choice(values) for _ in range(chance.choice((0, 0, 1, 2)))]
        made.outputs[name] = outputs

    def _values(self, *dtypes: torch.dtype) -> list[str]:
        found = {key: value for key, value in self.space.items() if isinstance(value, torch.Tensor)}
        return [key for key, value in found.items() if not dtypes or value.dtype in dtypes]

    def _line(self, method: str) -> None:
        """Draw an operation that works; give up after some trials."""
        for _ in range(6):
            line, layers, kind = self._drawn()
            before = dict(self.space)
            try:
                for layer in layers:
                    exec(layer, self.space)
                with torch.no_grad():
                    exec(line, self.space)
                value = self.space[f"t{self.count}"]
                assert isinstance(value, torch.Tensor)
                assert value.numel() <= _MOST
                assert value.dim() <= 5
                assert bool(torch.isfinite(value).all())
                assert not self._is_empty_product(line, layers)
            except Exception:  # noqa: BLE001 - the operation does not fit these values
                self.space.clear()
                self.space.update(before)
                continue
            self.made.lines[method].append(line)
            self.made.layers += layers
            self.made.kinds.add(kind)
            self.count += 1
            return

    def _is_empty_product(self, line: str, layers: list[str]) -> bool:
        """Return whether each element is a sum of no products: ExecuTorch's kernels then leave the output as it was."""
        product = re.match(r"t\d+ = (\w+)(?: @|\.matmul)", line)
        empty = product is not None and self.space[product[1]].shape[-1:] == (0,)
        return empty or any("nn.Linear(0, " in layer for layer in layers)

    def _drawn(self) -> tuple[str, list[str], str]:
        chance, target = self.chance, f"t{self.count}"
        floats, every = self._values(torch.float32, torch.float16, torch.bfloat16), self._values()
        a = chance.choice(floats if floats and chance.randrange(4) else every)
        value = self.space[a]
        if value.dtype is torch.bool:
            return f"{target} = {chance.choice(_BOOLS).format(a=a)}", [], "bool"
        if not value.is_floating_point():
            if value.dtype is torch.int64 and not chance.randrange(4):
                layer = f"self.e{self.count} = nn.Embedding(64, {chance.choice(_SIZES)})"
                return f"{target} = self.e{self.count}({a}.clamp(0, 63))", [layer], "embedding"
            return f"{target} = {chance.choice(_INTS).format(a=a)}", [], "int"
        b = chance.choice(floats)
        # A second method is of interest for the state that it shares.
        kind = chance.choice(_KINDS if len(self.made.lines) == 1 else (*_KINDS, *("state",) * 4))
        if kind == "layer":
            return self._layer(a, target)
        if kind == "state":
            return self._state(a, target)
        if kind == "in place":
            return chance.choice(_IN_PLACE).format(a=a, t=target), [], kind
        if kind == "loop":
            kind = chance.choices(list(_LOOPS), (4, 5, 1))[0]
        return f"{target} = {chance.choice(OPERATIONS[kind]).format(a=a, b=b)}", [], kind

    def _state(self, a: str, target: str) -> tuple[str, list[str], str]:
        """Write a buffer: a new one, or one that this method or another one writes, too."""
        chance, known = self.chance, self.made.buffers()
        if known and chance.randrange(2):
            return chance.choice(_STATE).format(a=a, s=chance.choice(known), t=target), [], "state again"
        name = f"s{self.count}"
        shape = [chance.choice(_SIZES) for _ in range(chance.choice((1, 1, 2)))]
        layer = f"self.register_buffer('{name}', torch.zeros({shape}))"
        return chance.choice(_STATE).format(a=a, s=name, t=target), [layer], "state"

    def _layer(self, a: str, target: str) -> tuple[str, list[str], str]:
        chance, shape = self.chance, self.space[a].shape
        out, name = chance.choice(_SIZES), f"l{self.count}"
        last = shape[-1] if shape else 1
        second = shape[1] if len(shape) > 1 else 1
        layer = chance.choice(
            (
                f"nn.Linear({last}, {out})",
                f"nn.Linear({last}, {out}, bias=False)",
                f"nn.LayerNorm({last})",
                f"nn.Conv2d({second}, {out}, 3, padding=1)",
                f"nn.Conv2d({second}, {out}, 1)",
                f"nn.Conv1d({second}, {out}, 1)",
                f"nn.BatchNorm2d({second})",
                "nn.MaxPool2d(2)",
                "nn.AvgPool2d(2)",
            )
        )
        return f"{target} = self.{name}({a})", [f"self.{name} = {layer}.eval()"], "layer"


def draw(chance: random.Random, most: int = 8) -> Drawn:
    """Draw a module with one or two methods, of at most ``most`` operations each."""
    drawing = _Drawing(chance, most)
    drawing.method("forward")
    if not chance.randrange(6):
        drawing.method("other")
    # A dimension may vary if nothing that was drawn depends on its size; the export says so otherwise.
    made = drawing.made
    sizes = {shape[0] for inputs in made.inputs.values() for _, _, shape in inputs if shape}
    made.dynamic = not chance.randrange(6) and len(made.inputs) == 1 and 0 not in sizes
    return made
