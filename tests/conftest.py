"""Fixtures that several test modules use."""

import ctypes
import os
import platform
import sys
from pathlib import Path

# pytest uses all processors: threads of linear algebra in each of its processes would only wait
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import settings

from dplda.kernels import _sets

# no deadline: a busy machine is not a failure
settings.register_profile("dplda", deadline=None)
settings.load_profile("dplda")


# What takes most of the time: `-m "not slow and not thorough"` is done in a minute.
THOROUGH = (
    "test_accounting.py",
    "test_audit.py",
    "test_audit_paths.py",
    "test_audit_residuals.py",
    "test_common.py",
    "test_datasets.py::test_order_does_not_depend_on_the_process",
    "test_displays.py",
    "test_exact_laws.py",
    "test_estimators.py::test_pipeline_and_grid_search_over_epsilon_and_ratio",
    "test_hostile_input.py",
    "test_ledger.py",
    "test_ledger_filters.py",
    "test_ledger_kill.py",
    "test_lplda.py::test_figures_of_the_docs",
    "test_main.py",
    "test_noise.py",
    "test_paper_figures.py",
    "test_published_iftm.py::test_the_counts_of_a_real_corpus",
    "test_randomized_response.py",
    "test_readme.py",
    "test_sentences.py::test_pipelines_and_searches",
    "test_signal.py",
    "test_svilda.py",
    "test_variational_kernels.py::test_integer_norm_never_exceeds_the_radius",
)


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items):
    for item in items:
        if f"{item.path.name}::{item.name}".startswith(THOROUGH):
            item.add_marker("thorough")


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


@pytest.fixture(scope="session")
def shared_data():
    """The folder of the real corpora; they are not part of the project."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the real corpora (docword.kos.txt.gz, ...) are not in {folder}")
    return folder


@pytest.fixture
def flushed():
    """A processor that flushes floats below the normal ones to zero, as -ffast-math sets it."""
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
