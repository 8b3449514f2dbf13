"""PODS: of each group, the subset of m rewards that varies most.

Source: arXiv 2504.13818 and the authors' public code. The best subset is always the k highest and the m − k lowest
rewards, so one sort and one scan over k find it.

Departures: in the paper the advantages of what is kept are computed again on the subset. That is `recompute`, by the
group advantage of the run; without it the advantages of the full group stay, as everywhere else in gumption. Between
equal rewards and between equally good k chance decides, never position. A group whose kept advantages are all 0 (equal
rewards) is left out instead of being computed in vain. Weights are 1, as published: the rule leans to problems whose
groups are lopsided, more so with `recompute` (see docs/papers.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gumption.credit.advantage import TOLERANCE
from gumption.selection.ties import NOISE
from gumption.types import Credit, FloatArray, Group, IntArray, Selection


@dataclass(frozen=True, slots=True)
class Pods:
    """Keeps the `keep` members of each group whose rewards have the largest variance.

    Args:
        keep: m ≥ 1; a smaller group is kept whole.
        recompute: Group advantage (`gumption.credit.advantage`) to compute again on what is kept; `None` keeps those of
            the full group.

    Raises:
        ValueError: `keep` is below 1.

    >>> from gumption.testing import group_credit_of, scored_group
    >>> group = scored_group([0.0, 0.0, 0.0, 1.0, 0.5])
    >>> Pods(2).select([group], [group_credit_of(group)], np.random.default_rng(0))[0].indices_J.tolist()[1]
    3
    """

    keep: int
    recompute: Callable[[npt.ArrayLike], FloatArray] | None = None

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise ValueError(f"keep = {self.keep!r}: keep at least one rollout of a group")

    def select(self, groups: Sequence[Group], credits: Sequence[Credit], rng: np.random.Generator) -> list[Selection]:
        """One selection per group, weights 1; `rng` breaks ties."""
        assert [g.size for g in groups] == [c.advantages_G.size for c in credits]
        return [self._one(group.rewards_G, credit, rng) for group, credit in zip(groups, credits, strict=True)]

    def _one(self, rewards_G: FloatArray, credit: Credit, rng: np.random.Generator) -> Selection:
        kept_J = most_varied(rewards_G, self.keep, rng)
        again_J = None if self.recompute is None else self.recompute(rewards_G[kept_J])
        advantages_J = credit.advantages_G[kept_J] if again_J is None else again_J
        if not (np.abs(advantages_J) > TOLERANCE).any():
            return Selection(np.zeros(0, np.int64), np.zeros(0), "no_advantage")
        return Selection(kept_J, np.ones(kept_J.size), "pods", again_J)


def most_varied(rewards_G: FloatArray, keep: int, rng: np.random.Generator) -> IntArray:
    """Indices of the subset of `keep` rewards with the largest variance.

    max over k of Var(k highest ∪ keep − k lowest)

    Source: arXiv 2504.13818. O(G log G).

    Args:
        rewards_G: Rewards, shape (G,).
        keep: Size of the subset; the whole group where that is smaller.
        rng: Decides between equal rewards and between equally good k.

    Returns:
        Sorted indices. For 0/1 rewards half of each class, filled up from the other where one is short. Of equal
        rewards, `keep` at random.

    >>> most_varied(np.array([0.0, 0.9, 0.1, 1.0, 0.5]), 4, np.random.default_rng(0)).tolist()
    [0, 1, 2, 3]
    """
    size = rewards_G.size
    if size <= keep:
        return np.arange(size)
    near_G = np.rint((rewards_G - rewards_G.min()) / TOLERANCE)
    order_G = np.lexsort((rng.random(size), -near_G))  # best first
    sorted_G = near_G[order_G] - near_G.mean()
    first_G1 = np.concatenate([[0.0], np.cumsum(sorted_G)])
    second_G1 = np.concatenate([[0.0], np.cumsum(sorted_G**2)])
    best, lowest = np.arange(keep + 1), size - keep + np.arange(keep + 1)  # k of the best, then from here to the end
    mean_K = (first_G1[best] + first_G1[-1] - first_G1[lowest]) / keep
    variance_K = (second_G1[best] + second_G1[-1] - second_G1[lowest]) / keep - mean_K**2
    candidates = np.flatnonzero(variance_K >= variance_K.max() - NOISE * max(float(variance_K.max()), 1.0))
    k = int(rng.choice(candidates))
    kept_J: IntArray = np.sort(np.concatenate([order_G[:k], order_G[size - keep + k :]]))
    return kept_J
