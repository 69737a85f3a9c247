"""State stays what it is between calls, whatever other methods do in the same memory (E2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from etdev.linker import LinkOptions, link
from etdev.program import write
from pipeline.stages.emit.emitting import Case, X, emit
from support.stock import shared_runtime

CACHE = Case(
    """
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(4, 8))
    def prefill(self, x):
        self.cache.copy_(x * 2)
        return self.cache.sum(0)
    def decode(self, x):
        self.cache.add_(x)
        return self.cache * 1
    def other(self, x):
        y = torch.cat([x, x + 1, x + 2, x + 3])
        return (y @ y.t()).relu().sum(1)
    """,
    {"prefill": X, "decode": X, "other": X},
)
"""Two methods on one cache, and one without state whose temporaries take more memory than theirs."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """The program with one cache for the methods that share it, and with one for each."""
    found = {}
    for share in (True, False):
        made = emit(tmp_path_factory.mktemp("cache"), replace(CACHE, share=share))
        linked = link(made.object.program, LinkOptions(share_state=share), made.object.sidecar)
        assert linked.shared_state == (("cache",) if share else ())
        found[share] = made.object.path.with_name("linked.pte")
        write(linked.program, found[share])
    return found


@pytest.mark.parametrize(
    ("share", "one_memory"),
    [(True, True), (False, True), (False, False)],
    ids=["shared", "apart in one memory", "apart in a memory for each method"],
)
def test_calls_one_after_the_other(share: bool, one_memory: bool, files: dict[bool, Path]) -> None:
    runtime = shared_runtime()
    runtime.load(files[share], shared=one_memory)
    generator = torch.Generator().manual_seed(0)
    caches: Mapping[str, torch.Tensor] = {"prefill": torch.zeros(4, 8), "decode": torch.zeros(4, 8)}
    if share:
        caches = dict.fromkeys(caches, torch.zeros(4, 8))

    for method in ("prefill", "other", "decode", "other", "other", "decode", "prefill", "decode", "other", "decode"):
        x = torch.randn(4, 8, generator=generator)
        (answer,) = runtime.call(method, (x,))
        if method == "prefill":
            wanted = caches["prefill"].copy_(x * 2).sum(0)
        elif method == "decode":
            wanted = caches["decode"].add_(x)
        else:
            y = torch.cat([x, x + 1, x + 2, x + 3])
            wanted = (y @ y.t()).relu().sum(1)
        torch.testing.assert_close(answer, wanted)
