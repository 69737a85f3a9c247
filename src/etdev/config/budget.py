"""Models of the config tables that limit a build: `budget` and `baseline`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

from etdev.config.table import Table
from etdev.config.types import (
    BaselineSource,
    ByteSize,
    Duration,
    Expected,
    Growth,
    Identifier,
    Share,
    canonical_device,
)
from etdev.devices import valid_names

BANK_NAME = "[A-Za-z0-9][A-Za-z0-9._-]*"
"""Pattern of the name of a memory bank."""


def _memory_name(value: str) -> str:
    try:
        return canonical_device(value)
    except ValueError:
        if re.fullmatch(BANK_NAME, value):
            return value
        raise


MemoryName = Annotated[
    str,
    AfterValidator(_memory_name),
    Expected(f"a device ({valid_names()}) or a memory bank", example="cpu"),
    WithJsonSchema({"type": "string", "pattern": f"^({BANK_NAME}|[A-Za-z]+:[0-9]{{1,9}})$"}),
]
"""Canonical name of a device, such as ``cuda:0``, or the name of a memory bank."""


class Latency(Table):
    """Limits on the time of one call in the stock runtime on this machine. At least one percentile is required."""

    p50: Duration | None = Field(None, description="Maximum time for half of the calls.")
    p95: Duration | None = Field(None, description="Maximum time for 95 of 100 calls.")
    p99: Duration | None = Field(None, description="Maximum time for 99 of 100 calls.")
    method: Identifier | None = Field(
        None, description="The method to call, with its `samples` in turn. Required if there are several methods."
    )


class GrowthLimits(Table):
    """Maximum growth over the baseline: a percentage of the baseline's figure (`"2%"`) or a size."""

    file: Growth | None = Field(None, description="Growth of the `.pte` file.")
    weights: Growth | None = Field(None, description="Growth of the weights in the program and its data files.")
    memory: Growth | None = Field(
        None, description="Growth of the planned memory of each device, and of each bank that the baseline has."
    )
    copies: Growth | None = Field(
        None,
        description="Growth of the bytes that one call of a method copies between the host and devices, in "
        "both directions.",
    )


class Budget(Table):
    """Limits on the artifact. A build that misses a limit fails with exit code 1 and keeps the artifact."""

    file: ByteSize | None = Field(None, description="Maximum size of the `.pte` file, without external weights.")
    weights: ByteSize | None = Field(
        None,
        description="Maximum bytes of weights, in the program and its data files: constants, and the data that "
        "delegates look up by name. Weights inside a delegate's blob only count for `file`.",
    )
    memory: dict[MemoryName, ByteSize] = Field(
        default_factory=dict,
        description="Maximum planned memory of each device, including programs in delegates, and of each bank of "
        '`memory.banks`: `{ cpu = "256KiB", "cuda:0" = "64MiB" }`, `{ sram = "100KiB" }`.',
    )
    ram: ByteSize | None = Field(
        None,
        description="Largest RAM of the target on the host: planned memory, the pools of ExecuTorch's method and "
        "temporary allocators, and the heap of delegates and kernels, with all methods loaded. It is measured in "
        "ExecuTorch's C++ runtime on this machine. A program that cannot run there fails only if the parts that are "
        "known without a run exceed the limit.",
    )
    scratch: ByteSize | None = Field(
        None,
        description="Maximum scratch memory of a delegate, which the runtime takes from its temporary allocator "
        "during a call. Delegates of Ethos-U have scratch memory.",
    )
    fast_scratch: ByteSize | None = Field(
        None,
        description="Maximum scratch memory of a delegate in fast memory. Ethos-U uses it with a memory mode such as "
        "`Dedicated_Sram`.",
    )
    copies: ByteSize | None = Field(
        None,
        description="Maximum bytes that one call of a method copies between the host and devices, in both directions.",
    )
    delegated: Share | None = Field(
        None, description="Minimum share of the ops in delegates, from 0 to 1, over all methods."
    )
    latency: Latency | None = Field(
        None, description="Limits on the time of a call, which the check `latency` measures."
    )
    growth: GrowthLimits = Field(
        default_factory=GrowthLimits,
        description="Maximum growth of the file and of its memory, weights and copies over the baseline. Needs "
        "`baseline.from`.",
    )


class Baseline(Table):
    """An earlier build. `budget.growth` limits the growth since that build.

    Without figures of the earlier build, the check `growth` does not run.
    """

    from_: BaselineSource = Field(
        alias="from",
        description="`git:REF`, the commit whose lock has the figures; the output folder of another "
        "build; or a `.pte` file, if only one target is built.",
    )
