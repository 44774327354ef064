"""Small C programs of the shipped headers: what a check enumerates is what runs.

A planted fault edits the text of a header (`edit` in ``faults.py``); else the programs
read the headers as they are shipped.
"""

import ast
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import dplda

KERNELS = Path(dplda.__file__).parent / "kernels"
PROGRAMS = Path(__file__).parent / "enumerated"
EDITS: dict[str, tuple[str, str]] = {}  # of a header: what is written in place of what


def build_flags():
    """The flags for gcc and clang in setup.py, which builds where it is imported."""
    setup = ast.parse((PROGRAMS.parents[1] / "setup.py").read_text("utf-8"))
    for node in setup.body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "FLAGS":
            return ast.literal_eval(node.value)["unix"]
    raise AssertionError("setup.py names no FLAGS")


def header(name):
    """The text of a header."""
    text = (KERNELS / name).read_text("utf-8")
    return text.replace(*EDITS[name]) if name in EDITS else text


def constant(name, of):
    """A number that a header defines."""
    (value,) = re.findall(rf"^#define {name} (\d+)$", header(of), re.MULTILINE)
    return int(value)


def compiled(folder, name, *flags):
    """A program of the folder ``enumerated``, with the flags of the build."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: the program of the headers cannot be made")
    headers = folder / "headers"
    headers.mkdir(exist_ok=True)
    for path in KERNELS.glob("*.h"):
        (headers / path.name).write_text(header(path.name), "utf-8")
    program = folder / f"{name}-{len(flags)}"
    subprocess.run(
        [
            compiler,
            *build_flags(),
            "-w",
            *flags,
            f"-I{headers}",
            f"-I{PROGRAMS}",
            str(PROGRAMS / f"{name}.c"),
            "-o",
            str(program),
            "-lm",
        ],
        check=True,
    )
    return program


def run(program, *arguments):
    """The numbers that a program prints, by their names."""
    done = subprocess.run(
        [str(program), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name: int(n) for name, n in re.findall(r"(\w+) (-?\d+)", done.stdout)}
