"""What surrounds a process ends no paid work, takes no result away and hides none.

From `Charge.begin` on, a small fit of each kind meets what a caller, a terminal or a
service manager can do. The tape of a recorder says what became public; the fitted
attributes, the ledger and the messages are compared with it. The default tests meet a
few lines of each kind; the slow ones visit every line.
"""

import contextlib
import io
import logging
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

import dplda
from dplda import (
    HDPLDA,
    LPLDA,
    PrivateCountVectorizer,
    PrivateSVILDA,
    PrivateTopicModel,
    SubLDA,
)
from dplda.datasets import load_wordnet_glosses, make_topic_corpus
from dplda.federated import IFTMParty
from dplda.privacy import Ledger
from dplda.privacy.mechanisms import Charge, Recorder, record
from dplda.text import _choice

pytestmark = pytest.mark.filterwarnings("ignore")
X = make_topic_corpus(40, 12, 2, doc_length=20, random_state=0).data
TEXTS = load_wordnet_glosses().data[:150]
ROOT = Path(dplda.__file__).parent
# rounds of each are enough for a round in the middle
MODELS = {
    "SubLDA": (SubLDA(2, epsilon=4.0, max_iter=3), X),
    "PrivateSVILDA": (PrivateSVILDA(2, epsilon=4.0, max_iter=3), X),
    "HDPLDA": (HDPLDA(2, epsilon=4.0, max_iter=4), X),
    "IFTMParty": (IFTMParty(2, token_epsilon=8.0, max_iter=3), X),
    "PrivateCountVectorizer": (PrivateCountVectorizer(epsilon=4.0), TEXTS),
    "PrivateTopicModel": (
        PrivateTopicModel(
            2,
            epsilon=6.0,
            max_features=30,
            model=SubLDA(max_iter=2),
            public_texts=load_wordnet_glosses().data[500:520],
        ),
        TEXTS,
    ),
}
each = pytest.mark.parametrize("name", MODELS)


class Announced(Recorder):
    """Labels of what became public, in order."""

    def __init__(self):
        self.labels = []

    def announced(self, release):
        self.labels.append(release.label)


def n_rounds(name, labels):
    """How many rounds of a model have been released."""
    counts = Counter(labels)
    if name == "PrivateTopicModel":
        return counts["word-topic counts"]
    return counts["word-topic counts"] or counts["counts"]


def check(name, model, ledger, labels, error):
    """What was released is there, is charged, and is said."""
    if labels:
        assert [entry.status for entry in ledger.entries()] == ["released"]
    if name == "PrivateCountVectorizer":
        assert hasattr(model, "vocabulary_") == bool(labels)
    elif name == "IFTMParty":
        assert hasattr(model, "components_") == bool(labels)
    elif name == "PrivateTopicModel" and "words" in labels:
        assert len(model.vectorizer_.get_feature_names_out()) == 30
    if name in ("SubLDA", "PrivateSVILDA", "HDPLDA", "PrivateTopicModel"):
        assert getattr(model, "n_iter_", 0) == n_rounds(name, labels)
        assert hasattr(model, "components_") == bool(n_rounds(name, labels))
    if hasattr(model, "epsilon_"):
        assert model.epsilon_ == model.privacy_.epsilon
        assert np.isfinite(model.epsilon_)
    planned = {"PrivateTopicModel": 2, "PrivateCountVectorizer": None}.get(
        name, model.get_params().get("max_iter")
    )
    is_complete = planned is None or getattr(model, "n_iter_", 0) == planned
    if error is not None and labels and not is_complete:
        notes = getattr(error, "__notes__", [])
        assert any("is spent" in note for note in notes)


def fit(name, around=contextlib.nullcontext, **parameters):
    """Fit a copy inside of what surrounds it; give model, ledger, labels, and error."""
    model, data = MODELS[name]
    ledger = Ledger()
    model = clone(model).set_params(ledger=ledger, **parameters)
    error = None
    with record(Announced()) as tape, around():
        try:
            model.fit(data)
        except BaseException as problem:
            error = problem
    return model, ledger, tape.labels, error


# ---- settings of the process, from `begin` on ----------------------------------------


def fails(*args, **options):
    raise OSError("this stream is gone")


class Gone(io.StringIO):
    write = flush = fails


class Handler(logging.Handler):
    emit = fails


@contextlib.contextmanager
def warnings_as_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@contextlib.contextmanager
def arithmetic_errors():
    with np.errstate(all="raise"):
        yield


@contextlib.contextmanager
def no_stderr():
    before = sys.stderr
    sys.stderr = None
    try:
        yield
    finally:
        sys.stderr = before


@contextlib.contextmanager
def broken_stderr():
    with contextlib.redirect_stderr(Gone()):
        yield


@contextlib.contextmanager
def a_log_that_fails():
    logger = logging.getLogger("dplda")
    handler = Handler()
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@contextlib.contextmanager
def no_threads():
    """The system gives no more threads."""
    start = threading.Thread.start

    def refuse(self):
        raise RuntimeError("can't start new thread")

    threading.Thread.start = refuse
    try:
        yield
    finally:
        threading.Thread.start = start


SETTINGS = [
    warnings_as_errors,
    no_stderr,
    broken_stderr,
    a_log_that_fails,
    no_threads,
]


@each
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.__name__)
def test_no_setting_of_the_process_ends_paid_work(name, setting, monkeypatch):
    """The setting comes at `begin`: what is wrong before costs nothing."""
    begin = Charge.begin
    with contextlib.ExitStack() as settings:

        def begin_there(self):
            begin(self)
            settings.enter_context(setting())

        monkeypatch.setattr(Charge, "begin", begin_there)
        options = {}
        if "verbose" in MODELS[name][0].get_params():
            options["verbose"] = 1
        model, ledger, labels, error = fit(name, **options)
    assert error is None or isinstance(error, Warning)
    check(name, model, ledger, labels, None)
    assert hasattr(model, "epsilon_")
    planned = MODELS[name][0].get_params().get("max_iter")
    if planned is not None:
        assert model.n_iter_ == planned


@each
def test_arithmetic_errors_of_the_caller_end_no_paid_work(name):
    model, ledger, labels, error = fit(name, arithmetic_errors)
    assert error is None
    check(name, model, ledger, labels, None)


@each
def test_a_ledger_that_is_gone_takes_no_result_away(name, tmp_path, monkeypatch):
    """The file goes with its disk, once the charge is in it."""
    begin = Charge.begin
    folder = tmp_path / "disk"
    folder.mkdir()

    def begin_and_lose(self):
        begin(self)
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()

    monkeypatch.setattr(Charge, "begin", begin_and_lose)
    model, data = MODELS[name]
    model = clone(model).set_params(ledger=folder / "ledger").fit(data)
    assert np.isfinite(model.epsilon_)
    assert model.privacy_.receipt


# ---- signals, at lines after `begin` -------------------------------------------------


class Trace:
    """Visits the lines that a fit executes after its charge has begun.

    `at` is the number of the first visit at which `meet` is called; None only counts.
    """

    def __init__(self, at=None, meet=None):
        self.at = at
        self.meet = meet
        self.lines = {}

    def local(self, frame, event, arg):
        if event == "line":
            line = (frame.f_code.co_filename, frame.f_lineno)
            if line not in self.lines:
                self.lines[line] = len(self.lines)
                if self.lines[line] == self.at:
                    self.meet()
        return self.local

    def call(self, frame, event, arg):
        inside = frame.f_code.co_filename.startswith(str(ROOT))
        return self.local if inside else None

    @contextlib.contextmanager
    def __call__(self):
        begin = Charge.begin

        def begin_and_trace(charge):
            begin(charge)
            frame = sys._getframe(1)
            while frame is not None:
                if frame.f_code.co_filename.startswith(str(ROOT)):
                    frame.f_trace = self.local
                frame = frame.f_back
            sys.settrace(self.call)

        Charge.begin = begin_and_trace
        try:
            yield
        finally:
            sys.settrace(None)
            Charge.begin = begin


def lines_of(name):
    trace = Trace()
    fit(name, trace)
    return len(trace.lines)


def interrupted_at(name, at):
    """Ctrl-C at the first visit of a line, by a real signal."""
    trace = Trace(at, lambda: signal.raise_signal(signal.SIGINT))
    model, ledger, labels, error = fit(name, trace)
    line = next((line for line, number in trace.lines.items() if number == at), None)
    try:
        assert error is None or isinstance(error, KeyboardInterrupt)
        check(name, model, ledger, labels, error)
    except AssertionError as wrong:
        raise AssertionError(f"after Ctrl-C at {line}: {wrong}") from wrong


def test_a_trace_meets_every_line_and_finds_a_loss(monkeypatch):
    """The check is shown a fit that loses its words to an interrupt."""
    assert lines_of("PrivateCountVectorizer") > 30
    publish = _choice.publish

    def late(model, *args, **attributes):
        return publish(model, *args, **attributes) if hasattr(model, "later") else None

    monkeypatch.setattr(_choice, "publish", late)
    with pytest.raises(AssertionError, match="after Ctrl-C at"):
        interrupted_at("PrivateCountVectorizer", lines_of("PrivateCountVectorizer") - 1)


@pytest.mark.ci
@each
def test_an_interrupt_takes_nothing_away(name):
    """At a few lines, spread over the fit."""
    n_lines = lines_of(name)
    for at in np.linspace(0, n_lines - 1, 7).astype(int):
        interrupted_at(name, at)


@pytest.mark.slow
@each
def test_an_interrupt_at_any_line_takes_nothing_away(name):
    for at in range(lines_of(name)):
        interrupted_at(name, at)


# ---- the command, as a service manager runs it ---------------------------------------

COMMAND = """
import os, signal, sys, time
from dplda.privacy.mechanisms import Recorder, record
import dplda.__main__

class Signal(Recorder):
    n = 0
    def announced(self, release):
        self.n += 1
        if self.n == int(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGTERM)

with record(Signal()):
    sys.exit(dplda.__main__.main(sys.argv[2:]))
"""


@pytest.mark.ci
@pytest.mark.parametrize("at", [1, 5])
def test_sigterm_ends_a_command_that_says_and_keeps_what_is_paid_for(at, tmp_path):
    notes = tmp_path / "notes.csv"
    rows = [text.replace('"', "'") for text in TEXTS]
    notes.write_text("\n".join(["text", *(f'"{row}"' for row in rows)]))
    options = ["--epsilon", "6", "--n-components", "2", "--max-features", "30"]
    run = subprocess.run(
        [sys.executable, "-c", COMMAND, str(at), "fit", notes.name, *options, "--yes"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT.parent)},
    )
    assert run.returncode == 128 + signal.SIGTERM, run.stderr
    assert "error: ended by SIGTERM" in run.stderr
    assert "stays charged" in run.stderr
    ledger = Ledger(tmp_path / "notes.csv.ledger")
    assert [entry.status for entry in ledger.entries()] == ["released"]
    kept = {path.name for path in tmp_path.iterdir()}
    assert not [name for name in kept if name.endswith(".part")]
    assert kept - {"notes.csv"} > {"notes.csv.ledger"}


def test_a_local_fit_is_there_whatever_the_log_does_and_a_warning_ends():
    model = LPLDA(2, epsilon=16.0, max_doc_words=8, max_iter=2)
    with a_log_that_fails(), warnings_as_errors(), contextlib.suppress(Warning):
        model.fit(X)
    assert np.isfinite(model.epsilon_)
    assert model.n_iter_ == 2
