"""The embedded corpus of English prose, which is a file of the package."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from importlib import resources

import numpy as np
from sklearn.utils import Bunch

# `scripts/wordnet_glosses` writes the file. The text of a version never changes.
_VERSION, _DIGEST = 1, "b7b2956dc706b4b5b07cf241fa3241bcacec32d18ff1f3aef67a66133e610e21"


def load_wordnet_glosses(*, return_X_y: bool = False) -> Bunch | tuple[list[str], np.ndarray]:
    """Load the embedded corpus: what English nouns mean, in 9,790 documents.

    A document holds the definitions of about nine related nouns of WordNet 3.0 [1]_, and is labeled
    by their field, such as "animal" or "time". Each definition is in one document only. The corpus
    is a file of the package: it is the same on every machine, and nothing is downloaded.

    Parameters
    ----------
    return_X_y : bool, default=False
        If True, return `(data, target)` instead of a Bunch.

    Returns
    -------
    corpus : :class:`~sklearn.utils.Bunch`
        Dictionary-like object with the attributes

        data : list of str, length n_docs
            The texts, of 100 words or a few more, in a fixed order that mixes the fields.
        target : ndarray of shape (n_docs,), int
            The field of each text, an index into `target_names`.
        target_names : list of str
            The 24 fields in alphabetic order. WordNet calls them lexicographer files.
        DESCR : str
            Source, sizes, and what is left out.
    (data, target) : tuple if `return_X_y` is True
        The texts and their labels.

    Raises
    ------
    OSError
        If the file of the package is damaged.

    Notes
    -----
    The corpus is public. It shows what a private model is like, and there is nobody in it to
    protect. WordNet is free to use, copy, modify and distribute
    (``dplda/datasets/wordnet/LICENSE``).

    References
    ----------
    .. [1] C. Fellbaum (ed.), "WordNet: An Electronic Lexical Database", MIT Press, 1998.

    Examples
    --------
    >>> from dplda.datasets import load_wordnet_glosses
    >>> corpus = load_wordnet_glosses()
    >>> len(corpus.data), corpus.target_names[:3]
    (9790, ['act', 'animal', 'artifact'])
    """
    fields, texts = zip(*(line.split("\t") for line in _lines()))
    target_names, target = np.unique(fields, return_inverse=True)
    if return_X_y:
        return list(texts), target
    n_words = sum(len(text.split()) for text in texts)
    return Bunch(
        data=list(texts),
        target=target,
        target_names=target_names.tolist(),
        DESCR=f"Definitions of the nouns of WordNet 3.0, version {_VERSION} of dplda: {len(texts)} "
        f"documents, {n_words} words between blanks, {len(target_names)} fields. Left out: quoted "
        "examples, all but one of the words that share a definition, fields of fewer than 30 "
        "documents.",
    )


def _lines() -> list[str]:
    """The documents, mixed by their checksums: the file has them in the order of their fields."""
    file = resources.files("dplda.datasets") / "wordnet" / f"glosses.{_VERSION}.txt.gz"
    try:
        data = gzip.decompress(file.read_bytes())
    except (EOFError, gzip.BadGzipFile, zlib.error):
        data = b""
    if hashlib.sha256(data).hexdigest() != _DIGEST:
        raise OSError(f"the corpus {file} is damaged; install dplda again")
    return [line.decode() for line in sorted(data.split(b"\n"), key=zlib.crc32)]
