"""What workers do in tests. Arrays are computed on as code of the device does."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np


def nothing() -> None:
    """An empty task."""


def give(value: Any) -> Any:
    """The value."""
    return value


def fail(words: str) -> None:
    """Fail with these words."""
    raise ValueError(words)


def total(*arrays: Any) -> float:
    """The sum of all elements."""
    return float(sum(array.device_numpy().sum() for array in arrays))


def fill(array: Any, value: float) -> None:
    """Write a value everywhere."""
    array.device_numpy()[...] = value


def add(array: Any, value: float) -> None:
    """Add a value everywhere."""
    array.device_numpy()[...] += value


def scale(origin: Any, weights: Any, target: Any) -> str:
    """``target = origin * weights``."""
    target.device_numpy()[...] = origin.device_numpy() * weights.device_numpy()
    return "scaled"


def split(low: Any, weights: Any, high: Any) -> None:
    """``weights - 1`` and ``weights + 1``."""
    low.device_numpy()[...] = weights.device_numpy() - 1
    high.device_numpy()[...] = weights.device_numpy() + 1


def sneak(array: Any, value: float) -> None:
    """Write to an argument, whatever the task said of it."""
    array.device_numpy()[...] = value


def sneak_by_torch(array: Any, how: str) -> None:
    """Write to an argument through torch, whatever the task said of it."""
    import torch

    tensor = array.tensor()
    ways: dict[str, Any] = {
        "fill": lambda: tensor.fill_(9),
        "item": lambda: tensor.__setitem__(0, 9.0),
        "out": lambda: torch.add(torch.ones(tensor.shape), 1, out=tensor),
        "view": lambda: tensor.view(2, -1)[1].add_(1),
        "bytes": lambda: tensor.view(torch.uint8).zero_(),
        "detached": lambda: tensor.detach().mul_(2),
        "data": lambda: tensor.data.mul_(2),
        "inference": torch.inference_mode()(lambda: tensor.reshape(2, -1).mul_(2)),
        "list": lambda: torch._foreach_add_([torch.ones(8), tensor], 1),
        "set": lambda: torch.empty(0).set_(tensor).zero_(),
        "numpy": lambda: tensor.numpy().fill(9),
        "flags": lambda: setattr(tensor.numpy().flags, "writeable", True),
        "address": tensor.data_ptr,
        "storage": tensor.untyped_storage,
        "capsule": lambda: torch.from_dlpack(tensor),
        "norm": lambda: torch.nn.functional.batch_norm(torch.rand(4, 8), tensor, torch.ones(8), training=True),
        "relu": lambda: torch.nn.functional.relu(tensor, inplace=True),
        "copy": lambda: array.fill_from(bytes(array.nbytes)),
    }
    ways[how]()


def read_by_torch(array: Any) -> float:
    """Read an argument in many ways, and do not write to it."""
    import copy

    import torch

    tensor = array.tensor()
    copied = copy.deepcopy(tensor)
    copied += 1
    product = torch.ones(1, 8) @ tensor.reshape(8, 1)
    product += 1
    assert "read-only" in repr(tensor)
    assert tensor.tolist() == list(np.asarray(tensor)) == list(tensor.clone().numpy())
    return float(product) - 1 + float(copied.sum() - tensor.sum() - 8)


def give_tensor(array: Any) -> Any:
    """The argument as a torch tensor, as a result."""
    return array.tensor()


def keep(array: Any) -> Any:
    """An object that keeps an argument."""
    return [array]


def use_kept(kept: Any, how: str) -> Any:
    """Use what another task was given."""
    return getattr(kept[0], how)()


def read_on_the_host(array: Any) -> float:
    """What code of the host does: not for memory of a device."""
    return float(np.asarray(array).sum())


def back(array: Any) -> Any:
    """The array itself as a result."""
    return array


def wait_for(path: str, *_: Any) -> str:
    """Be busy until a file is there."""
    end = time.monotonic() + 60
    while not Path(path).exists():
        if time.monotonic() > end:
            raise TimeoutError(path)
        time.sleep(0.002)
    return "waited"


def begin_and_wait(begun: str, path: str, *_: Any) -> str:
    """Make a file, and be busy until another one is there."""
    Path(begun).touch()
    return wait_for(path)


def note(path: str, word: str) -> None:
    """Write a line to a file."""
    with Path(path).open("a") as file:
        file.write(f"{word}\n")


def pid() -> int:
    """Of the process."""
    return os.getpid()


class Counter:
    """An object that stays on its worker."""

    def __init__(self, start: int, log: str = "") -> None:
        self.value, self.log = start, log

    def close(self) -> None:
        """Say so."""
        if self.log:
            note(self.log, "closed")


def count(counter: Counter, by: int) -> int:
    """Count on."""
    counter.value += by
    return counter.value


def refuse(*_: Any) -> None:
    """An object that is not to be had."""
    raise ValueError("no such object")


class StubbornError(Exception):
    """An error that cannot be sent."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def fail_stubbornly() -> None:
    """Fail with what cannot be sent."""
    raise StubbornError(1, 2)
