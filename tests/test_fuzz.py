"""The coverage-guided searches of tests/fuzz: no bytes from outside cause an undocumented error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).parent / "fuzz" / "harness.py"
RUNS = {
    "docword": 35_000, "compressed": 20_000, "vocabulary": 10_000, "message": 30_000,
    "ledger": 4_000, "reports": 4_000, "release": 20_000,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("entry", RUNS)
def test_no_bytes_break_it(entry, tmp_path):
    pytest.importorskip("atheris", reason="atheris, which has no wheels for this platform")
    search = subprocess.run(
        [sys.executable, HARNESS, entry, f"-runs={RUNS[entry]}", f"-artifact_prefix={tmp_path}/"],
        cwd=tmp_path, capture_output=True, text=True, timeout=600,
        env=os.environ | {"PYTHONPATH": str(HARNESS.parents[2])},
    )  # fmt: skip
    assert search.returncode == 0, search.stdout[-2000:] + search.stderr[-3000:]
    assert f"Done {RUNS[entry]} runs" in search.stderr
