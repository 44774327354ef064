"""Enumerations of signal: words that stand out of noise, as rarely as stated."""

import math

import numpy as np

from dplda.core._signal import FALSE_POSITIVES, standing_words

rng = np.random.default_rng(0)

V, K = 400, 8


def frequencies():
    return 1 / np.arange(1, V + 1) / (1 / np.arange(1, V + 1)).sum()


def test_pure_noise_and_word_frequencies_have_no_standing_word():
    rng = np.random.default_rng(0)
    for _ in range(20):
        noise = np.maximum(rng.normal(0, 3, (K, V)), 0)
        assert standing_words(noise, np.full(V, 3.0)).sum() <= 2
    table = np.outer(np.full(K, 2000.0), frequencies())
    for std in (0.0, 0.1, 3.0):
        noisy = np.maximum(table + rng.normal(0, std, table.shape), 0)
        assert not standing_words(noisy, np.full(V, std)).any()


def test_a_word_of_a_frequency_table_stands_out_as_rarely_as_stated():
    # every word at the border of the null hypothesis: the odds of topic 0 are exactly
    # doubled
    rng, table = np.random.default_rng(0), np.full((K, V), 100.0)
    half = np.arange(V) < V // 2
    for _ in range(50):  # sizes and odds depend on each other
        q = table[0].sum() / table.sum()
        table[0, half] = 100.0 * K * (2 * q / (1 + q))
        table[1:, half] = (100.0 * K - table[0, half]) / (K - 1)
    n_false = sum(
        standing_words(table + rng.normal(0, 5.0, table.shape), np.full(V, 5.0))[
            0
        ].any()
        for _ in range(400)
    )
    expected = 400 * FALSE_POSITIVES / 2  # half of the words are at the border
    assert n_false <= expected + 4 * math.sqrt(expected)
    assert n_false >= 1  # the test is not idle either
