"""`never_give_up`: keep sampling an unsolved problem until an attempt does better (NGU, arXiv 2609.13443).

As in the authors' public code (allenai/open-instruct, branch `ngu`). Departures: `max_attempts` (the published rule has
no cap, and problems that cannot be solved then eat most of the rollouts); an attempt that comes back too old is asked
for again, where the published code loses the chain; rewards may be missing (see `ChainAllocator`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeAlias, final

from gumption import randomness
from gumption.allocation.base import ChainAllocator, Decision, Told
from gumption.allocation.chain import TOLERANCE, Chain
from gumption.types import ChainId, ProblemStream

Coin: TypeAlias = Callable[[float, ChainId, int], bool]
"""`coin(probability, chain_id, attempt)`: is this chain tried again after its attempt number `attempt` (from 0)?"""


@final
class NeverGiveUp(ChainAllocator):
    """Small attempts; solved problems are dropped after one, unsolved ones are tried again with a coin.

    An accepted group holds this attempt and the fresh rollouts of all earlier ones. Without a cap, a problem that
    cannot be solved gets 1/(1 − retry_probability) attempts on average.

    Args:
        stream: Where problems come from.
        retry_probability: Chance that an unsolved problem is tried again, in (0, 1].
        accept_on: A later attempt is accepted when it beats the chain's best score (`better`), or when its scores
            differ or its best is not the chain's best (`different`).
        max_attempts: Attempts per visit at most; `None`: no cap.
        **shared: See `ChainAllocator`.

    The attribute `coin` decides retries; another one may be put in its place, to follow both branches of each toss.

    Raises:
        ValueError: a parameter is out of range.

    >>> from gumption.testing import ListStream, answer, problem
    >>> ngu = NeverGiveUp(ListStream([problem("hard")]), group_size=2, retry_probability=1.0)
    >>> [first] = ngu.ask(2)
    >>> verdict = ngu.tell(answer(first, [0.0, 0.0]), version=0)
    >>> verdict.kind, verdict.reason
    ('retry', 'all_equal')
    >>> [again] = ngu.ask(2)
    >>> verdict = ngu.tell(answer(again, [0.0, 1.0]), version=1)
    >>> verdict.kind, verdict.reason, verdict.group.size, verdict.group.baseline
    ('accept', 'better', 4, 0.25)
    """

    rule: ClassVar[str] = "never_give_up"

    def __init__(
        self,
        stream: ProblemStream,
        *,
        retry_probability: float = 0.875,
        accept_on: Literal["better", "different"] = "better",
        max_attempts: int | None = 16,
        **shared: Any,
    ) -> None:
        super().__init__(stream, **shared)
        if not 0 < retry_probability <= 1:
            raise ValueError(f"retry_probability must be in (0, 1], got {retry_probability}")
        if accept_on not in ("better", "different"):
            raise ValueError(f"accept_on must be 'better' or 'different', got {accept_on!r}")
        if max_attempts is not None and max_attempts < 1:
            raise ValueError(f"max_attempts must be at least 1, or None for no cap, got {max_attempts}")
        self.retry_probability = retry_probability
        self.accept_on = accept_on
        self.max_attempts = max_attempts
        self.coin: Coin = self._hashed_coin

    def _judge(self, chain: Chain, told: Told) -> Decision:
        reason = self._accept(chain.best, told.low, told.high)
        if reason is not None:
            return Decision("accept", reason, counts=True)
        if told.high >= self._top:  # a later attempt as good as this would have been better than the chain's best
            return Decision("drop", "solved", fate="solved")
        if self.max_attempts is not None and chain.attempts >= self.max_attempts:
            return Decision("give_up", "max_attempts")
        if self.retry_probability < 1 and not self.coin(self.retry_probability, chain.id, chain.attempts - 1):
            return Decision("give_up", "coin")
        return Decision("retry", "all_equal" if chain.best is None else f"not_{self.accept_on}")

    def _accept(self, best: float | None, low: float, high: float) -> str | None:
        """Why an attempt with scores from `low` to `high` is accepted, or `None`."""
        differ = high - low > TOLERANCE
        if best is None:
            return "mixed" if differ else None
        if high > best + TOLERANCE:
            return "better"
        if self.accept_on == "different" and (differ or high < best - TOLERANCE):
            return "different"
        return None

    def _hashed_coin(self, probability: float, chain_id: ChainId, attempt: int) -> bool:
        return randomness.uniform(self.seed, "coin", *chain_id, attempt) < probability

    def _may_resample(self, chain: Chain) -> bool:
        capped = self.max_attempts is not None and chain.attempts >= self.max_attempts
        return not capped and super()._may_resample(chain)
