"""From a file of texts to published topics, on the processes of a Dask cluster.

``python examples/texts_on_a_cluster.py tickets.txt shards/ topics.dplda``

A line of the file is a text. This process chooses the words, with privacy, and writes
the counts of blocks of texts to shards, a new folder. Workers visit the shards. Memory
holds one block, or one shard, at a time. The shards are private: delete them when the
model is written.
"""

import sys
from itertools import islice

from sklearn.pipeline import make_pipeline

from dplda import PrivateCountVectorizer, SubLDA, save_release
from dplda.datasets import write_shards
from dplda.privacy import Ledger


def blocks_of(path, n_texts=10_000):
    """Texts in lists, one after the other."""
    with open(path, encoding="utf-8") as file:
        while block := list(islice(file, n_texts)):
            yield block


def fit(path, folder, client, *, words, topics):
    """The pipeline of both steps; `topics` trains on the workers of `client`."""
    words.fit(text for block in blocks_of(path) for text in block)
    shards = write_shards(
        map(words.transform, blocks_of(path)),
        folder,
        feature_names=words.get_feature_names_out(),
    )
    topics.fit(shards.on(client))
    return make_pipeline(words, topics)


def main(path, folder, out):
    """Fit on this machine: two processes, each with one thread."""
    from distributed import Client, LocalCluster  # the extra `distributed`

    ledger = Ledger(f"{path}.sqlite", epsilon=4.0)
    words = PrivateCountVectorizer(epsilon=1.0, stop_words="english", ledger=ledger)
    topics = SubLDA(20, epsilon=3.7, n_jobs=1, ledger=ledger)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        Client(cluster, direct_to_workers=True) as client,
    ):
        save_release(fit(path, folder, client, words=words, topics=topics), out)


if __name__ == "__main__":  # workers import this file, and must not run it
    main(*sys.argv[1:])
