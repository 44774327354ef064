"""The rounds of a federation inside an app of Flower, by Flower's public interface.

A `Grid` takes the place of the coordinator's port, and a message of Flower that of an HTTPS call.
Flower ships the code of an app to the parties: whoever may start runs decides what a party's
process does with its documents. ``dplda federation`` ships no code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dplda.federated import _network
from dplda.federated._master import IFTMMaster
from dplda.federated._network import Answer, Answering, Failure, Request

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.serverapp import Grid

__all__ = ["make_rounds", "reply_to"]

TRAIN = "train"
CONTENT = "dplda"


def make_rounds(
    grid: Grid,
    master: IFTMMaster,
    n_rounds: int,
    *,
    round_timeout: float = 600.0,
    after_round: Callable[[], None] = lambda: None,
) -> None:
    """Make rounds with the connected nodes: the main function of a `ServerApp`.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Flower's side of the coordinator.
    master : IFTMMaster
        Changed in place.
    n_rounds : int
        Number of rounds.
    round_timeout : float, default=600.0
        Seconds to wait for enough parties, and then for their answers.
    after_round : callable
        Called after each round, for instance to store `master.state()`.

    Raises
    ------
    RoundError
        If three attempts at a round failed, or too few parties connected.
    """
    _network.make_rounds(
        _GridNetwork(grid), master, n_rounds, round_timeout=round_timeout, after_round=after_round
    )


def reply_to(message: Message, party: Answering) -> Message:
    """A party's reply to a message: the train function of a `ClientApp`.

    Parameters
    ----------
    message : flwr.app.Message
        Message of the server app.
    party : StoredParty
        Answers it.

    Returns
    -------
    reply : flwr.app.Message
        The party's model, or the name of an error's class. The text of an error may quote
        documents, and stays in the party's own log.
    """
    from flwr.app import ConfigRecord, Message, RecordDict

    answer = _answer(message, party)
    if isinstance(answer, Failure):
        record = ConfigRecord({"failure": answer.reason})
    else:
        record = ConfigRecord({"model": answer})
    return Message(RecordDict({CONTENT: record}), reply_to=message)


def _answer(message: Message, party: Answering) -> Answer:
    try:
        record: Any = message.content[CONTENT]
        request = Request(record["round"], record["vocabulary"], record["model"])
    except Exception as error:  # a message may hold anything
        return Failure(type(error).__name__)
    return _network.answer(party, request)


class _GridNetwork:
    """A grid of Flower as a `Network`: addresses are numbers of nodes, and names are unknown."""

    expected = ()

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def parties(self) -> dict[int, str]:
        return {int(node): "" for node in self.grid.get_node_ids()}

    def ask(self, requests: Mapping[int, Request], timeout: float) -> dict[int, Answer]:
        messages = [_message(node, request, timeout) for node, request in requests.items()]
        replies = self.grid.send_and_receive(messages, timeout=timeout)
        answers = {int(reply.metadata.src_node_id): _read(reply) for reply in replies}
        return {node: answers[node] for node in requests.keys() & answers.keys()}


def _message(node: int, request: Request, seconds: float) -> Message:
    from flwr.app import ConfigRecord, Message, RecordDict

    record = ConfigRecord({
        "round": request.round, "vocabulary": request.vocabulary, "model": request.model,
    })  # fmt: skip
    return Message(
        RecordDict({CONTENT: record}), node, TRAIN, group_id=str(request.round), ttl=seconds
    )


def _read(reply: Message) -> Answer:
    if reply.has_error():
        return Failure(str(reply.error.reason))
    try:
        record: Any = reply.content[CONTENT]
        return record["model"] if "model" in record else Failure(str(record["failure"]))
    except Exception as error:  # a reply may hold anything
        return Failure(type(error).__name__)
