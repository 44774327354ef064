"""The planted faults of `faults.py` still fit the code that they break."""

import re

import pytest
from faults import FAULTS, ROOT


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_can_be_planted_and_names_tests_that_exist(fault, monkeypatch):
    """What cannot be planted is found by nobody, and `--commit` takes only a few."""
    fault.plant(monkeypatch)
    assert fault.tests
    for test in fault.tests:
        path, *names = test.split("::")
        text = (ROOT / path).read_text("utf-8")
        for name in names:
            bare = name.split("[")[0]
            assert re.search(rf"^ *(def|class) {bare}\b", text, re.M), test
