"""The commands of ``dplda federation``, which fit one model by secure sums."""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import ssl
import sys
import tempfile
import uuid
import zipfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

# loads a name at its first use: options and --help need nothing of it
import dplda.federated
from dplda.cli._options import (
    AddParser,
    add_texts,
    check_ledger,
    check_output,
    command_group,
    say,
    texts_of,
)
from dplda.leaf._checks import check_delta, check_integer, check_number, escaped
from dplda.leaf._files import PUBLIC, reserved, write_atomically

if TYPE_CHECKING:
    import numpy as np
    import scipy.sparse as sp

    from dplda.federated._network import Party, Plan

# of a plan, which parties wait for; 80: docs/federated.md
ROUNDS = 40

log = logging.getLogger("dplda.federated")
LOG = "%(asctime)s %(name)s: %(message)s"


def add_commands(add_parser: AddParser) -> None:
    """Add the commands of ``dplda federation``."""
    add_command = command_group(
        add_parser,
        "federation",
        "train together over a network",
        argparse.ArgumentDefaultsHelpFormatter,
    )
    plan = add_command(
        "plan", _plan, "Write the plan of a fit, which all parties sign off."
    )
    show = add_command(
        "show", _show, "Print what a plan costs, who pays, and who takes part."
    )
    show.add_argument("plan", type=Path, help="file of the plan")
    coordinator = add_command(
        "coordinator", _add_up, "Add up what the parties of a plan send."
    )
    party = add_command(
        "party", _fit_together, "Fit the model of a plan with the other parties."
    )
    words = plan.add_mutually_exclusive_group(required=True)
    words.add_argument(
        "--language",
        help="the parties choose the words together, from the public list of a "
        "language, such as en",
    )
    words.add_argument(
        "--candidates",
        type=Path,
        help="the same, from a public file with one word per line, the most frequent "
        "first",
    )
    words.add_argument(
        "--vocabulary",
        type=Path,
        help="public file with one word per line, which are all used",
    )
    plan.add_argument(
        "--max-features",
        type=int,
        default=2000,
        help="number of words that are chosen",
    )
    plan.add_argument(
        "--parties",
        type=Path,
        nargs="+",
        required=True,
        metavar="CERTIFICATE",
        help="certificates (PEM), whose file names are those of the parties",
    )
    plan.add_argument(
        "--out", type=Path, default=Path("plan.json"), help="file of the plan"
    )
    plan.add_argument(
        "--model",
        choices=["SubLDA", "PrivateSVILDA"],
        default="SubLDA",
        help="what is fitted",
    )
    plan.add_argument(
        "--unit",
        choices=["document", "user"],
        required=True,
        help="what is protected: each document, or all documents of a person",
    )
    plan.add_argument(
        "--epsilon", type=float, required=True, help="total epsilon of a unit"
    )
    plan.add_argument(
        "--delta", type=float, default=1e-6, help="delta of (epsilon, delta)-privacy"
    )
    plan.add_argument(
        "--n-components", type=int, default=20, help="number of topics, also of --prior"
    )
    plan.add_argument(
        "--prior",
        type=Path,
        metavar="MODEL",
        help="release file of a model of public texts of "
        "the same kind, in whose topics the fit begins",
    )
    plan.add_argument(
        "--word-vectors",
        action="store_true",
        help="take the vectors of English words that dplda holds",
    )
    plan.add_argument(
        "--max-iter",
        type=int,
        help=f"number of rounds; default: {ROUNDS} of SubLDA without samples, else "
        "that of the model",
    )
    plan.add_argument(
        "--subsampling-ratio",
        type=float,
        help="share of units in a round; default: the model's",
    )
    plan.add_argument(
        "--colluding", type=int, default=1, help="parties that may share all they know"
    )
    plan.add_argument(
        "--lost",
        type=int,
        default=0,
        help="parties that may drop out of the fit: the plan prints what they cost",
    )
    coordinator.add_argument("--host", default="127.0.0.1", help="address to listen at")
    coordinator.add_argument("--port", type=int, default=8000, help="port to listen at")
    coordinator.add_argument(
        "--state",
        type=Path,
        help="file from which a coordinator goes on that was ended (default: that of "
        "the plan, with .state)",
    )
    add_texts(party, "--user-column", "column that says whose text it is")
    party.add_argument(
        "--coordinator", required=True, metavar="HOST:PORT", help="where it listens"
    )
    party.add_argument(
        "--coordinator-certificate",
        type=Path,
        required=True,
        help="its certificate, or its authority's (PEM)",
    )
    party.add_argument(
        "--ledger", type=Path, required=True, help="file of the budget that is charged"
    )
    party.add_argument(
        "--budget",
        type=float,
        help="epsilon of a new ledger: the total for the life of these data",
    )
    party.add_argument(
        "--delta", type=float, default=1e-6, help="delta of a new ledger"
    )
    party.add_argument(
        "--yes",
        action="store_true",
        help="spend the budget without asking, as without a terminal",
    )
    party.add_argument(
        "--out",
        type=Path,
        default=Path("together.model"),
        help="release file of the model",
    )
    party.add_argument("--n-jobs", type=int, help="threads")
    for parser in (coordinator, party):
        parser.add_argument("--plan", type=Path, required=True, help="file of the plan")
        parser.add_argument(
            "--certificate", type=Path, required=True, help="own TLS certificate (PEM)"
        )
        parser.add_argument(
            "--key", type=Path, required=True, help="its private key (PEM)"
        )
        parser.add_argument(
            "--round-timeout",
            type=float,
            default=600.0,
            help="seconds that a round may take, or the other side be silent in it",
        )
        parser.add_argument(
            "--start-timeout",
            type=float,
            default=3600.0,
            help="seconds to wait at the start until the others have appeared",
        )


def _plan(options: argparse.Namespace) -> None:
    """Write a plan, and print what the parties compare by telephone."""
    from dplda.federated._network import Plan, certificate_text

    check_output(options.out, options.vocabulary, options.candidates, options.prior)
    words = _words_of(options)
    tables = {}
    n_words = None
    if options.vocabulary is None:
        n_words = min(options.max_features, len(words))
        if options.prior is not None:
            raise ValueError(
                "--prior needs --vocabulary: it has a column for each word, and the "
                "words are not chosen yet"
            )
    if options.prior is not None:
        tables["prior_components"] = _prior(options.prior, words).tolist()
    if options.word_vectors and n_words is None:
        tables["word_vectors"] = dplda.datasets.load_word_vectors(words).tolist()
    parameters = {}
    for name in ("epsilon", "delta", "n_components", "max_iter", "subsampling_ratio"):
        value = getattr(options, name)
        if value is not None:
            parameters[name] = value
    if options.model == "SubLDA" and options.subsampling_ratio in (None, 1):
        parameters.setdefault("max_iter", ROUNDS)
    parties = {path.stem: certificate_text(path) for path in options.parties}
    if len(parties) < len(options.parties):
        raise ValueError("two of --parties have one name, as which the files are named")
    plan = Plan(
        version=dplda.__version__,
        fit=uuid.uuid4().hex,
        model=options.model,
        parameters=parameters,
        unit=options.unit,
        colluding=options.colluding,
        lost=options.lost,
        parties=parties,
        words=words,
        tables=tables,
        n_words=n_words,
        english_vectors=n_words is not None
        and (options.word_vectors or options.language == "en"),
    )
    plan.check_dates()
    _describe(plan)  # refuses what cannot be paid
    write_atomically(options.out, plan.text().encode(), permissions=PUBLIC)
    say(
        f"{options.out}: give this file to all parties, and compare its digest with "
        "them."
    )


def _show(options: argparse.Namespace) -> None:
    """Print a plan."""
    from dplda.federated._network import Plan

    _describe(Plan.read(options.plan))


def _describe(plan: Plan) -> None:
    """Print what a plan costs, who pays, and who takes part."""
    model = plan.estimator()
    terms = plan.terms()
    n_rounds = len(model._budget(terms.shares).rounds)
    noise = plan.noise()
    pays = (
        f"the noise of {terms.shares.n_honest} of {terms.n_parties} parties: "
        f"{terms.colluding} may collude, and {terms.lost} may drop out; "
        f"{noise:.3g} times the noise of one curator"
    )
    if terms.lost:
        pays += f", {plan.noise(lost=0):.3g} times if none may drop out"
    keys = "X25519 and ML-KEM-768"
    if not plan.kem:
        keys = (
            "X25519 alone: who records the messages and has a quantum computer later "
            "reads sums with the noise of one party"
        )
    words = f"{len(plan.words)} words"
    if plan.n_words is not None:
        words = f"{plan.n_words} words, chosen together from {len(plan.words)}"
    lines = {
        "digest": plan.digest.hex(),
        "model": f"{plan.model}, {model.n_components} topics in {n_rounds} rounds",
        "words": words,
        "protects": f"one {plan.unit}",
        "epsilon": f"{plan.epsilon():.6g} at delta {model.delta:g}, charged to each "
        "party",
        "who pays": pays,
        "keys": keys,
    }
    for name, value in lines.items():
        print(f"{name:10} {value}")
    for name, until in plan.last_days().items():
        print(f"{'party':10} {escaped(name)}, whose certificate is valid until {until}")


def _add_up(options: argparse.Namespace) -> None:
    """Hand keys and sums on until the parties have their model."""
    from dplda.federated._network import (
        Coordinator,
        Plan,
        Progress,
        certificate_of,
        check_dates,
        tls_context,
    )
    from dplda.federated._secure_sum import Adder

    _check_timeouts(options)
    check_integer("--port", options.port, 0, 65535)
    plan = Plan.read(options.plan)
    plan.check_dates()
    names = plan.certificates()
    tls = tls_context(
        ssl.PROTOCOL_TLS_SERVER, options.certificate, options.key, [*names]
    )
    check_dates(certificate_of(options.certificate), str(options.certificate))
    state = options.state or options.plan.with_name(f"{options.plan.name}.state")
    check_output(state, options.plan, options.certificate, options.key)
    progress = Progress.read(state, plan)

    async def run() -> None:
        adder = Adder(plan.terms(), [*plan.parties])
        network = Coordinator(
            adder,
            names,
            plan.max_bytes,
            options.round_timeout,
            start_timeout=options.start_timeout,
            state=state,
            progress=progress,
        )
        async with network.listening(options.host, options.port, tls) as port:
            log.info(
                "listening at %s:%d for plan %s", options.host, port, plan.digest.hex()
            )
            if progress.number:
                log.info("going on after reply %d, from %s", progress.number, state)
            await network.add_up()

    logging.basicConfig(level=logging.INFO, format=LOG)
    try:
        asyncio.run(run())
    except KeyboardInterrupt:
        print("To go on with the fit, start the same command again.", file=sys.stderr)
        raise


def _check_timeouts(options: argparse.Namespace) -> None:
    """Refuse times that are none."""
    for name in ("round_timeout", "start_timeout"):
        option = f"--{name.replace('_', '-')}"
        check_number(option, getattr(options, name), 0, 1e9, closed="right")


def _fit_together(options: argparse.Namespace) -> int:
    """Fit with the others, and write the model that all have."""
    from dplda.federated._network import (
        Line,
        Party,
        Plan,
        certificate_of,
        check_dates,
        checked_address,
        tls_context,
    )

    _check_timeouts(options)
    checked_address(options.coordinator)
    check_output(options.out, options.texts, options.plan, is_new=True)
    plan = Plan.read(options.plan)
    own = certificate_of(options.certificate)
    others = certificate_of(options.coordinator_certificate)
    name = plan.certificates().get(own)
    if name is None:
        raise ValueError(f"{options.certificate} is no certificate of the plan")
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
    _describe(plan)
    if not _is_wanted(options, plan):
        return 1
    delta = None if options.ledger.exists() else options.delta
    ledger = dplda.privacy.Ledger(options.ledger, epsilon=options.budget, delta=delta)
    party.model.ledger = ledger
    logging.basicConfig(level=logging.INFO, format=LOG)
    # tables; words, escaped twice; the guarantee
    text = plan.text().encode()
    room = plan.max_bytes + 4 * len(text) + 2**17
    is_whole = False
    try:
        with reserved(options.out, room):
            party.fit(line)
        is_whole = True
    finally:  # what is paid for is kept, whatever has ended the fit
        kept = _keep(party, options.out)
        if not is_whole:
            end = "without a model"
            if kept is not None:
                end = f"with a model of the rounds so far, {kept}"
            print(f"The fit has ended {end}: {ledger}", file=sys.stderr)
    if kept != options.out:
        raise OSError(
            f"{options.out} cannot be written: the model is {kept}, and the other "
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
                f"{options.ledger} has no limit: others would decide what is spent; "
                "give a ledger with a budget"
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


def _is_wanted(options: argparse.Namespace, plan: Plan) -> bool:
    """On a terminal, ask before spending."""
    if options.yes or not sys.stdin.isatty():
        return True
    unit = "user" if plan.unit == "user" else "document"
    answer = input(f"Spend epsilon {plan.epsilon():.6g} of each {unit}? [y/N] ")
    is_yes = answer.strip().lower() in ("y", "yes")
    if not is_yes:
        say("Nothing was charged.")
    return is_yes


def _keep(party: Party, out: Path) -> Path | None:
    """Write what a party has paid for, elsewhere if needed; None if it has nothing.

    That is a model, or the words that were chosen for it.
    """
    from sklearn.pipeline import make_pipeline

    if hasattr(party.model, "components_") and party.words is None:
        save = partial(dplda.save_release, party.model, vocabulary=party.plan.words)
    elif hasattr(party.model, "components_"):
        save = partial(dplda.save_release, make_pipeline(party.words, party.model))
    elif party.words is not None and hasattr(party.words, "vocabulary_"):
        lines = [f"{word}\n" for word in party.words.vocabulary_]
        out = out.with_name(f"{out.name}.words")
        data = "".join(lines).encode()
        save = partial(write_atomically, data=data, permissions=PUBLIC)
    else:
        return None
    try:
        save(path=out)
        return out
    except OSError as error:
        other = Path(tempfile.mkdtemp(prefix="dplda-"), out.name)
        save(path=other)
        print(f"{out} cannot be written ({error})", file=sys.stderr)
        return other


def _load(
    options: argparse.Namespace, plan: Plan
) -> tuple[sp.csr_array | list[str], list[str] | None]:
    """The party's own documents, and the users of their rows or None.

    They are texts, as `dplda fit` reads them, or sparse counts (.npz). Texts are
    counted if the plan has the vocabulary.
    """
    import scipy.sparse as sp

    from dplda.core._words import counter_of

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
                f"{options.texts} holds no sparse counts (scipy.sparse.save_npz), or "
                "is damaged"
            ) from error
    found = texts_of(options, options.texts, options.id_column)
    users = found.ids if options.id_column is not None else None
    if plan.n_words is not None:
        return found.texts, users
    return counter_of(plan.words).transform(found.texts), users


def _words_of(options: argparse.Namespace) -> list[str]:
    """The vocabulary of a plan, or the candidates for it."""
    if options.language is not None:
        return dplda.datasets.load_public_vocabulary(None, language=options.language)
    if options.candidates is not None:
        return _words("--candidates", options.candidates)
    return _words("--vocabulary", options.vocabulary)


def _words(option: str, path: Path) -> list[str]:
    """The words of a vocabulary file, one a line; the last may end in a line break."""
    try:
        words = path.read_text("utf-8").removesuffix("\n").split("\n")
        dplda.federated.vocabulary_hash(words)
        for word in words:
            if not word.strip() or len(word.splitlines()) != 1:
                raise ValueError("a line is blank, or has a line separator in it")
    except ValueError as error:
        raise ValueError(f"{option} {path}: {error}") from error
    return words


def _prior(path: Path, words: list[str]) -> np.ndarray:
    """The topics of a release in these words, (n_components, n_words); else zeros."""
    import numpy as np

    model = dplda.load_release(path)
    if model.vocabulary_ is None:
        raise ValueError(
            f"--prior {path} does not say its words; save it with a vocabulary"
        )
    place = {word: column for column, word in enumerate(model.vocabulary_)}
    prior = np.zeros((len(model.components_), len(words)))
    for column, word in enumerate(words):
        if word in place:
            prior[:, column] = model.components_[:, place[word]]
    return prior
