"""Release files: the public part of a fitted model, and nothing else. See ``docs/release.md``."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from dplda._version import __version__
from dplda.core._pipeline import pipeline_guarantee
from dplda.core._private_fit import VOCABULARY
from dplda.core._texts import settings_of
from dplda.leaf._files import PUBLIC, check_writable, write_atomically
from dplda.leaf._log import log_event
from dplda.leaf._vocabulary import check_model, flat_steps, hash_words, thawed, words_of
from dplda.leaf._warnings import warn_user
from dplda.privacy import Guarantee, PrivacyLeakWarning
from dplda.privacy._events import to_record
from dplda.release._release_reader import (
    FORMAT,
    MAX_BYTES,
    NOT_RELEASED,
    check_statement,
    check_vocabulary,
    read_release,
)
from dplda.release._released_model import ReleasedModel
from dplda.release._signatures import (
    is_signed,
    read_private_key,
    read_signature,
    sign,
    signature_path,
)


def save_release(
    model: Any,
    path: str | os.PathLike[str],
    *,
    vocabulary: Sequence[str] | None = None,
    signing_key: str | os.PathLike[str] | None = None,
) -> None:
    """Write the public values of a fitted model to a file that `load_release` reads.

    Parameters
    ----------
    model : estimator or Pipeline
        A fitted topic model with `components_`, `privacy_` and `n_iter_`, or a fitted pipeline of
        a vectorizer and such a model. The vectorizer is a PrivateCountVectorizer, CountVectorizer
        or HashingVectorizer. The file of a pipeline states `pipeline_guarantee`, and its model
        takes texts.
    path : str or path-like
        The file. An existing file is replaced as a whole or not at all.
    vocabulary : sequence of str of length n_features_in_, default=None
        The words of the columns, which must be public. None takes those of the vectorizer, or
        `feature_names_in_`, if there are any.
    signing_key : str or path-like, default=None
        PEM file of an Ed25519 private key, which is not encrypted, and which other users of this
        machine cannot read. The signature of the file is written next to it, as ``path`` with
        ".sig". None writes no signature.

    Raises
    ------
    ValueError
        If the vocabulary does not match the number of columns, or if the model cannot be
        represented in a release file, for example because `set_params` changed `epsilon` or
        `delta` after the training. If `signing_key` holds no such key. Nothing is written then.
    TypeError
        If the model has no guarantee to state, the vocabulary is not a sequence of words, or the
        file cannot hold a step of the pipeline or a setting of its vectorizer.
    OSError
        If the file cannot be written, or other users of this machine can read `signing_key`.

    Warns
    -----
    PrivacyLeakWarning
        If the model has infinite epsilon, or noise from a given seed.

    See Also
    --------
    load_release : Read the file.

    Notes
    -----
    **Privacy.** The file holds `components_`, `privacy_`, the public parameters, the vocabulary,
    the settings of the vectorizer, and the evidence of the topics. It does not hold `random_state`,
    the ledger, or what `partial_fit` continues with (``docs/release.md``).

    Examples
    --------
    >>> import os, tempfile
    >>> from sklearn.feature_extraction.text import CountVectorizer
    >>> from sklearn.pipeline import make_pipeline
    >>> from dplda import SubLDA, load_release, save_release
    >>> vectorizer = CountVectorizer(vocabulary=["pear", "plum", "cherry"])
    >>> pipeline = make_pipeline(vectorizer, SubLDA(n_components=2, epsilon=4.0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "topics.dplda")
    ...     save_release(pipeline.fit(["a pear", "plum, cherry"] * 50), path)
    ...     released = load_release(path)
    >>> released.vocabulary_.tolist(), released.transform(["Cherry and pear"]).shape
    (['pear', 'plum', 'cherry'], (1, 2))
    """
    check_model(
        model, "a fitted model or pipeline, or released_model() of an IFTMMaster, before the path"
    )
    check_writable(path)
    if signing_key is not None:
        read_private_key(signing_key)  # before anything is written
    vectorizer, model, guarantee = _parts(model)
    words = _words(model, vocabulary, vectorizer)
    settings = None if vectorizer is None else settings_of(vectorizer)
    try:
        if not isinstance(model, ReleasedModel):  # `set_params` may have changed what it states
            check_statement(_given(model), model.privacy_)
        data = _to_bytes(model, words, settings, guarantee)
        read_release(io.BytesIO(data))  # what cannot be read is not written
    except (TypeError, ValueError) as error:
        shorter = "; leave the vocabulary out, and publish it next to the file"
        advice = shorter if "header" in str(error) else ""
        raise ValueError(
            f"the model cannot be represented in a release file: {error}{advice}"
        ) from error
    _warn_of_leaks(type(model).__name__, guarantee)
    write_atomically(path, data, permissions=PUBLIC)
    if signing_key is not None:
        write_atomically(signature_path(path), sign(data, signing_key), permissions=PUBLIC)
    _log("release saved", path, guarantee, model, signed=signing_key is not None)


def load_release(
    path: str | os.PathLike[str], *, public_key: str | os.PathLike[str] | None = None
) -> ReleasedModel:
    """Read a model that `save_release` wrote.

    The file may come from anyone: no code in it is run.

    Parameters
    ----------
    path : str or path-like
        The file.
    public_key : str or path-like, default=None
        PEM file of an Ed25519 public key. The signature is read from ``path`` with ".sig", and the
        file is refused unless the holder of the key signed it. None asks for no signature.

    Returns
    -------
    model : ReleasedModel
        The model, with `components_`, `privacy_`, `transform`, `score` and so on. It cannot be
        trained.

    Raises
    ------
    ValueError
        If the file is not a release file, is damaged, cut off, of a later format, or contradicts
        itself: for example, if its epsilon is below the cost of its events or above the one in its
        parameters, or if its table does not hold counts. If it is not signed by the given key.
    OSError
        If the file, or a signature that is asked for, cannot be read.

    See Also
    --------
    save_release : Write the file.

    Notes
    -----
    **Privacy.** `privacy_` is the statement of the author of the file. `load_release` checks that
    it fits its own events. Nobody can check that those events happened. The checksum detects
    damage, not forgery. A signature proves who wrote the file, and not that it is true.

    Examples
    --------
    >>> import os, tempfile
    >>> from dplda import SubLDA, load_release, save_release
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(n_docs=500, n_words=30, n_components=3, random_state=0).data
    >>> model = SubLDA(n_components=3, epsilon=4.0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_release(model, os.path.join(folder, "topics.dplda"))
    ...     released = load_release(os.path.join(folder, "topics.dplda"))
    >>> released.privacy_ == model.privacy_, released.transform(X[:5]).shape
    (True, (5, 3))
    """
    path = Path(path)
    with path.open("rb") if public_key is None else _signed(path, public_key) as file:
        try:
            model = read_release(file)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{path} is not a valid release file: {error}; ask its author for it again"
            ) from error
    _log("release loaded", path, model.privacy_, model, signed=public_key is not None)
    return model


def _signed(path: Path, public_key: str | os.PathLike[str]) -> io.BytesIO:
    """The bytes that were compared with their signature, and no others: files can change."""
    signature = read_signature(signature_path(path))
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path} has more than {MAX_BYTES} bytes, and is not read")
    data = path.read_bytes()
    if not is_signed(data, signature, public_key):
        raise ValueError(
            f"{path} is not signed by the key {public_key}: the file or its signature was changed, "
            "or somebody else wrote it; ask its author for it again"
        )
    return io.BytesIO(data)


def _log(
    event: str, path: str | os.PathLike[str], guarantee: Guarantee, model: Any, *, signed: bool
) -> None:
    log_event(
        "release",
        event,
        file=Path(path).name,
        estimator=getattr(model, "estimator_name_", type(model).__name__),
        unit=guarantee.unit,
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        seeded=guarantee.seeded,
        receipt=guarantee.receipt or None,
        signed=signed,
    )


def _parts(model: Any) -> tuple[Any, Any, Guarantee]:
    """The vectorizer, if there is one, the topic model, and the guarantee of both."""
    model = thawed(model)
    if isinstance(model, Pipeline):
        return _parts_of_pipeline(model)
    if not isinstance(getattr(model, "privacy_", None), Guarantee):
        raise TypeError(
            f"a release states a guarantee, and {type(model).__name__} has no privacy_; save a "
            "model of dplda"
        )
    return _own_vectorizer(model), model, model.privacy_


def _own_vectorizer(model: Any) -> Any:
    return model.vectorizer_ if isinstance(model, ReleasedModel) else None


def _parts_of_pipeline(pipeline: Pipeline) -> tuple[Any, Any, Guarantee]:
    steps = list(flat_steps(pipeline))
    name, model = steps[-1]
    if not (hasattr(model, "components_") and hasattr(model, "privacy_")):
        raise TypeError(
            f"a release ends with a topic model, and cannot hold the step {name!r}, whose training "
            "is not private; save_release(pipeline[:-1], path) leaves the last step out"
        )
    if len(steps) > 2:
        raise TypeError(
            "a release holds a vectorizer and a topic model, got the steps "
            f"{', '.join(name for name, _ in steps)}; change texts before the pipeline, and for "
            "presence instead of counts use CountVectorizer(binary=True)"
        )
    vectorizer = steps[0][1] if len(steps) == 2 else _own_vectorizer(model)
    return vectorizer, model, pipeline_guarantee(pipeline)


def _given(model: Any) -> dict[str, Any]:
    """The public parameters of the training."""
    released = isinstance(model, ReleasedModel)
    given = model.parameters_ if released else model.get_params(deep=False)
    if "doc_topic_prior" in given and not released:
        given["doc_topic_prior"] = model.doc_topic_prior_  # a file says what None stood for
    return {name: given[name] for name in given if name not in NOT_RELEASED}


def _to_bytes(
    model: Any, words: list[str] | None, settings: dict[str, Any] | None, guarantee: Guarantee
) -> bytes:
    released = isinstance(model, ReleasedModel)  # it keeps the name of the trained class
    record = {field.name: getattr(guarantee, field.name) for field in fields(Guarantee)}
    content = {
        "dplda": __version__,
        "estimator": model.estimator_name_ if released else type(model).__name__,
        "parameters": _given(model),
        "n_iter": int(model.n_iter_),
        "vocabulary": words,
        "vocabulary_sha256": None if words is None else hash_words(words),
        "named_columns": hasattr(model, "feature_names_in_"),
        "vectorizer": settings,
        "guarantee": record | {"events": [to_record(event) for event in record["events"]]},
        "topic_signal": None,
        "topic_evidence": None,
    }
    if hasattr(model, "topic_evidence_"):
        content["topic_signal"] = [int(n) for n in model.topic_signal_]
        content["topic_evidence"] = [float(x) for x in model.topic_evidence_]
    return FORMAT.pack(content, np.asarray(model.components_))


def _words(model: Any, vocabulary: Sequence[str] | None, vectorizer: Any) -> list[str] | None:
    """The vocabulary to save, one word a column."""
    known = words_of(model)
    if hasattr(vectorizer, "get_feature_names_out"):
        known = [str(name) for name in vectorizer.get_feature_names_out()]
    if vocabulary is None:
        return known
    if isinstance(vocabulary, (str, Mapping)):
        raise TypeError(
            "vocabulary must be the words in the order of the columns, as "
            "CountVectorizer.get_feature_names_out() returns them, got a "
            f"{type(vocabulary).__name__}"
        )
    words = [str(word) for word in vocabulary]
    if known is not None and words != known:
        raise ValueError(
            "vocabulary differs from the column names of the data that the model was trained on; "
            "leave it out to save those"
        )
    return check_vocabulary(words, model.components_.shape[1])


def _warn_of_leaks(name: str, guarantee: Guarantee) -> None:
    if guarantee.epsilon == math.inf:
        reason = "was trained without privacy (epsilon is infinite)"
        origin = dict(guarantee.provenance).get(VOCABULARY, "")
        if "not private" in origin:
            reason += f"; its vocabulary: {origin}"
    elif guarantee.seeded:
        reason = "drew its noise from a given random_state; anyone who knows it removes the noise"
    else:
        return
    warn_user(
        f"this {name} {reason}. Its release says so, too. Do not show it to those from whom the "
        "documents are to be protected",
        PrivacyLeakWarning,
    )
