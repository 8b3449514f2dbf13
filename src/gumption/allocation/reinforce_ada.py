"""`reinforce_ada`: rounds until a problem has shown what training needs, then a small group (arXiv 2510.04996).

The sequential rule of version 1 and of the authors' code (RLHFlow/Reinforce-Ada). Departures:

- Which members of a class are kept is a draw by hash. The authors keep the first ones, and the order in which rollouts
  come back is the order of their lengths.
- Each problem runs its own rounds; theirs share a barrier in each training step.
- A success is a rollout at `max_score`; theirs one above 0.7. With graded rewards everything else is a failure.
- Version 3's further factor 1/p̂ is not in their code, and not here.

The baseline is the mean over the whole pool (`credit.advantage = "chain"`), so the kept group need not sum to 0. The
exit at one success makes the sample mean of a hard problem too high (.019 at p = .01). The direction of the gradient
stays right; the objective leans to hard problems (`docs/concepts.md`, the implied objective).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, final

from gumption import randomness
from gumption.allocation.base import Decision
from gumption.allocation.chain import Chain
from gumption.allocation.pool import Pool, PoolAllocator, at_least
from gumption.types import Final, Member, ProblemStream


@final
class ReinforceAda(PoolAllocator):
    """Rounds of `round_size` until the exit condition holds, at most `max_rounds`; `keep` rollouts are trained on.

    At the last round a pool that did not meet the condition is kept from all the same if its rewards differ. Expected
    rollouts with the defaults and `positive`: 28.5, 19.2, 13.6, 8.5, 8.0 at p = .01, .05, .1, .3, .5.

    Args:
        stream: Where problems come from.
        round_size: Rollouts per round, ≥ 1.
        max_rounds: Rounds at most, ≥ 1.
        exit: `positive`: at least one success; `balanced`: keep/2 successes and keep/2 failures at least.
        keep: Members of a group, n in the paper, even, ≥ 2: half of each class where there are so many, filled up from
            the other. The rest has the fate `not_selected`.
        **shared: See `ChainAllocator` (without `group_size`).

    Raises:
        ValueError: a parameter is out of range.

    >>> from gumption.testing import ListStream, answer, problem
    >>> ada = ReinforceAda(ListStream([problem()]), round_size=4, keep=2, exit="positive")
    >>> [first] = ada.ask(1)
    >>> ada.tell(answer(first, [0.0] * 4), version=0).kind
    'retry'
    >>> [second] = ada.ask(1)
    >>> verdict = ada.tell(answer(second, [0.0, 1.0, 0.0, 0.0]), version=0)
    >>> verdict.group.rewards_G.tolist(), verdict.group.baseline, len(verdict.finals)
    ([0.0, 1.0], 0.125, 6)
    """

    rule: ClassVar[str] = "reinforce_ada"

    def __init__(
        self,
        stream: ProblemStream,
        *,
        round_size: int = 8,
        max_rounds: int = 4,
        exit: Literal["positive", "balanced"] = "balanced",
        keep: int = 4,
        **shared: Any,
    ) -> None:
        super().__init__(stream, group_size=at_least("round_size", round_size, 1), **shared)
        if exit not in ("positive", "balanced"):
            raise ValueError(f"exit must be 'positive' or 'balanced', got {exit!r}")
        if keep < 2 or keep % 2:
            raise ValueError(f"keep must be even and at least 2 (half of each class), got {keep}")
        self.max_rounds = at_least("max_rounds", max_rounds, 1)
        self.exit = exit
        self.keep = keep

    def _after_round(self, chain: Chain, pool: Pool) -> Decision:
        half = self.keep // 2
        enough = pool.successes >= 1 if self.exit == "positive" else min(pool.successes, pool.failures) >= half
        if enough:
            return self._close(chain, pool, self.exit)
        if chain.rounds < self.max_rounds:
            return Decision("retry", f"not_{self.exit}")
        return self._close(chain, pool, "max_rounds")

    def _train_on(self, chain: Chain, members: Sequence[Member], finals: list[Final]) -> Sequence[Member]:
        """Half of each class, drawn by hash; those left out get their fate."""
        good: list[Member] = []
        bad: list[Member] = []
        for member in members:
            (good if self._score(member) >= self._top else bad).append(member)
        half = self.keep // 2
        take_good = min(len(good), max(half, self.keep - len(bad)))
        take_bad = min(len(bad), self.keep - take_good)
        kept = {*self._draw(good)[:take_good], *self._draw(bad)[:take_bad]}
        finals += [Final(m, "not_selected", "not_kept") for m in members if _place(m) not in kept]
        return tuple(m for m in members if _place(m) in kept)

    def _draw(self, members: list[Member]) -> list[tuple[int, int]]:
        """Places of the members in random order."""

        def luck(place: tuple[int, int]) -> float:
            return randomness.uniform(self.seed, "keep", *members[0].attempt.request.chain_id, *place)

        return sorted(map(_place, members), key=luck)


def _place(member: Member) -> tuple[int, int]:
    """Names a member within its chain."""
    return member.attempt.request.attempt, member.position
