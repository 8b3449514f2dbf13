"""Averages and unbiased estimates of p under stopping rules, by enumeration of a real allocator's chains."""

from collections import Counter
from itertools import product

import numpy as np
import pytest

from gumption.allocation.base import ChainAllocator, Decision
from gumption.config import RunConfig
from gumption.credit import make_credit
from gumption.planning.enumeration import OneProblem, Rule, enumerate_chains
from gumption.selection import All

P = np.array([0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5])


class UntilSuccess(ChainAllocator):
    """Rounds until there are `wanted` successes, at most `rounds`."""

    rule = "rounds"

    def __init__(self, *, wanted=1, rounds=4, **shared):
        super().__init__(OneProblem(), max_age=-1, **shared)
        self.wanted, self.rounds = wanted, rounds

    def _judge(self, chain, told):
        ended = chain.successes >= self.wanted or chain.attempts >= self.rounds
        return Decision("drop" if ended else "retry", "test")


def endings(**options):
    rule = Rule(lambda: UntilSuccess(**options), make_credit(RunConfig()), All())
    return enumerate_chains(rule, tail=1e-9 if options["rounds"] > 100 else 0.0, floor=0.01)


@pytest.mark.parametrize(
    ("size", "rounds", "row"),
    [
        (1, 16, [0.0326, 0.0629, 0.143, 0.248, 0.401, 0.516, 0.693]),
        (8, 4, [0.0194, 0.0364, 0.0776, 0.130, 0.219, 0.309, 0.501]),
        (8, 8, [0.0236, 0.0419, 0.0815, 0.131, 0.219, 0.309, 0.501]),
        (16, 8, [0.0210, 0.0351, 0.0659, 0.111, 0.203, 0.301, 0.500]),
    ],
)
def test_the_success_rate_averages_too_high(size, rounds, row):
    found = sum(e.probability(P) * e.successes / e.count for e in endings(group_size=size, rounds=rounds))
    assert found == pytest.approx(row, rel=0.005)


def test_expected_rollouts_of_rounds_of_eight():
    found = sum(e.probability(P) * e.count for e in endings(group_size=8, rounds=4))
    assert found == pytest.approx([28.5, 25.5, 19.2, 13.6, 9.6, 8.5, 8.0], abs=0.06)


def test_the_share_of_paths_that_begin_with_a_success_is_unbiased():
    """And p̃/K on successes gives w = 1, but weight zero to whatever a retry found."""
    paths, first = Counter(), Counter()
    for rewards in product((0, 1), repeat=9):  # rounds of 3, at most 3
        for r in range(1, 4):
            n, k = 3 * r, sum(rewards[: 3 * r])
            if k or r == 3:
                paths[n, k] += 2.0 ** -(9 - n)
                first[n, k] += rewards[0] * 2.0 ** -(9 - n)
                break
    found, weight = np.zeros(7), np.zeros(7)
    for e in endings(group_size=3, rounds=3):
        state = (e.count, e.successes)
        assert float(e.weight) == paths[state]
        share = first[state] / paths[state]
        assert share == (e.successes / 3 if e.attempts == 1 else 0)
        found += e.probability(P) * share
        weight += e.probability(P) * share / P
    assert found == pytest.approx(P)
    assert weight == pytest.approx(np.ones(7))


@pytest.mark.parametrize("rounds", [4, 12])
def test_the_mean_score_of_successes_until_the_first_is_max_rl(rounds):
    """W = P(a success)/p = (1 − (1 − p)^T)/p, which is also E[N]."""
    chains = endings(group_size=1, rounds=rounds)
    solved = sum(e.probability(P) for e in chains if e.successes)
    assert solved / P == pytest.approx((1 - (1 - P) ** rounds) / P)
    assert sum(e.probability(P) * e.count for e in chains) == pytest.approx(solved / P)
