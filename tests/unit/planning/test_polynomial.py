"""The linear system: identity exact, non-negative, least noise; what cannot be is refused or `None`."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from scipy.optimize import linprog, minimize

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


def matrix(states):
    """Columns of the unknowns α₀, β₀, α₁, … that there are, and their indices."""
    largest = max(s.rollouts for s in states)
    columns, kept = [], []
    for u in range(2 * len(states)):
        s = states[u // 2]
        if _absent(s, u % 2):
            continue
        unit = [Pair(Fraction(0), Fraction(0))] * len(states)
        unit[u // 2] = Pair(Fraction(1 - u % 2), Fraction(u % 2))
        found = [float(x) for x in identity(states, unit)]
        columns.append(found + [0.0] * (largest - len(found)))
        kept.append(u)
    return np.array(columns).T, kept


def _absent(state, is_beta):
    members = state.rollouts - state.successes if is_beta else state.successes
    return members == 0 or (state.kept_failures if is_beta else state.kept_successes) == 0


def random_rule(rng):
    """Two rounds of 2 or 3 with random stopping counts; classes dropped and kept dear or cheap at random."""
    n = int(rng.integers(2, 4))
    stop = set(rng.choice(n + 1, int(rng.integers(1, 3)), replace=False).tolist())
    weights = {(n, k): comb(n, k) for k in stop}
    for k in set(range(n + 1)) - stop:
        for j in range(n + 1):
            weights[2 * n, k + j] = weights.get((2 * n, k + j), 0) + comb(n, k) * comb(n, j)
    kept = rng.choice([0, 1, 1, 30], (len(weights), 2))
    states = [State(*key, Fraction(w), *map(int, k)) for (key, w), k in zip(sorted(weights.items()), kept, strict=True)]
    return states, int(rng.choice([1, 2, 2 * n]))


def test_solutions_are_found_wherever_there_are_any_and_are_the_least_noisy():
    """150 random rules against a linear program (feasible or not) and a float minimiser (noise)."""
    rng = np.random.default_rng(5)
    solved = exchanged = 0
    for case in range(150):
        states, order = random_rule(rng)
        largest = max(s.rollouts for s in states)
        columns, kept = matrix(states)
        rhs = np.array([1.0] * order + [0.0] * (largest - order))
        feasible = linprog(np.zeros(len(kept)), A_eq=columns, b_eq=rhs).status == 0
        pairs = solve(states, order)
        assert (pairs is not None) == feasible, (states, order)
        if pairs is None:
            continue
        solved += 1
        assert min(min(x) for x in pairs) >= 0
        exchanged += any(pairs[u // 2][u % 2] == 0 for u in kept)
        if case < 30:
            unit = [noise(states, _pairs(len(states), {u: 1.0})) for u in kept]
            best = minimize(
                lambda x, unit=unit: float(np.dot(unit, x**2)),
                [float(pairs[u // 2][u % 2]) for u in kept],
                bounds=[(0, None)] * len(kept),
                constraints={"type": "eq", "fun": lambda x, c=columns, b=rhs: c @ x - b},
                options={"maxiter": 100, "ftol": 1e-12},
            )
            assert noise(states, pairs) <= best.fun * (1 + 1e-5)
    assert solved > 60 and exchanged > 20


def _pairs(size, values):
    return [Pair(*(Fraction(values.get(2 * i + j, 0)) for j in (0, 1))) for i in range(size)]


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
