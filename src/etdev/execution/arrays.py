"""Reader of arrays from ``.npy``, ``.npz`` and ``.safetensors`` files; never runs code that a file contains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etdev.backends.base import BUILD_EXTRA, find_packages
from etdev.errors import EtdevError, MissingRequirementError, UsageError
from etdev.files import describe_os_error, open_file

if TYPE_CHECKING:
    import torch

FORMATS = ".npy, .npz, .safetensors, .txt or .csv"
NAMED = frozenset({".npz", ".safetensors"})
"""Suffixes of the formats that store several arrays, each with a name."""
WHERE = "--input"

Arrays = Mapping[str, "torch.Tensor"]


@dataclass(frozen=True, slots=True)
class _Format:
    """A file format for arrays."""

    read: Callable[[Path], Arrays]
    magic: tuple[bytes, ...]
    """First bytes of a file in this format, one item for each variant; empty if such files have no fixed start."""
    remedy: str


def read_arrays(path: Path, label: str = "") -> Arrays:
    """Map the name of each array in a file to the array. The only array of a ``.npy`` file has an empty name.

    ``label`` describes the purpose of the file in messages, such as ``input 'image'``. Raises
    :class:`~etdev.errors.UsageError` for a file that cannot be read. The error omits the message of the library that
    reads the file.
    """
    what = f"{label}: {path}" if label else str(path)
    form = _FORMATS.get(path.suffix.lower())
    if form is None:
        otherwise = ", or write a number, or a list such as [3, 5, 7]" if label else ""
        raise UsageError(
            f"{what} is not in a format that etdev can read", where=WHERE, hint=f"use {FORMATS}{otherwise}"
        )
    try:
        with open_file(path) as file:
            start = file.read(8)
        if form.magic and not start.startswith(form.magic):
            raise UsageError(f"{what} is not a {path.suffix.lower()} file", where=WHERE, hint=form.remedy)
        return form.read(path)
    except EtdevError:
        raise
    except OSError as error:
        cause, remedy = describe_os_error(error)
        raise UsageError(f"cannot read {what}: {cause}", where=WHERE, hint=remedy) from error
    except _ObjectsError as error:
        message = f"{what} contains Python objects, which etdev does not read because they may run code"
        raise UsageError(message, where=WHERE, hint="save plain numbers: `array.astype(...)`") from error
    except Exception as error:  # For damaged bytes, the readers raise arbitrary errors.
        raise UsageError(f"{what} is damaged or incomplete", where=WHERE, hint=form.remedy) from error


class _ObjectsError(Exception):
    """Error for an array of Python objects, which only pickle can read."""


def _arrays(path: Path) -> Arrays:
    import numpy as np

    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return {"": _from_numpy(found)}
        with found:
            return {name: _from_numpy(found[name]) for name in found.files}
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise _ObjectsError from error
        raise


def _from_numpy(array: Any) -> torch.Tensor:
    import numpy as np
    import torch

    return torch.from_numpy(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))).reshape(array.shape))


def _safetensors(path: Path) -> Arrays:
    package = find_packages("safetensors", remedy=BUILD_EXTRA)
    if not package.available:
        raise MissingRequirementError(f"{path.name}: {package.reason}", hint=package.remedy)
    from safetensors.torch import load_file

    return dict(load_file(path))


_FORMATS = {
    ".npy": _Format(_arrays, (b"\x93NUMPY",), "write it again: `numpy.save(FILE, array)`"),
    ".npz": _Format(_arrays, (b"PK\3\4", b"PK\5\6"), "write it again: `numpy.savez(FILE, NAME=array)`"),
    ".safetensors": _Format(_safetensors, (), "write it again: `safetensors.torch.save_file({NAME: tensor}, FILE)`"),
}
