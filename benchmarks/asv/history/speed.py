"""Time and peak memory of dplda from commit to commit, for airspeed velocity.

Names that asv knows: ``time_*`` is CPU seconds, ``peakmem_*`` the largest resident memory of a
process that runs the method, ``track_*`` the CPU seconds of a new process, which the method
returns. The corpus comes from another process (`setup_cache`): to make it takes more memory than a
fit. Each takes less than two seconds. Only public names are used, so that old commits can be
measured.
"""

import os
import subprocess
import sys
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

    def setup_cache(self):
        return corpus()

    def time_fit(self, X, name):
        estimator(name).fit(X)

    def peakmem_fit(self, X, name):
        estimator(name).fit(X)


class Transform:
    """Topic weights of 2000 documents."""

    timer = time.process_time

    def setup_cache(self):
        return corpus()

    def setup(self, X):
        self.model = estimator("GibbsLDA").fit(X[:200])

    def time_transform(self, X):
        self.model.transform(X)

    def time_perplexity(self, X):
        self.model.perplexity(X)


class Start:
    """What happens before any data are read: CPU seconds of a process, the interpreter included."""

    timeout = 180
    unit = "s"

    def track_import(self):
        return seconds("import dplda")

    def track_import_estimators(self):
        return seconds("from dplda import HDPLDA, SubLDA")

    def track_calibrate(self):
        """The first noise multiplier of a process; later ones are remembered."""
        return seconds(
            "from dplda.privacy import Gaussian, PoissonSampled, calibrate; "
            "calibrate(lambda s: [PoissonSampled(0.1, Gaussian(s))] * 80, 2.0, 1e-6)"
        )


def seconds(statement):
    """CPU time of a process that runs one statement, the median of three."""
    taken = []
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", statement]) as process:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{statement!r} failed")
        taken.append(used.ru_utime + used.ru_stime)
    return sorted(taken)[1]
