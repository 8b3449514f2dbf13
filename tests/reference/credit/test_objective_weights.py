"""What the rules really optimise, by exact enumeration over reward counts (algorithms.md, sections 2.4 and 3).

For 0/1 rewards a rule that looks only at rewards has E[g] = w(p)·∇p with
w(p) = E[Σ_successes a/p + Σ_failures (−a)/(1 − p)], a the coefficient of a kept rollout.
"""

from functools import cache

import numpy as np
import pytest
from scipy.stats import binom

from gumption.credit import leverage
from gumption.credit.advantage import GROUP_ADVANTAGES, chain
from gumption.selection.leverage import smallest_share


def coefficients(successes, size, *, advantage="centered", share=None, count=None):
    """Summed coefficients on kept successes and against kept failures, and how many are kept.

    A tie gives an odd place to either class at random: its expectation is taken over both.
    """
    rewards_G = (np.arange(size) < successes).astype(float)
    if count is None:
        advantages_G, p_hat = GROUP_ADVANTAGES[advantage](rewards_G), successes / size
    else:
        advantages_G, p_hat = chain(rewards_G, count=count, reward_sum=successes), successes / count
    kept_G = np.ones(size)
    if share is not None:
        leverage_G = leverage.binary(rewards_G > 0, p_hat)
        draws = [smallest_share(leverage_G, advantages_G > 0, share, np.random.default_rng(s)) for s in range(4)]
        kept_J = draws[0]
        kept_G = np.isin(np.arange(size), kept_J).astype(float)
        assert {d.size for d in draws} == {kept_J.size}
        if 2 * successes == size:
            kept_G[:] = kept_J.size / size
    signed_G = kept_G * advantages_G
    return signed_G[rewards_G > 0].sum(), -signed_G[rewards_G == 0].sum(), kept_G.sum()


@cache
def table(size, **rule):
    return np.array([coefficients(k, size, **rule) for k in range(size + 1)])


def weight(p, size, **rule):
    """w(p), divided by the group's size."""
    right, wrong, _ = table(size, **rule).T
    return float(binom.pmf(np.arange(size + 1), size, p) @ (right / p + wrong / (1 - p))) / size


def relative(p, size, **rule):
    return weight(p, size, **rule) / weight(0.5, size, **rule)


P = [0.02, 0.05, 0.1, 0.2, 0.3, 0.7, 0.8, 0.9, 0.95]


@pytest.mark.parametrize("p", P)
def test_centered_optimises_the_success_rate_itself(p):
    assert relative(p, 16, advantage="centered") == pytest.approx(1, abs=1e-12)
    assert weight(p, 16, advantage="centered") == pytest.approx(15 / 16, abs=1e-12)
    assert weight(p, 16, advantage="dr_grpo") == pytest.approx(15 / 16, abs=1e-12)
    assert weight(p, 16, advantage="rloo") == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("p", "expected"),
    zip(P, [1.86, 1.69, 1.47, 1.21, 1.08, 1.08, 1.21, 1.47, 1.69], strict=True),
)
def test_grpo_leans_to_both_ends(p, expected):
    assert relative(p, 16, advantage="grpo") == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("size", [2, 4, 16])
@pytest.mark.parametrize("p", P)
def test_max_rl_is_the_likelihood_truncated_at_the_groups_size_minus_one(p, size):
    assert weight(p, size, advantage="max_rl") == pytest.approx((1 - (1 - p) ** (size - 1)) / p, rel=1e-10)


@pytest.mark.parametrize(
    ("share", "p", "expected"),
    [(0.9, p, w) for p, w in [(0.02, 1.10), (0.05, 1.07), (0.1, 1.03), (0.2, 1.01), (0.3, 1.01)]]
    + [(0.9, p, w) for p, w in [(0.8, 1.01), (0.9, 1.03), (0.95, 1.07)]]
    + [(0.5, p, w) for p, w in [(0.02, 2.04), (0.05, 1.77), (0.1, 1.45), (0.2, 1.25), (0.3, 1.20)]]
    + [(0.5, p, w) for p, w in [(0.8, 1.25), (0.9, 1.45), (0.95, 1.77)]],
)
def test_leverage_leans_to_both_ends(share, p, expected):
    assert relative(p, 32, share=share) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(
    ("share", "p", "expected"),
    [(0.5, p, w) for p, w in [(0.02, 0.91), (0.05, 0.79), (0.1, 0.65), (0.2, 0.56), (0.5, 0.45)]]
    + [(0.9, p, w) for p, w in [(0.02, 0.95), (0.05, 0.92), (0.1, 0.89), (0.2, 0.87), (0.5, 0.865)]],
)
def test_leverage_absolute_weights(share, p, expected):
    assert weight(p, 32, share=share) == pytest.approx(expected, abs=0.006)


def kept_share(p, size, share):
    """Expected kept share of a mixed group."""
    k = np.arange(1, size)
    mixed = binom.pmf(k, size, p)
    return float(mixed @ table(size, share=share)[1:size, 2] / mixed.sum()) / size


@pytest.mark.parametrize(
    ("share", "p", "expected"),
    [(0.5, p, s) for p, s in [(0.05, 0.053), (0.1, 0.076), (0.2, 0.145), (0.3, 0.241), (0.5, 0.400)]]
    + [(0.6, p, s) for p, s in [(0.05, 0.054), (0.1, 0.083), (0.2, 0.171), (0.3, 0.287), (0.5, 0.489)]]
    + [(0.75, p, s) for p, s in [(0.05, 0.062), (0.1, 0.104), (0.2, 0.224), (0.3, 0.415), (0.5, 0.666)]]
    + [(0.88, p, s) for p, s in [(0.05, 0.072), (0.1, 0.176), (0.2, 0.485), (0.3, 0.704), (0.5, 0.855)]]
    + [(0.9, p, s) for p, s in [(0.05, 0.083), (0.1, 0.219), (0.2, 0.554), (0.3, 0.748), (0.5, 0.875)]],
)
def test_kept_share_table(share, p, expected):
    assert kept_share(p, 32, share) == pytest.approx(expected, abs=0.002)
    assert kept_share(1 - p, 32, share) == pytest.approx(expected, abs=0.002)


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 0.216), (0.6, 0.258), (0.75, 0.357), (0.88, 0.555), (0.9, 0.596)]
)
def test_kept_share_over_uniform_success_rates(share, expected):
    """With p uniform every mixed count 1 … 31 is equally likely."""
    assert table(32, share=share)[1:32, 2].mean() / 32 == pytest.approx(expected, abs=0.002)


@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.parametrize("p", [0.1, 0.3, 0.45])
def test_kept_share_of_a_large_group_is_the_closed_form(share, p):
    size = 4000
    expected = share * p / (1 - p) if share <= 1 - p else p + (share - 1 + p) * (1 - p) / p
    assert coefficients(round(p * size), size, share=share)[2] / size == pytest.approx(expected, abs=0.001)


ATTEMPTS = 120  # at p = .02 a chain is this long with probability (.875 · .98⁸)^120 < 1e-15


@cache
def chain_table(share):
    """Coefficients of accepted groups by (earlier attempts, successes in the last), and their sizes; nothing stale."""
    states = []
    for earlier in range(ATTEMPTS if share is None else 60):
        size = 8 * (earlier + 1)
        for successes in range(1, 9 if earlier else 8):
            right, wrong, _ = coefficients(successes, size, count=size, share=share)
            states.append((earlier, successes, size, right, wrong))
    return np.array(states).T


def chain_weight(p, share, *, per_rollout):
    """w(p) of Never Give Up: groups of 8, retried with probability .875 while nothing succeeded."""
    earlier, successes, size, right, wrong = chain_table(share)
    probability = (0.875 * (1 - p) ** 8) ** earlier * binom.pmf(successes, 8, p)
    return float(probability @ ((right / p + wrong / (1 - p)) / (size if per_rollout else 1)))


@pytest.mark.parametrize(
    ("share", "per_rollout", "row"),
    [
        (None, False, [4.23, 2.55, 1.69, 1.20, 0.99]),
        (None, True, [1.92, 1.55, 1.29, 1.10, 1.00]),
        (0.5, False, [8.29, 4.81, 2.98, 1.82, 1.78]),
        (0.5, True, [3.75, 2.93, 2.29, 1.67, 1.78]),
    ],
)
def test_never_give_up_changes_the_objective(share, per_rollout, row):
    middle = chain_weight(0.5, share, per_rollout=per_rollout)
    weights = [chain_weight(p, share, per_rollout=per_rollout) / middle for p in (0.02, 0.05, 0.1, 0.2, 0.9)]
    assert weights == pytest.approx(row, abs=0.02)
