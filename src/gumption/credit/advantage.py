"""Advantages: how much better a rollout did than was to be expected. Pure functions on rewards.

The group baselines look at the last axis, so one group (G,) or a stack of equally large groups (…, G) may be passed.
All work in float64. A group of one member and a group of equal rewards get exactly 0, never NaN; a spread of at most
`TOLERANCE` is float noise, not variance. `chain` (Never Give Up) takes its baseline from every attempt of a chain, so
it also needs the chain's counts.

Departures from the papers: `grpo` uses the population standard deviation, as the GRPO paper writes it (TRL and others
use the sample's); `dr_grpo` is `centered` because the other half of that paper, the constant length denominator, is a
property of the loss (`training.denominator = "constant"`); `chain`'s `anchor_pos` balances the whole group, which for
graded rewards is not the published −ΣA⁺/ΣA⁻.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from gumption.types import BoolArray, FloatArray

TOLERANCE: Final = 1e-6
"""Rewards that differ by no more than this are equal."""


def centered(rewards_G: npt.ArrayLike) -> FloatArray:
    """Reward minus the group's mean.

    A_i = r_i − r̄

    Source: REINFORCE with a group baseline; Dr. GRPO, arXiv 2503.20783.

    Args:
        rewards_G: Rewards, shape (…, G), usually in [0, 1].

    Returns:
        Advantages of the same shape; each group sums to 0. Equal rewards and groups of one give 0. For binary rewards
        E[ΣA·∇log π]/G = (G − 1)/G · ∇p.

    Raises:
        ValueError: a reward is NaN or infinite.

    >>> centered([1.0, 0.0, 0.0, 0.0]).tolist()
    [0.75, -0.25, -0.25, -0.25]
    >>> centered([0.3, 0.3]).tolist(), centered([1.0]).tolist()
    ([0.0, 0.0], [0.0])
    """
    rewards_G = _finite(rewards_G)
    if rewards_G.shape[-1] == 0:
        return rewards_G
    deviations_G = rewards_G - rewards_G.mean(axis=-1, keepdims=True)
    return np.where(_constant(rewards_G), 0.0, deviations_G)


def rloo(rewards_G: npt.ArrayLike) -> FloatArray:
    """Reward minus the mean of the *other* members: an unbiased gradient.

    A_i = r_i − (Σ_{j≠i} r_j)/(G − 1) = (r_i − r̄)·G/(G − 1)

    Source: arXiv 2402.14740.

    Args:
        rewards_G: Rewards, shape (…, G).

    Returns:
        Advantages of the same shape; each group sums to 0. Equal rewards and groups of one give 0.

    Raises:
        ValueError: a reward is NaN or infinite.

    >>> rloo([1.0, 0.0, 0.0, 0.0]).round(3).tolist()
    [1.0, -0.333, -0.333, -0.333]
    """
    advantages_G = centered(rewards_G)
    size = advantages_G.shape[-1]
    return advantages_G * (size / (size - 1)) if size > 1 else advantages_G


def grpo(rewards_G: npt.ArrayLike, *, eps: float = 1e-6) -> FloatArray:
    """Centred reward over the group's standard deviation.

    A_i = (r_i − r̄)/(σ + ε),  σ² = Σ(r_j − r̄)²/G

    Source: arXiv 2402.03300. For binary rewards A² is the leverage, and the objective becomes Σ 2·arcsin √p.

    Args:
        rewards_G: Rewards, shape (…, G).
        eps: Added to the standard deviation.

    Returns:
        Advantages of the same shape; each group sums to 0, with mean square 1 up to ε. Equal rewards and groups of one
        give 0.

    Raises:
        ValueError: a reward is NaN or infinite.

    >>> grpo([1.0, 1.0, 1.0, 0.0]).round(2).tolist()
    [0.58, 0.58, 0.58, -1.73]
    """
    advantages_G = centered(rewards_G)
    if advantages_G.shape[-1] == 0:
        return advantages_G
    std = np.sqrt(np.mean(advantages_G**2, axis=-1, keepdims=True))
    result: FloatArray = advantages_G / (std + eps)
    return result


def dr_grpo(rewards_G: npt.ArrayLike) -> FloatArray:
    """Dr. GRPO's advantage: `centered`, without the division by the standard deviation.

    A_i = r_i − r̄

    Source: arXiv 2503.20783. Its other correction, a constant instead of each response's own length in the loss, is
    `training.denominator = "constant"`.

    >>> dr_grpo([1.0, 0.0]).tolist()
    [0.5, -0.5]
    """
    return centered(rewards_G)


def max_rl(rewards_G: npt.ArrayLike) -> FloatArray:
    """Centred reward over the group's mean: the likelihood objective truncated at order G − 1.

    A_i = (r_i − r̄)/r̄

    Source: arXiv 2602.02710. For binary rewards E[ΣA·∇log π]/G = (1 − (1 − p)^(G−1))/p · ∇p.

    Args:
        rewards_G: Rewards ≥ 0, shape (…, G).

    Returns:
        Advantages of the same shape; each group sums to 0. No success, equal rewards and groups of one give 0.

    Raises:
        ValueError: a reward is negative (the objective is a likelihood), NaN or infinite.

    >>> max_rl([1.0, 0.0, 0.0, 0.0]).tolist(), max_rl([0.0, 0.0]).tolist()
    ([3.0, -1.0, -1.0, -1.0], [0.0, 0.0])
    """
    rewards_G = _finite(rewards_G)
    if rewards_G.size and rewards_G.min() < 0:
        raise ValueError(
            f"max_rl needs rewards ≥ 0, got {float(rewards_G.min()):g}: leave out penalties "
            "(rewards.overlong_buffer = 0) or take another advantage"
        )
    advantages_G = centered(rewards_G)
    if advantages_G.shape[-1] == 0:
        return advantages_G
    mean = rewards_G.mean(axis=-1, keepdims=True)
    result: FloatArray = np.divide(advantages_G, mean, out=np.zeros_like(advantages_G), where=mean > 0)
    return result


GROUP_ADVANTAGES: Final[dict[str, Callable[[npt.ArrayLike], FloatArray]]] = {
    "centered": centered,
    "rloo": rloo,
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "max_rl": max_rl,
}
"""Advantages that need nothing but the group's rewards, by their name in `credit.advantage`."""


def batch_std(rewards: Sequence[npt.ArrayLike], *, eps: float = 1e-6) -> list[FloatArray]:
    """Centred by group, divided by the standard deviation of the whole batch's rewards.

    A_i = (r_i − r̄_group)/(σ_batch + ε)

    Source: TRL's `scale_rewards = "batch"`, after arXiv 2508.08221. One scalar for the batch, so problems keep their
    relative weight (w(p) is that of `centered`), and a nearly solved group is not blown up. Departure: σ is the
    population's.

    Args:
        rewards: Rewards of each group, any sizes.
        eps: Added to the standard deviation.

    Returns:
        Advantages of each group; equal rewards and groups of one give 0.

    Raises:
        ValueError: a reward is NaN or infinite.

    >>> [a.round(3).tolist() for a in batch_std([[1.0, 0.0], [1.0, 1.0]])]
    [[1.155, -1.155], [0.0, 0.0]]
    """
    groups = [_finite(rewards_G) for rewards_G in rewards]
    std = float(np.concatenate(groups).std()) if any(g.size for g in groups) else 0.0
    return [centered(rewards_G) / (std + eps) for rewards_G in groups]


def tracked(rewards_G: npt.ArrayLike, value: float) -> FloatArray:
    """Reward minus what this problem was expected to bring before any of these rollouts.

    A_i = r_i − v

    Source: SPO, arXiv 2509.13232. As v does not know these rewards, it stays a fair baseline whatever decides when
    sampling stops: E[Σ A·∇log π] = E[N]·∇p (Wald), also for groups of one and groups of equal rewards.

    Args:
        rewards_G: Rewards, shape (G,).
        value: v, from a `gumption.allocation.tracker.RewardTracker`.

    Returns:
        Advantages; they need not sum to 0. Within float noise of v they are 0.

    Raises:
        ValueError: a reward or the value is NaN or infinite.

    >>> tracked([1.0, 0.0], 0.25).tolist()
    [0.75, -0.25]
    """
    rewards_G = _finite(rewards_G)
    if not np.isfinite(value):
        raise ValueError(f"value = {value} must be finite")
    advantages_G = rewards_G - value
    return np.where(np.abs(advantages_G) <= TOLERANCE, 0.0, advantages_G)


RESCALES: Final = ("anchor_pos", "ratio", "count_ratio", "none")
"""How `chain` may rebalance a group whose stale failures are in the baseline only."""


def chain(
    rewards_G: npt.ArrayLike,
    *,
    count: int,
    reward_sum: float,
    rescale: str = "anchor_pos",
    attempt_rate: float | None = None,
) -> FloatArray:
    """Never Give Up: reward minus the mean over *all* attempts of the chain, rebalanced for what is not trained on.

    A_i = r_i − b,  b = reward_sum/count

    `anchor_pos` then multiplies all members below the maximum by −(Σ_max A)/(Σ_others A), so that the group sums to 0;
    where no positive factor does that (Σ_others A ≥ 0 or Σ_max A ≤ 0) it changes nothing. `ratio` multiplies everything
    by G/count, `count_ratio` divides it by b + 1e-8. A group whose members are all equal (every failure is stale) is
    never rescaled.

    Source: arXiv 2609.13443 (rules and names as in the authors' public code); MaxRL on chains: arXiv 2602.02710.

    Args:
        rewards_G: Rewards of the members that are trained on, shape (G,).
        count: Valued rollouts of all attempts of the chain, stale ones included.
        reward_sum: Sum of their rewards.
        rescale: One of `RESCALES`; pass "none" where nothing ever gets stale (`max_age = −1`).
        attempt_rate: Mean reward of the accepted attempt. Given, the advantages are divided by it (MaxRL): by the
            attempt's and not the chain's, where a base of 1/400 would let one group dominate an update.

    Returns:
        Advantages of shape (G,). 0 where every reward equals the baseline, and with an `attempt_rate` of 0.

    Raises:
        ValueError: a reward is NaN or infinite; an unknown `rescale`; fewer rollouts counted than there are members;
            a negative `attempt_rate`.

    >>> advantages_G = chain([0.0] * 15 + [1.0], count=32, reward_sum=1.0)
    >>> advantages_G[15] == 31 / 32, round(float(advantages_G[0]), 4), abs(round(float(advantages_G.sum()), 12))
    (np.True_, -0.0646, 0.0)
    """
    rewards_G = _finite(rewards_G)
    if rescale not in RESCALES:
        raise ValueError(f"rescale = {rescale!r}: use one of {', '.join(RESCALES)}")
    if rewards_G.ndim != 1 or count < rewards_G.size:
        raise ValueError(f"a chain that counts {count} rollouts cannot train on rewards of shape {rewards_G.shape}")
    if attempt_rate is not None and attempt_rate < 0:
        raise ValueError(f"MaxRL on chains needs rewards ≥ 0, got an attempt with mean {attempt_rate:g}")
    if rewards_G.size == 0:
        return rewards_G
    baseline = reward_sum / count
    advantages_G = rewards_G - baseline
    if float(np.abs(advantages_G).max()) <= TOLERANCE:
        return np.zeros_like(rewards_G)
    best_G = rewards_G >= rewards_G.max() - TOLERANCE
    if not best_G.all():
        advantages_G = _rebalanced(advantages_G, best_G, rescale, baseline, count)
    if attempt_rate is not None:
        return advantages_G / attempt_rate if attempt_rate > 0 else np.zeros_like(rewards_G)
    return advantages_G


def _rebalanced(advantages_G: FloatArray, best_G: BoolArray, rescale: str, baseline: float, count: int) -> FloatArray:
    if rescale == "anchor_pos":
        best, others = float(advantages_G[best_G].sum()), float(advantages_G[~best_G].sum())
        if best > 0 > others:
            return np.where(best_G, advantages_G, advantages_G * (-best / others))
    elif rescale == "ratio":
        return advantages_G * (advantages_G.size / count)
    elif rescale == "count_ratio":
        return advantages_G / (baseline + 1e-8)
    return advantages_G


def _finite(rewards_G: npt.ArrayLike) -> FloatArray:
    """A float64 copy with at least one axis."""
    array_G: FloatArray = np.array(rewards_G, np.float64, ndmin=1)
    if not np.isfinite(array_G).all():
        raise ValueError(
            f"rewards must be finite, got {array_G[~np.isfinite(array_G)][0]}: leave valueless members out"
        )
    return array_G


def _constant(rewards_G: FloatArray) -> BoolArray:
    result: BoolArray = rewards_G.max(axis=-1, keepdims=True) - rewards_G.min(axis=-1, keepdims=True) <= TOLERANCE
    return result
