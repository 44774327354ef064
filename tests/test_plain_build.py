"""The kernels without vectors, as compilers other than gcc and clang build them."""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import dplda

ROOT = Path(dplda.__file__).parents[1]
FITS = """
import hashlib
import warnings

import dplda
from dplda.datasets import make_topic_corpus
from dplda.kernels import _sets

warnings.simplefilter("ignore")
X = make_topic_corpus(60, 90, 5, doc_length=80, random_state=0).data
for model in (
    dplda.SubLDA(19, epsilon=50.0, max_iter=4, random_state=0),
    dplda.PrivateSVILDA(19, epsilon=50.0, max_iter=4, random_state=0),
    dplda.HDPLDA(19, epsilon=60.0, max_iter=4, random_state=0),
    dplda.GibbsLDA(19, max_iter=4, random_state=0),
):
    topics = model.fit_transform(X)
    for array in (model.components_, topics):
        print(type(model).__name__, hashlib.sha256(array.tobytes()).hexdigest())
print(*_sets.INSTRUCTION_SETS)
"""


def fits(folder):
    lines = subprocess.run(
        [sys.executable, "-c", FITS], cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    return lines[:-1], lines[-1]


def compile_kernel(folder, name):
    """Compile one kernel in place, without vectors and with little optimization."""
    source = folder / "dplda" / "kernels" / f"{name}.pyx"
    c, library = source.with_suffix(".c"), f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
    include = ["-I", sysconfig.get_paths()["include"], "-I", str(source.parent)]
    flags = ["-shared", "-fPIC", "-O1", "-ffp-contract=off", "-std=gnu11", "-w", "-DDPLDA_PLAIN"]
    for command in (
        [sys.executable, "-m", "cython", "-3", "-o", str(c), str(source)],
        [*compiler, *flags, *include, str(c), "-o", str(source.with_name(library)), "-lm"],
    ):
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)


@pytest.mark.slow
def test_results_are_the_same_without_vectors(tmp_path):
    pytest.importorskip("Cython")
    ignored = shutil.ignore_patterns("*.so", "*.pyd", "*.c", "__pycache__")
    shutil.copytree(ROOT / "dplda", tmp_path / "dplda", ignore=ignored)
    for kernel in (tmp_path / "dplda" / "kernels").glob("*.pyx"):
        compile_kernel(tmp_path, kernel.stem)
    hashes, sets = fits(tmp_path)
    assert sets == "portable"
    assert len(set(hashes)) == 8
    assert hashes == fits(ROOT)[0]
