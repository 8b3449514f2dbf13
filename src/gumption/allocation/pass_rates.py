"""How often each problem was solved so far: what problem choosers know about difficulty."""

from __future__ import annotations

import numpy as np

from gumption.types import Group, StateTree


class PassRates:
    """Rollouts and successes of each problem, older visits discounted.

    At each visit n ← decay·n + count and k ← decay·k + successes. Counts are those of all attempts of a visit, rollouts
    too old to train on included.

    Args:
        decay: Weight of the past at each visit, in [0, 1]; 1 forgets nothing, 0 remembers the last visit.

    Raises:
        ValueError: `decay` is out of range.

    >>> rates = PassRates(decay=0.5)
    >>> rates.add("x-0", 8, 8); rates.add("x-0", 8, 0)
    >>> rates.counts("x-0"), rates.rate("x-0"), rates.rate("never seen")
    ((12.0, 4.0), 0.3333333333333333, None)
    """

    def __init__(self, decay: float = 1.0) -> None:
        if not 0 <= decay <= 1:
            raise ValueError(f"decay must be in [0, 1], got {decay!r}")
        self.decay = decay
        self._counts: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def see(self, group: Group) -> None:
        """A visit has ended."""
        self.add(group.chain_id.problem_id, group.count, group.successes)

    def add(self, problem_id: str, count: int, successes: int) -> None:
        """So many rollouts were valued, so many of them successes; nothing happens without a valued one."""
        if count:
            n, k = self.counts(problem_id)
            self._counts[problem_id] = (self.decay * n + count, self.decay * k + successes)

    def counts(self, problem_id: str) -> tuple[float, float]:
        """Discounted rollouts and successes; 0 and 0 for a problem that was never seen."""
        return self._counts.get(problem_id, (0.0, 0.0))

    def rate(self, problem_id: str) -> float | None:
        """Discounted success rate; `None` for a problem that was never seen."""
        n, k = self.counts(problem_id)
        return k / n if n else None

    def state_dict(self) -> StateTree:
        """All counts, as columns."""
        return {
            "problem_id": list(self._counts),
            "counts": np.array(list(self._counts.values()), np.float64).reshape(-1, 2),
        }

    def load_state_dict(self, state: StateTree) -> None:
        """Return to saved counts."""
        self._counts = {p: (n, k) for p, (n, k) in zip(state["problem_id"], state["counts"].tolist(), strict=True)}
