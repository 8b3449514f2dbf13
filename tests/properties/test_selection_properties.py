"""Properties of `leverage(share)` that hold for any group."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gumption.credit import leverage
from gumption.selection.leverage import smallest_share

QUICK = settings(max_examples=40, deadline=None)

SHARES = st.floats(0.01, 1.0)
SEEDS = st.integers(0, 2**32 - 1)
GRADES = st.integers(0, 10).map(lambda i: i / 10)
REWARDS = st.integers(1, 40).flatmap(lambda n: arrays(np.float64, n, elements=GRADES))
SUCCESSES = st.integers(2, 40).flatmap(lambda n: arrays(np.bool_, n))


def kept(rewards_G, share, seed):
    leverage_G = leverage.generalised(rewards_G)
    kept_J = smallest_share(leverage_G, rewards_G > rewards_G.mean(), share, np.random.default_rng(seed))
    return leverage_G, kept_J


@QUICK
@given(REWARDS, SHARES, SEEDS)
def test_it_is_the_smallest_set_that_reaches_the_share(rewards_G, share, seed):
    leverage_G, kept_J = kept(rewards_G, share, seed)
    target = share * leverage_G.sum()
    assert leverage_G[kept_J].sum() >= target * (1 - 1e-8)
    if kept_J.size:
        smaller = np.sort(leverage_G)[::-1][: kept_J.size - 1].sum()
        assert smaller < target
    else:
        assert not leverage_G.any()


@QUICK
@given(REWARDS, SHARES, SEEDS)
def test_indices_are_sorted_unique_and_deterministic(rewards_G, share, seed):
    _, kept_J = kept(rewards_G, share, seed)
    assert np.array_equal(kept_J, np.unique(kept_J))
    assert kept_J.dtype == np.int64
    assert np.array_equal(kept_J, kept(rewards_G, share, seed)[1])


@QUICK
@given(REWARDS, SHARES, SEEDS, st.randoms(use_true_random=False))
def test_what_is_kept_does_not_depend_on_position(rewards_G, share, seed, random):
    order = list(range(rewards_G.size))
    random.shuffle(order)
    leverage_G, kept_J = kept(rewards_G, share, seed)
    shuffled_G, shuffled_J = kept(rewards_G[order], share, seed)
    assert np.sort(shuffled_G[shuffled_J]) == pytest.approx(np.sort(leverage_G[kept_J]), abs=1e-9)


@QUICK
@given(SUCCESSES, SHARES, SEEDS)
def test_the_commoner_class_waits_for_the_whole_rarer_one(successes_G, share, seed):
    size, successes = successes_G.size, int(successes_G.sum())
    assume(0 < successes < size)
    leverage_G = leverage.binary(successes_G, successes / size)
    kept_J = smallest_share(leverage_G, successes_G, share, np.random.default_rng(seed))
    right, wrong = int(successes_G[kept_J].sum()), int((~successes_G[kept_J]).sum())
    if 2 * successes < size:
        assert wrong == 0 or right == successes
    elif 2 * successes > size:
        assert right == 0 or wrong == size - successes
    else:
        assert abs(right - wrong) <= 1


@QUICK
@given(REWARDS, SEEDS)
def test_a_larger_share_never_keeps_less(rewards_G, seed):
    sizes = [kept(rewards_G, share, seed)[1].size for share in (0.1, 0.3, 0.5, 0.8, 1.0)]
    assert sizes == sorted(sizes)


@QUICK
@given(SUCCESSES, SHARES, SEEDS, st.integers(-3, 3))
def test_the_scale_of_leverage_does_not_matter(successes_G, share, seed, exponent):
    assume(0 < successes_G.sum() < successes_G.size)
    leverage_G = leverage.binary(successes_G, successes_G.mean())
    draws = [
        smallest_share(scale * leverage_G, successes_G, share, np.random.default_rng(seed))
        for scale in (1.0, 10.0**exponent)
    ]
    assert draws[0].size == draws[1].size
