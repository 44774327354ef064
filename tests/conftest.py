"""Fixtures that several test modules use."""

import contextlib
import ctypes
import os
import platform
import sqlite3
import sys
from functools import partial

# pytest uses all processors: threads of linear algebra in each of its processes would
# only wait
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import faults
import numpy as np
import pytest
from hypothesis import settings

from dplda.kernels import _sets, _team

if fault := os.environ.get("DPLDA_FAULT"):  # before the tests import what it patches
    faults.FAULTS[fault].plant(pytest.MonkeyPatch())

# no deadline: a busy machine is not a failure
settings.register_profile("dplda", deadline=None)
settings.load_profile("dplda")


def dplda_modules():
    return [m for name, m in [*sys.modules.items()] if name.startswith("dplda.")]


@pytest.fixture(autouse=True)
def fresh_process():
    """What a process is told once, each test is told: their order changes nothing."""

    def forget():
        for module in dplda_modules():
            for name, function in vars(module).items():
                if "warn" in name and hasattr(function, "cache_clear"):
                    function.cache_clear()

    forget()
    return forget


@pytest.fixture
def charged():
    """Makes curators whose charges have begun, until the end of the test."""
    from dplda.privacy.mechanisms import Charge, Curator, Streams

    def curator(plan, streams=None, *, kind=Curator, **options):
        if streams is None:
            streams = Streams.from_random_state(0)
        charge = Charge(plan, label="test", unit="document", **options)
        charges.enter_context(charge).begin()
        return kind(charge, streams)

    with contextlib.ExitStack() as charges:
        yield curator


@pytest.fixture
def instruction_sets():
    """All instruction sets of this machine; the one in use is restored."""
    before = _sets.instruction_set()
    yield _sets.INSTRUCTION_SETS
    _sets.use(before)


@pytest.fixture(params=_sets.INSTRUCTION_SETS)
def instruction_set(request, instruction_sets):
    """Each instruction set of this machine, one after the other; all kernels use it."""
    _sets.use(request.param)
    return request.param


SMALL = {"BATCH": 1000, "BLOCK": 128, "PIECE": 64}


@pytest.fixture
def tiny_pieces(monkeypatch):
    """A tiny corpus has many blocks and pieces of work, as a large one has.

    Their sizes are the constants of the package with these first words in their names,
    and the defaults of functions that are such constants.
    """
    n_found = 0
    for module in dplda_modules():
        sizes = {}
        for name, value in vars(module).items():
            first = name.lstrip("_").split("_")[0]
            if first in SMALL and isinstance(value, int):
                sizes[value] = SMALL[first]
                monkeypatch.setattr(module, name, SMALL[first])
        n_found += len(sizes)
        for function in list(vars(module).values()):
            defaults = getattr(function, "__defaults__", None) or ()
            if sizes.keys() & {x for x in defaults if isinstance(x, int)}:
                small = tuple(sizes.get(x, x) for x in defaults)
                monkeypatch.setattr(function, "__defaults__", small)
    assert n_found >= 5  # else the constants have other names now
    cells = _team.use_pieces(SMALL["PIECE"])
    yield
    _team.use_pieces(cells)


@pytest.fixture
def durability(monkeypatch):
    """How each connection to a database file writes, when it is closed.

    "extra" syncs the folder after the journal is removed; "full" does not.
    """
    seen = []

    class Watched(sqlite3.Connection):
        def close(self):
            (level,) = self.execute("PRAGMA synchronous").fetchone()
            (journal,) = self.execute("PRAGMA journal_mode").fetchone()
            seen.append((("off", "normal", "full", "extra")[level], journal))
            super().close()

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Watched))
    return seen


@pytest.fixture(scope="session")
def corpus():
    """The documents of tests of all estimators, unless a file has others."""
    from dplda.datasets import make_topic_corpus  # not before a fault is planted

    return make_topic_corpus(137, 40, 4, doc_length=50, random_state=0).data


@pytest.fixture
def flushed():
    """A processor that flushes subnormal floats to zero, as -ffast-math sets it."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        pytest.skip("the control word is at this place in fenv_t on Linux on x86-64")
    libm, before = ctypes.CDLL("libm.so.6"), (ctypes.c_uint32 * 8)()
    libm.fegetenv(before)
    changed = (ctypes.c_uint32 * 8)(*before)
    changed[7] |= 0x8040  # MXCSR: flush results, and read operands as zeros
    libm.fesetenv(changed)
    assert np.float32(1e-38) * np.float32(0.1) == 0
    yield
    libm.fesetenv(before)
