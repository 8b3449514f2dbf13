"""Leverage: the published numbers, its identity with squared advantages, degenerate cases."""

import numpy as np
import pytest

from gumption.credit.advantage import grpo
from gumption.credit.leverage import binary, effective_rollouts, effective_rollouts_of, generalised, is_binary


def group(successes, size):
    return np.arange(size) < successes


def test_one_success_outweighs_81_failures_at_a_tenth():
    leverage_G = binary(group(1, 10), 0.1)
    assert leverage_G[0] == pytest.approx(9)
    assert leverage_G[1:] == pytest.approx(1 / 9)
    assert leverage_G[0] / leverage_G[1] == pytest.approx(81)


@pytest.mark.parametrize("successes", range(1, 8))
def test_mean_one_and_equal_to_the_squared_std_normalised_advantage(successes):
    successes_G = group(successes, 8)
    leverage_G = binary(successes_G, successes / 8)
    assert leverage_G.mean() == pytest.approx(1, abs=1e-14)
    assert leverage_G == pytest.approx(grpo(successes_G, eps=0.0) ** 2, abs=1e-13)
    assert generalised(successes_G) == pytest.approx(leverage_G, abs=1e-13)
    assert generalised(np.where(successes_G, 1.0, -1.0)) == pytest.approx(leverage_G, abs=1e-13)


@pytest.mark.parametrize("p_hat", [0.0, 1.0])
def test_all_equal_groups_have_none(p_hat):
    assert binary(group(3 * int(p_hat), 3), p_hat).tolist() == [0.0] * 3
    assert generalised([p_hat] * 3).tolist() == [0.0] * 3


def test_a_chains_rate_makes_successes_worth_something_where_the_group_has_nothing_else():
    assert binary(group(4, 4), 4 / 16).tolist() == [3.0] * 4


def test_generalised_takes_the_given_baseline():
    """b = .2: squares .64, .09, .04 over their mean."""
    expected_G = np.array([0.64, 0.09, 0.04]) / (0.77 / 3)
    assert generalised([1.0, 0.5, 0.0], 0.2) == pytest.approx(expected_G, abs=1e-12)
    assert generalised([0.5, 0.5 + 1e-9], 0.5).tolist() == [0.0, 0.0]
    assert generalised([]).shape == (0,)


def test_effective_rollouts_of_a_subset_is_its_leverage_with_the_best_coefficients():
    successes_J = np.array([True, True, False])
    p = 0.2
    leverage_J = binary(successes_J, p)
    best_J = np.where(successes_J, 1 - p, -p)
    assert effective_rollouts_of(best_J, successes_J, p) == pytest.approx(effective_rollouts(leverage_J), rel=1e-12)
    assert effective_rollouts(leverage_J) == pytest.approx(8.25)
    assert effective_rollouts_of([0.0, 0.0, 0.0], successes_J, p) == 0
    assert effective_rollouts([]) == 0


def test_equal_coefficients_waste_rollouts():
    """±1 instead of (1 − p, −p): one success and nine failures at p = .1 are worth 4.44 rollouts, not 10."""
    successes_J = group(1, 10)
    worth = effective_rollouts_of(np.where(successes_J, 1.0, -1.0), successes_J, 0.1)
    assert worth == pytest.approx((10 + 9 / 0.9) ** 2 * 0.09 / 10)
    assert worth < effective_rollouts(binary(successes_J, 0.1)) == pytest.approx(10)


def test_is_binary():
    assert is_binary(np.array([0.0, 10.0, 1e-9]), 10.0)
    assert not is_binary(np.array([0.0, 1.0]), 10.0)
    assert not is_binary(np.array([-1.0, 1.0]))
    assert not is_binary(np.array([np.nan]))
    assert is_binary(np.zeros(0))


def test_errors():
    with pytest.raises(ValueError, match=r"1\.5"):
        binary(group(1, 2), 1.5)
    with pytest.raises(ValueError, match="0 < p < 1"):
        effective_rollouts_of([1.0], np.array([True]), 1.0)
