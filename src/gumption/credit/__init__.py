"""Credit: what each rollout of a group is worth. Pure functions on arrays; `make_credit` binds them to a run.

advantage.py   how much better than expected (grpo, rloo, chain, …)
leverage.py    how many average rollouts it counts for
bits.py        how much its reward can teach
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from gumption.config import RunConfig
from gumption.credit import advantage as advantages
from gumption.credit import bits, leverage
from gumption.types import Credit, FloatArray, Group

__all__ = ["bits", "group_credit", "leverage", "make_credit"]


def make_credit(
    config: RunConfig, value: Callable[[str], float] | None = None
) -> Callable[[Sequence[Group]], list[Credit]]:
    """The credit stage of a run: groups of a batch in, one `Credit` each out.

    Args:
        config: Its `credit` table, `allocation.rescale` and `allocation.max_age`, and `rewards.max_score` are used.
            At `max_age = −1` nothing gets stale in a chain, so nothing is rescaled; nor is anything under rules other
            than `never_give_up`, which leave members out on purpose.
        value: For `tracked`: expected reward of a problem, by its id; default ½ for all.

    Raises:
        ValueError: a MaxRL advantage together with length penalties (rewards below 0).

    With another `credit.objective` than "as_published" the stage is `gumption.planning.make_stages`.

    >>> make_credit(RunConfig())([])
    []
    """
    assert config.credit.objective == "as_published", "exact objectives: gumption.planning.make_stages"
    name = config.advantage
    if (name == "max_rl" or config.credit.chain_max_rl) and config.rewards.overlong_buffer > 0:
        raise ValueError(
            f"rewards.overlong_buffer = {config.rewards.overlong_buffer} makes rewards negative, for which MaxRL is "
            "not defined: set it to 0 or take another credit.advantage"
        )
    unscaled = config.allocation.max_age == -1 or config.allocation.rule != "never_give_up"
    rescale = "none" if unscaled else config.allocation.rescale

    def credit(groups: Sequence[Group]) -> list[Credit]:
        credits = [
            group_credit(
                group,
                advantage="centered" if name == "batch_std" else name,
                rescale=rescale,
                chain_max_rl=config.credit.chain_max_rl,
                max_score=config.rewards.max_score,
                value=(0.5 if value is None else value(group.problem.id)) if name == "tracked" else None,
            )
            for group in groups
        ]
        if name == "batch_std":
            scaled = advantages.batch_std([group.rewards_G for group in groups])
            credits = [replace(c, advantages_G=a_G) for c, a_G in zip(credits, scaled, strict=True)]
        return credits

    return credit


def group_credit(
    group: Group,
    *,
    advantage: str,
    rescale: str = "anchor_pos",
    chain_max_rl: bool = False,
    max_score: float = 1.0,
    value: float | None = None,
) -> Credit:
    """Advantages, leverage and bits of one group.

    Leverage and advantages share their baseline: with `chain` that is every attempt of the chain, else the members.
    So a chain whose failures are all stale still knows that its successes are rare. Graded rewards get the generalised
    leverage (see `leverage.generalised`). Bits look at the task's own reward, and for 0/1 rewards at all attempts.

    Args:
        group: Any size, 0 included.
        advantage: Name in `credit.advantage` (`auto` resolved).
        rescale: For `chain`: `anchor_pos`, `ratio`, `count_ratio` or `none`.
        chain_max_rl: Divide `chain` by the accepted attempt's mean reward.
        max_score: Reward of a success.
        value: For `tracked`: the problem's expected reward, from before these rollouts.

    Returns:
        Credit; `p_hat` is the success rate, for graded rewards the mean reward. It and `bits` are 0 where nothing was
        valued.

    Raises:
        ValueError: an unknown advantage.

    >>> from gumption.types import Attempt, Member, Problem, Request
    >>> request = Request(Problem("x-0", "2+2=", "4", "math"), n=4)
    >>> attempt = Attempt.empty(request, rewards=[1.0, 0.0, 0.0, 0.0])
    >>> members = tuple(Member(attempt, i) for i in range(4))
    >>> group = Group(request.chain_id, request.problem, members, 4, 1.0, 1, 1, (4, 1.0))
    >>> credit = group_credit(group, advantage="grpo")
    >>> credit.advantages_G.round(3).tolist(), credit.leverage_G.round(3).tolist(), credit.p_hat
    ([1.732, -0.577, -0.577, -0.577], [3.0, 0.333, 0.333, 0.333], 0.25)
    """
    rewards_G = group.rewards_G
    is_chain = advantage == "chain"
    if is_chain:
        valued, value_sum = group.attempt_values
        advantages_G = advantages.chain(
            rewards_G,
            count=group.count,
            reward_sum=group.reward_sum,
            rescale=rescale,
            attempt_rate=(value_sum / valued if valued else 0.0) if chain_max_rl else None,
        )
    elif advantage == "tracked" and value is not None:
        advantages_G = advantages.tracked(rewards_G, value)
    elif advantage in advantages.GROUP_ADVANTAGES:
        advantages_G = advantages.GROUP_ADVANTAGES[advantage](rewards_G)
    else:
        names = ", ".join([*advantages.GROUP_ADVANTAGES, "chain"])
        raise ValueError(f"unknown advantage {advantage!r}: use one of {names}")
    binary = leverage.is_binary(rewards_G, max_score)
    leverage_G, p_hat = _leverage(group, is_chain, binary, max_score)
    return Credit(advantages_G, leverage_G, p_hat, _bits(group, binary, max_score))


def _leverage(group: Group, is_chain: bool, binary: bool, max_score: float) -> tuple[FloatArray, float]:
    rewards_G = group.rewards_G
    if binary:
        successes_G = rewards_G > max_score / 2
        successes, count = (group.successes, group.count) if is_chain else (int(successes_G.sum()), group.size)
        p_hat = successes / count if count else 0.0
        return leverage.binary(successes_G, p_hat), p_hat
    baseline = group.baseline if is_chain else float(rewards_G.mean())
    return leverage.generalised(rewards_G, baseline), baseline


def _bits(group: Group, binary: bool, max_score: float) -> float:
    task_G = _task_rewards(group)
    if binary if task_G is group.rewards_G else leverage.is_binary(task_G, max_score):
        return _binary_bits(group.successes, group.count)
    return bits.histogram_entropy(task_G)


@lru_cache(maxsize=4096)
def _binary_bits(successes: int, count: int) -> float:
    """Few pairs occur, and numpy is slow on scalars."""
    return float(bits.group_entropy(successes, count))


def _task_rewards(group: Group) -> FloatArray:
    """Rewards before length shaping, which would look like information."""
    rewards = [m.attempt.rewards_G[m.position] for m in group.members if m.attempt.rewards_G is not None]
    if all(r.task is None for r in rewards):
        return group.rewards_G
    return np.array([r.task_value for r in rewards], np.float64)
