"""Runs the tasks of a fit of shards on the workers of a dask.distributed cluster.

A task is a pure function of files and of its arguments: messages, and results of
earlier tasks. Dask keeps each result on the worker that computed it. If a worker is
lost, Dask computes its results again from earlier tasks, with the same bits.
"""

from __future__ import annotations

import gc
import pickle
import pkgutil
import uuid
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Protocol, runtime_checkable

import joblib

from dplda._version import __version__
from dplda.leaf._messages import warn_user
from dplda.privacy import PrivateDataWarning

NO_WORKERS = 300.0  # seconds that a fit waits for a first worker
LOCAL = ("tls://", "tcp://127.0.0.1:", "tcp://localhost:", "tcp://[::1]:", "inproc://")


class Sealed:
    """A private value that travels between processes, as a pickle.

    A worker that fails writes the repr of its arguments to its log; this repr shows
    nothing. Each `open` makes a copy, so that no task can change the value for another.
    Dask would deliver a bare array read-only and possibly unaligned.
    """

    def __init__(self, fit: str, data: bytes) -> None:
        self.fit = fit
        self.data = data

    @classmethod
    def of(cls, fit: str, value: object) -> Sealed:
        return cls(fit, pickle.dumps(value, pickle.HIGHEST_PROTOCOL))

    def open(self) -> Any:
        return pickle.loads(self.data)

    def __reduce__(self) -> tuple[type[Sealed], tuple[str, bytes]]:
        return Sealed, (self.fit, self.data)

    def __sizeof__(self) -> int:  # Dask sends the smaller argument to the larger one
        return len(self.data)

    def __repr__(self) -> str:
        return "<private>"


def run(
    version: str, fit: str, function: Callable[..., object], *arguments: Sealed
) -> Sealed:
    """Run a task on a worker; errors name the worker."""
    from distributed import get_worker

    address = get_worker().address
    if version != __version__:  # the worker came after the fit began
        raise _other_version(version, address, __version__)
    try:
        # otherwise joblib takes n_jobs as 1 in a process that a nanny has started
        with joblib.parallel_config("threading"):
            return Sealed.of(
                fit, function(*(argument.open() for argument in arguments))
            )
    except Exception as error:
        error.add_note(f"met by the worker {address}")
        raise


def wipe(fit: str) -> None:
    """Wipe all private values of a fit that this process still holds.

    Dask keeps arguments of tasks in a log for developers, and for lost workers.
    """
    for kept in gc.get_objects():
        if type(kept) is Sealed and kept.fit == fit:
            kept.data = b""


@runtime_checkable
class Client(Protocol):
    """The methods of `distributed.Client` that are used here."""

    def wait_for_workers(self, n_workers: int, *, timeout: float) -> object: ...

    def run(
        self, function: Callable[..., object], *arguments: object, on_error: str
    ) -> dict[str, object]: ...

    def submit(
        self, function: Callable[..., object], *arguments: object, pure: bool
    ) -> object: ...

    def run_on_scheduler(
        self, function: Callable[..., object], *arguments: object
    ) -> object: ...


class DaskEngine:
    """An `Engine` that runs tasks on the workers of a cluster.

    Parameters
    ----------
    client : distributed.Client
        The client.
    """

    def __init__(self, client: Client) -> None:
        client.wait_for_workers(1, timeout=NO_WORKERS)
        # a function of Python itself, so that a worker without dplda can answer
        found = client.run(
            pkgutil.resolve_name, "dplda._version:__version__", on_error="return"
        )
        for address, version in found.items():
            if version != __version__:
                raise _other_version(__version__, address, version)
        self._client = client
        self._fit = uuid.uuid4().hex
        self.n_tasks: float = len(found)
        self._wipe = weakref.finalize(self, _wipe_everywhere, client, self._fit)
        if not all(address.startswith(LOCAL) for address in found):
            warn_user(
                "the workers of this client do not use TLS, and exact sums of private "
                "documents travel between them; pass distributed.Security with "
                "certificates to the cluster and the client",
                PrivateDataWarning,
            )

    def submit(self, function: Callable[..., object], *arguments: object) -> object:
        """Begin a task.

        Dask takes the worker that holds most of the arguments, unless it is busy.
        """
        from distributed import Future

        sent = [
            each if isinstance(each, Future) else Sealed.of(self._fit, each)
            for each in arguments
        ]
        with warnings.catch_warnings():
            # Dask warns of large arguments; a table is sent once a round
            warnings.filterwarnings("ignore", "Sending large graph")
            return self._client.submit(
                run, __version__, self._fit, function, *sent, pure=False
            )

    def gather(self, tasks: Iterable[object]) -> Iterator[Any]:
        """The results of tasks, in order; the cluster forgets each when it is sent."""
        waiting: deque[Any] = deque(tasks)  # futures
        while waiting:
            yield waiting.popleft().result().open()

    def close(self) -> None:
        """Wipe all private values that this process and the scheduler still hold."""
        self._wipe()


def _wipe_everywhere(client: Client, fit: str) -> None:
    wipe(fit)
    with suppress(Exception):  # the cluster may be gone
        client.run_on_scheduler(wipe, fit)


def _other_version(version: str, address: str, found: object) -> RuntimeError:
    has = found if isinstance(found, str) else f"none that it can load ({found})"
    return RuntimeError(
        f"the process that runs fit has dplda {version}, and the worker {address} has "
        f"{has}; install the same version on all machines of the cluster"
    )
