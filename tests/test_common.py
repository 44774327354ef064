"""scikit-learn's own suite for estimators, on every estimator."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from dplda import (
    HDPLDA,
    LPLDA,
    OLPLDA,
    GibbsLDA,
    PrivateSVILDA,
    RandomizedResponse,
    SubLDA,
)
from dplda.federated import IFTMParty
from dplda.published import CDPLDA

ESTIMATORS = [
    GibbsLDA(max_iter=5),
    CDPLDA(epsilon=1.0, max_iter=5),
    CDPLDA(epsilon=1.0, noise="every", max_iter=5),
    SubLDA(epsilon=1.0, max_iter=5),
    SubLDA(noise_multiplier=2.0, subsampling_ratio=0.5, adaptive=True, max_iter=5),
    SubLDA(epsilon=float("inf"), max_iter=5),
    PrivateSVILDA(epsilon=1.0, subsampling_ratio=0.5, max_iter=5),
    PrivateSVILDA(noise_multiplier=2.0, accountant="rdp", max_doc_tokens=5, max_iter=5),
    PrivateSVILDA(epsilon=float("inf"), max_iter=5),
    HDPLDA(epsilon=10.0, max_iter=5),
    HDPLDA(noise="gaussian", noise_multiplier=5.0, count_clip=0.01, max_iter=5),
    HDPLDA(privacy_unit="document", epsilon=1.0, max_iter=5),
    LPLDA(epsilon=1.0, max_iter=5),
    LPLDA(epsilon=2.0, mechanism="oue", reconstruction="bits", max_iter=5),
    LPLDA(epsilon=float("inf"), max_iter=5),
    OLPLDA(epsilon=1.0, max_iter=5),
    OLPLDA(flip_mixture=0.5, reconstruction="background", batch_size=7, max_iter=5),
    OLPLDA(epsilon=float("inf"), max_iter=5),
    RandomizedResponse(epsilon=1.0),
    RandomizedResponse(epsilon=1.0, mechanism="oue", max_doc_words=2),
    RandomizedResponse(epsilon=float("inf")),
    IFTMParty(epsilon=3.0, max_iter=5),
    IFTMParty(epsilon=3.0, token_mechanism="laplace", max_doc_tokens=20, max_iter=5),
    IFTMParty(epsilon=float("inf"), max_iter=5),
    IFTMParty(epsilon=1.0, privacy_unit="document", max_iter=5),
]


# the suite gives seeds and counts that are not whole
@pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")
@pytest.mark.filterwarnings("ignore::dplda.privacy.PrivacyLeakWarning")
@pytest.mark.filterwarnings("ignore:.*not whole:UserWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_check(estimator, check):
    check(estimator)
