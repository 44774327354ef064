"""The tables of the noise in Python integers, and its distance to the ideal laws.

The distance is computed at 80 digits. Twins of the draws are in ``twins.py``.

Nothing here comes from the package but the integers of the tables.
"""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from functools import lru_cache

N_COLUMNS = 4096
DIGITS = Context(prec=80)


@lru_cache(maxsize=32)
def unpack(tables):
    """Thresholds in [0, 2**137) and aliases, Python ints, a pair of lists per table."""
    entries = [int(entry) for entry in tables.fast]
    rest = [(int(high) << 64) + int(low) for high, low in tables.slow]
    thresholds = [(entry >> 12 << 128) + low for entry, low in zip(entries, rest)]
    aliases = [entry & 4095 for entry in entries]
    cuts = range(0, len(entries), N_COLUMNS)
    return [(thresholds[i : i + N_COLUMNS], aliases[i : i + N_COLUMNS]) for i in cuts]


def weights_of(thresholds, aliases):
    """How many of the 2**149 chances go to each value, by adding up the columns."""
    weights = [0] * N_COLUMNS
    for column, (threshold, alias) in enumerate(zip(thresholds, aliases)):
        weights[column] += threshold
        weights[alias] += 2**137 - threshold
    return weights


def discrete_gaussian(width, end):
    """Probabilities of -end, ..., end - 1, and the mass outside, as decimals."""
    with localcontext(DIGITS):
        rate = -1 / Decimal(2 * width**2)
        values = [(rate * i**2).exp() for i in range(4 * end)]
        total = 2 * sum(values) - 1
        law = [values[abs(i)] / total for i in range(-end, end)]
        return law, 1 - sum(law)


def geometric_digit(rate, *, truncated):
    """Probabilities of digits below 4096 of ratio exp(-rate), and the mass beyond."""
    with localcontext(DIGITS):
        ratio = (-rate).exp()
        beyond = (-N_COLUMNS * rate).exp()
        total = 1 - beyond if truncated else Decimal(1)
        law = [(-rate * i).exp() * (1 - ratio) / total for i in range(N_COLUMNS)]
        return law, Decimal(0) if truncated else beyond


def variation(weights, law, outside):
    """Total variation between weights / 2**149 and a law with some mass outside."""
    with localcontext(DIGITS):
        differences = (abs(Decimal(w) / 2**149 - p) for w, p in zip(weights, law))
        return (sum(differences) + outside) / 2


def smoothing_error(width):
    """eta of docs/proofs_document.md.

    It says how far sums of exp(-(z - t)^2 / 2 width^2) depend on t.
    """
    with localcontext(DIGITS):
        square = (
            Decimal("3.14159265358979323846264338327950288") ** 2
            * 2
            * Decimal(width) ** 2
        )
        return 2 * sum((-square * j**2).exp() for j in range(1, 8))


def gaussian_variation(weights):
    """Bound on the total variation of a draw of three levels, all of section 4."""
    with localcontext(DIGITS):
        table = variation(weights, *discrete_gaussian(150, 2048))
        two_levels = Decimal(150) / Decimal(1 + 64**2).sqrt()
        three_levels = 150 * (Decimal(1 + 64**2) / (1 + 64**2 + 64**4)).sqrt()
        errors = [smoothing_error(width) for width in (two_levels, three_levels, 3)]
        return 3 * table + sum(h / (1 - h) for h in errors)


def laplace_variation(scale, low_weights, high_weights):
    """Bound on the total variation of one draw: digit distances; the sign is exact."""
    with localcontext(DIGITS):
        rate = 1 / Decimal(scale)
        low = variation(low_weights, *geometric_digit(rate, truncated=True))
        high = variation(
            high_weights, *geometric_digit(N_COLUMNS * rate, truncated=False)
        )
        return low + high
