"""Train the network and write weights.safetensors. Seeded: a machine always computes the same weights."""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from data import SEED, accuracy, training_patches
from model import make

STEPS = 400
BATCH = 48


def train() -> nn.Module:
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)  # the order of sums depends on the number of threads

    generator = torch.Generator().manual_seed(SEED)
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=STEPS)
    total = 0.0
    for step in range(1, STEPS + 1):
        patches, labels = training_patches(BATCH, generator)
        loss = nn.functional.cross_entropy(model(patches), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        total += loss.item()
        if step % 50 == 0:
            print(f"step {step}: loss {total / 50:.4f}")
            total = 0.0
    return model.eval()


def main() -> None:
    model = train()
    with torch.inference_mode():
        print(f"held-out accuracy {accuracy(lambda patch: [model(patch)]):.4f}")
    save_file(model.state_dict(), Path(__file__).parent / "weights.safetensors")


if __name__ == "__main__":
    main()
