"""Fits that add the releases of earlier fits to other documents."""

import copy
import math

import joblib
import numpy as np
import pytest
from sklearn.base import clone

from dplda import PrivateSVILDA, SubLDA
from dplda.audit._replay import fit_watched
from dplda.datasets import make_topic_corpus
from dplda.privacy import Ledger

both = pytest.mark.parametrize("kind", [SubLDA, PrivateSVILDA])
OPTIONS = {"n_components": 3, "max_iter": 4, "delta": 1e-5}
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def X():
    return make_topic_corpus(60, 30, 3, random_state=0).data


@both
def test_each_part_pays_once(kind, X):
    ledger, model = Ledger(epsilon=1.0, delta=1e-5), None
    for day, rows in enumerate(np.array_split(np.arange(60), 3)):
        part = ledger.part(str(day), by="day")
        model = kind(epsilon=1.0, ledger=part, **OPTIONS).fit(X[rows], earlier=model)
    assert model.epsilon_ <= 1.0
    assert ledger.epsilon_spent <= 1.0
    assert "no document of this fit is in the fits that were added" in str(
        model.privacy_
    )


@both
def test_without_noise_the_counts_of_all_parts_are_added(kind, X):
    model = None
    for rows in np.array_split(np.arange(60), 3):
        model = kind(epsilon=math.inf, subsampling_ratio=1.0, **OPTIONS).fit(
            X[rows], earlier=model
        )
    of_words = model._released.sums()[0].sum(axis=1)
    np.testing.assert_allclose(of_words, np.ravel(X.sum(axis=0)), rtol=0.01, atol=2)


@both
def test_the_earlier_fit_is_read_as_a_release_and_stays_as_it_is(kind, X):
    """Other documents with today's releases give the same model, to the last bit."""
    first = kind(epsilon=1.0, random_state=0, **OPTIONS).fit(X)
    before, model = joblib.hash(vars(first)), kind(epsilon=1.0, **OPTIONS)
    others = make_topic_corpus(90, 30, 3, random_state=5).data
    one, tape = fit_watched(model, X, 1, earlier=copy.deepcopy(first))
    other, _ = fit_watched(model, others, 1, tape, earlier=copy.deepcopy(first))
    assert joblib.hash(one.components_) == joblib.hash(other.components_)
    assert joblib.hash(vars(first)) == before


@both
def test_another_model_is_refused_before_anything_is_charged(kind, X):
    ledger = Ledger()
    model = kind(epsilon=1.0, ledger=ledger, **OPTIONS)
    wide = kind(epsilon=1.0, **OPTIONS | {"n_components": 5}).fit(X)
    for other in (wide, clone(model), "yesterday"):
        with pytest.raises(
            ValueError, match="earlier must be a fitted SubLDA or PrivateSVILDA"
        ):
            model.fit(X, earlier=other)
    narrow = kind(epsilon=1.0, **OPTIONS).fit(X[:, :20])
    with pytest.raises(ValueError, match="fitted to 20 words, and X has 30"):
        model.fit(X, earlier=narrow)
    assert ledger.epsilon_spent == 0
