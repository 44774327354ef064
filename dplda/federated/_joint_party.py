"""A party of a fit over the network, which signs its keys of the fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.hashes import SHA256

from dplda.core._corpus import Matrix
from dplda.document._document_lda import DocumentLDA
from dplda.federated._certificates import private_key
from dplda.federated._joint_words import fit_words_and_topics
from dplda.federated._line import Line
from dplda.federated._plan import Plan
from dplda.federated._secure_sum import SecureSum, fit_share, pack, unpack

# Documents of a party, or its texts, and the user of each row or None.
PartyData: TypeAlias = tuple[Matrix | list[str], npt.ArrayLike | None]

DOMAIN = b"dplda: keys of a party for one fit\0"


class Party:
    """A party's side of a fit over a network.

    Everything is checked before anything is sent or charged.

    `data` are the documents and the user of each row, or None. The documents are texts
    if the parties choose the words, and otherwise counts of the plan's words. `own`
    holds the model's parameters that each party may choose.
    """

    def __init__(
        self, plan: Plan, name: str, key: Path, data: PartyData, **own: object
    ) -> None:
        self.plan = plan
        self.model = plan.estimator(**own)
        self.words = plan.vectorizer()
        self._data = data
        self._names = [*plan.parties]
        self._me = self._names.index(name)
        self._key = private_key(key)
        X, users = data
        if (len(X) if isinstance(X, list) else np.shape(X)[0]) == 0:
            raise ValueError(
                f"party {name!r} has no documents: check what it reads, or make a plan "
                "without it"
            )
        if self.words is None and np.shape(X)[1:] != (len(plan.words),):
            raise ValueError(
                f"the documents have shape {np.shape(X)}, and the plan has "
                f"{len(plan.words)} words"
            )
        if (users is not None) != (plan.unit == "user"):
            raise ValueError(
                f"the plan protects one {plan.unit}: give --user-column for users only"
            )

    def fit(
        self, line: Line, save_so_far: Callable[[], None] | None = None
    ) -> DocumentLDA:
        """The model that all parties fit; ConnectionError if there is none.

        `save_so_far` is called after each round; of a killed process, nothing else
        remains.
        """
        last_word = "interrupted"
        try:
            parties = SecureSum(
                self.plan.terms(),
                self._me,
                line.exchange,
                prove=self._prove,
                check=self._check,
                save_so_far=save_so_far,
            )
            if self.words is None:
                fit_share(self.model, self._data[0], parties, self._data[1])
            else:
                fit_words_and_topics(
                    self.words,
                    self.model,
                    self._data[0],
                    self._data[1],
                    parties,
                    english_vectors=self.plan.english_vectors,
                )
            last_word = ""
        except Exception as error:
            last_word = type(error).__name__
            end = "without a model"
            if hasattr(self.model, "components_"):
                end = "with a model of the rounds so far"
            raise ConnectionError(f"the fit has ended {end}: {error}") from error
        finally:
            line.leave(last_word)
        return self.model

    def _prove(self, keys: bytes) -> bytes:
        """Keys of this fit, signed with the key of the certificate."""
        signed = DOMAIN + self.plan.digest + keys
        return pack([keys, self._key.sign(signed, ECDSA(SHA256()))])

    def _check(self, party: int, message: bytes) -> bytes:
        """The keys of a party, after a check of the signature."""
        keys, signature = unpack(message, 2)
        signed = DOMAIN + self.plan.digest + keys
        name = self._names[party]
        try:
            self.plan.public_key(name).verify(signature, signed, ECDSA(SHA256()))
        except InvalidSignature:
            raise ConnectionError(
                f"the keys of party {name!r} are not signed by its certificate for "
                "this plan; nothing was sent"
            ) from None
        return keys
