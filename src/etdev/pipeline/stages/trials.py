"""Trial calls of a method: check that the method accepts its declared inputs, or find a declaration that works.

Torch's messages on invalid inputs have many forms, and often identify neither the input nor the axis. So this module
does not parse the messages. Instead, it changes one part of the declaration at a time. A change with which the method
runs is a *remedy*.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from etdev.config.describe.notation import literal
from etdev.config.models import Dim, Input
from etdev.pipeline.project.quiet import held_back
from etdev.pipeline.stages.eager import module_of, restored_buffers
from etdev.pipeline.stages.inputs import Signature, make_inputs

if TYPE_CHECKING:
    import torch

Choice = Mapping[str, int]
"""Maps each dynamic dimension to a size."""
Call = Callable[[Signature, Choice], Any]
"""A function that calls the method on inputs of the declared types, at the chosen sizes.

If the method raises an exception, the function raises the same exception.
"""

_MOST_SECONDS = 10.0
"""Time limit in seconds for the search for remedies, because one call of a large model may take long."""
_MOST_SIZES = 10
"""Maximum number of sizes to try for each axis. The sizes nearest to the declared size come first."""
_STEPS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 48, 64)
"""Numbers of which the sizes may have to be multiples, in the order in which they are tried."""
_LEAST_MULTIPLES = 3
"""Minimum number of sizes in a range that a remedy declares in multiples."""
_MOST_INSIDE = 64
"""Maximum number of sizes to try inside a range, from its minimum upwards."""


@dataclass(frozen=True)
class Remedy:
    """A change of the declaration with which the method runs."""

    key: tuple[str | int, ...]
    """Config key to change, below ``methods.NAME``."""
    found: str
    """The input that the method does not accept, as the config declares it: ``input 'x' as float32 [2, 5]``."""
    hint: str


def on_fakes(function: Callable[..., Any]) -> Call:
    """Return a :data:`Call` that uses fake tensors.

    Such a call does not compute values, and does not find all wrong dtypes.
    """

    def call(signature: Signature, choice: Choice) -> Any:
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        module = module_of(function)
        with (
            restored_buffers(module),
            _restored_attributes(module),
            torch.no_grad(),
            held_back(),
            FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv()) as mode,  # symbols for values of tensors
        ):
            return function(
                *(mode.from_tensor(tensor, static_shapes=True) for tensor in make_inputs(signature, choice))
            )

    return call


@contextmanager
def _restored_attributes(module: torch.nn.Module | None) -> Iterator[None]:
    """Restore the attributes of a module and its submodules on exit, as ``torch.export`` does.

    The content of dicts and lists is also restored, because a model may store results of its first call. Buffers that
    were registered in the block are not removed.
    """
    tables = [vars(part) for part in module.modules()] if module is not None else []
    owned = ("_parameters", "_buffers", "_modules")
    before = [(table, _contents(table, owned)) for table in tables]
    try:
        yield
    finally:
        for table, attributes in before:
            for name in table.keys() - attributes.keys() - set(owned):
                del table[name]
            for name, (value, content) in attributes.items():
                table[name] = value
                if type(value) is dict:
                    value.clear()
                    value.update(content)
                elif type(value) is list:
                    value[:] = content


def _contents(table: Mapping[str, Any], but: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    """Map the name of each attribute, except names in ``but``, to a pair: the value, and a copy of the value.

    Only dicts and lists are copied. For other values, the second item is None.
    """
    return {
        name: (value, type(value)(value) if type(value) in (dict, list) else None)
        for name, value in table.items()
        if name not in but
    }


def on_numbers(function: Callable[..., Any]) -> Call:
    """Return a :data:`Call` that computes the method on random inputs."""

    def call(signature: Signature, choice: Choice) -> Any:
        import torch

        with restored_buffers(module_of(function)), torch.no_grad(), held_back():
            return function(*make_inputs(signature, choice, seed=2))

    return call


def sizes_to_try(signature: Signature) -> list[dict[str, int]]:
    """Return the choices of sizes to try: all minima, all maxima, then two choices between them.

    In the two choices between them, the dimensions have unequal sizes if possible.
    """
    ends = [signature.smallest(), signature.largest()]
    spread = {
        name: dim.sizes[(len(dim.sizes) - 1) * (index + 1) // (len(signature.dims) + 1)]
        for index, (name, dim) in enumerate(signature.dims.items())
    }
    inner = {
        name: dim.sizes[-2:][0] if index % 2 == 0 else dim.sizes[:2][-1]
        for index, (name, dim) in enumerate(signature.dims.items())
    }
    tried: list[dict[str, int]] = []
    for choice in (*ends, spread, inner):
        if choice not in tried:
            tried.append(choice)
    return tried


def describe_choice(choice: Choice) -> str:
    """Return the choice as text: ``n = 1, m = 4``."""
    return ", ".join(f"{name} = {size}" for name, size in choice.items())


def find_remedy(signature: Signature, call: Call, sizes: Iterable[int] = ()) -> Remedy | None:
    """Return the first single change of the declaration with which the method runs.

    Return None if the method runs as declared, or if no such change was found. ``sizes`` are the sizes of the model's
    own tensors; inputs often need the same sizes.
    """
    outcomes = [(choice, _runs(call, signature, choice)) for choice in sizes_to_try(signature)]
    good = [choice for choice, runs in outcomes if runs]
    bad = [choice for choice, runs in outcomes if not runs]
    if not bad:
        return None
    if good:
        remedy = _largest_size(signature, call, good, bad) or _multiples(signature, call, bad[0])
        return remedy or _of_dims(signature, good, bad[0])
    remedy = _first_that_runs(signature, call, _dtypes(signature)) or _multiples(signature, call, bad[0])
    if remedy is not None:
        return remedy
    inside = _sizes_inside(signature, call, sizes)
    if inside:
        return _of_dims(signature, inside, bad[0])
    return _first_that_runs(signature, call, _shapes(signature, sorted(set(sizes))))


def _sizes_inside(signature: Signature, call: Call, sizes: Iterable[int]) -> list[dict[str, int]]:
    """Find the first choice of sizes with which the method runs, and return a list that contains only this choice.

    Each choice varies one dynamic dimension inside its range; the other dimensions have their minimum size. Return
    an empty list if no choice works, or if the time limit is reached.
    """
    end = time.monotonic() + _MOST_SECONDS
    known = sorted(set(sizes))
    for name, dim in signature.dims.items():
        start = [size for size in known if size in dim.sizes]
        for size in dict.fromkeys((*start, *dim.sizes[: _MOST_INSIDE + 1])):
            choice = {**signature.smallest(), name: size}
            if time.monotonic() > end:
                return []
            if _runs(call, signature, choice):
                return [choice]
    return []


def find_dtype(signature: Signature, call: Call) -> Remedy | None:
    """Return the first change of an input's dtype with which the method runs on the smallest sizes.

    Return None if the method runs as declared, or if no such change was found. ``call`` may really run the method,
    because the smallest sizes make this fast.
    """
    if _runs(call, signature, signature.smallest()):
        return None
    return _first_that_runs(signature, call, _dtypes(signature), smallest_only=True)


@dataclass(frozen=True)
class _Change:
    index: int
    """Index of the input."""
    key: str
    item: Input
    """Replacement for the declared input."""
    hint: str


def _first_that_runs(
    signature: Signature, call: Call, changes: Iterable[_Change], *, smallest_only: bool = False
) -> Remedy | None:
    end = time.monotonic() + _MOST_SECONDS
    choices = [signature.smallest()] if smallest_only else sizes_to_try(signature)
    for change in changes:
        if time.monotonic() > end:
            break
        inputs = list(signature.inputs)
        inputs[change.index] = change.item
        if all(_runs(call, replace(signature, inputs=tuple(inputs)), choice) for choice in choices):
            return Remedy(
                ("inputs", change.index, change.key), _as_declared(signature.inputs[change.index]), change.hint
            )
    return None


def _as_declared(item: Input) -> str:
    return f"input {item.name!r} as {item.dtype} [{', '.join(map(str, item.shape))}]"


def _runs(call: Call, signature: Signature, choice: Choice) -> bool:
    with suppress(Exception):
        call(signature, choice)
        return True
    return False


def _largest_size(
    signature: Signature, call: Call, good: list[dict[str, int]], bad: list[dict[str, int]]
) -> Remedy | None:
    """Return the remedy for a method that runs up to a size below the declared maximum of one dimension.

    The size is found by bisection, with the minimum sizes of the other dimensions. Return None if more than one
    dimension is too large, if only the minimum size runs, if sizes above a failing one run, or if the time limit is
    reached.
    """
    smallest = signature.smallest()
    if smallest not in good or _is_equality(good, bad[0]):
        return None
    ranges = [(name, dim) for name, dim in signature.dims.items() if dim.max > dim.min]
    end = time.monotonic() + _MOST_SECONDS
    large = [(name, dim) for name, dim in ranges if not _runs(call, signature, {**smallest, name: dim.max})]
    if len(large) != 1:
        return None
    ((name, dim),) = large
    fits = max(choice[name] for choice in good if choice == {**smallest, name: choice[name]})
    fails = min([dim.max, *(choice[name] for choice in bad if choice == {**smallest, name: choice[name]})])
    while fits + dim.multiple_of < fails:
        size = dim.sizes[(dim.sizes.index(fits) + dim.sizes.index(fails)) // 2]
        if time.monotonic() > end:
            return None
        fits, fails = (size, fails) if _runs(call, signature, {**smallest, name: size}) else (fits, size)
    if fits == dim.min or fits > fails or not _runs(call, signature, {**smallest, name: fits - dim.multiple_of}):
        return None  # Without the last condition, multiples of a size would count as a range.
    which = "the range" if len(signature.dims) == 1 else f"the range of {name!r}"
    alone = len(ranges) > 1 and not _runs(call, signature, {**signature.largest(), name: fits})
    note = " with the minimum of the other sizes" if alone else ""
    hint = f"narrow {which}: the largest size that runs{note} is {fits}"
    return Remedy(("dims", name), f"{describe_choice(bad[0])} ({signature.describe()})", hint)


def _multiples(signature: Signature, call: Call, bad: Choice) -> Remedy | None:
    """Return the remedy for a method that runs only with multiples of a number; None if no such number was found."""
    end = time.monotonic() + _MOST_SECONDS
    for step in _STEPS:
        dims = {name: found for name, dim in signature.dims.items() if (found := _in_steps(dim, step)) is not None}
        if time.monotonic() > end or not dims or not _runs_with(signature, call, dims):
            continue
        for name in tuple(dims):
            fewer = {other: dim for other, dim in dims.items() if other != name}
            if fewer and _runs_with(signature, call, fewer):
                dims = fewer
        text = f"{describe_choice(bad)} ({signature.describe()})"
        changes = "; ".join(_change_of(name, signature.dims[name], dim) for name, dim in dims.items())
        hint = f"only multiples of {step} run: {changes}"
        return Remedy(("dims", *dims) if len(dims) == 1 else ("dims",), text, hint)
    return None


def _change_of(name: str, before: Dim, after: Dim) -> str:
    changed = [f"`multiple_of` of {name!r} to {after.multiple_of}"]
    changed += [f"`min` to {after.min}"] if after.min != before.min else []
    changed += [f"`max` to {after.max}"] if after.max != before.max else []
    return f"set {' and '.join(changed)}"


def _runs_with(signature: Signature, call: Call, dims: Mapping[str, Dim]) -> bool:
    changed = replace(signature, dims={**signature.dims, **dims})
    return all(_runs(call, changed, choice) for choice in sizes_to_try(changed))


def _in_steps(dim: Dim, step: int) -> Dim | None:
    """Return the dimension with only multiples of ``step`` as its sizes; None if these are too few."""
    least, most = -(-dim.min // step) * step, dim.max // step * step
    if step % dim.multiple_of or most - least < (_LEAST_MULTIPLES - 1) * step:
        return None
    return Dim(min=least, max=most, multiple_of=step)


def _is_equality(good: list[dict[str, int]], bad: Choice) -> bool:
    """Return True if the method runs only where all dimensions are equal, as far as the choices show."""
    return len(bad) > 1 and all(len(set(choice.values())) == 1 for choice in good) and len(set(bad.values())) > 1


def _of_dims(signature: Signature, good: list[dict[str, int]], bad: Choice) -> Remedy:
    """Return the remedy for a method that runs with only some of the sizes that the config permits."""
    names = list(signature.dims)
    one = names[0] if len(names) == 1 else None
    works = " and with ".join(describe_choice(choice) for choice in good)
    if _is_equality(good, bad):
        others = " and ".join(map(repr, names[1:]))
        hint = f"write {names[0]!r} in the shapes instead of {others}: the method runs where they are equal"
    elif one is not None and len(good) == 1:
        hint = (
            f"narrow the range, or write {good[0][one]} instead of {one!r} in the shapes: the method runs with {works}"
        )
    else:
        hint = f"narrow the range, or change the model so that the size is not fixed: the method runs with {works}"
    found = f"{describe_choice(bad)} ({signature.describe()})"
    return Remedy(("dims", one) if one is not None else ("dims",), found, hint)


_DTYPES = ("float32", "int64", "int32", "bool", "float16", "bfloat16", "float64")
"""Dtypes to try, in order of likelihood."""


def _dtypes(signature: Signature) -> Iterator[_Change]:
    for index, item in enumerate(signature.inputs):
        for dtype in _DTYPES:
            if dtype != item.dtype:
                changed = item.model_copy(update={"dtype": dtype})
                yield _Change(index, "dtype", changed, f"set `dtype` to {literal(dtype)}, with which the method runs")


def _shapes(signature: Signature, sizes: list[int]) -> Iterator[_Change]:
    for index, item in enumerate(signature.inputs):
        for shape, what in _other_shapes(item.shape, signature, sizes):
            changed = item.model_copy(update={"shape": shape})
            yield _Change(index, "shape", changed, f"{what}: set `shape` to {literal(list(shape))}")


_Shape = tuple[int | str, ...]


def _other_shapes(shape: _Shape, signature: Signature, sizes: list[int]) -> Iterator[tuple[_Shape, str]]:
    if not shape or isinstance(shape[0], int):  # A dynamic first axis is probably the batch.
        yield (1, *shape), "add a batch axis"
    if len(shape) == 3:
        yield (shape[0], 1, *shape[1:]), "add an axis of one channel"
        yield (*shape, 1), "add an axis of one channel"
    if len(shape) == 4:
        batch, one, two, three = shape
        yield (batch, three, one, two), "the method takes channels first"
        yield (batch, two, three, one), "the method takes channels last"
    for axis, declared in enumerate(shape):
        size = declared if isinstance(declared, int) else signature.dims[declared].max
        near = {other for step in (1, 2) for other in (size - step, size + step) if other > 0}
        for other in sorted({*sizes, *near} - {declared}, key=lambda other: (abs(other - size), other))[:_MOST_SIZES]:
            yield (*shape[:axis], other, *shape[axis + 1 :]), "use this size"
    if shape and isinstance(shape[0], int):
        yield shape[1:], "remove the first axis"


def tensor_sizes(module: torch.nn.Module) -> set[int]:
    """Return the sizes of all axes of the model's parameters and buffers; inputs often have the same sizes."""
    return {size for tensor in (*module.parameters(), *module.buffers()) for size in tensor.shape}
