"""
Reports of documents that nobody sees
=====================================

No server is trusted. The owner of each document randomizes which words it has, and only
the report leaves the place. The server knows the law of the noise and estimates topics
from many reports.
"""

import matplotlib.pyplot as plt
import numpy as np

from dplda import LPLDA, RandomizedResponse
from dplda.datasets import make_topic_corpus
from dplda.displays import top_words

X = make_topic_corpus(
    n_docs=20_000, n_words=40, n_components=4, doc_length=5, random_state=0
).data

# %%
# A document and its report
# -------------------------

owner = RandomizedResponse(epsilon=16.0, max_doc_words=4).fit(X)
reports = owner.transform(X[:12])
_, axes = plt.subplots(2, 1, sharex=True, figsize=(8, 4.5), layout="constrained")
axes[0].imshow(X[:12].toarray() > 0, cmap="Blues", aspect="auto", vmax=1.4)
axes[0].set_title("12 documents: which words they have (private)", loc="left")
axes[1].imshow(reports.toarray() > 0, cmap="Oranges", aspect="auto", vmax=1.4)
axes[1].set_title("their reports", loc="left")
axes[1].set_xlabel("word")
print(f"a bit is reported wrongly with probability {owner.flip_probability_:.2f}")

# %%
# Topics of reports
# -----------------
# With `randomized=False`, the estimator plays owners and server in one process.

model = LPLDA(4, epsilon=16.0, max_doc_words=4, randomized=False).fit(X)
for topic in top_words(model, n_top_words=8, mark_noise=True):
    print(" ".join(topic))

# %%
# Many reports are needed
# -----------------------
# Estimated share of documents that have each word, against the true share.

true = np.asarray((X > 0).mean(axis=0)).ravel()
_, axes = plt.subplots(1, 2, sharey=True, figsize=(8, 3.8), layout="constrained")
for ax, n_docs in zip(axes, (500, 20_000)):
    flip = owner.flip_probability_
    seen = np.asarray(owner.transform(X[:n_docs]).mean(axis=0)).ravel()
    ax.scatter(true, (seen - flip) / (1 - 2 * flip), s=15)
    ax.axline((0, 0), slope=1, color="0.6", lw=1)
    ax.set(title=f"{n_docs} reports", xlabel="true share of documents")
axes[0].set_ylabel("estimated share")
print(model.privacy_)
