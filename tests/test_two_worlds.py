"""Neighboring data, run side by side: the code does what the proofs say of a unit."""

import os

import numpy as np
import pytest
import scipy.sparse as sp
from estimators import LOCAL, PRIVATE, USERS, each
from faults import FAULTS
from hypothesis import HealthCheck, example, given, settings, target
from hypothesis import strategies as st
from private_nmf import PrivateNMF
from sklearn.base import clone

from dplda import (
    HDPLDA,
    PrivateCountVectorizer,
    PrivateSVILDA,
    SubLDA,
    private_topic_counts,
)
from dplda.audit import replay
from dplda.audit._replay import attribute_check, fit_watched, watched
from dplda.datasets import make_topic_corpus
from dplda.federated import IFTMParty
from dplda.metrics import noisy_score
from dplda.privacy import Ledger

# of all searches together
PAIRS = int(os.environ.get("DPLDA_REPLAY_PAIRS", "600"))
N_DOCS, N_WORDS = 6, 8


# a search for the worst neighbor, on every path of a release

BUDGET = {"noise_multiplier": 2.0, "max_iter": 3}
OTHER = make_topic_corpus(40, N_WORDS, 2, doc_length=30, random_state=1).data
TABLE = np.random.default_rng(0).gamma(0.3, size=(2, N_WORDS)) * 50 + 0.1
with watched():
    FITTED = SubLDA(2, **BUDGET, random_state=0).fit(OTHER)
LEAST = FITTED.components_.sum(axis=0).argmin()  # the least likely word


def again(X, **options):
    model = SubLDA(2, **BUDGET, random_state=3)
    return [model.partial_fit(X, **options).components_ for _ in range(2)]


def texts_of(X):
    return [" ".join(f"w{word}" for word in np.flatnonzero(row)) for row in X]


def vocabulary(X, **options):
    model = PrivateCountVectorizer(
        epsilon=4.0,
        delta=0.001,
        candidates=["w0", "w3", "nowhere"],
        max_doc_words=4,
        random_state=2,
    )
    return model.fit(texts_of(X), **options).word_weights_


def scores(X):
    return noisy_score(FITTED, X, epsilon=1.0, random_state=0)


def counts_of_topics(X):
    table = private_topic_counts(FITTED, X, epsilon=1.0, random_state=0)
    return table.counts["all"]


SUBLDA = SubLDA(2, **BUDGET)
SVILDA = PrivateSVILDA(2, **BUDGET)
OWNERS = {"user_ids": [0, 0, 1, 1, 1, 2]}
# estimators or functions of the counts, and the arguments of the call
DOCUMENTS = {
    "SubLDA": (SUBLDA, {}),
    "SubLDA, sampled": (
        clone(SUBLDA).set_params(subsampling_ratio=0.4, boost=2.0, max_iter=5),
        {},
    ),
    "SubLDA, users": (SUBLDA, OWNERS),
    "SubLDA, sampled users": (clone(SUBLDA).set_params(subsampling_ratio=0.7), OWNERS),
    "SubLDA, public prior": (clone(SUBLDA).set_params(prior_components=TABLE), {}),
    "SubLDA, earlier": (SUBLDA, {"earlier": FITTED}),
    "SubLDA, partial_fit": (again, OWNERS),
    "SubLDA, little noise": (SubLDA(2, noise_multiplier=0.1, max_iter=3), {}),
    "PrivateSVILDA": (SVILDA, {}),
    "PrivateSVILDA, all users": (
        clone(SVILDA).set_params(subsampling_ratio=1.0),
        OWNERS,
    ),
    "PrivateNMF": (PrivateNMF(2, **BUDGET), {}),
    "vocabulary": (vocabulary, {}),
    "vocabulary, users": (vocabulary, OWNERS),
    "scores": (scores, {}),
    "counts of topics": (counts_of_topics, {}),
}
WORDS = {
    "HDPLDA": HDPLDA(2, epsilon=4.0, max_iter=3),
    "HDPLDA, tested": HDPLDA(2, epsilon=4.0, max_iter=8),
}
EACH = PAIRS // (len(DOCUMENTS) + len(WORDS) + 1) + 1

numbers = st.sampled_from([0, 0, 0, 1, 1, 2, 9, 100, 10**6, 10**9])
large = st.sampled_from([0, 0, 0, 1, 2, 9, 10**6, 10**12])
few = st.sampled_from([0, 0, 0, 1, 1, 2, 9])


def corpora(cells):
    rows = st.lists(cells, min_size=N_WORDS, max_size=N_WORDS)
    return st.lists(rows, min_size=N_DOCS, max_size=N_DOCS).map(np.array)


def search(pairs):
    """Run a test on `EACH` pairs, those first that moved a release far."""
    quiet = settings(
        max_examples=EACH,
        suppress_health_check=list(HealthCheck),
        database=None,
        deadline=None,
    )
    return lambda test: quiet(given(pair=pairs)(test))


@pytest.mark.parametrize("path", DOCUMENTS)
def test_no_unit_moves_a_release_further_than_its_radius(path):
    estimator, options = DOCUMENTS[path]
    users, found = np.array(options.get("user_ids", np.arange(N_DOCS))), [0.0]
    cells = large if isinstance(estimator, (SubLDA, PrivateSVILDA)) else numbers
    if callable(estimator) and "vocabulary" in path:
        cells = few

    def distance(X, unit):
        neighbor = np.where((users == users[unit])[:, None], 0, X)
        result = replay(estimator, X, neighbor, **options)
        assert result.passed, str(result)
        found.append(max(result.distances))
        return found[-1]

    @search(st.tuples(corpora(cells), st.integers(0, N_DOCS - 1)))
    @example(pair=(np.eye(N_DOCS, N_WORDS) * 1000 + 1, 2))
    @example(pair=(np.tile(1 + 1000 * (np.arange(N_WORDS) == LEAST), (N_DOCS, 1)), 2))
    def no_worse(pair):
        target(distance(*pair))

    no_worse()
    if path == "scores":  # whose worst document has one word: each of them
        X = np.ones((N_DOCS, N_WORDS))
        for word in range(N_WORDS):
            X[2] = 1000 * (np.arange(N_WORDS) == word)
            distance(X, 2)
    # a score is only as large as the least likely word of the public model allows
    assert (0.6 if path == "scores" else 0.9) < max(found) <= 1.0


@pytest.mark.parametrize("path", WORDS)
def test_no_word_moves_a_release_further_than_is_charged(path):
    found = [0.0]

    @search(st.tuples(corpora(few), st.integers(0, 99), st.integers(0, 99)))
    def no_worse(pair):
        X, place, other = pair
        X[0, 0] += 1
        rows, words = np.nonzero(X)
        row, word = rows[place % len(rows)], words[place % len(rows)]
        # words in whose place no other word of the document changes its place
        others = np.flatnonzero(X[row] * (np.arange(N_WORDS) != word))
        low = others[others < word].max(initial=0)
        high = others[others > word].min(initial=N_WORDS - 1)
        neighbor = X.copy()
        neighbor[row, word] -= 1
        # one of several tokens of the word would not keep its place among them
        neighbor[
            row, low + other % (high - low + 1) if X[row, word] == 1 else word
        ] += 1
        result = replay(WORDS[path], X, neighbor)
        assert result.passed, str(result)
        found.append(max(result.distances))
        target(found[-1])

    no_worse()
    assert max(found) == pytest.approx(1.0, abs=1e-3)


def test_a_party_is_a_function_of_its_noisy_tokens():
    party = IFTMParty(2, token_epsilon=3.0, max_iter=2)

    @search(st.tuples(corpora(few), corpora(few)))
    def no_worse(pair):
        one, other = pair
        one[0, 0] = other[0, 0] = 1
        result = replay(party, one, other)
        assert result.passed, str(result)

    no_worse()


@pytest.mark.ci
@pytest.mark.parametrize(
    "fault",
    [
        "documents_are_clipped_too_wide",
        "documents_are_clipped_a_little_too_wide",
        "word_totals_count_twice",
        "contributions_read_others",
        "user_ids_are_ignored",
        "components_hold_raw_counts",
        "one_unit_is_clipped_too_wide",
        "sums_count_the_unsampled",
    ],
)
def test_a_replay_finds(fault, monkeypatch):
    FAULTS[fault].plant(monkeypatch)
    X = np.random.default_rng(0).integers(0, 2, (16, 40)) * 20
    model = SubLDA(
        2, noise_multiplier=2.0, max_iter=10, prior_components=np.eye(2, 40) * 99 + 1
    )
    options = {"user_ids": np.arange(16) // 2} if "user" in fault else {}
    if "unsampled" in fault:
        model.set_params(subsampling_ratio=0.3)
    users = options.get("user_ids", np.arange(16))
    results = [
        replay(model, X, np.where((users == unit)[:, None], 0, X), **options)
        for unit in np.unique(users)
    ]
    assert not all(result.passed for result in results)


def test_a_replay_charges_one_fit_and_says_what_it_found(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    X = np.ones((N_DOCS, N_WORDS))
    model = SubLDA(2, epsilon=1.0, max_iter=2, ledger=ledger)
    assert "all is as declared" in str(replay(model, X, X))
    assert len(ledger.entries()) == 1
    assert not hasattr(model, "components_")
    shorter = replay(clone(model).set_params(ledger=None), X, np.ones((N_DOCS, 5)))
    assert "depends on the data" in str(shorter)


@pytest.mark.parametrize(
    "parameters", [{}, {"n_jobs": 2}, {"subsampling_ratio": 0.5}], ids=str
)
@each(case for case in PRIVATE if case.unit == "document")
def test_a_contribution_is_the_same_whoever_else_is_there(estimator, parameters):
    """In integers: f(X) - f(X without a) = f(X without b) - f(X without both).

    This holds in every release.
    """
    X = make_topic_corpus(60, 40, 4, doc_length=30, random_state=0).data.toarray()
    X[12] = 0
    # a maximum or a mean over documents would read it
    X[12, X.sum(axis=0).argmax()] = 3000
    known = {
        name: value
        for name, value in parameters.items()
        if name in estimator.get_params()
    }
    estimator, tape, worlds = clone(estimator).set_params(max_iter=8, **known), None, []
    for without in ([], [12], [13], [12, 13]):
        Y = X.copy()
        Y[without] = 0
        _, one = fit_watched(estimator, sp.csr_array(Y), 0, tape)
        tape = tape or one
        worlds.append([step.value for step in one.steps])
    changed = 0
    for all_of_them, without_a, without_b, without_both in zip(*worlds, strict=True):
        np.testing.assert_array_equal(all_of_them - without_a, without_b - without_both)
        changed += (all_of_them != without_a).any() and (all_of_them != without_b).any()
    assert changed > 1, "both documents must take part"


@pytest.mark.parametrize("case", PRIVATE + LOCAL, ids=lambda case: case.name)
def test_a_fitted_model_holds_nothing_but_functions_of_its_releases(case):
    """Other private documents with the same releases give the same model, bitwise."""
    X = make_topic_corpus(80, 40, 4, doc_length=30, random_state=0).data
    other = make_topic_corpus(71, 40, 3, doc_length=30, random_state=5).data
    # lengths, or reports, are public
    if case.room == "local" or case.unit != "document":
        other = X[:, np.random.default_rng(1).permutation(X.shape[1])]
    model, tape = fit_watched(case.estimator, X, 0)
    assert tape.steps or tape.published
    assert attribute_check(model, fit_watched(case.estimator, other, 0, tape)[0]).passed


# Documents of a user, out of `n` over a vocabulary of `v`, that each reach for the
# clipping bound.
HOSTILE = {
    "the same words": lambda n, v: np.tile(np.arange(v) < 5, (n, 1)) * 9,
    "disjoint words": lambda n, v: np.eye(n, v, dtype=int) * 9,
    "one huge document": lambda n, v: np.eye(1, v, 7, dtype=int) * 10**15,
    "huge counts": lambda n, v: np.tile(np.arange(v) % 3, (n, 1)) * 10**12,
    "long and short": lambda n, v: (
        np.diag(10 ** (np.arange(n) % 13)) @ np.eye(n, v, 1, dtype=int)
    ),
    "extreme counts": lambda n, v: np.tile([1, 1e308, 2, 1e12], (n, v // 4)),
}


@pytest.mark.parametrize("own", HOSTILE)
@each(USERS)
def test_a_user_moves_no_release_further_than_its_radius(estimator, own):
    """The user is last, so that the others join the same rounds without the rows."""
    others = make_topic_corpus(60, 40, 4, random_state=0).data.toarray()
    own = HOSTILE[own](30, 40)
    X, ids = (
        np.vstack([others, own]),
        np.append(np.arange(60) // 3, np.full(len(own), 99)),
    )
    emptied = np.vstack([others, np.zeros_like(own)])
    # it draws the user into some round
    model = clone(estimator).set_params(random_state=4)
    result = replay(model, X, emptied, user_ids=ids)
    assert result.passed
    assert max(result.distances[:2]) > 0.95, "a user that reaches for the bound"
    assert max(result.distances[2:8]) > 0.95, "a user that reaches for the bound"
    _, tape = fit_watched(model, X, 4, user_ids=ids)
    _, one = fit_watched(model, emptied, 4, tape, user_ids=ids)
    _, other = fit_watched(model, others, 4, tape, user_ids=ids[:60])
    for step, without in zip(one.steps, other.steps, strict=True):
        np.testing.assert_array_equal(step.value, without.value)
