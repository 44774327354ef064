"""Topics of fitted models as lists and pictures: functions of released values."""

from dplda.reading._displays import plot_topics, top_words

__all__ = ["plot_topics", "top_words"]
