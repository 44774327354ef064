"""The examples in docstrings run, and print what they say."""

import doctest
import importlib
import pkgutil

import pytest

import dplda

MODULES = [
    module.name
    for module in pkgutil.walk_packages(dplda.__path__, "dplda.")
    if not module.name.endswith("__main__") and ".kernels" not in module.name
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_estimators_have_examples():
    assert all(">>>" in getattr(dplda, name).__doc__ for name in dplda.__all__)
