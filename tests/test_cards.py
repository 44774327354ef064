"""Cards say what ran, whatever ran before: all orders of three calls, with a tape.

The tape writes down what each call pays, and how many parties add noise, by a recorder
of its own. What a card, `epsilon_`, a ledger and a release state is compared with it.
"""

import itertools
import math
import pickle
import warnings

import pytest
from sklearn.base import clone

from dplda import SubLDA, load_release, save_release
from dplda.datasets import make_topic_corpus
from dplda.federated import fit_together
from dplda.privacy import Ledger, epsilon_of
from dplda.privacy.mechanisms import TOTAL_VARIATION, Recorder, record

pytestmark = pytest.mark.filterwarnings("ignore")
X = make_topic_corpus(36, 12, 2, doc_length=20, random_state=0).data
OTHERS = make_topic_corpus(30, 12, 2, doc_length=20, random_state=1).data
PARTS = {"north": X[:12], "south": X[12:24], "west": X[24:]}
DELTA = 1e-5


class Payments(Recorder):
    """What is charged, and how many shares of noise each release has."""

    def __init__(self):
        self.plans = []
        self.n_parties = set()

    def charges(self, label, unit, plan):
        self.plans.append((label, unit, tuple(event for _, event in plan)))
        return True

    def released(self, computed, noisy):
        self.n_parties.add(computed.mechanism.n_parties)
        return noisy


class Story:
    """A model, and what it must state: kept by the tape alone."""

    def __init__(self, yesterday):
        self.model = SubLDA(2, noise_multiplier=20.0, delta=DELTA, max_iter=2)
        self.yesterday = yesterday
        self.own = ()  # events of the releases of its documents
        self.earlier = ()  # of those of yesterday, if they are added
        self.n_parties = []  # of each call that `own` is from
        self.ledger = None
        self.paid = ()

    def call(self, run, *, goes_on=False, earlier=()):
        """Run a call, charged to a ledger of its own, under the eyes of a tape."""
        self.ledger = Ledger(delta=DELTA)
        self.model.set_params(ledger=self.ledger)
        with record(Payments()) as tape:
            run()
        ((_, unit, events),) = tape.plans
        assert unit == "document"
        (n_parties,) = tape.n_parties
        self.paid = events
        if not goes_on:
            self.own, self.n_parties, self.earlier = (), [], earlier
        self.own += events
        self.n_parties.append(n_parties)

    def fit(self):
        self.call(lambda: self.model.fit(X))

    def fit_others(self):
        self.call(lambda: self.model.fit(OTHERS))

    def partial_fit(self):
        is_fitted = hasattr(self.model, "components_")
        self.call(lambda: self.model.partial_fit(X), goes_on=is_fitted)

    def fit_earlier(self):
        before = self.yesterday
        run = lambda: self.model.fit(X, earlier=before)  # noqa: E731
        self.call(run, earlier=before.privacy_.events)

    def clone(self):
        self.model = clone(self.model)
        self.own, self.earlier, self.n_parties, self.paid = (), (), [], ()

    def pickle(self):
        self.model = pickle.loads(pickle.dumps(self.model.set_params(ledger=None)))

    def fit_together(self):
        alone = clone(self.model).set_params(ledger=None)
        with record(Payments()) as tape:
            self.model = fit_together(alone, PARTS)
        plans = {plan for _, _, plan in tape.plans}
        assert len(tape.plans) == 3
        (self.own,) = plans
        (n_parties,) = tape.n_parties
        self.earlier, self.n_parties = (), [n_parties]
        self.ledger, self.paid = None, ()


CALLS = [
    Story.fit,
    Story.fit_others,
    Story.partial_fit,
    Story.fit_earlier,
    Story.clone,
    Story.pickle,
    Story.fit_together,
]


@pytest.fixture(scope="module")
def yesterday():
    model = SubLDA(2, noise_multiplier=9.0, delta=DELTA, max_iter=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(OTHERS)


def check(story, folder):
    """Card, attributes, ledger and release of a model against the tape."""
    model = story.model
    if not story.own:
        assert not hasattr(model, "privacy_")
        return
    card = model.privacy_
    distance = sum(story.n_parties) * TOTAL_VARIATION
    today = epsilon_of(story.own, DELTA, total_variation=distance)
    before = epsilon_of(story.earlier, DELTA, total_variation=TOTAL_VARIATION)
    assert model.epsilon_ == card.epsilon == pytest.approx(max(today, before), rel=1e-9)
    assert card.epsilon >= max(today, before) * (1 - 1e-12)
    dearer = story.own if today >= before else story.earlier
    assert sorted(map(repr, card.events)) == sorted(map(repr, dearer))
    text = str(card)
    has_parties = any(n > 1 for n in story.n_parties)
    has_one = any(n == 1 for n in story.n_parties)
    assert ("each the sum over 3 parties" in text) == has_parties
    assert ("neither the coordinator nor other parties" in card.trusted) == has_parties
    assert ("the process that computes it" in card.trusted) == has_one
    assert ("at most 1 of the 3 parties collude" in text) == has_parties
    other_documents = "no document of this fit is in the fits that were added"
    assert (other_documents in text) == bool(story.earlier)
    if story.ledger is None:
        assert card.ledger == card.receipt == ""
    else:
        assert story.ledger.id[:8] in card.ledger
        assert story.ledger.has(card.receipt)
        paid = epsilon_of(story.paid, DELTA, total_variation=TOTAL_VARIATION)
        assert story.ledger.epsilon_spent == pytest.approx(paid, rel=1e-9)
        assert f"epsilon = {math.ceil(1e3 * paid) / 1e3:g} " in card.ledger
    path = folder / "release"
    path.unlink(missing_ok=True)
    save_release(model, path)
    published = load_release(path).privacy_
    assert published.events == card.events
    assert published.epsilon == card.epsilon
    assert str(published) == text


@pytest.mark.parametrize("first", CALLS, ids=lambda call: call.__name__)
@pytest.mark.parametrize("second", CALLS, ids=lambda call: call.__name__)
def test_a_card_says_what_ran_after_any_three_calls(first, second, yesterday, tmp_path):
    for third in CALLS:
        story = Story(yesterday)
        for call in (first, second, third):
            call(story)
        check(story, tmp_path)


def test_all_orders_are_there():
    names = {call.__name__ for call in CALLS}
    asked = {"fit", "fit_others", "partial_fit", "fit_earlier"}
    assert names == asked | {"clone", "pickle", "fit_together"}
    assert len([*itertools.product(CALLS, repeat=3)]) == 343


@pytest.mark.parametrize("name", ["word_vectors", "prior_components"])
def test_a_card_names_the_public_tables_that_the_first_call_read(name):
    """Later calls go on with them, whatever a parameter says by then."""
    tables = {"word_vectors": X[:3].T.toarray(), "prior_components": X[:2].toarray()}
    given = {name: tables[name] + 1.0}
    for first, later in [({name: None}, given), (given, {name: None})]:
        model = SubLDA(2, epsilon=4.0, max_iter=4, **first).partial_fit(X)
        said = str(model.privacy_)
        model.set_params(**later).partial_fit(X)
        for card in (said, str(model.privacy_)):
            assert (f"{name} is public" in card) == (first is given)
