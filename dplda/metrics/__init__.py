"""Quality of a topic model: functions of a released table and of documents to score."""

from dplda.metrics._bound import perplexity_bound
from dplda.metrics._coherence import coherence, topic_diversity
from dplda.metrics._noisy_score import NoisyScore, noisy_score
from dplda.metrics._perplexity import (
    held_out_log_likelihood,
    held_out_perplexity,
    split_documents,
    unigram_perplexity,
)

__all__ = [
    "NoisyScore",
    "coherence",
    "held_out_log_likelihood",
    "held_out_perplexity",
    "noisy_score",
    "perplexity_bound",
    "split_documents",
    "topic_diversity",
    "unigram_perplexity",
]
