"""The page of a release: what it is made of, what it says, and what it cannot do."""

import asyncio
import base64
import copy
import dataclasses
import hashlib
import html
import json
import math
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM, tab

from dplda import (
    GibbsLDA,
    PrivateTopicModel,
    ReleasedModel,
    SubLDA,
    load_counts,
    load_release,
    private_topic_counts,
    save_release,
)
from dplda.__main__ import main
from dplda.datasets import load_wordnet_glosses, make_topic_corpus
from dplda.displays import report
from dplda.privacy import epsilon_of

V, K = 60, 4
HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>alert(2)",
    '"><svg onload=alert(3)>',
    "'; alert(4)//",
    "\u2028alert(5)",
    "\u202eevil",
    "&lt;b&gt;",
    "{{DATA}}",
    "\x00null",
    "http://example.org/x.png",
    "\ud800",
    "a" * 5000,
    "<style>*{display:none}",
    "<form action=//example.org><input name=q>",
    "javascript:alert(6)",
]


@pytest.fixture(scope="module")
def X():
    return make_topic_corpus(600, V, K, random_state=0).data


@pytest.fixture(scope="module")
def path(X, tmp_path_factory):
    """A release of which three topics are shown, with noise that is known."""
    model = SubLDA(K, epsilon=4.0, max_iter=10).fit(X)
    table = np.ones((K, V))
    for k in range(K):
        table[k, 15 * k : 15 * (k + 1)] = 100.0 - np.arange(15)
    table *= np.array([[1.0], [3.0], [2.0], [1.5]])
    model.components_ = table
    model.components_std_ = np.full(V, 2.0)
    model.topic_evidence_ = np.array([9.0, 9.0, 9.0, 0.1])
    model.weak_topics_ = np.array([False, False, False, True])
    path = tmp_path_factory.mktemp("release") / "topics.dplda"
    save_release(model, path, vocabulary=[f"word{v}" for v in range(V)])
    return path


@pytest.fixture
def released(path):
    return load_release(path)


def counted(model, X, n_groups=3, **options):
    group = np.arange(X.shape[0]) % n_groups
    levels = {"ward": [str(g) for g in range(n_groups)]}
    given = {"epsilon": 1.0, "by": {"ward": group}, "levels": levels} | options
    return private_topic_counts(model, X, **given)


class Elements(HTMLParser):
    """Names and attributes of all elements, and the text."""

    def __init__(self, page):
        super().__init__()
        self.names, self.attributes, self.text = [], [], []
        self.feed(page)

    def handle_starttag(self, name, attributes):
        self.names.append(name)
        self.attributes += attributes

    def handle_data(self, data):
        self.text.append(data)


def data_of(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


def said(page):
    """What a reader reads, without the data and the script."""
    page = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)
    return html.unescape(re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", page)))


class Spy(ReleasedModel):
    """Writes down which fitted attributes are read of it."""

    read = set()
    sha256_ = "0" * 64  # of all of the file

    def __getattribute__(self, name):
        if name.endswith("_") and not name.startswith("_"):
            Spy.read.add(name)
        return super().__getattribute__(name)


def test_a_page_is_made_of_what_the_file_holds(released, X):
    """No attribute holds a text, and no argument can."""
    spy = Spy(released.doc_topic_prior)
    vars(spy).update(vars(released))
    counts = [counted(released, X)]
    Spy.read.clear()
    page = report(spy, counts=counts)
    assert Spy.read == {
        "components_",
        "components_std_",
        "counted_as_",
        "estimator_name_",
        "n_iter_",
        "n_units_",
        "names_",
        "parameters_",
        "privacy_",
        "sha256_",
        "topic_evidence_",
        "version_",
        "vocabulary_",
        "weak_topics_",
    }
    assert "<!doctype html>" in page
    fitted = SubLDA(2, epsilon=1.0, max_iter=2).fit(X)
    for other in (fitted, X, ["a text"], released.components_):
        with pytest.raises(TypeError, match="a report shows a released model"):
            report(other)


def test_the_same_release_makes_the_same_page(path, tmp_path, X):
    counts = counted(load_release(path), X)
    counts.save(tmp_path / "counts")
    again = load_counts(tmp_path / "counts")
    page = report(load_release(path), counts=[counts], names={1: "Heart"})
    assert page == report(load_release(path), counts=[again], names={1: "Heart"})
    load_release(path).report(
        tmp_path / "page.html", counts=[again], names={1: "Heart"}
    )
    assert (tmp_path / "page.html").read_bytes() == page.encode()
    assert hashlib.sha256(path.read_bytes()).hexdigest() in said(page)


def test_a_policy_lets_nothing_load_and_no_other_script_run(released):
    page = report(released)
    policy = html.unescape(re.search('Security-Policy" content="(.*?)">', page)[1])
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    for name, rule in (("script", "script-src"), ("style", "style-src")):
        (text,) = re.findall(f"<{name}>(.*?)</{name}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules.pop(rule) == f"'sha256-{digest}'"
    assert rules == dict.fromkeys(["default-src", "base-uri", "form-action"], "'none'")
    assert not re.search(r"url\(|@import|\bsrc=|style=|fetch|import\(", page)


@pytest.fixture
def hostile(released):
    """A release all of whose texts are hostile."""
    model = copy.copy(released)
    words = np.array([f"word{v}" for v in range(V)], object)
    words[: len(HOSTILE)] = HOSTILE
    model.vocabulary_ = words
    model.components_ = released.components_.copy()
    model.components_[:, : len(HOSTILE)] += 300
    model.parameters_ = {**released.parameters_, HOSTILE[0]: HOSTILE[2]}
    model.estimator_name_, model.version_ = HOSTILE[0], HOSTILE[1]
    model.names_ = {1: HOSTILE[0]}
    model.privacy_ = dataclasses.replace(
        released.privacy_,
        mechanism=HOSTILE[0],
        trusted=HOSTILE[1],
        receipt=HOSTILE[2],
        theorem=HOSTILE[14],
        ledger=HOSTILE[13],
        provenance=(("vocabulary", HOSTILE[0]), (HOSTILE[2], HOSTILE[1])),
        assumptions=tuple(HOSTILE),
    )
    return model


def hostile_page(model, X, monkeypatch):
    monkeypatch.setattr(type(model), "sha256_", "0" * 64)
    counts = counted(model, X)
    counts = dataclasses.replace(
        counts,
        counts={HOSTILE[0]: counts.counts["ward"]},
        levels={HOSTILE[0]: (HOSTILE[0], HOSTILE[2], HOSTILE[11])},
    )
    return report(model, title=HOSTILE[0], about=HOSTILE[1], counts=[counts])


def test_words_from_data_never_become_markup(hostile, released, X, monkeypatch):
    plain = Elements(report(released, about="a", counts=[counted(released, X)]))
    page = hostile_page(hostile, X, monkeypatch)
    found = Elements(page)
    allowed = {*plain.names}
    assert set(found.names) <= allowed
    for name in ("script", "style", "meta", "title", "h1"):
        assert found.names.count(name) >= plain.names.count(name)
    assert found.names.count("script") == 2
    assert not {"img", "iframe", "form", "input", "link"} & set(found.names) - allowed
    for name, value in found.attributes:
        assert not name.startswith("on")
        assert name not in ("src", "style", "srcset", "action")
        assert name != "href" or value.startswith("#")
    assert "{{DATA}}" in said(page)  # it is a word, and no slot
    words = [word["word"] for word in data_of(page)["words"]]
    assert HOSTILE[0] in words
    assert all(letter.isprintable() for letter in said(page))
    page.encode()  # no surrogate


def test_weak_topics_stand_at_the_end_and_are_not_counted(released, X):
    page = report(released, counts=[counted(released, X)])
    facts = data_of(page)
    assert [topic["topic"] for topic in facts["topics"]] == [1, 2, 0, 3]
    text = said(page)
    assert "Not shown to be more than noise: 1 of 4" in text
    assert "3 of 4" in text
    numbers = page[page.index('class="num"') :]
    rows = re.findall('<tr><th scope="row">(\\d) ', numbers)
    assert rows == ["1", "2", "0"]


def test_a_page_without_a_shown_topic_speaks_of_no_numbers_below(released, X):
    nothing = copy.copy(released)
    nothing.weak_topics_ = np.full(K, True)
    text = said(report(nothing, counts=[counted(released, X)]))
    assert "below" not in text
    assert "were counted" in text
    text = said(report(released, counts=[counted(released, X)]))
    assert "in the numbers below" in text


def test_a_page_says_what_a_user_counts_as_at_most(released, X):
    users = np.arange(X.shape[0]) // 2
    model = SubLDA(K, epsilon=4.0, max_iter=2).fit(X, user_ids=users)
    table = counted(model, X, user_ids=users, most_groups={"ward": 2})
    model = copy.copy(released)
    model.privacy_ = dataclasses.replace(
        released.privacy_, unit="user", relation=table.privacy_.relation
    )
    table = dataclasses.replace(table, counted_as=released.counted_as_)
    text = said(report(model, counts=[table]))
    assert "counts as one in each of at most 2 groups" in text
    assert "with several texts is divided among them" not in text


@pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")
@pytest.mark.filterwarnings("ignore:.* drew its noise from a random_state")
def test_a_page_adds_up_seeded_counts_of_the_fit_itself(tmp_path):
    """Their seeds differ. Those of a later count may be equal."""
    texts = ["apple pear", "plum fig", "apple fig"] * 60
    model = PrivateTopicModel(
        2, epsilon=4.0, vocabulary=["apple", "fig", "pear", "plum"], random_state=0
    ).set_params(model=SubLDA(max_iter=2))
    given = {"by": {"day": ["a", "b"] * 90}, "levels": {"day": ["a", "b"]}}
    own = model.fit_and_count(texts, counts_epsilon=1.0, **given)
    later = private_topic_counts(model, texts, epsilon=1.0, random_state=0, **given)
    model.save(tmp_path / "topics")
    released = load_release(tmp_path / "topics")
    events = [*model.privacy_.events, *own.privacy_.events]
    epsilon = data_of(report(released, counts=[own]))["guarantee"]["epsilon"]
    assert epsilon == pytest.approx(epsilon_of(events, 1e-6), rel=1e-6)
    for several in ([later], [own, later], [own, own]):
        text = said(report(released, counts=several))
        assert "There is no privacy guarantee" in text


def test_words_in_the_noise_are_marked_and_name_no_topic(released):
    stands = {}
    for topic in data_of(report(released))["topics"]:
        stands[topic["topic"]] = sum(topic["stands"])
        own = {f"word{v}" for v in range(15 * topic["topic"], 15 * topic["topic"] + 15)}
        assert set(topic["name"].split(", ")) <= own
    assert stands == dict.fromkeys(range(K), 15)
    noisy = copy.copy(released)
    noisy.components_std_ = np.full(V, 1e4)
    page = report(noisy)
    assert {sum(topic["stands"]) for topic in data_of(page)["topics"]} == {0}
    assert "no word stands out" in said(page)
    del noisy.components_std_
    assert "no word can be marked as noise" in said(report(noisy))


def test_a_page_says_what_is_wrong_with_a_model(released, X, tmp_path):
    untested = copy.copy(released)
    untested.topic_evidence_ = np.full(K, np.nan)
    untested.weak_topics_ = np.full(K, True)
    assert "The topics are not tested" in said(report(untested))
    nothing = copy.copy(released)
    nothing.weak_topics_ = np.full(K, True)
    assert "No topic is shown to be more than noise" in said(report(nothing))
    baseline = GibbsLDA(2, max_iter=3, random_state=0).fit(X)
    with pytest.warns(UserWarning, match="without privacy"):
        save_release(baseline, tmp_path / "baseline")
    text = said(report(load_release(tmp_path / "baseline")))
    assert "There is no privacy guarantee" in text
    assert "does not test its topics" in text
    sparse = copy.copy(released)
    sparse.components_ = np.where(released.components_ > 50, released.components_, 0)
    sparse.components_[:, -1] = 0  # a word of no topic
    sparse.components_[3, 45] = 1
    facts = data_of(report(sparse))
    assert min(p for topic in facts["topics"] for p in topic["p"]) > 0
    one = copy.copy(released)
    for name in ("components_", "topic_evidence_", "weak_topics_"):
        setattr(one, name, getattr(released, name)[:1])
    assert "1 topics" in said(report(one))  # nothing to scale, no neighbor


def test_one_total_covers_topics_and_counts(released, X):
    counts = [counted(released, X), counted(released, X, epsilon=2.0)]
    page = report(released, counts=counts)
    own = released.privacy_
    events = [*own.events, *counts[0].privacy_.events, *counts[1].privacy_.events]
    parts = [own, *(table.privacy_ for table in counts)]
    distance = sum(part.total_variation for part in parts)
    together = epsilon_of(events, own.delta, total_variation=distance)
    stated = data_of(page)["guarantee"]["epsilon"]
    assert stated == pytest.approx(together, rel=1e-9)
    assert stated > own.epsilon
    assert f"epsilon = {stated:.4g}" in said(page)
    # two seeds may be equal
    seeded = [
        dataclasses.replace(
            table, privacy_=dataclasses.replace(table.privacy_, seeded=True)
        )
        for table in counts
    ]
    assert "There is no privacy guarantee" in said(report(released, counts=seeded))


def test_counts_of_another_model_or_unit_are_refused(released, X):
    other = SubLDA(K, epsilon=4.0, max_iter=2).fit(X)
    with pytest.raises(ValueError, match="topics of another model"):
        report(released, counts=[counted(other, X)])
    users = counted(released, X, user_ids=np.arange(600) % 99)
    with pytest.raises(ValueError, match=r"protect one document .* counts one user"):
        report(released, counts=[users])
    without = private_topic_counts(released, X, epsilon=1.0)
    for table, got in ((np.ones((3, K)), "ndarray"), (without, "no groups")):
        with pytest.raises(TypeError, match=f"private_topic_counts with .*{got}"):
            report(released, counts=[table])
    with pytest.raises(TypeError, match="list of tables"):
        report(released, counts=counted(released, X))
    for names, error in (
        ({9: "a"}, ValueError),
        ({"a": "b"}, TypeError),
        ({0: ""}, ValueError),
        (["Heart"], TypeError),
    ):
        with pytest.raises(error, match=r"names|name of topic 0"):
            report(released, names=names)


def test_a_topic_is_blue_if_its_groups_differ_by_more_than_noise(released, X):
    counts = counted(released, X)
    table = np.full((3, K), 50.0)
    table[0, 1] = 50 + 9 * counts.noise_scale
    table[:, 2] += [0, counts.noise_scale, 0]
    page = report(
        released, counts=[dataclasses.replace(counts, counts={"ward": table})]
    )
    figures = re.findall(r"<figure( class=\"flat\")?><figcaption><b>(\d)", page)
    assert dict((k, flat) for flat, k in figures) == {
        "1": "",
        "2": ' class="flat"',
        "0": ' class="flat"',
    }


def test_the_command_and_the_model_write_the_page(path, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "names.csv").write_text("1,Heart\n2,<b>\n")
    counts = counted(load_release(path), make_topic_corpus(90, V, K).data)
    counts.save("counts.dplda")
    given = [str(path), "--names", "names.csv", "--counts", "counts.dplda"]
    assert main(["report", *given, "--title", "Wards", "--out", "page.html"]) == 0
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page == report(
        load_release(path), title="Wards", names={1: "Heart", 2: "<b>"}, counts=[counts]
    )
    (tmp_path / "names.csv").write_text("Heart\n")
    assert main(["report", *given]) == 1
    assert "line 1 must be the number of a topic" in capsys.readouterr().err
    (tmp_path / "names.csv").write_text("1,Heart\n\n01,Lung\n")
    assert main(["report", *given]) == 1
    assert "line 3 names topic 1 again" in capsys.readouterr().err
    assert main(["report", str(path), "--out", str(path)]) == 1
    texts = load_wordnet_glosses().data[:400]
    model = PrivateTopicModel(3, epsilon=8.0, vocabulary=["act", "plant", "water"])
    model.fit(texts).save("topics.dplda")
    model.report("own.html", title="Glosses")
    expected = report(load_release("topics.dplda"), title="Glosses")
    assert (tmp_path / "own.html").read_text("utf-8") == expected


def test_a_notebook_shows_the_page_in_a_frame_without_rights(released):
    shown = released._repr_mimebundle_()
    (element,) = re.findall("<iframe[^>]*>", shown["text/html"])
    assert 'sandbox="allow-scripts"' in element
    assert html.unescape(re.search('srcdoc="([^"]*)"', element)[1]) == report(released)
    assert math.isfinite(released.epsilon_)
    assert "SubLDA" in shown["text/plain"]


# ---- in a browser --------------------------------------------------------------------

in_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium")


def browse(page, tmp_path, look, **screen):
    path = tmp_path / "page.html"
    path.write_text(page, "utf-8")

    async def run():
        async with tab() as opened:
            await opened.open(path, **screen)
            result = await look(opened)
            await opened.run("0")  # what has happened is heard
            return result, opened.asked_for(), opened.said()

    return asyncio.run(run())


@in_chromium
def test_a_browser_asks_for_nothing_and_scrolls_one_way(released, X, tmp_path):
    """At the widths of a phone and of a desk, in light and dark."""
    page = report(released, counts=[counted(released, X)], about="a" * 300)

    async def look(opened):
        for width in (390, 1280):
            for scheme in ("light", "dark"):
                await opened.open(tmp_path / "page.html", width=width, scheme=scheme)
                wide, inner, n_words = await opened.run(
                    "for (const d of document.querySelectorAll('details')) d.open = 1;"
                    "[document.documentElement.scrollWidth, innerWidth,"
                    " document.querySelectorAll('#rows tr').length]"
                )
                assert wide <= inner
                assert n_words == 15
                assert opened.asked_for() == [(tmp_path / "page.html").as_uri()]
                assert opened.said() == []

    browse(page, tmp_path, look)


@pytest.mark.slow
@in_chromium
@pytest.mark.skipif("AXE_CORE" not in os.environ, reason="needs AXE_CORE, axe.min.js")
def test_an_accessibility_checker_finds_nothing(released, X, tmp_path):
    page = report(released, counts=[counted(released, X)], about="a", names={1: "b"})
    axe = Path(os.environ["AXE_CORE"]).read_text("utf-8")
    check = "axe.run().then(found => JSON.stringify(found.violations.map(v => v.id)))"

    async def look(opened):
        for width in (390, 1280):
            for scheme in ("light", "dark"):
                await opened.open(tmp_path / "page.html", width=width, scheme=scheme)
                await opened.run(
                    "for (const d of document.querySelectorAll('details'))"
                    " d.open = 1; 0"
                )
                await opened.run(f"{axe}; 0")
                assert await opened.run(check) == "[]"
        await opened.run("document.documentElement.lang = ''")
        assert await opened.run(check) == '["html-has-lang"]'  # it finds what is there

    browse(page, tmp_path, look)


@pytest.mark.slow
@in_chromium
def test_the_keyboard_reaches_the_words_of_a_topic(released, tmp_path):
    async def look(opened):
        for _ in range(20):
            await opened.press("Tab", 9)
            if await opened.run("document.activeElement.tagName") == "BUTTON":
                break
        await opened.press("Tab", 9)  # the second topic
        await opened.press("Enter", 13, "\r")
        at = await opened.run("[document.activeElement.id, find('topic').value]")
        await opened.press("Tab", 9)
        before = await opened.run("find('value').textContent")
        await opened.press("ArrowRight", 39)
        after = await opened.run("find('value').textContent")
        heard = await opened.run("find('shown').textContent")
        return at, before, after, heard

    (at, before, after, heard), _, told = browse(report(released), tmp_path, look)
    assert at == ["topic", "2"]
    assert (before, after) == ("0.50", "0.55")
    assert heard.startswith("Topic 2, word")
    assert told == []


@pytest.mark.slow
@in_chromium
def test_hostile_words_run_nothing_in_a_browser(
    hostile, released, X, tmp_path, monkeypatch
):
    page = hostile_page(hostile, X, monkeypatch)

    async def look(opened):
        return await opened.run("document.querySelectorAll('#rows tr').length")

    n_words, asked, told = browse(page, tmp_path, look)
    assert (n_words, len(asked), told) == (15, 1, [])
    # should escaping fail, the policy holds; and this test hears of it
    raw = page.replace("</main>", "<script>alert(1)</script><img src=x></main>")
    _, asked, told = browse(raw, tmp_path, look)
    assert not any(event["method"] == "Page.javascriptDialogOpening" for event in told)
    assert "Content Security Policy" in str(told)
