"""
Utility against epsilon
=======================

How much does privacy cost? Held-out perplexity (lower is better) between two lines:
word frequencies alone, and a model without privacy. Then the same question before any
data are read.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import train_test_split

from dplda import SubLDA, plan
from dplda.datasets import load_public_vocabulary, load_wordnet_glosses
from dplda.metrics import unigram_perplexity

vectorizer = CountVectorizer(vocabulary=load_public_vocabulary(1000))
X = vectorizer.transform(load_wordnet_glosses().data)
train, held_out = train_test_split(X, test_size=0.2, random_state=0)

# %%
# Measured
# --------
# These texts are public, so that their exact perplexity may be shown. For private
# texts, it would be a release that no epsilon covers.

epsilons = [0.5, 1.0, 2.0, 4.0, 8.0, float("inf")]
models = [SubLDA(10, epsilon=epsilon).fit(train) for epsilon in epsilons]
*private, exact = [model.perplexity(held_out) for model in models]
_, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
axes.semilogx([model.epsilon_ for model in models[:-1]], private, "o-", label="SubLDA")
axes.axhline(
    unigram_perplexity(train, held_out), ls=":", color="0.4", label="word frequencies"
)
axes.axhline(exact, ls="--", color="0.4", label="SubLDA, not private")
axes.set(xlabel="epsilon of a document", ylabel="held-out perplexity", title="Measured")
axes.set_xticks(epsilons[:-1], [f"{epsilon:g}" for epsilon in epsilons[:-1]])
axes.minorticks_off()
axes.legend()

# %%
# Expected
# --------
# :func:`dplda.plan` evaluates a formula that was fitted to eight corpora. It reads no
# texts. It says how much topics know of words that are new to a text: 0% is as good as
# word frequencies, 100% as topics without privacy. The number of topics does not enter.

n_docs = np.geomspace(300, 100_000, 30).astype(int)
_, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
for epsilon in (0.5, 1.0, 2.0, 4.0):
    plans = [plan(n_docs=int(n), epsilon=epsilon, n_components=1) for n in n_docs]
    axes.plot(
        n_docs,
        [100 * max(0, p.new_words) for p in plans],
        label=f"epsilon {epsilon:g}",
    )
axes.set(
    xscale="log",
    xlabel="documents",
    ylabel="expected knowledge of new words (%)",
    ylim=(0, 100),
    title="Before any data are read",
)
axes.set_xticks([300, 1000, 3000, 10_000, 30_000, 100_000])
axes.set_xticklabels(["300", "1,000", "3,000", "10,000", "30,000", "100,000"])
axes.legend()

# %%
print(plan(n_docs=8000, epsilon=4.0, n_words=1000, n_components=10))
