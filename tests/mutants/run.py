"""Plant privacy faults in copies of the package, and see which of them the tests find.

A mutant is one small edit that breaks a guarantee, as data in a TOML file of this folder. Each is
planted in a copy of its own. The tests of the file that it is in run there, not a test that was
chosen for it; the one that found the fault the last time runs first. ``outcomes.json`` holds the
outcomes, and ``docs/mutants.md`` says what counts.

    python tests/mutants/run.py                     all mutants
    python tests/mutants/run.py --list              their names
    python tests/mutants/run.py releases-are-exact  some of them, by name or by room (``streams``)
    python tests/mutants/run.py --sample 10 --seed 3
    python tests/mutants/run.py --new                those without an outcome
    python tests/mutants/run.py --table              also writes the table of docs/mutants.md
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import time
import tomllib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).parent
OUTCOMES = HERE / "outcomes.json"
ROOT = HERE.parents[1]
COPIED = ("dplda", "tests", "examples", "benchmarks", "docs", "scripts", "README.md",
          "CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff", "SECURITY.md", "MANIFEST.in",
          "pyproject.toml", "setup.py")  # fmt: skip
TIMEOUT = 600.0

# Each copy is tested in a fork of one process, which has imported the large libraries. Threads of
# linear algebra in several of them would wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        "scipy.stats",
        "sklearn.utils.estimator_checks",
        "dp_accounting.pld",
        "dp_accounting.rdp",
        "cryptography.hazmat.primitives.ciphers",
        "hypothesis",
        "pytest",
        "scipy.optimize",
        "scipy.sparse",
    ]
)

KINDS = {
    "noise": "too little noise",
    "cells": "cells without noise",
    "clip": "a contribution is not bounded",
    "coupling": "a contribution reads other units",
    "streams": "random words are used twice",
    "key": "the key of the noise is not secret",
    "sampling": "the sample is not the one that is charged",
    "event": "a step is charged too cheaply",
    "accounting": "the composition is computed too cheaply",
    "statement": "epsilon_ or a file states less than the cost",
    "budget": "a charge is lost, late, or not checked",
    "leak": "a private value becomes public",
    "repeat": "a document or token is reported more often than charged",
}

# The tests of a room, most likely killers first. "slow x" are the tests of test_x.py that take
# over a second, most of them because they start processes; "x" are the others.
AUDITS = ("audit_residuals", "audit")
ESTIMATES = ("architecture", "promises", "estimators")
DOCUMENT = ("stream_parts", "sublda", "two_worlds", "users", "architecture", "promises",
            "variational_kernels", "centered", "word_totals", "input_memory", "svilda",
            "estimators", "slow estimators", *AUDITS)  # fmt: skip
WORD = ("frozen", "hdplda", "gibbs_kernels", "noise_choices", "two_worlds", "streams",
        *ESTIMATES, *AUDITS)  # fmt: skip
LOCAL = ("olplda", "lplda", "noise_choices", "randomized_response", "streams", "two_worlds",
         *ESTIMATES, "audit")  # fmt: skip
LEDGER = ("ledger_parts", "ledger_filters", "ledger")
PROCESSES = ("ledger_kill", "slow ledger", "slow ledger_kill")
PRICES = ("response_losses", "guarantee", "ledger_parts", "accounting", "exact_laws",
          "ledger_filters", "ledger", "slow accounting")  # fmt: skip
PARTY = ("party", "tokens", "two_worlds", "streams", "sentences", "noise_choices", "master",
         "messages", *ESTIMATES, "audit")  # fmt: skip
TESTS = {
    "dplda/privacy/_curator.py": ("curator", "count_vectorizer", "noise_choices", "hdplda",
                                  "sublda", "two_worlds", *ESTIMATES, "ledger_kill",
                                  "slow ledger_kill", "resume", *AUDITS),
    "dplda/privacy/_mechanisms.py": ("noise", "noise_choices", "sublda", "hdplda", "two_worlds",
                                     "exact_laws", "accounting", *AUDITS),
    "dplda/privacy/_local_mechanisms.py": ("tokens", "response_losses", "randomized_response",
                                           "exact_laws", "party", *AUDITS),
    "dplda/privacy/_tables.py": ("noise", "tokens", "exact_laws", "randomized_response", *AUDITS),
    "dplda/privacy/_streams.py": ("streams", "noise", "noise_choices", "sublda", "tokens", *AUDITS),
    "dplda/privacy/_clipping.py": ("extending", "corpus", "hdplda", "two_worlds", *AUDITS),
    "dplda/privacy/_events.py": ("guarantee", "response_losses", "accounting", "ledger", "release"),
    "dplda/privacy/_accounting.py": PRICES,
    "dplda/privacy/_bounds_on_epsilon.py": ("accountant", *PRICES),
    "dplda/privacy/_composed_losses.py": ("accountant", *PRICES),
    "dplda/privacy/_composition_trees.py": ("composition_trees", *PRICES),
    "dplda/privacy/_response_losses.py": PRICES,
    "dplda/privacy/_sampled_losses.py": PRICES,
    "dplda/privacy/_loss_distributions.py": ("accountant", *PRICES),
    "dplda/privacy/_renyi.py": ("accountant", *PRICES),
    "dplda/privacy/_guarantee.py": ("guarantee", "release", "accounting", "master", "promises"),
    "dplda/privacy/_detection.py": ("guarantee",),
    "dplda/privacy/_groups.py": ("guarantee",),
    "dplda/privacy/_persons.py": ("guarantee",),
    "dplda/privacy/_ledger.py": ("ledger_parts", "ledger", "ledger_filters", "resume", *PROCESSES),
    "dplda/privacy/_budget_checks.py": (*LEDGER, *PROCESSES),
    "dplda/privacy/_totals.py": (*LEDGER, *PROCESSES),
    "dplda/privacy/_entries.py": ("ledger", "ledger_parts", "ledger_filters", "resume", *PROCESSES),
    "dplda/privacy/_page.py": ("ledger", "ledger_parts", "ledger_filters", "resume", *PROCESSES),
    "dplda/privacy/_store.py": ("ledger", "ledger_parts", "ledger_filters", "resume", *PROCESSES),
    "dplda/privacy/_filters.py": LEDGER[:2],
    "dplda/privacy/_running_costs.py": LEDGER,
    "dplda/privacy/_parts.py": LEDGER,
    "dplda/leaf/_files.py": ("ledger", "randomized_response", *PROCESSES),
    "dplda/core/_private_fit.py": ("guarantee", "users", "promises", "hdplda", "sublda", "svilda",
                              "estimators", "ledger", "release", *AUDITS),
    "dplda/release/_release.py": ("release",),
    "dplda/release/_release_reader.py": ("release",),
    "dplda/core/_texts.py": ("release",),
    "dplda/core/_pipeline.py": ("pipeline", "guarantee", "release"),
    "dplda/leaf/_vocabulary.py": ("pipeline", "guarantee", "release"),
    "dplda/leaf/_wire.py": ("release", "messages", "master"),
    "dplda/metrics/": ("noisy_score", "metrics", "input_memory"),
    "dplda/core/_corpus.py": ("corpus", "input_memory", "svilda", "hdplda", "hostile_input",
                         "two_worlds", *ESTIMATES),
    "dplda/core/_fold_in.py": ("fold_in", "noisy_score", "two_worlds", "variational_kernels",
                          "centered",
                          *AUDITS),
    "dplda/core/_variational.py": ("e_step", "svilda", "two_worlds", *AUDITS),
    "dplda/word/_gibbs.py": WORD,
    "dplda/leaf/_threads.py": ("threads", "threads_of_fits"),
    "dplda/word/_half_table.py": ("half_table", *WORD),
    "dplda/word/_hdplda.py": WORD,
    "dplda/word/_word_sweeps.py": WORD,
    "dplda/document/_svilda.py": ("svilda", "two_worlds", "promises", "users", "architecture",
                                 "estimators", "slow estimators", *AUDITS),
    "dplda/document/_checkpoint.py": ("resume",),
    "dplda/document/_shard": ("shards", *ESTIMATES),
    "dplda/document/_dask.py": ("shards", *ESTIMATES),
    "dplda/datasets/": ("shards", "datasets"),
    "dplda/document/": DOCUMENT,
    "dplda/leaf/_users.py": ("users", *ESTIMATES),
    "dplda/document/_topic_counts.py": ("topic_counts",),
    "dplda/core/_noisy_sum.py": ("topic_counts", "noisy_score"),
    "dplda/text/_count_vectorizer.py": ("count_vectorizer", "guarantee"),
    "dplda/text/_selection.py": ("count_vectorizer", "guarantee"),
    "dplda/local/_memoized_reports.py": ("randomized_response",),
    "dplda/local/": LOCAL,
    "dplda/federated/_network.py": ("federation",),
    "dplda/federated/": PARTY,
    "dplda/kernels/_team": ("threads", "threads_of_fits", "noise", "team"),
    "dplda/kernels/_noise": ("noise", "noise_choices", "tokens"),
    "dplda/kernels/_clip.h": ("extending", "variational_kernels", *DOCUMENT),
    "dplda/kernels/_variational.pyx": ("variational_kernels", "fold_in", "extending", *DOCUMENT),
    "dplda/kernels/_fold_in.h": ("variational_kernels", "fold_in", *DOCUMENT),
    "dplda/kernels/_contributions.h": ("variational_kernels", *DOCUMENT),
    "dplda/kernels/_columns.pyx": ("columns", *DOCUMENT),
    "dplda/kernels/_e_step": ("e_step", "svilda", *DOCUMENT),
    "dplda/kernels/_gibbs.pyx": WORD,
    "dplda/kernels/_release": ("half_table", "corpus", *WORD),
    "dplda/kernels/_frozen": WORD,
    "dplda/kernels/_wide.h": WORD,
    "dplda/kernels/_metropolis.pyx": ("metropolis", *PARTY),
}  # fmt: skip

SLOW = (
    "tests/test_accounting.py::test_different_multipliers_with_sampling",
    "tests/test_accounting.py::test_epsilon_grows_with_every_round",
    "tests/test_accounting.py::test_renyi_accounting_asks_for_more_noise",
    "tests/test_estimators.py::test_documents_outside_of_the_sample_contribute_nothing",
    "tests/test_estimators.py::test_pipeline_and_grid_search_over_epsilon_and_ratio",
    "tests/test_extending.py::test_its_audit_finds_a_sensitivity_that_is_too_large",
    "tests/test_ledger.py::test_a_process_forked_while_a_thread_charges_can_charge",
    "tests/test_ledger.py::test_another_process_sees_the_entries",
    "tests/test_ledger.py::test_a_killed_fit_has_spent",
    "tests/test_ledger.py::test_a_process_killed_after_it_made_the_ledger_leaves_a_whole_one",
    "tests/test_ledger.py::test_a_reservation_killed_half_way_leaves_nothing_and_no_lock",
    "tests/test_ledger.py::test_grid_search_in_two_processes_counts_every_fit",
    "tests/test_ledger.py::test_two_processes_that_create_the_same_file",
    "tests/test_ledger.py::test_two_racing_processes_cannot_overspend",
    "tests/test_ledger_kill.py::test_a_full_disk_makes_no_half_ledger",
    "tests/test_ledger_kill.py::test_a_full_disk_refuses_the_fit_and_keeps_every_entry",
    "tests/test_ledger_kill.py::test_a_ledger_survives_kills_at_random_moments",
    "tests/test_ledger_kill.py::test_a_ledger_that_cannot_be_written_refuses_the_fit",
    "tests/test_lplda.py::test_figures_of_the_docs",
    "tests/test_randomized_response.py::test_a_client_loads_nothing_of_the_server",
    "tests/test_randomized_response.py::test_subpackages_are_there_without_an_import",
    "tests/test_svilda.py::test_more_epsilon_is_better",
    "tests/test_svilda.py::test_renyi_accounting_reports_more",
)
# Tests that compare a seeded result with a number: they find any change, and so prove little.
PINS = (
    "tests/test_streams.py::test_seeded_words_are_pinned",
    "tests/test_noise.py::test_gaussian_weights_are_pinned",
)
# What a fault may not cause: these say that the edit does not run, not that a test found it.
BROKEN = ("ImportError", "ModuleNotFoundError", "SyntaxError", "NameError", "UnboundLocalError",
          "AttributeError", "IndentationError")  # fmt: skip

KERNELS = {  # which extensions a source is compiled into
    "_clip.h": ("_variational",),
    "_fold_in.h": ("_variational",),
    "_contributions.h": ("_variational",),
    "_noise.h": ("_noise",),
    "_team.h": ("_team",),
    "_e_step.h": ("_e_step",),
    "_e_step_loops.h": ("_e_step",),
    "_frozen.h": ("_frozen",),
    "_release.h": ("_release",),
    "_wide.h": ("_frozen", "_release"),
}
CYTHON = ["-3", "-X", "wraparound=False", "-X", "boundscheck=False", "-X", "cdivision=True",
          "-X", "initializedcheck=False"]  # fmt: skip
COMPILER = ["-O1", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off"]  # as in setup.py


@dataclass(frozen=True)
class Mutant:
    """One planted fault."""

    name: str
    room: str
    kind: str
    file: str
    old: str
    new: str
    breaks: str
    also: tuple[tuple[str, str], ...] = ()  # further edits of the same file, (old, new)
    survives: str = ""  # why no test of the room finds it

    @property
    def edits(self) -> list[tuple[str, str]]:
        """All edits, (old, new)."""
        return [(self.old, self.new), *((old, new) for old, new in self.also)]

    def planted(self, text: str) -> str:
        """The source with the fault. Each old text must occur once."""
        for old, new in self.edits:
            if (n := text.count(old)) != 1:
                raise ValueError(f"{self.name}: {old!r} occurs {n} times in {self.file}")
            text = text.replace(old, new)
        return text

    @property
    def extensions(self) -> tuple[str, ...]:
        """Kernels to compile."""
        path = Path(self.file)
        return KERNELS.get(path.name, (path.stem,)) if path.suffix in (".h", ".pyx") else ()

    @property
    def stages(self) -> list[list[str]]:
        """Tests of the room, as arguments of pytest, one list after the other."""
        found = max((place for place in TESTS if self.file.startswith(place)), key=len, default="")
        if not found:
            raise ValueError(f"{self.name}: no tests are named for {self.file}")
        return [_stage(name) for name in TESTS[found]]

    @property
    def tests(self) -> list[str]:
        """Test files of the room."""
        return sorted({stage[0].partition("::")[0] for stage in self.stages})


def _stage(name: str) -> list[str]:
    path = f"tests/test_{name.removeprefix('slow ')}.py"
    slow = [test for test in SLOW if test.startswith(f"{path}::")]
    if name.startswith("slow "):
        return slow
    return [path, *(f"--deselect={test}" for test in (*PINS, *slow))]


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: killed, killed by a changed value only, survived, or invalid."""

    name: str
    result: str
    seconds: float
    reason: str  # the first test that failed, or what is wrong


def load() -> dict[str, Mutant]:
    """All mutants by name."""
    mutants: dict[str, Mutant] = {}
    for path in sorted(HERE.glob("*.toml")):
        room = tomllib.loads(path.read_text("utf-8"))
        for record in room["mutant"]:
            mutant = Mutant(room=path.stem, **{"file": room.get("file")} | record)
            if mutant.name in mutants:
                raise ValueError(f"two mutants are called {mutant.name}")
            mutants[mutant.name] = mutant
    return mutants


def recorded() -> dict[str, Outcome]:
    """Outcomes of earlier runs, by name."""
    if not OUTCOMES.exists():
        return {}
    return {r["name"]: Outcome(**r) for r in json.loads(OUTCOMES.read_text("utf-8"))}


def record(outcomes: dict[str, Outcome]) -> None:
    """Write the outcomes, one on a line."""
    lines = [json.dumps(asdict(outcomes[name])) for name in sorted(outcomes)]
    OUTCOMES.write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf-8")


def copy_project(target: Path) -> None:
    skipped = shutil.ignore_patterns("*.c", "mutants", "test_mutants.py", "images", ".hypothesis")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=skipped)
        elif source.exists():
            shutil.copy2(source, target / name)


def compile_kernel(folder: Path, name: str, *definitions: str) -> None:
    """Compile one kernel in place, with little optimization."""
    source = folder / "dplda" / "kernels" / f"{name}.pyx"
    c, library = source.with_suffix(".c"), f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
    include = ["-I", sysconfig.get_paths()["include"], "-I", str(source.parent)]
    for command in (
        [sys.executable, "-m", "cython", *CYTHON, "-o", str(c), str(source)],
        [*compiler, "-shared", "-fPIC", *COMPILER, *definitions, *include, str(c), "-o",
         str(source.with_name(library)), "-lm"],
    ):  # fmt: skip
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)


def run_tests(folder: Path, stages: list[list[str]]) -> tuple[int, str]:
    """Exit code and output of pytest in a copy, stage by stage until one fails."""
    output = folder / "output.txt"
    process = SERVER.Process(target=_pytest, args=(str(folder), stages, str(output)))
    process.start()
    process.join(TIMEOUT)
    if process.is_alive():
        process.kill()
        process.join()
        raise TimeoutError(f"the tests take more than {TIMEOUT:g} s")
    return process.exitcode, output.read_text("utf-8", errors="replace")


def _pytest(folder: str, stages: list[list[str]], output: str) -> None:
    """Run pytest in this process, a fork of one that has imported what is slow to import.

    A file is collected only when those before it have passed.
    """
    os.chdir(folder)
    os.environ |= {"PYTHONPATH": folder, "COLUMNS": "400"}
    sys.path.insert(0, folder)
    with open(output, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    import pytest

    # imported before, so that no stage rewrites its assertions again
    known = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    options = [*known, "-q", "-n0", "-p", "no:cacheprovider", "-p", "no:anyio", "-rfE"]
    code = 0
    for stage in stages:
        code = code or pytest.main([*options, *stage])
    sys.stdout.flush()
    os._exit(code)  # the pools of some tests would keep the process from ending


def failures(output: str) -> list[tuple[str, str]]:
    """Names of the tests that failed, with what pytest says of them."""
    lines = re.findall(r"^(?:FAILED|ERROR) (tests/.*)$", output, re.M)
    return [(name, why) for name, _, why in (line.partition(" - ") for line in lines)]


def plant(mutant: Mutant, folder: Path) -> None:
    copy_project(folder)
    path = folder / mutant.file
    path.write_text(mutant.planted(path.read_text("utf-8")), "utf-8")
    for name in mutant.extensions:
        compile_kernel(folder, name)


def judge(mutant: Mutant, killer: str | None = None) -> Outcome:
    """Plant one fault in a copy, and run the tests of its room until one fails.

    The test that killed it in an earlier run goes first.
    """
    start = time.monotonic()

    def outcome(result: str, reason: str) -> Outcome:
        return Outcome(mutant.name, result, round(time.monotonic() - start, 1), reason)

    with tempfile.TemporaryDirectory(prefix="dplda-mutant-") as name:
        folder = Path(name)
        try:
            plant(mutant, folder)
            code, output = run_tests(folder, [["-x", killer]]) if killer else (0, "")
            if code != 1:  # it passes, or there is no such test any more
                code, output = run_tests(folder, [["-x", *stage] for stage in mutant.stages])
            if code == 0:
                pins = [pin for pin in PINS if pin.split("::")[0] in mutant.tests]
                if pins:
                    code, output = run_tests(folder, [["-x", *pins]])
                if code != 0:
                    return outcome("changed value", failures(output)[0][0])
                return outcome("survived", f"{len(mutant.tests)} test files pass")
        except (ValueError, TimeoutError) as error:
            return outcome("invalid", str(error))
        except subprocess.CalledProcessError as error:
            return outcome("invalid", f"does not compile: {error.stderr[-400:]}")
    failed = failures(output)
    if not failed:
        return outcome("invalid", f"pytest ended with {code}: {output[-400:]}")
    test, why = failed[0]
    if "::" not in test or why.startswith(BROKEN):
        return outcome("invalid", f"{test}: {why}")
    return outcome("killed", test)


def check_killers(outcomes: list[Outcome], mutants: dict[str, Mutant]) -> list[Outcome]:
    """Run the tests that killed without a fault: a kill by a test that fails anyway is none."""
    killers = sorted({o.reason for o in outcomes if o.result in ("killed", "changed value")})
    if not killers:
        return outcomes
    with tempfile.TemporaryDirectory(prefix="dplda-sound-") as name:
        folder = Path(name)
        copy_project(folder)
        for kernel in sorted({k for o in outcomes for k in mutants[o.name].extensions}):
            compile_kernel(folder, kernel)
        code, output = run_tests(folder, [killers])
    failed = {test for test, _ in failures(output)}
    if code != 0 and not failed:
        raise RuntimeError(f"the tests do not run without a fault:\n{output[-2000:]}")
    return [
        Outcome(o.name, "invalid", o.seconds, f"{o.reason} fails without the fault")
        if o.reason in failed
        else o
        for o in outcomes
    ]


def chosen(mutants: dict[str, Mutant], names: list[str], sample: int | None, seed: int) -> list:
    """Mutants by name or room, or a sample of all."""
    unknown = [n for n in names if n not in mutants and n not in {m.room for m in mutants.values()}]
    if unknown:
        raise SystemExit(f"no mutant and no room is called {', '.join(unknown)}; see --list")
    found = [m for m in mutants.values() if not names or m.name in names or m.room in names]
    if sample is not None:
        found = random.Random(seed).sample(found, min(sample, len(found)))
    return found


def run(
    found: Iterable[Mutant],
    mutants: dict[str, Mutant],
    n_jobs: int,
    note: Callable[[Outcome], None] = print,
) -> list[Outcome]:
    """Judge mutants, note each outcome, and check the tests that killed."""
    killers = {o.name: o.reason for o in recorded().values() if o.result == "killed"}
    outcomes = []
    with ThreadPoolExecutor(n_jobs) as pool:
        for done in as_completed([pool.submit(judge, m, killers.get(m.name)) for m in found]):
            outcomes.append(done.result())
            note(outcomes[-1])
    return check_killers(outcomes, mutants)


def faulty(outcomes: list[Outcome], mutants: dict[str, Mutant]) -> list[Outcome]:
    """Outcomes that call for work: invalid, or survived without a reason."""
    return [
        o
        for o in outcomes
        if o.result == "invalid" or (o.result == "survived" and not mutants[o.name].survives)
    ]


def table(outcomes: list[Outcome], mutants: dict[str, Mutant]) -> str:
    """The table of docs/mutants.md."""
    lines = [f"{len(outcomes)} of {len(mutants)} faults were planted.", ""]
    lines += ["| kind | planted | killed | by a changed value only | survived |",
             "| --- | --- | --- | --- | --- |"]  # fmt: skip
    results = ("killed", "changed value", "survived")
    rows = [(KINDS[kind], [o for o in outcomes if mutants[o.name].kind == kind]) for kind in KINDS]
    for title, group in (*rows, ("all", outcomes)):
        counts = [sum(o.result == result for o in group) for result in results]
        lines.append(f"| {title} | {len(group)} | {' | '.join(map(str, counts))} |")
    lines.append("")
    survivors = [o for o in outcomes if o.result == "survived"]
    if survivors:
        lines += ["Survivors:", ""]
        lines += [
            textwrap.fill(
                f"* `{o.name}`: {mutants[o.name].survives or 'no reason known'}",
                100,
                subsequent_indent="  ",
            )
            for o in survivors
        ]
    else:
        lines.append(
            "None of the planted faults survived. What was not planted has not been measured."
        )
    return "\n".join(lines)


def write_between(path: Path, marker: str, text: str) -> None:
    """Replace what stands between two comments ``<!-- marker -->`` of a page."""
    before, _, rest = path.read_text("utf-8").partition(f"<!-- {marker} -->\n")
    _, _, after = rest.partition(f"<!-- end of {marker} -->\n")
    path.write_text(
        f"{before}<!-- {marker} -->\n\n{text}\n\n<!-- end of {marker} -->\n{after}", "utf-8"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="mutants or rooms; all without")
    parser.add_argument("--sample", type=int, help="take this many of them at random")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    parser.add_argument("--new", action="store_true", help="only those without an outcome")
    parser.add_argument("--table", action="store_true", help="write the table of docs/mutants.md")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    options = parser.parse_args()
    mutants = load()
    found = chosen(mutants, options.names, options.sample, options.seed)
    if options.list:
        for mutant in found:
            print(f"{mutant.room:14} {mutant.kind:11} {mutant.name:44} {mutant.breaks}")
        return 0
    known = {name: outcome for name, outcome in recorded().items() if name in mutants}
    if options.new:
        found = [mutant for mutant in found if mutant.name not in known]

    def note(o: Outcome) -> None:
        known[o.name] = o
        record(known)
        print(f"{o.result:13} {o.seconds:6.1f} s  {o.name:44} {o.reason}", flush=True)

    start = time.monotonic()
    checked = run(found, mutants, options.jobs, note)
    minutes = (time.monotonic() - start) / 60
    for o in checked:
        if o.result != known[o.name].result:
            note(o)
    outcomes = [known[name] for name in mutants if name in known]
    bad = faulty(outcomes, mutants)
    n_killed = sum(o.result in ("killed", "changed value") for o in outcomes)
    print(f"{n_killed} of {len(outcomes)} killed; {minutes:.1f} minutes for {len(found)}")
    for outcome in bad:
        print(f"{outcome.result}: {outcome.name}: {outcome.reason}")
    if options.table:
        write_between(ROOT / "docs" / "mutants.md", "table", table(outcomes, mutants))
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
