"""Users with several documents: one id is one protected unit."""

import functools
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from estimators import USERS, each, simplest, without_noise
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from dplda import SubLDA
from dplda.audit._replay import fit_watched
from dplda.datasets import make_topic_corpus
from dplda.privacy import (
    BudgetError,
    Gaussian,
    Ledger,
    SeededNoiseWarning,
    epsilon_of,
)

N_DOCS = 90
SIMPLE = simplest(USERS)


@pytest.fixture(scope="module")
def corpus():
    return make_topic_corpus(N_DOCS, 40, 4, random_state=0).data


@pytest.fixture(scope="module")
def ids():
    """Users with one to six documents, which are spread over the corpus."""
    return np.random.default_rng(0).integers(0, 40, N_DOCS) ** 2


def seeded(estimator, **parameters):
    return clone(estimator).set_params(random_state=1, **parameters)


def quietly(fit, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeededNoiseWarning)
        return fit(*args, **kwargs)


def small(**parameters):
    return SubLDA(4, epsilon=1.0, max_iter=2, **parameters)


def table(estimator, X, **kwargs):
    return quietly(seeded(estimator).fit, X, **kwargs).components_


@each(USERS)
def test_ids_that_are_all_different_change_no_bit(estimator, corpus):
    plain, users = seeded(estimator), seeded(estimator)
    for own in (np.arange(N_DOCS), [f"user {i}" for i in range(N_DOCS, 0, -1)]):
        quietly(plain.fit, corpus)
        quietly(users.fit, corpus, user_ids=own)
        assert_array_equal(plain.components_, users.components_)
        assert plain.privacy_.events == users.privacy_.events
    plain, users = seeded(estimator), seeded(estimator)
    for _ in range(2):
        quietly(plain.partial_fit, corpus)
        quietly(users.partial_fit, corpus, user_ids=np.arange(N_DOCS))
        assert_array_equal(plain.components_, users.components_)


@each(USERS)
def test_only_which_ids_are_equal_matters(estimator, corpus, ids):
    pandas = pytest.importorskip("pandas")
    expected = table(estimator, corpus, user_ids=ids)
    text = [f"é {i}" for i in ids]
    for same in (
        ids.tolist(),
        tuple(ids.tolist()),
        -ids.astype(np.int16),
        ids.astype(object) + 2**70,
        text,
        np.array(text),
        pandas.Series(text, index=ids, dtype="category"),
        pandas.Series(ids),
    ):
        assert_array_equal(table(estimator, corpus, user_ids=same), expected)
    assert not np.array_equal(table(estimator, corpus), expected)


@each(SIMPLE)
def test_where_a_users_documents_stand_does_not_matter(estimator, corpus, ids):
    """Without sampling, for then no coins are thrown in the order of the users."""
    estimator = clone(estimator).set_params(subsampling_ratio=1.0)
    together = np.argsort(ids, kind="stable")
    assert_array_equal(
        table(estimator, corpus[together], user_ids=ids[together]),
        table(estimator, corpus, user_ids=ids),
    )


@each(USERS)
def test_the_number_of_jobs_changes_no_bit(estimator, corpus, ids):
    one, two = (
        table(clone(estimator).set_params(n_jobs=n), corpus, user_ids=ids)
        for n in (1, 3)
    )
    assert_array_equal(one, two)


@each(SIMPLE)
def test_without_noise_and_sampling_users_are_their_documents(estimator, corpus, ids):
    """Nothing is clipped then, so that ids change the rounding to the grid alone."""
    estimator = without_noise(estimator, subsampling_ratio=1.0)
    together, alone = table(estimator, corpus, user_ids=ids), table(estimator, corpus)
    assert_allclose(together, alone, rtol=1e-4, atol=1e-4)


@each(USERS)
def test_samples_are_of_users(estimator, corpus, ids):
    steps = fit_watched(estimator, corpus, user_ids=ids)[1].steps
    assert {len(step.sample[0]) for step in steps if step.sample} == {len(set(ids))}


@each(USERS)
def test_guarantee_and_ledger_name_the_user(estimator, corpus, ids):
    ledger = Ledger()
    model = clone(estimator).set_params(ledger=ledger)
    guarantee = model.fit(corpus, user_ids=ids).privacy_
    assert guarantee.unit == ledger.entries()[0].unit == "user"
    assert "each user" in str(guarantee)
    assert "all documents" in guarantee.relation
    assert any("no two users share an id" in a for a in guarantee.assumptions)
    assert "bootstrap" not in str(guarantee)
    sampled = model.subsampling_ratio < 1
    assert ("secret sample of the users" in guarantee.mechanism) == sampled
    assert model.fit_transform(corpus, user_ids=ids).shape == (N_DOCS, 4)
    with pytest.raises(ValueError, match="protects one user"):
        clone(model).fit(corpus)
    assert clone(model).set_params(ledger=None).fit(corpus).privacy_.unit == "document"


@each(SIMPLE)
def test_partial_fit_keeps_its_unit(estimator, corpus, ids):
    for first, then in ((None, ids), (ids, None)):
        ledger = Ledger()
        model = (
            clone(estimator)
            .set_params(ledger=ledger)
            .partial_fit(corpus, user_ids=first)
        )
        with pytest.raises(ValueError, match="to every call or to none"):
            model.partial_fit(corpus, user_ids=then)
        assert len(ledger.entries()) == 1
        model.partial_fit(corpus[:50], user_ids=None if first is None else first[:50])
        assert model.n_iter_ == 2
        assert (
            ledger.entries()[0].unit
            == model.privacy_.unit
            == ("document" if first is None else "user")
        )


class Unreadable:
    def __array__(self, *args, **kwargs):
        raise AssertionError("the ids were read")

    __len__ = __iter__ = __getitem__ = __array__


@each(SIMPLE)
def test_without_budget_no_id_is_read(estimator, corpus):
    with pytest.raises(BudgetError):
        clone(estimator).set_params(ledger=Ledger(epsilon=0.1)).fit(
            corpus, user_ids=Unreadable()
        )


SECRET = 7041776
INVALID = {
    "one-dimensional": [
        np.full((N_DOCS, 1), SECRET),
        np.full((N_DOCS, 2), str(SECRET)),
        SECRET,
        str(SECRET),
        {SECRET},
        sp.csr_array(np.full((1, N_DOCS), SECRET)),
        np.zeros((0, 0)),
    ],
    "(fewer|more) ids than rows": [[SECRET] * 89, [str(SECRET)] * 91, []],
    "integers only, strings only or UUIDs only": [
        [None] + [SECRET] * 89,
        [str(SECRET)] * 89 + [None],
        [SECRET] * 89 + [str(SECRET)],
        np.full(N_DOCS, SECRET, float),
        [float("nan")] * N_DOCS,
        [True] + [SECRET] * 89,
        np.full(N_DOCS, SECRET).astype("S9"),
        [[SECRET]] * 89 + [[SECRET, 0]],
        [(SECRET,)] * 89 + [SECRET],
        [{SECRET}] * N_DOCS,
        np.ma.array(np.full(N_DOCS, SECRET), mask=[True] + [False] * 89),
        np.full(N_DOCS, "2020-01-01", "datetime64[D]"),
    ],
}


@pytest.mark.parametrize("message", INVALID)
@each(SIMPLE)
def test_invalid_ids_cost_nothing_and_are_not_quoted(estimator, message, corpus):
    ledger = Ledger()
    for ids in INVALID[message]:
        model = clone(estimator).set_params(ledger=ledger)
        for fit in (model.fit, model.partial_fit):
            with pytest.raises(ValueError, match=message) as error:
                fit(corpus, user_ids=ids)
            assert str(SECRET) not in str(error.value)
            assert str(N_DOCS) not in str(error.value)
            assert error.value.__cause__ is None
            assert not hasattr(model, "privacy_")
    assert ledger.epsilon_spent == 0


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.fixture
def ids_that_arrive(monkeypatch):
    arrived, fit = [], SubLDA.fit

    @functools.wraps(fit)
    def record(self, X, y=None, *, user_ids=None):
        arrived.append(np.asarray(user_ids))
        return fit(self, X, y, user_ids=user_ids)

    monkeypatch.setattr(SubLDA, "fit", record)
    return arrived


def test_a_grid_search_passes_the_ids_of_each_fold(
    routing, corpus, ids, ids_that_arrive
):
    ledger = Ledger()
    search = GridSearchCV(
        small(ledger=ledger).set_fit_request(user_ids=True),
        {"n_components": [2, 3]},
        cv=2,
    )
    search.fit(corpus, user_ids=ids.tolist())
    assert len(ids_that_arrive) == 5
    for half, own in zip((slice(45, 90), slice(0, 45)) * 2, ids_that_arrive):
        assert_array_equal(own, ids[half])
    assert [entry.unit for entry in ledger.entries()] == ["user"] * 5


@pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")
def test_bagging_passes_the_ids_of_each_sample(routing, corpus, ids, ids_that_arrive):
    ledger = Ledger()
    model = make_pipeline(
        small(ledger=ledger).set_fit_request(user_ids=True), LogisticRegression()
    )
    bag = BaggingClassifier(model, n_estimators=3)
    bag.fit(corpus, np.arange(N_DOCS) % 2, user_ids=ids)
    for fitted, rows, own in zip(
        bag.estimators_, bag.estimators_samples_, ids_that_arrive
    ):
        assert fitted[0].privacy_.unit == "user"
        assert len(set(rows)) < N_DOCS
        assert_array_equal(own, ids[rows])
    assert ledger.entries()[0].unit == "user"
    # the ensemble gives each fit a seed, and shows it
    assert all(fitted[0].privacy_.seeded for fitted in bag.estimators_)
    assert all(isinstance(fitted[0].random_state, int) for fitted in bag.estimators_)
    assert ledger.epsilon_spent == np.inf


def test_the_ledger_bounds_what_bootstrap_samples_cost_if_copies_share_an_id():
    """20 samples, as bagging draws them, without its seeds."""
    X = make_topic_corpus(200, 40, 4, random_state=0).data
    rng, ledger = np.random.default_rng(0), Ledger()
    precision = {"user": np.zeros(200), "copies": np.zeros(200)}
    for _ in range(20):
        rows = rng.integers(200, size=200)
        fitted = SubLDA(4, epsilon=1.0, max_iter=4, ledger=ledger).fit(
            X[rows], user_ids=rows
        )
        once = sum(event.noise_multiplier**-2 for event in fitted.privacy_.events)
        drawn = np.bincount(rows, minlength=200)
        precision["user"] += once * (drawn > 0)
        # each copy moves the sum in the same direction
        precision["copies"] += once * drawn**2
    user, copies = (
        epsilon_of(Gaussian(p.max() ** -0.5), 1e-6) for p in precision.values()
    )
    assert user <= ledger.epsilon_spent == pytest.approx(5.214, abs=1e-3)
    assert copies > 2 * ledger.epsilon_spent


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "statement", [{"noise_multiplier": 2000.0}, {"epsilon": 0.002}]
)
def test_users_under_noise_that_hides_their_number_have_a_model(statement):
    X = np.random.default_rng(0).poisson(1.0, (60, 12))
    model = SubLDA(2, max_iter=1, **statement).fit(X, user_ids=np.arange(60) // 2)
    assert np.isfinite(model.components_).all()
    assert model.weak_topics_.all()
