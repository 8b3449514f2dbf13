"""Allocation: how many rollouts each problem gets, and when to stop. Ask/tell; the caller owns the loop.

    requests = allocator.ask(free_slots)
    verdict = allocator.tell(scored_attempt, version)

Rules: `fixed` (GRPO), `dynamic` (DAPO), `never_give_up` (NGU).
"""

from __future__ import annotations

from typing import Any

from gumption.allocation.base import ChainAllocator
from gumption.allocation.fixed import Dynamic, Fixed
from gumption.allocation.never_give_up import NeverGiveUp
from gumption.config import RunConfig
from gumption.types import Allocator, ProblemStream

__all__ = ["ChainAllocator", "Dynamic", "Fixed", "NeverGiveUp", "make_allocator"]


def make_allocator(config: RunConfig, stream: ProblemStream, seed: int) -> Allocator:
    """The allocator that `config.allocation` names.

    Args:
        config: `allocation`, and of `rewards` the maximum score and the reward that rules look at.
        stream: Where problems come from.
        seed: Run seed, for coins.

    >>> from gumption.testing import ListStream, problem
    >>> make_allocator(RunConfig(), ListStream([problem("a")]), seed=0).rule
    'never_give_up'
    """
    a = config.allocation
    shared: dict[str, Any] = {
        "group_size": a.group_size,
        "max_age": a.max_age,
        "max_score": config.rewards.max_score,
        "filter_on": config.rewards.filter_on,
        "seed": seed,
    }
    if a.rule == "fixed":
        return Fixed(stream, drop_zero_variance=a.drop_zero_variance, **shared)
    if a.rule == "dynamic":
        return Dynamic(stream, max_refills=a.max_refills, groups_per_update=config.training.groups_per_update, **shared)
    return NeverGiveUp(
        stream,
        retry_probability=a.retry_probability,
        accept_on=a.accept_on,
        max_attempts=a.max_attempts,
        **shared,
    )
