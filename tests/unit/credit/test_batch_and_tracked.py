"""`batch_std` looks at the batch, `tracked` at the past."""

import numpy as np
import pytest

from gumption.allocation.tracker import RewardTracker
from gumption.config import RunConfig
from gumption.credit import make_credit
from gumption.credit.advantage import batch_std, centered, grpo, tracked
from gumption.testing import scored_group


def config(advantage):
    return RunConfig.from_dict({"allocation": {"rule": "fixed"}, "credit": {"advantage": advantage}})


def test_batch_std_is_one_scalar_for_the_batch():
    groups = [[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]]
    std = np.std(np.concatenate(groups))
    for got, rewards in zip(batch_std(groups), groups, strict=True):
        assert got == pytest.approx(centered(rewards) / std, rel=1e-5)


def test_groups_of_unequal_size_are_each_centred_by_their_own():
    credits = make_credit(config("batch_std"))([scored_group([1.0, 0.0]), scored_group([1.0, 0.0, 0.0, 0.0], "b")])
    assert [abs(float(c.advantages_G.sum())) < 1e-9 for c in credits] == [True, True]


def test_a_batch_of_equal_rewards_is_zero_and_float_noise_is_not_variance():
    assert batch_std([[1.0, 1.0], [1.0]])[0].tolist() == [0.0, 0.0]
    assert batch_std([[0.1 + 0.2, 0.3]])[0].tolist() == [0.0, 0.0]
    assert batch_std([]) == []


def test_a_shaped_reward_of_failures_makes_a_full_size_gradient_under_grpo_only():
    """A length penalty of .001 among failures: std-normalised it looks like a success, else it stays tiny."""
    failures = [0.0, 0.0, 0.0, -0.001]
    assert np.abs(grpo(failures)).max() > 1.5
    assert np.abs(batch_std([failures, [1.0, 0.0, 0.0, 0.0]])[0]).max() < 0.003


def test_tracked_does_not_see_the_group_and_pays_singles():
    value = {"p": 0.25}
    credit = make_credit(config("tracked"), value.__getitem__)
    [single], [mixed] = credit([scored_group([1.0], "p")]), credit([scored_group([1.0, 0.0], "p")])
    assert single.advantages_G.tolist() == [0.75]
    assert mixed.advantages_G.tolist() == [0.75, -0.25]
    with pytest.raises(ValueError, match="finite"):
        tracked([1.0], float("nan"))


def test_the_tracker_is_a_discounted_beta_posterior():
    tracker = RewardTracker(decay=0.9, count=8.0)
    alpha = beta = 4.0
    for successes in (3, 0, 8):
        alpha, beta = 0.9 * alpha + successes, 0.9 * beta + 8 - successes
        tracker.add("p", 8, float(successes))
    assert tracker.value("p") == pytest.approx(alpha / (alpha + beta))
    twin = RewardTracker(decay=0.9, count=8.0)
    twin.load_state_dict(tracker.state_dict())
    assert (twin.value("p"), twin.value("new")) == (tracker.value("p"), tracker.value("new"))
    assert tracker.value("new") == pytest.approx(11 / 24)


def test_a_tracked_baseline_is_unbiased_where_sampling_stops_at_a_success():
    """E[Σ (r − v)·S] = E[N]·p' for stop-at-first-success within 6: exact sum over N, for a Bernoulli score S."""
    p, v = 0.3, 0.2
    total = expected = 0.0
    for n in range(1, 7):
        for last in (1, 0):
            if last == 0 and n < 6:
                continue
            chance = (1 - p) ** (n - 1) * (p if last else 1 - p)
            rewards = [0.0] * (n - 1) + [float(last)]
            score = [r / p - (1 - r) / (1 - p) for r in rewards]
            total += chance * float(np.dot(tracked(rewards, v), score))
            expected += chance * n
    assert total == pytest.approx(expected)
