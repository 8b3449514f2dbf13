"""The linear system: identity exact, non-negative, least noise; what cannot be is refused or `None`."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from scipy.optimize import minimize

from gumption.planning.polynomial import GRID, Pair, State, identity, solve, target


def fixed(n, kept=lambda k, m: (k, m)):
    return [State(n, k, Fraction(comb(n, k)), *kept(k, n - k)) for k in range(1, n)]


def noise(states, pairs):
    total = 0.0
    for s, x in zip(states, pairs, strict=True):
        m = s.rollouts - s.successes
        chance = sum(float(s.weight) * p ** (s.successes - 1) * (1 - p) ** (m - 1) for p in GRID)
        for value, kept in ((x.alpha, s.kept_successes), (x.beta, s.kept_failures)):
            total += chance * float(value) ** 2 / kept if kept else 0.0
    return total


@pytest.mark.parametrize("n", [2, 8, 16])
def test_rloo_solves_a_fixed_group(n):
    """α = β = K·M/(n(n − 1)), and C(n, j+1)·α(j+1) + C(n, j)·β(j) = C(n−1, j)."""
    states = fixed(n)
    pairs = [Pair(*[Fraction(s.successes * (n - s.successes), n * (n - 1))] * 2) for s in states]
    assert identity(states, pairs) == target(1)
    alpha = {s.successes: x.alpha for s, x in zip(states, pairs, strict=True)} | {0: 0, n: 0}
    for j in range(n):
        assert comb(n, j + 1) * alpha[j + 1] + comb(n, j) * alpha[j] == comb(n - 1, j)
    assert noise(states, solve(states, 1)) <= noise(states, pairs) * (1 + 1e-9)


@pytest.mark.parametrize("order", [1, 2, 5, 8])
def test_identity_is_exact_and_signs_are_right(order):
    states = fixed(8)
    pairs = solve(states, order)
    assert identity(states, pairs) == [1] * order
    assert all(x.alpha >= 0 and x.beta >= 0 for x in pairs)


def test_max_rl_of_order_n_is_the_mean_score_of_successes():
    """With all groups in, averaging over successes is a solution of MaxRL(n) (arXiv 2602.02710)."""
    n = 5
    states = [State(n, k, Fraction(comb(n, k)), k, n - k) for k in range(1, n + 1)]
    assert identity(states, [Pair(Fraction(1), Fraction(0))] * n) == target(n)


@pytest.mark.parametrize("order", [1, 3])
def test_least_noise_is_that_of_a_float_solver(order):
    states = fixed(5)
    pairs = solve(states, order)
    size = 2 * len(states)
    columns = np.zeros((5, size))
    for u in range(size):
        unit = [Pair(Fraction(0), Fraction(0))] * len(states)
        unit[u // 2] = Pair(Fraction(1 - u % 2), Fraction(u % 2))
        for power, value in enumerate(identity(states, unit)):
            columns[power, u] = value
    rhs = np.array([1.0] * order + [0.0] * (5 - order))
    found = minimize(
        lambda x: noise(states, [Pair(*x[2 * i : 2 * i + 2]) for i in range(len(states))]),
        np.full(size, 0.2),
        bounds=[(0, None)] * size,
        constraints={"type": "eq", "fun": lambda x: columns @ x - rhs},
        options={"maxiter": 500, "ftol": 1e-14},
    )
    assert noise(states, pairs) == pytest.approx(found.fun, rel=1e-4)


def test_signs_are_kept_where_the_free_optimum_is_negative():
    """Failures almost for free in one state, dear in the others: the unconstrained optimum has a negative sign."""
    states = fixed(4, kept=lambda k, m: (k, 1e-6 if k == 2 else 1e6))
    pairs = solve(states, 1)
    assert identity(states, pairs) == target(1)
    assert min(min(x) for x in pairs) >= 0


def test_a_class_that_is_dropped_has_no_coefficient():
    """Leverage ½ on groups of 8 keeps the rarer class alone, and the solution is unique: α = K/8, β = M/8."""
    kept = {True: lambda k, m: (k, 0), False: lambda k, m: (0, m)}
    states = fixed(8, kept=lambda k, m: (2, 2) if k == m else kept[k < m](k, m))
    for s, x in zip(states, solve(states, 1), strict=True):
        m = 8 - s.successes
        assert x == Pair(Fraction(s.successes, 8) if s.successes <= 4 else 0, Fraction(m, 8) if m <= 4 else 0)


def test_no_solution_is_none():
    """Successes alone of mixed groups cannot give expected reward: at p = 1 nothing is left."""
    assert solve(fixed(4, kept=lambda k, m: (k, 0)), 1) is None


@pytest.mark.parametrize("order", [0, 9])
def test_orders_without_an_estimate_are_refused(order):
    with pytest.raises(ValueError, match=f"truncation = {order} .* use 1 … 8"):
        solve(fixed(8), order)


def test_states_with_equal_rewards_may_take_part():
    states = [State(2, k, Fraction(comb(2, k)), k, 2 - k) for k in range(3)]
    assert identity(states, solve(states, 2)) == target(2)
