"""Builds the Cython kernels; everything else is declared in pyproject.toml."""

import os
from glob import glob
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# No -march: a wheel must run on any machine. No contraction of a*b+c into one rounding
# either: the same seed gives the same topics on every machine.
FLAGS = {
    "unix": [
        "-O3",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-ffp-contract=off",
        "-Wno-psabi",
        "-g0",  # Python's own flags ask for debug symbols, which are most of a wheel
    ],
    "msvc": ["/O2", "/fp:precise"],
}

# The build that scripts/sanitizers tests.
SANITIZED = os.environ.get("DPLDA_SANITIZE") == "1"
SANITIZERS = (
    ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"] if SANITIZED else []
)
if SANITIZED:
    FLAGS["unix"] += ["-O1", "-g", *SANITIZERS]
FLAGS["mingw32"] = FLAGS["unix"]  # gcc on Windows


class BuildKernels(build_ext):
    """Chooses the flags once the compiler is known, and compiles several kernels at a
    time.
    """

    def build_extensions(self):
        # MSVC's class starts up without a lock
        if self.compiler.compiler_type == "unix":
            self.parallel = self.parallel or True  # as many as there are processors
        for extension in self.extensions:
            extension.extra_compile_args = FLAGS.get(self.compiler.compiler_type, [])
            extension.extra_link_args = SANITIZERS
        super().build_extensions()


kernels = [
    Extension(
        f"dplda.kernels.{Path(path).stem}", [path], depends=glob("dplda/kernels/*.h")
    )
    for path in sorted(glob("dplda/kernels/*.pyx"))
]
# Code for memory views, compiled once in the place of once a kernel. Cython writes its
# source; without it, all kernels take twice the time to compile.
SHARED = "dplda.kernels._cython"
kernels.append(Extension(SHARED, [f"{SHARED.replace('.', '/')}.c"]))
setup(
    ext_modules=cythonize(
        kernels,
        shared_utility_qualified_name=SHARED,
        compiler_directives={
            "language_level": 3,
            "boundscheck": SANITIZED,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": SANITIZED,
            "freethreading_compatible": True,
        },
    ),
    cmdclass={"build_ext": BuildKernels},
)
