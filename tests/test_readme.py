"""The README: its code runs from top to bottom, and its commands are those that are run."""

import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression

import dplda
from dplda import ReleasedModel
from dplda.datasets import load_wordnet_glosses

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
CORPUS = "3\n4\n4\n1 1 2\n1 4 1\n3 2 5\n3 3 7\n"


def run(block, names):
    names.setdefault("__name__", "__main__")
    exec(compile(block, "README.md", "exec"), names)


@pytest.fixture
def user(tmp_path, monkeypatch):
    """The folder and the files of a user: a corpus of their own, and one that was downloaded."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    for name in ("mine", "kos"):
        # the reader tells compressed files by their content
        (tmp_path / f"docword.{name}.txt.gz").write_text(CORPUS)
        (tmp_path / f"vocab.{name}.txt").write_text("ab\ncd\nef\ngh\n")
    return tmp_path


def test_its_first_example_publishes_a_private_model_of_use(user):
    names = {}
    run(BLOCKS[0], names)
    released = dplda.load_release(user / "topics.dplda")
    assert 3.9 < released.privacy_.epsilon <= 4
    assert not released.privacy_.seeded
    # with topics as features, better than always the most frequent label
    texts, labels = load_wordnet_glosses(return_X_y=True)
    weights = released.transform(texts[:2000])
    model = LogisticRegression(max_iter=1000).fit(weights[:1000], labels[:1000])
    accuracy = model.score(weights[1000:], labels[1000:2000])
    assert accuracy > 2 * np.bincount(labels).max() / len(labels)


@pytest.mark.slow
def test_its_examples_run_in_their_order(user, capsys):
    names = {}
    for block in BLOCKS:
        if "from distributed" not in block or find_spec("distributed"):
            run(block, names)
    ledger = names["ledger"]
    assert all(entry.status == "confirmed" for entry in ledger.entries())
    assert 4 < ledger.epsilon_spent <= ledger.epsilon
    released = dplda.load_release(user / "topics.dplda")
    assert released.epsilon_ == dplda.pipeline_guarantee(names["model"]).epsilon
    np.testing.assert_allclose(names["weights"].sum(axis=1), 1.0)
    assert str(names["master"].components_.shape) in capsys.readouterr().out


def test_its_table_names_the_public_estimators():
    table = README.partition("## Estimators")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `(\w+)`", table, flags=re.MULTILINE)
    public = [getattr(dplda, name) for name in dplda.__all__]
    estimators = {c for c in public if isinstance(c, type) and issubclass(c, BaseEstimator)}
    assert sorted(named) == sorted(cls.__name__ for cls in estimators - {ReleasedModel})


def test_continuous_integration_runs_the_test_command():
    """Its two parts, in their order."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    pattern = re.search(r"grep -E '(.*)' README.md", script)[1]
    (found,) = [line for line in README.splitlines() if re.search(pattern, line)]
    assert f"```sh\n{found}\n```" in README
    assert found.endswith(" && .venv/bin/python -m pytest")
    install = script.index('bash -euo pipefail -c "$install"')
    assert install < script.index('"$offline" bash -euo pipefail -c "$tests"')
