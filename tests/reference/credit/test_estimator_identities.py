"""Unbiasedness by exact enumeration of every group that a small softmax policy can draw."""

import itertools

import numpy as np
import pytest
from scipy.stats import binom

from gumption.credit import bits, leverage
from gumption.credit.advantage import GROUP_ADVANTAGES, chain
from gumption.selection.leverage import smallest_share

LOGITS = np.array([0.3, -0.8, 0.1, -0.4])
PROBS = np.exp(LOGITS) / np.exp(LOGITS).sum()
SCORES = np.eye(4) - PROBS  # ∇ log π(a) with respect to the logits, one row per action
GRADED = np.array([1.0, 0.35, 0.0, 0.6])
BINARY = np.array([1.0, 0.0, 0.0, 1.0])


def expected_gradient(rewards, size, coefficients):
    """E[Σ_i c_i ∇log π(a_i)] over all groups of `size` actions."""
    total = np.zeros(4)
    for actions in itertools.product(range(4), repeat=size):
        group = np.array(actions)
        total += PROBS[group].prod() * (coefficients(rewards[group]) @ SCORES[group])
    return total


def true_gradient(rewards):
    """∇ Σ_a π(a) r(a)."""
    return (PROBS * rewards) @ SCORES


@pytest.mark.parametrize("rewards", [GRADED, BINARY], ids=["graded", "binary"])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_rloo_is_unbiased(rewards, size):
    gradient = expected_gradient(rewards, size, GROUP_ADVANTAGES["rloo"]) / size
    assert gradient == pytest.approx(true_gradient(rewards), abs=1e-14)


@pytest.mark.parametrize("rewards", [GRADED, BINARY], ids=["graded", "binary"])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_centered_is_unbiased_up_to_one_factor(rewards, size):
    gradient = expected_gradient(rewards, size, GROUP_ADVANTAGES["centered"]) / size
    assert gradient == pytest.approx((size - 1) / size * true_gradient(rewards), abs=1e-14)


def test_grpo_points_elsewhere_for_graded_rewards_but_not_for_binary_ones():
    def cosine(rewards):
        gradient = expected_gradient(rewards, 4, GROUP_ADVANTAGES["grpo"])
        truth = true_gradient(rewards)
        return gradient @ truth / np.linalg.norm(gradient) / np.linalg.norm(truth)

    assert cosine(BINARY) == pytest.approx(1, abs=1e-12)
    assert cosine(GRADED) < 1 - 1e-4


def test_max_rl_is_the_gradient_of_the_truncated_log_likelihood():
    """∇[−Σ_{k=1}^{T} (1 − p)^k/k] with T = G − 1."""
    p = PROBS @ BINARY
    expected = sum((1 - p) ** (k - 1) for k in range(1, 4)) * true_gradient(BINARY)
    gradient = expected_gradient(BINARY, 4, GROUP_ADVANTAGES["max_rl"]) / 4
    assert gradient == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9])
def test_leverage_only_rescales_the_gradient_for_binary_rewards(share):
    def kept(rewards_G):
        advantages_G = GROUP_ADVANTAGES["centered"](rewards_G)
        leverage_G = leverage.binary(rewards_G > 0, rewards_G.mean())
        kept_J = smallest_share(leverage_G, advantages_G > 0, share, np.random.default_rng(0))
        return np.where(np.isin(np.arange(rewards_G.size), kept_J), advantages_G, 0.0)

    ratios = expected_gradient(BINARY, 5, kept) / true_gradient(BINARY)
    assert ratios == pytest.approx(ratios.mean(), rel=1e-12)
    assert ratios.mean() > 0


def test_stopping_at_a_success_only_rescales_the_gradient_for_binary_rewards():
    """A chain of attempts of two, at most three, trained whole with the chain's baseline."""
    total = np.zeros(4)
    for length in (1, 2, 3):
        for actions in itertools.product(range(4), repeat=2 * length):
            rewards_G = BINARY[list(actions)]
            if rewards_G[: 2 * (length - 1)].any() or not rewards_G.any() or (length == 1 and rewards_G.all()):
                continue
            advantages_G = chain(rewards_G, count=rewards_G.size, reward_sum=float(rewards_G.sum()))
            total += PROBS[list(actions)].prod() * (advantages_G @ SCORES[list(actions)])
    ratios = total / true_gradient(BINARY)
    assert ratios == pytest.approx(ratios.mean(), rel=1e-12)
    assert ratios.mean() > 1


@pytest.mark.parametrize("size", [2, 5, 16])
@pytest.mark.parametrize("p", [0.02, 0.3, 0.5, 0.9])
def test_success_variance_is_unbiased(size, p):
    k = np.arange(size + 1)
    mean = binom.pmf(k, size, p) @ bits.success_variance(k, size)
    assert float(mean) == pytest.approx(p * (1 - p), abs=1e-12)


def test_normalised_advantages_measure_only_the_share_of_mixed_groups():
    """Why bits come from raw rewards: the mean square of grpo's advantages is P(mixed), whatever p is."""
    k = np.arange(9)
    squares = [np.mean(GROUP_ADVANTAGES["grpo"](np.arange(8) < successes) ** 2) for successes in k]
    for p in (0.05, 0.5):
        mixed = 1 - p**8 - (1 - p) ** 8
        assert float(binom.pmf(k, 8, p) @ squares) == pytest.approx(mixed, rel=1e-4)
