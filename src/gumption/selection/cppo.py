"""CPPO's pruning: the smallest advantages of the whole batch are left out.

Source: arXiv 2503.22342. As published, advantages are those of the full groups, the rate applies to the batch and not
to each group (a group may be pruned away as a whole), and nothing is reweighted. Departures: ties are broken by chance;
the freed places are not refilled with more problems (multiply `training.groups_per_update` by 1/(1 − rate) for that).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gumption.selection.ties import descending
from gumption.types import Credit, Group, Selection


@dataclass(frozen=True, slots=True)
class Cppo:
    """Drops the `rate` of a batch's rollouts with the smallest |A|.

    Args:
        rate: Share of the batch to drop, in [0, 1); the number is rounded down, so something is always kept.

    Raises:
        ValueError: `rate` is out of range.

    >>> from gumption.testing import group_credit_of, scored_group
    >>> groups = [scored_group([0.0, 1.0, 0.0, 0.0]), scored_group([0.0, 0.0, 0.0, 0.0])]
    >>> selections = Cppo(0.5).select(groups, [group_credit_of(g) for g in groups], np.random.default_rng(0))
    >>> [s.indices_J.tolist() for s in selections]
    [[0, 1, 2, 3], []]
    """

    rate: float

    def __post_init__(self) -> None:
        if not 0 <= self.rate < 1:
            raise ValueError(f"rate = {self.rate!r} must be in [0, 1)")

    def select(self, groups: Sequence[Group], credits: Sequence[Credit], rng: np.random.Generator) -> list[Selection]:
        """One selection per group, weights 1; `rng` breaks ties."""
        sizes = [c.advantages_G.size for c in credits]
        assert [g.size for g in groups] == sizes
        if not groups:
            return []
        size_B = np.abs(np.concatenate([c.advantages_G for c in credits]))
        kept_B = np.zeros(size_B.size, np.bool_)
        kept_B[descending(size_B, rng)[: size_B.size - int(self.rate * size_B.size)]] = True
        selections = []
        for kept_G in np.split(kept_B, np.cumsum(sizes)[:-1]):
            kept_J = np.flatnonzero(kept_G)
            selections.append(Selection(kept_J, np.ones(kept_J.size), "cppo" if kept_J.size else "pruned"))
        return selections
