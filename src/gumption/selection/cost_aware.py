"""Cost-aware sampling: rollouts are kept by chance, likelier where they teach much per token, and weighted for it.

Source: "Cost-Aware Learning", arXiv 2604.28020: importance sampling with probability ∝ gradient norm/√cost, the norm of
a rollout taken as |A| and its cost as its length. The paper's text gives the rule for sums in general; the form for
groups of rollouts below is ours.

Each rollout has an exact inclusion probability π_i = min(1, c·|A_i|/√length_i), c such that they sum to the number to
keep. One systematic draw in random order (a comb of step 1 with a random start) then includes each with exactly π_i and
keeps exactly that number. The weight is 1/π_i (Horvitz–Thompson), so the expected sum of weighted gradients is that of
the full groups, whatever length has to do with reward: unlike every other rule here, this one leaves the objective
alone. That holds for the policy-gradient term and `selection.count = "generated"`. Rollouts without an advantage are
never kept, so a KL term does not see them; divided by what is kept, the estimate is a ratio, and biased.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from gumption.credit.advantage import TOLERANCE
from gumption.types import Credit, FloatArray, Group, IntArray, Selection


@dataclass(frozen=True, slots=True)
class CostAware:
    """Keeps `keep` rollouts per group on average, with probability ∝ |A|/√length and weight 1/probability.

    Args:
        keep: Rollouts to keep, per group.
        scope: `group`: so many of each group. `batch`: so many times the number of groups, wherever in the batch they
            teach most per token (less variance, but a group may be left out).

    Raises:
        ValueError: `keep` is below 1, or an unknown `scope`.
    """

    keep: int
    scope: Literal["group", "batch"] = "group"

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise ValueError(f"keep = {self.keep!r}: keep at least one rollout of a group")
        if self.scope not in ("group", "batch"):
            raise ValueError(f"scope = {self.scope!r}: use group or batch")

    def select(self, groups: Sequence[Group], credits: Sequence[Credit], rng: np.random.Generator) -> list[Selection]:
        """One selection per group, weights 1/π ≥ 1; `rng` draws."""
        assert [g.size for g in groups] == [c.advantages_G.size for c in credits]
        if not groups:
            return []
        scores = [worth(c.advantages_G, g.lengths_G) for g, c in zip(groups, credits, strict=True)]
        if self.scope == "group":
            pi = [inclusion(score_G, self.keep) for score_G in scores]
            kept = [systematic(pi_G, rng) for pi_G in pi]
        else:
            ends = np.cumsum([s.size for s in scores])[:-1]
            pi_B = inclusion(np.concatenate(scores), self.keep * len(groups))
            chosen_B = np.isin(np.arange(pi_B.size), systematic(pi_B, rng))
            pi = np.split(pi_B, ends)
            kept = [np.flatnonzero(chosen_G) for chosen_G in np.split(chosen_B, ends)]
        return [
            Selection(kept_J, 1 / pi_G[kept_J], "cost_aware" if pi_G.any() else "no_advantage")
            for kept_J, pi_G in zip(kept, pi, strict=True)
        ]


def worth(advantages_G: FloatArray, lengths_G: IntArray) -> FloatArray:
    """|A|/√length, what inclusion probabilities are proportional to.

    Args:
        advantages_G: Advantages; within float noise of 0 they count as 0.
        lengths_G: Completion tokens; an empty completion counts as one token.

    >>> worth(np.array([1.0, -3.0, 0.0]), np.array([4, 9, 1])).tolist()
    [0.5, 1.0, 0.0]
    """
    size_G = np.abs(advantages_G)
    result: FloatArray = np.where(size_G > TOLERANCE, size_G, 0.0) / np.sqrt(np.maximum(lengths_G, 1))
    return result


def inclusion(worth_B: npt.ArrayLike, keep: int) -> FloatArray:
    """Inclusion probabilities ∝ worth, capped at 1, that sum to `keep`.

    π_i = min(1, c·s_i),  Σ π_i = min(keep, number of s_i > 0)

    Args:
        worth_B: s ≥ 0, any number.
        keep: Rollouts to keep.

    Returns:
        Probabilities; 0 where the worth is 0, all 1 where no more than `keep` have any.

    >>> inclusion([1.0, 1.0, 8.0, 0.0], 2).tolist()
    [0.5, 0.5, 1.0, 0.0]
    """
    worth_B = np.asarray(worth_B, np.float64)
    some = int((worth_B > 0).sum())
    if some <= keep:
        return (worth_B > 0).astype(np.float64)
    sorted_B = np.sort(worth_B)[::-1]
    rest_B = np.cumsum(sorted_B[::-1])[::-1]  # worth of this one and of all smaller ones
    certain = np.arange(keep)  # the j largest are certain; the smallest such j whose next is not
    j = int(np.argmax((keep - certain) * sorted_B[:keep] <= rest_B[:keep]))
    result: FloatArray = np.minimum(1.0, (keep - j) / rest_B[j] * worth_B)
    return result


def systematic(pi_B: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw a sample in which each element is included with exactly its probability.

    In random order the probabilities are laid end to end; what the points u, u + 1, u + 2, … fall into is kept, u
    uniform in (0, 1]. So the size of the sample is Σ π, rounded up or down.

    Returns:
        Sorted indices. What has probability 1 is always in, what has 0 never.

    >>> systematic(np.array([1.0, 0.0, 1.0]), np.random.default_rng(0)).tolist()
    [0, 2]
    """
    certain_B = pi_B >= 1.0
    open_B = np.flatnonzero((pi_B > 0) & ~certain_B)
    order_B = rng.permutation(open_B)
    ends_B = np.cumsum(pi_B[order_B])
    whole_B = np.rint(ends_B)
    ends_B = np.where(np.abs(ends_B - whole_B) < 1e-9, whole_B, ends_B)  # a sum that is an integer but for rounding
    start = 1.0 - rng.random()  # in (0, 1], so that as many points as Σ π fit in whatever is drawn
    marks_B = np.floor(ends_B - start)  # how many points lie before each end, less one
    drawn_B = order_B[np.diff(marks_B, prepend=-1.0) > 0]
    kept_J: IntArray = np.sort(np.concatenate([np.flatnonzero(certain_B), drawn_B]))
    return kept_J
