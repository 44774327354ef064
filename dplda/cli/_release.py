"""The commands ``dplda topics``, ``transform``, ``sign`` and ``verify``."""

from __future__ import annotations

import argparse
import csv
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dplda  # loads a name at its first use: options and --help need nothing of it
from dplda.cli._console import draw_topics, say, show_guarantee, show_topics
from dplda.cli._fit import add_source, check_output, check_picture, source_of
from dplda.leaf._files import PUBLIC as PUBLIC_FILE
from dplda.leaf._files import write_atomically
from dplda.text._text_files import import_parquet, read_texts

if TYPE_CHECKING:
    import numpy as np

PRIVATE = (
    "These are functions of the texts, which epsilon does not cover: keep the file as private as "
    "the texts. Only its owner can read it."
)


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the file of a model, and the key that must have signed it."""
    parser.add_argument("model", type=Path, help="file that dplda fit or save_release wrote")
    parser.add_argument(
        "--key", type=Path, metavar="FILE",
        help="public key (PEM) of the author: refuse a model that is not signed by it",
    )  # fmt: skip


def add_topics_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``dplda topics``."""
    parser.description = "Print the topics of a published model, and its guarantee."
    parser.set_defaults(command=run_topics)
    add_model(parser)
    parser.add_argument(
        "--picture", type=Path, metavar="FILE", help="file of a picture of the topics"
    )


def run_topics(options: argparse.Namespace) -> None:
    """Run ``dplda topics``."""
    check_picture(options.picture, options.model)
    model = dplda.load_release(options.model, public_key=options.key)
    show_topics(model)
    print()
    show_guarantee(model.privacy_)
    if options.picture is not None:
        draw_topics(model, None, options.picture)


def add_transform_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``dplda transform``."""
    parser.description = (
        "Write the topic weights of texts, one row a text and in their order. The output is as "
        "private as the texts."
    )
    parser.set_defaults(command=run_transform)
    add_model(parser)
    add_source(parser, "--id-column", "column that is copied to the output, such as a number")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", required=True, help=".csv or .parquet file to write"
    )


def run_transform(options: argparse.Namespace) -> None:
    """Run ``dplda transform``."""
    source = source_of(options)
    if options.out.suffix.lower() not in FORMATS:
        raise ValueError(f"--out must end in .csv or .parquet, got {options.out}")
    to_bytes = FORMATS[options.out.suffix.lower()]
    if to_bytes is as_parquet:
        import_parquet(f"writing {options.out}")
    check_output(options.out, options.model, options.texts)
    model = dplda.load_release(options.model, public_key=options.key)
    if model.vectorizer_ is None:
        raise ValueError(
            f"{options.model} does not say how to count words; save a pipeline of vectorizer and "
            "model, as dplda fit does"
        )
    found = read_texts(source)  # private
    weights = model.transform(found.texts)  # private
    name = "file" if options.id_column is None else options.id_column
    write_atomically(options.out, to_bytes(name, found.ids, weights))
    others = f" {found.n_left_out} files of other kinds left out." if found.n_left_out else ""
    say(
        f"Features: {options.out}, {weights.shape[0]} rows of {weights.shape[1]} topic weights."
        f"{others}"
    )
    say(PRIVATE)


def add_sign_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``dplda sign``."""
    parser.description = (
        "Sign a file, such as a published model, with an Ed25519 key. The signature is written "
        "next to it; dplda verify and OpenSSL compare it with the public key."
    )
    parser.set_defaults(command=run_sign)
    parser.add_argument("file", type=Path, help="file to sign; it is not changed")
    parser.add_argument("--key", type=Path, required=True, help="private key (PEM), yours alone")
    add_signature(parser)


def run_sign(options: argparse.Namespace) -> None:
    """Run ``dplda sign``."""
    from dplda.release import _signatures

    target = options.signature or _signatures.signature_path(options.file)
    check_output(target, options.file, options.key)
    data = options.file.read_bytes()
    write_atomically(target, _signatures.sign(data, options.key), permissions=PUBLIC_FILE)
    public = _signatures.read_private_key(options.key).public_key()
    say(f"Signature: {target}")
    print(f"Public key: sha256 {_signatures.fingerprint(public)}")


def add_verify_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``dplda verify``."""
    parser.description = (
        "Tell whether the holder of a key signed a file. Exit code 0: yes. 1: no, the file or its "
        "signature was changed, or the key is another. 2: a file cannot be read."
    )
    parser.set_defaults(command=run_verify)
    parser.add_argument("file", type=Path, help="file that was signed")
    parser.add_argument("--key", type=Path, required=True, help="public key (PEM) of the author")
    add_signature(parser)


def run_verify(options: argparse.Namespace) -> int:
    """Run ``dplda verify``."""
    from dplda.release import _signatures

    try:
        signature = _signatures.read_signature(
            options.signature or _signatures.signature_path(options.file)
        )
        signed = _signatures.is_signed(options.file.read_bytes(), signature, options.key)
        key = _signatures.fingerprint(_signatures.read_public_key(options.key))
    except (OSError, ValueError) as error:  # 1 says that the signature is wrong
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{'signed' if signed else 'NOT SIGNED'} by the key with sha256 {key}")
    return 0 if signed else 1


def add_signature(parser: argparse.ArgumentParser) -> None:
    """Add the option for another file of the signature."""
    parser.add_argument(
        "--signature", type=Path, metavar="FILE", help="the signature; default: the file with .sig"
    )


def as_csv(name: str, ids: list[str], weights: np.ndarray) -> bytes:
    """A table with a header; the first column holds ids, if there are any."""
    table = [[name, *_topics(weights)], *([i, *row] for i, row in zip(ids, weights.tolist()))]
    if not ids:
        table = [_topics(weights), *weights.tolist()]
    file = io.StringIO(newline="")
    csv.writer(file).writerows(table)
    return file.getvalue().encode()


def as_parquet(name: str, ids: list[str], weights: np.ndarray) -> bytes:
    """The same table as Parquet."""
    parquet = import_parquet("Parquet")
    import pyarrow

    columns: dict[str, Any] = {name: ids} if ids else {}
    columns |= dict(zip(_topics(weights), weights.T.copy()))
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), file)
    return file.getvalue()


def _topics(weights: np.ndarray) -> list[str]:
    return [f"topic_{k}" for k in range(weights.shape[1])]


FORMATS = {".csv": as_csv, ".parquet": as_parquet}
