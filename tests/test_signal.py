"""Which topics stand out of the noise, and what a plan expects."""

import math
import re
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer

from dplda import HDPLDA, LPLDA, PrivateSVILDA, PrivateTopicModel, SubLDA, plan
from dplda.datasets import load_wordnet_glosses, make_topic_corpus
from dplda.privacy import (
    Ledger,
    LowSignalWarning,
    PrivacyLeakWarning,
    SeededNoiseWarning,
)

V, K = 400, 8
rng = np.random.default_rng(0)


@pytest.fixture(scope="module")
def corpus():
    return make_topic_corpus(400, 60, 3, random_state=0).data


def frequencies():
    return 1 / np.arange(1, V + 1) / (1 / np.arange(1, V + 1)).sum()


@pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")
@pytest.mark.parametrize("length", [(3, 12), (40, 80)])
@pytest.mark.parametrize(
    ("estimator", "epsilon"),
    [(SubLDA, 1.0), (SubLDA, 8.0), (SubLDA, math.inf), (PrivateSVILDA, 8.0)],
)
def test_shuffled_words_have_no_topic(estimator, epsilon, length):
    rng = np.random.default_rng(2)
    n_docs, lengths = 4000, rng.integers(*length, 4000)
    words = rng.choice(V, lengths.sum(), p=frequencies())
    rows = np.repeat(np.arange(n_docs), lengths)
    X = sp.csr_array((np.ones(len(words)), (rows, words)), shape=(n_docs, V))
    with pytest.warns(LowSignalWarning, match="topics of .* are weak"):
        model = estimator(10, epsilon=epsilon, max_iter=40, random_state=0).fit(X)
    assert model.weak_topics_.all()


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_shuffled_words_of_real_texts_have_no_topic_at_a_small_epsilon():
    """Chance finds more in words of real texts than in those of one distribution."""
    texts = load_wordnet_glosses().data
    X = CountVectorizer(stop_words="english", max_features=2000).fit_transform(texts)
    rows = np.repeat(np.arange(X.shape[0]), np.asarray(X.sum(axis=1)).ravel())
    for seed in (0, 1):
        words = np.random.default_rng(seed).permutation(np.repeat(X.indices, X.data))
        shuffled = sp.csr_array((np.ones(len(words)), (rows, words)), shape=X.shape)
        for n_topics, epsilon in ((20, 1.0), (60, 4.0)):
            model = SubLDA(n_topics, epsilon=epsilon, random_state=seed, n_jobs=2).fit(
                shuffled
            )
            assert model.weak_topics_.all()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_long_texts_without_topics_show_none_without_noise():
    """Weights that one half of the words infers are biased, and meet word totals."""
    X = np.random.default_rng(0).multinomial(300, frequencies(), size=1000)
    assert SubLDA(30, epsilon=math.inf, random_state=0).fit(X).weak_topics_.all()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_topics_of_few_short_texts_are_not_shown_without_noise():
    """Repeated words without topics; most blocks have no document of a topic."""
    texts = load_wordnet_glosses().data
    counter = CountVectorizer(stop_words="english", max_features=2000)
    X = sp.csr_array(counter.fit_transform(texts))[:300]
    order = np.random.default_rng(0).permutation(X.nnz)
    rows = np.repeat(np.arange(300), np.diff(X.indptr))
    dealt = sp.csr_array((X.data[order], (rows, X.indices[order])), shape=X.shape)
    assert SubLDA(100, epsilon=math.inf, random_state=0).fit(dealt).weak_topics_.all()


@pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")
@pytest.mark.parametrize("users", [None, 4])
def test_the_first_release_counts_the_documents(corpus, users):
    ids = None if users is None else np.arange(400) // users
    # empty ones do not count
    X = sp.csr_array(sp.vstack([corpus, sp.csr_array((50, 60))]))
    ids = None if ids is None else np.append(ids, np.arange(50))
    model = SubLDA(3, epsilon=20.0, max_iter=2, random_state=0).fit(X, user_ids=ids)
    # of documents and users the geometric mean
    assert model._released.released_totals.n_docs == pytest.approx(
        400 / (users or 1) ** 0.5, rel=0.3
    )


@pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")
def test_evidence_is_that_of_a_document_also_with_users():
    """A user's documents share one norm: mean length needs the number of users."""
    X = make_topic_corpus(3000, 300, 4, random_state=0).data
    model = SubLDA(4, epsilon=20.0, max_iter=40, random_state=0)
    alone = model.fit(X).topic_evidence_.mean()
    with_users = model.fit(X, user_ids=np.arange(3000) // 5).topic_evidence_.mean()
    assert 0.3 * alone < with_users < 1.2 * alone


@pytest.mark.parametrize("estimator", [SubLDA, PrivateSVILDA])
@pytest.mark.parametrize("ratio", [1.0, 0.3])
def test_noise_of_a_cell_is_what_repeated_fits_without_words_show(estimator, ratio):
    model = estimator(5, noise_multiplier=2.0, subsampling_ratio=ratio, max_iter=8)
    nothing, seen, shrunk = sp.csr_array((10, 60)), [], []
    for seed in range(6):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.set_params(random_state=seed).fit(nothing)
        average = model._released.average / model.components_std_[:, None]
        seen.append(average - average.mean(axis=1, keepdims=True))
        shrunk.append(model.components_ / model.components_std_)
    assert np.std(seen) == pytest.approx(1, abs=0.06)
    assert np.std(shrunk, axis=0).mean() < 1  # the estimate shrinks the noise


def test_clear_topics_do_not_warn(corpus):
    with warnings.catch_warnings():
        warnings.simplefilter("error", LowSignalWarning)
        # two of three are weak in 5% of fits
        warnings.simplefilter("ignore", SeededNoiseWarning)
        for epsilon in (8.0, math.inf):
            model = SubLDA(
                3, epsilon=epsilon, delta=1e-5, max_iter=30, random_state=0
            ).fit(corpus)
            assert np.count_nonzero(~model.weak_topics_) >= 2
        SubLDA(1, epsilon=1.0, max_iter=2).fit(corpus)  # one topic has no other
        SubLDA(3, epsilon=0.1, max_iter=2).partial_fit(corpus)  # not the last round


def test_a_plan_states_the_noise_of_the_fit(corpus):
    expected = plan(n_docs=400, epsilon=4.0, n_components=2, delta=1e-5, max_iter=12)
    model = SubLDA(2, epsilon=4.0, delta=1e-5, max_iter=12).fit(corpus)
    weighted = model.components_std_ * model._released.weight / math.sqrt(1 - 1 / 2)
    np.testing.assert_allclose(weighted, expected.noise, rtol=1e-6)
    assert "caution" in str(expected)  # 400 are few
    assert "caution" not in str(plan(n_docs=4000, epsilon=4.0))


# knowledge of new words without vectors, and with vectors of general English (or None),
# measured by benchmarks/planner.py
MEASURED = [
    (2989, 2000, 20, 1.0, 0.36, None), (2989, 500, 20, 4.0, 0.88, None),
    (1342, 2000, 20, 8.0, 0.44, None), (5847, 2000, 20, 2.0, 0.45, None),
    (5847, 2000, 5, 4.0, 0.89, None), (2003, 2000, 20, 4.0, 0.42, 0.79),
    (8796, 2000, 20, 1.0, 0.26, 0.62), (1000, 2000, 20, 2.0, 0.0, 0.80),
    (1000, 2000, 20, 4.0, 0.09, None), (19800, 2000, 20, 1.0, 0.65, None),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::dplda.privacy.LowSignalWarning")
def test_a_plan_is_near_what_was_measured():
    errors = []
    for n_docs, n_words, n_components, epsilon, alone, english in MEASURED:
        size = {"n_docs": n_docs, "n_words": n_words, "n_components": n_components}
        expected = plan(**size, epsilon=epsilon, word_vectors=True)
        assert plan(**size, epsilon=epsilon).new_words == expected.new_words
        errors.append(max(0, expected.new_words) - alone)
        if english is not None:
            errors.append(expected.new_words_english - english)
    assert np.abs(errors).max() < 2 * expected.new_words_error
    assert np.sqrt(np.mean(np.square(errors))) < 1.25 * expected.new_words_error
    assert abs(np.mean(errors)) < 0.05


# documents, epsilon, and topics shown of 5, 20 and 60: benchmarks/topic_signal.py plan
SHOWN = [
    (1000, 1, 1, 0, 0), (1000, 2, 2, 0, 1), (1000, 4, 4, 2, 2), (1000, 8, 4, 3, 3),
    (2989, 1, 5, 2, 2), (2989, 2, 5, 5, 2), (2989, 4, 5, 11, 5), (2989, 8, 5, 16, 15),
    (1000, 1, 0, 0, 0), (1000, 2, 0, 0, 0), (1000, 4, 1, 0, 0), (1000, 8, 2, 2, 2),
    (8796, 1, 5, 6, 2), (8796, 2, 5, 17, 6), (8796, 4, 5, 19, 20),
    (8796, 8, 5, 20, 31), (1000, 1, 0, 0, 0), (1000, 2, 3, 0, 0), (1000, 4, 4, 3, 0),
    (1000, 8, 4, 10, 5), (1342, 1, 2, 0, 0), (1342, 2, 4, 0, 0), (1342, 4, 5, 9, 2),
    (1342, 8, 4, 15, 10), (1000, 1, 0, 0, 0), (1000, 2, 1, 0, 0), (1000, 4, 5, 0, 2),
    (1000, 8, 5, 7, 6), (2003, 1, 3, 0, 0), (2003, 2, 5, 5, 2), (2003, 4, 5, 8, 8),
    (2003, 8, 5, 12, 13),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::dplda.privacy.LowSignalWarning")
def test_as_many_topics_are_expected_to_be_shown_as_were_measured():
    errors = []
    for n_docs, epsilon, *measured in SHOWN:
        for n_components, shown in zip((5, 20, 60), measured):
            size = {"n_docs": n_docs, "n_components": n_components, "delta": 1e-5}
            expected = plan(**size, epsilon=epsilon).topics_shown
            errors.append((expected - shown) / n_components)
    assert np.sqrt(np.mean(np.square(errors))) < 0.2
    assert abs(np.mean(errors)) < 0.1


def test_with_the_documents_for_half_a_plan_expects_half():
    expected = plan(n_docs=20_000, epsilon=2.0)
    again = plan(n_docs=expected.docs_for_half, epsilon=2.0, n_components=2)
    assert again.new_words == pytest.approx(0.5, abs=1e-3)
    assert f"{expected.docs_for_half:,}" in str(expected)


@pytest.mark.filterwarnings("ignore::dplda.privacy.LowSignalWarning")
def test_a_plan_says_from_where_on_topics_pay():
    few, many = (plan(n_docs=n, epsilon=2.0) for n in (1000, 100_000))
    assert few.docs_to_pay == many.docs_to_pay < few.docs_for_half
    least = plan(n_docs=few.docs_to_pay, epsilon=2.0, n_components=2)
    assert least.new_words == pytest.approx(0, abs=1e-3)
    assert "instead" in str(few)
    assert "instead" not in str(many)
    given = [plan(n_docs=3000, epsilon=e, word_vectors=True) for e in (1.0, 4.0)]
    assert given[0].docs_to_pay > 2 * given[1].docs_to_pay


def test_a_plan_without_hope_says_so():
    with pytest.warns(LowSignalWarning, match="of 20 topics are expected"):
        expected = plan(n_docs=300, epsilon=1.0, n_components=20)
    assert "word frequencies are expected to be as good" in str(expected)
    with pytest.warns(UserWarning, match=r"delta=0.001 is at least 1 / 5000"):
        plan(n_docs=5000, epsilon=8.0, delta=0.001, n_components=2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_docs": 0},
        {"n_docs": 2.5},
        {"epsilon": 0.0},
        {"epsilon": None},
        {"n_words": 0},
        {"n_components": 0},
        {"delta": 0.0},
        {"max_iter": 0},
        {"subsampling_ratio": 0.0},
        {"word_vectors": np.ones((2000, 3))},
    ],
)
def test_wrong_arguments_of_a_plan_are_named(wrong):
    with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
        plan(**{"n_docs": 1000, "epsilon": 1.0} | wrong)


@pytest.mark.filterwarnings("ignore::dplda.privacy.LowSignalWarning")
@pytest.mark.parametrize("estimator", [SubLDA, PrivateSVILDA])
def test_expected_documents_warn_before_the_noise_is_drawn(estimator, corpus):
    model = estimator(30, epsilon=1.0, subsampling_ratio=1.0, max_iter=2, delta=0.001)
    ledger = Ledger(epsilon=5.0)
    model.set_params(expected_n_docs=1000, ledger=ledger)
    with pytest.warns(UserWarning, match="at least 1 / 1000") as caught:
        model.fit(corpus)
    expected = "about 0 of 30 topics are expected to be shown"
    assert any(expected in str(one.message) for one in caught)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LowSignalWarning)
        spent = ledger.epsilon_spent
        with pytest.raises(LowSignalWarning, match="of 30 topics are expected"):
            model.set_params(delta=1e-6).fit(corpus)
    assert ledger.epsilon_spent == spent


def test_the_warning_names_the_numbers_that_would_do():
    with pytest.warns(LowSignalWarning, match="use n_components=") as caught:
        plan(n_docs=2000, epsilon=4.0, n_components=40)
    text = str(caught[0].message)
    topics, n_docs = map(
        int, re.search(r"n_components=(\d+), (\d+) documents", text).groups()
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", LowSignalWarning)
        assert (
            plan(n_docs=2000, epsilon=4.0, n_components=topics).recommended_components
            == topics
        )
        plan(n_docs=n_docs, epsilon=4.0, n_components=40)
    with pytest.warns(
        LowSignalWarning, match=r"about 0 of 2 topics .*: use \d+ documents or more"
    ):
        plan(n_docs=20, epsilon=1.0, n_components=2)


@pytest.mark.filterwarnings("ignore::dplda.privacy.LowSignalWarning")
def test_the_number_of_private_documents_is_never_counted(corpus):
    many = sp.vstack([corpus] * 3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        SubLDA(3, epsilon=1.0, delta=0.001, max_iter=2).fit(many)
        HDPLDA(3, epsilon=1.0, delta=0.001, max_iter=2).fit(many)
    assert not any("1 / " in str(w.message) for w in caught)
    with pytest.warns(UserWarning, match="at least 1 / 1200"):
        SubLDA(3, epsilon=1.0, delta=0.001, max_iter=2, expected_n_docs=1200).fit(many)


def test_an_epsilon_above_20_warns(corpus):
    with pytest.warns(
        PrivacyLeakWarning, match=r"epsilon=20.5 promises next to nothing"
    ):
        SubLDA(3, epsilon=20.5, max_iter=2).fit(corpus)
    for other in (PrivateSVILDA(3, epsilon=50, max_iter=2), HDPLDA(3, epsilon=50)):
        with pytest.warns(PrivacyLeakWarning, match="promises next to nothing"):
            other.fit(corpus)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)
        for epsilon in (20.0, math.inf, 0.1):
            SubLDA(3, epsilon=epsilon, max_iter=2).fit(corpus)


def test_an_epsilon_above_20_is_told_once(corpus):
    """Also by a model that reports its documents through another estimator."""
    texts = ["word test"] * 10 + ["text test"] * 10
    of_texts = PrivateTopicModel(2, epsilon=25.0, vocabulary=["word", "text", "test"])
    for model, X in ((LPLDA(2, epsilon=25.0, max_iter=2), corpus), (of_texts, texts)):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            model.fit(X)
        found = [each for each in told if "next to nothing" in str(each.message)]
        assert len(found) == 1
