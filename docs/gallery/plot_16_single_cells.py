"""
Gene programs of single cells, by donor
=======================================

A topic model of single cells takes cells for documents and genes for words. Topics are
gene programs. A donor gives many cells, and the donor is what must be protected:
`user_ids` names the donor of each cell. The cells here are synthetic, drawn from six
known programs.
"""

import matplotlib.pyplot as plt
import numpy as np

from dplda import SubLDA
from dplda.datasets import make_topic_corpus
from dplda.metrics import match_topics

N_DONORS, CELLS = 800, 20
made = make_topic_corpus(
    n_docs=N_DONORS * CELLS, n_words=150, n_components=6, doc_length=200, random_state=0
)
donors = np.repeat(np.arange(N_DONORS), CELLS)

# %%
# One donor is the unit
# ---------------------
# All cells of a donor share one clip, and epsilon is that of the donor. The genes are
# public.

model = SubLDA(6, epsilon=4.0).fit(made.data, user_ids=donors)
print(model.privacy_.summary())

# %%
# Donors count, not cells
# -----------------------
# The noise has one size, and each donor adds at most one clip: more donors make the sum
# larger.

_, axes = plt.subplots(figsize=(7, 4), layout="constrained")
numbers = (100, 200, 400, 800)
for epsilon in (1.0, 4.0):
    distances = []
    for n_donors in numbers:
        rows = donors < n_donors
        fitted = SubLDA(6, epsilon=epsilon).fit(made.data[rows], user_ids=donors[rows])
        distances.append(match_topics(made.components, fitted.components_)[1].mean())
    axes.plot(numbers, distances, "o-", label=f"epsilon {epsilon:g}")
axes.set(
    xlabel="donors, of 20 cells each", ylabel="Hellinger distance to the true programs"
)
axes.set(xscale="log", ylim=(0, None), xticks=numbers, xticklabels=numbers)
axes.minorticks_off()
axes.legend()
