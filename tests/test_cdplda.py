"""CDP-LDA: the noise is that of the paper, it is not called private, and without it is GibbsLDA."""

import math
import pickle
import warnings

import numpy as np
import pytest

import dplda.published._cdplda as module
from dplda import GibbsLDA
from dplda.datasets import make_topic_corpus
from dplda.metrics import unigram_perplexity
from dplda.privacy import PrivacyLeakWarning
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
    for model in (ours, theirs):
        model.partial_fit(corpus[:20])
    np.testing.assert_array_equal(ours.components_, theirs.components_)
    np.testing.assert_array_equal(ours.transform(corpus), theirs.transform(corpus))
    assert ours.n_iter_ == theirs.n_iter_ == 14
    assert ours.published_epsilon_ == ours.epsilon_ == ours.privacy_.epsilon == math.inf


@leaks
@both
@pytest.mark.parametrize("epsilon", [0.02, 1.0, 50.0])
def test_noise_of_one_sweep_has_scale_one_over_epsilon(noise_at, epsilon, wide):
    model = CDPLDA(1, noise_epsilon=epsilon, noise_at=noise_at, max_iter=1, random_state=0).fit(
        wide
    )
    drawn = epsilon * (model._released[:, 0] - wide.sum(axis=0))
    assert abs(drawn.mean()) < 5 * math.sqrt(2 / len(drawn))
    assert np.abs(drawn).mean() == pytest.approx(1, abs=5 / math.sqrt(len(drawn)))
    assert (drawn**2).mean() == pytest.approx(2, abs=5 * math.sqrt(20 / len(drawn)))
    expected = np.maximum(model._released, 0) + model.topic_word_prior
    np.testing.assert_array_equal(model.components_.T, expected)


@leaks
def test_document_counts_get_the_same_noise(sweeps):
    X = make_topic_corpus(3000, 30, K, doc_length=5, random_state=0).data
    CDPLDA(K, noise_epsilon=0.5, max_iter=1, random_state=0).fit(X)
    words, documents = (noise[:, :K] / 2 for noise in sweeps[0])
    assert documents.shape == (3000, K)
    assert np.abs(documents).mean() == pytest.approx(1, abs=5 / math.sqrt(documents.size))
    assert abs(documents.mean()) < 5 * math.sqrt(2 / documents.size)
    assert not np.isin(words, documents).all()


@leaks
def test_first_draws_once_and_the_noise_stays(sweeps, corpus):
    model = CDPLDA(K, noise_epsilon=1.0, max_iter=4, random_state=0).fit(corpus)
    assert len(sweeps) == 4
    for words, documents in sweeps[1:]:
        np.testing.assert_array_equal(words, sweeps[0][0])
        np.testing.assert_array_equal(documents, sweeps[0][1])
    counts = model._released - sweeps[0][0][:, :K]
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
@both
def test_partial_fit_draws_noise_for_its_documents(noise_at, sweeps, corpus):
    model = CDPLDA(K, noise_epsilon=1.0, noise_at=noise_at, max_iter=3, random_state=0).fit(corpus)
    table = model._released
    model.partial_fit(corpus[:10])
    added = sweeps[3][0][:, :K] - table
    assert (added != 0).mean() > 0.9
    assert sweeps[3][1].shape == (10, 16)
    assert not np.array_equal(added, sweeps[0][0][:, :K])  # the same seed, another round
    assert model.n_iter_ == 6


@both
@pytest.mark.parametrize("call", ["fit", "partial_fit"])
def test_it_warns_that_it_is_not_private(noise_at, call, corpus):
    with pytest.warns(PrivacyLeakWarning, match="raw words.*HDPLDA.*SubLDA") as record:
        getattr(CDPLDA(K, noise_epsilon=1.0, noise_at=noise_at, max_iter=1), call)(corpus)
    assert len(record) == 1
    assert record[0].filename == __file__


@leaks
@pytest.mark.parametrize(("noise_at", "published"), [("first_sweep", 0.5), ("every_sweep", 2.0)])
def test_no_guarantee_and_the_published_figure(noise_at, published, corpus):
    model = CDPLDA(K, noise_epsilon=0.5, noise_at=noise_at, max_iter=4).fit(corpus)
    assert model.epsilon_ == model.privacy_.epsilon == model.epsilon_at(1e-5) == math.inf
    assert model.delta_ == 0
    assert model.published_epsilon_ == published
    assert "no privacy guarantee" in str(model.privacy_)
    assert "raw words" in str(model.privacy_)
    assert "scale 2 " in str(model.privacy_)
    assert model.partial_fit(corpus).published_epsilon_ == 2 * published


@leaks
@both
def test_perplexity_falls_as_epsilon_grows(noise_at):
    X = make_topic_corpus(300, 100, 5, doc_length=40, random_state=0).data
    train, test = X[:250], X[250:]
    perplexity = [
        np.mean(
            [
                CDPLDA(5, noise_epsilon=epsilon, noise_at=noise_at, max_iter=40, random_state=seed)
                .fit(train)
                .perplexity(test)
                for seed in range(3)
            ]
        )
        for epsilon in (0.02, 0.2, 20.0)
    ]
    assert perplexity[0] > 1.05 * perplexity[1]
    assert perplexity[1] > 1.05 * perplexity[2]
    assert perplexity[2] < 0.9 * unigram_perplexity(train, test)


@leaks
@both
@pytest.mark.parametrize("epsilon", [0.003, 5000.0])
def test_extreme_noise_gives_a_model(noise_at, epsilon, corpus):
    model = CDPLDA(K, noise_epsilon=epsilon, noise_at=noise_at, max_iter=3).fit(corpus)
    assert (model.components_ > 0).all()
    assert np.isfinite(model.perplexity(corpus))


@leaks
@both
def test_pickle_holds_noisy_counts_only(noise_at, wide):
    model = CDPLDA(1, noise_epsilon=1.0, noise_at=noise_at, max_iter=2).fit(wide)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.components_, model.components_)
    arrays = [value for value in vars(again).values() if isinstance(value, np.ndarray)]
    assert len(arrays) == 2
    assert all((array.ravel() != wide.sum(axis=0)).mean() > 0.99 for array in arrays)


@pytest.mark.parametrize(
    "parameters",
    [{"noise_epsilon": e} for e in (None, 0.0, -1.0, math.nan, 1e-6, 1e6, -math.inf, "1")]
    + [{"noise_epsilon": 1.0, "noise_at": "first"}, {"noise_epsilon": 1.0, "max_iter": 0}],
)
def test_bad_parameters(parameters, corpus):
    name = list(parameters)[-1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=f"'{name}' parameter of CDPLDA"):
            CDPLDA(K, **parameters).fit(corpus)
