"""A recorder from outside sees every path by which a value leaves, and can replay
it."""

import numpy as np
import pytest
from estimators import LOCAL, PRIVATE, each
from own_recorder import Tape, moves
from sklearn.base import BaseEstimator, clone
from test_two_worlds import DOCUMENTS, N_DOCS, WORDS

from dplda import SubLDA
from dplda.datasets import make_topic_corpus
from dplda.federated import fit_together
from dplda.privacy.mechanisms import record

pytestmark = pytest.mark.filterwarnings(
    "ignore::dplda.privacy.SeededNoiseWarning", "ignore::dplda.privacy.LowSignalWarning"
)


@pytest.fixture(scope="module")
def X():
    return make_topic_corpus(40, 30, 4, doc_length=50, random_state=0).data


def release_of(path):
    """A function of counts that releases by a path, under a fixed seed."""
    call, options = (DOCUMENTS | {name: (WORDS[name], {}) for name in WORDS})[path]
    if isinstance(call, BaseEstimator):
        call = clone(call).set_params(random_state=0).fit
    return lambda X: call(X, **options)


@each(PRIVATE + LOCAL)
def test_everything_that_was_charged_is_seen_when_it_leaves(estimator, X):
    model = clone(estimator)
    if "max_doc_words" in model.get_params():
        model.set_params(max_doc_words=9)
    with record(Tape()) as tape:
        getattr(model, "fit_transform", model.fit)(X)
    assert tape.planned
    assert {label for label, _ in tape.left} == {*tape.planned}
    # a choice of words has two steps, noise and threshold, and leaves once
    assert 0 < len(tape.left) <= len(tape.planned)


@pytest.mark.parametrize("path", [*DOCUMENTS, *WORDS])
def test_an_outsider_replays_every_path(path):
    release = release_of(path)
    random = np.random.default_rng(1)
    data = random.poisson(2.0, size=(N_DOCS, 8))
    with record(Tape()) as one:
        release(data)
    assert {label for label, _ in one.left} == {*one.planned}
    neighbor = data.copy()
    if path in WORDS:  # whose unit is a word: the same data have the same history
        assert not any(moves(release, data, neighbor))
        return
    neighbor[-1] = 0  # of the last user, too
    found = list(moves(release, data, neighbor))
    assert found
    assert 0 < max(found) <= 1


def test_sums_of_parties_are_seen(X):
    parties = {"north": X[:20], "south": X[20:]}
    model = SubLDA(2, epsilon=4.0, max_iter=3)
    with record(Tape()) as tape:
        fit_together(model, parties)
    # each party charges and releases
    assert sorted(label for label, _ in tape.left) == sorted(tape.planned)
    assert len(tape.left) == 2 * 5
