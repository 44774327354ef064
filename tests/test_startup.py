"""What an import loads. A module that is not loaded takes no time."""

import json
import subprocess
import sys

import pytest

HEAVY = {"numpy", "scipy", "sklearn", "dp_accounting", "absl", "cryptography", "joblib"}
# One process: a step sees what it and the steps before it have loaded.
STEPS = {
    "help": "for command in 'fit plan topics transform ledger federation'.split(): "
    "help([command])",
    "help of a ledger": "help(['ledger', 'show'])",
    "help of a party": "help(['federation', 'party'])",
    "dplda": "import dplda",
    "dplda.published": "import dplda.published",
    "dplda.federated": "import dplda.federated",
    "dplda.privacy": "import dplda.privacy",
    "an empty ledger": "dplda.privacy.Ledger(epsilon=2.0)",
    "an event": "dplda.privacy.Repeated(dplda.privacy.Gaussian(2.0), 3)",
    "mechanisms": "from dplda.privacy.mechanisms import Curator",
    "estimators": "from dplda import *",
    "a party": "from dplda.federated import *",
}
MAY_LOAD = {
    "dplda.privacy": {"numpy"},
    "an empty ledger": {"numpy"},
    "an event": {"numpy"},
}
ESTIMATORS = {"numpy", "scipy", "sklearn", "cryptography", "joblib"}
CODE = """
import contextlib, io, json, sys
from dplda.__main__ import main

def help(words):
    output = io.StringIO()
    with contextlib.redirect_stdout(output) as text, contextlib.suppress(SystemExit):
        main([*words, "--help"])
    assert "usage: dplda " + words[0] in text.getvalue()

loaded = {}
for name, step in json.loads(sys.argv[1]).items():
    exec(step)
    loaded[name] = sorted({module.split(".")[0] for module in sys.modules})
print(json.dumps(loaded))
"""


@pytest.fixture(scope="module")
def loaded():
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", CODE, json.dumps(STEPS)],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(run.stdout)


@pytest.mark.parametrize("step", STEPS)
def test_accountants_and_scipy_are_loaded_where_they_are_used(loaded, step):
    late = step in ("mechanisms", "estimators", "a party")
    assert HEAVY & {*loaded[step]} <= (
        ESTIMATORS if late else MAY_LOAD.get(step, set())
    )
