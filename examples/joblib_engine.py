"""Shards on processes of this machine, by joblib: the worked example of docs/scaling.md."""

from joblib import Parallel, delayed


def visit(worker, method, message, part):
    """What a process does: the result of a shard, and the worker with its new topic weights."""
    return getattr(worker, method)(*message, *part), worker


class JoblibEngine:
    """Visits each shard in a process of joblib; topic weights travel with the tasks.

    Parameters
    ----------
    n_processes : int
        Number of processes.

    Examples
    --------
    >>> model = SubLDA(100, epsilon=4.0)  # doctest: +SKIP
    >>> model.fit(CountShards("corpus/").on(JoblibEngine(4)))  # doctest: +SKIP
    """

    def __init__(self, n_processes):
        self.n_processes = n_processes

    def start(self, workers):
        """Begin a fit with fresh workers, one for each shard."""
        self.workers = list(workers)

    def gather(self, method, message):
        """The result of each shard, in order."""
        return list(self._visits(method, message, None))

    def sum(self, method, message, parts=None):
        """The sum of the integer arrays that the shards return, each shard exactly once."""
        return sum(self._visits(method, message, parts))

    def _visits(self, method, message, parts):
        own = parts or [()] * len(self.workers)
        # max_nbytes=None: joblib would write large arguments, samples among them, to the disk
        run = Parallel(self.n_processes, return_as="generator", max_nbytes=None)
        visits = run(
            delayed(visit)(worker, method, message, part)
            for worker, part in zip(list(self.workers), own)
        )
        for i, (result, worker) in enumerate(visits):
            self.workers[i] = worker
            yield result
