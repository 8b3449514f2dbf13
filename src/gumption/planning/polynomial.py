"""Coefficients that make a rule estimate a chosen objective exactly: a small linear system in fractions.

A chain that ends with N rollouts, K successes and M failures by paths of total weight c, and trains with the summed
coefficient α on its kept successes and β against its kept failures, has E[g] = w(p)·∇p with

    w(p) = Σ c·(α·p^(K−1)·q^M + β·p^K·q^(M−1)),    q = 1 − p

A polynomial in q is known by its coefficients, so w = target is one linear equation per power of q. Targets:

    expected reward      w = 1                       ∇p
    MaxRL(T)             w = 1 + q + … + q^(T−1)     (1 − q^T)/p · ∇p, which truncates ∇ log p (arXiv 2602.02710)

Among the non-negative solutions the one of least noise is taken, min Σ_p E[α²/K₊ + β²/M₋]/(pq) over p = .05, .10, … .95
with K₊ and M₋ the members that are kept. That cost is diagonal, so on a given free set the minimum is a linear system
of the size of the number of equations; free sets are exchanged until signs and multipliers agree (block principal
pivoting, and where that fails an active set from a vertex of a linear program). Fractions throughout: in floats the
systems of a few rounds are hopeless. Only the prices of the cost are rounded, to 10 bits, which moves the optimum a
little and the identity not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import comb, frexp
from typing import Final, NamedTuple

GRID: Final = tuple(i / 20 for i in range(1, 20))
_EXCHANGES: Final = 12
_STEPS: Final = 400


class State(NamedTuple):
    """A trained ending: N rollouts, K successes, total weight, and how many of each class are kept."""

    rollouts: int
    successes: int
    weight: Fraction
    kept_successes: float
    kept_failures: float


class Pair(NamedTuple):
    """Summed coefficients of one state: α on kept successes, β against kept failures."""

    alpha: Fraction
    beta: Fraction


class _Unknown(NamedTuple):
    state: int
    is_alpha: bool
    column: dict[int, Fraction]  # power of q → coefficient
    price: Fraction


def target(order: int) -> list[Fraction]:
    """1 + q + … + q^(order−1): MaxRL of this order; order 1 is expected reward.

    >>> target(2)
    [Fraction(1, 1), Fraction(1, 1)]
    """
    return [Fraction(1)] * order


def solve(states: Sequence[State], order: int) -> list[Pair] | None:
    """The exact non-negative coefficients of least noise, or `None` where there are none.

    A class of which a state keeps nothing has the coefficient 0. Groups of equal rewards may be among the states; what
    is not there trains with 0.

    Args:
        states: Trained endings, each (N, K) once.
        order: T of MaxRL(T); 1: expected reward. At most the largest N.

    Returns:
        One pair per state; `identity(states, pairs)` is `target(order)`, exactly.

    Raises:
        ValueError: `order` is below 1, or above the largest N: no unbiased estimate of it exists.

    Groups of 2, both kept: g = ½(S₊ − S₋) when they differ, nothing else.

    >>> solve([State(2, 1, Fraction(2), 1, 1)], 1)
    [Pair(alpha=Fraction(1, 2), beta=Fraction(1, 2))]
    """
    largest = max((s.rollouts for s in states), default=0)
    if not 1 <= order <= largest:
        raise ValueError(
            f"truncation = {order} has no unbiased estimate from at most {largest} rollouts: use 1 … {largest}"
        )
    unknowns = _unknowns(states)
    rhs = target(order) + [Fraction(0)] * (largest - order)
    values = _non_negative(unknowns, rhs)
    if values is None:
        return None
    pairs = [[Fraction(0), Fraction(0)] for _ in states]
    for unknown, value in zip(unknowns, values, strict=True):
        pairs[unknown.state][0 if unknown.is_alpha else 1] = value
    result = [Pair(a, b) for a, b in pairs]
    assert identity(states, result) == target(order), "the coefficients do not satisfy the identity"
    return result


def identity(states: Sequence[State], pairs: Sequence[Pair]) -> list[Fraction]:
    """The weight w as coefficients of 1, q, q², …, without trailing zeros.

    >>> identity([State(2, 1, Fraction(2), 1, 1)], [Pair(Fraction(1, 2), Fraction(1, 2))])
    [Fraction(1, 1)]
    """
    total: dict[int, Fraction] = {}
    for unknown in _unknowns(states):
        value = pairs[unknown.state][0 if unknown.is_alpha else 1]
        for power, coefficient in unknown.column.items():
            total[power] = total.get(power, Fraction(0)) + coefficient * value
    powers = [power for power, coefficient in total.items() if coefficient]
    return [total.get(power, Fraction(0)) for power in range(max(powers, default=-1) + 1)]


def _unknowns(states: Sequence[State]) -> list[_Unknown]:
    found = []
    for i, (rollouts, successes, weight, *kept) in enumerate(states):
        failures = rollouts - successes
        noise = sum(p ** (successes - 1) * (1 - p) ** (failures - 1) for p in GRID)
        for is_alpha, k in zip((True, False), kept, strict=True):
            if k == 0 or (successes if is_alpha else failures) == 0:
                continue
            ps, qs = (successes - 1, failures) if is_alpha else (successes, failures - 1)
            column = {qs + j: weight * comb(ps, j) * (-1) ** j for j in range(ps + 1)}  # c·(1 − q)^ps·q^qs
            found.append(_Unknown(i, is_alpha, column, weight * _rounded(noise / k)))
    return found


def _rounded(value: float) -> Fraction:
    mantissa, exponent = frexp(value)
    return Fraction(round(mantissa * 1024)) * Fraction(2) ** (exponent - 10)


def _non_negative(unknowns: Sequence[_Unknown], rhs: Sequence[Fraction]) -> list[Fraction] | None:
    """Least Σ price·x² with the columns' sum equal to `rhs` and x ≥ 0."""
    return _exchange(unknowns, rhs) or _descend(unknowns, rhs)


def _exchange(unknowns: Sequence[_Unknown], rhs: Sequence[Fraction]) -> list[Fraction] | None:
    """Block principal pivoting: all wrong signs at once; `None` where a free set cannot reach `rhs`, or it cycles."""
    free = set(range(len(unknowns)))
    for _ in range(_EXCHANGES):
        pull = _pull(unknowns, free, rhs)
        if pull is None:
            return None
        wrong = {u for u, force in enumerate(pull) if force and (force < 0) == (u in free)}
        if not wrong:
            return [pull[u] / x.price if u in free else Fraction(0) for u, x in enumerate(unknowns)]
        free ^= wrong
    return None


def _descend(unknowns: Sequence[_Unknown], rhs: Sequence[Fraction]) -> list[Fraction] | None:
    """Primal active set: from a vertex of the feasible set downhill, one sign at a time; `None`: no vertex."""
    vertex = _vertex(unknowns, rhs)
    if vertex is None:
        return None
    values: list[Fraction] = vertex
    free = {u for u, value in enumerate(values) if value}
    for _ in range(_STEPS):
        pull = _pull(unknowns, free, rhs)
        assert pull is not None, "the free set holds a solution"
        goal = [pull[u] / x.price if u in free else Fraction(0) for u, x in enumerate(unknowns)]
        blocking = [u for u in free if goal[u] < 0]
        if blocking:
            step, first = min((values[u] / (values[u] - goal[u]), u) for u in blocking)
            values = [value + step * (to - value) for value, to in zip(values, goal, strict=True)]
            free.remove(first)
            continue
        values = goal
        eager = [u for u, force in enumerate(pull) if u not in free and force > 0]
        if not eager:
            return values
        free.add(max(eager, key=lambda u: pull[u] ** 2 / unknowns[u].price))
    return values  # not the least noise, but exact


def _vertex(unknowns: Sequence[_Unknown], rhs: Sequence[Fraction]) -> list[Fraction] | None:
    """A solution with x ≥ 0: its support from a linear program in floats, its values in fractions."""
    import numpy as np
    from scipy.optimize import linprog

    matrix = np.zeros((len(rhs), len(unknowns)))
    for u, x in enumerate(unknowns):
        for power, coefficient in x.column.items():
            matrix[power, u] = float(coefficient)
    found = linprog(np.zeros(len(unknowns)), A_eq=matrix, b_eq=[float(b) for b in rhs]) if unknowns else None
    if found is None or found.status != 0:
        return None
    support = {u for u, value in enumerate(found.x) if value > 1e-9}
    pull = _pull(unknowns, support, rhs)
    if pull is None or any(pull[u] < 0 for u in support):
        return None
    return [pull[u] / x.price if u in support else Fraction(0) for u, x in enumerate(unknowns)]


def _pull(unknowns: Sequence[_Unknown], free: set[int], rhs: Sequence[Fraction]) -> list[Fraction] | None:
    """Column·λ of every unknown; price·x of the free ones. `None`: the free ones cannot reach `rhs`."""
    multipliers = _multipliers([unknowns[u] for u in sorted(free)], rhs)
    if multipliers is None:
        return None
    return [sum((c * multipliers[i] for i, c in u.column.items()), Fraction(0)) for u in unknowns]


def _multipliers(columns: Sequence[_Unknown], rhs: Sequence[Fraction]) -> list[Fraction] | None:
    """λ with (Σ column·columnᵀ/price)·λ = rhs, by sparse elimination; `None`: there is none."""
    size = len(rhs)
    rows: list[dict[int, Fraction]] = [{} for _ in range(size)]
    for u in columns:
        for i, x in u.column.items():
            scaled = x / u.price
            for j, y in u.column.items():
                rows[i][j] = rows[i].get(j, Fraction(0)) + scaled * y
    right = list(rhs)
    waiting = set(range(size))
    pivots = []
    for j in range(size):
        pivot = next((r for r in sorted(waiting) if rows[r].get(j)), None)
        if pivot is None:
            continue
        waiting.remove(pivot)
        pivots.append((pivot, j))
        for r in waiting:
            factor = rows[r].pop(j, Fraction(0)) / rows[pivot][j]
            if factor:
                for k, x in rows[pivot].items():
                    if k != j:
                        rows[r][k] = rows[r].get(k, Fraction(0)) - factor * x
                right[r] -= factor * right[pivot]
    if any(right[r] for r in waiting):
        return None
    solution = [Fraction(0)] * size
    for pivot, j in reversed(pivots):
        known = sum((x * solution[k] for k, x in rows[pivot].items() if k != j), Fraction(0))
        solution[j] = (right[pivot] - known) / rows[pivot][j]
    return solution
