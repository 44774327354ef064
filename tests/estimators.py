"""The estimators, found by discovery, for tests of what all of them promise.

A test takes the cases that it is about::

    from estimators import PRIVATE, each

    @each(PRIVATE)
    def test_something(estimator): ...

Clone an estimator before changing it: all tests share the list.
"""

import importlib
import inspect
import math
from dataclasses import dataclass

import pytest
from sklearn.base import BaseEstimator, clone

from dplda import HDPLDA, LPLDA, OLPLDA, RandomizedResponse, SubLDA
from dplda.audit import observe_releases
from dplda.federated import IFTMParty
from dplda.published import (
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
)


@dataclass(frozen=True)
class Case:
    """A configuration that fits 137 documents in milliseconds and six rounds.

    `unit` is what its guarantee protects. The first case of a class is its simplest
    one; another case is here because it runs other code.
    """

    name: str
    estimator: BaseEstimator
    unit: str | None = None  # None: there is no guarantee

    @property
    def room(self):
        """The subpackage of the estimator: who is trusted with the documents."""
        return type(self.estimator).__module__.split(".")[1]


# Of each class: its simplest configuration, and others that run other code. A class
# that is not here has one, with `BUDGET`. `K` topics and six rounds go without saying.
SETTINGS = {
    SubLDA: [{}, {"noise_multiplier": 1.5, "subsampling_ratio": 0.4, "boost": 2.0}],
    HDPLDA: [{"noise_epsilon": 1.0, "count_clip": 1.0, "topic_word_prior": 0.5}],
    LPLDA: [{"bit_epsilon": 3.0}, {"epsilon": 9.0, "reconstruction": "bits"}],
    OLPLDA: [
        {"epsilon": 9.0},
        # three batches of two sweeps
        {
            "bit_epsilon": 2.2,
            "reconstruction": "background",
            "batch_size": 60,
            "max_iter": 2,
        },
    ],
    RandomizedResponse: [{"epsilon": 9.0, "max_doc_words": 9}],
    IFTMParty: [{}, {"token_epsilon": 3.0, "max_doc_tokens": 40}],
    PublishedSubLDA: [
        {},
        {"subsampling_ratio": 0.5, "noise_placement": "token"},
        {"boost": 2.0},
    ],
    PublishedHDPLDA: [{"noise_epsilon": 1.0, "count_clip": 1.0}],
    PublishedPrivateSVILDA: [{"published_epsilon": 1.0, "batch_size": 1}],
    PublishedIFTMParty: [{"published_epsilon": 8.0}],
}
# the parameters that state a budget: the first of them that a class has is the total,
# inf for none
BUDGET = ("epsilon", "token_epsilon", "noise_multiplier", "noise_epsilon", "count_clip")


def discovered():
    """The public topic models, and clients of local ones, in table-of-contents order.

    As scikit-learn's `all_estimators`: a new class needs no line here.
    """
    modules = map(importlib.import_module, PACKAGES)
    members = [getattr(module, name) for module in modules for name in module.__all__]
    kinds = [member for member in members if inspect.isclass(member)]
    return [
        kind
        for kind in kinds
        if (hasattr(kind, "perplexity") and "n_components" in parameters(kind))
        or kind in SETTINGS
    ]


def parameters(kind):
    return inspect.signature(kind).parameters


def cases_of(kind):
    """The configurations of a class."""
    room, known = kind.__module__.split(".")[1], parameters(kind)
    promise = getattr(kind, "_promise", None)
    sound = promise is not None and room != "published"
    simple = {"n_components": K, "max_iter": 6}
    for n, setting in enumerate(SETTINGS.get(kind, [{}])):
        budget = (
            [name for name in BUDGET if name in known][:1]
            if sound and not setting
            else []
        )
        options = {name: simple[name] for name in simple if name in known}
        options |= dict.fromkeys(budget, 3.0) | setting
        name = "-".join([kind.__name__, *(list(setting)[-1:] if n else [])])
        yield Case(name, kind(**options), promise.unit if sound else None)


CASES = [case for kind in discovered() for case in cases_of(kind)]
MODELS = [case for case in CASES if "n_components" in case.estimator.get_params()]
# their fit draws the noise, and charges a ledger
PRIVATE = [case for case in MODELS if case.unit and case.room != "local"]
# their clients draw the noise: `epsilon_` is that of one report, however many there are
LOCAL = [case for case in MODELS if case.room == "local"]
# the papers to the letter keep fewer promises, and have tests of their own
LITERAL = [case for case in MODELS if case.room == "published"]
SOUND = [case for case in MODELS if case not in LITERAL]
# what `components_` says is a table of words in topics
LDA = [case for case in SOUND if hasattr(case.estimator, "perplexity")]
# `fit` may protect users
USERS = [
    case
    for case in PRIVATE
    if "user_ids" in inspect.signature(case.estimator.fit).parameters
]
# those that take later documents
ONLINE = [case for case in SOUND if hasattr(case.estimator, "partial_fit")]


def without_noise(estimator, **parameters):
    """The same estimator with an infinite budget."""
    names = [name for name in BUDGET if name in estimator.get_params()]
    stated = dict.fromkeys(names) | {names[0]: math.inf}
    return clone(estimator).set_params(**stated, **parameters)


def observed(estimator, X):
    """The estimator fitted to X, and observed values by label and round."""
    with observe_releases() as seen:
        estimator.fit(X)
    values = {}
    for release in seen:
        values.setdefault(release.label, {})[release.round] = release.value
    return estimator, values


def simplest(cases):
    """The first case of each class."""
    return list({type(case.estimator): case for case in reversed(cases)}.values())[::-1]


def each(cases):
    """Run a test with the estimator of each case."""
    return pytest.mark.parametrize(
        "estimator", [pytest.param(case.estimator, id=case.name) for case in cases]
    )
