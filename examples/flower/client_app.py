"""A party: it answers with private topics of its own documents, which stay where they are.

Its options come from its own node, never from the coordinator::

    flower-supernode --node-config 'name="north" data="north.npz" folder="/home/north" epsilon=8.0'
"""

from pathlib import Path

import scipy.sparse as sp
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from dplda.federated import IFTMParty, StoredParty

app = ClientApp()


@app.train()
def train(message, context):
    node, folder = context.node_config, Path(context.node_config["folder"])
    party = IFTMParty(
        node.get("n-components", 20),
        token_epsilon=node["epsilon"],
        ledger=folder / "ledger.sqlite",
        random_state=node.get("random-state"),
    )
    words = (folder / "words.txt").read_text("utf-8").splitlines()
    with StoredParty(
        node["name"],
        party,
        lambda: sp.load_npz(folder / node["data"]),
        vocabulary=words,
        path=folder / "party.state",
    ) as stored:
        data = stored.answer(message.content["dplda"]["data"])
    return Message(RecordDict({"dplda": ConfigRecord({"data": data})}), reply_to=message)
