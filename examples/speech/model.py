"""A small network like wav2vec 2.0: convolutions over the waveform, then self-attention over frames."""

from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS = 32, 4
CONVOLUTIONS = ((16, 10, 5), (24, 8, 4), (WIDTH, 4, 2), (WIDTH, 4, 2))
"""Channels, size and stride of each: one frame for each 80 samples."""


class Encoder(nn.Module):
    """Waveforms (batch, samples) -> frames (batch, n, width)."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 1
        for width, size, stride in CONVOLUTIONS:
            layers += [nn.Conv1d(channels, width, size, stride, bias=False), nn.BatchNorm1d(width), nn.ReLU()]
            channels = width
        self.layers = nn.Sequential(*layers)

    def forward(self, waveforms: Tensor) -> Tensor:
        return self.layers(waveforms.unsqueeze(1)).transpose(1, 2)


class Block(nn.Module):
    """Self-attention over all frames, then a feed-forward layer."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_feed_forward = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.feed_forward = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        y = self.before_attention(x)
        query, key, value = (self.split(layer(y)) for layer in (self.query, self.key, self.value))
        mixed = functional.scaled_dot_product_attention(query, key, value)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.feed_forward(self.before_feed_forward(x))

    def split(self, x: Tensor) -> Tensor:
        """(batch, n, width) -> (batch, heads, n, size)."""
        return x.unflatten(2, (HEADS, WIDTH // HEADS)).transpose(1, 2)


class Commands(nn.Module):
    """Waveforms (batch, samples) float32 in -1..1 -> (batch, classes) logits."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.encode = Encoder()
        self.positions = nn.Conv1d(WIDTH, WIDTH, 9, padding=4, groups=4)
        self.block = Block()
        self.classify = nn.Linear(WIDTH, classes)

    def forward(self, waveforms: Tensor) -> Tensor:
        frames = self.encode(waveforms)
        places = self.positions(frames.transpose(1, 2)).transpose(1, 2)
        return self.classify(self.block(frames + functional.gelu(places)).mean(dim=1))


def make(classes: int = 6) -> nn.Module:
    """Return the network that etdev.toml names."""
    return Commands(classes)
