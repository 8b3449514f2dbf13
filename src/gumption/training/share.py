"""`selection.share = "auto"`: leverage thresholding whose share follows the clock.

Source: "Speeding up RL with high-leverage samples" (Applied Compute, 2026) tunes ℓ by hand until trainer and generator
take equal time, and names the controller as future work. This one is ours: after every update

    log ℓ ← log ℓ + rate · log(generation seconds/training seconds)

within [low, high]: the trainer takes more rollouts while it is the faster of the two. Times are wall times, so a run
with `auto` is as repeatable as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from gumption.selection.leverage import Leverage
from gumption.types import Credit, Group, Selection, StateTree

START = 0.5
LARGEST_STEP = 0.25
"""In log ℓ, for one update: a single long pause (an evaluation, a checkpoint) does not throw the share about."""


class AutoShare:
    """A selector whose share moves.

    Args:
        low: Smallest share, in (0, 1].
        high: Largest share.
        rate: Gain.

    >>> auto = AutoShare(0.2, 1.0)
    >>> auto.observe({"time/generation": 1.0, "time/train": 1.0}); auto.share
    0.5
    >>> auto.observe({"time/generation": 1.0, "time/train": 3.0}); round(auto.share, 3)
    0.448
    """

    def __init__(self, low: float, high: float, rate: float = 0.1) -> None:
        if not 0 < low <= high <= 1:
            raise ValueError(f"bounds of the share must satisfy 0 < low ≤ high ≤ 1, got {low!r} and {high!r}")
        self.low, self.high, self.rate = low, high, rate
        self.share = min(max(START, low), high)

    def select(self, groups: Sequence[Group], credits: Sequence[Credit], rng: np.random.Generator) -> list[Selection]:
        """As `Leverage` at the present share."""
        return Leverage(self.share).select(groups, credits, rng)

    def observe(self, metrics: Mapping[str, float]) -> None:
        """An update was made; `time/generation` and `time/train` are the seconds since the one before."""
        generation, train = metrics.get("time/generation", 0.0), metrics.get("time/train", 0.0)
        if generation > 0 and train > 0:
            step = self.rate * math.log(generation / train)
            moved = self.share * math.exp(min(max(step, -LARGEST_STEP), LARGEST_STEP))
            self.share = min(max(moved, self.low), self.high)

    def state_dict(self) -> StateTree:
        """The share."""
        return {"share": self.share}

    def load_state_dict(self, state: StateTree) -> None:
        """Return to a saved share."""
        self.share = float(state["share"])
