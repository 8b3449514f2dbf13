"""Properties of advantages, leverage and bits that hold for any rewards."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gumption.credit import bits, leverage
from gumption.credit.advantage import GROUP_ADVANTAGES, TOLERANCE, chain

QUICK = settings(max_examples=40, deadline=None)

NAMES = st.sampled_from(sorted(GROUP_ADVANTAGES))
GRADES = st.integers(0, 20).map(lambda i: i / 20)
REWARDS = st.integers(1, 24).flatmap(lambda size: arrays(np.float64, size, elements=st.floats(0, 1) | GRADES))


@st.composite
def chains(draw):
    """Fresh rewards, and a chain that also counts stale ones that did no better than the fresh maximum."""
    rewards_G = draw(st.integers(1, 20).flatmap(lambda n: arrays(np.float64, n, elements=GRADES)))
    stale = draw(st.lists(GRADES.map(lambda r: r * float(rewards_G.max())), max_size=40))
    return rewards_G, rewards_G.size + len(stale), float(rewards_G.sum()) + float(np.sum(stale))


@QUICK
@given(NAMES, REWARDS)
def test_group_advantages_sum_to_zero(name, rewards_G):
    advantages_G = GROUP_ADVANTAGES[name](rewards_G)
    assert np.isfinite(advantages_G).all()
    assert abs(advantages_G.sum()) <= 1e-9 * max(1.0, np.abs(advantages_G).sum())


@QUICK
@given(NAMES, REWARDS, st.randoms(use_true_random=False))
def test_permuting_members_permutes_advantages(name, rewards_G, random):
    order = list(range(rewards_G.size))
    random.shuffle(order)
    advantage = GROUP_ADVANTAGES[name]
    assert advantage(rewards_G[order]) == pytest.approx(advantage(rewards_G)[order], abs=1e-9)


@QUICK
@given(NAMES, st.floats(0, 1), st.integers(1, 20))
def test_constant_rewards_give_exactly_zero(name, reward, size):
    assert not GROUP_ADVANTAGES[name](np.full(size, reward)).any()
    assert not chain(np.full(size, reward), count=3 * size, reward_sum=reward * 3 * size).any()


@QUICK
@given(NAMES, REWARDS)
def test_a_better_reward_never_gets_a_lower_advantage(name, rewards_G):
    order = np.argsort(rewards_G)
    assert (np.diff(GROUP_ADVANTAGES[name](rewards_G)[order]) >= -1e-12).all()


@QUICK
@given(st.sampled_from(["centered", "rloo", "grpo"]), REWARDS, st.floats(-5, 5))
def test_shifting_all_rewards_changes_nothing(name, rewards_G, shift):
    assume(np.ptp(rewards_G) > 1e-3)
    advantage = GROUP_ADVANTAGES[name]
    assert advantage(rewards_G + shift) == pytest.approx(advantage(rewards_G), abs=1e-8)


@QUICK
@given(st.sampled_from(["max_rl", "grpo"]), REWARDS, st.floats(1, 50))
def test_scaling_all_rewards_changes_no_relative_advantage(name, rewards_G, scale):
    assume(np.ptp(rewards_G) > 1e-2)
    advantage = GROUP_ADVANTAGES[name]
    assert advantage(rewards_G * scale) == pytest.approx(advantage(rewards_G), rel=1e-3, abs=1e-9)


@QUICK
@given(NAMES, st.integers(1, 6), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_a_stack_equals_its_groups(name, groups, size, seed):
    stack = np.random.default_rng(seed).integers(0, 5, (groups, size)) / 4
    advantage = GROUP_ADVANTAGES[name]
    assert np.array_equal(advantage(stack), np.stack([advantage(rewards_G) for rewards_G in stack]))


@QUICK
@given(chains())
def test_anchor_pos_sums_to_zero_wherever_a_positive_factor_can(case):
    rewards_G, count, reward_sum = case
    raw_G = rewards_G - reward_sum / count
    anchored_G = chain(rewards_G, count=count, reward_sum=reward_sum)
    best_G = rewards_G >= rewards_G.max() - TOLERANCE
    if np.abs(raw_G).max() <= TOLERANCE:
        assert not anchored_G.any()
        return
    assert np.array_equal(anchored_G[best_G], raw_G[best_G])
    others = raw_G[~best_G].sum()
    if others < 0:  # here the maximum is never below the baseline
        assert abs(anchored_G.sum()) <= 1e-9
        assert np.array_equal(np.sign(anchored_G), np.sign(raw_G))
    else:
        assert np.array_equal(anchored_G, raw_G)


@QUICK
@given(chains(), st.sampled_from(["anchor_pos", "ratio", "count_ratio", "none"]), st.randoms(use_true_random=False))
def test_permuting_members_permutes_chain_advantages(case, rescale, random):
    rewards_G, count, reward_sum = case
    order = list(range(rewards_G.size))
    random.shuffle(order)
    counts = {"count": count, "reward_sum": reward_sum, "rescale": rescale}
    assert chain(rewards_G[order], **counts) == pytest.approx(chain(rewards_G, **counts)[order], abs=1e-9)


@QUICK
@given(REWARDS)
def test_a_chain_that_counts_only_its_members_is_centered_whatever_the_rescaling(rewards_G):
    counts = {"count": rewards_G.size, "reward_sum": float(rewards_G.sum())}
    for rescale in ("anchor_pos", "ratio", "none"):
        expected_G = GROUP_ADVANTAGES["centered"](rewards_G)
        assert chain(rewards_G, **counts, rescale=rescale) == pytest.approx(expected_G, abs=2e-6)


@QUICK
@given(arrays(np.bool_, st.integers(2, 64)))
def test_leverage_of_a_mixed_group_has_mean_one_and_is_the_squared_grpo_advantage(successes_G):
    assume(0 < successes_G.sum() < successes_G.size)
    leverage_G = leverage.binary(successes_G, successes_G.mean())
    assert leverage_G.mean() == pytest.approx(1, abs=1e-12)
    assert leverage.generalised(successes_G) == pytest.approx(leverage_G, rel=1e-9)
    squares_G = GROUP_ADVANTAGES["grpo"](successes_G.astype(float)) ** 2
    assert leverage_G == pytest.approx(squares_G, rel=1e-4)


@QUICK
@given(REWARDS)
def test_generalised_leverage_has_mean_one_or_is_zero(rewards_G):
    leverage_G = leverage.generalised(rewards_G)
    assert (leverage_G >= 0).all()
    assert leverage_G.mean() == pytest.approx(1) or not leverage_G.any()


@QUICK
@given(st.lists(st.floats(-3, 3), min_size=8, max_size=8), st.floats(0.02, 0.98), arrays(np.bool_, 8))
def test_no_coefficients_are_worth_more_than_the_leverage(coefficients, p, successes_J):
    best = leverage.effective_rollouts(leverage.binary(successes_J, p))
    assert leverage.effective_rollouts_of(coefficients, successes_J, p) <= best * (1 + 1e-9)


@QUICK
@given(st.floats(0, 1), st.floats(0, 0.5))
def test_entropy_is_symmetric_bounded_and_only_lost_to_noise(p, error):
    entropy = float(bits.binary_entropy(p))
    assert 0 <= entropy <= 1 + 1e-12
    assert entropy == pytest.approx(float(bits.binary_entropy(1 - p)), abs=1e-9)
    assert 0 <= float(bits.noisy_verifier_entropy(p, error)) <= entropy + 1e-9


@QUICK
@given(st.floats(0.1, 500), st.floats(0.1, 500))
def test_the_beta_split_adds_up(a, b):
    m = a / (a + b)
    total = float(bits.expected_entropy(a, b) + bits.pass_rate_information(a, b))
    assert total == pytest.approx(float(bits.binary_entropy(m)), abs=1e-12)
    success, failure = bits.outcome_information(a, b, [True, False])
    assert min(success, failure) >= -1e-9
    mean = float(m * success + (1 - m) * failure)
    assert mean == pytest.approx(float(bits.pass_rate_information(a, b)), abs=1e-9)


@QUICK
@given(st.lists(GRADES, min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_histogram_entropy_is_bounded_by_the_number_of_values(rewards, random):
    entropy = bits.histogram_entropy(rewards, corrected=False)
    assert 0 <= entropy <= np.log2(len(set(rewards))) + 1e-12
    shuffled = random.sample(rewards, len(rewards))
    assert bits.histogram_entropy(shuffled, corrected=False) == entropy


@QUICK
@given(st.integers(0, 30), st.integers(0, 30))
def test_the_histogram_of_binary_rewards_is_the_group_entropy(successes, failures):
    rewards = [1.0] * successes + [0.0] * failures
    expected = float(bits.group_entropy(successes, successes + failures))
    assert bits.histogram_entropy(rewards) == pytest.approx(expected, abs=1e-12)
