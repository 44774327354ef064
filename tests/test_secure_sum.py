"""Parties that fit one model: sum is right, nobody sees more, it pays as stated."""

import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from shared_cases import thirds
from sklearn.base import clone

from dplda import HDPLDA, SubLDA
from dplda.audit import noise_of_release
from dplda.datasets import make_topic_corpus
from dplda.federated import _secure_sum, fit_together
from dplda.privacy import Ledger
from dplda.privacy.mechanisms import DiscreteGaussian

pytestmark = pytest.mark.filterwarnings(
    "ignore::dplda.privacy.SeededNoiseWarning", "ignore::dplda.privacy.LowSignalWarning"
)
V = 40
MODEL = SubLDA(3, epsilon=4.0, max_iter=6, n_jobs=1)


@pytest.fixture(scope="module")
def X():
    return make_topic_corpus(n_docs=600, n_words=V, n_components=3, random_state=0).data


def test_a_seed_gives_one_model_and_no_seed_another(X):
    seeded = clone(MODEL).set_params(random_state=1)
    one, two, other = (fit_together(m, thirds(X)) for m in (seeded, seeded, MODEL))
    assert_array_equal(one.components_, two.components_)
    assert not np.array_equal(one.components_, other.components_)
    assert one.privacy_.seeded > other.privacy_.seeded


def test_noise_of_the_parties_is_independent(X, monkeypatch):
    seen, add_to = [], DiscreteGaussian.add_to

    def draw(self, cells, reader):
        before = cells.copy()
        add_to(self, cells, reader)
        seen.append((cells - before)[:V].astype(float))

    monkeypatch.setattr(DiscreteGaussian, "add_to", draw)
    fit_together(clone(MODEL).set_params(max_iter=2, random_state=0), thirds(X))
    correlation = np.corrcoef(seen) - np.eye(len(seen))
    assert len(seen) == 3 * 4
    assert np.abs(correlation).max() < 0.8


def test_the_noise_of_the_model_is_nearly_that_of_one_curator():
    X = make_topic_corpus(n_docs=4000, n_words=V, n_components=3, random_state=1).data
    parts = {str(i): X[400 * i : 400 * i + 400] for i in range(10)}
    one, half = (
        fit_together(MODEL, parts, colluding=c)._released.variance for c in (1, 5)
    )
    pooled = clone(MODEL).fit(X)._released.variance
    assert one / pooled == pytest.approx(10 / 9, rel=1e-4)
    assert half / pooled == pytest.approx(10 / 5, rel=1e-4)


def test_missing_noise_is_noticed(monkeypatch, caplog):
    """In the sum itself, without knowing who adds none."""
    X = make_topic_corpus(600, 300, 2, doc_length=200, random_state=0).data
    parts, model = (
        {str(i): X[120 * i : 120 * i + 120] for i in range(5)},
        SubLDA(2, epsilon=8.0),
    )
    with caplog.at_level("INFO", "dplda.federated"):
        fit_together(model, parts)
    found = [
        record.args[1] for record in caplog.records if "noise of" in record.message
    ]
    assert len(found) == 5 * 80
    assert np.mean(found) == pytest.approx(5, abs=0.25)
    add_to, count = DiscreteGaussian.add_to, iter(range(10**6))
    monkeypatch.setattr(
        DiscreteGaussian, "add_to", lambda *a: next(count) % 5 or add_to(*a)
    )
    with pytest.raises(
        ConnectionError, match=r"have the noise of \d\.\d\d parties, and 5 take part"
    ):
        fit_together(model, parts)


def test_noise_that_a_round_hides_is_missed_in_the_rounds_together(monkeypatch):
    """Two of five parties add none: with 200 words, no round alone shows it."""
    add_to, count = DiscreteGaussian.add_to, iter(range(10**6))
    monkeypatch.setattr(
        DiscreteGaussian, "add_to", lambda *a: next(count) % 5 < 2 or add_to(*a)
    )
    X = make_topic_corpus(500, 200, 3, random_state=0).data
    parts = {str(i): X[100 * i : 100 * i + 100] for i in range(5)}
    with pytest.raises(ConnectionError, match="somebody adds none"):
        fit_together(SubLDA(3, epsilon=8.0, max_iter=20), parts)


@pytest.mark.parametrize("n_lazy", [0, 1, 3])
def test_the_noise_of_a_model_is_counted(n_lazy, monkeypatch):
    """Ten parties, some of which draw none and tell nobody."""
    monkeypatch.setattr(_secure_sum, "BY_CHANCE", math.inf)  # the fit goes on
    add_to, count, n_words = DiscreteGaussian.add_to, iter(range(10**6)), 20_000
    monkeypatch.setattr(
        DiscreteGaussian, "add_to", lambda *a: next(count) % 10 < n_lazy or add_to(*a)
    )
    X = make_topic_corpus(100, n_words, 2, random_state=0).data
    parts = {str(i): X[10 * i : 10 * i + 10] for i in range(10)}
    found = noise_of_release(fit_together(SubLDA(2, epsilon=4.0, max_iter=2), parts))
    assert found.shares == pytest.approx(10 - n_lazy, abs=0.5)
    assert found.low < 10 - n_lazy + 0.2
    assert n_lazy == 0 or found.high < 10


@pytest.mark.parametrize(
    ("model", "parties", "options", "message"),
    [
        (
            HDPLDA(3, epsilon=4.0),
            thirds,
            {},
            "fit a SubLDA or a PrivateSVILDA together, got HDP",
        ),
        (
            clone(MODEL).set_params(epsilon=math.inf),
            thirds,
            {},
            "epsilon=inf has no noise",
        ),
        (
            clone(MODEL).set_params(ledger=Ledger()),
            thirds,
            {},
            "a ledger belongs to one party",
        ),
        (MODEL, lambda X: [X, X], {}, "must be a mapping of names, got list"),
        (MODEL, lambda X: {"a": X}, {}, "the number of parties must be"),
        (MODEL, thirds, {"colluding": 3}, "colluding must be an integer from 1 to 2"),
        (MODEL, thirds, {"colluding": 0}, "colluding must be"),
        (MODEL, lambda X: {"a": X, "b": X[:, :5]}, {}, "of 'a' and 'b' differ"),
        (
            MODEL,
            lambda X: {"a": (X, np.arange(600)), "b": X},
            {},
            "user_ids for all or for none",
        ),
        (
            MODEL,
            lambda X: dict.fromkeys("ab", (X, np.arange(600))),
            {},
            "with two parties",
        ),
        (
            MODEL,
            lambda X: {"a": (X[:1], ["7 "]), "b": (X[1:2], [7])},
            {},
            "with two parties",
        ),
        (
            MODEL,
            lambda X: {"a": (X[:1], ["é"]), "b": (X[1:2], ["e\u0301"])},
            {},
            "two parties",
        ),
        (MODEL, lambda X: {"a": X, "b": -X}, {}, "Negative values"),
        (MODEL, lambda X: {"a": X, "b": X[:0]}, {}, "party 'b' has no documents"),
    ],
)
def test_what_cannot_be_fitted_together(model, parties, options, message, X):
    with pytest.raises((TypeError, ValueError), match=message):
        fit_together(model, parties(X), **options)
