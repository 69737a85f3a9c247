"""What the zoo holds: architectures, and the sizes that they are built in.

Depths are those that are published, or half of them; widths, images and texts are smaller, so that the portable kernels
run each in seconds. Weights are random, with a fixed seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

Area = Literal["vision", "detection", "segmentation", "depth", "text", "speech", "text and image", "diffusion"]


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor that a model takes: standard normal numbers, or one of the kinds below."""

    name: str
    """Of the model's argument."""
    shape: tuple[int, ...]
    below: int | None = None
    """For int64 numbers, drawn at random: one more than the largest."""
    counts: bool = False
    """Int64: the number of calls before this one."""

    @property
    def dtype(self) -> str:
        """As configs name it."""
        return "float32" if self.below is None and not self.counts else "int64"


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model of the zoo."""

    name: str
    """That tables have."""
    area: Area
    model: str
    """Class in transformers, or in diffusers."""
    config: Mapping[str, Any]
    """Arguments of its configuration class."""
    inputs: tuple[Input, ...]
    output: str
    """Field of the model's output that the program gives; several are separated by commas."""
    part: str = ""
    """Submodule that is taken; empty for the whole model."""
    fixed: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    """Further arguments, which are constants of the program."""
    cache: int | None = None
    """Positions of a key-value cache, which is the program's state."""


def _image(height: int, width: int | None = None, name: str = "pixel_values") -> tuple[Input, ...]:
    return (Input(name, (1, 3, height, width or height)),)


def _tokens(length: int, words: int = 2000, name: str = "input_ids") -> tuple[Input, ...]:
    return (Input(name, (1, length), below=words),)


_RESNET = {"embedding_size": 32, "hidden_sizes": [64, 128, 256, 512], "depths": [3, 4, 6, 3]}
_BLOCKS = {"hidden_size": 128, "num_hidden_layers": 6, "num_attention_heads": 4, "intermediate_size": 512}
_TEXT = {"vocab_size": 2000, **_BLOCKS}
_SPECIAL = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
_DECODER = {
    "vocab_size": 2000,
    "hidden_size": 128,
    "intermediate_size": 344,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 128,
    "use_cache": False,
}
_DETR = {
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
}
_WAV2VEC2 = {**_BLOCKS, "conv_dim": [64] * 7, "num_conv_pos_embeddings": 32}
_WHISPER = {
    "d_model": 128,
    "encoder_layers": 4,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 512,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 512,
    "max_source_positions": 200,
    "vocab_size": 1000,
    **_SPECIAL,
    "decoder_start_token_id": 0,
}

# The list and its sizes were fixed before the passes that it measures were written. It holds what plain ExecuTorch can
# build and run; nothing leaves it for what etdev makes of it.
ARCHITECTURES: tuple[Architecture, ...] = (
    Architecture("resnet", "vision", "ResNetForImageClassification", _RESNET, _image(96), "logits"),
    Architecture(
        "regnet",
        "vision",
        "RegNetForImageClassification",
        {"embedding_size": 32, "hidden_sizes": [48, 96, 192, 384], "depths": [2, 4, 6, 2], "groups_width": 24},
        _image(128),
        "logits",
    ),
    Architecture(
        "mobilenet-v1", "vision", "MobileNetV1ForImageClassification", {"image_size": 160}, _image(160), "logits"
    ),
    Architecture(
        "mobilenet-v2", "vision", "MobileNetV2ForImageClassification", {"image_size": 160}, _image(160), "logits"
    ),
    Architecture(
        "efficientnet",
        "vision",
        "EfficientNetForImageClassification",
        {
            "image_size": 128,
            "width_coefficient": 1.0,
            "depth_coefficient": 1.0,
            "hidden_dim": 1280,
            "initializer_range": 0.2,  # With the default, what it computes fades to zeros.
        },
        _image(128),
        "logits",
    ),
    Architecture(
        "convnext",
        "vision",
        "ConvNextForImageClassification",
        {"image_size": 96, "hidden_sizes": [32, 64, 128, 256], "depths": [3, 3, 9, 3]},
        _image(96),
        "logits",
    ),
    Architecture(
        "convnext-v2",
        "vision",
        "ConvNextV2ForImageClassification",
        {"image_size": 96, "hidden_sizes": [40, 80, 160, 320], "depths": [2, 2, 6, 2]},
        _image(96),
        "logits",
    ),
    Architecture(
        "poolformer",
        "vision",
        "PoolFormerForImageClassification",
        {"hidden_sizes": [32, 64, 160, 256], "depths": [2, 2, 6, 2]},
        _image(128),
        "logits",
    ),
    Architecture(
        "vit",
        "vision",
        "ViTForImageClassification",
        {"image_size": 96, **_BLOCKS},
        _image(96),
        "logits",
    ),
    Architecture("deit", "vision", "DeiTForImageClassification", {"image_size": 112, **_BLOCKS}, _image(112), "logits"),
    Architecture(
        "beit",
        "vision",
        "BeitForImageClassification",
        {"image_size": 112, "use_relative_position_bias": True, **_BLOCKS},
        _image(112),
        "logits",
    ),
    Architecture(
        "dinov2",
        "vision",
        "Dinov2ForImageClassification",
        {"image_size": 112, "hidden_size": 128, "num_hidden_layers": 6, "num_attention_heads": 4, "mlp_ratio": 4},
        _image(112),
        "logits",
    ),
    Architecture(
        "swin",
        "vision",
        "SwinForImageClassification",
        {"embed_dim": 24, "depths": [2, 2, 6, 2], "num_heads": [1, 2, 4, 8]},
        _image(224),
        "logits",
    ),
    Architecture(
        "swin-v2",
        "vision",
        "Swinv2ForImageClassification",
        {"image_size": 128, "embed_dim": 24, "depths": [2, 2, 6, 2], "num_heads": [1, 2, 4, 8], "window_size": 8},
        _image(128),
        "logits",
    ),
    Architecture(
        "pvt-v2",
        "vision",
        "PvtV2ForImageClassification",
        {"image_size": 128, "hidden_sizes": [16, 32, 80, 128], "depths": [2, 2, 2, 2]},
        _image(128),
        "logits",
    ),
    Architecture(
        "mobilevit",
        "vision",
        "MobileViTForImageClassification",
        {"image_size": 128, "hidden_sizes": [96, 120, 144], "neck_hidden_sizes": [16, 32, 48, 64, 80, 96, 384]},
        _image(128),
        "logits",
    ),
    Architecture(
        "yolos",
        "detection",
        "YolosForObjectDetection",
        {"image_size": [96, 128], **_BLOCKS, "num_detection_tokens": 50, "num_labels": 20},
        _image(96, 128),
        "logits,pred_boxes",
    ),
    Architecture(
        "detr",
        "detection",
        "DetrForObjectDetection",
        _DETR,
        _image(128),
        "logits,pred_boxes",
        fixed={"pixel_mask": lambda: torch.ones(1, 128, 128, dtype=torch.long)},
    ),
    Architecture(
        "conditional-detr",
        "detection",
        "ConditionalDetrForObjectDetection",
        _DETR,
        _image(128),
        "logits,pred_boxes",
        fixed={"pixel_mask": lambda: torch.ones(1, 128, 128, dtype=torch.long)},
    ),
    Architecture(
        "rt-detr",
        "detection",
        "RTDetrForObjectDetection",
        {
            "backbone_config": {
                "model_type": "rt_detr_resnet",
                "embedding_size": 32,
                "hidden_sizes": [32, 64, 128, 256],
                "depths": [2, 2, 2, 2],
                "layer_type": "basic",
                "out_features": ["stage2", "stage3", "stage4"],
            },
            "encoder_in_channels": [64, 128, 256],
            "encoder_hidden_dim": 64,
            "encoder_ffn_dim": 256,
            "encoder_attention_heads": 4,
            "d_model": 64,
            "decoder_in_channels": [64, 64, 64],
            "decoder_ffn_dim": 256,
            "decoder_layers": 3,
            "decoder_attention_heads": 4,
            "num_queries": 50,
            "num_labels": 20,
            "num_denoising": 0,
            "anchor_image_size": [128, 128],
        },
        _image(128),
        "logits,pred_boxes",
    ),
    Architecture(
        "segformer",
        "segmentation",
        "SegformerForSemanticSegmentation",
        {"num_labels": 19, "hidden_sizes": [16, 32, 80, 128], "decoder_hidden_size": 64},
        _image(128),
        "logits",
    ),
    Architecture(
        "upernet",
        "segmentation",
        "UperNetForSemanticSegmentation",
        {
            "backbone_config": {
                "model_type": "convnext",
                "hidden_sizes": [24, 48, 96, 192],
                "depths": [2, 2, 4, 2],
                "out_features": ["stage1", "stage2", "stage3", "stage4"],
            },
            "hidden_size": 48,
            "auxiliary_in_channels": 96,
            "use_auxiliary_head": False,
            "num_labels": 19,
        },
        _image(96),
        "logits",
    ),
    Architecture(
        "deeplab",
        "segmentation",
        "MobileViTForSemanticSegmentation",
        {
            "image_size": 128,
            "hidden_sizes": [48, 60, 72],
            "neck_hidden_sizes": [16, 16, 24, 32, 40, 48, 160],
            "aspp_out_channels": 64,
            "num_labels": 19,
        },
        _image(128),
        "logits",
    ),
    Architecture(
        "maskformer",
        "segmentation",
        "MaskFormerForInstanceSegmentation",
        {
            "backbone_config": {
                "model_type": "swin",
                "image_size": 96,
                "embed_dim": 24,
                "depths": [2, 2, 2, 2],
                "num_heads": [1, 2, 4, 8],
                "window_size": 3,
                "out_features": ["stage1", "stage2", "stage3", "stage4"],
            },
            "decoder_config": {
                "model_type": "detr",
                **{name: value for name, value in _DETR.items() if not name.startswith(("backbone", "use_"))},
            },
            "fpn_feature_size": 64,
            "mask_feature_size": 64,
        },
        _image(96),
        "class_queries_logits,masks_queries_logits",
    ),
    Architecture(
        "dpt",
        "depth",
        "DPTForDepthEstimation",
        {
            "image_size": 96,
            **_BLOCKS,
            "backbone_out_indices": [1, 2, 4, 5],
            "neck_hidden_sizes": [24, 48, 96, 96],
            "fusion_hidden_size": 48,
        },
        _image(96),
        "predicted_depth",
    ),
    Architecture(
        "depth-anything",
        "depth",
        "DepthAnythingForDepthEstimation",
        {
            "backbone_config": {
                "model_type": "dinov2",
                "image_size": 98,
                "hidden_size": 96,
                "num_hidden_layers": 6,
                "num_attention_heads": 3,
                "out_indices": [2, 3, 5, 6],
                "reshape_hidden_states": False,
                "apply_layernorm": True,
            },
            "reassemble_hidden_size": 96,
            "neck_hidden_sizes": [16, 32, 64, 64],
            "fusion_hidden_size": 32,
            "head_hidden_size": 16,
        },
        _image(98),
        "predicted_depth",
    ),
    Architecture("bert", "text", "BertForMaskedLM", _TEXT, _tokens(128), "logits"),
    Architecture(
        "distilbert",
        "text",
        "DistilBertForSequenceClassification",
        {"vocab_size": 2000, "dim": 128, "n_layers": 6, "n_heads": 4, "hidden_dim": 512},
        _tokens(128),
        "logits",
    ),
    Architecture(
        "albert",
        "text",
        "AlbertForMaskedLM",
        {**_TEXT, "embedding_size": 64, "num_hidden_layers": 12},
        _tokens(128),
        "logits",
    ),
    Architecture(
        "roberta", "text", "RobertaForTokenClassification", {**_TEXT, "num_labels": 9}, _tokens(128), "logits"
    ),
    Architecture("electra", "text", "ElectraForPreTraining", {**_TEXT, "embedding_size": 64}, _tokens(128), "logits"),
    Architecture(
        "deberta-v2",
        "text",
        "DebertaV2ForSequenceClassification",
        {
            **_TEXT,
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 32,
            "max_relative_positions": 64,
            "num_hidden_layers": 4,
        },
        _tokens(96),
        "logits",
    ),
    Architecture(
        "gpt2",
        "text",
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
        _tokens(128),
        "logits",
    ),
    Architecture("llama", "text", "LlamaForCausalLM", _DECODER, _tokens(128), "logits"),
    Architecture(
        "llama-decode",
        "text",
        "LlamaForCausalLM",
        {**_DECODER, "max_position_embeddings": 256, "use_cache": True},
        (Input("input_ids", (1, 1), below=2000), Input("cache_position", (1,), counts=True)),
        "logits",
        cache=256,
    ),
    Architecture(
        "gemma2", "text", "Gemma2ForCausalLM", {**_DECODER, "head_dim": 16, "sliding_window": 64}, _tokens(96), "logits"
    ),
    Architecture(
        "phi",
        "text",
        "PhiForCausalLM",
        {**_DECODER, "num_key_value_heads": 8, "intermediate_size": 512},
        _tokens(96),
        "logits",
    ),
    Architecture(
        "bloom",
        "text",
        "BloomForCausalLM",
        {"vocab_size": 2000, "hidden_size": 128, "n_layer": 6, "n_head": 4, "use_cache": False},
        _tokens(96),
        "logits",
    ),
    Architecture(
        "mixtral",
        "text",
        "MixtralForCausalLM",
        {
            **_DECODER,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 4,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "experts_implementation": "batched_mm",
        },
        _tokens(32),
        "logits",
    ),
    Architecture(
        "mamba",
        "text",
        "MambaForCausalLM",
        {"vocab_size": 2000, "hidden_size": 96, "state_size": 16, "num_hidden_layers": 6, "use_cache": False},
        _tokens(32),
        "logits",
    ),
    Architecture(
        "t5",
        "text",
        "T5ForConditionalGeneration",
        {
            "vocab_size": 2000,
            "d_model": 128,
            "d_kv": 32,
            "d_ff": 512,
            "num_layers": 4,
            "num_heads": 4,
            "use_cache": False,
            "decoder_start_token_id": 0,
        },
        _tokens(96) + _tokens(32, name="decoder_input_ids"),
        "logits",
    ),
    Architecture(
        "bart",
        "text",
        "BartForConditionalGeneration",
        {
            "vocab_size": 2000,
            "d_model": 128,
            "encoder_layers": 4,
            "decoder_layers": 4,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 512,
            "decoder_ffn_dim": 512,
            "max_position_embeddings": 128,
            "use_cache": False,
            **_SPECIAL,
            "decoder_start_token_id": 0,
            "forced_eos_token_id": 0,
        },
        _tokens(96) + _tokens(32, name="decoder_input_ids"),
        "logits",
    ),
    Architecture(
        "whisper",
        "speech",
        "WhisperModel",
        {**_WHISPER, "decoder_layers": 1},
        (Input("input_features", (1, 80, 400)),),
        "last_hidden_state",
        part="encoder",
    ),
    Architecture(
        "whisper-decoder",
        "speech",
        "WhisperModel",
        {**_WHISPER, "decoder_layers": 4, "use_cache": False},
        (*_tokens(48, 1000), Input("encoder_hidden_states", (1, 200, 128))),
        "last_hidden_state",
        part="decoder",
    ),
    Architecture("wav2vec2", "speech", "Wav2Vec2ForCTC", _WAV2VEC2, (Input("input_values", (1, 16000)),), "logits"),
    Architecture(
        "hubert",
        "speech",
        "HubertForSequenceClassification",
        {**_WAV2VEC2, "feat_extract_norm": "layer", "do_stable_layer_norm": True, "conv_dim": [48] * 7},
        (Input("input_values", (1, 16000)),),
        "logits",
    ),
    Architecture(
        "audio-spectrogram",
        "speech",
        "ASTForAudioClassification",
        {**_BLOCKS, "max_length": 200, "num_mel_bins": 64, "num_hidden_layers": 4},
        (Input("input_values", (1, 200, 64)),),
        "logits",
    ),
    Architecture(
        "clip",
        "text and image",
        "CLIPModel",
        {
            "projection_dim": 64,
            "text_config": {**_TEXT, "num_hidden_layers": 4, "max_position_embeddings": 64, **_SPECIAL},
            "vision_config": {**_BLOCKS, "num_hidden_layers": 4, "image_size": 96, "patch_size": 16},
        },
        _tokens(32) + _image(96),
        "logits_per_image,text_embeds,image_embeds",
    ),
    Architecture(
        "unet",
        "diffusion",
        "UNet2DModel",
        {
            "sample_size": 32,
            "block_out_channels": [32, 64, 64],
            "layers_per_block": 2,
            "norm_num_groups": 8,
            "down_block_types": ["DownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D"],
            "up_block_types": ["AttnUpBlock2D", "AttnUpBlock2D", "UpBlock2D"],
        },
        (*_image(32, name="sample"), Input("timestep", (1,), below=1000)),
        "sample",
    ),
    Architecture(
        "unet-conditional",
        "diffusion",
        "UNet2DConditionModel",
        {
            "sample_size": 16,
            "block_out_channels": [32, 64],
            "layers_per_block": 1,
            "norm_num_groups": 8,
            "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
            "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
            "cross_attention_dim": 64,
            "attention_head_dim": 4,
        },
        (
            Input("sample", (1, 4, 16, 16)),
            Input("timestep", (1,), below=1000),
            Input("encoder_hidden_states", (1, 32, 64)),
        ),
        "sample",
    ),
    Architecture(
        "vae-decoder",
        "diffusion",
        "AutoencoderKL",
        {
            "block_out_channels": [16, 32, 32],
            "layers_per_block": 1,
            "norm_num_groups": 8,
            "down_block_types": ["DownEncoderBlock2D"] * 3,
            "up_block_types": ["UpDecoderBlock2D"] * 3,
        },
        (Input("sample", (1, 4, 16, 16)),),
        "",
        part="decoder",
    ),
)

# Models as users ship them: the default configuration of each class, at 224 px or 128 tokens.
REAL_SIZES: tuple[Architecture, ...] = (
    Architecture("resnet-50", "vision", "ResNetForImageClassification", {}, _image(224), "logits"),
    Architecture("mobilenet-v2-224", "vision", "MobileNetV2ForImageClassification", {}, _image(224), "logits"),
    Architecture("convnext-tiny", "vision", "ConvNextForImageClassification", {}, _image(224), "logits"),
    Architecture("vit-base", "vision", "ViTForImageClassification", {}, _image(224), "logits"),
    Architecture("swin-tiny", "vision", "SwinForImageClassification", {}, _image(224), "logits"),
    Architecture("mobilevit-small", "vision", "MobileViTForImageClassification", {}, _image(224), "logits"),
    Architecture("segformer-b0", "segmentation", "SegformerForSemanticSegmentation", {}, _image(224), "logits"),
    Architecture("bert-base", "text", "BertModel", {}, _tokens(128, 30522), "last_hidden_state"),
    Architecture("distilbert-base", "text", "DistilBertModel", {}, _tokens(128, 30522), "last_hidden_state"),
    Architecture("electra-small", "text", "ElectraModel", {}, _tokens(128, 30522), "last_hidden_state"),
    Architecture("gpt2-124m", "text", "GPT2LMHeadModel", {"use_cache": False}, _tokens(128, 50257), "logits"),
    Architecture("t5-small-encoder", "text", "T5EncoderModel", {}, _tokens(128, 32128), "last_hidden_state"),
)

BY_NAME: Mapping[str, Architecture] = {item.name: item for item in (*ARCHITECTURES, *REAL_SIZES)}


def random_inputs(architecture: Architecture, call: int, *, batch: int = 1) -> tuple[torch.Tensor, ...]:
    """Inputs of the call of that number, the same each time; ``batch`` multiplies the first dimension."""
    generator = torch.Generator().manual_seed(call)
    return tuple(_random(item, call, batch, generator) for item in architecture.inputs)


def _random(item: Input, call: int, batch: int, generator: torch.Generator) -> torch.Tensor:
    shape = (batch * item.shape[0], *item.shape[1:])
    if item.counts:
        return torch.full(shape, call)
    if item.below is None:
        return torch.randn(shape, generator=generator)
    return torch.randint(item.below, shape, generator=generator)
