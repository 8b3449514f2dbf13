"""Expected rollouts and implied objectives of the rules, by playing every possible sequence of reward counts.

The allocator itself is asked and told, so what is enumerated is the code, not a formula of it. Tables: algorithms.md
1.4 and 2.4 (rounds of 8, cap 32, n = 4).
"""

from functools import cache

import numpy as np
import pytest
from scipy.stats import binom

from gumption.allocation import PilotCommit, ReinforceAda, Screen, UntilSuccess
from gumption.credit import group_credit
from gumption.testing import ListStream, answer, problem


@cache
def ends(rule, **options):
    """Every way in which a chain can end: the (successes, rollouts) of its rounds, and the verdict."""
    found = []

    def walk(rounds):
        allocator = rule(ListStream([problem()]), **dict(options))
        for k, _ in rounds:
            [request] = allocator.ask(1)
            verdict = allocator.tell(answer(request, [1.0] * k + [0.0] * (request.n - k)), 0)
        if rounds and verdict.kind != "retry":
            found.append((rounds, verdict))
            return
        [request] = allocator.ask(1)
        for k in range(request.n + 1):
            walk([*rounds, (k, request.n)])

    walk([])
    return found


def probability(rounds, p):
    return float(np.prod([binom.pmf(k, n, p) for k, n in rounds]))


def expected(rule, p, value, **options):
    return sum(probability(rounds, p) * value(verdict) for rounds, verdict in ends(rule, **options))


def rollouts(verdict):
    return verdict.group.count


def coefficient(p):
    """Σ_successes a/p + Σ_failures (−a)/(1 − p), mean over what is trained on; the baseline is the whole pool's."""

    def value(verdict):
        rewards_G = verdict.group.rewards_G
        if not verdict.train or np.ptp(rewards_G) == 0:
            return 0.0
        advantages_G = group_credit(verdict.group, advantage="chain", rescale="none").advantages_G
        return float(np.where(rewards_G > 0, advantages_G / p, -advantages_G / (1 - p)).mean())

    return value


@pytest.mark.parametrize(
    ("p", "mean"),
    [(0.01, 28.5), (0.02, 25.5), (0.05, 19.2), (0.1, 13.6), (0.2, 9.6), (0.3, 8.5), (0.5, 8.0)],
)
def test_rollouts_of_reinforce_ada_positive(p, mean):
    assert expected(ReinforceAda, p, rollouts, exit="positive") == pytest.approx(mean, abs=0.05)


@pytest.mark.parametrize(
    ("p", "mean"),
    [(0.02, 30.9), (0.05, 27.3), (0.1, 21.0), (0.2, 13.4), (0.3, 10.3), (0.5, 8.6), (0.7, 10.3), (0.9, 21.0)],
)
def test_rollouts_of_reinforce_ada_balanced(p, mean):
    assert expected(ReinforceAda, p, rollouts, exit="balanced") == pytest.approx(mean, abs=0.05)


WEIGHTS = {
    "positive": {0.02: 6.04, 0.05: 4.39, 0.1: 2.88, 0.2: 1.70, 0.3: 1.26, 0.7: 1.18, 0.8: 1.39, 0.9: 1.62, 0.95: 1.73},
    "balanced": {0.02: 7.17, 0.05: 5.86, 0.1: 3.95, 0.2: 2.04, 0.3: 1.35, 0.7: 1.35, 0.8: 2.04, 0.9: 3.95, 0.95: 5.86},
}


@pytest.mark.parametrize("exit", WEIGHTS)
def test_objective_of_reinforce_ada(exit):
    """w(p)/w(½) of the table."""
    middle = expected(ReinforceAda, 0.5, coefficient(0.5), exit=exit)
    for p, weight in WEIGHTS[exit].items():
        found = expected(ReinforceAda, p, coefficient(p), exit=exit) / middle
        assert found == pytest.approx(weight, abs=0.02), p


@pytest.mark.parametrize("p", [0.0, 0.05, 0.3, 0.5, 0.95, 1.0])
def test_rollouts_of_screen(p):
    """4 + 12·(1 − p⁴ − q⁴)."""
    assert expected(Screen, p, rollouts) == pytest.approx(4 + 12 * (1 - p**4 - (1 - p) ** 4))


@pytest.mark.parametrize("p", [0.01, 0.1, 0.4, 0.8])
def test_rollouts_of_pilot_commit(p):
    """16 + 48·P(2 ≤ K ≤ 12): the band [.125, .75] of 16, both ends included."""
    inside = binom.cdf(12, 16, p) - binom.cdf(1, 16, p)
    assert expected(PilotCommit, p, rollouts) == pytest.approx(16 + 48 * inside)


@pytest.mark.parametrize("p", [0.0, 0.02, 0.1, 0.5])
def test_rollouts_of_until_success(p):
    """8·Σ_{r<4} q^(8r): each round is asked if all before it failed."""
    assert expected(UntilSuccess, p, rollouts) == pytest.approx(8 * sum((1 - p) ** (8 * r) for r in range(4)))


@pytest.mark.parametrize("rule", [ReinforceAda, Screen, PilotCommit, UntilSuccess])
def test_all_ways_to_end_have_probability_one_and_lose_nothing(rule):
    assert expected(rule, 0.3, lambda verdict: 1.0) == pytest.approx(1.0)
    for _, verdict in ends(rule):
        assert verdict.group.size * verdict.train + len(verdict.finals) == verdict.group.count
