"""
A federation of three parties
=============================

Three institutions train one model and pool no text. Each privatizes its tokens once.
The master merges topics, which are post-processing.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from dplda.datasets import load_public_vocabulary, load_wordnet_glosses
from dplda.displays import top_words
from dplda.federated import IFTMMaster, IFTMParty, run_rounds
from dplda.metrics import held_out_perplexity

vectorizer = CountVectorizer(vocabulary=load_public_vocabulary(400))
X = vectorizer.transform(load_wordnet_glosses().data)
words = vectorizer.get_feature_names_out()
parts = {"north": X[:2000], "south": X[2000:4000], "west": X[4000:6000]}
held_out = X[-1500:]

# %%
# One round after the other
# -------------------------
# `token_epsilon` protects one token. A document of 50 tokens has fifty times as much:
# this is a weak guarantee, which the card says.

parties = {
    name: (IFTMParty(8, token_epsilon=8.0, max_iter=20), counts)
    for name, counts in parts.items()
}
master = run_rounds(IFTMMaster(words, min_parties=3), parties, n_rounds=3)
print(master.round_, "rounds,", len(master.components_), "topics")

# %%
model = master.released_model()
for topic in top_words(model, words, 8)[:4]:
    print(" ".join(topic))

# %%
# Alone and together
# ------------------

alone = {
    name: held_out_perplexity(party.components_, held_out)
    for name, (party, _) in parties.items()
}
together = held_out_perplexity(model.components_, held_out)
_, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
axes.bar(
    [*alone, "global"], [*alone.values(), together], color=["#56B4E9"] * 3 + ["#0072B2"]
)
axes.set(
    ylabel="held-out perplexity", ylim=(0.8 * min([*alone.values(), together]), None)
)

# %%
print(np.round(model.epsilon_, 2), "for one", model.privacy_.unit)
