"""Who may import whom, and where noise may be drawn: the rules that an audit rests on.

A rule is a function of sources, ``{path: text}``, that returns the list of its
offenders.
"""

import ast
import graphlib
import re
from functools import cache
from pathlib import Path

import pytest

import dplda
from dplda.leaf._messages import PUBLIC

ROOT = Path(dplda.__file__).parent
SOURCES = {
    path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
    for path in ROOT.rglob("*.p*")
    if path.suffix in (".py", ".pyi", ".pyx", ".pxd")
}

# What lies below what. A folder may also import itself; a kernel is a function of
# arrays only.
SHARED = {"kernels", "leaf", "privacy", "core"}
MAY_IMPORT = {
    "kernels": set(),
    "leaf": {"kernels._team"},
    "privacy": {"leaf", "kernels._noise"},
    "datasets": {"leaf", "core", "privacy"},  # shards: counts as a fit takes them
    **dict.fromkeys(["core", "gibbs", "local", "release"], SHARED),
    "reading": SHARED | {"release"},  # released counts
    # topics are drawn under a table that stands still
    "word": SHARED | {"gibbs"},
    # the public word lists, and a model of texts, from its words to its file
    "text": SHARED | {"datasets", "document", "release", "reading"},
    # where many topics begin, and the public prior
    "document": SHARED | {"datasets", "gibbs"},
    # parties that fit one model of documents, and choose its words
    "federated": SHARED | {"release", "document", "text", "datasets"},
    "(root)": SHARED | {"reading", "release"},
    "published": SHARED | {"document", "gibbs", "word", "federated"},
    "audit": SHARED
    | {"document", "gibbs", "local", "federated", "published", "reading"},
}
# Keys of a fit: of its random words, of the masks of parties, of their certificates.
KEYS = {
    "privacy/_streams.py",
    "federated/_secure_sum.py",
    "federated/_certificates.py",
    "federated/_joint_party.py",
    "federated/_plan.py",
}
MECHANISMS = {"privacy/_mechanisms.py"}
# A federation over a network logs what happens to messages.
LOGGERS = {
    "leaf/_messages.py",
    "cli/_federation_coordinator.py",
    "cli/_federation_party.py",
    "federated/_coordinator.py",
    "federated/_line.py",
    "federated/_secure_sum.py",
}
# Of a library, also as np.core: it became private, and has kept its name.
PRIVATE_PART = re.compile(r"(numpy|np|scipy|sklearn)\.(core\b|(\w+\.)*_(?!_))")
NOISE = set(re.findall(r"^def (\w+)", SOURCES["kernels/_noise.pyi"], re.MULTILINE))

parse = cache(ast.parse)


def modules(sources):
    return {path: parse(text) for path, text in sources.items() if path.endswith(".py")}


def imports(path, tree):
    """Full names of all that a module imports, wherever in the module it does so."""
    package = ["dplda", *Path(path).parts[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def dotted(node):
    """A name or attribute as text; what is no name in it becomes a question mark."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


@cache
def names(tree):
    """All dotted names that a module's code mentions."""
    nodes = ast.walk(tree)
    return {
        dotted(node) for node in nodes if isinstance(node, (ast.Attribute, ast.Name))
    }


def is_in(name, modules):
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def folder(path):
    """The entry of `MAY_IMPORT` a module belongs to; None: it may import everything."""
    first, *rest = Path(path).with_suffix("").parts
    if not rest:
        return None if first == "__main__" else "(root)"
    return None if first == "cli" else first


def imports_from_above(sources):
    trees = modules(sources)
    for path, tree in trees.items():
        place = folder(path)
        if place is None:
            continue
        allowed = {place, "_version"} | MAY_IMPORT.get(place, set())
        for name in imports(path, tree):
            if is_in(name, {"dplda"}) and not is_in(name.partition(".")[2], allowed):
                yield f"{path} imports {name}"


def imports_in_kernels(sources):
    """The instruction set and the threads are the only things that kernels share."""
    pattern = r"^\s*(from\s+(\.|dplda\b)|c?import\b.*\bdplda\b|include\b)"
    shared = r"^from dplda.kernels.(_sets cimport in_use|_team cimport [\w, ]+)\n"
    for path, text in sources.items():
        rest = re.sub(shared, "", text, flags=re.MULTILINE)
        if path.startswith("kernels/") and re.search(pattern, rest, re.MULTILINE):
            yield path


def graph(sources):
    trees = modules(sources)
    found = {}
    for path, tree in trees.items():
        found[path] = set()
        for name in imports(path, tree):
            parts = name.split(".")[1:] if is_in(name, {"dplda"}) else []
            # a name of a module, or the module itself; a package stands for its
            # `__init__`
            for end in (len(parts), len(parts) - 1):
                at = "/".join(parts[:end]) if parts else "-"
                hit = {f"{at}.py", f"{at}/__init__.py".lstrip("/")} & trees.keys()
                if hit:
                    found[path] |= hit
                    break
    return found


def circles(sources):
    """Modules that import each other in a circle: the first one that is met."""
    try:
        graphlib.TopologicalSorter(graph(sources)).prepare()
    except graphlib.CycleError as error:
        yield " <-> ".join(sorted(set(error.args[1])))


def noise_outside_mechanisms(sources):
    for path, tree in modules(sources).items():
        drawn = {
            name
            for name in imports(path, tree)
            if is_in(name, {"dplda.kernels._noise"})
        }
        drawn |= {name for name in names(tree) if name.rpartition(".")[2] in NOISE}
        if drawn and path not in MECHANISMS:
            yield f"{path} uses {', '.join(sorted(drawn))}"


def ordinary_random_numbers(sources):
    for path, tree in modules(sources).items():
        drawn = {
            name
            for name in imports(path, tree)
            if is_in(name, {"random", "numpy.random"})
        }
        drawn |= {
            n for n in names(tree) if re.search(r"^(np|numpy)\.random\b|\.rvs$", n)
        }
        if drawn and path != "datasets/_synthetic.py":
            yield f"{path} uses {', '.join(sorted(drawn))}"


def secret_keys_outside_streams(sources):
    for path, tree in modules(sources).items():
        made = names(tree) & {"os.urandom", "os.getrandom"}
        made |= {
            name
            for name in imports(path, tree)
            if is_in(name, {"secrets", "cryptography"})
        }
        made |= {n for n in imports(path, tree) if n in ("os.urandom", "os.getrandom")}
        if made and path not in KEYS:
            yield f"{path} uses {', '.join(sorted(made))}"


def pickles(sources):
    """Reading one runs code. Dask's workers are given ours by their own client."""
    for path, tree in modules(sources).items():
        if is_in("pickle", imports(path, tree)) and path != "document/_dask.py":
            yield f"{path} imports pickle"


def private_parts_of_libraries(sources):
    """They may change in any release: one module holds them all."""
    for path, text in sources.items():
        found = set(re.findall(r"^\s*(?:from|c?import)\s+([\w.]+)", text, re.MULTILINE))
        if path.endswith(".py"):
            found = {*imports(path, parse(text)), *names(parse(text))}
        found = {name for name in found if PRIVATE_PART.match(name)}
        if found and path != "leaf/_compat.py":
            yield f"{path} uses {', '.join(sorted(found))}"


def logs_beside_the_events(sources):
    """Only `log_event` logs, and only what `PUBLIC` lists."""
    for path, tree in modules(sources).items():
        loggers = {
            name for name in names(tree) if name.rpartition(".")[2] == "getLogger"
        }
        loggers |= {name for name in imports(path, tree) if name == "logging.getLogger"}
        if loggers and path not in LOGGERS:
            yield f"{path} makes a logger"
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and dotted(call.func).endswith("log_event"):
                given = {keyword.arg or "**" for keyword in call.keywords} - {"level"}
                if not given <= PUBLIC:
                    yield f"{path} logs {', '.join(sorted(given - PUBLIC))}"


# Each rule with sources that break it, of which the first module is the offender.
RULES = {
    imports_from_above: [
        {"privacy/_a.py": "def f():\n    from ..core._base import BaseTopicModel"},
        {"core/_base.py": "from dplda.document._nmf import NMF"},
        {"unheard_of/_a.py": "import dplda.privacy"},
    ],
    imports_in_kernels: [
        {"kernels/_a.pyx": "\nfrom dplda.kernels._sets cimport in_use, best_set\n"},
        {"kernels/_a.pyi": "import dplda"},
    ],
    circles: [
        {
            "_a.py": "from dplda._b import b",
            "_b.py": "def f():\n    from dplda import _a",
        }
    ],
    noise_outside_mechanisms: [
        {"document/_a.py": "from dplda.kernels._noise import draw"},
        {"privacy/_curator.py": "def f(kernel): kernel.add_gaussian()"},
    ],
    ordinary_random_numbers: [
        {"document/_a.py": "def f(n): return np.random.default_rng().normal(size=n)"},
        {"privacy/_a.py": "def f(norm): return norm.rvs()"},
    ],
    secret_keys_outside_streams: [
        {"privacy/_store.py": "import os\nos.urandom(16)"},
        {"local/_a.py": "from os import urandom"},
    ],
    pickles: [{"federated/_a.py": "def f():\n    import pickle"}],
    private_parts_of_libraries: [
        {"document/_a.py": "from sklearn.utils._param_validation import Interval"},
        {"privacy/_a.py": "def f(np): return np.core.numeric"},
        {"kernels/_a.pyx": "cimport numpy\nfrom scipy.special._ufuncs cimport psi\n"},
    ],
    logs_beside_the_events: [
        {"document/_a.py": "import logging\nlogging.getLogger('dplda.fit').info(X)"},
        {"local/_a.py": "_log.log_event('fit', 'model fitted', **fields)"},
    ],
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_nothing_breaks_a_rule_and_a_planted_fault_is_found(rule):
    offenders = sorted(set(rule(SOURCES)))
    assert not offenders, "\n".join(offenders)
    for planted in RULES[rule]:
        found = list(rule(planted))
        assert len(found) == 1, planted
        assert next(iter(planted)) in found[0]


# Definitions and enumerations of what is inside a room: these tests may name it. So may
# `*_enumerated.py`.
TWINS = {
    "exact_laws.py",
    "faults.py",
    "reference.py",
    "reference_noise.py",
    "test_accountant.py",
    "test_denoise.py",
    "test_e_step.py",
    "test_exact_laws.py",
    "test_fold_in.py",
    "test_frozen.py",
    "test_gibbs_kernels.py",
    "test_half_table.py",
    "test_metropolis.py",
    "test_noise.py",
    "test_team.py",
    "test_variational_kernels.py",
    "twins.py",
}


def is_private(module):
    parts = module.split(".")
    return parts[0] == "dplda" and any(
        part.startswith("_") or part in ("kernels", "leaf") for part in parts
    )


def private_names(tree):
    """What a module of tests imports from private modules, and private attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for name in node.names:
                if is_private(f"{node.module}") or is_private(
                    f"{node.module}.{name.name}"
                ):
                    yield f"{node.module}.{name.name}"
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names if is_private(name.name))
        elif isinstance(node, ast.Attribute) and re.match("_(?!_)", node.attr):
            yield node.attr


def test_other_tests_ask_for_promises_and_name_few_private_parts():
    """What renaming inside of a room breaks is no promise."""
    found = {}
    for path in Path(__file__).parent.glob("*.py"):
        if path.name not in TWINS and not path.name.endswith("_enumerated.py"):
            for name in private_names(ast.parse(path.read_text("utf-8"))):
                found.setdefault(name, []).append(path.name)
    assert len(found) <= 60, "\n".join(f"{k}: {v}" for k, v in sorted(found.items()))
    assert "dplda.kernels._sets" in found  # else nothing is counted
