"""
Auditing a fit
==============

A proof bounds epsilon from above. An audit attacks the fit and bounds epsilon from
below: canaries are hidden by fair coins, and an attack that sees every release guesses
the coins. A bound above the claim refutes the claim.
"""

import warnings

import matplotlib.pyplot as plt

from dplda import SubLDA
from dplda.audit import audit_epsilon
from dplda.datasets import make_topic_corpus

# a hundred documents are noise, and a published form warns
warnings.simplefilter("ignore")
X = make_topic_corpus(n_docs=100, n_words=50, n_components=2, random_state=0).data


def show(result):
    """Scores of both worlds: those of absent and of present canaries."""
    _, ax = plt.subplots()
    worlds = [result.scores[~result.coins], result.scores[result.coins]]
    ax.hist(worlds, 41, histtype="stepfilled", alpha=0.6, label=["coin 0", "coin 1"])
    ax.set(
        xlabel="attack score (log-likelihood ratio in favor of coin 1)",
        ylabel="canaries",
    )
    ax.legend(title=result.relation)


# %%
# A sound estimator
# -----------------
# Both worlds overlap: the attack sees a little, and less than the claim allows.

result = audit_epsilon(
    SubLDA(2, epsilon=4.0, max_iter=10), X, n_canaries=2000, n_runs=2, random_state=0
)
show(result)
print(result)

# %% An audit that finds nothing proves nothing. The page on audits has what larger ones
# found, also about the algorithms as published, whose worlds separate.
