"""scikit-learn's own suite for estimators, on every estimator."""

import pytest
from estimators import CASES, LITERAL
from sklearn.utils.estimator_checks import parametrize_with_checks

# the suite gives seeds and counts that are not whole
pytestmark = [
    pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning"),
    pytest.mark.filterwarnings("ignore::dplda.privacy.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore:.*not whole:UserWarning"),
]


@parametrize_with_checks([case.estimator for case in CASES if case not in LITERAL])
def test_scikit_learn_check(estimator, check):
    check(estimator)
