"""Documents per second of inferring topic weights, next to other implementations.

``python benchmarks/peers/transform.py [--corpora kos nips] [--components 50 100]
[--repeats 5] [--threads 1] [--sets ...]``

The observed halves of a held-out tenth of the documents. All get the topics of one
GibbsLDA fit but tomotopy, which can only use its own. The perplexity is that of the
other halves under the inferred weights: a fast inference that is worse shows there. All
take turns in one process, CPU time.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from measuring import (
    ALPHA,
    BETA,
    conditions,
    cpu_seconds,
    halves,
    markdown,
    whole_corpus,
)
from opponents import Gensim, NotInstalled, SklearnBatch, Tomotopy, documents
from threadpoolctl import threadpool_limits

from dplda import GibbsLDA
from dplda.core._perplexity import split_documents
from dplda.kernels import _sets

SWEEPS = 40
# weights, and the topics they belong to
Contestant = tuple[Callable[[], np.ndarray], np.ndarray]


def ours(model: Any, instruction_set: str, observed: Any) -> Contestant:
    def run() -> np.ndarray:
        _sets.use(instruction_set)
        return model.transform(observed)

    return run, model.components_


def scikit_learn(model: Any, observed: Any, dtype: Any, threads: int) -> Contestant:
    peer = SklearnBatch(observed, len(model.components_), 0, threads).model
    X = sp.csr_matrix(observed, dtype=dtype)
    peer.fit(X[:2])  # sets what transform checks
    peer.components_ = model.components_.astype(dtype)
    expectation = SklearnBatch(observed, 2, 0, 1).module._online_lda_fast
    peer.exp_dirichlet_component_ = np.exp(
        expectation._dirichlet_expectation_2d(peer.components_)
    )
    return lambda: peer.transform(X), model.components_


def gensim(model: Any, observed: Any) -> Contestant:
    peer = Gensim(observed, len(model.components_), 0, 1)
    peer.model.state.sstats[:] = model.components_ - BETA
    peer.model.sync_state()
    return lambda: peer.model.inference(peer.corpus)[0], model.components_


def tomotopy(
    train: Any, observed: Any, n_components: int, iterations: int, threads: int
) -> Any:
    peer = Tomotopy(train, n_components, 0, threads)
    peer.model.train(SWEEPS, workers=threads)
    texts = [[str(w) for w in words] for words in documents(sp.csr_matrix(observed))]

    def run() -> np.ndarray:
        made = [peer.model.make_doc(text) for text in texts]
        return np.array(
            peer.model.infer(made, iterations=iterations, workers=threads)[0],
            np.float64,
        )

    return run, peer.components()


def contestants(
    options: Any, train: Any, observed: Any, n_components: int
) -> dict[str, Any]:
    """How each infers the weights of `observed`, or the reason why it does not."""
    model = GibbsLDA(
        n_components,
        max_iter=SWEEPS,
        doc_topic_prior=ALPHA,
        topic_word_prior=BETA,
        random_state=0,
        n_jobs=options.threads,
    ).fit(train)
    starts: dict[str, Callable[[], Any]] = {
        f"dplda, {name}": lambda name=name: ours(model, name, observed)
        for name in options.sets
    }
    starts |= {
        "scikit-learn float64": lambda: scikit_learn(
            model, observed, float, options.threads
        ),
        "scikit-learn float32": lambda: scikit_learn(
            model, observed, "f", options.threads
        ),
        "gensim": lambda: gensim(model, observed),
    }
    for n in (20, 100):
        starts[f"tomotopy, {n} iterations"] = lambda n=n: tomotopy(
            train, observed, n_components, n, options.threads
        )
    result = {}
    for name, start in starts.items():
        try:
            result[name] = start()
        except NotInstalled as missing:
            result[name] = str(missing)
    return result


def perplexity(
    weights: np.ndarray, components: np.ndarray, held: sp.csr_array
) -> float:
    """Of the held-out halves under weights that are normalized first."""
    weights = weights / weights.sum(axis=1, keepdims=True)
    topics = components / components.sum(axis=1, keepdims=True)
    row = np.repeat(np.arange(held.shape[0]), np.diff(held.indptr))
    p = np.einsum("ik,ik->i", weights[row], topics.T[held.indices])
    return float(np.exp(-(held.data @ np.log(p)) / held.sum()))


def rows(options: Any, corpus: str, n_components: int) -> list[list[str]]:
    train, test = halves(whole_corpus(corpus))
    observed, held = split_documents(test)
    running = contestants(options, train, observed, n_components)
    times: dict[str, list[float]] = {name: [] for name in running}
    weights = {}
    for _ in range(options.repeats):
        for name, contestant in running.items():
            if not isinstance(contestant, str):
                start = cpu_seconds()
                weights[name] = contestant[0]()
                times[name].append(cpu_seconds() - start)
    table = []
    for name, contestant in running.items():
        row = [f"{corpus} {n_components}", name]
        if isinstance(contestant, str):
            table.append([*row, contestant, "-"])
            continue
        fastest, middle = observed.shape[0] / min(times[name]), np.median(times[name])
        table.append(
            [
                *row,
                f"{fastest:.0f} ({observed.shape[0] / middle:.0f})",
                f"{perplexity(weights[name], contestant[1], held):.0f}",
            ]
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=["kos", "nips"])
    parser.add_argument("--components", nargs="+", type=int, default=[50, 100])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--sets", nargs="+", default=None, choices=_sets.INSTRUCTION_SETS
    )
    parser.add_argument(
        "--note", default="", help="added to the conditions: loaded machine"
    )
    options = parser.parse_args()
    options.sets = options.sets or list(_sets.INSTRUCTION_SETS[-1:])
    with threadpool_limits(options.threads):
        table = [
            row
            for corpus in options.corpora
            for n_components in options.components
            for row in rows(options, corpus, n_components)
        ]
    text = markdown(
        ["corpus, K", "", "documents/s, best (median)", "perplexity"], table
    )
    text += "\n\n" + conditions(
        ["scikit-learn", "gensim", "tomotopy"], options.threads, options.note
    )
    print(text)


if __name__ == "__main__":
    main()
