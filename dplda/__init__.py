"""Differentially private LDA topic models for scikit-learn."""

from dplda._gibbslda import GibbsLDA
from dplda._hdplda import HDPLDA
from dplda._sublda import SubLDA
from dplda._svilda import PrivateSVILDA

__version__ = "0.1.0"

__all__ = ["GibbsLDA", "HDPLDA", "SubLDA", "PrivateSVILDA"]
