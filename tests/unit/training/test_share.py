"""The share follows the clock, within bounds, and survives a checkpoint."""

import pytest

from gumption.training.share import AutoShare


def settle(ratio_of, updates=400):
    auto = AutoShare(0.2, 1.0)
    for _ in range(updates):
        auto.observe({"time/generation": 1.0, "time/train": ratio_of(auto.share)})
    return auto


def test_it_settles_where_both_take_equal_time():
    assert settle(lambda share: share / 0.7).share == pytest.approx(0.7, abs=0.01)


def test_it_stays_within_its_bounds():
    assert settle(lambda share: 100.0).share == 0.2
    assert settle(lambda share: 0.01).share == 1.0


def test_one_odd_time_moves_it_little_and_no_time_not_at_all():
    auto = AutoShare(0.2, 1.0)
    auto.observe({"time/generation": 1.0, "time/train": 1e9})
    assert auto.share > 0.38
    before = auto.share
    auto.observe({})
    assert auto.share == before
    twin = AutoShare(0.2, 1.0)
    twin.load_state_dict(auto.state_dict())
    assert twin.share == before


def test_bounds_are_checked():
    with pytest.raises(ValueError, match="low ≤ high"):
        AutoShare(0.9, 0.5)
