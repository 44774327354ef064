"""What only the figures of papers use: attacks on HDP-LDA, and the misprint of SUB-LDA."""

import math
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from dplda import HDPLDA, SubLDA
from dplda.audit import observe_releases
from dplda.datasets import make_topic_corpus
from dplda.published import CDPLDA, PublishedHDPLDA, iteration_epsilon

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks" / "papers"))
from hdp_lda_attacks import membership_attack, topic_attack
from sub_lda import efficiency_privacy, without_last_term

SIGMA = math.sqrt(3.5)  # of order 14 and divergence 2
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
    plain = CDPLDA(2, noise_epsilon=math.inf, max_iter=50, random_state=0)
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


def test_published_topics_give_the_word_away_too():
    X = one_document()
    model = PublishedHDPLDA(
        2, noise_epsilon=math.inf, count_clip=100.0, max_iter=50, random_state=0
    )
    posterior = topic_attack(model, observed(model, X), int(X[:-1].sum()), int(X.sum()))
    assert posterior[-1, 10:].sum() > 0.99


def test_the_topic_attack_needs_releases():
    with pytest.raises(ValueError, match="0 tables of counts"):
        topic_attack(HDPLDA(2, epsilon=1.0), [], 0, 1)


@pytest.mark.parametrize(("first", "last"), [(-1, 3), (3, 3), (0, 10**6)])
def test_the_topic_attack_needs_tokens_of_the_corpus(first, last):
    model = CDPLDA(2, noise_epsilon=math.inf, max_iter=1)
    releases = observed(model, one_document())
    with pytest.raises(ValueError, match=r"(first|last) must be an integer from"):
        topic_attack(model, releases, first, last)


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
    dense = X.toarray()
    attacked = [
        membership_attack(topics, data, labels.tolist(), n_shadows=1, random_state=0)
        for data in (dense, dense.tolist(), X.tocoo())
    ]
    assert attacked[0] == attacked[1] == attacked[2]
    with pytest.raises(ValueError, match="n_shadows must be an integer from 1"):
        membership_attack(topics, X, labels, n_shadows=0)


# the sum of SUB-LDA's equation (3) without its last term: table 3, figure 1, lemma 4.1


@pytest.mark.parametrize(
    ("ratio", "table", "printed"),
    [(0.1, 0.0464, 0.05), (0.3, 0.7313, 0.73), (0.5, 1.1882, 1.18), (0.7, 1.4752, 1.48),
     (0.9, 1.6366, 1.63)],
)  # fmt: skip
def test_table_3_is_printed_without_the_last_term(ratio, table, printed):
    as_printed = without_last_term(ratio, 14, 2.0)
    assert as_printed == pytest.approx(table, abs=6e-5)
    assert as_printed == pytest.approx(printed, abs=0.009)


def test_without_sampling_or_noise_no_term_is_missing():
    assert without_last_term(1.0, 14, 2.0) == pytest.approx(2.0)
    assert without_last_term(0.3, 14, math.inf) == math.inf


@pytest.mark.parametrize(
    ("order", "epsilon", "ratio"), [(2, 0.1, 0.01), (5, 3.0, 0.4), (14, 2.0, 0.9), (60, 9.0, 0.2)]
)
def test_the_table_leaves_out_the_last_term(order, epsilon, ratio):
    right, table = (
        math.exp((order - 1) * cost(ratio, order, epsilon))
        for cost in (iteration_epsilon, without_last_term)
    )
    assert right - table == pytest.approx(ratio**order * math.exp((order - 1) * epsilon), rel=1e-6)


def test_i_increases_and_only_without_its_last_term_has_a_maximum():
    grid = np.linspace(0.01, 1.0, 100)
    for order, sigma in ((2, 1.0), (8, SIGMA), (14, SIGMA), (14, 5.0), (40, 2.0)):
        right = [efficiency_privacy(g, order, sigma) for g in grid]
        assert (np.diff(right) > 0).all()
        table = [efficiency_privacy(g, order, sigma, cost=without_last_term) for g in grid[:-1]]
        assert 0 < np.argmax(table) < len(table) - 1


@pytest.mark.parametrize(("order", "place"), [(8, 0.8788), (14, 0.9323)])
def test_the_place_of_the_maximum_of_figure_1(order, place):
    found = minimize_scalar(
        lambda g: -efficiency_privacy(g, order, SIGMA, cost=without_last_term),
        bounds=(0.5, 0.999),
        method="bounded",
        options={"xatol": 1e-8},
    )
    assert found.x == pytest.approx(place, abs=1e-4)


def test_i_is_its_closed_form():
    assert efficiency_privacy(1.0, 14, SIGMA) == pytest.approx(math.exp(26), rel=1e-9)
    # order 2: the divergence of the mixture is 1 + ratio**2 (exp(1 / sigma**2) - 1)
    expected = 0.3 * (1 + 0.09 * math.expm1(1 / 4))
    assert efficiency_privacy(0.3, 2, 2.0) == pytest.approx(expected, rel=1e-12)
    assert efficiency_privacy(0.5, 200, 0.1) == math.inf
