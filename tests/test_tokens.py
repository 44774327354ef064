"""Privatized tokens: the figures of the mechanism, exact laws, regeneration, and what is kept."""

import itertools
import math
import pickle
from decimal import Decimal, localcontext

import numpy as np
import pytest
import reference_noise as reference
from numpy.testing import assert_allclose, assert_array_equal

from dplda.federated import _tokens
from dplda.federated._sentences import SentenceCorpus
from dplda.federated._tokens import TokenMechanism, check_size, common_documents, privatize
from dplda.privacy import Laplace, RandomizedResponseEvent, epsilon_of
from dplda.privacy._local_mechanisms import ThresholdedLaplace
from dplda.privacy._mechanisms import FlooredLaplace
from dplda.privacy._streams import Purpose, Streams
from dplda.privacy._tables import survivor_tables

STEP = ThresholdedLaplace.STEP
KEY = bytes(range(32))


def streams(key=KEY):
    return Streams(key, seeded=True)


def corpus_of(word, n_words):
    word = np.asarray(word)
    return SentenceCorpus(word, np.arange(len(word) + 1), [0, len(word)], n_words)


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


def test_weights_of_evidence():
    """g(y) = epsilon (|y| - |y - 1|), of a cell of the grid at its middle."""
    for epsilon, y, g in [(8, 0.75, 4), (8, 1.7, 8)]:
        mechanism = TokenMechanism.from_name("laplace", epsilon, 0.25)
        likelihood = mechanism.likelihood()
        level = round(y / STEP) - mechanism.noise.threshold_steps
        pair = likelihood.gain[[level - 1, level]]
        assert np.sqrt(pair.prod()) * math.exp(epsilon) == pytest.approx(math.exp(g), rel=1e-9)
    for epsilon, threshold, base in [(8, 0.2, 9.2406e-4), (10, 0.2, 1.7991e-4), (4, 0.5, 0.072579)]:
        likelihood = TokenMechanism.from_name("laplace", epsilon, threshold).likelihood()
        slack = 1e-4 + (0 if threshold == 0.5 else epsilon * STEP)
        assert likelihood.base * math.exp(epsilon) == pytest.approx(base, rel=slack)
    rr = TokenMechanism.from_name("rr", 8.0, 0.2).likelihood()
    assert_allclose([rr.gain[0], rr.base], [1, math.exp(-16)])
    assert rr.variance == pytest.approx(math.exp(8) / (math.exp(8) - 1) ** 2)


@pytest.mark.parametrize(("epsilon", "threshold"), [(4.0, 0.5), (8.0, 0.2), (2.0, 0.75)])
def test_information_of_the_thresholded_score(epsilon, threshold):
    likelihood = TokenMechanism.from_name("laplace", epsilon, threshold).likelihood()
    t = round(threshold / STEP) * STEP
    p0 = math.exp(-t * epsilon) / 2
    base = (math.exp(-(1 - t) * epsilon) / 2) / (1 - p0)
    information = (
        base**2 * (1 - p0)
        + (math.exp(epsilon) - math.exp(-2 * epsilon + 3 * epsilon * t)) / 6
        + math.exp(epsilon) / 2
        - 1
    )
    assert 1 / likelihood.variance == pytest.approx(information, rel=(epsilon * STEP) ** 2)
    full = 2 / 3 * math.exp(epsilon) + math.exp(-2 * epsilon) / 3 - 1
    loss = math.exp(-3 * epsilon * (1 - t)) / 4
    assert information == pytest.approx(full * (1 - loss), rel=0.02)


@pytest.mark.parametrize(
    ("name", "epsilon", "threshold"),
    [("rr", 3.0, 0.2), ("laplace", 3.0, 0.25), ("rr", math.inf, 0.2)],
)
def test_unbiased_counts(name, epsilon, threshold):
    rng = np.random.default_rng(0)
    n, n_words = 3000, 200
    word = np.concatenate([np.zeros(500, int), rng.integers(1, 100, n - 500)])  # 100.. are empty
    truth = np.bincount(word, minlength=n_words)
    mechanism = TokenMechanism.from_name(name, epsilon, threshold)
    tokens = privatize(corpus_of(word, n_words), mechanism, streams())
    scores = tokens.word_scores()
    noise = tokens.likelihood.variance * n
    if math.isinf(epsilon):
        assert_array_equal(scores, truth)
        return
    assert scores[100:].mean() == pytest.approx(0, abs=6 * math.sqrt(noise / 100))
    assert scores[100:].var() == pytest.approx(noise, rel=0.8)
    assert scores[0] == pytest.approx(500, abs=6 * math.sqrt(noise + 500))
    assert scores.sum() == pytest.approx(n, abs=6 * math.sqrt(n_words * noise + n))


def test_prices():
    rr = TokenMechanism.from_name("rr", 8.0, 0.2)
    (event,) = rr.events
    assert isinstance(event, RandomizedResponseEvent)
    assert epsilon_of(rr.events, 0.0) == pytest.approx(8.0, rel=1e-12)
    laplace = TokenMechanism.from_name("laplace", 8.0, 0.2)
    (event,) = laplace.events
    assert isinstance(event, Laplace)
    assert 1 / 8 <= event.scale <= (1 / 8) * (1 + 1e-15)
    assert epsilon_of(laplace.events, 0.0) <= 8.0


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


@pytest.mark.parametrize("name", ["rr", "laplace"])
def test_other_tokens_noise_does_not_depend_on_a_word(name):
    """The relation of the guarantee: one word changes, one coordinate or two of one vector do."""
    mechanism = TokenMechanism.from_name(name, 3.0, 0.2)
    word = np.arange(60) % 30
    other = word.copy()
    other[25] = 29
    vectors = []
    for w in (word, other):
        found = privatize(corpus_of(w, 30), mechanism, streams()).span(0, 60)
        rows = np.split(np.c_[found.word, found.level], found.ptr[1:-1])
        vectors.append([{(int(a), int(b)) for a, b in row} for row in rows])
    differ = [i for i, (a, b) in enumerate(zip(*vectors)) if a != b]
    assert differ == [25]
    assert {v for v, _ in vectors[0][25] ^ vectors[1][25]} <= {25, 29}


def test_tokens_hold_vectors_and_neither_key_nor_words(monkeypatch):
    monkeypatch.setattr(_tokens, "PIECE_SURVIVORS", 200)
    mechanism = TokenMechanism.from_name("laplace", 4.0, 0.3)
    words = np.arange(300, dtype=np.int32) % 50
    tokens = privatize(corpus_of(words, 50), mechanism, streams())
    content = pickle.dumps(tokens)
    assert KEY not in content
    assert words.tobytes() not in content
    assert len(tokens.pieces[0]) > 3
    again = _tokens.assemble(
        tokens.document_ptr, tokens.unit_ptr, 50, mechanism, tokens.survivors
    )  # all that a state holds
    assert pickle.dumps(again) == content


def test_blocks_are_whole_documents_and_pieces_whole_units(monkeypatch):
    monkeypatch.setattr(_tokens, "BLOCK_TOKENS", 10)
    rng = np.random.default_rng(0)
    documents = [[[0] * rng.integers(1, 6) for _ in range(rng.integers(0, 4))] for _ in range(40)]
    corpus = SentenceCorpus.from_lists([[], *documents, [], []], 3)
    blocks = _tokens._pieces(corpus.document_ptr, corpus.sentence_ptr, 4)
    assert len(blocks) > 5
    flat = [piece for block in blocks for piece in block]
    assert [a for a, _ in flat] == [0, *(b for _, b in flat)][:-1]
    assert flat[-1][1] == len(corpus.sentence_ptr) - 1
    assert all(block[0][0] in corpus.document_ptr for block in blocks)


def test_too_many_tokens_are_refused():
    corpus = corpus_of(np.zeros(3000, int), 2**31 - 1)
    with pytest.raises(ValueError, match="random words; raise token_epsilon"):
        check_size(corpus, TokenMechanism.from_name("rr", 4.0, 0.2))


@pytest.mark.parametrize(
    ("name", "epsilon", "threshold", "message"),
    [
        ("rr", 11.4, 0.2, r"to 11\.3.*got 11\.4"),
        ("rr", 1e-9, 0.2, "epsilon"),
        ("laplace", 1e-3, 0.2, r"epsilon must be .*0\.011.*got 0\.001"),
        ("laplace", 8.0, 0.99999, r"threshold must be .*0\.999.*got 0\.99999"),
        ("laplace", 8.0, 1e-9, r"threshold must be .*0\.0009.*got 1e-09"),
        ("laplace", 60.0, 0.2, "lower the threshold"),
        ("laplace", 1000.0, 0.002, "epsilon must be"),
    ],
)
def test_bad_mechanisms(name, epsilon, threshold, message):
    with pytest.raises(ValueError, match=message):
        TokenMechanism.from_name(name, epsilon, threshold)


@pytest.mark.parametrize("name", ["rr", "laplace"])
def test_common_documents_sum_over_pairs_of_tokens(name):
    """T_d word by word and token by token, over more than one block of documents."""
    rng, n_words, lengths = np.random.default_rng(0), 12, [9, 1, 0, 14, 6]
    ptr = np.append(0, np.cumsum(lengths))
    word = rng.integers(0, n_words, ptr[-1])
    mechanism = TokenMechanism.from_name(name, 3.0, 0.4)
    corpus = SentenceCorpus(word, np.arange(len(word) + 1), ptr, n_words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_tokens, "BLOCK_TOKENS", 10)
        tokens = privatize(corpus, mechanism, streams())
    assert len(tokens.pieces) > 1
    likelihood = tokens.likelihood
    count = np.full((len(word), n_words), likelihood.base_score)
    found = tokens.span(0, len(word))
    rows = np.repeat(np.arange(len(word)), np.diff(found.ptr))
    count[rows, found.word] = likelihood.score[found.level]
    count -= count.mean(axis=0)
    topics = np.array([[0, 3, 5], [7, 3, 11]])
    expected = []
    for words in topics:
        sums = [
            sum(
                count[t, v] * count[u, w]
                for t, u in itertools.permutations(range(a, b), 2)
                for v, w in itertools.permutations(words, 2)
            )
            for a, b in itertools.pairwise(ptr)
        ]
        expected.append(np.sum(sums) / np.linalg.norm(sums))
    assert_allclose(common_documents(tokens, topics), expected, rtol=1e-9)
