"""Leverage thresholding: the smallest part of each group that holds a share of the group's leverage.

Source: "Speeding up RL with high-leverage samples", Applied Compute, 2026
(https://www.appliedcompute.com/research/speeding-up-rl-with-high-leverage-samples).

What the post leaves open, and what is done here:

- The threshold is a share of the group's *own* total leverage. For a group with its own success rate that total is G,
  so it is the published ℓ·G. Where the success rate is a chain's (Never Give Up), stale failures shrink G but not the
  worth of the successes that are left; counted against ℓ·G, a group would lose successes because its failures got old.
- Inside a class, and between classes of equal leverage, chance decides: position is completion order, and completion
  order is length. At a tie (K = G/2) both classes are kept equally.
- No reweighting: weights are 1. The loss's denominator counts the full groups (`selection.count = "generated"`) or what
  is kept, one scalar per batch; averaging per group over what is kept would turn this rule's w(p) upside down.
- Groups of equal rewards have no leverage, and nothing of them is kept.
- Graded rewards are taken by descending generalised leverage: there, selecting by value biases the direction too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gumption.types import BoolArray, Credit, FloatArray, Group, IntArray, Selection

_NOISE = 1e-9  # relative: leverage that differs by less is equal, a sum that misses its target by less has reached it


@dataclass(frozen=True, slots=True)
class Leverage:
    """Keeps, per group, the smallest set of members whose leverage sums to at least `share` of the group's.

    Success rate and advantages are those of the full group, computed before anything is dropped (`gumption.credit`).

    Args:
        share: Share of the leverage to keep, in (0, 1].
    """

    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share = {self.share!r} must be in (0, 1]")

    def select(self, groups: Sequence[Group], credits: Sequence[Credit], rng: np.random.Generator) -> list[Selection]:
        """One selection per group, weights 1; `rng` breaks ties."""
        assert [g.size for g in groups] == [c.leverage_G.size for c in credits]
        selections = []
        for credit in credits:
            kept_J = smallest_share(credit.leverage_G, credit.advantages_G > 0, self.share, rng)
            selections.append(Selection(kept_J, np.ones(kept_J.size), "leverage" if kept_J.size else "no_leverage"))
        return selections


def smallest_share(leverage_G: FloatArray, positive_G: BoolArray, share: float, rng: np.random.Generator) -> IntArray:
    """Indices of the smallest set whose leverage sums to ≥ share · ΣL.

    Members in descending order of leverage, as many as are needed; within equal leverage, members with positive and
    negative advantage take turns, in random order.

    Source: Applied Compute, 2026 (file header).

    Args:
        leverage_G: Leverage ≥ 0, shape (G,).
        positive_G: Whether the advantage is positive, shape (G,).
        share: In (0, 1].
        rng: Breaks ties.

    Returns:
        Sorted indices, int64. Empty where all leverage is 0.

    >>> leverage_G = np.array([1 / 9] * 9 + [9.0])
    >>> rng = np.random.default_rng(0)
    >>> smallest_share(leverage_G, leverage_G > 1, 0.9, rng).tolist()
    [9]
    >>> smallest_share(np.ones(8), np.arange(8) < 4, 0.5, rng).size
    4
    """
    total = float(leverage_G.sum())
    if total <= 0:
        return np.zeros(0, np.int64)
    level_G = np.rint(leverage_G / (total * _NOISE))  # equal up to float noise
    order_G = _order(level_G, positive_G, rng)
    reached_G = np.cumsum(leverage_G[order_G])
    needed = int(np.searchsorted(reached_G, share * total * (1 - _NOISE))) + 1
    return np.sort(order_G[:needed])


def _order(level_G: FloatArray, positive_G: BoolArray, rng: np.random.Generator) -> IntArray:
    """Descending level; within a level the two classes alternate, each in random order, a random one first."""
    size = level_G.size
    shuffled_G = np.lexsort((rng.random(size), positive_G, level_G))
    level_G, class_G = level_G[shuffled_G], positive_G[shuffled_G] ^ (rng.random() < 0.5)
    starts_G = np.concatenate([[True], (np.diff(level_G) != 0) | (class_G[1:] != class_G[:-1])])
    place_G = np.arange(size)
    rank_G = place_G - np.maximum.accumulate(np.where(starts_G, place_G, 0))
    order_G: IntArray = shuffled_G[np.lexsort((class_G, rank_G, -level_G))]
    return order_G
