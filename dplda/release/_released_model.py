"""A published model: what a release file holds, as an estimator that is not trained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.utils.validation import check_is_fitted

from dplda._version import __version__
from dplda.core._base import BaseLDA
from dplda.core._corpus import are_shards, sparse_columns
from dplda.core._splitter import transformed
from dplda.core._texts import texts_in
from dplda.privacy import Guarantee


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
        Dirichlet parameter of a document's topics; `load_release` sets that of the
        training.
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
    row_noise_ : ndarray of shape (n_features_in_,) or None
        For `dplda.audit.noise_of_release`; None unless a SubLDA or PrivateSVILDA was
        trained.
    vocabulary_ : ndarray of shape (n_features_in_,) or None
        The words of the columns, if they were saved.
    vectorizer_ : CountVectorizer or None
        How texts become counts, if the model was saved in a pipeline.
    estimator_name_ : str
        Name of the class that was trained. Names of classes of `dplda.published` begin
        with "Published".
    parameters_ : dict
        The public parameters of the training.
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

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Name the trained class: `PublishedSubLDA` claims less than `SubLDA`."""
        text = super().__repr__(N_CHAR_MAX)
        trained = getattr(self, "estimator_name_", None)
        return text if trained is None else f"<{text} of {trained}, {self.privacy_!r}>"


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
    version: str = __version__,
    tables: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> ReleasedModel:
    """A model of checked public values; `tables` have names of attributes, less "_"."""
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
    model.estimator_name_ = estimator_name
    model.parameters_ = parameters
    model.version_ = version
    model.row_noise_ = None
    for name, table in tables.items():
        setattr(model, f"{name}_", table)
    return model
