"""Endings: probabilities sum to one, counts are those of brute force, coins are exact, tail and limits hold."""

import itertools
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest

from gumption.planning import enumeration
from gumption.planning.enumeration import (
    TooManyPathsError,
    enumerate_chains,
    group_sums,
    looks_at_batch,
    scored,
    with_sums,
)
from gumption.planning.exact import published_rule
from gumption.testing import answer, problem, scored_group
from gumption.types import Request, Selection

P = np.array([0.02, 0.1, 0.5, 0.9])


def test_probabilities_sum_to_one(rules, rule_name):
    endings = enumerate_chains(rules.RULES[rule_name]("all"))
    assert sum(e.probability(P) for e in endings) == pytest.approx(np.ones(4), abs=1e-12)


@pytest.mark.parametrize("retry", [0.875, 0.3, 1.0])
def test_weights_are_exact_fractions_of_coins_and_counts(rules, retry):
    """NGU ends unsolved after a attempts with weight r^(a−1)(1 − r), accepted with C(n, k)·r^(a−1)."""
    endings = enumerate_chains(published_rule(rules.ngu(2, 3, retry=retry)))
    r = Fraction(repr(retry))
    found = {(e.count, e.successes, e.size > 0): e.weight for e in endings}
    expected = {
        (2, 0, False): 1 - r, (2, 1, True): 2, (2, 2, False): 1,
        (4, 0, False): r * (1 - r), (4, 1, True): 2 * r, (4, 2, True): r,
        (6, 0, False): r * r, (6, 1, True): 2 * r * r, (6, 2, True): r * r,
    }  # fmt: skip
    assert found == {key: weight for key, weight in expected.items() if weight}


def test_agrees_with_telling_every_sequence_of_rewards(rules):
    """Brute force over all 2^12 reward sequences of three rounds of 4."""
    rule = rules.until_mixed()
    brute = defaultdict(int)
    for rewards in itertools.product((0.0, 1.0), repeat=12):
        allocator = rule.make_allocator()
        for a in range(3):
            [request] = allocator.ask(1)
            verdict = allocator.tell(answer(request, rewards[4 * a : 4 * a + 4]), 0)
            if verdict.kind != "retry":
                g = verdict.group
                brute[g.count, g.successes, verdict.train] += Fraction(1, 2 ** (12 - g.count))
                break
    assert brute == {(e.count, e.successes, e.size > 0): e.weight for e in enumerate_chains(rule)}


def test_tail_leaves_out_what_is_unlikely(rules):
    rule = published_rule(rules.config(allocation={"max_attempts": "none"}, selection={"rule": "all"}))
    endings = enumerate_chains(rule, tail=1e-4, floor=0.1)
    missing = 1 - sum(e.probability(P[1:]) for e in endings)
    assert max(e.attempts for e in endings) < 20
    assert (missing >= -1e-12).all() and missing.max() < 1e-3


def test_a_rule_without_an_end_is_too_many_paths(rules, monkeypatch):
    monkeypatch.setattr(enumeration, "MAX_TOLD", 500)
    rule = published_rule(rules.config(allocation={"max_attempts": "none"}))
    with pytest.raises(TooManyPathsError, match="500"):
        enumerate_chains(rule)


def test_sums_of_a_tie_have_an_error_and_others_do_not(rules):
    rule = published_rule(rules.fixed(2, "leverage"))
    rng = np.random.default_rng(0)
    tie = group_sums(rule, scored_group([1.0, 0.0]), rng)  # one of two is kept, whichever
    assert tie.successes + tie.failures == 1 and 0 < tie.errors[0] < 0.2
    assert abs(tie.successes - 0.5) < 5 * tie.errors[0]
    sure = group_sums(rule, scored_group([1.0, 0.0, 0.0, 0.0]), rng)
    assert sure.errors == (0, 0, 0) and (sure.successes, sure.failures) == (1, 0)


def test_sums_are_weight_times_advantage_by_class(rules):
    sums = group_sums(
        published_rule(rules.fixed(4, credit={"advantage": "centered"})), scored_group([1, 0, 0, 0]), None
    )
    assert (sums.alpha, sums.beta) == (0.75, 0.75)
    assert sums.squares == pytest.approx(0.75**2 + 3 * 0.25**2)
    half = sums.over(2)
    assert (half.alpha, half.squares) == (0.375, sums.squares / 4)


class KeepsTheBestOfTheBatch:
    """Trains only on groups with at least the batch's mean success rate."""

    def select(self, groups, credits, rng):
        mean = np.mean([c.p_hat for c in credits])
        kept = [np.arange(g.size) if c.p_hat >= mean else np.arange(0) for g, c in zip(groups, credits, strict=True)]
        return [Selection(k, np.ones(k.size), "test") for k in kept]


def test_rules_that_look_at_the_batch_are_found_out(rules):
    rule = published_rule(rules.fixed(8, "leverage"))
    endings = enumerate_chains(rule)
    assert not looks_at_batch(rule, endings)
    assert not looks_at_batch(rule, [])
    assert looks_at_batch(rule._replace(selector=KeepsTheBestOfTheBatch()), endings)

    def batch_mean(groups):
        mean = np.concatenate([g.rewards_G for g in groups]).mean()
        base = rule.credit(groups)
        return [type(c)(g.rewards_G - mean, c.leverage_G, c.p_hat, c.bits) for g, c in zip(groups, base, strict=True)]

    assert looks_at_batch(rule._replace(credit=batch_mean), endings)


def test_max_score_is_the_reward_of_a_success(rules):
    config = rules.config(rewards={"max_score": 2.0}, allocation={"rule": "fixed", "group_size": 4})
    endings = with_sums(published_rule(config), enumerate_chains(published_rule(config)))
    assert [e.size for e in endings] == [0, 4, 4, 4, 0]


def test_scored_attempts_have_one_token_each():
    attempt = scored(Request(problem(), 3), 1)
    assert attempt.lengths_G.tolist() == [1, 1, 1] and attempt.values_G.tolist() == [1.0, 0.0, 0.0]
