"""Advantages: hand-derived values, every degenerate case, every error."""

import numpy as np
import pytest

from gumption.credit.advantage import GROUP_ADVANTAGES, centered, chain, dr_grpo, grpo, max_rl, rloo

NAMES = sorted(GROUP_ADVANTAGES)


def test_hand_derived_values_of_one_success_in_four():
    rewards_G = [1.0, 0.0, 0.0, 0.0]
    std = np.sqrt(3) / 4
    assert centered(rewards_G).tolist() == [0.75, -0.25, -0.25, -0.25]
    assert dr_grpo(rewards_G).tolist() == [0.75, -0.25, -0.25, -0.25]
    assert rloo(rewards_G) == pytest.approx([1.0, -1 / 3, -1 / 3, -1 / 3], abs=1e-15)
    assert grpo(rewards_G, eps=0.0) == pytest.approx([0.75 / std, *[-0.25 / std] * 3], abs=1e-15)
    assert max_rl(rewards_G).tolist() == [3.0, -1.0, -1.0, -1.0]


def test_the_published_example_of_three_right_and_one_wrong():
    """Rewards 1, 1, 1, 0 give the one failure −1.74 (−√3 exactly with the population deviation)."""
    assert grpo([1.0, 1.0, 1.0, 0.0])[3] == pytest.approx(-np.sqrt(3), abs=1e-5)


def test_grpo_adds_eps_to_the_population_deviation():
    assert grpo([1.0, 0.0], eps=0.5).tolist() == [0.5, -0.5]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rewards_G", [[0.0] * 5, [1.0] * 5, [0.3] * 3, [0.7], [0.1 + 0.2, 0.3]])
def test_equal_rewards_and_single_members_get_exactly_zero(name, rewards_G):
    assert GROUP_ADVANTAGES[name](rewards_G).tolist() == [0.0] * len(rewards_G)


@pytest.mark.parametrize("name", NAMES)
def test_float_noise_is_not_variance_but_a_small_difference_is(name):
    advantage = GROUP_ADVANTAGES[name]
    assert advantage([0.5, 0.5 + 0.9e-6]).tolist() == [0.0, 0.0]
    assert advantage([0.5, 0.5 + 2e-6])[1] > 0


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_group_has_no_advantages(name):
    assert GROUP_ADVANTAGES[name]([]).shape == (0,)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_is_an_error(name, bad):
    with pytest.raises(ValueError, match="finite"):
        GROUP_ADVANTAGES[name]([1.0, bad])


@pytest.mark.parametrize("name", NAMES)
def test_a_stack_of_groups_is_worked_group_by_group(name):
    stack = np.array([[[1.0, 0.0, 0.5], [0.2, 0.2, 0.2]], [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]])
    expected = [[GROUP_ADVANTAGES[name](rewards_G) for rewards_G in row] for row in stack]
    assert GROUP_ADVANTAGES[name](stack) == pytest.approx(np.array(expected), abs=1e-15)


@pytest.mark.parametrize("name", NAMES)
def test_the_rewards_are_not_written_to(name):
    rewards_G = np.array([1.0, 0.0])
    GROUP_ADVANTAGES[name](rewards_G)[:] = 7
    assert rewards_G.tolist() == [1.0, 0.0]


def test_max_rl_of_a_negative_reward_is_an_error_that_says_what_to_do():
    with pytest.raises(ValueError, match=r"-0\.5.*overlong_buffer"):
        max_rl([1.0, -0.5])


class TestChain:
    def test_the_worked_example(self):
        """Group size 8, three all-wrong attempts, then one success; age drops the first two attempts."""
        advantages_G = chain([0.0] * 8 + [1.0] + [0.0] * 7, count=32, reward_sum=1.0)
        assert advantages_G[8] == 31 / 32
        failures_G = np.delete(advantages_G, 8)
        assert failures_G == pytest.approx(-31 / 32 / 15, abs=1e-15)
        assert failures_G == pytest.approx(-0.0646, abs=5e-5)
        assert advantages_G.sum() == pytest.approx(0, abs=1e-12)
        raw_G = chain([0.0] * 8 + [1.0] + [0.0] * 7, count=32, reward_sum=1.0, rescale="none")
        assert np.delete(raw_G, 8).tolist() == [-1 / 32] * 15
        assert raw_G[8] == 31 / 32

    def test_anchor_pos_balances_graded_rewards(self):
        rewards_G = np.array([1.0, 0.6, 0.5, 0.2, 0.0, 0.0])
        advantages_G = chain(rewards_G, count=10, reward_sum=5.0)  # b = .5: Σ_others A = −1.2
        assert advantages_G[0] == 0.5
        assert advantages_G[1:] == pytest.approx((rewards_G[1:] - 0.5) * 0.5 / 1.2, abs=1e-15)
        assert advantages_G.sum() == pytest.approx(0, abs=1e-12)

    def test_anchor_pos_leaves_a_group_that_no_factor_balances(self):
        """1, .6, .5, .2, 0, 0 with b = .2: the others sum to +.3. The published −ΣA⁺/ΣA⁻ would leave a sum of 1.92."""
        rewards_G = np.array([1.0, 0.6, 0.5, 0.2, 0.0, 0.0])
        raw_G = rewards_G - 0.2
        published = 0.8 + raw_G[1:].sum() * -raw_G[raw_G > 0].sum() / raw_G[raw_G < 0].sum()
        assert published == pytest.approx(1.925, abs=1e-12)
        assert chain(rewards_G, count=20, reward_sum=4.0) == pytest.approx(raw_G, abs=1e-15)

    def test_anchor_pos_never_turns_a_sign_round(self):
        """The chain's best got stale: even the best that is left is below the baseline."""
        assert chain([0.5, 0.2], count=4, reward_sum=2.7) == pytest.approx([-0.175, -0.475], abs=1e-12)

    def test_anchor_pos_is_the_published_factor_for_binary_rewards(self):
        rewards_G = np.array([1.0, 1.0, 0.0, 0.0, 0.0])
        raw_G = rewards_G - 2 / 40
        published_G = np.where(rewards_G == 1, raw_G, raw_G * -raw_G[:2].sum() / raw_G[2:].sum())
        assert chain(rewards_G, count=40, reward_sum=2.0) == pytest.approx(published_G, abs=1e-15)

    def test_ratio_and_count_ratio(self):
        raw_G = np.array([0.9, -0.1, -0.1])
        assert chain([1.0, 0.0, 0.0], count=10, reward_sum=1.0, rescale="ratio") == pytest.approx(raw_G * 3 / 10)
        assert chain([1.0, 0.0, 0.0], count=10, reward_sum=1.0, rescale="count_ratio") == pytest.approx(
            raw_G / (0.1 + 1e-8), abs=1e-12
        )

    @pytest.mark.parametrize("rescale", ["anchor_pos", "ratio", "count_ratio", "none"])
    def test_a_group_whose_failures_are_all_stale_is_not_rescaled(self, rescale):
        assert chain([1.0] * 8, count=32, reward_sum=8.0, rescale=rescale).tolist() == [0.75] * 8

    @pytest.mark.parametrize("rescale", ["anchor_pos", "ratio", "count_ratio", "none"])
    @pytest.mark.parametrize("reward", [0.0, 1.0, 0.1])
    def test_a_chain_of_equal_rewards_gets_zero(self, rescale, reward):
        advantages_G = chain([reward] * 3, count=12, reward_sum=sum([reward] * 12), rescale=rescale)
        assert advantages_G.tolist() == [0.0] * 3

    def test_a_chain_with_nothing_stale_is_centered(self):
        rewards_G = [1.0, 0.0, 0.0, 0.25]
        assert chain(rewards_G, count=4, reward_sum=1.25) == pytest.approx(centered(rewards_G), abs=1e-15)

    def test_max_rl_divides_by_the_accepted_attempts_rate_not_the_chains(self):
        kwargs = {"count": 400, "reward_sum": 1.0}
        plain_G = chain([1.0] + [0.0] * 15, **kwargs)
        assert chain([1.0] + [0.0] * 15, **kwargs, attempt_rate=1 / 8) == pytest.approx(plain_G * 8, abs=1e-12)

    def test_max_rl_of_an_attempt_without_success_is_zero(self):
        assert chain([0.5, 0.0], count=3, reward_sum=0.5, attempt_rate=0.0).tolist() == [0.0, 0.0]

    def test_no_members(self):
        assert chain([], count=0, reward_sum=0.0).shape == (0,)
        assert chain([], count=16, reward_sum=0.0).shape == (0,)

    def test_errors(self):
        with pytest.raises(ValueError, match=r"'anchor'.*anchor_pos"):
            chain([1.0, 0.0], count=2, reward_sum=1.0, rescale="anchor")
        with pytest.raises(ValueError, match="counts 1"):
            chain([1.0, 0.0], count=1, reward_sum=1.0)
        with pytest.raises(ValueError, match=r"-0\.25"):
            chain([1.0, 0.0], count=2, reward_sum=1.0, attempt_rate=-0.25)
        with pytest.raises(ValueError, match="finite"):
            chain([1.0, float("nan")], count=2, reward_sum=1.0)
