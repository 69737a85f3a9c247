"""Kernel calls: compute results in temporary memory, check them, and write them to the outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from etdev.program import model as m
from etdev.program.analysis.effects import SCRATCH, arguments, operator_name
from etdev.program.analysis.inplace import DEFAULT, Donor
from etdev.runtime.errors import RunError
from etdev.runtime.interpreter.cortex_m import find_cortex_m
from etdev.runtime.interpreter.layout import torch_dtype
from etdev.runtime.interpreter.quantized import find_quantized
from etdev.runtime.interpreter.schemas import Kernel, Parameter, find_kernel
from etdev.runtime.interpreter.tensors import RunTensor

if TYPE_CHECKING:
    import torch

    from etdev.runtime.interpreter.values import Values

InPlaceTable = Mapping[str, tuple[Donor, ...]]
"""Maps a kernel to pairs: an operand, and the output that may overwrite this operand."""

_SCRATCH_BYTE = 0xA5
"""Value that the interpreter writes to scratch tensors after a kernel call. Kernels on devices overwrite them, too."""
_KEPT_SIZES = 4096
"""Maximum number of entries in the cache of result sizes."""
_ON_STORAGE = frozenset(
    f"aten::{name}.out"
    for name in ("copy", "slice_scatter", "select_scatter", "diagonal_scatter", "as_strided_scatter")
)
"""Kernels whose PyTorch function copies the whole storage of its first operand.

In the interpreter, that storage is a whole planned buffer. Therefore, these kernels get a copy of the operand.
"""
_ALWAYS_TAKEN = 1 << 26
"""Size in bytes. Results up to this size are always computed, even if far fewer bytes are planned for them."""


def resolve(operator: m.Operator) -> Kernel | None:
    """Return the PyTorch function for an operator; None if there is none."""
    name = operator_name(operator)
    if name.startswith("quantized_decomposed::"):
        return find_quantized(name)
    if name.startswith("cortex_m::"):
        return find_cortex_m(name)
    return find_kernel(name)


class KernelRun:
    """One kernel call of a method, prepared for repeated runs."""

    def __init__(self, machine: Values, call: m.KernelCall, kernel: Kernel, table: InPlaceTable = DEFAULT) -> None:
        plan = machine.plan
        self._machine, self._kernel = machine, kernel
        self._name = operator_name(plan.operators[call.op_index])
        self._inputs = arguments(plan, call.args)
        self._out = call.args[-1]
        self._donors = {(donor.argument, donor.output) for donor in table.get(self._name, ())}
        if len(self._inputs) != len(kernel.parameters):
            raise RunError(f"the call has {len(self._inputs)} arguments, but the kernel takes {len(kernel.parameters)}")

    def __call__(self) -> None:
        """Run the kernel and write its results to the outputs."""
        machine = self._machine
        outs = machine.tensors_of(self._out)
        operands = [machine.tensors_of(index) for index in self._inputs]
        args, keywords = self._arguments(outs)
        self._refuse_huge(args, keywords, outs)
        results = _listed(self._kernel.function(*args, **keywords))
        if len(results) != len(outs):
            raise RunError(f"the kernel returns {len(results)} results for {len(outs)} outputs")
        for out, result in zip(outs, results, strict=True):
            machine.make_room(out, result.shape)
        # The outputs now have the sizes of this call. Before `make_room`, they had those of the previous call.
        check_overlaps(self._name, operands, outs, self._donors)
        for out, result in zip(outs, results, strict=True):
            machine.write(out, result)
        for position in SCRATCH.get(self._name, ()):  # As a kernel on a device does, overwrite the scratch memory.
            for tensor in operands[position]:
                machine.write(tensor, tensor.view(machine.home).new_full(tensor.sizes, _SCRATCH_BYTE))

    def _arguments(self, outs: Sequence[RunTensor]) -> tuple[list[Any], dict[str, Any]]:
        args: list[Any] = []
        keywords: dict[str, Any] = {}
        for parameter, index in zip(self._kernel.parameters, self._inputs, strict=True):
            if parameter.is_ignored and (parameter.keyword or parameter.name == "memory_format"):
                if not parameter.keyword:
                    args.append(None)
                continue
            value = self._argument(parameter, index)
            if parameter.keyword:
                keywords[parameter.name] = value
            else:
                args.append(value)
        if self._name in _ON_STORAGE:
            args[0] = args[0].clone()
        if self._kernel.needs_dtype:
            keywords["dtype"] = outs[0].dtype
        if self._kernel.needs_device:
            keywords["device"] = self._machine.torch_device
        return args, keywords

    def _argument(self, parameter: Parameter, index: int) -> Any:
        value = self._machine.content(index)
        if parameter.is_dtype and isinstance(value, int):
            return torch_dtype(m.ScalarType(value))
        return value

    def _refuse_huge(self, args: Sequence[Any], keywords: Mapping[str, Any], outs: Sequence[RunTensor]) -> None:
        """Raise an error if the results are far larger than planned, before PyTorch allocates memory for them."""
        known = self._machine.known_sizes
        key = (self._name, _key(args), _key(list(keywords.items())))
        if key not in known:
            if len(known) >= _KEPT_SIZES:
                known.clear()
            known[key] = _result_bytes(self._kernel, args, keywords)
        planned = sum(out.capacity or 0 for out in outs)
        if known[key] > max(_ALWAYS_TAKEN, 2 * planned):
            raise RunError(f"the results take {known[key]} bytes, but only {planned} are planned for the outputs")


def check_overlaps(
    name: str, operands: Sequence[Sequence[RunTensor]], outs: Sequence[RunTensor], donors: set[tuple[int, int]]
) -> None:
    """Raise an error if two outputs overlap, or if an output overlaps an operand.

    ``donors`` contains the exceptions, as pairs: position of an operand, position of an output. The operand and the
    output of a pair may have the same bytes.
    """
    for position, inputs in enumerate(operands):
        for tensor in inputs:
            for number, out in enumerate(outs):
                if not out.overlaps(tensor):
                    continue
                is_donor = (position, number) in donors
                if is_donor and out.same_bytes(tensor):
                    continue
                reason = "works in place only on the same bytes" if is_donor else "does not work in place"
                raise RunError(
                    f"the output {out.describe()} overlaps the operand {tensor.describe()}, and {name} {reason}",
                    hint="link the program again: its memory plan is wrong",
                )
    for one, other in combinations(outs, 2):
        if one.overlaps(other):
            raise RunError(f"the outputs {one.describe()} and {other.describe()} overlap")


def _listed(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, list | tuple) else [result]


def _key(value: Any) -> Any:
    """Return a key for the cache of result sizes. A tensor contributes only its dtype and sizes."""
    if hasattr(value, "data_ptr"):
        return value.dtype, tuple(value.shape)
    if isinstance(value, list | tuple):
        return tuple(_key(item) for item in value)
    return type(value), value


def _result_bytes(kernel: Kernel, args: Sequence[Any], keywords: Mapping[str, Any]) -> int:
    """Compute the results on the ``meta`` device and return their size in bytes; 0 if the size depends on data."""
    keywords = {**keywords, **({"device": "meta"} if kernel.needs_device else {})}
    try:
        results = _listed(kernel.function(*[_as_meta(arg) for arg in args], **keywords))
    except Exception:  # noqa: BLE001 - fails if sizes depend on data; errors of the program recur later
        return 0
    return sum(result.numel() * result.element_size() for result in results)


def _as_meta(value: Any) -> Any:
    if hasattr(value, "data_ptr"):
        return value.to("meta")
    return [_as_meta(item) for item in value] if isinstance(value, list) else value
