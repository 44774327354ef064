"""Weights in the place of counts: what shares, scaled counts and tf-idf do to a model.

``python benchmarks/weights.py [--corpora kos docstrings] [--seeds 3]``

SubLDA with 20 topics and epsilon 4 is trained on the weights, and scored on the counts of other
documents. The inverse document frequencies of tf-idf are those of the held-out documents, which
stand for public texts. Also prints the share of documents in which every word occurs twice or more:
for them, counts divided by a number become other counts.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import scipy.sparse as sp
from corpora import LOADERS, load
from sklearn.feature_extraction.text import TfidfTransformer

from dplda import SubLDA
from dplda.metrics import held_out_perplexity


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", choices=LOADERS, default=["kos", "docstrings"])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for split in load(options.corpora):
        X = split.train
        least = np.array([X.data[a:b].min() for a, b in zip(X.indptr, X.indptr[1:])])
        print(f"{split}; {np.mean(least > 1):.2%} of the documents have no word that occurs once\n")
        print("| trained on | held-out perplexity of counts |\n| --- | --- |")
        for name, weights in forms(X, split.test).items():
            fits = (
                SubLDA(20, epsilon=4.0, random_state=s).fit(weights) for s in range(options.seeds)
            )
            found = [held_out_perplexity(model.components_, split.test) for model in fits]
            print(f"| {name} | {np.mean(found):.1f} ± {np.std(found):.1f} |")
        print()


def forms(X: sp.csr_array, public: sp.csr_array) -> dict[str, sp.csr_array]:
    tf_idf = TfidfTransformer().fit(public)
    sublinear = TfidfTransformer(use_idf=False, sublinear_tf=True).fit(public)
    lengths = sp.diags_array(1 / np.maximum(X.sum(axis=1), 1))
    return {
        "counts": X,
        "0.01 counts": 0.01 * X,
        "shares": sp.csr_array(lengths @ X),
        "1 + log(count), normalized": sp.csr_array(sublinear.transform(X)),
        "tf-idf, normalized": sp.csr_array(tf_idf.transform(X)),
    }


if __name__ == "__main__":
    main()
