"""A MobileNetV2 of its published size with random weights, from transformers' default configuration."""

import torch
from torch import Tensor, nn
from transformers import MobileNetV2Config, MobileNetV2ForImageClassification


class Classifier(nn.Module):
    """Logits only."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = MobileNetV2ForImageClassification(MobileNetV2Config())

    def forward(self, pixels: Tensor) -> Tensor:
        return self.net(pixels, return_dict=False)[0]


def make() -> nn.Module:
    return Classifier()
