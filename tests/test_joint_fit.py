"""Secure sums over a network: the plan, both sides with TLS, and what happens if one fails."""

import asyncio
import json
import os
import random
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from test_federation import (
    Processes,
    StartedError,
    client_side,
    free_port,
    make_certificates,
    server_side,
    within_seconds,
)

import dplda
from dplda import GibbsLDA, load_release, save_release
from dplda.__main__ import main
from dplda.cli import _federation as _command
from dplda.datasets import load_word_vectors, make_topic_corpus
from dplda.federated import _network
from dplda.federated._joint_fit import Party, Plan, make_sums
from dplda.federated._network import Coordinator, take_part
from dplda.federated._secure_sum import Adder
from dplda.privacy import BudgetError, Ledger, PrivacyLeakWarning

NAMES = ("north", "south", "west")
WORDS = [f"word{i}" for i in range(30)]


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    make_certificates(folder, [*NAMES, "stranger"])
    return folder


@pytest.fixture(autouse=True)
def short_end(monkeypatch):
    """A coordinator waits for a lost party until this time is over."""
    monkeypatch.setattr(_network, "END_SECONDS", 1.0)


@pytest.fixture(scope="module")
def documents():
    X = sp.csr_array(make_topic_corpus(300, 30, 3, random_state=0).data)
    return {name: X[100 * i : 100 * i + 100] for i, name in enumerate(NAMES)}


def plan_of(keys, names=NAMES, **changes):
    fields = dict(
        version=dplda.__version__, fit="a", model="SubLDA", unit="document", colluding=1, lost=0,
        parameters={"n_components": 3, "epsilon": 4.0, "max_iter": 5},
        words=WORDS, parties={name: (keys / f"{name}.pem").read_text() for name in names},
    )  # fmt: skip
    return Plan(**{**fields, **changes})


def party_of(keys, plan, documents, name, **own):
    return Party(plan, name, keys / f"{name}.key", lambda: (documents[name], None), **own)


async def fit(keys, plan, parties, *, timeout=20.0, absent=(), answers=None):
    """Both sides on loopback; returns the coordinator's error or None."""
    names, tls = server_side(keys, *plan.parties)
    network, error = Coordinator(names, plan.max_bytes), None
    async with network.listening("127.0.0.1", 0, tls) as port:
        tasks = [
            asyncio.create_task(
                take_part(
                    f"127.0.0.1:{port}", (answers or {}).get(name, party.answer),
                    max_bytes=plan.max_bytes, tls=client_side(keys, name),
                )
            )
            for name, party in parties.items() if name not in absent
        ]  # fmt: skip
        try:
            await make_sums(network, plan, timeout)
        except ConnectionError as found:
            error = found
            await network.end()
        for task in tasks:
            task.cancel()
    for party in parties.values():
        await asyncio.to_thread(party.end)
    return error


def dying(party, at):
    """Answers of a party that is gone before its answer number `at`, from 0."""
    count = iter(range(10**6))

    def answer(request):
        if next(count) >= at:
            raise MemoryError
        return party.answer(request)

    return answer


def three(keys, plan, documents, **own):
    return {name: party_of(keys, plan, documents, name, **own) for name in NAMES}


@within_seconds
async def test_all_parties_have_one_model(keys, documents, tmp_path, caplog):
    caplog.set_level("INFO", "dplda.federated")
    plan = plan_of(keys)
    parties = {
        name: party_of(keys, plan, documents, name, ledger=tmp_path / name) for name in NAMES
    }
    assert await fit(keys, plan, parties) is None
    one, *others = (party.model for party in parties.values())
    for other in others:
        assert_array_equal(one.components_, other.components_)
    assert 3.99 < one.epsilon_ <= 4.0
    lines = [record.getMessage() for record in caplog.records]
    assert sum("to 3 parties: noise of" in line for line in lines) == 5  # the coordinator
    assert sum("word-topic counts" in line for line in lines) == 15  # each party
    for name in NAMES:
        (entry,) = Ledger(tmp_path / name).entries()
        assert entry.status == "confirmed"


# a table of what goes wrong: docs/federated.md has one row for each test


@within_seconds
async def test_a_party_that_is_absent_ends_the_fit_before_anything_is_charged(
    keys, documents, tmp_path
):
    plan = plan_of(keys, lost=1)
    parties = three(keys, plan, documents, ledger=tmp_path / "ledger")
    error = await fit(keys, plan, parties, timeout=1.0, absent=["west"])
    assert "2 parties are left" in str(error)
    assert {entry.status for entry in Ledger(tmp_path / "ledger").entries()} == {"canceled"}


@pytest.mark.parametrize("at", [4, 7])
@within_seconds
async def test_the_others_go_on_without_a_party_that_dies(keys, documents, at):
    plan = plan_of(keys, lost=1)
    parties = three(keys, plan, documents)
    answers = {"west": dying(parties["west"], at)}
    assert await fit(keys, plan, parties, answers=answers, timeout=2.0) is None
    assert_array_equal(parties["north"].model.components_, parties["south"].model.components_)
    assert not parties["west"].is_fitted


@pytest.mark.parametrize(
    ("lost", "at", "statuses"),
    [(0, 6, {"releasing"}), (1, 2, {"canceled", "releasing"}), (1, 1, {"canceled"})],
)
@within_seconds
async def test_a_death_that_is_not_planned_ends_the_fit_and_stays_charged(
    keys, documents, tmp_path, lost, at, statuses
):
    """Also one in the word totals, which cost more, or in the setup."""
    parameters = {"n_components": 3, "epsilon": 4.0, "max_iter": 40}
    plan = plan_of(keys, lost=lost, parameters=parameters)
    parties = three(keys, plan, documents, ledger=tmp_path / "ledger")
    answers = {"west": dying(parties["west"], at)}
    error = await fit(keys, plan, parties, answers=answers, timeout=1.0)
    assert "too few" in str(error)
    assert not any(party.is_fitted for party in parties.values())
    assert {entry.status for entry in Ledger(tmp_path / "ledger").entries()} == statuses


@within_seconds
async def test_a_party_that_comes_back_as_a_new_process_is_not_in_the_fit(keys, documents):
    """Its keys were in memory only. It says so, and sends and charges nothing."""
    plan = plan_of(keys)
    party = party_of(keys, plan, documents, "north")
    with pytest.raises(ConnectionError, match="has begun without this party"):
        party.answer(b"S" + bytes(800))
    assert party.answer(b"")
    party.end()


@within_seconds
async def test_a_connection_that_breaks_costs_nothing(keys, documents):
    """The same request has the same answer, and no second mask."""
    plan = plan_of(keys)
    parties = three(keys, plan, documents)

    def twice(request):
        first = parties["north"].answer(request)
        assert parties["north"].answer(request) == first
        return first

    assert await fit(keys, plan, parties, answers={"north": twice}) is None
    assert parties["north"].is_fitted


def garbage(party, at, message):
    """Answers of a party that sends `message` in the place of its answer number `at`, from 0."""
    count = iter(range(10**6))

    def answer(request):
        answer = party.answer(request)
        return message(answer) if next(count) == at else answer

    return answer


MALFORMED = [
    lambda answer: b"", lambda answer: answer[:-1], lambda answer: answer + bytes(8),
    lambda answer: os.urandom(len(answer)),
]  # fmt: skip


@pytest.mark.parametrize("message", MALFORMED)
@within_seconds
async def test_a_party_that_sends_garbage_is_lost(keys, documents, message):
    """The others begin the release anew, as if it had died."""
    plan = plan_of(keys, lost=1)
    parties = three(keys, plan, documents)
    answers = {"west": garbage(parties["west"], 5, message)}
    assert await fit(keys, plan, parties, answers=answers) is None
    assert_array_equal(parties["north"].model.components_, parties["south"].model.components_)
    assert not parties["west"].is_fitted


@pytest.mark.parametrize("message", MALFORMED)
@pytest.mark.parametrize("at", [0, 1, 5])
@within_seconds
async def test_garbage_that_is_not_planned_ends_the_fit_and_says_whose_it_is(
    keys, documents, at, message, tmp_path
):
    plan = plan_of(keys)
    parties = three(keys, plan, documents, ledger=tmp_path / "ledger")
    error = await fit(keys, plan, parties, answers={"west": garbage(parties["west"], at, message)})
    found = [error, *(parties[name].error for name in NAMES[:2])]
    assert any("west" in str(one) or "party 3 of the plan" in str(one) for one in found), found
    status = "canceled" if at < 2 else "releasing"
    assert {entry.status for entry in Ledger(tmp_path / "ledger").entries()} == {status}


@within_seconds
async def test_parties_of_another_vocabulary_do_not_meet(keys, documents, tmp_path):
    plan = plan_of(keys)
    parties = three(keys, plan, documents, ledger=tmp_path / "ledger")
    other = plan_of(keys, words=WORDS[::-1])
    parties["west"] = party_of(keys, other, documents, "west", ledger=tmp_path / "west")
    error = await fit(keys, plan, parties)
    assert "what west sent is malformed, or of another plan" in str(error)
    for name in ("ledger", "west"):
        assert {entry.status for entry in Ledger(tmp_path / name).entries()} == {"canceled"}


@within_seconds
async def test_random_words_of_a_party_end_the_fit(keys, documents):
    plan = plan_of(keys)
    parties = three(keys, plan, documents)

    def lie(request):
        answer = parties["west"].answer(request)
        return answer[:32] + os.urandom(len(answer) - 32) if request[:1] == b"S" else answer

    error = await fit(keys, plan, parties, answers={"west": lie})
    assert "too few" in str(error)
    assert "none of counts and noise" in str(parties["north"].error)


@within_seconds
async def test_a_party_that_cannot_pay_ends_the_fit(keys, documents, tmp_path):
    """And costs the others nothing."""
    plan = plan_of(keys)
    parties = three(keys, plan, documents, ledger=tmp_path / "ledger")
    parties["west"] = party_of(
        keys, plan, documents, "west", ledger=Ledger(tmp_path / "small", epsilon=1.0)
    )
    error = await fit(keys, plan, parties, timeout=1.0)
    assert "too few" in str(error)
    assert isinstance(parties["west"].error, BudgetError)
    assert Ledger(tmp_path / "small").entries() == []
    assert {entry.status for entry in Ledger(tmp_path / "ledger").entries()} == {"canceled"}


@within_seconds
async def test_a_coordinator_that_lies_to_one_party_ends_the_fit(keys, documents):
    plan = plan_of(keys)
    parties = three(keys, plan, documents)

    def lied_to(request):
        return parties["south"].answer(
            request[:-1] + bytes([request[-1] ^ 1]) if request[:1] == b"S" else request
        )

    error = await fit(keys, plan, parties, answers={"south": lied_to})
    assert "what south sent is" in str(error)
    assert not any(party.is_fitted for party in parties.values())


@within_seconds
async def test_a_false_loss_is_one_more_attempt_and_no_more_than_planned(
    keys, documents, monkeypatch
):
    plan, reply = plan_of(keys, lost=1), Adder.reply
    parties = three(keys, plan, documents)

    def forget(self, messages):
        if self._n_replies == 5:  # west has answered
            messages = {i: message for i, message in messages.items() if i != 2}
        return reply(self, messages)

    monkeypatch.setattr(Adder, "reply", forget)
    assert await fit(keys, plan, parties, timeout=5.0) is None
    north, south, west = parties.values()
    assert_array_equal(north.model.components_, south.model.components_)
    assert not west.is_fitted
    assert north.model.epsilon_ <= 4.0


@within_seconds
async def test_a_coordinator_that_invents_a_party_gets_nothing(keys, documents):
    """It has no key of a certificate of the plan."""
    plan = plan_of(keys)
    parties = three(keys, plan, documents)
    other = plan_of(keys, (*NAMES[:2], "stranger"))
    invented = party_of(keys, other, {"stranger": documents["west"]}, "stranger")
    error = await fit(keys, plan, parties, answers={"west": invented.answer})
    assert error is not None
    invented.end()
    assert "what west sent is malformed, or of another plan" in str(error)
    forged = Party.__new__(Party)
    forged.plan, forged._key = plan, invented._key  # the right plan, and another's key
    with pytest.raises(ConnectionError, match="'west' are not signed by its certificate"):
        parties["north"]._check(2, forged._prove(bytes(32 + 1184 * plan.kem)))


@within_seconds
async def test_a_coordinator_that_begins_anew_ends_the_fit(keys, documents):
    plan = plan_of(keys)
    party = party_of(keys, plan, documents, "north")
    party.answer(b"")
    with pytest.raises(ConnectionError, match="has ended with an error"):
        party.answer(b"x")
    assert "malformed" in str(party.error)
    party.end()


@within_seconds
async def test_the_others_have_the_model_that_a_party_cannot_write(folder, keys, documents, capsys):
    """Its folder goes during the fit; its ledger says that the fit is paid."""
    assert main(PLAN) == 0
    plan = Plan.read(Path("plan.json"))
    parties = {name: party_of(keys, plan, documents, name) for name in NAMES[:2]}
    Path("gone").mkdir()

    def remove(request):
        if request[:1] == b"S":
            shutil.rmtree("gone", ignore_errors=True)
        return parties["north"].answer(request)

    names, tls = server_side(keys, *plan.parties)
    network = Coordinator(names, plan.max_bytes)
    async with network.listening("127.0.0.1", 0, tls) as port:
        command = asyncio.to_thread(main, [*party_command("west", port), "--out=gone/west.model"])
        tasks = [asyncio.create_task(command)]
        for name, answer in zip(NAMES, (remove, parties["south"].answer)):
            tasks.append(asyncio.create_task(take_part(
                f"127.0.0.1:{port}", answer, max_bytes=plan.max_bytes,
                tls=client_side(keys, name),
            )))  # fmt: skip
        try:
            await make_sums(network, plan, 20.0)
        finally:
            await network.end()
        assert await tasks[0] == 1
    assert "gone/west.model cannot be written" in (error := capsys.readouterr().err)
    assert "the other parties have the same model" in error
    assert parties["north"].is_fitted
    assert parties["south"].is_fitted
    (entry,) = Ledger("west.ledger").entries()
    assert entry.status == "confirmed"


# plans


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": "0.0.1"}, r"for dplda 0\.0\.1, and this is"),
        ({"model": "HDPLDA"}, "another model than"), ({"unit": "word"}, "or unit"),
        ({"words": ["a", "a"]}, "all different"), ({"words": []}, "at least one"),
        ({"colluding": 3}, "colluding must be"), ({"lost": 2}, "lost must be"),
        ({"parameters": {"n_components": 0, "epsilon": 1.0}}, "n_components"),
        ({"parameters": {"n_components": 3, "epsilon": float("inf")}}, "has no noise"),
        ({"parameters": {"n_topics": 3}}, "n_topics"),
        ({"tables": {"random_state": [[0]]}}, "it sets random_state"),
        ({"tables": {"prior_components": [[1.0] * 30] * 2}}, "of shape .3, 30."),
        ({"tables": {"word_vectors": [[1.0]] * 29}}, "a row for each of 30 words"),
        ({"parameters": {"epsilon": 1.0, "random_state": 0}}, "it sets random_state"),
        ({"parties": {}}, "number of parties"), ({"parties": {"a": "x", "b": "y"}}, "PEM"),
        ({"extra": 1}, "extra"),
    ],
)  # fmt: skip
def test_bad_plans(keys, tmp_path, changes, message):
    path, fields = tmp_path / "plan.json", json.loads(plan_of(keys).text())
    path.write_text(json.dumps(fields | changes))
    with pytest.raises(ValueError, match=rf"plan.json is no plan that can be used: .*{message}"):
        Plan.read(path)


def test_a_party_twice_in_the_plan_is_refused(keys):
    pem = (keys / "north.pem").read_text()
    with pytest.raises(ValueError, match="have one certificate"):
        plan_of(keys, parties={"north": pem, "south": pem})


def test_a_plan_has_one_digest(keys, tmp_path):
    plan = plan_of(keys)
    (tmp_path / "plan.json").write_text(plan.text(), "utf-8")
    assert Plan.read(tmp_path / "plan.json") == plan
    others = [plan_of(keys, fit="b"), plan_of(keys, lost=1), plan_of(keys, words=WORDS[::-1])]
    assert len({other.digest for other in (plan, *others)}) == 4


@pytest.mark.parametrize(
    ("name", "key", "X", "message"),
    [
        ("east", "north", None, "is no party of the plan"),
        ("north", "south", None, "is not the key of this party's certificate"),
        ("north", "locked", None, "without a password"),
        ("north", "north", np.ones((2, 3)), "the plan has 30 words"),
    ],
)
def test_a_party_checks_everything_first(keys, documents, name, key, X, message):
    X = documents["north"] if X is None else X
    with pytest.raises(ValueError, match=message):
        Party(plan_of(keys), name, keys / f"{key}.key", lambda: (X, None))


def test_a_plan_for_users_needs_users(keys, documents):
    X = documents["north"]
    for unit, users in (("user", None), ("document", np.arange(100))):
        with pytest.raises(ValueError, match=f"protects one {unit}"):
            Party(plan_of(keys, unit=unit), "north", keys / "north.key", lambda u=users: (X, u))


@pytest.mark.parametrize("name", ["prior_components", "word_vectors"])
@within_seconds
async def test_a_plan_has_the_public_tables_of_the_model(keys, documents, name):
    table = np.cos(np.arange(90.0)).reshape(3, 30) + 2
    plan = plan_of(keys, tables={name: (table if name[0] == "p" else table.T).tolist()})
    parties = three(keys, plan, documents)
    assert await fit(keys, plan, parties) is None
    assert_array_equal(parties["north"].model.components_, parties["west"].model.components_)
    assert f"{name} is public" in str(parties["north"].model.privacy_)
    assert plan.digest != plan_of(keys).digest


# commands


@pytest.fixture
def folder(tmp_path, keys, documents, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_command.log, "handlers", [])
    for path in keys.iterdir():
        Path(path.name).write_bytes(path.read_bytes())
        Path(path.name).chmod(0o600)
    Path("words.txt").write_text("\n".join(WORDS), "utf-8")
    for name, X in documents.items():
        sp.save_npz(f"{name}.npz", X)
    return tmp_path


PLAN = ["federation", "plan", "--vocabulary=words.txt", "--epsilon=4", "--n-components=3",
        "--max-iter=5", *(f"--party={name}={name}.pem" for name in NAMES)]  # fmt: skip


def party_command(name, port):
    return [
        "federation", "party", f"{name}.npz", "--plan=plan.json", f"--name={name}",
        f"--certificate={name}.pem", f"--key={name}.key", f"--coordinator=127.0.0.1:{port}",
        "--coordinator-certificate=ca.pem", f"--ledger={name}.ledger", f"--out={name}.model",
    ]  # fmt: skip


def coordinator_command(port):
    return ["federation", "coordinator", "--plan=plan.json", "--certificate=server.pem",
            "--key=server.key", f"--port={port}", "--round-timeout=20"]  # fmt: skip


def test_commands_check_everything_first(folder, capsys, monkeypatch):
    def start(*_, **__):
        raise StartedError

    monkeypatch.setattr(_network, "take_part", start)
    assert main(PLAN) == 0
    assert Plan.read(folder / "plan.json").digest.hex() in capsys.readouterr().out
    with pytest.raises(StartedError):
        main(party_command("north", 1))
    Ledger("north.ledger", epsilon=9.0)
    with pytest.raises(StartedError):
        main(party_command("north", 1))
    error = capsys.readouterr().err  # however it ends, it says what is spent
    assert "without a model: <Ledger" in error
    assert "epsilon 0 of 9 spent" in error
    assert main([*PLAN, "--colluding=3"]) == 1
    assert main([*PLAN, "--party=north=stranger.pem"]) == 1


def test_a_plan_with_a_public_prior_and_word_vectors(folder, capsys):
    words = ["doctor", "nurse", "goal"]
    Path("words.txt").write_text("\n".join([*words, "xyzzyx"]), "utf-8")
    public = GibbsLDA(2, max_iter=2).fit([[5, 3, 0], [0, 1, 4]])
    for name, known in (("public", words[::-1]), ("wordless", None)):
        with pytest.warns(PrivacyLeakWarning):
            save_release(public, f"{name}.model", vocabulary=known)
    command = [option for option in PLAN if "n-components" not in option]
    assert main([*command, "--prior=public.model", "--word-vectors"]) == 0
    plan = Plan.read(Path("plan.json"))
    assert plan.parameters["n_components"] == 2
    assert_array_equal(
        plan.tables["prior_components"], np.hstack([public.components_[:, ::-1], np.zeros((2, 1))])
    )
    assert_array_equal(plan.tables["word_vectors"], load_word_vectors([*words, "xyzzyx"]))
    assert main([*PLAN, "--prior=public.model"]) == 1  # which has 2 topics, and not 3
    assert "of shape (3, 4)" in capsys.readouterr().err
    assert main([*command, "--prior=wordless.model"]) == 1
    assert "does not say its words" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="stops processes by POSIX signals")
def test_nine_of_ten_processes_survive_the_tenth(tmp_path, monkeypatch):
    """It is killed at a random release; DPLDA_KILLS is how often."""
    monkeypatch.chdir(tmp_path)
    names = [f"party{i}" for i in range(10)]
    make_certificates(tmp_path, names)
    X = sp.csr_array(make_topic_corpus(1000, 300, 5, random_state=0).data)
    Path("words.txt").write_text("\n".join(f"word{i}" for i in range(300)), "utf-8")
    for i, name in enumerate(names):
        sp.save_npz(f"{name}.npz", X[100 * i : 100 * i + 100])
    for number in range(int(os.environ.get("DPLDA_KILLS", "1"))):
        kill_one_of(names, tmp_path, random.Random(number))


def kill_one_of(names, folder, chance):
    at, victim, port = chance.randrange(5, 60), chance.choice(names), free_port()
    plan = [*PLAN[:2], "--vocabulary=words.txt", "--epsilon=4", "--n-components=5", "--lost=1",
            *(f"--party={name}={name}.pem" for name in names)]  # fmt: skip
    for path in [*folder.glob("*.ledger"), *folder.glob("*.log"), *folder.glob("*.model")]:
        path.unlink()
    assert main(plan) == 0
    processes, program = Processes(folder), [sys.executable, "-m", "dplda"]
    try:
        for name in names:
            processes.start(name, *program, *party_command(name, port))
        for name in names:  # ten processes that start together may take minutes to do it
            processes.wait_for(lambda name=name: "trying again" in processes.text(name), 600)
        command = [*coordinator_command(port), "--round-timeout=30"]
        processes.start("coordinator", *program, *command)
        processes.wait_for(lambda: f"reply {at}," in processes.text("coordinator"), 600)
        processes.processes[victim].kill()
        others = [name for name in names if name != victim]
        processes.wait_for_end("coordinator", *others)
    finally:
        processes.end()
    first, *rest = (load_release(folder / f"{name}.model").components_ for name in others)
    for table in rest:
        assert_array_equal(first, table)
    assert "to 9 parties" in processes.text("coordinator")
    print(f"{victim} killed at reply {at}: {len(others)} equal models")
