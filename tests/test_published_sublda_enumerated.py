"""SUB-LDA as published is Algorithm 1 of the paper; what is wrong with it shows."""

import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp
from estimators import observed
from oracle import Oracle
from sub_lda import without_last_term
from test_accounting import printed, sampled

import dplda.published._sublda as module
from dplda.privacy import epsilon_bounds
from dplda.published import PublishedSubLDA
from dplda.published._sublda import frequent_words, iteration_epsilon

dp_event = Oracle("dp_accounting.dp_event")
RdpAccountant = Oracle("dp_accounting.rdp", "RdpAccountant")

K = 4
SIGMA = math.sqrt(3.5)  # of order 14 and divergence 2
pytestmark = pytest.mark.filterwarnings("ignore::dplda.privacy.PrivacyLeakWarning")
both = pytest.mark.parametrize("placement", ["iteration", "token"])


def fitted(model, X):
    """The model fitted to X, and the noisy counts after its iterations."""
    model, seen = observed(model, X)
    assert list(seen["word-topic counts"]) == list(range(1, model.n_iter_ + 1))
    return model, np.array(list(seen["word-topic counts"].values()))


def read(count):
    return max(count, 0.0)


def reference_sweep(
    word,
    document,
    taken,
    topics,
    noisy,
    sizes,
    doc_counts,
    row_noise,
    clip,
    tau,
    beta,
    bits,
    _,
):
    """Algorithm 1's loop over tokens, in the order of operations of the kernel."""
    norm = beta * len(noisy)
    for j, i in enumerate(taken):
        row, doc = noisy[word[i]], doc_counts[document[i]]

        def change(k, amount, row=row):
            sizes[k] -= read(row[k])
            row[k] += amount
            sizes[k] += read(row[k])

        for k, eta in enumerate(row_noise[j] if len(row_noise) else []):
            change(k, eta)
        change(topics[i], -1)
        doc[topics[i]] -= 1
        weights = [
            (min(read(row[k]), clip) + beta) * (1 / (sizes[k] + norm)) * (doc[k] + tau)
            for k in range(len(sizes))
        ]
        upto = list(itertools.accumulate(weights, initial=0.0))[1:]
        threshold = (float(bits[j] >> np.uint64(12)) + 0.5) * 2.0**-52 * upto[-1]
        topics[i] = next(k for k, total in enumerate(upto) if total >= threshold)
        change(topics[i], 1)
        doc[topics[i]] += 1


@pytest.fixture
def sweeps(monkeypatch):
    """The arguments after each kernel call, which has done what the reference does."""
    seen = []
    sweep = module._published.subsampled_sweep

    def spy(*arguments):
        ours = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        sweep(*arguments)
        reference_sweep(*ours)
        for index in (3, 4, 5, 6):
            np.testing.assert_array_equal(ours[index], arguments[index])
        seen.append([a.copy() if isinstance(a, np.ndarray) else a for a in arguments])

    monkeypatch.setattr(module._published, "subsampled_sweep", spy)
    return seen


@both
@pytest.mark.parametrize(
    "parameters",
    [{}, {"subsampling_ratio": 1.0, "count_clip": 2.5}, {"boost": 4.0}],
    ids=repr,
)
def test_it_is_algorithm_1(placement, parameters, sweeps, corpus):
    model = PublishedSubLDA(K, noise_placement=placement, max_iter=3, **parameters)
    model, released = fitted(model, corpus[:20])
    word, document, _, topics, noisy, sizes, doc_counts, *rest = sweeps[-1]
    np.testing.assert_array_equal(released[-1], noisy)
    np.testing.assert_allclose(sizes, np.maximum(noisy, 0).sum(axis=0))
    assert [round(v, 3) for v in rest[1:4]] == [
        parameters.get("count_clip", math.inf),
        0.1,
        0.01,
    ]
    expected = np.zeros((20, K))
    np.add.at(expected, (document, topics), 1)
    np.testing.assert_array_equal(doc_counts, expected)
    words = corpus[:20].toarray().sum(axis=0)
    np.testing.assert_array_equal(np.bincount(word, minlength=40), words)
    np.testing.assert_array_equal(model.components_.T, np.maximum(noisy, 0) + 0.01)


def test_every_token_is_sampled_at_ratio_1_and_with_its_rate_below(sweeps, corpus):
    PublishedSubLDA(K, subsampling_ratio=1.0, max_iter=1).fit(corpus)
    np.testing.assert_array_equal(sweeps[0][2], np.arange(corpus.sum()))
    sweeps.clear()
    PublishedSubLDA(K, subsampling_ratio=0.03, max_iter=10, random_state=0).fit(corpus)
    taken = [arguments[2] for arguments in sweeps]
    expected = 0.03 * corpus.sum() * 10
    assert abs(sum(map(len, taken)) - expected) < 5 * math.sqrt(expected)
    often = np.bincount(np.concatenate(taken), minlength=int(corpus.sum()))
    assert often.max() <= 4  # another sample in each iteration


WIDE = np.full((2, 4000), 2)  # with one topic, counts are known, and cells are many


def test_noise_of_an_iteration_is_new_and_that_of_the_token_loop_adds_up():
    """Of words nobody samples, and where all four tokens of each word are sampled."""
    bare = PublishedSubLDA(1, subsampling_ratio=1e-8, max_iter=5, random_state=0)
    noise = fitted(bare, WIDE)[1][:, :, 0] - 4  # the counts are those of all words
    assert bare.published_epsilon_ < 1e-9
    in_place = PublishedSubLDA(
        1, subsampling_ratio=1.0, noise_placement="token", max_iter=5, random_state=0
    )
    steps = np.diff(fitted(in_place, WIDE)[1][:, :, 0], axis=0, prepend=4)
    for draws, sigma in ((noise, SIGMA), (steps, 2 * SIGMA)):
        np.testing.assert_allclose(draws.std(axis=1), sigma, rtol=5 / math.sqrt(8000))
        assert np.abs(np.corrcoef(draws) - np.eye(5)).max() < 5 / math.sqrt(4000)


def test_a_word_that_no_document_has_gets_no_noise_in_the_token_loop(corpus):
    """One token more is seen for certain: delta = 1."""
    absent = sp.csr_array(corpus.multiply(np.arange(40) != 7))
    present = absent.tolil()
    present[3, 7] = 1
    parameters = {"subsampling_ratio": 0.5, "noise_placement": "token", "max_iter": 10}
    for seed in range(20):
        model = PublishedSubLDA(2, random_state=seed, **parameters)
        assert (fitted(model, absent)[1][:, 7] == 0).all()
        assert (fitted(model, sp.csr_array(present))[1][:, 7] != 0).any(axis=1).all()


def test_adaptive_sampling_takes_frequent_words_of_each_topic_only(sweeps, monkeypatch):
    X = np.random.RandomState(0).poisson(0.1, (100, 3000))
    tables = []
    monkeypatch.setattr(
        module,
        "frequent_words",
        lambda counts, share: (
            tables.append((counts.copy(), frequent_words(counts, share)))
            or tables[-1][1]
        ),
    )
    PublishedSubLDA(
        3,
        subsampling_ratio=0.2,
        boost=3.0,
        frequent_share=0.25,
        max_iter=4,
        random_state=0,
    ).fit(X)
    topics, n_frequent = None, 0
    for (counts, frequent), arguments in zip(tables, sweeps):
        word, taken = arguments[0], arguments[2]
        if topics is not None:  # those at the start of the iteration
            assert frequent[word[taken], topics[taken]].all()
            expected = np.zeros_like(counts)
            np.add.at(expected, (word, topics), 1)
            np.testing.assert_array_equal(counts, expected)
        share = counts[frequent].sum()
        n_frequent += share
        # rate v gamma, (10)
        assert abs(len(taken) - 0.6 * share) < 5 * math.sqrt(0.24 * share)
        topics = arguments[3]
    # (11): eta = 1 / (v q) is the ratio of the expected sizes, but for words taken
    # whole
    assert 0.2 * X.sum() * 4 / (0.6 * n_frequent) == pytest.approx(
        1 / (3 * 0.25), rel=0.05
    )


def test_adaptive_sampling_is_published_at_log_v_more(corpus):
    uniform = PublishedSubLDA(K, max_iter=7).fit(corpus)
    adaptive = PublishedSubLDA(K, max_iter=7, boost=3.0).fit(corpus)
    more = adaptive.published_epsilon_ - uniform.published_epsilon_
    assert more == pytest.approx(7 * math.log(3.0))
    with pytest.raises(ValueError, match=r"at most 1, got 3\.0 times 0\.5"):
        adaptive.set_params(subsampling_ratio=0.5).fit(corpus)


# equation (3), table 3, lemma 4.1

# Ratio, rounds; right value, value of the sum stopped one term early, printed value;
# right and printed totals; epsilon at delta 1e-5 of a mechanism to which the account
# applies.
TABLE_3 = [
    (0.1, 92, 0.046457, "0.0464", 0.05, "4.27", 4.6, "2.456"),
    (0.3, 83, 0.771905, "0.7313", 0.73, "64.07", 59.86, "7.819"),
    (0.5, 70, 1.280934, "1.1882", 1.18, "89.67", 82.6, "12.623"),
    (0.7, 66, 1.627338, "1.4752", 1.48, "107.40", 97.86, "17.918"),
    (0.9, 61, 1.889464, "1.6366", 1.63, "115.26", 99.43, "22.821"),
    (1.0, 42, 2.0, None, 2.0, "84.00", 84.0, "20.125"),
]


@pytest.mark.parametrize("row", TABLE_3, ids=lambda row: f"ratio{row[0]}")
def test_sublda_table_3(row):
    (
        ratio,
        n_rounds,
        right,
        stopped,
        published,
        right_total,
        published_total,
        true_epsilon,
    ) = row
    value = iteration_epsilon(ratio, 14, 2.0)
    assert value == pytest.approx(right, abs=5.1e-7)
    assert printed(n_rounds * value, right_total)
    assert n_rounds * published == pytest.approx(published_total, abs=1.01)
    noise_multiplier = math.sqrt(14 / (2 * 2.0))
    below, above = epsilon_bounds(sampled(ratio, noise_multiplier, n_rounds), 1e-5)
    assert below - 5e-4 <= float(true_epsilon) <= above + 5e-4
    assert above < below * (1 + 1e-4)
    if stopped is not None:
        without_last = without_last_term(ratio, 14, 2.0)
        assert printed(without_last, stopped)
        assert abs(without_last - published) < 0.009
        assert without_last < value
        library = RdpAccountant([14.0])
        library.compose(
            dp_event.PoissonSampledDpEvent(
                ratio, dp_event.GaussianDpEvent(noise_multiplier)
            )
        )
        best = library.get_epsilon(1e-300) - math.log1p(-1 / 14)
        assert best + math.log(14e-300) / 13 == pytest.approx(value, abs=1e-11)
