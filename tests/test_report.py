"""`dplda report`: what it states, what it asks, and that it claims no conformity."""

import json
import re

import pytest

from dplda import SubLDA, load_release, save_release
from dplda.__main__ import main
from dplda.cli._report import OWNER, checklist
from dplda.privacy import PrivacyLeakWarning, SeededNoiseWarning

X = [[3, 1, 0], [0, 2, 2]] * 20


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "topics.dplda"
    save_release(SubLDA(2, noise_multiplier=9.0, max_iter=3).fit(X), path)
    return path


def report(capsys, path, *options):
    assert main(["report", str(path), *options]) == 0
    return capsys.readouterr().out


def test_all_forms_hold_the_card_the_checklist_the_axes_and_the_entry(capsys, file):
    guarantee = load_release(file).privacy_
    text, markdown = (
        " ".join(report(capsys, file, f"--format={f}").split()) for f in ("text", "markdown")
    )
    for row, answer, question in checklist(guarantee):
        for page in (text, markdown):
            assert row in page
            assert " ".join(answer.split()) in page
            assert question in page
    found = re.findall(r"in at most ([\d.]+) of 100 cases", text)
    assert len(found) == 4  # the card, the checklist, the axes and the entry
    assert len(set(found)) == 1
    assert "| strength |" in markdown
    assert "no statement of conformity" in text
    assert f"utility: {OWNER}" in text


def test_json_holds_every_field_of_the_guarantee(capsys, file):
    whole, guarantee = (
        json.loads(report(capsys, file, "--format", "json")),
        load_release(file).privacy_,
    )
    assert whole["guarantee"] == guarantee.to_dict()
    assert len(whole["checklist"]) == 9
    assert set(whole["axes"]) == {"privacy", "utility", "trusted parties"}
    entry = whole["registry"]["deployment"]
    assert entry["privacy_loss"]["privacy_parameters"] == {
        "epsilon": guarantee.epsilon, "delta": 1e-6,
    }  # fmt: skip
    assert entry["model"]["model_name"] == "Document"
    assert entry["product"]["data_curators"] == [OWNER]


def test_a_model_without_privacy_and_a_seed_are_named(capsys, tmp_path):
    path = tmp_path / "topics.dplda"
    with pytest.warns(PrivacyLeakWarning):
        save_release(SubLDA(2, epsilon=float("inf"), max_iter=3).fit(X), path)
    text = report(capsys, path)
    assert "no privacy guarantee" in text
    assert "finds one document in at most 100 of 100" in " ".join(text.split())
    with pytest.warns(SeededNoiseWarning):
        model = SubLDA(2, noise_multiplier=9.0, max_iter=3, random_state=0).fit(X)
    with pytest.warns(PrivacyLeakWarning):
        save_release(model, path)
    assert "nothing holds against anyone who knows it" in " ".join(report(capsys, path).split())


@pytest.mark.parametrize("content", [None, b"", b"no release"])
def test_errors_are_one_line(capsys, tmp_path, content):
    path = tmp_path / "topics.dplda"
    if content is not None:
        path.write_bytes(content)
    assert main(["report", str(path)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
