"""The kernels in C for other systems: compiled with the build flags, run, compared."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from shipped import build_flags

import dplda

DRIVERS = Path(__file__).parent / "portable"
KERNELS = Path(dplda.__file__).parent / "kernels"
NAMES = sorted(path.stem for path in DRIVERS.glob("*.c"))
PLAIN = ("-DDPLDA_PLAIN", "-O1")  # loops over single numbers
# The same, of standard C, and with the products of MSVC.
MSVC = (
    "-include",
    str(DRIVERS / "as_msvc.h"),
    "-std=c17",
    "-pedantic-errors",
    "-Werror=vla",
)


class System(NamedTuple):
    compiler: str
    packages: str  # of Debian
    emulator: str = ""
    variants: tuple = ((),)  # flags; the bits are the same with each of them

    def missing(self):
        programs = (self.compiler, self.emulator or self.compiler)
        return [program for program in programs if not shutil.which(program)]


SYSTEMS = {
    "here": System("gcc", "gcc", variants=((), PLAIN)),
    "aarch64": System(
        "aarch64-linux-gnu-gcc",
        "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user",
        "qemu-aarch64",
        ((), PLAIN),
    ),
    "windows": System(
        "x86_64-w64-mingw32-gcc", "gcc-mingw-w64-x86-64 wine wine64", "wine", ((), MSVC)
    ),
    "musl": System("musl-gcc", "musl-tools"),
    "clang": System("clang", "clang", variants=((), PLAIN)),
}

pytestmark = pytest.mark.slow


def digests(folder, name, compiler, *flags, emulator=""):
    """What a driver prints: a digest of the results of each instruction set."""
    program = folder / f"{name}.exe"
    subprocess.run(
        [
            compiler,
            *build_flags(),
            "-w",
            *flags,
            "-static",
            f"-I{KERNELS}",
            str(DRIVERS / f"{name}.c"),
            "-o",
            str(program),
            "-lm",
        ],
        check=True,
    )
    # wine: a home of its own, without the parts that it would ask to download
    environment = {
        **os.environ,
        "WINEPREFIX": str(folder.parent / "wine"),
        "WINEDEBUG": "-all",
        "WINEDLLOVERRIDES": "mscoree=;mshtml=",
    }
    run = subprocess.run(
        [emulator, str(program)] if emulator else [str(program)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    return run.stdout.split()


@pytest.fixture(params=SYSTEMS)
def system(request):
    system = SYSTEMS[request.param]
    if missing := system.missing():
        pytest.skip(
            f"there is no {' and no '.join(missing)} (Debian: {system.packages})"
        )
    return system


@pytest.fixture(scope="module", params=NAMES)
def driver(request, tmp_path_factory):
    """A driver, and what it prints here."""
    if not shutil.which("gcc"):
        pytest.skip("there is no gcc")
    return request.param, digests(
        tmp_path_factory.mktemp("here"), request.param, "gcc", "-O1"
    )


def test_results_are_those_of_this_machine(tmp_path, driver, system):
    name, here = driver
    assert len(set(here)) == 1  # with every set
    for flags in system.variants:
        there = digests(
            tmp_path, name, system.compiler, *flags, emulator=system.emulator
        )
        assert there == (here[:1] if flags or system.emulator else here)


@pytest.mark.skipif(
    bool(SYSTEMS["aarch64"].missing()), reason="there is no aarch64 here"
)
def test_contracted_products_would_be_noticed(tmp_path):
    """What gcc does on aarch64 unless the build forbids it."""
    compiler, _, emulator, _ = SYSTEMS["aarch64"]
    usual = digests(tmp_path, "variational", compiler, "-O2", emulator=emulator)
    flags = ("-O2", "-ffp-contract=fast")
    assert (
        digests(tmp_path, "variational", compiler, *flags, emulator=emulator) != usual
    )
