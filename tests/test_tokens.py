"""Privatized tokens, and the thresholded Laplace vectors of the published party."""

import itertools
import math
import pickle
from decimal import Decimal, localcontext

import numpy as np
import pytest
import reference_noise as reference
from numpy.testing import assert_array_equal

from dplda.federated import _tokens
from dplda.federated._sentences import SentenceCorpus
from dplda.federated._tokens import check_size, privatize, randomized_bits
from dplda.privacy import RandomizedResponseEvent, epsilon_of
from dplda.privacy._local_mechanisms import ThresholdedLaplace
from dplda.privacy._mechanisms import FlooredLaplace, survivor_tables
from dplda.privacy._streams import Purpose, Streams

STEP = ThresholdedLaplace.STEP
KEY = bytes(range(32))


def streams(key=KEY):
    return Streams(key, seeded=True)


def corpus_of(word, n_words):
    word = np.asarray(word)
    return SentenceCorpus(word, np.arange(len(word) + 1), [0, len(word)], n_words)


@pytest.mark.parametrize("epsilon", [3.0, math.inf])
def test_unbiased_counts(epsilon):
    rng = np.random.default_rng(0)
    n, n_words = 3000, 200
    word = np.concatenate([np.zeros(500, int), rng.integers(1, 100, n - 500)])  # 100.. are empty
    tokens = privatize(corpus_of(word, n_words), randomized_bits(epsilon), streams())
    scores, noise = tokens.word_scores(), tokens.score_variance * n
    if math.isinf(epsilon):
        assert_array_equal(scores, np.bincount(word, minlength=n_words))
        return
    assert tokens.score_variance == pytest.approx(math.exp(3) / (math.exp(3) - 1) ** 2)
    assert scores[100:].mean() == pytest.approx(0, abs=6 * math.sqrt(noise / 100))
    assert scores[100:].var() == pytest.approx(noise, rel=0.8)
    assert scores[0] == pytest.approx(500, abs=6 * math.sqrt(noise + 500))
    assert scores.sum() == pytest.approx(n, abs=6 * math.sqrt(n_words * noise + n))


def test_prices():
    (event,) = randomized_bits(8.0).events(1, 1)
    assert isinstance(event, RandomizedResponseEvent)
    assert epsilon_of([event], 0.0) == pytest.approx(8.0, rel=1e-12)


def test_other_tokens_noise_does_not_depend_on_a_word():
    """The relation of the guarantee: one word changes, one coordinate or two of one vector do."""
    word = np.arange(60) % 30
    other = word.copy()
    other[25] = 29
    vectors = []
    for w in (word, other):
        found = privatize(corpus_of(w, 30), randomized_bits(3.0), streams())
        vectors.append([set(row.tolist()) for row in np.split(found.word, found.ptr[1:-1])])
    differ = [i for i, (a, b) in enumerate(zip(*vectors)) if a != b]
    assert differ == [25]
    assert vectors[0][25] ^ vectors[1][25] <= {25, 29}


def test_tokens_hold_vectors_and_neither_key_nor_words():
    words = np.arange(300, dtype=np.int32) % 50
    content = pickle.dumps(privatize(corpus_of(words, 50), randomized_bits(4.0), streams()))
    assert KEY not in content
    assert words.tobytes() not in content


def test_blocks_are_whole_documents(monkeypatch):
    monkeypatch.setattr(_tokens, "BLOCK_TOKENS", 10)
    rng = np.random.default_rng(0)
    documents = [[[0] * rng.integers(1, 6) for _ in range(rng.integers(0, 4))] for _ in range(40)]
    corpus = SentenceCorpus.from_lists([[], *documents, [], []], 3)
    blocks = privatize(corpus, None, streams()).blocks()
    assert len(blocks) > 5
    assert [a for a, _ in blocks] == [0, *(b for _, b in blocks)][:-1]
    assert blocks[-1][1] == len(corpus)


def test_too_many_tokens_are_refused():
    corpus = corpus_of(np.zeros(3000, int), 2**31 - 1)
    with pytest.raises(ValueError, match="random words; raise token_epsilon"):
        check_size(corpus, randomized_bits(4.0))


@pytest.mark.parametrize(
    ("epsilon", "message"), [(11.4, r"to 11\.3.*got 11\.4"), (1e-9, "token_epsilon must be")]
)
def test_bad_mechanisms(epsilon, message):
    with pytest.raises(ValueError, match=message):
        randomized_bits(epsilon)


# the thresholded Laplace vectors of the published party


@pytest.mark.parametrize(
    ("epsilon", "threshold", "p0", "p1"),
    [(8, 0.2, 0.100948, 0.999169), (11, 0.2, 0.055402, 0.999925), (4, 0.5, 0.067668, 0.932332)],
)
def test_figures_of_the_continuous_mechanism(epsilon, threshold, p0, p1):
    """Those of the specification; a threshold off the grid moves them by at most half a step."""
    mechanism = ThresholdedLaplace(epsilon, threshold)
    slack = 1e-6 + (0 if threshold == 0.5 else epsilon * STEP * 0.5)
    assert mechanism.survival == pytest.approx(p0, rel=slack, abs=1e-6)
    n = 200_000
    level = mechanism.own_levels(n, streams().reader(Purpose.OWN_WORDS, 0))
    assert (level >= 0).mean() == pytest.approx(p1, abs=6 * math.sqrt(p1 * (1 - p1) / n))


@pytest.mark.parametrize("epsilon", [0.013, 0.3, 1 / 3, 2.7, 8.0, 11.0, 99.9])
def test_the_scale_is_rounded_up(epsilon):
    """So the mechanism that runs is that of an epsilon not above the one that is charged."""
    mechanism = ThresholdedLaplace(epsilon, min(0.2, 10 / epsilon))
    with localcontext(prec=60):
        exact = 1 / (Decimal(epsilon) * Decimal(STEP))
        assert exact <= Decimal(mechanism.scale_steps) <= exact * (1 + Decimal(2) ** -51)
        assert Decimal(mechanism.scale) == Decimal(mechanism.scale_steps) * Decimal(STEP)


@pytest.mark.parametrize(("epsilon", "threshold"), [(8.0, 0.2), (0.5, 0.001), (11.0, 0.9)])
def test_tables_are_the_stated_laws(epsilon, threshold):
    """Recovered integer by integer, at 80 digits: no float but the scale enters."""
    mechanism = ThresholdedLaplace(epsilon, threshold)
    tables, wide = survivor_tables(mechanism.scale_steps, mechanism.threshold_steps)
    low, high, excess = (reference.weights_of(*table) for table in reference.unpack(tables))
    assert wide == (high[0] < 2**149)
    with localcontext(prec=80):
        scale = Decimal(mechanism.scale_steps)
        survival = (-Decimal(mechanism.threshold_steps) / scale).exp() / 2
        stay = 1 - survival
        gaps = [stay**i * survival / (1 - stay**4096) for i in range(4096)]
        step = (-1 / scale).exp()
        excesses = [step**i * (1 - step) for i in range(4095)] + [step**4095]
        for weights, law in ((low, gaps), (excess, excesses)):
            distance = sum(abs(Decimal(w) / 2**149 - p) for w, p in zip(weights, law)) / 2
            assert distance < Decimal("5.74e-42")
        assert abs(Decimal(high[1]) / 2**149 - stay**4096 * (1 - stay**4096)) < Decimal(2) ** -148
    assert float(survival) == pytest.approx(mechanism.survival)


def twin_survivors(words, spare, mechanism, own_word, own_level, n_words):
    """The survivors in plain Python, coordinate by coordinate."""
    tables, _ = survivor_tables(mechanism.scale_steps, mechanism.threshold_steps)
    low, high, excess = reference.unpack(tables)
    spare = iter(spare)
    noise, position = {}, -1
    for word in map(int, words):
        fields = [word >> 21 * i & reference.FIELD for i in range(3)]
        ties = [f >> 12 == t[0][f % 4096] >> 128 for f, t in zip(fields, (low, high, excess))]
        assert not any(ties[i] for i in (0, 2)) or spare is not None
        gap = reference.look_up(fields[0], low, spare)
        if high[0][0] or high[1][1]:
            gap += 4096 * reference.look_up(fields[1], high, spare)
        level = reference.look_up(fields[2], excess, spare)
        position += 1 + gap
        noise[position] = level
        if position >= len(own_word) * n_words:
            break
    else:
        raise AssertionError("more words are needed")
    result = []
    for token, (own, own_is) in enumerate(zip(own_word, own_level)):
        row = {
            v: noise[token * n_words + v]
            for v in range(n_words)
            if token * n_words + v in noise and v != own
        }
        if own >= 0 and own_is >= 0:
            row[own] = own_is
        result.append(sorted(row.items()))
    return result


@pytest.mark.parametrize(("epsilon", "threshold"), [(3.0, 0.2), (9.0, 0.8), (1.0, 0.01)])
@pytest.mark.parametrize("n_words", [1, 7, 300])
def test_survivors_are_their_twin(epsilon, threshold, n_words):
    mechanism = ThresholdedLaplace(epsilon, threshold)
    rng = np.random.default_rng(n_words)
    n = 50
    own_word = rng.integers(-1, n_words, n).astype(np.int32)
    own_level = mechanism.own_levels(n, streams().reader(Purpose.OWN_WORDS, 0))
    found = mechanism.survivors(own_word, own_level, n_words, streams().reader(20, 0, 0))
    reader = streams().reader(20, 0, 0)
    expected = twin_survivors(
        reader.words(3 * n * n_words + 500), reader.words(20_000, spare=True), mechanism,
        own_word, own_level, n_words,
    )  # fmt: skip
    for (a, b), row in zip(itertools.pairwise(found.ptr), expected):
        assert list(zip(found.word[a:b].tolist(), found.level[a:b].tolist())) == row


class Miser:
    """A reader whose first pieces are short: the kernel has to stop and go on."""

    def __init__(self, reader):
        self.reader = reader

    def words(self, n, *, spare=False):
        return self.reader.words(6 if spare else min(n, 5), spare=spare)


def test_survivors_do_not_depend_on_the_pieces_of_the_stream():
    mechanism = ThresholdedLaplace(2.0, 0.1)
    own = np.arange(600, dtype=np.int32) % 60  # enough of them for a dozen ties
    level = np.full(600, 7, np.int32)
    whole = mechanism.survivors(own, level, 60, streams().reader(20, 0))
    pieces = mechanism.survivors(own, level, 60, Miser(streams().reader(20, 0)))
    for name in ("ptr", "word", "level"):
        assert_array_equal(getattr(whole, name), getattr(pieces, name))


def test_own_values_are_floored_laplace():
    mechanism = ThresholdedLaplace(6.0, 0.5)
    level = mechanism.own_levels(1000, streams().reader(Purpose.OWN_WORDS, 3))
    raw = FlooredLaplace(mechanism.scale_steps)(
        np.full(1000, 1024, np.int64), streams().reader(Purpose.OWN_WORDS, 3)
    )
    assert_array_equal(level, np.clip(raw - 512, -1, 4095))


@pytest.mark.parametrize(
    ("epsilon", "threshold", "message"),
    [
        (1e-3, 0.2, r"epsilon must be .*0\.011.*got 0\.001"),
        (8.0, 0.99999, r"threshold must be .*0\.999.*got 0\.99999"),
        (60.0, 0.2, "lower the threshold"),
    ],
)
def test_bad_laplace_vectors(epsilon, threshold, message):
    with pytest.raises(ValueError, match=message):
        ThresholdedLaplace(epsilon, threshold)
