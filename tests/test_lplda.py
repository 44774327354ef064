"""LP-LDA and OLP-LDA: reports are trusted as such, and their guarantee is carried."""

import doctest
import math
import os
import re
import subprocess
import sys
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import dplda
import dplda.local._batches as module
from dplda import LPLDA, OLPLDA, GibbsLDA, RandomizedResponse
from dplda.datasets import make_topic_corpus
from dplda.metrics import unigram_perplexity
from dplda.privacy import Ledger, LowSignalWarning

K = 3
BATCH = {LPLDA: {}, OLPLDA: {"batch_size": 10**6}}  # all reports are one
HALVES = {LPLDA: {}, OLPLDA: {"batch_size": 1000}}  # a batch tests those before it
BOTH = [LPLDA, OLPLDA]
both = pytest.mark.parametrize("estimator", BOTH)
ways = pytest.mark.parametrize("reconstruction", ["background", "bits"])
pytestmark = pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")


@pytest.fixture(scope="module")
def corpus():
    return make_topic_corpus(300, 40, K, doc_length=30, random_state=0).data


@pytest.fixture(scope="module")
def reports(corpus):
    return (
        RandomizedResponse(bit_epsilon=1.5, max_doc_words=20)
        .fit(corpus)
        .transform(corpus)
    )


def server(estimator, **parameters):
    defaults = {
        "bit_epsilon": 1.5,
        "max_doc_words": 20,
        "randomized": True,
        "max_iter": 4,
    }
    return estimator(K, **(defaults | parameters))


@pytest.fixture
def batches(monkeypatch):
    """What each batch was trained on: documents, prior, background and counts."""
    seen = []
    original = module.topic_counts

    def spy(documents, prior, background, **rest):
        seen.append([documents, prior, background])
        seen[-1].append(original(documents, prior, background, **rest))
        return seen[-1][-1]

    monkeypatch.setattr(module, "topic_counts", spy)
    return seen


@both
@ways
def test_documents_and_their_reports_give_the_same_model(
    estimator, reconstruction, corpus
):
    client = {"bit_epsilon": 2.0, "max_doc_words": 9, "random_state": 5}
    parameters = {"max_iter": 4, "reconstruction": reconstruction}
    ours = estimator(K, **client, **parameters).fit(corpus)
    made = RandomizedResponse(**client).fit(corpus).transform(corpus)
    theirs = estimator(K, **client, **parameters, randomized=True).fit(made)
    np.testing.assert_array_equal(ours.components_, theirs.components_)
    for form in (made.toarray(), made.toarray().astype(bool), sp.coo_array(made)):
        again = estimator(K, **client, **parameters, randomized=True).fit(form)
        np.testing.assert_array_equal(again.components_, theirs.components_)


@both
@pytest.mark.parametrize("budget", [{"bit_epsilon": 0.5}, {"epsilon": 15.0}])
def test_the_guarantee_is_that_of_the_clients_in_every_call(estimator, budget, corpus):
    client = budget | {"max_doc_words": 4, "delta": 1e-4}
    randomizer = RandomizedResponse(**client).fit(corpus)
    ours = estimator(K, max_iter=2, **client)
    theirs = estimator(K, max_iter=2, randomized=True, **client)
    for part in (corpus[:100], corpus[100:]):
        for model, X in ((ours, part), (theirs, randomizer.transform(part))):
            model.partial_fit(X)
            for name in ("bit", "word", "document"):
                assert getattr(model, f"{name}_epsilon_") == getattr(
                    randomizer, f"{name}_epsilon_"
                )
            assert model.flip_probability_ == randomizer.flip_probability_
            assert model.privacy_.events == randomizer.privacy_.events
            assert (
                model.epsilon_ == randomizer.epsilon_ == model.privacy_.epsilon_at(1e-4)
            )
            assert model.epsilon_ <= budget.get("epsilon", math.inf)
            added = {*model.privacy_.assumptions} - {*randomizer.privacy_.assumptions}
            assert sum("made by RandomizedResponse" in a for a in added) == (
                model.randomized
            )
            assert sum("documents are distinct" in a for a in added) == 1
            assert len(added) == 1 + model.randomized
            assert not model.privacy_.seeded


@both
@pytest.mark.parametrize(
    "changed",
    [{"bit_epsilon": 1.0}, {"max_doc_words": 3}, {"max_doc_words": None}],
    ids=str,
)
def test_partial_fit_is_for_reports_of_the_same_randomizer(estimator, changed):
    """At delta 0, seven of ten words cost as much as ten.

    One word more or less costs more.
    """
    X = (np.random.default_rng(0).random((40, 10)) < 0.6).astype(int)
    model = estimator(K, bit_epsilon=2.0, delta=0.0, max_doc_words=7, max_iter=2).fit(
        X[:20]
    )
    before = model.epsilon_, model.word_epsilon_
    assert before[1] == pytest.approx(math.log(1 / 8 + 7 / 8 * math.exp(4.0)))
    model.partial_fit(X[20:])  # other documents
    assert (model.epsilon_, model.word_epsilon_) == before
    assert model.n_iter_ == 4
    components = model.components_
    with pytest.raises(ValueError, match=r"same randomizer.*call fit"):
        model.set_params(**changed).partial_fit(X[20:])
    assert model.components_ is components


@both
def test_ledger_is_charged_for_making_reports_only(estimator, corpus, reports):
    ledger = Ledger(epsilon=1000.0)
    server(estimator, ledger=ledger).fit(reports).partial_fit(reports)
    assert ledger.entries() == []
    model = server(estimator, ledger=ledger, randomized=False).fit(corpus)
    assert len(ledger.entries()) == 1
    assert ledger.epsilon_spent == pytest.approx(model.epsilon_)
    model.partial_fit(corpus)
    assert [entry.status for entry in ledger.entries()] == ["released"] * 2
    assert model.epsilon_ < ledger.epsilon_spent


@both
@pytest.mark.parametrize("value", [2.0, 0.5, 1.5])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_reports_are_zeros_and_ones(estimator, value, form, reports):
    wrong = reports.toarray()
    wrong[3, 5] = value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"zeros and ones only.*randomized=False"):
            server(estimator).fit(form(wrong))
    twice = sp.coo_array((np.ones(2), ([0, 0], [1, 1])), shape=(2, 40))
    with pytest.raises(ValueError, match="zeros and ones only"):
        server(estimator).fit(twice)


def shuffled(X, rng):
    """The same words in documents of the same lengths, without topics."""
    lengths = X.sum(axis=1).astype(int)
    words = rng.permutation(np.repeat(np.arange(X.shape[1]), X.sum(axis=0).astype(int)))
    rows = np.repeat(np.arange(len(lengths)), lengths)
    return sp.csr_array((np.ones(len(words)), (rows, words)), shape=X.shape)


@both
@pytest.mark.parametrize("bit_epsilon", [0.1, 3.0, 11.0, math.inf])
def test_shuffled_words_have_weak_topics_only(estimator, bit_epsilon):
    """Short texts whose lengths differ: long ones have more of all words."""
    rng = np.random.default_rng(0)
    X = make_topic_corpus(3000, 200, 8, doc_length=20, random_state=1).data.toarray()
    X = shuffled(rng.binomial(X, rng.uniform(0.2, 1, (3000, 1))), rng)
    model = estimator(
        8,
        bit_epsilon=bit_epsilon,
        max_doc_words=None,
        max_iter=10,
        random_state=0,
        **HALVES[estimator],
    )
    with pytest.warns(
        LowSignalWarning, match=f"8 of 8 topics of {estimator.__name__} are weak"
    ):
        assert model.fit(X).weak_topics_.all()
    assert not np.isnan(model.topic_evidence_).any()


@both
def test_topics_that_reports_hold_stand_out(estimator):
    X = make_topic_corpus(3000, 200, 8, doc_length=30, random_state=1).data
    model = estimator(
        8,
        bit_epsilon=3.0,
        max_doc_words=None,
        max_iter=30,
        random_state=0,
        **HALVES[estimator],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", LowSignalWarning)
        model.fit(X[:2000])
    assert model.weak_topics_.sum() <= 1
    before = model.topic_evidence_
    model.partial_fit(X[2000:])
    assert (model.topic_evidence_ > before).mean() > 0.8
    with pytest.warns(LowSignalWarning, match="8 of 8 topics of .* are weak"):
        model.set_params(bit_epsilon=None, epsilon=4.0).fit(X[:2000])
    assert model.weak_topics_.all()


@both
@pytest.mark.parametrize("n_docs", [40, 1000])
def test_words_without_topics_are_not_confirmed_by_the_reports_that_chose_them(
    estimator, n_docs
):
    """The evidence of one topic is at most standard normal, with few reports, too."""
    rng = np.random.default_rng(0)
    evidence = []
    for _ in range(20):
        X = rng.binomial(1, rng.uniform(0.05, 0.35, (n_docs, 1)), (n_docs, 60))
        model = estimator(
            4,
            bit_epsilon=5.0,
            max_doc_words=None,
            max_iter=5,
            random_state=0,
            **({"batch_size": n_docs // 5} if estimator is OLPLDA else {}),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LowSignalWarning)
            evidence.append(model.fit(X).topic_evidence_)
    assert np.mean(evidence) < 0.3
    assert np.mean(np.array(evidence) > 1.645) < 0.1
    assert np.max(evidence) < 3.5


def test_a_first_batch_tests_the_topics_of_a_public_corpus_or_none():
    X = make_topic_corpus(1500, 100, 4, doc_length=30, random_state=1).data
    model = OLPLDA(4, bit_epsilon=3.0, max_doc_words=None, max_iter=20, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LowSignalWarning)  # nothing was tested yet
        model.fit_prior(X[:500])
    assert np.isnan(model.topic_evidence_).all()
    assert model.weak_topics_.all()
    assert not model.partial_fit(X[500:]).weak_topics_.any()
    dealt = shuffled(X[500:].toarray(), np.random.default_rng(0))
    with pytest.warns(LowSignalWarning, match="4 of 4"):
        assert clone(model).fit_prior(X[:500]).partial_fit(dealt).weak_topics_.all()
    with pytest.warns(LowSignalWarning, match="because they are not tested"):
        clone(model).partial_fit(X[500:])
    forgets = clone(model).set_params(correlation=0.0)
    with pytest.warns(LowSignalWarning, match="because they are not tested"):
        forgets.fit_prior(X[:500]).partial_fit(X[500:])


def test_one_topic_and_fewer_than_16_reports_are_not_tested():
    X = make_topic_corpus(50, 20, 2, random_state=0).data
    one = LPLDA(1, bit_epsilon=3.0, max_iter=2, random_state=0).fit(X)
    assert np.isnan(one.topic_evidence_).all()
    assert one.weak_topics_.all()
    with pytest.warns(LowSignalWarning, match="because they are not tested"):
        few = LPLDA(2, bit_epsilon=3.0, max_iter=2, random_state=0).fit(X[:15])
    assert np.isnan(few.topic_evidence_).all()


@ways
def test_infinite_epsilon_is_gibbs_sampling_of_presence(reconstruction, corpus):
    train, test = corpus[:200], corpus[200:]
    free = LPLDA(
        K,
        bit_epsilon=math.inf,
        reconstruction=reconstruction,
        max_doc_words=None,
        random_state=0,
    ).fit(train)
    assert free.epsilon_ == free.bit_epsilon_ == free.document_epsilon_ == math.inf
    assert "no privacy guarantee" in str(free.privacy_)
    there = (train > 0).astype(float)
    # nothing added or lost
    assert (free.components_ - 0.01).sum() == pytest.approx(there.sum())
    plain = GibbsLDA(K, random_state=0).fit(there)
    assert free.perplexity(test) == pytest.approx(plain.perplexity(test), rel=0.05)


def test_bits_make_the_estimated_counts(reports, monkeypatch):
    seen = []
    original = module.topic_counts

    def spy(documents, prior, background, **rest):
        seen.append((documents, background))
        return original(documents, prior, background, **rest)

    monkeypatch.setattr(module, "topic_counts", spy)
    q = server(LPLDA, reconstruction="bits").fit(reports).flip_probability_
    server(LPLDA, reconstruction="background").fit(reports)
    n = reports.toarray().sum(axis=0)
    expected = np.clip((n - 300 * q) / (1 - 2 * q), 0, 300)
    # each fit begins with every second report
    (half, _), (documents, nothing), _, (same, background) = seen
    n_half = reports[::2].toarray().sum(axis=0)
    of_half = np.clip((n_half - 150 * q) / (1 - 2 * q), 0, 150)
    np.testing.assert_array_equal(half.toarray().sum(axis=0), np.rint(of_half))
    np.testing.assert_array_equal(documents.toarray().sum(axis=0), np.rint(expected))
    assert not nothing.any()
    np.testing.assert_array_equal(same.toarray(), reports.toarray())
    np.testing.assert_allclose(
        background * 300, np.maximum(n - (1 - q) * expected, 0), rtol=1e-6
    )


@pytest.mark.parametrize(
    ("estimator", "reconstruction"), [(LPLDA, "bits"), (OLPLDA, "background")]
)
def test_wide_vocabularies_are_never_dense(estimator, reconstruction):
    n_docs, n_words = 3000, 100_000
    cells = np.unique(np.random.default_rng(0).integers(0, n_docs * n_words, 60_000))
    X = sp.csr_array(
        (np.ones(len(cells)), np.divmod(cells, n_words)), shape=(n_docs, n_words)
    )
    model = estimator(
        2,
        bit_epsilon=8.0,
        max_iter=1,
        reconstruction=reconstruction,
        **({"batch_size": 1500} if estimator is OLPLDA else {}),
    )
    tracemalloc.start()
    model.fit(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # a dense array has at least one byte for each cell
    assert peak < n_docs * n_words / 3


@both
@ways
@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (1, 40)])
@pytest.mark.parametrize("value", [0, 1])
def test_degenerate_reports(estimator, reconstruction, shape, value):
    model = server(estimator, reconstruction=reconstruction, bit_epsilon=0.1)
    model.fit(np.full(shape, value)).partial_fit(np.full(shape, value))
    assert np.isfinite(model.components_).all()
    assert (model.components_ > 0).all()


# batches: the recurrences of the paper, and what a public corpus does


def ones(X):
    return (X.toarray() > 0).sum(axis=0)


def test_prior_of_a_batch_is_that_of_equation_10(corpus, reports, batches):
    model = (
        server(OLPLDA, correlation=0.3, batch_size=60)
        .fit_prior(corpus[:50])
        .fit(reports[50:])
    )
    expected = np.full((40, K), 0.01)
    assert len(batches) == 1 + 5
    for _, prior, _, counts in batches:
        np.testing.assert_allclose(prior, expected)
        expected = expected + 0.3 * counts
    np.testing.assert_allclose(model.components_.T, prior + counts)
    assert model.n_batches_ == 5
    assert model.n_iter_ == 6 * 4


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize(
    "weight", [{}, {"prior_weight": 0.7}, {"prior_variance": 25.0}]
)
def test_counts_of_a_batch_are_those_of_equations_19_and_21(
    public, weight, corpus, reports, batches
):
    model = server(OLPLDA, reconstruction="bits", **weight)
    mean = eta = size = None
    if public:
        model.fit_prior(corpus[:50])
        mean = eta = ones(corpus[:50])
        size = 50
    for batch in (reports[50:130], reports[130:150], reports[150:]):
        model.partial_fit(batch)
        n_docs, flip = batch.shape[0], model.flip_probability_
        estimate = (ones(batch) - n_docs * flip) / (1 - 2 * flip)
        estimate = np.clip(estimate, 0, n_docs)
        if mean is None:
            mean = eta = estimate
        else:
            mean = np.minimum((mean + eta) / 2 * n_docs / size, n_docs)
            omega = weight.get("prior_weight", 0.4)
            if "prior_variance" in weight:
                noise = n_docs * flip * (1 - flip) / (1 - 2 * flip) ** 2
                omega = noise / (noise + 25.0)
            eta = omega * mean + (1 - omega) * estimate
        size = n_docs
        np.testing.assert_array_equal(ones(batches[-1][0]), np.rint(eta))
        assert batches[-1][0].shape == batch.shape


def test_fit_is_its_batches_in_order(corpus, reports):
    parameters = {"random_state": 0, "batch_size": 100}
    whole = server(OLPLDA, **parameters).fit_prior(corpus[:60]).fit(reports)
    parts = server(OLPLDA, **parameters).fit_prior(corpus[:60])
    for start in (0, 100, 200):
        parts.partial_fit(reports[start : start + 100])
    np.testing.assert_array_equal(whole.components_, parts.components_)
    assert whole.n_iter_ == parts.n_iter_ == 16
    again = whole.fit(reports)  # from the public corpus again
    np.testing.assert_array_equal(again.components_, parts.components_)
    assert again.n_batches_ == 3


def test_the_public_corpus_alone_is_a_model(corpus):
    model = server(OLPLDA, max_iter=30).fit_prior(corpus)
    # counts, not presence
    assert (model.components_ - 0.01).sum() == pytest.approx(corpus.sum())
    assert model.n_batches_ == 0
    assert model.perplexity(corpus) < 0.9 * unigram_perplexity(corpus, corpus)


def test_that_it_is_public_is_an_assumption(corpus, reports):
    plain, informed = server(OLPLDA).fit(reports), server(OLPLDA).fit_prior(corpus[:20])
    assert not any("fit_prior" in a for a in plain.privacy_.assumptions)
    for model in (informed, informed.fit(reports), informed.partial_fit(reports)):
        said = [
            a
            for a in model.privacy_.assumptions
            if "fit_prior was given is public" in a
        ]
        assert len(said) == 1
    assert informed.epsilon_ == plain.epsilon_
    assert "public" in OLPLDA.fit_prior.__doc__


def test_a_prior_of_another_shape_is_refused_and_costs_nothing(corpus):
    ledger = Ledger(epsilon=1000.0)
    model = server(OLPLDA, randomized=False, ledger=ledger).fit_prior(corpus[:, :30])
    for call in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match=r"40 features.*30 features"):
            call(corpus)
    model.set_params(n_components=K + 1)
    with pytest.raises(ValueError, match=f"fit_prior had n_components={K}"):
        model.fit(corpus[:, :30])
    assert {entry.status for entry in ledger.entries()} == {"canceled"}


def test_the_randomizer_may_change_until_there_are_reports(corpus, reports):
    model = (
        server(OLPLDA, bit_epsilon=5.0)
        .fit_prior(corpus[:50])
        .set_params(bit_epsilon=1.5)
        .fit(reports)
    )
    assert model.bit_epsilon_ == pytest.approx(1.5)
    with pytest.raises(ValueError, match="same randomizer"):
        model.set_params(bit_epsilon=5.0).partial_fit(reports)


def test_infinite_epsilon_is_online_sampling_of_presence(corpus, batches):
    model = OLPLDA(
        K, bit_epsilon=math.inf, max_doc_words=None, max_iter=20, random_state=0
    )
    model.fit_prior(corpus[:50]).fit(corpus[50:])
    assert model.epsilon_ == math.inf
    np.testing.assert_array_equal(batches[1][0].toarray(), corpus[50:210].toarray() > 0)
    np.testing.assert_array_equal(batches[2][0].toarray(), corpus[210:].toarray() > 0)
    assert not any(background.any() for _, _, background, _ in batches)
    assert model.perplexity(corpus) < 0.9 * unigram_perplexity(corpus, corpus)


def test_more_epsilon_and_a_public_corpus_help():
    X = make_topic_corpus(1300, 100, 5, doc_length=40, random_state=0).data
    public, train, test = X[:100], X[100:1100], X[1100:]

    def perplexity(epsilon, informed):
        model = OLPLDA(5, bit_epsilon=epsilon, max_doc_words=None, random_state=0)
        return (
            (model.fit_prior(public) if informed else model).fit(train).perplexity(test)
        )

    strong, weak, none = (
        perplexity(epsilon, False) for epsilon in (0.3, 3.0, math.inf)
    )
    assert strong > 1.05 * weak > 1.05 * none
    assert perplexity(1.0, True) < 0.97 * perplexity(1.0, False)


# the programs of the docs

PAGE = Path(__file__).parents[1] / "docs" / "local_reports.md"


@pytest.mark.slow
def test_client_and_server_of_the_docs_are_two_programs(tmp_path):
    blocks = re.findall(
        r"```python\n# (client|server)\.py\n(.*?)```", PAGE.read_text("utf-8"), re.S
    )
    assert [name for name, _ in blocks] == ["client", "server"]
    for name, code in blocks:
        (tmp_path / f"{name}.py").write_text(code, "utf-8")
    assert "LPLDA" not in blocks[0][1]
    words = ["cat", "dog", "sat", "chased", "stocks", "bank", "bonds", "rose", "fell"]
    (tmp_path / "vocabulary.txt").write_text("\n".join(words), "utf-8")
    for number, text in enumerate(
        ["the cat sat by the dog", "the bank sold bonds and stocks"]
    ):
        texts = tmp_path / f"owner{number}.txt"
        lines = [f"{number}-{i}\t{text}" for i in range(20)]
        texts.write_text("\n".join(lines), "utf-8")
        run(tmp_path, "client.py", texts.name, f"reports{number}.npz")
        stored = sp.load_npz(tmp_path / f"reports{number}.npz")
        assert stored.shape == (20, len(words))
        run(tmp_path, "client.py", texts.name, f"reports{number}.npz")  # asked again
        again = sp.load_npz(tmp_path / f"reports{number}.npz")
        assert (again != stored).nnz == 0
        # another spelling of the path, and a document more at the top
        texts.write_text("\n".join([f"{number}-new\tcat", *lines]), "utf-8")
        run(tmp_path, "client.py", f".{os.sep}{texts.name}", "more.npz")
        assert (sp.load_npz(tmp_path / "more.npz")[1:] != stored).nnz == 0
    said = run(tmp_path, "server.py", "reports0.npz", "reports1.npz")
    assert "40 reports, epsilon 16 " in said
    assert "docs/proofs_local.md" in said  # the card


def test_figures_of_the_docs():
    failed, attempted = doctest.testfile(str(PAGE), module_relative=False)
    assert attempted >= 5
    assert failed == 0


def run(folder, *arguments):
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(dplda.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
