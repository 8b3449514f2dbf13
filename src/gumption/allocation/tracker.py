"""What each problem is expected to bring, from its earlier visits: the baseline of the `tracked` advantage.

Source: SPO, arXiv 2509.13232: a discounted Beta tracker, v = α/(α + β), α ← ρα + r, β ← ρβ + 1 − r, with an effective
count of 8 at the start. Departures: ρ is constant and applied once for each visit (the paper moves it with the policy's
drift between .875 and .96, at one rollout per visit); the first guess is the mean over all problems seen so far instead
of a separate estimation before training.
"""

from __future__ import annotations

import numpy as np

from gumption.types import Group, StateTree


class RewardTracker:
    """Discounted mean reward of each problem.

    Args:
        decay: ρ, what earlier visits count for after each one, in (0, 1).
        count: Rollouts that the first guess counts for.

    >>> tracker = RewardTracker(decay=0.5, count=4.0)
    >>> tracker.value("x-0")
    0.5
    >>> tracker.add("x-0", 2, 2.0)
    >>> tracker.value("x-0"), tracker.value("never seen")
    (0.75, 1.0)
    """

    def __init__(self, decay: float = 0.875, count: float = 8.0) -> None:
        if not 0 < decay < 1 or count <= 0:
            raise ValueError(f"decay = {decay!r} must be in (0, 1) and count = {count!r} above 0")
        self.decay, self.count = decay, count
        self._known: dict[str, tuple[float, float]] = {}  # effective count and reward sum, the first guess included
        self._all = (0.0, 0.0)

    def value(self, problem_id: str) -> float:
        """v: expected reward of one rollout of this problem."""
        n, total = self._known.get(problem_id) or self._guess()
        return total / n

    def see(self, group: Group) -> None:
        """A visit has ended; counts are those of all its attempts."""
        self.add(group.chain_id.problem_id, group.count, group.reward_sum)

    def add(self, problem_id: str, count: int, reward_sum: float) -> None:
        """So many rollouts brought so much; nothing happens without a valued one."""
        if count:
            n, total = self._known.get(problem_id) or self._guess()
            self._known[problem_id] = (self.decay * n + count, self.decay * total + reward_sum)
            self._all = (self._all[0] + count, self._all[1] + reward_sum)

    def _guess(self) -> tuple[float, float]:
        n, total = self._all
        return self.count, self.count * (total / n if n else 0.5)

    def state_dict(self) -> StateTree:
        """All counts, as columns."""
        return {
            "problem_id": list(self._known),
            "counts": np.array([*self._known.values(), self._all], np.float64),
        }

    def load_state_dict(self, state: StateTree) -> None:
        """Return to saved counts."""
        *known, everything = state["counts"].tolist()
        self._known = {p: (n, r) for p, (n, r) in zip(state["problem_id"], known, strict=True)}
        self._all = (everything[0], everything[1])
