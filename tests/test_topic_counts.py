"""Noisy document counts per topic: what is counted, what a unit moves, the charge."""

import math
import warnings
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.exceptions import NotFittedError

from dplda import GibbsLDA, ReleasedModel, SubLDA, private_topic_counts
from dplda.audit._replay import fit_watched
from dplda.datasets import make_topic_corpus
from dplda.privacy import BudgetError, Gaussian, Ledger, SeededNoiseWarning, epsilon_of

N_DOCS, K = 60, 4


@pytest.fixture(scope="module")
def X():
    return make_topic_corpus(N_DOCS, 40, K, doc_length=30, random_state=0).data


@pytest.fixture(scope="module")
def model(X):
    return SubLDA(K, epsilon=math.inf, max_iter=20, random_state=0).fit(X)


@pytest.fixture(scope="module")
def ids():
    return np.random.default_rng(0).integers(0, 20, N_DOCS)


def exact(model, X, **options):
    return private_topic_counts(model, X, epsilon=math.inf, **options).counts["all"][0]


@pytest.mark.parametrize("soft", [False, True])
def test_each_document_or_user_counts_as_one(model, X, ids, soft):
    """For the largest topic, or for all by their weights."""
    theta = model.transform(X)
    rows = theta if soft else np.eye(K)[theta.argmax(axis=1)]
    assert rows.sum(axis=0).min() > 0
    assert_allclose(exact(model, X, soft=soft), rows.sum(axis=0), rtol=1e-5)
    expected = sum(rows[ids == user].mean(axis=0) for user in set(ids.tolist()))
    assert_allclose(exact(model, X, soft=soft, user_ids=ids), expected, rtol=1e-5)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("with_users", [False, True])
def test_empty_documents_count_for_nothing(model, X, ids, soft, with_users):
    """Else an emptied document would move two counts."""
    padded, users = sp.vstack([X, sp.csr_array((3, 40))]), None
    more = np.append(ids, [ids[0], ids[0], 99])
    one = exact(model, X, soft=soft, user_ids=ids if with_users else users)
    other = exact(model, padded, soft=soft, user_ids=more if with_users else users)
    assert_array_equal(one, other)
    assert_array_equal(exact(model, np.zeros((2, 40))), np.zeros(K))


def released_integers(model, X, **options):
    """The private sum and the radius of its mechanism."""
    count = partial(private_topic_counts, model)
    (step,) = fit_watched(count, X, epsilon=1.0, **options)[1].steps
    return step.value, step.mechanism.radius


OWN = {
    "one word": sp.csr_array(np.eye(1, 40, 7) * 1e15),
    "several": sp.csr_array(np.eye(9, 40, 2) * 50),
    "the same": sp.csr_array(np.tile(np.arange(40) < 5, (9, 1)) * 9.0),
}


@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("soft", [False, True])
def test_a_user_moves_the_sum_by_the_radius_at_most(own, soft, model, X, ids):
    own = OWN[own]
    users = np.append(ids, np.full(own.shape[0], 99))
    worlds = [sp.vstack([X, own]), sp.vstack([X, 0 * own]), X]
    sums = []
    for world in worlds:
        value, radius = released_integers(
            model, world, soft=soft, user_ids=users[: world.shape[0]]
        )
        sums.append(value)
    assert_array_equal(sums[1], sums[2])  # an emptied user is one that is not there
    moved = sum(int(x) ** 2 for x in sums[0] - sums[1])
    assert 0.3**2 * radius**2 < moved <= radius**2


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("with_users", [False, True])
def test_a_contribution_is_the_same_whoever_else_is_there(
    soft, with_users, model, X, ids
):
    """In integers: f(X) - f(X without a) = f(X without b) - f(X without both)."""
    sums = []
    for without in ([], [12], [13], [12, 13]):
        world = X.tolil()
        users = ids if with_users else np.arange(N_DOCS)
        world[np.isin(users, users[without])] = 0
        options = {"user_ids": ids} if with_users else {}
        world = sp.csr_array(world)
        sums.append(released_integers(model, world, soft=soft, **options)[0])
    assert_array_equal(sums[0] - sums[1], sums[2] - sums[3])
    assert (sums[0] != sums[1]).any()


def test_every_count_gets_the_stated_noise():
    rng = np.random.default_rng(0)
    topics = GibbsLDA(400, max_iter=1, random_state=0).fit(rng.poisson(2.0, (30, 50)))
    X = rng.poisson(1.0, (20, 50))
    table = private_topic_counts(topics, X, epsilon=0.5)
    z = (table.counts["all"][0] - exact(topics, X)) / table.noise_scale
    assert stats.chi2.sf((z**2).sum(), z.size) > 1e-6
    assert stats.chi2.cdf((z**2).sum(), z.size) > 1e-6
    # a draw for each count: on a grid of 1e5 units a scale, two of 400 are equal in 2%
    # of releases
    assert len(np.unique(z)) >= z.size - 3


def test_the_guarantee_is_that_of_one_gaussian_release(model, X, ids):
    table = private_topic_counts(model, X, epsilon=2.0, delta=1e-7)
    assert table.counts["all"].shape == (1, K)
    guarantee = table.privacy_
    assert 1.99 < guarantee.epsilon <= 2.0
    assert (guarantee.unit, guarantee.delta, guarantee.sensitivity) == (
        "document",
        1e-7,
        1.0,
    )
    (event,) = guarantee.events
    assert isinstance(event, Gaussian)
    # a Gaussian of a smaller multiplier would cost more than was asked for
    assert epsilon_of(Gaussian(0.999 * event.noise_multiplier), 1e-7) > 2.0
    assert_allclose(guarantee.noise_scale, event.noise_multiplier, rtol=1e-9)
    assert "model is public" in str(guarantee)
    assert guarantee.theorem == "docs/proofs_document.md"
    assert guarantee.trusted.endswith("nobody who sees the result")
    assert "the vocabulary" in str(guarantee)
    of_users = private_topic_counts(model, X, epsilon=2.0, user_ids=ids).privacy_
    assert of_users.unit == "user"
    assert "one user" in of_users.relation


@pytest.mark.parametrize("unit", ["document", "user"])
def test_a_ledger_is_charged_for_the_unit(unit, model, X, ids):
    ledger, users = Ledger(epsilon=3.0), ids if unit == "user" else None
    options = {"epsilon": 1.0, "ledger": ledger, "user_ids": users}
    guarantees = [private_topic_counts(model, X, **options).privacy_ for _ in range(2)]
    entries = ledger.entries()
    assert {(entry.label, entry.unit) for entry in entries} == {
        ("private_topic_counts of SubLDA", unit)
    }
    assert [entry.events for entry in entries] == [g.events for g in guarantees]
    assert [entry.status for entry in entries] == ["released"] * 2


def test_nothing_is_read_before_it_is_paid_for(model):
    ledger = Ledger(epsilon=0.5)
    with pytest.raises(BudgetError):
        private_topic_counts(model, "no counts", epsilon=1.0, ledger=ledger)
    assert ledger.entries() == []
    ledger = Ledger(epsilon=2.0)
    with pytest.raises(ValueError, match="counts"):
        private_topic_counts(model, "no counts", epsilon=1.0, ledger=ledger)
    assert ledger.epsilon_spent == 0  # nothing was released


def test_seeded_noise_is_repeatable_and_says_so(model, X):
    ledger = Ledger()
    with pytest.warns(SeededNoiseWarning, match="private_topic_counts"):
        one = private_topic_counts(model, X, epsilon=1.0, random_state=3, ledger=ledger)
    with pytest.warns(SeededNoiseWarning):
        other = private_topic_counts(model, X, epsilon=1.0, random_state=3)
    assert_array_equal(one.counts["all"], other.counts["all"])
    assert one.privacy_.seeded
    assert ledger.entries()[0].seeded
    secret = [private_topic_counts(model, X, epsilon=1.0) for _ in range(2)]
    assert (secret[0].counts["all"] != secret[1].counts["all"]).all()
    assert not secret[0].privacy_.seeded


def test_without_noise_there_is_no_guarantee(model, X):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = private_topic_counts(model, X, epsilon=math.inf, random_state=0)
    assert table.privacy_.epsilon == math.inf
    assert "exact" in table.privacy_.mechanism


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"epsilon": 0.0}, ValueError, r"epsilon must be a number in \(0"),
        ({"epsilon": "1"}, TypeError, "epsilon must be a number"),
        ({"delta": 0.0}, ValueError, "delta must be a number"),
        ({"delta": 1.0}, ValueError, "delta must be a number"),
        ({"epsilon": 1e-6}, ValueError, "raise epsilon"),
    ],
)
def test_what_is_refused(options, error, message, model, X):
    ledger = Ledger()
    with pytest.raises(error, match=message):
        private_topic_counts(model, X, **{"epsilon": 1.0, "ledger": ledger, **options})
    assert ledger.entries() == []


def test_models_without_the_inference_of_the_proof_are_refused(X):
    with pytest.raises(NotFittedError):
        private_topic_counts(SubLDA(K, epsilon=1.0), X, epsilon=1.0)
    other = LatentDirichletAllocation(K, max_iter=1).fit(X)
    released = ReleasedModel()
    released.components_ = other.components_
    for unknown in (other, released):
        with pytest.raises(TypeError, match="topic model of dplda"):
            private_topic_counts(unknown, X, epsilon=1.0)
