"""``dplda federation plan`` and ``show``: the plan that all parties sign off."""

from __future__ import annotations

import argparse
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

# loads a name at its first use: options and --help need nothing of it
import dplda.federated
from dplda.cli._options import check_output, say
from dplda.leaf._checks import escaped
from dplda.leaf._files import PUBLIC, write_atomically

if TYPE_CHECKING:
    import numpy as np

    from dplda.federated._plan import Plan

# of a plan, because a network waits for its slowest party in each round; a fit of one
# curator has 80, which say about 1% more of new words (docs/federated.md)
ROUNDS = 40


def write_plan(options: argparse.Namespace) -> None:
    """Write a plan, and print what the parties compare by phone."""
    from dplda.federated._certificates import certificate_text
    from dplda.federated._plan import Plan

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
        raise ValueError(
            "two files of --parties have the same name, which is the name of a party; "
            "rename one"
        )
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
    describe(plan)  # refuses what cannot be paid
    write_atomically(options.out, plan.text().encode(), permissions=PUBLIC)
    say(
        f"{options.out}: give this file to all parties, and compare its digest with "
        "them."
    )


def show_plan(options: argparse.Namespace) -> None:
    """Print a plan."""
    from dplda.federated._plan import Plan

    describe(Plan.read(options.plan))


def describe(plan: Plan) -> None:
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
            "X25519 alone: anyone who records the messages and later has a quantum "
            "computer can read sums with the noise of one party"
        )
    words = f"{len(plan.words)} words"
    if plan.n_words is not None:
        words = f"{plan.n_words} words, chosen together from {len(plan.words)}"
    rounds = f"{n_rounds} rounds"
    if plan.model == "SubLDA" and n_rounds == ROUNDS:
        rounds += (
            "; 80 wait twice as long, and say about 1% more of words that are new to a "
            "text (--max-iter)"
        )
    lines = {
        "digest": plan.digest.hex(),
        "model": f"{plan.model}, {model.n_components} topics in {rounds}",
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
    """The topics of a release (n_components, n_words), 0 for words that it lacks."""
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
