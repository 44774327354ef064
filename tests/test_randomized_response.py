"""Randomized response on documents: law, price, secrets, and that it is sparse."""

import itertools
import math
import subprocess
import sys
import tracemalloc
import warnings
from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import brentq
from scipy.stats import binom, chi2, chi2_contingency
from sklearn.base import clone

from dplda import LPLDA, OLPLDA, RandomizedResponse
from dplda.privacy import (
    BudgetError,
    Ledger,
    RandomizedResponseEvent,
    Repeated,
    SeededNoiseWarning,
    epsilon_of,
)
from dplda.privacy.mechanisms import TOTAL_VARIATION, Streams

SURE = 1e-6  # chance of a false alarm, were the seeds not fixed
MECHANISMS = [RandomizedResponse(bit_epsilon=3.0), RandomizedResponse(bit_epsilon=0.2)]
every = pytest.mark.parametrize("estimator", MECHANISMS, ids=repr)


def report_seeded(estimator, X, seed=0, **parameters):
    estimator = clone(estimator).set_params(random_state=seed, **parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeededNoiseWarning)
        return estimator.fit(X).transform(X)


def documents(n_docs, n_words, density, seed=0):
    rng = np.random.default_rng(seed)
    return sp.csr_array(
        (rng.random((n_docs, n_words)) < density) * rng.integers(1, 9, n_words)
    )


def same(a, b):
    return a.shape == b.shape and (a != b).nnz == 0


@pytest.mark.parametrize("distance", [1, 64, 400])
@every
def test_bits_do_not_know_each_other(estimator, distance):
    """Also across the end of a row."""
    X = documents(2000, 400, 0.5)
    there = X.toarray().ravel() > 0
    reported = report_seeded(estimator, X, max_doc_words=None).toarray().ravel() > 0
    for one, other in itertools.product((False, True), repeat=2):
        pairs = (there[:-distance] == one) & (there[distance:] == other)
        table = np.zeros((2, 2))
        np.add.at(
            table, (reported[:-distance][pairs] * 1, reported[distance:][pairs] * 1), 1
        )
        assert chi2_contingency(table).pvalue > SURE


def exact_epsilon(flip_mixture, n, delta):
    """Of n randomized responses, from the binomial law of the number of true ones."""
    epsilon, true = math.log(2 / flip_mixture - 1), np.arange(n + 1)
    loss, law = (2 * true - n) * epsilon, binom.pmf(true, n, 1 - flip_mixture / 2)

    def excess(x):
        return (law * np.maximum(-np.expm1(np.minimum(x - loss, 0)), 0)).sum() - delta

    return brentq(excess, 0, n * epsilon)


@pytest.mark.parametrize(
    ("flip_mixture", "bit_epsilon"),
    [(0.1, 2.9444), (0.2, 2.1972), (0.5, 1.0986), (0.9, 0.2007)],
)
def test_epsilon_of_a_bit(flip_mixture, bit_epsilon):
    """Of the paper's f, the probability that a fair coin replaces the bit."""
    X = np.ones((1, 300))
    client = RandomizedResponse(bit_epsilon=bit_epsilon).fit(X)
    assert client.bit_epsilon_ == pytest.approx(bit_epsilon)
    assert client.flip_probability_ == pytest.approx(flip_mixture / 2, abs=1e-5)


WORDS = 120


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("cap", [1, 20, 100, None])
def test_epsilon_is_the_total_of_a_document(cap, delta):
    n_bits = min(2 * (cap or WORDS), WORDS)  # that two documents may differ in

    def cost(flip):
        bits = Repeated(RandomizedResponseEvent(2.0 * flip), n_bits)
        return epsilon_of(bits, delta, total_variation=TOTAL_VARIATION)

    flips = []
    for epsilon in (0.1, 4.0, 30.0):
        client = RandomizedResponse(epsilon=epsilon, delta=delta, max_doc_words=cap)
        if not cost(0.4999999) <= epsilon <= cost(1.2e-5):  # what bits can be
            with pytest.raises(ValueError, match="epsilon must be from"):
                client.fit(np.ones((1, WORDS)))
            continue
        client.fit(np.ones((1, WORDS)))
        flips.append(client.flip_probability_)
        assert client.epsilon_ <= epsilon
        assert client.epsilon_ == client.privacy_.epsilon_at(delta) == cost(flips[-1])
        assert cost(flips[-1] * (1 - 1e-6)) > epsilon  # nothing more can be spent
        assert client.epsilon_ >= epsilon * (1 - 1e-5)
        if delta > 0:
            assert exact_epsilon(2 * flips[-1], n_bits, delta) < epsilon * (1 + 1e-9)
    assert len(flips) >= 2
    assert flips == sorted(flips, reverse=True)


def test_without_privacy_bits_are_reported_as_they_are():
    for name in ("epsilon", "bit_epsilon"):
        client = RandomizedResponse(**{name: math.inf}).fit(np.ones((2, 5)))
        assert (
            client.epsilon_
            == client.bit_epsilon_
            == client.document_epsilon_
            == math.inf
        )
        assert client.flip_probability_ == 0
        assert same(client.transform(np.eye(5)), sp.csr_array(np.eye(5)))


def test_cap_keeps_a_uniform_subset():
    X = np.tile(np.r_[np.ones(6), np.zeros(2)], (20_000, 1))
    kept = report_seeded(
        RandomizedResponse(bit_epsilon=math.inf, max_doc_words=2), X
    ).toarray()
    assert (kept.sum(axis=1) == 2).all()
    assert not kept[:, 6:].any()
    subsets = Counter(tuple(np.flatnonzero(row)) for row in kept)
    found = np.array([subsets[pair] for pair in itertools.combinations(range(6), 2)])
    expected = len(X) / 15
    assert SURE < chi2.sf(((found - expected) ** 2 / expected).sum(), 14) < 1 - SURE


@every
def test_reports_depend_on_seed_row_and_row_number_only(estimator, tiny_pieces):
    X = documents(40, 60, 0.4)
    reported = report_seeded(estimator, X, 5, max_doc_words=15)
    assert same(reported, report_seeded(estimator, X, 5, max_doc_words=15))
    assert not same(reported, report_seeded(estimator, X, 6, max_doc_words=15))
    for n in (1, 7, 10, 21):  # a shorter last block begins like a longer one
        assert same(reported[:n], report_seeded(estimator, X[:n], 5, max_doc_words=15))
    Y = X.tolil()
    Y[8:12] = 1
    again = report_seeded(estimator, Y.tocsr(), 5, max_doc_words=15)
    others = np.r_[:8, 12:40]
    assert same(reported[others], again[others])


def test_a_seed_warns_and_is_recorded():
    X = documents(5, 20, 0.2)
    client = RandomizedResponse(bit_epsilon=1.0, random_state=0).fit(X)
    with pytest.warns(SeededNoiseWarning, match="random_state") as record:
        client.transform(X)
    assert record[0].filename == __file__
    assert client.privacy_.seeded
    # no warning
    RandomizedResponse(bit_epsilon=math.inf, random_state=0).fit_transform(X)


def test_the_fitted_seed_counts():
    X = documents(20, 200, 0.2)
    client = RandomizedResponse(bit_epsilon=1.0).fit(X).set_params(random_state=0)
    assert not same(client.transform(X), client.transform(X))  # no warning either
    secrets = (bytes, np.ndarray, Streams)
    assert not [value for value in vars(client).values() if isinstance(value, secrets)]


def test_a_call_never_gives_more_than_is_charged(monkeypatch):
    """And has spent it."""
    drawn = property(lambda streams: 2**36 + 1, lambda streams, n: None)
    monkeypatch.setattr(Streams, "n_words", drawn, raising=False)
    ledger = Ledger()
    with pytest.raises(RuntimeError, match="random words"):
        RandomizedResponse(bit_epsilon=1.0, ledger=ledger).fit_transform(
            documents(20, 200, 0.2)
        )
    assert [entry.status for entry in ledger.entries()] == ["released"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "exactly one of epsilon or bit_epsilon, got none"),
        ({"epsilon": math.inf, "bit_epsilon": math.inf}, "got epsilon and bit_epsilon"),
        ({"epsilon": float("nan")}, "'epsilon'"),
        (
            {"epsilon": 40.0},
            r"to 33\.99\d* .* 3 of 3 words .*got 40;.* inf for no privacy",
        ),
        (
            {"epsilon": 1e-9, "delta": 0.0},
            r"about 1\.2e-06 to .*got 1e-09;.* lower max_doc_words",
        ),
        (
            {"bit_epsilon": 1e-9},
            r"'bit_epsilon'.* range \[4\.\d+e-07, 11\.33\d*\] or .*inf.* Got 1e-09",
        ),
        ({"bit_epsilon": 12.0}, r"Got 12\.0"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        RandomizedResponse(**parameters).fit(np.ones((2, 3)))


@pytest.mark.parametrize(
    "X",
    [
        ["secret letter"],
        [["secret", "x", "y"]],
        [[7654321, -1, 1]],
        [[7654321, np.nan, 1]],
        [7654321, 1, 1],
        [[7654321, 1]],
    ],
    ids=["text", "words", "negative", "nan", "one dimension", "width"],
)
def test_bad_data(X):
    client = RandomizedResponse(bit_epsilon=1.0).fit(np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"count|NaN|features") as error:
        client.transform(X)
    assert "secret" not in str(error.value)
    assert "7654321" not in str(error.value)


def test_a_failed_refit_does_not_change_the_width():
    client = RandomizedResponse(bit_epsilon=1.0).fit(np.ones((2, 3)))
    with pytest.raises(ValueError, match="Negative"):
        client.fit(-np.ones((2, 5)))
    with pytest.raises(ValueError, match="expecting 3 features"):
        client.transform(np.ones((2, 5)))


def test_each_call_is_charged():
    X = documents(20, 60, 0.2)
    ledger = Ledger(epsilon=25.0, delta=1e-14)
    client = RandomizedResponse(bit_epsilon=0.5, max_doc_words=10, ledger=ledger).fit(X)
    assert ledger.entries() == []
    client.transform(X)
    assert (
        ledger.epsilon_spent
        == pytest.approx(client.document_epsilon_)
        == pytest.approx(10)
    )
    client.transform(X)
    assert ledger.epsilon_spent == pytest.approx(20)
    assert {(e.unit, e.status) for e in ledger.entries()} == {("document", "released")}
    with pytest.raises(
        BudgetError, match=r"budget of epsilon 25 .* total would be 29\.97"
    ):
        client.transform("not even looked at")
    with pytest.raises(ValueError, match="features"):
        clone(client).set_params(bit_epsilon=0.1).fit(X).transform(X[:, :5])
    assert ledger.epsilon_spent == pytest.approx(20)


@pytest.mark.parametrize("n_words", [10**9, 2**31 - 1])
def test_reports_without_end_are_refused_before_they_cost_anything(n_words):
    X = sp.csr_array((2, n_words))
    ledger = Ledger()
    client = RandomizedResponse(epsilon=4.0, ledger=ledger).fit(X)
    for call in (
        client.transform,
        LPLDA(2, epsilon=4.0, ledger=ledger).fit,
        OLPLDA(2, epsilon=4.0, ledger=ledger).fit,
    ):
        with pytest.raises(
            ValueError, match=r"2 documents .* false ones.*fewer documents"
        ):
            call(X)
    assert {entry.status for entry in ledger.entries()} == {"canceled"}
    assert RandomizedResponse(epsilon=math.inf).fit_transform(X).nnz == 0


CLIENT = """
import sys, tempfile
from dplda import MemoizedReports, RandomizedResponse
import numpy as np

client = RandomizedResponse(bit_epsilon=1.0).fit(np.ones((2, 5)))
memo = MemoizedReports(client, tempfile.mkdtemp() + "/reports")
memo.reports(["a", "b"], client.transform(np.ones((2, 5))))
print(*sorted(name for name in sys.modules if name.startswith("dplda")))
"""


def test_a_client_loads_nothing_of_the_server():
    loaded = subprocess.run(
        [sys.executable, "-W", "error", "-c", CLIENT],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    folders = {name.split(".")[1] for name in loaded if "." in name}
    assert "dplda.local._randomized_response" in loaded
    assert folders == {"_version", "core", "kernels", "leaf", "local", "privacy"}
    assert not {"dplda.local._lplda", "dplda.core._base"} & {*loaded}


def test_memory_is_that_of_the_result():
    """A vocabulary so large that any dense row of numbers would show."""
    columns, rows = (
        np.random.default_rng(0).integers(0, 100_000, 15_000),
        np.arange(15_000) // 50,
    )
    X = sp.csr_array((np.ones(15_000), (rows, columns)), shape=(300, 100_000))
    client = RandomizedResponse(bit_epsilon=6.9).fit(X)
    client.transform(X[:2])  # tables and imports
    tracemalloc.start()
    reported = client.transform(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    size = reported.data.nbytes + reported.indices.nbytes
    assert size < 0.05 * math.prod(X.shape)
    assert peak < 3 * size + 2**21
