"""The master: rounds, refusals, parties that come, go and fail; a party between rounds."""

import math
import os
import pickle
import re
import shutil
import stat
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.utils import check_random_state

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
    SentenceCorpus,
    StoredParty,
    run_rounds,
    vocabulary_hash,
)
from dplda.federated._rounds import read_state, state_bytes
from dplda.leaf._files import write_atomically
from dplda.metrics import held_out_perplexity, unigram_perplexity
from dplda.privacy import Ledger, PrivacyLeakWarning

pytestmark = pytest.mark.filterwarnings(
    "ignore::dplda.privacy.SeededNoiseWarning", "ignore::dplda.privacy.PrivacyLeakWarning"
)

N_WORDS = 40
HASH = vocabulary_hash(N_WORDS)


def exact(n_components, random_state=0, **options):
    """A party without noise: the best topics that its documents give."""
    options = {"token_epsilon": math.inf, "max_iter": 10} | options
    return IFTMParty(n_components, random_state=random_state, **options)


@pytest.fixture(scope="module")
def corpus():
    X = make_topic_corpus(n_docs=420, n_words=N_WORDS, n_components=6, random_state=0).data
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
        party=party, round=0, vocabulary=HASH, table=table, weight=100.0,
        epsilon=4.0, delta=0.0, unit="token",
    )  # fmt: skip
    return LocalModel(**{**fields, **changes})


def send(master, *messages):
    return master.update({message.party: message for message in messages})


def test_a_round_merges_what_is_similar():
    shared, own = say(seed=1, n_topics=2).table, say(seed=2, n_topics=1).table
    master = IFTMMaster(N_WORDS, similarity_threshold=0.5)
    next_models = send(
        master, say("b", table=np.concatenate([own, shared]), weight=300), say("a", table=shared)
    )
    assert master.components_.shape == (3, N_WORDS)
    np.testing.assert_allclose(master.components_[:2], shared, atol=1e-6)
    assert_array_equal(master.topic_weights_, [400, 400, 300])
    assert [next_models[name].n_topics for name in "ab"] == [2, 3]
    assert all(model.round == master.round_ == 1 for model in next_models.values())


def test_weights_are_amounts_of_data():
    one, two = np.zeros((2, 1, N_WORDS))
    one[0, :2], two[0, :2] = [0.75, 0.25], [0.25, 0.75]
    messages = [say("a", table=one, weight=300), say("b", table=two, weight=100)]
    for largest, expected in [(None, [0.625, 0.375]), (100, [0.5, 0.5])]:
        master = IFTMMaster(N_WORDS, similarity_threshold=0.3, n_top_words=2, max_weight=largest)
        send(master, *messages)
        np.testing.assert_allclose(master.components_[0, :2], expected)


def test_the_order_of_messages_changes_nothing():
    messages = [say(name, seed=seed, n_topics=seed + 2) for seed, name in enumerate("abcd")]
    given = (
        messages, [messages[i] for i in (3, 1, 0, 2)],
    )  # fmt: skip
    results = []
    for arrived in given:
        master = IFTMMaster(N_WORDS, similarity_threshold=0.1)
        results.append((send(master, *arrived), master.components_.tolist()))
    assert results[0] == results[1]
    master = IFTMMaster(N_WORDS, similarity_threshold=0.1)
    assert master.update({m.party: m.to_bytes() for m in messages}) == results[0][0]


def mixtures(table, n_steps):
    """Mixtures of each pair of topics, in equal steps from one to the other."""
    share = (np.arange(n_steps) + 1)[:, None] / (n_steps + 1)
    first, second = np.triu_indices(len(table), 1)
    return np.concatenate([
        share * table[i] + (1 - share) * table[j] for i, j in zip(first, second)
    ])  # fmt: skip


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.7])
def test_a_hostile_party_does_not_collapse_the_global_model(parties, corpus, threshold):
    held_out = corpus[380:]
    honest = run_rounds(IFTMMaster(N_WORDS, similarity_threshold=threshold), parties, 1)
    messages = [LocalModel.from_estimator(parties[n][0], n, 0, HASH) for n in "abc"]
    attack = mixtures(honest.components_, 25)
    attacked = IFTMMaster(N_WORDS, similarity_threshold=threshold, max_topics=10_000)
    send(attacked, *messages, say("x", table=attack, weight=1e-300))
    # each honest topic is still there, and the model is as good with the same prior in total
    distance = np.abs(honest.components_[:, None] - attacked.components_).sum(axis=2) / 2
    assert distance.min(axis=1).max() < 0.05
    before, after = (
        held_out_perplexity(table, held_out, doc_topic_prior=0.6 / len(table))
        for table in (honest.components_, attacked.components_)
    )
    assert after < 1.02 * before < 0.5 * unigram_perplexity(corpus[:380], held_out)


OTHER_WORDS = {"vocabulary": vocabulary_hash(N_WORDS + 1)}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (say("x", round=1), "for round 1, and round 0 is running"),
        (say("x", **OTHER_WORDS), "not that of the federation"),
        (say("x", n_words=N_WORDS - 1), "vocabulary of 39 words"),
        (say("x", n_topics=21), "21 topics, at most 20"),
        (say("x").to_bytes()[:-5], "no file of dplda"),
        (b"\x80\x04." * 99, "its header has"),
        (b"x" * 20_000, "20000 bytes, and at most"),
        ("model", "expected a LocalModel"),
        (None, "expected a LocalModel"),
        (say("x").table, "expected a LocalModel"),
    ],
)
def test_a_bad_message_is_refused_and_harms_nobody(message, reason):
    good = {"a": say("a", seed=1), "y": say("y", seed=2)}
    alone, master = (IFTMMaster(N_WORDS, max_topics=20) for _ in range(2))
    assert master.update({**good, "x": message}) == alone.update(good)
    assert_array_equal(master.components_, alone.components_)
    assert list(master.refused_) == ["x"]
    assert reason in master.refused_["x"]


def test_nobody_speaks_for_another():
    honest, forged, other = say("a", seed=1), say("a", seed=2), say("b", seed=3)
    master, alone = IFTMMaster(N_WORDS), IFTMMaster(N_WORDS)
    assert set(master.update({"a": honest, "x": forged, "b": other})) == {"a", "b"}
    assert "names another party" in master.refused_["x"]
    send(alone, honest, other)
    assert_array_equal(master.components_, alone.components_)


def test_a_round_without_enough_models_is_not_made():
    master = IFTMMaster(N_WORDS, min_parties=2)
    with pytest.raises(RoundError, match=r"has 1 valid .* at least 2; b was refused: .*round 7"):
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
    with pytest.raises(TypeError, match="must be a mapping of names to messages, got list"):
        master.update([say("a", round=1)])


def test_a_state_continues_in_another_process(tmp_path):
    """With all that parties have stated: the largest epsilon of any round."""
    master, again, path = IFTMMaster(N_WORDS), IFTMMaster(N_WORDS), tmp_path / "state"
    send(master, say("a.T", seed=1, epsilon=6.0), say("b", seed=2, n_topics=5))
    send(master, say("a.T", seed=3, round=1, epsilon=1.0), say("b", seed=4, round=1))
    write_atomically(path, state_bytes("us", *master._state()))
    again._restore(*read_state(path, "us"))
    assert (again.round_, again.next_models_) == (2, master.next_models_)
    assert again.released_model().privacy_ == master.released_model().privacy_
    assert again.released_model().epsilon_ == 6.0
    assert_array_equal(again.released_model().components_, master.released_model().components_)
    messages = say("a.T", seed=5, round=2), say("c", seed=6, round=2)
    assert send(master, *messages) == send(again, *messages)


# ---------------------------------------------------------------- the global model as a release


def test_the_global_model_is_a_release_like_others(corpus, parties, tmp_path):
    words = [f"word{i}" for i in range(N_WORDS)]
    master = IFTMMaster(words)
    with pytest.raises(ValueError, match="no round"):
        master.released_model()
    run_rounds(master, parties, 2)
    with pytest.warns(PrivacyLeakWarning, match="without privacy"):  # parties of this file
        save_release(master.released_model(), tmp_path / "global.dplda")
    model = load_release(tmp_path / "global.dplda")
    topics = model.components_ / model.components_.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(topics, master.components_, atol=1e-8)
    np.testing.assert_allclose(model.components_.sum(axis=1), master.topic_weights_, rtol=1e-6)
    assert (model.estimator_name_, model.n_iter_) == ("IFTMMaster", 2)
    assert top_words(model) == top_words(model, words)
    held_out = corpus[380:]
    assert model.perplexity(held_out) < 0.8 * unigram_perplexity(corpus[:380], held_out)
    assert model.privacy_.epsilon == math.inf


def test_words_that_no_topic_has_can_be_scored():
    """A table of a party may hold zeros, and a document any word."""
    table = np.zeros((2, N_WORDS))
    table[0, :3] = table[1, 3:6] = 1 / 3
    master = IFTMMaster(N_WORDS)
    send(master, say("a", table=table, weight=0.0))
    model = master.released_model()
    X = np.eye(N_WORDS)[:8].sum(axis=0, keepdims=True)
    assert np.isfinite(model.transform(X)).all()
    assert np.isfinite(model.perplexity(X))
    assert len(top_words(model)) == 2


def test_the_guarantee_is_what_the_parties_state(tmp_path):
    """The largest epsilon and delta of any round, also of parties that are gone."""
    master = IFTMMaster(N_WORDS)
    send(
        master, say("a", epsilon=4.0, delta=1e-6, unit="document"),
        say("b", epsilon=6.5, delta=1e-7, unit="document"),
    )  # fmt: skip
    refused = say("d", epsilon=50.0, unit="token", round=7)
    send(master, say("a", epsilon=5.0, delta=1e-6, unit="document", round=1), refused)
    guarantee = master.released_model().privacy_
    assert (guarantee.unit, guarantee.epsilon, guarantee.delta) == ("document", 6.5, 1e-6)
    assert guarantee.epsilon_at(1e-6) == 6.5
    assert guarantee.epsilon_at(9e-7) == math.inf  # nobody has stated more
    for statement in ("party 'a'", "epsilon 5 at delta 1e-06", "epsilon 6.5 at delta 1e-07"):
        assert statement in str(guarantee)
    assert "'d'" not in str(guarantee)
    save_release(master.released_model(), tmp_path / "global.dplda")
    assert load_release(tmp_path / "global.dplda").privacy_ == guarantee


def test_parties_with_different_units():
    master = IFTMMaster(N_WORDS)
    send(master, say("a", epsilon=8.0), say("b", epsilon=2.0, delta=1e-5, unit="document"))
    guarantee = master.released_model().privacy_
    assert (guarantee.unit, guarantee.epsilon) == ("document or token", 8.0)
    send(master, say("a", epsilon=1.0, round=1))  # takes back nothing of what it has stated
    assert master.released_model().privacy_.epsilon == 8.0
    assert "delta 1e-05 for one document" in str(guarantee)
    for changes in ({"epsilon": math.inf}, {"delta": 1.0}):
        master = IFTMMaster(N_WORDS)
        send(master, say("a"), say("b", **changes))
        assert master.released_model().privacy_.epsilon == math.inf


def test_a_party_protects_one_unit_in_all_rounds():
    """A first round that costs a document 4 says nothing of users, whatever the second one says."""
    X = make_topic_corpus(200, N_WORDS, 3, random_state=0).data
    master = IFTMMaster(N_WORDS)
    model = SubLDA(3, epsilon=4.0, max_iter=2).fit(X)
    send(master, LocalModel.from_estimator(model, "a", 0, HASH), say("b", unit="document"))
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
        dict(similarity_threshold=0), dict(similarity_threshold=1.1),
        dict(similarity_threshold=np.nan), dict(n_top_words=0), dict(n_top_words=2.5),
        dict(max_topics=0), dict(min_parties=0), dict(max_weight=0),
    ],
)  # fmt: skip
def test_bad_parameters(options):
    (name,) = options
    with pytest.raises((TypeError, ValueError), match=f"{name} must be"):
        IFTMMaster(N_WORDS, **options)


def test_rounds_in_process(parties, corpus):
    held_out = corpus[380:]
    master = run_rounds(IFTMMaster(N_WORDS, min_parties=3), parties, 3)
    assert set(master.next_models_) == {"a", "b", "c"}
    assert [len(parties[name][0].components_) for name in "abc"] == [6, 4, 5]
    assert {estimator.n_iter_ for estimator, _ in parties.values()} == {30}
    together = held_out_perplexity(master.components_, held_out)
    alone = held_out_perplexity(exact(4, 1).fit(corpus[200:300]).components_, held_out)
    assert together < alone < unigram_perplexity(corpus[:380], held_out)
    again = {name: (clone(e), X) for name, (e, X) in reversed(parties.items())}
    one_by_one = IFTMMaster(N_WORDS)
    for _ in range(3):
        run_rounds(one_by_one, again, 1)
    assert_array_equal(one_by_one.components_, master.components_)


def test_a_party_that_fails_leaves_the_round(parties):
    parties["b"][0].set_params(token_epsilon=5.0, ledger=Ledger(epsilon=4.0))
    master = IFTMMaster(N_WORDS, min_parties=2)
    with pytest.warns(UserWarning, match=r"'b' failed in round 0 \(BudgetError\)"):
        run_rounds(master, parties, 1)
    assert set(master.next_models_) == {"a", "c"}
    parties["b"][0].set_params(ledger=None)  # and joins later, with its own first model
    run_rounds(master, parties, 1)
    assert set(master.next_models_) == {"a", "b", "c"}
    strict = IFTMMaster(N_WORDS, min_parties=4)
    with pytest.raises(RoundError, match="3 valid models of at least 4"):
        run_rounds(strict, parties, 1)


def test_an_estimator_that_pays_for_every_round_is_refused(corpus, tmp_path):
    """Before it is fitted: the round would fail, and its fit would be charged."""
    ledger, party = Ledger(epsilon=10.0), exact(3)
    model = SubLDA(3, epsilon=4.0, ledger=ledger)
    with pytest.raises(TypeError, match=r"'b' must .*got SubLDA; .*LocalModel.from_estimator"):
        run_rounds(IFTMMaster(N_WORDS), {"a": (party, corpus), "b": (model, corpus)}, 1)
    assert not hasattr(party, "components_")
    with pytest.raises(TypeError, match="got SubLDA"):
        StoredParty("b", model, None, vocabulary=N_WORDS, path=tmp_path / "b")
    assert ledger.entries() == []
    for given in ({"a": corpus}, corpus):
        with pytest.raises(TypeError, match=r"must be a pair \(IFTMParty, X\) .*, got csr_array"):
            run_rounds(IFTMMaster(N_WORDS), given, n_rounds=1)
    with pytest.raises(TypeError, match="an IFTMParty, before its documents, got csr_array"):
        run_rounds(IFTMMaster(N_WORDS), {"a": (corpus, party)}, n_rounds=1)


class Loader:
    """Documents, and how often they were read."""

    def __init__(self, X):
        self.X, self.n_reads = X, 0

    def __call__(self):
        self.n_reads += 1
        return self.X


def stored(path, load, name="a", **parameters):
    """A party without noise: its answers are equal in all runs."""
    estimator = exact(**{"n_components": 3, "max_iter": 3} | parameters)
    return StoredParty(name, estimator, load, vocabulary=N_WORDS, path=path)


def request(round_number=0, n_topics=0, **changes):
    """A master's request as bytes."""
    table = say(n_topics=max(1, n_topics), **changes).table[:n_topics]
    return NextModel(round=round_number, vocabulary=HASH, table=table).to_bytes()


def test_a_stored_party_survives_its_process(tmp_path, corpus):
    load, master = Loader(corpus[:60]), IFTMMaster(N_WORDS)
    path = tmp_path / "a.state"
    first = stored(path, load).answer(request())
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stored(path, load).answer(request()) == first  # asked again, in another process
    next_model = master.update({"a": first})["a"].to_bytes()
    second = stored(path, load).answer(next_model)
    assert load.n_reads == 1
    party = stored(tmp_path / "b.state", load)._estimator
    run_rounds(expected := IFTMMaster(N_WORDS), {"a": (party, corpus[:60])}, 2)
    master.update({"a": second})
    assert_array_equal(master.components_, expected.components_)


@pytest.mark.parametrize("model", ["lda", "sentence_lda"])
def test_a_restarted_party_goes_on_as_if_it_had_not_stopped(tmp_path, corpus, model):
    """To the last bit: with all that a party knows."""
    words = [row.indices.tolist() for row in corpus[:40]]
    X = SentenceCorpus.from_lists([[w[:3], w[3:]] for w in words], N_WORDS)
    options = dict(token_epsilon=5.0, model=model, max_doc_tokens=9)
    one, two = (stored(tmp_path / name, lambda: X, **options) for name in "xy")
    two.name = one.name
    assert one.answer(request()) == two.answer(request())
    two.close()
    again = stored(tmp_path / "y", None, **options)
    for name in ("privacy_", "epsilon_", "n_iter_", "token_epsilon_", "document_epsilon_"):
        assert getattr(again._estimator, name) == getattr(one._estimator, name)
    message = request(1, 3)
    assert one.answer(message) == again.answer(message)
    assert_array_equal(one._estimator.transform(X), again._estimator.transform(X))


def test_a_stored_party_refuses(tmp_path, corpus):
    load = Loader(corpus[:60])
    party = stored(tmp_path / "a.state", load)
    other = NextModel(round=0, vocabulary=vocabulary_hash(3), table=np.zeros((0, N_WORDS)))
    narrow = NextModel(round=1, vocabulary=HASH, table=say(n_words=3).table)
    for message in (other, narrow):
        with pytest.raises(MessageError, match="another vocabulary"):
            party.answer(message.to_bytes())
    with pytest.raises(MessageError, match="its header has"):
        party.answer(b"cos\nsystem\n" * 9)
    with pytest.raises(MessageError, match="bytes, and at most 4584 are read"):
        party.answer(request(1, 1000))
    assert load.n_reads == 0
    party.answer(request())
    party.close()
    for changed in (dict(name="b"), dict(n_components=7), dict(random_state=9)):
        with pytest.raises(ValueError, match="another name, vocabulary or parameters"):
            stored(tmp_path / "a.state", load, **changed)


def test_a_state_that_was_changed_or_is_open_to_others_is_refused(tmp_path, corpus):
    load, path = Loader(corpus[:60]), tmp_path / "a.state"
    with stored(path, load) as party:
        party.answer(request())
    content = path.read_bytes()
    flipped = [bytearray(content) for _ in range(50)]
    for data, position in zip(flipped, np.linspace(0, len(content) - 1, 50, dtype=int)):
        data[position] ^= 1
    for data in (content[:-1], pickle.dumps(party.name), b"", *flipped):
        path.write_bytes(data)
        with pytest.raises(ValueError, match="is no state of this federation"):
            stored(path, load)
    path.write_bytes(content)
    if os.name == "posix":
        path.chmod(0o660)
        with pytest.raises(PermissionError, match=r"the state .* is open to other users"):
            stored(path, load)


def _disk_is_full(*args, **kwargs):
    raise OSError("the disk is full")


def test_what_is_not_in_the_file_is_not_given_out(tmp_path, corpus, monkeypatch):
    path, load = tmp_path / "a.state", Loader(corpus[:60])
    party = stored(path, load)
    party.answer(request())
    before, message = path.read_bytes(), request(1, 3)
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", _disk_is_full)
        with pytest.raises(OSError, match="full"):
            party.answer(message)
    assert path.read_bytes() == before
    assert {file.name for file in tmp_path.iterdir()} == {"a.state", "a.state.lock"}
    party.close()
    answer = stored(path, load).answer(message)
    assert stored(path, load).answer(message) == answer


def test_a_party_that_comes_late_answers_with_its_own_first_model(tmp_path, corpus):
    ledger = Ledger(tmp_path / "budget", epsilon=5.0)
    load = Loader(corpus[:60])
    party = stored(tmp_path / "a.state", load, token_epsilon=5.0, random_state=None, ledger=ledger)
    message = LocalModel.from_bytes(party.answer(request(4, 3)))
    assert (message.round, party._estimator.n_iter_) == (4, 3)  # one fit, and no refinement
    assert LocalModel.from_bytes(party.answer(request(5, 3))).epsilon == message.epsilon
    assert (party._estimator.n_iter_, load.n_reads, len(ledger.entries())) == (6, 1, 1)


def test_a_party_states_all_that_its_ledger_was_charged(tmp_path, corpus):
    """After a lost file the same tokens are privatized again, and the second fit costs as well."""
    ledger = Ledger(tmp_path / "budget")
    for path in ("a.state", "b.state"):
        party = stored(
            tmp_path / path, Loader(corpus[:60]), token_epsilon=5.0, random_state=None,
            ledger=ledger,
        )  # fmt: skip
        message = LocalModel.from_bytes(party.answer(request()))
    assert message.epsilon == ledger.epsilon_at(message.delta) > 9.9
    send(master := IFTMMaster(N_WORDS), message)
    assert master.released_model().epsilon_ == message.epsilon


def test_a_party_does_not_answer_without_its_lock(tmp_path, corpus, monkeypatch):
    load = Loader(corpus[:60])
    closed = stored(tmp_path / "a.state", load)
    with pytest.raises(BlockingIOError, match="another process uses the state"):
        stored(tmp_path / "a.state", load)
    closed.close()
    with stored(tmp_path / "a.state", load) as party:
        for lost in (closed, party):
            with monkeypatch.context() as patch:
                if lost is party:  # as after a fork
                    patch.setattr(os, "getpid", lambda: -1)
                with pytest.raises(RuntimeError, match="does not hold the lock"):
                    lost.answer(request())
        if os.name == "posix":
            (tmp_path / "a.state.lock").unlink()
            with pytest.raises(OSError, match="was removed or replaced"):
                party.answer(request())
    assert load.n_reads == 0


def test_a_full_disk_is_found_before_anything_is_charged(tmp_path, corpus):
    """However often the party is started; no file grows beyond 64 kB here."""
    resource = pytest.importorskip("resource")
    ledger, path = Ledger(tmp_path / "ledger", epsilon=10.0), tmp_path / "a"
    options = dict(token_epsilon=5.0, ledger=ledger)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, hard))
    try:
        for _ in range(3):
            with (
                stored(path, lambda: corpus, **options) as party,
                pytest.raises(OSError, match=r"/a cannot be written: .* has room for \d+ bytes"),
            ):
                party.answer(request())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert ledger.entries() == []
    with stored(path, lambda: corpus, **options) as party:
        party.answer(request())
        assert path.stat().st_size < party._estimator._state_size(corpus)
    assert len(ledger.entries()) == 1


def test_a_fit_that_is_paid_for_is_kept_where_there_is_room(tmp_path, corpus, monkeypatch):
    """The error says what it cost and where it is; the party goes on from there."""
    path, fit = tmp_path / "disk" / "a", IFTMParty.fit
    path.parent.mkdir()

    def lose_the_disk(self, X):
        fit(self, X)
        shutil.rmtree(path.parent)

    options = dict(token_epsilon=5.0, ledger=Ledger(tmp_path / "ledger", epsilon=6.0))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with monkeypatch.context() as patch, stored(path, lambda: corpus, **options) as party:
        patch.setattr(IFTMParty, "fit", lose_the_disk)
        with pytest.raises(OSError, match="The fit has cost epsilon 5, and its") as found:
            party.answer(request())
    kept = re.search(r"its result is (\S+):", str(found.value))[1]
    path.parent.mkdir()
    shutil.move(kept, path)
    with stored(path, None, **options) as party:
        assert LocalModel.from_bytes(party.answer(request())).epsilon == pytest.approx(5, rel=1e-4)


def test_two_threads_fit_once(tmp_path, corpus):
    load = Loader(corpus[:60])
    with stored(tmp_path / "a.state", load) as party, ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: party.answer(request()), range(8)))
    assert len(set(answers)) == load.n_reads == 1


def test_what_cannot_be_stored_or_fitted_costs_nothing(tmp_path, corpus):
    ledger = Ledger(tmp_path / "ledger", epsilon=10.0)
    load, path = Loader(corpus[:60]), tmp_path / "a.state"
    options = dict(token_epsilon=5.0, random_state=None, ledger=ledger)
    with pytest.raises(OSError, match="cannot be written"):
        stored(tmp_path / "no" / "a.state", load, **options)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="a folder"):
        stored(tmp_path / "folder", load, **options)
    with pytest.raises(ValueError, match="ledger in memory"):
        stored(path, load, **options | {"ledger": Ledger(epsilon=9.0)})
    with pytest.raises(ValueError, match="None or an integer, got RandomState"):
        stored(path, load, **options | {"random_state": check_random_state(0)})
    with pytest.raises(ValueError, match="documents of this vocabulary"):
        stored(path, Loader(corpus[:60, :4]), **options).answer(request())
    with pytest.raises(ValueError, match="sentence boundaries"):
        stored(path, load, model="sentence_lda", **options).check_documents()
    party = stored(path, load, **options)
    assert ledger.entries() == []
    assert party.answer(request())
