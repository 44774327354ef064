"""The one list of estimators for tests of what all of them promise: a new one is one line here.

A test takes the cases that it is about::

    from estimators import PRIVATE, each

    @each(PRIVATE)
    def test_something(estimator): ...

Clone an estimator before changing it: all tests share the list.
"""

import math
from dataclasses import dataclass

import pytest
from sklearn.base import BaseEstimator, clone

from dplda import HDPLDA, LPLDA, OLPLDA, GibbsLDA, PrivateSVILDA, RandomizedResponse, SubLDA
from dplda.federated import IFTMParty
from dplda.published import (
    CDPLDA,
    PublishedHDPLDA,
    PublishedIFTMParty,
    PublishedPrivateSVILDA,
    PublishedSubLDA,
)

K = 4
# where the public objects are: what `__all__` of these lists
PACKAGES = (
    "dplda",
    "dplda.audit",
    "dplda.datasets",
    "dplda.displays",
    "dplda.federated",
    "dplda.metrics",
    "dplda.privacy",
    "dplda.privacy.mechanisms",
    "dplda.published",
    "dplda.topics",
)


@dataclass(frozen=True)
class Case:
    """A configuration that fits 137 documents in milliseconds and six rounds.

    `unit` is what its guarantee protects. The first case of a class is its simplest one; another
    case is here because it runs other code.
    """

    name: str
    estimator: BaseEstimator
    unit: str | None = None  # None: there is no guarantee

    @property
    def room(self):
        """The subpackage that the estimator lives in: who is trusted with the documents."""
        return type(self.estimator).__module__.split(".")[1]


CASES = [
    Case("gibbs", GibbsLDA(K, max_iter=6)),
    Case("sublda", SubLDA(K, epsilon=3.0, max_iter=6), "document"),
    Case(
        "sublda-adaptive",
        SubLDA(K, noise_multiplier=1.5, subsampling_ratio=0.4, boost=2.0, max_iter=6),
        "document",
    ),
    Case("svilda", PrivateSVILDA(K, epsilon=3.0, max_iter=6), "document"),
    Case(
        "hdplda",
        HDPLDA(K, noise_epsilon=1.0, count_clip=1.0, topic_word_prior=0.5, max_iter=6),
        "word",
    ),
    Case("hdplda-gaussian", HDPLDA(K, noise="gaussian", epsilon=20.0, max_iter=6), "word"),
    Case("lplda", LPLDA(K, bit_epsilon=3.0, max_iter=6), "document"),
    Case(
        "lplda-oue",
        LPLDA(K, epsilon=9.0, mechanism="oue", reconstruction="bits", max_iter=6),
        "document",
    ),
    Case("olplda", OLPLDA(K, epsilon=9.0, max_iter=6), "document"),
    Case(
        "olplda-background",
        # three batches of two sweeps
        OLPLDA(K, bit_epsilon=2.2, reconstruction="background", batch_size=60, max_iter=2),
        "document",
    ),
    Case("randomized-response", RandomizedResponse(epsilon=9.0, max_doc_words=9), "document"),
    Case("party", IFTMParty(K, token_epsilon=3.0, max_iter=6), "token"),
    Case(
        "party-laplace",
        IFTMParty(K, token_epsilon=3.0, token_mechanism="laplace", max_doc_tokens=40, max_iter=6),
        "token",
    ),
    Case("cdplda", CDPLDA(K, noise_epsilon=5.0, max_iter=6)),
    Case("cdplda-every", CDPLDA(K, noise_epsilon=5.0, noise_at="every_sweep", max_iter=6)),
    Case("published-sublda", PublishedSubLDA(K, max_iter=6)),
    Case(
        "published-sublda-token",
        PublishedSubLDA(K, subsampling_ratio=0.5, noise_placement="token", max_iter=6),
    ),
    Case("published-sublda-adaptive", PublishedSubLDA(K, boost=2.0, tol=0.0, max_iter=6)),
    Case("published-hdplda", PublishedHDPLDA(K, noise_epsilon=1.0, count_clip=1.0, max_iter=6)),
    Case(
        "published-svilda",
        PublishedPrivateSVILDA(K, published_epsilon=1.0, batch_size=1, max_iter=6),
    ),
    Case("published-party", PublishedIFTMParty(K, published_epsilon=8.0, max_iter=6)),
]
MODELS = [case for case in CASES if "n_components" in case.estimator.get_params()]
# their fit draws the noise, and charges a ledger
PRIVATE = [case for case in MODELS if case.unit and case.room != "local"]
# their clients draw the noise: `epsilon_` is that of one report, however many there are
LOCAL = [case for case in MODELS if case.room == "local"]
# the papers to the letter keep fewer promises, and have tests of their own
LITERAL = [case for case in MODELS if case.room == "published"]
SOUND = [case for case in MODELS if case not in LITERAL]
# a party refines its noisy vectors, and reads no more documents
ONLINE = [case for case in SOUND if hasattr(case.estimator, "partial_fit")]


# the parameters that state a budget: the first of them that a class has is the total, inf for none
BUDGET = ("epsilon", "token_epsilon", "noise_multiplier", "noise_epsilon", "count_clip")


def without_noise(estimator, **parameters):
    """The same estimator with an infinite budget."""
    names = [name for name in BUDGET if name in estimator.get_params()]
    stated = dict.fromkeys(names) | {names[0]: math.inf}
    return clone(estimator).set_params(**stated, **parameters)


def simplest(cases):
    """The first case of each class."""
    return list({type(case.estimator): case for case in reversed(cases)}.values())[::-1]


def each(cases):
    """Run a test with the estimator of each case."""
    return pytest.mark.parametrize(
        "estimator", [pytest.param(case.estimator, id=case.name) for case in cases]
    )
