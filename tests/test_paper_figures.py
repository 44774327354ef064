"""What only the figures of papers use: attacks on HDP-LDA."""

import math
import warnings

import numpy as np
import pytest
from hdp_lda_attacks import membership_attack, topic_attack
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from dplda import HDPLDA, SubLDA
from dplda.audit import observe_releases
from dplda.datasets import make_topic_corpus
from dplda.published import PublishedHDPLDA

pytestmark = pytest.mark.filterwarnings(
    "ignore::dplda.privacy.SeededNoiseWarning", "ignore::dplda.privacy.PrivacyLeakWarning"
)


# the topic-based attack, figure 4 of HDP-LDA


def observed(model, X):
    with observe_releases() as releases, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X)
    return releases


def one_document(n_words=20):
    counts = np.zeros((40, n_words))
    rng = np.random.default_rng(0)
    counts[:, : n_words // 2] = rng.poisson(3, (40, n_words // 2))
    counts[20:] = counts[20:, ::-1]
    return counts


def test_topics_tell_the_word_unless_the_clip_hides_it():
    X = one_document()
    true_word = X.shape[1] - 1 - int(np.argmax(X[-1, ::-1] > 0))  # of the last token
    n_tokens, first = int(X.sum()), int(X[:-1].sum())
    plain = PublishedHDPLDA(
        2, noise_epsilon=math.inf, count_clip=1e18, doc_topic_prior=0.1, max_iter=50, random_state=0
    )
    for exact in (True, False):
        posterior = topic_attack(plain, observed(plain, X), first, n_tokens, exact=exact)
        assert posterior.shape == (50, 20)
        np.testing.assert_allclose(posterior.sum(axis=1), 1)
        side = posterior[-1].reshape(2, 10).sum(axis=1)
        assert side[true_word // 10] > 0.99
    clipped = HDPLDA(2, noise_epsilon=0.5, count_clip=0.05, topic_word_prior=1.0, max_iter=50,
                     random_state=0)  # fmt: skip
    posterior = topic_attack(clipped, observed(clipped, X), first, n_tokens)
    assert posterior.shape == (50, 20)
    np.testing.assert_array_equal(posterior[-1], posterior[-2])  # the last sweep draws no topics
    assert posterior[-1].max() < 0.5


# membership inference, figure 7 of HDP-LDA


def test_membership_of_an_overfitted_classifier_and_of_a_private_one():
    X, labels = (
        make_topic_corpus(
            n_docs=400, n_words=60, n_components=4, doc_length=20, random_state=0
        ).data,
        np.arange(400) % 2,
    )  # classes that mean nothing: what is learned is learned by heart
    learned = LogisticRegression(C=1e6, max_iter=2000)
    heart = membership_attack(learned, X, labels, n_shadows=3, random_state=0)
    assert heart.accuracy > 0.7
    assert heart.advantage > 0.4
    topics = make_pipeline(SubLDA(4, epsilon=1.0, max_iter=5, random_state=0), LogisticRegression())
    hidden = membership_attack(topics, X, labels, n_shadows=2, random_state=0)
    assert hidden.accuracy < 0.6
    assert hidden == membership_attack(topics, X, labels, n_shadows=2, random_state=0)
