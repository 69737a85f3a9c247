"""Inputs of a method: generated from the config's declaration, or checked against the declaration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from etdev.config.describe.notation import literal
from etdev.config.keys import suggest
from etdev.config.models import Dim, Input, Method
from etdev.errors import EtdevError, LoadError
from etdev.pipeline.project import Project
from etdev.pipeline.project.torch_tensors import Tensors, random_tensor
from etdev.pipeline.project.usercode import UserCode, translated


@dataclass(frozen=True)
class Signature:
    """The declared inputs of one method."""

    method: str
    inputs: tuple[Input, ...]
    dims: Mapping[str, Dim]

    @classmethod
    def of(cls, name: str, method: Method) -> Signature:
        """Return the signature that ``[methods.NAME]`` of the config declares."""
        return cls(name, method.inputs or (), method.dims)

    def sizes(self, choice: Mapping[str, int]) -> list[tuple[int, ...]]:
        """Return the shape of every input; ``choice`` maps each dynamic dimension to a size."""
        return [tuple(choice[size] if isinstance(size, str) else size for size in item.shape) for item in self.inputs]

    def largest(self) -> dict[str, int]:
        """Return the maximum size of every dynamic dimension, by name."""
        return {name: dim.max for name, dim in self.dims.items()}

    def smallest(self) -> dict[str, int]:
        """Return the minimum size of every dynamic dimension, by name."""
        return {name: dim.min for name, dim in self.dims.items()}

    def describe_each(self) -> tuple[str, ...]:
        """Return a text for each input, such as ``image: float32 [batch, 1, 8, 8]``."""
        return tuple(f"{item.name}: {item.dtype} [{', '.join(map(str, item.shape))}]" for item in self.inputs)

    def describe(self) -> str:
        """Return all inputs as one text."""
        return ", ".join(self.describe_each())


@dataclass(frozen=True)
class Call:
    """One call of a method: its name and its inputs."""

    method: str
    inputs: Tensors


def make_inputs(signature: Signature, choice: Mapping[str, int], seed: int = 0) -> Tensors:
    """Return random inputs with the declared dtypes; ``choice`` maps each dynamic dimension to a size."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    shapes = zip(signature.inputs, signature.sizes(choice), strict=True)
    return tuple(random_tensor(shape, getattr(torch, item.dtype), generator) for item, shape in shapes)


def random_samples(signature: Signature) -> Iterator[Tensors]:
    """Yield random inputs for a method without samples.

    There are two samples of the largest sizes. If the method has dynamic dimensions, a sample of the smallest sizes is
    between them.
    """
    yield make_inputs(signature, signature.largest(), seed=1)
    if signature.dims:
        yield make_inputs(signature, signature.smallest(), seed=2)
    yield make_inputs(signature, signature.largest(), seed=3)


def read_samples(
    user: UserCode, function: object, entry: str, signature: Signature, where: str, kind: type[EtdevError] = LoadError
) -> Iterator[Tensors]:
    """Yield the tuples from a config's ``samples`` or ``calibration`` function, each checked against the declaration.

    Items are requested from the function one at a time. Raises ``kind`` if the user's code fails or an item does not
    match. The message identifies the sample, the input and the axis.
    """
    hint = "return or yield tuples of tensors"
    for index, sample in _items(user, function, entry, where, kind, "sample", "tuples of tensors", hint):
        problem = check_sample(sample, signature)
        if problem is not None:
            raise kind(
                f"{entry!r} returns inputs that method {signature.method!r} does not accept: sample {index}: {problem}",
                where=where,
                hint=_sample_hint(sample, signature),
            )
        yield tuple(sample)


def samples_at(
    project: Project,
    user: UserCode,
    entry: str,
    signature: Signature,
    key: tuple[str, ...],
    kind: type[EtdevError] = LoadError,
) -> Iterator[Tensors]:
    """Yield the samples of the function ``entry``, which the config names at ``key``. Each sample is checked."""
    where = project.where(*key)
    return read_samples(user, user.get(entry, project.base(*key), where), entry, signature, where, kind)


def read_sessions(
    user: UserCode, function: object, entry: str, signatures: Mapping[str, Signature], where: str
) -> Iterator[tuple[Call, ...]]:
    """Yield the sessions from a config's ``sessions`` function; check each call against the declaration of its method.

    Items are requested from the function one at a time. Raises :class:`~etdev.errors.LoadError` if the user's code
    fails or a call does not match. The message identifies the session and the call.
    """
    hint = "return or yield sessions, each a list of pairs (method, inputs)"
    for index, session in _items(user, function, entry, where, LoadError, "session", "lists of calls", hint):
        if not isinstance(session, tuple | list) or not session:
            what = "it is empty" if isinstance(session, tuple | list) else f"it is {_kind(session)}"
            raise LoadError(f"{entry!r}: session {index} is not a list of calls: {what}", where=where, hint=hint)
        calls = []
        for number, call in enumerate(session):
            problem = _check_call(call, signatures)
            if problem is not None:
                text, remedy = problem
                raise LoadError(f"{entry!r}: session {index}, call {number}: {text}", where=where, hint=remedy or hint)
            calls.append(Call(call[0], tuple(call[1])))
        yield tuple(calls)


def _check_call(call: object, signatures: Mapping[str, Signature]) -> tuple[str, str | None] | None:
    """Return the problem with one call of a session, and a remedy if one is known; None if the call is valid."""
    if not isinstance(call, tuple | list):
        return f"it is {_kind(call)}, not a pair (method, inputs)", None
    if len(call) != 2 or not isinstance(call[0], str):
        return f"it contains {', '.join(map(_kind, call)) or 'nothing'} instead of a method's name and its inputs", None
    method, inputs = call
    if method not in signatures:
        hint = suggest(method, signatures, f"the methods are: {', '.join(signatures)}", repr)
        return f"there is no method {method!r}", hint
    problem = check_sample(inputs, signatures[method])
    if problem is None:
        return None
    return (
        f"method {method!r} does not accept the inputs: {problem}",
        f"the config declares {signatures[method].describe()}",
    )


def _items(
    user: UserCode,
    function: object,
    entry: str,
    where: str,
    kind: type[EtdevError],
    noun: str,
    elements: str,
    hint: str,
) -> Iterator[tuple[int, Any]]:
    """Yield the items that a user's function returns or yields, each with its number.

    Raises ``kind`` if there are no items. In messages, ``noun`` is the word for one item, and ``elements`` describes
    all items.
    """
    assert callable(function)
    with translated(user, kind, f"{entry!r} failed", where=where):
        result = function()
        iterator = iter(result) if isinstance(result, Iterable) else None
    if iterator is None:
        raise kind(f"{entry!r} returned {_kind(result)}, not an iterable of {elements}", where=where, hint=hint)
    index = 0
    while True:
        with translated(user, kind, f"{entry!r} failed at {noun} {index}", where=where):
            try:
                item = next(iterator)
            except StopIteration:
                break
        yield index, item
        index += 1
    if index == 0:
        raise kind(f"{entry!r} returned no {noun}s", where=where, hint="check that the function finds its data")


def check_sample(sample: object, signature: Signature) -> str | None:
    """Return the problem with one sample as a sentence; None if the sample matches the declaration."""
    import torch

    if not isinstance(sample, tuple | list):
        names = [item.name for item in signature.inputs]
        return f"it is {_kind(sample)}, not a tuple of tensors such as ({', '.join(names)}{',' * (len(names) == 1)})"
    if len(sample) != len(signature.inputs):
        count = f"{len(sample)} value{'s' * (len(sample) != 1)}"
        return f"it contains {count}, but the method takes {len(signature.inputs)}"
    bound: dict[str, int] = {}
    for item, value in zip(signature.inputs, sample, strict=True):
        if not isinstance(value, torch.Tensor):
            return f"input {item.name!r} is {_kind(value)}, not a tensor"
        if value.device.type != "cpu":
            return f"input {item.name!r} is on the device {str(value.device)!r}, not on the CPU"
        if value.layout != torch.strided:
            return f"input {item.name!r} has the layout {value.layout} instead of a dense layout"
        if value.dtype != getattr(torch, item.dtype):
            return f"input {item.name!r} is {str(value.dtype).removeprefix('torch.')}, but is declared as {item.dtype}"
        problem = check_shape(item, tuple(value.shape), signature.dims, bound)
        if problem is not None:
            return problem
    return None


def _sample_hint(sample: object, signature: Signature) -> str:
    """Return the help for a sample with a problem: the declaration, and a remedy if one is known."""
    remedy = _sample_remedy(sample, signature)
    return f"the config declares {signature.describe()}" + (f"; {remedy}" if remedy else "")


def _sample_remedy(sample: object, signature: Signature) -> str | None:
    """Return a change of the config, or of the sample, that fixes the sample's problem; None if none is known."""
    import torch

    if not isinstance(sample, tuple | list):
        return None
    if len(sample) > len(signature.inputs):
        names = ", ".join(item.name for item in signature.inputs)
        first = f"({names}{',' * (len(signature.inputs) == 1)})"
        return f"yield only the inputs of the method, without labels: {first}" if names else None
    if len(sample) != len(signature.inputs):
        return None
    for item, value in zip(signature.inputs, sample, strict=True):
        if not isinstance(value, torch.Tensor):
            return None
        dtype, shape = str(value.dtype).removeprefix("torch."), tuple(value.shape)
        if dtype != item.dtype:
            convert = f"convert {item.name!r} in the samples with `.to(torch.{item.dtype})`"
            return f"{convert}, or set its `dtype` to {literal(dtype)} if the model takes that"
        if len(shape) + 1 == len(item.shape) and check_shape(item, (1, *shape), signature.dims, {}) is None:
            return f"add a batch axis to {item.name!r} in the samples: tensor.unsqueeze(0)"
        if len(shape) != len(item.shape):
            return f"if the samples are right, declare a shape of {len(shape)} axes for {item.name!r}"
        if check_shape(item, shape, signature.dims, {}) is not None:
            return _size_remedy(item, shape, signature.dims)
    return None


_CHANNEL_ORDERS = {3: ((2, 0, 1), (1, 2, 0)), 4: ((0, 3, 1, 2), (0, 2, 3, 1))}
"""Maps a number of axes to the permutations of an image that move its channels first or last."""


def _size_remedy(item: Input, shape: tuple[int, ...], dims: Mapping[str, Dim]) -> str | None:
    for order in _CHANNEL_ORDERS.get(len(shape), ()):
        if check_shape(item, tuple(shape[axis] for axis in order), dims, {}) is None:
            return f"move the channels of {item.name!r} in the samples: tensor.permute{order}"
    for size, expected in zip(shape, item.shape, strict=True):
        if isinstance(expected, str) and size not in dims[expected].sizes:
            inside = dims[expected].min <= size <= dims[expected].max
            change = "lower `multiple_of`" if inside else "extend the range"
            return f"if the samples are right, {change} of {expected!r} to include {size}"
    right = [size if isinstance(expected, int) else expected for size, expected in zip(shape, item.shape, strict=True)]
    if right == list(item.shape):
        return None
    expected = item.shape[0]
    if (
        isinstance(expected, int)
        and right[1:] == list(item.shape[1:])
        and shape[0] > expected > 0 == shape[0] % expected
    ):
        first = f"yield {shape[0] // expected} samples of {expected} each, such as `{item.name}.split({expected})`"
        return f"{first}, or set `shape` of {item.name!r} to {literal(right)}"
    return f"if the samples are right, set `shape` of {item.name!r} to {literal(right)}"


def check_shape(item: Input, shape: tuple[int, ...], dims: Mapping[str, Dim], bound: dict[str, int]) -> str | None:
    """Return the problem with the shape of an input; None if it matches the declaration.

    ``bound`` maps the dynamic dimensions of earlier inputs to their sizes, and receives those of this one.
    """
    declared = f"[{', '.join(map(str, item.shape))}]"
    found = f"input {item.name!r} has the shape {list(shape)}, but is declared as {declared}"
    if len(shape) != len(item.shape):
        return found
    for axis, (size, expected) in enumerate(zip(shape, item.shape, strict=True)):
        if isinstance(expected, int):
            if size != expected:
                return f"{found}: axis {axis} is {size} instead of {expected}"
            continue
        dim = dims[expected]
        if size not in dim.sizes:
            return f"{found}: axis {axis} is {size}, which is outside {expected!r} = {dim.describe()}"
        if bound.setdefault(expected, size) != size:
            return f"{found}: {expected!r} is {size} here, but {bound[expected]} at an earlier axis"
    return None


def _kind(value: object) -> str:
    import torch

    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {list(value.shape)}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
