"""Encoding of jobs, results and errors as lists of byte buffers, called parts.

The first part is a pickle. The pickle's out-of-band buffers follow; decoding copies them. The last parts are the
contents of arrays, which are not copied.
"""

from __future__ import annotations

import pickle
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from etdev.data_stack import with_room
from etdev.errors import UsageError
from etdev.runtime.hostmem import host_bytes
from etdev.runtime.orchestrator.errors import RemoteError
from etdev.runtime.orchestrator.messages import ArrayArgument, Cost, Job, Outcome
from etdev.runtime.orchestrator.worker import Worker

Dumps = Callable[..., bytes]
"""``pickle.dumps``, or a compatible function such as cloudpickle's."""
Read = Callable[[Sequence[Any]], Any]
"""A function that decodes the answer to a command."""
_MAIN = re.compile(rb"__main__|__mp_main__")


class RemoteTracebackError(Exception):
    """Traceback of an error on a worker. It is the cause of the error that this process raises."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def dump(value: Any, dumps: Dumps = pickle.dumps) -> list[Any]:
    """Encode a value. Raises all errors of pickling."""
    buffers: list[pickle.PickleBuffer] = []
    stream = dumps(value, protocol=5, buffer_callback=buffers.append)
    return [stream, *(buffer.raw() for buffer in buffers)]


def load(parts: Sequence[Any]) -> Any:
    """Decode a value, and copy its buffers."""
    return pickle.loads(parts[0], buffers=map(bytearray, parts[1:]))


def names_main(parts: Sequence[Any]) -> bool:
    """Return True if decoding needs the main module of the sending process."""
    return _MAIN.search(parts[0]) is not None


def dump_job(job: Job, dumps: Dumps = pickle.dumps) -> list[Any]:
    """Encode a job. Raises :class:`~etdev.errors.UsageError` if an argument cannot be pickled."""
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
    """Decode a job."""
    call, args, kwargs, keep = load(parts)
    for position, arg in enumerate(args):
        if isinstance(arg, ArrayArgument) and arg.data is not None:
            args[position] = replace(arg, data=parts[arg.data])
    return Job(call, tuple(args), kwargs, keep)


@with_room
def run_job(
    worker: Worker, parts: Sequence[Any], dumps: Dumps = pickle.dumps, *, before: Callable[[], None] | None = None
) -> list[Any]:
    """Call ``before``, decode and run a job, and return the job's encoded outcome.

    Raises the errors of the task. Raises :class:`~etdev.errors.UsageError` if the job cannot be decoded or the outcome
    cannot be encoded.
    """
    try:
        if before is not None:
            before()
        job = load_job(parts)
    except Exception as error:
        raise UsageError(
            f"worker {worker.number} cannot unpickle a task: {type(error).__name__}: {error}",
            hint="define the function and the types of its arguments in modules that the worker can import",
        ) from error
    outcome = worker.run(job)
    try:
        return dump_outcome(outcome, dumps)
    except Exception as error:
        raise UsageError(
            f"the result of {name_of(job.call)} is a {type(outcome.value).__name__}, which cannot be sent to another "
            f"process: {error}",
            hint="return picklable data, or keep the object on the worker with `create`",
        ) from error


def dump_outcome(outcome: Outcome, dumps: Dumps = pickle.dumps) -> list[Any]:
    """Encode an outcome. Raises all errors of pickling."""
    cost = outcome.cost
    costs = (cost.seconds, cost.bytes_to, cost.bytes_from, cost.bytes_avoided)
    parts = dump((outcome.value, tuple(outcome.outputs), costs), dumps)
    return [*parts, *outcome.outputs.values()]


def load_outcome(parts: Sequence[Any]) -> Outcome:
    """Decode an outcome."""
    value, positions, costs = load(parts)
    outputs = dict(zip(positions, parts[len(parts) - len(positions) :], strict=True))
    return Outcome(value, outputs, Cost(*costs))


def dump_error(error: BaseException, dumps: Dumps = pickle.dumps) -> list[Any]:
    """Encode an error; if this is impossible, encode its message, its traceback and the name of its type."""
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - the message comes from the code of the error
        words = "an error without a message"
    text = "".join(traceback.format_exception(error))
    try:
        itself = dumps(error)
    except Exception:  # noqa: BLE001 - pickling runs arbitrary code
        itself = b""
    return [pickle.dumps((type(error).__qualname__, words, text)), itself]


def load_error(parts: Sequence[Any]) -> BaseException:
    """Decode an error; if this fails, return a :class:`RemoteError`.

    The ``__cause__`` of the returned error contains the traceback from the worker.
    """
    name, words, text = pickle.loads(parts[0])
    try:
        found = pickle.loads(parts[1])
    except Exception:  # noqa: BLE001 - unpickling runs arbitrary code
        found = None
    error = found if isinstance(found, BaseException) else RemoteError(f"{name}: {words}")
    error.__cause__ = RemoteTracebackError(text)
    return error


def decode(worker: int, parts: Sequence[Any], read: Read) -> tuple[Any, BaseException | None]:
    """Decode the answer of a worker; if this fails, return the error for the caller instead."""
    try:
        return read(parts), None
    except Exception as error:  # noqa: BLE001 - unpickling runs arbitrary code
        failure = UsageError(
            f"an answer of worker {worker} cannot be read: {type(error).__name__}: {error}",
            hint="return only data whose types are in modules that this process can import",
        )
        failure.__cause__ = error
        return None, failure


def nothing(parts: Sequence[Any]) -> None:
    """Decode an answer without content."""


def first_part(parts: Sequence[Any]) -> bytearray:
    """Decode an answer of bytes."""
    return bytearray(parts[0])


def name_of(call: Any) -> str:
    """Return the name of a function for messages."""
    return str(getattr(call, "__qualname__", type(call).__name__))


def _refuse(job: Job, error: Exception, dumps: Dumps) -> UsageError:
    """Return an error for a job that cannot be pickled.

    The error names the function or, if the function can be pickled, the first argument that cannot be pickled.
    """
    call = name_of(job.call)
    if not _can_be_sent(job.call, dumps):
        return UsageError(
            f"{call} cannot be sent to another process: {error}",
            hint="submit a function that is defined in a module, and pass data as arguments",
        )
    named: Mapping[Any, Any] = {**dict(enumerate(job.args)), **job.kwargs}
    for name, value in named.items():
        if not _can_be_sent(value, dumps):
            return UsageError(
                f"argument {name} of {call} is a {type(value).__name__}, which cannot be sent to another process: "
                f"{error}",
                hint="pass picklable data, or create the object on the worker with `create`",
            )
    return UsageError(f"the arguments of {call} cannot be sent to another process: {error}")


def _can_be_sent(value: Any, dumps: Dumps) -> bool:
    try:
        dump(value, dumps)
    except Exception:  # noqa: BLE001 - pickling runs arbitrary code
        return False
    return True
