"""The largest batch that a file takes, where the config (or the `Dim`) says 32: stock lowering against etdev.

The digits example, lowered to XNNPACK. By hand the model is exported with an example of `--example` images; etdev
chooses its own example. Prints the batch in the emitted input, and whether the stock runtime takes 32 images.

    python benchmarks/dynamic_batch.py [--example N]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
MAXIMUM = 32


def by_hand(example: int, out: Path) -> Path:
    """Export, lower and emit as ExecuTorch's documentation does it."""
    sys.path.insert(0, str(DIGITS))
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    from model import make

    batch = torch.export.Dim("batch", min=1, max=MAXIMUM)
    program = torch.export.export(make().eval(), (torch.randn(example, 1, 8, 8),), dynamic_shapes=({0: batch},))
    emitted = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch()
    path = out / "hand.pte"
    with path.open("wb") as file:
        emitted.write_to_file(file)
    return path


def by_etdev(out: Path) -> Path:
    """The example as it is configured."""
    import etdev

    overrides = [f"project.out={json.dumps(str(out))}"]
    result = etdev.build(DIGITS / "etdev.toml", targets=["xnnpack"], verify=False, overrides=overrides, environ={})
    return result.path("xnnpack")


def report(name: str, path: Path) -> None:
    """Print what the file's input holds at most, and try that many images."""
    import torch
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(path)
    largest = program.metadata("forward").input_tensor_meta(0).sizes()[0]
    try:
        program.load_method("forward").execute([torch.zeros(MAXIMUM, 1, 8, 8)])
        answer = "runs"
    except RuntimeError as error:
        answer = f"refused: {error}"
    print(f"{name}: largest batch {largest}; a batch of {MAXIMUM}: {answer}")


def main() -> None:
    """Build both and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--example", type=int, default=3, help="batch of the example by hand")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report(f"by hand, example of {arguments.example}", by_hand(arguments.example, Path(folder)))
        report("etdev", by_etdev(Path(folder)))


if __name__ == "__main__":
    main()
