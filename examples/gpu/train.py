"""Train the network and write weights.safetensors. Seeded: a machine always computes the same weights."""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from data import SEED, accuracy, split
from model import make

EPOCHS = 30
BATCH = 64


def train() -> nn.Module:
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)  # the order of sums depends on the number of threads

    (images, labels), _ = split()
    model = make()
    steps_per_epoch = -(-len(labels) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=EPOCHS * steps_per_epoch)

    for epoch in range(EPOCHS):
        model.train()
        total = 0.0
        for batch in torch.randperm(len(labels)).split(BATCH):
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(batch)
        print(f"epoch {epoch + 1:2}: loss {total / len(labels):.4f}")
    return model.eval()


def main() -> None:
    model = train()
    with torch.inference_mode():
        print(f"held-out accuracy {accuracy(lambda images: [model(images)]):.4f}")
    save_file(model.state_dict(), Path(__file__).parent / "weights.safetensors")


if __name__ == "__main__":
    main()
