"""Measure the tables of utility, and write each into its page of the documentation.

``python benchmarks/utility_tables.py FOLDER [NAME ...]`` runs the commands that ``--list`` prints,
all of them or those of the given names. The table NAME stands in its page between
``<!-- NAME -->`` and ``<!-- end of NAME -->``. Pictures are drawn again too. For each table it
prints the seconds that passed and those of a processor.

FOLDER keeps what was measured, so that an ended run can be continued. It does not know which code
was measured: begin a new folder after a change of the code. ``planner_points.json`` and
``public_prior.json`` are kept next to this script: what stands there is measured again only after
it was removed. "planning-errors" fits the coefficients of `dplda.plan`, and "signal" the constant
STANDING. Write them into ``document/_plan.py`` before the tables that follow.

"compare" and "stability" also fit commit aaf8b1d, which is built in FOLDER.
"""

from __future__ import annotations

import argparse
import io
import os
import resource
import shlex
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from paired_utility import printed_into

HERE = Path(__file__).parent
ROOT = HERE.resolve().parent
OLD = "aaf8b1d"
TABLES = {
    "compare": ("utility", "paired_utility.py compare FOLDER/old.json FOLDER/new.json"),
    "stability": ("reading_topics", "reading_topics.py --stability FOLDER/before FOLDER/after"),
    "main": ("utility", "utility.py main --points FOLDER/main.json --plot docs/images/utility.png"),
    "N50": ("utility", "utility.py N50 --points FOLDER/main.json"),
    "floor": ("measurements", "floor.py"),
    "floor-words": ("measurements",
                    "floor.py --corpora kos nips --words 8000 --documents 0 --epsilons 1"),
    "planning-errors": ("planning", "planner.py --points benchmarks/planner_points.json"),
    "planning": ("planning", "planner.py --expected"),
    "weak": ("reading_topics", "reading_topics.py --weak"),
    "weak-planned": ("reading_topics", "reading_topics.py --weak --planned --epsilons 4"),
    "reading": ("reading_topics", "reading_topics.py --picture docs/images/topics.png"),
    "signal": ("signal", "topic_signal.py --small-seeds 0"),
    "signal-small": ("signal", "topic_signal.py --seeds 0 --epsilons 4"),
    "groups": ("small_groups", "utility.py groups --points FOLDER/groups.json"),
    "groups-10": ("small_groups", "utility.py groups --points FOLDER/groups.json --components 10 "
                  "--corpora bbc --epsilons 1 2 4 inf"),
    "groups-60": ("small_groups", "utility.py groups --points FOLDER/groups.json --components 60 "
                  "--corpora docstrings --epsilons 1 4 inf --seeds 3"),
    "groups-public": ("small_groups", "utility.py groups --points FOLDER/groups.json --public 300 "
                      "--corpora bbc --epsilons .5 1 2 4"),
    "classify": ("utility", "utility.py classify --points FOLDER/classify.json"),
    "large-vocabulary": ("public_prior", "large_vocabulary.py --seeds 3"),
    "users": ("measurements", "users.py"),
    "sampling": ("measurements", "sampling.py --seeds 2"),
    "svi": ("measurements", "svi.py --corpora kos docstrings nips"),
    "word-totals": ("decisions", "word_totals.py --epsilons 4 --seeds 3"),
    "word-totals-half": ("decisions", "word_totals.py --corpora docstrings --half --epsilons 1 "
                         "--seeds 8 --clear 7 5 0"),
    "word-totals-nips": ("decisions", "word_totals.py --corpora nips --epsilons 1 --seeds 4 "
                         "--clear 7 5"),
    "mid-run": ("decisions", "mid_run.py --half --rounds 50 60 70"),
    "mid-run-others": ("decisions", "mid_run.py --corpora kos nips bbc --rounds 60 --seeds 5"),
    "pairs": ("public_prior",
              "public_prior.py --seeds 3 --short --points benchmarks/public_prior.json"),
}  # fmt: skip
FITS = (  # of both commits: documents, and what is fitted to them
    ("splits", "--epsilons 1 2 4 8 --tables"),
    ("splits", "--epsilons 1 4 --estimators PrivateSVILDA HDPLDA"),
    ("half", "--epsilons 1 2 4 --seeds 8 --tables"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="keeps what was measured")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a table; none: all of them")
    parser.add_argument("--list", action="store_true", help="print the tables and their commands")
    options = parser.parse_args()
    if options.list:
        for name, (page, command) in TABLES.items():
            print(f"{name:17}docs/{page}.md  {command}")
        return
    if options.folder is None or not TABLES.keys() >= set(options.names):
        parser.error(f"give a folder, and names out of {', '.join(TABLES)}")
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.names or TABLES:
        start = time.time(), processor_seconds()
        write(name, options.folder.resolve())
        passed, processor = time.time() - start[0], processor_seconds() - start[1]
        print(f"{name}: {passed:.0f} s, {processor:.0f} s of a processor", flush=True)


def write(name: str, folder: Path) -> None:
    """Measure a table, and write it into its page."""
    if name in ("compare", "stability"):
        fit_both(folder)
    page, command = TABLES[name]
    output = folder / f"{name}.md"  # grows meanwhile
    with output.open("w", encoding="utf-8") as file:
        run(command, folder, stdout=file)
    with printed_into((ROOT / "docs" / f"{page}.md", name)):
        print(output.read_text(encoding="utf-8"))


def fit_both(folder: Path) -> None:
    """Fit the old commit and the present code, as far as the folder lacks the fits."""
    old = folder / OLD
    if not old.exists():
        packed = subprocess.run(["git", "archive", OLD], cwd=ROOT, check=True, capture_output=True)
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
            files.extractall(old, filter="data")
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(build, cwd=old, check=True)
    run("paired_utility.py splits FOLDER/splits", folder)
    run("paired_utility.py splits FOLDER/half --corpora docstrings --half", folder)
    for package, file, tables in ((old, "old.json", "before"), (ROOT, "new.json", "after")):
        for documents, settings in FITS:
            settings = settings.replace("--tables", f"--tables FOLDER/{tables}")
            command = f"paired_utility.py run FOLDER/{file} --splits FOLDER/{documents} {settings}"
            run(command, folder, package)


def run(command: str, folder: Path, package: Path = ROOT, stdout=None) -> None:
    """Run a benchmark with the package of a checkout."""
    script, *arguments = shlex.split(command)
    paths = [str(package), *filter(None, [os.environ.get("PYTHONPATH")])]
    subprocess.run(
        [sys.executable, HERE / script, *(a.replace("FOLDER", str(folder)) for a in arguments)],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}, stdout=stdout,
        check=True,
    )  # fmt: skip


def processor_seconds() -> float:
    """Those of all ended processes that this one began."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
