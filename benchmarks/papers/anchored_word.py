"""An own attack on SUB-LDA: one more word changes the topics of the other words.

``python benchmarks/papers/anchored_word.py [--canaries 1000] [--runs 5] [--seed 0]``

A canary is a document of four tokens of a word of its own, which lies between two
topics. The coin decides whether the document has a fifth token, of a word of the first
topic. The attack reads the counts of the four tokens only, which do not include the
fifth. Without the fifth token the four end in either topic; with it they rarely end in
the second one.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
import scipy.sparse as sp
from lower_bounds import Line, show
from published_attacks import cost_of_counts

from dplda.audit import Attack, audit_epsilon
from dplda.audit._attacks import count_matrix
from dplda.published import PublishedSubLDA

N_NEUTRAL, N_SUPPORT, N_TOPIC_WORDS, DOC_LENGTH, DOC_SUPPORT = 4, 100, 10, 100, 10


def plant(target, X, coins):
    """Documents of the first topic, second topic, and the canaries; without `X`."""
    m, anchors = target.n_canaries, target.n_words
    neutral = anchors + 2 * N_TOPIC_WORDS
    support = np.repeat(np.arange(m), N_SUPPORT)
    n_docs = -(-len(support) // DOC_SUPPORT)
    rows = np.arange(len(support)) % n_docs
    filler = np.tile(np.arange(N_TOPIC_WORDS), n_docs)
    filler_rows = np.repeat(np.arange(n_docs), N_TOPIC_WORDS)
    each = np.full(len(filler), (DOC_LENGTH - DOC_SUPPORT) // N_TOPIC_WORDS)
    blocks = [
        count_matrix(
            np.concatenate([rows, filler_rows]),
            np.concatenate(
                [neutral + support, anchors + topic * N_TOPIC_WORDS + filler]
            ),
            np.concatenate([np.ones(len(rows), int), each]),
            (n_docs, neutral + m),
        )
        for topic in range(2)
    ]
    rows, shape = np.arange(m), (m, neutral + m)
    own = count_matrix(rows, neutral + rows, np.full(m, N_NEUTRAL), shape)
    anchor = count_matrix(rows, np.full(m, anchors), coins.astype(int), shape)
    return {"X": sp.csr_array(sp.vstack([*blocks, own + anchor]))}


def scores(target, model, tape):
    # the counts of the canaries in both topics, late in the fit
    late = np.mean([r.value for r in tape.releases[-len(tape.releases) // 3 :]], axis=0)
    anchors = late[target.n_words : target.n_words + N_TOPIC_WORDS].sum(axis=0)
    order = np.argsort(-anchors)[:2]
    rows = late[-target.n_canaries :, order]
    difference = rows[:, 0] - rows[:, 1]
    # the first topic is weak evidence; the second nearly excludes the fifth token
    return np.where(difference < 0, difference, 1e-3 * difference)


def cost(model, delta):
    """Of the sound form, a replaced document.

    An empty one takes its place, and the other that.
    """
    if hasattr(model, "published_epsilon_"):
        return cost_of_counts(model, delta)
    part = delta / 2
    while part >= 1e-12:
        epsilon = model.privacy_.epsilon_at(part)
        if part * (1 + math.exp(epsilon)) <= delta:
            return 2 * epsilon
        part = 0.9 * delta / (1 + math.exp(epsilon))
    return math.inf


ANCHORED_WORD = Attack(
    "anchored word",
    "a document has one word more or less",
    plant,
    scores,
    cost=cost,
)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--canaries", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    model = PublishedSubLDA(
        2, rdp_epsilon=14 / (2 * 5.5**2), doc_topic_prior=0.02, max_iter=300
    )
    found = audit_epsilon(
        model,
        np.zeros((1, 1)),
        attack=ANCHORED_WORD,
        n_canaries=options.canaries,
        n_runs=options.runs,
        delta=1e-5,
        random_state=options.seed,
    )
    name = "SUB-LDA: topics that a word moves"
    show([Line(name, found.claim, found.lower_bound, found.delta)])
