"""A stream of disjoint parts: who pays for a call of `partial_fit`, and what was paid before.

A unit is in one part, and pays for the calls with this part only. ``docs/streams.md`` has the
theorem. All but the ids of users is public.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dplda.document._document_budget import DocumentBudget
from dplda.privacy import BudgetError, Guarantee, Ledger, user_part
from dplda.privacy._curator import TOTAL_VARIATION
from dplda.privacy._ledger import as_ledger
from dplda.privacy._parts import name_of_part, number_of_user_parts, paying_part, users_of

# What sets the cost of a call and the scale of its sums.
SETTINGS = (
    "epsilon", "noise_multiplier", "delta", "max_iter", "subsampling_ratio", "boost",
    "word_total_share", "expected_n_docs", "contribution_norm",
)  # fmt: skip

IN_ONE_PART = (
    "each document is in one part of the stream, and which one does not depend on other documents"
)
SAME_ID = "every user has the same id in all parts of the stream"


@dataclass(frozen=True)
class Stream:
    """The calls of a stream, the last of which may be about to run.

    Attributes
    ----------
    unit : {"document", "user"}
        The protected unit.
    budget : DocumentBudget
        The mechanisms of each call: calls differ in the documents that they read.
    settings : dict
        Parameters that the budget and the scale of the sums follow from.
    parts : tuple of str
        The part of each call, by its name in a ledger.
    """

    unit: str
    budget: DocumentBudget
    settings: Mapping[str, Any]
    parts: tuple[str, ...] = ()

    def and_call(self, part: Any, settings: Mapping[str, Any]) -> Stream:
        """This stream and a call with `part`.

        Raises
        ------
        BudgetError
            If the units of the part have spent `epsilon`.
        ValueError
            If `part` is no part, or may overlap with another one; or if the settings changed.
        """
        changed = [name for name, value in self.settings.items() if settings[name] != value]
        if changed:
            raise ValueError(
                f"all parts of a stream have one budget and one scale; {changed[0]} was "
                f"{self.settings[changed[0]]!r} in the first call, got {settings[changed[0]]!r}; "
                "set it back, or call fit to start from scratch"
            )
        name = self._name(part)
        stream = replace(self, parts=(*self.parts, name))
        if stream.n_paid > 1 and (settings["epsilon"] or math.inf) < math.inf:
            who = f"part {name!r}" if self._payer(name) else "every user, whatever the part,"
            raise BudgetError(
                f"{who} has paid epsilon={settings['epsilon']:g} in an earlier call; nothing was "
                "read or charged. Give other documents a part of their own (with user_ids, a part "
                "(k, n) of user_part), or state noise_multiplier instead of epsilon, which lets a "
                "part pay again"
            )
        return stream

    def _name(self, part: Any) -> str:
        if isinstance(part, str):
            name = name_of_part(part)
        elif isinstance(part, tuple) and len(part) == 2:
            name = name_of_part(*part)
        else:
            raise ValueError(
                f"part must be a text, or (k, n) for part k of the n parts of user_part, got "
                f"{part!r}"
            )
        if self.unit == "document" and number_of_user_parts(name) is not None:
            raise ValueError(f"part={part!r} is a part of users; pass user_ids too, or a text")
        if self.parts and number_of_user_parts(name) != number_of_user_parts(self.parts[0]):
            raise ValueError(
                f"{name!r} may overlap with {self.parts[0]!r}, an earlier part of this stream; "
                "divide all documents in one way"
            )
        return name

    def _payer(self, name: str) -> str | None:
        return paying_part(self.unit, name)

    @property
    def n_paid(self) -> int:
        """How many calls the units of the last part pay for, the last one included."""
        return [*map(self._payer, self.parts)].count(self._payer(self.parts[-1]))

    @property
    def n_events(self) -> int:
        """Number of releases of a call."""
        return len(self.budget.totals) + len(self.budget.rounds)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the guarantee assumes of the parts; nothing if all calls add up for every unit."""
        if self.unit == "document":
            return (IN_ONE_PART,)
        return () if self._payer(self.parts[-1]) is None else (SAME_ID,)

    def ledger(self, ledger: Any) -> Ledger | None:
        """The last part of the ledger."""
        whole = as_ledger(ledger)
        return None if whole is None else whole._part_named(self.parts[-1])

    def check_users(self, user_ids: Any) -> None:
        """Refuse users of another part than the last one. Private: the message quotes no id."""
        n_parts = number_of_user_parts(self.parts[-1])
        if n_parts is None:
            return
        found = {users_of(int(part), n_parts) for part in user_part(set(user_ids), n_parts)}
        if not found <= {self.parts[-1]}:
            raise ValueError(
                f"some user_ids are in other parts than {self.parts[-1]!r}; pass the rows with "
                f"user_part(user_ids, {n_parts}) equal to the number of the part"
            )

    def paid_before(self, guarantee: Guarantee | None) -> Guarantee | None:
        """The guarantee of the units of the last part before the last call."""
        if guarantee is None:
            return None
        n_calls = self.n_paid - 1
        n_events = n_calls * self.n_events
        return replace(
            guarantee,
            events=guarantee.events[:n_events],
            noise_scale=guarantee.noise_scale[:n_events],  # type: ignore[index]  # a tuple
            noise_multiplier=guarantee.noise_multiplier[:n_events],  # type: ignore[index]  # a tuple
            total_variation=n_calls * TOTAL_VARIATION,
        )

    def guarantee(self, last: Guarantee, before: Guarantee | None) -> Guarantee:
        """That of every unit: of the part that has paid most. `last` is that of the last part."""
        if before is None or len(last.events) >= len(before.events):
            return last
        return replace(
            before, seeded=last.seeded, assumptions=last.assumptions, ledger="", receipt=""
        )
