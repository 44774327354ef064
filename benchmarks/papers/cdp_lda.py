"""CDP-LDA audited: topics move after the noise, and the model shows the moves.

``python benchmarks/papers/cdp_lda.py [--runs 4] [--canaries 2000] [--seed 0]``

The baseline of Zhao et al., IEEE TIFS 2020 (section VII), as `dplda.published.CDPLDA` reads it. The
attack is that on HDP-LDA as published: the model minus the last noisy counts.
"""

from __future__ import annotations

import argparse
import warnings

from lower_bounds import Line, show

from dplda.audit import audit_epsilon
from dplda.datasets import make_topic_corpus
from dplda.privacy import PrivacyLeakWarning
from dplda.published import CDPLDA

DELTA = 1e-5
SETTINGS = {
    "CDP-LDA, noise in the first sweep": "first_sweep",
    "CDP-LDA+, noise in every sweep": "every_sweep",
}


def audit(n_runs=4, n_canaries=2000, seed=0) -> list[Line]:
    X = make_topic_corpus(n_docs=100, n_words=50, n_components=2, random_state=0).data
    lines = []
    for name, noise_at in SETTINGS.items():
        model = CDPLDA(2, noise_epsilon=0.1, noise_at=noise_at, max_iter=5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyLeakWarning)
            found = audit_epsilon(
                model, X, attack="published HDP-LDA", n_runs=n_runs, n_canaries=n_canaries,
                delta=DELTA, random_state=seed,
            )  # fmt: skip
        lines.append(Line(name, found.claim, found.lower_bound, DELTA))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--canaries", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    show(audit(options.runs, options.canaries, options.seed))


if __name__ == "__main__":
    main()
