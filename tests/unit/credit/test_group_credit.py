"""`group_credit` and `make_credit`: which baseline, which rate, which bits a group gets."""

import numpy as np
import pytest

from gumption.config import RunConfig
from gumption.credit import bits, group_credit, make_credit
from gumption.types import Attempt, Group, Member, Problem, Request, Reward

PROBLEM = Problem("x-0", "2+2=", "4", "math")


def make_group(rewards, *, count=None, reward_sum=None, successes=None, attempt_values=None, tasks=None):
    """A group with these member rewards; the chain's counts default to the members'."""
    request = Request(PROBLEM, n=len(rewards))
    attempt = Attempt.empty(request, rewards=rewards)
    if tasks is not None:
        attempt.rewards_G = tuple(Reward(v, task=t) for v, t in zip(rewards, tasks, strict=True))
    members = tuple(Member(attempt, i) for i in range(len(rewards)))
    ones = sum(r == 1 for r in (tasks or rewards))
    return Group(
        request.chain_id,
        PROBLEM,
        members,
        len(rewards) if count is None else count,
        sum(rewards) if reward_sum is None else reward_sum,
        ones if successes is None else successes,
        1,
        (len(rewards), sum(rewards)) if attempt_values is None else attempt_values,
    )


def test_the_worked_example_end_to_end():
    group = make_group([1.0] + [0.0] * 15, count=32, reward_sum=1.0, successes=1, attempt_values=(8, 1.0))
    credit = make_credit(RunConfig())([group])[0]
    assert credit.advantages_G[0] == 31 / 32
    assert credit.advantages_G[1:] == pytest.approx(-31 / 32 / 15)
    assert credit.p_hat == 1 / 32
    assert credit.leverage_G[0] == pytest.approx(31)
    assert credit.leverage_G[1:] == pytest.approx(1 / 31)
    assert credit.bits == pytest.approx(float(bits.group_entropy(1, 32)))


def test_leverage_follows_the_baseline():
    group = make_group([1.0] + [0.0] * 3, count=32, reward_sum=1.0, successes=1)
    assert group_credit(group, advantage="chain").p_hat == 1 / 32
    for advantage in ("centered", "rloo", "grpo", "dr_grpo", "max_rl"):
        credit = group_credit(group, advantage=advantage)
        assert credit.p_hat == 0.25
        assert credit.leverage_G == pytest.approx([3.0, 1 / 3, 1 / 3, 1 / 3])


def test_no_fresh_failure_takes_the_rate_from_the_chain():
    group = make_group([1.0] * 8, count=32, reward_sum=8.0, successes=8)
    credit = group_credit(group, advantage="chain")
    assert credit.advantages_G.tolist() == [0.75] * 8
    assert credit.leverage_G.tolist() == [3.0] * 8
    blind = group_credit(group, advantage="grpo")
    assert blind.advantages_G.tolist() == blind.leverage_G.tolist() == [0.0] * 8


def test_max_age_minus_one_switches_rescaling_off():
    group = make_group([1.0, 0.0], count=8, reward_sum=1.0, successes=1)
    kept = RunConfig.from_dict({"allocation": {"max_age": -1}})
    assert make_credit(kept)([group])[0].advantages_G.tolist() == [0.875, -0.125]
    assert make_credit(RunConfig())([group])[0].advantages_G.tolist() == [0.875, -0.875]
    ratio = RunConfig.from_dict({"allocation": {"rescale": "ratio"}})
    assert make_credit(ratio)([group])[0].advantages_G.tolist() == [0.875 / 4, -0.125 / 4]


def test_chain_max_rl_divides_by_the_accepted_attempt():
    group = make_group([1.0] + [0.0] * 15, count=400, reward_sum=1.0, successes=1, attempt_values=(8, 1.0))
    plain = group_credit(group, advantage="chain").advantages_G
    config = RunConfig.from_dict({"credit": {"chain_max_rl": True}})
    assert make_credit(config)([group])[0].advantages_G == pytest.approx(plain * 8)


def test_auto_is_grpo_without_never_give_up():
    group = make_group([1.0, 0.0, 0.0, 0.0])
    config = RunConfig.from_dict({"allocation": {"rule": "fixed"}})
    expected = group_credit(group, advantage="grpo").advantages_G
    assert make_credit(config)([group])[0].advantages_G.tolist() == expected.tolist()


def test_max_score_defines_success():
    credit = group_credit(make_group([10.0, 0.0, 0.0, 0.0], successes=1), advantage="grpo", max_score=10.0)
    assert credit.p_hat == 0.25
    assert credit.leverage_G == pytest.approx([3.0, 1 / 3, 1 / 3, 1 / 3])
    assert credit.bits == pytest.approx(float(bits.group_entropy(1, 4)))


def test_graded_rewards_use_the_generalised_leverage_and_the_histogram():
    credit = group_credit(make_group([1.0, 0.5, 0.0, 0.5]), advantage="grpo")
    assert credit.leverage_G == pytest.approx([2.0, 0.0, 2.0, 0.0])
    assert credit.p_hat == 0.5
    assert credit.bits == pytest.approx(1.5 + 2 / (2 * np.log(2) * 4))
    chained = group_credit(make_group([0.5, 0.25], count=8, reward_sum=0.75, successes=0), advantage="chain")
    assert chained.p_hat == 0.75 / 8
    squares = (np.array([0.5, 0.25]) - 0.75 / 8) ** 2
    assert chained.leverage_G == pytest.approx(squares / squares.mean())


def test_length_shaping_is_not_information():
    group = make_group([0.9, -0.3, -0.1, 0.0], tasks=[1.0, 0.0, 0.0, 0.0])
    assert group_credit(group, advantage="grpo").bits == pytest.approx(float(bits.group_entropy(1, 4)))


@pytest.mark.parametrize("advantage", ["centered", "rloo", "grpo", "dr_grpo", "max_rl", "chain"])
@pytest.mark.parametrize("rewards", [[], [1.0], [0.0] * 4, [1.0] * 4, [0.5] * 4])
def test_groups_that_teach_nothing(advantage, rewards):
    credit = group_credit(make_group(rewards), advantage=advantage)
    assert credit.advantages_G.tolist() == credit.leverage_G.tolist() == [0.0] * len(rewards)
    assert credit.bits == 0.0
    assert 0 <= credit.p_hat <= 1


def test_an_unknown_advantage_is_an_error_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'gae'.*rloo.*chain"):
        group_credit(make_group([1.0, 0.0]), advantage="gae")


@pytest.mark.parametrize("credit", [{"advantage": "max_rl"}, {"chain_max_rl": True}])
def test_max_rl_with_length_penalties_is_refused_before_the_run(credit):
    config = RunConfig.from_dict({"credit": credit, "rewards": {"overlong_buffer": 8}})
    with pytest.raises(ValueError, match="overlong_buffer = 8"):
        make_credit(config)
