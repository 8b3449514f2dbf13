"""`fixed` and `dynamic`: one attempt of a fixed size per problem (GRPO, arXiv 2402.03300; DAPO, arXiv 2503.14476).

Departures: an attempt that could not be judged (errors, all too old) is asked for again instead of being trained short;
DAPO's sampler aborts at its cap of generation batches, here the run trains on what there is.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, final

from gumption.allocation.base import ChainAllocator, Decision, Told
from gumption.allocation.chain import TOLERANCE, Chain
from gumption.types import ProblemStream


def single(told: Told, top: float, *, counts: bool, drop: bool = True) -> Decision:
    """Accept a group whose scores differ; else drop it (if `drop`), in a place of the batch if `counts`."""
    if told.high - told.low > TOLERANCE:
        return Decision("accept", "mixed", counts=True)
    if not drop:
        return Decision("accept", "all_equal", counts=True)
    return Decision("drop", "zero_variance", counts=counts, fate="solved" if told.low >= top else "gave_up")


@final
class Fixed(ChainAllocator):
    """GRPO: groups of `group_size`, one attempt. Those of equal rewards keep their place in the batch, untrained.

    Args:
        stream: Where problems come from.
        drop_zero_variance: False trains on groups of equal rewards too (their advantages are 0).
        **shared: See `ChainAllocator`.
    """

    rule: ClassVar[str] = "fixed"

    def __init__(self, stream: ProblemStream, *, drop_zero_variance: bool = True, **shared: Any) -> None:
        super().__init__(stream, **shared)
        self.drop_zero_variance = drop_zero_variance

    def _judge(self, chain: Chain, told: Told) -> Decision:
        return single(told, self._top, counts=True, drop=self.drop_zero_variance)


@final
class Dynamic(ChainAllocator):
    """DAPO: as `Fixed`, but groups of equal rewards take no place: refill until the batch is full.

    Args:
        stream: Where problems come from.
        max_refills: Generation batches beyond the first for one update. At the bound the run trains on what there is.
        groups_per_update: Groups in a full batch, for the metric `allocation/refills`.
        **shared: See `ChainAllocator`.

    Raises:
        ValueError: `max_refills` is negative.
    """

    rule: ClassVar[str] = "dynamic"

    def __init__(
        self, stream: ProblemStream, *, max_refills: int = 10, groups_per_update: int | None = None, **shared: Any
    ) -> None:
        super().__init__(stream, **shared)
        if max_refills < 0:
            raise ValueError(f"max_refills must not be negative, got {max_refills}")
        self.max_refills = max_refills
        self.groups_per_update = groups_per_update

    def _judge(self, chain: Chain, told: Told) -> Decision:
        return single(told, self._top, counts=False)

    def batch_ready(self, counted: int, told: int, groups_per_update: int) -> bool:
        """Yes, when the batch is full, or at the bound, if there is anything to train on."""
        bound = groups_per_update * (1 + self.max_refills)
        return counted >= groups_per_update or (counted > 0 and told >= bound)

    def metrics(self) -> dict[str, float]:
        """Also `allocation/refills`: generation batches beyond the first since the last update.

        Where it reaches `max_refills`, the step's `batch/groups` says how many groups there were to train on.
        """
        metrics = super().metrics()
        if self.groups_per_update is not None:
            batches = math.ceil(self._tally.window.attempts / self.groups_per_update)
            metrics["allocation/refills"] = float(max(0, batches - 1))
        return metrics
