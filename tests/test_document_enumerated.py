"""Enumerations of the room of documents: formulas against exact values and twins."""

import itertools
import re

import numpy as np
import pytest
import scipy.sparse as sp

from dplda.datasets import make_topic_corpus
from dplda.document._contributions import Documents, release_word_totals
from dplda.document._document_budget import document_budget
from dplda.document._rules import ExactRules, Rules
from dplda.privacy import (
    epsilon_of,
)
from dplda.privacy.mechanisms import TOTAL_VARIATION


def plan_of(epsilon, delta, max_iter, ratio=1.0):
    budget = document_budget(
        epsilon, None, delta, max_iter=max_iter, subsampling_ratio=ratio
    )
    return [event for _, event in budget.plan(0, max_iter)]


@pytest.mark.parametrize(
    ("ratio", "rounds"),
    [
        (1.0, 1500),
        pytest.param(1.0, 10_000, marks=pytest.mark.slow),
        pytest.param(0.5, 10_000, marks=pytest.mark.slow),
    ],
)
def test_a_plan_meets_epsilon_or_the_error_names_a_number_of_rounds_that_does(
    ratio, rounds
):
    grid = itertools.product([0.002, 0.1, 2.0], [1e-9, 1e-3], [1, 100, rounds])
    for epsilon, delta, max_iter in itertools.islice(
        grid, None, None, 1 if ratio == 1.0 else 5
    ):
        try:
            plan = plan_of(epsilon, delta, max_iter, ratio)
        except ValueError as error:
            max_iter = int(re.search(r"max_iter=(\d+) rounds", str(error))[1])
            plan = plan_of(epsilon, delta, max_iter, ratio)
            with pytest.raises(ValueError, match="max_iter"):
                plan_of(epsilon, delta, max_iter + max_iter // 50 + 2, ratio)
        assert len(plan) == max_iter + 2
        assert epsilon_of(plan, delta, total_variation=TOTAL_VARIATION) <= epsilon


K = 5


@pytest.fixture(scope="module")
def corpus():
    return make_topic_corpus(300, 60, K, doc_length=40, random_state=0).data


def test_documents_are_scaled_to_the_norm_and_empty_ones_are_not(corpus):
    short = np.eye(2, 60, dtype=int)  # of one word
    documents = Documents.from_counts(sp.vstack([corpus, short, 0 * short]), K, None)
    weight = np.linspace(0.5, 2, 60)
    documents.rescale(weight, 6.0)
    lengths = np.sqrt(documents.X.toarray() ** 2 @ weight**2)
    expected = np.append(np.full(302, 6.0), [0, 0])
    np.testing.assert_allclose(documents.scale * lengths, expected, rtol=1e-6)
    before = documents.scale
    assert before.max() == pytest.approx(6 / weight[0])
    ExactRules().rescale(documents, 2 * weight)
    assert documents.scale is before  # without noise the scale stays as it is


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

    release_word_totals(documents, [mechanism] * 2, Gate(), Rules(), most)
    radius, (first, second) = mechanism.radius, values
    one, more = (
        (radius // 10, []) if n_docs == 1 else (radius // 150, [radius // 150 * 10])
    )
    assert (len(first), len(second)) == (61 + len(more), 60)
    assert [first[0], *first[61:]] == [one * min(n_docs, most), *more]
    assert 0.98 * radius < np.sqrt((first.astype(float) ** 2).sum()) <= radius
