"""`difficulty_pools`: each bucket of difficulty is asked at its own rate. Our own, after the common practice.

Weights are relative rates for each *problem* of a bucket: with `easy = 0.25` and `medium = 1` an easy problem is asked
once while a medium one is asked four times. (They are not shares of the batch: those also depend on how many problems a
bucket holds.) The buckets are those of the reports: unsolved (0 of n), extra_hard (0, .02), hard [.02, .1), medium
[.1, .5), easy [.5, .96), saturated ≥ .96.

Difficulty is that of a profile, which does not change, or else of the run itself: success rates of earlier visits, each
counting `decay` times as much as the one after it. A problem of unknown difficulty is always let through.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from gumption.allocation.pass_rates import PassRates
from gumption.ledger.profile import BUCKETS, bucket
from gumption.problems.choosers.base import Chooser, within
from gumption.profile import pass_counts
from gumption.types import Group, Problem, ProblemStream, StateTree

WEIGHTS: dict[str, float] = {
    "unsolved": 0.5, "extra_hard": 1.0, "hard": 1.0, "medium": 1.0, "easy": 0.25, "saturated": 0.0,
}  # fmt: skip
"""Defaults: seldom what teaches little, never what is solved."""


@final
class DifficultyPools(Chooser):
    """Lets a problem through with probability weight/(largest weight) of its bucket.

    A bucket of weight 0 is never asked; when only such problems are left, the stream has ended.

    Args:
        inner: Where problems come from.
        weights: Bucket → weight ≥ 0; what is not named has its default (`WEIGHTS`).
        profile: Pass-rate profile (`gumption eval --out`); without one, difficulty is learned during the run.
        decay: Without a profile: how much an earlier visit counts against the next one, in [0, 1].
        seed: Run seed.

    Raises:
        ValueError: an unknown bucket, a negative weight, no weight above 0, or a profile that cannot be read.

    >>> from gumption.testing import ListStream, problem, scored_group
    >>> stream = DifficultyPools(ListStream([problem("p-0"), problem("q-0")]), weights={"saturated": 0})
    >>> stream.observe(scored_group([1.0] * 8, "p-0"), version=0)
    >>> [stream.next()[0].id for _ in range(2)]
    ['q-0', 'q-0']
    """

    name: ClassVar[str] = "difficulty_pools"

    def __init__(
        self,
        inner: ProblemStream,
        *,
        weights: Mapping[str, float] | None = None,
        profile: str | None = None,
        decay: float = 0.5,
        seed: int = 0,
    ) -> None:
        super().__init__(inner, seed=seed)
        given = dict(weights or {})
        unknown = [name for name in given if name not in BUCKETS]
        if unknown:
            raise ValueError(f"weights: there is no bucket {unknown[0]!r}; known: {', '.join(BUCKETS)}")
        whole = {name: within(f"weights.{name}", w, 0, 2.0**31) for name, w in (WEIGHTS | given).items()}
        largest = max(whole.values())
        if largest == 0:
            raise ValueError("weights: give at least one bucket a weight above 0")
        self.chances = {name: weight / largest for name, weight in whole.items()}
        self._rates = PassRates(within("decay", decay, 0, 1))
        self._known = None if profile is None else pass_counts(profile)

    def bucket_of(self, problem_id: str) -> str | None:
        """Bucket of a problem; `None` while its difficulty is unknown."""
        n, k = self._rates.counts(problem_id) if self._known is None else self._known.get(problem_id, (0, 0))
        return bucket(k / n, 1) if n else None

    def _chance(self, problem: Problem, visit: int) -> float:
        label = self.bucket_of(problem.id)
        return 1.0 if label is None else self.chances[label]

    def _learn(self, group: Group, version: int) -> None:
        if self._known is None:
            self._rates.see(group)

    def _state(self) -> StateTree:
        return self._rates.state_dict()

    def _load(self, state: StateTree) -> None:
        self._rates.load_state_dict(state)
