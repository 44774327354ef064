"""The instruction set of all kernels: the fastest of the machine, or another for tests.

Results are the same, bit for bit, with every set.
"""

cdef extern from "_sets.h" nogil:
    int best_set "dplda_best_set"()

INSTRUCTION_SETS = ("portable", "avx2", "avx512")[: best_set() + 1]
in_use = best_set()


def instruction_set():
    """Name of the instruction set in use."""
    return INSTRUCTION_SETS[in_use]


def use(name):
    """Let all kernels use one of the machine's `INSTRUCTION_SETS`; the last is the default."""
    global in_use
    if name not in INSTRUCTION_SETS:
        raise ValueError(f"the instruction set must be one of {INSTRUCTION_SETS}, got {name!r}")
    in_use = INSTRUCTION_SETS.index(name)
