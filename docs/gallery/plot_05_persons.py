"""
Protecting persons, not rows
============================

A row of the matrix is protected. A person who gave several rows is protected less,
unless the fit knows which rows are hers.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from dplda import SubLDA
from dplda.datasets import load_public_vocabulary, load_wordnet_glosses

vectorizer = CountVectorizer(vocabulary=load_public_vocabulary(1000))
X = vectorizer.transform(load_wordnet_glosses().data)
train, held_out = X[:8000], X[8000:]
ids = np.arange(8000) // 4  # invented: each person gave four texts

# %%
# Without ids
# -----------
# A person with k texts has the epsilon of a group of k documents.

model = SubLDA(10, epsilon=1.0).fit(train)
sizes = np.arange(1, 11)
groups = [model.privacy_.for_groups(int(k)) for k in sizes]

_, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
axes[0].plot(sizes, [g.epsilon for g in groups], marker="o")
axes[0].set(xlabel="texts of a person", ylabel="epsilon of the person")
axes[1].plot(
    sizes, [100 * g.detection_rate(0.01) for g in groups], marker="o", color="#D55E00"
)
axes[1].axhline(1, color="0.5", ls=":")
axes[1].set(xlabel="texts of a person", ylabel="found in 100 cases, 1% false alarms")

# %%
# With ids
# --------
# All rows with one id are clipped together and are one unit. Epsilon is that of the
# person.

protected = SubLDA(10, epsilon=1.0).fit(train, user_ids=ids)
print(f"without ids: {model.privacy_.unit}, person {groups[3].epsilon:.2f}")
print(f"with ids:    {protected.privacy_.unit}, person {protected.epsilon_:.2f}")

# %% What it costs in quality: one clip for four texts, so that there is less signal
# under the same noise. More epsilon buys it back.

for epsilon in (1.0, 2.0, 4.0):
    with_ids = SubLDA(10, epsilon=epsilon).fit(train, user_ids=ids)
    print(
        f"epsilon {epsilon:g} of a person: perplexity "
        f"{with_ids.perplexity(held_out):.0f}"
    )
print(f"epsilon 1 of a text: perplexity {model.perplexity(held_out):.0f}")
