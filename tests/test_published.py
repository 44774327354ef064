"""What `dplda.published` models promise: warning, no guarantee, paper's figure."""

import inspect
import math
import warnings

import pytest
import test_estimators as common
from estimators import LITERAL, each, simplest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from dplda import published
from dplda.datasets import make_topic_corpus
from dplda.metrics import unigram_perplexity
from dplda.privacy import PrivacyLeakWarning
from dplda.published import (
    PublishedHDPLDA,
    PublishedIFTMParty,
    PublishedPrivateSVILDA,
    PublishedSubLDA,
)

pytestmark = pytest.mark.filterwarnings("ignore::dplda.privacy.PrivacyLeakWarning")
every = each(LITERAL)
SMALL = [estimator for estimator in (case.estimator for case in simplest(LITERAL))]
BUDGETS = ("published_epsilon", "noise_epsilon", "rdp_epsilon")


def budget(estimator):
    return next(name for name in BUDGETS if name in estimator.get_params())


def test_every_published_model_is_among_the_cases():
    found = {value for value in map(vars(published).get, published.__all__) if value}
    found |= {getattr(published, name) for name in published.__all__}
    assert {cls for cls in found if inspect.isclass(cls)} == {type(e) for e in SMALL}


SAID = {
    PublishedHDPLDA: "live counts.*in place.*last sweep.*dplda.HDPLDA",
    PublishedSubLDA: r"not sampled.*use dplda\.SubLDA",
    PublishedPrivateSVILDA: "stated epsilon 1:.*minibatch.*dplda.PrivateSVILDA",
    PublishedIFTMParty: "raw words.*encryption.*dplda.federated",
}


@every
def test_fit_warns_the_caller_once_of_what_is_wrong(estimator, corpus):
    with pytest.warns(PrivacyLeakWarning, match=SAID[type(estimator)]) as record:
        clone(estimator).fit(corpus)
    assert len(record) == 1
    assert record[0].filename == __file__


@every
def test_without_noise_nothing_is_claimed_and_nothing_warns(estimator, corpus):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = clone(estimator).set_params(**{budget(estimator): math.inf}).fit(corpus)
    assert model.published_epsilon_ == model.epsilon_ == math.inf
    assert str(model.privacy_).count("exact") == 1


PROVED = [PublishedPrivateSVILDA]  # with a finite epsilon


@each(case for case in LITERAL if type(case.estimator) not in PROVED)
def test_the_record_says_that_there_is_no_guarantee_and_why(estimator, corpus):
    model = clone(estimator).fit(corpus)
    assert (
        model.epsilon_
        == model.privacy_.epsilon
        == model.privacy_.epsilon_at(1e-5)
        == math.inf
    )
    assert model.delta_ == 0
    assert 0 < model.published_epsilon_ < math.inf
    assert "no privacy guarantee" in str(model.privacy_)
    assert "which proves nothing, because" in model.privacy_.mechanism
    reason = model.privacy_.mechanism.split("which proves nothing, because ")[1]
    assert len(reason) > 20
    assert model.privacy_.noise_scale > 0


COMMON = [
    common.test_without_a_seed_every_fit_differs,
    common.test_empty_documents_and_empty_corpora,
    common.test_bad_counts,
]


@every
@pytest.mark.parametrize(
    "check", COMMON, ids=lambda check: check.__name__.removeprefix("test_")
)
def test_what_all_estimators_promise(check, estimator, corpus):
    check(estimator, corpus)


@every
def test_same_seed_same_model_whatever_the_number_of_jobs(
    estimator, corpus, monkeypatch
):
    common.test_same_seed_same_model_whatever_the_number_of_jobs(
        estimator, corpus, monkeypatch
    )


@parametrize_with_checks(SMALL)
@pytest.mark.filterwarnings("ignore:.*not whole:UserWarning")
def test_scikit_learn_check(estimator, check):
    check(estimator)


# utility: the noise of the claim is the noise that is drawn


@pytest.mark.parametrize(
    ("estimator", "epsilons"),
    [
        (
            PublishedHDPLDA(5, count_clip=100.0, doc_topic_prior=0.1, max_iter=60),
            (0.05, 0.5, math.inf),
        ),
        (PublishedSubLDA(5, subsampling_ratio=0.5), (2e-4, 2.0, math.inf)),
        (
            PublishedPrivateSVILDA(5, batch_size=50, max_iter=150, max_doc_tokens=40),
            (0.05, 8.0, math.inf),
        ),
        (
            PublishedIFTMParty(5, noise_threshold=0.9, max_iter=40),
            (0.5, 10.0, math.inf),
        ),
    ],
    ids=["hdplda", "sublda", "svilda", "party"],
)
def test_less_noise_is_a_better_model(estimator, epsilons):
    X = make_topic_corpus(700, 100, 5, doc_length=40, random_state=0).data
    train, test = X[:600], X[600:]
    coarse, noisy, fine = (
        clone(estimator)
        .set_params(**{budget(estimator): e}, random_state=0)
        .fit(train)
        .perplexity(test)
        for e in epsilons
    )
    assert coarse > 1.05 * noisy > 1.05 * 0.99 * fine
    assert fine < 0.9 * unigram_perplexity(train, test)
