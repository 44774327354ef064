"""Shards on a cluster of worker processes: the same bits, also after kill -9 of a worker."""

import gc
import os
import signal
import warnings

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

from dplda import PrivateSVILDA, SubLDA
from dplda.datasets import make_topic_corpus, write_shards
from dplda.document import _dask
from dplda.document._dask import DaskEngine, Sealed, visit
from dplda.document._shards import Step
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
    return sp.csr_array(make_topic_corpus(3000, 500, K, doc_length=80, random_state=0).data)


@pytest.fixture(scope="module")
def shards(corpus, tmp_path_factory):
    return write_shards(corpus, tmp_path_factory.mktemp("shards") / "x", rows_per_shard=450)


@pytest.fixture(scope="module")
def client():
    """Two worker processes that talk by TLS."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
                security=distributed.Security.temporary(), protocol="tls://",
            ) as cluster,
            distributed.Client(cluster) as client,
        ):  # fmt: skip
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
    assert all(address.startswith("tls://") for address in client.scheduler_info()["workers"])
    assert_array_equal(model.fit(shards.on(client)).components_, expected)


class ThreadsOfTheWorker:
    n_steps = 0

    def catch_up(self, past):
        assert past == []

    def threads(self, n_jobs):
        return joblib.effective_n_jobs(n_jobs)


def test_a_task_runs_in_threads(client):
    """A worker is a daemon process, in which joblib counts one job by default."""
    worker = ThreadsOfTheWorker()
    task = Sealed(("fit", [(0, worker, (3,), [])], "threads", (), False, 0))
    assert client.submit(visit, task, pure=False).result().value == [3]


class Kills(DaskEngine):
    """Kills workers while they have a task of some call."""

    def __init__(self, client, calls, n_workers):
        super().__init__(client)
        self.calls, self.n_workers, self.n_calls, self.n_lost = calls, n_workers, 0, 0

    def sum(self, *args):
        self.n_calls += 1
        self.armed = self.n_calls in self.calls
        return super().sum(*args)

    def _wait(self, arrived):
        if getattr(self, "armed", False):
            self.armed = False
            workers = self._client.scheduler_info(n_workers=-1)["workers"]
            for address in sorted(workers)[: self.n_workers]:
                pid = self._client.run(os.getpid, workers=[address])[address]
                os.kill(pid, signal.SIGKILL)
        return super()._wait(arrived)

    def _result(self, future):
        result = super()._result(future)
        self.n_lost += result is None
        return result


def test_the_tables_of_a_round_go_with_it(shards, client, monkeypatch):
    """Nothing keeps a message until the garbage collector comes: tables are large."""
    monkeypatch.setattr(_dask, "POLL", 1e-6)  # as in rounds that last longer than it
    model = SubLDA(K, noise_multiplier=5.0, max_iter=3)
    gc.collect()
    gc.disable()
    try:
        model.fit(shards.on(client))
        kept = [found for found in gc.get_objects() if type(found) is Step]
    finally:
        gc.enable()
    assert not kept


@pytest.mark.parametrize(("calls", "n_workers"), [([4], 1), ([3, 5], 1), ([5], 2)])
def test_workers_are_killed_in_mid_round(calls, n_workers, corpus, shards, client):
    """One worker, its replacement too, and all workers at once."""
    model = SubLDA(
        K, noise_multiplier=5.0, max_iter=5, subsampling_ratio=0.5,
        random_state=1,
    )  # fmt: skip
    expected = model.fit(corpus).components_
    ledger = Ledger(epsilon=100.0, delta=1e-6)
    engine = Kills(client, calls, n_workers)
    assert_array_equal(model.set_params(ledger=ledger).fit(shards.on(engine)).components_, expected)
    assert engine.n_calls == 7  # two word totals and five rounds: nothing was released twice
    assert engine.n_lost > 0
    assert len(ledger.entries()) == 1


def test_the_logs_of_a_task_that_fails_hold_no_arguments(shards, client):
    engine = DaskEngine(client)
    engine.start([])
    rows, worker = np.arange(987654321, 987654325), ThreadsOfTheWorker()
    task = Sealed((engine._fit, [(0, worker, (rows,), [])], "no_such_method", (), True, 0))
    future = client.submit(visit, task, pure=False)
    with pytest.raises(AttributeError):
        future.result()
    logs = str(client.get_worker_logs()) + str(client.get_scheduler_logs())
    assert "no_such_method" in logs  # the error is there
    assert "987654321" not in logs
