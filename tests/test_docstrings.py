"""The examples in docstrings run, and every public object is documented, in numpydoc's form."""

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
# order of the sections, a docstring at all, its first line, parameters, results, See Also
CHECKS = {
    "GL07", "GL08", "SS03", "SS06", "PR01", "PR02", "PR03", "PR04", "PR07", "RT01", "RT03",
    "SA04", "YD01",
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_estimators_have_examples():
    classes = [value for value in map(vars(dplda).get, dplda.__all__) if inspect.isclass(value)]
    without = [c.__name__ for c in classes if hasattr(c, "fit") and ">>>" not in c.__doc__]
    assert without in ([], ["ReleasedModel"])  # `load_release` makes it


def documented(package):
    """Full names of the public objects of a package, and of their public members."""
    module = importlib.import_module(package)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.ismodule(value):
            continue
        yield f"{package}.{name}"
        for attribute, member in vars(value).items() if inspect.isclass(value) else ():
            kinds = (property, classmethod, staticmethod)
            if (
                not attribute.startswith("_")
                and (inspect.isfunction(member) or isinstance(member, kinds))
                and not has_docstring_of_a_public_base(value, attribute, module)
            ):
                yield f"{package}.{name}.{attribute}"


def has_docstring_of_a_public_base(cls, attribute, module):
    """Whether a member without a docstring shows that of a public class, which is checked there."""
    if cls.__dict__[attribute].__doc__ is not None:
        return False
    having = [base for base in cls.__mro__[1:] if attribute in vars(base)]
    bases = [base for base in having if vars(base)[attribute].__doc__]
    return bool(bases) and bases[0] in map(vars(module).get, module.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_have_the_form_of_numpydoc(package):
    findings = [
        f"{name}: {code} {text}"
        for name in documented(package)
        for code, text in validate(name)["errors"]
        if code in CHECKS
    ]
    assert not findings, "\n".join([f"{len(findings)} findings:", *findings])
