"""Neighboring corpora, run side by side: what the proofs say of one unit, asserted of the code."""

import itertools
import warnings
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from estimators import PRIVATE, each
from reference import document_weights
from sklearn.base import clone

from dplda._gibbs import IntegerTable
from dplda.datasets import make_topic_corpus
from dplda.privacy import SeededNoiseWarning
from dplda.privacy.mechanisms import Curator


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


@pytest.mark.parametrize("module", ["_sublda", "_svilda"])
def test_a_clip_of_each_document_alone_would_be_found(module, monkeypatch):
    monkeypatch.setattr(f"dplda.central.{module}.number_users", lambda ids, n_docs: None)
    case = next(case for case in PRIVATE if case.name == module.strip("_"))
    estimator = clone(case.estimator).set_params(random_state=1)
    with pytest.raises(AssertionError, match="radius"):
        worlds_with_and_without_a_user(estimator, HOSTILE["copies"](30, 40), monkeypatch)


def sweep_law(words, topics, table, prior):
    """Exact law of the topics after a frozen sweep over one document, as {topics: probability}."""
    n_components = len(table.topic_scale)
    law = {}
    for drawn in itertools.product(range(n_components), repeat=len(words)):
        probability, current = Fraction(1), list(topics)
        for i, word in enumerate(words):
            others = [z for j, z in enumerate(current) if j != i and z >= 0]
            counts = np.bincount(others, minlength=n_components).tolist()
            c = document_weights(counts, len(words), prior, table.topic_scale.tolist())
            weight = [int(a) * b for a, b in zip(table.weight[word], c)]
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
        table = IntegerTable.from_counts(rng.choice([-1, 0, 0.5, 1, 2], (3, 2)), clip, prior)
        topics = rng.integers(-1, 2, 3).tolist()
        mixtures = []
        for words in ((0, 1, 2), (0, 1, 0)):
            orders = list(itertools.permutations(range(3)))
            laws = [sweep_law([words[i] for i in o], topics, table, 0.2) for o in orders]
            mixtures.append({z: sum(law[z] for law in laws) / len(orders) for z in laws[0]})
        worst = max(worst, worst_ratio(*mixtures))
    assert 10 < worst <= bound
