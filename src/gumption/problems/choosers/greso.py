"""`greso`: the more often in a row a problem gave equal rewards, the more often it is passed over (arXiv 2506.02177).

A problem whose last c visits all ended with nothing but successes (easy) or nothing but equal failures (hard) is let
through with probability max(p^c, floor), with separate p for easy and hard. Both move: as in the authors' code
(Infini-AI-Lab/GRESO) p falls by `step` after an update whose share of easy (hard) problems was above its target, else
it rises, within [p_low, p_high], from the second pass over the problems on.

Departures: a visit is a whole chain, whatever its allocator made of it; the authors count epochs of one group each and
call rewards of at least .98 right and at most .11 wrong, where here a success is a rollout at `max_score`.
"""

from __future__ import annotations

from typing import ClassVar, Literal, final

from gumption.allocation.chain import TOLERANCE
from gumption.problems.choosers.base import Chooser, within
from gumption.types import Group, Problem, ProblemStream, StateTree

Kind = Literal["easy", "hard"]


def zero_variance(group: Group) -> Kind | None:
    """Did a chain bring nothing but successes (`easy`), nothing but equal failures (`hard`), or neither (`None`)?

    Told from the task's own rewards: a length penalty makes failures differ without making them informative.

    >>> from gumption.testing import scored_group
    >>> [zero_variance(scored_group(rewards)) for rewards in ([1.0, 1.0], [0.0, 0.0], [0.0, 1.0])]
    ['easy', 'hard', None]
    """
    if not group.count:
        return None
    if group.successes == group.count:
        return "easy"
    if group.successes:
        return None
    tasks = [r.task_value for m in group.members if (r := m.rollout.reward) is not None and not m.attempt.replay]
    valued = [t for t in tasks if t is not None]
    return "hard" if not valued or max(valued) - min(valued) <= TOLERANCE else None


@final
class Greso(Chooser):
    """Passes a problem over with probability 1 − max(p^c, floor), c its equal-reward visits in a row.

    As `floor` is above 0, no problem is lost for good and the stream never ends by itself.

    Args:
        inner: Where problems come from.
        p_easy: First value of p for problems solved throughout, in [p_low, p_high].
        p_hard: …for problems failed throughout.
        floor: Smallest probability to be let through, in (0, 1].
        target: Share of visits with equal rewards that is aimed at, in [0, 1].
        easy_share: Part of `target` for easy problems, in [0, 1]; the rest is for hard ones.
        step: How far p moves at an update, in [0, 1].
        p_low: Lowest p, in (0, 1].
        p_high: Highest p, in [p_low, 1].
        seed: Run seed.

    Raises:
        ValueError: an option is out of range.
    """

    name: ClassVar[str] = "greso"

    def __init__(
        self,
        inner: ProblemStream,
        *,
        p_easy: float = 0.5,
        p_hard: float = 0.5,
        floor: float = 0.01,
        target: float = 0.25,
        easy_share: float = 1 / 3,
        step: float = 0.01,
        p_low: float = 0.05,
        p_high: float = 0.95,
        seed: int = 0,
    ) -> None:
        super().__init__(inner, seed=seed)
        self.p_low = within("p_low", p_low, 0, 1, above=True)
        self.p_high = within("p_high", p_high, self.p_low, 1)
        self.floor = within("floor", floor, 0, 1, above=True)
        self.step = within("step", step, 0, 1)
        target, easy_share = within("target", target, 0, 1), within("easy_share", easy_share, 0, 1)
        self._targets: dict[Kind, float] = {"easy": target * easy_share, "hard": target * (1 - easy_share)}
        self._p: dict[Kind, float] = {
            "easy": within("p_easy", p_easy, self.p_low, self.p_high),
            "hard": within("p_hard", p_hard, self.p_low, self.p_high),
        }
        self._streaks: dict[str, tuple[Kind, int]] = {}
        self._seen: dict[Kind | Literal["all"], int] = {"all": 0, "easy": 0, "hard": 0}  # since the last update
        self._version = -1
        self._second_pass = False

    def _chance(self, problem: Problem, visit: int) -> float:
        streak = self._streaks.get(problem.id)
        if streak is None:
            return 1.0
        kind, length = streak
        return max(self._p[kind] ** length, self.floor)

    def _learn(self, group: Group, version: int) -> None:
        if version != self._version:
            self._adapt()
            self._version = version
        problem_id, visit = group.chain_id
        self._second_pass |= visit > 0
        kind = zero_variance(group)
        self._seen["all"] += 1
        if kind is None:
            self._streaks.pop(problem_id, None)
            return
        self._seen[kind] += 1
        before, length = self._streaks.get(problem_id, (kind, 0))
        self._streaks[problem_id] = (kind, length + 1 if before == kind else 1)

    def _adapt(self) -> None:
        """An update was made: move p towards the targets."""
        if self._second_pass and self._seen["all"]:
            for kind, target in self._targets.items():
                down = self._seen[kind] / self._seen["all"] > target
                moved = self._p[kind] - self.step if down else self._p[kind] + self.step
                self._p[kind] = min(self.p_high, max(self.p_low, moved))
        self._seen = {"all": 0, "easy": 0, "hard": 0}

    def metrics(self) -> dict[str, float]:
        """Also `choosers/p_easy` and `choosers/p_hard`."""
        return super().metrics() | {"choosers/p_easy": self._p["easy"], "choosers/p_hard": self._p["hard"]}

    def _state(self) -> StateTree:
        return {
            "p": dict(self._p),
            "seen": dict(self._seen),
            "version": self._version,
            "second_pass": self._second_pass,
            "streaks": {problem_id: list(streak) for problem_id, streak in self._streaks.items()},
        }

    def _load(self, state: StateTree) -> None:
        self._p = dict(state["p"])
        self._seen = dict(state["seen"])
        self._version = state["version"]
        self._second_pass = state["second_pass"]
        self._streaks = {problem_id: (kind, length) for problem_id, (kind, length) in state["streaks"].items()}
