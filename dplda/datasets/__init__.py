"""Corpora (embedded, of the UCI archive, synthetic) and public word lists."""

from ._docstrings import load_docstrings
from ._docword import read_uci_bow
from ._shard_sources import write_shards
from ._shards import CountShards
from ._synthetic import make_topic_corpus
from ._uci import load_uci_bow
from ._wordnet import load_wordnet_glosses
from ._words import load_public_vocabulary

__all__ = [
    "CountShards",
    "load_docstrings",
    "load_public_vocabulary",
    "load_uci_bow",
    "load_wordnet_glosses",
    "make_topic_corpus",
    "read_uci_bow",
    "write_shards",
]
