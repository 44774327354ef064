"""The page of sharp edges: each line runs, and says what the page says that it says."""

import doctest
import io
import re
import warnings
from contextlib import redirect_stdout
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "sharp_edges.md"
HEAD, *SECTIONS = PAGE.read_text("utf-8").split("\n## ")
CODE = re.compile(r"^```python\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
PAIR = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def said(code, names):
    """What a person sees: the output, the warnings, and the error that ends the code."""
    output = io.StringIO()
    with warnings.catch_warnings(), redirect_stdout(output):
        warnings.simplefilter("always")
        warnings.showwarning = lambda text, category, *_: print(f"{category.__name__}: {text}")
        try:
            exec(compile(code, PAGE.name, "exec"), names)
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
    return output.getvalue()


def test_each_trap_has_a_row_a_severity_and_a_message():
    assert len(SECTIONS) >= 12
    for number, section in enumerate(SECTIONS, start=1):
        assert section.startswith(f"{number}. ")
        severity = re.search(r"\*\*(Void|Larger|Useless)\b", section)[1].lower()
        row = re.search(rf"^\| {number} \|.*?\| (\w+) \|", HEAD, flags=re.MULTILINE)
        assert row[1] == severity, section
        assert len(PAIR.findall(section)) == len(CODE.findall(section)) >= 1, section


@pytest.mark.slow
def test_every_line_says_what_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    exec("".join(CODE.findall(HEAD)), names)
    for section in SECTIONS:
        for code, message in PAIR.findall(section):
            got = said(code, names)
            assert message.strip(), code
            assert doctest.OutputChecker().check_output(message, got, SAME), f"{code}\n{got}"
