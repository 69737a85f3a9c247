"""Tables of the config that limit a build: budgets, and the baseline for the growth limits."""

from __future__ import annotations

from pydantic import Field

from etdev.config.table import Table
from etdev.config.types import BaselineSource, ByteSize, DeviceName, Duration, Growth, Identifier, Share


class Latency(Table):
    """Limits on the time of one call in the stock runtime on this machine. At least one percentile is required."""

    p50: Duration | None = Field(None, description="Longest time that half of the calls may take.")
    p95: Duration | None = Field(None, description="Longest time that 95 of 100 calls may take.")
    p99: Duration | None = Field(None, description="Longest time that 99 of 100 calls may take.")
    method: Identifier | None = Field(
        None, description="The method that is called, with its `samples` in turn. Required if there are several."
    )


class GrowthLimits(Table):
    """Largest growth over the baseline: a percentage of it (`"2%"`) or a size."""

    file: Growth | None = Field(None, description="Growth of the `.pte` file.")
    weights: Growth | None = Field(None, description="Growth of the weights in it or next to it.")
    memory: Growth | None = Field(None, description="Growth of the planned memory of each device.")
    copies: Growth | None = Field(
        None, description="Growth of what one call of a method copies between devices, both ways together."
    )


class Budget(Table):
    """Limits on the artifact. A build that misses one fails with exit code 1 and keeps the artifact."""

    file: ByteSize | None = Field(None, description="Largest size of the `.pte` file, without external weights.")
    weights: ByteSize | None = Field(
        None,
        description="Most bytes of weights, in the file or next to it: constants, and the data that delegates look up "
        "by name. Weights inside a delegate's blob count for `file` alone.",
    )
    memory: dict[DeviceName, ByteSize] = Field(
        default_factory=dict,
        description="Largest planned memory of each device, that of programs in delegates included: "
        '`{ cpu = "256KiB", "cuda:0" = "64MiB" }`.',
    )
    ram: ByteSize | None = Field(
        None,
        description="Largest RAM of the target on the host: planned memory, the pools of ExecuTorch's method and "
        "temporary allocators, and the heap of delegates, with all methods loaded. It is measured in ExecuTorch's C++ "
        "runtime on this machine.",
    )
    copies: ByteSize | None = Field(
        None, description="Most bytes that one call of a method copies between devices, both ways together."
    )
    delegated: Share | None = Field(
        None, description="Smallest share of the ops that delegates take, from 0 to 1, of all methods together."
    )
    latency: Latency | None = Field(None, description="Limits on the time of a call. The check `latency` measures it.")
    growth: GrowthLimits = Field(
        default_factory=GrowthLimits,
        description="How much larger than the baseline's the file and what it takes may be. Needs `baseline.from`.",
    )


class Baseline(Table):
    """Earlier build that `budget.growth` compares with. If it has no figures, the check `growth` does not run."""

    from_: BaselineSource = Field(
        alias="from",
        description="`git:REF`, whose `etdev.lock` has the figures; the output folder of another build; or a `.pte` "
        "file, if one target is built.",
    )
