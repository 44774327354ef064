"""Full disks: what fails before the first release is free, and what is paid is kept.

Small file systems are mounted where the system allows it. Elsewhere, files have a
limit.
"""

import contextlib
import os
import re
import subprocess
import tempfile

import numpy as np
import pytest
import scipy.sparse as sp
from test_from_files import SMALL, write_table

from dplda import PrivateTopicModel, SubLDA, load_release
from dplda.__main__ import main
from dplda.datasets import load_wordnet_glosses, write_shards
from dplda.document._shards import InProcess
from dplda.privacy import Ledger
from dplda.privacy.mechanisms import Recorder, record

resource = pytest.importorskip("resource")  # Windows has none
pytestmark = pytest.mark.filterwarnings("ignore")
N_DOCS = 203
K = 200  # topic weights take more room than counts
TEXTS = load_wordnet_glosses().data[:N_DOCS]
USERS = [i % 97 for i in range(N_DOCS)]
X = sp.csr_array(np.random.default_rng(0).poisson(0.2, (N_DOCS, 40)), dtype=np.float32)
PAGE = 4096  # bytes that a file of a small disk takes at a time


@pytest.fixture
def disk(tmp_path):
    """Mounts small file systems of so many pages, and yields their folder."""
    folder = tmp_path / "disk"
    folder.mkdir()

    @contextlib.contextmanager
    def mounted(n_pages):
        command = ["mount", "-t", "tmpfs", "-o", f"size={n_pages * PAGE}", "tmpfs"]
        try:
            subprocess.run([*command, str(folder)], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no small file system can be mounted here: {error}")
        try:
            yield folder
        finally:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)

    return mounted


def fill(folder):
    """Leave no room on a disk."""
    file = os.open(folder / "other", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with contextlib.suppress(OSError):
        while os.write(file, bytes(PAGE)):
            pass
    os.close(file)


class At(Recorder):
    """Does something right after a release; `labels` are those of all releases."""

    def __init__(self, number=0, action=None):
        self.labels = []
        self.number, self.action = number, action

    def announced(self, release):
        self.labels.append(release.label)
        if len(self.labels) == self.number:
            self.action()


@pytest.fixture
def in_shards(monkeypatch):
    """Texts go to shards although they are few."""
    monkeypatch.setattr("dplda.text._counted.IN_MEMORY", 500)
    monkeypatch.setattr("dplda.core._splitter.BLOCK_CHARACTERS", 3000)
    monkeypatch.setattr("dplda.document._shards.PLACE", 512)
    monkeypatch.setattr(write_shards, "__kwdefaults__", SMALL_SHARDS)


SMALL_SHARDS = write_shards.__kwdefaults__ | {"rows_per_shard": 40}


def of_texts(ledger=None, **options):
    model = PrivateTopicModel(
        K, epsilon=6, max_features=40, model=SubLDA(max_iter=3), ledger=ledger
    )
    return model.set_params(random_state=0, word_vectors=None, **options)


def fits(kind, folder):
    """A model, and what fits it from the disk; `folder` is another one."""
    if kind == "counts":
        model = SubLDA(K, epsilon=4, max_iter=3, random_state=0)
        shards = write_shards(X, folder / "shards", rows_per_shard=40)
        return model, lambda: model.fit(shards)
    model, ids = of_texts(), USERS if kind == "users" else None
    return model, lambda: model.fit(iter(TEXTS), user_ids=ids)


def check_sizes(kind, folder, disk, monkeypatch, sizes):
    """Disks of all sizes refuse a fit before it is charged, or are large enough."""
    model, fit = fits(kind, folder)
    outcomes = set()
    for size in sizes:
        model.set_params(ledger=Ledger())
        with disk(size) as small, monkeypatch.context() as patch, record(At()) as tape:
            patch.setattr(tempfile, "tempdir", str(small))
            try:
                fit()
                message = ""
            except OSError as error:
                message = str(error)
            assert not any(small.iterdir())
        (entry,) = model.ledger.entries()
        if message:
            assert re.match(f"{small}.* cannot be written: No space left", message)
            assert "TMPDIR" in message
            assert tape.labels == []
            assert entry.status == "canceled"
            assert not hasattr(model, "components_")
        else:
            assert entry.status == "released"
            outcomes.add(model.components_.tobytes())
        outcomes.add(bool(message))
    assert {True, False} < outcomes
    assert len(outcomes) == 3  # one model, whatever the disk


SIZES = {
    "texts": range(10, 94, 8),
    "users": range(20, 94, 9),
    "counts": range(4, 64, 6),
}


@pytest.mark.parametrize("kind", SIZES)
def test_a_disk_refuses_a_fit_before_it_is_charged_or_is_large_enough(
    kind, disk, tmp_path, monkeypatch, in_shards
):
    check_sizes(kind, tmp_path, disk, monkeypatch, SIZES[kind])


def test_the_check_finds_room_that_is_not_reserved(
    disk, tmp_path, monkeypatch, in_shards
):
    monkeypatch.setattr(InProcess, "with_room", lambda *_, **__: InProcess())
    with pytest.raises(AssertionError):
        check_sizes("counts", tmp_path, disk, monkeypatch, SIZES["counts"])


@contextlib.contextmanager
def limited():
    """Yields what puts an end to files that are not short."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    ("number", "n_iter", "kept"),
    [
        (1, None, "the chosen words are in vectorizer_"),
        (3, None, "the chosen words are in vectorizer_"),
        (4, 1, "what was released before is in the fitted attributes"),
    ],
)
def test_a_disk_that_fails_after_the_charge_takes_no_release_away(
    number, n_iter, kept, tmp_path, monkeypatch, in_shards
):
    """After the words, the word totals, and a round."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    model = of_texts(ledger=Ledger())
    refused = pytest.raises(OSError, match="File too large")
    with limited() as limit, record(At(number, limit)) as tape, refused as ended:
        model.fit(iter(TEXTS))
    assert len(tape.labels) == number
    assert [entry.status for entry in model.ledger.entries()] == ["released"]
    assert len(model.vectorizer_.get_feature_names_out()) == 40
    assert getattr(model, "n_iter_", None) == n_iter
    assert hasattr(model, "components_") == (n_iter is not None)
    (note,) = ended.value.__notes__
    assert "the whole plan is spent: <Ledger" in note
    assert note.endswith(kept)
    assert not re.search(r"\d{4}", str(ended.value).replace(str(tmp_path), ""))
    assert not any(tmp_path.iterdir())


def check_ledger(disk):
    """A full disk of the ledger refuses the charge, and keeps no entry that counts."""
    with disk(60) as small:
        model = of_texts(ledger=Ledger(small / "privacy.sqlite"))

        def texts():
            yield from TEXTS
            fill(small)

        refused = pytest.raises(OSError, match=r"privacy.sqlite cannot be used.* full")
        with record(At()) as tape, refused:
            model.fit(texts())
        assert tape.labels == []
        assert [entry.status for entry in model.ledger.entries()] == ["canceled"]
        (small / "other").unlink()
        assert model.fit(TEXTS).n_iter_ == 3


def test_a_full_disk_of_the_ledger_gives_the_charge_back(disk):
    check_ledger(disk)


def test_the_check_finds_a_ledger_that_reserves_no_room(disk, monkeypatch):
    monkeypatch.setattr(
        "dplda.privacy._charge.nameless", lambda *_: contextlib.nullcontext()
    )
    with pytest.raises(AssertionError):
        check_ledger(disk)


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_command_has_room_for_its_model_on_a_disk_that_becomes_full(
    is_interrupted, disk, tmp_path, capsys
):
    table = write_table(tmp_path / "notes.csv", TEXTS, map(str, range(N_DOCS)))
    with disk(120) as small:
        out = small / "topics.dplda"

        def ends():
            fill(small)
            if is_interrupted:
                raise KeyboardInterrupt

        with record(At(6, ends)):
            code = main(
                ["fit", str(table), "--epsilon", "4", "--out", str(out), *SMALL]
            )
        said = capsys.readouterr()
        assert code == (130 if is_interrupted else 0)
        assert "cannot be written" not in said.err
        assert out.name in (said.err if is_interrupted else said.out)
        assert load_release(out).components_.shape[0] == 3
        assert sorted(os.listdir(small)) == ["other", "topics.dplda"]


def test_weights_that_find_no_room_leave_the_old_file(disk, tmp_path, capsys):
    table = write_table(tmp_path / "notes.csv", TEXTS, map(str, range(N_DOCS)))
    model = of_texts().fit(TEXTS)
    model.save(tmp_path / "m")
    with disk(5) as small:
        out = small / "weights.npy"
        out.write_bytes(b"old")
        with pytest.raises(OSError, match=f"^{out} cannot be written: No space left"):
            model.transform(iter(TEXTS), out=out)
        job = ["transform", str(tmp_path / "m"), str(table), "--out"]
        for name in ("weights.npy", "weights.csv"):
            assert main([*job, str(small / name)]) == 1
            said = capsys.readouterr().err
            assert f"{small / name} cannot be written: No space left on" in said
        assert out.read_bytes() == b"old"
        assert os.listdir(small) == ["weights.npy"]


def test_shards_of_about_the_same_size_share_places_on_the_disk():
    """Each has other numbers of documents, as shards of long documents or of users."""
    n_docs = range(6000, 6300, 2)
    engine = InProcess()
    weights = [[np.zeros((n, 25), np.float32)] for n in n_docs]
    waiting = [engine.submit(lambda each=each: each) for each in weights]
    for i, each in enumerate(weights):  # the old one is forgotten once this is written
        waiting[i] = engine.submit(lambda each=each: each)
    assert engine._end < 1.3 * sum(each.nbytes for (each,) in weights)
    engine.close()
