"""Enumerations of signal: words that stand out of noise, as rarely as stated."""

import math

import numpy as np

from dplda.core._signal import FALSE_POSITIVES, standing_words, with_signal

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


def test_evidence_is_the_divergence_from_the_word_frequencies_times_the_length():
    table = np.zeros((4, 40)) + 1e-9
    for k in range(4):
        table[k, 10 * k : 10 * k + 10] = 100.0
    # of the words that stand out, each f(log(f/p)-1) + p
    expected = 30 * (math.log(4) - 1 + 1 / 4)
    np.testing.assert_allclose(
        with_signal(table, np.zeros(40), 30.0)["topic_evidence_"], expected, rtol=1e-6
    )
    hidden = np.where(np.arange(40) < 10, 60.0, 0.0)
    strength = with_signal(table, hidden, 30.0)["topic_evidence_"]
    assert strength[0] == 0 < strength[1:].min()


def test_a_topic_far_above_the_others_makes_none_of_them_weak():
    table = np.ones((K, V))
    for k in range(K):
        table[k, 10 * k : 10 * k + 10] = 50.0
    with_one = table.copy()
    with_one[0, :3] = 1e4
    for components in (table, with_one):
        assert not with_signal(components, np.full(V, 1.0), 40.0)["weak_topics_"][
            1:
        ].any()
        assert not with_signal(components, np.zeros(V), 200.0)["weak_topics_"].any()
    assert with_signal(table, np.full(V, 1.0), 2.0)["weak_topics_"].all()
    assert not with_signal(table[:1], np.ones(V), 2.0)["weak_topics_"].any()
