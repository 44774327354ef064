"""
Coming from tomotopy
====================

`LDAModel` becomes :class:`~dplda.GibbsLDA` without privacy and :class:`~dplda.SubLDA`
with it. Counts of documents by topic become a charged histogram.

.. code-block:: python

    # before
    model = tp.LDAModel(k=10, rm_top=10)
    for document in tokens:
        model.add_doc(document)
    model.train(1000)
    model.get_topic_words(0)
    model.get_count_by_topics()
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from dplda import GibbsLDA, SubLDA, private_topic_counts
from dplda.datasets import load_public_vocabulary, load_wordnet_glosses
from dplda.displays import top_words
from dplda.metrics import match_topics
from dplda.privacy import Ledger

tokens = [text.lower().split() for text in load_wordnet_glosses().data]
words = load_public_vocabulary(800)
X = CountVectorizer(vocabulary=words, analyzer=lambda document: document).transform(
    tokens
)

# %%
# Without privacy, by Gibbs sampling as in tomotopy, and with it
# --------------------------------------------------------------

ledger = Ledger(epsilon=5.0)
gibbs = GibbsLDA(10, max_iter=100).fit(X)
model = SubLDA(10, epsilon=4.0, ledger=ledger).fit(X)
order, distance = match_topics(gibbs.components_, model.components_)
left, right = top_words(gibbs, words, 5), top_words(model, words, 5)
for k in np.argsort(distance):
    print(f"{distance[k]:.2f}  {' '.join(left[k]):45} | {' '.join(right[order[k]])}")

# %%
# Sizes of topics
# ---------------
# Words by topic (`get_count_by_topics`) are released with the model. Documents by topic
# are a further release, with a charge of its own.

table = private_topic_counts(model, X, epsilon=1.0, ledger=ledger)
(counts,) = table.counts["all"]
_, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
axes[0].bar(range(10), model.components_.sum(axis=1))
axes[0].set(title="amount of words (free)", xlabel="topic")
axes[1].bar(range(10), counts, yerr=2 * table.noise_scale, capsize=2, color="#D55E00")
axes[1].set(title="documents (epsilon 1)", xlabel="topic")
print(ledger)
