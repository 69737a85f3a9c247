"""A small decoder with a cache, written in several ways that compute the same."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, GROUPS, LAYERS, POSITIONS, VOCABULARY = 64, 8, 2, 2, 128, 256
HEAD = WIDTH // HEADS
USUAL, OTHER = "usual", "other"


class Norm(nn.Module):
    """RMS norm. The other way computes the mean as a product with a constant vector."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(WIDTH) + 0.5)
        self.register_buffer("mean", torch.full((1, WIDTH), 1 / WIDTH))
        self.way = way

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` with a mean square of 1 in its last dimension, scaled."""
        squares = x * x
        mean = squares.mean(-1, keepdim=True) if self.way == USUAL else functional.linear(squares, self.mean)
        return x * torch.rsqrt(mean + 1e-6) * self.weight


class Attention(nn.Module):
    """Attention with a cache; several heads share keys and values."""

    def __init__(self, attention: str, groups: str, products: str) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.key = nn.Linear(WIDTH, GROUPS * HEAD, bias=False)
        self.value = nn.Linear(WIDTH, GROUPS * HEAD, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.register_buffer("keys", torch.zeros(1, GROUPS, POSITIONS, HEAD))
        self.register_buffer("values", torch.zeros(1, GROUPS, POSITIONS, HEAD))
        self.attention, self.groups, self.products = attention, groups, products

    def forward(self, x: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        """Attend to all positions that the mask allows. The mask is float, ``[count, POSITIONS]``."""
        batch, count, _ = x.shape
        query = self.query(x).view(batch, count, HEADS, HEAD).transpose(1, 2)
        self.keys[:, :, positions] = self.key(x).view(batch, count, GROUPS, HEAD).transpose(1, 2)
        self.values[:, :, positions] = self.value(x).view(batch, count, GROUPS, HEAD).transpose(1, 2)
        keys, values = self.keys, self.values
        if self.groups == USUAL:
            keys, values = (cache.repeat_interleave(HEADS // GROUPS, 1) for cache in (keys, values))
        else:  # The heads of a group are rows of one product. For a dynamic count, these ops do not fix the strides.
            query = query.unflatten(1, (GROUPS, HEADS // GROUPS)).flatten(2, 3)
            mask = mask.repeat(HEADS // GROUPS, 1)
        if self.attention == USUAL:
            found = functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
        else:
            found = _attend(query, keys, values, mask, self.products)
        if self.groups != USUAL:
            found = found.unflatten(2, (HEADS // GROUPS, count)).flatten(1, 2)
        found = found.transpose(1, 2)
        return self.out(found.reshape(batch, count, WIDTH))


def _attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, products: str) -> Tensor:
    """Return softmax attention. `@` expands its operands; the other way has three dimensions, as `torch.bmm` needs."""
    if products == USUAL:
        return torch.softmax(query @ keys.transpose(-1, -2) * HEAD**-0.5 + mask, -1) @ values
    batch = query.shape[:2]
    query, keys, values = (tensor.flatten(0, 1) for tensor in (query, keys, values))
    weights = torch.softmax(torch.bmm(query, keys.transpose(-1, -2)) * HEAD**-0.5 + mask, -1)
    return torch.bmm(weights, values).unflatten(0, batch)


class Layer(nn.Module):
    """Attention, then a gated network."""

    def __init__(self, attention: str, groups: str, norm: str, products: str) -> None:
        super().__init__()
        self.attention = Attention(attention, groups, products)
        self.before, self.between = Norm(norm), Norm(norm)
        self.gate = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        """Return the states after this layer."""
        x = x + self.attention(self.before(x), positions, mask)
        y = self.between(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """Tokens and their positions in, logits out."""

    def __init__(self, attention: str, groups: str, norm: str, products: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer(attention, groups, norm, products) for _ in range(LAYERS))
        self.norm = Norm(norm)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Return the logits of each token."""
        x = self.embedding(tokens)
        mask = torch.where(torch.arange(POSITIONS)[None] <= positions[:, None], 0.0, -1e9)
        for layer in self.layers:
            x = layer(x, positions, mask)
        return self.head(self.norm(x))


def make(attention: str, groups: str, norm: str, products: str) -> Decoder:
    """Return the decoder with random weights, the same for all ways."""
    torch.manual_seed(0)
    return Decoder(attention, groups, norm, products).eval()


def samples() -> Iterator[tuple[Tensor, Tensor]]:
    """Yield tokens and their positions."""
    generator = torch.Generator().manual_seed(0)
    for start in (0, 17, 100):
        yield torch.randint(VOCABULARY, (1, 8), generator=generator), torch.arange(start, start + 8)
