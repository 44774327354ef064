"""What estimators promise: input, determinism, secrets, ledger, pipelines, progress."""

import math
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from estimators import (
    CASES,
    LDA,
    LOCAL,
    ONLINE,
    PRIVATE,
    SOUND,
    K,
    each,
    simplest,
    without_noise,
)
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from dplda import HDPLDA, PrivateSVILDA, RandomizedResponse, SubLDA
from dplda.federated import IFTMParty
from dplda.metrics import unigram_perplexity
from dplda.privacy import (
    BudgetError,
    Guarantee,
    Ledger,
    PrivateDataWarning,
    SeededNoiseWarning,
)
from dplda.privacy.mechanisms import Charge

# test_published.py runs some of these tests; corpora without words are part of tests
pytestmark = [
    pytest.mark.filterwarnings("ignore::dplda.privacy.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore::dplda.privacy.PrivateDataWarning"),
    pytest.mark.filterwarnings("ignore::dplda.privacy.LowSignalWarning"),
]

every = each(SOUND)
every_private = each(PRIVATE)


def fit_seeded(estimator, X, **parameters):
    estimator = clone(estimator).set_params(random_state=3, **parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeededNoiseWarning)
        return estimator.fit(X)


@every
def test_same_seed_same_model_whatever_the_number_of_jobs(
    estimator, corpus, tiny_pieces
):
    one, two = (fit_seeded(estimator, corpus, n_jobs=n) for n in (1, 2))
    np.testing.assert_array_equal(one.components_, two.components_)
    np.testing.assert_array_equal(one.transform(corpus), two.transform(corpus))


@every
def test_without_a_seed_every_fit_differs(estimator, corpus):
    first, second = (clone(estimator).fit(corpus).components_ for _ in range(2))
    assert not np.array_equal(first, second)


@every_private
def test_a_seed_warns_and_is_recorded(estimator, corpus):
    with pytest.warns(SeededNoiseWarning, match="random_state") as record:
        seeded = clone(estimator).set_params(random_state=0).fit(corpus)
    assert record[0].filename == __file__  # it points to the caller
    assert seeded.privacy_.seeded
    assert "seed" in str(seeded.privacy_)
    assert not clone(estimator).fit(corpus).privacy_.seeded


def test_a_warning_of_a_search_points_to_the_caller_of_the_search(corpus):
    search = GridSearchCV(
        SubLDA(2, max_iter=1, random_state=0), {"epsilon": [4.0]}, cv=2
    )
    with pytest.warns(SeededNoiseWarning) as record:
        search.fit(corpus)
    assert {r.filename for r in record if r.category is SeededNoiseWarning} == {
        __file__
    }


@every_private
def test_epsilon_is_that_of_the_guarantee(estimator, corpus):
    model = clone(estimator).fit(corpus)
    assert 0 < model.epsilon_ < math.inf
    assert model.epsilon_ == model.privacy_.epsilon
    assert model.delta_ == model.delta == model.privacy_.delta
    assert model.privacy_.epsilon_at(1e-3) < model.epsilon_
    stated = getattr(estimator, "epsilon", getattr(estimator, "token_epsilon", None))
    if stated is not None:
        assert 0.99 * stated < model.epsilon_ <= stated


@each(ONLINE)
def test_partial_fit_goes_on(estimator, corpus):
    model = clone(estimator).partial_fit(corpus)
    epsilon, n_iter, table = model.epsilon_, model.n_iter_, model.components_
    model.partial_fit(corpus[:50])
    assert model.n_iter_ > n_iter
    # other documents have other reports
    if estimator in [case.estimator for case in LOCAL]:
        assert model.epsilon_ == pytest.approx(epsilon, rel=1e-9)
    else:
        assert model.epsilon_ > epsilon or epsilon == math.inf
    assert not np.array_equal(model.components_, table)
    with pytest.raises(ValueError, match="40"):
        model.partial_fit(corpus[:, :30])


@each(ONLINE)
def test_partial_fit_refuses_another_shape_of_model(estimator, corpus):
    model = clone(estimator).partial_fit(corpus).set_params(n_components=K + 1)
    with pytest.raises(ValueError, match=rf"n_components.*\b{K}\b.*call fit"):
        model.partial_fit(corpus)


@each(LDA)
def test_empty_documents_and_empty_corpora(estimator, corpus):
    X = sp.vstack([corpus[:60], sp.csr_array((3, 40), dtype=int)])
    model = clone(estimator).fit(X)
    np.testing.assert_allclose(model.transform(X)[-3:], 1 / K, rtol=1e-6)
    empty = clone(estimator).fit(np.zeros((5, 40)))
    assert np.isfinite(empty.components_).all()
    assert (empty.components_ > 0).all()
    with pytest.raises(ValueError, match="no words"):
        empty.score(np.zeros((5, 40)))
    assert model.perplexity(corpus) == pytest.approx(math.exp(-model.score(corpus)))


@every
def test_bad_counts(estimator, corpus):
    X = corpus.toarray().astype(float)
    bad = {"Negative": -1.0, "NaN": np.nan, "infinity": np.inf}
    for message, value in bad.items():
        Y = X.copy()
        Y[5, 7] = value
        with pytest.raises(ValueError, match=message):
            clone(estimator).fit(Y)
    for texts in (["a text", "another"], "a text", np.array(["a text", "b"])):
        with pytest.raises(ValueError, match="CountVectorizer"):
            clone(estimator).fit(texts)
    model = clone(estimator).fit(X)
    with pytest.raises(ValueError, match=r"30 features.*40 features"):
        model.transform(X[:, :30])
    with pytest.warns(PrivateDataWarning, match="not whole") as record:
        clone(estimator).fit(np.where(X > 0, X + 0.25, 0))
    assert ["not whole" in str(warning.message) for warning in record].count(True) == 1
    failed = clone(estimator)
    with pytest.raises(ValueError, match="Negative"):
        failed.fit(-X)
    with pytest.raises(NotFittedError):
        failed.transform(X)


@pytest.mark.parametrize(
    ("estimator", "parameters", "message"),
    [
        (SubLDA(), {}, "exactly one of epsilon or noise_multiplier, got none"),
        (
            SubLDA(),
            {"epsilon": 1.0, "noise_multiplier": 2.0},
            "got epsilon and noise_multiplier",
        ),
        (PrivateSVILDA(), {}, "exactly one of epsilon or noise_multiplier, got none"),
        (IFTMParty(), {}, "needs token_epsilon"),
        (IFTMParty(token_epsilon=12.0), {}, r"range \[4\.\d+e-07, 11\.33\d*\]"),
        (HDPLDA(), {}, "exactly one of epsilon or noise_epsilon, got none"),
        (
            HDPLDA(),
            {"noise_epsilon": 1.0},
            "give count_clip together with noise_epsilon",
        ),
        (HDPLDA(), {"epsilon": 1.0, "count_clip": 1.0}, "not with epsilon"),
        (HDPLDA(epsilon=1.0), {"n_components": 3000}, "2048"),
        (HDPLDA(noise_epsilon=1.0), {"count_clip": 1e9}, "protects nothing"),
        (
            HDPLDA(noise_epsilon=1.0, count_clip=1.0),
            {"noise_epsilon": 1e-9},
            "noise_epsilon",
        ),
        (
            HDPLDA(noise_epsilon=1.0, count_clip=1.0),
            {"noise_epsilon": 100.0},
            "noise_epsilon",
        ),
        (
            SubLDA(K, epsilon=1.0),
            {"prior_components": np.ones((2, 2))},
            "prior_components",
        ),
        (SubLDA(K, epsilon=1.0), {"n_jobs": 0}, "n_jobs"),
        (SubLDA(K, epsilon=1.0), {"delta": 1e-300}, "delta"),
    ],
)
def test_bad_parameters_cost_nothing(estimator, parameters, message, corpus):
    ledger = Ledger(epsilon=100.0)
    with pytest.raises(ValueError, match=message):
        clone(estimator).set_params(**parameters, ledger=ledger).fit(corpus)
    assert ledger.epsilon_spent == 0


@each(case for case in PRIVATE if case in LDA)
def test_epsilon_inf_is_no_privacy_and_better(estimator, corpus):
    free = fit_seeded(without_noise(estimator, max_iter=30), corpus)
    assert free.epsilon_ == free.privacy_.epsilon == math.inf
    assert "no privacy guarantee" in str(free.privacy_)
    assert free.perplexity(corpus) < 0.8 * unigram_perplexity(corpus, corpus)


class Forbidden:
    shape = (137, 40)

    def __len__(self):
        return 137

    def __array__(self, *args, **kwargs):
        raise AssertionError("the data were read")


CHARGED = [case for case in CASES if case.unit]


def charged_call(estimator, X):
    """The call that reads documents; a client learns the vocabulary from other data."""
    return (
        estimator.fit(X).transform
        if isinstance(estimator, RandomizedResponse)
        else estimator.fit
    )


@each(CHARGED)
def test_the_budget_comes_before_the_data(estimator, corpus):
    """An empty ledger refuses documents nobody may read, whatever is wrong in them."""
    ledger = Ledger(epsilon=1e-3)
    call = charged_call(clone(estimator).set_params(ledger=ledger), corpus)
    for X in (Forbidden(), -corpus, corpus * np.nan, np.ones((3, 50))):
        with pytest.raises(BudgetError):
            call(X)
    assert ledger.entries() == []


@each(case for case in CHARGED if hasattr(case.estimator, "partial_fit"))
def test_the_budget_comes_before_the_data_of_later_calls(estimator, corpus):
    model = clone(estimator).set_params(max_iter=3).partial_fit(corpus)
    model.set_params(ledger=Ledger(epsilon=1e-3))
    for X in (Forbidden(), -corpus):
        with pytest.raises(BudgetError):
            model.partial_fit(X)


@each(case for case in ONLINE if case in PRIVATE)
def test_ledger_counts_every_fit(estimator, corpus):
    ledger = Ledger(epsilon=200.0, delta=estimator.delta)
    model = clone(estimator).set_params(ledger=ledger)
    assert model.ledger is ledger
    model.fit(corpus)
    assert ledger.epsilon_spent == pytest.approx(model.epsilon_, rel=1e-3)
    spent = [ledger.epsilon_spent]
    again = clone(model)
    for call in (again.partial_fit, again.partial_fit, again.fit):
        call(corpus)
        spent.append(ledger.epsilon_spent)
    assert [entry.status for entry in ledger.entries()] == ["released"] * 4
    assert spent == sorted(set(spent))
    assert {entry.label for entry in ledger.entries()} == {type(estimator).__name__}


@every_private
def test_bad_data_cost_nothing(estimator, corpus):
    ledger = Ledger(epsilon=200.0)
    with pytest.raises(ValueError, match="Negative"):
        clone(estimator).set_params(ledger=ledger).fit(-corpus)
    assert [entry.status for entry in ledger.entries()] == ["canceled"]
    assert ledger.epsilon_spent == 0


TEXTS = [
    "the cat sat with the other cat near the dog",
    "stocks fell as the bank sold bonds and stocks",
    "the dog chased a cat and a dog",
    "bonds rose and the bank bought stocks",
] * 30
WORDS = ["cat", "dog", "sat", "chased", "stocks", "bank", "bonds", "rose", "fell"]


def test_pipeline_and_grid_search_over_epsilon_and_ratio(tmp_path):
    path = tmp_path / "privacy.sqlite"
    Ledger(path, epsilon=1000.0)
    pipeline = make_pipeline(
        CountVectorizer(vocabulary=WORDS),
        SubLDA(2, epsilon=1.0, max_iter=5, ledger=str(path)),
        LogisticRegression(),
    )
    grid = {"sublda__epsilon": [1.0, 8.0], "sublda__subsampling_ratio": [0.5, 1.0]}
    search = GridSearchCV(pipeline, grid, cv=2, n_jobs=2).fit(TEXTS, [0, 1, 0, 1] * 30)
    ledger = Ledger(path)
    assert len(ledger.entries()) == 4 * 2 + 1
    assert ledger.epsilon_spent > 4 * search.best_estimator_["sublda"].epsilon_ / 2
    assert search.best_score_ > 0.5
    assert search.predict(["cat and dog"]).shape == (1,)


@every
def test_progress(estimator, corpus, capsys):
    clone(estimator).set_params(verbose=1).fit(corpus)
    assert "round 6 of 6\n" in capsys.readouterr().err
    clone(estimator).fit(corpus)
    assert capsys.readouterr() == ("", "")


@each(case for case in ONLINE if case in PRIVATE)
def test_an_interrupted_call_leaves_the_model_and_its_epsilon_together(
    estimator, corpus, monkeypatch
):
    model = clone(estimator).partial_fit(corpus)
    before = model.components_.copy(), model.epsilon_, model.n_iter_, model.privacy_

    def fail(*args, **kwargs):
        raise KeyboardInterrupt

    for place, method in ((Guarantee, "__post_init__"), (Charge, "begin")):
        with monkeypatch.context() as patch:
            patch.setattr(place, method, fail)
            for call in (model.partial_fit, model.fit):
                with pytest.raises(KeyboardInterrupt):
                    call(corpus)
        np.testing.assert_array_equal(model.components_, before[0])
        assert (model.epsilon_, model.n_iter_, model.privacy_) == before[1:]
    n_events = len(model.partial_fit(corpus).privacy_.events)
    fresh = clone(estimator).partial_fit(corpus).partial_fit(corpus)
    assert n_events == len(fresh.privacy_.events)
    assert model.n_iter_ == fresh.n_iter_


@each(case for case in ONLINE if case in PRIVATE)
def test_a_seed_is_not_forgotten_and_every_call_pays_for_its_random_bits(
    estimator, corpus
):
    model = clone(estimator).set_params(random_state=3)
    with pytest.warns(SeededNoiseWarning):
        model.partial_fit(corpus)
    once = model.privacy_.total_variation
    model.set_params(random_state=None).partial_fit(corpus)
    assert model.privacy_.seeded
    assert model.privacy_.total_variation == 2 * once


def test_the_record_tells_the_rounds_that_ran(corpus):
    model = SubLDA(K, noise_multiplier=3.0, subsampling_ratio=0.1, max_iter=4).fit(
        corpus
    )
    model.set_params(noise_multiplier=100.0, subsampling_ratio=1.0).partial_fit(corpus)
    multipliers = [
        getattr(e, "event", e).noise_multiplier for e in model.privacy_.events
    ]
    assert multipliers[2:6] == pytest.approx([3.0] * 4, rel=1e-4)
    assert multipliers[6] > 50
    assert model.privacy_.sensitivity == 6.0
    assert "rate 0.1" in str(model.privacy_)
    model.set_params(noise_multiplier=None, epsilon=math.inf).partial_fit(corpus)
    assert model.epsilon_ == math.inf
    assert "some or all of them exact" in str(model.privacy_)


@each(ONLINE)
def test_a_failed_refit_does_not_change_the_width(estimator, corpus):
    model = clone(estimator).partial_fit(corpus)
    wide = np.ones((3, 4000))
    with pytest.raises(ValueError, match="Negative"):
        model.fit(-wide)
    for call in (model.transform, model.score, model.partial_fit):
        with pytest.raises(ValueError, match=r"4000 features.*40 features"):
            call(wide)


@each(simplest(SOUND))
def test_numbers_of_numpy_are_numbers(estimator, corpus):
    """Integers in as few bits as they fit into."""
    kinds = {
        int: lambda value: np.min_scalar_type(value).type(value),
        float: np.float32,
    }
    given = {
        n: kinds[type(v)](v)
        for n, v in estimator.get_params().items()
        if type(v) in kinds
    }
    model = clone(estimator).set_params(**given).fit(corpus)
    assert np.isfinite(model.transform(corpus)).all()
    assert model.epsilon_ > 0
