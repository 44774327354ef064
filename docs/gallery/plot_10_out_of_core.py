"""
A corpus larger than the memory
===============================

`write_shards` writes blocks of rows to files. A fit reads one file after the other, and
its model is that of the whole matrix, to the last bit.
"""

import tempfile
import tracemalloc
import warnings

import matplotlib.pyplot as plt
import numpy as np

from dplda import SubLDA
from dplda.datasets import make_topic_corpus, write_shards

# %%
# Blocks of rows, as a program would read them from a data base.


def blocks():
    for i in range(8):
        yield make_topic_corpus(
            n_docs=1500, n_words=300, n_components=5, random_state=i
        ).data


folder = tempfile.TemporaryDirectory()
corpus = write_shards(blocks(), f"{folder.name}/corpus", rows_per_shard=1500)
print(f"{corpus.shape[0]} documents in {corpus.n_shards} shards")

# %%
# The same model, bit for bit
# ---------------------------
# Only a common seed can show this. It voids the guarantee, as the warning says; these
# documents are invented.

X = np.concatenate([block.toarray() for block in blocks()])
model = SubLDA(5, epsilon=4.0, max_iter=20, random_state=0)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from_files = model.fit(corpus).components_
    from_memory = model.fit(X).components_
print("equal:", np.array_equal(from_files, from_memory))

# %%
# Memory
# ------
# The largest amount of memory that Python and NumPy held during a fit.


def peak(data):
    tracemalloc.start()
    SubLDA(5, epsilon=4.0, max_iter=3).fit(data)
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return used / 1e6


dense = X.astype(float)
sizes = {
    "whole matrix": dense.nbytes / 1e6 + peak(dense),
    "shards": peak(corpus),
}
_, axes = plt.subplots(figsize=(5, 3.2), layout="constrained")
axes.barh(list(sizes), list(sizes.values()), color=["0.7", "#0072B2"])
axes.set_xlabel("MB of data and fit at once")

folder.cleanup()
