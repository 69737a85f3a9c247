"""Write `build/stock.pte`: the same network, exported by ExecuTorch alone for its own kernels."""

from pathlib import Path

import torch
from executorch.exir import to_edge_transform_and_lower
from safetensors.torch import load_model

from data import held_out
from model import make

FOLDER = Path(__file__).parent

model = make().eval()
load_model(model, FOLDER / "weights.safetensors")
exported = torch.export.export(model, (held_out()[0][:1],), strict=False)
program = to_edge_transform_and_lower(exported).to_executorch()
(FOLDER / "build").mkdir(exist_ok=True)
(FOLDER / "build" / "stock.pte").write_bytes(program.buffer)
