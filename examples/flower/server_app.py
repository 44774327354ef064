"""The coordinator: it moves the messages of an `IFTMMaster`, and sees no document."""

import time
from pathlib import Path

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp

from dplda import save_release
from dplda.federated import IFTMMaster, LocalModel, MessageError

app = ServerApp()


@app.main()
def main(grid, context):
    config = context.run_config
    words = Path(config["vocabulary"]).read_text("utf-8").splitlines()
    master = IFTMMaster(words, min_parties=config["min-parties"])
    names = {}  # of the nodes that have answered
    while master.round_ < config["rounds"]:
        while len(nodes := [*grid.get_node_ids()]) < config["min-parties"]:
            time.sleep(1.0)
        messages = [
            Message(
                RecordDict(
                    {
                        "dplda": ConfigRecord(
                            {"data": master.request(names.get(node, "")).to_bytes()}
                        )
                    }
                ),
                node,
                "train",
            )
            for node in nodes
        ]
        answers = {}
        for reply in grid.send_and_receive(messages, timeout=config["round-timeout"]):
            if reply.has_error():
                continue  # the party's own log says why
            data = reply.content["dplda"]["data"]
            try:
                name = LocalModel.from_bytes(data, max_bytes=master.max_bytes).party
            except MessageError as error:
                print("refused:", error)
                continue
            node = reply.metadata.src_node_id
            if name in {other for at, other in names.items() if at != node}:
                print("refused: another node has answered as", name)
                continue
            names[node], answers[name] = name, data
        master.update(answers)
        save_release(master.released_model(), config["out"])
