"""Public word lists, which are files of the package."""

from __future__ import annotations

import gzip
import hashlib
from functools import lru_cache
from importlib import resources

from dplda.leaf._checks import check_integer

# Version, number of words and SHA-256 of each list. `scripts/word_lists` writes the files. The
# words of a version never change: a vocabulary is the same on every machine.
_LISTS = {
    "de": (1, 20000, "f955eba2bfc752bb0ff0276f3082a490e5d9474a208f2858fee6e348dd980b8b"),
    "en": (1, 20000, "ea334b5bd09cb70ad8881a54ec3a651884096bc3d95efcf401b229f9924fe4ad"),
    "es": (1, 20000, "696b43beffb03a6330473bcafdeb052590e5ffbfeb9271de4db542c033d4c67c"),
    "fr": (1, 20000, "bb0890c195b23532a04c888564877a0c8159ed60a6e109882e6ba55d0cdb78d1"),
    "it": (1, 20000, "b0f30528f68fb2ed60f0dd009886e8ddb61c513b96897b72b68a449d2bf82089"),
    "nl": (1, 20000, "0930353fe39c5a8ef6cec7909377f95cdbb9b4a71699667634cdf1f41cd861de"),
    "pt": (1, 20000, "e501e2753d5427ac79a2604361dbd084fa401415538452d5e763c726195447dc"),
    "python": (1, 7661, "41f2a41c267ed3107fc5ff5a0ef5a461d0f811b9dd812805d53fad408cfd1dc4"),
}


def load_public_vocabulary(n_words: int | None = 2000, *, language: str = "en") -> list[str]:
    """Load frequent words of a language, a vocabulary that depends on no private text.

    A vocabulary that is learned from private documents leaks: a column of the matrix shows that
    somebody wrote its word. The guarantee of a model does not cover this leak. This list was fixed
    before anyone looked at your documents.

    Parameters
    ----------
    n_words : int or None, default=2000
        Number of words, at most 20,000 (7,661 for "python"). None takes the whole list.
    language : {"de", "en", "es", "fr", "it", "nl", "pt", "python"}, default="en"
        The language. "python" has the words of the documentation of Python 3.11.

    Returns
    -------
    vocabulary : list of str, length n_words
        The words, the most frequent first, in lower case, of three letters or more. Stop words are
        left out. A shorter vocabulary is the beginning of a longer one.

    Raises
    ------
    TypeError
        If `n_words` is not an integer.
    ValueError
        If `n_words` is out of range, or there is no list of this language.

    See Also
    --------
    dplda.PrivateCountVectorizer : Chooses words from private texts, and takes a list as candidates.

    Notes
    -----
    The lists are files of the package. They are the same on every machine and in every version of
    Python. The words of the natural languages come from wordfreq [1]_, under the licence CC BY-SA
    4.0 (``dplda/datasets/words/LICENSE``).

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
    if language not in _LISTS:
        raise ValueError(f"language must be one of {sorted(_LISTS)}, got {language!r}")
    if n_words is not None:
        n_words = check_integer("n_words", n_words, 1, _LISTS[language][1])
    return list(_words(language)[:n_words])


@lru_cache
def _words(language: str) -> tuple[str, ...]:
    version, _, digest = _LISTS[language]
    file = resources.files("dplda.datasets") / "words" / f"{language}.{version}.txt.gz"
    text = gzip.decompress(file.read_bytes())
    if hashlib.sha256(text).hexdigest() != digest:
        raise OSError(f"the word list {file} is damaged; install dplda again")
    return tuple(text.decode().split("\n"))
