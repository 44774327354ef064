"""Whole fits and `transform` give equal bits for any number of threads.

All of a round is split.

The pieces are made tiny here, so that each step of a small fit has many of them.
"""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import dplda
from dplda.core import _corpus, _fold_in
from dplda.datasets import make_topic_corpus
from dplda.document import _table_estimate
from dplda.gibbs import _frozen_table
from dplda.kernels import _team
from dplda.privacy import _curator

X = make_topic_corpus(90, 80, 4, doc_length=40, random_state=0).data
PUBLIC = np.random.default_rng(0).gamma(0.3, 30.0, (5, X.shape[1]))
FITS = {
    "SubLDA": lambda **o: dplda.SubLDA(5, epsilon=20.0, max_iter=3, **o),
    "SubLDA, sampled": lambda **o: dplda.SubLDA(
        5, epsilon=20.0, max_iter=3, subsampling_ratio=0.5, boost=1.5, **o
    ),
    "SubLDA, public prior": lambda **o: dplda.SubLDA(
        5, epsilon=20.0, max_iter=3, prior_components=PUBLIC, **o
    ),
    "SubLDA, no noise": lambda **o: dplda.SubLDA(5, epsilon=np.inf, max_iter=3, **o),
    "PrivateSVILDA": lambda **o: dplda.PrivateSVILDA(5, epsilon=20.0, max_iter=3, **o),
    "HDPLDA": lambda **o: dplda.HDPLDA(
        5, noise_epsilon=1.0, count_clip=9.0, max_iter=4, **o
    ),
    "GibbsLDA": lambda **o: dplda.GibbsLDA(5, max_iter=5, **o),
}


@pytest.fixture
def tiny_pieces(monkeypatch):
    monkeypatch.setattr(_corpus, "BLOCK_TOKENS", 300)
    monkeypatch.setattr(_corpus.row_blocks, "__defaults__", (200, 1))
    monkeypatch.setattr(_curator, "BLOCK_CELLS", 64)
    monkeypatch.setattr(_fold_in, "BLOCK_ENTRIES", 100)
    monkeypatch.setattr(_frozen_table, "BLOCK_TOKENS", 300)
    monkeypatch.setattr(_frozen_table, "PIECE_CELLS", 64)
    monkeypatch.setattr(_table_estimate, "PIECE", 64)
    monkeypatch.setattr(_table_estimate, "SAMPLE", 500)
    monkeypatch.setattr(_frozen_table, "PIECE_WORDS", 300)
    cells = _team.use_pieces(64)
    yield
    _team.use_pieces(cells)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FITS)
def test_any_number_of_threads_gives_the_same_fit_and_weights(name, tiny_pieces):
    one, three = (FITS[name](random_state=0, n_jobs=n).fit(X) for n in (1, 3))
    assert_array_equal(three.components_, one.components_)
    assert_array_equal(three.transform(X), one.transform(X))
