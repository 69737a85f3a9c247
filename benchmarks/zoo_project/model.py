"""One small model of each architecture, from its configuration in transformers, with random weights of a fixed seed.

Depths are those that are published, or half of them; widths and images are smaller, so that the portable kernels run
each in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

SEED = 0


@dataclass(frozen=True)
class Input:
    """What a model takes."""

    name: str
    shape: tuple[int, ...]
    below: int | None = None
    """For token numbers, one more than the largest; None for float32."""


@dataclass(frozen=True)
class Architecture:
    """A model of the zoo."""

    model: str
    """Class in transformers."""
    config: Mapping[str, Any]
    """Arguments of its configuration class."""
    inputs: tuple[Input, ...]
    output: str
    """Field of the model's output that the program gives; several are separated by commas."""
    part: str = ""
    """Submodule that is taken; empty for the whole model."""
    fixed: Mapping[str, Callable[[], Any]] | None = None
    """Further arguments, which are constants of the program."""


def _image(side: int) -> tuple[Input, ...]:
    return (Input("image", (1, 3, side, side)),)


def _tokens(length: int, words: int) -> tuple[Input, ...]:
    return (Input("tokens", (1, length), below=words),)


_RESNET = {"embedding_size": 32, "hidden_sizes": [64, 128, 256, 512], "depths": [3, 4, 6, 3]}

ARCHITECTURES: Mapping[str, Architecture] = {
    "resnet": Architecture("ResNetForImageClassification", _RESNET, _image(96), "logits"),
    "mobilenet-v2": Architecture("MobileNetV2ForImageClassification", {"image_size": 160}, _image(160), "logits"),
    "efficientnet": Architecture(
        "EfficientNetForImageClassification",
        {"image_size": 128, "width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280},
        _image(128),
        "logits",
    ),
    "convnext": Architecture(
        "ConvNextForImageClassification",
        {"image_size": 96, "hidden_sizes": [32, 64, 128, 256], "depths": [3, 3, 9, 3]},
        _image(96),
        "logits",
    ),
    "vit": Architecture(
        "ViTForImageClassification",
        {
            "image_size": 96,
            "hidden_size": 128,
            "num_hidden_layers": 6,
            "num_attention_heads": 4,
            "intermediate_size": 512,
        },
        _image(96),
        "logits",
    ),
    "swin": Architecture(
        "SwinForImageClassification",
        {"embed_dim": 24, "depths": [2, 2, 6, 2], "num_heads": [1, 2, 4, 8]},
        _image(224),
        "logits",
    ),
    "segformer": Architecture(
        "SegformerForSemanticSegmentation",
        {"num_labels": 19, "hidden_sizes": [16, 32, 80, 128], "decoder_hidden_size": 64},
        _image(128),
        "logits",
    ),
    "yolos": Architecture(
        "YolosForObjectDetection",
        {
            "image_size": [96, 128],
            "hidden_size": 128,
            "num_hidden_layers": 6,
            "num_attention_heads": 4,
            "intermediate_size": 512,
            "num_detection_tokens": 50,
            "num_labels": 20,
        },
        (Input("image", (1, 3, 96, 128)),),
        "logits,pred_boxes",
    ),
    "bert": Architecture(
        "BertForMaskedLM",
        {
            "vocab_size": 2000,
            "hidden_size": 128,
            "num_hidden_layers": 6,
            "num_attention_heads": 4,
            "intermediate_size": 512,
        },
        _tokens(128, 2000),
        "logits",
    ),
    "gpt2": Architecture(
        "GPT2LMHeadModel",
        {
            "vocab_size": 2000,
            "n_positions": 128,
            "n_embd": 128,
            "n_layer": 6,
            "n_head": 4,
            "bos_token_id": 0,
            "eos_token_id": 0,
            "use_cache": False,
        },
        _tokens(128, 2000),
        "logits",
    ),
    "llama": Architecture(
        "LlamaForCausalLM",
        {
            "vocab_size": 2000,
            "hidden_size": 128,
            "intermediate_size": 344,
            "num_hidden_layers": 6,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "max_position_embeddings": 128,
            "use_cache": False,
        },
        _tokens(128, 2000),
        "logits",
    ),
    "whisper": Architecture(
        "WhisperModel",
        {
            "d_model": 128,
            "encoder_layers": 4,
            "encoder_attention_heads": 4,
            "encoder_ffn_dim": 512,
            "decoder_layers": 1,
            "decoder_attention_heads": 4,
            "decoder_ffn_dim": 512,
            "max_source_positions": 200,
            "vocab_size": 1000,
            "pad_token_id": 0,
            "bos_token_id": 0,
            "eos_token_id": 0,
            "decoder_start_token_id": 0,
        },
        (Input("mel", (1, 80, 400)),),
        "last_hidden_state",
        part="encoder",
    ),
    "wav2vec2": Architecture(
        "Wav2Vec2ForCTC",
        {
            "hidden_size": 128,
            "num_hidden_layers": 6,
            "num_attention_heads": 4,
            "intermediate_size": 512,
            "conv_dim": [64] * 7,
            "num_conv_pos_embeddings": 32,
        },
        (Input("wave", (1, 16000)),),
        "logits",
    ),
    "detr": Architecture(
        "DetrForObjectDetection",
        {
            "d_model": 128,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 512,
            "decoder_ffn_dim": 512,
            "num_queries": 50,
            "num_labels": 20,
            "use_timm_backbone": False,
            "use_pretrained_backbone": False,
            "backbone": None,
            "backbone_config": {"model_type": "resnet", **_RESNET, "out_features": ["stage4"]},
        },
        _image(128),
        "logits,pred_boxes",
        fixed={"pixel_mask": lambda: torch.ones(1, 128, 128, dtype=torch.long)},
    ),
}
"""By the name that tables have."""


class Model(nn.Module):
    """Chosen outputs of a transformers model, as plain tensors."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        import transformers

        torch.manual_seed(SEED)
        kind = getattr(transformers, architecture.model)
        # The attention that is written out; the other kinds are for accelerators.
        config = kind.config_class(**architecture.config, attn_implementation="eager")
        net = kind(config).eval()
        self.net = net.get_submodule(architecture.part) if architecture.part else net
        self._fields = architecture.output.split(",")
        self._fixed = {name: make() for name, make in (architecture.fixed or {}).items()}

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        found = self.net(x, **self._fixed)
        return tuple(getattr(found, field) for field in self._fields)


def make(name: str) -> nn.Module:
    """The model of that name, in eval mode."""
    return Model(ARCHITECTURES[name]).eval()
