"""What the benchmarks of speed share: CPU time, corpora, versions, Markdown tables."""

from __future__ import annotations

import importlib.metadata
import logging
import multiprocessing
import platform
import resource
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from corpora import uci_bow

from dplda.datasets import make_topic_corpus
from dplda.kernels import _sets

ALPHA, BETA = 0.1, 0.01


def cpu_seconds() -> float:
    """CPU time of this process, its threads, and its ended child processes."""
    multiprocessing.active_children()  # collects those that have ended
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def whole_corpus(name: str) -> sp.csr_array:
    """All documents and words of a corpus, int64; "tiny" is synthetic, for tests."""
    if name == "tiny":
        return sp.csr_array(make_topic_corpus(120, 60, 4, random_state=0).data).astype(
            np.int64
        )
    loaded = uci_bow(name)
    return sp.csr_array(loaded.data).astype(np.int64)


def halves(X: sp.csr_array) -> tuple[sp.csr_array, sp.csr_array]:
    """Training documents and a held-out tenth, always the same."""
    order = np.random.default_rng(0).permutation(X.shape[0])
    n_held = X.shape[0] // 10
    return X[order[n_held:]], X[order[:n_held]]


def processor() -> str:
    """Name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(
            line.split(":", 1)[1].strip() for line in lines if "model name" in line
        )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def conditions(
    packages: Iterable[str], threads: int, note: str, sets: Sequence[str] = ()
) -> str:
    """One paragraph: processor, threads, versions, instruction sets."""
    parts = [
        f"{processor()}, {threads} thread{'s' * (threads > 1)}, CPU time",
        *filter(None, [note]),
    ]
    parts.append(f"Python {platform.python_version()}")
    for package in packages:
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            version = f"not installed: pip install {package}"
        parts.append(f"{package} {version}")
    if "tomotopy" in sys.modules:
        parts.append(f"tomotopy uses {sys.modules['tomotopy'].isa}")
    parts.append(
        f"the kernels of dplda use {' or '.join(sets or [_sets.instruction_set()])}"
    )
    return "; ".join(parts) + "."


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def save_plot(path: str, draw: Any) -> None:
    """Call `draw` with the axes of a new figure, and write it to `path`."""
    import matplotlib

    # fonts that are not installed
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5), constrained_layout=True)
    draw(axes)
    figure.savefig(path, dpi=120)
    plt.close(figure)
