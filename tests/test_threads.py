"""Work in threads: results in order, errors, calls within calls, forked processes."""

import os
import signal
import threading
import time

import numpy as np
import pytest

from dplda.kernels import _denoise, _team
from dplda.leaf._threads import in_threads, n_threads


def team():
    """The threads of this process that wait for work."""
    return [t for t in threading.enumerate() if t.name == "dplda-team"]


def square(x):
    return x * x


@pytest.mark.parametrize("n_jobs", [None, 1, 2, 3, 50, -1])
@pytest.mark.parametrize("n", [0, 1, 2, 17])
def test_results_are_in_the_order_of_the_pieces(n, n_jobs):
    assert in_threads(square, range(n), n_jobs) == [x * x for x in range(n)]


@pytest.mark.parametrize("error", [ValueError, IndexError, KeyboardInterrupt])
def test_an_error_ends_the_work_of_all_threads_and_is_raised(error):
    begun = []

    def run(piece):
        begun.append(piece)
        if piece == 3:
            raise error("piece 3")
        time.sleep(0.001)

    with pytest.raises(error, match="piece 3"):
        in_threads(run, range(1000), 3)
    n_begun = len(begun)
    assert n_begun < 100
    time.sleep(0.01)
    assert len(begun) == n_begun  # nothing goes on behind the caller
    assert in_threads(square, range(5), 3) == [0, 1, 4, 9, 16]


def test_calls_within_calls_and_from_many_threads_end():
    def outer(n):
        return sum(in_threads(square, range(n), 4))

    seen = []
    callers = [
        threading.Thread(target=lambda: seen.append(in_threads(outer, range(20), 4)))
        for _ in range(6)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert seen == [[sum(x * x for x in range(n)) for n in range(20)]] * 6


def ended(child, seconds=30):
    """The exit status of a process; None if it hangs, and it is killed then."""
    for _ in range(100 * seconds):
        process, status = os.waitpid(child, os.WNOHANG)
        if process:
            return status
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
# a fork with threads, on purpose
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_has_threads_and_a_team_of_its_own():
    table = np.ones((3000, 40))
    expected = _denoise.topic_sums(table, n_threads(3))
    time.sleep(0.02)  # the team falls asleep, and nobody in the child could wake it
    for _ in range(5):
        child = os.fork()
        if not child:
            found = [_denoise.topic_sums(table, n_threads(3)) for _ in range(50)]
            same = all(np.array_equal(sums, expected) for sums in found)
            same = same and in_threads(square, range(9), 3) == [x * x for x in range(9)]
            os._exit(0 if same and len(team()) == 2 else 1)
        assert ended(child) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_system_without_more_threads_does_the_work_in_those_it_has(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    table = np.ones((3000, 40))
    expected = _denoise.topic_sums(table, 1)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    child = os.fork()  # which has no team yet
    if not child:
        same = n_threads(3) == 3 and np.array_equal(
            _denoise.topic_sums(table, 3), expected
        )
        os._exit(0 if same and not team() else 1)
    assert ended(child) == 0


def test_a_team_takes_over_the_mode_of_the_caller(request):
    """A thread that reads floats as zeros, unlike another one, would change a sum."""
    table = np.full((20000, 30), np.finfo(float).smallest_subnormal)
    before = _team.use_pieces(300)
    try:
        usual = [_denoise.topic_sums(table, n_threads(4)) for _ in range(20)]
        request.getfixturevalue("flushed")
        flushed = [_denoise.topic_sums(table, n_threads(4)) for _ in range(20)]
    finally:
        _team.use_pieces(before)
    # compared as integers, whatever this thread takes the smallest floats for
    assert all((sums.view(np.int64) > 0).all() for sums in usual)
    assert not any(sums.view(np.int64).any() for sums in flushed)


def test_pieces_are_run_in_the_mode_of_the_caller(request):
    together = threading.Barrier(3)  # each of the threads works on some piece

    def see(piece):
        if piece < 3:
            together.wait(60)
        return threading.get_ident(), np.float64(5e-324) * 1.0 > 0

    usual = set(in_threads(see, range(50), 3))
    request.getfixturevalue("flushed")
    flushed = set(in_threads(see, range(50), 3))
    assert len(usual) == len(flushed) == 3
    assert all(positive for _, positive in usual)
    assert not any(positive for _, positive in flushed)
