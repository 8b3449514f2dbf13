"""Bits: how much a reward can teach, per rollout, per token and per FLOP.

H2(p) is the *ceiling* on what one 0/1 reward can say about the rollout that earned it (for a deterministic verifier it
is their mutual information); nothing here measures what was learned. Compute these from raw rewards, never from
normalised advantages, whose mean square is the same for every mixed group.

Sources: "RL is even more information inefficient than you thought" (https://www.dwarkesh.com/p/bits-per-sample, 2025)
for Bits/FLOP = Samples/FLOP × Bits/Sample; the estimators are textbook statistics, named where they are used. All
functions work elementwise on arrays unless they say otherwise.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.special import psi, xlog1py, xlogy

from gumption.credit.advantage import TOLERANCE
from gumption.types import FloatArray

LN2: Final = float(np.log(2.0))


def binary_entropy(p: npt.ArrayLike) -> FloatArray:
    """Entropy of a 0/1 reward in bits.

    H2(p) = −p·log2 p − (1 − p)·log2(1 − p)

    Args:
        p: Success probability, in [0, 1].

    Returns:
        Bits in [0, 1], same shape; 0 at p = 0 and p = 1.

    Raises:
        ValueError: a value outside [0, 1].

    >>> binary_entropy([0.0, 0.1, 0.5]).round(3).tolist()
    [0.0, 0.469, 1.0]
    """
    p = _probability(p, "p")
    result: FloatArray = -(xlogy(p, p) + xlog1py(1 - p, -p)) / LN2
    return result + 0.0  # −0.0 at the ends becomes 0.0


def group_entropy(successes: npt.ArrayLike, count: npt.ArrayLike) -> FloatArray:
    """Reward entropy per rollout from K successes of G, Miller–Madow corrected.

    Ĥ = H2(K/G) + 1/(2 ln 2 · G) where 0 < K < G, else 0

    Source: Miller 1955. The plug-in estimate is biased low (.90 bits instead of 1 at p = .5, G = 8); corrected it is
    .99. Still low for rare successes: .097 bits instead of .141 at p = .02, G = 8.

    Args:
        successes: K, 0 … G.
        count: G, rollouts.

    Returns:
        Bits, same shape; 0 for all-equal and empty groups. One group may exceed 1 bit: average over problems.

    Raises:
        ValueError: K is not in 0 … G.

    >>> group_entropy([0, 1, 4], 8).round(3).tolist()
    [0.0, 0.634, 1.09]
    """
    k, n = _counts(successes, count)
    safe = np.maximum(n, 1)
    mixed = (k > 0) & (k < n)
    return np.where(mixed, binary_entropy(np.where(mixed, k, 0) / safe) + 1 / (2 * LN2 * safe), 0.0)


def reward_entropy(successes_P: npt.ArrayLike, counts_P: npt.ArrayLike) -> float:
    """Mean over *problems* of the reward entropy per rollout: the ceiling on what rewards can teach.

    mean_x Ĥ(K_x, G_x)

    Never H2 of the mean reward: half the problems always solved and half never teach nothing, at a mean of .5.

    Args:
        successes_P: Successes per problem.
        counts_P: Rollouts per problem; problems without any are left out.

    Returns:
        Bits per rollout; 0 when there is no problem.

    >>> reward_entropy([8, 0], [8, 8]), round(reward_entropy([4, 0], [8, 8]), 3)
    (0.0, 0.545)
    """
    k_P, n_P = _counts(successes_P, counts_P)
    if not (n_P > 0).any():
        return 0.0
    return float(group_entropy(k_P, n_P)[n_P > 0].mean())


def histogram_entropy(rewards_G: npt.ArrayLike, *, corrected: bool = True) -> float:
    """Entropy of the rewards that occurred within one problem, for graded and per-test rewards.

    Ĥ = −Σ_v f_v·log2 f_v  [+ (V − 1)/(2 ln 2 · G) corrected],  V values occurring with frequencies f_v

    Args:
        rewards_G: Rewards of one problem, shape (G,). Values within 1e-6 of each other are one value.
        corrected: Add the Miller–Madow term.

    Returns:
        Bits. Uncorrected at most log2(min(G, tests + 1)) for rewards that count passed tests; 0 for equal rewards and
        for none.

    >>> histogram_entropy([0.0, 0.25, 0.5, 1.0], corrected=False), histogram_entropy([0.5, 0.5])
    (2.0, 0.0)
    """
    sorted_G = np.sort(np.asarray(rewards_G, np.float64).ravel())
    size = sorted_G.size
    if size == 0:
        return 0.0
    starts = np.flatnonzero(np.concatenate([[True], np.diff(sorted_G) > TOLERANCE]))
    frequencies_V = np.diff(np.append(starts, size)) / size
    entropy = -float(xlogy(frequencies_V, frequencies_V).sum()) / LN2
    return max(entropy, 0.0) + ((frequencies_V.size - 1) / (2 * LN2 * size) if corrected else 0.0)


def expected_entropy(a: npt.ArrayLike, b: npt.ArrayLike) -> FloatArray:
    """Expected reward entropy when the success rate is Beta(a, b): the part that a policy gradient can use.

    E[H2(θ)] = (ψ(a + b + 1) − m·ψ(a + 1) − (1 − m)·ψ(b + 1))/ln 2,  m = a/(a + b)

    Args:
        a: Prior plus observed successes, > 0.
        b: Prior plus observed failures, > 0.

    Returns:
        Bits in (0, 1).

    Raises:
        ValueError: a or b is not positive.

    >>> round(float(expected_entropy(3, 7)), 4)
    0.8136
    """
    a, b = _beta(a, b)
    m = a / (a + b)
    result: FloatArray = (psi(a + b + 1) - m * psi(a + 1) - (1 - m) * psi(b + 1)) / LN2
    return result


def pass_rate_information(a: npt.ArrayLike, b: npt.ArrayLike) -> FloatArray:
    """Expected information of one more reward about the success rate: what an estimator or a curriculum learns.

    I = H2(m) − E[H2(θ)] ≈ 1/(2 ln 2 · (a + b + 1)),  almost whatever m is

    Another meter than the reward entropy; do not add them up over groups of rollouts.

    Args:
        a: Prior plus observed successes, > 0.
        b: Prior plus observed failures, > 0.

    Returns:
        Bits ≥ 0.

    >>> pass_rate_information([1, 3, 30], [1, 7, 70]).round(4).tolist()
    [0.2787, 0.0677, 0.0072]
    """
    a, b = _beta(a, b)
    return binary_entropy(a / (a + b)) - expected_entropy(a, b)


def outcome_information(a: npt.ArrayLike, b: npt.ArrayLike, success: npt.ArrayLike) -> FloatArray:
    """Information about the success rate in one outcome that was observed: KL of the new Beta from the old.

    Success: (ln(1/m) + ψ(a + 1) − ψ(a + b + 1))/ln 2; failure: the same with b and 1 − m.

    Args:
        a: Successes before, > 0.
        b: Failures before, > 0.
        success: The outcome.

    Returns:
        Bits ≥ 0; their mean under the predictive distribution is `pass_rate_information`.

    >>> outcome_information(3, 7, [True, False]).round(4).tolist()
    [0.1563, 0.0297]
    """
    a, b = _beta(a, b)
    hit = np.where(success, a, b)
    result: FloatArray = (np.log((a + b) / hit) + psi(hit + 1) - psi(a + b + 1)) / LN2
    return result


def noisy_verifier_entropy(p: npt.ArrayLike, error: float) -> FloatArray:
    """Bits that a 0/1 reward carries when the verifier is wrong with probability ε either way.

    H2(p(1 − ε) + (1 − p)ε) − H2(ε)

    Args:
        p: True success probability, in [0, 1].
        error: ε, in [0, 1].

    Returns:
        Bits in [0, 1]; H2(p) at ε = 0, 0 at ε = ½.

    >>> noisy_verifier_entropy([0.05, 0.2, 0.5], 0.05).round(3).tolist()
    [0.167, 0.492, 0.714]
    """
    p, e = _probability(p, "p"), _probability(error, "error")
    # rounding may put the mixture a hair outside [0, 1], and the difference a hair below 0
    return np.maximum(binary_entropy(np.clip(p * (1 - e) + (1 - p) * e, 0, 1)) - binary_entropy(e), 0.0)


def supervised_bits(p: npt.ArrayLike) -> FloatArray:
    """Surprisal of being told an answer that the model gives with probability p: −log2 p.

    A pointwise quantity; H2 is an expectation. They cross at p = ½ only because of that.

    Args:
        p: Probability of the right answer, in (0, 1].

    Returns:
        Bits ≥ 0.

    Raises:
        ValueError: p = 0 (no finite number of bits) or a value outside [0, 1].

    >>> supervised_bits([0.5, 0.125]).tolist()
    [1.0, 3.0]
    """
    p = _probability(p, "p")
    if (p == 0).any():
        raise ValueError("p = 0: an answer that the model never gives has no finite surprisal")
    result: FloatArray = -np.log2(p)
    return result + 0.0


def bits_per_pflop(bits: float, flops: float) -> float:
    """Reward entropy of *all* generated rollouts over *all* FLOPs, discarded rollouts included: bits per 10¹⁵ FLOPs.

    >>> bits_per_pflop(60.0, 2e15), bits_per_pflop(0.0, 0)
    (30.0, 0.0)
    """
    return 1e15 * bits / flops if flops else 0.0


def bits_per_ktok(bits: float, tokens: int) -> float:
    """Reward entropy of *all* generated rollouts over *all* generated tokens: bits per 1,000 tokens.

    >>> bits_per_ktok(3.0, 6000)
    0.5
    """
    return 1e3 * bits / tokens if tokens else 0.0


def success_variance(successes: npt.ArrayLike, count: npt.ArrayLike) -> FloatArray:
    """Unbiased estimate of p(1 − p) from K successes and M failures of G rollouts: K·M/(G(G − 1)).

    Args:
        successes: K, 0 … G.
        count: G.

    Returns:
        Estimates ≥ 0, same shape; NaN where G < 2, for there is no unbiased one.

    >>> success_variance([0, 2], 4).round(4).tolist()
    [0.0, 0.3333]
    """
    k, n = _counts(successes, count)
    pairs = n * (n - 1)
    result: FloatArray = np.divide(k * (n - k), pairs, out=np.full(n.shape, np.nan), where=pairs > 0)
    return result


def first_success_mean(p: npt.ArrayLike) -> FloatArray:
    """What the success rate 1/N averages to when sampling stops at the first success: far above p.

    E[1/N] = −p·ln p/(1 − p)

    Args:
        p: Success probability, in (0, 1].

    Returns:
        The expected estimate; 1 at p = 1.

    >>> first_success_mean([0.05, 0.1, 0.5]).round(3).tolist()
    [0.158, 0.256, 0.693]
    """
    p = _probability(p, "p")
    result: FloatArray = np.divide(-xlogy(p, p), 1 - p, out=np.ones(p.shape), where=p < 1)
    return result


def haldane_rate(successes: npt.ArrayLike, count: npt.ArrayLike) -> FloatArray:
    """Unbiased success rate when sampling stopped at the r-th success, one rollout at a time: (r − 1)/(N − 1).

    Source: Haldane 1945, Biometrika 33:222–225.

    Args:
        successes: r ≥ 2, the success that sampling stopped at.
        count: N ≥ r, rollouts drawn.

    Returns:
        Estimates in (0, 1].

    Raises:
        ValueError: r < 2 (for r = 1 the only unbiased estimate is 1 where N = 1, else 0) or N < r.

    >>> haldane_rate(2, [2, 11]).tolist()
    [1.0, 0.1]
    """
    r, n = _counts(successes, count)
    if r.size and r.min() < 2:
        raise ValueError(f"stopping at success {int(r.min())}: Haldane's estimate needs r ≥ 2")
    return (r - 1) / (n - 1)


def _probability(p: npt.ArrayLike, name: str) -> FloatArray:
    array: FloatArray = np.asarray(p, np.float64)
    bad = ~((array >= 0) & (array <= 1))
    if bad.any():
        raise ValueError(f"{name} = {float(array[bad].flat[0])!r} is not a probability")
    return array


def _counts(successes: npt.ArrayLike, count: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    k, n = np.broadcast_arrays(np.asarray(successes, np.float64), np.asarray(count, np.float64))
    bad = ~((k >= 0) & (k <= n))
    if bad.any():
        raise ValueError(f"{float(k[bad].flat[0]):g} successes of {float(n[bad].flat[0]):g} rollouts")
    return k, n


def _beta(a: npt.ArrayLike, b: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    x, y = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(b, np.float64))
    if not ((x > 0) & (y > 0)).all():
        raise ValueError(f"Beta({a!r}, {b!r}) needs positive counts")
    return x, y
