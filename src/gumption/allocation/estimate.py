"""`estimate`: a fixed number of rollouts for each problem, set by how often it was solved before training.

The static baseline of the Never Give Up paper (arXiv 2609.13443): what adaptive stopping has to beat when pass rates
are known. Of 32 samples, 8 or more successes → 4 rollouts, 4 to 7 → 8, 2 or 3 → 16, fewer → 32. Departures: a profile
with another number of samples is scaled to 32, k·32/n; a problem that the profile does not name gets `unknown_size`. As
the counts never change while the policy does, they are those of the initial policy throughout.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from gumption.allocation.base import ChainAllocator, Decision, Told
from gumption.allocation.chain import Chain
from gumption.allocation.fixed import single
from gumption.allocation.pool import at_least
from gumption.types import ProblemStream

SIZES: tuple[tuple[float, int], ...] = ((8.0, 4), (4.0, 8), (2.0, 16), (0.0, 32))
"""(successes of 32 at least, rollouts), most successes first."""


def static_size(n: int, successes: int) -> int:
    """Rollouts for a problem that was solved `successes` times in `n`.

    Raises:
        ValueError: no samples, or more successes than samples.

    >>> [static_size(32, k) for k in (32, 8, 7, 4, 3, 2, 1, 0)]
    [4, 4, 8, 8, 16, 16, 32, 32]
    >>> static_size(64, 15), static_size(8, 1)
    (8, 8)
    """
    if not (n >= 1 and 0 <= successes <= n):
        raise ValueError(f"{successes} successes of {n} cannot be")
    return next(size for least, size in SIZES if successes * 32 / n >= least)


@final
class Estimate(ChainAllocator):
    """One attempt per problem, of a size that its known pass count sets.

    Args:
        stream: Where problems come from.
        counts: Problem id → (samples, successes) before training.
        unknown_size: Rollouts of a problem that `counts` does not name, ≥ 1.
        drop_zero_variance: Groups of equal rewards keep their place in the batch, untrained; False trains on them.
        **shared: See `ChainAllocator` (without `group_size`).

    Raises:
        ValueError: a parameter is out of range.

    >>> from gumption.testing import ListStream, problem
    >>> stream = ListStream([problem("easy"), problem("hard"), problem("new")])
    >>> [r.n for r in Estimate(stream, counts={"easy": (32, 20), "hard": (32, 0)}).ask(44)]
    [4, 32, 8]
    """

    rule: ClassVar[str] = "estimate"

    def __init__(
        self,
        stream: ProblemStream,
        *,
        counts: Mapping[str, tuple[int, int]],
        unknown_size: int = 8,
        drop_zero_variance: bool = True,
        **shared: Any,
    ) -> None:
        super().__init__(stream, group_size=at_least("unknown_size", unknown_size, 1), **shared)
        self.sizes = {problem_id: static_size(n, k) for problem_id, (n, k) in counts.items()}
        self.drop_zero_variance = drop_zero_variance

    def _size(self, chain: Chain) -> int:
        return self.sizes.get(chain.id.problem_id, self.group_size)

    def _judge(self, chain: Chain, told: Told) -> Decision:
        return single(told, self._top, counts=True, drop=self.drop_zero_variance)
