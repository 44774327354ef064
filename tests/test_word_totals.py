"""Word totals where topics would be noise: what the rounds release, and its results."""

import itertools
import re
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import softmax
from shared_cases import fit_few, meanings
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import normalize

from dplda import PrivateSVILDA, SubLDA, load_release, plan, save_release
from dplda.datasets import (
    load_word_vectors,
    load_wordnet_glosses,
    make_topic_corpus,
)
from dplda.metrics import held_out_scores
from dplda.privacy import LowSignalWarning

DELTA = 1e-5
AUTO = {"max_iter": 80, "subsampling_ratio": 1.0}
pytestmark = pytest.mark.filterwarnings(
    "ignore::dplda.privacy.SeededNoiseWarning", "ignore::dplda.privacy.LowSignalWarning"
)


@pytest.fixture(scope="module")
def corpus():
    """150 documents to train on, 100 held out."""
    X = make_topic_corpus(250, 300, 5, doc_length=30, random_state=0).data
    return X[:150], X[150:]


def test_more_releases_reach_the_totals_of_the_fit(corpus):
    model = fit_few(corpus[0])
    table = model._released
    assert 0.5 < table.share_for_totals < 1
    multipliers = np.array(
        [event.noise_multiplier for event in model.privacy_.events[:2]]
    )
    scales = 6.0 * multipliers[:, None] / np.array([np.ones(300), table.weight])
    single = (scales**-2.0).sum(axis=0) ** -0.5  # after the first two releases
    assert (table.released_totals.noise_scale < 0.8 * single).all()
    np.testing.assert_array_equal(table.totals, table.released_totals.smooth())
    np.testing.assert_allclose(
        (model.components_ - 0.01).sum(axis=0), table.totals, rtol=1e-5
    )
    assert model.epsilon_ <= 1.0
    assert len(model.privacy_.events) == 42
    assert table.n_rounds == 40


def test_a_clear_signal_leaves_all_rounds_to_topics(corpus):
    for model in (fit_few(corpus[0], epsilon=40.0), fit_few(corpus[0], epsilon=np.inf)):
        assert model._released.share_for_totals == 0


@pytest.mark.filterwarnings("ignore::dplda.privacy.LowSignalWarning")
def test_public_tables_leave_rounds_to_topics_as_far_as_they_match(corpus):
    X = corpus[0]
    same = np.tile(np.asarray(X.sum(axis=0)).ravel() / 5, (5, 1))
    other = np.random.default_rng(0).gamma(1.0, size=(5, 300)) * np.geomspace(
        1, 1e4, 300
    )
    alone = fit_few(X, max_iter=4)._released.share_for_totals
    for public, least, most in ((same, 0.0, 0.6), (other, 0.6, 1.0)):
        model = fit_few(X, max_iter=4, prior_components=public)
        assert least * alone <= model._released.share_for_totals <= most * alone


def test_calls_of_partial_fit_release_what_fit_releases(corpus):
    """Private SVI keeps nothing of documents between rounds: models are equal."""
    options = {"epsilon": 1.0, "delta": DELTA, "max_iter": 6, "random_state": 0}
    options["subsampling_ratio"] = 1.0
    whole = PrivateSVILDA(5, **options).fit(corpus[0])
    assert whole._released.share_for_totals > 0.5
    steps = PrivateSVILDA(5, **options)
    for _ in range(6):
        steps.partial_fit(corpus[0])
    np.testing.assert_allclose(steps.components_, whole.components_, rtol=1e-5)
    assert steps.signal_to_noise_ == pytest.approx(whole.signal_to_noise_)


def test_a_round_without_noise_is_for_topics(corpus):
    model = fit_few(corpus[0], max_iter=3)
    for _ in range(3):
        model.set_params(epsilon=np.inf).partial_fit(corpus[0])
    assert np.isfinite(model.components_).all()
    assert model.epsilon_ == np.inf


def test_one_warning_says_both_numbers(corpus):
    table = np.asarray(corpus[0][:100].sum(axis=0)).reshape(1, -1) / 5 * np.ones((5, 1))
    for prior, meaning in (
        (None, "use public texts"),
        (table, "mostly those of prior_components"),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", LowSignalWarning)
            fit_few(corpus[0], max_iter=5, prior_components=prior)
        (said,) = [str(w.message) for w in caught if w.category is LowSignalWarning]
        assert re.search(
            r"^all topics of SubLDA are weak, because they are not tested "
            r"\(signal_to_noise_ is 0\.\d+\):",
            said,
        )
        assert meaning in said


@pytest.mark.parametrize(
    ("length", "expected"), [(4.0, 1 / 4), (8.0, 1 / 8), (60.0, 0.1)]
)
def test_the_prior_of_documents_is_that_of_their_length(length, expected):
    """Releases say it, of documents and of users; without noise the counts do."""
    made = make_topic_corpus(
        1500, 400, 3, doc_length=length, topic_word_prior=1.0, random_state=0
    )
    X = made.data
    users = np.arange(X.shape[0]) // 3
    for epsilon, user_ids in [(8.0, None), (20.0, users), (np.inf, None)]:
        model = SubLDA(3, epsilon=epsilon, max_iter=3, random_state=0)
        model.fit(X, user_ids=user_ids)
        assert model.doc_topic_prior_ == pytest.approx(expected, rel=0.3)
    given = clone(model).set_params(doc_topic_prior=0.1).fit(X)
    np.testing.assert_array_equal(given.components_, model.components_)
    assert given.doc_topic_prior_ == 0.1
    assert np.array_equal(given.transform(X), model.transform(X)) == (length > 20)


@pytest.mark.parametrize("kind", [SubLDA, PrivateSVILDA])
def test_the_priors_of_many_noisy_topics_sum_to_two(kind):
    """In the rounds and afterwards; without noise, each is 0.1."""
    X = make_topic_corpus(1500, 400, 3, doc_length=150, random_state=0).data
    for n_topics, expected in [(40, 0.05), (3, 0.1)]:
        model = kind(n_topics, epsilon=8.0, max_iter=2, random_state=0).fit(X)
        assert model.doc_topic_prior_ == expected
        given = clone(model).set_params(doc_topic_prior=expected).fit(X)
        np.testing.assert_array_equal(given.components_, model.components_)
        others = clone(model).set_params(doc_topic_prior=2 * expected).fit(X)
        assert (others.components_ != model.components_).any()
    model = kind(40, epsilon=8.0, max_iter=2, random_state=0).fit(X)
    later = kind(40, epsilon=8.0, max_iter=2, random_state=1).fit(X, earlier=model)
    assert later.doc_topic_prior_ == 0.05
    exact = kind(40, epsilon=np.inf, max_iter=2, random_state=0).fit(X)
    assert exact.doc_topic_prior_ == 0.1
    given = clone(exact).set_params(doc_topic_prior=0.1).fit(X)
    np.testing.assert_array_equal(given.components_, exact.components_)
    short = make_topic_corpus(1500, 400, 3, doc_length=4, random_state=0).data
    model = kind(40, epsilon=8.0, max_iter=2, random_state=0).fit(short)
    assert model.doc_topic_prior_ == pytest.approx(0.05 * 10 / 4, rel=0.3)


def test_clusters_of_words_have_one_prior_for_all_lengths(repeats):
    """It is that of good topics: in the place of noise there are public clusters."""
    X, vectors = repeats
    options = {"epsilon": 8.0, "random_state": 0, "word_vectors": vectors}
    model = SubLDA(3, max_iter=10, **options).fit(X)
    assert model.weak_topics_.all()
    assert model.doc_topic_prior_ == 0.1
    untested = SubLDA(3, max_iter=7, **options).fit(X)
    assert untested.doc_topic_prior_ > 0.2
    both = SubLDA(3, max_iter=10, prior_components=np.ones((3, 60)), **options).fit(X)
    assert both.doc_topic_prior_ > 0.2


def test_a_release_has_the_prior_of_its_documents(tmp_path):
    X = make_topic_corpus(300, 50, 3, doc_length=5, random_state=0).data
    model = SubLDA(3, epsilon=9.0, max_iter=3).fit(X)
    save_release(model, tmp_path / "model.dplda")
    released = load_release(tmp_path / "model.dplda")
    assert released.doc_topic_prior == model.doc_topic_prior_ > 0.2
    np.testing.assert_array_equal(released.transform(X), model.transform(X))


@pytest.fixture(scope="module")
def repeats():
    """Documents that repeat words, and have no topics; and vectors of the words."""
    rng = np.random.default_rng(0)
    frequencies = rng.dirichlet(np.ones(60))
    X = rng.multinomial(4, frequencies, size=3000) * rng.integers(1, 3, (3000, 1))
    vectors = np.repeat(np.eye(3), 20, axis=0) + 0.1 * rng.normal(size=(60, 3))
    return X, vectors


def test_without_a_shown_topic_a_fit_is_its_word_totals(repeats):
    X, _ = repeats
    model = SubLDA(3, epsilon=8.0, max_iter=10, random_state=0)
    with pytest.warns(LowSignalWarning, match="equal parts of the private word totals"):
        model.fit(X)
    assert model.weak_topics_.all()
    assert "topics: 3 of 3 are not shown" in str(model.privacy_)
    shares = model.components_ / model.components_.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares, np.tile(shares.mean(axis=0), (3, 1)), rtol=0.2)
    assert abs(held_out_scores(model.components_, X).token_gain) < 0.005
    frequencies = X.sum(axis=0) / X.sum()
    np.testing.assert_allclose(shares[0], frequencies, atol=0.01)


def test_topics_of_short_texts_are_no_worse_than_word_totals():
    """Texts of seven words without topics. Few topics are expected to be shown."""
    rng = np.random.default_rng(0)
    X = rng.multinomial(7, rng.dirichlet(np.ones(300)), size=3500)
    model = SubLDA(20, epsilon=4.0, max_iter=20, random_state=0).fit(X[:2500])
    expected = plan(n_docs=2500, n_words=300, n_components=20, epsilon=4.0)
    assert expected.topics_shown < 9
    found = held_out_scores(model.components_, X[2500:])
    assert found.token_gain > -0.01
    assert found.document_gain > -0.01


def test_without_a_shown_topic_a_fit_with_vectors_is_their_clusters(repeats):
    X, vectors = repeats
    model = SubLDA(3, epsilon=8.0, max_iter=10, random_state=0, word_vectors=vectors)
    with pytest.warns(LowSignalWarning, match="3 of 3 are not shown, and are replaced"):
        model.fit(X)
    assert "topics: 3 of 3 are not shown, and are replaced" in str(model.privacy_)
    assert model.weak_topics_.all()
    of_words = model.components_.argmax(axis=0).reshape(3, 20)
    assert (of_words == of_words[:, :1]).all()
    assert len(set(of_words[:, 0])) == 3
    totals = model.components_.sum(axis=0)
    np.testing.assert_allclose(
        totals / totals.sum(), X.sum(axis=0) / X.sum(), atol=0.01
    )


@pytest.fixture(scope="module")
def glosses():
    """Definitions, the vectors of their words, and public clusters of the words."""
    count = CountVectorizer(stop_words="english")
    X = sp.csr_array(count.fit_transform(load_wordnet_glosses().data))
    frequent = np.argsort(-X.sum(axis=0), kind="stable")[:1000]
    X = X[:, frequent][np.random.default_rng(0).permutation(X.shape[0])]
    vectors = load_word_vectors(list(count.get_feature_names_out()[frequent]))
    known = vectors.any(axis=1)
    directions = normalize(vectors[known])
    directions = normalize(directions - directions.mean(axis=0))
    centers = KMeans(20, n_init=1, random_state=0).fit(directions).cluster_centers_
    shares = np.full((len(vectors), 20), 1 / 20)
    shares[known] = softmax(6 * directions @ normalize(centers).T, axis=1)
    return X, vectors, shares


@pytest.mark.parametrize(("length", "epsilon"), [(4, 3.0), (6, 2.0)])
def test_with_vectors_topics_of_short_texts_are_no_worse_than_clusters(
    length, epsilon, glosses
):
    """A fit with word vectors knows what clusters know that read no text.

    Topics of so few words are much too sharp, also those that are shown.
    """
    X, vectors, shares = glosses
    rng = np.random.default_rng(1)
    words = [
        rng.permutation(np.repeat(X.indices[a:b], X.data[a:b]))[:length]
        for a, b in itertools.pairwise(X.indptr)
    ]
    rows = np.repeat(np.arange(len(words)), list(map(len, words)))
    cells = np.ones(len(rows)), (rows, np.concatenate(words))
    X = sp.csr_array(cells, shape=X.shape)
    found, cheaper, n_shown = [], [], 0
    for seed in range(4):
        options = {"epsilon": epsilon, "random_state": seed}
        model = SubLDA(20, word_vectors=vectors, **options).fit(X[:8000])
        n_shown += np.count_nonzero(~model.weak_topics_)
        clusters = model.components_.sum(axis=0) * shares.T
        found.append(held_out_scores(model.components_, X[8000:]).new_word_gain)
        cheaper.append(held_out_scores(clusters, X[8000:]).new_word_gain)
    assert 0 < n_shown < 4 * 20
    assert np.mean(found) > np.mean(cheaper) - 0.002 > 0.1


def test_wrong_vectors_do_not_take_the_place_of_topics_that_documents_confirm():
    """Vectors of other words cost little; right ones gain, also if noise hides all."""
    made = make_topic_corpus(1500, 2000, 8, doc_length=60, random_state=3)
    X, unseen = made.data[:1000], made.data[1000:]
    right = meanings(made)
    wrong = np.random.default_rng(0).permutation(right)

    def gain(epsilon, vectors):
        options = {"epsilon": epsilon, "max_iter": 20, "random_state": 0}
        model = SubLDA(10, **options, word_vectors=vectors).fit(X)
        assert model.weak_topics_.any()
        return held_out_scores(model.components_, unseen).new_word_gain

    alone = gain(4.0, None)
    assert gain(4.0, right) > alone + 0.1
    assert gain(4.0, wrong) > alone - 0.05 > 0.2
    assert gain(0.2, right) > 0.3


def test_clusters_take_the_place_of_the_topics_that_are_not_shown():
    made = make_topic_corpus(1100, 200, 5, doc_length=50, random_state=3)
    vectors = meanings(made)
    options = {"epsilon": 1.0, "max_iter": 30, "random_state": 0}
    model = SubLDA(12, **options, word_vectors=vectors).fit(made.data)
    weak = model.weak_topics_
    n_weak = np.count_nonzero(weak)
    assert 0 < n_weak < 12
    assert f"{n_weak} of 12 are not shown, and are replaced" in str(model.privacy_)
    p = model.components_[weak] / model.components_[weak].sum(axis=0)
    known = vectors.any(axis=1)
    unit = vectors[known] / np.linalg.norm(vectors[known], axis=1, keepdims=True)
    # words of one meaning are in one cluster, whatever the documents say
    same = np.triu(unit @ unit.T > 0.98, 1)
    agree = p.argmax(axis=0)[known][:, None] == p.argmax(axis=0)[known]
    assert agree[same].mean() > 0.8


@pytest.mark.parametrize("with_vectors", [False, True])
def test_topics_that_are_shown_or_that_nobody_tested_stay(with_vectors, repeats):
    made = make_topic_corpus(2000, 60, 3, doc_length=30, random_state=0)
    vectors = repeats[1] if with_vectors else None
    options = {"epsilon": 8.0, "random_state": 0, "word_vectors": vectors}
    shown = SubLDA(3, max_iter=10, **options).fit(made.data)
    untested = SubLDA(3, max_iter=7, **options).fit(repeats[0])
    assert not shown.weak_topics_.all()
    for model in (shown, untested):
        shares = model.components_ / model.components_.sum(axis=0)
        assert np.ptp(shares, axis=1).min() > 0.05
        assert shares.max() > 0.5
