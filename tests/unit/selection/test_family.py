"""What each selector keeps, against hand counts and brute force."""

from itertools import combinations

import numpy as np
import pytest

from gumption.config import RunConfig
from gumption.credit.advantage import grpo
from gumption.selection import CostAware, Cppo, Pods, Top, make_selector
from gumption.selection.batch import make_batch
from gumption.selection.cost_aware import inclusion, systematic
from gumption.selection.pods import most_varied
from gumption.testing import group_credit_of, scored_group


def select(selector, groups, seed=0):
    credits = [group_credit_of(g) for g in groups]
    return credits, selector.select(groups, credits, np.random.default_rng(seed))


def test_pods_finds_the_subset_of_largest_variance():
    rng = np.random.default_rng(3)
    for _ in range(60):
        size = int(rng.integers(2, 9))
        rewards_G = rng.integers(0, 4, size) / 3
        keep = int(rng.integers(1, size + 1))
        kept_J = most_varied(rewards_G, keep, rng)
        best = max(rewards_G[list(c)].var() for c in combinations(range(size), keep))
        assert kept_J.size == keep
        assert rewards_G[kept_J].var() == pytest.approx(best, abs=1e-9)


def test_pods_takes_half_of_each_class_and_fills_up_from_the_other():
    few = scored_group([1.0] * 3 + [0.0] * 29)
    even = scored_group([1.0] * 16 + [0.0] * 16)
    _, (first, second) = select(Pods(16), [few, even])
    assert few.rewards_G[first.indices_J].sum() == 3
    assert even.rewards_G[second.indices_J].sum() == 8


def test_pods_advantages_are_those_of_what_is_kept_and_reach_the_batch():
    group = scored_group([1.0] + [0.0] * 7)
    credits, selections = select(Pods(2, grpo), [group])
    batch = make_batch([group], credits, selections, 0, count="generated")
    assert sorted(r.advantage for r in batch.rows_B) == pytest.approx([-1.0, 1.0], abs=1e-5)


def test_pods_does_not_look_at_position():
    group = scored_group([1.0] * 8 + [0.0] * 8)
    kept = np.zeros(16)
    for seed in range(400):
        kept[select(Pods(4), [group], seed)[1][0].indices_J] += 1
    assert kept.min() > 60 and kept.max() < 140  # 100 expected; false alarm below 1e-4 over all 16


def test_cppo_drops_the_smallest_advantages_of_the_batch():
    hard, even = scored_group([1.0] + [0.0] * 7), scored_group([1.0] * 4 + [0.0] * 4)
    _, (first, second) = select(Cppo(7 / 16), [hard, even])
    assert first.indices_J.tolist() == [0]  # |A| of its failures is .378, of all others at least 1
    assert second.indices_J.size == 8


def test_top_keeps_the_largest_advantages_of_each_group():
    group = scored_group([1.0, 1.0] + [0.0] * 6)
    _, [selection] = select(Top(3), [group])
    assert {0, 1} <= set(selection.indices_J.tolist()) and selection.indices_J.size == 3


def test_inclusion_probabilities_are_proportional_up_to_the_cap():
    pi_B = inclusion([1.0, 2.0, 3.0, 100.0], 2)
    assert pi_B.sum() == pytest.approx(2)
    assert pi_B[3] == 1 and pi_B[1] / pi_B[0] == pytest.approx(2)


def test_a_systematic_draw_includes_each_with_its_probability():
    """10,000 draws; each frequency within 4.5 standard errors: false alarm below 1e-4."""
    pi_B, draws = np.array([0.1, 0.5, 0.7, 1.0, 0.7]), 10_000
    rng = np.random.default_rng(1)
    counts = np.zeros(5)
    for _ in range(draws):
        kept_J = systematic(pi_B, rng)
        assert kept_J.size == 3
        counts[kept_J] += 1
    assert (np.abs(counts / draws - pi_B) <= 4.5 * np.sqrt(pi_B * (1 - pi_B) / draws) + 1e-12).all()


@pytest.mark.parametrize("scope", ["group", "batch"])
def test_cost_aware_weights_make_the_sum_unbiased(scope):
    """Σ weight·advantage·x over the kept, against the full sum; 4,000 draws, 5 standard errors: false alarm < 1e-6."""
    groups = [scored_group([1.0, 0.0, 0.0, 1.0, 0.0, 0.0]), scored_group([1.0] + [0.0] * 9)]
    rng = np.random.default_rng(0)
    for g in groups:
        g.__dict__["lengths_G"] = rng.integers(1, 200, g.size)
    x = [rng.normal(size=g.size) for g in groups]
    selector = CostAware(3, scope)
    credits = [group_credit_of(g) for g in groups]
    full = sum(float((c.advantages_G * x_G).sum()) for c, x_G in zip(credits, x, strict=True))
    sums = []
    for _ in range(4000):
        kept = selector.select(groups, credits, rng)
        sums.append(
            sum(
                float((s.weights_J * c.advantages_G[s.indices_J] * x_G[s.indices_J]).sum())
                for s, c, x_G in zip(kept, credits, x, strict=True)
            )
        )
    assert abs(np.mean(sums) - full) < 5 * np.std(sums) / np.sqrt(len(sums))


def test_the_configuration_names_each_rule():
    def made(**selection):
        config = {"selection": selection, "allocation": {"rule": "fixed"}, "credit": {"advantage": "grpo"}}
        return make_selector(RunConfig.from_dict(config))

    assert made(rule="pods", keep=4) == Pods(4, grpo)
    assert made(rule="pods", recompute=False) == Pods(16)
    assert made(rule="cppo", rate=0.75) == Cppo(0.75)
    assert made(rule="cost_aware", keep=2, scope="batch") == CostAware(2, "batch")
    assert made(rule="top", keep=2) == Top(2)


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        ({"share": 0.0}, "must be in"),
        ({"share": "often"}, "selection.share"),
        ({"share": "auto", "share_low": 0.9, "share_high": 0.5}, "is above"),
        ({"rule": "pods"}, "recompute = false"),
    ],
)
def test_nonsense_is_refused_with_the_way_out(selection, words):
    with pytest.raises(ValueError, match=words):
        RunConfig.from_dict({"selection": selection})
