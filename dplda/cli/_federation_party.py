"""``dplda federation party``: fit the model of a plan with the other parties."""

from __future__ import annotations

import argparse
import logging
import math
import ssl
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

# loads a name at its first use: options and --help need nothing of it
import dplda.federated
from dplda.cli._budget import check_ledger, is_agreed
from dplda.cli._federation_coordinator import check_timeouts, log_progress
from dplda.cli._federation_plan import describe
from dplda.cli._options import (
    check_output,
    kept,
    save_words,
    say,
    texts_of,
    words_beside,
)
from dplda.leaf._checks import check_delta, check_number
from dplda.leaf._files import reserved

if TYPE_CHECKING:
    import scipy.sparse as sp

    from dplda.federated._joint_party import Party
    from dplda.federated._plan import Plan

log = logging.getLogger("dplda.federated")


def fit_together(options: argparse.Namespace) -> int:
    """Fit with the others, and write the model that all have."""
    from dplda.federated._certificates import certificate_of, check_dates, tls_context
    from dplda.federated._joint_party import Party
    from dplda.federated._line import Line, checked_address
    from dplda.federated._plan import Plan

    check_timeouts(options)
    checked_address(options.coordinator)
    check_output(options.out, options.texts, options.plan, is_new=True)
    plan = Plan.read(options.plan)
    own = certificate_of(options.certificate)
    others = certificate_of(options.coordinator_certificate)
    name = plan.certificates().get(own)
    if name is None:
        raise ValueError(f"{options.certificate} is not a certificate of the plan")
    tls = tls_context(
        ssl.PROTOCOL_TLS_CLIENT, options.certificate, options.key, [others]
    )
    plan.check_dates()
    check_dates(others, str(options.coordinator_certificate))
    _check_budget(options, plan)
    data = _load(options, plan)  # private
    party = Party(plan, name, options.key, data, n_jobs=options.n_jobs)
    line = Line(
        options.coordinator,
        plan.max_bytes,
        tls,
        timeout=options.round_timeout,
        start_timeout=options.start_timeout,
    )
    describe(plan)
    question = f"Spend epsilon {plan.epsilon():.6g} of each {plan.unit}?"
    if not is_agreed(options, question):
        return 1
    delta = None if options.ledger.exists() else options.delta
    ledger = dplda.privacy.Ledger(options.ledger, epsilon=options.budget, delta=delta)
    party.model.ledger = ledger
    log_progress()
    # tables; words, escaped twice; the guarantee
    text = plan.text().encode()
    room = plan.max_bytes + 4 * len(text) + 2**17
    is_whole = False
    try:
        with reserved(options.out, room):
            party.fit(line, partial(_save_so_far, party, options.out))
        is_whole = True
    finally:  # what is paid for is kept, whatever has ended the fit
        found = _paid_for(party, options.out)
        written = None if found is None else kept(*found)
        if not is_whole:
            end = "without a model"
            if written is not None:
                end = f"with a model of the rounds so far, {written}"
            print(f"The fit has ended {end}: {ledger}", file=sys.stderr)
    if written != options.out:
        raise OSError(
            f"{options.out} cannot be written: the model is {written}, and the other "
            "parties have the same model"
        )
    say(f"{options.out}: the model that all parties have. It may be published.")
    return 0


def _check_budget(options: argparse.Namespace, plan: Plan) -> None:
    """Refuse a plan that the party's own command line, or its ledger, does not allow.

    A new ledger is not made yet.
    """
    check_ledger(options.ledger, options.budget)
    if options.ledger.exists():
        if dplda.privacy.Ledger(options.ledger).epsilon == math.inf:
            raise ValueError(
                f"{options.ledger} has no limit, so that others would decide what is "
                "spent; give a ledger with a budget"
            )
        return
    if options.budget is None:
        raise ValueError(
            f"{options.ledger} is a new ledger: give --budget, the total epsilon for "
            "the life of these data"
        )
    budget = check_number("--budget", options.budget, 0.0, math.inf, closed="neither")
    check_delta(options.delta)
    cost = plan.epsilon(options.delta)
    if cost > budget:
        raise ValueError(
            f"--budget {budget:g} does not pay for the plan, which costs {cost:.4g} at "
            f"delta {options.delta:g} (--delta)"
        )


def _paid_for(party: Party, out: Path) -> tuple[Callable[[Path], None], Path] | None:
    """What writes the model of a party, or the words chosen for it, and where."""
    if hasattr(party.model, "components_"):
        return partial(_save, party), out
    if party.words is not None and hasattr(party.words, "vocabulary_"):
        return partial(save_words, words=party.words.vocabulary_), words_beside(out)
    return None


def _save_so_far(party: Party, out: Path) -> None:
    """Write what a party has so far. A process that is killed leaves it."""
    try:
        found = _paid_for(party, out)
        if found is not None:
            save, path = found
            save(path)
    except Exception as error:  # it must not end the fit, at whose end it is told
        log.warning("%s cannot be written: %s", out, error)


def _save(party: Party, out: Path) -> None:
    """Write a party's model. Its words, if they were chosen, are in it."""
    from sklearn.pipeline import make_pipeline

    if party.words is None:
        dplda.save_release(party.model, out, vocabulary=party.plan.words)
    else:
        dplda.save_release(make_pipeline(party.words, party.model), out)
        words_beside(out).unlink(missing_ok=True)


def _load(
    options: argparse.Namespace, plan: Plan
) -> tuple[sp.csr_array | list[str], list[str] | None]:
    """The party's own documents, and the users of their rows or None.

    They are texts, as `dplda fit` reads them, or sparse counts (.npz). Texts are
    counted if the plan has the vocabulary.
    """
    import scipy.sparse as sp

    from dplda.core._words import counter_of
    from dplda.leaf._users import IdColumn

    if options.texts.suffix == ".npz":
        if plan.n_words is not None:
            raise ValueError(
                f"the parties choose the words of this plan, and {options.texts} holds "
                "counts of words: give texts"
            )
        try:
            with options.texts.open("rb") as file:
                return sp.csr_array(sp.load_npz(file)), None
        except (ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{options.texts} does not hold sparse counts "
                "(scipy.sparse.save_npz), or is damaged"
            ) from error
    found = texts_of(options, options.texts, options.id_column)
    users = None
    if options.id_column is not None:
        users = IdColumn(options.id_column, found.ids)
    if plan.n_words is not None:
        return found.texts, users
    return counter_of(plan.words).transform(found.texts), users
