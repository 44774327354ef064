"""Differentially private LDA topic models for scikit-learn."""

from dplda._gibbslda import GibbsLDA
from dplda._hdplda import HDPLDA
from dplda._sublda import SubLDA

__version__ = "0.1.0"

__all__ = ["GibbsLDA", "HDPLDA", "SubLDA"]
