"""Federated topic modeling: several parties train together, and each keeps its documents."""

from dplda.federated._master import IFTMMaster, Refusal, RoundError, RoundRecord
from dplda.federated._messages import LocalModel, MessageError, NextModel, vocabulary_hash
from dplda.federated._party import IFTMParty
from dplda.federated._rounds import StoredParty, run_rounds
from dplda.federated._sentences import SentenceCorpus, SentenceVectorizer

__all__ = [
    "IFTMMaster",
    "IFTMParty",
    "LocalModel",
    "MessageError",
    "NextModel",
    "Refusal",
    "RoundError",
    "RoundRecord",
    "SentenceCorpus",
    "SentenceVectorizer",
    "StoredParty",
    "run_rounds",
    "vocabulary_hash",
]
