"""public_prior: pseudo-counts of public documents and seed words; topics' places."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.feature_extraction.text import CountVectorizer

from dplda import PrivateCountVectorizer, SubLDA, public_prior
from dplda.datasets import make_topic_corpus
from dplda.metrics import match_topics

K, N_WORDS = 4, 40
WORDS = [f"w{v}" for v in range(N_WORDS)]


@pytest.fixture(scope="module")
def corpus():
    return make_topic_corpus(
        200, N_WORDS, K, doc_length=60, topic_word_prior=0.05, random_state=0
    )


def test_one_random_state_gives_one_table(corpus):
    def made(**options):
        return public_prior(corpus.data, n_components=K, max_iter=5, **options)

    assert_array_equal(made(random_state=1, n_jobs=1), made(random_state=1, n_jobs=2))
    assert not np.array_equal(made(random_state=1), made(random_state=2))
    assert not np.array_equal(made(), made())


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 0, 3, 1)])
def test_a_seeded_topic_comes_out_at_its_place(corpus, order):
    """Each list has two words of one true topic, and the table has it at that place."""
    best = np.argsort(-corpus.components / corpus.components.sum(axis=0), axis=1)
    seeds = [[WORDS[v] for v in best[k, :2]] for k in order]
    prior = public_prior(
        corpus.data,
        n_components=K,
        seed_words=seeds,
        vocabulary=WORDS,
        max_iter=50,
        random_state=3,
    )
    place, _ = match_topics(prior + 0.01, corpus.components)
    assert place.tolist() == list(order)


def test_seeds_of_a_few_topics_leave_the_others_free(corpus):
    best = np.argsort(-corpus.components / corpus.components.sum(axis=0), axis=1)
    prior = public_prior(
        corpus.data,
        n_components=K,
        seed_words={2: [WORDS[v] for v in best[0, :2]]},
        vocabulary=WORDS,
        max_iter=50,
        random_state=0,
    )
    place, distance = match_topics(prior + 0.01, corpus.components)
    assert place[2] == 0
    assert distance.max() < 0.3


def test_seeds_alone_are_the_table():
    prior = public_prior(
        n_components=3,
        seed_words=[["a", "b"], ("b", "c")],
        seed_weight=10,
        vocabulary=["a", "b", "c", "d"],
    )
    assert prior.tolist() == [[10, 10, 0, 0], [0, 10, 10, 0], [0, 0, 0, 0]]


def test_seeds_count_as_tokens(corpus):
    seeds = {1: ["w3"], 3: ["w3", "w7"]}
    prior = public_prior(
        corpus.data,
        n_components=K,
        seed_words=seeds,
        seed_weight=7,
        vocabulary=WORDS,
        max_iter=3,
    )
    expected = corpus.data.toarray().sum(axis=0)
    expected[[3, 7]] += 14, 7
    assert_allclose(prior.sum(axis=0), expected)


def test_texts_are_counted_in_the_columns_of_the_vocabulary():
    texts = ["the heart and the pulse", "a fracture of the bone"] * 40
    words = ["bone", "fracture", "heart", "pulse"]
    X = CountVectorizer(vocabulary=words).transform(texts)
    chosen = PrivateCountVectorizer(
        epsilon=np.inf, candidates=words, discover=False
    ).fit(texts)
    made = [
        public_prior(
            data, n_components=2, vocabulary=vocabulary, max_iter=5, random_state=0
        )
        for data, vocabulary in (
            (X, None),
            (X, words),
            (texts, words),
            (texts, CountVectorizer(vocabulary=words)),
            (
                texts,
                CountVectorizer().set_params(
                    vocabulary={w: v for v, w in enumerate(words)}
                ),
            ),
            (texts, chosen),
        )
    ]
    for table in made:
        assert_array_equal(table, made[0])


def test_the_columns_of_a_data_frame_are_the_words(corpus):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(corpus.data.toarray(), columns=WORDS)
    options = {
        "n_components": K,
        "seed_words": [["w5"]],
        "max_iter": 3,
        "random_state": 0,
    }
    assert_array_equal(
        public_prior(frame, **options),
        public_prior(corpus.data, vocabulary=WORDS, **options),
    )


@pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")
def test_topics_of_seeds_alone_keep_their_places():
    """Their other words are those of the topic that the seeds name."""
    data = make_topic_corpus(2000, 400, 8, doc_length=60, random_state=0)
    true = data.components / data.components.sum(axis=1, keepdims=True)
    typical = np.argsort(-true * np.log(true / true.mean(axis=0) + 1e-12), axis=1)
    names, order = [f"w{v}" for v in range(400)], [5, 2, 7]
    seeds = [[names[v] for v in typical[k, :4]] for k in order]
    prior = public_prior(seed_words=seeds, n_components=8, vocabulary=names)
    others = ~prior.any(axis=0)
    for seed in (1, 2):
        model = SubLDA(
            8, epsilon=8.0, delta=1e-5, prior_components=prior, random_state=seed
        )
        found = model.fit(data.data).components_[:, others]
        near = np.corrcoef(np.sqrt(found), np.sqrt(true[:, others]))[:3, 8:]
        assert near.argmax(axis=1).tolist() == order
        assert model.prior_trust_ is None


TEXTS = ["heart pulse", "bone"] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "of public documents, of seed_words, or of both"),
        ({"X": TEXTS}, "texts need vocabulary=, the vectorizer"),
        ({"seed_words": [["heart"]]}, "seed_words need vocabulary="),
        (
            {"X": TEXTS, "vocabulary": CountVectorizer()},
            "CountVectorizer has no words yet",
        ),
        (
            {"X": TEXTS, "vocabulary": ["herz"]},
            "none of the 6 public documents has a word",
        ),
        (
            {"X": [[1, 2]], "vocabulary": ["heart"]},
            "2 columns and the vocabulary has 1 words",
        ),
        ({"X": [[0.5, 2]]}, "whole word counts"),
        ({"X": [[-1, 2]]}, "Negative values"),
        ({"X": [[1]], "n_components": 0}, "n_components must be an integer from 1"),
        (
            {"seed_words": [["heart", "lung", "liver"]], "vocabulary": ["heart"]},
            "2 seed words are not among the 1 words of the vocabulary: 'lung', 'liver'",
        ),
        ({"seed_words": [], "vocabulary": ["heart"]}, "seed_words holds no word"),
        (
            {"seed_words": [["heart"]] * 3, "vocabulary": ["heart"], "n_components": 2},
            "number of a seeded topic must be an integer from 0 to 1, got 2",
        ),
        (
            {"seed_words": [["a"]], "vocabulary": ["a"], "seed_weight": -1},
            "seed_weight must be",
        ),
    ],
)
def test_errors_say_what_to_do(options, message):
    with pytest.raises(ValueError, match=message):
        public_prior(**options)


@pytest.mark.parametrize(
    "seeds", ["heart", ["heart"], {0: "heart"}, [{"heart": 2.0}], 3]
)
def test_seed_words_are_lists_of_words(seeds):
    with pytest.raises(TypeError, match="seed"):
        public_prior(seed_words=seeds, vocabulary=["heart"])


def test_few_words_warn():
    with pytest.warns(
        UserWarning, match="the 2 public documents hold 4 words .* its 5 columns"
    ):
        public_prior([[2, 0, 0, 1, 0], [1, 0, 0, 0, 0]], n_components=2)


def test_a_vocabulary_is_no_text():
    with pytest.raises(TypeError, match="a vectorizer or a list of words, got 'en'"):
        public_prior(TEXTS, vocabulary="en")
