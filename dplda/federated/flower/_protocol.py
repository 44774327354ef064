"""The protocol of coordinator and party: rounds of messages, inside Flower's messages."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from dplda.federated._master import IFTMMaster, RoundError
from dplda.federated._messages import LocalModel, MessageError
from dplda.federated._rounds import StoredParty
from dplda.federated.flower._tasks import error_reply

log = logging.getLogger("dplda.federated")

TRAIN = "train"
CONTENT = "dplda"
MAX_FAILED_ROUNDS = 3
POLL_SECONDS = 1.0


def round_request(master: IFTMMaster, node_id: int, party: str, seconds: float) -> Any:
    """The coordinator's request to a node: round, vocabulary, and start model."""
    from flwr.app import ConfigRecord, Message, RecordDict

    next_model = master.next_models_.get(party)
    record = ConfigRecord({
        "round": master.round_,
        "vocabulary": master.vocabulary_hash,
        "model": b"" if next_model is None else next_model.to_bytes(),
    })  # fmt: skip
    return Message(
        RecordDict({CONTENT: record}), node_id, TRAIN, group_id=str(master.round_), ttl=seconds
    )


def reply_to(message: Any, party: StoredParty) -> Any:
    """A party's reply to any message: its model, or the class of the error that occurred.

    The text of an error may quote documents. It stays in the party's own log.
    """
    from flwr.app import ConfigRecord, Message, RecordDict

    try:
        if message.metadata.message_type != TRAIN or not message.has_content():
            raise MessageError("not a message of this protocol")
        record = message.content[CONTENT]
        answer = party.answer(record["round"], record["vocabulary"], record["model"])
    except Exception as error:
        log.exception("this party does not take part in the round")
        return error_reply(message, type(error).__name__)
    return Message(RecordDict({CONTENT: ConfigRecord({"model": answer})}), reply_to=message)


def make_rounds(
    grid: Any,
    master: IFTMMaster,
    n_rounds: int,
    *,
    round_timeout: float = 600.0,
    keys: dict[bytes, str] | None = None,
    poll: float = POLL_SECONDS,
    after_round: Callable[[], None] = lambda: None,
) -> None:
    """Make rounds with the parties that are connected.

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
    keys : dict of bytes to str or None, default=None
        Names of the parties by their public keys. Nodes with other keys get no message. None
        accepts the name that a party states.
    poll : float, default=1.0
        Seconds between two queries of the connected parties.
    after_round : callable
        Called after each round, for instance to store it.

    Raises
    ------
    RoundError
        If three attempts at a round failed, or too few parties connected.
    """
    names: dict[int, str] = {}
    end, n_failed = master.round_ + n_rounds, 0
    while master.round_ < end:
        nodes = _wait_for_nodes(grid, master.min_parties, keys, round_timeout, poll)
        names = {node: name or names.get(node, "") for node, name in nodes.items()}
        messages = [
            round_request(master, node, names[node], round_timeout) for node in sorted(nodes)
        ]
        replies = grid.send_and_receive(messages, timeout=round_timeout)
        answers = _answers(master, replies, nodes, names)
        try:
            master.update(answers)
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


def _wait_for_nodes(
    grid: Any, n_needed: int, keys: dict[bytes, str] | None, timeout: float, poll: float
) -> dict[int, str]:
    """The connected nodes, with the names that their keys prove; empty names without keys."""
    deadline = time.monotonic() + timeout
    while True:
        if keys is None:
            nodes = {int(node): "" for node in grid.get_node_ids()}
        else:
            known = [n for n in grid.get_nodes() if n.public_key in keys and n.status == "online"]
            nodes = {int(node.node_id): keys[node.public_key] for node in known}
        if len(nodes) >= n_needed:
            return nodes
        if time.monotonic() > deadline:
            text = f"{len(nodes)} of at least {n_needed} parties came within {timeout:g} s"
            absent = sorted({*keys.values()} - {*nodes.values()}) if keys else []
            raise RoundError(f"{text}; {', '.join(absent)} did not" if absent else text)
        time.sleep(poll)


def _answers(
    master: IFTMMaster, replies: Any, nodes: dict[int, str], names: dict[int, str]
) -> list[bytes]:
    """The models in the replies: at most one per node, and only in the party's own name."""
    answers: dict[int, bytes] = {}
    for reply in replies:
        node = int(reply.metadata.src_node_id)
        if reply.has_error():
            reason = str(reply.error.reason)[:200]
            log.warning("party %r sent no model: %r", names.get(node) or node, reason)
            continue
        try:
            data = reply.content[CONTENT]["model"]
            party = LocalModel.from_bytes(data, max_bytes=master.max_bytes).party
        except Exception as error:  # the reply may hold anything
            log.warning("party %r sent no valid model: %s", names.get(node) or node, error)
            continue
        if party != (nodes.get(node) or party):
            log.warning("party %r sent a model in another name", nodes[node])
            continue
        names[node], answers[node] = party, data
    return [answers[node] for node in sorted(answers)]
