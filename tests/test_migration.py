"""What users of scikit-learn's LDA rely on holds here too."""

import math

import numpy as np
import pytest
from estimators import MODELS, each, simplest
from numpy.testing import assert_allclose
from scipy.linalg import block_diag
from sklearn.base import clone

from dplda import GibbsLDA, PrivateSVILDA, SubLDA, load_release, save_release
from dplda.core._base import BaseLDA


@pytest.mark.filterwarnings("ignore")
@each(case for case in simplest(MODELS) if isinstance(case.estimator, BaseLDA))
def test_no_prior_is_one_over_the_number_of_topics(estimator, tmp_path):
    """As in scikit-learn, where it is the default; a file says the number."""
    X = np.random.default_rng(0).poisson(0.7, (60, 9)) + np.eye(9, dtype=int).repeat(7, 0)[:60]
    K = estimator.n_components
    none, number = (
        clone(estimator).set_params(doc_topic_prior=prior, random_state=0).fit(X)
        for prior in (None, 1 / K)
    )
    assert none.doc_topic_prior_ == number.doc_topic_prior_ == 1 / K
    assert none.get_params()["doc_topic_prior"] is None
    np.testing.assert_array_equal(none.components_, number.components_)
    np.testing.assert_array_equal(none.transform(X), number.transform(X))
    if none.privacy_.epsilon < math.inf:
        save_release(none, tmp_path / "model.dplda")
        assert load_release(tmp_path / "model.dplda").doc_topic_prior_ == 1 / K


LEARNERS = [
    SubLDA(3, epsilon=math.inf, max_iter=30),
    PrivateSVILDA(3, epsilon=math.inf, max_iter=100),
    GibbsLDA(3, max_iter=100),
]


@pytest.mark.parametrize("estimator", LEARNERS, ids=lambda estimator: type(estimator).__name__)
def test_separated_topics_are_found_as_in_the_tests_of_scikit_learn(estimator):
    """Each topic has three words of its own."""
    X = block_diag(*[np.full((3, 3), 3)] * 3)
    model = clone(estimator).set_params(random_state=0).fit(X)
    found = {tuple(sorted(topic.argsort()[-3:].tolist())) for topic in model.components_}
    assert found == {(0, 1, 2), (3, 4, 5), (6, 7, 8)}
    names = [f"{type(estimator).__name__.lower()}{k}" for k in range(3)]
    assert model.get_feature_names_out().tolist() == names
    assert_allclose(model.perplexity(X), np.exp(-model.score(X)))
    first = clone(model).set_params(max_iter=1).fit(X)
    assert first.perplexity(X, completion=False) >= model.perplexity(X, completion=False)
