"""How a document-level fit changes from round to round: functions of public constants alone."""

from __future__ import annotations


def document_schedule(t: int, max_iter: int, *, exact: bool = False) -> tuple[float, float]:
    """Clipping bound and tempering power of round t = 1, 2, ...

    The clipping bound is a fraction of `contribution_norm`. It grows, because early contributions
    are small while responsibilities are flat. The power of the word factor grows to 1, so that
    early noise in a word's row does not reinforce itself. Without noise (`exact`) it starts higher,
    and ends below 1, so that late rounds do not concentrate rare words on too few topics.
    """
    late = min(1.0, (t - 1) / max(1.0, 0.6 * max_iter))
    done = min(1.0, (t - 1) / max(1.0, 0.7 * max_iter))
    first, last = (0.6, 0.95) if exact else (0.3, 1.0)
    return 0.15 + 0.25 * late, first + (last - first) * done


def round_schedule(t: int, max_iter: int) -> tuple[float, float]:
    """Relative budget (precision of the noise) and relative weight in the average of round t."""
    return min(t, max_iter) ** 0.75, min(t, max_iter) ** 2.0


def growing_share(t: int, max_iter: int) -> float:
    """Share of round t in the average of rounds 1 to t: later rounds weigh more."""
    n = min(t, max_iter)  # the weights are the squares of 1 to n, and then those of n
    return n**2 / (n * (n + 1) * (2 * n + 1) // 6 + (t - n) * n**2)
