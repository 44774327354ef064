"""Shards on processes of this machine: the worked example of docs/scaling.md."""

from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context


class ProcessEngine:
    """Runs each task in a process, to which its arguments travel.

    Parameters
    ----------
    n_processes : int
        Number of processes.

    Examples
    --------
    >>> model = SubLDA(100, epsilon=4.0)  # doctest: +SKIP
    >>> model.fit(CountShards("corpus/").on(ProcessEngine(4)))  # doctest: +SKIP
    """

    def __init__(self, n_processes):
        self.n_tasks = n_processes  # at a time
        self.pool = ProcessPoolExecutor(n_processes, get_context("spawn"))

    def submit(self, function, *arguments):
        """Begin a task. An argument that is one itself stands for its result."""
        known = [
            each.result() if isinstance(each, Future) else each for each in arguments
        ]
        return self.pool.submit(function, *known)

    def gather(self, tasks):
        """The results of tasks, each once, in order."""
        for task in list(tasks):
            yield task.result()
