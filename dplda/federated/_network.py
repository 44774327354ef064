"""The rounds of a federation over a network, whichever way the messages travel."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from dplda.federated._master import IFTMMaster, RoundError
from dplda.federated._messages import LocalModel

log = logging.getLogger("dplda.federated")

MAX_FAILED_ROUNDS = 3
POLL_SECONDS = 1.0
MAX_REASON = 200  # characters of a reason that are kept

Address = TypeVar("Address", int, str)


@dataclass(frozen=True)
class Request:
    """The coordinator's request to a party: the arguments of `StoredParty.answer`.

    Attributes
    ----------
    round : int
        Round to answer.
    vocabulary : str
        The master's `vocabulary_hash`.
    model : bytes
        `NextModel` to start from; empty if there is none.
    """

    round: int
    vocabulary: str
    model: bytes


@dataclass(frozen=True)
class Failure:
    """A party's reply without a model: the name of an error's class.

    Attributes
    ----------
    reason : str
        Name of the class.
    """

    reason: str


Answer: TypeAlias = bytes | Failure


class Network(Protocol[Address]):
    """What carries requests and answers.

    Attributes
    ----------
    expected : collection of str
        Names of the parties that can join; empty if others can, too.
    """

    @property
    def expected(self) -> Collection[str]: ...

    def parties(self) -> dict[Address, str]:
        """Addresses of the connected parties, with their names; empty names are unknown."""
        ...

    def ask(self, requests: Mapping[Address, Request], timeout: float) -> dict[Address, Answer]:
        """Send each request, and return the answers that came within `timeout` seconds."""
        ...


class Answering(Protocol):
    """A `StoredParty`, or anything that answers like one."""

    def answer(self, round_number: int, vocabulary: str, next_model: bytes) -> bytes: ...


def answer(party: Answering, request: Request) -> Answer:
    """A party's answer to a request.

    The text of an error may quote documents. It stays in the party's own log.
    """
    try:
        return party.answer(request.round, request.vocabulary, request.model)
    except Exception as error:
        log.exception("this party does not take part in the round")
        return Failure(type(error).__name__)


def make_rounds(
    network: Network[Address],
    master: IFTMMaster,
    n_rounds: int,
    *,
    round_timeout: float = 600.0,
    poll: float = POLL_SECONDS,
    after_round: Callable[[], None] = lambda: None,
) -> None:
    """Make rounds with the parties that are connected.

    Parameters
    ----------
    network : Network
        Carries the messages.
    master : IFTMMaster
        Changed in place.
    n_rounds : int
        Number of rounds.
    round_timeout : float, default=600.0
        Seconds to wait for enough parties, and then for their answers.
    poll : float, default=1.0
        Seconds between two queries of the connected parties.
    after_round : callable
        Called after each round, for instance to store it.

    Raises
    ------
    RoundError
        If three attempts at a round failed, or too few parties connected.
    """
    names: dict[Address, str] = {}
    end, n_failed = master.round_ + n_rounds, 0
    while master.round_ < end:
        connected = _wait_for_parties(network, master.min_parties, round_timeout, poll)
        names = {at: name or names.get(at, "") for at, name in connected.items()}
        requests = {at: _request(master, names[at]) for at in sorted(names)}
        answers = network.ask(requests, round_timeout)
        for at in requests.keys() - answers.keys():
            log.warning("party %r has not answered", names[at] or at)
        try:
            master.update(_models(master, answers, connected, names))
        except RoundError as error:
            n_failed += 1
            if n_failed == MAX_FAILED_ROUNDS:
                raise
            log.warning("%s", error)
        else:
            n_failed = 0
            after_round()
            log.info("round %d of %d is complete", master.round_, end)
        for refusal in master.refused_:
            log.warning("refused: %r: %s", refusal.party, refusal.reason)


def _request(master: IFTMMaster, name: str) -> Request:
    next_model = master.next_models_.get(name)
    model = b"" if next_model is None else next_model.to_bytes()
    return Request(master.round_, master.vocabulary_hash, model)


def _wait_for_parties(
    network: Network[Address], n_needed: int, timeout: float, poll: float
) -> dict[Address, str]:
    deadline = time.monotonic() + timeout
    while True:
        connected: dict[Address, str] = network.parties()
        if len(connected) >= n_needed:
            return connected
        if time.monotonic() > deadline:
            text = f"{len(connected)} of at least {n_needed} parties came within {timeout:g} s"
            absent = sorted({*network.expected} - {*connected.values()})
            raise RoundError(f"{text}; {', '.join(absent)} did not" if absent else text)
        time.sleep(poll)


def _models(
    master: IFTMMaster,
    answers: Mapping[Address, Answer],
    connected: Mapping[Address, str],
    names: dict[Address, str],
) -> list[bytes]:
    """The models in the answers, each in the party's own name; `names` learns unknown names."""
    models: dict[Address, bytes] = {}
    for at, data in answers.items():
        if isinstance(data, Failure):
            log.warning("party %r sent no model: %r", names[at] or at, data.reason[:MAX_REASON])
            continue
        try:
            party = LocalModel.from_bytes(data, max_bytes=master.max_bytes).party
        except Exception as error:  # the answer may be anything
            log.warning("party %r sent no valid model: %s", names[at] or at, error)
            continue
        if party != (connected[at] or party):
            log.warning("party %r sent a model in another name", connected[at])
            continue
        names[at], models[at] = party, data
    return [models[at] for at in sorted(models)]
