"""What users of scikit-learn's LDA rely on holds here too."""

import math

import numpy as np
import pytest
from estimators import MODELS, each, simplest
from sklearn.base import clone

from dplda import load_release, save_release
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
