"""The noisy held-out score: what a document moves, what it estimates, its charge."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from dplda import PrivateTopicModel, SubLDA
from dplda.audit._replay import fit_watched
from dplda.datasets import make_topic_corpus
from dplda.metrics import held_out_perplexity, noisy_score
from dplda.privacy import BudgetError, Ledger
from dplda.privacy.mechanisms import Curator

X = make_topic_corpus(120, 40, 4, doc_length=60, random_state=0).data
REFERENCE = np.full(40, 1 / 40)


class Model(BaseEstimator):
    """A public table: one topic has nearly all of word 0, and hardly any of word 1."""

    components_ = np.random.default_rng(0).random((4, 40)) + 1e-3
    components_[:, 0] += 500
    components_[:, 1] = 1e-9
    doc_topic_prior_ = 0.1

    def fit(self, X, y=None):
        return self

    def __sklearn_is_fitted__(self):
        return True


def values_of(X, **options):
    """What a score sums, and the radius."""
    options = {"epsilon": 1.0, "public_unigram": REFERENCE} | options
    step = fit_watched(partial(noisy_score, Model()), X, **options)[1].steps[0]
    return step.value, step.mechanism.sensitivity


HOSTILE = {
    "a word of high gain": np.eye(1, 40, 0) * 10**15,
    "a word of low gain": np.eye(1, 40, 1) * 10**15,
    "all words": np.full((1, 40), 10**12),
    "weights": np.tile([1e-300, 1e308, 0.5, 7], (1, 10)),
    "as long as what counts": np.eye(1, 40, 0) * 100,
}


@pytest.mark.parametrize("own", HOSTILE)
@pytest.mark.parametrize(("clip", "n_docs"), [(0.1, 1), (1.5, 1), (1.5, 9)])
def test_a_unit_moves_the_sums_by_the_radius_at_most(own, clip, n_docs):
    """However many documents a user has, and whether they are emptied or removed."""
    others, rows = X.toarray()[:50], np.tile(HOSTILE[own], (n_docs, 1))
    options, without = {"clip": clip, "max_tokens": 50}, {}
    if n_docs > 1:
        without = {"user_ids": [f"u{d // 2}" for d in range(50)]}
        options["user_ids"] = ["b"] * n_docs + without["user_ids"]
    value, radius = values_of(np.vstack([rows, others]), **options)
    emptied, _ = values_of(np.vstack([0 * rows, others]), **options)
    removed, _ = values_of(others, **options | without)
    np.testing.assert_array_equal(emptied, removed)
    squares = int(((value - emptied).astype(object) ** 2).sum())
    assert 0.2 * radius**2 < squares <= radius**2
    if own == "a word of high gain" and clip == 0.1:
        assert squares > 0.999 * radius**2


counts = arrays.arrays(
    np.float64,
    st.tuples(st.integers(1, 7), st.just(40)),
    elements=st.sampled_from([0, 0, 0, 1, 2, 3, 70, 0.5, 1e-300, 1e15]),
)


def test_without_noise_clip_and_cap_it_is_the_gain_in_log_likelihood():
    exact = -math.log(held_out_perplexity(Model.components_, X)) - math.log(1 / 40)
    score = noisy_score(
        Model(),
        X,
        epsilon=math.inf,
        public_unigram=REFERENCE,
        max_tokens=100,
        clip=20.0,
    )
    assert score.gain == pytest.approx(exact, abs=1e-5)
    assert score.standard_error == 0
    assert score.perplexity == pytest.approx(math.exp(-exact) * 40, rel=1e-5)
    assert math.isinf(score.privacy_.epsilon)


@pytest.mark.parametrize("tokens", [-1.0, 0.0, 39.0])
def test_noise_above_the_number_of_tokens_gives_no_score(tokens, monkeypatch):
    """Of the noisy number of tokens, in standard deviations of its noise."""

    def release(self, value, mechanism, **kwargs):
        return mechanism.scale * np.array([5.0, tokens / 40.0])

    monkeypatch.setattr(Curator, "release", release)
    score = noisy_score(Model(), X[:1], epsilon=0.01)
    assert (score.gain, score.standard_error) == (0.0, math.inf)


def test_a_score_is_a_function_of_the_noisy_sums(monkeypatch):
    """Other documents with the same release have the same score."""
    options = {"epsilon": 1.0, "public_unigram": REFERENCE}
    fixed = np.array([10**6, 10**7])
    monkeypatch.setattr(
        Curator, "release", lambda self, value, mechanism, **kwargs: fixed
    )
    assert noisy_score(Model(), X, **options) == noisy_score(Model(), X[:7], **options)


def test_fits_and_scores_of_disjoint_parts_cost_the_larger_of_both(tmp_path):
    path = str(tmp_path / "ledger.sqlite")
    ledger = Ledger(path, epsilon=4.0)
    model = SubLDA(
        2, epsilon=4.0, max_iter=2, ledger=ledger.part("train", by="set")
    ).fit(X[:90])
    for _ in range(3):
        noisy_score(
            model, X[90:], epsilon=1.0, ledger=ledger.part("validation", by="set")
        )
    assert ledger.epsilon_spent == pytest.approx(4.0, abs=1e-3)
    assert [entry.part for entry in ledger.entries()] == ["set=train"] + 3 * [
        "set=validation"
    ]


def test_a_score_of_users_is_charged_to_a_ledger_of_users():
    class Unread:
        def __getattr__(self, name):
            raise AssertionError("X was read")

    ledger, ids = Ledger(epsilon=2.0), np.arange(X.shape[0]) // 4
    for bad in (X[:, :7], ["a text"], -X.toarray()):
        with pytest.raises(ValueError, match=r"words|word counts|Negative"):
            noisy_score(Model(), bad, epsilon=1.0, ledger=ledger)
    with pytest.raises(ValueError, match="got fewer ids than rows"):
        noisy_score(Model(), X, epsilon=1.0, ledger=ledger, user_ids=ids[1:])
    assert ledger.epsilon_spent == 0
    score = noisy_score(Model(), X, epsilon=1.0, ledger=ledger, user_ids=ids)
    assert (score.privacy_.unit, ledger.entries()[-1].unit) == ("user", "user")
    assert "one user" in score.privacy_.relation
    with pytest.raises(ValueError, match="protects one user"):
        noisy_score(Model(), X, epsilon=0.1, ledger=ledger)
    with pytest.raises(BudgetError, match="noisy_score of Model"):
        noisy_score(Model(), Unread(), epsilon=2.0, ledger=ledger, user_ids=ids)


def test_of_a_model_of_texts_its_parts_are_scored():
    texts = ["river bank water", "money bank loan"] * 30
    model = PrivateTopicModel(
        2,
        epsilon=math.inf,
        vocabulary=["bank", "loan", "money", "river", "water"],
        word_vectors=None,
    ).fit(texts)
    ledger = Ledger(epsilon=1.0)
    with pytest.raises(TypeError, match=r"pass model\.model_ and model\.vectorizer_"):
        noisy_score(model, texts, epsilon=1.0, ledger=ledger)
    assert ledger.entries() == []
    noisy_score(
        model.model_, model.vectorizer_.transform(texts), epsilon=1.0, ledger=ledger
    )
    assert len(ledger.entries()) == 1


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"epsilon": 0}, ValueError, "epsilon must be"),
        ({"clip": 0}, ValueError, "clip must be"),
        ({"max_tokens": 0.5}, TypeError, "max_tokens must be an integer"),
        ({"public_unigram": [1, 2]}, ValueError, "40 positive frequencies"),
        ({"public_unigram": [0] * 40}, ValueError, "40 positive frequencies"),
    ],
)
def test_bad_arguments(options, error, message):
    with pytest.raises(error, match=message):
        noisy_score(Model(), X, **{"epsilon": 1.0} | options)
    with pytest.raises(NotFittedError):
        noisy_score(SubLDA(2, epsilon=1.0), X, epsilon=1.0)
