"""Nats a token, and of new words, by the prior of documents that are transformed.

``python benchmarks/prior_of_documents.py`` cuts the glosses to so many words, fits
`SubLDA` with vectors, and scores held-out documents with several priors: half of a
document's tokens are observed. Gains are over the word totals of the fit.
"""

import warnings

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer

from dplda import SubLDA
from dplda.core._fold_in import fold_in
from dplda.datasets import (
    load_public_vocabulary,
    load_word_vectors,
    load_wordnet_glosses,
)
from dplda.metrics import held_out_scores

WORDS = 4, 7, 100
PRIORS = 0.1, 0.2, 0.5
N_TEST = 1000


def cut(counts: sp.csr_matrix, most: int) -> sp.csr_matrix:
    """Documents of so many tokens at most, which are drawn."""
    rng = np.random.default_rng(0)
    rows = []
    for row in counts:
        tokens = np.repeat(row.indices, row.data)
        if len(tokens) > most:
            tokens = rng.choice(tokens, most, replace=False)
        rows.append(np.bincount(tokens, minlength=counts.shape[1]))
    return sp.csr_matrix(np.array(rows))


def main() -> None:
    warnings.simplefilter("ignore")
    vectorizer = CountVectorizer(vocabulary=load_public_vocabulary(2000))
    counts = vectorizer.transform(load_wordnet_glosses().data)
    vectors = load_word_vectors(vectorizer)
    print("| words | epsilon | shown | prior | a token | new words |")
    print("| --- | --- | --- | --- | --- | --- |")
    for most in WORDS:
        documents = cut(counts, most)
        train, test = documents[:-N_TEST], documents[-N_TEST:]
        for epsilon in (1.0, 4.0):
            model = SubLDA(20, epsilon=epsilon, word_vectors=vectors, random_state=0)
            model.fit(train)
            table = model.components_
            shown = int((~model.weak_topics_).sum())
            for prior in (*PRIORS, model.doc_topic_prior_):
                scores = held_out_scores(
                    table,
                    test,
                    transform=lambda X, t=table, p=prior: fold_in(
                        X, t, p, None, np.float64
                    ),
                )
                print(
                    f"| {most} | {epsilon:g} | {shown} | {prior:.2f} | "
                    f"{scores.token_gain:.3f} | {scores.new_word_gain:.3f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
