"""Audits of every estimator: the epsilon that an attack finds, next to the one that is claimed.

``python benchmarks/audits.py [--runs 20] [--canaries 5000] [--seed 0] [--only TEXT]``
``[--pictures DIR]``, and ``--page docs/audits.md --pictures docs/images`` to draw the bars again
from the tables of the page.

Canaries are hidden among 100 invented documents (``make_topic_corpus``), at delta 1e-5. The
confidence of 0.95 holds for each line alone. The claim of `dplda.published` is the published one.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from dplda import (
    HDPLDA,
    LPLDA,
    OLPLDA,
    PrivateSVILDA,
    RandomizedResponse,
    SubLDA,
    published,
)
from dplda.audit import (
    AnchorAttack,
    ReportedWordAttack,
    RequestAttack,
    UserAttack,
    audit_epsilon,
)
from dplda.datasets import make_topic_corpus
from dplda.federated import IFTMParty

DELTA, ROUNDS = 1e-5, {"delta": 1e-5, "max_iter": 10}


def word_level(*, noise_epsilon: float, count_clip: float, **options) -> HDPLDA:
    return HDPLDA(
        2, noise_epsilon=noise_epsilon, count_clip=count_clip, topic_word_prior=1.0,
        **ROUNDS | options,
    )  # fmt: skip


def local(kind: type, bit_epsilon: float, max_doc_words: int, **options) -> object:
    if kind is not RandomizedResponse:
        options |= {"n_components": 2, "max_iter": 1}
    if kind is OLPLDA:
        options |= {"prior_weight": 0.4, "batch_size": 500}
    return kind(bit_epsilon=bit_epsilon, max_doc_words=max_doc_words, delta=DELTA, **options)


SOUND = {
    "SubLDA, epsilon 1": SubLDA(2, epsilon=1.0, **ROUNDS),
    "SubLDA, epsilon 4": SubLDA(2, epsilon=4.0, **ROUNDS),
    "SubLDA, epsilon 8, ratio 0.2": SubLDA(2, epsilon=8.0, subsampling_ratio=0.2, **ROUNDS),
    "SubLDA, epsilon 4, ratio 0.3, boost 2": SubLDA(
        2, epsilon=4.0, subsampling_ratio=0.3, boost=2.0, **ROUNDS
    ),
    "SubLDA, epsilon 8": SubLDA(2, epsilon=8.0, **ROUNDS),
    "SubLDA, epsilon 4, 10 topics": SubLDA(10, epsilon=4.0, **ROUNDS),
    "SubLDA, epsilon 4, one round": SubLDA(2, epsilon=4.0, delta=DELTA, max_iter=1),
    "SubLDA, all for word totals": SubLDA(2, epsilon=4.0, word_total_share=0.99, **ROUNDS),
    "PrivateSVILDA, epsilon 1": PrivateSVILDA(2, epsilon=1.0, **ROUNDS),
    "PrivateSVILDA, epsilon 4": PrivateSVILDA(2, epsilon=4.0, **ROUNDS),
    "PrivateSVILDA, epsilon 1, ratio 1": PrivateSVILDA(
        2, epsilon=1.0, subsampling_ratio=1.0, **ROUNDS
    ),
    "PrivateSVILDA, epsilon 4, ratio 1": PrivateSVILDA(
        2, epsilon=4.0, subsampling_ratio=1.0, **ROUNDS
    ),
    "PrivateSVILDA, epsilon 8, ratio 1": PrivateSVILDA(
        2, epsilon=8.0, subsampling_ratio=1.0, **ROUNDS
    ),
    "PrivateSVILDA, 5 tokens": PrivateSVILDA(2, epsilon=4.0, max_doc_tokens=5, **ROUNDS),
    "PrivateSVILDA, multiplier 0.8, ratio 0.1": PrivateSVILDA(
        2, noise_multiplier=0.8, subsampling_ratio=0.1, **ROUNDS
    ),
    "HDPLDA, words, epsilon 2": HDPLDA(2, epsilon=2.0, **ROUNDS),
    "HDPLDA, words, Gaussian, epsilon 4": HDPLDA(2, epsilon=4.0, noise="gaussian", **ROUNDS),
    "HDPLDA, words, 0.1 + 0.45": word_level(noise_epsilon=0.1, count_clip=0.25),
    "HDPLDA, words, 1 + 1.39": word_level(noise_epsilon=1.0, count_clip=1.0),
    "HDPLDA, words, 4 + 1.39, one sweep": word_level(noise_epsilon=4.0, count_clip=1.0, max_iter=1),
    "LPLDA, bit 1, 1 word": local(LPLDA, 1.0, 1),
    "LPLDA, bit 2, 1 word": local(LPLDA, 2.0, 1),
    "LPLDA, bit 0.5, 2 words": local(LPLDA, 0.5, 2),
    "LPLDA, bit 0.3, 5 words": local(LPLDA, 0.3, 5),
    "LPLDA, oue, pair 1, 2 words": local(LPLDA, 1.0, 2, mechanism="oue"),
    "OLPLDA, bit 1, 1 word": local(OLPLDA, 1.0, 1),
    "OLPLDA, bit 2, 1 word": local(OLPLDA, 2.0, 1),
    "OLPLDA, bit 0.5, 2 words": local(OLPLDA, 0.5, 2),
    "OLPLDA, bit 0.3, 5 words": local(OLPLDA, 0.3, 5),
    "OLPLDA, oue, pair 1, 2 words": local(OLPLDA, 1.0, 2, mechanism="oue"),
    "RandomizedResponse, bit 0.1, 10 words": local(RandomizedResponse, 0.1, 10),
    "RandomizedResponse, bit 0.7, 2 words": local(RandomizedResponse, 0.7, 2),
    "RandomizedResponse, bit 1.5, 1 word": local(RandomizedResponse, 1.5, 1),
    "RandomizedResponse, oue, pair 2, 1 word": local(RandomizedResponse, 2.0, 1, mechanism="oue"),
    "RandomizedResponse, oue, pair 0.5, 4 words": local(
        RandomizedResponse, 0.5, 4, mechanism="oue"
    ),
    "IFTMParty, token 0.5": IFTMParty(2, token_epsilon=0.5, max_iter=1),
    "IFTMParty, token 2": IFTMParty(2, token_epsilon=2.0, max_iter=1),
    "IFTMParty, Laplace 0.5": IFTMParty(
        2, token_epsilon=0.5, token_mechanism="laplace", max_iter=1
    ),
    "IFTMParty, Laplace 2": IFTMParty(2, token_epsilon=2.0, token_mechanism="laplace", max_iter=1),
}
# Other relations and ways to train: estimator and options of the audit.
PATHS = {
    "SubLDA, epsilon 4, partial_fit": (SOUND["SubLDA, epsilon 4"], {"method": "partial_fit"}),
    "PrivateSVILDA, epsilon 4, ratio 1, partial_fit": (
        SOUND["PrivateSVILDA, epsilon 4, ratio 1"],
        {"method": "partial_fit"},
    ),
    "SubLDA, epsilon 4, users": (SOUND["SubLDA, epsilon 4"], {"attack": UserAttack}),
    "PrivateSVILDA, epsilon 4, ratio 1, users": (
        SOUND["PrivateSVILDA, epsilon 4, ratio 1"],
        {"attack": UserAttack},
    ),
    "HDPLDA, words, epsilon 2, partial_fit": (
        SOUND["HDPLDA, words, epsilon 2"],
        {"method": "partial_fit"},
    ),
    "LPLDA, bit 1, 1 word, partial_fit": (
        SOUND["LPLDA, bit 1, 1 word"],
        {"method": "partial_fit"},
    ),
    "OLPLDA, bit 1, 1 word, partial_fit": (
        SOUND["OLPLDA, bit 1, 1 word"],
        {"method": "partial_fit"},
    ),
    "IFTMParty, token 2, partial_fit": (SOUND["IFTMParty, token 2"], {"method": "partial_fit"}),
    "IFTMParty, token 2, sentences": (
        IFTMParty(2, token_epsilon=2.0, max_iter=1, model="sentence_lda"),
        {},
    ),
    "RandomizedResponse, bit 1, 1 word": (
        local(RandomizedResponse, 1.0, 1),
        {"attack": ReportedWordAttack},
    ),
    "RandomizedResponse, bit 1, 3 words": (
        local(RandomizedResponse, 1.0, 3),
        {"attack": ReportedWordAttack},
    ),
    "MemoizedReports, bit 0.7, 2 words": (
        local(RandomizedResponse, 0.7, 2),
        {"attack": RequestAttack},
    ),
}
# Name, estimator, attack (None: the one that the class names).
PUBLISHED = {
    "SUB-LDA: words that were not sampled": (published.PublishedSubLDA(2, max_iter=92), None),
    "SUB-LDA: topics that a word moves": (
        published.PublishedSubLDA(
            2, rdp_epsilon=14 / (2 * 5.5**2), doc_topic_prior=0.02, max_iter=300
        ),
        AnchorAttack,
    ),
    "HDP-LDA: moves without noise": (
        published.PublishedHDPLDA(
            2, noise_epsilon=0.1, count_clip=0.05, topic_word_prior=1, max_iter=5
        ),
        None,
    ),
    "private SVI: noise for another mean": (
        published.PublishedPrivateSVILDA(2, published_epsilon=1.0, delta=DELTA),
        None,
    ),
    "iFTM: counts from a normalized model": (
        published.PublishedIFTMParty(2, published_epsilon=2.0, max_iter=2),
        None,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20, help="fits of each sound estimator")
    parser.add_argument("--canaries", type=int, default=5000, help="canaries of each of these fits")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="lines whose name has this text")
    parser.add_argument("--pictures", type=Path, help="folder for two PNG")
    parser.add_argument("--page", type=Path, help="draw the bars of the tables of this page only")
    options = parser.parse_args()
    if options.page is not None:
        draw_bars(*tables(options.page), options.pictures / "audits.png")
        return
    X = make_topic_corpus(n_docs=100, n_words=50, n_components=2, random_state=0).data
    audited = {name: (model, {}) for name, model in SOUND.items()} | PATHS
    design = {"n_runs": options.runs, "n_canaries": options.canaries}
    print(f"\nSound estimators, {options.runs} fits with {options.canaries} canaries each\n")
    print(
        "| | a coin decides that | claimed | any mechanism | f-DP | independent canaries "
        "| of the claim: before | now | |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    sound = {}
    for name, (model, others) in audited.items():
        if options.only not in name:
            continue
        sound[name] = result = audit_epsilon(
            model, X, delta=DELTA, random_state=options.seed, **design, **others
        )
        bounds = [bound.epsilon for bound in result.bounds]
        shares = f"{bounds[0] / result.claim:.2f} | {max(bounds) / result.claim:.2f}"
        print(
            f"| {name} | {result.relation} | {result.claim:.2f} | "
            f"{' | '.join(f'{bound:.2f}' for bound in bounds)} | {shares} | {verdict(result)} |",
            flush=True,
        )
    print("\nResidual checks of the first fits\n")
    for name, result in sound.items():
        if result.residuals is not None:
            print(f"* {name}: {result.residuals.verdict}")
    if options.only:
        return
    found = {
        name: audit_epsilon(
            model, X, delta=DELTA, n_runs=5, attack=attack, random_state=options.seed
        )
        for name, (model, attack) in PUBLISHED.items()
    }
    show("As published, 5 fits with 1000 canaries each", found)
    if options.pictures is not None:
        options.pictures.mkdir(parents=True, exist_ok=True)
        draw_bars(sound, found, options.pictures / "audits.png")
        draw_scores(sound, found, options.pictures / "audit_scores.png")


def verdict(result) -> str:
    return "**refuted**" if result.refuted else "holds"


def show(title, results) -> None:
    print(f"\n{title}\n\n| | a coin decides that | epsilon at least | claimed | |")
    print("| --- | --- | --- | --- | --- |")
    for name, result in results.items():
        print(
            f"| {name} | {result.relation} | {result.lower_bound:.2f} | {result.claim:.2f} "
            f"| {verdict(result)} |"
        )


def tables(page: Path) -> tuple[dict, dict]:
    """Results of the sound and of the published estimators, as the page states them."""
    sound, found = {}, {}
    for line in page.read_text(encoding="utf-8").splitlines():
        name, *cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if name in PUBLISHED and len(cells) == 4:
            bounds, claim, results = cells[1:2], cells[2], found
        elif name in SOUND | PATHS and len(cells) == 8:
            bounds, claim, results = cells[2:5], cells[1], sound
        else:
            continue
        results[name] = SimpleNamespace(
            claim=float(claim), lower_bound=float(bounds[0]), refuted="refuted" in cells[-1],
            bounds=[SimpleNamespace(epsilon=float(bound)) for bound in bounds],
        )  # fmt: skip
    assert {*sound} == {*SOUND, *PATHS}, "the page has other rows than the script"
    return sound, found


def draw_bars(sound, found, path) -> None:
    import matplotlib.pyplot as plt

    heights = [len(found), len(sound)]
    figure, axes = plt.subplots(
        2, 1, figsize=(8, 0.21 * sum(heights) + 2.2), height_ratios=heights, layout="constrained"
    )
    for ax, results, title in zip(axes, (found, sound), ("as published", "dplda")):
        at = np.arange(len(results))
        ax.barh(at, [r.claim for r in results.values()], color="#D0D0D0", label="claimed")
        ax.barh(
            at, [max(b.epsilon for b in r.bounds) for r in results.values()], height=0.4,
            color=["#D55E00" if r.refuted else "#0072B2" for r in results.values()],
            label="found by the attack",
        )  # fmt: skip
        ax.set_yticks(at, list(results), fontsize=7)
        ax.set_ylim(len(results) - 0.4, -0.6)
        ax.set_title(title, fontsize=9, loc="left")
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_xlim(0, 1.05 * max(max(r.claim, r.lower_bound) for r in results.values()))
    axes[0].legend(fontsize=7, frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
    axes[1].set_xlabel("epsilon (delta 1e-5)")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_scores(sound, found, path) -> None:
    import matplotlib.pyplot as plt

    chosen = [
        sound["SubLDA, epsilon 4"],
        sound["IFTMParty, Laplace 2"],
        found["SUB-LDA: words that were not sampled"],
        found["SUB-LDA: topics that a word moves"],
    ]
    figure, axes = plt.subplots(2, 2, figsize=(11, 6.4), layout="constrained")
    for ax, result in zip(axes.ravel(), chosen):
        result.plot(ax)
    figure.savefig(path, dpi=100)
    plt.close(figure)


if __name__ == "__main__":
    main()
