"""NumPy chooses its loops by the processor. The model is the same with each of them."""

import os
import subprocess
import sys

import numpy as np
import pytest

FIT = """
import numpy as np
from dplda import SubLDA, public_prior
from dplda.datasets import make_topic_corpus

made = make_topic_corpus(1500, 300, 5, doc_length=30, random_state=3)
rng = np.random.default_rng(0)
vectors = rng.normal(size=(300, 10)) + 3 * rng.normal(size=(5, 10))[
    made.components.argmax(axis=0)
]
prior = public_prior(made.data[:100], n_components=8, random_state=0)
for given in (
    {},
    {"word_vectors": vectors},
    {"prior_components": prior},
    {"word_vectors": vectors, "prior_components": prior},
):
    for epsilon in (0.5, 4.0):
        model = SubLDA(8, epsilon=epsilon, max_iter=20, random_state=0, **given)
        print(model.fit(made.data[100:]).components_.tobytes().hex())
# short texts, of whose topics documents confirm a part
short = make_topic_corpus(3000, 300, 5, doc_length=5, random_state=0).data
for given in ({}, {"word_vectors": vectors}):
    for seed in range(4):
        model = SubLDA(8, epsilon=2.0, max_iter=20, random_state=seed, **given)
        print(model.fit(short).components_.tobytes().hex())
"""


def fitted(without: str) -> list[str]:
    """Tables of a process whose NumPy leaves these features of the processor unused."""
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FIT],
        env={**os.environ, "NPY_DISABLE_CPU_FEATURES": without},
        check=True,
        capture_output=True,
        text=True,
    )
    return found.stdout.split()


@pytest.mark.ci
def test_a_fit_is_the_same_with_and_without_avx512_in_numpy():
    found = np.show_config(mode="dicts")["SIMD Extensions"]["found"]
    wide = [name for name in found if name == "X86_V4" or name.startswith("AVX512")]
    if not wide:
        pytest.skip("NumPy uses no AVX-512 on this processor")
    assert fitted(" ".join(wide)) == fitted("")
