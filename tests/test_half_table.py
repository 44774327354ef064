"""The table of halves: the ratio of two words' weights is exactly what is charged.

The charge is that of a topic draw.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from dplda.gibbs import _frozen_table as module
from dplda.gibbs._frozen_table import LARGEST_CLIP, HalfTable
from dplda.kernels import _sets
from dplda.word._hdplda import inherent_epsilon

# (count_clip, prior): wide, of one step between two halves, in thirds, and less than
# one step
RANGES = [
    (1000.0, 0.01),
    (1.0, 1024.0),
    (1.0, 3.0),
    (0.1, 0.7),
    (1e-6, 1.0),
    (4.0e6, 1.0),
]
COUNTS = (-3, 0, 1, 2, 1000, 10**7)


def excess(table, count_clip, prior):
    """Largest ratio of two halves of a topic over the charged one, minus 1.

    It is a Fraction.
    """
    charged = Fraction(count_clip) / Fraction(prior) + 1
    weight = table.values
    pairs = zip(weight.max(axis=0).tolist(), weight.min(axis=0).tolist())
    return (
        max(Fraction(largest) / Fraction(smallest) for largest, smallest in pairs)
        / charged
        - 1
    )


def small_tables(values=COUNTS, n_words=2):
    """All tables of two topics."""
    for cells in itertools.product(values, repeat=2 * n_words):
        yield np.array(cells).reshape(n_words, 2)


def wide_table():
    """Two topics are 10**6 apart, and two words of the larger one 10**6 as well."""
    counts = np.zeros((3000, 2), np.int64)
    counts[:-1, 0] = 10**6
    counts[0, 1] = 10**6
    return counts


def assert_normal(table):
    exponent = table.half[:, : table.n_components] >> 10
    assert exponent.min() >= 1
    assert exponent.max() <= 30
    assert not table.half[:, table.n_components :].any()
    assert table.half.shape[1] % 16 == 0
    # rows are in as few lines of the cache as possible
    assert table.half.ctypes.data % 64 == 0


@pytest.mark.parametrize(("count_clip", "prior"), RANGES)
def test_two_words_differ_by_the_charged_ratio_at_most_in_all_small_tables(
    count_clip, prior
):
    for counts in small_tables(COUNTS[:4] if count_clip < 1 else COUNTS[1:]):
        table = HalfTable.from_counts(counts, count_clip, prior)
        assert excess(table, count_clip, prior) <= 0
        assert_normal(table)


def test_a_range_that_halves_do_not_have_raises_the_smallest(instruction_set):
    table = HalfTable.from_counts(wide_table(), 1e6, 1.0)
    assert_normal(table)
    assert table.values[-1, 0] == 2.0**-14
    assert excess(table, 1e6, 1.0) <= 0


@given(
    prior=st.floats(1e-9, 1e9),
    ratio=st.floats(1e-9, float(LARGEST_CLIP)),
    unit=st.sampled_from([1, 3, 7595]),
    mean=st.sampled_from([0.0, -0.5]),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_bound_holds_at_extreme_parameters(prior, ratio, unit, mean, seed):
    rng = np.random.default_rng(seed)
    n_words, n_components = rng.integers(1, 30), rng.integers(1, 40)
    counts = np.trunc(
        rng.standard_cauchy((n_words, n_components)) * 10.0 ** rng.uniform(-1, 9)
    )
    counts = np.clip(counts, -(2**31), 2**31 - 1).astype(
        rng.choice([np.int32, np.int64])
    )
    counts[:, rng.random(n_components) < 0.3] = 0
    table = HalfTable.from_counts(counts, ratio * prior, prior, mean=mean, unit=unit)
    assert excess(table, ratio * prior, prior) <= 0
    assert_normal(table)


@pytest.mark.parametrize("n_components", [1, 15, 16, 17, 40])
def test_halves_are_clipped_counts_over_the_topics_sizes(n_components):
    """Up to the rounding of a half; two topics have one scale."""
    rng = np.random.default_rng(0)
    counts = rng.integers(-20, 200, (70, n_components))
    counts[:, 0] *= 5
    value = np.clip((counts + 0.5) / 3, 0, 40.0) + 0.1
    expected = value / value.sum(axis=0)
    table = HalfTable.from_counts(counts, 40.0, 0.1, mean=-0.5, unit=3)
    ratio = table.values / expected
    assert ratio.max() / ratio.min() <= (1 + 2.0**-10) ** 2
    assert table.values.max() == pytest.approx(65504, rel=2**-10)


def test_sets_types_and_threads_give_the_same_halves(instruction_sets):
    rng = np.random.default_rng(1)
    for shape in ((5, 3), (700, 117), (40, 2048)):
        counts = rng.integers(-(10**4), 10**6, shape).astype(np.int32)
        tables = []
        for name in instruction_sets:
            _sets.use(name)
            tables += [
                HalfTable.from_counts(
                    counts.astype(dtype), 5e3, 0.3, mean=-0.5, unit=2, n_jobs=n_jobs
                )
                for dtype, n_jobs in ((np.int32, 1), (np.int64, 2), (np.float64, None))
            ]
        for table in tables[1:]:
            assert_array_equal(table.half, tables[0].half)


@pytest.mark.parametrize(("count_clip", "prior"), RANGES)
def test_the_ceiling_is_the_largest_half_within_the_ratio(count_clip, prior):
    ratio = Fraction(count_clip) / Fraction(prior) + 1
    steps = module._steps(count_clip, prior)
    for last_bits in (0, 1, 512, 1022, 1023):
        low = 1024 + last_bits

        # of a half with any exponent, in units of the last bit of `low`
        def value(bits):
            return Fraction(1024 + bits % 1024) * 2 ** (bits // 1024)

        high = last_bits + int(steps[last_bits])
        assert value(high) <= ratio * low < value(high + 1)
    assert math.exp(inherent_epsilon(count_clip, prior)) == pytest.approx(
        float(ratio) ** 2
    )
