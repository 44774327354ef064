"""What several commands share, and ``dplda topics``, ``report`` and ``transform``."""

from __future__ import annotations

import argparse
import codecs
import csv
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import dplda  # loads a name at its first use: options and --help need nothing of it
from dplda.leaf._checks import escaped
from dplda.leaf._files import (
    PUBLIC,
    check_writable,
    explained,
    write_atomically,
    written,
)
from dplda.leaf._messages import Progress, named
from dplda.text._text_files import Estimated, Texts, TextStream, stream_texts

if TYPE_CHECKING:
    import numpy as np
    from sklearn.base import BaseEstimator

    from dplda import ReleasedModel

TEXTS_AT_ONCE = 1000  # however short: each has a row of topic weights
MODEL = "file that dplda fit or save_release wrote"
USERS = "column that says whose text it is: protects users"

# ``add_parser(name, help=..., ...)`` of the object that `add_subparsers` returns
AddParser: TypeAlias = Callable[..., argparse.ArgumentParser]
# What a command does with its options; None is exit code 0.
Run: TypeAlias = Callable[[argparse.Namespace], int | None]


def command_group(
    add_parser: AddParser,
    name: str,
    text: str,
    form: type[argparse.HelpFormatter] = argparse.HelpFormatter,
) -> Callable[[str, Run, str], argparse.ArgumentParser]:
    """Add a command that has commands; ``add_command(name, run, text)`` adds one."""
    group = add_parser(name, help=text)
    inner = group.add_subparsers(required=True, metavar="command")

    def add_command(name: str, run: Run, text: str) -> argparse.ArgumentParser:
        parser = inner.add_parser(
            name, help=text.partition(".")[0], description=text, formatter_class=form
        )
        parser.set_defaults(command=run)
        return parser

    return add_command


def add_texts(
    parser: argparse.ArgumentParser,
    id_option: str,
    id_help: str,
    nargs: str | None = None,
) -> None:
    """Add the options that say where texts are, and where their ids are."""
    add = parser.add_argument_group("texts").add_argument
    add(
        "texts",
        type=Path,
        nargs=nargs,
        help="folder of .txt files, or a .csv, .tsv, .jsonl or "
        ".parquet file, or a folder of these",
    )
    add(
        "--text-column",
        default="text",
        metavar="COLUMN",
        help="column of the texts (default: %(default)s)",
    )
    add(id_option, dest="id_column", metavar="COLUMN", help=id_help)
    add(
        "--encoding",
        default="utf-8",
        help="encoding of the files, such as cp1252 (default: %(default)s)",
    )
    add("--separator", help="character between the columns of CSV (default: a comma)")


def texts_of(
    options: argparse.Namespace, path: Path, id_column: str | None = None
) -> Texts:
    """Texts of files, read as the options say. Private."""
    return stream_of(options, path, id_column).all()


def stream_of(
    options: argparse.Namespace,
    path: Path,
    id_column: str | None,
    other_columns: Sequence[str] = (),
) -> TextStream:
    """Texts that are read as they are asked for. Private."""
    found = stream_texts(
        path,
        text_column=options.text_column,
        id_column=id_column,
        other_columns=other_columns,
        encoding=options.encoding,
        separator=options.separator,
    )
    if found.n_left_out:
        say(f"{found.n_left_out} files of other kinds are left out.")
    return found


def public_text(path: Path) -> str:
    """The content of a public file."""
    try:
        return path.read_text("utf-8-sig")
    except UnicodeError:
        raise ValueError(
            f"{path} is not encoded in utf-8; write it in this encoding"
        ) from None


def check_output(path: Path, *inputs: Path | None, is_new: bool = False) -> None:
    """Refuse early a file that cannot be written at the end, or that holds an input."""
    if is_new and path.is_file():
        raise FileExistsError(
            f"{path} exists, and its result may have been paid for; write to another "
            "file"
        )
    if any(given is not None and path.resolve() == given.resolve() for given in inputs):
        raise ValueError(f"{path} would be overwritten; write to another file")
    if path.exists() and not path.is_file():  # a device would be replaced by a file
        raise ValueError(f"{path} is not a regular file; write to another file")
    check_writable(path)


def kept(
    save: Callable[[Path], object], path: Path, room: ExitStack | None = None
) -> Path:
    """Write what is paid for: at its place, or elsewhere if that fails.

    `room` is what was reserved on its disk. It is given up only if the disk is full, so
    that no other program takes it.
    """
    if room is not None:
        with suppress(OSError):
            save(path)
            return path
        room.close()
    try:
        save(path)
        return path
    except OSError as error:
        other = Path(tempfile.mkdtemp(prefix="dplda-"), path.name)
        save(other)
        print(
            f"{path} cannot be written ({error.strerror or error}): it is {other}",
            file=sys.stderr,
        )
        return other


def words_beside(out: Path) -> Path:
    """The file of the words of a model that has no topics yet."""
    return out.with_name(f"{out.name}.words")


def save_words(path: Path, words: Iterable[str]) -> None:
    """Write released words, one a line."""
    data = "".join(f"{word}\n" for word in words).encode()
    write_atomically(path, data, permissions=PUBLIC)


def model_of_texts(path: Path) -> ReleasedModel:
    """A published model that counts words of texts."""
    model = dplda.load_release(path)
    if model.vectorizer_ is None:
        raise ValueError(
            f"{path} does not say how to count words; save a pipeline of vectorizer "
            "and model, as dplda fit does"
        )
    return model


def add_verbose(parser: argparse.ArgumentParser) -> None:
    """Add the option that shows progress."""
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="show progress even if the standard error is no terminal",
    )


def is_shown(options: argparse.Namespace) -> bool:
    """Whether the standard error shows progress: on a terminal, or if it is asked."""
    return options.verbose or (sys.stderr is not None and sys.stderr.isatty())


def say(text: str) -> None:
    """Print a paragraph. Names of files in it cannot move a cursor."""
    print(textwrap.fill(escaped(" ".join(text.split())), 96))


def show_topics(model: BaseEstimator, words: Sequence[str] | None = None) -> None:
    """Print share, evidence and typical words of each topic, weak ones last."""
    # not for options and --help
    from dplda.core._signal import MEANING, NOT_TESTED, is_tested
    from dplda.reading._displays import list_topics

    say(
        "Topics, with their share of all words, the evidence that they are more than "
        "noise (z), and the ten words that distinguish them most:"
    )
    tested = is_tested(model)
    for topic in list_topics(model, words):
        mark = "?" if topic["weak"] else " "
        evidence = f"{topic['evidence']:5.1f}" if tested else "    -"
        listed = " ".join(map(escaped, topic["words"]))
        print(f"  {topic['topic']:3d}{mark} {topic['share']:6.1%} {evidence}  {listed}")
    say(MEANING if tested else NOT_TESTED)


def show_card(card: str) -> None:
    """Print a card, or its first lines, with its labels in a column of their own."""
    print()
    for line in card.splitlines():
        print(textwrap.fill(escaped(line), 96, subsequent_indent=" " * 13))


def add_commands(add_parser: AddParser) -> None:
    """Add the options of ``dplda topics``, ``report`` and ``transform``."""
    parser = add_parser(
        "topics", help="print the topics and the guarantee of a published model"
    )
    parser.set_defaults(command=_topics)
    parser.add_argument("model", type=Path, help=MODEL)
    parser = add_parser(
        "report",
        help="write a page about a published model, for readers who install nothing",
        description="Write one HTML page of a published model, and of published "
        "counts. It may be published like them, and loads nothing from any network.",
    )
    parser.set_defaults(command=_report)
    parser.add_argument("model", type=Path, help=MODEL)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        default=Path("topics.html"),
        help="HTML file to write (default: %(default)s)",
    )
    parser.add_argument("--title", default="Topics of private texts", help="heading")
    parser.add_argument("--about", default="", help="a paragraph of the publisher")
    parser.add_argument(
        "--names",
        type=Path,
        metavar="FILE",
        help="names of topics: a line with number and name for each, such as 5,Heart",
    )
    parser.add_argument(
        "--counts",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="files of counts by group of the same model",
    )
    parser = add_parser(
        "transform",
        help="write topic weights of texts, for a published model",
        description="Write the topic weights of texts, one row a text, in the order of "
        "the texts. The output is as private as the texts.",
    )
    parser.set_defaults(command=_transform)
    parser.add_argument("model", type=Path, help=MODEL)
    add_texts(
        parser, "--id-column", "column that is copied to the output, such as a number"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        required=True,
        help="CSV file to write, or an array of NumPy (.npy)",
    )
    add_verbose(parser)


def _topics(options: argparse.Namespace) -> None:
    model = dplda.load_release(options.model)
    show_topics(model)
    show_card(str(model.privacy_))


def _report(options: argparse.Namespace) -> None:
    check_output(options.out, options.model, options.names, *options.counts)
    model = dplda.load_release(options.model)
    names = {} if options.names is None else _names_in(options.names)
    model.report(
        options.out,
        title=options.title,
        about=options.about,
        names=names,
        counts=[dplda.load_counts(path) for path in options.counts],
    )
    say(f"Page: {options.out}. It may be published.")


def _names_in(path: Path) -> dict[int, str]:
    """Names of topics by their rows, of a file with both in each line."""
    names: dict[int, str] = {}
    for number, line in enumerate(public_text(path).splitlines(), start=1):
        row, _, name = line.partition(",")
        if not line.strip():
            continue
        if not (row.strip().isdecimal() and name.strip()):
            raise ValueError(
                f"{path}, line {number} must be the number of a topic, a comma and its "
                "name, such as 5,Heart"
            )
        if int(row) in names:
            raise ValueError(f"{path}, line {number} names topic {int(row)} again")
        names[int(row)] = name.strip()
    return names


def _transform(options: argparse.Namespace) -> None:
    from dplda.leaf._rows import collected  # not for options and --help

    check_output(options.out, options.model, options.texts)
    is_array = options.out.suffix.lower() == ".npy"
    if is_array and options.id_column is not None:
        raise ValueError(
            f"{options.out} holds weights alone, in the order of the texts; leave "
            "--id-column out, or write a .csv file"
        )
    model = model_of_texts(options.model)
    found = stream_of(options, options.texts, options.id_column)  # private
    progress = Progress("dplda transform", is_shown(options))
    read = Estimated(found.rows, found.share_read)
    rows = progress.during(read, named("reading and transforming texts"))  # private

    def blocks() -> Iterator[tuple[Sequence[str | None], np.ndarray]]:
        """Ids and topic weights of consecutive texts; private."""
        while block := list(islice(rows, TEXTS_AT_ONCE)):
            texts, ids, _ = zip(*block)
            yield ids, model.transform(texts)

    if is_array:
        n_rows = len(collected((weights for _, weights in blocks()), options.out))
    else:
        n_rows = _write_table(options.out, blocks(), options.id_column or "file")
    say(
        f"Features: {options.out}, {n_rows} rows of {len(model.components_)} topic "
        "weights. Epsilon does not cover them, because they are functions of the "
        "texts: keep the file as private as the texts. Only its owner can read it."
    )


def _write_table(
    path: Path, blocks: Iterable[tuple[Sequence[str | None], np.ndarray]], id_name: str
) -> int:
    """Write rows of weights, with their ids if there are any; how many they are."""
    n_rows = 0
    with written(path) as file:
        table = csv.writer(codecs.getwriter("utf-8")(file))
        for ids, weights in blocks:
            shown = [[f"{weight:.6g}" for weight in row] for row in weights]
            names = [f"topic_{k}" for k in range(weights.shape[1])]
            lines = shown if n_rows else [names, *shown]
            if ids[0] is not None:
                column = ids if n_rows else [id_name, *ids]
                lines = [[str(of_text), *row] for of_text, row in zip(column, lines)]
            with explained(path):
                table.writerows(lines)
            n_rows += len(shown)
    return n_rows
