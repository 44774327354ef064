"""The private vocabulary: what one unit moves, what passes, what it costs."""

import math
import pickle
from traceback import format_exception

import numpy as np
import pytest
from oracle import Oracle
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline

from dplda import PrivateCountVectorizer, SubLDA
from dplda.audit import observe_releases
from dplda.datasets import load_public_vocabulary
from dplda.privacy import (
    BudgetError,
    Ledger,
    PrivateDataWarning,
)
from dplda.privacy.mechanisms import Curator, DiscreteGaussian

pld = Oracle("dp_accounting.pld.privacy_loss_distribution")
WORDS = ["apple", "banana", "cherry", "date", "elderberry"]
COMMON = ["apple banana", "banana cherry", "apple date cherry"] * 60
SEEDED = pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")
LARGE_NOISE = DiscreteGaussian.for_noise_multiplier(4.0)


@pytest.fixture
def sums(monkeypatch):
    seen = []
    release = Curator.release_selected

    def record(self, names, value, asked, mechanism, **kwargs):
        seen.append((value.copy(), asked.copy(), mechanism))
        return release(self, names, value, asked, mechanism, **kwargs)

    monkeypatch.setattr(Curator, "release_selected", record)
    return seen


HOSTILE = [
    "apple",
    "apple " * 1000,
    " ".join(WORDS),
    " ".join(f"w{i}" for i in range(5000)),
    " ".join(f"w{i} " * (i % 7) for i in range(300)),
    "",
]


@SEEDED
@pytest.mark.parametrize("text", HOSTILE)
def test_a_document_moves_the_weights_by_its_radius_at_most(text, sums):
    """All terms are candidates, so that both worlds have the same cells."""
    texts = [*COMMON, text, ""]
    terms = {term for t in texts for term in t.split()}
    vectorizer = PrivateCountVectorizer(
        epsilon=50.0, candidates=sorted(terms), max_doc_words=40, random_state=0
    )
    vectorizer.fit(texts)
    vectorizer.fit(["" if t is text else t for t in texts])
    (present, _, mechanism), (emptied, _, _) = sums
    squares = int(((present - emptied).astype(object) ** 2).sum())
    assert squares <= mechanism.radius**2
    # the threshold holds for so many terms that nobody else has
    assert np.count_nonzero(present - emptied) <= 40
    if text:
        assert squares > 0.99 * mechanism.radius**2


def test_only_what_passes_becomes_public():
    secret = [f"secret{i}" for i in range(30)]
    with observe_releases() as releases:
        vectorizer = PrivateCountVectorizer(epsilon=1.0, candidates=WORDS).fit(
            [*COMMON, " ".join(secret)]
        )
    assert [len(release.value) for release in releases] == [len(WORDS)]
    assert set(vectorizer.vocabulary_) == set(WORDS)
    assert not any(word in str(pickle.dumps(vectorizer)) for word in secret)


def test_frequent_words_are_discovered_and_rare_ones_are_not():
    texts = ["common words here"] * 2000 + ["rare"] * 3
    found = PrivateCountVectorizer(epsilon=1.0, candidates=None).fit(texts).vocabulary_
    assert set(found) == {"common", "words", "here"}
    listed = PrivateCountVectorizer(
        epsilon=1.0, candidates=["common"], discover=False
    ).fit(texts)
    assert set(listed.vocabulary_) == {"common"}
    # which cannot fail: the noise alone is charged
    assert listed.threshold_ == math.inf
    assert not any(getattr(event, "delta", 0.0) for event in listed.privacy_.events)


@SEEDED
def test_frequent_words_are_chosen_wherever_they_are_in_the_list():
    """Of texts with 50 words of a list of thousands, which are not its first ones."""
    random = np.random.default_rng(0)
    listed = load_public_vocabulary(5000)
    words = random.choice(listed, 50, replace=False)
    texts = [" ".join(random.choice(words[:20], 8)) for _ in range(500)]
    texts += [" ".join(random.choice(words, 8)) for _ in range(500)]
    vectorizer = PrivateCountVectorizer(epsilon=1.0, max_features=50, random_state=0)
    assert {*words[:20]} <= {*vectorizer.fit(texts).vocabulary_}


def test_the_columns_count_as_scikit_learn_counts():
    vectorizer = PrivateCountVectorizer(epsilon=8.0, candidates=WORDS).fit(COMMON)
    names = vectorizer.get_feature_names_out().tolist()
    assert names == sorted(names)
    theirs = CountVectorizer(vocabulary=names).transform(COMMON)
    assert (vectorizer.transform(COMMON) != theirs).nnz == 0
    exact = PrivateCountVectorizer(epsilon=math.inf, candidates=None).fit(COMMON)
    assert exact.vocabulary_ == CountVectorizer().fit(COMMON).vocabulary_
    assert exact.epsilon_ == math.inf


def test_texts_of_a_user_weigh_as_one(sums):
    texts = ["apple banana", "apple cherry", "date"] * 50
    ids = np.repeat(["ann", "bob", "eve"], 50)
    vectorizer = PrivateCountVectorizer(epsilon=1.0, candidates=WORDS).fit(
        texts, user_ids=ids
    )
    assert vectorizer.privacy_.unit == "user"
    (weights, _, mechanism) = sums[0]
    # each of the three users has four words
    each = math.isqrt(mechanism.radius**2 // 4)
    assert weights.tolist() == [3 * each] * 4 + [0]
    with pytest.raises(ValueError, match="got fewer ids than rows"):
        PrivateCountVectorizer(epsilon=1.0).fit(texts, user_ids=["ann", "bob"])


def test_vocabulary_and_model_share_a_ledger():
    ledger = Ledger(epsilon=4.0)
    pipeline = make_pipeline(
        PrivateCountVectorizer(epsilon=1.0, candidates=WORDS, ledger=ledger),
        SubLDA(2, epsilon=3.8, max_iter=3, ledger=ledger),
    ).fit(COMMON)
    assert ledger.epsilon_spent == pytest.approx(4.0, abs=0.005)
    assert pipeline.transform(COMMON[:2]).shape == (2, 2)

    class Unread(list):
        def __iter__(self):
            raise AssertionError("the texts were read")

    with pytest.raises(BudgetError):
        clone(pipeline).fit(Unread(COMMON))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"candidates": [1, 2]}, "list of words"),
        ({"candidates": "apple"}, "language must be one of"),
        ({"epsilon": None}, "needs epsilon, got none"),
        ({"max_features": 0}, "max_features"),
        (
            {"token_pattern": "("},
            "token_pattern must be a regular expression .* got '\\('",
        ),
        ({"stop_words": "german"}, "stop list: german"),
        ({"candidates": [], "discover": False}, "must hold a word"),
        ({"candidates": ["Heart!"], "discover": False}, "must hold a word"),
    ],
)
@pytest.mark.filterwarnings("ignore:1 of 1 candidates cannot occur")
def test_wrong_parameters_are_refused_before_anything_is_charged(parameters, message):
    with pytest.warns(UserWarning, match="2 of 3 candidates .* 'Apple'"):
        PrivateCountVectorizer(epsilon=1.0, candidates=["Apple", "x", "date"]).fit(
            COMMON
        )
    ledger = Ledger()
    vectorizer = PrivateCountVectorizer(epsilon=1.0, ledger=ledger).set_params(
        **parameters
    )
    with pytest.raises(ValueError, match=message):
        vectorizer.fit(COMMON)
    assert ledger.entries() == []


def test_a_vocabulary_that_misses_most_words_is_told_to_the_person_at_the_keyboard():
    model = PrivateCountVectorizer(epsilon=math.inf, max_features=2).fit(
        ["cat dog"] * 9
    )
    with pytest.warns(
        PrivateDataWarning, match=r"covers 17% .* 1 of 2 texts .* not for release"
    ):
        X = model.transform(["a Cat ran off", b"so did Others"])
    assert X.toarray().tolist() == [[1, 0], [0, 0]]
    assert "Warning" not in "".join(vars(model))


SECRET = "a diagnosis of Ann"


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        (None, "got NoneType"),
        (3, "got int"),
        ([SECRET, float("nan")], "type float"),
        ([SECRET, 3], "type int"),
        ([[SECRET]], "type list .* lists of words need analyzer=list"),
    ],
    ids=["none", "number", "nan", "int", "words"],
)
def test_what_is_no_text_is_refused_alike_by_fit_and_transform(documents, message):
    fitted = PrivateCountVectorizer(epsilon=5.0, candidates=WORDS).fit(COMMON)
    for read in (PrivateCountVectorizer(epsilon=1.0).fit, fitted.transform):
        with pytest.raises(ValueError, match=message) as caught:
            read(documents)
        assert SECRET not in str(caught.value)


def codes_of(text):
    """Words by a table of a caller, whose error quotes the word."""
    return [{"apple": "a", "pear": "b"}[word] for word in text.split()]


def test_errors_of_an_analyzer_quote_no_text():
    texts = ["apple pear"] * 50
    vectorizer = PrivateCountVectorizer(
        epsilon=50.0, candidates=None, analyzer=codes_of
    ).fit(texts)
    for read in (vectorizer.transform, vectorizer.fit):
        with pytest.raises(ValueError, match="could not be split") as caught:
            read([*texts, SECRET])
        assert "diagnosis" not in "".join(format_exception(caught.value))


def unread(texts):
    """Texts that can be read once, and end in an error of the caller."""
    yield from texts
    raise OSError("the disk is gone")


LETTERS = "abcdefghijklmnopqrstuvwxyz"
HOSTILE_TEXTS = {
    "more words than the memory holds": (
        (f"{a}{b}{c}{d}" for a in LETTERS for b in LETTERS for c in "ab" for d in "cd"),
        "more than 2,000 different words",
    ),
    "no place where a word ends": (["apple " + "x" * 2**24] * 2, "without a place"),
    "a generator that fails midway": (unread(COMMON), "the disk is gone"),
    "bytes of another encoding": ([*COMMON, b"apple \xff"], "encoding"),
}


@pytest.mark.parametrize("case", HOSTILE_TEXTS)
def test_hostile_texts_are_refused_before_anything_is_charged(case, monkeypatch):
    monkeypatch.setattr("dplda.text._counted.MOST_TERMS", 2000)
    texts, message = HOSTILE_TEXTS[case]
    ledger = Ledger()
    vectorizer = PrivateCountVectorizer(epsilon=1.0, candidates=WORDS, ledger=ledger)
    with pytest.raises((ValueError, OSError), match=message) as caught:
        vectorizer.fit(texts)
    assert "apple" not in str(caught.value)
    assert {entry.status for entry in ledger.entries()} == {"canceled"}
    assert ledger.epsilon_spent == 0


@SEEDED
def test_texts_are_read_once_in_blocks_of_any_size(monkeypatch):
    def fit(texts):
        vectorizer = PrivateCountVectorizer(
            epsilon=9.0, candidates=WORDS, max_doc_words=3, random_state=0
        )
        X = vectorizer.fit_transform(texts, user_ids=np.arange(len(odd)) % 50)
        return X.toarray().tolist(), vectorizer.word_weights_.tolist()

    odd = [*COMMON, "apple " * 40, "", "\ud800 date", " ".join(WORDS) * 3]
    whole = fit(odd)
    monkeypatch.setattr("dplda.core._splitter.BLOCK_CHARACTERS", 50)
    assert fit(text for text in odd) == whole
