"""`pilot_commit`: a pilot decides whether a problem gets the full group (Pilot-Commit, arXiv 2605.26606).

Assumption: problems with a pilot success rate inside a band are worth the commit, those outside are not, now. The
authors train on pilot and commit together, although the pilot has selected the problem; so do we. Departures: they
commit from a replay buffer in which a pilot may be four steps old, and count it as on-policy; here each problem is
committed as soon as its own pilot is back, and every rollout keeps its log-probs and version. Their permanent exclusion
of problems with an all-correct pilot is a chooser: `no_positive_resampling` with `threshold = 1.0`.
"""

from __future__ import annotations

from typing import Any, ClassVar, final

from gumption.allocation.base import Decision
from gumption.allocation.chain import TOLERANCE, Chain
from gumption.allocation.pool import Pool, PoolAllocator, at_least
from gumption.types import ProblemStream


@final
class PilotCommit(PoolAllocator):
    """`pilot_size` rollouts; `commit_size` more if their success rate is inside the band; the union is trained on.

    Args:
        stream: Where problems come from.
        pilot_size: Rollouts of the pilot, ≥ 2.
        commit_size: Rollouts after it, ≥ 1.
        pilot_low: Lower end of the band (inclusive), in [0, 1].
        pilot_high: Upper end of the band (inclusive), in [pilot_low, 1].
        **shared: See `ChainAllocator` (without `group_size`).

    Raises:
        ValueError: a parameter is out of range.

    >>> from gumption.testing import ListStream, answer, problem
    >>> pilot = PilotCommit(ListStream([problem("a"), problem("b")]), pilot_size=4, commit_size=8)
    >>> a, b = pilot.ask(8)
    >>> pilot.tell(answer(a, [0.0] * 4), version=0).reason, pilot.tell(answer(b, [1, 0, 0, 0]), version=0).reason
    ('below_band', 'inside_band')
    >>> [commit] = pilot.ask(1)
    >>> commit.n, pilot.tell(answer(commit, [0.0] * 8), version=0).group.size
    (8, 12)
    """

    rule: ClassVar[str] = "pilot_commit"

    def __init__(
        self,
        stream: ProblemStream,
        *,
        pilot_size: int = 16,
        commit_size: int = 48,
        pilot_low: float = 0.125,
        pilot_high: float = 0.75,
        **shared: Any,
    ) -> None:
        super().__init__(stream, group_size=at_least("pilot_size", pilot_size, 2), **shared)
        if not 0 <= pilot_low <= pilot_high <= 1:
            raise ValueError(f"the band must be 0 ≤ pilot_low ≤ pilot_high ≤ 1, got {pilot_low} and {pilot_high}")
        self.commit_size = at_least("commit_size", commit_size, 1)
        self.pilot_low, self.pilot_high = pilot_low, pilot_high

    def _size(self, chain: Chain) -> int:
        return self.commit_size if chain.rounds else self.group_size

    def _after_round(self, chain: Chain, pool: Pool) -> Decision:
        if chain.rounds > 1:
            return self._close(chain, pool, "committed")
        rate = chain.successes / chain.count  # rollouts too old to train on tell about the problem all the same
        if rate < self.pilot_low - TOLERANCE:
            return Decision("give_up", "below_band")
        if rate > self.pilot_high + TOLERANCE:
            solved = chain.successes == chain.count
            return Decision("drop", "above_band", fate="solved" if solved else "gave_up")
        return Decision("retry", "inside_band")
