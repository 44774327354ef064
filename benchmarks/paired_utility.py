"""Whether a change of the code changes held-out perplexity: fits of two commits, seed by seed.

``python benchmarks/paired_utility.py run FILE [--estimators SubLDA PrivateSVILDA]
[--corpora kos bbc docstrings nips] [--epsilons 1 4 inf] [--seeds 5] [--components 20]
[--rounds 80] [--ratio 1.0]`` fits the package that Python imports (PYTHONPATH chooses a checkout)
and writes the perplexities to a JSON file. ``python benchmarks/paired_utility.py compare BEFORE
AFTER`` prints the mean difference of the pairs of two such files, and its standard error.

As in ``utility.py``: V = 2000, delta = 1e-5, one tenth held out, document completion. Both fits of
a pair get the same seed, and with it the same noise. A fit differs between seeds by much more than
two fits of one seed do if the change is one of rounding only.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from corpora import LOADERS, load

import dplda
from dplda.privacy import LowSignalWarning, SeededNoiseWarning

DELTA = 1e-5
KEY = ("estimator", "corpus", "epsilon", "n_components")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    fit = commands.add_parser("run", help="fit the package that Python imports")
    fit.add_argument("file", type=Path)
    fit.add_argument("--estimators", nargs="+", default=["SubLDA"],
                     choices=["SubLDA", "PrivateSVILDA"])  # fmt: skip
    fit.add_argument("--corpora", nargs="+", default=["kos", "bbc", "docstrings", "nips"],
                     choices=list(LOADERS))  # fmt: skip
    fit.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 4.0, np.inf])
    fit.add_argument("--seeds", type=int, default=5)
    fit.add_argument("--components", type=int, default=20)
    fit.add_argument("--rounds", type=int, default=80)
    fit.add_argument("--ratio", type=float, default=1.0)
    fit.set_defaults(call=run)
    pairs = commands.add_parser("compare", help="print the differences of two files")
    pairs.add_argument("before", type=Path)
    pairs.add_argument("after", type=Path)
    pairs.set_defaults(call=compare)
    options = parser.parse_args()
    options.call(options)


def run(options) -> None:
    """Perplexity and CPU seconds of every fit; the file grows with each."""
    warnings.simplefilter("ignore", SeededNoiseWarning)
    warnings.simplefilter("ignore", LowSignalWarning)
    print(f"dplda of {Path(dplda.__file__).parents[1]}")
    fits = []
    for split in load(options.corpora):
        for name in options.estimators:
            for epsilon in options.epsilons:
                for seed in range(options.seeds):
                    model = getattr(dplda, name)(
                        options.components, epsilon=epsilon, delta=DELTA, random_state=seed,
                        subsampling_ratio=options.ratio, max_iter=options.rounds,
                    )  # fmt: skip
                    start = time.process_time()
                    model.fit(split.train)
                    seconds = time.process_time() - start
                    setting = (name, split.name, epsilon, options.components)
                    fits.append({
                        **dict(zip(KEY, setting)), "seed": seed, "seconds": round(seconds, 3),
                        "perplexity": model.perplexity(split.test),
                    })  # fmt: skip
                    options.file.write_text(json.dumps(fits, indent=1))
                print(*setting, f"{np.mean([f['perplexity'] for f in fits[-options.seeds:]]):.1f}",
                      flush=True)  # fmt: skip


def compare(options) -> None:
    """A row for each setting: perplexities, difference of the pairs, CPU seconds."""
    before, after = (by_setting(json.loads(f.read_text())) for f in (options.before, options.after))
    print("| estimator | corpus | epsilon | K | before | after | difference ± standard error |"
          " CPU s a fit, before | after |\n" + "| --- " * 9 + "|")  # fmt: skip
    for setting in [s for s in before if s in after]:
        one, two = before[setting], after[setting]
        seeds = sorted(one.keys() & two.keys())
        old, new = ([fits[s]["perplexity"] for s in seeds] for fits in (one, two))
        seconds = [np.median([fits[s]["seconds"] for s in seeds]) for fits in (one, two)]
        difference = np.subtract(new, old)
        error = difference.std(ddof=1) / np.sqrt(len(seeds)) if len(seeds) > 1 else np.nan
        print(f"| {setting[0]} | {setting[1]} | {setting[2]:g} | {setting[3]} "
              f"| {np.mean(old):.1f} | {np.mean(new):.1f} | {difference.mean():+.2f} ± {error:.2f} "
              f"| {seconds[0]:.2f} | {seconds[1]:.2f} |")  # fmt: skip


def by_setting(fits: list) -> dict[tuple, dict[int, dict]]:
    found: dict[tuple, dict[int, dict]] = {}
    for fit in fits:
        found.setdefault(tuple(fit[name] for name in KEY), {})[fit["seed"]] = fit
    return found


if __name__ == "__main__":
    main()
