"""The bags of words of the UCI archive."""

from __future__ import annotations

import gzip
import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sklearn.datasets import fetch_file
from sklearn.utils import Bunch

from ._docword import read_uci_bow

_ARCHIVE = "https://archive.ics.uci.edu/ml/machine-learning-databases/bag-of-words/"


@dataclass(frozen=True)
class _Corpus:
    """Known facts about a corpus of the archive.

    `text_bytes` is the size of the unpacked docword file. `git_blob` is its SHA-1 as a git blob, if
    it has been published.
    """

    title: str
    n_docs: int
    n_words: int
    text_bytes: int = 0
    git_blob: str = ""


_CORPORA = {
    "kos": _Corpus(
        "KOS blog entries (dailykos.com)", 3430, 6906,
        4_075_212, "4f299dadd2594fba8b19eeb1784c8fd0e9cd57e4",
    ),
    "nips": _Corpus(
        "NIPS full papers (books.nips.cc)", 1500, 12419,
        8_509_211, "d0e0e128a267b4045c9c371fc84d6bb2a8d84f70",
    ),
    "enron": _Corpus("Enron e-mails (www.cs.cmu.edu/~enron)", 39861, 28102),
    "nytimes": _Corpus("New York Times news articles (ldc.upenn.edu)", 300000, 102660),
    "pubmed": _Corpus("PubMed abstracts (www.pubmed.gov)", 8200000, 141043),
}  # fmt: skip


def _find(folders: tuple[Path, ...], *names: str) -> Path | None:
    candidates = (folder / name for folder in folders for name in names)
    return next((path for path in candidates if path.is_file()), None)


def _load(name: str, home: Path, archive: str | None, n_retries: int, delay: float) -> Bunch:
    """Load a corpus from files below `home` or, unless it is None, from the archive."""
    folder = home / "uci_bow"
    docword = _find((home, folder), f"docword.{name}.txt", f"docword.{name}.txt.gz")
    vocab = _find((home, folder), f"vocab.{name}.txt")
    if docword and vocab:
        return read_uci_bow(docword, vocab)
    advice = (
        f"Download docword.{name}.txt.gz and vocab.{name}.txt from {_ARCHIVE} on a machine that"
        f" is connected, and put both, as they are, into {folder}."
    )
    if archive is None:
        missing = " and ".join([*["docword"] * (not docword), *["vocab"] * (not vocab)])
        raise OSError(
            f"UCI corpus {name!r}: no {missing} file in {home} or {folder}, and"
            f" download_if_missing=False. {advice}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{name}.part_", dir=folder) as scratch:

        def fetched(file: str) -> Path:
            try:
                url = archive + file
                return Path(fetch_file(url, folder=scratch, n_retries=n_retries, delay=delay))
            except OSError as error:
                raise OSError(
                    f"UCI corpus {name!r}: {url} could not be downloaded ({error}). {advice}"
                ) from error

        is_new = docword is None
        docword = docword or fetched(f"docword.{name}.txt.gz")
        corpus = _checked(name, docword, vocab or fetched(f"vocab.{name}.txt"), is_new)
        for path in Path(scratch).iterdir():
            os.replace(path, folder / path.name)
    return corpus


def _checked(name: str, docword: Path, vocab: Path, is_new: bool) -> Bunch:
    """Read both files, and refuse other content. Only new files are compared with the checksum."""
    known = _CORPORA[name]
    try:
        corpus = read_uci_bow(docword, vocab)
        if corpus.data.shape != (known.n_docs, known.n_words):
            raise ValueError(
                f"Its numbers of documents and words must be {known.n_docs} and {known.n_words},"
                f" but are {corpus.data.shape[0]} and {corpus.data.shape[1]}."
            )
        if is_new and known.git_blob and (found := _git_blob(docword, known)) != known.git_blob:
            raise ValueError(
                f"The SHA-1 (as a git blob) of the unpacked text must be {known.git_blob}, but is"
                f" {found}."
            )
    except ValueError as error:
        raise OSError(f"UCI corpus {name!r}: nothing of this download is kept. {error}") from error
    return corpus


def _git_blob(docword: Path, known: _Corpus) -> str:
    digest = hashlib.sha1(b"blob %d\0" % known.text_bytes, usedforsecurity=False)
    with gzip.open(docword) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def load_uci_bow(
    name: str,
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    n_retries: int = 3,
    delay: float = 1.0,
) -> Bunch:
    """Load one of the five bags of words of the UCI archive, downloading it if necessary.

    ======= ========================== ========= ======= ====================
    name    documents are              documents words   tokens
    ======= ========================== ========= ======= ====================
    kos     blog entries                   3,430   6,906              467,714
    nips    papers of a conference         1,500  12,419            1,932,365
    enron   e-mails                       39,861  28,102      about 6,400,000
    nytimes newspaper articles           300,000 102,660    about 100,000,000
    pubmed  abstracts of medicine      8,200,000 141,043    about 730,000,000
    ======= ========================== ========= ======= ====================

    Parameters
    ----------
    name : {'kos', 'nips', 'enron', 'nytimes', 'pubmed'}
        The corpus.
    data_home : str or path-like, default=None
        Folder of the downloads. None takes scikit-learn's
        (:func:`~sklearn.datasets.get_data_home`). The function looks for the files
        ``docword.NAME.txt`` or ``docword.NAME.txt.gz``, and ``vocab.NAME.txt``, in this folder and
        in its subfolder ``uci_bow``. Downloads go to the subfolder.
    download_if_missing : bool, default=True
        If False, a missing file raises OSError, and nothing is downloaded.
    n_retries : int, default=3
        Number of retries after a failed download.
    delay : float, default=1.0
        Seconds between two tries.

    Returns
    -------
    corpus : :class:`~sklearn.utils.Bunch`
        Dictionary-like object with the attributes

        data : sparse matrix of shape (n_docs, n_words), CSR, int32
            How often each word occurs in each document.
        feature_names : ndarray of shape (n_words,), object
            The words of the columns.
        DESCR : str
            Title, size and source.

    Raises
    ------
    ValueError
        If there is no such corpus, or if an existing file is not in the format.
    OSError
        If a file is missing and is not or cannot be downloaded, or if a download is not the
        corpus. Nothing of such a download is kept.

    See Also
    --------
    read_uci_bow : Reads your own files in this format.

    Notes
    -----
    A download is checked before it is kept. For all corpora, the file must have as many entries
    as its header says, and header and vocabulary must have the sizes in the table. For kos and
    nips the docword file must also have a known checksum. No checksum is known for enron, nytimes,
    pubmed and the vocabularies, so an altered file of the right size is not noticed. Existing
    files are only checked for their format.

    Every call parses the corpus again, at a few million entries a second: 0.1 s for nips, some
    minutes for the 483 million entries of pubmed, which need 6 GB of memory.

    References
    ----------
    D. Newman, "Bag of Words", UCI Machine Learning Repository, 2008,
    https://doi.org/10.24432/C5ZG6P.

    Examples
    --------
    >>> from dplda.datasets import load_uci_bow
    >>> corpus = load_uci_bow("kos")  # doctest: +SKIP
    >>> corpus.data.shape  # doctest: +SKIP
    (3430, 6906)
    """
    if name not in _CORPORA:
        raise ValueError(f"name must be one of {', '.join(map(repr, _CORPORA))}, got {name!r}.")
    # as get_data_home of scikit-learn, which would also make the folder
    home = Path(data_home or os.environ.get("SCIKIT_LEARN_DATA", "~/scikit_learn_data"))
    home = home.expanduser()
    corpus = _load(name, home, _ARCHIVE if download_if_missing else None, n_retries, delay)
    n_docs, n_words = corpus.data.shape
    corpus.DESCR = (
        f"{_CORPORA[name].title}: {n_docs} documents, {n_words} words. UCI Machine Learning"
        " Repository, Bag of Words (D. Newman, 2008), https://doi.org/10.24432/C5ZG6P."
    )
    return corpus
