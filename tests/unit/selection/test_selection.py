"""Selectors: what is kept of a group, by hand."""

import numpy as np
import pytest

from gumption.config import RunConfig
from gumption.credit import group_credit
from gumption.selection import All, Leverage, make_selector
from gumption.selection.leverage import smallest_share
from gumption.types import Attempt, Credit, Group, Member, Problem, Request, Selector

PROBLEM = Problem("x-0", "2+2=", "4", "math")


def make_group(rewards, *, count=None, reward_sum=None, successes=None):
    request = Request(PROBLEM, n=len(rewards))
    attempt = Attempt.empty(request, rewards=rewards)
    members = tuple(Member(attempt, i) for i in range(len(rewards)))
    return Group(
        request.chain_id,
        PROBLEM,
        members,
        count or len(rewards),
        sum(rewards) if reward_sum is None else reward_sum,
        sum(r == 1 for r in rewards) if successes is None else successes,
        1,
        (len(rewards), sum(rewards)),
    )


def kept(rewards, share, *, advantage="grpo", seed=0, **chain):
    group = make_group(rewards, **chain)
    credit = group_credit(group, advantage=advantage)
    selection = Leverage(share).select([group], [credit], np.random.default_rng(seed))[0]
    assert selection.weights_J.tolist() == [1.0] * selection.indices_J.size
    assert selection.indices_J.tolist() == sorted(set(selection.indices_J.tolist()))
    return selection.indices_J.tolist()


def counts(rewards, share, **kwargs):
    """Kept successes and kept failures."""
    values = [rewards[i] for i in kept(rewards, share, **kwargs)]
    return values.count(1.0), values.count(0.0)


@pytest.mark.parametrize(
    ("successes", "share", "expected"),
    [
        (1, 0.5, (1, 0)),  # L = 31 ≥ 16
        (1, 0.9, (1, 0)),  # 31 ≥ 28.8
        (1, 0.99, (1, 22)),  # 31.68 − 31 = .68 of failures of 1/31 each: 21.08
        (4, 0.5, (3, 0)),  # L = 7: 3 of them are 21 ≥ 16
        (4, 0.9, (4, 6)),  # 28 of 28.8; .8 of failures of 1/7 each: 5.6
        (31, 0.5, (0, 1)),
        (28, 0.9, (6, 4)),
        (16, 0.5, (8, 8)),  # tie: both classes equally
        (15, 0.5, (15, 0)),  # L = 17/15: 15 of them are 17, 14 are 15.87
        (16, 1.0, (16, 16)),
        (3, 1.0, (3, 29)),
    ],
)
def test_the_smallest_set_rarer_class_first(successes, share, expected):
    assert counts([1.0] * successes + [0.0] * (32 - successes), share) == expected


def test_an_odd_tie_gives_the_extra_place_to_either_class():
    results = {counts([1.0] * 5 + [0.0] * 5, 0.5, seed=seed) for seed in range(20)}
    assert results == {(2, 3), (3, 2)}


def test_ties_are_broken_by_the_rng_and_by_nothing_else():
    rewards = [1.0] * 4 + [0.0] * 28
    assert kept(rewards, 0.5, seed=3) == kept(rewards, 0.5, seed=3)
    drawn = {tuple(kept(rewards, 0.5, seed=seed)) for seed in range(60)}
    assert drawn == {(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)}


def test_a_chains_rate_decides_which_class_is_rare():
    """Half of what is fresh succeeded, but 8 of 64 did over the whole chain: L = 7 and 1/7."""
    rewards = [1.0] * 8 + [0.0] * 8
    chain = {"advantage": "chain", "count": 64, "reward_sum": 8.0, "successes": 8}
    assert counts(rewards, 0.5, **chain) == (5, 0)  # ΣL = 57.14: 5 · 7 = 35 ≥ 28.6
    assert counts(rewards, 0.5) == (4, 4)


def test_stale_failures_do_not_cost_successes():
    """2 successes of 32: with all 32 fresh both are kept, and as the failures get stale they still are."""
    chain = {"advantage": "chain", "count": 32, "reward_sum": 2.0, "successes": 2}
    for failures in (30, 22, 14, 6):
        assert counts([1.0] * 2 + [0.0] * failures, 0.6, **chain) == (2, 0)


def test_successes_only_when_every_failure_is_stale():
    chain = {"advantage": "chain", "count": 32, "reward_sum": 8.0, "successes": 8}
    assert counts([1.0] * 8, 0.5, **chain) == (4, 0)
    assert counts([1.0] * 8, 1.0, **chain) == (8, 0)


def test_graded_rewards_by_descending_leverage():
    """Mean .4: squares .36, .16, .01, .01, .16 → L 2.57, 1.14, .07, .07, 1.14; half of 5 is 2.5."""
    rewards = [1.0, 0.0, 0.3, 0.5, 0.2]
    assert kept(rewards, 0.5) == [0]
    assert kept(rewards, 0.7) == [0, 1]
    assert kept(rewards, 0.95) == [0, 1, 4]


@pytest.mark.parametrize("rewards", [[], [1.0], [0.0] * 8, [1.0] * 8, [0.5] * 3])
def test_nothing_is_kept_where_nothing_can_be_learned(rewards):
    group = make_group(rewards)
    selection = Leverage(0.5).select([group], [group_credit(group, advantage="grpo")], np.random.default_rng(0))[0]
    assert selection.indices_J.size == selection.weights_J.size == 0
    assert selection.reason == "no_leverage"


def test_share_one_keeps_every_member_with_leverage():
    assert kept([1.0, 0.5, 0.0], 1.0) == [0, 2]
    assert kept([1.0] + [0.0] * 2000, 1.0) == list(range(2001))


def test_all_keeps_all_with_weight_one():
    groups = [make_group([1.0, 0.0]), make_group([0.0] * 3), make_group([])]
    credits = [group_credit(g, advantage="grpo") for g in groups]
    selections = All().select(groups, credits, np.random.default_rng(0))
    assert [s.indices_J.tolist() for s in selections] == [[0, 1], [0, 1, 2], []]
    assert [s.weights_J.tolist() for s in selections] == [[1.0, 1.0], [1.0, 1.0, 1.0], []]
    assert {s.reason for s in selections} == {"all"}


def test_each_group_of_a_batch_is_judged_alone():
    groups = [make_group([1.0] + [0.0] * 31), make_group([1.0] * 31 + [0.0]), make_group([1.0] * 4)]
    credits = [group_credit(g, advantage="grpo") for g in groups]
    selections = Leverage(0.5).select(groups, credits, np.random.default_rng(0))
    assert [s.indices_J.tolist() for s in selections] == [[0], [31], []]
    assert [s.reason for s in selections] == ["leverage", "leverage", "no_leverage"]


def test_no_groups():
    assert Leverage(0.5).select([], [], np.random.default_rng(0)) == []
    assert All().select([], [], np.random.default_rng(0)) == []


def test_a_credit_of_another_group_is_our_own_mistake():
    credit = Credit(np.zeros(3), np.zeros(3), 0.0, 0.0)
    with pytest.raises(AssertionError):
        Leverage(0.5).select([make_group([1.0, 0.0])], [credit], np.random.default_rng(0))


def test_make_selector():
    assert make_selector(RunConfig()) == Leverage(0.5)
    assert make_selector(RunConfig.from_dict({"selection": {"rule": "leverage", "share": 0.9}})) == Leverage(0.9)
    chosen = make_selector(RunConfig.from_dict({"selection": {"rule": "all"}}))
    assert chosen == All()
    assert isinstance(chosen, Selector)
    assert isinstance(Leverage(0.5), Selector)


@pytest.mark.parametrize("share", [0.0, 1.1, -0.5, float("nan")])
def test_a_share_outside_its_range_is_an_error(share):
    with pytest.raises(ValueError, match="share"):
        Leverage(share)


def test_leverage_that_differs_by_float_noise_is_equal():
    """Without a tolerance the sum .1 + .2 would decide which of two equal members comes first."""
    noisy_G = np.array([0.3, 0.1 + 0.2, 0.3, 0.1 + 0.2])
    drawn = {
        tuple(smallest_share(noisy_G, np.ones(4, np.bool_), 0.25, np.random.default_rng(seed)).tolist())
        for seed in range(40)
    }
    assert drawn == {(0,), (1,), (2,), (3,)}
