"""What several test modules fit: models, parties, word vectors."""

import numpy as np
from private_nmf import PrivateNMF

from dplda import HDPLDA, PrivateSVILDA, SubLDA

# What audits watch.
ROUNDS = {"delta": 1e-5, "max_iter": 10}
AUDITED = {
    "SubLDA": SubLDA(2, epsilon=4.0, **ROUNDS),
    "SubLDA, boost": SubLDA(
        2, noise_multiplier=1.0, subsampling_ratio=0.3, boost=2.0, **ROUNDS
    ),
    "PrivateSVILDA": PrivateSVILDA(2, noise_multiplier=1.0, **ROUNDS),
    "HDPLDA": HDPLDA(2, epsilon=4.0, **ROUNDS),
    "PrivateNMF": PrivateNMF(2, noise_multiplier=5.0, **ROUNDS),
}


def thirds(X, user_ids=None):
    """Three parties with 200 documents each."""
    rows = [slice(200 * i, 200 * i + 200) for i in range(3)]
    names = ("north", "south", "west")
    return {
        n: X[r] if user_ids is None else (X[r], user_ids[r])
        for n, r in zip(names, rows)
    }


def fit_few(X, seed=0, **options):
    """A model of few documents, where word totals decide."""
    options = {
        "epsilon": 1.0,
        "delta": 1e-5,
        "max_iter": 40,
        "random_state": seed,
    } | options
    return SubLDA(5, **options).fit(X)


def meanings(made):
    """The topics of each word, turned, with errors, and none of every tenth word."""
    random = np.random.default_rng(0)
    shares = (made.components / made.components.sum(axis=0)).T
    found = shares @ random.normal(size=(shares.shape[1], 12))
    found += 0.1 * random.normal(size=found.shape)
    found[::10] = 0
    return found
