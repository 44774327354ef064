"""The command ``dplda report FILE``: what a published model guarantees, for a board or a registry.

It states facts about the software and asks its owner for the rest. It claims conformity with
nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import textwrap
from typing import Any

import dplda  # loads a name at its first use: options and --help need nothing of it
from dplda.cli._release import add_model

OWNER = "to be answered by the owner"
FORMATS = ("text", "markdown", "json")
CHECKLIST_SOURCE = (
    "The rows are the components of the pyramid in NIST SP 800-226 (initial public draft, figure "
    "1). They are no statement of conformity."
)
AXES_SOURCE = (
    "The three trade-offs that the W3C draft note 'Considerations for Reviewing Differential "
    "Privacy Systems' names."
)
REGISTRY_SOURCE = (
    "A draft for github.com/opendp/deployments-registry-data. JSON is also YAML. Add what only the "
    "owner knows."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``dplda report``."""
    parser.set_defaults(command=_report)
    add_model(parser)
    parser.add_argument("--format", choices=FORMATS, default="text", help="form of the report")


def _report(options: argparse.Namespace) -> None:
    model = dplda.load_release(options.model, public_key=options.key)
    if options.format == "json":
        print(json.dumps(summary(model), indent=2, allow_nan=False))
    else:
        print(_as_markdown(model) if options.format == "markdown" else _as_text(model))


def summary(model: dplda.ReleasedModel) -> dict[str, Any]:
    """Summarize a published model for those who decide about it.

    Parameters
    ----------
    model : ReleasedModel
        What `load_release` returned.

    Returns
    -------
    dict
        ``"model"``; ``"guarantee"``, all fields; ``"checklist"``, a list of rows with the answer of
        the software and the question to the owner; ``"registry"``; ``"axes"``.
    """
    guarantee = model.privacy_
    return {
        "model": {
            "estimator": model.estimator_name_,
            "version": model.version_,
            "n_components": int(model.components_.shape[0]),
            "n_words": int(model.components_.shape[1]),
        },
        "guarantee": guarantee.to_dict(),
        "checklist": [
            {"row": row, "software": answer, "owner": question}
            for row, answer, question in checklist(guarantee)
        ],
        "registry": registry_entry(model),
        "axes": axes(guarantee),
    }


def checklist(guarantee: dplda.privacy.Guarantee) -> list[tuple[str, str, str]]:
    """Rows of NIST SP 800-226: name, what the software answers, and what it cannot answer."""
    named = "; ".join(f"{name}: {origin}" for name, origin in guarantee.provenance)
    return [
        (
            "privacy parameters",
            f"{_parameters(guarantee)}. {_found(guarantee)}",
            "Is that enough for these texts, and who decided so?",
        ),
        (
            "unit of privacy",
            f"one {guarantee.unit}: {guarantee.relation}.",
            "Does one unit hold all that one person gave? If not, how many units does a person "
            "give at most (docs/persons.md)?",
        ),
        (
            "algorithms and correctness",
            f"{guarantee.mechanism}. Proof: {guarantee.theorem or 'not named'}.",
            "Are all conditions of the row 'holds if' true of these texts?",
        ),
        ("utility and bias", "", "How well does the model serve its purpose, and whom less well?"),
        (
            "query model",
            "one publication, not interactive. Ledger: "
            f"{guarantee.ledger or 'none was charged'}. Inputs: {named or 'not stated'}.",
            "What else was or will be published from the same texts?",
        ),
        (
            "threat model",
            f"trusted: {guarantee.trusted or 'not stated'}. Anyone else may know all other texts.",
            "Who are the trusted people and machines?",
        ),
        (
            "side channels",
            f"{_randomness(guarantee)}Running time and memory of the training are not covered.",
            "Who could observe the training?",
        ),
        (
            "security and access control",
            f"{_seed(guarantee)}the published file holds no texts, no seed and no path.",
            "Who can read the texts and the ledger, and how are both protected?",
        ),
        (
            "data collection exposure",
            "",
            "How were the texts collected, who holds copies, and when are they deleted?",
        ),
    ]


def axes(guarantee: dplda.privacy.Guarantee) -> dict[str, str]:
    """Privacy, utility and trusted parties, as far as the software knows."""
    return {
        "privacy": f"{_parameters(guarantee)} for one {guarantee.unit}. {_found(guarantee)}",
        "utility": OWNER,
        "trusted parties": guarantee.trusted or OWNER,
    }


def registry_entry(model: dplda.ReleasedModel) -> dict[str, Any]:
    """A draft in the form of the public registry of deployments of differential privacy."""
    from dplda.core._private_fit import TRUSTED
    from dplda.privacy._guarantee import NOT_COVERED
    from dplda.privacy._guarantee import _link as link

    guarantee = model.privacy_
    room = next((name for name, text in TRUSTED.items() if text == guarantee.trusted), OWNER)
    named = "; ".join(f"{name}: {origin}" for name, origin in guarantee.provenance)
    product = ("name", "intended_use", "data_product_region", "publication_date")
    return {
        "status": "Draft",
        "deployment": {
            "product": dict.fromkeys(product, OWNER) | {
                "data_curators": [OWNER],
                "data_product_sector": OWNER,
                "data_product_type": "Machine learning model",
                "description": f"Topic model ({model.estimator_name_}) of "
                f"{model.components_.shape[0]} topics over {model.components_.shape[1]} words",
            },
            "dp_flavor": {
                "name": "Gaussian DP" if guarantee.gaussian_mu is not None else "Approximate DP",
                "data_domain": OWNER,
                "unprotected_quantities": NOT_COVERED,
            },
            "privacy_loss": {
                "privacy_unit": f"{guarantee.unit}-level",
                "privacy_unit_description": guarantee.relation,
                "privacy_parameters": {
                    "epsilon": "inf" if guarantee.epsilon == math.inf else guarantee.epsilon,
                    "delta": guarantee.delta,
                },
                "privacy_parameters_description": _found(guarantee),
            },
            "model": {
                "model_name": room if room == OWNER else room.capitalize(),
                "actors": guarantee.trusted or OWNER,
                "release_type": OWNER,
                "data_source_type": OWNER,
                "access_type": "Non-interactive",
            },
            "accounting": {
                "post_processing": "topics are computed from noisy counts",
                "composition": f"ledger: {guarantee.ledger or 'none was charged'}",
            },
            "implementation": {
                "pre_processing_eda_hyperparameter_tuning": named or OWNER,
                "mechanisms": guarantee.mechanism,
                "justification": OWNER,
            },
            "resources": {
                "sources": f"dplda {model.version_}, {link(guarantee.theorem or 'index.md')}",
                "registry_authors": [OWNER],
            },
        },
    }  # fmt: skip


def _parameters(guarantee: dplda.privacy.Guarantee) -> str:
    if guarantee.epsilon == math.inf:
        return "no guarantee (epsilon = infinity)"
    mu = guarantee.gaussian_mu
    exactly = "" if mu is None else f", Gaussian DP with mu = {mu:.4g}"
    return f"epsilon = {guarantee.epsilon:.4g}, delta = {guarantee.delta:g}{exactly}"


def _found(guarantee: dplda.privacy.Guarantee) -> str:
    from dplda.privacy._guarantee import upward

    found = min(100.0, upward(100.0 * guarantee.detection_rate(0.01)))  # as the card says it
    return (
        f"The best test with a false alarm in 1 of 100 cases finds one {guarantee.unit} in at most "
        f"{found:g} of 100 cases."
    )


def _randomness(guarantee: dplda.privacy.Guarantee) -> str:
    if guarantee.total_variation == 0.0:
        return ""
    return f"the noise is within {guarantee.total_variation:.2g} of its ideal law. "


def _seed(guarantee: dplda.privacy.Guarantee) -> str:
    if not guarantee.seeded:
        return ""
    return "the noise came from a given seed, and nothing holds against anyone who knows it; "


def _as_text(model: dplda.ReleasedModel) -> str:
    lines = [
        f"{model.estimator_name_}, dplda {model.version_}",
        "",
        *_wrapped(str(model.privacy_).splitlines(), 13),
        "",
        *_wrapped(
            ["Checklist. " + CHECKLIST_SOURCE, *_checklist_lines(model.privacy_, "  {}: {}")]
        ),
        "",
        *_wrapped(["Axes. " + AXES_SOURCE]),
        *_wrapped([f"  {name}: {text}" for name, text in axes(model.privacy_).items()]),
        "",
        *_wrapped(["Registry. " + REGISTRY_SOURCE]),
        _entry(model),
    ]
    return "\n".join(lines)


def _as_markdown(model: dplda.ReleasedModel) -> str:
    parts = [
        f"# {model.estimator_name_}, dplda {model.version_}",
        model.privacy_.to_markdown(),
        "## Checklist",
        CHECKLIST_SOURCE,
        "\n".join(_checklist_lines(model.privacy_, "* **{}**: {}")),
        "## Axes",
        AXES_SOURCE,
        "\n".join(f"* **{name}**: {text}" for name, text in axes(model.privacy_).items()),
        "## Registry",
        REGISTRY_SOURCE,
        f"```json\n{_entry(model)}\n```",
    ]
    return "\n\n".join(parts)


def _checklist_lines(guarantee: dplda.privacy.Guarantee, line: str) -> list[str]:
    return [
        line.format(row, " ".join(filter(None, [answer, f"Owner: {question}"])))
        for row, answer, question in checklist(guarantee)
    ]


def _entry(model: dplda.ReleasedModel) -> str:
    return json.dumps(registry_entry(model), indent=2, allow_nan=False)


def _wrapped(lines: list[str], indent: int = 4) -> list[str]:
    return [textwrap.fill(line, 96, subsequent_indent=" " * indent) for line in lines]
