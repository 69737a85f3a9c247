"""A language model from transformers, in the form that ExecuTorch's LLM runners call.

Its input is tokens, and its output is logits. The cache is inside the program.
"""

import tomllib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM, Cache, StaticLayer
from transformers.masking_utils import eager_mask
from transformers.utils.logging import disable_progress_bar

CONFIG = tomllib.loads((Path(__file__).parent / "etdev.toml").read_text())
FOLDER = Path(__file__).parent / "model"
"""Folder with the output of `save_pretrained`: config.json, *.safetensors, tokenizer.json."""


class LanguageModel(nn.Module):
    """A language model with its cache: the keys and values of all tokens so far.

    The keys and values are buffers, so they remain in the program's memory between calls.
    """

    def __init__(self, net: nn.Module, length: int) -> None:
        super().__init__()
        self.net, self.length = net, length
        config = net.config
        heads = config.num_key_value_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        for layer in range(config.num_hidden_layers):
            self.register_buffer(f"keys_{layer}", torch.zeros(heads, size, length))
            self.register_buffer(f"values_{layer}", torch.zeros(heads, length, size))

    def forward(self, tokens: Tensor, start: Tensor) -> Tensor:
        """Return logits (1, vocabulary) for the next token. The first of the tokens (1, count) is at position start."""
        positions = start + torch.arange(tokens.shape[1])
        layers = [
            CacheLayer(getattr(self, f"keys_{layer}"), getattr(self, f"values_{layer}"), positions)
            for layer in range(self.net.config.num_hidden_layers)
        ]
        found = self.net(
            tokens,
            position_ids=positions.unsqueeze(0),
            past_key_values=Cache(layers=layers),
            use_cache=True,
            logits_to_keep=1,
        )
        return found.logits[:, -1]

    read_prompt = next_token = forward


class CacheLayer(StaticLayer):
    """Keys (heads, size, length) and values (heads, length, size) of one layer, in the layout that attention needs.

    New keys and values are written in place, at the positions of their tokens.
    """

    def __init__(self, keys: Tensor, values: Tensor, positions: Tensor) -> None:
        super().__init__(max_cache_len=values.shape[1])
        self.keys, self.values, self.positions = keys, values, positions
        self.is_initialized = True

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        self.keys.index_copy_(2, self.positions, keys.squeeze(0).transpose(1, 2))
        self.values.index_copy_(1, self.positions, values.squeeze(0))
        return self.keys, self.values

    def get_seq_length(self) -> Tensor:
        return self.positions[0]


def attention(
    module: nn.Module,
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor,
    scaling: float,
    softcap: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Return the attention (1, tokens, query heads, size) for queries (1, query heads, tokens, size).

    Query heads that share keys and values become rows of one matrix product. So keys and values are not repeated.
    """
    heads, each = keys.shape[0], query.shape[1] // keys.shape[0]
    rows = (query.squeeze(0) * scaling).unflatten(0, (heads, each)).transpose(1, 2).flatten(1, 2)
    scores = torch.bmm(rows, keys).unflatten(1, (-1, each))
    if softcap is not None:
        scores = (scores / softcap).tanh() * softcap
    weights = (scores + mask.transpose(1, 2)).softmax(dim=-1).flatten(1, 2)
    found = torch.bmm(weights, values).unflatten(1, (-1, each))
    return found.transpose(0, 1).flatten(1, 2).unsqueeze(0), None


disable_progress_bar()  # etdev shows its own.
AttentionInterface.register("cached", attention)
AttentionMaskInterface.register("cached", eager_mask)


def make(length: int) -> nn.Module:
    """Return the model, with a cache of `length` positions. `entry` in etdev.toml refers to this function."""
    net = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32, attn_implementation="cached")
    return LanguageModel(net.eval().requires_grad_(False), length)


def constants(model: LanguageModel) -> dict[str, Any]:
    """Return the constants that ExecuTorch's LLM runners read from a program, by method name.

    Constants that the model's configuration does not state are omitted.
    """
    config, settings = model.net.config, model.net.generation_config
    ends = settings.eos_token_id if settings.eos_token_id is not None else config.eos_token_id
    answers = {
        "get_max_seq_len": CONFIG["methods"]["forward"]["dims"]["count"]["max"],  # tokens in one call, at most
        "get_max_context_len": model.length,  # tokens in all calls, at most
        "get_vocab_size": config.vocab_size,
        "get_n_layers": config.num_hidden_layers,
        "get_bos_id": config.bos_token_id,
        "get_eos_ids": ends if ends is None or isinstance(ends, list) else [ends],
        "enable_dynamic_shape": True,  # a call may have fewer tokens
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": False,
    }
    return {name: answer for name, answer in answers.items() if answer is not None}
