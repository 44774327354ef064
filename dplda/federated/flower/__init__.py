"""Flower as the engine of a federation: ``dplda federation coordinator`` and ``... party``.

A thin adapter, for Flower 1.41. Messages travel inside Flower's messages. Everything that reads a
document runs in the party's own process, with the dplda that the party installed and the options
that the party gave. Flower lets a coordinator ship code to the parties. Here neither side runs code
from the network: each side asks its own local Flower process for tasks and answers them.

* ``_command.py``: the options of the two commands, and the processes that they start
* ``_protocol.py``: the messages between coordinator and party
* ``_tasks.py``: the only file that uses non-public parts of Flower
"""

import os

# Flower reads these when it is imported.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
