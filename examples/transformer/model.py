"""A small language model of bytes: Llama's layers, with a key and value cache that `prefill` and `decode` share."""

import torch
from torch import Tensor, nn
from torch.nn import functional

SEED = 7
VOCABULARY = 128
"""Tokens are ASCII codes."""
LENGTH = 64
"""Number of positions in the caches; must equal ``constants.get_max_seq_len`` in etdev.yaml."""


class RMSNorm(nn.Module):
    """Scales each vector to a mean square of one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-5) * self.weight


class Attention(nn.Module):
    """Causal attention over all positions so far. Two buffers hold their keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.register_buffer("keys", torch.zeros(heads, LENGTH, self.size))
        self.register_buffer("values", torch.zeros(heads, LENGTH, self.size))

    def forward(self, x: Tensor, positions: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        query = rotate(self.split(self.query(x)), rotation)
        self.keys.index_copy_(1, positions, rotate(self.split(self.key(x)), rotation))
        self.values.index_copy_(1, positions, self.split(self.value(x)))
        scores = torch.bmm(query, self.keys.transpose(1, 2)) * self.size**-0.5
        later = torch.arange(LENGTH) > positions.unsqueeze(1)
        weights = scores.masked_fill(later, float("-inf")).softmax(dim=-1)
        return self.out(torch.bmm(weights, self.values).transpose(0, 1).flatten(1))

    def split(self, x: Tensor) -> Tensor:
        """(n, width) -> (heads, n, size)."""
        return x.unflatten(1, (self.heads, self.size)).transpose(0, 1)


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary embedding: rotate each vector's halves by the angles of its position."""
    cosine, sine = rotation
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1)


class Block(nn.Module):
    """Attention, then a gated feed-forward layer (SwiGLU)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * width, width, bias=False)
        self.before_attention, self.before_feed_forward = RMSNorm(width), RMSNorm(width)

    def forward(self, x: Tensor, positions: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.attention(self.before_attention(x), positions, rotation)
        inner = self.before_feed_forward(x)
        return x + self.down(functional.silu(self.gate(inner)) * self.up(inner))


class Transformer(nn.Module):
    """Language model from tokens to logits of the next token."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        half = width // heads // 2
        angles = torch.outer(torch.arange(LENGTH), 10000 ** (-torch.arange(half) / half))
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def prefill(self, tokens: Tensor) -> Tensor:
        """Process a prompt: (1, n) int64 -> (1, 128) logits."""
        return self.run(tokens, torch.arange(tokens.shape[1]))

    def decode(self, token: Tensor, position: Tensor) -> Tensor:
        """Process one token: (1, 1) int64 at the position (1,) int64 -> (1, 128) logits."""
        return self.run(token, position)

    def run(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """(1, n) tokens at (n,) positions -> (1, 128) logits."""
        rotation = self.cosine[positions], self.sine[positions]
        x = self.embed(tokens[0])
        for block in self.blocks:
            x = block(x, positions, rotation)
        return self.head(self.norm(x[-1:]))


def make(width: int = 64, heads: int = 4, layers: int = 2) -> nn.Module:
    """Return the network that etdev.yaml names. The weights are random, with a fixed seed."""
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        return Transformer(width, heads, layers)
