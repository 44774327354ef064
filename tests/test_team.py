"""The team of threads of the kernels, under the thread sanitizer."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import dplda

KERNELS = Path(dplda.__file__).parent / "kernels"
FLAGS = ["-std=gnu11", "-O1", "-g", "-fsanitize=thread", "-pthread"]


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    """gcc with the thread sanitizer, if there is one."""
    source = tmp_path_factory.mktemp("sanitizer") / "empty.c"
    source.write_text("int main(void) { return 0; }\n")
    program = str(source.with_suffix(""))
    if not shutil.which("gcc"):
        pytest.skip("there is no gcc")
    built = subprocess.run(
        ["gcc", *FLAGS, str(source), "-o", program], capture_output=True
    )
    # it also needs an address space that is laid out as it expects
    if built.returncode or subprocess.run([program], capture_output=True).returncode:
        pytest.skip("gcc has no thread sanitizer that works here")
    return "gcc"


def run(compiler, folder, team):
    """What the callers of a team print, with `team` as its source."""
    (folder / "_team.h").write_text(team)
    program = str(folder / "team")
    source = str(Path(__file__).parent / "team.c")
    subprocess.run(
        [compiler, *FLAGS, f"-I{folder}", f"-I{KERNELS}", source, "-o", program],
        check=True,
    )
    options = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1"}
    found = subprocess.run(
        [program], capture_output=True, text=True, env=options, timeout=120
    )
    return found.returncode, found.stdout + found.stderr


def test_every_piece_runs_once_and_before_the_end_of_its_loop(compiler, tmp_path):
    code, output = run(compiler, tmp_path, (KERNELS / "_team.h").read_text("utf-8"))
    assert code == 0, output
    assert output == "every piece ran once\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        # the caller does not wait
        ("while (DPLDA_LOAD(&loop.inside)) {", "while (0) {"),
        ("dplda_close(&loop);", ";"),  # a loop that has ended stays open
        ("while (DPLDA_SWAP(&dplda_team.locked, 1)) {", "while (0) {"),  # no lock
        ("DPLDA_ADD(&loop->next, 1)) <", "loop->next++) <"),  # a piece is taken twice
        # scratch is shared
        ("*thread = loop->n_wanted--;", "loop->n_wanted--, *thread = 1;"),
    ],
)
def test_a_fault_of_the_team_is_found(compiler, tmp_path, old, new):
    team = (KERNELS / "_team.h").read_text("utf-8")
    assert team.count(old) == 1
    code, output = run(compiler, tmp_path, team.replace(old, new))
    assert code != 0, output
