"""A published model: what a release file holds, as an estimator that is not trained."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.utils.validation import check_is_fitted

from dplda._version import __version__
from dplda.core._base import BaseLDA, BaseTopicModel
from dplda.core._corpus import are_shards, sparse_columns
from dplda.core._splitter import in_blocks, transformed
from dplda.core._texts import each_text, texts_in
from dplda.privacy import Guarantee
from dplda.release._container import pack, save
from dplda.release._counts import TopicCounts, digest_of
from dplda.release._page import frame
from dplda.release._records import record_of
from dplda.release._report import check_names, page_of, typical_words

KIND = "dplda-release"
AFTER = "after the fit"  # the card's line of what a publisher has changed


@dataclass(frozen=True)
class Table:
    """An attribute that a model may have in addition to `components_`."""

    dtype: type[np.generic]
    # the owners of its numbers; "deviation": a number and the deviation of its noise
    each: Literal["topic", "word", "deviation"]


TABLES = {
    "components_std": Table(np.float64, "word"),
    "row_noise": Table(np.float32, "word"),
    "topic_evidence": Table(np.float64, "topic"),  # NaN: the topic is not tested
    "weak_topics": Table(np.bool_, "topic"),
    "n_units": Table(np.float64, "deviation"),  # NaN: noise hides it
}


def tables_of(model: BaseTopicModel) -> dict[str, np.ndarray]:
    """The attributes of `TABLES` that a model has."""
    given = {name: getattr(model, f"{name}_", None) for name in TABLES}
    return {name: table for name, table in given.items() if table is not None}


class ReleasedModel(BaseLDA):
    """A published topic model, as `load_release` reads it.

    It transforms and scores like the model that was saved, and takes texts if it was
    saved as a pipeline with a vectorizer. The columns of a table with names must be the
    words of the model. It cannot be trained: `fit` reads nothing, and a clone is the
    model itself, as with `sklearn.frozen.FrozenEstimator`. It can be a step of a
    pipeline that is fitted.

    Parameters
    ----------
    doc_topic_prior : float or None, default=None
        Dirichlet parameter of a document's topics; `load_release` sets the parameter of
        the training.
    n_jobs

    Attributes
    ----------
    components_, privacy_, epsilon_, delta_, n_iter_, n_features_in_ : object
        As in the model that was trained.
    topic_evidence_, weak_topics_ : ndarray of shape (n_components,)
        Which topics to read, as in `SubLDA`, if the trained model said so.
    components_std_ : ndarray of shape (n_features_in_,)
        Standard deviation of the noise in a cell of each word, if the trained model
        has it.
    n_units_ : ndarray of shape (2,)
        Noisy number of documents or users, if the trained model has it.
    row_noise_ : ndarray of shape (n_features_in_,) or None
        For `dplda.audit.noise_of_release`; None if the trained model was neither a
        SubLDA nor a PrivateSVILDA.
    vocabulary_ : ndarray of shape (n_features_in_,) or None
        The words of the columns, if they were saved.
    vectorizer_ : CountVectorizer or None
        How texts become counts, if the model was saved in a pipeline.
    estimator_name_ : str
        Name of the trained class. The classes of `dplda.published` begin with
        "Published".
    parameters_ : dict
        The public parameters of the training.
    names_ : dict of int to str
        Names that the publisher has given to topics, by their rows (`named`).
    settings_ : dict or None
        The settings of `vectorizer_`.
    counted_as_ : str
        SHA-256 of the topics as they were fitted, by which a table of
        `private_topic_counts` knows its model.
    version_ : str
        The version of dplda that wrote the file.
    """

    _parameter_constraints = {
        name: BaseLDA._parameter_constraints[name]
        for name in ("doc_topic_prior", "n_jobs")
    }

    def __init__(self, doc_topic_prior=None, n_jobs=None):
        self.doc_topic_prior = doc_topic_prior
        self.n_jobs = n_jobs

    def fit(self, X: object = None, y: object = None) -> ReleasedModel:
        """Do nothing: a released model is not trained.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts; columns are public.
        y : Ignored
            Ignored.

        Returns
        -------
        self : object
            Fitted estimator.
        """
        check_is_fitted(self)
        return self

    def _read(self, X: object) -> Iterable[sp.csr_array]:
        return super()._read(self._counts(X))

    def _doc_topics(self, X: Any) -> Iterator[np.ndarray]:
        texts = None
        if self.vectorizer_ is not None:
            texts = each_text("X", X) if isinstance(X, Iterator) else texts_in(X)
        if texts is None:
            yield from super()._doc_topics(X)
            return
        block: list[str] = []
        for block in in_blocks(texts):
            yield from super()._doc_topics(block)
        if not block:  # which is an error
            yield from super()._doc_topics(block)

    def _counts(self, X: object) -> object:
        """Counts of texts and of tables whose columns are words; the rest as it is."""
        if self.vectorizer_ is not None:
            texts = texts_in(X)
            if texts is not None:
                return transformed(self.vectorizer_, texts)
        in_shards = are_shards(X)
        names = getattr(X, "feature_names" if in_shards else "columns", None)
        if self.vocabulary_ is None or names is None:
            return X
        self._check_words(names)
        if in_shards:
            return X
        entries = sparse_columns(X)
        return np.asarray(X) if entries is None else entries

    def _check_words(self, names: Iterable[object]) -> None:
        names = list(names)
        if not all(isinstance(name, str) for name in names):
            return
        if names != self.vocabulary_.tolist():
            advice = "CountVectorizer(vocabulary=model.vocabulary_)"
            if self.vectorizer_ is not None:
                advice += "; of a table of texts, pass df['column']"
            raise ValueError(
                f"the {len(names)} columns of X are not the {len(self.vocabulary_)} "
                "words of this model in their order; count with "
                f"{self.estimator_name_}'s own words, {advice}"
            )

    def get_feature_names_out(
        self, input_features: Iterable[object] | None = None
    ) -> np.ndarray:
        check_is_fitted(self)
        names = None if input_features is None else list(input_features)
        if self.vectorizer_ is not None and names is not None and len(names) == 1:
            names = None  # the column of the texts
        if names is not None and self.vocabulary_ is not None:
            self._check_words(names)
        return super().get_feature_names_out(names)

    def __sklearn_clone__(self) -> ReleasedModel:
        return self

    def without(self, words: Iterable[str]) -> ReleasedModel:
        """Leave words out of the topics, such as names of staff.

        The result is a function of the release, and costs nothing. Its card says how
        many words were left out.

        Parameters
        ----------
        words : iterable of str
            Words or names, in any case. Each word of "Dr Keller" is left out, and so is
            a column of several words with one of them. Words that the model does not
            know are ignored: you can pass a list of all staff.

        Returns
        -------
        model : ReleasedModel
            A copy without the columns of these words, for `save_release`.

        Raises
        ------
        TypeError
            If `words` is a single text.
        ValueError
            If the model has no words, or if a topic would be left without a word.
        """
        check_is_fitted(self)
        if isinstance(words, str):
            raise TypeError("words must be a list of words, got a single text")
        if self.vocabulary_ is None:
            raise ValueError("this model has no words: its columns cannot be named")
        gone = {part for word in words for part in _forms(word, self.vectorizer_)}
        kept = np.array([gone.isdisjoint(word.split()) for word in self.vocabulary_])
        n_gone = len(kept) - np.count_nonzero(kept)
        components = self.components_[:, kept]
        if not (components.size and components.sum(axis=1).all()):
            raise ValueError(
                f"{n_gone} of {len(kept)} words would be left out, and a topic would "
                "have no word; leave out fewer"
            )
        model = self._edited(f"{n_gone} words left out by the publisher")
        model.components_ = components
        model.n_features_in_ = components.shape[1]
        model.vocabulary_ = self.vocabulary_[kept]
        if self.vectorizer_ is not None:
            model.vectorizer_ = clone(self.vectorizer_).set_params(
                vocabulary=model.vocabulary_.tolist()
            )
        for name, table in tables_of(self).items():
            if TABLES[name].each == "word":
                setattr(model, f"{name}_", table[kept])
        return model

    def named(
        self, names: Mapping[int, str] | Callable[[list[str]], str]
    ) -> ReleasedModel:
        """Give names to topics, which the file keeps and `report` shows.

        Parameters
        ----------
        names : dict of int to str, or callable
            Names by the rows of topics. A callable is called with the 20 most typical
            words of a topic, which are released, and returns its name.

        Returns
        -------
        model : ReleasedModel
            A copy with the names, for `save_release`.

        Raises
        ------
        TypeError, ValueError
            If a name is not printable, or belongs to no topic.
        """
        check_is_fitted(self)
        if callable(names):
            given = {k: names(words) for k, words in enumerate(typical_words(self, 20))}
        else:
            given = dict(names)
        checked = check_names(given, len(self.components_))
        model = self._edited(f"{len(checked)} topics named by the publisher")
        model.names_ = self.names_ | checked
        return model

    def _edited(self, change: str) -> ReleasedModel:
        """A copy whose card tells of the change."""
        model = copy.copy(self)
        provenance = (*self.privacy_.provenance, (AFTER, change))
        model.privacy_ = dataclasses.replace(self.privacy_, provenance=provenance)
        return model

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        title: str = "Topics of private texts",
        about: str = "",
        names: Mapping[int, str] = MappingProxyType({}),
        counts: Sequence[TopicCounts] = (),
    ) -> None:
        """Write a page for readers who install nothing: one HTML file.

        The page shows this release and released counts, and nothing else: it may be
        published like them. It loads nothing from any network.

        Parameters
        ----------
        path : str or path-like
            The file. An existing file is replaced.
        title, about : str
            Words of the publisher at the top of the page.
        names : dict of int to str
            Names of topics by their rows, in addition to `names_`.
        counts : sequence of TopicCounts
            Released tables of `private_topic_counts` of this model, by groups.

        Raises
        ------
        TypeError, ValueError
            If `counts` count another model, have no groups, or protect another unit, or
            if a name is not printable or belongs to no topic.
        OSError
            If the file cannot be written.
        """
        page = page_of(self, title=title, about=about, names=names, counts=counts)
        save(path, page.encode())

    def to_bytes(self) -> bytes:
        """The content of the release file.

        Returns
        -------
        bytes
            What `save_release` writes of this model.
        """
        content = {
            "dplda": self.version_,
            "estimator": self.estimator_name_,
            "parameters": self.parameters_,
            "n_iter": self.n_iter_,
            "vocabulary": None if self.vocabulary_ is None else [*self.vocabulary_],
            "vectorizer": self.settings_,
            "guarantee": record_of(self.privacy_),
            "names": {str(k): name for k, name in self.names_.items()},
            "counted_as": self.counted_as_,
        }
        return pack(KIND, content, tables_of(self) | {"components": self.components_})

    @property
    def sha256_(self) -> str:
        """SHA-256 of the release file, as ``sha256sum`` prints it."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def _repr_mimebundle_(self, **options: object) -> dict[str, str]:
        """The page in a frame: what a notebook shows."""
        shown = {"text/plain": repr(self)}
        if hasattr(self, "components_"):
            shown["text/html"] = frame(page_of(self))
        return shown

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Name the trained class: `PublishedSubLDA` claims less than `SubLDA`."""
        text = super().__repr__(N_CHAR_MAX)
        trained = getattr(self, "estimator_name_", None)
        return text if trained is None else f"<{text} of {trained}, {self.privacy_!r}>"


def _forms(word: str, vectorizer: CountVectorizer | None) -> set[str]:
    """The words of a name, as they stand in columns."""
    if vectorizer is None:
        return {word, *word.split()}
    return {part for form in vectorizer.build_analyzer()(word) for part in form.split()}


def released_model(
    components: npt.NDArray[np.float64],
    guarantee: Guarantee,
    *,
    doc_topic_prior: float,
    n_iter: int,
    estimator_name: str,
    parameters: dict[str, object],
    vocabulary: Sequence[str] | None = None,
    vectorizer: CountVectorizer | None = None,
    settings: Mapping[str, object] | None = None,
    names: Mapping[int, str] = MappingProxyType({}),
    counted_as: str = "",
    version: str = __version__,
    tables: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> ReleasedModel:
    """A model of checked public values; `tables` are attributes, without the last _."""
    model = ReleasedModel(doc_topic_prior)
    model.components_ = components
    model.n_features_in_ = components.shape[1]
    model.n_iter_ = n_iter
    model.privacy_ = guarantee
    model.epsilon_ = guarantee.epsilon
    model.delta_ = guarantee.delta
    model.vocabulary_ = None
    if vocabulary is not None:
        model.vocabulary_ = np.array(vocabulary, dtype=object)
    model.vectorizer_ = vectorizer
    model.settings_ = settings
    model.names_ = dict(names)
    model.counted_as_ = counted_as or digest_of(components)
    model.estimator_name_ = estimator_name
    model.parameters_ = parameters
    model.version_ = version
    model.row_noise_ = None
    for name, table in tables.items():
        setattr(model, f"{name}_", table)
    return model


def report(model: ReleasedModel, **options: Any) -> str:
    """Make a page of a release: one HTML text, for readers who install nothing.

    Parameters
    ----------
    model : ReleasedModel
        A model that `load_release` read; a `PrivateTopicModel` has a `report` of its
        own.
    **options : dict
        `title`, `about`, `names` and `counts`, as in `ReleasedModel.report`.

    Returns
    -------
    page : str
        What `ReleasedModel.report` writes to a file. It is the same for the same
        release and options.

    Raises
    ------
    TypeError, ValueError
        If `model` is not a released model, or as in `ReleasedModel.report`.

    Examples
    --------
    >>> import os, tempfile
    >>> from dplda import SubLDA, load_release, save_release
    >>> from dplda.displays import report
    >>> model = SubLDA(n_components=2, epsilon=4.0).fit([[2, 0, 1], [0, 3, 0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "topics.dplda")
    ...     save_release(model, path, vocabulary=["pear", "plum", "cherry"])
    ...     page = report(load_release(path), title="Fruit")
    >>> page.startswith("<!doctype html>")
    True
    """
    if not isinstance(model, ReleasedModel):
        raise TypeError(
            "a report shows a released model, which holds no private data, got "
            f"{type(model).__name__}; save the model with save_release, and read it "
            "with load_release"
        )
    check_is_fitted(model)
    return page_of(model, **options)
