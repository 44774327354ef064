"""
What epsilon means
==================

Someone knows all texts but one, sees everything that was released, and decides whether
that text was there. The curves show how often the best test finds it, for each share of
false alarms.
"""

import matplotlib.pyplot as plt
import numpy as np

from dplda import SubLDA
from dplda.datasets import make_topic_corpus
from dplda.privacy import Gaussian, calibrate, epsilon_of

X = make_topic_corpus(n_docs=5000, n_words=50, n_components=4, random_state=0).data

# %%
# The trade-off of a fit
# ----------------------

alarms = np.linspace(0, 1, 60)
_, axes = plt.subplots(figsize=(5, 4), layout="constrained")
for epsilon in (0.5, 1.0, 4.0, 8.0):
    guarantee = SubLDA(4, epsilon=epsilon, max_iter=20).fit(X).privacy_
    found = [guarantee.detection_rate(a) for a in alarms]
    axes.plot(alarms, found, label=f"epsilon {epsilon:g}")
    print(
        f"epsilon {epsilon:g}: finds {100 * guarantee.detection_rate(0.01):.1f} of "
        "100, 1 false"
    )
axes.plot([0, 1], [0, 1], color="0.6", ls=":", label="guessing")
axes.set(xlabel="false alarms", ylabel="found", title="the best possible test")
axes.legend()

# %%
# Fits add up
# -----------
# The costs of fits on the same documents add up to less than the sum of their epsilons.

_, axes = plt.subplots(figsize=(5, 4), layout="constrained")
n_fits = np.arange(1, 11)
for epsilon in (0.5, 1.0, 2.0):
    step = Gaussian(calibrate(lambda m: [Gaussian(m)], epsilon, 1e-6))
    axes.plot(
        n_fits,
        [epsilon_of([step] * n, 1e-6) for n in n_fits],
        label=f"{epsilon:g} each",
    )
axes.set(xlabel="fits", ylabel="epsilon of all together", title="composition")
axes.legend()
plt.show()
