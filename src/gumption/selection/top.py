"""Top k: the members of each group whose advantages are largest in size.

The fixed-size form of leverage thresholding (the squared advantage is the leverage), without a paper of its own.
Members without an advantage would add nothing but cost, so they are never kept, and a group of equal rewards is left
out as a whole. Weights are 1: like every rule that selects by reward it changes the implied objective, towards problems
whose groups are lopsided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gumption.credit.advantage import TOLERANCE
from gumption.selection.ties import descending
from gumption.types import Credit, Group, Selection


@dataclass(frozen=True, slots=True)
class Top:
    """Keeps the `keep` members of each group with the largest |A|.

    Args:
        keep: k ≥ 1; a smaller group is kept whole.

    Raises:
        ValueError: `keep` is below 1.

    >>> from gumption.testing import group_credit_of, scored_group
    >>> group = scored_group([0.0, 0.0, 1.0, 0.0])
    >>> Top(1).select([group], [group_credit_of(group)], np.random.default_rng(0))[0].indices_J.tolist()
    [2]
    """

    keep: int

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise ValueError(f"keep = {self.keep!r}: keep at least one rollout of a group")

    def select(self, groups: Sequence[Group], credits: Sequence[Credit], rng: np.random.Generator) -> list[Selection]:
        """One selection per group, weights 1; `rng` breaks ties."""
        assert [g.size for g in groups] == [c.advantages_G.size for c in credits]
        selections = []
        for credit in credits:
            size_G = np.abs(credit.advantages_G)
            needed = min(self.keep, int((size_G > TOLERANCE).sum()))
            kept_J = np.sort(descending(size_G, rng)[:needed])
            selections.append(Selection(kept_J, np.ones(needed), "top" if needed else "no_advantage"))
        return selections
