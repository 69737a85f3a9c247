"""E1: what holds for every config, not just for the ones in the examples."""

from __future__ import annotations

import tempfile
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import tomli_w
from hypothesis import example, given
from hypothesis import strategies as st

from config.support import emit, load
from etdev.config.describe.notation import literal
from etdev.config.describe.show import show_toml
from etdev.config.keys import KeyPath, format_key, parse_dotted
from etdev.config.layers import Layer, Mark, Origin, lookup, overlay, paths_of
from etdev.config.parsing.toml import parse_toml
from etdev.config.parsing.yaml import parse_yaml
from etdev.errors import ConfigError

text = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp"), exclude_characters="\ufeff\ufffe\uffff"),
    max_size=8,
)
scalars = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | text
names = st.from_regex(r"[a-z][a-z0-9_-]{0,5}", fullmatch=True) | text
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=12
)
documents = st.dictionaries(names, values, max_size=5)

identifiers = st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True)
safe_names = st.from_regex(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,6}", fullmatch=True)
finite = st.floats(-1e6, 1e6) | st.integers(-1000, 1000)
sizes = st.integers(0, 2**40) | st.sampled_from(["64KiB", "1.5 MB", "0B"])


owners = st.sampled_from(["host", "device", "caller"])
operators = identifiers | identifiers.map("aten::{}.out".format) | identifiers.map("aten.{}.default".format)


def optional(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keys)


targets = optional(
    partitioners=st.lists(
        st.fixed_dictionaries(
            {"backend": st.just("xnnpack")},
            optional={
                "device": st.sampled_from(["cpu", "cuda", "cuda:3"]),
                "compile_specs": st.dictionaries(identifiers, st.integers(-9, 9) | text, max_size=2),
            },
        ),
        max_size=2,
    ),
    verify=optional(atol=st.floats(0, 1), min_snr_db=finite, require=st.lists(st.sampled_from(["bytes", "runtime"]))),
    memory=optional(
        planner=st.sampled_from(["naive", "best", "planners:mine"]), alignment=st.integers(0, 14).map(lambda n: 2**n)
    ),
    io=optional(
        forward=optional(
            inputs=owners | st.just({"x": "caller"}),
            outputs=owners | st.dictionaries(st.integers(0, 9).map(str), owners, max_size=2),
        )
    ),
    elide=optional(views=st.booleans()),
    inplace=optional(
        ops=st.sampled_from(["default", "none", ["relu"]]),
        add=st.lists(operators, max_size=2),
        remove=st.lists(operators, max_size=2),
    ),
    budget=optional(file=sizes, copies=sizes, memory=optional(**{"cpu": sizes, "cuda:0": sizes})),
    runtime=optional(kernels=st.lists(st.sampled_from(["portable", "quantized"]))),
)


def _with_new_targets(data: dict[str, Any]) -> dict[str, Any]:
    """Say of each target that only a profile has that it is new."""
    for profile in data.get("profiles", {}).values():
        for name, target in profile.get("targets", {}).items():
            if name not in data["targets"]:
                target["new"] = True
    return data


def _has_folders_of_their_own(data: dict[str, Any]) -> bool:
    for profile in ({}, *data.get("profiles", {}).values()):
        names = {*data["targets"], *profile.get("targets", {})}
        if len({name.casefold() for name in names}) < len(names):
            return False
    return True


configs = (
    st.fixed_dictionaries(
        {
            "version": st.just(1),
            "model": st.fixed_dictionaries(
                {"entry": st.just("model:make")}, optional={"kwargs": documents, "share_state": st.booleans()}
            ),
            "methods": st.just({"forward": {"inputs": [{"name": "x", "dtype": "int8", "shape": [1]}]}}),
            "targets": st.dictionaries(safe_names, targets, min_size=1, max_size=2),
        },
        optional={
            "project": optional(name=safe_names, imports=st.lists(identifiers), out=text.filter(bool)),
            "constants": st.just("model:constants")
            | st.dictionaries(
                identifiers.filter("forward".__ne__), scalars | st.lists(scalars, min_size=1, max_size=2), max_size=2
            ),
            "profiles": st.dictionaries(
                safe_names, optional(targets=st.dictionaries(safe_names, targets, max_size=1)), max_size=1
            ),
        },
    )
    .map(_with_new_targets)
    .filter(_has_folders_of_their_own)
)


def _load(content: str, name: str, *arguments: str, **options: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return load(Path(folder), content, name, *arguments, **options)


@given(configs)
def test_toml_and_yaml_of_the_same_data_are_the_same_config(data: dict[str, Any]) -> None:
    in_toml = _load(tomli_w.dumps(data), "etdev.toml")
    in_yaml = _load(emit(data, "yaml")[0], "etdev.yaml")
    assert in_toml.config == in_yaml.config
    assert set(in_toml.origins) == set(in_yaml.origins)


@given(configs)
def test_the_effective_config_loads_to_itself(data: dict[str, Any]) -> None:
    first = _load(tomli_w.dumps(data), "etdev.toml")
    assert _load(show_toml(first), "etdev.toml").config == first.config


@given(configs)
def test_the_effective_config_of_a_profile_loads_to_itself(data: dict[str, Any]) -> None:
    for profile in data.get("profiles", {}):
        first = _load(tomli_w.dumps(data), "etdev.toml", profile=profile)
        assert _load(show_toml(first), "etdev.toml").config == first.config


def _layer(data: dict[str, Any], name: str) -> Layer:
    origin = Origin("file", name, Path("/"))
    return Layer(data, {path: Mark(origin) for path in paths_of(data)})


small = st.recursive(
    st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
small_documents = st.dictionaries(st.sampled_from("abc"), small, max_size=3)


@given(small_documents, small_documents)
def test_the_later_layer_wins(below: dict[str, Any], above: dict[str, Any]) -> None:
    merged = overlay(_layer(below, "below"), _layer(above, "above"))
    for path in paths_of(above):
        exists, stated = lookup(above, path)
        assert exists
        if not isinstance(stated, dict):
            assert lookup(merged.data, path) == (True, stated)
            assert merged.marks[path].origin.source == "above"
    for path, mark in merged.marks.items():
        exists, value = lookup(merged.data, path)
        assert exists, "no mark of something that is gone"
        if not isinstance(value, dict):
            source = above if mark.origin.source == "above" else below
            assert lookup(source, path) == (True, value)
    assert set(merged.marks) == set(paths_of(merged.data))


@given(small_documents, small_documents, small_documents)
def test_layering_is_associative(a: dict[str, Any], b: dict[str, Any], c: dict[str, Any]) -> None:
    first, second, third = (_layer(data, name) for data, name in ((a, "a"), (b, "b"), (c, "c")))
    left = overlay(overlay(first, second), third)
    right = overlay(first, overlay(second, third))
    # A table in the middle hides what lies below a value: only chains of tables, or of values, associate.
    if not _has_mixed(a, b, c):
        assert left == right


def _has_mixed(*layers: Any) -> bool:
    present = [layer for layer in layers if layer is not None]
    kinds = {isinstance(layer, dict) for layer in present}
    if kinds != {True}:
        return len(kinds) > 1
    keys = {key for layer in present for key in layer}
    return any(_has_mixed(*(layer.get(key) for layer in present)) for key in keys)


def _slice(content: str, line: int, column: int) -> str:
    return content.split("\n")[line - 1][column - 1 :]


def _check_places(content: str, parsed: Any, data: dict[str, Any]) -> None:
    assert parsed.data == data
    for path in paths_of(data):
        place = parsed.places[path]
        if path and isinstance(path[-1], str):
            found = _slice(content, *place.key)
            assert found.startswith((path[-1], literal(path[-1]))) or _begins_with_key(found, path[-1])
        _, value = lookup(data, path)
        if not isinstance(value, dict | list):
            found = _slice(content, *place.value)
            assert found[:1] == literal(value)[:1] or found.startswith(('"', "'"))


def _begins_with_key(found: str, name: str) -> bool:
    """Whether a text begins with a quoted key of this name, however it is escaped."""
    return any(parse_dotted(found[:end]) == (name,) for end in range(len(found), 0, -1))


@given(documents)
def test_places_in_toml(data: dict[str, Any]) -> None:
    """The position of a key points at its text, whatever stands before it on the line."""
    content = tomli_w.dumps(data)
    _check_places(content, parse_toml(content, "x.toml"), tomllib.loads(content))


@given(documents)
@example({"*": {"a": 1}})
def test_places_in_one_line_of_toml(data: dict[str, Any]) -> None:
    content = f'"é" = {literal(data)}\n'
    _check_places(content, parse_toml(content, "x.toml"), {"é": data})


@given(documents)
def test_places_in_yaml(data: dict[str, Any]) -> None:
    content, _ = emit(data, "yaml")
    _check_places(content, parse_yaml(content, "x.yaml"), data)


@given(st.lists(names.filter(bool), min_size=1, max_size=4))
def test_keys_read_back(parts: list[str]) -> None:
    path: KeyPath = tuple("x" if part == "*" else part for part in parts)
    assert parse_dotted(format_key(path)) == path


@given(
    st.text(st.characters(codec="utf-8"), max_size=60)
    | st.binary(max_size=60).map(lambda raw: raw.decode("utf-8", "ignore"))
)
def test_no_text_is_a_crash(content: str) -> None:
    """Whatever is in the file, there is a config or a ConfigError."""
    for name in ("etdev.toml", "etdev.yaml"):
        with suppress(ConfigError):
            _load(content, name)
