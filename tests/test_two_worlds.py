"""Neighboring corpora, run side by side: what the proofs say of one unit, asserted of the code."""

import copy
import itertools
import warnings
from fractions import Fraction

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from estimators import LOCAL, PRIVATE, each
from reference import document_weights, half_integers
from sklearn.base import clone

from dplda import RandomizedResponse
from dplda.datasets import make_topic_corpus
from dplda.federated import _party
from dplda.privacy import SeededNoiseWarning
from dplda.privacy.mechanisms import Curator
from dplda.word import _hdplda
from dplda.word._frozen_table import HalfTable


@pytest.mark.parametrize("parameters", [{}, {"n_jobs": 2}, {"subsampling_ratio": 0.5}], ids=str)
@each(case for case in PRIVATE if case.unit == "document")
def test_a_contribution_is_the_same_whoever_else_is_there(estimator, parameters, monkeypatch):
    """In integers, in every release: f(X) - f(X without a) = f(X without b) - f(X without both)."""
    X = make_topic_corpus(60, 40, 4, doc_length=30, random_state=0).data.tolil()
    loudest = int(X.sum(axis=0).argmax())
    X[12] = 0
    X[12, loudest] = 3000  # a document that a maximum or a mean over documents would read
    known = {name: value for name, value in parameters.items() if name in estimator.get_params()}
    estimator = clone(estimator).set_params(max_iter=8, random_state=0, **known)
    release, tape, worlds = Curator.release, [], []

    def replay(self, value, *args, **kwargs):
        worlds[-1].append(value.copy())
        noisy = release(self, value, *args, **kwargs)
        if len(worlds) == 1:
            tape.append(noisy)
        return tape[len(worlds[-1]) - 1].copy()

    monkeypatch.setattr(Curator, "release", replay)
    for without in ([], [12], [13], [12, 13]):
        Y = X.copy()
        Y[without] = 0
        worlds.append([])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SeededNoiseWarning)
            clone(estimator).fit(sp.csr_array(Y))
    changed = 0
    for all_of_them, without_a, without_b, without_both in zip(*worlds, strict=True):
        np.testing.assert_array_equal(all_of_them - without_a, without_b - without_both)
        changed += (all_of_them != without_a).any() and (all_of_them != without_b).any()
    assert changed > 1, "both documents must take part"


def other_documents(X, same_shape):
    """Documents that share with `X` what is public: their lengths, or nothing but the columns."""
    if same_shape:
        return X[:, np.random.default_rng(1).permutation(X.shape[1])]
    return make_topic_corpus(71, X.shape[1], 3, doc_length=30, random_state=5).data


@pytest.fixture
def same_releases(monkeypatch):
    """All seams at which a value becomes public: the second fit gets what the first one got."""
    tapes, first = [], True

    def taped(owner, name):
        make, tape = getattr(owner, name), []
        tapes.append(tape)

        def call(*args, **kwargs):
            made = make(*args, **kwargs)
            if first:
                tape.append(copy.deepcopy(made))
                return made
            return tape.pop(0)

        monkeypatch.setattr(owner, name, call)

    for owner, name in (
        (Curator, "release"),
        (_hdplda, "uniform_topics"),
        (_hdplda, "draw_topics"),
        (_party, "privatize"),
        (RandomizedResponse, "_report"),
    ):
        taped(owner, name)

    def again():
        nonlocal first
        first = False
        return tapes

    return again


@pytest.mark.parametrize("case", PRIVATE + LOCAL, ids=lambda case: case.name)
def test_a_fitted_model_holds_nothing_but_functions_of_its_releases(case, same_releases):
    """Other private documents with the same releases give the same model, to the last bit."""
    X = make_topic_corpus(80, 40, 4, doc_length=30, random_state=0).data
    same_shape = case.room == "local" or case.unit != "document"  # lengths, or reports, are public
    models = [clone(case.estimator).set_params(random_state=0) for _ in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeededNoiseWarning)
        models[0].fit(X)
        tapes = same_releases()
        assert any(tapes)
        models[1].fit(other_documents(X, same_shape))
    assert not any(tapes)
    one, other = (vars(model) for model in models)
    assert one.keys() == other.keys()
    assert [name for name in one if joblib.hash(one[name]) != joblib.hash(other[name])] == []


def recorded(tape):
    """`Curator.release` that keeps what was private and what became public."""
    release = Curator.release

    def record(self, value, *args, **kwargs):
        noisy = release(self, value, *args, **kwargs)
        tape.append((value.copy(), noisy))
        return noisy

    return record


def replayed(tape, distances, values=None):
    """`Curator.release` that lets out what the first world let out, and compares the values."""
    release = Curator.release

    def replay(self, value, mechanism, **kwargs):
        release(self, value, mechanism, **kwargs)
        other, noisy = tape.pop(0)
        if values is not None:
            values.append(value.copy())
        squares = int(((value - other).astype(object) ** 2).sum())
        assert squares <= mechanism.radius**2
        distances.append(squares / mechanism.radius**2)
        return noisy

    return replay


@pytest.mark.parametrize(
    "parameters",
    [{}, {"n_jobs": 2}, {"subsampling_ratio": 0.5}, {"subsampling_ratio": 1.0}],
    ids=str,
)
@each(case for case in PRIVATE if case.unit == "document")
def test_a_document_moves_no_release_further_than_its_radius(estimator, parameters, monkeypatch):
    X = make_topic_corpus(80, 40, 4, random_state=0).data
    Y = X.tolil()
    Y[13] = 0
    tape, distances = [], []
    known = {name: value for name, value in parameters.items() if name in estimator.get_params()}
    estimator = clone(estimator).set_params(max_iter=15, random_state=0, **known)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeededNoiseWarning)
        for release, corpus in ((recorded(tape), X), (replayed(tape, distances), Y)):
            with monkeypatch.context() as patch:
                patch.setattr(Curator, "release", release)
                estimator.fit(sp.csr_array(corpus))
    assert tape == []
    assert max(distances) > 0.5, "give this case a clipping bound that documents reach"


# Documents of a user, out of `n` over a vocabulary of `v`, that each reach for the clipping bound.
HOSTILE = {
    "the same words": lambda n, v: np.tile(np.arange(v) < 5, (n, 1)) * 9,
    "disjoint words": lambda n, v: np.eye(n, v, dtype=int) * 9,
    "one huge document": lambda n, v: np.eye(1, v, 7, dtype=int) * 10**15,
    "huge counts": lambda n, v: np.tile(np.arange(v) % 3, (n, 1)) * 10**12,
    "copies": lambda n, v: np.tile(np.arange(v) % 7, (n, 1)),
    "long and short": lambda n, v: np.diag(10 ** (np.arange(n) % 13)) @ np.eye(n, v, 1, dtype=int),
    "tiny shares": lambda n, v: np.tile(np.arange(v) % 7 * 1e-300, (n, 1)),
    "extreme weights": lambda n, v: np.tile([1e-300, 1e308, 0.5, 1e12], (n, v // 4)),
}


def worlds_with_and_without_a_user(estimator, own, monkeypatch):
    """Distances of the values of all releases in radii, and the values without the user.

    First the user's documents are empty, then the rows are not there. The user is the last, so that
    all others take part in the same rounds.
    """
    others = make_topic_corpus(60, 40, 4, random_state=0).data.toarray()
    X = np.vstack([others, own])
    ids = np.append(np.arange(60) // 3, np.full(len(own), 99))
    emptied = np.vstack([others, np.zeros_like(own)])
    tape, distances, values = [], [], ([], [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeededNoiseWarning)
        with monkeypatch.context() as patch:
            patch.setattr(Curator, "release", recorded(tape))
            estimator.fit(X, user_ids=ids)
        for rows, corpus, kept in ((len(X), emptied, values[0]), (60, emptied, values[1])):
            with monkeypatch.context() as patch:
                patch.setattr(Curator, "release", replayed(list(tape), distances, kept))
                estimator.fit(corpus[:rows], user_ids=ids[:rows])
    return distances, values


@pytest.mark.parametrize("own", HOSTILE)
@each(case for case in PRIVATE if case.unit == "document")
def test_a_user_moves_no_release_further_than_its_radius(estimator, own, monkeypatch):
    estimator = clone(estimator).set_params(random_state=4)  # it draws the user into some round
    distances, (emptied, removed) = worlds_with_and_without_a_user(
        estimator, HOSTILE[own](30, 40), monkeypatch
    )
    totals, rounds = distances[:2], distances[2:8]
    assert min(totals) > 0.95, "a user that reaches for the bound"
    assert max(rounds) > 0.95, "a user that reaches for the bound"
    for one, other in zip(emptied, removed, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["sublda", "svilda"])
def test_a_clip_of_each_document_alone_would_be_found(name, monkeypatch):
    monkeypatch.setattr("dplda.document._document_lda.number_users", lambda ids, n_docs: None)
    case = next(case for case in PRIVATE if case.name == name)
    estimator = clone(case.estimator).set_params(random_state=1)
    with pytest.raises(AssertionError, match="radius"):
        worlds_with_and_without_a_user(estimator, HOSTILE["copies"](30, 40), monkeypatch)


def sweep_law(words, topics, table, prior):
    """Exact law of the topics after a frozen sweep over one document, as {topics: probability}."""
    n_components, values = table.n_components, half_integers(table.half)
    law = {}
    for drawn in itertools.product(range(n_components), repeat=len(words)):
        probability, current = Fraction(1), list(topics)
        for i, word in enumerate(words):
            others = [z for j, z in enumerate(current) if j != i and z >= 0]
            counts = np.bincount(others, minlength=n_components).tolist()
            c = document_weights(counts, len(words), prior)
            weight = [a * b for a, b in zip(values[word], c)]
            probability *= Fraction(weight[drawn[i]], sum(weight))
            current[i] = drawn[i]
        law[drawn] = probability
    return law


def worst_ratio(one, other):
    return max(max(one[z] / other[z], other[z] / one[z]) for z in one)


def test_replacing_a_word_changes_the_law_of_a_sweep_by_the_bound_at_most():
    """Over random orders; in the order of a sorted row the laws of other tokens change too."""
    rng = np.random.default_rng(0)
    clip, prior = 1.0, 0.05
    bound = (Fraction(clip) / Fraction(prior) + 1) ** 2
    worst = 0
    for _ in range(40):
        table = HalfTable.from_counts(rng.choice([-1, 0, 0.5, 1, 2], (3, 2)), clip, prior)
        topics = rng.integers(-1, 2, 3).tolist()
        mixtures = []
        for words in ((0, 1, 2), (0, 1, 0)):
            orders = list(itertools.permutations(range(3)))
            laws = [sweep_law([words[i] for i in o], topics, table, 0.2) for o in orders]
            mixtures.append({z: sum(law[z] for law in laws) / len(orders) for z in laws[0]})
        worst = max(worst, worst_ratio(*mixtures))
    assert 10 < worst <= bound
