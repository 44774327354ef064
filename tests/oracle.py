"""dp_accounting, the library that tests compare the accountant to: extra "oracle".

Its pins (attrs below 24) keep other packages out of an environment, so that tests do
without it: a test that asks for it is skipped where it is missing. `.ci/run` sets
DPLDA_ORACLE=required, so that there it is an error.
"""

import importlib
import os

import pytest


class Oracle:
    """Something in a module of dp_accounting, which is looked up when it is used.

    Parameters
    ----------
    module : str
        Name of the module.
    name : str or None, default=None
        Name of what is meant in it. None is the module itself.
    """

    def __init__(self, module, name=None):
        self._module, self._name = module, name

    def _found(self):
        if os.environ.get("DPLDA_ORACLE") == "required":
            module = importlib.import_module(self._module)
        else:
            module = pytest.importorskip(
                self._module, reason="pip install -e '.[oracle]'"
            )
        return module if self._name is None else getattr(module, self._name)

    def __getattr__(self, name):
        # pytest looks for fixtures: not a use
        if name.startswith("_") or name == "pytestmark":
            raise AttributeError(name)
        return getattr(self._found(), name)

    def __instancecheck__(self, instance):
        return isinstance(instance, self._found())

    def __call__(self, *args, **kwargs):
        return self._found()(*args, **kwargs)
