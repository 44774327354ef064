"""What an operator relies on: logs without data, checks, backups and signatures (operations.md)."""

import ast
import io
import json
import logging
import math
import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sklearn.pipeline import make_pipeline

import dplda
from dplda import HDPLDA, PrivateCountVectorizer, PrivateSVILDA, SubLDA, load_release, save_release
from dplda.__main__ import main
from dplda.privacy import BudgetError, Gaussian, Ledger, epsilon_of

ROOT = Path(dplda.__file__).parent
PAGE = (Path(__file__).parents[1] / "docs" / "operations.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
CANARIES = ["xyzzycanary", "plughcanary"]


@pytest.fixture
def log():
    """All records of dplda, at every level."""
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logger = logging.getLogger("dplda")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield records
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "privacy.sqlite")


def charge(ledger, label="fit", multiplier=2.0):
    entry = ledger.reserve(label, "document", Gaussian(multiplier))
    ledger.begin_release(entry)
    ledger.confirm(entry)
    return entry


# ---- logs ---------------------------------------------------------------------------------


def everything(X, tmp_path):
    """Fits of all kinds of training, a refused one, a canceled one, and a release."""
    for estimator in (SubLDA, PrivateSVILDA, HDPLDA):
        ledger = Ledger(tmp_path / estimator.__name__, epsilon=2.0)
        model = estimator(2, epsilon=1.0, max_iter=2, ledger=ledger).fit(X)
        save_release(model, tmp_path / "topics.dplda")
        with pytest.raises(BudgetError):
            model.set_params(epsilon=10.0).fit(X)
        bad = X.astype(float)
        bad[0, 0] = np.nan
        with pytest.raises(ValueError, match="NaN"):
            model.set_params(epsilon=0.1).fit(bad)
    SubLDA(2, epsilon=0.5, max_iter=2, ledger=tmp_path / "SubLDA").partial_fit(X)
    load_release(tmp_path / "topics.dplda")


def without_identities(records):
    """The records less what is random in each ledger."""
    fields = [dict(record.dplda) | {"level": record.levelname} for record in records]
    return [{k: v for k, v in f.items() if k not in ("ledger", "receipt")} for f in fields]


def test_fits_of_other_documents_give_the_same_log(log, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.integers(1, 9, (12, 5))
    for name, matrix in (("a", X), ("b", X[:, ::-1][::-1].copy())):
        (tmp_path / name).mkdir()
        everything(matrix, tmp_path / name)
    half = len(log) // 2
    assert len(log) == 2 * half > 40
    assert without_identities(log[:half]) == without_identities(log[half:])
    assert {f["event"] for f in without_identities(log)} == {
        "budget charged", "budget refused", "charge releasing", "charge confirmed",
        "charge canceled", "model fitted", "release saved", "release loaded",
    }  # fmt: skip


def test_no_log_holds_a_word_a_count_or_a_folder(log, tmp_path):
    texts = [f"plum pear {CANARIES[i % 2]} {CANARIES[0]}" for i in range(137)]
    folder = tmp_path / "secretfolder"
    folder.mkdir()
    ledger = Ledger(folder / "privacy.sqlite", data="notes")
    vectorizer = PrivateCountVectorizer(epsilon=1.0, candidates=["plum", *CANARIES], ledger=ledger)
    counts = vectorizer.fit_transform(texts)
    with pytest.warns(dplda.privacy.SeededNoiseWarning):
        model = SubLDA(2, epsilon=1.0, max_iter=2, ledger=ledger, random_state=986543).fit(counts)
    with pytest.warns(dplda.privacy.PrivacyLeakWarning):
        save_release(dplda.SubLDA(2, epsilon=np.inf, max_iter=1).fit(counts), folder / "m.dplda")
    assert model.n_iter_ == 2
    text = "\n".join(f"{record.getMessage()} {vars(record)}" for record in log)
    events = {record.dplda["event"] for record in log}
    assert {"budget charged", "noise seeded", "model fitted", "release saved"} <= events
    for secret in (*CANARIES, "plum", "secretfolder", "986543"):
        assert secret not in text
    said = [value for record in log for value in record.dplda.values()]
    assert not {137, 137 * 4, counts.nnz, int(counts.sum())} & {v for v in said if type(v) is int}


def test_a_charge_is_logged_with_its_price_and_a_receipt(log, path):
    ledger = Ledger(path, epsilon=4.0)
    charge(ledger, "one\nline")
    said = log[0].dplda
    assert said["epsilon"] == epsilon_of(Gaussian(2.0), ledger.delta)
    assert (said["entry"], said["budget"], said["label"]) == (1, 4.0, "one\nline")
    assert said["receipt"] == ledger.receipt
    assert "\n" not in log[0].getMessage()
    assert [record.dplda["event"] for record in log[1:]] == ["charge releasing", "charge confirmed"]


def test_a_log_that_fails_does_not_end_a_fit(log, path, monkeypatch):
    def fail(self):
        raise TimeoutError

    ledger = Ledger(path)
    monkeypatch.setattr(Ledger, "receipt", property(fail))
    assert charge(ledger) == 1
    assert [e.status for e in ledger.entries()] == ["confirmed"]


def test_nothing_is_printed_or_computed_unless_somebody_asks_for_a_log(path, capfd, monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError

    ledger = Ledger(path)
    monkeypatch.setattr("dplda.privacy._ledger.epsilon_of", fail)
    charge(ledger)
    assert capfd.readouterr() == ("", "")


def test_the_page_lists_every_event_and_field():
    fields, events = set(), set()
    sources = [file.read_text("utf-8") for file in ROOT.rglob("*.py")]
    for source in sources:
        for call in ast.walk(ast.parse(source)) if "log_event(" in source else ():
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "log_event":
                fields |= {keyword.arg for keyword in call.keywords} - {"level"}
                events |= {a.value for a in call.args[1:] if isinstance(a, ast.Constant)}
    assert events >= {"model fitted", "noise seeded"}
    assert fields == dplda.leaf._log.PUBLIC
    for name in fields | events:
        assert f"`{name}`" in PAGE


def test_the_formatter_of_the_page_writes_json(path):
    space = {}
    block = next(block for block in BLOCKS if "class JSON" in block)
    exec(block, space)
    try:
        space["handler"].setStream(stream := io.StringIO())
        charge(Ledger(path, epsilon=np.inf))
        lines = [json.loads(line) for line in stream.getvalue().splitlines()]
        assert lines[0]["event"] == "budget charged"
        assert (lines[0]["budget"], lines[0]["logger"]) == ("inf", "dplda.ledger")
    finally:
        space["log"].removeHandler(space["handler"])
        space["log"].setLevel(logging.NOTSET)


def test_the_program_of_the_page_logs_the_commands(path, tmp_path, monkeypatch):
    """It says what the command line says, and configures logging before."""
    block = next(block for block in BLOCKS if "import main" in block)
    charge(Ledger(path))
    monkeypatch.setattr(sys, "argv", ["logged.py", "ledger", "show", path])
    given = {}
    monkeypatch.setattr(logging, "basicConfig", lambda **options: given.update(options))
    with pytest.raises(SystemExit) as ended:
        exec(block, {})
    assert (ended.value.code, given["level"]) == (0, logging.INFO)


# ---- check --------------------------------------------------------------------------------


def test_check_exits_with_0_within_and_1_above(path, capsys):
    ledger = Ledger(path, epsilon=4.0)
    charge(ledger)
    spent = ledger.epsilon_spent
    check = ["ledger", "check", path]
    assert main([*check, "--max-epsilon", repr(spent)]) == 0
    assert main([*check, "--max-epsilon", repr(math.nextafter(spent, 0))]) == 1
    assert main(check) == 0  # the budget
    assert main([*check, "--max-epsilon", repr(spent), "--delta", "1e-9"]) == 1
    printed = capsys.readouterr().out
    assert "within    epsilon" in printed
    assert "ABOVE     epsilon" in printed
    assert main([*check, "--max-epsilon", "inf", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["ok"], report["epsilon_spent"], report["max_epsilon"]) == (True, spent, "inf")


def test_check_takes_the_budget_of_an_adaptive_ledger(path):
    ledger = Ledger(path, epsilon=3.0, composition="adaptive")
    charge(ledger, multiplier=9.0)
    assert main(["ledger", "check", path]) == 0
    assert main(["ledger", "check", path, "--max-epsilon", "2.9"]) == 1  # all of it is promised
    assert main(["ledger", "check", path, "--max-epsilon", "3", "--delta", "1e-9"]) == 1


def test_check_exits_with_2_for_what_it_cannot_read(path, tmp_path, capsys):
    (tmp_path / "text").write_text("hello")
    charge(Ledger(path))
    missing = str(tmp_path / "missing")
    for arguments in (
        [missing], [str(tmp_path / "text")], [path, "--releases", str(tmp_path / "text")],
        [path, "--releases", missing], [path, "--receipt", "7"],
    ):  # fmt: skip
        assert main(["ledger", "check", *arguments]) == 2
        printed = capsys.readouterr()
        assert (printed.out, printed.err.startswith("error: ")) == ("", True)
    assert not os.path.exists(missing)
    for wrong in ("nan", "-1", "x"):
        with pytest.raises(SystemExit, match="2"):
            main(["ledger", "check", path, "--max-epsilon", wrong])


# ---- backup and receipts ------------------------------------------------------------------


def test_a_receipt_stands_for_the_entries_that_came_first(path):
    ledger = Ledger(path)
    receipts = [ledger.receipt]
    for _ in range(3):
        charge(ledger)
        receipts.append(ledger.receipt)
    assert len(set(receipts)) == 4
    assert all(ledger.has(receipt) for receipt in receipts)
    assert not any(Ledger().has(receipt) for receipt in receipts)
    assert receipts[2].startswith(f"{ledger.id[:8]}-2-")
    assert Ledger(path).has(receipts[3])
    for wrong in ("", "x", receipts[1] + "0", receipts[1].upper() + "\n"):
        with pytest.raises(ValueError, match="no receipt of a ledger"):
            ledger.has(wrong)


def test_statuses_do_not_change_a_receipt(path):
    ledger = Ledger(path)
    entry = ledger.reserve("fit", "document", Gaussian(2.0))
    receipt = ledger.receipt
    ledger.cancel(entry)
    assert ledger.receipt == receipt


def test_a_backup_is_a_complete_ledger_that_only_its_owner_can_read(path, tmp_path, capsys):
    ledger = Ledger(path, epsilon=4.0, data="notes")
    charge(ledger)
    copy = str(tmp_path / "copy")
    assert main(["ledger", "backup", path, copy]) == 0
    assert ledger.receipt in capsys.readouterr().out
    assert Ledger(copy).entries() == ledger.entries()
    assert (Ledger(copy).epsilon, Ledger(copy).data) == (4.0, "notes")
    if os.name == "posix":
        assert stat.S_IMODE(os.stat(copy).st_mode) == 0o600
    for target in (copy, path):
        assert main(["ledger", "backup", path, target]) == 1
        assert "exists" in capsys.readouterr().err
    assert main(["ledger", "backup", str(tmp_path / "missing"), str(tmp_path / "other")]) == 1
    no_folder = str(tmp_path / "none" / "copy")
    capsys.readouterr()
    assert main(["ledger", "backup", path, no_folder]) == 1
    assert f"{no_folder} cannot be written" in capsys.readouterr().err
    assert Ledger(path).entries() == ledger.entries()


def test_restoring_an_old_copy_forgets_what_was_spent_and_this_is_noticed(path, tmp_path, capsys):
    X = np.array([[3, 1, 0], [0, 2, 4]])
    ledger, copy = Ledger(path), str(tmp_path / "copy")
    charge(ledger)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)  # what the command line of SQLite does
    first = str(tmp_path / "first.dplda")
    model = SubLDA(2, epsilon=1.0, max_iter=2, ledger=path).fit(X)
    save_release(model, first)
    spent, receipt = ledger.epsilon_spent, ledger.receipt
    check = ["ledger", "check", path, "--releases", first]
    assert load_release(first).privacy_.receipt == receipt
    assert main(check) == 0
    os.replace(copy, path)
    assert Ledger(path).epsilon_spent < spent  # nothing warns: the ledger cannot know
    assert main(check) == 1
    assert f"UNKNOWN   {first}: {receipt}" in capsys.readouterr().out
    SubLDA(2, epsilon=1.0, max_iter=2, ledger=path).fit(X)  # as much again, by another entry
    assert Ledger(path).epsilon_spent == pytest.approx(spent)
    assert main(check) == 1
    capsys.readouterr()
    assert main(["ledger", "check", path, "--json", "--receipt", receipt]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["receipts"] == [
        {"name": "receipt", "receipt": receipt, "known": False, "this_ledger": True}
    ]
    assert (report["ok"], report["max_epsilon"]) == (False, "inf")
    assert main(["ledger", "check", path, "--receipt", Ledger(path).receipt]) == 0


def test_a_release_without_a_ledger_is_unknown_to_every_ledger(path, tmp_path, capsys):
    Ledger(path)
    file = str(tmp_path / "m.dplda")
    save_release(SubLDA(2, epsilon=1.0, max_iter=2).fit([[3, 1], [0, 2]]), file)
    assert main(["ledger", "check", path, "--releases", file]) == 1
    printed = capsys.readouterr().out
    assert "no receipt" in printed
    assert "charged to no ledger" in printed
    assert "lacks entries" not in printed


def test_a_receipt_of_another_ledger_is_called_so(path, capsys):
    ledger, other = Ledger(path), Ledger()
    charge(other)
    assert main(["ledger", "check", path, "--receipt", other.receipt]) == 1
    printed = capsys.readouterr().out
    assert "that of another ledger" in printed
    assert "lacks entries" not in printed
    lost = f"{ledger.id[:8]}-3-{'0' * 16}"  # of entries that a copy would have forgotten
    assert main(["ledger", "check", path, "--receipt", lost]) == 1
    printed = capsys.readouterr().out
    assert "lacks entries" in printed
    assert "another ledger" not in printed


def test_a_pipeline_has_the_receipt_after_its_last_step(path):
    ledger = Ledger(path)
    vectorizer = PrivateCountVectorizer(epsilon=1.0, candidates=["plum", "pear"], ledger=ledger)
    pipeline = make_pipeline(vectorizer, SubLDA(2, epsilon=1.0, max_iter=2, ledger=ledger))
    pipeline.fit(["plum pear", "pear"] * 20)
    receipt = dplda.pipeline_guarantee(pipeline).receipt
    assert receipt == ledger.receipt
    assert receipt.split("-")[1] == "2"


def test_show_prints_the_receipt(path, capsys):
    ledger = Ledger(path)
    charge(ledger)
    assert main(["ledger", "show", path]) == 0
    assert f"receipt    {ledger.receipt}" in capsys.readouterr().out


def test_the_backup_of_the_page_is_shown_as_it_says(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT.parent))
    exec(next(block for block in BLOCKS if "tuesday" in block), {})


def test_what_was_forgotten_is_charged_again_as_the_page_says(path, tmp_path):
    file = tmp_path / "m.dplda"
    model = SubLDA(2, epsilon=1.0, max_iter=2).fit([[3, 1], [0, 2]])
    save_release(model, file)
    space = {"dplda": dplda, "os": os}
    exec(next(block for block in BLOCKS if "charge_again" in block), space)
    ledger = Ledger(path)
    space["charge_again"](ledger, file)
    assert ledger.epsilon_spent == pytest.approx(model.epsilon_, abs=1e-9)


# ---- signatures ---------------------------------------------------------------------------


def write_keys(folder, name, key):
    private, public = folder / f"{name}.pem", folder / f"{name}.public.pem"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    private.chmod(0o600)
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return str(private), str(public)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return write_keys(tmp_path_factory.mktemp("keys"), "author", Ed25519PrivateKey.generate())


@pytest.fixture(scope="module")
def model():
    return SubLDA(2, epsilon=1.0, max_iter=2).fit([[3, 1], [0, 2]])


@pytest.fixture
def file(model, keys, tmp_path):
    path = tmp_path / "m.dplda"
    save_release(model, path, signing_key=keys[0])
    return path


def test_a_signed_release_loads_with_the_key_of_its_author(file, keys, model):
    assert (load_release(file, public_key=keys[1]).components_ == model.components_).all()
    assert main(["verify", str(file), "--key", keys[1]]) == 0


@pytest.mark.parametrize("command", ["topics", "report", "transform"])
def test_a_command_can_ask_for_the_signature(command, file, keys, tmp_path, capsys):
    more = [str(tmp_path / "texts.csv"), "--out", str(tmp_path / "x.csv")]
    (tmp_path / "texts.csv").write_text("text\nplum\n", "utf-8")
    arguments = [command, str(file), *(more if command == "transform" else [])]
    _, other = write_keys(tmp_path, "other", Ed25519PrivateKey.generate())
    assert main([*arguments, "--key", other]) == 1
    assert "is not signed by the key" in capsys.readouterr().err
    main([*arguments, "--key", keys[1]])
    assert "signed" not in capsys.readouterr().err


def test_a_release_that_was_changed_is_refused(file, keys, model):
    save_release(load_release(file), file)  # another file of the same form; the old signature stays
    file.write_bytes(file.read_bytes().replace(b'\\"n_iter\\":2', b'\\"n_iter\\":3'))
    assert main(["verify", str(file), "--key", keys[1]]) == 1
    with pytest.raises(ValueError, match="is not signed by the key"):
        load_release(file, public_key=keys[1])


def test_another_key_did_not_sign(file, tmp_path):
    _, public = write_keys(tmp_path, "other", Ed25519PrivateKey.generate())
    assert main(["verify", str(file), "--key", public]) == 1
    with pytest.raises(ValueError, match="is not signed by the key"):
        load_release(file, public_key=public)


def test_sign_writes_what_save_release_writes(file, keys, tmp_path, capsys):
    signature = tmp_path / "m.dplda.sig"
    expected = signature.read_bytes()
    signature.unlink()
    assert main(["sign", str(file), "--key", keys[0]]) == 0
    assert signature.read_bytes() == expected
    other = tmp_path / "other.sig"
    assert main(["sign", str(file), "--key", keys[0], "--signature", str(other)]) == 0
    signature.unlink()
    capsys.readouterr()
    assert main(["verify", str(file), "--key", keys[1], "--signature", str(other)]) == 0
    assert re.fullmatch(r"signed by the key with sha256 [0-9a-f]{64}\n", capsys.readouterr().out)
    for target in (str(file), keys[0]):  # no input is overwritten
        assert main(["sign", str(file), "--key", keys[0], "--signature", target]) == 1


def test_verify_exits_with_2_for_what_it_cannot_read(file, keys, tmp_path, capsys):
    short, missing = tmp_path / "short", str(tmp_path / "missing")
    short.write_bytes(b"0" * 63)
    for arguments in (
        [missing, "--key", keys[1]], [str(file), "--key", missing], [str(file), "--key", keys[0]],
        [str(file), "--key", keys[1], "--signature", str(short)],
        [str(file), "--key", keys[1], "--signature", missing],
    ):  # fmt: skip
        assert main(["verify", *arguments]) == 2
        assert capsys.readouterr().err.startswith("error: ")


def test_a_key_that_cannot_sign_is_refused_before_anything_is_written(model, keys, tmp_path):
    elliptic = write_keys(tmp_path, "elliptic", generate_private_key(SECP256R1()))
    secret = tmp_path / "secret.pem"
    secret.write_bytes(
        Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"password"),
        )
    )
    path = tmp_path / "m.dplda"
    for key, message in (
        (elliptic[0], "not one of Ed25519"),
        (secret, "is encrypted"),
        (keys[1], "holds no private key"),
    ):
        with pytest.raises(ValueError, match=message):
            save_release(model, path, signing_key=key)
    assert not path.exists()
    save_release(model, path, signing_key=keys[0])
    with pytest.raises(ValueError, match="not one of Ed25519"):
        load_release(path, public_key=elliptic[1])


@pytest.mark.skipif(os.name != "posix", reason="Windows has access lists")
@pytest.mark.parametrize("rights", [0o604, 0o640, 0o620, 0o644, 0o777])
def test_a_key_that_others_can_use_signs_nothing(model, file, tmp_path, capsys, rights):
    key, public = write_keys(tmp_path, "it's open", Ed25519PrivateKey.generate())
    Path(key).chmod(rights)
    path, before = tmp_path / "n.dplda", Path(f"{file}.sig").read_bytes()
    with pytest.raises(PermissionError, match=rf"other users .* \(permissions {rights:04o}\)"):
        save_release(model, path, signing_key=key)
    assert not path.exists()
    capsys.readouterr()
    assert main(["sign", str(file), "--key", key]) == 1
    error = capsys.readouterr().err
    assert Path(f"{file}.sig").read_bytes() == before
    command = re.search("run: (chmod 600 .*), and make a new key", error)[1]
    subprocess.run(command, shell=True, check=True)  # what the message says to do
    assert main(["sign", str(file), "--key", key]) == 0
    assert main(["verify", str(file), "--key", public]) == 0


@pytest.mark.skipif(os.name != "posix", reason="Windows has access lists")
def test_a_key_of_the_administrator_is_theirs_to_share(model, tmp_path, monkeypatch):
    """For instance with a group of services, or as a file of a container."""
    key, _ = write_keys(tmp_path, "shared", Ed25519PrivateKey.generate())
    Path(key).chmod(0o640)
    owner = os.stat(key).st_uid
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    save_release(model, tmp_path / "n.dplda", signing_key=key)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
@pytest.mark.parametrize("page", ["operations", "federated"])
def test_the_keys_of_the_pages_are_those_of_their_owner_alone(page, tmp_path):
    """Also where new files can be read by everyone."""
    path = Path(__file__).parents[1] / "docs" / f"{page}.md"  # not next to the package of a wheel
    text = path.read_text("utf-8").replace("\\\n", "")
    makes = "req -x509|genpkey"
    commands = re.findall(rf"^openssl (?:{makes}) [^#\n]*", text, flags=re.MULTILINE)
    assert commands
    script = " && ".join(["umask 022", *commands])
    subprocess.run(["sh", "-c", script], cwd=tmp_path, check=True, capture_output=True)
    keys = [path for path in tmp_path.iterdir() if b"PRIVATE KEY" in path.read_bytes()]
    assert len(keys) == len(commands)
    assert {path.stat().st_mode & 0o777 for path in keys} == {0o600}


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_openssl_reads_and_writes_the_same_signatures(file, keys, tmp_path):
    commands = re.findall(r"^openssl pkeyutl .*$", PAGE, flags=re.MULTILINE)
    names = {"key.pem": keys[0], "public.pem": keys[1], "topics.dplda.sig": f"{file}.sig"}
    for command in reversed(commands):  # verify ours, then sign
        words = [names.get(word, word) for word in command.split()]
        words = [str(file) if word == "topics.dplda" else word for word in words]
        run = subprocess.run(words, capture_output=True, text=True, check=False)
        if "not supported" in run.stderr or "-rawin" in run.stderr:
            pytest.skip("this openssl has no Ed25519 on its command line")
        assert run.returncode == 0, run.stderr
    assert len(commands) == 2
    assert main(["verify", str(file), "--key", keys[1]]) == 0
