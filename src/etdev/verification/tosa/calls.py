"""Recording of delegate calls, and execution of the recorded calls in the TOSA reference model."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etdev import tosa_tools
from etdev.program import Blob
from etdev.program.sidecar.records import DelegateRecord
from etdev.runtime.interpreter.reference import ReferenceExecutor
from etdev.runtime.interpreter.settings import DelegateContext, DelegateExecutor
from etdev.runtime.interpreter.tensors import RunTensor
from etdev.verification.tosa import worker
from etdev.verification.tosa.own_ops import digest_of

if TYPE_CHECKING:
    import numpy as np

_LIMIT = 1800.0
"""Maximum time for all calls of a check, in seconds."""


@dataclass(frozen=True)
class Call:
    """One call of a delegate in a run of the program."""

    digest: str
    """SHA-256 of the delegate's blob."""
    inputs: tuple[np.ndarray[Any, Any], ...]
    expected: tuple[np.ndarray[Any, Any], ...]
    """Outputs of the quantized model for ``inputs``."""
    at: str = ""
    """Description of the program's sample, such as ``sample 3 of 'forward'``."""


class ModelFailureError(Exception):
    """Error for a reference model that did not answer."""


def recording_executor(
    records: Mapping[str, DelegateRecord], record: Callable[[Call], None]
) -> Callable[[DelegateContext], DelegateExecutor]:
    """Return a factory of executors that compute a delegate with its reference program.

    The executors pass each call to ``record``.
    """

    def load(context: DelegateContext) -> DelegateExecutor:
        digest = digest_of(context.data)
        return _Recording(replace(context, data=Blob(records[digest].reference)), digest, record)

    return load


class _Recording(ReferenceExecutor):
    """Executor that computes a delegate with its reference program, and passes each call to a function."""

    def __init__(self, context: DelegateContext, digest: str, record: Callable[[Call], None]) -> None:
        super().__init__(context)
        self._device, self._digest, self._record = context.device, digest, record

    def execute(self, arguments: Sequence[RunTensor | int | float | bool | None]) -> None:
        inputs = tuple(self._array(item) for item in arguments[: self.input_count])
        super().execute(arguments)
        expected = tuple(self._array(item) for item in arguments[self.input_count :])
        self._record(Call(self._digest, inputs, expected))

    def _array(self, argument: RunTensor | int | float | bool | None) -> np.ndarray[Any, Any]:
        import numpy as np

        if isinstance(argument, RunTensor):
            found: np.ndarray[Any, Any] = argument.view(self._device).contiguous().cpu().numpy().copy()
            return found
        return np.array(argument)


def run_model(
    calls: Sequence[Call], records: Mapping[str, DelegateRecord]
) -> list[tuple[np.ndarray[Any, Any], ...] | str]:
    """Run the graph of each call on the call's inputs. Return each call's outputs, or the reason why there are none.

    Raises :class:`ModelFailureError` if the process of the reference model fails.
    """
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder)
        for digest in {call.digest for call in calls}:
            (job / f"{digest}.tosa").write_bytes(records[digest].graph)
        for number, call in enumerate(calls):
            for index, array in enumerate(call.inputs):
                np.save(job / f"{number}.in.{index}.npy", array)
        (job / "calls.json").write_text(json.dumps([(f"{call.digest}.tosa", len(call.inputs)) for call in calls]))
        command = [sys.executable, "-P", worker.__file__, str(tosa_tools.folder()), folder]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT, check=False)
        except subprocess.TimeoutExpired:
            raise ModelFailureError(f"the TOSA reference model did not answer within {_LIMIT:g} s") from None
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            cause = lines[-1] if lines else "it printed nothing"
            raise ModelFailureError(f"the TOSA reference model ended with exit code {done.returncode}: {cause}")
        answers: list[int | str] = json.loads((job / "answers.json").read_text())
        return [
            answer
            if isinstance(answer, str)
            else tuple(np.load(job / f"{number}.out.{index}.npy") for index in range(answer))
            for number, answer in enumerate(answers)
        ]
