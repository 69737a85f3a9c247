"""Jobs, outcomes and errors as parts of messages: a pickle, its out-of-band buffers, and transient bytes.

Arrays of a task's arguments and outputs are transient bytes: they are used in place. Values that a task may keep are
copied.
"""

from __future__ import annotations

import pickle
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from etdev.errors import UsageError
from etdev.runtime.hostmem import host_bytes
from etdev.runtime.orchestrator.errors import RemoteError
from etdev.runtime.orchestrator.messages import ArrayArgument, Cost, Job, Outcome
from etdev.runtime.orchestrator.worker import Worker

Dumps = Callable[..., bytes]
"""``pickle.dumps``, or a function with the same arguments that pickles more."""
_MAIN = re.compile(rb"__main__|__mp_main__")


class RemoteTracebackError(Exception):
    """Traceback of an error on its worker, as the cause of that error here."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def dump(value: Any, dumps: Dumps = pickle.dumps) -> list[Any]:
    """Return a value as parts. Raises any error of the value's own code."""
    buffers: list[pickle.PickleBuffer] = []
    stream = dumps(value, protocol=5, buffer_callback=buffers.append)
    return [stream, *(buffer.raw() for buffer in buffers)]


def load(parts: Sequence[Any]) -> Any:
    """Return the value of parts. It copies all buffers after the pickle."""
    return pickle.loads(parts[0], buffers=map(bytearray, parts[1:]))


def names_main(parts: Sequence[Any]) -> bool:
    """Return whether the value needs the main module of the sending process."""
    return _MAIN.search(parts[0]) is not None


def dump_job(job: Job, dumps: Dumps = pickle.dumps) -> list[Any]:
    """Return a job as parts. Raises :class:`~etdev.errors.UsageError` if it cannot be pickled."""
    args, once = [], []
    for arg in job.args:
        if isinstance(arg, ArrayArgument) and arg.data is not None:
            once.append(host_bytes(arg.data))
            args.append(replace(arg, data=-len(once)))
        else:
            args.append(arg)
    try:
        parts = dump((job.call, args, dict(job.kwargs), job.keep), dumps)
    except Exception as error:
        raise _refuse(job, error, dumps) from error
    return [*parts, *reversed(once)]


def load_job(parts: Sequence[Any]) -> Job:
    """Return the job of parts."""
    call, args, kwargs, keep = load(parts)
    for position, arg in enumerate(args):
        if isinstance(arg, ArrayArgument) and arg.data is not None:
            args[position] = replace(arg, data=parts[arg.data])
    return Job(call, tuple(args), kwargs, keep)


def run_job(
    worker: Worker, parts: Sequence[Any], dumps: Dumps = pickle.dumps, *, before: Callable[[], None] | None = None
) -> list[Any]:
    """Run a received job and return its outcome as parts. Call ``before`` before the job is unpickled.

    Raises :class:`~etdev.errors.UsageError` for a job that cannot be unpickled or an outcome that cannot be sent, and
    the errors of the task.
    """
    try:
        if before is not None:
            before()
        job = load_job(parts)
    except Exception as error:
        raise UsageError(
            f"a task cannot be read on worker {worker.number}: {type(error).__name__}: {error}",
            hint="what it calls and what it is given have to be in modules that can be imported there",
        ) from error
    outcome = worker.run(job)
    try:
        return dump_outcome(outcome, dumps)
    except Exception as error:
        raise UsageError(
            f"the result of {name_of(job.call)} is a {type(outcome.value).__name__}, which cannot be sent to another "
            f"process: {error}",
            hint="return the data that the object is made from, or keep the object on its worker with `create`",
        ) from error


def dump_outcome(outcome: Outcome, dumps: Dumps = pickle.dumps) -> list[Any]:
    """Return an outcome as parts. Raises any error of the code of its value."""
    cost = outcome.cost
    costs = (cost.seconds, cost.bytes_to, cost.bytes_from, cost.bytes_avoided)
    parts = dump((outcome.value, tuple(outcome.outputs), costs), dumps)
    return [*parts, *outcome.outputs.values()]


def load_outcome(parts: Sequence[Any]) -> Outcome:
    """Return the outcome of parts."""
    value, positions, costs = load(parts)
    outputs = dict(zip(positions, parts[len(parts) - len(positions) :], strict=True))
    return Outcome(value, outputs, Cost(*costs))


def dump_error(error: BaseException, dumps: Dumps = pickle.dumps) -> list[Any]:
    """Return an error as parts, even if it cannot be pickled."""
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - the message comes from the code of the error
        words = "an error without words"
    text = "".join(traceback.format_exception(error))
    try:
        itself = dumps(error)
    except Exception:  # noqa: BLE001 - pickling runs arbitrary code
        itself = b""
    return [pickle.dumps((type(error).__qualname__, words, text)), itself]


def load_error(parts: Sequence[Any]) -> BaseException:
    """Return the error, or a :class:`RemoteError` if unpickling fails; ``__cause__`` is the remote traceback."""
    name, words, text = pickle.loads(parts[0])
    try:
        found = pickle.loads(parts[1])
    except Exception:  # noqa: BLE001 - unpickling runs arbitrary code
        found = None
    error = found if isinstance(found, BaseException) else RemoteError(f"{name}: {words}")
    error.__cause__ = RemoteTracebackError(text)
    return error


def name_of(call: Any) -> str:
    """Return the name of a callable for messages."""
    return str(getattr(call, "__qualname__", type(call).__name__))


def _refuse(job: Job, error: Exception, dumps: Dumps) -> UsageError:
    """Return the error for the first part of a job that cannot be sent."""
    call = name_of(job.call)
    if not _can_be_sent(job.call, dumps):
        return UsageError(
            f"{call} cannot be sent to another process: {error}",
            hint="call a function that has a name in a module, and give it all that it needs as arguments",
        )
    named: Mapping[Any, Any] = {**dict(enumerate(job.args)), **job.kwargs}
    for name, value in named.items():
        if not _can_be_sent(value, dumps):
            return UsageError(
                f"argument {name} of {call} is a {type(value).__name__}, which cannot be sent to another process: "
                f"{error}",
                hint="give what it is made from, or make it there and keep it there: `create`",
            )
    return UsageError(f"the arguments of {call} cannot be sent to another process: {error}")


def _can_be_sent(value: Any, dumps: Dumps) -> bool:
    try:
        dump(value, dumps)
    except Exception:  # noqa: BLE001 - pickling runs arbitrary code
        return False
    return True
