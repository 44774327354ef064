"""Shares of a radius, of words and of an address, for every value in use.

What a split leaves, who joins a sample, where flips and streams lie: small integers,
visited one after the other through the functions that run.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from numpy.testing import assert_array_equal

from dplda.document._contributions import COUNT_SHARE, DOCS_OF_A_USER
from dplda.document._rules import Rules
from dplda.privacy._curator import membership_threshold
from dplda.privacy._mechanisms import (
    MAX_RADIUS,
    MIN_RADIUS,
    NOISE_VARIANCE,
    ROUNDING_VARIANCE,
    DiscreteGaussian,
    count_unit,
)
from dplda.privacy._streams import Reader, Streams

VARIANCE = NOISE_VARIANCE - ROUNDING_VARIANCE
# all small ones, and those around each power of two
RADII = sorted(
    {*range(MIN_RADIUS, 8192)}
    | {2**i + j for i in range(13, 31) for j in range(-20, 21) if 2**i + j <= 2**30}
)
ALL_RADII = range(MIN_RADIUS, 2**18)


def check_radii(radii):
    rules = Rules()
    for radius in radii:
        share = radius // COUNT_SHARE
        words = rules.rest(radius, share)
        assert words**2 + share**2 <= radius**2 < (words + 1) ** 2 + share**2
        side = radius // (15 * DOCS_OF_A_USER) * DOCS_OF_A_USER
        assert words**2 + 2 * side**2 <= radius**2


def check_multipliers(radii):
    """At the floats around the multiplier at which a radius begins to be too large."""
    for radius in radii:
        edge = math.sqrt(VARIANCE) / radius
        for noise in (math.nextafter(edge, 0), edge, math.nextafter(edge, math.inf)):
            exact = Fraction(noise) ** 2
            try:
                found = DiscreteGaussian.for_noise_multiplier(noise).radius
            except ValueError:
                assert MIN_RADIUS**2 * exact > VARIANCE
                continue
            assert found**2 * exact <= VARIANCE
            assert found == MAX_RADIUS or (found + 1) ** 2 * exact > VARIANCE


def test_words_and_counts_share_every_radius():
    """Replaces "Together at most R in L2", and with users as well."""
    check_radii(RADII)


def test_no_radius_has_less_noise_than_its_multiplier():
    """Replaces "The multiplier that is charged is never below the requested one."
    (page)."""
    check_multipliers(RADII)


@pytest.mark.slow
def test_all_radii_of_18_bits():
    check_radii(ALL_RADII)
    check_multipliers(ALL_RADII)


@pytest.mark.parametrize("radius", [64, 65, 1000, 46341, 614475, 2**24 + 1, 2**30])
def test_every_number_of_words_shares_a_radius(radius):
    """Replaces "Its squares add up to at most R^2": each length of a document to
    10,000."""
    for n in range(1, 10_001):
        unit = count_unit(radius, n)
        assert n * unit**2 <= radius**2 < n * (unit + 1) ** 2


def test_each_rate_of_16_bits_and_each_edge_takes_its_share_of_the_words():
    """All floats of 16 bits below 1, and the ends of every binade of doubles."""
    halves = np.arange(0x3C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    edges = [math.ldexp(m, e) for e in range(-1074, 1) for m in (0.5, 0.75, 1 - 2**-53)]
    rates = np.unique(np.concatenate([halves, edges]))
    found = membership_threshold(rates)
    for rate, threshold in zip(rates.tolist(), found.tolist()):
        assert threshold == math.floor(Fraction(rate) * 2**64)
    assert_array_equal(membership_threshold(np.ones(1)), [0])


def test_every_bit_of_an_address_has_a_bit_of_the_counter(monkeypatch):
    """Replaces "So two streams never meet within their 2^35 cipher blocks."

    The counter is the sum of what the bits of the address set. No two of them set one
    bit, and positions stay in the last five bytes, without a carry.
    """
    counters = []

    def recorded(algorithm, mode):
        counters.append(mode.nonce)
        return Cipher(algorithm, mode)

    monkeypatch.setattr("dplda.privacy._streams.Cipher", recorded)
    streams = Streams(bytes(32), seeded=True)

    def counter(purpose=0, round=0, block=0, spare=False, position=0):
        reader = Reader(streams, purpose, round, block, skip=2 * position)
        reader.words(1, spare=spare)
        return int.from_bytes(counters[-1], "big")

    bits = [counter(purpose=1 << i) for i in range(8)]
    bits += [counter(round=1 << i) for i in range(32)]
    bits += [counter(block=1 << i) for i in range(40)]
    bits += [counter(spare=True)]
    bits += [counter(position=1 << i) for i in range(35)]  # two words a position
    assert all(bit.bit_count() == 1 for bit in bits)
    assert len({*bits}) == 8 + 32 + 40 + 1 + 35
    assert sorted(bits)[:35] == [1 << i for i in range(35)]
    assert counter() == 0
    for i, j in itertools.pairwise(range(8)):
        assert counter(purpose=1 << i | 1 << j) == bits[i] | bits[j]
    every = counter(255, 2**32 - 1, 2**40 - 1, True, 2**35 - 1)
    assert every == sum(bits)
