"""Keep everything: the selection of plain GRPO and of published Never Give Up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gumption.types import Credit, Group, Selection


@dataclass(frozen=True, slots=True)
class All:
    """Trains on every member of every group, with weight 1."""

    def select(self, groups: Sequence[Group], credits: Sequence[Credit], rng: np.random.Generator) -> list[Selection]:
        """One selection per group: all indices in order. `rng` is not used."""
        assert len(groups) == len(credits)
        return [Selection(np.arange(g.size), np.ones(g.size), "all") for g in groups]
