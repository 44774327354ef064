"""Secure sums over a network: the plan, both sides with TLS, and failures."""

import asyncio
import dataclasses
import itertools
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from http import HTTPStatus
from http.client import HTTPSConnection
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from sklearn.pipeline import make_pipeline
from test_federation import (
    SECONDS,
    Processes,
    client_side,
    free_port,
    make_certificates,
    server_side,
    within_seconds,
)

import dplda
from dplda import GibbsLDA, load_release, save_release
from dplda.__main__ import main
from dplda.datasets import (
    load_public_vocabulary,
    load_word_vectors,
    make_topic_corpus,
)
from dplda.document import _training
from dplda.federated import _coordinator, _line
from dplda.federated._coordinator import Coordinator, Progress
from dplda.federated._joint_party import Party
from dplda.federated._line import Line
from dplda.federated._plan import Plan
from dplda.federated._secure_sum import Adder, SecureSum
from dplda.privacy import BudgetError, Ledger, PrivacyLeakWarning
from dplda.text import _choice

NAMES = ("north", "south", "west")
WORDS = [f"word{i}" for i in range(30)]


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    make_certificates(folder, [*NAMES, "stranger"])
    return folder


@pytest.fixture(scope="module")
def documents():
    X = sp.csr_array(make_topic_corpus(300, 30, 3, random_state=0).data)
    return {name: X[100 * i : 100 * i + 100] for i, name in enumerate(NAMES)}


def plan_of(keys, names=NAMES, **changes):
    fields = dict(
        version=dplda.__version__,
        fit="a",
        model="SubLDA",
        unit="document",
        colluding=1,
        lost=0,
        parameters={"n_components": 3, "epsilon": 4.0, "max_iter": 5},
        words=WORDS,
        parties={name: (keys / f"{name}.pem").read_text() for name in names},
    )
    return Plan(**{**fields, **changes})


def party_of(keys, plan, documents, name, **own):
    return Party(plan, name, keys / f"{name}.key", (documents[name], None), **own)


class KnownLine(Line):
    """A line that tells where it leads."""

    def __init__(self, address, *rest, **options):
        super().__init__(address, *rest, **options)
        self.address = address


async def fit(
    keys, plan, parties, *, timeout=20.0, absent=(), changed=None, begun=lambda: True
):
    """Both sides on loopback; returns the coordinator's error or None, and parties'.

    ``changed[name](exchange)`` is the exchange of a party in the place of its own. The
    coordinator's first round begins as soon as ``begun()``.
    """
    certificates, tls = server_side(keys, *plan.parties)
    adder = Adder(plan.terms(), [*plan.parties])
    network = Coordinator(adder, certificates, plan.max_bytes, timeout)

    def run(name, party):
        tls = client_side(keys, name)
        line = KnownLine(f"127.0.0.1:{port}", plan.max_bytes, tls, timeout=SECONDS)
        line.exchange = (changed or {}).get(name, lambda exchange: exchange)(
            line.exchange
        )
        if getattr(line.exchange, "is_silent", False):
            line.leave = lambda word: None
        try:
            party.fit(line)
        except ConnectionError as error:
            return error.__cause__
        return None

    error = None
    async with network.listening("127.0.0.1", 0, tls) as port:
        present = {name: party for name, party in parties.items() if name not in absent}
        calls = [
            asyncio.create_task(asyncio.to_thread(run, *pair))
            for pair in present.items()
        ]
        while not begun():
            await asyncio.sleep(0.01)
        try:
            await network.add_up()
        except ConnectionError as found:
            error = found
        return error, dict(zip(present, await asyncio.gather(*calls)))


def dying(at):
    """A party gone before its message number `at`, from 0, without a last word."""

    def change(exchange):
        count = itertools.count()

        def die(message):
            if next(count) >= at:
                raise MemoryError
            return exchange(message)

        die.is_silent = True
        return die

    return change


def sending(at, message):
    """A party that sends ``message(own)`` as its own message number `at`, from 0."""

    def change(exchange):
        count = itertools.count()
        return lambda own: exchange(message(own) if next(count) == at else own)

    return change


def three(keys, plan, documents, **own):
    return {name: party_of(keys, plan, documents, name, **own) for name in NAMES}


# replies before it: two of the setup, two of word totals, the share of further ones
FIRST_ROUND = 5


def n_rounds(party):
    """Rounds of the model that a party ends with; 0 without one."""
    return getattr(party.model, "n_iter_", 0)


def assert_without(party, others):
    """The others have one model, and a party has none, or one of fewer rounds."""
    first, *more = (other.model.components_ for other in others)
    for other in more:
        assert_array_equal(first, other)
    assert n_rounds(party) < others[0].model.n_iter_


@within_seconds
async def test_all_parties_have_one_model(keys, documents, tmp_path, caplog):
    caplog.set_level("INFO", "dplda.federated")
    plan = plan_of(keys)
    parties = {
        name: party_of(keys, plan, documents, name, ledger=tmp_path / name)
        for name in NAMES
    }
    assert await fit(keys, plan, parties) == (None, dict.fromkeys(NAMES))
    one, *others = (party.model for party in parties.values())
    for other in others:
        assert_array_equal(one.components_, other.components_)
    assert 3.99 < one.epsilon_ <= 4.0
    lines = [record.getMessage() for record in caplog.records]
    # 5 rounds of each party
    assert sum("word-topic counts" in line for line in lines) == 15
    assert sum("noise of" in line for line in lines) == 15
    for name in NAMES:
        (entry,) = Ledger(tmp_path / name).entries()
        assert entry.status == "released"


# a table of what goes wrong: docs/federated.md has one row for each test


@within_seconds
async def test_a_party_that_is_absent_ends_the_fit_before_anything_is_charged(
    keys, documents, tmp_path, monkeypatch
):
    """The time to answer begins when both others were heard: load changes nothing."""
    monkeypatch.setattr(_coordinator, "WAIT_SECONDS", 0.05)
    heard, getresponse = set(), HTTPSConnection.getresponse

    def told(self):
        response = getresponse(self)
        if response.status == HTTPStatus.NO_CONTENT:  # heard, and not the last
            heard.add(threading.get_ident())
        return response

    monkeypatch.setattr(HTTPSConnection, "getresponse", told)
    plan = plan_of(keys, lost=1)
    parties = three(keys, plan, documents, ledger=tmp_path / "ledger")
    error, _ = await fit(
        keys,
        plan,
        parties,
        timeout=0.5,
        absent=["west"],
        begun=lambda: len(heard) == 2,
    )
    assert "2 parties are left" in str(error)
    assert {entry.status for entry in Ledger(tmp_path / "ledger").entries()} == {
        "canceled"
    }


@pytest.mark.parametrize("at", [4, 5, 8])
@within_seconds
async def test_the_others_go_on_without_a_party_that_dies(keys, documents, at):
    plan = plan_of(keys, lost=1)
    parties = three(keys, plan, documents)
    error, _ = await fit(keys, plan, parties, changed={"west": dying(at)}, timeout=3.0)
    assert error is None
    assert_without(parties["west"], [parties["north"], parties["south"]])


@pytest.mark.parametrize(
    ("lost", "at", "statuses"),
    [(0, 6, {"released"}), (1, 2, {"released"}), (1, 1, {"canceled"})],
)
@within_seconds
async def test_a_death_that_is_not_planned_ends_the_fit_and_stays_charged(
    keys, documents, tmp_path, lost, at, statuses
):
    """Also one in the word totals, which cost more, or in the setup."""
    parameters = {"n_components": 3, "epsilon": 4.0, "max_iter": 40}
    plan = plan_of(keys, lost=lost, parameters=parameters)
    parties = three(keys, plan, documents, ledger=tmp_path / "ledger")
    error, _ = await fit(keys, plan, parties, changed={"west": dying(at)}, timeout=3.0)
    assert "too few" in str(error)
    # each keeps what it has paid for: the rounds before
    n_paid = max(0, at - FIRST_ROUND)
    assert [n_rounds(party) for party in parties.values()] == [n_paid] * 3
    models = [party.model for party in parties.values() if n_paid]
    for model in models:
        assert_array_equal(model.components_, models[0].components_)
        assert 3.9 < model.epsilon_ <= 4.0
        assert ("rounds", f"{n_paid} of 40, then an interrupt; all are charged") in (
            model.privacy_.provenance
        )
    assert {entry.status for entry in Ledger(tmp_path / "ledger").entries()} == statuses


@within_seconds
async def test_a_party_that_comes_back_as_a_new_process_is_not_in_the_fit(
    keys, documents, monkeypatch
):
    """Its keys were in memory only. It sends and charges nothing."""
    monkeypatch.setattr(_coordinator, "GRACE_SECONDS", 0.1)
    plan, begun = plan_of(keys), []
    parties = three(keys, plan, documents)
    again = party_of(keys, plan, documents, "north", ledger=Ledger())

    def restart(exchange):
        count = itertools.count()

        def begin_anew(message):
            if next(count) == 4:
                line = Line(
                    exchange.__self__.address,
                    plan.max_bytes,
                    client_side(keys, "north"),
                    timeout=SECONDS,
                )
                with pytest.raises(ConnectionError, match="goes on without this party"):
                    again.fit(line)
                begun.append(again)
            return exchange(message)

        return begin_anew

    error, _ = await fit(keys, plan, parties, changed={"north": restart})
    assert (error, begun) == (None, [again])
    assert {entry.status for entry in again.model.ledger.entries()} == {"canceled"}


@within_seconds
async def test_a_connection_that_breaks_costs_nothing(keys, documents, monkeypatch):
    """The same message is sent again, and there is no second mask."""
    monkeypatch.setattr(_line, "RETRY_SECONDS", 0.01)
    plan, count, broken = plan_of(keys), itertools.count(), set()
    request, getresponse = HTTPSConnection.request, HTTPSConnection.getresponse
    parties = three(keys, plan, documents)

    def asked(self, method, *rest):
        self.number = -1 if method == "DELETE" else next(count) % 5
        if self.number == 1:
            broken.add("before")
            raise ConnectionResetError
        request(self, method, *rest)

    def answered(self):
        answer = getresponse(self)
        if self.number == 3:
            broken.add("after it was heard")
            raise ConnectionResetError
        return answer

    monkeypatch.setattr(HTTPSConnection, "request", asked)
    monkeypatch.setattr(HTTPSConnection, "getresponse", answered)
    error, _ = await fit(keys, plan, parties, timeout=5.0)
    assert error is None
    assert broken == {"before", "after it was heard"}
    assert hasattr(parties["north"].model, "components_")


MALFORMED = [
    lambda message: b"",
    lambda message: message[:-1],
    lambda message: message + bytes(8),
    lambda message: os.urandom(len(message)),
]


@pytest.mark.parametrize("message", MALFORMED)
@within_seconds
async def test_a_party_that_sends_garbage_is_lost(keys, documents, message):
    """The others begin the release anew, as if it had died."""
    plan = plan_of(keys, lost=1)
    parties = three(keys, plan, documents)
    error, _ = await fit(keys, plan, parties, changed={"west": sending(5, message)})
    assert error is None
    assert_without(parties["west"], [parties["north"], parties["south"]])


@pytest.mark.parametrize("message", MALFORMED)
@pytest.mark.parametrize("at", [0, 1, 5])
@within_seconds
async def test_garbage_that_is_not_planned_ends_the_fit_and_says_whose_it_is(
    keys, documents, at, message, tmp_path
):
    plan = plan_of(keys)
    parties = three(keys, plan, documents, ledger=tmp_path / "ledger")
    error, errors = await fit(
        keys, plan, parties, changed={"west": sending(at, message)}
    )
    found = [error, *(errors[name] for name in NAMES[:2])]
    assert any(
        "west" in str(one) or "party 3 of the plan" in str(one) for one in found
    ), found
    status = "canceled" if at < 2 else "released"
    assert {entry.status for entry in Ledger(tmp_path / "ledger").entries()} == {status}


@within_seconds
async def test_parties_of_another_vocabulary_do_not_meet(keys, documents, tmp_path):
    plan = plan_of(keys)
    parties = three(keys, plan, documents, ledger=tmp_path / "ledger")
    other = plan_of(keys, words=WORDS[::-1])
    parties["west"] = party_of(keys, other, documents, "west", ledger=tmp_path / "west")
    error, _ = await fit(keys, plan, parties)
    assert "what west sent is malformed, or of another plan" in str(error)
    for name in ("ledger", "west"):
        assert {entry.status for entry in Ledger(tmp_path / name).entries()} == {
            "canceled"
        }


@within_seconds
async def test_random_words_of_a_party_end_the_fit(keys, documents):
    plan = plan_of(keys)
    lie = sending(5, lambda message: message[:32] + os.urandom(len(message) - 32))
    error, errors = await fit(
        keys, plan, three(keys, plan, documents), changed={"west": lie}
    )
    assert "too few" in str(error)
    assert "not a sum of counts and noise" in str(errors["north"])


@within_seconds
async def test_a_party_that_cannot_pay_ends_the_fit(keys, documents, tmp_path):
    """And costs the others nothing. Only the name of its error leaves it."""
    plan = plan_of(keys)
    parties = three(keys, plan, documents, ledger=tmp_path / "ledger")
    parties["west"] = party_of(
        keys, plan, documents, "west", ledger=Ledger(tmp_path / "small", epsilon=1.0)
    )
    error, errors = await fit(keys, plan, parties)
    assert str(error).endswith("too few; west has ended: b'BudgetError'")
    assert isinstance(errors["west"], BudgetError)
    assert Ledger(tmp_path / "small").entries() == []
    assert {entry.status for entry in Ledger(tmp_path / "ledger").entries()} == {
        "canceled"
    }


@within_seconds
async def test_a_coordinator_that_lies_to_one_party_ends_the_fit(keys, documents):
    plan = plan_of(keys)
    parties = three(keys, plan, documents)

    def lied_to(exchange):
        def change(message):
            reply = exchange(message)
            return reply[:-1] + bytes([reply[-1] ^ 1]) if reply[:1] == b"S" else reply

        return change

    error, _ = await fit(keys, plan, parties, changed={"south": lied_to})
    assert "what south sent is" in str(error)
    assert not any(hasattr(party.model, "components_") for party in parties.values())


@within_seconds
async def test_a_false_loss_is_one_more_attempt_and_no_more_than_planned(
    keys, documents, monkeypatch
):
    plan, reply, count = plan_of(keys, lost=1), Adder.reply, itertools.count()
    parties = three(keys, plan, documents)

    def forget(self, messages):
        if next(count) == 5:  # west has answered
            messages = {i: message for i, message in messages.items() if i != 2}
        return reply(self, messages)

    monkeypatch.setattr(Adder, "reply", forget)
    error, _ = await fit(keys, plan, parties)
    assert error is None
    assert_without(parties["west"], [parties["north"], parties["south"]])
    assert parties["north"].model.epsilon_ <= 4.0


@within_seconds
async def test_a_coordinator_that_invents_a_party_gets_nothing(keys, documents):
    """It has no key of a certificate of the plan."""
    plan = plan_of(keys)
    parties = three(keys, plan, documents)
    data = documents["west"], None
    invented = Party(plan, "west", keys / "stranger.key", data)  # another's key
    error, errors = await fit(keys, plan, parties | {"west": invented})
    assert "1 parties are left" in str(error) or "0 parties" in str(error)
    assert "'west' are not signed by its certificate" in str(errors["north"])


@within_seconds
async def test_the_others_have_the_model_that_a_party_cannot_write(
    folder, keys, documents, capsys, monkeypatch
):
    """Its folder goes during the fit; its ledger says that the fit is paid."""
    assert main(PLAN) == 0
    plan, add_up = Plan.read(Path("plan.json")), SecureSum.add_up
    parties = three(keys, plan, documents)
    Path("gone").mkdir()

    def remove(self, *args):
        shutil.rmtree("gone", ignore_errors=True)
        return add_up(self, *args)

    class Command:
        """In the place of a party: the command."""

        def fit(self, line):
            out = "--out=gone/west.model"
            assert main([*party_command("west", line.address.split(":")[1]), out]) == 1

    monkeypatch.setattr(SecureSum, "add_up", remove)
    assert await fit(keys, plan, parties | {"west": Command()}) == (
        None,
        dict.fromkeys(NAMES),
    )
    assert "gone/west.model cannot be written" in (error := capsys.readouterr().err)
    assert "the other parties have the same model" in error
    assert_array_equal(
        parties["north"].model.components_, parties["south"].model.components_
    )
    (entry,) = Ledger("west.ledger").entries()
    assert entry.status == "released"


# plans


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": "0.0.1"}, r"for dplda 0\.0\.1, and this is"),
        ({"model": "HDPLDA"}, "another model than"),
        ({"unit": "word"}, "or unit"),
        ({"words": ["a", "a"]}, "all different"),
        ({"words": []}, "at least one"),
        ({"colluding": 3}, "colluding must be"),
        ({"lost": 2}, "lost must be"),
        ({"parameters": {"n_components": 0, "epsilon": 1.0}}, "n_components"),
        ({"parameters": {"n_components": 3, "epsilon": float("inf")}}, "has no noise"),
        ({"parameters": {"n_topics": 3}}, "n_topics"),
        ({"tables": {"random_state": [[0]]}}, "it sets random_state"),
        ({"tables": {"prior_components": [[1.0] * 30] * 2}}, "of shape .3, 30."),
        ({"tables": {"word_vectors": [[1.0]] * 29}}, "a row for each of 30 words"),
        ({"parameters": {"epsilon": 1.0, "random_state": 0}}, "it sets random_state"),
        ({"parties": {}}, "number of parties"),
        ({"parties": {"a": "x", "b": "y"}}, "PEM"),
        ({"extra": 1}, "extra"),
    ],
)
def test_bad_plans(keys, tmp_path, changes, message):
    path, fields = tmp_path / "plan.json", json.loads(plan_of(keys).text())
    path.write_text(json.dumps(fields | changes))
    with pytest.raises(
        ValueError, match=rf"plan.json is not a usable plan: .*{message}"
    ):
        Plan.read(path)


def test_a_party_twice_in_the_plan_is_refused(keys):
    pem = (keys / "north.pem").read_text()
    with pytest.raises(ValueError, match="have one certificate"):
        plan_of(keys, parties={"north": pem, "south": pem})


def test_a_plan_has_one_digest(keys, tmp_path):
    plan = plan_of(keys)
    (tmp_path / "plan.json").write_text(plan.text(), "utf-8")
    assert Plan.read(tmp_path / "plan.json") == plan
    others = [
        plan_of(keys, fit="b"),
        plan_of(keys, lost=1),
        plan_of(keys, words=WORDS[::-1]),
    ]
    assert len({other.digest for other in (plan, *others)}) == 4


@pytest.mark.parametrize("changes", [{}, {"n_words": 5}], ids=str)
def test_a_party_without_documents_begins_nothing(keys, changes):
    data = ([] if changes else sp.csr_array((0, 30))), None
    with pytest.raises(ValueError, match="party 'north' has no documents"):
        Party(plan_of(keys, **changes), "north", keys / "north.key", data)


def test_a_plan_for_users_needs_users(keys, documents):
    X = documents["north"]
    for unit, users in (("user", None), ("document", np.arange(100))):
        with pytest.raises(ValueError, match=f"protects one {unit}"):
            Party(plan_of(keys, unit=unit), "north", keys / "north.key", (X, users))


@pytest.mark.parametrize("name", ["prior_components", "word_vectors"])
@within_seconds
async def test_a_plan_has_the_public_tables_of_the_model(keys, documents, name):
    table = np.cos(np.arange(90.0)).reshape(3, 30) + 2
    plan = plan_of(keys, tables={name: (table if name[0] == "p" else table.T).tolist()})
    parties = three(keys, plan, documents)
    assert await fit(keys, plan, parties) == (None, dict.fromkeys(NAMES))
    assert_array_equal(
        parties["north"].model.components_, parties["west"].model.components_
    )
    assert f"{name} is public" in str(parties["north"].model.privacy_)
    assert plan.digest != plan_of(keys).digest


# commands


@pytest.fixture
def folder(tmp_path, keys, documents, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in keys.iterdir():
        Path(path.name).write_bytes(path.read_bytes())
        Path(path.name).chmod(0o600)
    text = "\n".join(WORDS)
    files = {
        "words.txt": text,
        "blank_end": f"{text}\n\n",
        "separator": f"{text}\u2028x\n",
        "twice": f"{text}\n{WORDS[0]}",
        "empty.csv": "text\n",
        "other/north.pem": Path("south.pem").read_text(),
    }
    Path("other").mkdir()
    for name, content in files.items():
        Path(name).write_text(content, "utf-8")
    north = documents["north"]
    other = [("narrow", north[:, :4]), ("empty", north[:0])]
    for name, X in [*documents.items(), *other]:
        sp.save_npz(f"{name}.npz", X)
    return tmp_path


PLAN = [
    "federation",
    "plan",
    "--vocabulary=words.txt",
    "--unit=document",
    "--epsilon=4",
    "--n-components=3",
    "--max-iter=5",
    "--parties",
    *(f"{name}.pem" for name in NAMES),
]


def test_a_plan_takes_few_rounds_and_says_what_they_cost(folder, capsys):
    few = [option for option in PLAN if "max-iter" not in option]
    printed = []
    for command, n_rounds in ((few, 40), ([*few, "--max-iter=80"], 80)):
        assert main(command) == 0
        plan = Plan.read(folder / "plan.json")
        assert len(plan.estimator()._budget(plan.terms().shares).rounds) == n_rounds
        printed.append(capsys.readouterr().out)
        assert f"{n_rounds} rounds" in printed[-1]
        (folder / "plan.json").unlink()
    assert "1% more" in printed[0]
    assert "1% more" not in printed[1]


def party_command(name, port, texts=None):
    return [
        "federation",
        "party",
        texts or f"{name}.npz",
        "--plan=plan.json",
        f"--certificate={name}.pem",
        f"--key={name}.key",
        f"--coordinator=127.0.0.1:{port}",
        "--coordinator-certificate=ca.pem",
        f"--ledger={name}.ledger",
        "--budget=9",
        f"--out={name}.model",
    ]


def coordinator_command(port):
    return [
        "federation",
        "coordinator",
        "--plan=plan.json",
        "--certificate=server.pem",
        "--key=server.key",
        f"--port={port}",
        "--round-timeout=20",
        "--start-timeout=600",
    ]


@pytest.fixture
def unsent(folder, monkeypatch, capsys):
    """A folder with a plan; nothing is sent, and each reply is wrong."""
    monkeypatch.setattr(_line.Line, "exchange", lambda *_: b"no reply")
    monkeypatch.setattr(_line.Line, "leave", lambda *_: None)
    monkeypatch.setattr(_coordinator.Coordinator, "listening", pytest.fail)
    assert main(PLAN) == 0
    assert Plan.read(folder / "plan.json").digest.hex() in capsys.readouterr().out
    return folder


@pytest.mark.parametrize(
    ("command", "option", "value", "text"),
    [
        ("plan", "vocabulary", "blank_end", "a line is blank"),
        ("plan", "vocabulary", "separator", "a line"),
        ("plan", "vocabulary", "twice", "different"),
        ("plan", "parties=north.pem", "other/north.pem", "have the same name"),
        ("plan", "parties=north.pem", "words.txt", "PEM"),
        ("plan", "out", "missing/p", "missing/p"),
        ("plan", "colluding", "3", "colluding must be"),
        ("coordinator", "round-timeout", "nan", "--round-timeout"),
        ("coordinator", "port", "70000", "--port"),
        ("coordinator", "key", "words.txt", "words.txt holds no key"),
        ("coordinator", "certificate", "missing.pem", "missing.pem"),
        ("coordinator", "plan", "words.txt", "words.txt is not a usable plan"),
        ("party", "", "missing.npz", "missing.npz"),
        ("party", "", "narrow.npz", "30 words"),
        ("party", "", "empty.npz", "party 'north' has no documents"),
        ("party", "", "empty.csv", "empty.csv"),
        ("party", "key", "missing.key", "missing.key"),
        ("party", "key", "words.txt", "words.txt holds no key"),
        ("party", "key", "locked.key", "without a password"),
        ("party", "certificate", "words.txt", "words.txt holds no certificate"),
        ("party", "coordinator-certificate", "missing.pem", "missing.pem"),
        ("party", "ledger", "missing/ledger", "missing/ledger"),
        ("party", "ledger", "words.txt", "words.txt is not a"),
        ("party", "certificate", "stranger.pem", "is not a certificate of the plan"),
        ("party", "key", "south.key", "south.key holds no key of the certificate"),
        ("party", "plan", "words.txt", "words.txt is not a usable plan"),
        ("party", "out", "missing/x", "missing/x cannot be written"),
        (
            "party",
            "out",
            "words.txt",
            "words.txt exists, and its result may have been paid",
        ),
    ],
)
def test_everything_is_checked_first(unsent, capsys, command, option, value, text):
    arguments = {
        "plan": PLAN,
        "coordinator": coordinator_command(0),
        "party": party_command("north", 1, None if option else value),
    }[command]
    changed = [*f"--{option}".split("="), value] if option else []
    assert main([*arguments, *changed]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert text in error
    assert not (unsent / "north.ledger").exists()


@pytest.mark.skipif(os.name != "posix", reason="Windows has access lists")
@pytest.mark.parametrize(
    ("command", "key"),
    [(party_command("north", 1), "north.key"), (coordinator_command(0), "server.key")],
)
def test_a_key_that_others_can_read_starts_nothing(unsent, capsys, command, key):
    (unsent / key).chmod(0o640)
    assert main(command) == 1
    assert f"the private key {key} is open to other users" in capsys.readouterr().err
    assert not (unsent / "north.ledger").exists()


def test_a_party_reads_tables_of_texts_and_says_how_it_ends(unsent, capsys):
    pd.DataFrame({"note": ["word1 word2. word3 word0!"] * 9}).to_csv("notes.csv")
    Ledger("north.ledger", epsilon=9.0)
    assert main([*party_command("north", 1, "notes.csv"), "--text-column=note"]) == 1
    error = capsys.readouterr().err
    assert "malformed" in error
    assert "without a model: <Ledger" in error
    assert "epsilon 0 of 9 spent" in error


def test_a_plan_with_a_public_prior_and_word_vectors(folder, capsys):
    words = ["doctor", "nurse", "goal"]
    Path("words.txt").write_text("\n".join([*words, "xyzzyx"]), "utf-8")
    public = GibbsLDA(2, max_iter=2).fit([[5, 3, 0], [0, 1, 4]])
    for name, known in (("public", words[::-1]), ("wordless", None)):
        with pytest.warns(PrivacyLeakWarning):
            save_release(public, f"{name}.model", vocabulary=known)
    command = [*PLAN, "--n-components=2"]
    assert main([*command, "--prior=public.model", "--word-vectors"]) == 0
    plan = Plan.read(Path("plan.json"))
    assert_array_equal(
        plan.tables["prior_components"],
        np.hstack([public.components_[:, ::-1], np.zeros((2, 1))]),
    )
    assert_array_equal(
        plan.tables["word_vectors"], load_word_vectors([*words, "xyzzyx"])
    )
    assert main([*PLAN, "--prior=public.model"]) == 1  # which has 2 topics, and not 3
    assert "of shape (3, 4)" in capsys.readouterr().err
    assert main([*command, "--prior=wordless.model"]) == 1
    assert "does not say its words" in capsys.readouterr().err


# what is private, what is spent, and who says so


def test_a_private_key_beside_a_certificate_stays_in_its_file(folder, capsys):
    """Some servers keep both in one file."""
    certificate, key = (Path(f"north.{kind}").read_text() for kind in ("pem", "key"))
    for text in (certificate + key, key + certificate):
        Path("north.pem").write_text(text)
        Path("plan.json").unlink(missing_ok=True)
        assert main(PLAN) == 0
        plan = Path("plan.json").read_text()
        assert "PRIVATE KEY" not in plan
        assert json.loads(plan)["parties"]["north"] == certificate


def test_a_plan_that_holds_more_than_certificates_is_refused(keys, tmp_path):
    fields = json.loads(plan_of(keys).text())
    fields["parties"]["north"] += (keys / "north.key").read_text()
    (tmp_path / "plan.json").write_text(json.dumps(fields))
    with pytest.raises(ValueError, match="'north' is more than one certificate"):
        Plan.read(tmp_path / "plan.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parameters": {"epsilon": 4.0, "max_iter": 10**6}}, "'max_iter' parameter"),
        ({"kem": 1}, "kem must be true or false"),
        ({"version": "\x1b[31m9"}, r"for dplda \?\[31m9"),
        ({"n_words": 31}, "n_words of a plan"),
        ({"n_words": 5, "tables": {"word_vectors": [[1.0]] * 30}}, "not chosen yet"),
        ({"n_words": 5, "parameters": {"noise_multiplier": 1.0}}, "need epsilon"),
    ],
)
def test_absurd_plans(keys, tmp_path, changes, message):
    path, fields = tmp_path / "plan.json", json.loads(plan_of(keys).text())
    path.write_text(json.dumps(fields | changes))
    with pytest.raises(ValueError, match=message):
        Plan.read(path)


def test_a_plan_is_shown_with_its_price_and_who_pays(folder, capsys):
    assert main([*PLAN, "--lost=1", "--delta=1e-5"]) == 0
    written = capsys.readouterr().out
    assert main(["federation", "show", "plan.json"]) == 0
    shown = capsys.readouterr().out
    assert written.startswith(shown)
    for text in (
        "one document",
        "at delta 1e-05",
        "1 of 3 parties: 1 may collude, and 1 may drop out",
        "1.22 times if none may drop out",  # two shares of three pay
        "west, whose certificate is valid until",
        Plan.read(Path("plan.json")).digest.hex(),
    ):
        assert text in shown
    # one share of three pays, and a second attempt
    noise = float(shown.split(" times the noise")[0].split()[-1])
    assert math.sqrt(3) < noise < 2 * math.sqrt(3)
    cost = float(shown.split("epsilon ")[1].split()[0])
    assert 3.99 < cost <= 4.0


def test_a_plan_without_ml_kem_says_what_that_means(keys, tmp_path, capsys):
    plan = plan_of(keys, kem=False)
    (tmp_path / "plan.json").write_text(plan.text())
    assert main(["federation", "show", str(tmp_path / "plan.json")]) == 0
    assert "X25519 alone: anyone who records the messages" in capsys.readouterr().out


def test_expired_certificates_make_no_plan_and_start_nothing(folder, capsys):
    expired = [*PLAN[:-1], "expired_north.pem"]
    assert main(expired) == 1
    assert "'expired_north' is valid from" in capsys.readouterr().err
    assert not Path("plan.json").exists()


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--budget=3", "--budget 3 does not pay for the plan, which costs 4 at"),
        ("--budget=nan", "--budget must be"),
        ("--delta=1e-9", "does not pay for the plan"),
        ("", "is a new ledger: give --budget"),
        ("--coordinator=localhost", "must be HOST:PORT"),
        ("--start-timeout=nan", "--start-timeout"),
    ],
)
def test_a_party_spends_what_its_own_command_line_allows(unsent, capsys, option, text):
    command = party_command("north", 1)
    given = next(word for word in command if word.startswith("--budget"))
    command[command.index(given)] = "--budget=4"
    command = (
        [*command, option] if option else [w for w in command if "budget" not in w]
    )
    assert main(command) == 1
    assert text in capsys.readouterr().err
    assert not Path("north.ledger").exists()


def test_a_ledger_without_a_limit_lets_nobody_spend(unsent, capsys):
    Ledger("north.ledger")
    command = [word for word in party_command("north", 1) if "budget" not in word]
    assert main(command) == 1
    assert "has no limit" in capsys.readouterr().err
    assert Ledger("north.ledger").entries() == []


@pytest.mark.parametrize("answer", ["n", "y"])
def test_a_terminal_is_asked_before_anything_is_spent(
    unsent, capsys, monkeypatch, answer
):
    asked = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or answer)
    assert main(party_command("north", 1)) == 1
    assert len(asked) == 1
    assert asked[0].startswith("Spend epsilon 4 of each document")
    said = capsys.readouterr()
    assert ("Nothing was charged" in said.out) == (answer == "n")
    assert Path("north.ledger").exists() == (answer == "y")
    assert main([*party_command("north", 1), "--yes"]) == 1
    assert len(asked) == 1


def test_a_damaged_file_of_counts_is_refused(unsent, capsys):
    whole = Path("north.npz").read_bytes()
    for damaged in (whole[:100], b"PK" + bytes(90), whole[:-30]):
        Path("damaged.npz").write_bytes(damaged)
        assert main(party_command("north", 1, "damaged.npz")) == 1
        assert "damaged.npz does not hold sparse counts" in capsys.readouterr().err


# words that the parties choose together

TEXTS = ["the heart is healthy", "a fracture of the left arm", "fever and cough"] * 60
CANDIDATES = [
    "heart",
    "healthy",
    "fracture",
    "left",
    "arm",
    "fever",
    "cough",
    "knee",
    "thumb",
    "liver",
]


@within_seconds
async def test_parties_choose_words_and_topics_from_one_budget(keys, tmp_path):
    plan = plan_of(
        keys,
        words=CANDIDATES,
        n_words=7,
        english_vectors=True,
        parameters={"n_components": 2, "epsilon": 8.0, "max_iter": 5},
    )
    parties = {}
    for i, name in enumerate(NAMES):
        data = TEXTS[i::3] * 3, None
        ledger = Ledger(tmp_path / name, epsilon=8.0)
        key = keys / f"{name}.key"
        parties[name] = Party(plan, name, key, data, ledger=ledger)
    assert await fit(keys, plan, parties) == (None, dict.fromkeys(NAMES))
    one, *others = parties.values()
    assert [*one.words.vocabulary_] == sorted(CANDIDATES[:7])
    for other in others:
        assert other.words.vocabulary_ == one.words.vocabulary_
        assert_array_equal(other.model.components_, one.model.components_)
    guarantee = dplda.pipeline_guarantee(make_pipeline(one.words, one.model))
    assert 7.9 < guarantee.epsilon <= 8.0
    assert plan.epsilon() == pytest.approx(guarantee.epsilon, rel=1e-9)
    (entry,) = Ledger(tmp_path / "north").entries()
    assert entry.status == "released"
    assert Ledger(tmp_path / "north").epsilon_spent == pytest.approx(
        guarantee.epsilon, rel=1e-9
    )
    assert "each the sum over 3 parties" in guarantee.mechanism
    assert "threshold" not in str(guarantee)  # no other word can be chosen


@within_seconds
async def test_chosen_words_without_vectors_do_not_end_a_fit_that_is_paid(keys):
    """The vectors of the candidates were checked before the charge."""
    words = ["zzqheart", "zzqleft", "zzqarm", "knee"]
    texts = [f"{word} zzqarm" for word in words[:2]] * 90
    plan = plan_of(
        keys,
        words=words,
        n_words=3,
        english_vectors=True,
        parameters={"n_components": 2, "epsilon": 20.0, "max_iter": 3},
    )
    parties = {
        name: Party(plan, name, keys / f"{name}.key", (texts, None)) for name in NAMES
    }
    assert await fit(keys, plan, parties) == (None, dict.fromkeys(NAMES))
    one = parties[NAMES[0]]
    assert [*one.words.vocabulary_] == sorted(words[:3])
    assert one.model.word_vectors is None
    assert "word vectors" not in dict(one.model.privacy_.provenance)


@within_seconds
async def test_words_that_processors_rank_differently_are_the_same_for_all(
    keys, monkeypatch
):
    """The last bits of the ranking differ: most parties decide, in integers."""
    plan = plan_of(
        keys,
        words=CANDIDATES,
        n_words=4,
        parameters={"n_components": 2, "epsilon": 8.0, "max_iter": 3},
    )
    rank = _choice.best_terms
    calls = itertools.count()

    def ranked(*args):
        best = rank(*args)
        return np.roll(np.arange(10), next(calls))[: len(best)]

    monkeypatch.setattr(_choice, "best_terms", ranked)
    parties = {
        name: Party(plan, name, keys / f"{name}.key", (TEXTS, None)) for name in NAMES
    }
    assert await fit(keys, plan, parties) == (None, dict.fromkeys(NAMES))
    one, *others = parties.values()
    for other in others:
        assert other.words.vocabulary_ == one.words.vocabulary_


@within_seconds
async def test_a_schedule_that_processors_compute_differently_is_the_same_for_all(
    keys, documents, monkeypatch
):
    """On two sides of a step, masks would not cancel, and all would have paid."""
    plan = plan_of(keys, parameters={"n_components": 3, "epsilon": 4.0, "max_iter": 10})
    with_rounds, calls = _training.with_rounds_for_totals, itertools.count()

    def differing(*args):
        table = with_rounds(*args)
        share = 0.5 + (next(calls) - 1) * 1e-7
        return dataclasses.replace(table, share_for_totals=share)

    monkeypatch.setattr(_training, "with_rounds_for_totals", differing)
    parties = three(keys, plan, documents)
    assert await fit(keys, plan, parties) == (None, dict.fromkeys(NAMES))
    one, *others = (party.model for party in parties.values())
    for other in others:
        assert_array_equal(one.components_, other.components_)


def test_a_plan_of_words_that_are_chosen(folder, capsys):
    """Candidates are a public list: of a language, or of a file."""
    Path("words.txt").write_text("\n".join(CANDIDATES))
    command = [word for word in PLAN if not word.startswith("--vocabulary")]
    assert main([*command, "--candidates=words.txt", "--max-features=4"]) == 0
    assert "4 words, chosen together from 10" in capsys.readouterr().out
    assert main([*command, "--language=en", "--out=en.json"]) == 0
    plan = Plan.read(Path("en.json"))
    assert (plan.n_words, plan.english_vectors) == (2000, True)
    assert plan.words == load_public_vocabulary(None)
    assert main(party_command("north", 1)) == 1  # which gives counts
    assert "give texts" in capsys.readouterr().err


def test_progress_of_a_coordinator_is_read_back_and_nothing_else_is(keys, tmp_path):
    plan, path = plan_of(keys), tmp_path / "plan.json.state"
    assert Progress.read(path, plan).number == 0
    progress = Progress(plan.digest.hex(), 3, (0, 2), ("a", "", "c"), bytes(range(256)))
    progress.write(path)
    assert Progress.read(path, plan) == progress
    with pytest.raises(ValueError, match="the progress of another plan"):
        Progress.read(path, plan_of(keys, fit="b"))
    dataclasses.replace(progress, reply=b"").write(path)
    with pytest.raises(ValueError, match="has ended with a model"):
        Progress.read(path, plan)
    fields = json.loads(path.read_text())
    for changes in ({"present": [7]}, {"number": -1}, {"reply": "?"}, {"plan": None}):
        path.write_text(json.dumps(fields | {"reply": "eA=="} | changes))
        with pytest.raises(ValueError, match="progress of a"):
            Progress.read(path, plan)
    path.write_text("{}")
    with pytest.raises(ValueError, match="not the progress of a coordinator"):
        Progress.read(path, plan)


# processes that are killed

KILLED = """
import os, signal, sys
from dplda.__main__ import main
from dplda.federated._coordinator import Progress
from dplda.federated._line import Line

at, when = int(os.environ["KILL_AT"]), os.environ["KILL_WHEN"]
number = getattr(signal, os.environ["KILL_BY"])
write, exchange, leave = Progress.write, Line.exchange, Line.leave
begin = Line.__init__


def written(self, path):
    if self.number == at and when == "before":
        os.kill(os.getpid(), number)
    write(self, path)
    if self.number == at and when == "after":
        os.kill(os.getpid(), number)


def exchanged(self, message):
    if self._number == at:
        os.kill(os.getpid(), number)
    return exchange(self, message)


def left(self, word):
    if self._number == at:
        os.kill(os.getpid(), number)
    leave(self, word)


def begun(self, *args, **options):
    begin(self, *args, **options)
    self._process = os.environ.get("PROCESS", self._process)


Progress.write, Line.exchange, Line.leave = written, exchanged, left
Line.__init__ = begun
sys.exit(main(sys.argv[1:]))
"""
MOMENTS = range(1, 26)  # replies of keys, word totals, and 20 rounds
SLOW = pytest.mark.slow


def at_each_reply(*often):
    """Each reply: a few in each run of .ci/run, the others each night."""
    marks = [pytest.mark.ci if at in often else SLOW for at in MOMENTS]
    cases = [pytest.param(at, marks=mark) for at, mark in zip(MOMENTS, marks)]
    return pytest.mark.parametrize("at", cases)


@pytest.fixture
def processes(folder):
    (folder / "killed.py").write_text(KILLED)
    assert main([*PLAN, "--max-iter=20"]) == 0
    running = Processes(folder)
    yield running
    running.end()


def start(processes, name, command, *, at=None, by="SIGKILL", when="after"):
    program = [sys.executable, "-m", "dplda"]
    if at is not None:
        processes.environment |= {"KILL_AT": str(at), "KILL_BY": by, "KILL_WHEN": when}
        program = [sys.executable, "killed.py"]
    return processes.start(name, *program, *command)


@pytest.mark.skipif(os.name != "posix", reason="stops processes by POSIX signals")
@at_each_reply(2, 6, 25)
def test_a_coordinator_that_is_killed_at_a_reply_goes_on(processes, at):
    """Before or after the reply is on the disk, by SIGKILL or SIGTERM."""
    port = free_port()
    by = "SIGTERM" if at % 3 == 0 else "SIGKILL"
    when = "before" if at % 2 else "after"
    coordinator = start(
        processes, "coordinator", coordinator_command(port), at=at, by=by, when=when
    )
    for name in NAMES:
        start(processes, name, party_command(name, port))
    processes.wait_for(lambda: coordinator.poll() is not None)
    assert coordinator.returncode != 0
    start(processes, "coordinator", coordinator_command(port))
    processes.wait_for_end("coordinator", *NAMES)
    first, *others = (load_release(f"{name}.model") for name in NAMES)
    for other in others:
        assert_array_equal(first.components_, other.components_)
    assert first.n_iter_ == 20
    for name in NAMES:
        (entry,) = Ledger(f"{name}.ledger").entries()
        assert entry.status == "released"


@pytest.mark.skipif(os.name != "posix", reason="stops processes by POSIX signals")
@at_each_reply(6)
def test_a_party_that_is_ended_at_a_reply_keeps_what_it_has_paid_for(processes, at):
    """And so do the others; started again, it spends nothing more."""
    port = free_port()
    victim = start(
        processes, "north", party_command("north", port), at=at, by="SIGTERM"
    )
    start(processes, "coordinator", coordinator_command(port))
    for name in NAMES[1:]:
        start(processes, name, party_command(name, port))
    processes.wait_for(lambda: victim.poll() is not None)
    again = [*party_command("north", port), "--start-timeout=1"]
    start(processes, "north", again)
    for process in processes.processes.values():
        processes.wait_for(lambda process=process: process.poll() is not None)
    n_rounds = max(0, at - FIRST_ROUND)
    is_charged = at >= 2
    for name in NAMES:
        if n_rounds:
            assert load_release(f"{name}.model").n_iter_ == n_rounds
        entries = Ledger(f"{name}.ledger").entries()
        assert sum(entry.counts for entry in entries) == is_charged


class Killed:
    """In the place of a party: a process that is killed; the coordinator is told."""

    def __init__(self, at, texts=None):
        self.at, self.texts = at, texts
        Path("killed.py").write_text(KILLED)

    def fit(self, line):
        port = line.address.split(":")[1]
        self.command = party_command("north", port, self.texts)
        killed = {"KILL_AT": str(self.at), "KILL_BY": "SIGKILL", "KILL_WHEN": ""}
        ended = subprocess.run(
            [sys.executable, "killed.py", *self.command],
            env={**os.environ, **killed, "PROCESS": line._process},
            capture_output=True,
            timeout=2 * SECONDS,
        )
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        line._number = self.at
        line.leave("killed")


@pytest.mark.skipif(os.name != "posix", reason="stops processes by POSIX signals")
@at_each_reply(7)
@within_seconds
async def test_a_party_that_is_killed_has_the_model_of_the_rounds_so_far(
    folder, keys, documents, at
):
    """Nothing runs in a process that is killed. Started again, it spends no more."""
    assert main([*PLAN, "--max-iter=20"]) == 0
    plan, north = Plan.read(Path("plan.json")), Killed(at)
    parties = three(keys, plan, documents) | {"north": north}
    error, _ = await fit(keys, plan, parties, timeout=2 * SECONDS)
    rounds = max(0, at - FIRST_ROUND)
    assert (error is None) == (rounds == 20)
    assert n_rounds(parties["south"]) == rounds
    assert Path("north.model").exists() == (rounds > 0)
    if rounds:
        model = load_release("north.model")
        assert model.n_iter_ == rounds
        done = f"{rounds} of 20, then an interrupt; all are charged"
        assert (("rounds", done) in model.privacy_.provenance) == (rounds < 20)
        assert main(north.command) == 1
    (entry,) = Ledger("north.ledger").entries()
    assert entry.status == ("released" if at >= 2 else "reserved")


@pytest.mark.skipif(os.name != "posix", reason="stops processes by POSIX signals")
@pytest.mark.parametrize("at", [5, *(pytest.param(at, marks=SLOW) for at in (3, 8))])
@within_seconds
async def test_a_party_that_is_killed_has_the_words_that_were_chosen(folder, keys, at):
    """Before the first round it has them alone, and then with the model."""
    Path("words.txt").write_text("\n".join(CANDIDATES))
    command = [word for word in PLAN if not word.startswith("--vocabulary")]
    assert main([*command, "--candidates=words.txt", "--max-features=7"]) == 0
    plan = Plan.read(Path("plan.json"))
    pd.DataFrame({"text": TEXTS}).to_csv("notes.csv")
    parties = {
        name: Party(plan, name, keys / f"{name}.key", (TEXTS, None)) for name in NAMES
    }
    parties["north"] = Killed(at, "notes.csv")
    await fit(keys, plan, parties, timeout=2 * SECONDS)
    words = [*parties["south"].words.vocabulary_]
    if at == 5:
        assert Path("north.model.words").read_text().split() == words
    assert Path("north.model.words").exists() == (at == 5)
    if at == 8:
        assert load_release("north.model").vocabulary_.tolist() == words


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
    # a fit of 40 rounds has more than 40 replies
    at, victim, port = chance.randrange(5, 40), chance.choice(names), free_port()
    plan = [
        *PLAN[:5],
        "--n-components=5",
        "--lost=1",
        "--parties",
        *(f"{n}.pem" for n in names),
    ]
    for path in [
        *folder.glob("*.ledger"),
        *folder.glob("*.log"),
        *folder.glob("*.model"),
    ]:
        path.unlink()
    assert main(plan) == 0
    processes, program = Processes(folder), [sys.executable, "-m", "dplda"]
    try:
        for name in names:
            processes.start(name, *program, *party_command(name, port))
        # ten processes that start together may take minutes to do it
        for name in names:
            processes.wait_for(
                lambda name=name: "trying again" in processes.text(name), 600
            )
        command = [*coordinator_command(port), "--round-timeout=30"]
        processes.start("coordinator", *program, *command)
        processes.wait_for(lambda: f"reply {at}," in processes.text("coordinator"), 600)
        processes.processes[victim].kill()
        others = [name for name in names if name != victim]
        processes.wait_for_end("coordinator", *others)
    finally:
        processes.end()
    first, *rest = (
        load_release(folder / f"{name}.model").components_ for name in others
    )
    for table in rest:
        assert_array_equal(first, table)
    assert "to 9 parties" in processes.text("coordinator")
    print(f"{victim} killed at reply {at}: {len(others)} equal models")
