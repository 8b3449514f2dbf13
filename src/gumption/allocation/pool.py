"""Rules that judge the whole pool of a chain: the fresh rollouts of all its attempts, not only those of the last one.

A *round* is a judged attempt. A rule says what follows a round (`_after_round`); what all of them share is here:

- Rewards are equal if they span at most the tolerance. The whole pool is looked at, each rollout's own score, never
  a mean of some of them.
- A success is a rollout at `max_score`.
- A pool of equal rewards is never trained on (its advantages are 0): `solved` if all are successes, else given up.
- Where a chain cannot be asked again because its attempts keep failing, a pool with unequal rewards is trained on as it
  is: what was generated and teaches something is not thrown away.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

from gumption.allocation.base import ChainAllocator, Decision, Told
from gumption.allocation.chain import TOLERANCE, Chain
from gumption.types import Members


class Pool(NamedTuple):
    """The fresh rollouts of a chain, summed up."""

    size: int
    successes: int
    low: float
    high: float

    @property
    def failures(self) -> int:
        """Rollouts below the maximal score."""
        return self.size - self.successes

    @property
    def mixed(self) -> bool:
        """Do the scores differ by more than float noise?"""
        return self.high - self.low > TOLERANCE


class PoolAllocator(ChainAllocator):
    """Ask/tell over chains that are judged as a whole. A rule is a final subclass with `_after_round`."""

    @abstractmethod
    def _after_round(self, chain: Chain, pool: Pool) -> Decision:
        """Decide after round number `chain.rounds` (from 1)."""

    def _judge(self, chain: Chain, told: Told) -> Decision:
        return self._after_round(chain, self._pool_of([*map(self._score, Members(tuple(chain.judged))), *told.scores]))

    def _exhausted(self, chain: Chain, told: Told, reason: str) -> Decision:
        waiting = Members((*chain.judged, *chain.unjudged))
        return self._close(chain, self._pool_of([*map(self._score, waiting), *told.scores]), reason)

    def _close(self, chain: Chain, pool: Pool, reason: str) -> Decision:
        """The chain ends: train on a mixed pool, whatever the rule had wished for."""
        if pool.mixed:
            return Decision("accept", reason, counts=True)
        if pool.size and pool.low >= self._top:
            return Decision("drop", "solved", fate="solved")
        return Decision("give_up", reason)

    def _pool_of(self, scores: list[float]) -> Pool:
        if not scores:
            return Pool(0, 0, 0.0, 0.0)
        return Pool(len(scores), sum([s >= self._top for s in scores]), min(scores), max(scores))


def at_least(name: str, value: int, least: int) -> int:
    """Check one whole-number parameter of a rule.

    Raises:
        ValueError: `value` is below `least`.
    """
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return value
