"""Examples in docstrings run, and public objects are documented in numpydoc's form."""

import doctest
import importlib
import inspect
import pkgutil

import pytest
from estimators import PACKAGES
from numpydoc.validate import validate

import dplda

MODULES = [
    module.name
    for module in pkgutil.walk_packages(dplda.__path__, "dplda.")
    if not module.name.endswith("__main__") and ".kernels" not in module.name
]
# order of the sections, a docstring at all, its first line, parameters, results, See
# Also
CHECKS = {
    "GL07",
    "GL08",
    "SS03",
    "SS06",
    "PR01",
    "PR02",
    "PR03",
    "PR04",
    "PR07",
    "RT01",
    "RT03",
    "SA04",
    "YD01",
}


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_estimators_have_examples():
    classes = [
        value for value in map(vars(dplda).get, dplda.__all__) if inspect.isclass(value)
    ]
    without = [
        c.__name__ for c in classes if hasattr(c, "fit") and ">>>" not in c.__doc__
    ]
    assert without in ([], ["ReleasedModel"])  # `load_release` makes it


def documented(package):
    """Full names of the public objects of a package, and of their public members.

    A member without a docstring shows that of a base, which is checked there.
    """
    module = importlib.import_module(package)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.ismodule(value):
            continue
        yield f"{package}.{name}"
        fields = getattr(value, "__dataclass_fields__", {})  # described by the class
        for attribute, member in vars(value).items() if inspect.isclass(value) else ():
            documented_by = [
                b for b in value.__mro__[1:] if getattr(b, attribute, None)
            ]
            is_member = inspect.isfunction(member) or isinstance(
                member, (property, classmethod, staticmethod)
            )
            if (
                attribute[0] != "_"
                and attribute not in fields
                and is_member
                and (member.__doc__ or not documented_by)
            ):
                yield f"{package}.{name}.{attribute}"


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_have_the_form_of_numpydoc(package):
    findings = [
        f"{name}: {code} {text}"
        for name in documented(package)
        for code, text in validate(name)["errors"]
        if code in CHECKS
    ]
    assert not findings, "\n".join([f"{len(findings)} findings:", *findings])
