"""The embedded corpus of English prose, and public word lists of many languages."""

from __future__ import annotations

import gzip
import hashlib
import re
import unicodedata
import zlib
from functools import lru_cache
from importlib import resources

import numpy as np
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from sklearn.utils import Bunch

from dplda.core._words import Words
from dplda.datasets._word_vectors import _embedded
from dplda.leaf._checks import check_integer

# `scripts/wordnet_glosses` writes the file. The text of a version never changes.
_VERSION = "1"
_DIGEST = "b7b2956dc706b4b5b07cf241fa3241bcacec32d18ff1f3aef67a66133e610e21"
_WORD = re.compile("[a-z]{3,}")


def load_wordnet_glosses() -> Bunch:
    """Load the embedded corpus: definitions of English nouns, in 9,790 documents.

    A document has the definitions of about nine related nouns of WordNet 3.0 [1]_. Its
    label is their field, such as "animal" or "time". The corpus is a public file of the
    package.

    Returns
    -------
    corpus : :class:`~sklearn.utils.Bunch`
        Dictionary-like object with the attributes

        data : list of str, length n_docs
            The texts, with 100 words or a few more each, in a fixed order that mixes
            the fields.
        target : ndarray of shape (n_docs,), int
            The field of each text, an index into `target_names`.
        target_names : list of str
            The 24 fields in alphabetic order. WordNet calls them lexicographer files.
        DESCR : str
            Source, sizes, and what is left out.

    Raises
    ------
    OSError
        If the file of the package is damaged.

    Notes
    -----
    WordNet is free to use, copy, modify and distribute
    (``dplda/datasets/wordnet/LICENSE``).

    References
    ----------
    .. [1] C. Fellbaum (ed.), "WordNet: An Electronic Lexical Database", MIT Press,
       1998.

    Examples
    --------
    >>> from dplda.datasets import load_wordnet_glosses
    >>> corpus = load_wordnet_glosses()
    >>> len(corpus.data), corpus.target_names[:3]
    (9790, ['act', 'animal', 'artifact'])
    """
    file = resources.files("dplda.datasets") / "wordnet" / f"glosses.{_VERSION}.txt.gz"
    try:
        content = gzip.decompress(file.read_bytes())
    except (EOFError, gzip.BadGzipFile, zlib.error):
        content = b""
    if hashlib.sha256(content).hexdigest() != _DIGEST:
        raise OSError(f"the corpus {file} is damaged; install dplda again")
    # mixed by checksums, because the file has the documents in the order of fields
    mixed = sorted(content.split(b"\n"), key=zlib.crc32)
    documents = [line.decode().split("\t") for line in mixed]
    fields, texts = zip(*documents)
    target_names, target = np.unique(fields, return_inverse=True)
    n_words = sum(len(text.split()) for text in texts)
    return Bunch(
        data=list(texts),
        target=target,
        target_names=target_names.tolist(),
        DESCR=f"Definitions of the nouns of WordNet 3.0, version {_VERSION} of dplda: "
        f"{len(texts)} documents, {n_words} words between blanks, {len(target_names)} "
        "fields. Left out: quoted examples, all but one of the words that share a "
        "definition, fields of fewer than 30 documents.",
    )


def load_public_vocabulary(
    n_words: int | None = 2000, *, language: str = "en"
) -> list[str]:
    """Load frequent words of a language, a vocabulary that depends on no private text.

    A vocabulary that is learned from private documents leaks: each column of the matrix
    shows that somebody wrote that word.

    Parameters
    ----------
    n_words : int or None, default=2000
        Number of words. English has 27,294; another language has those that are at
        least one in a million of its words. None takes the whole list.
    language : str, default="en"
        The language by its code, such as "de". English needs no other package. Other
        languages need wordfreq and stopwordsiso (extra ``languages``); Chinese,
        Japanese and Korean also need a text splitter (extra ``cjk``).

    Returns
    -------
    vocabulary : list of str, length n_words
        The words in lower case, the most frequent first, as `dplda.PrivateTopicModel`
        finds them in texts. English words have three letters or more. Stop words are
        left out. A shorter vocabulary is the beginning of a longer one.

    Raises
    ------
    ImportError
        If the language needs a package that is not installed.
    TypeError
        If `n_words` is not an integer.
    ValueError
        If `n_words` is out of range, or there is no list of this language.

    See Also
    --------
    dplda.PrivateCountVectorizer :
        Chooses words from private texts, and takes a list as candidates.

    Notes
    -----
    The English words are the words of :func:`load_word_vectors`, ordered by their
    frequency in an encyclopedia and in newswire. Words of other languages come from
    wordfreq [1]_. Its data are under CC BY-SA 4.0, and change only with its version.

    References
    ----------
    .. [1] R. Speer, "rspeer/wordfreq: v3.0", Zenodo, 2022, doi:10.5281/zenodo.7199437.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import CountVectorizer
    >>> from dplda.datasets import load_public_vocabulary
    >>> vectorizer = CountVectorizer(vocabulary=load_public_vocabulary(1000))
    >>> vectorizer.transform(["a day at school, with the family"]).sum()
    np.int64(3)
    """
    words, _ = language_words(language)
    if n_words is not None:
        n_words = check_integer("n_words", n_words, 1, len(words))
    return list(words[:n_words])


def languages() -> list[str]:
    """The languages that installed packages offer."""
    try:
        import stopwordsiso
        import wordfreq
    except ImportError:
        return ["en"]
    in_both = stopwordsiso.langs() & wordfreq.available_languages().keys()
    return sorted({"en", *in_both})


@lru_cache
def language_words(language: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """Frequent words of a language, most frequent first, and those without a subject.

    The first 2,000 English words cover 57, 59, 27 and 39% of the tokens of KOS, BBC,
    docstrings and definitions.
    """
    if language == "en":
        rank, _ = _embedded()
        ranked = [word for word in rank if _WORD.fullmatch(word)]
        stop_words = set(ENGLISH_STOP_WORDS)
    else:
        ranked, stop_words = _by_wordfreq(language)
    words = tuple(word for word in ranked if word not in stop_words)
    return words, frozenset(stop_words)


def _by_wordfreq(language: str) -> tuple[list[str], set[str]]:
    """Frequent words and stop words, in the form that they have in texts."""
    try:
        import stopwordsiso
        import wordfreq
    except ImportError as error:
        raise ImportError(
            f"the words of language {language!r} need the packages wordfreq and "
            "stopwordsiso (dplda's extra 'languages'); without them there is English, "
            "language='en'"
        ) from error
    if language not in languages():
        raise ValueError(f"language must be one of {languages()}, got {language!r}")
    # those of at least one in a million words
    frequent = list(wordfreq.iter_wordlist(language, "small"))
    stop_words = [*stopwordsiso.stopwords(language)]
    if not unicodedata.name(frequent[0][0]).startswith("LATIN"):
        stop_words += ENGLISH_STOP_WORDS  # in another script they are quotations
    given = Words.of(language, stop_words=stop_words)
    whole = (words[0] for words in map(given, frequent) if len(words) == 1)
    return [*dict.fromkeys(whole)], {*given.stop_words}
