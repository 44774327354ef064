"""From files to a published model: reading, the commands fit, topics and transform."""

import csv
import gzip
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from dplda import (
    PrivateCountVectorizer,
    PrivateTopicModel,
    SubLDA,
    load_release,
    pipeline_guarantee,
    plan,
    save_release,
)
from dplda.__main__ import main
from dplda.datasets import load_public_vocabulary, load_wordnet_glosses
from dplda.displays import report
from dplda.privacy import (
    Ledger,
    LowSignalWarning,
    PrivacyLeakWarning,
    PrivateDataWarning,
    split_epsilon,
)
from dplda.privacy.mechanisms import Curator
from dplda.text._text_files import stream_texts

TEXTS = [
    "The heart is healthy.",
    'He said: "no, ache"\nand left',
    "",
    "a naïve café, 5 €",
]
USERS = ["007", "7", "007", "x"]


def write_csv(path, header, rows, encoding="utf-8", separator=","):
    with open(path, "w", encoding=encoding, newline="") as file:
        csv.writer(file, delimiter=separator).writerows([header, *rows])
    return path


def write_table(path, texts=TEXTS, users=USERS):
    """A file with the columns n, patient and text, of the kind that its name says."""
    rows = [(n, user, text) for n, (user, text) in enumerate(zip(users, texts))]
    columns = ("n", "patient", "text")
    if path.suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        table = pyarrow.table(dict(zip(columns, map(list, zip(*rows)))))
        parquet.write_table(table, path)
    elif path.suffix == ".json":
        data = json.dumps([dict(zip(columns, row)) for row in rows], indent=1).encode()
        path.write_bytes(data)
    elif ".jsonl" in path.name:
        lines = "".join(json.dumps(dict(zip(columns, row))) + "\n" for row in rows)
        data = lines.encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    else:
        write_csv(path, columns, rows, separator="\t" if path.suffix == ".tsv" else ",")
    return path


# reading


def read_texts(path, **options):
    return stream_texts(path, **options).all()


@pytest.mark.parametrize(
    "name", ["a.csv", "a.tsv", "a.json", "a.jsonl", "a.jsonl.gz", "a.parquet", "A.CSV"]
)
def test_every_kind_of_table_gives_the_same_texts_and_users(tmp_path, name):
    found = read_texts(write_table(tmp_path / name), id_column="patient")
    assert found.texts == TEXTS
    assert found.ids == USERS


def test_a_folder_of_tables_is_one_table_in_the_order_of_its_names(tmp_path):
    for name, text in [("b.csv", "second"), ("a.csv", "word " * 100_000)]:
        write_table(tmp_path / name, [text], ["u"])
    (tmp_path / ".a.csv").write_text("what a system leaves behind")
    (tmp_path / "README").write_text("no table")
    found = read_texts(tmp_path)
    assert (found.texts, found.n_left_out) == (["word " * 100_000, "second"], 1)


def write_notes(folder, texts=TEXTS, encoding="utf-8"):
    (folder / "ward").mkdir(parents=True)
    for n, text in enumerate(texts):
        (folder / "ward" / f"{n}.txt").write_bytes(text.encode(encoding))
    return folder


def test_text_files_have_their_names(tmp_path, monkeypatch):
    found = read_texts(write_notes(tmp_path / "notes"))
    assert (found.texts, found.ids) == (TEXTS, [f"ward/{n}.txt" for n in range(4)])
    for option in (
        {"encoding": "utf-9"},
        {"encoding": "hex"},
        {"separator": "::"},
        {"id_column": "patient"},
    ):
        with pytest.raises(ValueError, match=r"encoding|separator|have no columns"):
            read_texts(tmp_path / "notes", **option)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(ImportError, match="extra 'files'"):
        read_texts(tmp_path / "a.parquet")


def test_marks_of_windows_programs_are_no_part_of_a_text(tmp_path):
    path = write_csv(tmp_path / "a.csv", ["text"], [["München"]], encoding="utf-8-sig")
    assert read_texts(path).texts == ["München"]
    path = write_csv(tmp_path / "b.csv", ["id", "text"], [["1", "a, b"]], "cp1252", ";")
    assert read_texts(path, encoding="cp1252", separator=";").texts == ["a, b"]


def test_a_missing_column_of_parquet_names_those_that_there_are(tmp_path):
    path = write_table(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"the columns are .'n', 'patient', 'text'.;"):
        read_texts(path, text_column="note")


def test_a_cell_of_parquet_that_python_cannot_hold_is_not_quoted(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    far = arrow.array([2**30], arrow.date32())  # days
    broken = arrow.StringArray.from_buffers(
        1, arrow.py_buffer(b"\0\0\0\0\2\0\0\0"), arrow.py_buffer(b"a\xff")
    )
    for text, day in [(arrow.array(["a"]), far), (broken, arrow.array(["1"]))]:
        table = arrow.table({"text": text, "day": day})
        parquet.write_table(table, path)
        message = "a.parquet holds cells of text or day that"
        with pytest.raises(ValueError, match=message) as caught:
            list(stream_texts(path, other_columns=["day"]).rows)
        assert "1073741824" not in str(caught.value)
        assert caught.value.__suppress_context__


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_line_for_excel_names_the_separator_and_is_no_part_of_the_table(
    tmp_path, end
):
    path = tmp_path / "a.csv"
    path.write_text(end.join(["sep=;", "n;text", "1;a, b", ""]), newline="")
    assert read_texts(path).texts == ["a, b"]
    assert read_texts(path, separator=";").texts == ["a, b"]
    path.write_text(end.join(["sep=;", "n;text", "1;a;b"]), newline="")
    with pytest.raises(ValueError, match="line 3 has more or fewer columns"):
        read_texts(path)


def test_whole_numbers_are_ids_and_the_text_seven_is_the_number_seven(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "u": 7}\n\n{"text": null, "u": " 7 "}\n')
    found = read_texts(path, id_column="u")
    # spaces make no second user
    assert (found.texts, found.ids) == (["a", ""], ["7", "7"])


SECRET = "Hyperthyroidism"
CUT = gzip.compress(b"text\nheart\n" * 99)[:-9]
DAMAGED = b"".join([CUT[:12], b"\xff" * 8, CUT[20:]])
# Files by their names, what is read with which options, and what the error says.
FAULTS = {
    "no folder": ({}, "missing", {}, "there is no file or folder"),
    "several kinds": (
        {"a.csv": "text\n", "a.txt": SECRET},
        "",
        {},
        r"several kinds \(CSV, text\)",
    ),
    "no header": ({"a.csv": f"{SECRET},1\n{SECRET},2"}, "", {}, "no column 'text'"),
    "no user column": (
        {"a.csv": "text,n\na,1"},
        "a.csv",
        {"id_column": "person"},
        "a.csv, line 2 has no column 'person': .* --user-column or --id-column",
    ),
    "no column in CSV": (
        {"a.csv": f"{SECRET},b\n{SECRET},1\n"},
        "",
        {},
        "its first line must name the columns, and has 2; .* --separator",
    ),
    "no column in JSON": (
        {"a.jsonl": json.dumps({"note": SECRET})},
        "",
        {},
        "line 1 has no column 'text': the keys of an object name its columns",
    ),
    "texts by their ids": (
        {"a.json": json.dumps({SECRET: "a", "b": "c"})},
        "",
        {},
        "an object has one text; name columns by options",
    ),
    "broken array": ({"a.json": f'[{{"text": "{SECRET}"'}, "", {}, "valid array"),
    "array of texts": ({"a.json": f'["{SECRET}"]'}, "", {}, "object 1 is not a JSON"),
    "two columns of one name": (
        {"a.csv": f"text,text\n{SECRET},a\n"},
        "",
        {},
        "several columns 'text'; rename all but one",
    ),
    "missing user": (
        {"a.csv": f"text,u\n{SECRET},a\n{SECRET}, \n"},
        "",
        {"id_column": "u"},
        "a.csv, line 3, column 'u' is empty",
    ),
    "user that is a fraction": (
        {"a.jsonl": f'{{"text": "{SECRET}", "u": 1.0}}'},
        "",
        {"id_column": "u"},
        "line 1, column 'u' is empty, or no id",
    ),
    "cp1252": (
        {"a.csv": f"text\n{SECRET}\xe9".encode("cp1252")},
        "",
        {},
        "a.csv is not encoded in utf-8; give --encoding",
    ),
    "utf-16 without a mark": (
        {"a.txt": SECRET.encode("utf-16-le")},
        "",
        {},
        "a.txt holds zero bytes",
    ),
    "unquoted comma": (
        {"a.csv": f"n,text\n1,{SECRET}, and more\n"},
        "",
        {},
        "line 2 has more or fewer columns than the header",
    ),
    "broken json": (
        {"a.jsonl": '{"text": "a"}\n{"text": "' + SECRET},
        "",
        {},
        "line 2 is not a JSON object",
    ),
    "broken gzip": ({"a.csv.gz": CUT}, "", {}, "a.csv.gz is not a whole gzip file"),
    "broken parquet": (
        {"a.parquet": b"PAR1" + SECRET.encode()},
        "",
        {},
        "a.parquet is not a valid Parquet file",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_error_names_the_file_and_quotes_no_text(tmp_path, fault):
    files, place, options, message = FAULTS[fault]
    if "broken parquet" in fault:
        pytest.importorskip("pyarrow")
    for name, content in files.items():
        path = tmp_path / "X" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "X").mkdir(exist_ok=True)
    with pytest.raises((ValueError, OSError), match=message) as caught:
        read_texts(tmp_path / "X" / place, **options)
    assert SECRET[:8] not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_files_are_read_as_texts_are_asked_for(name, tmp_path):
    """The end of a file that does not fit the memory is not read at the start."""
    path = write_table(tmp_path / name)
    with path.open("ab") as file:
        file.write(1000 * b"\n" + b'"' + b"x" * 2**17 + b"\xff\n")
    others = ["n", "patient"]
    rows = stream_texts(path, id_column="patient", other_columns=others).rows
    for n, (text, user) in enumerate(zip(TEXTS, USERS)):
        assert next(rows) == (text, user, [str(n), user])
    with pytest.raises(ValueError, match="is not encoded in utf-8"):
        next(rows)


def test_a_text_under_two_names_is_refused(tmp_path):
    write_notes(tmp_path / "a")
    first, copy = tmp_path / "a" / "ward" / "0.txt", tmp_path / "a" / "copy.txt"
    packed = first.with_name("0.txt.gz")
    for name, make in (
        (copy, copy.symlink_to),
        (copy, copy.hardlink_to),
        (packed, lambda path: packed.write_bytes(gzip.compress(path.read_bytes()))),
    ):
        make(first)
        with pytest.raises(ValueError, match="two names of one file"):
            read_texts(tmp_path / "a")
        name.unlink()
    (tmp_path / "a" / "others").symlink_to(write_notes(tmp_path / "b"))
    with pytest.raises(ValueError, match="holds a link to a folder"):
        read_texts(tmp_path / "a")


def bomb(path, rows):
    """A Parquet file of few bytes that unpacks to `rows`, texts or nulls."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(
        pa.table({"text": rows(pa)}), path, compression="zstd", store_schema=False
    )


BOMBS = {
    "one text in many rows": lambda pa: pa.DictionaryArray.from_arrays(
        pa.array([0] * 3000, pa.int32()), pa.array(["a" * 100_000])
    ),
    "rows without texts": lambda pa: pa.nulls(2_000_000, pa.string()),
    "one long text": lambda pa: pa.array(["a" * 20_000_000]),
}


@pytest.mark.parametrize("kind", [*BOMBS, "a.txt.gz", "a.csv.gz", "a.jsonl.gz"])
def test_a_small_file_does_not_exhaust_the_memory(kind, tmp_path):
    path = tmp_path / ("a.parquet" if kind in BOMBS else kind)
    if kind in BOMBS:
        bomb(path, BOMBS[kind])
    else:
        path.write_bytes(gzip.compress(b"a" * 20_000_000))
    with pytest.raises(ValueError, match="unpacks to more than 100 times its size"):
        read_texts(path)


# the commands

SMALL = ("--n-components", "3", "--max-features", "60")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A table of public texts with users, and what ``dplda fit`` makes of it."""
    folder = tmp_path_factory.mktemp("files")
    texts = load_wordnet_glosses().data[:400]
    table = write_table(
        folder / "notes.csv", texts, [f"p{n % 300}" for n in range(400)]
    )
    return table, folder / "topics.dplda", folder / "ledger"


@pytest.fixture(scope="module")
def fitted(files, tmp_path_factory):
    table, model, ledger = files
    code = main(
        [
            "fit",
            str(table),
            "--epsilon",
            "6",
            "--user-column",
            "patient",
            "--out",
            str(model),
            "--ledger",
            str(ledger),
            *SMALL,
        ]
    )
    assert code == 0
    return files


def test_fit_writes_a_model_that_anyone_can_use(fitted, capsys):
    released, ledger = load_release(fitted[1]), Ledger(fitted[2])
    assert released.privacy_.unit == "user"
    assert 5.9 < released.epsilon_ <= 6.0
    weights = released.transform(["a tree with white flowers", "the king of France"])
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    entries = [(entry.label, entry.unit, entry.status) for entry in ledger.entries()]
    assert entries == [("PrivateTopicModel", "user by 'patient'", "released")]
    assert 5.9 < ledger.epsilon_spent <= ledger.epsilon == 6.0
    capsys.readouterr()
    assert main(["topics", str(fitted[1])]) == 0
    text = capsys.readouterr().out
    rows = re.findall(r"^ +\d+[ ?] +[\d.]+% +[-\d.]+ +([a-z? ]+)$", text, re.MULTILINE)
    words = [{*row.replace("?", "").split()} for row in rows]
    assert [len(row & {*released.vocabulary_}) for row in words] == [10] * 3
    assert re.search(r"(?m)^protects +each user", text)


def refused(capsys, *arguments):
    code = main(list(map(str, arguments)))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return code, printed.err


# what a fit spends, and what is left of it

EPSILON = r"epsilon(?:\*\*|</dt><dd>)?[ =]*([0-9.]+[0-9])"


@pytest.fixture
def notes(tmp_path):
    """A table of 200 public texts, and the arguments of a fit of it."""
    table = write_table(
        tmp_path / "notes.csv", load_wordnet_glosses().data[:200], range(200)
    )
    return ["fit", str(table), "--epsilon", "4", "--out", str(tmp_path / "m"), *SMALL]


def test_every_place_prints_one_epsilon(notes, tmp_path, capsys):
    """Picture, card, page, command line, representation and file of one run.

    The run goes from texts to topics.

    The topics alone cost less: 3.8 of 3.998.
    """
    texts = load_wordnet_glosses().data[:200]
    for_words, for_topics = split_epsilon(4.0, (0.16, 0.84))
    vectorizer = PrivateCountVectorizer(epsilon=for_words, max_features=60)
    pipeline = make_pipeline(vectorizer, SubLDA(2, epsilon=for_topics, max_iter=3)).fit(
        texts
    )
    save_release(pipeline, tmp_path / "topics")
    released, guarantee = (
        load_release(tmp_path / "topics"),
        pipeline_guarantee(pipeline),
    )
    assert main(["topics", str(tmp_path / "topics")]) == 0
    places = [
        capsys.readouterr().out,
        repr(released),
        repr(guarantee),
        str(guarantee),
        guarantee.to_markdown(),
        f"epsilon {released.epsilon_:.4g}",
    ]
    places.append(re.sub("<[^>]*>", " ", report(released)))
    found = [set(re.findall(EPSILON, place)) - {"2.718"} for place in places]
    stated = f"{guarantee.epsilon:.4g}"
    assert [stated in of_place for of_place in found] == [True] * len(places)
    assert f"{pipeline[-1].epsilon_:.4g}" not in set.union(*found)


def test_a_paid_release_is_not_overwritten_and_a_second_fit_finds_its_ledger(
    notes, tmp_path, capsys
):
    assert main(notes) == 0
    ledger, paid = Ledger(tmp_path / "notes.csv.ledger"), (tmp_path / "m").read_bytes()
    capsys.readouterr()
    code, error = refused(capsys, *notes)
    assert (code, "may have been paid for" in error) == (1, True)
    again = [*notes[:5], str(tmp_path / "m2"), *SMALL]
    assert main(again) == 1
    said = capsys.readouterr()
    assert f"{ledger.epsilon_spent:.4g} of it is spent" in said.err
    assert main([*again, "--user-column", "patient"]) == 1
    capsys.readouterr()
    assert main([*again, "--budget", "9"]) == 1
    assert "Read:" not in capsys.readouterr().out
    assert (tmp_path / "m").read_bytes() == paid
    assert len(ledger.entries()) == 1
    for n, other in enumerate((["--no-ledger"], ["--ledger", f"{tmp_path}/other"])):
        with pytest.warns(
            PrivacyLeakWarning, match="counts what was spent on these texts before"
        ):
            assert main([*again, "--out", f"{tmp_path}/again{n}", *other]) == 0


def test_room_for_the_model_is_found_before_the_charge(notes, tmp_path, capsys):
    """No file grows beyond 64 kB here."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, hard))
    try:
        assert main(notes) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert re.search(
        r"m cannot be written: .* has room for \d{6} bytes", capsys.readouterr().err
    )
    assert [file.name for file in tmp_path.iterdir()] == ["notes.csv"]
    assert main(notes) == 0
    assert (tmp_path / "m").stat().st_size < 2**17


def test_a_model_that_cannot_be_written_at_the_end_is_written_elsewhere(
    notes, tmp_path, capsys, monkeypatch
):
    """The disk of the output has gone during the fit."""
    out = tmp_path / "disk" / "m"
    out.parent.mkdir()
    release = Curator.release

    def release_and_lose(self, *data, **options):
        shutil.rmtree(out.parent, ignore_errors=True)
        return release(self, *data, **options)

    monkeypatch.setattr(Curator, "release", release_and_lose)
    assert main([*notes, "--out", str(out)]) == 0
    printed = capsys.readouterr()
    place = Path(re.search(r"cannot be written .*: it is (.*)", printed.err)[1])
    assert load_release(place).components_.shape[0] == 3
    assert str(place) in printed.out.replace("\n", "")


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_end_after_the_charge_says_what_is_spent_and_where_the_vocabulary_is(
    notes, tmp_path, capsys, monkeypatch, error
):
    def release_and_end(self, *data, **options):
        raise error

    monkeypatch.setattr(Curator, "release", release_and_end)  # of word totals
    if error is KeyboardInterrupt:
        assert main(notes) == 130
    else:
        with pytest.raises(error):
            main(notes)
    said = capsys.readouterr().err
    ledger = Ledger(tmp_path / "notes.csv.ledger")
    assert 3.9 < ledger.epsilon_spent <= 4
    assert f"epsilon {ledger.epsilon_spent:.4g} of 4 is spent in {ledger.path}" in said
    assert str(tmp_path / "m.words") in said
    assert len((tmp_path / "m.words").read_text().split()) == 60
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("owner", "name"), [(csv, "reader"), (Ledger, "begin_release")]
)
def test_an_end_before_the_charge_says_that_nothing_was_charged(
    notes, tmp_path, capsys, monkeypatch, owner, name
):
    """While texts are read, and when all is checked."""

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, name, interrupted)
    assert main(notes) == 130
    assert "Nothing was charged.\nerror: interrupted" in capsys.readouterr().err
    assert not (tmp_path / "m").exists()
    ledger = tmp_path / "notes.csv.ledger"
    assert not ledger.exists() or Ledger(ledger).epsilon_spent == 0


@pytest.mark.ci
def test_a_reader_that_has_ended_leaves_the_model(notes, tmp_path):
    run = subprocess.Popen(
        [sys.executable, "-m", "dplda", *notes],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    with run, run.stderr:
        while "give better topics at no cost" not in run.stdout.readline():
            assert run.poll() is None
        run.stdout.close()
        said = run.stderr.read()
    assert run.returncode == 1
    spent = Ledger(tmp_path / "notes.csv.ledger").epsilon_spent
    assert f"epsilon {spent:.4g} of 4 is spent" in said
    assert "Traceback" not in said
    assert load_release(tmp_path / "m").epsilon_ == pytest.approx(spent, rel=1e-3)
    assert not (tmp_path / "m.words").exists()


@pytest.mark.filterwarnings("ignore::dplda.privacy.LowSignalWarning")
@pytest.mark.parametrize(("answer", "code"), [("", 1), ("yes", 0)])
def test_on_a_terminal_a_fit_says_what_to_expect_and_asks(
    notes, tmp_path, capsys, monkeypatch, answer, code
):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    asked = []
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or answer)
    assert main([*notes, "--n-docs", "200"]) == code
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "Expected of 200 texts, from public numbers alone: epsilon, delta 4, 1e-06"
        in said
    )
    assert asked == ["Spend epsilon 4 on these texts? [y/N] "]
    assert (
        (tmp_path / "notes.csv.ledger").exists()
        == (tmp_path / "m").exists()
        == (code == 0)
    )


def test_a_fit_takes_as_many_topics_as_a_plan_recommends(notes, tmp_path):
    options = notes[: -len(SMALL)] + ["--max-features", "60", "--n-docs", "3000"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LowSignalWarning)
        assert main([*options, "--n-components", "auto"]) == 0
    expected = plan(
        n_docs=3000,
        epsilon=split_epsilon(4.0, (0.24, 0.76))[1],
        n_words=60,
        word_vectors=True,
    )
    released = load_release(tmp_path / "m")
    assert len(released.components_) == expected.recommended_components


def test_a_fit_warns_once_of_too_many_topics(notes):
    with pytest.warns(LowSignalWarning) as said:
        assert main([*notes, "--n-docs", "200", "--n-components", "9"]) == 0
    told = [str(warning.message) for warning in said]
    assert sum("are expected to be shown" in text for text in told) == 1


def test_what_another_process_spends_is_not_said_to_be_spent_by_a_refused_fit(
    notes, tmp_path, capsys, monkeypatch
):
    """Both found the budget untouched, and the other was faster."""
    charge = """
import sys
from dplda.privacy import Gaussian, Ledger
ledger = Ledger(sys.argv[1], epsilon=4.0)
ledger.begin_release(ledger.reserve("other", "document", Gaussian(2.0)))
"""
    path = tmp_path / "notes.csv.ledger"
    fit = PrivateTopicModel.fit

    def late(*args, **options):
        subprocess.run([sys.executable, "-c", charge, str(path)], check=True)
        return fit(*args, **options)

    monkeypatch.setattr(PrivateTopicModel, "fit", late)
    assert main(notes) == 1
    said = capsys.readouterr().err
    assert "Nothing was charged" in said
    assert "stays charged" not in said
    assert [entry.label for entry in Ledger(path).entries()] == ["other"]


@pytest.mark.filterwarnings("ignore::dplda.privacy.LowSignalWarning")
def test_a_terminal_without_an_answer_spends_nothing(notes, capsys, monkeypatch):
    def ended(text):
        raise EOFError

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", ended)
    assert main(notes) == 1
    assert "Nothing was charged." in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore::dplda.privacy.LowSignalWarning")
def test_a_service_without_input_and_output_fits(notes, tmp_path, monkeypatch):
    """Python sets closed streams to None."""
    monkeypatch.setattr("sys.stdin", None)
    monkeypatch.setattr("sys.stdout", None)
    assert main(notes) == 0
    assert (tmp_path / "m").exists()


def test_an_error_names_the_public_file_that_cannot_be_decoded(notes, tmp_path, capsys):
    path = tmp_path / "list"
    path.write_bytes(b"M\xfcnchen")
    for option in (["--stop-words"], ["--by", "text", "--levels"]):
        assert main([*notes, *option, str(path)]) == 1
        assert "list is not encoded in utf-8" in capsys.readouterr().err
    assert not (tmp_path / "notes.csv.ledger").exists()


def test_scripts_are_not_asked(notes, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", pytest.fail)
    assert main([*notes, "--yes"]) == 0
    assert "Expected of 1,000 texts" in capsys.readouterr().out


def test_public_texts_are_the_prior_and_cost_nothing(fitted, tmp_path):
    write_notes(tmp_path / "public", load_wordnet_glosses().data[400:600])
    code = main(
        [
            "fit",
            str(fitted[0]),
            "--epsilon",
            "6",
            "--user-column",
            "patient",
            *SMALL,
            "--out",
            str(tmp_path / "m"),
            "--public-texts",
            str(tmp_path / "public"),
        ]
    )
    assert code == 0
    plain, informed = (
        load_release(path).privacy_ for path in (fitted[1], tmp_path / "m")
    )
    assert plain.events == informed.events
    assert dict(informed.provenance)["public prior"].startswith("public by declaration")
    assert "public prior" not in dict(plain.provenance)


def test_public_texts_are_none_of_the_private_ones(tmp_path, capsys):
    write_notes(tmp_path / "notes")
    write_notes(tmp_path / "public", ["a tree", "", TEXTS[0]])
    fit = [
        "fit",
        f"{tmp_path}/notes",
        "--epsilon",
        "1",
        "--out",
        f"{tmp_path}/m",
        *SMALL,
    ]
    for folder in ("notes", "notes/ward", "", "public"):
        assert main([*fit, "--public-texts", f"{tmp_path}/{folder}"]) == 1
        assert "are among the private texts" in capsys.readouterr().err
    assert Ledger(tmp_path / "notes.ledger").epsilon_spent == 0


@pytest.mark.filterwarnings("error::dplda.privacy.PrivateDataWarning")
def test_ids_that_stand_for_missing_ones_are_told(tmp_path, monkeypatch):
    """Each person behind one id is a part of a user, with a larger epsilon."""

    def end(*_, **__):
        raise KeyboardInterrupt

    # all has been read and told
    monkeypatch.setattr(Ledger, "begin_release", end)
    fit = ["fit", str(tmp_path / "a.csv"), "--user-column", "patient", "--epsilon", "1"]
    write_table(tmp_path / "a.csv", ["text"] * 2, ["ann", "nancy"])
    fit += ["--out", str(tmp_path / "m")]
    assert main(fit) == 130
    write_table(tmp_path / "a.csv", ["text"] * 4, ["ann", "NA", "nan", "Null"])
    with pytest.warns(
        PrivateDataWarning, match="^3 texts have an id such as NA or NULL"
    ):
        assert main(fit) == 130


def test_two_columns_of_ids_are_two_units_of_one_ledger(tmp_path, capsys):
    """What a fit costs a household is not what it costs a person in it."""
    rows = [
        (f"a note of {word}", f"p{i}", f"h{i // 3}")
        for i, word in enumerate(["heart", "lung", "bone"] * 3)
    ]
    write_csv(tmp_path / "a.csv", ("text", "person", "household"), rows)
    job = ["fit", str(tmp_path / "a.csv"), "--epsilon", "1", "--budget", "9", *SMALL]
    persons = [*job, "--out", str(tmp_path / "m"), "--user-column", "person"]
    assert main(persons) == 0
    count = ["counts", str(tmp_path / "m"), *job[1:6], "--out", str(tmp_path / "c")]
    (tmp_path / "levels").write_text("h0\nh1\nh2\n")
    count += ["--by", "household", "--levels", str(tmp_path / "levels")]
    assert main([*count, "--user-column", "person"]) == 0
    capsys.readouterr()
    for other in (job, count):
        names = ["--out", str(tmp_path / "x"), "--user-column", "household"]
        assert main([*other, *names]) == 1
        assert "one user by 'person'" in capsys.readouterr().err
    assert len(Ledger(tmp_path / "a.csv.ledger").entries()) == 2


def test_an_interrupted_count_says_what_is_spent(fitted, capsys, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Curator, "release", interrupted)
    (tmp_path / "levels").write_text("p0\np1\n")
    texts = shutil.copy(fitted[0], tmp_path)  # the ledger is beside it
    job = ["counts", fitted[1], texts, "--user-column", "patient", "--by", "patient"]
    job += ["--levels", tmp_path / "levels", "--out", tmp_path / "c"]
    assert main([*map(str, job), "--epsilon", "1", "--budget", "3"]) == 130
    said = capsys.readouterr().err
    assert re.search("interrupted.* whole plan is spent: .* epsilon 1 of 3", said)
    assert Ledger(f"{texts}.ledger").epsilon_spent == pytest.approx(1, abs=0.01)


def test_what_would_fail_at_the_end_is_noticed_at_once(capsys, tmp_path):
    fit = ("fit", tmp_path, "--epsilon", "1", "--out")
    code, error = refused(capsys, *fit, tmp_path / "missing" / "m")
    assert (code, "cannot be written" in error) == (1, True)
    write_table(tmp_path / "a.csv")
    code, error = refused(
        capsys, "fit", tmp_path / "a.csv", *fit[2:], tmp_path / "a.csv"
    )
    assert (code, "may have been paid for" in error) == (1, True)
    code, error = refused(
        capsys, "fit", tmp_path, "--epsilon", "-1", "--out", tmp_path / "m"
    )
    assert (code, "--epsilon must be a number" in error) == (1, True)
    code, error = refused(
        capsys, "fit", tmp_path, "--epsilon", "1", "--out", os.devnull
    )
    assert (code, "is not a regular file" in error) == (1, True)


def test_options_of_counts_without_groups_are_refused(notes, tmp_path, capsys):
    for option in (["--cross"], ["--counts-share", "0.3"]):
        code, error = refused(capsys, *notes, *option)
        assert (code, f"{option[0]} needs groups" in error) == (1, True)
    assert not (tmp_path / "notes.csv.ledger").exists()
    plan = ("plan", "--n-docs", "900", "--counts-share", "0.3")
    assert "--counts-share needs groups" in refused(capsys, *plan)[1]


def test_features_are_private_and_in_the_order_of_the_texts(
    fitted, capsys, tmp_path, monkeypatch
):
    table, model, _ = fitted
    monkeypatch.setattr("dplda.core._splitter.BLOCK_CHARACTERS", 5000)
    out = tmp_path / "features.csv"
    assert (
        main(
            ["transform", str(model), str(table), "--id-column", "n", "--out", str(out)]
        )
        == 0
    )
    assert "as private as the texts" in " ".join(capsys.readouterr().out.split())
    if sys.platform != "win32":
        assert stat.S_IMODE(out.stat().st_mode) == 0o600
    with open(out, newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["n", "topic_0", "topic_1", "topic_2"]
    assert [row[0] for row in rows] == [str(n) for n in range(400)]
    expected = load_release(model).transform(read_texts(table).texts)
    np.testing.assert_allclose(np.array(rows, float)[:, 1:], expected, rtol=1e-5)
    array = out.with_suffix(".npy")
    code, error = transformed_to(capsys, model, table, "--id-column", "n", out=array)
    assert (code, "leave --id-column out" in error) == (1, True)
    assert transformed_to(capsys, model, table, out=array) == (0, "")
    np.testing.assert_array_equal(np.load(array), expected, strict=True)
    if sys.platform != "win32":
        assert stat.S_IMODE(array.stat().st_mode) == 0o600


def transformed_to(capsys, model, table, *options, out):
    """The exit code, and what is wrong."""
    code = main(["transform", str(model), str(table), *options, "--out", str(out)])
    return code, " ".join(capsys.readouterr().err.split())


def test_another_language_brings_its_list_and_its_stop_words(tmp_path):
    pytest.importorskip("wordfreq")
    texts = ["der befund ist unauffällig und die lunge belüftet"] * 200
    table = write_table(tmp_path / "notes.csv", texts, map(str, range(200)))
    fit = [
        "fit",
        str(table),
        "--language",
        "de",
        "--epsilon",
        "8",
        "--n-components",
        "2",
    ]
    assert main([*fit, "--max-features", "50", "--out", str(tmp_path / "m")]) == 0
    words = set(load_release(tmp_path / "m").vocabulary_)
    assert "belüftet" in words - set(load_public_vocabulary(None, language="de"))
    assert not words & {"und", "der", "die", "ist"}
