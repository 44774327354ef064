"""GibbsLDA: which counts a sweep reads, and which sweeps are averaged."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dplda.gibbs._gibbslda as module
from dplda import GibbsLDA

K = 4


@pytest.fixture
def counted(monkeypatch):
    """The counts of each sweep, beginning with those of the first topics."""
    seen = []
    count = module.TokensByWord.count

    def spy(*arguments):
        seen.append(count(*arguments).copy())

    monkeypatch.setattr(module.TokensByWord, "count", spy)
    return seen


@pytest.mark.parametrize(("max_iter", "first"), [(1, 1), (3, 3), (8, 7), (20, 16)])
def test_the_last_quarter_of_the_sweeps_is_averaged(max_iter, first, corpus, counted):
    model = GibbsLDA(K, max_iter=max_iter, topic_word_prior=0.5, random_state=0).fit(
        corpus
    )
    assert len(counted) == max_iter + 1
    assert_allclose(model.components_, np.mean(counted[first:], axis=0).T + 0.5)


def test_a_sweep_reads_the_counts_of_the_sweep_before(corpus, counted, monkeypatch):
    read = []
    from_counts = module.HalfTable.from_counts

    def spy(counts, *rest, **options):
        read.append(counts.copy())
        return from_counts(counts, *rest, **options)

    monkeypatch.setattr(module.HalfTable, "from_counts", spy)
    GibbsLDA(K, max_iter=3, random_state=0).fit(corpus)
    assert_array_equal(read, counted[:3])
