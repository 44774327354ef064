"""CDP-LDA: the noise is that of the paper, it is not called private, and without it is GibbsLDA."""

import math

import numpy as np
import pytest

import dplda.published._hdplda as module
from dplda import GibbsLDA
from dplda.audit import observe_releases
from dplda.datasets import make_topic_corpus
from dplda.published import CDPLDA

K = 3
leaks = pytest.mark.filterwarnings("ignore::dplda.privacy.PrivacyLeakWarning")
both = pytest.mark.parametrize("noise_at", ["first_sweep", "every_sweep"])


@pytest.fixture(scope="module")
def corpus():
    return make_topic_corpus(60, 40, K, doc_length=30, random_state=0).data


@pytest.fixture(scope="module")
def wide():
    """Few documents over many words: with one topic, counts are known and cells are many."""
    return np.random.RandomState(0).poisson(5.0, (20, 8000))


@pytest.fixture
def sweeps(monkeypatch):
    """The noise that each sweep reads, as (word_noise, doc_noise)."""
    seen = []
    sweep = module._gibbs.noisy_sweep

    def spy(word, doc_ptr, topics, counts, totals, word_noise, doc_noise, *rest):
        np.testing.assert_array_equal(
            totals, np.maximum(counts + word_noise, 0).sum(0)[: len(totals)]
        )
        seen.append((word_noise.copy(), doc_noise.copy()))
        sweep(word, doc_ptr, topics, counts, totals, word_noise, doc_noise, *rest)

    monkeypatch.setattr(module._gibbs, "noisy_sweep", spy)
    return seen


@both
def test_infinite_epsilon_is_gibbs_sampling_to_the_last_bit(noise_at, corpus):
    parameters = {"max_iter": 7, "doc_topic_prior": 0.3, "topic_word_prior": 0.07}
    ours = CDPLDA(11, noise_epsilon=math.inf, noise_at=noise_at, random_state=1, **parameters).fit(
        corpus
    )
    theirs = GibbsLDA(11, exact=True, random_state=1, **parameters).fit(corpus)
    np.testing.assert_array_equal(ours.components_, theirs.components_)
    np.testing.assert_array_equal(ours.transform(corpus), theirs.transform(corpus))
    assert ours.n_iter_ == theirs.n_iter_ == 7
    assert ours.published_epsilon_ == ours.epsilon_ == ours.privacy_.epsilon == math.inf


@leaks
@both
@pytest.mark.parametrize("epsilon", [0.02, 1.0, 50.0])
def test_noise_of_one_sweep_has_scale_one_over_epsilon(noise_at, epsilon, wide, sweeps):
    model = CDPLDA(1, noise_epsilon=epsilon, noise_at=noise_at, max_iter=1, random_state=0)
    model.fit(wide)
    noise = sweeps[0][0][:, 0]
    drawn = epsilon * noise.astype(float)
    assert abs(drawn.mean()) < 5 * math.sqrt(2 / len(drawn))
    assert np.abs(drawn).mean() == pytest.approx(1, abs=5 / math.sqrt(len(drawn)))
    assert (drawn**2).mean() == pytest.approx(2, abs=5 * math.sqrt(20 / len(drawn)))
    expected = np.maximum(wide.sum(axis=0) + noise, 0) + model.topic_word_prior
    np.testing.assert_allclose(model.components_[0], expected, rtol=1e-6)


@leaks
def test_first_draws_once_and_the_noise_stays(sweeps, corpus):
    with observe_releases() as seen:
        CDPLDA(K, noise_epsilon=1.0, max_iter=4, random_state=0).fit(corpus)
    assert len(sweeps) == 4
    for words, documents in sweeps[1:]:
        np.testing.assert_array_equal(words, sweeps[0][0])
        np.testing.assert_array_equal(documents, sweeps[0][1])
    released = [release.value for release in seen if release.label == "word-topic counts"]
    counts = released[-1] - sweeps[0][0][:, :K]
    np.testing.assert_array_equal(counts, np.rint(counts))
    np.testing.assert_array_equal(counts.sum(axis=1), corpus.toarray().sum(axis=0))


@leaks
def test_every_adds_noise_in_each_sweep(sweeps, wide):
    CDPLDA(1, noise_epsilon=2.0, noise_at="every_sweep", max_iter=5, random_state=0).fit(wide)
    words = np.diff([0 * sweeps[0][0], *(words for words, _ in sweeps)], axis=0)[:, :, 0]
    documents = np.diff([documents[:, 0] for _, documents in sweeps], axis=0)
    tolerance = 5 / math.sqrt(words[0].size)
    np.testing.assert_allclose(2 * np.abs(words).mean(axis=1), 1, atol=tolerance)
    assert np.abs(np.corrcoef(words) - np.eye(5)).max() < tolerance
    assert (documents != 0).any(axis=1).all()


@leaks
@pytest.mark.parametrize(("noise_at", "published"), [("first_sweep", 0.5), ("every_sweep", 2.0)])
def test_the_published_figure_composes_noisy_sweeps(noise_at, published, corpus):
    model = CDPLDA(K, noise_epsilon=0.5, noise_at=noise_at, max_iter=4).fit(corpus)
    assert model.published_epsilon_ == published
    assert "scale 2 " in str(model.privacy_)
