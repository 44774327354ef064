"""The exact law of a random choice that is charged next to the noise: membership in a sample.

A draw is a function of a random word. The tests find the words at which its result changes, and
count: every document has exactly as many of the words as is charged. (Topics: test_frozen.py.)
"""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dplda.privacy import Gaussian, PoissonSampled
from dplda.privacy.mechanisms import Curator


class Words:
    """Stands for the streams: gives the words it is told to."""

    def __init__(self, words):
        self.given = np.array(words, np.uint64)
        self.seeded = True

    def words(self, purpose, round, block, n):
        assert n == len(self.given)
        return self.given


@given(st.floats(2.0**-63, 1, exclude_max=True))
def test_a_document_is_in_the_sample_for_its_share_of_all_words(rate):
    """It is in for the words 0, ..., floor(2^64 rate) - 1: the rate charged is not below that."""
    n_in = int(Fraction(rate) * 2**64)
    words = [0, n_in - 1, n_in, 2**64 - 1]
    plan = [("counts", PoissonSampled(rate, Gaussian(1.0)))]
    curator = Curator(plan, Words(words), label="sample", unit="document")
    rows = curator.sample(np.full(4, rate), round=0)
    assert rows.tolist() == [j for j, word in enumerate(words) if word < n_in]
    assert rows.tolist() == [0, 1]
