"""Quality of a topic model: functions of a released table and of documents to score."""

from dplda.core._perplexity import held_out_perplexity, unigram_perplexity
from dplda.reading._coherence import coherence, match_topics, topic_diversity
from dplda.reading._held_out import HeldOutScores, held_out_scores
from dplda.reading._noisy_score import noisy_score

__all__ = [
    "HeldOutScores",
    "coherence",
    "held_out_perplexity",
    "held_out_scores",
    "match_topics",
    "noisy_score",
    "topic_diversity",
    "unigram_perplexity",
]
