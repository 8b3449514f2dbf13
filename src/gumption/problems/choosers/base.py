"""What every chooser shares: draws by hash, learning from ended chains, state, and an end to every search.

A chooser gives each problem that comes along a chance between 0 and 1, and lets it through or passes it over by one
draw for each (problem, visit). Visits are counted by the innermost stream, so a visit that is passed over is simply
never asked for.

Nobody waits for ever. After `patience` problems in a row that were passed over, the chooser relaxes: it lets the last
one through that had any chance. If none of them had any, the stream has ended (`ended` says why), for good: no answer
that is still on its way opens it again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from gumption import randomness
from gumption.types import Group, Problem, ProblemStream, StateTree


class Chooser(ABC):
    """A problem stream around another one. A rule is a final subclass with `_chance` and, if it learns, `_learn`.

    Args:
        inner: Where problems come from.
        seed: Run seed.
    """

    name: ClassVar[str]

    def __init__(self, inner: ProblemStream, *, seed: int = 0) -> None:
        self.inner = inner
        self.seed = seed
        self.skipped = 0
        self.ended: str | None = None

    # -- the rule

    @abstractmethod
    def _chance(self, problem: Problem, visit: int) -> float:
        """Probability that this problem is let through now."""

    def _learn(self, group: Group, version: int) -> None:
        """A chain has ended."""
        return

    def _state(self) -> StateTree:
        """What the rule has learned."""
        return {}

    def _load(self, state: StateTree) -> None:
        """The inverse of `_state`."""
        return

    # -- the stream

    @property
    def size(self) -> int:
        """Problems of the innermost stream; 0 where it does not say."""
        return int(getattr(self.inner, "size", 0))

    @property
    def patience(self) -> int:
        """Problems in a row that may be passed over: four passes, and never fewer than 1,000."""
        return max(1000, 4 * self.size)

    def next(self) -> tuple[Problem, int] | None:
        """The next problem that is let through, with its visit; `None` when the stream has ended."""
        if self.ended:
            return None
        last: tuple[Problem, int] | None = None
        for _ in range(self.patience):
            drawn = self.inner.next()
            if drawn is None:
                return None
            problem, visit = drawn
            chance = self._chance(problem, visit)
            if chance >= 1 or randomness.uniform(self.seed, self.name, problem.id, visit) < chance:
                return drawn
            self.skipped += 1
            if chance > 0:
                last = drawn
        if last is None:
            self.ended = f"{self.name} lets none of the problems through any more"
        else:
            self.skipped -= 1
        return last

    def observe(self, group: Group, version: int) -> None:
        """A chain has ended; `version` is the trainer's. Inner choosers hear of it too."""
        self._learn(group, version)
        pass_on = getattr(self.inner, "observe", None)
        if pass_on is not None:
            pass_on(group, version)

    def problem(self, problem_id: str) -> Problem:
        """Look a problem up by id."""
        return self.inner.problem(problem_id)

    def metrics(self) -> dict[str, float]:
        """`choosers/skipped`: problems passed over so far, by this chooser and those inside; and theirs."""
        of_inner: Any = getattr(self.inner, "metrics", dict)
        metrics: dict[str, float] = of_inner()
        return metrics | {"choosers/skipped": metrics.get("choosers/skipped", 0.0) + self.skipped}

    def state_dict(self) -> StateTree:
        """What was learned, and the inner stream's state."""
        return {
            "name": self.name,
            "skipped": self.skipped,
            "ended": self.ended,
            "learned": self._state(),
            "inner": self.inner.state_dict(),
        }

    def load_state_dict(self, state: StateTree) -> None:
        """Return to a saved state.

        Raises:
            ValueError: it was saved by another chooser.
        """
        if state.get("name") != self.name:
            raise ValueError(
                f"this state was saved with other problems.choosers: expected {self.name!r}, got {state.get('name')!r}"
            )
        self.skipped = state["skipped"]
        self.ended = state["ended"]
        self._load(state["learned"])
        self.inner.load_state_dict(state["inner"])


def within(name: str, value: Any, low: float, high: float, *, above: bool = False) -> float:
    """Check one numeric option: low ≤ value ≤ high, or low < value with `above`.

    Raises:
        ValueError: it is no number, or out of range.

    >>> within("target", 0.5, 0, 1)
    0.5
    """
    number = not isinstance(value, bool) and isinstance(value, (int, float))
    if not number or not low <= value <= high or (above and value == low):
        raise ValueError(f"{name} must be a number in {'(' if above else '['}{low}, {high}], got {value!r}")
    return float(value)
