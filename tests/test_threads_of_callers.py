"""Threads of a caller that use the package at once: each gets what it would get alone.

The tests hold with the global interpreter lock too, which lets threads take turns
anywhere.
"""

import sys
import sysconfig
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from test_threads_of_fits import FITS, X

from dplda.audit import observe_releases
from dplda.datasets import make_topic_corpus
from dplda.leaf._threads import in_threads, n_threads
from dplda.privacy import BudgetError, Gaussian, Ledger, epsilon_of
from dplda.privacy.mechanisms import DiscreteGaussian

MECHANISM = DiscreteGaussian.for_noise_multiplier(2.0)


@pytest.fixture(autouse=True)
def short_turns():
    """With the interpreter lock, threads take turns of microseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def at_once(*calls):
    """Results of functions that threads begin at once; the first error is raised."""
    start = threading.Barrier(len(calls))

    def begin(call):
        start.wait(60)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        begun = [pool.submit(begin, call) for call in calls]
        return [future.result(300) for future in begun]


def forget_caches():
    """Let all caches of the package be filled anew, by threads that race for them."""
    modules = [
        m for name, m in [*sys.modules.items()] if name.split(".")[0] == "dplda" and m
    ]
    for value in [value for module in modules for value in vars(module).values()]:
        if hasattr(value, "cache_clear") and not isinstance(value, type):
            value.cache_clear()


# longer loops
LARGE = make_topic_corpus(1000, X.shape[1], 4, doc_length=60, random_state=0).data


def released(name, seed, n_jobs):
    model = FITS[name](random_state=seed, n_jobs=n_jobs).fit(LARGE)
    return model.components_, model.epsilon_, model.transform(LARGE)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["SubLDA, sampled", "HDPLDA"])
def test_fits_at_once_are_those_of_one_thread(kind):
    """All kinds, and six of one kind that run the same loops at about the same time."""
    settings = [(name, 0) for name in FITS] + [(kind, seed) for seed in range(1, 6)]
    alone = [released(*setting, n_jobs=1) for setting in settings]
    forget_caches()
    together = at_once(*[partial(released, *setting, n_jobs=2) for setting in settings])
    for expected, found in zip(alone, together, strict=True):
        for before, now in zip(expected, found, strict=True):
            assert_array_equal(now, before)


@pytest.mark.filterwarnings("ignore")
def test_threads_share_a_model_and_a_matrix():
    """Even a matrix that is not canonical: nobody puts it in order."""
    model = FITS["SubLDA"](random_state=0, n_jobs=2).fit(X)
    order = np.concatenate(
        [
            np.arange(a, b)[::-1]
            for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)
        ]
    )
    shared = sp.csr_array((X.data[order], X.indices[order], X.indptr), shape=X.shape)
    before = [part.copy() for part in (shared.data, shared.indices, shared.indptr)]
    calls = [
        partial(model.transform, shared),
        partial(model.score, shared),
        partial(model.perplexity, shared, completion=False),
        lambda: model.privacy_.epsilon_at(1e-8),
        lambda: FITS["SubLDA"](random_state=3).fit(shared).components_,
        lambda: FITS["HDPLDA"](random_state=3).fit(shared).components_,
    ]
    alone = [call() for call in calls]
    for found, expected in zip(at_once(*calls * 3), alone * 3, strict=True):
        assert_array_equal(found, expected)
    for now, then in zip(
        (shared.data, shared.indices, shared.indptr), before, strict=True
    ):
        assert_array_equal(now, then)


@pytest.mark.parametrize("composition", ["planned", "adaptive"])
@pytest.mark.parametrize("place", ["memory", "file", "file, opened by each"])
def test_threads_never_overspend_a_ledger(place, composition, tmp_path):
    """Charges of several kinds, canceled and released, and readers, all at once."""
    path = None if place == "memory" else tmp_path / "ledger"
    budget = {"epsilon": 1.0, "delta": 1e-6, "composition": composition}
    ledger, totals = Ledger(path, **budget), []

    def charge(number):
        own = Ledger(path) if "each" in place else ledger
        granted = 0
        for _ in range(8):
            try:
                entry = own.reserve(f"{number}", "document", Gaussian(20.0))
            except BudgetError:
                break
            if number % 3 == 0:
                own.cancel(entry)
                continue
            own.begin_release(entry)
            granted += 1
        totals.append(own.epsilon_spent)
        return granted

    granted = sum(at_once(*[partial(charge, number) for number in range(6)]))
    # less again, after a charge is canceled
    assert max([*totals, ledger.epsilon_spent]) <= 1.0
    assert [e.id for e in ledger.entries()] == list(range(1, len(ledger.entries()) + 1))
    counted = [entry for entry in ledger.entries() if entry.counts]
    assert len(counted) == granted
    assert 0 < granted < 4 * 8  # the budget was spent
    assert (
        epsilon_of([event for entry in counted for event in entry.events], 1e-6) <= 1.0
    )


class SlowLabel(str):
    """A label that another one is compared with for a while."""

    def __eq__(self, other):
        time.sleep(0.02)
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def outcome(call):
    try:
        return call()
    except RuntimeError as error:
        return str(error)


def test_threads_take_each_step_of_a_plan_once(charged):
    """Two values with the same noise would show their difference."""
    plan = [(SlowLabel("sum"), MECHANISM.event)]
    curator = charged(plan)
    values = [np.full(50, number) for number in range(4)]
    release = [
        partial(curator.release, v, MECHANISM, label="sum", round=0) for v in values
    ]
    found = at_once(*[partial(outcome, call) for call in release])
    assert sum(isinstance(value, np.ndarray) for value in found) == 1
    assert (
        sum("was not planned" in value for value in found if isinstance(value, str))
        == 3
    )


@pytest.mark.filterwarnings("ignore")
def test_each_thread_observes_its_own_releases():
    def observe(seed):
        with observe_releases() as releases:
            model = FITS["SubLDA"](random_state=seed, n_jobs=2).fit(X)
        return [(r.label, r.round, r.value) for r in releases], model.components_

    alone = [observe(seed) for seed in range(3)]
    together = at_once(*[partial(observe, seed) for seed in range(3)])
    for found, expected in zip(together, alone, strict=True):
        assert len(found[0]) == len(expected[0])
        for (label, number, value), before in zip(found[0], expected[0], strict=True):
            assert (label, number) == before[:2]
            assert_array_equal(value, before[2])


NAME = ContextVar("NAME", default="none")


def names(n_jobs, pieces=64):
    """What the threads of `in_threads` see; each of them works on some piece."""
    together = threading.Barrier(n_jobs)
    n_threads(3 * n_jobs)  # of three callers at once

    def see(piece):
        if piece < n_jobs:
            together.wait(60)
        return NAME.get(), np.geterr()["over"]

    return set(in_threads(see, range(pieces), n_jobs))


def in_context(name, over):
    token = NAME.set(name)
    try:
        with np.errstate(over=over):
            return names(3)
    finally:
        NAME.reset(token)


def test_pieces_see_the_context_of_their_caller():
    calls = [
        partial(in_context, str(i), over)
        for i, over in enumerate(["raise", "call", "print"])
    ]
    assert at_once(*calls) == [
        {(str(i), o)} for i, o in enumerate(["raise", "call", "print"])
    ]
    assert names(3) == {("none", "warn")}


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"),
    reason="this Python has an interpreter lock",
)
def test_kernels_do_not_bring_the_interpreter_lock_back():
    assert "dplda.kernels._variational" in sys.modules
    assert not sys._is_gil_enabled()
