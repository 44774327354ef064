"""Visits shards on the workers of a dask.distributed cluster.

A task names shards, a method and its message, and returns an integer sum. Topic weights stay where
they are. A worker may be lost at any time: the shards of a task without a result go to other
workers, which infer the weights of all earlier rounds once more. The coordinator adds the result of
a shard exactly once.
"""

from __future__ import annotations

import asyncio
import pickle
import pkgutil
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, wait
from threading import Event, Lock
from typing import Any

import joblib
import numpy as np

from dplda._version import __version__
from dplda.leaf._messages import warn_user
from dplda.privacy import PrivateDataWarning

POLL = 1.0  # seconds between two looks for workers that are gone
NO_WORKERS = 300.0  # seconds without any worker, after which a fit gives up
MAX_LOSSES = 20  # times in a row that all tasks of a call are lost
SCATTER = 10.0  # seconds until a worker that has paused is passed over
LOCAL = ("tls://", "tcp://127.0.0.1:", "tcp://localhost:", "tcp://[::1]:", "inproc://")


class Sealed:
    """Private values on their way. A worker that fails writes the repr of arguments to its log."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def take(self) -> Any:
        """The value, which is then here no more: distributed lets go of its objects late."""
        value, self.value = self.value, None
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        # in one piece: arrays beside it arrive read-only and at any address, even at odd ones
        return _unsealed, (pickle.dumps(self.value, pickle.HIGHEST_PROTOCOL),)

    def __repr__(self) -> str:
        return "<private>"


def _unsealed(data: bytes) -> Sealed:
    return Sealed(pickle.loads(data))


_workers: dict[str, dict[int, Any]] = {}  # of a worker process: the fit that it works for
_one_at_a_time = Lock()  # a task that was taken for lost may still run


def visit(task: Sealed) -> Sealed | None:
    """Run a task on a worker: the results of some shards, added if `adds`.

    None if the topic weights of a shard are not here, so that its past is needed.
    """
    fit, shards, method, message, adds, number = task.value
    results: list[Any] = []
    # threads: else n_jobs counts as 1 in a child of a nanny
    with _one_at_a_time, joblib.parallel_config("threading"):
        mine = _workers.setdefault(fit, {})
        for other in [name for name in _workers if name != fit]:
            del _workers[other]
        for index, fresh, part, past in shards:
            worker = mine.pop(index, fresh)  # an error loses what it has done in part
            worker.catch_up(past)
            if worker.n_steps < number - 1:
                return None
            if adds:
                total = results[0] if results else None
                results = [getattr(worker, method)(*message, *part, out=total)]
            else:
                results.append(getattr(worker, method)(*message, *part))
            mine[index] = worker  # its scale and its topic weights are known from now on
    return Sealed(results)


class DaskEngine:
    """One task for each worker and call, with the shards that are assigned to the worker.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._known: set[str] = set()  # workers with this version of dplda

    def start(self, workers: Sequence[Any]) -> None:
        """Begin a fit."""
        self._shards = list(workers)
        self._fit = uuid.uuid4().hex
        self._address: dict[int, str] = {}  # worker of each shard
        self._lost = set(range(len(workers)))  # shards whose topic weights may be nowhere
        # inference of each round that begins with the weights of the last, and units of each shard
        self._past: list[tuple[Any, list[Any]]] = []
        if not all(address.startswith(LOCAL) for address in self._alive()):
            warn_user(
                "the workers of this client do not use TLS, and exact sums of private documents "
                "travel between them; pass distributed.Security with certificates to the cluster "
                "and the client",
                PrivateDataWarning,
            )

    def gather(self, method: str, message: tuple[Any, ...]) -> list[Any]:
        """The result of each shard, in order."""
        found: dict[int, Any] = {}
        for indices, results in self._visits(method, message, None, adds=False):
            found.update(zip(indices, results))
        return [found[index] for index in range(len(self._shards))]

    def sum(self, method: str, message: tuple[Any, ...], parts: Any = None) -> np.ndarray:
        """The sum of what the shards return, each exactly once."""
        total: Any = None
        for _, (part,) in self._visits(method, message, parts, adds=True):
            total = part if total is None else np.add(total, part, out=total)
        if n_steps := _number(method, message):
            assert n_steps == len(self._past) + 1
            self._past.append((message[0].inference, [units for units, _ in parts]))
        return total

    def _visits(
        self, method: str, message: tuple[Any, ...], parts: Any, *, adds: bool
    ) -> Iterator[tuple[list[int], list[Any]]]:
        """Results of all shards, in tasks: the shards of a task are in no other result."""
        left, n_losses = set(range(len(self._shards))), 0
        while left:
            if n_losses == MAX_LOSSES:
                raise RuntimeError(
                    f"all workers of the cluster were lost {MAX_LOSSES} times in a row during the "
                    "same call; look at their logs, and give them more memory or smaller shards"
                )
            n_losses += 1
            for indices, result in self._run(sorted(left), method, message, parts, adds):
                left.difference_update(indices)
                n_losses = 0
                yield indices, result

    def _run(
        self, left: list[int], method: str, message: tuple[Any, ...], parts: Any, adds: bool
    ) -> Iterator[tuple[list[int], list[Any]]]:
        """Submit one task to each worker, and yield what comes back. Lost tasks are left out."""
        waiting, arrived = {}, Event()
        for address, indices in self._assigned(left).items():
            shards = []
            for i in indices:  # a worker that may not have seen earlier rounds gets their inference
                past = [(step, units[i]) for step, units in self._past if i in self._lost]
                shards.append((i, self._shards[i], parts[i] if parts else (), past))
            task = Sealed((self._fit, shards, method, message, adds, _number(method, message)))
            try:
                # To this worker alone: a broadcast waits for workers that are gone. The scheduler
                # keeps the arguments of `submit` in its memory for long, so that nothing is there.
                (sent,) = self._client.scatter(
                    [task], workers=[address], hash=False, timeout=SCATTER
                )
                future = self._client.submit(
                    visit, sent, workers=[address], allow_other_workers=False, pure=False,
                    retries=0, key=f"dplda-{uuid.uuid4().hex}",
                )  # fmt: skip
            except Exception as error:
                # KeyError: the scheduler has forgotten the worker; OSError: it cannot reach it
                if not _is_loss(error) and not isinstance(error, (KeyError, OSError)):
                    raise
                continue
            waiting[future] = address, indices
            future.add_done_callback(lambda _: arrived.set())
        alive = [address for address, _ in waiting.values()]
        try:
            while waiting:
                arrived.clear()
                for future in list(waiting):
                    address, indices = waiting[future]
                    gone = address not in alive or future.status in ("lost", "cancelled")
                    if not future.done() and not gone:
                        continue
                    del waiting[future]
                    try:
                        result = self._result(future)
                    except Exception as error:
                        raise _met_by(address, error) from error
                    # released at once: else the scheduler computes what was added once more
                    future.release()
                    if result is None:
                        self._lost.update(indices)
                    else:
                        self._lost.difference_update(indices)
                        yield indices, result
                if waiting and not self._wait(arrived):
                    alive = self._alive()
        finally:
            for future in waiting:
                future.cancel()

    def _result(self, future: Any) -> list[Any] | None:
        """What a task returned; None if its worker or its state was lost. It raises its errors.

        A large result on a slow network takes its time. A gather that is canceled on its way, as by
        a timeout, would spoil the next one of the client.
        """
        if future.status not in ("finished", "error"):
            return None
        arriving = asyncio.run_coroutine_threadsafe(
            self._client.gather(future, asynchronous=True), self._client.loop.asyncio_loop
        )
        while not wait([arriving], POLL).done:
            if future.status not in ("finished", "error"):  # its worker is gone
                arriving.cancel()
                return None
        try:
            sealed = arriving.result()
        except Exception as error:
            if not _is_loss(error):
                raise
            return None
        return None if sealed is None else sealed.take()

    def _wait(self, arrived: Event) -> bool:
        """Whether something arrived until it is time to look for workers that are gone.

        `distributed.wait` raises an error after this time. The error stands in a reference cycle
        with its frames, which hold the tables of the round.
        """
        return arrived.wait(POLL)

    def _alive(self) -> list[str]:
        """Addresses of the workers, once there is one."""
        end = time.monotonic() + NO_WORKERS
        while not (alive := sorted(self._client.scheduler_info(n_workers=-1)["workers"])):
            if time.monotonic() > end:
                raise TimeoutError(f"the cluster had no worker for {NO_WORKERS:.0f} seconds")
            time.sleep(POLL)
        if new := sorted(set(alive) - self._known):
            self._check_version(new)
        return alive

    def _check_version(self, workers: list[str]) -> None:
        """Refuse workers without dplda, or with another version. They may lack what a task names.

        What is asked of them is in Python itself: a worker without dplda can answer.
        """
        found = self._client.run(
            pkgutil.resolve_name, "dplda._version:__version__", workers=workers, on_error="return"
        )
        for worker, version in found.items():
            if isinstance(version, Exception) and _is_loss(version):
                continue  # it is asked again if it comes back
            if version != __version__:
                has = version if isinstance(version, str) else f"none that it can load ({version})"
                raise RuntimeError(
                    f"this process has dplda {__version__}, and the worker {worker} has {has}; "
                    "install the same version on all machines of the cluster"
                )
            self._known.add(worker)

    def _assigned(self, left: list[int]) -> dict[str, list[int]]:
        """A living worker for each shard: that of the last call, or the one with the fewest."""
        load = {address: 0 for address in self._alive()}
        for index, address in list(self._address.items()):
            if address in load:
                load[address] += 1
            else:
                del self._address[index]
                self._lost.add(index)
        tasks: dict[str, list[int]] = {}
        for index in left:
            if index not in self._address:
                self._address[index] = min(load, key=lambda address: load[address])
                load[self._address[index]] += 1
            tasks.setdefault(self._address[index], []).append(index)
        return tasks


def _number(method: str, message: tuple[Any, ...]) -> int:
    """The number of a step that begins with the topic weights of the step before; 0: no step."""
    return message[0].number if method == "sum" else 0


def _met_by(address: str, error: Exception) -> Exception:
    """The error of a task, which names the worker."""
    for kind in (ValueError, OSError):
        if isinstance(error, kind):
            return kind(f"{error} (met by the worker {address})")
    name = type(error).__name__
    return RuntimeError(f"the worker {address} failed with {name}: {error}")


def _is_loss(error: Exception) -> bool:
    """Whether the cluster failed, and not the task."""
    if isinstance(error, (CancelledError, TimeoutError, ConnectionError)):
        return True
    return type(error).__module__.partition(".")[0] == "distributed"
