"""scikit-learn's own suite for estimators, on every estimator."""

import pytest
from estimators import CASES, LITERAL, LOCAL
from sklearn.utils.estimator_checks import parametrize_with_checks

# the suite gives seeds and counts that are not whole
pytestmark = [
    pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning"),
    pytest.mark.filterwarnings("ignore::dplda.privacy.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore:.*not whole:UserWarning"),
]


def expected_failures(estimator):
    """The suite calls `partial_fit` after `fit`, which has spent all of `epsilon`."""
    states_total = hasattr(estimator, "partial_fit") and estimator.get_params().get(
        "epsilon"
    )
    if not states_total or estimator in [case.estimator for case in LOCAL]:
        return {}
    return {"check_fit_score_takes_y": "fit has spent all of epsilon"}


@parametrize_with_checks(
    [case.estimator for case in CASES if case not in LITERAL],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_check(estimator, check):
    check(estimator)
