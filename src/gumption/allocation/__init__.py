"""Allocation: how many rollouts each problem gets, and when to stop. Ask/tell; the caller owns the loop.

    requests = allocator.ask(free_slots)
    verdict = allocator.tell(scored_attempt, version)

rule             module              idea
fixed            fixed.py            one attempt of a fixed size (GRPO)
dynamic          fixed.py            as fixed; groups of equal rewards do not count (DAPO)
never_give_up    never_give_up.py    again until an attempt does better (NGU)
reinforce_ada    reinforce_ada.py    rounds until both classes are there, then a small balanced group
pilot_commit     pilot_commit.py     many more if the pilot's success rate is inside a band
screen           screen.py           some more if the first few differ (SPEED-RL)
until_success    until_success.py    rounds until one success, or a remembered one (AR3PO)
estimate         estimate.py         a size for each problem from its known pass count
"""

from __future__ import annotations

from typing import Any

from gumption.allocation.base import ChainAllocator
from gumption.allocation.estimate import Estimate
from gumption.allocation.fixed import Dynamic, Fixed
from gumption.allocation.never_give_up import NeverGiveUp
from gumption.allocation.pilot_commit import PilotCommit
from gumption.allocation.pool import PoolAllocator
from gumption.allocation.reinforce_ada import ReinforceAda
from gumption.allocation.screen import Screen
from gumption.allocation.until_success import UntilSuccess
from gumption.config import RunConfig
from gumption.types import Allocator, ProblemStream

__all__ = [
    "ChainAllocator",
    "Dynamic",
    "Estimate",
    "Fixed",
    "NeverGiveUp",
    "PilotCommit",
    "PoolAllocator",
    "ReinforceAda",
    "Screen",
    "UntilSuccess",
    "make_allocator",
]

_RULES: dict[str, tuple[type[ChainAllocator], tuple[str, ...]]] = {
    "fixed": (Fixed, ("group_size", "drop_zero_variance")),
    "dynamic": (Dynamic, ("group_size", "max_refills")),
    "never_give_up": (NeverGiveUp, ("group_size", "retry_probability", "accept_on", "max_attempts")),
    "reinforce_ada": (ReinforceAda, ("round_size", "max_rounds", "exit", "keep")),
    "pilot_commit": (PilotCommit, ("pilot_size", "commit_size", "pilot_low", "pilot_high")),
    "screen": (Screen, ("screen_size", "continue_size")),
    "until_success": (UntilSuccess, ("round_size", "max_rounds", "memory_age")),
    "estimate": (Estimate, ("unknown_size", "drop_zero_variance")),
}
"""Rule → class and the keys of `config.allocation` that it takes."""


def make_allocator(config: RunConfig, stream: ProblemStream, seed: int) -> Allocator:
    """The allocator that `config.allocation` names.

    Args:
        config: `allocation`, and of `rewards` the maximum score and the reward that rules look at.
        stream: Where problems come from.
        seed: Run seed, for coins.

    Raises:
        ValueError: the profile of `estimate` cannot be read.

    >>> from gumption.testing import ListStream, problem
    >>> make_allocator(RunConfig(), ListStream([problem("a")]), seed=0).rule
    'never_give_up'
    """
    a = config.allocation
    made, keys = _RULES[a.rule]
    options: dict[str, Any] = {key: getattr(a, key) for key in keys}
    if a.rule == "dynamic":
        options["groups_per_update"] = config.training.groups_per_update
    elif a.rule == "estimate":
        from gumption.profile import pass_counts

        assert a.profile is not None, "the configuration was validated"
        options["counts"] = pass_counts(a.profile)
    return made(
        stream,
        max_age=a.max_age,
        max_score=config.rewards.max_score,
        filter_on=config.rewards.filter_on,
        seed=seed,
        **options,
    )
