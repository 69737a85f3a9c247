"""What a result depends on, so that one of other versions is not taken for one of these."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("executorch", "torch", "transformers", "diffusers")


def versions() -> Sequence[str]:
    """Names and versions of the packages whose versions count."""
    return [f"{name} {version(name)}" for name in PACKAGES]


def result_key(*parts: Any) -> str:
    """Digest of what is particular to a result, of the packages' versions and of etdev's source."""
    import etdev

    source = hashlib.sha256()
    for path in sorted(Path(etdev.__file__).parent.rglob("*.py")):
        source.update(path.read_bytes())
    content = [*parts, sorted(versions()), source.hexdigest()]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def model_facts(name: str) -> dict[str, Any]:
    """What a model of the zoo is made from."""
    from dataclasses import asdict

    from architectures import BY_NAME

    return asdict(BY_NAME[name]) | {"fixed": sorted(BY_NAME[name].fixed)}
