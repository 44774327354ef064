"""Enumerations of secure sums: masks, shares and attempts, by laws and slow twins."""

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal, localcontext

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from shared_cases import thirds
from sklearn.base import clone

from dplda import PrivateSVILDA, SubLDA
from dplda.audit import replay
from dplda.datasets import make_topic_corpus
from dplda.federated import _secure_sum, fit_together
from dplda.federated._secure_sum import Adder, Room, SecureSum, Terms, fit_share, pack
from dplda.privacy import Ledger, PoissonSampled, epsilon_of
from dplda.privacy._mechanisms import NOISE_VARIANCE
from dplda.privacy._sums import SumsPromise
from dplda.privacy.mechanisms import TOTAL_VARIATION, DiscreteGaussian, Streams

pytestmark = pytest.mark.filterwarnings(
    "ignore::dplda.privacy.SeededNoiseWarning", "ignore::dplda.privacy.LowSignalWarning"
)


V = 40


MODEL = SubLDA(3, epsilon=4.0, max_iter=6, n_jobs=1)


@pytest.fixture(scope="module")
def X():
    return make_topic_corpus(n_docs=600, n_words=V, n_components=3, random_state=0).data


class Alone:
    """The other parties, if they hold nothing and draw no noise."""

    save_so_far = None

    def __init__(self, terms, first=None):
        self.n_parties = terms.n_parties
        self.shares = terms.shares
        self.first = first or Streams(bytes(32), seeded=False)

    def begin(self):
        pass

    def topic_streams(self, own):
        return self.first

    def add_up(self, cells, label):
        return True

    def agree(self, values, label):
        return values

    def promise(self, events, delta):
        return SumsPromise()


@pytest.mark.parametrize(
    ("model", "with_users"),
    [
        (MODEL, False),
        (MODEL, True),
        (
            PrivateSVILDA(3, epsilon=4.0, max_iter=6, subsampling_ratio=1.0, n_jobs=1),
            False,
        ),
        (
            clone(MODEL).set_params(prior_components=np.ones((3, V)) + np.eye(3, V)),
            False,
        ),
        (
            clone(MODEL).set_params(
                word_vectors=np.cos(np.outer(np.arange(V), np.arange(8)))
            ),
            False,
        ),
    ],
)
def test_without_noise_the_model_is_that_of_all_documents_to_the_last_bit(
    model, with_users, X, monkeypatch
):
    """With the same mechanisms, masks and first table."""
    monkeypatch.setattr(DiscreteGaussian, "add_to", lambda *_, **__: None)
    monkeypatch.setattr(_secure_sum, "BY_CHANCE", math.inf)  # the noise is missed
    first, streams = [], SecureSum.topic_streams
    monkeypatch.setattr(
        SecureSum,
        "topic_streams",
        lambda self, own: first.append(streams(self, own)) or first[-1],
    )
    users = np.arange(600) // 4 if with_users else None
    together = fit_together(model, thirds(X, users))
    pooled = fit_share(clone(model), X, Alone(Terms(3), first[0]), users)
    assert_array_equal(together.components_, pooled.components_)
    assert together.privacy_.unit == ("user" if with_users else "document")


@pytest.mark.parametrize(("colluding", "lost"), [(1, 0), (2, 0), (1, 1)])
@pytest.mark.parametrize("ratio", [1.0, 0.3])
def test_the_noise_of_the_honest_pays(colluding, lost, ratio, X):
    terms = Terms(4, colluding, lost)
    model = SubLDA(3, epsilon=2.0, max_iter=5, subsampling_ratio=ratio)
    budget = model._budget(terms.shares)
    h = 4 - colluding - lost
    for mechanism in (*budget.totals, *budget.rounds):
        assert (mechanism.n_honest, mechanism.n_parties) == (h, 4)
        # the event: integers of norm at most `radius`, and noise of variance h S^2 - 9
        multiplier = mechanism.event.noise_multiplier
        assert mechanism.radius * multiplier <= math.sqrt(h * NOISE_VARIANCE - 9) * (
            1 + 1e-15
        )
        assert mechanism.scale == math.sqrt(4 * NOISE_VARIANCE)
    events = [event for _, event in budget.plan(0, 5)]
    cost = epsilon_of(events, model.delta, total_variation=4 * TOTAL_VARIATION)
    assert 1.99 < cost <= 2.0
    loudest = max(budget.rounds, key=lambda mechanism: mechanism.radius).event
    # a failed attempt and the next one have one sample
    assert events[7:] == [loudest] * lost
    assert all(isinstance(e, PoissonSampled) == (ratio < 1) for e in events[2:7])


def test_the_card_and_the_ledger_of_a_party(X, tmp_path):
    ledger = Ledger(tmp_path / "ledger", epsilon=3.0)
    model = clone(MODEL).set_params(epsilon=2.0, ledger=ledger)
    fit_share(model, X, party_of(Terms(4, 2, 1)))
    card = str(model.privacy_)
    assert "at most 2 of the 4 parties collude" in card
    assert "at most 1 drop out: the noise of 1 pays" in card
    assert "neither the coordinator nor other parties" in card
    assert "no person has documents with two parties" in card
    assert model.privacy_.total_variation == 4 * TOTAL_VARIATION
    (entry,) = ledger.entries()
    assert entry.total_variation == 4 * TOTAL_VARIATION
    assert ledger.epsilon_spent == pytest.approx(model.epsilon_, rel=1e-6)
    assert not any(isinstance(value, Alone) for value in vars(model).values())


def party_of(terms):
    """A party whose coordinator hands its own words back, as if others had nothing."""

    class Party(Alone):
        promise = SecureSum.promise
        _terms = terms

    return Party(terms)


def test_what_is_left_if_all_masks_fall():
    """The page of the protocol: epsilon 4 becomes 15.1 with 9 shares."""
    model = SubLDA(20, epsilon=4.0, delta=1e-5)
    parties = party_of(Terms(10))
    plan = model._budget(parties.shares).plan(0, 80)
    said = parties.promise([event for _, event in plan], 1e-5)
    assert "epsilon is 15.1" in said.assumptions[1]


@pytest.mark.parametrize("width", [0.5, 0.7, 1.0])
def test_shares_add_up(width):
    """The lemma of shares on small widths, where it is visible, at 40 digits."""
    with localcontext(prec=40):

        def law(variance, n=60):
            variance = Decimal(variance)
            weights = np.array(
                [
                    (-x * x / (2 * variance)).exp()
                    for x in map(Decimal, range(-n, n + 1))
                ]
            )
            return weights / weights.sum()

        total, h = law(width**2), 4
        for _ in range(h - 1):
            total = np.convolve(total, law(width**2))
        n = len(total) // 2
        ratio = (total / law(h * width**2, n))[n - 10 : n + 11]
        largest = float(max(ratio.max(), 1 / ratio.min()))
    eta = [2 * math.exp(-2 * math.pi**2 * width**2 * j / (j + 1)) for j in range(1, h)]
    assert 1 + eta[0] / 40 < largest <= math.prod((1 + e) / (1 - e) for e in eta)


def test_shares_have_the_variance_that_the_event_states():
    h, n = 9, 200_000
    noise = np.zeros(n, np.int64)
    for i in range(h):
        DiscreteGaussian(64, h, h + 1).add_to(
            noise, Streams.from_random_state(i).reader(4, 0)
        )
    z = noise / math.sqrt(h * NOISE_VARIANCE)
    assert z.var() == pytest.approx(1, abs=5 * math.sqrt(2 / n))
    assert (z**4).mean() == pytest.approx(3, abs=5 * math.sqrt(96 / n))
    share = DiscreteGaussian.for_noise_multiplier(10.0, n_honest=h, n_parties=h + 1)
    assert share.radius == math.isqrt((h * NOISE_VARIANCE - 9) // 100)
    assert share.radius > 2.9 * DiscreteGaussian.for_noise_multiplier(10.0).radius


def meet(terms, act, lie=None):
    """Run ``act(me, secure_sum)`` for each party; `lie` changes a party's reply."""
    room = Room(Adder(terms, range(terms.n_parties)))

    def run(me):
        def exchange(message):
            reply = room.exchange(me, message)
            return reply if lie is None else lie(me, message, reply)

        try:
            party = SecureSum(terms, me, exchange)
            party.begin()
            return act(me, party)
        except BaseException:
            room.leave()
            raise

    with ThreadPoolExecutor(terms.n_parties) as pool:
        return list(pool.map(run, range(terms.n_parties)))


def uniform(words):
    """Chi-square of the bytes of some words, in standard deviations from its mean."""
    counts = np.bincount(np.ascontiguousarray(words).view(np.uint8), minlength=256)
    expected = counts.sum() / 256
    return abs((((counts - expected) ** 2 / expected).sum() - 255) / math.sqrt(510)) < 6


N = 4000


CELLS = np.random.default_rng(0).integers(-(2**20), 2**20, (5, N))


def sent_by(terms, n_sums=1, **options):
    """What each party sends for its row of CELLS, and what it gets, in some sums."""
    messages = {}

    def act(me, party):
        got = []
        exchange = party._exchange

        def keep(message):
            messages.setdefault(me, []).append(np.frombuffer(message, "<u8", offset=32))
            return exchange(message)

        party._exchange = keep
        for t in range(n_sums):
            cells = CELLS[me].copy()
            assert party.add_up(cells, f"sum {t}")
            got.append(cells)
        return got

    got = meet(terms, act, **options)
    return messages, got


@pytest.mark.parametrize("kem", [False, True] if _secure_sum.HAS_KEM else [False])
def test_a_coordinator_with_some_parties_sees_the_sum_of_the_others_only(kem):
    messages, got = sent_by(Terms(5, kem=kem), n_sums=2)
    for t in range(2):
        for me in range(5):
            assert_array_equal(got[me][t], CELLS.sum(axis=0))
            assert uniform(messages[me][t])
        # without one honest party
        assert uniform(sum(messages[me][t] for me in range(4)))
        assert uniform(messages[0][t] - messages[0][1 - t])  # no mask is used twice
    # parties 0, 1, 2 tell the coordinator what they have sent for nothing of their own
    known = sum(messages[me][0] - CELLS[me].astype(np.uint64) for me in range(3))
    others = messages[3][0] + messages[4][0] + known
    assert_array_equal(others.view(np.int64), CELLS[3] + CELLS[4])


def test_parties_that_were_shown_different_things_send_noise():
    """The attack by inconsistent models: masks hang on all that a pair has seen."""

    def lie(me, message, reply):
        if reply[:1] == b"S" and me == 2 and len(reply) == 8 * N + 1:
            reply = reply[:-1] + bytes([reply[-1] ^ 1])
        return reply

    seen = []
    reply = Adder.reply

    def watch(self, messages):
        seen.append(
            sum(
                np.frombuffer(m[32:], "<u8") for m in messages.values() if len(m) > 8000
            )
        )
        return reply(self, messages)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Adder, "reply", watch)
        with pytest.raises((ConnectionError, threading.BrokenBarrierError)):
            sent_by(Terms(3), n_sums=2, lie=lie)
    assert uniform(seen[-1])
    assert not uniform(seen[-2])


@pytest.mark.parametrize("kind", ["changed", "twice", "short", "more"])
def test_a_coordinator_that_changes_keys_gets_nothing(kind):
    """A party twice among them would know two shares of noise, and both mask ends."""
    terms = Terms(3)

    def exchange(message):
        own = message[_secure_sum.DIGEST :]
        one, two, three = (_secure_sum.Keys(terms.kem).public() for _ in range(3))
        replies = {
            "changed": [one, two, three],
            "twice": [own, one, own],
            "short": [own, one, two[:-1]],
            "more": [own, one, two, three],
        }
        return pack(replies[kind])

    with pytest.raises(ConnectionError, match=r"has changed the keys|malformed"):
        SecureSum(terms, 0, exchange).begin()


def test_two_attempts_have_different_noise():
    """With one noise, the difference shows a lost party's sum with its share alone."""
    seen = []

    class Lossy(Alone):
        def add_up(self, cells, label):
            seen.append(cells.copy())
            return len(seen) != 4

    model = clone(MODEL).set_params(max_iter=3)
    X = np.zeros((4, 1000))
    X[:, 0] = 1
    fit_share(model, X, Lossy(Terms(4, 1, 1)))
    failed, again = seen[3], seen[4]
    difference = (again - failed).std() / math.sqrt(NOISE_VARIANCE)
    assert difference == pytest.approx(math.sqrt(2), rel=0.1)
    assert len(seen) == 6


def test_a_false_loss_is_refused():
    terms = Terms(4, 1, 1)
    for reply in (
        b"L" + bytes([1, 2, 3]),
        b"L" + bytes([0, 1]),
        b"L" + bytes(range(4)),
        b"",
        b"S",
    ):
        party = SecureSum.__new__(SecureSum)
        party.n_parties, party._terms, party._me = 4, terms, 0
        party._present, party._transcript = [0, 1, 2, 3], bytes(32)
        party._secrets = {j: bytes(32) for j in (1, 2, 3)}
        party._exchange = lambda message, reply=reply: reply
        with pytest.raises(ConnectionError, match="too few parties are left"):
            party.add_up(np.zeros(3, np.int64), "x")
    party._exchange = lambda message: b"L" + bytes([0, 1, 3])
    assert not party.add_up(np.zeros(3, np.int64), "x")
    assert party._present == [0, 1, 3]


@pytest.mark.parametrize("ratio", [1.0, 0.5])
def test_a_unit_moves_what_its_party_adds_by_the_radius_and_no_more(ratio, X):
    """A replay over the seam: what the curator adds noise to."""
    others = Alone(Terms(5, 2))

    def party(X, random_state=0):
        model = clone(MODEL).set_params(subsampling_ratio=ratio, random_state=0)
        return fit_share(model, X, others)

    one = X[:60].toarray()
    other = one.copy()
    other[7] = 0
    result = replay(party, one, other)
    assert result.passed, str(result)
    assert max(result.distances) > 0.1


class MasksInFull:
    """HKDF and cipher of a pair: their keystream is every word of a table, in order."""

    def __init__(self, masks):
        self.masks = masks  # of each pair, words

    def hkdf(self, algorithm, length, salt, info):
        key = bytes([*info[4:6], *bytes(30)])  # "mask", and the pair

        class Derived:
            def derive(self, secret):
                return key

        return Derived()

    def cipher(self, algorithm, mode):
        one, other, *_ = algorithm.key
        words = self.masks[one, other]

        class Stream:
            def encryptor(self):
                return self

            def update(self, zeros):
                assert len(zeros) == 8 * len(words)
                return words.astype("<u8").tobytes()

        return Stream()


def sent_under(masks, own, monkeypatch):
    """What each party sends for its row of `own` and gets, under given masks."""
    full = MasksInFull(masks)
    messages = {}

    def act(me, party):
        exchange = party._exchange

        def keep(message):
            messages[me] = np.frombuffer(message, "<u8", offset=32)
            return exchange(message)

        with monkeypatch.context() as patch:
            patch.setattr(party, "_exchange", keep)
            cells = own[me].view(np.int64).copy()
            assert party.add_up(cells, "all")
            return cells

    begin = _secure_sum.SecureSum.begin
    ready = threading.Barrier(len(own))

    def begun(self):
        result = begin(self)
        if ready.wait() == 0:  # keys are agreed on: from here on masks are the table's
            monkeypatch.setattr(_secure_sum, "HKDF", full.hkdf)
            monkeypatch.setattr(_secure_sum, "Cipher", full.cipher)
        ready.wait()
        return result

    monkeypatch.setattr(_secure_sum.SecureSum, "begin", begun)
    got = meet(Terms(len(own), kem=False), act)
    return [messages[me] for me in range(len(own))], got


def grid(*sizes):
    return [x.ravel() for x in np.meshgrid(*map(np.arange, sizes), indexing="ij")]


@pytest.mark.parametrize(("n", "bits"), [(2, 8), (3, 4)])
def test_every_mask_of_a_small_ring_cancels_and_hides(n, bits, monkeypatch):
    """Replaces "Masks of a pair cancel", "and what each sends is uniform", in all of Z
    / 2^bits.

    The highest bits of 64 add up like a ring of their own. For each value of all own
    sums with one total, over all masks, what is sent takes the same values: it says
    nothing but the total.
    """
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    axes = grid(*[2**bits] * (n - 1 + len(pairs)))
    high = [axis.astype(np.uint64) << np.uint64(64 - bits) for axis in axes]
    own = np.array([*high[: n - 1], np.zeros_like(high[0])])
    with np.errstate(over="ignore"):
        own[-1] -= own[:-1].sum(axis=0, dtype=np.uint64)
        own[0] += np.uint64(5)
    masks = dict(zip(pairs, high[n - 1 :]))
    sent, got = sent_under(masks, own, monkeypatch)
    for cells in got:
        assert (cells == 5).all()
    codes = np.zeros(len(axes[0]), np.int64)
    for vector in sent:
        codes = codes << bits | (vector >> np.uint64(64 - bits)).astype(np.int64)
    of_own = codes.reshape(2 ** (bits * (n - 1)), -1)
    of_own.sort(axis=1)
    assert (of_own == of_own[0]).all()
    assert len(np.unique(of_own[0])) == 2 ** (bits * (n - 1))
    assert {int(v) & 2 ** (64 - bits) - 1 for v in np.unique(sent[1])} == {0}
