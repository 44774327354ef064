"""The master: rounds, refusals, parties that come, go, fail; what a party answers."""

import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from sklearn.base import clone

from dplda import SubLDA, load_release, save_release
from dplda.datasets import make_topic_corpus
from dplda.displays import top_words
from dplda.federated import (
    IFTMMaster,
    IFTMParty,
    LocalModel,
    MessageError,
    NextModel,
    RoundError,
    answer_request,
    run_rounds,
    vocabulary_hash,
)
from dplda.metrics import held_out_perplexity, unigram_perplexity
from dplda.privacy import Ledger, PrivacyLeakWarning
from dplda.published import PublishedIFTMParty

pytestmark = pytest.mark.filterwarnings(
    "ignore::dplda.privacy.SeededNoiseWarning",
    "ignore::dplda.privacy.PrivacyLeakWarning",
)

N_WORDS = 40
WORDS = [f"word{i}" for i in range(N_WORDS)]
HASH = vocabulary_hash(WORDS)


def exact(n_components, random_state=0, **options):
    """A party without noise: the best topics that its documents give."""
    options = {"token_epsilon": math.inf, "max_iter": 10} | options
    return IFTMParty(n_components, random_state=random_state, **options)


@pytest.fixture(scope="module")
def corpus():
    X = make_topic_corpus(
        n_docs=420, n_words=N_WORDS, n_components=6, random_state=0
    ).data
    return sp.csr_array(X)


@pytest.fixture
def parties(corpus):
    return {
        "a": (exact(6), corpus[:200]),
        "b": (exact(4, 1), corpus[200:300]),
        "c": (exact(5, 2), corpus[300:380]),
    }


def say(party="a", *, seed=0, n_topics=3, n_words=N_WORDS, **changes):
    table = np.random.default_rng(seed).dirichlet(np.full(n_words, 0.2), n_topics)
    fields = dict(
        party=party,
        round=0,
        vocabulary=HASH,
        table=table,
        weight=100.0,
        epsilon=4.0,
        delta=0.0,
        unit="token",
    )
    return LocalModel(**{**fields, **changes})


def send(master, *messages):
    master.update({message.party: message for message in messages})
    return master.next_models_


def test_a_round_merges_what_is_similar():
    shared, own = say(seed=1, n_topics=2).table, say(seed=2, n_topics=1).table
    master = IFTMMaster(WORDS, similarity_threshold=0.5)
    next_models = send(
        master,
        say("b", table=np.concatenate([own, shared]), weight=300),
        say("a", table=shared),
    )
    assert master.components_.shape == (3, N_WORDS)
    np.testing.assert_allclose(master.components_[:2], shared, atol=1e-6)
    assert_array_equal(master.topic_weights_, [400, 400, 300])
    assert [len(next_models[name].table) for name in "ab"] == [2, 3]
    assert all(model.round == master.round_ == 1 for model in next_models.values())


def test_weights_are_amounts_of_data():
    one, two = np.zeros((2, 1, N_WORDS))
    one[0, :2], two[0, :2] = [0.75, 0.25], [0.25, 0.75]
    messages = [say("a", table=one, weight=300), say("b", table=two, weight=100)]
    for largest, expected in [(math.inf, [0.625, 0.375]), (100, [0.5, 0.5])]:
        master = IFTMMaster(
            WORDS, similarity_threshold=0.3, n_top_words=2, max_weight=largest
        )
        send(master, *messages)
        np.testing.assert_allclose(master.components_[0, :2], expected)


def test_the_order_of_messages_changes_nothing():
    messages = [
        say(name, seed=seed, n_topics=seed + 2) for seed, name in enumerate("abcd")
    ]
    in_bytes = {message.party: message.to_bytes() for message in messages[::-1]}
    one, other = (IFTMMaster(WORDS, similarity_threshold=0.1) for _ in range(2))
    other.update(in_bytes)
    assert send(one, *messages) == other.next_models_
    assert_array_equal(one.components_, other.components_)


def mixtures(table, n_steps):
    """Mixtures of each pair of topics, in equal steps from one to the other."""
    share = (np.arange(n_steps) + 1)[:, None] / (n_steps + 1)
    first, second = np.triu_indices(len(table), 1)
    return np.concatenate(
        [share * table[i] + (1 - share) * table[j] for i, j in zip(first, second)]
    )


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.7])
def test_a_hostile_party_does_not_collapse_the_global_model(parties, corpus, threshold):
    held_out = corpus[380:]
    honest = run_rounds(IFTMMaster(WORDS, similarity_threshold=threshold), parties, 1)
    messages = [LocalModel.from_estimator(parties[n][0], n, 0, HASH) for n in "abc"]
    attack = mixtures(honest.components_, 25)
    attacked = IFTMMaster(WORDS, similarity_threshold=threshold, max_topics=10_000)
    send(attacked, *messages, say("x", table=attack, weight=1e-300))
    # each honest topic is still there, and the model is as good with the same prior in
    # total
    distance = (
        np.abs(honest.components_[:, None] - attacked.components_).sum(axis=2) / 2
    )
    assert distance.min(axis=1).max() < 0.05
    before, after = (
        held_out_perplexity(table, held_out, doc_topic_prior=0.6 / len(table))
        for table in (honest.components_, attacked.components_)
    )
    assert after < 1.02 * before < 0.5 * unigram_perplexity(corpus[:380], held_out)


OTHER_WORDS = {"vocabulary": vocabulary_hash(WORDS[::-1])}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (say("a", seed=9), "names another party"),
        (say("x", round=1), "for round 1, and round 0 is running"),
        (say("x", **OTHER_WORDS), "differs from the federation's"),
        (say("x", n_words=N_WORDS - 1), "vocabulary of 39 words"),
        (say("x", n_topics=21), "21 topics, at most 20"),
        (say("x").to_bytes()[:-5], "not a file of dplda"),
        (b"\x80\x04." * 99, "its header has"),
        (b"x" * 20_000, "20000 bytes, and at most"),
        ("model", "expected a LocalModel"),
        (None, "expected a LocalModel"),
        (say("x").table, "expected a LocalModel"),
    ],
)
def test_a_bad_message_is_refused_and_harms_nobody(message, reason):
    good = {"a": say("a", seed=1), "y": say("y", seed=2)}
    alone, master = (IFTMMaster(WORDS, max_topics=20) for _ in range(2))
    master.update({**good, "x": message})
    alone.update(good)
    assert master.next_models_ == alone.next_models_
    assert_array_equal(master.components_, alone.components_)
    assert list(master.refused_) == ["x"]
    assert reason in master.refused_["x"]


def test_a_round_without_enough_models_is_not_made():
    master = IFTMMaster(WORDS, min_parties=2)
    with pytest.raises(
        RoundError, match=r"has 1 valid .* at least 2; b was refused: .*round 7"
    ):
        send(master, say("a"), say("b", round=7))
    assert master.round_ == 0
    assert not hasattr(master, "components_")
    assert "round 7" in master.refused_["b"]
    send(master, say("a"), say("b"))
    assert (master.round_, master.refused_) == (1, {})
    before = (master.components_.tolist(), master.next_models_)
    with pytest.raises(RoundError):
        master.update({})
    assert before == (master.components_.tolist(), master.next_models_)
    with pytest.raises(
        TypeError, match="must be a mapping of names to messages, got list"
    ):
        master.update([say("a", round=1)])


def test_the_global_model_is_a_release_like_others(corpus, parties, tmp_path):
    master = IFTMMaster(WORDS)
    with pytest.raises(ValueError, match="no round"):
        master.released_model()
    run_rounds(master, parties, 2)
    # parties of this file
    with pytest.warns(PrivacyLeakWarning, match="without privacy"):
        save_release(master.released_model(), tmp_path / "global.dplda")
    model = load_release(tmp_path / "global.dplda")
    tokens = master.components_ * master.topic_weights_[:, None]
    np.testing.assert_allclose(model.components_, tokens + 1 / N_WORDS)
    assert (model.estimator_name_, model.n_iter_) == ("IFTMMaster", 2)
    assert top_words(model) == top_words(model, WORDS)
    held_out = corpus[380:]
    assert model.perplexity(held_out) < 0.8 * unigram_perplexity(corpus[:380], held_out)
    assert model.privacy_.epsilon == math.inf


def test_words_that_no_topic_has_can_be_scored():
    """A table of a party may hold zeros, and a document any word."""
    table = np.zeros((2, N_WORDS))
    table[0, :3] = table[1, 3:6] = 1 / 3
    master = IFTMMaster(WORDS)
    send(master, say("a", table=table, weight=0.0))
    model = master.released_model()
    X = np.eye(N_WORDS)[:8].sum(axis=0, keepdims=True)
    assert np.isfinite(model.transform(X)).all()
    assert np.isfinite(model.perplexity(X))
    assert len(top_words(model)) == 2


def test_the_guarantee_is_what_the_parties_state(tmp_path):
    """The largest epsilon and delta of any round, also of parties that are gone."""
    master = IFTMMaster(WORDS)
    send(
        master,
        say("a", epsilon=4.0, delta=1e-6, unit="document"),
        say("b", epsilon=6.5, delta=1e-7, unit="document"),
    )
    refused = say("d", epsilon=50.0, unit="token", round=7)
    send(master, say("a", epsilon=5.0, delta=1e-6, unit="document", round=1), refused)
    guarantee = master.released_model().privacy_
    assert (guarantee.unit, guarantee.epsilon, guarantee.delta) == (
        "document",
        6.5,
        1e-6,
    )
    assert guarantee.epsilon_at(1e-6) == 6.5
    assert guarantee.epsilon_at(9e-7) == math.inf  # nobody has stated more
    for statement in (
        "party 'a'",
        "epsilon 5 at delta 1e-06",
        "epsilon 6.5 at delta 1e-07",
    ):
        assert statement in str(guarantee)
    assert "'d'" not in str(guarantee)
    save_release(master.released_model(), tmp_path / "global.dplda")
    assert load_release(tmp_path / "global.dplda").privacy_ == guarantee


@pytest.mark.filterwarnings("ignore")
def test_noise_from_a_seed_of_any_party_and_round_is_on_the_card(corpus, tmp_path):
    master = IFTMMaster(WORDS)
    for round_number, seed in enumerate((0, None)):
        model = SubLDA(3, epsilon=1.0, max_iter=2, random_state=seed).fit(corpus)
        sent = LocalModel.from_estimator(model, "a", round_number, HASH)
        send(master, LocalModel.from_bytes(sent.to_bytes()))
        assert master.released_model().privacy_.seeded
    with pytest.warns(PrivacyLeakWarning, match="random_state"):
        save_release(master.released_model(), tmp_path / "global.dplda")
    other = IFTMMaster(WORDS)
    send(other, say("a"))
    assert not other.released_model().privacy_.seeded


def test_parties_with_different_units():
    master = IFTMMaster(WORDS)
    send(
        master,
        say("a", epsilon=8.0),
        say("b", epsilon=2.0, delta=1e-5, unit="document"),
    )
    guarantee = master.released_model().privacy_
    assert (guarantee.unit, guarantee.epsilon) == ("document or token", 8.0)
    # takes back nothing of what it has stated
    send(master, say("a", epsilon=1.0, round=1))
    assert master.released_model().privacy_.epsilon == 8.0
    assert "delta 1e-05 for one document" in str(guarantee)
    for changes in ({"epsilon": math.inf}, {"delta": 1.0}, {"delta": 0.01}):
        master = IFTMMaster(WORDS)
        send(master, say("a"), say("b", **changes))
        assert master.released_model().privacy_.epsilon == math.inf


def test_a_party_protects_one_unit_in_all_rounds():
    """A first round that costs a document 4 says nothing of users.

    Whatever the second one says.
    """
    X = make_topic_corpus(200, N_WORDS, 3, random_state=0).data
    master = IFTMMaster(WORDS)
    model = SubLDA(3, epsilon=4.0, max_iter=2).fit(X)
    send(
        master,
        LocalModel.from_estimator(model, "a", 0, HASH),
        say("b", unit="document"),
    )
    model.set_params(epsilon=2.0).fit(X, user_ids=np.arange(200) // 20)
    with pytest.warns(PrivacyLeakWarning, match="one fit"):
        message = LocalModel.from_estimator(model, "a", 1, HASH)
    send(master, message, say("b", unit="document", round=1))
    assert "protects one user" in master.refused_["a"]
    guarantee = master.released_model().privacy_
    assert (guarantee.unit, round(guarantee.epsilon, 2)) == ("document", 4.0)


@pytest.mark.parametrize(
    "options",
    [
        dict(similarity_threshold=0),
        dict(similarity_threshold=1.1),
        dict(similarity_threshold=np.nan),
        dict(n_top_words=0),
        dict(n_top_words=2.5),
        dict(max_topics=0),
        dict(min_parties=0),
        dict(max_weight=0),
    ],
)
def test_bad_parameters(options):
    (name,) = options
    with pytest.raises((TypeError, ValueError), match=f"{name} must be"):
        IFTMMaster(WORDS, **options)


def test_rounds_in_process(parties, corpus):
    held_out = corpus[380:]
    master = run_rounds(IFTMMaster(WORDS, min_parties=3), parties, 3)
    assert set(master.next_models_) == {"a", "b", "c"}
    assert [len(parties[name][0].components_) for name in "abc"] == [6, 4, 5]
    assert {estimator.n_iter_ for estimator, _ in parties.values()} == {30}
    together = held_out_perplexity(master.components_, held_out)
    alone = held_out_perplexity(exact(4, 1).fit(corpus[200:300]).components_, held_out)
    assert together < alone < unigram_perplexity(corpus[:380], held_out)
    again = {name: (clone(e), X) for name, (e, X) in reversed(parties.items())}
    one_by_one = IFTMMaster(WORDS)
    for _ in range(3):
        run_rounds(one_by_one, again, 1)
    assert_array_equal(one_by_one.components_, master.components_)


def test_a_party_that_fails_leaves_the_round(parties):
    parties["b"][0].set_params(token_epsilon=5.0, ledger=Ledger(epsilon=4.0))
    master = IFTMMaster(WORDS, min_parties=2)
    with pytest.warns(UserWarning, match=r"'b' failed in round 0 \(BudgetError\)"):
        run_rounds(master, parties, 1)
    assert set(master.next_models_) == {"a", "c"}
    parties["b"][0].set_params(ledger=None)  # and joins later, with its own first model
    run_rounds(master, parties, 1)
    assert set(master.next_models_) == {"a", "b", "c"}
    strict = IFTMMaster(WORDS, min_parties=4)
    with pytest.raises(RoundError, match="3 valid models of at least 4"):
        run_rounds(strict, parties, 1)


def test_an_estimator_that_pays_for_every_round_is_refused(corpus):
    """Before it is fitted: the round would fail, and its fit would be charged."""
    ledger, party = Ledger(epsilon=10.0), exact(3)
    model = SubLDA(3, epsilon=4.0, ledger=ledger)
    with pytest.raises(
        TypeError, match=r"'b' must .*got SubLDA; .*LocalModel.from_estimator"
    ):
        run_rounds(IFTMMaster(WORDS), {"a": (party, corpus), "b": (model, corpus)}, 1)
    assert not hasattr(party, "components_")
    assert ledger.entries() == []
    for given in ({"a": corpus}, corpus):
        with pytest.raises(
            TypeError, match=r"must be a pair \(IFTMParty, X\) .*, got csr_array"
        ):
            run_rounds(IFTMMaster(WORDS), given, n_rounds=1)
    with pytest.raises(
        TypeError, match="an IFTMParty, before its documents, got csr_array"
    ):
        run_rounds(IFTMMaster(WORDS), {"a": (corpus, party)}, n_rounds=1)


def request(round_number=0, n_topics=0, **changes):
    table = say(n_topics=max(1, n_topics), **changes).table[:n_topics]
    return NextModel(round=round_number, vocabulary=HASH, table=table).to_bytes()


def answer(estimator, X, message, vocabulary=HASH):
    return answer_request(estimator, X, message, party="a", vocabulary=vocabulary)


def private(ledger, **options):
    return exact(
        3, None, **{"token_epsilon": 5.0, "max_iter": 3, "ledger": ledger} | options
    )


def test_bytes_make_the_rounds_of_one_process(corpus, parties):
    """The party is pickled between rounds; it reads its documents in the first only."""
    master, kept = (
        IFTMMaster(WORDS),
        {n: pickle.dumps(pair) for n, pair in parties.items()},
    )
    for number in range(3):
        answers = {}
        for name, content in kept.items():
            estimator, X = pickle.loads(content)
            message = master.request(name).to_bytes()
            answers[name] = answer_request(
                estimator, X, message, party=name, vocabulary=HASH
            ).to_bytes()
            kept[name] = pickle.dumps((estimator, None))
        master.update(answers)
        assert master.round_ == number + 1
    expected = run_rounds(IFTMMaster(WORDS), parties, 3)
    assert_array_equal(master.components_, expected.components_)


def test_no_request_makes_a_party_pay_again(corpus):
    """A master may ask twice, go back, skip rounds, and send any table."""
    ledger = Ledger(epsilon=5.0)
    party = private(ledger)
    first = answer(party, corpus[:60], request(4, 2))  # comes late: its own first model
    assert (first.round, len(first.table), party.n_iter_) == (4, 3, 3)
    assert answer(party, None, request(4)) == first
    for number, n_topics in [(0, 0), (7, 3), (7, 3), (2, 1), (2**31 - 1, 3)]:
        message = answer(party, None, request(number, n_topics, seed=number))
        assert (message.round, message.epsilon) == (number, first.epsilon)
    assert len(ledger.entries()) == 1


def test_a_lost_fit_is_paid_again_and_stated(corpus):
    ledger, X = Ledger(), corpus[:60]
    for number in range(2):
        message = answer(private(ledger), X, request(number, 3 * number))
    assert message.epsilon == ledger.epsilon_at(message.delta) > 9.9
    send(master := IFTMMaster(WORDS), say("b"), answer(private(ledger), X, request()))
    assert master.released_model().epsilon_ == ledger.epsilon_at(1e-6) > 14.9
    with pytest.raises(
        ValueError, match=r"their fit is lost.*give the estimator the ledger"
    ):
        answer(forgetful := private(None), X, request(1, 3))
    assert not hasattr(forgetful, "components_")


def test_a_party_that_is_fitted_again_between_rounds_is_told_that_costs_add_up(corpus):
    """Its first answer was of another fit, which a message cannot state."""
    X = corpus[:60]
    party = private(None)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)
        for number in range(2):
            answer(party, X, request(number, 3 * number))
    other = clone(party).fit(X)
    for again in (party.fit(X), other):
        with pytest.warns(PrivacyLeakWarning, match="the cost of one fit"):
            answer(again, X, request(2, 3))
        with warnings.catch_warnings():  # once, in a pickle, too
            warnings.simplefilter("error", PrivacyLeakWarning)
            answer(pickle.loads(pickle.dumps(again)), X, request(3, 3))


def test_a_request_that_is_refused_is_no_answer(corpus):
    """The first answer of a later fit warns, whatever was refused before it."""
    X = pd.DataFrame(corpus[:60].toarray(), columns=WORDS)
    party = private(None).fit(X)
    other = vocabulary_hash(WORDS[::-1])
    asked = NextModel(round=2, vocabulary=other, table=say().table[:0])
    with pytest.raises(MessageError, match="words of another vocabulary"):
        answer(party, None, asked, other)
    with pytest.warns(PrivacyLeakWarning, match="the cost of one fit"):
        answer(party, None, request(2, 3))


def test_a_request_that_is_refused_costs_nothing(corpus):
    ledger = Ledger(epsilon=5.0)
    party, X = private(ledger), corpus[:60]
    other = NextModel(
        round=0, vocabulary=vocabulary_hash(WORDS[:3]), table=np.zeros((0, N_WORDS))
    )
    narrow = NextModel(round=1, vocabulary=HASH, table=say(n_words=3).table)
    for message, error, text in [
        (other.to_bytes(), MessageError, "another vocabulary"),
        (other, MessageError, "another vocabulary"),
        (narrow, ValueError, "have other columns"),
        (b"cos\nsystem\n" * 9, MessageError, "its header has"),
        ("text", MessageError, "is bytes"),
    ]:
        with pytest.raises(error, match=text):
            answer(party, X, message)
    with pytest.raises(ValueError, match="count the words of this vocabulary"):
        answer(party, X[:, :4], request())
    with pytest.raises(ValueError, match="count the words of this vocabulary"):
        answer(party, pd.DataFrame(X.toarray(), columns=WORDS[::-1]), request())
    for model in (
        SubLDA(3, epsilon=4.0, ledger=ledger),
        PublishedIFTMParty(3),
    ):
        with pytest.raises(TypeError, match="must have an IFTMParty"):
            answer(model, X, request())
    assert ledger.entries() == []
    answer(party, X, request())
    with pytest.raises(MessageError, match="bytes, and at most 10500 are read"):
        answer(party, None, request(1, 1000))


# ---- topics that are more than noise -------------------------------------------------


def test_a_merged_topic_has_the_evidence_of_its_parts(tmp_path):
    shared, own = say(seed=1, n_topics=2).table, say(seed=2, n_topics=1).table
    master = IFTMMaster(WORDS, similarity_threshold=0.5)
    send(
        master,
        say("a", table=shared, evidence=[3.0, 0.1]),
        say("b", table=np.concatenate([own, shared]), evidence=[np.nan, 3.0, 0.1]),
    )
    expected = np.array([6.0, 0.2]) / math.sqrt(2)
    np.testing.assert_allclose(master.topic_evidence_[:2], expected, rtol=1e-6)
    assert np.isnan(master.topic_evidence_[2])
    assert_array_equal(master.weak_topics_, [False, True, True])
    save_release(master.released_model(), tmp_path / "model.dplda")
    model = load_release(tmp_path / "model.dplda")
    assert_array_equal(model.topic_evidence_, master.topic_evidence_)
    assert_array_equal(model.weak_topics_, master.weak_topics_)


def test_topics_of_all_parties_are_confirmed_together(corpus):
    parties = {
        name: (exact(6, seed), corpus[:210] if name == "a" else corpus[210:])
        for seed, name in enumerate("ab")
    }
    master = run_rounds(IFTMMaster(WORDS, similarity_threshold=0.3), parties, 2)
    assert np.count_nonzero(~master.weak_topics_) >= 3
    untested = say("c", n_topics=2, round=2)
    send(master, untested)
    assert np.isnan(master.topic_evidence_).all()
    assert master.weak_topics_.all()
