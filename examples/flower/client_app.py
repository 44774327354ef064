"""A party: it answers with private topics of its documents, which stay where they are.

Its options come from its own node, never from the coordinator::

    flower-supernode --node-config 'name="north" data="north.npz" folder="/home/north"
        epsilon=8.0 budget=8.0'

The node keeps the fit, which holds no words, until the run ends. A further run fits
again: all of them together cost at most `budget`.
"""

import pickle
from pathlib import Path

import scipy.sparse as sp
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from dplda.federated import IFTMParty, answer_request, vocabulary_hash
from dplda.privacy import Ledger

app = ClientApp()


@app.train()
def train(message, context):
    node, folder = context.node_config, Path(context.node_config["folder"])
    if "party" in context.state:
        party, X = pickle.loads(context.state["party"]["fit"]), None
    else:
        party = IFTMParty(
            node.get("n-components", 20),
            token_epsilon=node["epsilon"],
            ledger=Ledger(folder / "ledger.sqlite", epsilon=node["budget"]),
            random_state=node.get("random-state"),
        )
        X = sp.load_npz(folder / node["data"])
    words = (folder / "words.txt").read_text("utf-8").splitlines()
    answer = answer_request(
        party,
        X,
        message.content["dplda"]["data"],
        party=node["name"],
        vocabulary=vocabulary_hash(words),
    )
    context.state["party"] = ConfigRecord({"fit": pickle.dumps(party)})
    return Message(
        RecordDict({"dplda": ConfigRecord({"data": answer.to_bytes()})}),
        reply_to=message,
    )
