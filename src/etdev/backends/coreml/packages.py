"""Core ML packages with the same bytes in each build.

coremltools names the parts of a package by random UUIDs, and writes the maps of a model in a random order. ExecuTorch
adds a random identifier, by which the runtime finds a compiled model in its cache. This module derives each name
from the part's path, sorts the maps by key, and derives the identifier from the package's content.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_NAMESPACE = uuid.UUID("6f0c3c3e-0d6b-5a53-9f0d-2f3f0c1b7a55")


@contextmanager
def reproducible() -> Iterator[dict[str, Any]]:
    """Make ExecuTorch's Core ML backend write reproducible packages in this block. Yield an empty dict.

    :meth:`~etdev.backends.base.RecordsDelegates.recording` requires a dict of records. Core ML has no records.
    """
    from executorch.backends.apple.coreml import executorchcoreml
    from executorch.backends.apple.coreml.compiler import coreml_preprocess

    numbers = itertools.count()
    names = SimpleNamespace(uuid4=lambda: uuid.uuid5(_NAMESPACE, f"{next(numbers)}"))
    random_names = coreml_preprocess.uuid
    flatten = executorchcoreml.flatten_directory_contents

    def flatten_reproducible(folder: str) -> bytes | None:
        make_reproducible(Path(folder))
        content: bytes | None = flatten(folder)
        return content

    executorchcoreml.flatten_directory_contents = flatten_reproducible
    coreml_preprocess.uuid = names  # With several methods, a name is also the key of the package in the file.
    try:
        yield {}
    finally:
        coreml_preprocess.uuid = random_names
        executorchcoreml.flatten_directory_contents = flatten


def make_reproducible(folder: Path) -> None:
    """Make the packages and ExecuTorch's ``metadata.json`` in a folder reproducible. Do not change their meaning."""
    for manifest in sorted(folder.rglob("Manifest.json")):
        manifest.write_text(json.dumps(_named_by_path(json.loads(manifest.read_text())), indent=4, sort_keys=True))
    for model in sorted(folder.rglob("*.mlmodel")):
        model.write_bytes(_in_order(model.read_bytes()))
    metadata = folder / "metadata.json"
    if metadata.is_file():
        content = json.loads(metadata.read_text())
        content["identifier"] = f"executorch_{uuid.uuid5(_NAMESPACE, _digest(folder))}"
        metadata.write_text(json.dumps(content))


def _named_by_path(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest with a new name for each item: a UUID that depends only on the item's path."""
    items = manifest["itemInfoEntries"]
    names = {old: str(uuid.uuid5(_NAMESPACE, item["path"])) for old, item in items.items()}
    return manifest | {
        "itemInfoEntries": {names[old]: item for old, item in items.items()},
        "rootModelIdentifier": names[manifest["rootModelIdentifier"]],
    }


def _in_order(model: bytes) -> bytes:
    """Return the same model with the entries of each map sorted by key."""
    from coremltools.proto import Model_pb2

    content: bytes = Model_pb2.Model.FromString(model).SerializeToString(deterministic=True)
    return content


def _digest(folder: Path) -> str:
    """Return the SHA-256 of the paths and contents of all files except ``metadata.json``."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path != folder / "metadata.json":
            found.update(f"{path.relative_to(folder).as_posix()} {path.stat().st_size}\n".encode())
            found.update(path.read_bytes())
    return found.hexdigest()
