"""Leverage: what a rollout is worth for the gradient, as an effective number of rollouts.

A success of a problem that is solved with probability p carries the gradient's direction as ∇p/p, a failure as
−∇p/(1 − p), under noise that is assumed alike; their worth is the squared signal-to-noise. `binary` is the published
definition. `generalised` extends it to graded rewards and is ours: for those, dropping members by their value biases
the gradient's direction, not only its scale.

Source: "Speeding up RL with high-leverage samples", Applied Compute, 2026
(https://www.appliedcompute.com/research/speeding-up-rl-with-high-leverage-samples).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gumption.credit.advantage import TOLERANCE
from gumption.types import BoolArray, FloatArray


def binary(successes_G: BoolArray, p_hat: float) -> FloatArray:
    """Leverage of the members of a group with 0/1 rewards.

    L_i = (1 − p̂)/p̂ for a success, p̂/(1 − p̂) for a failure

    Source: Applied Compute, 2026 (file header).

    Args:
        successes_G: Which members succeeded, shape (G,).
        p_hat: Success rate: of the group, or of the whole chain where the baseline is the chain's.

    Returns:
        Leverage ≥ 0, shape (G,). With p̂ = K/G its mean is 1 over a mixed group and it equals the squared
        std-normalised advantage. p̂ = 0 and p̂ = 1 (all equal) give 0 for every member.

    Raises:
        ValueError: p̂ is outside [0, 1].

    >>> binary(np.array([True] + [False] * 9), 0.1).round(3).tolist()[:2]
    [9.0, 0.111]
    >>> round(9 / (1 / 9))  # failures that one success outweighs at p = 0.1
    81
    """
    if not 0 <= p_hat <= 1:
        raise ValueError(f"p_hat = {p_hat!r} is not a success rate")
    successes_G = np.asarray(successes_G, np.bool_)
    if p_hat in (0.0, 1.0):
        return np.zeros(successes_G.shape)
    return np.where(successes_G, (1 - p_hat) / p_hat, p_hat / (1 - p_hat))


def generalised(rewards_G: npt.ArrayLike, baseline: float | None = None) -> FloatArray:
    """Leverage for graded rewards, a generalisation: the squared advantage over its mean.

    L_i = (r_i − b)²/mean_j (r_j − b)²

    Source: ours; for two-valued rewards with b the group's mean it equals `binary`.

    Args:
        rewards_G: Rewards, shape (G,).
        baseline: b; default: the group's mean.

    Returns:
        Leverage ≥ 0 with mean 1, shape (G,). All 0 where every reward equals the baseline (up to float noise).

    >>> generalised([1.0, 0.5, 0.0]).tolist()
    [1.5, 0.0, 1.5]
    """
    rewards_G = np.asarray(rewards_G, np.float64)
    if rewards_G.size == 0:
        return np.zeros(rewards_G.shape)
    deviations_G = rewards_G - (rewards_G.mean() if baseline is None else baseline)
    if float(np.abs(deviations_G).max()) <= TOLERANCE:
        return np.zeros(rewards_G.shape)
    squares_G = deviations_G**2
    result: FloatArray = squares_G / squares_G.mean()
    return result


def effective_rollouts(leverage_J: npt.ArrayLike) -> float:
    """How many average rollouts a subset is worth: its summed leverage.

    The variance of the best estimate from the subset is ∝ 1/ΣL.

    Source: Applied Compute, 2026 (file header).

    Args:
        leverage_J: Leverage of the kept members.

    Returns:
        ΣL; G for a whole mixed group, 0 for an empty or all-equal one.

    >>> effective_rollouts(binary(np.array([True, False, False, False]), 0.25))
    4.0
    """
    return float(np.sum(np.asarray(leverage_J, np.float64)))


def effective_rollouts_of(coefficients_J: npt.ArrayLike, successes_J: BoolArray, p: float) -> float:
    """How many average rollouts a subset is worth when its members enter the gradient with *these* coefficients.

    (Σ₊ a/p − Σ₋ a/(1 − p))²·p(1 − p)/Σ a²

    Source: derived from the equal-noise model of the file header. Its maximum over a is ΣL, at a ∝ (1 − p) on successes
    and −p on failures.

    Args:
        coefficients_J: Weight times advantage of each kept member.
        successes_J: Which of them succeeded.
        p: Success probability, in (0, 1).

    Returns:
        Effective rollouts; 0 where all coefficients are 0.

    Raises:
        ValueError: p is not strictly between 0 and 1.

    >>> round(effective_rollouts_of([0.75, -0.25, -0.25, -0.25], np.array([True, False, False, False]), 0.25), 9)
    4.0
    """
    if not 0 < p < 1:
        raise ValueError(f"p = {p!r}: the worth of a rollout is defined for 0 < p < 1")
    a_J = np.asarray(coefficients_J, np.float64)
    square = float(np.sum(a_J**2))
    if square == 0:
        return 0.0
    signal = float(np.sum(np.where(successes_J, a_J / p, -a_J / (1 - p))))
    return signal**2 * p * (1 - p) / square


def is_binary(rewards_G: FloatArray, max_score: float = 1.0) -> bool:
    """Is every reward 0 or `max_score` (up to float noise)? An empty group is.

    >>> is_binary(np.array([0.0, 1.0])), is_binary(np.array([0.0, 0.5]))
    (True, False)
    """
    off_G = np.minimum(np.abs(rewards_G), np.abs(rewards_G - max_score))
    return bool(off_G.max(initial=0.0) <= TOLERANCE)
