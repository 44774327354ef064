"""Time and peak memory of dplda from commit to commit, for airspeed velocity.

Names that asv knows: ``time_*`` is CPU seconds, ``peakmem_*`` the largest resident memory of a
process that runs `setup` and the method, ``timeraw_*`` code that a new process runs. Each takes
less than two seconds. Only public names are used, so that old commits can be measured.
"""

import time
import warnings

import dplda
from dplda.datasets import make_topic_corpus

warnings.simplefilter("ignore")

ESTIMATORS = {
    "GibbsLDA": {},
    "HDPLDA": {"noise_epsilon": 0.5, "count_clip": 10.0},
    "SubLDA": {"epsilon": 4.0},
    "PrivateSVILDA": {"epsilon": 4.0, "subsampling_ratio": 1.0},
}
N_COMPONENTS, N_ROUNDS = 50, 10


def corpus():
    """2000 documents of about 100 tokens, 2000 words."""
    return make_topic_corpus(2000, 2000, 20, random_state=0).data


def estimator(name):
    kind = getattr(dplda, name)
    return kind(N_COMPONENTS, max_iter=N_ROUNDS, random_state=0, **ESTIMATORS[name])


class Fit:
    """Ten rounds of each estimator, with all that a fit does once."""

    timer = time.process_time
    params = list(ESTIMATORS)
    param_names = ("estimator",)

    def setup(self, name):
        self.X = corpus()

    def time_fit(self, name):
        estimator(name).fit(self.X)

    def peakmem_fit(self, name):
        estimator(name).fit(self.X)


class Transform:
    """Topic weights of 2000 documents."""

    timer = time.process_time

    def setup(self):
        self.X = corpus()
        self.model = estimator("GibbsLDA").fit(self.X[:200])

    def time_transform(self):
        self.model.transform(self.X)

    def time_perplexity(self):
        self.model.perplexity(self.X)


class Start:
    """What happens before any data are read."""

    timeout = 180
    number = 1

    def timeraw_import(self):
        return "import dplda"

    def timeraw_import_estimators(self):
        return "from dplda import HDPLDA, SubLDA"

    def timeraw_calibrate(self):
        """The first noise multiplier of a process; later ones are remembered."""
        return """
            from dplda.privacy import Gaussian, PoissonSampled, calibrate
            calibrate(lambda s: [PoissonSampled(0.1, Gaussian(s))] * 80, 2.0, 1e-6)
        """
