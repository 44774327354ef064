"""
Searches with a ledger
======================

Every fit of a search costs. A ledger counts all of them and refuses what exceeds the
budget. The cheapest search is one on public texts.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import GridSearchCV

from dplda import SubLDA
from dplda.datasets import load_public_vocabulary, load_wordnet_glosses
from dplda.metrics import noisy_score
from dplda.privacy import BudgetError, Ledger

vectorizer = CountVectorizer(vocabulary=load_public_vocabulary(800))
X = vectorizer.transform(load_wordnet_glosses().data)
public, private = X[:4500], X[4500:]

# %%
# On public texts: free
# ---------------------
# The candidates are fitted with the epsilon of the private fit, because the noise
# decides how many topics are best. Exact scores may be shown here.

grid = {"epsilon": [2.0, 4.0, 8.0], "n_components": [5, 10]}
search = GridSearchCV(SubLDA(epsilon=2.0, max_iter=20), grid, cv=2, refit=False).fit(
    public
)
_, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
# epsilons by numbers of topics
scores = search.cv_results_["mean_test_score"].reshape(3, 2)
axes.plot(
    grid["epsilon"], scores, "o-", label=[f"{k} topics" for k in grid["n_components"]]
)
axes.set(xlabel="epsilon of each fit", ylabel="test score, mean of folds")
axes.legend()

# %%
# On private texts: everything is charged
# ---------------------------------------
# Fits read one part of the documents, scores another one. A document is in one part, so
# the total is the larger of the two.

ledger = Ledger(epsilon=4.0, delta=1e-6)
train, validation = private[:3500], private[3500:]
reference = np.asarray(public.sum(axis=0)).ravel() + 1
scores, spent = {}, []
for k in (3, 5, 10):
    model = SubLDA(
        k, epsilon=2.0, max_iter=20, ledger=ledger.part("train", by="set")
    ).fit(train)
    held_out = ledger.part("validation", by="set")
    scores[k] = noisy_score(
        model, validation, epsilon=1.0, public_unigram=reference, ledger=held_out
    )
    spent.append(ledger.epsilon_spent)
    print(f"{k:2} topics: gain {scores[k].gain:.3f} +- {scores[k].standard_error:.3f}")

_, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
gains, errors = zip(*((s.gain, 2 * s.standard_error) for s in scores.values()))
axes[0].errorbar(list(scores), gains, yerr=errors, fmt="o", capsize=4)
axes[0].set(
    xlabel="topics", ylabel="gain over word frequencies", title="noisy scores, 2 errors"
)
axes[1].step([0, 1, 2, 3], [0, *spent], where="post")
axes[1].axhline(ledger.epsilon, color="0.5", ls=":")
axes[1].set(
    xlabel="rounds of the search",
    ylabel="epsilon spent",
    title="the ledger",
    xticks=range(4),
)

# %%
# A fourth fit does not fit into the budget. It is refused before it reads a text.

try:
    SubLDA(40, epsilon=3.0, ledger=ledger.part("train", by="set")).fit(train)
except BudgetError as error:
    print(error)

print(ledger)
