"""`screen`: a few rollouts first, more of them only if these differ (SPEED-RL, arXiv 2506.09016).

Assumption: a problem whose first rollouts are all equal is too easy or too hard to be worth the rest. Departures: the
authors screen the next batch and continue this one in one generation call and buffer up to three batches; here each
problem is continued as soon as its own screening is back. A problem at pass rate p is continued with probability
1 − p^n − (1 − p)^n, n = `screen_size`.
"""

from __future__ import annotations

from typing import Any, ClassVar, final

from gumption.allocation.base import Decision
from gumption.allocation.chain import Chain
from gumption.allocation.pool import Pool, PoolAllocator, at_least
from gumption.types import ProblemStream


@final
class Screen(PoolAllocator):
    """`screen_size` rollouts; `continue_size` more if their rewards differ; the union is trained on.

    Args:
        stream: Where problems come from.
        screen_size: Rollouts of the screening, ≥ 2 (one rollout cannot differ from itself).
        continue_size: Rollouts after it, ≥ 1.
        **shared: See `ChainAllocator` (without `group_size`).

    Raises:
        ValueError: a parameter is out of range.

    >>> from gumption.testing import ListStream, answer, problem
    >>> screen = Screen(ListStream([problem("a"), problem("b")]), screen_size=2, continue_size=3)
    >>> a, b = screen.ask(4)
    >>> screen.tell(answer(a, [1.0, 1.0]), version=0).reason, screen.tell(answer(b, [0.0, 1.0]), version=0).reason
    ('solved', 'mixed')
    >>> [rest] = screen.ask(1)
    >>> rest.n, screen.tell(answer(rest, [0.0, 0.0, 0.0]), version=0).group.size
    (3, 5)
    """

    rule: ClassVar[str] = "screen"

    def __init__(self, stream: ProblemStream, *, screen_size: int = 4, continue_size: int = 12, **shared: Any) -> None:
        super().__init__(stream, group_size=at_least("screen_size", screen_size, 2), **shared)
        self.continue_size = at_least("continue_size", continue_size, 1)

    def _size(self, chain: Chain) -> int:
        return self.continue_size if chain.rounds else self.group_size

    def _after_round(self, chain: Chain, pool: Pool) -> Decision:
        if chain.rounds == 1 and pool.mixed:
            return Decision("retry", "mixed")
        return self._close(chain, pool, "all_equal" if chain.rounds == 1 else "continued")
