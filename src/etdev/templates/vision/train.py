"""Training of the model. `python train.py` writes weights.safetensors, and takes about ten seconds on one core."""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from data import accuracy, images
from model import make

EPOCHS = 25
BATCH = 64


def train() -> nn.Module:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the order of sums depends on the number of threads
    pixels, digits = images(held_out=False)
    model = make()
    model.mean.copy_(pixels.float().mean())
    model.scale.copy_(1 / pixels.float().std())
    steps = EPOCHS * -(-len(digits) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=steps)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(digits)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(pixels[batch]), digits[batch]).backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def main() -> None:
    model = train()
    with torch.inference_mode():
        print(f"held-out accuracy {accuracy(lambda pixels: [model(pixels)]):.3f}")
    save_file(model.state_dict(), Path(__file__).parent / "weights.safetensors")


if __name__ == "__main__":
    main()
