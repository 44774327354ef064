"""The page of sharp edges: each line runs, and warns or fails as the page says."""

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
CATEGORY = re.compile(r"^(\w+(?:Warning|Error)): ", flags=re.MULTILINE)


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


def test_each_trap_has_code_and_its_message():
    assert len(SECTIONS) >= 12
    for section in SECTIONS:
        assert len(PAIR.findall(section)) == len(CODE.findall(section)) >= 1, section


@pytest.mark.slow
def test_every_line_does_what_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    exec("".join(CODE.findall(HEAD)), names)
    for section in SECTIONS:
        for code, message in PAIR.findall(section):
            got = said(code, names)
            assert got.strip(), code
            assert CATEGORY.findall(got) == CATEGORY.findall(message), f"{code}\n{got}"
