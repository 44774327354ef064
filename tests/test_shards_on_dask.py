"""Shards on a cluster of workers: the same bits, also after kill -9 of a worker."""

import gc
import math
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
import texts_on_a_cluster
from numpy.testing import assert_array_equal

from dplda import PrivateCountVectorizer, PrivateSVILDA, SubLDA, load_release
from dplda.datasets import load_wordnet_glosses, make_topic_corpus, write_shards
from dplda.document._dask import DaskEngine, Sealed, run
from dplda.privacy import Ledger

distributed = pytest.importorskip(
    "distributed", reason="shards on a cluster need pip install dplda[distributed]"
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="Windows has no kill -9"),
    pytest.mark.filterwarnings("ignore"),  # of the cluster
]
K = 5


@pytest.fixture(scope="module")
def corpus():
    return sp.csr_array(
        make_topic_corpus(3000, 500, K, doc_length=80, random_state=0).data
    )


@pytest.fixture(scope="module")
def shards(corpus, tmp_path_factory):
    return write_shards(
        corpus, tmp_path_factory.mktemp("shards") / "x", rows_per_shard=450
    )


@pytest.fixture(scope="module")
def client():
    """Two worker processes that talk by TLS."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            distributed.LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                processes=True,
                dashboard_address=None,
                security=distributed.Security.temporary(),
                protocol="tls://",
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client


MODELS = [
    SubLDA(K, noise_multiplier=5.0, max_iter=5),
    SubLDA(K, noise_multiplier=5.0, max_iter=5, subsampling_ratio=0.3, boost=2),
    SubLDA(K, epsilon=np.inf, max_iter=5),
    PrivateSVILDA(K, noise_multiplier=5.0, max_iter=5),
]


@pytest.mark.parametrize("model", MODELS)
def test_a_cluster_trains_the_model_of_the_matrix(model, corpus, shards, client):
    model.set_params(random_state=1)
    expected = model.fit(corpus).components_
    assert all(
        address.startswith("tls://") for address in client.scheduler_info()["workers"]
    )
    assert_array_equal(model.fit(shards.on(client)).components_, expected)


@pytest.fixture(scope="module")
def tickets(tmp_path_factory):
    """A text in each line."""
    path = tmp_path_factory.mktemp("texts") / "tickets.txt"
    path.write_text("\n".join(load_wordnet_glosses().data[:4000]), "utf-8")
    return path


def test_a_cluster_fits_texts_on_disk_as_memory_does(
    tickets, client, tmp_path, monkeypatch
):
    def steps():
        return {
            "words": PrivateCountVectorizer(
                epsilon=1.0, stop_words="english", max_features=300, random_state=0
            ),
            "topics": SubLDA(K, epsilon=3.0, max_iter=10, random_state=1),
        }

    texts = tickets.read_text("utf-8").splitlines()
    expected = steps()
    X = expected["words"].fit_transform(texts)
    expected["topics"].fit(X)
    monkeypatch.setattr("dplda.text._counted.IN_MEMORY", 1000)
    write = texts_on_a_cluster.write_shards
    monkeypatch.setattr(
        texts_on_a_cluster,
        "write_shards",
        lambda *given, **options: write(*given, rows_per_shard=700, **options),
    )
    fitted = texts_on_a_cluster.fit(tickets, tmp_path / "x", client, **steps())
    words, topics = fitted
    assert list(words.vocabulary_) == list(expected["words"].vocabulary_)
    assert_array_equal(topics.components_, expected["topics"].components_)
    weights = fitted.transform(texts)
    assert_array_equal(weights, expected["topics"].transform(X))


def test_the_script_of_texts_on_a_cluster_writes_a_release(tickets, tmp_path):
    out = tmp_path / "topics.dplda"
    script = texts_on_a_cluster.__file__
    command = [sys.executable, script, str(tickets), str(tmp_path / "x"), str(out)]
    subprocess.run(command, check=True, timeout=300)
    released = load_release(out)
    assert 3.9 < released.epsilon_ < 5
    assert released.transform(["a small dog"]).shape == (1, 20)


def test_a_task_runs_in_threads(client):
    """A worker is a daemon process, in which joblib counts one job by default."""
    engine = DaskEngine(client)
    assert list(engine.gather([engine.submit(joblib.effective_n_jobs, 3)])) == [3]


def kill(client, n_workers):
    """Kill -9, once all are up: a nanny gives up if its worker dies while it starts."""
    nannies = [*client.cluster.workers.values()]
    while not all(
        nanny.process and nanny.process.status.name == "running" for nanny in nannies
    ):
        time.sleep(0.1)
    for nanny in nannies[:n_workers]:
        os.kill(nanny.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("moments", "n_workers"), [([], 0), ([25], 1), ([18, 30], 1), ([28], 2)]
)
def test_workers_are_killed_in_mid_round(
    moments, n_workers, corpus, shards, client, monkeypatch
):
    """One worker, its replacement too, all at once; then the scheduler forgets."""
    model = SubLDA(
        K, noise_multiplier=5.0, max_iter=5, subsampling_ratio=0.5, random_state=1
    )
    expected = model.fit(corpus).components_
    ledger, submit, n_tasks = Ledger(epsilon=100.0, delta=1e-6), DaskEngine.submit, 0

    def submit_and_kill(*arguments):
        nonlocal n_tasks
        task, n_tasks = submit(*arguments), n_tasks + 1
        if n_tasks in moments:
            kill(client, n_workers)
        return task

    monkeypatch.setattr(DaskEngine, "submit", submit_and_kill)
    kill(client, 0)  # both are up
    fitted = model.set_params(ledger=ledger).fit(shards.on(client))
    assert_array_equal(fitted.components_, expected)
    assert n_tasks > max(moments, default=0)
    assert len(ledger.entries()) == 1
    # the scheduler runs in this process
    assert not [kept for kept in gc.get_objects() if type(kept) is Sealed and kept.data]
    end = time.monotonic() + 60
    while client.cluster.scheduler.tasks or any(client.run(n_results).values()):
        assert time.monotonic() < end
        time.sleep(0.1)


def n_results(dask_worker):
    return len(dask_worker.data)


def test_an_error_names_the_worker_and_no_private_value(client):
    engine = DaskEngine(client)
    with pytest.raises(TypeError, match=r"met by the worker tls://"):
        list(engine.gather([engine.submit(math.sqrt, "987654321")]))
    logs = str(client.get_worker_logs()) + str(client.get_scheduler_logs())
    assert "must be real number" in logs  # the error is there
    assert "987654321" not in logs


def test_a_file_that_a_worker_cannot_use_is_named_before_anything_is_charged(
    corpus, client, tmp_path
):
    written = write_shards(corpus, tmp_path / "corpus", rows_per_shard=1000)
    file = tmp_path / "corpus" / "000001.counts"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    ledger = Ledger(epsilon=1.0, delta=1e-6)
    with pytest.raises(
        ValueError, match=r"(?s)shard 000001 .*SHA-256.* by the worker tls://"
    ):
        SubLDA(K, epsilon=1.0, ledger=ledger).fit(written.on(client))
    Path(file).unlink()
    with pytest.raises(
        OSError, match=r"(?s)shard 000001 .*No such file.* by the worker tls://"
    ):
        SubLDA(K, epsilon=1.0, ledger=ledger).fit(written.on(client))
    assert ledger.epsilon_spent == 0


def test_a_worker_with_another_version_that_came_later_is_named(client):
    task = client.submit(run, "0.0.9", "fit", len, Sealed.of("fit", []), pure=False)
    with pytest.raises(RuntimeError, match=r"has dplda 0.0.9, and the worker tls://"):
        task.result()
