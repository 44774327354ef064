"""Whether a code change alters held-out perplexity: fits of two commits by seed.

``python benchmarks/paired_utility.py splits FOLDER [--corpora kos bbc docstrings nips]
[--half]`` writes the training and held-out documents once, or half of the training
documents. ``... run FILE --splits FOLDER [--estimators SubLDA PrivateSVILDA]
[--epsilons 1 4 inf] [--seeds 5] [--components 20] [--rounds N] [--ratio Q] [--tables
FOLDER]`` fits the package that Python imports (PYTHONPATH chooses a checkout, also an
old one) with its own defaults, and writes the perplexities to a JSON file. Fits that
stand there are not run again. With ``--tables`` it keeps the topics, which
``reading_topics.py --stability`` compares. ``... compare BEFORE AFTER`` prints the mean
difference of the pairs of two such files and its standard error, and says which rows
are worse by more than two standard errors.

As in ``utility.py``: V = 2000, delta = 1e-5, one tenth held out, document completion.
Both fits of a pair get the same seed, and with it the same noise if neither commit
draws it otherwise. A fit differs between seeds by much more than two fits of one seed
do if the change is one of rounding only.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import dplda

DELTA = 1e-5
KEY = ("estimator", "corpus", "epsilon", "n_components")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    cut = commands.add_parser(
        "splits", help="write the documents that both commits get"
    )
    cut.add_argument("folder", type=Path)
    cut.add_argument(
        "--corpora", nargs="+", default=["kos", "bbc", "docstrings", "nips"]
    )
    cut.add_argument(
        "--half", action="store_true", help="train on half of the documents"
    )
    cut.set_defaults(call=splits)
    fit = commands.add_parser("run", help="fit the package that Python imports")
    fit.add_argument("file", type=Path)
    fit.add_argument("--splits", type=Path, required=True)
    fit.add_argument(
        "--estimators",
        nargs="+",
        default=["SubLDA"],
        choices=["SubLDA", "PrivateSVILDA", "HDPLDA"],
    )
    fit.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 4.0, np.inf])
    fit.add_argument("--seeds", type=int, default=5)
    fit.add_argument("--components", type=int, default=20)
    fit.add_argument("--rounds", type=int, dest="max_iter")
    fit.add_argument("--ratio", type=float, dest="subsampling_ratio")
    fit.add_argument(
        "--tables", type=Path, metavar="FOLDER", help="keep the topics there"
    )
    fit.set_defaults(call=run)
    pairs = commands.add_parser("compare", help="print the differences of two files")
    pairs.add_argument("before", type=Path)
    pairs.add_argument("after", type=Path)
    pairs.set_defaults(call=compare)
    options = parser.parse_args()
    options.call(options)


def splits(options) -> None:
    """Two files a corpus: later code may cut the same corpus in another way."""
    from corpora import load  # may need a newer package than the one that `run` fits

    options.folder.mkdir(parents=True, exist_ok=True)
    for split in load(options.corpora):
        name = split.name
        if options.half:
            name, split.train = f"{name}-half", split.train[: split.train.shape[0] // 2]
        for part in ("train", "test"):
            sp.save_npz(options.folder / f"{name}.{part}.npz", getattr(split, part))


def run(options) -> None:
    """Perplexity and CPU seconds of every fit; the file grows with each."""
    warnings.simplefilter("ignore")
    print(f"dplda of {Path(dplda.__file__).parents[1]}")
    fits = json.loads(options.file.read_text()) if options.file.exists() else []
    given = {name: getattr(options, name) for name in ("max_iter", "subsampling_ratio")}
    given = {name: value for name, value in given.items() if value is not None}
    for path in sorted(options.splits.glob("*.train.npz")):
        corpus = path.name.removesuffix(".train.npz")
        train, test = (
            sp.load_npz(path),
            sp.load_npz(path.with_name(f"{corpus}.test.npz")),
        )
        for name in options.estimators:
            for epsilon in options.epsilons:
                setting = (name, corpus, epsilon, options.components)
                known = by_setting(fits).get(setting, {})
                for seed in set(range(options.seeds)) - known.keys():
                    model = getattr(dplda, name)(
                        options.components,
                        epsilon=epsilon,
                        delta=DELTA,
                        random_state=seed,
                        **given,
                    )
                    start = time.process_time()
                    model.fit(train)
                    seconds = time.process_time() - start
                    if options.tables:
                        keep_table(options.tables, setting, seed, model.components_)
                    fits.append(
                        {
                            **dict(zip(KEY, setting)),
                            "seed": seed,
                            "seconds": round(seconds, 3),
                            "perplexity": model.perplexity(test),
                        }
                    )
                    keep(options.file, fits)
                found = [
                    fit["perplexity"] for fit in by_setting(fits)[setting].values()
                ]
                print(*setting, f"{np.mean(found):.1f}", flush=True)


def keep(file: Path, rows: list) -> None:
    """Write measured rows to a file, whole or not at all: a run may end at any time."""
    whole = file.with_suffix(".part")
    whole.write_text(json.dumps(rows, indent=0))
    whole.replace(file)


def keep_table(folder: Path, setting: tuple, seed: int, components: np.ndarray) -> None:
    """Write the topics of a fit; `reading_topics.stability` finds them by the name."""
    folder.mkdir(parents=True, exist_ok=True)
    name, corpus, epsilon, n_components = setting
    path = folder / f"{name}_{corpus}_{epsilon:g}_{n_components}_{seed}.npy"
    np.save(path, components.astype(np.float32))


@contextlib.contextmanager
def printed_into(page_and_mark: tuple[str, str] | None) -> Iterator[None]:
    """What is printed meanwhile replaces what is between a page's marks, if any.

    The marks are ``<!-- MARK -->`` and ``<!-- end of MARK -->``.
    """
    if not page_and_mark:
        yield
        return
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        yield
    page, mark = Path(page_and_mark[0]), page_and_mark[1]
    start, end = f"<!-- {mark} -->", f"<!-- end of {mark} -->"
    before, rest = page.read_text(encoding="utf-8").split(start)
    _, after = rest.split(end)
    text = f"{before}{start}\n\n{printed.getvalue().strip()}\n\n{end}{after}"
    page.write_text(text, encoding="utf-8")


def compare(options) -> None:
    """A row for each setting: perplexities, difference of the pairs, CPU seconds."""
    before, after = (
        by_setting(json.loads(f.read_text())) for f in (options.before, options.after)
    )
    print(
        "| estimator | corpus | epsilon | K | seeds | before | after "
        "| difference ± standard error | | CPU s a fit, before | after |\n"
        + "| --- " * 11
        + "|"
    )
    worse, shared = 0, [setting for setting in before if setting in after]
    for setting in shared:
        one, two = before[setting], after[setting]
        seeds = sorted(one.keys() & two.keys())
        old, new = (
            np.array([fits[s]["perplexity"] for s in seeds]) for fits in (one, two)
        )
        seconds = [
            np.median([fits[s]["seconds"] for s in seeds]) for fits in (one, two)
        ]
        difference = new - old
        error = (
            difference.std(ddof=1) / np.sqrt(len(seeds)) if len(seeds) > 1 else np.nan
        )
        verdict = "worse" if difference.mean() > 2 * error else ""
        worse += bool(verdict)
        name, corpus, epsilon, n_components = setting
        print(
            f"| {name} | {corpus} | {epsilon:g} | {n_components} | {len(seeds)} "
            f"| {old.mean():.1f} | {new.mean():.1f} "
            f"| {difference.mean():+.2f} ± {error:.2f} | {verdict} "
            f"| {seconds[0]:.2f} | {seconds[1]:.2f} |"
        )
    print(f"\nWorse by more than two standard errors: {worse} of {len(shared)}.")


def by_setting(fits: list) -> dict[tuple, dict[int, dict]]:
    found: dict[tuple, dict[int, dict]] = {}
    for fit in fits:
        found.setdefault(tuple(fit[name] for name in KEY), {})[fit["seed"]] = fit
    return found


if __name__ == "__main__":
    main()
