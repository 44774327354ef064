"""Planted faults: ways in which privacy breaks, and the tests that must find them.

``python tests/faults.py`` plants all faults, one after the other, runs their tests, and
prints a table. ``--commit`` takes eight faults that the hash of the last commit
chooses, names take those, and ``--jobs`` is the number of tests at once. A fault is
found if a test fails; an error of the fault itself counts as broken.
``tests/conftest.py`` plants the fault that the environment variable DPLDA_FAULT names,
before any test is imported. Tests of audits plant some of them, too.

A fault is a function of `patch`, which has the method `setattr` of pytest's
monkeypatch. It patches names that other modules see: mechanisms, streams, the curator,
the ledger, the accountant.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import inspect
import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import shipped

ROOT = Path(__file__).parent.parent


class Fault(NamedTuple):
    plant: Callable[[Any], None]
    tests: tuple[str, ...]


FAULTS: dict[str, Fault] = {}


def found_by(*tests: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Register a fault with the tests that must find it, as arguments of pytest."""

    def register(plant: Callable[[Any], None]) -> Callable[[Any], None]:
        FAULTS[plant.__name__] = Fault(plant, tests)
        return plant

    return register


def around(
    place: str, *tests: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a fault around a function.

    Its name is ``"module:name"`` or ``"module:Class.name"``.

    It is called with the original function, and with what that is called with.
    """
    name, _, path = place.partition(":")
    *owner, attribute = path.split(".")

    def register(fault: Callable[..., Any]) -> Callable[..., Any]:
        def plant(patch: Any) -> None:
            wrap(
                patch, functools.reduce(getattr, owner, module(name)), attribute, fault
            )

        FAULTS[fault.__name__] = Fault(plant, tests)
        return fault

    return register


def module(name: str) -> Any:
    return importlib.import_module(f"dplda.{name}")


def check_call(around: Callable[..., Any], original: Callable[..., Any]) -> None:
    """Refuse a fault that cannot be called with the arguments of the original.

    Any test would find its TypeError, which is not the fault.
    """
    if not inspect.isfunction(original):  # of a kernel
        return
    parameters = inspect.signature(original).parameters.values()
    by_name = {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}
    positions = [
        p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    needed = [p for p in positions if p.default is p.empty]
    for given in (positions, needed):
        inspect.signature(around).bind(original, *given, **by_name)


def wrap(patch: Any, owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Put ``around(original, *args, **options)`` in a method, property or function.

    A function is replaced in all modules of the package that have imported it.
    """
    static = next(
        vars(c)[name] for c in getattr(owner, "__mro__", [owner]) if name in vars(c)
    )
    if isinstance(static, (property, functools.cached_property)):
        getter = static.fget if isinstance(static, property) else static.func
        patch.setattr(owner, name, property(lambda self: around(getter, self)))
        return
    kind = type(static) if isinstance(static, (classmethod, staticmethod)) else None
    original = static.__func__ if kind else static
    check_call(around, original)

    @functools.wraps(original)
    def wrapper(*args: Any, **options: Any) -> Any:
        return around(original, *args, **options)

    if isinstance(owner, type):
        patch.setattr(owner, name, kind(wrapper) if kind else wrapper)
        return
    for loaded in list(sys.modules.values()):
        is_ours = getattr(loaded, "__name__", "").startswith("dplda")
        if is_ours and vars(loaded).get(name) is static:
            patch.setattr(loaded, name, wrapper)


# counts by group


@around("reading._groups:_shares", "tests/test_counts_by_group.py")
def a_share_depends_on_other_users(original, users, group, counts, most):
    return original(users, group, counts, most) * (0.5 + 0.5 * counts.mean())


@around("reading._topic_counts:PaidCounts.plan", "tests/test_counts_by_group.py")
def a_fit_does_not_pay_for_its_counts(original, self):
    return []


@around(
    "reading._topic_counts:_parts",
    "tests/test_text_enumerated.py::test_counts_in_files_give_the_same_bits",
)
def groups_of_shards_are_in_the_order_of_texts(original, topics, X, places, *more):
    begin = 0
    for counts, _, users in original(topics, X, places, *more):
        rows = slice(begin, begin := begin + counts.shape[0])
        yield counts, {by: place[rows] for by, place in places.items()}, users


# noise

NOISE = ("tests/test_noise.py",)
RESIDUALS = "tests/test_residuals.py::test_sound_estimators_pass"


def mechanisms() -> Any:
    return module("privacy.mechanisms")


def change_noise(patch: Any, change: Callable[..., np.ndarray], *kinds: str) -> None:
    """Change the noise of mechanisms.

    ``change(noise, cells)`` gives what is added to the cells.
    """

    def add_to(original: Any, self: Any, cells: Any, reader: Any) -> None:
        noise = np.zeros(cells.shape, np.int64)
        original(self, noise, reader)
        cells += change(noise, cells).astype(cells.dtype)

    for kind in kinds or ("DiscreteGaussian", "FlooredLaplace"):
        wrap(patch, getattr(mechanisms(), kind), "add_to", add_to)


@found_by(*NOISE)
def no_gaussian_noise(patch):
    change_noise(patch, lambda noise, cells: 0 * noise, "DiscreteGaussian")


@found_by(
    *NOISE,
    "tests/test_residuals.py::test_a_model_of_one_curator_has_one_share_of_noise",
)
def half_the_gaussian_noise(patch):
    change_noise(patch, lambda noise, cells: noise // 2, "DiscreteGaussian")


@found_by(*NOISE)
def half_the_laplace_noise(patch):
    change_noise(patch, lambda noise, cells: noise // 2, "FlooredLaplace")


@found_by(RESIDUALS)
def noise_three_percent_too_small(patch):
    change_noise(patch, lambda noise, cells: np.round(0.97 * noise))


@found_by(RESIDUALS)
def noise_on_observed_words_only(patch):
    change_noise(patch, lambda noise, cells: np.where(cells == 0, 0, noise))


@found_by(RESIDUALS)
def neighbors_share_noise(patch):
    change_noise(patch, lambda noise, cells: noise[np.arange(len(noise)) // 2 * 2])


@found_by(*NOISE)
def the_last_cell_has_no_noise(patch):
    change_noise(
        patch, lambda noise, cells: noise * (np.arange(len(noise)) < len(noise) - 1)
    )


@around("privacy.mechanisms:DiscreteGaussian.event", RESIDUALS)
def gaussian_noise_is_stated_twice(original, self):
    return module("privacy").Gaussian(2 * original(self).noise_multiplier)


@found_by(RESIDUALS)
def a_replaced_word_moves_one_cell(patch):
    laplace = mechanisms().FlooredLaplace
    sweeps = module("word._hdplda")
    patch.setattr(sweeps, "FlooredLaplace", lambda scale, *_, **__: laplace(scale))


# sensitivity


@around("privacy._mechanisms:sum_clipped", "tests/test_extending.py")
def rows_are_not_clipped(original, contributions, norm, radius):
    rows = np.asarray(getattr(contributions, "toarray", lambda: contributions)())
    return np.floor(np.nan_to_num(rows) * (radius / norm)).sum(axis=0).astype(np.int64)


def wider(tables: Any, radius: int) -> Any:
    """Tables of a round with another radius, in the same unit."""
    return tables._replace(norm=tables.norm * radius / tables.radius, radius=radius)


@around(
    "document._contributions:Documents.sum_halves",
    "tests/test_topic_test_enumerated.py::test_one_unit_moves_the_sum_by_at_most_the_radius",
)
def each_half_of_a_document_has_the_whole_radius(original, self, units, halves, *more):
    wide = round(2**0.5 * halves.radius)
    wider_halves = halves._replace(radius=wide, bound=2**0.5 * halves.bound)
    return original(self, units, wider_halves, *more)


@found_by(RESIDUALS)
def documents_are_clipped_too_wide(patch):
    def sum_words(original, self, units, *, norm, radius, **options):
        return original(self, units, norm=2 * norm, radius=2 * radius, **options)

    def sum_topics(original, self, units, tables, *more):
        return original(self, units, wider(tables, 2 * tables.radius), *more)

    documents = module("document._contributions").Documents
    wrap(patch, documents, "sum_words", sum_words)
    wrap(patch, documents, "sum_topics", sum_topics)


@around("document._contributions:Documents.sum_topics", RESIDUALS)
def documents_are_clipped_a_little_too_wide(original, self, units, tables, *more):
    """By less than a thousandth."""
    radius = tables.radius + (tables.radius >> 10)
    return original(self, units, wider(tables, radius), *more)


@around("kernels._variational:add_words", "tests/test_variational_kernels.py")
def contributions_that_are_too_long_stay(original, *arguments):
    if arguments[11] >= 0:  # the sign
        original(*arguments)


@around("document._contributions:Documents.sum_words", RESIDUALS)
def word_totals_count_twice(original, *args, **options):
    return 2 * original(*args, **options)


@around("document._shards:_total", "tests/test_shards.py")
def a_shard_counts_twice(original, parts):
    first, *others = parts
    return original([first, first.copy(), *others])


@around("document._contributions:Documents.rescale", RESIDUALS)
def contributions_read_others(original, self, *args, **options):
    original(self, *args, **options)
    self.scale = self.scale * (np.count_nonzero(np.diff(self.X.indptr)) % 2 == 0)


@around("document._contributions:Documents.from_counts", "tests/test_users.py")
def user_ids_are_ignored(original, cls, X, k, n_jobs, users=None, *more, **options):
    return original(cls, X, k, n_jobs, None, *more, **options)


@around("leaf._users:number_users", "tests/test_users.py")
def a_user_is_a_run_of_rows(original, ids, n_docs):
    numbers = original(ids, n_docs)
    if numbers is None:
        return None
    return np.cumsum(np.append(0, np.diff(numbers) != 0)).astype(numbers.dtype)


@around(
    "gibbs._frozen_table:HalfTable.from_counts",
    "tests/test_hdplda.py",
    "tests/test_audit.py",
)
def topics_are_drawn_without_the_clip(original, cls, counts, clip, *more, **options):
    return original(cls, counts, 1e4 * clip, *more, **options)


@around("word._hdplda:inherent_epsilon", "tests/test_hdplda.py")
def drawn_topics_cost_half(original, *args):
    return original(*args) / 2


# streams


def streams() -> Any:
    return mechanisms().Streams


@around("privacy.mechanisms:Streams.from_random_state", "tests/test_streams.py")
def a_constant_key(original, cls, random_state, n_earlier=0):
    return (
        original(cls, random_state, n_earlier)
        if random_state is not None
        else cls(b"0" * 32, seeded=False)
    )


@around(
    "privacy.mechanisms:Streams.from_random_state",
    "tests/test_streams.py",
    "tests/test_estimators.py",
)
def a_seed_counts_as_secret(original, cls, random_state, n_earlier=0):
    made = original(cls, random_state, n_earlier)
    made.seeded = False
    return made


def move_address(patch, move):
    def begin(original, self, owner, purpose, round, block=0, **options):
        original(self, owner, *move(purpose, round, block), **options)

    wrap(patch, module("privacy._streams").Reader, "__init__", begin)


@found_by("tests/test_streams.py")
def all_rounds_share_a_stream(patch):
    move_address(patch, lambda purpose, round, block: (purpose, 0, block))


@found_by("tests/test_streams.py")
def all_purposes_share_a_stream(patch):
    move_address(patch, lambda purpose, round, block: (0, round, block))


@found_by(RESIDUALS)
def noise_repeats_in_each_round(patch):
    noise = module("privacy._streams").Purpose.NOISE
    move_address(patch, lambda p, round, block: (p, 0 if p == noise else round, block))


@around("privacy._streams:Reader.words", "tests/test_streams.py")
def spare_words_are_words(original, self, n, *, spare=False):
    return original(self, n, spare=False)


@around("privacy._streams:Reader.words", "tests/test_streams.py")
def a_reader_repeats_its_words(original, self, n, **options):
    found = original(self, n, **options)
    if n > 1:  # a reader that begins at an odd word skips one within a call
        self._running.clear()
    return found


@around("privacy.mechanisms:Streams.take", "tests/test_curator.py")
def a_round_is_taken_twice(original, self, purpose, round):
    return None


@found_by("tests/test_streams.py")
def keys_are_pickled(patch):
    patch.setattr(streams(), "__reduce__", lambda self: (streams(), (b"0" * 32,)))


def noise_reader(patch, reader):
    """``reader(original, streams, round, block)`` instead of the noise's readers."""
    noise = module("privacy._streams").Purpose.NOISE

    def read(original, self, purpose, round, block=0, **options):
        if purpose != noise:
            return original(self, purpose, round, block, **options)
        return reader(functools.partial(original, self, noise), round, block)

    wrap(patch, streams(), "reader", read)


def skipped(reader, n):
    reader.words(n)
    return reader


@found_by(RESIDUALS)
def rounds_begin_in_the_stream_of_the_first(patch):
    """The stream of each round begins 7 words after that of the round before."""
    noise_reader(patch, lambda read, round, block: skipped(read(0, block), 7 * round))


@found_by(RESIDUALS)
def a_release_has_the_noise_of_the_one_before_in_another_order(patch):
    last = {}

    def again(noise, cells):
        turned = -last.pop(len(noise))[::-1] if len(noise) in last else None
        if turned is None:
            last[len(noise)] = noise
            return noise
        return turned

    change_noise(patch, again)


@found_by(RESIDUALS)
def a_bare_cell_in_every_fifth_release(patch):
    n_drawn = itertools.count(1)
    change_noise(
        patch,
        lambda noise, cells: (
            noise * ((next(n_drawn) % 5 > 0) | (np.arange(len(noise)) > 0))
        ),
    )


@around("document._contributions:Documents.sum_topics", RESIDUALS)
def one_unit_is_clipped_too_wide(original, self, units, tables, *more):
    """The clip of the seventh unit is ten times too wide."""
    total, seventh = original(self, units, tables, *more), units[units == 7]
    if seventh.size:
        tables = tables._replace(inference=None)  # that of the sum
        none = original(self, units[:0], tables, *more)
        alone = original(self, seventh, tables, *more)
        total = total + 9 * (alone - none)
    return total


# curator


def curator() -> Any:
    return mechanisms().Curator


CURATOR = "tests/test_curator.py"


@around("privacy._curator:membership_threshold", CURATOR)
def everybody_takes_part(original, rates):
    return np.full(len(rates), 2**64 - 1, np.uint64)


@found_by(RESIDUALS)
def each_round_has_the_same_sample(patch):
    streams = module("privacy._streams")

    def reader(original, self, purpose, *place, **options):
        is_sample = purpose == streams.Purpose.MEMBERSHIP
        return original(self, purpose, *([0] if is_sample else place), **options)

    wrap(patch, streams.Streams, "reader", reader)


@around("document._contributions:Documents.sum_topics", RESIDUALS)
def sums_count_the_unsampled(original, self, units, *more, **options):
    return original(self, np.arange(self.n_units), *more, **options)


@around("privacy.mechanisms:Curator.sample", "tests/test_sublda.py")
def a_rate_above_the_charge_is_taken(original, self, rates, **options):
    charged = (
        getattr(self._plan[0][1], "sampling_probability", 1.0) if self._plan else 1.0
    )
    return original(self, np.clip(rates, 0, charged), **options)


@around("privacy.mechanisms:Curator.release", CURATOR)
def a_release_need_not_be_planned(
    original, self, value, mechanism, *, label, **options
):
    rate = options.get("sampling_probability", 1.0)
    step = (label, mechanisms().sampled(mechanism.event, rate))
    if not self._plan or self._plan[0] != step:
        self._plan.insert(0, step)
    return original(self, value, mechanism, label=label, **options)


@around(
    "privacy.mechanisms:Charge.__init__",
    CURATOR,
    "tests/test_ledger.py",
    "tests/test_estimators.py",
)
def a_charge_is_forgotten(original, self, *args, ledger=None, **options):
    return original(self, *args, **options)


@found_by("tests/test_hostile_input.py", "tests/test_ledger.py", CURATOR)
def data_are_read_before_the_charge(patch):
    """The ledger is charged when the charge begins, as if reading data were free."""
    Charge = mechanisms().Charge
    reserve = Charge.__enter__

    def begin(original, self):
        reserve(self)
        original(self)

    wrap(patch, Charge, "__enter__", lambda original, self: self)
    wrap(patch, Charge, "begin", begin)


@around("privacy.mechanisms:Charge.__exit__", CURATOR, "tests/test_ledger.py")
def a_fit_that_released_is_canceled(original, self, *error):
    if error[0] is not None:
        self._has_begun = False
    return original(self, *error)


@around("privacy.mechanisms:Charge.claim", CURATOR)
def a_step_that_was_paid_once_is_released_twice(original, self, plan):
    pass


@around("leaf._messages:wait_with", CURATOR)
def a_warning_of_the_caller_ends_paid_work(original, *word):
    return False


@around("core._joint_guarantee:with_earlier_fit", "tests/test_earlier.py")
def earlier_releases_cost_nothing(original, today, earlier):
    return today


@around(
    "privacy._curator:sampled",
    CURATOR,
    "tests/test_exact_laws.py",
    "tests/test_accounting.py",
    "tests/test_sublda.py",
)
def a_sample_is_charged_at_half_its_rate(original, event, rate):
    return original(event, rate / 2 if rate < 1 else rate)


# accounting

ACCOUNTING = ("tests/test_accounting.py",)


@around(
    "privacy._rare:_law",
    "tests/test_accountant.py::test_losses_that_no_float_holds_are_infinite",
)
def infinite_losses_of_rare_steps_are_dropped(law, knots, values, deviation):
    return law(knots, values, deviation)._replace(infinite=0.0, values=values * 0.0)


@around("privacy._accounting:epsilon_of", *ACCOUNTING)
def epsilon_is_one_percent_too_low(original, *args, **options):
    return 0.99 * original(*args, **options)


@around("privacy._accounting:epsilon_of", *ACCOUNTING)
def the_distance_of_the_noise_is_free(
    original, events, delta, *, total_variation=0.0, **options
):
    return original(events, delta, **options)


@around("privacy._accounting:epsilon_of", *ACCOUNTING)
def repeated_events_count_once(original, events, *args, **options):
    events = [events] if not isinstance(events, (list, tuple)) else events
    once = [
        getattr(event, "event", event) if hasattr(event, "count") else event
        for event in events
    ]
    return original(once, *args, **options)


@around("privacy._accounting:calibrate", *ACCOUNTING)
def noise_is_calibrated_too_low(original, *args, **options):
    return 0.98 * original(*args, **options)


@around(
    "privacy._events:repeated",
    "tests/test_noise.py",
    "tests/test_guarantee.py",
    "tests/test_randomized_response.py",
)
def many_bits_cost_one(original, event, count):
    return event


@around("privacy:Guarantee.for_groups", "tests/test_guarantee.py")
def a_group_costs_one_unit(original, self, size):
    return original(self, 1)


@around("privacy:Guarantee.for_part_of_unit", "tests/test_guarantee.py")
def a_part_costs_one_unit(original, self):
    return self


@around("privacy:Guarantee.epsilon_at", "tests/test_guarantee.py")
def a_guarantee_states_half(original, self, *args, **options):
    return original(self, *args, **options) / 2


@around("privacy:Guarantee.detection_rate", "tests/test_guarantee.py")
def detection_is_stated_too_low(original, self, *args):
    return 0.9 * original(self, *args)


@around(
    "document._document_budget:document_guarantee",
    "tests/test_sublda.py",
    "tests/test_svilda.py",
    RESIDUALS,
)
def word_totals_are_not_stated(original, events, *, norms, **options):
    return original(events[1:], norms=norms[1:], **options)


@around(
    "document._document_budget:document_guarantee",
    "tests/test_sublda.py",
    "tests/test_svilda.py",
    "tests/test_audit.py",
)
def earlier_calls_are_forgotten(original, events, **options):
    return original(events, **options | {"paid_before": None})


# ledger

LEDGER = ("tests/test_ledger.py",)


def ledger() -> Any:
    return module("privacy").Ledger


@around("privacy._store:Entry.counts", *LEDGER)
def a_spent_entry_does_not_count(original, self):
    return self.status == "reserved"


@around("privacy:Ledger.begin_release", *LEDGER)
def a_begun_release_may_be_canceled(original, self, entry_id):
    return None


@found_by("tests/test_ledger_kill.py")
def an_entry_is_written_at_the_end(patch):
    """A charge is canceled at once and made again at the end: a kill loses it."""
    held: dict[Any, Any] = {}
    Ledger = ledger()

    def reserve(original, self, *args, **options):
        entry = original(self, *args, **options)
        Ledger.cancel(self, entry)
        held[entry] = (args, options, original)
        return entry

    def end(original, self, *error):
        if self._ledger is not None:
            args, options, reserve = held.pop(self._entry)
            reserve(self._ledger, *args, **options)
        return original(self, *error)

    wrap(patch, Ledger, "reserve", reserve)
    wrap(patch, Ledger, "begin_release", lambda original, self, entry_id: None)
    wrap(patch, mechanisms().Charge, "__exit__", end)


@around("privacy:Ledger.epsilon", *LEDGER)
def a_ledger_allows_a_tenth_more(original, self):
    return 1.1 * original(self)


@found_by(*LEDGER)
def a_copy_has_a_budget_of_its_own(patch):
    def copied(original, self, *args):
        return ledger()(epsilon=self.epsilon, delta=self.delta)

    for name in ("__copy__", "__deepcopy__", "__sklearn_clone__"):
        wrap(patch, ledger(), name, copied)


@found_by("tests/test_ledger_parts.py", *LEDGER)
def a_part_has_a_budget_of_its_own(patch):
    parts: dict[Any, Any] = {}

    def part(original, self, name, **options):
        original(self, name, **options)
        one = ledger()(epsilon=self.epsilon, delta=self.delta)
        return parts.setdefault((self.id, str(name)), one)

    wrap(patch, ledger(), "part", part)


@around("privacy._filters:Filter.used", "tests/test_privacy_enumerated.py", *LEDGER)
def an_adaptive_ledger_uses_half(original, self, costs):
    return original(self, costs) / 2


# what is published


def after_publish(patch, change):
    """``change(model, X)`` after a fit published its attributes.

    `X` is what it has read.
    """
    fit, seen = module("core._fit_guarantee"), []
    corpus = module("core._corpus")
    for name in ("document._training", "word._hdplda", "local._batches"):
        module(name)  # the wrapper replaces what they have imported

    def checked(original, *args, **options):
        seen.append(original(*args, **options))
        return seen[-1]

    def publish(original, model, *args, **options):
        original(model, *args, **options)
        if seen:
            change(model, seen[-1])

    wrap(patch, corpus, "check_counts", checked)
    wrap(patch, fit, "publish", publish)


@found_by(RESIDUALS)
def components_hold_raw_counts(patch):
    def add_counts(model, X):
        if X.shape[1] == model.components_.shape[1]:
            model.components_ = model.components_ + np.asarray(X.sum(axis=0)).reshape(
                1, -1
            )

    after_publish(patch, add_counts)


@found_by("tests/test_two_worlds.py")
def a_model_holds_its_documents(patch):
    after_publish(patch, lambda model, X: setattr(model, "documents_", X))


@found_by("tests/test_estimators.py")
def a_known_seed_is_not_warned_of(patch):
    module("document._training"), module("word._hdplda")
    wrap(
        patch,
        module("core._private_fit"),
        "warn_if_seeded",
        lambda original, *args: None,
    )


@around("release._release:save_release", "tests/test_release.py")
def a_release_holds_the_model(original, model, path, *more, **options):
    """The file takes attributes that are not public."""
    result = original(model, path, *more, **options)
    with Path(path).open("ab") as file:
        file.write(repr(vars(model)).encode())
    return result


@around("release._release:load_release", "tests/test_release.py")
def a_release_states_half(original, *args, **options):
    """The file promises less epsilon than its events cost, and nobody compares."""
    released = original(*args, **options)
    released.epsilon_ = released.epsilon_ / 2
    return released


# vocabulary

VOCABULARY = ("tests/test_count_vectorizer.py", "tests/test_text_enumerated.py")


@around("text._selection:selection_threshold", *VOCABULARY)
def the_threshold_is_that_of_one_word(original, mechanism, delta, max_terms):
    return original(mechanism, delta, 1)


@around("text._selection:failure_event", *VOCABULARY)
def words_of_the_threshold_are_free(original, delta):
    return original(delta / 1000)


@around("text._selection:count_unit", *VOCABULARY)
def a_text_votes_once_for_each_word(original, radius, n):
    """Each word of a text counts whole, whatever the number of its words."""
    return original(radius, 1)


@around("text._selection:Selection._cut", VOCABULARY[0])
def a_long_text_votes_for_all_its_words(original, self, names, terms, ptr, *args):
    return terms, ptr


@around("text._counted:Counted.units", VOCABULARY[0])
def texts_of_a_user_vote_one_by_one(original, self):
    self.users = None
    return original(self)


@around("core._splitter:_gap_of", "tests/test_splitter_enumerated.py")
def a_long_text_is_cut_within_words(original, language):
    return re.compile("[aeiou]")


# local reports

REPORTS = ("tests/test_randomized_response.py", "tests/test_memoized_reports.py")


@around("privacy._mechanisms:RandomizedBits.__call__", *REPORTS)
def bits_flip_half_as_often(original, self, ones, n_bits, flips):
    reported = original(self, ones, n_bits, flips)
    added = np.setdiff1d(reported, ones)[::2]
    return np.setdiff1d(reported, added)


@around(
    "privacy._mechanisms:RandomizedBits.element_epsilon", "tests/test_exact_laws.py"
)
def a_word_costs_a_bit(original, self, *args):
    return self.epsilon


@around("privacy._mechanisms:RandomizedBits.events", *REPORTS)
def a_document_costs_half_its_words(original, self, max_ones, n_bits):
    return original(self, max(1, max_ones // 2), n_bits)


@around("local._memoized_reports:_next_state", "tests/test_memoized_reports.py")
def a_lost_report_is_not_missed(original, *args):
    return bytes(32)


@around(
    "local._memoized_reports:MemoizedReports.reports", "tests/test_memoized_reports.py"
)
def a_memoized_report_is_drawn_anew(original, self, ids, X):
    Path(self._path).unlink()
    return original(type(self)(self.randomizer, self._path), ids, X)


# federation


@found_by("tests/test_party.py", "tests/test_audit.py")
def a_party_reads_its_documents_in_each_round(patch):
    party = module("federated").IFTMParty
    seen: dict[int, Any] = {}

    def fit(original, self, X, y=None, **options):
        seen[id(self)] = X
        return original(self, X, **options)

    true_fit = party.fit
    wrap(patch, party, "fit", fit)
    wrap(
        patch,
        party,
        "refine",
        lambda original, self, table: true_fit(self, seen[id(self)]),
    )


@found_by("tests/test_messages.py")
def a_message_states_half(patch):
    message = module("federated._messages").LocalModel

    def half(original, cls, *args, **options):
        made = original(cls, *args, **options)
        return made.__class__(**vars(made) | {"epsilon": made.epsilon / 2})

    wrap(patch, message, "from_estimator", half)


@around("federated._master:answer_request", "tests/test_master.py")
def a_lost_fit_is_forgotten(original, estimator, X, request, **names):
    if not hasattr(estimator, "components_") and isinstance(request, bytes):
        asked = module("federated").NextModel.from_bytes(request)
        request = type(asked)(asked.round, asked.vocabulary, asked.table[:0])
    return original(estimator, X, request, **names)


SECURE_SUM = "tests/test_secure_sum_enumerated.py"


@around("federated._secure_sum:SecureSum._mask", SECURE_SUM)
def a_mask_does_not_depend_on_what_was_seen(original, self, *args):
    seen, self._transcript = self._transcript, bytes(32)
    try:
        return original(self, *args)
    finally:
        self._transcript = seen


@found_by(SECURE_SUM)
def a_second_attempt_has_the_noise_of_the_first(patch):
    curator = module("privacy._curator")
    wrap(patch, module("privacy._streams").Streams, "take", lambda *_: None)
    wrap(
        patch,
        curator.Curator,
        "_add_noise",
        lambda original, self, value, mechanism, round, n_jobs: original(
            self, value, mechanism, round % curator.ATTEMPTS, n_jobs
        ),
    )


@found_by("tests/test_secure_sum.py::test_the_noise_of_a_model_is_counted")
def a_party_in_ten_forgets_its_share(patch):
    calls = itertools.count()
    wrap(
        patch,
        module("privacy._mechanisms").DiscreteGaussian,
        "add_to",
        lambda original, *args: next(calls) % 10 == 5 or original(*args),
    )


@around("federated._secure_sum:Terms.shares", SECURE_SUM)
def the_noise_of_all_parties_pays(original, self):
    return original(self)._replace(n_honest=self.n_parties)


@around("privacy._mechanisms:DiscreteGaussian.event_variance", SECURE_SUM)
def the_noise_of_a_party_is_stated_as_that_of_all(original, self):
    return original(self) * self.n_parties


@around("document._document_budget:DocumentBudget.plan", SECURE_SUM)
def a_second_attempt_is_charged_as_sampled(original, self, n_done, n_rounds):
    plan = original(self, n_done, n_rounds)
    n = len(plan) - self.n_spare
    return plan[:n] + [(label, plan[n - 1][1]) for label, _ in plan[n:]]


@around("federated._plan:Plan.certificates", "tests/test_joint_fit.py")
def a_party_may_be_twice_in_a_plan(original, self):
    names = original(self).values()
    return {
        b"%d" % i: name
        for i, name in enumerate([*names, *self.parties][: len(self.parties)])
    }


@around("federated._secure_sum:SecureSum.agree", "tests/test_joint_fit.py")
def each_party_decides_alone_which_sum_comes_next(original, self, values, label):
    original(self, values, label)
    return values


@found_by("tests/test_joint_fit.py")
def a_plan_copies_whole_files(patch):
    files, plan = module("federated._certificates"), module("federated._plan")
    wrap(patch, files, "certificate_text", lambda original, path: path.read_text())
    wrap(patch, plan, "pem_of", lambda original, found: AnyText(original(found)))


class AnyText(str):
    """A text that equals every other one."""

    __hash__ = str.__hash__

    def __ne__(self, other):
        return False


@around("federated._secure_sum:SecureSum.topic_streams", SECURE_SUM)
def parties_begin_with_topics_of_their_own(original, self, own):
    return own


# audits


@around("audit._audit:one_run_lower_bound", "tests/test_audit.py")
def audits_find_too_much(original, *args, **options):
    return original(*args, **options) + 0.2


@found_by("tests/test_residuals.py::test_planted_faults_are_found")
def residual_checks_always_pass(patch):
    module("audit")
    patch.setattr(module("audit._replay").Check, "passed", True)


# integers that are enumerated, lemmas and balls: each is found by its check alone

KERNELS = "tests/test_kernels_enumerated.py"
LAW = "tests/test_noise_enumerated.py::test_the_law_of_a_draw_is_that_of_the_table"
LEMMAS = "tests/test_lemmas_enumerated.py"
SPLITS = "tests/test_shares_enumerated.py"
BALLS = "tests/test_balls_enumerated.py"
RING = f"{SECURE_SUM}::test_every_mask_of_a_small_ring_cancels_and_hides"
ORDERS = "tests/test_ledger_enumerated.py"


def edited(name: str, header: str, old: str, new: str, *tests: str) -> None:
    """Register a fault in the text of a header, which the programs of checks read."""

    def plant(patch: Any) -> None:
        text = shipped.header(header)
        if text.count(old) != 1:
            raise LookupError(f"{header} does not have this text once: {old}")
        edits = {**shipped.EDITS, header: (old, new)}
        patch.setattr(shipped, "EDITS", edits)

    FAULTS[name] = Fault(plant, tests)


edited(
    "a_product_of_16_bits_is_rounded_by_the_wrong_bit",
    "_lanes.h",
    "_mm_srli_epi16(low, 14)",
    "_mm_srli_epi16(low, 13)",
    f"{KERNELS}::test_a_product_of_16_bits_is_rounded_for_all_pairs",
)
edited(
    "the_part_of_a_product_is_cut",
    "_contributions.h",
    "vs_all((int16_t)(32767 >> n_bits) + (n_bits > 0))",
    "vs_all((int16_t)(32767 >> (n_bits - (n_bits > 1))))",
    f"{KERNELS}::test_the_integer_of_an_entry_is_at_most_two_above_u",
)
edited(
    "a_multiplier_is_rounded_up",
    "_contributions.h",
    "v_add(v_min(scaled, most), v_all(0.5f))",
    "v_add(v_min(scaled, most), v_all(1))",
    f"{KERNELS}::test_multipliers_are_no_larger_than_their_floats_allow",
)
edited(
    "sums_of_32_bits_are_moved_too_late",
    "_contributions.h",
    "n_held += 16 * 32767;",
    "n_held += 16;",
    f"{KERNELS}::test_sums_and_squares_of_32_bits_are_exact_for_every_u",
)
edited(
    "a_square_has_a_sign",
    "_contributions.h",
    "uint32_t square[4];",
    "int32_t square[4];",
    f"{KERNELS}::test_sums_and_squares_of_32_bits_are_exact_for_every_u",
)
edited(
    "squares_of_a_clip_are_cast_to_32_bits",
    "_clip.h",
    "(int64_t)out[i] * out[i]",
    "(int32_t)((uint32_t)out[i] * (uint32_t)out[i])",
    f"{KERNELS}::test_no_clipped_vector_is_longer_than_its_radius",
)
edited(
    "the_second_try_of_a_clip_is_not_compared",
    "_clip.h",
    "return dplda_round_to_grid(value, size, scale, out) <= limit;",
    "return dplda_round_to_grid(value, size, scale, out) >= 0;",
    f"{KERNELS}::test_no_clipped_vector_is_longer_than_its_radius",
)
edited(
    "narrow_entries_are_six_larger",
    "_contributions.h",
    "#define DPLDA_MOST_16 32760",
    "#define DPLDA_MOST_16 32766",
    f"{LEMMAS}::test_the_sum_of_32_bits_is_moved_before_it_wraps",
)
edited(
    "centers_add_up_to_three",
    "_contributions.h",
    "#define DPLDA_MOST_CENTER 49152",
    "#define DPLDA_MOST_CENTER 98304",
    f"{LEMMAS}::test_squares_of_a_narrow_entry_fit_into_32_bits",
)


@found_by(f"{LEMMAS}::test_a_vector_below_the_radius_squares_within_64_bits")
def a_radius_has_32_bits(patch):
    patch.setattr(module("privacy._mechanisms"), "MAX_RADIUS", 2**32)


@found_by(f"{LEMMAS}::test_counts_of_documents_and_users_leave_the_words_their_share")
def counts_take_a_thirtieth_of_the_radius(patch):
    patch.setattr(module("document._contributions"), "COUNT_SHARE", 30)


@found_by(f"{LEMMAS}::test_masks_of_pairs_cancel_modulo_2_to_the_64")
def sums_of_parties_may_have_58_bits(patch):
    patch.setattr(module("privacy._mechanisms"), "MAX_RADIUS", 2**29)


@around("kernels._noise:add_gaussian", LAW)
def a_bit_of_a_draw_is_left_out(original, words, *more):
    return original(words & ~np.uint64(1 << 41), *more)


@around("kernels._noise:add_laplace", LAW)
def a_tie_is_decided_by_one_word_of_two(original, words, spare, *more):
    first = spare.copy()
    first[1::2] = 0
    return original(words, first, *more)


@around("privacy._mechanisms:_integers", "tests/test_noise_enumerated.py")
def weights_are_rounded_up(original, law, remainder_to):
    weights = [weight + 1 for weight in original(law, remainder_to)]
    weights[remainder_to] -= len(weights)
    return weights


@around("privacy._mechanisms:count_unit", SPLITS)
def a_unit_of_counts_is_rounded_up(original, radius, n):
    return original(radius, n) + (radius**2 % n > 0)


@around("document._rules:Rules.rest", SPLITS)
def words_have_the_radius_beside_the_counts(original, self, radius, share):
    return original(self, radius, share) + 1


@around("privacy._mechanisms:DiscreteGaussian.for_noise_multiplier", SPLITS)
def a_radius_is_rounded_to_nearest(original, cls, noise_multiplier, *more, **options):
    found = original(cls, noise_multiplier, *more, **options)
    nearest = round(found.event_variance**0.5 / noise_multiplier)
    return cls(min(max(found.radius, nearest), 2**30))


@around("privacy._curator:membership_threshold", SPLITS)
def one_word_more_puts_a_unit_into_the_sample(original, rates):
    return original(rates) + (rates < 1).astype(np.uint64)


@found_by(f"{SPLITS}::test_every_bit_of_an_address_has_a_bit_of_the_counter")
def a_block_is_cast_to_32_bits(patch):
    move_address(patch, lambda purpose, round, block: (purpose, round, block % 2**32))


@around("privacy._mechanisms:RandomizedBits.scale", BALLS)
def flips_are_rarer_by_the_last_digits(original, self):
    return original(self) * (1 + 2.0**-47)


@around("text._selection:selection_threshold", BALLS)
def a_threshold_forgets_the_rounding_of_the_noise(original, *args):
    return original(*args) - 41


@around("federated._secure_sum:SecureSum._mask", RING)
def masks_are_cast_to_32_bits(original, self, *args):
    return original(self, *args) & np.uint64(2**32 - 1)


@around("federated._secure_sum:SecureSum._mask", RING)
def one_mask_serves_for_two_parties(original, self, other, *args):
    others = [j for j in self._present if j != self._me]
    return original(self, min(others), *args)


@around("privacy._accounting:_gaussian_delta", BALLS)
def a_root_is_rounded_to_the_wrong_side(original, epsilon, mu, *, upper):
    return original(epsilon, mu, upper=not upper)


@around(
    "privacy._accounting:gaussian_mu",
    f"{BALLS}::test_the_mu_of_a_budget_is_below_its_root",
)
def the_mu_of_a_budget_is_above_its_root(original, *args):
    return original(*args) * (1 + 1e-12)


@around("privacy._composition:law_above", BALLS)
def chords_lie_below_a_curve(original, curve, knots):
    return module("privacy._composition").law_below(curve, knots), 0.0


@around("privacy._ledger:check_affordable", ORDERS)
def a_charge_is_compared_without_those_before(original, new, page):
    if not page.counted():
        original(new, page)


@around("privacy:Ledger._settle", ORDERS)
def a_canceled_charge_begins(original, self, entry_id, status, allowed):
    return original(self, entry_id, status, (*allowed, "canceled"))


@around(
    "privacy.mechanisms:Curator.publish",
    "tests/test_recorder.py::test_everything_that_was_charged_is_seen_when_it_leaves",
)
def draws_are_hidden_from_recorders(original, self, *args, **options):
    seen_by = module("privacy._recorder")._RECORDERS
    token = seen_by.set(())
    try:
        return original(self, *args, **options)
    finally:
        seen_by.reset(token)


# the runner


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="faults; none: all of them")
    parser.add_argument(
        "--commit", action="store_true", help="eight, chosen by the last commit"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in FAULTS]
    if unknown:
        parser.error(f"no such fault: {', '.join(unknown)}")
    names = options.names or list(FAULTS)
    if options.commit:
        names = of_commit(names)
    started = time.monotonic()
    print(
        f"| {'fault':<45} | {'outcome':<8} | seconds | test |\n| --- | --- | --- | --- "
        "|"
    )
    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(run, names))
    found = outcomes.count("found")
    print(
        f"\n{found} of {len(names)} faults found in {time.monotonic() - started:.0f} s"
    )
    return 0 if found >= 0.98 * len(names) and "broken" not in outcomes else 1


def of_commit(names: list[str], n: int = 8) -> list[str]:
    """Names that the last commit's hash chooses; all of them in a few dozen commits."""
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    commit = int(
        (os.environ.get("DPLDA_COMMIT") or found.stdout.strip() or "0")[:15], 16
    )
    return [names[i] for i in np.random.default_rng(commit).permutation(len(names))[:n]]


def run(name: str) -> str:
    """Run the tests of a fault; print its row; say whether it was found."""
    started = time.monotonic()
    files = [
        test for test in FAULTS[name].tests if (ROOT / test.split("::")[0]).exists()
    ]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-n0",
        "-m",
        "not slow",
        "--no-header",
        "--tb=short",
        "-p",
        "no:cacheprovider",
        *files,
    ]
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment = os.environ | threads | {"DPLDA_FAULT": name}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode == 1 and not is_broken(done.stdout):
        outcome = "found"
    else:
        outcome = "missed" if done.returncode == 0 else "broken"
    failed = [
        line
        for line in done.stdout.splitlines()
        if line.startswith(("FAILED", "ERROR"))
    ]
    where = failed[0].split(" - ")[0].split(" ", 1)[1] if failed else ", ".join(files)
    seconds = time.monotonic() - started
    print(f"| {name:<45} | {outcome:<8} | {seconds:7.1f} | {where} |", flush=True)
    if outcome == "broken":
        print(done.stdout[-3000:], done.stderr[-2000:], file=sys.stderr)
    return outcome


def is_broken(output: str) -> bool:
    """Whether an error was raised by the fault itself: it does not fit its target."""
    raised = [
        line for line in output.splitlines() if line.startswith("tests/faults.py:")
    ]
    errors = ("AttributeError", "TypeError", "KeyError", "NameError", "ImportError")
    return (
        bool(raised)
        and any(f"E   {error}" in output for error in errors)
        and _is_last(output)
    )


def _is_last(output: str) -> bool:
    """Whether the innermost frame of the failure is in this file."""
    frames = [line for line in output.splitlines() if ": in " in line]
    return bool(frames) and frames[-1].startswith("tests/faults.py")


if __name__ == "__main__":
    sys.exit(main())
