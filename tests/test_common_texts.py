"""scikit-learn's own suite for estimators of texts: its numbers become words."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_array

from dplda import PrivateCountVectorizer, PrivateTopicModel, SubLDA

pytestmark = [
    pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning"),
    pytest.mark.filterwarnings("ignore::dplda.privacy.PrivacyLeakWarning"),
]
WORDS = ["heart", "river", "music", "garden", "winter", "paper", "engine", "butter"]


def as_texts(X):
    """A text of each row, as a column: a number is so many copies of a word."""
    times = np.rint(3 * np.abs(check_array(X))).astype(int) + 1
    rows = [
        " ".join(" ".join([WORDS[n % len(WORDS)]] * k) for n, k in enumerate(row))
        for row in times
    ]
    return np.array(rows, dtype=object)


class OfNumbers:
    """Reads numbers where the estimator reads texts."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.string = True, False
        return tags

    def fit(self, X, y=None):
        return super().fit(as_texts(X), y)

    def transform(self, X):
        return super().transform(as_texts(X))


class Vectorizer(OfNumbers, PrivateCountVectorizer):
    __init__ = PrivateCountVectorizer.__init__

    def fit_transform(self, X, y=None):
        return super().fit_transform(as_texts(X), y)


class Topics(OfNumbers, PrivateTopicModel):
    __init__ = PrivateTopicModel.__init__

    def score(self, X, y=None):
        return super().score(as_texts(X), y)


ONE_COLUMN = "texts are one column, whatever numbers they were made of"
EXPECTED = {
    "check_n_features_in": ONE_COLUMN,
    "check_n_features_in_after_fitting": ONE_COLUMN,
    "check_transformer_general": ONE_COLUMN,
}
OF_TOPICS = {"check_fit2d_1sample": "the message does not count private texts"}


@parametrize_with_checks(
    [
        Vectorizer(epsilon=20.0, delta=1e-3, candidates=WORDS, max_features=8),
        Topics(
            2,
            epsilon=20.0,
            delta=1e-3,
            vocabulary=WORDS,
            word_vectors=None,
            model=SubLDA(max_iter=2),
        ),
    ],
    expected_failed_checks=lambda estimator: (
        EXPECTED | (OF_TOPICS if isinstance(estimator, Topics) else {})
    ),
)
def test_scikit_learn_check_of_texts(estimator, check):
    check(estimator)
