"""One switch for the instruction set of all kernels."""

import importlib
import pkgutil
import subprocess
import sys

import pytest

import dplda.kernels
from dplda.kernels import _sets


def test_the_fastest_set_is_the_default():
    code = "from dplda.kernels import _sets; print(_sets.instruction_set())"
    run = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert run.stdout.strip() == _sets.INSTRUCTION_SETS[-1]


def test_an_unknown_set_is_refused_and_changes_nothing(instruction_set):
    with pytest.raises(ValueError, match=r"must be one of \('portable'.*got 'avx1024'"):
        _sets.use("avx1024")
    assert _sets.instruction_set() == instruction_set


def test_no_kernel_has_a_switch_of_its_own():
    names = [module.name for module in pkgutil.iter_modules(dplda.kernels.__path__)]
    modules = [importlib.import_module(f"dplda.kernels.{name}") for name in names]
    assert [module for module in modules if hasattr(module, "use")] == [_sets]
