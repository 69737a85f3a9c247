"""A small decoder with a cache, written in several ways: delegate calls, ops outside of delegates, and planned memory.

All ways compute the same. Each row adds one change. The files are verified.

    python benchmarks/decoder.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import etdev

CONFIG = Path(__file__).resolve().parent / "decoder_project" / "etdev.toml"
WAYS = {
    "as usual": (),
    "the mean of a norm is a product": ("norm",),
    "softmax instead of `scaled_dot_product_attention`": ("norm", "attention"),
    "no `repeat_interleave`: heads of a group are rows": ("norm", "attention", "groups"),
    "`torch.bmm` instead of `@`": ("norm", "attention", "groups", "products"),
}
"""Arguments of the model that are not as usual."""


def main() -> None:
    """Build all and print the table."""
    print("| written | delegate calls | ops outside | XNNPACK, planned bytes | portable, planned bytes |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, chosen in WAYS.items():
        with tempfile.TemporaryDirectory() as folder:
            overrides = (f'project.out="{folder}"', *(f'model.kwargs.{key}="other"' for key in chosen))
            result = etdev.build(CONFIG, overrides=overrides, environ={})
            assert result.ok
            delegated, portable = result["xnnpack"], result["portable"]
            (method,) = delegated.methods
            calls, outside = sum(method.delegate_calls.values()), sum(item.count for item in method.undelegated)
            sizes = (f"{sum(target.memory.values()):,}" for target in (delegated, portable))
            print(f"| {name} | {calls} | {outside} | {' | '.join(sizes)} |", flush=True)


if __name__ == "__main__":
    main()
