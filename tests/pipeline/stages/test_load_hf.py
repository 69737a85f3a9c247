"""Stage *load* with ``model.hf``: small transformers models made from configurations, through export (E2)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etdev.errors import LoadError, MismatchError, MissingRequirementError
from etdev.pipeline.project import Project
from support.stages import Failure, check_failure, export, load, prepare

torch = pytest.importorskip("torch", reason="needs the extra `build`")
transformers = pytest.importorskip("transformers", reason="needs the extra `hf`")
pytestmark = pytest.mark.filterwarnings("ignore")

HF = "etdev.toml:3:6 (model.hf)"
CONFIG = """
version = 1
[model]
hf = "./net"
[methods.forward]
inputs = [{ name = "input_ids", dtype = "int64", shape = [2, 6] }]
[targets.cpu]
"""
DYNAMIC = """
version = 1
[model]
hf = "./net"
[methods.forward]
inputs = [
    { name = "input_ids", dtype = "int64", shape = [1, "length"] },
    { name = "attention_mask", dtype = "int64", shape = [1, "length"] },
]
dims.length = { min = 2, max = 12 }
[targets.cpu]
"""
IMAGES = CONFIG.replace(
    '"input_ids", dtype = "int64", shape = [2, 6]', '"pixel_values", dtype = "float32", shape = [2, 3, 8, 8]'
)

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def _bert(**more: Any) -> Any:
    return transformers.BertModel(transformers.BertConfig(vocab_size=20, max_position_embeddings=16, **SMALL, **more))


def _gpt2() -> Any:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=20, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    )


def _llama() -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=20, max_position_embeddings=16, **SMALL))


def _vit() -> Any:
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(image_size=8, patch_size=4, num_labels=3, **SMALL)
    )


def _save(folder: Path, make: Callable[[], Any] = _bert, **changes: Any) -> Any:
    """The model as ``./net``, with keys of its ``config.json`` changed."""
    torch.manual_seed(0)
    model = make().eval()
    model.save_pretrained(folder / "net")
    if changes:
        path = folder / "net" / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return model


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.parametrize(
    ("make", "config"),
    [
        pytest.param(_bert, CONFIG, marks=pytest.mark.integration),
        (_bert, DYNAMIC),
        (_gpt2, CONFIG),
        pytest.param(_gpt2, DYNAMIC, marks=pytest.mark.integration),
        pytest.param(_llama, CONFIG, marks=pytest.mark.integration),
        (_llama, DYNAMIC),
        (_vit, IMAGES),
    ],
    ids=["bert", "bert, dynamic", "gpt2", "gpt2, dynamic", "llama", "llama, dynamic", "vit"],
)
@pytest.mark.sampled(1)
def test_a_directory_is_loaded_and_exported(
    project: Callable[..., Project], tmp_path: Path, make: Callable[[], Any], config: str
) -> None:
    """Outputs are those of the model itself, as plain tensors; state keeps its names."""
    model = _save(tmp_path, make)
    exported = export(project(config))
    method = exported.methods["forward"]
    names = [item.name for item in exported.signatures["forward"].inputs]
    inputs = tuple(torch.ones_like(tensor) for tensor in method.example)
    expected = (
        model(**dict(zip(names, inputs, strict=True)), use_cache=False).to_tuple()
        if make is not _vit
        else (model(inputs[0]).logits,)
    )
    for results in (exported.eager["forward"](*inputs), method.program.module()(*inputs)):
        assert isinstance(results, tuple)
        for mine, its in zip(results, expected, strict=True):
            torch.testing.assert_close(mine, its, atol=1e-4, rtol=1e-4)
    assert set(method.program.state_dict) <= set(model.state_dict()) | {name for name, _ in model.named_buffers()}


def test_kwargs_override_the_configuration(project: Callable[..., Project], tmp_path: Path) -> None:
    model = _save(tmp_path)
    assert not load(project(CONFIG)).module.config.use_cache
    made = project(CONFIG.replace('net"', 'net"\nkwargs = { use_cache = true, layer_norm_eps = 0.5 }'))
    config = load(made).module.config
    assert config._attn_implementation == "eager"  # GPT-2 with the default one cannot be lowered
    assert (config.use_cache, config.layer_norm_eps) == (True, 0.5)
    assert model.config.layer_norm_eps != 0.5


@pytest.mark.integration
def test_a_copy_of_the_model_calls_itself(project: Callable[..., Project], tmp_path: Path) -> None:
    """A reproducer: 8da4w quantized a copy whose ``forward`` was still the float model's."""
    torch.manual_seed(0)
    _save(
        tmp_path,
        lambda: transformers.BertModel(
            transformers.BertConfig(
                vocab_size=20, max_position_embeddings=16, **SMALL | {"hidden_size": 32, "intermediate_size": 32}
            )
        ),
    )
    scheme = '\n[targets.cpu]\nquantize = "small"\n[quantize.small]\nscheme = "8da4w"\n'
    floating, quantized = prepare(project(CONFIG.replace("\n[targets.cpu]\n", scheme)))
    assert any("dequantize_affine" in str(node.target) for node in quantized.methods["forward"].program.graph.nodes)
    inputs = floating.methods["forward"].example
    (mine, *_), (its, *_) = (model.eager["forward"](*inputs) for model in (quantized, floating))
    assert 0 < (mine - its).norm() / its.norm() < 0.5


def test_weights_that_the_class_does_not_use_are_noted(project: Callable[..., Project], tmp_path: Path) -> None:
    _save(tmp_path, lambda: transformers.BertForSequenceClassification(_bert().config), architectures=["BertModel"])
    (note,) = load(project(CONFIG)).notes
    assert note == "weights that BertModel does not use: unexpected: classifier.bias, classifier.weight"


ARCHITECTURE = "compare `architectures` in the model's config.json and `model.kwargs` with the weights"
DIRECTORY = "save the model with model.save_pretrained: the directory needs config.json and model.safetensors"

FAILURES = {
    "weights that the file lacks would be made up": (
        {"architectures": ["BertForSequenceClassification"]},
        "",
        Failure(
            MismatchError,
            HF,
            (
                "the weights in {net} do not match BertForSequenceClassification: missing: classifier.bias, "
                "classifier.weight"
            ),
            ARCHITECTURE,
        ),
    ),
    "weights of another shape": (
        {},
        "kwargs = { vocab_size = 21 }",
        Failure(
            MismatchError,
            HF,
            (
                "the weights in {net} do not match BertModel: of another shape: "
                "embeddings.word_embeddings.weight (file [20, 16], model [21, 16])"
            ),
            ARCHITECTURE,
        ),
    ),
    "a keyword that the configuration lacks": (
        {},
        "kwargs = { num_hiden_layers = 2 }",
        Failure(
            MismatchError,
            "etdev.toml:4:31 (model.kwargs.num_hiden_layers)",
            "the configuration of {net} has no attribute 'num_hiden_layers'",
            "did you mean 'num_hidden_layers'?",
        ),
    ),
    "a class that transformers lacks": (
        {"architectures": ["BertForTelepathy"]},
        "",
        Failure(
            MismatchError,
            HF,
            f"transformers {transformers.__version__} has no class 'BertForTelepathy'",
            "use the transformers version that the model was saved with",
        ),
    ),
    "no class": (
        {"architectures": None},
        "",
        Failure(
            MismatchError,
            HF,
            "the configuration of {net} has no class in `architectures`",
            'add the class to config.json, for example "architectures": ["BertModel"]',
        ),
    ),
    "a type that transformers lacks": (
        {"model_type": "telepath"},
        "",
        Failure(
            MismatchError,
            HF,
            "transformers cannot load './net': ValueError: The checkpoint you are trying to load has…",
            DIRECTORY,
        ),
    ),
    "code of its own": (
        {"auto_map": {"AutoConfig": "evil.Config"}, "model_type": "evil"},
        "",
        Failure(MismatchError, HF, "transformers cannot load './net': ValueError: …", DIRECTORY),
    ),
}


@pytest.mark.parametrize(("changes", "kwargs", "failure"), FAILURES.values(), ids=FAILURES)
def test_each_mistake_names_its_place(
    project: Callable[..., Project], tmp_path: Path, changes: dict[str, Any], kwargs: str, failure: Failure
) -> None:
    _save(tmp_path, **changes)
    made = project(CONFIG.replace('net"', f'net"\n{kwargs}'))
    message = failure.message.replace("{net}", str(tmp_path / "net"))
    check_failure(lambda: load(made), Failure(failure.kind, failure.where, message, failure.hint))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda net: net.joinpath("config.json").unlink(), "there is no file {net}/config.json"),
        (
            lambda net: net.joinpath("config.json").write_text("{"),
            "transformers cannot load './net': OSError: It looks like the config file at…",
        ),
        (
            lambda net: net.joinpath("model.safetensors").rename(net / "pytorch_model.bin"),
            "transformers cannot load './net': OSError: Error no file named model.safetensors found in directory…",
        ),
        (
            lambda net: net.joinpath("model.safetensors").write_bytes(b"short"),
            "transformers cannot load './net': SafetensorError: …",
        ),
    ],
    ids=["no config", "broken config", "only pickles", "broken weights"],
)
def test_a_directory_that_is_not_whole(
    project: Callable[..., Project], tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    _save(tmp_path)
    damage(tmp_path / "net")
    hint = "save it with model.save_pretrained" if "there is no file" in message else DIRECTORY
    message = message.replace("{net}", str(tmp_path / "net"))
    check_failure(lambda: load(project(CONFIG)), Failure(MismatchError, HF, message, hint))


def test_another_method_needs_a_module(project: Callable[..., Project], tmp_path: Path) -> None:
    _save(tmp_path)
    made = project(CONFIG.replace("methods.forward", "methods.prefill"))
    with pytest.raises(MismatchError, match="has no method 'prefill'") as caught:
        export(made)
    assert caught.value.hint is not None
    assert caught.value.hint.endswith(
        "for another method, write a module around the model (`etdev init DIR --template llm` has one)"
    )


def test_a_wrong_input_name(project: Callable[..., Project], tmp_path: Path) -> None:
    _save(tmp_path)
    made = project(CONFIG.replace('"input_ids"', '"input_idz"'))
    where = "etdev.toml:5:20 (methods.forward.inputs[0].name)"
    message = "method 'forward' of the transformers model has no argument 'input_idz'"
    check_failure(lambda: load(made), Failure(MismatchError, where, message, "did you mean 'input_ids'?"))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("mask", "did you mean 'attention_mask'?"),
        ("volume", "use the model's names for the inputs: input_ids, attention_"),
    ],
)
def test_a_name_that_keywords_would_swallow(
    project: Callable[..., Project], tmp_path: Path, name: str, hint: str
) -> None:
    """BERT takes any further keyword and ignores it: a mask by another name had no effect on a green build."""
    _save(tmp_path)
    made = project(CONFIG.replace('"input_ids"', f'"{name}"'))
    with pytest.raises(MismatchError) as caught:
        load(made)
    assert caught.value.message == f"method 'forward' of the transformers model has no argument {name!r}"
    assert (caught.value.hint or "").startswith(hint)


# The hub -------------------------------------------------------------------------------------------------------------

REVISION = "0123456789abcdef0123456789abcdef01234567"
HUB = CONFIG.replace('"./net"', f'"org/tiny"\nrevision = "{REVISION}"')


def test_a_hub_model_comes_from_the_cache(project: Callable[..., Project], tmp_path: Path) -> None:
    model = _save(tmp_path)
    snapshots = tmp_path / "hub" / "models--org--tiny" / "snapshots"
    snapshots.mkdir(parents=True)
    (tmp_path / "net").rename(snapshots / REVISION)
    loaded = load(project(HUB))
    assert torch.equal(loaded.module.pooler.dense.weight, model.pooler.dense.weight)


def test_a_hub_model_that_is_not_there(project: Callable[..., Project]) -> None:
    message = "transformers cannot load 'org/tiny': OSError: We couldn't connect to 'https://huggingface.co'…"
    hint = "connect to the network, or put the hub model's files into the local cache"
    check_failure(lambda: load(project(HUB)), Failure(LoadError, HF, message, hint))


def test_without_transformers(project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch) -> None:
    made = project(CONFIG)
    monkeypatch.setitem(sys.modules, "transformers", None)
    error = check_failure(
        lambda: load(made),
        Failure(
            MissingRequirementError,
            HF,
            "`model.hf` needs the package 'transformers', which is not installed",
            'pip install "etdev[hf]"',
        ),
    )
    assert error.exit_code == 3
