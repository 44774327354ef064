"""Shards on processes of this machine, by joblib: the worked example of docs/scaling.md."""

from functools import reduce
from operator import iadd

from joblib import Parallel, delayed


class JoblibEngine:
    """Visits each shard in a process of joblib, which keeps nothing for the next visit.

    Parameters
    ----------
    n_processes : int
        Number of processes.

    Examples
    --------
    >>> model = SubLDA(100, epsilon=4.0)  # doctest: +SKIP
    >>> model.fit(CountShards("corpus/").on(JoblibEngine(4)))  # doctest: +SKIP
    """

    keeps_weights = False  # a shard meets a fresh worker in every round

    def __init__(self, n_processes):
        self.n_processes = n_processes

    def start(self, workers):
        """Begin a fit with fresh workers, one for each shard."""
        self.workers = workers

    def gather(self, method, message):
        """The result of each shard, in order."""
        return list(self._visits(method, message, None))

    def sum(self, method, message, parts=None):
        """The sum of the integer arrays that the shards return, each shard exactly once."""
        return reduce(iadd, self._visits(method, message, parts))

    def _visits(self, method, message, parts):
        own = parts or [()] * len(self.workers)
        # max_nbytes=None: joblib would write large arguments, samples among them, to the disk
        run = Parallel(self.n_processes, return_as="generator", max_nbytes=None)
        return run(
            delayed(getattr(worker, method))(*message, *part)
            for worker, part in zip(self.workers, own)
        )
