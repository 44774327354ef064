"""The kernels on aarch64, compiled with the flags of the build, run under qemu, and compared."""

import ast
import shutil
import subprocess
from pathlib import Path

import pytest

import dplda

DRIVERS = Path(__file__).parent / "portable"
KERNELS = Path(dplda.__file__).parent / "kernels"
NAMES = sorted(path.stem for path in DRIVERS.glob("*.c"))
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"

pytestmark = pytest.mark.slow
needs_emulator = pytest.mark.skipif(
    not (shutil.which(COMPILER) and shutil.which(EMULATOR)),
    reason=f"{COMPILER} or {EMULATOR} is missing (Debian: gcc-aarch64-linux-gnu, "
    "libc6-dev-arm64-cross, qemu-user)",
)
needs_compiler = pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")


def build_flags():
    """The flags for gcc and clang in setup.py, which runs a build where it is imported."""
    setup = ast.parse((DRIVERS.parents[1] / "setup.py").read_text("utf-8"))
    for node in setup.body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "FLAGS":
            return ast.literal_eval(node.value)["unix"]
    raise AssertionError("setup.py names no FLAGS")


def digests(folder, name, compiler, *flags, emulator=()):
    """What a driver prints: a digest of the results of each instruction set."""
    program = folder / f"{name}-{compiler}"
    subprocess.run(
        [compiler, *build_flags(), "-w", *flags, "-static", f"-I{KERNELS}",
         str(DRIVERS / f"{name}.c"), "-o", str(program), "-lm"],
        check=True,
    )  # fmt: skip
    run = subprocess.run([*emulator, str(program)], check=True, capture_output=True, text=True)
    return run.stdout.split()


def on_aarch64(folder, name, *flags):
    return digests(folder, name, COMPILER, *flags, emulator=[EMULATOR])


@needs_compiler
@pytest.mark.parametrize("name", NAMES)
@needs_emulator
def test_results_on_aarch64_are_those_of_this_machine(tmp_path, name):
    here = digests(tmp_path, name, "gcc", "-O1")
    assert len(set(here)) == 1  # with every set
    assert on_aarch64(tmp_path, name) == here[:1]
    assert on_aarch64(tmp_path, name, "-DDPLDA_PLAIN", "-O1") == here[:1]


@needs_emulator
def test_contracted_products_would_be_noticed(tmp_path):
    """What gcc does on aarch64 unless the build forbids it."""
    usual = on_aarch64(tmp_path, "variational", "-O2")
    assert on_aarch64(tmp_path, "variational", "-O2", "-ffp-contract=fast") != usual
