"""Remedies for tensors that do not fit into memory banks."""

from __future__ import annotations

import pytest

from etdev.decisions import TilingDecision
from etdev.errors import CapacityError
from etdev.pipeline.stages.link.linking import _tiling_remedy

TILED = TilingDecision(True, 64, 512, "without tiling, the method needs 2,048 bytes, and the memory banks have 1,024")
NO_USE = TilingDecision(False, 0, 512)
TOO_LARGE = TilingDecision(False, 64, 512)
ALWAYS = ["set `memory.tiling` to `always`"]


@pytest.mark.parametrize(
    ("setting", "exceeds_all", "tilings", "remedy"),
    [
        ("auto", True, (None,), []),
        ("auto", False, (None,), ALWAYS),
        ("auto", False, (TILED, TOO_LARGE), ALWAYS),
        ("auto", False, (TILED, NO_USE), []),
        ("off", True, (None,), ["set `memory.tiling` to `auto`"]),
        ("always", False, (None,), []),
    ],
)
def test_tiling_is_a_remedy_only_if_it_was_not_tried(
    setting: str, exceeds_all: bool, tilings: tuple[TilingDecision | None, ...], remedy: list[str]
) -> None:
    """A reproducer: the message advised `always` although `auto` had tried it, and `always` ended in the same error."""
    error = CapacityError("the tensors do not fit", remedies=(), exceeds_all=exceeds_all)
    assert _tiling_remedy(setting, tilings, error) == remedy
    assert _tiling_remedy(setting, tilings, error.with_remedies(["use smaller inputs"])) == remedy
