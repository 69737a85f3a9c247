"""Random modules through a whole build, and through plain ExecuTorch and ``etdev relink``.

Each trial draws a module (``drawn_models.py``): elementwise operations, views, slices, ``cat``, ``cond``, ``map``,
``scan``, ``while_loop``, writes in place, state, reductions, layers, integers and bools, half precision, a dynamic
dimension, sizes 0 and 1, scalars, repeated outputs, outputs that are inputs, two methods on one state. It is built for
the portable kernels or XNNPACK, sometimes into memory banks, sometimes with a part on a simulated device.

Demanded: the file computes what eager PyTorch does, and a share of the builds passes all checks. The file has the same
bits as its object program, call after call. A relink of plain ExecuTorch's file has the same bits as that file. All of
it counts where plain ExecuTorch's file is right; what plain ExecuTorch builds and runs right is not refused, but for
state that a delegate of a device would hold apart from other methods.

    python benchmarks/campaigns/models.py [--count N] [--seconds S] [--seed N] [--start N] [--plain FOLDER]
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

import pytest
import torch
from campaign import Run, Settings, Trial, describe, main
from drawn_models import Drawn, draw, module, tensor
from plain_files import PlainFiles, PlainRefusedError
from quick_torch import quicken

from etdev.errors import EtdevError
from etdev.pipeline.relink import relink
from etdev.runtime.stock import ProgramFailureError, StockRuntime
from etdev.verification.compare import same_bits
from support.stock import SpareProcesses

_CALLS = 2
_NEGATED = 1
_NUMBERS = 8
"""Number of ways to draw the numbers of the calls."""
_VERIFIED = 8
"""One build in so many runs all checks; the others are compared with eager PyTorch here. On devices, all of them."""
_TOLERANCE = {"float16": (2e-2, 2e-2), "half": (2e-2, 2e-2), "bfloat16": (1e-1, 1e-1)}
"""Relative and absolute tolerance of modules with such values; 1e-3 and 1e-4 for others."""
_BANKS = 'memory.banks = [{ name = "fast", id = 2, size = "2KiB" }, { name = "slow", id = 1, size = "1MiB" }]\n'
_OWN_STATE = "a delegate has its own copy of the state"
"""Message where a device takes a part with state that another method changes; plain ExecuTorch has no such part."""
_TARGETS = {
    "portable": "",
    "xnnpack": 'partitioners = [{ backend = "xnnpack" }]\n',
    "banks": _BANKS,
    "xnnpack in banks": 'partitioners = [{ backend = "xnnpack" }]\n' + _BANKS,
    "device": 'partitioners = [{ backend = "reference", device = "cuda:0" }]\n',
}
_SHARES = {"portable": 10, "xnnpack": 5, "banks": 2, "xnnpack in banks": 1, "device": 2}


def config(drawn: Drawn, target: str) -> str:
    """Return the text of the config."""
    text = ["version = 1", "[project]", 'name = "m"', "[model]", 'entry = "model:Net"']
    if len(drawn.inputs) > 1:
        text.append("share_state = true")
    for method, inputs in drawn.inputs.items():
        given = []
        for name, dtype, shape in inputs:
            sizes: list[Any] = list(shape)
            if drawn.dynamic and sizes:
                sizes[0] = f"n{shape[0]}"
            given.append(f'{{ name = "{name}", dtype = "{dtype}", shape = {sizes!r} }}'.replace("'", '"'))
        text += [f"[methods.{method}]", f"inputs = [{', '.join(given)}]"]
        for size in sorted({shape[0] for _, _, shape in inputs if shape}) if drawn.dynamic else ():
            text.append(f"dims.n{size} = {{ min = 1, max = {max(size, 2) + 2} }}")
    return "\n".join([*text, "[targets.t]", _TARGETS[target]]) + "\n"


class _Campaign:
    """Trials of models."""

    def __init__(self, settings: Settings) -> None:
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        quicken()
        self.seed = settings.seed
        self._plain_files = PlainFiles(settings.options.plain)
        self._open = ExitStack()
        # A process of the runtime serves many builds.
        SpareProcesses().patch(pytest.MonkeyPatch())
        self.place = Path(tempfile.mkdtemp())
        self._open.callback(shutil.rmtree, self.place, ignore_errors=True)
        self.stock = self._open.enter_context(StockRuntime(limit=60))
        self.stock.operators  # noqa: B018 - waits for its imports

    def run(self, number: int) -> Trial:
        trial = self._trial(number, 8)
        if trial.wrong:
            kind = trial.wrong[0].partition(":")[0]
            for most in range(1, 8):
                smaller = self._trial(number, most)
                if any(wrong.startswith(kind) for wrong in smaller.wrong):
                    return smaller
        return trial

    def _trial(self, number: int, most: int) -> Trial:
        chance = random.Random(f"{self.seed} {number}")
        target = chance.choices(list(_SHARES), list(_SHARES.values()))[0]
        drawn = draw(chance, most)
        trial = Trial(ends=[target, *sorted(f"with {kind}" for kind in drawn.kinds)])
        folder = self.place / f"{number}-{most}"
        folder.mkdir()
        source, text = drawn.source(), config(drawn, target)
        (folder / "model.py").write_text(source)
        (folder / "etdev.toml").write_text(text)
        trial.files = {".py": source.encode(), ".toml": text.encode()}
        try:
            plain = self._plain(drawn, source, target, folder, trial)
            verify = target == "device" or not chance.randrange(_VERIFIED)
            self._build(folder, target, drawn, plain, trial, verify=verify)
        finally:
            shutil.rmtree(folder)
            sys.modules.pop("model", None)
        return trial

    # Plain ExecuTorch

    def _plain(self, drawn: Drawn, source: str, target: str, folder: Path, trial: Trial) -> str:
        """Build with plain ExecuTorch, run and relink. Return ``right``, ``wrong`` or ``refused``."""
        try:
            file = self._plain_files.make(drawn, source, target, folder)
        except PlainRefusedError as error:
            trial.ends.append(f"plain refused: {error}")
            return "refused"
        shared = len(drawn.inputs) > 1
        try:
            found = self._outputs(drawn, file, shared=shared)
        except ProgramFailureError:
            trial.ends.append("plain fails at run")
            return "wrong"
        right = _as_eager(found, drawn, source)
        trial.ends.append("plain right" if right else "plain wrong")
        linked = folder / "relinked.pte"
        try:
            relink(file, linked)
        except EtdevError as error:
            trial.ends.append("relink refused")
            return self._refused(drawn, source, file, target, trial, error.message) if right else "wrong"
        except Exception as error:  # noqa: BLE001 - what is looked for
            trial.wrong.append(f"relink error: {describe(error)}")
            return "wrong"
        if right:
            try:
                same = _same(self._outputs(drawn, linked, shared=shared), found)
            except ProgramFailureError as error:
                trial.wrong.append(f"relink: the file fails: {str(error)[:300]}")
            else:
                trial.ends.append("relink same bits" if same else "relink other bits")
                if not same:
                    trial.wrong.append("relink: other bits than plain ExecuTorch's file")
        if right and drawn.dynamic and not self._is_right_at_smallest(drawn, source, file):
            trial.ends.append("plain wrong at the smallest size")
            return "wrong"
        return "right" if right else "wrong"

    def _refused(self, drawn: Drawn, source: str, file: Path, target: str, trial: Trial, message: str) -> str:
        """Record that the relink of a file with right outputs was refused. Return ``right`` or ``wrong``.

        The plan of the file may be wrong where these calls do not show it: in its state, in the branches that they do
        not take, where a condition overwrites numbers with the same numbers, where a loop overwrites those rows of its
        operand that it has read, or where the outputs do not depend on the overwritten part of a value.
        """
        if self._is_right(drawn, source, file, numbers=_NEGATED) and all(
            self._is_right_alone(seen, target, file.parent) for seen in _variants(drawn)
        ):
            trial.wrong.append(f"relink refused: {message[:300]}")
            return "right"
        trial.ends.append("plain wrong where these calls do not show it")
        return "wrong"

    def _is_right_at_smallest(self, drawn: Drawn, source: str, file: Path) -> bool:
        """Return whether a file is right where each dynamic size is 1, which the builds of etdev try."""
        inputs = {
            method: [(name, dtype, (1, *shape[1:]) if shape else shape) for name, dtype, shape in given]
            for method, given in drawn.inputs.items()
        }
        try:
            return self._is_right(replace(drawn, inputs=inputs), source, file)
        except Exception:  # noqa: BLE001 - eager PyTorch cannot compute this size
            return False

    def _is_right_alone(self, drawn: Drawn, target: str, folder: Path) -> bool:
        """Return whether plain ExecuTorch's file of another module is right."""
        try:
            file = self._plain_files.make(drawn, drawn.source(), target, folder)
            return self._is_right(drawn, drawn.source(), file)
        except Exception:  # noqa: BLE001 - ExecuTorch refuses the other module, so the first one counts
            return True

    def _is_right(self, drawn: Drawn, source: str, file: Path, *, numbers: int = 0) -> bool:
        try:
            found = self._outputs(drawn, file, shared=len(drawn.inputs) > 1, numbers=numbers)
        except ProgramFailureError:
            return False
        return _as_eager(found, drawn, source, numbers=numbers)

    def _outputs(self, drawn: Drawn, file: Path, *, shared: bool, numbers: int = 0) -> list[Any]:
        """Return the outputs of some calls of each method on one state."""
        self.stock.load(file, shared=shared)
        found: list[Any] = []
        for number, (method, inputs) in enumerate(_calls(drawn, numbers)):
            found += self.stock.call(method, inputs, fresh=not number)
        return found

    # etdev

    def _build(self, folder: Path, target: str, drawn: Drawn, plain: str, trial: Trial, *, verify: bool) -> None:
        import etdev

        try:
            options = {"device_map": "cuda:0=sim"} if target == "device" else {}
            result = etdev.build(folder / "etdev.toml", cache=False, verify=verify, **options)["t"]
        except EtdevError as error:
            trial.ends.append(f"build refused, plain {plain}")
            if target == "device" and drawn.buffers() and _OWN_STATE in error.message:
                trial.ends.append("build refused, state in a delegate")
            elif plain == "right":
                trial.wrong.append(f"build refused: {error.message[:400]}")
            return
        except Exception as error:  # noqa: BLE001 - what is looked for
            trial.wrong.append(f"build error: {describe(error)}")
            return
        trial.ends.append(f"build {result.status}")
        for check in result.checks:
            trial.ends.append(f"check {check.name} {check.status}")
            if check.status == "failed" and plain == "right" and self._is_right_for_others(drawn, target, folder):
                trial.wrong.append(f"check {check.name}: {check.summary[:400]}")
        if result.status == "built" and target != "device":
            self._compare(folder, folder / result.artifact, drawn, plain, trial)

    def _is_right_for_others(self, drawn: Drawn, target: str, folder: Path) -> bool:
        """Return whether plain ExecuTorch's file is right for other numbers, too: the checks try such numbers."""
        source = drawn.source()
        file = self._plain_files.make(drawn, source, target, folder)
        return all(self._is_right(drawn, source, file, numbers=numbers) for numbers in range(1, _NUMBERS))

    def _compare(self, folder: Path, built: Path, drawn: Drawn, plain: str, trial: Trial) -> None:
        """Compare a built file with eager PyTorch and with its object program."""
        try:
            found = self._outputs(drawn, built, shared=True)
        except ProgramFailureError as error:
            trial.ends.append("the file fails at run")
            if plain == "right":
                trial.wrong.append(f"run: the file fails: {str(error)[:300]}")
            return
        if _as_eager(found, drawn, (folder / "model.py").read_text()):
            trial.ends.append("same as eager within tolerance")
        elif plain == "right":
            trial.wrong.append("eager: other outputs than eager PyTorch")
        else:
            trial.ends.append("other than eager, as plain")
        if len(drawn.inputs) > 1:
            return  # The methods of an object program do not share state.
        (objects,) = built.parent.rglob("*.object.pte")
        if _same(found, self._outputs(drawn, objects, shared=True)):
            trial.ends.append("same bits as the object program")
        else:
            trial.wrong.append("object: other bits than the object program")


def _variants(drawn: Drawn) -> Iterator[Drawn]:
    """Yield modules that show more of the plan of a module, or whose numbers are others."""
    other = drawn.with_other_branches()
    for one in (
        *(drawn, other, drawn.with_other_branches(inner=True), other.with_other_branches(inner=True)),
        *(drawn.with_other_operands(), drawn.with_other_content()),
    ):
        yield one
        yield one.with_more_outputs()


def _calls(drawn: Drawn, numbers: int = 0) -> list[tuple[str, tuple[torch.Tensor, ...]]]:
    """Return methods and inputs of some calls. With :data:`_NEGATED`, floats have the other sign than with 0."""

    def value(dtype: str, shape: tuple[int, ...], seed: int) -> torch.Tensor:
        found = tensor(dtype, shape, seed + (1000 * numbers if numbers != _NEGATED else 0))
        return -found if numbers == _NEGATED and found.is_floating_point() else found

    return [
        (method, tuple(value(dtype, shape, 100 * call + place) for place, (_, dtype, shape) in enumerate(inputs)))
        for call in range(_CALLS)
        for method, inputs in drawn.inputs.items()
    ]


def _eager(drawn: Drawn, source: str, numbers: int) -> list[torch.Tensor]:
    made, found = module(source), []
    with torch.no_grad():
        for method, inputs in _calls(drawn, numbers):
            outputs = getattr(made, method)(*(value.clone() for value in inputs))
            found += [value.clone() for value in (outputs if isinstance(outputs, tuple) else (outputs,))]
    return found


def _as_eager(found: list[Any], drawn: Drawn, source: str, *, numbers: int = 0) -> bool:
    """Return whether outputs equal those of eager PyTorch within the tolerance of its least precise values."""
    relative, absolute = max((given for name, given in _TOLERANCE.items() if name in source), default=(1e-3, 1e-4))

    def one(value: Any, wanted: torch.Tensor) -> bool:
        if not isinstance(value, torch.Tensor) or value.shape != wanted.shape or value.dtype != wanted.dtype:
            return False
        return torch.allclose(value, wanted, relative, absolute, equal_nan=True)

    expected = _eager(drawn, source, numbers)
    return len(found) == len(expected) and all(one(*pair) for pair in zip(found, expected, strict=True))


def _same(found: list[Any], expected: list[Any]) -> bool:
    return len(found) == len(expected) and all(same_bits(*pair) for pair in zip(found, expected, strict=True))


def make(settings: Settings) -> Run:
    """Return the trial of each number."""
    return _Campaign(settings).run


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plain", type=Path, metavar="FOLDER", help="keep the files of plain ExecuTorch, or take them")


if __name__ == "__main__":
    sys.exit(main("models", make, doc=__doc__, count=20_000, hang=300, options=_options))
