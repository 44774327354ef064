"""The steps of the centered release, one by one, and the loop that they make."""

import math

import numpy as np
import pytest
import scipy.sparse as sp

from dplda import SubLDA
from dplda.datasets import make_topic_corpus
from dplda.document._contributions import Documents, release_word_totals
from dplda.document._document_budget import document_budget

K = 5


@pytest.fixture(scope="module")
def corpus():
    return make_topic_corpus(300, 60, K, doc_length=40, random_state=0).data


def test_documents_are_scaled_to_the_norm_and_short_ones_at_most_five_times(corpus):
    documents = Documents.from_counts(
        sp.vstack([corpus, np.eye(2, 60, dtype=int)]), K, None
    )
    weight = np.linspace(0.5, 2, 60)
    documents.rescale(weight, 6.0, exact=False)
    lengths = np.sqrt(documents.X.toarray() ** 2 @ weight**2)
    np.testing.assert_allclose(
        documents.scale * lengths, np.minimum(6, 5 * lengths), rtol=1e-6
    )
    assert documents.scale.max() == 5
    documents.rescale(weight, 12.0, exact=True)
    assert documents.scale.max() == 5  # without noise the scale stays as it is


@pytest.mark.parametrize("n_docs", [1, 3, 50])
def test_a_document_reaches_the_radius_of_the_first_totals_and_not_more(n_docs):
    """Words and counts together; `n_docs` of one user, at most ten count."""
    documents = Documents.from_counts(
        sp.csr_array(np.full((n_docs, 60), 9)),
        K,
        None,
        None if n_docs == 1 else np.zeros(n_docs, int),
    )
    budget = document_budget(None, 8.0, 1e-6, max_iter=10, subsampling_ratio=1.0)
    most, mechanism, values = 1 if n_docs == 1 else 10, budget.totals[0], []

    class Gate:
        def release(self, value, mechanism, **options):
            values.append(value.copy())
            return value

    release_word_totals(documents, [mechanism] * 2, Gate(), 6.0, most)
    radius, (first, second) = mechanism.radius, values
    one, more = (
        (radius // 10, []) if n_docs == 1 else (radius // 150, [radius // 150 * 10])
    )
    assert (len(first), len(second)) == (61 + len(more), 60)
    assert [first[0], *first[61:]] == [one * min(n_docs, most), *more]
    assert 0.98 * radius < np.sqrt((first.astype(float) ** 2).sum()) <= radius


def test_without_noise_and_sampling_the_last_round_stands_alone(corpus):
    """There is nothing to average out."""
    model = SubLDA(K, epsilon=math.inf, max_iter=4, random_state=0).fit(corpus)
    totals = np.maximum(np.asarray(corpus.sum(axis=0), float).ravel(), 1)
    np.testing.assert_allclose(model._released.average.sum(axis=1), totals, atol=1.5)
    assert model._released.variance == 0
    half = SubLDA(
        K, epsilon=math.inf, max_iter=4, subsampling_ratio=0.5, random_state=0
    )
    assert np.abs(half.fit(corpus)._released.average.sum(axis=1) - totals).max() > 5
