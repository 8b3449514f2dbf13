"""Which source of a weighted mixture comes next."""

from __future__ import annotations

import math
from collections.abc import Sequence


def check_weights(weights: Sequence[float], sources: int) -> tuple[float, ...]:
    """The weights of a mixture, checked.

    Raises:
        ValueError: another number of weights than sources, a weight that is negative or not finite, or only zeros.
    """
    if len(weights) != sources:
        raise ValueError(f"problems.weights has {len(weights)} numbers for {sources} sources")
    if any(not math.isfinite(w) or w < 0 for w in weights) or not any(weights):
        raise ValueError(f"problems.weights = {list(weights)}: give numbers ≥ 0, not all 0")
    return tuple(map(float, weights))


def next_source(drawn: Sequence[int], weights: Sequence[float], open_: Sequence[bool]) -> int | None:
    """The source to draw from: the open one with the least (drawn + 1)/weight, the first of equals (stride scheduling).

    After any number of draws every source is within one draw of its exact share, and the choice is a function of
    the counts alone.

    Args:
        drawn: Problems drawn from each source so far.
        weights: Relative frequencies, ≥ 0; a source of weight 0 is never drawn.
        open_: Which sources still have problems.

    Returns:
        Its index, or `None` when none is open.

    >>> drawn = [0, 0]
    >>> for _ in range(6):
    ...     drawn[next_source(drawn, (2.0, 1.0), (True, True))] += 1
    >>> drawn, next_source(drawn, (2.0, 1.0), (False, False))
    ([4, 2], None)
    """
    best: int | None = None
    least = math.inf
    for i, (count, weight) in enumerate(zip(drawn, weights, strict=True)):
        if open_[i] and weight > 0 and (count + 1) / weight < least:
            best, least = i, (count + 1) / weight
    return best
