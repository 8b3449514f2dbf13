"""Expected attempts and rollouts against closed forms, by simulation with fixed seeds.

Each check is a z-test at |z| < 4.5, a false alarm in 1.5·10⁵ draws of the seed; with the committed seed it is
deterministic.
"""

import math

import numpy as np
import pytest

from gumption.allocation import NeverGiveUp
from gumption.testing import ListStream, answer, problem


def chain_lengths(allocator, rate, chains, rng):
    """Rollouts of each chain until it ends, with Bernoulli rewards of this pass rate; and how it ended."""
    lengths, ends = [], []
    while len(lengths) < chains:
        [request] = allocator.ask(1)
        rewards = (rng.random(request.n) < rate).astype(float).tolist()
        verdict = allocator.tell(answer(request, rewards), 0)
        if verdict.kind != "retry":
            lengths.append(verdict.group.count)
            ends.append(verdict.reason)
    return np.array(lengths), ends


def assert_mean(samples, expected):
    error = max(samples.std(ddof=1) / math.sqrt(len(samples)), 1 / len(samples))  # rare events: one sample's worth
    z = (samples.mean() - expected) / error
    assert abs(z) < 4.5, f"mean {samples.mean():.4f}, expected {expected:.4f}, z = {z:.2f}"


def ngu(seed=0, **options):
    return NeverGiveUp(ListStream([problem()]), max_age=0, max_attempts=None, seed=seed, **options)


@pytest.mark.parametrize("p_retry", [0.5, 0.75, 0.875])
def test_unsolvable_problem_gets_a_geometric_number_of_attempts(p_retry):
    """Mean 1/(1 − p_retry), variance p_retry/(1 − p_retry)²."""
    n = 800
    lengths, ends = chain_lengths(ngu(group_size=2, retry_probability=p_retry), 0.0, n, np.random.default_rng(1))
    attempts = lengths / 2
    assert set(ends) == {"coin"}
    assert_mean(attempts, 1 / (1 - p_retry))
    assert attempts.var() == pytest.approx(p_retry / (1 - p_retry) ** 2, rel=0.25)
    share_of_one = (attempts == 1).mean()
    assert abs(share_of_one - (1 - p_retry)) < 4.5 * math.sqrt(p_retry * (1 - p_retry) / n)


@pytest.mark.parametrize("p_retry", [0.5, 0.875])
def test_coins_of_different_chains_and_seeds_are_independent(p_retry):
    """Two seeds agree on a first coin as often as independent coins do: p² + (1 − p)²."""
    n = 1200
    kinds = []
    for seed in (0, 1):
        stream = ListStream([problem(f"p{i}") for i in range(n)])
        allocator = NeverGiveUp(stream, group_size=2, retry_probability=p_retry, max_age=0, seed=seed)
        requests = allocator.ask(2 * n)
        kinds.append([allocator.tell(answer(r, [0.0, 0.0]), 0).kind for r in requests])
    agree = np.mean([a == b for a, b in zip(*kinds, strict=True)])
    expected = p_retry**2 + (1 - p_retry) ** 2
    assert abs(agree - expected) < 4.5 * math.sqrt(expected * (1 - expected) / n)


@pytest.mark.parametrize("rate", [0.5, 0.1])
def test_one_at_a_time_until_a_success(rate):
    """E[N] = 1/p: 2 and 10."""
    lengths, ends = chain_lengths(ngu(group_size=1, retry_probability=1.0), rate, 600, np.random.default_rng(2))
    assert set(ends) == {"solved", "better"}
    assert_mean(lengths, 1 / rate)


@pytest.mark.parametrize(("rate", "expected"), [(0.5, 3.0), (0.1, 10.111)])
def test_one_at_a_time_until_the_group_is_mixed(rate, expected):
    """E[N] = 1/p + 1/(1 − p) − 1: 3 at .5, 10.1 at .1. With max_score 2 a first success is not `solved`."""
    assert 1 / rate + 1 / (1 - rate) - 1 == pytest.approx(expected, abs=1e-3)
    allocator = ngu(group_size=1, retry_probability=1.0, accept_on="different", max_score=2.0)
    lengths, _ = chain_lengths(allocator, rate, 600, np.random.default_rng(3))
    assert_mean(lengths, expected)


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.3, 0.7])
def test_groups_of_eight(rate):
    """E[attempts] = 1 + r·q⁸/(1 − r·q⁸), q = 1 − p, r = p_retry; P(solved) = p⁸; P(gave up) = (1 − r)·q⁸/(1 − r·q⁸)."""
    r, n = 0.875, 800
    lengths, ends = chain_lengths(ngu(group_size=8, retry_probability=r), rate, n, np.random.default_rng(4))
    again = r * (1 - rate) ** 8
    assert_mean(lengths / 8, 1 + again / (1 - again))
    for reason, expected in (("solved", rate**8), ("coin", (1 - r) * (1 - rate) ** 8 / (1 - again))):
        sd = math.sqrt(expected * (1 - expected) / n)
        assert abs(ends.count(reason) / n - expected) <= 4.5 * sd + 1e-12, reason
