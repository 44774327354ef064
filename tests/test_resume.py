"""A fit whose process is lost goes on: nothing is released twice, and nothing is paid twice."""

import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

import dplda
from dplda import PrivateSVILDA, SubLDA
from dplda.audit import observe_releases
from dplda.datasets import CountShards, make_topic_corpus, write_shards
from dplda.document import _checkpoint
from dplda.document._checkpoint import Checkpoint, packed, unpacked
from dplda.document._shard_visits import InProcess
from dplda.privacy import Gaussian, Ledger
from dplda.privacy._curator import TOTAL_VARIATION, condensed
from dplda.privacy.mechanisms import Curator

pytestmark = [
    pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning"),
    pytest.mark.filterwarnings("ignore::dplda.privacy.LowSignalWarning"),
]
K, N_ROUNDS = 3, 4
STREAMS = [0, 1, *range(3, 3 + N_ROUNDS)]  # of the releases: word totals, and rounds
COUNTS = make_topic_corpus(40, 20, K, doc_length=30, random_state=0).data


def sublda(**parameters):
    return SubLDA(
        K, **{"noise_multiplier": 3.0, "max_iter": N_ROUNDS, "keep_weights": False, **parameters}
    )


MODELS = {
    "everybody": sublda(),
    "sampled": sublda(subsampling_ratio=0.4, boost=2.0),
    "without noise": sublda(noise_multiplier=None, epsilon=math.inf),
    "variational": PrivateSVILDA(K, noise_multiplier=3.0, max_iter=N_ROUNDS),
    # so much noise that some rounds release word totals, which change what public texts are worth
    "public prior": sublda(
        noise_multiplier=30.0, prior_components=np.outer(np.arange(1, K + 1), COUNTS.sum(axis=0))
    ),
}
# rounds 1 and 2 examine public topics, and the fit begins anew in round 3
SHARES = np.random.default_rng(0).dirichlet(np.ones(K), COUNTS.shape[1]).T
EXAMINED = sublda(max_iter=16, prior_components=SHARES * COUNTS.toarray().sum(axis=0))


@pytest.fixture
def folder(tmp_path):
    """A folder with a corpus; the checkpoint and the ledger come to lie beside it."""
    write_shards(COUNTS, tmp_path / "corpus", rows_per_shard=15)
    return tmp_path


def corpus_of(folder, engine=None, name="fit.ckpt"):
    corpus = CountShards(folder / "corpus", checkpoint=folder / name)
    corpus.engine = engine
    return corpus


def charged(folder, model, **parameters):
    """A clone that is charged to the ledger of the folder."""
    ledger = Ledger(folder / "privacy.sqlite")
    return clone(model).set_params(ledger=ledger, **parameters)


class Lost(BaseException):
    """Ends a fit where a kill would: nothing of this process comes afterwards."""


class Dies(InProcess):
    """Ends the fit when it asks for a sum for the n-th time."""

    def __init__(self, n):
        self.n = n

    def sum(self, *args):
        self.n -= 1
        if self.n == 0:
            raise Lost
        return super().sum(*args)


def lose(model, corpus):
    with pytest.raises(Lost), mock.patch.object(Curator, "_cancel"):
        model.fit(corpus)


@pytest.fixture
def drawn(monkeypatch):
    """All noisy values that any fit draws, by round."""
    draws, draw = [], Curator._with_noise

    def with_noise(self, value, mechanism, round, n_jobs):
        noisy = draw(self, value, mechanism, round, n_jobs)
        draws.append((round, noisy.copy()))
        return noisy

    monkeypatch.setattr(Curator, "_with_noise", with_noise)
    return draws


# ---- the same fit ------------------------------------------------------------------------


FAST = [("everybody", 3), ("public prior", N_ROUNDS + 2)]
LOSSES = [
    pytest.param(name, n, marks=[] if (name, n) in FAST else pytest.mark.slow)
    for name in MODELS
    for n in (1, 2, 3, 4, N_ROUNDS + 2)
]


@pytest.mark.parametrize(("name", "n"), LOSSES)
def test_a_fit_that_goes_on_is_the_fit_that_was_not_lost(name, n, folder, drawn):
    """Lost in the n-th sum: before, between and after the word totals, and in rounds."""
    expected = clone(MODELS[name]).set_params(random_state=1).fit(COUNTS)
    drawn.clear()
    model = charged(folder, MODELS[name], random_state=1)
    lose(model, corpus_of(folder, Dies(n)))
    n_before = len(drawn)
    model = charged(folder, MODELS[name], random_state=1).fit(corpus_of(folder))
    assert n_before == n - 1
    assert [number for number, _ in drawn] == STREAMS  # each once
    for attribute in ("components_", "components_std_", "topic_evidence_"):
        assert_array_equal(getattr(model, attribute), getattr(expected, attribute))
    for attribute in ("epsilon_", "n_iter_", "signal_to_noise_", "prior_trust_"):
        assert getattr(model, attribute) == getattr(expected, attribute)
    assert model.privacy_.events == expected.privacy_.events
    assert model.privacy_.noise_scale == expected.privacy_.noise_scale
    (entry,) = Ledger(folder / "privacy.sqlite").entries()
    assert entry.status == "confirmed"


@pytest.mark.parametrize("n", [pytest.param(n, marks=pytest.mark.slow) for n in (4, 5, 7)] + [6])
def test_a_fit_goes_on_within_and_after_the_examination_of_public_topics(n, folder):
    """The file of the first round after it holds a table that has begun anew."""
    expected = clone(EXAMINED).set_params(random_state=1).fit(COUNTS)
    assert expected._released.n_examining == 2
    lose(charged(folder, EXAMINED, random_state=1), corpus_of(folder, Dies(n)))
    model = charged(folder, EXAMINED, random_state=1).fit(corpus_of(folder))
    assert_array_equal(model.components_, expected.components_)
    assert model._released.public.belief == expected._released.public.belief
    assert model.privacy_.events == expected.privacy_.events


def test_releases_are_never_seen_in_two_forms(folder):
    """With a secret key each process draws other noise; what was shown once stays as it is."""
    seen = {}
    for n in (2, 1, 3, 2, 1, 2, 0):
        with observe_releases() as releases:
            if n:
                lose(charged(folder, MODELS["sampled"]), corpus_of(folder, Dies(n)))
            else:
                charged(folder, MODELS["sampled"]).fit(corpus_of(folder))
        for release in releases:
            assert_array_equal(seen.setdefault(release.round, release.value), release.value)
    assert list(seen) == STREAMS
    assert len(Ledger(folder / "privacy.sqlite").entries()) == 1


def test_a_fit_that_is_complete_is_returned_and_not_released_again(folder, drawn):
    model = charged(folder, MODELS["everybody"]).fit(corpus_of(folder))
    drawn.clear()
    again = charged(folder, MODELS["everybody"]).fit(corpus_of(folder))
    assert_array_equal(again.components_, model.components_)
    assert drawn == []
    assert len(Ledger(folder / "privacy.sqlite").entries()) == 1


# ---- the order ---------------------------------------------------------------------------


def last_release(path):
    """The newest release in a file."""
    checkpoint = Checkpoint.__new__(Checkpoint)
    checkpoint._path, checkpoint._check_same_fit = Path(path), lambda fit: None
    checkpoint._read()
    return checkpoint._written[-1]


def check_written_first(folder, drawn):
    """Fit; whenever the engine is asked for something, all draws are in the file."""

    def check():
        if drawn:
            assert_array_equal(last_release(folder / "fit.ckpt"), drawn[-1][1])

    class Engine(InProcess):
        def gather(self, *args):
            check()
            return super().gather(*args)

        def sum(self, *args):
            check()
            return super().sum(*args)

    charged(folder, MODELS["sampled"]).fit(corpus_of(folder, Engine()))


def test_a_release_is_on_the_disk_before_anything_is_done_with_it(folder, drawn, monkeypatch):
    announced = []

    def announce(label, round, value, mechanism):
        assert_array_equal(last_release(folder / "fit.ckpt"), drawn[-1][1])
        announced.append(round)

    monkeypatch.setattr("dplda.privacy._curator.announce", announce)
    check_written_first(folder, drawn)
    assert announced == STREAMS


def test_a_release_that_is_written_too_late_is_found(folder, drawn, monkeypatch):
    """The planted fault of the test above: a file is written when the next release is drawn."""
    write, late = Checkpoint.write, []

    def write_late(self, noisy):
        if late:
            write(self, late.pop())
        late.append(noisy)

    monkeypatch.setattr(Checkpoint, "write", write_late)
    with pytest.raises((AssertionError, IndexError)):
        check_written_first(folder, drawn)


@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("moment", ["drawn", "moved", "told"])
def test_a_release_is_drawn_again_only_if_it_was_not_written(moment, n, folder, drawn, monkeypatch):
    """Lost before the file is in its place, before the ledger knows of it, and afterwards."""
    write, move, left = Checkpoint.write, _checkpoint.move, [n]

    def counted():
        left[0] -= 1
        return left[0] == 0

    def writing(self, noisy):
        if moment == "drawn" and counted():
            raise Lost
        write(self, noisy)
        if moment == "told" and counted():
            raise Lost

    def moving(draft, path):
        move(draft, path)
        if moment == "moved" and counted():
            raise Lost

    left[0] += moment == "moved"  # the first file has no release
    monkeypatch.setattr(Checkpoint, "write", writing)
    monkeypatch.setattr(_checkpoint, "move", moving)
    lose(charged(folder, MODELS["everybody"]), corpus_of(folder))
    assert len(drawn) == n
    lost = drawn[-1][1]
    with observe_releases() as releases:
        charged(folder, MODELS["everybody"]).fit(corpus_of(folder))
    # those since the state of the file are shown once more, as they were
    (found,) = (r.value for r in releases if r.round == STREAMS[n - 1])
    assert (found == lost).all() == (moment != "drawn")
    assert [number for number, _ in drawn].count(STREAMS[n - 1]) == 1 + (moment == "drawn")
    (entry,) = Ledger(folder / "privacy.sqlite").entries()
    assert entry.status == "confirmed"


def test_the_size_of_the_file_does_not_depend_on_a_release(folder, drawn, monkeypatch):
    """A disk that is full for some values only would choose among them."""
    sizes, content = [], Checkpoint._content

    def measured(self):
        sizes.append(sum(map(len, content(self)[0])))
        if self._releases:
            self._releases[-1] = self._releases[-1] * 0 - 2**30
            assert sum(map(len, content(self)[0])) == sizes[-1]
        return content(self)

    monkeypatch.setattr(Checkpoint, "_content", measured)
    charged(folder, MODELS["sampled"]).fit(corpus_of(folder))
    assert len(sizes) == 1 + len(STREAMS)


# ---- one process at a time ---------------------------------------------------------------


class Meanwhile(InProcess):
    """Does something else when it asks for a sum for the n-th time."""

    def __init__(self, n, action):
        self.n, self.action = n, action

    def sum(self, *args):
        self.n -= 1
        if self.n == 0:
            self.action()
        return super().sum(*args)


def test_a_fit_that_runs_is_not_run_twice(folder):
    errors = []

    def start_again():
        with pytest.raises(BlockingIOError, match="another process runs the fit") as error:
            charged(folder, MODELS["everybody"]).fit(corpus_of(folder))
        errors.append(error)

    charged(folder, MODELS["everybody"]).fit(corpus_of(folder, Meanwhile(4, start_again)))
    assert len(errors) == 1
    assert len(Ledger(folder / "privacy.sqlite").entries()) == 1


def go_on_from_a_copy(folder):
    """A second process goes on from a copy of the file, where it sees no lock."""
    seen = []

    def take_over():
        shutil.copy(folder / "fit.ckpt", folder / "copy.ckpt")
        with observe_releases() as releases:
            charged(folder, MODELS["everybody"]).fit(corpus_of(folder, name="copy.ckpt"))
        seen.extend(releases)

    model = charged(folder, MODELS["everybody"])
    with observe_releases() as releases, pytest.raises(ValueError, match="has gone on with"):
        model.fit(corpus_of(folder, Meanwhile(4, take_over)))
    forms = {}
    for release in [*releases, *seen]:
        forms.setdefault(release.round, set()).add(release.value.tobytes())
    assert list(forms) == STREAMS
    assert all(len(values) == 1 for values in forms.values())
    assert len(Ledger(folder / "privacy.sqlite").entries()) == 1


def test_of_two_processes_that_go_on_only_one_releases(folder):
    go_on_from_a_copy(folder)


def test_two_processes_that_both_release_are_found(folder, monkeypatch):
    """The planted fault of the test above: the ledger does not compare."""

    def advance(self, entry_id, checkpoint, *, before, write):
        write()

    monkeypatch.setattr(Ledger, "advance", advance)
    monkeypatch.setattr(Ledger, "resume", lambda self, number, *_, **__: self.entries()[number - 1])
    with pytest.raises(pytest.fail.Exception):
        go_on_from_a_copy(folder)


@pytest.mark.parametrize("n", [pytest.param(2, marks=pytest.mark.slow), 4])
def test_an_older_copy_of_the_file_is_refused(n, folder, drawn):
    """Also one from before the fit was ever lost: a number of resumes would not tell."""

    def back_up():
        shutil.copy(folder / "fit.ckpt", folder / "copy.ckpt")

    charged(folder, MODELS["everybody"]).fit(corpus_of(folder, Meanwhile(n, back_up)))
    shutil.copy(folder / "copy.ckpt", folder / "fit.ckpt")
    drawn.clear()
    with pytest.raises(ValueError, match="older copy"):
        charged(folder, MODELS["everybody"]).fit(corpus_of(folder))
    assert drawn == []
    assert len(Ledger(folder / "privacy.sqlite").entries()) == 1


def test_a_release_that_two_files_hold_in_two_forms_is_used_in_one(folder, monkeypatch):
    """A file that was written, but not told to the ledger, is void once another one is told."""
    lose(charged(folder, MODELS["everybody"]), corpus_of(folder, Dies(3)))
    shutil.copy(folder / "fit.ckpt", folder / "second.ckpt")
    move = _checkpoint.move

    def moved(draft, path):
        move(draft, path)
        raise Lost

    monkeypatch.setattr(_checkpoint, "move", moved)
    lose(charged(folder, MODELS["everybody"]), corpus_of(folder))  # writes the third release
    monkeypatch.undo()
    lose(charged(folder, MODELS["everybody"]), corpus_of(folder, Dies(4), "second.ckpt"))
    with pytest.raises(ValueError, match="older copy"):  # the second file has its own third one
        charged(folder, MODELS["everybody"]).fit(corpus_of(folder))
    charged(folder, MODELS["everybody"]).fit(corpus_of(folder, name="second.ckpt"))


def test_a_draft_that_a_killed_process_left_is_gone_before_its_release_is_drawn_again(
    folder, monkeypatch
):
    """The ledger was not told of the release in it, and another one takes its place."""
    move, left, drafts = _checkpoint.move, [3], []

    def killed(draft, path):
        left[0] -= 1
        if left[0] == 0:
            drafts.append((draft, draft.read_bytes()))
            raise Lost
        move(draft, path)

    monkeypatch.setattr(_checkpoint, "move", killed)
    lose(charged(folder, MODELS["everybody"]), corpus_of(folder))
    monkeypatch.undo()
    ((draft, content),) = drafts
    draft.write_bytes(content)  # no process that is killed removes it
    another = folder / f".fit.ckpt.2.{'0' * 32}.part"  # of another checkpoint
    another.write_bytes(b"")
    found = []
    engine = Meanwhile(1, lambda: found.extend(folder.glob(".*.part")))
    charged(folder, MODELS["everybody"]).fit(corpus_of(folder, engine))
    assert found == [another]


# ---- an older copy of the ledger -----------------------------------------------------------


def restore_the_ledger_of_the_first_file(folder):
    """One release was made; the copy of the ledger does not know that releases began."""
    ledger, copy = folder / "privacy.sqlite", folder / "copy.sqlite"

    class Engine(Dies):
        def sum(self, *args):
            if self.n == 2:
                shutil.copy(ledger, copy)
            return super().sum(*args)

    lose(charged(folder, MODELS["everybody"]), corpus_of(folder, Engine(2)))
    shutil.copy(copy, ledger)
    assert [entry.status for entry in Ledger(ledger).entries()] == ["reserved"]


def test_a_charge_is_not_canceled_if_the_file_holds_a_release(folder):
    restore_the_ledger_of_the_first_file(folder)
    shard = folder / "corpus" / "000001.data.npy"
    shard.chmod(0o600)
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match="SHA-256"):
        charged(folder, MODELS["everybody"]).fit(corpus_of(folder))
    assert [e.status for e in Ledger(folder / "privacy.sqlite").entries()] == ["releasing"]


def test_a_file_that_holds_a_release_of_a_canceled_charge_is_refused(folder):
    restore_the_ledger_of_the_first_file(folder)
    Ledger(folder / "privacy.sqlite").cancel(1)
    with pytest.raises(ValueError, match="the ledger is an older copy"):
        charged(folder, MODELS["everybody"]).fit(corpus_of(folder))
    assert len(Ledger(folder / "privacy.sqlite").entries()) == 1


def test_no_fit_goes_on_at_the_charge_of_another_fit(folder):
    """The copy of the ledger is from before the charge, and an equal fit has its number."""
    ledger, copy = folder / "privacy.sqlite", folder / "copy.sqlite"
    Ledger(ledger)
    shutil.copy(ledger, copy)
    lose(charged(folder, MODELS["everybody"]), corpus_of(folder, Dies(1)))
    shutil.copy(copy, ledger)
    Ledger(ledger).reserve(
        "SubLDA", "document", condensed_events(MODELS["everybody"]), total_variation=TOTAL_VARIATION
    )
    charged(folder, MODELS["everybody"]).fit(corpus_of(folder))
    assert [e.status for e in Ledger(ledger).entries()] == ["reserved", "confirmed"]


def condensed_events(model):
    return condensed(event for _, event in model._budget().plan(0, N_ROUNDS))


# ---- another fit -------------------------------------------------------------------------

CHANGES = {
    "epsilon, noise_multiplier": {"noise_multiplier": None, "epsilon": 4.0},
    "max_iter": {"max_iter": 5},
    "n_components": {"n_components": 4},
    "prior_components": {"prior_components": np.ones((K, 20)) * 9},
    "random_state": {"random_state": 1},
}


def test_another_fit_is_refused_by_name_and_charges_nothing(folder, drawn):
    lose(charged(folder, MODELS["everybody"]), corpus_of(folder, Dies(4)))
    content = (folder / "fit.ckpt").read_bytes()
    drawn.clear()
    for names, parameters in CHANGES.items():
        with pytest.raises(ValueError, match=f"another fit, with another {names};"):
            charged(folder, MODELS["everybody"], **parameters).fit(corpus_of(folder))
    assert drawn == []
    assert len(Ledger(folder / "privacy.sqlite").entries()) == 1
    assert (folder / "fit.ckpt").read_bytes() == content


def test_another_seed_corpus_class_ledger_or_version_is_named(folder, monkeypatch):
    lose(charged(folder, MODELS["everybody"], random_state=1), corpus_of(folder, Dies(4)))
    seeded = charged(folder, MODELS["everybody"], random_state=2)
    with pytest.raises(ValueError, match="with another random_state;"):
        seeded.fit(corpus_of(folder))
    model = charged(folder, MODELS["everybody"], random_state=1)
    with pytest.raises(ValueError, match="with another ledger;"):
        clone(model).set_params(ledger=folder / "other.sqlite").fit(corpus_of(folder))
    with pytest.raises(ValueError, match="class"):
        charged(folder, MODELS["variational"], random_state=1).fit(corpus_of(folder))
    monkeypatch.setattr(_checkpoint, "__version__", "0.0.9")
    with pytest.raises(ValueError, match="version of dplda"):
        model.fit(corpus_of(folder))
    monkeypatch.undo()
    part = model.ledger.part("2024")
    with pytest.raises(ValueError, match="not the charge of this fit"):
        clone(model).set_params(ledger=part).fit(corpus_of(folder))
    # with the same documents, too: a digest without a secret would let somebody try them out
    shutil.rmtree(folder / "corpus")
    write_shards(COUNTS, folder / "corpus", rows_per_shard=15)
    with pytest.raises(ValueError, match="with another corpus;"):
        model.fit(corpus_of(folder))
    assert len(model.ledger.entries()) == 1
    assert Ledger(folder / "other.sqlite").entries() == []


@pytest.mark.slow
def test_threads_and_progress_may_change(folder):
    lose(charged(folder, MODELS["everybody"]), corpus_of(folder, Dies(4)))
    charged(folder, MODELS["everybody"], n_jobs=2, verbose=1).fit(corpus_of(folder))


def turned(content):
    content = bytearray(content)
    content[-100] ^= 1
    return bytes(content)


DAMAGES = {
    "a changed bit": (turned, "is damaged"),
    "cut short": (lambda content: content[:-10], "is damaged"),
    "another format": (
        lambda content: content.replace(b"checkpoint 1", b"checkpoint 2", 1),
        "is no",
    ),
    "empty": (lambda content: b"", "is no checkpoint"),
}


def test_a_damaged_file_is_refused_and_charges_nothing(folder, drawn):
    lose(charged(folder, MODELS["everybody"]), corpus_of(folder, Dies(4)))
    content = (folder / "fit.ckpt").read_bytes()
    drawn.clear()
    for damage, message in DAMAGES.values():
        (folder / "fit.ckpt").write_bytes(damage(content))
        with pytest.raises(ValueError, match=message):
            charged(folder, MODELS["everybody"]).fit(corpus_of(folder))
    assert drawn == []
    assert len(Ledger(folder / "privacy.sqlite").entries()) == 1


def test_what_cannot_go_on_says_so_before_it_is_charged(folder):
    corpus = corpus_of(folder)
    with pytest.raises(ValueError, match="needs a ledger in a file"):
        MODELS["everybody"].fit(corpus)
    ledger = Ledger()
    with pytest.raises(ValueError, match="needs a ledger in a file"):
        clone(MODELS["everybody"]).set_params(ledger=ledger).fit(corpus)
    model = charged(folder, MODELS["everybody"])
    with pytest.raises(ValueError, match="keep_weights=False"):
        clone(model).set_params(keep_weights=True).fit(corpus)
    with pytest.raises(ValueError, match="call fit"):
        model.partial_fit(corpus)
    with pytest.raises(OSError, match="locked"):
        model.fit(CountShards(folder / "corpus", checkpoint=folder / "missing" / "fit.ckpt"))
    assert [*ledger.entries(), *model.ledger.entries()] == []
    manifest = folder / "corpus" / "shards.json"
    content = json.loads(manifest.read_text())
    del content["salt"]
    manifest.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="write the shards again"):
        model.fit(corpus)
    assert model.ledger.entries() == []


# ---- charges -----------------------------------------------------------------------------


def test_an_error_before_the_first_release_charges_nothing_and_the_next_fit_begins(folder):
    model = charged(folder, MODELS["everybody"])
    shard = folder / "corpus" / "000001.data.npy"
    content = shard.read_bytes()
    shard.chmod(0o600)
    shard.write_bytes(content[:-1] + b"x")
    with pytest.raises(ValueError, match="SHA-256"):
        model.fit(corpus_of(folder))
    shard.write_bytes(content)
    model.fit(corpus_of(folder))
    assert [entry.status for entry in model.ledger.entries()] == ["canceled", "confirmed"]


def test_a_checkpoint_that_cannot_be_begun_charges_nothing(folder, monkeypatch):
    model = charged(folder, MODELS["everybody"])

    def full(draft, path):
        raise OSError("no space left on the device")

    monkeypatch.setattr(_checkpoint, "move", full)
    with pytest.raises(OSError, match="no space"):
        model.fit(corpus_of(folder))
    assert [entry.status for entry in model.ledger.entries()] == ["canceled"]


def test_a_full_disk_later_on_loses_nothing(folder, monkeypatch, drawn):
    model, move, left = charged(folder, MODELS["everybody"]), _checkpoint.move, [5]

    def full(draft, path):
        left[0] -= 1
        if left[0] == 0:
            raise OSError("no space left on the device")
        move(draft, path)

    monkeypatch.setattr(_checkpoint, "move", full)
    with observe_releases() as releases, pytest.raises(OSError, match="no space"):
        model.fit(corpus_of(folder))
    assert len(releases) == 3  # and the fourth was seen by nobody
    model.fit(corpus_of(folder))
    assert len(drawn) == len(STREAMS) + 1
    assert [entry.status for entry in model.ledger.entries()] == ["confirmed"]


def test_processes_of_one_fit_share_the_limit_on_random_words(folder, monkeypatch):
    """Each of them has a key, and the charge counts the words of all of them."""
    model = charged(folder, MODELS["everybody"])
    lose(model, corpus_of(folder, Dies(5)))  # four of six steps
    monkeypatch.setattr("dplda.privacy._curator.MAX_WORDS", 200)
    with pytest.raises(RuntimeError, match="random words"):
        model.fit(corpus_of(folder))


def test_the_ledger_keeps_the_mark_through_its_file(tmp_path):
    ledger = Ledger(tmp_path / "privacy.sqlite")
    charge = {"total_variation": 0.0, "seeded": False}
    number = ledger.reserve("fit", "document", Gaussian(5.0), **charge)
    steps = []
    ledger.advance(number, "a", before="", write=lambda: steps.append("a"))
    ledger.begin_release(number)
    ledger.advance(number, "b", before="a", write=lambda: steps.append("b"))
    with pytest.raises(ValueError, match="another process"):
        ledger.advance(number, "c", before="a", write=lambda: steps.append("c"))
    assert steps == ["a", "b"]
    ledger.confirm(number)
    again = Ledger(tmp_path / "privacy.sqlite")
    (entry,) = again.entries()
    assert (entry.status, entry.checkpoint) == ("confirmed", "b")
    event = (Gaussian(5.0),)
    assert again.resume(1, "fit", "document", event, **charge, checkpoint="b", before="a") == entry
    with pytest.raises(ValueError, match="older copy"):
        again.resume(1, "fit", "document", event, **charge, checkpoint="a", before="")
    with pytest.raises(ValueError, match="not the charge"):
        again.resume(1, "fit", "document", (Gaussian(6.0),), **charge, checkpoint="b", before="a")
    assert again.epsilon_spent == ledger.epsilon_spent > 0


# ---- what the file holds -----------------------------------------------------------------


def test_a_state_is_read_as_it_was_written(folder, monkeypatch):
    states = []

    def keep(self, state, n_releases):
        states.append(state)
        first = packed(state)
        second = packed(unpacked(*json.loads(json.dumps(first[:2])), first[2]))
        assert json.dumps(first[:2]) == json.dumps(second[:2])
        for a, b in zip(first[2], second[2], strict=True):
            assert_array_equal(a, b)
            assert a.dtype == b.dtype
        assert state.share_for_totals > 0  # rounds for totals change what both know
        again = unpacked(*first)
        assert again.public is again.estimate.public  # learns for both

    monkeypatch.setattr(Checkpoint, "keep", keep)
    charged(folder, MODELS["public prior"], random_state=1).fit(corpus_of(folder))
    assert len(states) == N_ROUNDS


def test_only_the_owner_can_read_the_file_and_no_document_is_in_it(folder):
    lose(charged(folder, MODELS["sampled"]), corpus_of(folder, Dies(4)))
    path, corpus = folder / "fit.ckpt", corpus_of(folder)
    if os.name == "posix":
        assert path.stat().st_mode & 0o077 == 0
    content = path.read_bytes()
    manifest = (folder / "corpus" / "shards.json").read_text()
    for private in (json.loads(manifest)["salt"], *(shard.sha256 for shard in corpus.shards)):
        assert private.encode() not in content
    assert Ledger(folder / "privacy.sqlite").id.encode() not in content
    # the tables are those of the released state, (n_words, n_components)
    with np.load(io.BytesIO(content.split(b"\n", 2)[2])) as arrays:
        assert {40, 15, 10}.isdisjoint(size for a in arrays.files[1:] for size in arrays[a].shape)


# ---- processes ---------------------------------------------------------------------------

FIT = """
import hashlib, os, signal, sys
import numpy as np
from dplda import PrivateSVILDA, SubLDA
from dplda.document import _checkpoint
from dplda.document._shard_visits import InProcess
from dplda.datasets import CountShards
from dplda.privacy import Ledger, _curator

folder, name, seed, moment, n = sys.argv[1:]
left = [int(n)]
log = os.open(f"{folder}/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def dies(here):
    if here == moment:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

def wrapped(owner, attribute, before, after):
    function = getattr(owner, attribute)
    def call(*args, **kwargs):
        dies(before)
        result = function(*args, **kwargs)
        dies(after)
        return result
    setattr(owner, attribute, call)

wrapped(_checkpoint.Checkpoint, "write", "drawn", "told")
wrapped(Ledger, "advance", "drafted", "committed")
wrapped(_checkpoint, "move", "in transaction", "moved")
wrapped(InProcess, "sum", "before a sum", "after a sum")
wrapped(Ledger, "reserve", "before the charge", "charged")
wrapped(Ledger, "begin_release", "before the mark", "marked")
wrapped(Ledger, "confirm", "complete", "confirmed")

def announce(label, round, value, mechanism):
    os.write(log, b"%d %b\\n" % (round, hashlib.sha256(value()).hexdigest().encode()))
_curator.announce = announce

models = {
    "sampled": SubLDA(3, noise_multiplier=3.0, max_iter=4, subsampling_ratio=0.4,
                      keep_weights=False),
    "variational": PrivateSVILDA(3, noise_multiplier=3.0, max_iter=4),
}
model = models[name].set_params(
    random_state=None if seed == "None" else int(seed), ledger=f"{folder}/privacy.sqlite"
)
corpus = CountShards(f"{folder}/corpus", checkpoint=f"{folder}/fit.ckpt")
if os.environ.get("CLUSTER"):
    from distributed import Client
    client = Client(os.environ["CLUSTER"])
    corpus = corpus.on(client)
    from dplda.document._dask import DaskEngine
    wrapped(DaskEngine, "sum", "before a sum", "after a sum")
os.write(1, b"begun\\n")
model.fit(corpus)
np.save(f"{folder}/components.npy", model.components_)
"""


def start(folder, *arguments, **environment):
    environment = os.environ | {
        "PYTHONPATH": str(Path(dplda.__file__).parents[1]),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    } | environment  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FIT, str(folder), *map(str, arguments)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def end_of(process):
    """The error output of a process that ended by itself; None if it was killed."""
    _, errors = process.communicate(timeout=250)
    if process.returncode == -signal.SIGKILL:
        return None
    assert process.returncode == 0, errors
    return errors


def check_released_once(folder):
    forms = {}
    for line in (folder / "log").read_text().splitlines():
        number, digest = line.split()
        forms.setdefault(int(number), set()).add(digest)
    assert sorted(forms) == STREAMS
    assert all(len(digests) == 1 for digests in forms.values())
    paid = [entry for entry in Ledger(folder / "privacy.sqlite").entries() if entry.counts]
    assert len(paid) == 1
    assert paid[0].status == "confirmed"


KILLS = [
    ("charged", 1), ("before the mark", 1), ("marked", 1), ("drawn", 1), ("drafted", 2),
    ("in transaction", 3), ("moved", 2), ("moved", 4), ("told", 1), ("told", 3), ("drawn", 6),
    ("before a sum", 4), ("after a sum", 5), ("complete", 1), ("confirmed", 1),
]  # fmt: skip
needs_kill = pytest.mark.skipif(os.name == "nt", reason="Windows has no kill -9")


@pytest.mark.slow
@needs_kill
@pytest.mark.parametrize(
    ("name", "seed", "kills"), [("sampled", 1, KILLS), ("variational", None, KILLS[4:8])]
)
def test_a_process_that_is_killed_is_gone_on_with(name, seed, kills, folder):
    """One fit for each moment at which it is killed."""
    for moment, n in kills:
        for path in folder.glob("[!c]*"):  # not the corpus
            path.unlink()
        assert end_of(start(folder, name, seed, moment, n)) is None, moment
        if moment == "charged":  # no file tells of the entry yet; it can be canceled
            Ledger(folder / "privacy.sqlite").cancel(1)
        assert end_of(start(folder, name, seed, "", 1)) is not None
        check_released_once(folder)
        if seed is not None:
            model = SubLDA(
                K, noise_multiplier=3.0, max_iter=4, subsampling_ratio=0.4, keep_weights=False,
                random_state=seed,
            )  # fmt: skip
            found = np.load(folder / "components.npy")
            assert_array_equal(found, model.fit(COUNTS).components_)


@pytest.mark.slow
@needs_kill
def test_kills_at_random_moments(folder):
    chance = np.random.default_rng(0)
    n_killed = 0
    for _ in range(60):
        process = start(folder, "sampled", None, "", 1)
        process.stdout.readline()
        try:
            process.wait(chance.uniform(0, 0.15) if n_killed < 12 else 250)
        except subprocess.TimeoutExpired:
            process.kill()
            n_killed += 1
        if end_of(process) is not None:
            break
    assert n_killed > 0
    for entry in Ledger(folder / "privacy.sqlite").entries():
        if entry.status == "reserved":  # killed before its first file
            Ledger(folder / "privacy.sqlite").cancel(entry.id)
    check_released_once(folder)


@pytest.mark.slow
@needs_kill
@pytest.mark.filterwarnings("ignore")  # of the cluster
def test_a_coordinator_of_a_cluster_is_killed(folder):
    distributed = pytest.importorskip(
        "distributed", reason="shards on a cluster need pip install dplda[distributed]"
    )
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address
        for moment, n in [("told", 3), ("before a sum", 3)]:
            assert end_of(start(folder, "sampled", 1, moment, n, CLUSTER=address)) is None
        assert end_of(start(folder, "sampled", 1, "", 1, CLUSTER=address)) is not None
    check_released_once(folder)
    model = SubLDA(
        K, noise_multiplier=3.0, max_iter=4, subsampling_ratio=0.4, keep_weights=False,
        random_state=1,
    )  # fmt: skip
    assert_array_equal(np.load(folder / "components.npy"), model.fit(COUNTS).components_)
