"""
Public texts as a prior
=======================

Some public texts of the same kind are worth more than any other setting. They cost no
budget: the noisy releases decide how far the fit believes them.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from dplda import SubLDA, public_prior
from dplda.datasets import load_public_vocabulary, load_wordnet_glosses
from dplda.metrics import unigram_perplexity
from dplda.privacy import LowSignalWarning

# small budgets are the point of this page
warnings.simplefilter("ignore", LowSignalWarning)

vectorizer = CountVectorizer(vocabulary=load_public_vocabulary(2500))
X = vectorizer.transform(load_wordnet_glosses().data)
public, private, held_out = X[:300], X[300:2300], X[-1000:]

prior = public_prior(public, n_components=10)
seeds = [
    ["animal", "fish"],
    ["plant", "tree"],
    ["blood", "disease"],
    ["city", "river", "sea"],
]
seeded = public_prior(seed_words=seeds, n_components=10, vocabulary=vectorizer)

# %%
# Held-out perplexity
# -------------------
# 2,000 texts take the place of private ones.

epsilons = [0.5, 1.0, 4.0]
options = {"without": None, "with seed words": seeded, "with 300 public texts": prior}
_, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
for label, table in options.items():
    models = [
        SubLDA(10, epsilon=e, prior_components=table).fit(private) for e in epsilons
    ]
    axes.plot(
        epsilons, [m.perplexity(held_out) for m in models], marker="o", label=label
    )
axes.axhline(
    unigram_perplexity(private, held_out), color="0.5", ls=":", label="word frequencies"
)
axes.set(xscale="log", xlabel="epsilon", ylabel="held-out perplexity (lower is better)")
axes.set_xticks(epsilons, [f"{e:g}" for e in epsilons])
axes.set_xticks([], minor=True)
axes.legend()

# %%
# How far the fit believed the public texts:

model = models[-1]
print(f"how far the releases agree with the public topics: {model.prior_trust_:.2f}")

# %%
# The guarantee has one assumption more.

print(np.array(model.privacy_.assumptions))
