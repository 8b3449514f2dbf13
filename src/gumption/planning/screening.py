"""Closed forms of what an allocation rule costs and brings on given pass rates, to screen many settings at once.

Exact for 0/1 rewards and nothing stale, for `fixed`, `dynamic` and `never_give_up` with `leverage` or `all`. Other
rules are not screened: the planner simulates them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gumption.types import FloatArray

SCREENED = ("fixed", "dynamic", "never_give_up")


class Yield(NamedTuple):
    """Means over problems, per visit.

    Args:
        rollouts: Generated.
        groups: Groups that take a place in the batch (at most 1).
        kept: Rollouts trained on.
        leverage: Their leverage: effective rollouts.
        attempts: Attempts, 1 for rules without retries.
    """

    rollouts: float
    groups: float
    kept: float
    leverage: float
    attempts: float


@lru_cache(maxsize=100_000)
def kept_of(successes: int, size: int, share: float) -> tuple[int, float]:
    """Members and leverage that `leverage(share)` keeps of a group with K successes of n.

    The rarer class first: L = (n − r)/r each, r its size; then the commoner one, r/(n − r) each.

    Returns:
        (0, 0) for groups of one class.

    >>> kept_of(1, 10, 0.5), kept_of(5, 10, 0.5), kept_of(1, 10, 1.0)
    ((1, 9.0), (5, 5.0), (10, 10.0))
    """
    rare = min(successes, size - successes)
    if rare == 0:
        return 0, 0.0
    target, high = share * size * (1 - 1e-9), (size - rare) / rare
    if rare * high >= target:
        n = int(np.ceil(target / high))
        return n, n * high
    more = int(np.ceil((target - rare * high) * high))
    return rare + more, rare * high + more / high


def expected(
    rule: str, rates_P: FloatArray, group_size: int, share: float, *, retry: float = 0.875, max_attempts: int = 16
) -> Yield:
    """What one visit to each problem costs and brings.

    Args:
        rule: One of `SCREENED`.
        rates_P: Pass rates.
        group_size: G.
        share: Of the leverage that is kept; 1 keeps all.
        retry: Chance that an unsolved problem is tried again (NGU).
        max_attempts: Cap on attempts (NGU).

    Raises:
        ValueError: the rule has no closed form here.

    >>> [round(x, 6) for x in expected("fixed", np.array([0.5]), 2, 1.0)]
    [2.0, 1.0, 1.0, 1.0, 1.0]
    >>> round(expected("never_give_up", np.array([0.0]), 8, 1.0, max_attempts=1000).attempts, 6)
    8.0
    """
    if rule not in SCREENED:
        raise ValueError(f"no closed form for allocation.rule = {rule!r}: simulate it")
    from scipy.stats import binom

    g, last = group_size, max_attempts if rule == "never_give_up" else 1
    chance_PK = binom.pmf(np.arange(g + 1), g, rates_P[:, None])
    alive_P = np.ones(len(rates_P))
    rollouts = groups = kept = leverage = attempts = 0.0
    for attempt in range(1, last + 1):
        cells = [kept_of(k, attempt * g, share) for k in range(g + 1)]
        weight_K = (alive_P[:, None] * chance_PK).mean(axis=0)
        taken_K = weight_K[1 : g + (attempt > 1)]  # a first attempt that is all right is solved; a later one is better
        rollouts += g * float(alive_P.mean())
        attempts += float(alive_P.mean())
        groups += float(taken_K.sum())
        kept += float(taken_K @ [c[0] for c in cells[1 : 1 + len(taken_K)]])
        leverage += float(taken_K @ [c[1] for c in cells[1 : 1 + len(taken_K)]])
        alive_P = alive_P * chance_PK[:, 0] * retry
        if float(alive_P.max()) < 1e-9:
            break
    return Yield(rollouts, 1.0 if rule == "fixed" else groups, kept, leverage, attempts)
