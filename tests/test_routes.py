"""The benchmark of other routes: its opponents are sound, whole, and as good as their exact forms."""

import itertools
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score
from sklearn.preprocessing import normalize

from dplda.datasets import make_topic_corpus
from dplda.privacy import Gaussian, epsilon_of

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import routes
