"""The tables and figures of the SUB-LDA paper, our results next to the printed ones.

``python benchmarks/papers/sub_lda.py [--parts table3 leak figure1 figure2 figure3
figure4 figure5 figure6] [--corpora kos] [--quick] [--figures DIR]``

`dplda.published.PublishedSubLDA`, which is **not private**, in the paper's setting:
order 14, divergence 2 (standard deviation 1.87), 100 iterations, all words and all
documents, perplexity of the training data. KOS replaces 20 Newsgroups and ENRON. The
figures of the paper have curves and no numbers; the statements of its text are printed
next to our results. The paper does not give the priors (here 0.1 and 0.01), the clip
(here none) or the constants of its stopping rule. One seed. ``--quick`` takes 300
documents of KOS, 20 topics and 15 iterations. KOS takes three minutes, NIPS seven.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from functools import cache
from pathlib import Path
from unittest import mock

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, logsumexp, xlog1py, xlogy

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from corpora import uci_bow

from dplda.audit import observe_releases
from dplda.core._perplexity import log_probabilities
from dplda.privacy import (
    Gaussian,
    PoissonSampled,
    PrivacyLeakWarning,
    Repeated,
    epsilon_of,
)
from dplda.published import PublishedSubLDA, _sublda
from dplda.published._base import count_words
from dplda.published._sublda import iteration_epsilon

ORDER, EPSILON, DELTA = 14, 2.0, 1e-5
SIGMA = math.sqrt(ORDER / (2 * EPSILON))
RATIOS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
PRINTED_ITERATIONS = (92, 83, 70, 66, 61, 42)
PRINTED_EPSILON = ("0.05", "0.73", "1.18", "1.48", "1.63", "2")
PRINTED_TOTAL = ("4.6", "59.86", "82.6", "97.86", "99.43", "84")
COMPONENTS = (20, 60, 100)
CURVES = {"nips": (100,), "kos": (20, 50)}  # numbers of topics of the long runs
RULES = ((2.0, 2), (5.0, 4), (10.0, 4), (20.0, 4))
ADAPTIVE = ((1.5, 1.0), (2.0, 1.0), (2.0, 0.5), (4.0, 0.5), (4.0, 0.25), (8.0, 0.5))


def without_last_term(
    subsampling_ratio: float, rdp_order: int, rdp_epsilon: float
) -> float:
    """The sum of equation (3) without its last term, l = alpha.

    It gives the digits of Table 3 and the shape of Figure 1. The parameters are those
    of `iteration_epsilon`. Where nothing is sampled, or there is no noise, there is no
    such sum, and the result is that of equation (3).
    """
    if subsampling_ratio == 1 or math.isinf(rdp_epsilon):
        return iteration_epsilon(subsampling_ratio, rdp_order, rdp_epsilon)
    chosen = np.arange(rdp_order)
    terms = (
        gammaln(rdp_order + 1)
        - gammaln(chosen + 1)
        - gammaln(rdp_order - chosen + 1)
        + xlog1py(rdp_order - chosen, -subsampling_ratio)
        + xlogy(chosen, subsampling_ratio)
        + np.maximum(chosen - 1, 0) * chosen * rdp_epsilon / rdp_order
    )
    return float(logsumexp(terms)) / (rdp_order - 1)


def efficiency_privacy(
    subsampling_ratio: float,
    rdp_order: int,
    noise_multiplier: float,
    *,
    cost=iteration_epsilon,
) -> float:
    """The efficiency-privacy function I of SUB-LDA, equation (6); inf if it overflows.

    `cost` is `iteration_epsilon`, with which I increases up to ratio 1, or
    `without_last_term`, with which it has the inner maximum that Lemma 4.1 states.
    """
    epsilon = rdp_order / 2 / noise_multiplier / noise_multiplier
    exponent = math.log(subsampling_ratio)
    exponent += (rdp_order - 1) * cost(subsampling_ratio, rdp_order, epsilon)
    return math.exp(exponent) if exponent < 709 else math.inf


class Setting:
    """Corpora and run lengths, full or quick, and the runs that several parts share."""

    def __init__(self, options) -> None:
        self.figures = options.figures
        self.n_docs = 300 if options.quick else None
        self.corpora = ["kos"] if options.quick else options.corpora
        self.max_iter = 15 if options.quick else 100
        self.components = (10, 20) if options.quick else COMPONENTS
        self.curves = {"kos": (10, 20)} if options.quick else CURVES

    @cache  # noqa: B019 (there is one setting)
    def load(self, name):
        X = uci_bow(name).data
        return X[: self.n_docs]

    @cache  # noqa: B019
    def perplexities(self, name, n_components, subsampling_ratio, **parameters):
        """After each iteration, with a document's weights from its current topics."""
        X, curve = self.load(name), []
        model = PublishedSubLDA(
            n_components,
            subsampling_ratio=subsampling_ratio,
            max_iter=self.max_iter,
            random_state=0,
            **parameters,
        )

        def counted(corpus, topics, n_components):
            if releases:  # the first topics are counted before the first iteration
                counts = np.zeros((X.shape[0], n_components))
                document = np.repeat(np.arange(len(counts)), np.diff(corpus.doc_ptr))
                np.add.at(counts, (document, topics), 1)
                phi = np.maximum(releases.pop().value, 0) + model.topic_word_prior
                theta = counts + model.doc_topic_prior
                theta /= theta.sum(axis=1, keepdims=True)
                tokens = sp.csr_array(X)
                logs = log_probabilities(tokens, theta, phi / phi.sum(axis=0))
                total = float(tokens.data @ logs)
                curve.append(math.exp(-total / corpus.n_tokens))
            return count_words(corpus, topics, n_components)

        with (
            observe_releases() as releases,
            mock.patch.object(_sublda, "count_words", counted),
        ):
            model.fit(X)
        return np.array(curve)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--corpora", nargs="+", default=["kos"], choices=list(CURVES))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--figures", type=Path, help="folder for one PNG a figure")
    options = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyLeakWarning)
    setting = Setting(options)
    for name in list(setting.corpora):
        try:
            X = setting.load(name)
            print(
                f"{name}: {X.shape[0]} documents, {X.shape[1]} words, {int(X.sum())} "
                "tokens"
            )
        except OSError as error:
            print(f"left out: {name} ({error})")
            setting.corpora.remove(name)
    for part in options.parts:
        started = time.process_time()
        PARTS[part](setting)
        print(
            f"\n({part}: {time.process_time() - started:.0f} s of CPU time)", flush=True
        )


def table_3(setting) -> None:
    """The account: correct, as printed, and with rule (9)'s iterations in our runs."""
    heading("Table 3: the account of order 14 with the printed iterations")
    header = [
        "ratio",
        "equation (3)",
        "without its last term",
        "printed",
        "iterations, printed",
    ]
    row(
        [*header, "right total", "total without last term", "total, printed"], head=True
    )
    printed = zip(RATIOS, PRINTED_ITERATIONS, PRINTED_EPSILON, PRINTED_TOTAL)
    for ratio, n_iter, epsilon, total in printed:
        right, table = (
            f(ratio, ORDER, EPSILON) for f in (iteration_epsilon, without_last_term)
        )
        cells = [f"{ratio:g}", f"{right:.6f}", f"{table:.6f}", epsilon, n_iter]
        row([*cells, f"{n_iter * right:.2f}", f"{n_iter * table:.2f}", total])
    for name in setting.corpora:
        n_components = setting.curves[name][-1]
        heading(
            f"Table 3: iterations by rule (9), {name}, K = {n_components}; total in "
            "brackets"
        )
        rules = [f"D = {tol:g}, s = {patience}" for tol, patience in RULES]
        row(["ratio", "printed (NIPS, K = 100)", *rules], head=True)
        for ratio, n_iter in zip(RATIOS, PRINTED_ITERATIONS):
            curve = setting.perplexities(name, n_components, ratio)
            cost = iteration_epsilon(ratio, ORDER, EPSILON)
            cells = [cell(stop(curve, *rule), cost, len(curve)) for rule in RULES]
            row([f"{ratio:g}", f"{n_iter} ({n_iter * cost:.1f})", *cells])


def leak(setting) -> None:
    """Privacy cost of a rare word's noisy counts: an unsampled Gaussian mechanism."""
    heading(
        "One token of a word that no other document has, K = 2, delta = 1e-5: epsilon "
        "by the published account, by the same one with the best accountant, and at "
        "least"
    )
    row(
        ["ratio", "iterations", "published", "if sampling amplified", "sum of the row"],
        head=True,
    )
    for ratio, n_iter in zip(RATIOS, PRINTED_ITERATIONS):
        published = n_iter * iteration_epsilon(ratio, ORDER, EPSILON)
        published += math.log(1 / DELTA) / (ORDER - 1)
        sampled = (
            Gaussian(SIGMA) if ratio == 1 else PoissonSampled(ratio, Gaussian(SIGMA))
        )
        meant, shown = (
            epsilon_of([Repeated(event, n_iter)], DELTA)
            for event in (sampled, Gaussian(math.sqrt(2) * SIGMA))
        )
        row([f"{ratio:g}", n_iter, *(f"{e:.2f}" for e in (published, meant, shown))])


def stop(curve, tol, patience) -> int | None:
    """The iteration at which rule (9) ends the run, by a longer one's perplexity."""
    small = np.abs(np.diff(curve)) <= tol
    for first in range(len(small) - patience):
        if small[first : first + patience + 1].all():
            return first + patience + 2
    return None


def cell(n_iter, cost, longest) -> str:
    return f"{n_iter} ({n_iter * cost:.1f})" if n_iter else f"not in {longest}"


def figure_1(setting) -> None:
    """The efficiency-privacy function."""
    heading(
        "Figure 1: log of I; the paper: an inner maximum, higher for a larger order "
        "and the same for a larger sigma (no number printed)"
    )
    grid = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
    row(
        ["order", "sigma", "equation", *(f"{g:g}" for g in grid), "largest at"],
        head=True,
    )
    curves = {}
    for order, sigma in (
        (8, SIGMA),
        (14, SIGMA),
        (20, SIGMA),
        (14, 1.5 * SIGMA),
        (14, 3 * SIGMA),
    ):
        for name, cost in (
            ("(3)", iteration_epsilon),
            ("without last term", without_last_term),
        ):

            def log_i(g, order=order, sigma=sigma, cost=cost):
                return math.log(efficiency_privacy(g, order, sigma, cost=cost))

            # at 1 there is no sampling, so there is no sum whose last term could be
            # missing
            inner = minimize_scalar(
                lambda g: -log_i(g), bounds=(0.5, 0.999999), method="bounded"
            )
            shown = [f"{log_i(g):.3f}" for g in grid[:-1]] + [
                f"{log_i(1.0):.3f}" if cost is iteration_epsilon else "-"
            ]
            best = "1" if cost is iteration_epsilon else f"{inner.x:.4f}"
            row([order, f"{sigma:.3f}", name, *shown, best])
            x = np.linspace(0.02, 0.999, 400)
            curves[f"order {order}, sigma {sigma:.2f}, {name}"] = (
                x,
                [log_i(g) for g in x],
            )
    draw(setting, "figure1", "ratio", "log I", curves)


def figure_2(setting) -> None:
    """Time of an iteration."""
    for name in setting.corpora:
        heading(
            f"Figure 2, {name}: speed-up (7), |t_sub - t_hdp| / t_hdp; the paper: "
            "larger for smaller ratios and for more topics (no number printed)"
        )
        row(["K", *(f"{r:g}" for r in RATIOS[:-1]), "ms, ratio 1"], head=True)
        curves = {}
        for n_components in setting.components:
            t = [
                iteration_seconds(setting, name, n_components, ratio)
                for ratio in RATIOS
            ]
            speed_up = [abs(a - t[-1]) / t[-1] for a in t[:-1]]
            row([n_components, *(f"{s:.3f}" for s in speed_up), f"{1e3 * t[-1]:.0f}"])
            curves[f"K = {n_components}"] = (RATIOS[:-1], speed_up)
        draw(setting, f"figure2_{name}", "ratio", "speed-up", curves)


def iteration_seconds(setting, name, n_components, ratio, n_iter=2) -> float:
    """CPU time of an iteration: a fit with some, less a fit with one; best of two."""
    seconds = []
    for _ in range(2):
        times = []
        for n in (1, 1 + n_iter):
            model = PublishedSubLDA(
                n_components, subsampling_ratio=ratio, max_iter=n, random_state=0
            )
            started = time.process_time()
            model.fit(setting.load(name))
            times.append(time.process_time() - started)
        seconds.append((times[1] - times[0]) / n_iter)
    return min(seconds)


def figure_3(setting) -> None:
    """Perplexity next to that of ratio 1."""
    for name in setting.corpora:
        heading(
            f"Figure 3, {name}: |per_sub - per_hdp| / per_hdp after {setting.max_iter} "
            "iterations; the paper: smaller for larger ratios, often larger for more "
            "topics (no number printed)"
        )
        row(["K", *(f"{r:g}" for r in RATIOS[:-1]), "per_hdp"], head=True)
        curves = {}
        for n_components in setting.curves[name]:
            last = [setting.perplexities(name, n_components, r)[-1] for r in RATIOS]
            ratios = [abs(p - last[-1]) / last[-1] for p in last[:-1]]
            row([n_components, *(f"{r:.3f}" for r in ratios), f"{last[-1]:.0f}"])
            curves[f"K = {n_components}"] = (RATIOS[:-1], ratios)
        draw(setting, f"figure3_{name}", "ratio", "perplexity ratio", curves)


def figure_4(setting) -> None:
    """Perplexity against the iteration."""
    for name in setting.corpora:
        n_components = setting.curves[name][-1]
        heading(
            f"Figure 4, {name}, K = {n_components}: perplexity by iteration; the "
            "paper: higher, and later, for smaller ratios (no number printed)"
        )
        n = setting.max_iter
        shown = sorted({1, max(n // 20, 2), n // 10, n // 5, n // 2, 3 * n // 4, n})
        row(["ratio", *shown], head=True)
        curves = {}
        for ratio in RATIOS:
            curve = setting.perplexities(name, n_components, ratio)
            row([f"{ratio:g}", *(f"{curve[t - 1]:.0f}" for t in shown)])
            curves[f"ratio {ratio:g}"] = (range(1, n + 1), curve)
        draw(setting, f"figure4_{name}", "iteration", "perplexity", curves)


def figure_5(setting) -> None:
    """Perplexity at the end, with the noise of either reading and without noise."""
    for name in setting.corpora:
        heading(
            f"Figure 5, {name}: perplexity after {setting.max_iter} iterations; the "
            "paper: falling with the ratio, first concave and then convex (no number "
            "printed)"
        )
        row(["K", "noise", *(f"{r:g}" for r in RATIOS)], head=True)
        curves = {}
        readings = {"iteration": {}}
        if len(setting.curves[name]) > 1:  # on the small corpus only: it takes time
            readings["token (as printed)"] = {"noise_placement": "token"}
            readings["none"] = {"rdp_epsilon": math.inf}
        n_last, n_first = setting.curves[name][-1], setting.curves[name][0]
        shown = dict.fromkeys(
            [(n_last, "iteration"), *((n_first, label) for label in readings)]
        )
        for n_components, label in shown:
            last = [
                setting.perplexities(name, n_components, ratio, **readings[label])[-1]
                for ratio in RATIOS
            ]
            row([n_components, label, *(f"{p:.0f}" for p in last)])
            curves[f"K = {n_components}, noise: {label}"] = (RATIOS, last)
        draw(setting, f"figure5_{name}", "ratio", "perplexity", curves)


def figure_6(setting) -> None:
    """Adaptive sampling."""
    for name in setting.corpora:
        heading(
            f"Figure 6, {name}, K = 20, ratio 0.1: adaptive sampling, eta = 1 / (v q); "
            "the paper: prominent improvements on NIPS, none on the small corpus (no "
            "number printed)"
        )
        row(["v", "q", "eta", "perplexity", "cost of an iteration, (13)"], head=True)
        uniform = setting.perplexities(name, 20, 0.1)[-1]
        cost = iteration_epsilon(0.1, ORDER, EPSILON)
        row(["uniform", "", "1", f"{uniform:.0f}", f"{cost:.3f}"])
        curves = {"uniform": ([0.25, 1.0], [uniform, uniform])}
        for boost, share in ADAPTIVE:
            parameters = {"boost": boost, "frequent_share": share}
            last = setting.perplexities(name, 20, 0.1, **parameters)[-1]
            eta = 1 / (boost * share)
            cells = [f"{boost:g}", f"{share:g}", f"{eta:.2f}", f"{last:.0f}"]
            row([*cells, f"{cost + math.log(boost):.3f}"])
            x, y = curves.setdefault(f"q = {share:g}", ([], []))
            x.append(eta)
            y.append(last)
        draw(setting, f"figure6_{name}", "eta", "perplexity", curves)


PARTS = {
    "table3": table_3,
    "leak": leak,
    "figure1": figure_1,
    "figure2": figure_2,
    "figure3": figure_3,
    "figure4": figure_4,
    "figure5": figure_5,
    "figure6": figure_6,
}


def heading(text) -> None:
    print(f"\n{text}\n")


def row(cells, *, head=False) -> None:
    print("| " + " | ".join(str(c) for c in cells) + " |", flush=True)
    if head:
        print("| --- |" + " --- |" * (len(cells) - 1))


def draw(setting, name, x_label, y_label, curves) -> None:
    if setting.figures is None:
        return
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8.0, 4.0), layout="constrained")
    for label, (x, y) in curves.items():
        axes.plot(x, y, marker="o" if len(x) < 30 else None, markersize=4, label=label)
    axes.set(xlabel=x_label, ylabel=y_label)
    figure.legend(frameon=False, loc="outside right upper")
    setting.figures.mkdir(parents=True, exist_ok=True)
    figure.savefig(setting.figures / f"{name}.png", dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main()
