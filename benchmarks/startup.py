"""What importing takes, in CPU time and memory: ``python benchmarks/startup.py``.

Each import runs in a process of its own, in turns with the others. Times are medians of the CPU
time of the whole process, the interpreter included.
"""

import argparse
import os
import subprocess
import sys
from statistics import median

CHARGE = """
from dplda.privacy import Gaussian, Ledger
Ledger(epsilon=1.0).reserve("sum", "document", Gaussian(9.0))
"""
STATEMENTS = {
    "nothing": "pass",
    "numpy": "import numpy",
    "scikit-learn's LDA": "from sklearn.decomposition import LatentDirichletAllocation",
    "dplda.SubLDA": "from dplda import SubLDA",
    "dplda.privacy": "import dplda.privacy",
    "dplda.federated": "import dplda.federated",
    "a federation's party": "from dplda.federated import IFTMParty",
    "dplda --help": "import dplda.__main__; dplda.__main__.main(['--help'])",
    "dplda fit --help": "import dplda.__main__; dplda.__main__.main(['fit', '--help'])",
    "a first charge": CHARGE,
}  # fmt: skip


def cost(statement):
    """CPU seconds and megabytes of a process that runs one statement."""
    with subprocess.Popen([sys.executable, "-c", statement], stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = status
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    costs = {name: [] for name in STATEMENTS}
    for _ in range(options.repeats):
        for name, statement in STATEMENTS.items():
            costs[name].append(cost(statement))
    print(f"{'':24}{'CPU s':>8}{'MB':>8}")
    for name, measured in costs.items():
        seconds, megabytes = (median(values) for values in zip(*measured))
        print(f"{name:24}{seconds:8.2f}{megabytes:8.0f}")


if __name__ == "__main__":
    main()
