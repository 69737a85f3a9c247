"""The data: 178 wines of three growers, every fourth of them held out for tests."""

from collections.abc import Callable, Iterator

import torch
from sklearn.datasets import load_wine  # executorch brings scikit-learn
from torch import Tensor


def wines(*, held_out: bool) -> tuple[Tensor, Tensor]:
    """Return the held-out wines or all other wines: measurements (wines, 13), and growers (wines,)."""
    measurements, growers = load_wine(return_X_y=True)
    chosen = (torch.arange(len(growers)) % 4 == 0) == held_out
    return torch.from_numpy(measurements).float()[chosen], torch.from_numpy(growers)[chosen].long()


def samples() -> Iterator[tuple[Tensor]]:
    """Yield inputs for verification, in batches of 1, 2, 3 and so on. Each tuple has the inputs of one call."""
    measurements, _ = wines(held_out=True)
    for batch in measurements.split([1, 2, 3, 4, 5, 6, 7, 8, 9]):
        yield (batch,)


def accuracy(run: Callable[..., list[Tensor]]) -> float:
    """Return the fraction of held-out wines classified correctly. `run(*inputs)` calls the built program."""
    measurements, growers = wines(held_out=True)
    named = [run(batch)[0].argmax(dim=1) for batch in measurements.split(32)]
    return (torch.cat(named) == growers).float().mean().item()
