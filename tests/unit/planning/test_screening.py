"""Closed forms of the planner against the selector, published tables and the simulator."""

import numpy as np
import pytest

from gumption.planning.planner import _levels
from gumption.planning.screening import expected, kept_of
from gumption.planning.simulator import simulate
from gumption.selection.leverage import smallest_share


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("size", [2, 8, 13])
def test_kept_members_are_those_of_the_selector(size, share):
    rng = np.random.default_rng(0)
    for successes in range(size + 1):
        right_G = np.arange(size) < successes
        p = successes / size
        leverage_G = np.where(right_G, (1 - p) / p, p / (1 - p)) if 0 < p < 1 else np.zeros(size)
        chosen_J = smallest_share(leverage_G, right_G, share, rng)
        n, leverage = kept_of(successes, size, share)
        assert n == len(chosen_J)
        assert leverage == pytest.approx(leverage_G[chosen_J].sum())


@pytest.mark.parametrize(
    ("share", "p", "kept"),
    [(0.5, 0.05, 0.053), (0.5, 0.1, 0.076), (0.5, 0.2, 0.145), (0.5, 0.5, 0.400), (0.9, 0.1, 0.219), (0.9, 0.5, 0.875)],
)
def test_published_kept_shares_of_mixed_groups_of_32(share, p, kept):
    y = expected("dynamic", np.array([p]), 32, share)
    assert y.kept / y.groups / 32 == pytest.approx(kept, abs=0.001)


def test_never_give_up_gets_eight_attempts_at_an_unsolvable_problem_and_one_at_a_solved_one():
    assert expected("never_give_up", np.array([0.0]), 8, 1.0, max_attempts=500).attempts == pytest.approx(8)
    assert expected("never_give_up", np.array([1.0]), 8, 1.0)[:3] == (8.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="no closed form"):
        expected("screen", np.array([0.5]), 8, 1.0)


def test_a_later_attempt_that_is_all_right_is_accepted():
    """Groups of 2 at p = ½, two attempts: ½ mixed at once; ¼ all wrong, tried again at .875, then ¾ with a success."""
    y = expected("never_give_up", np.array([0.5]), 2, 1.0, max_attempts=2)
    again = 0.25 * 0.875
    assert y.groups == pytest.approx(0.5 + again * 0.75)
    assert y.kept == y.leverage == pytest.approx(0.5 * 2 + again * 0.75 * 4)
    assert y.rollouts == pytest.approx(2 + 2 * again)


@pytest.mark.parametrize("rule", ["fixed", "never_give_up"])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_closed_form_against_the_simulator(rule, share):
    """Rollouts per group and leverage per rollout; false alarms: below 1e-4 (10 %, four standard errors or more)."""
    rates_P = _levels(np.random.default_rng(1).beta(0.5, 1.5, 400), 60)
    y = expected(rule, rates_P, 4, share)
    run = simulate(
        {
            "problems": {"epochs": 20},
            "allocation": {"rule": rule, "group_size": 4, "max_age": -1},
            "selection": {"rule": "leverage", "share": share} if share < 1 else {"rule": "all"},
            "rollouts": {"in_flight": 64},
            "training": {"max_staleness": 10_000},
            "simulation": {"problems": ", ".join(f"{p:.6f}" for p in rates_P), "mean_length": 4},
        }
    ).summary
    visits = 20 * len(rates_P)
    assert run["reason"] == "problems"
    assert run["rollouts"] / visits == pytest.approx(y.rollouts, rel=0.1)
    assert run["leverage"]["trained"] / visits == pytest.approx(y.leverage, rel=0.1)
    assert run["rollouts_by_fate"]["trained"] / visits == pytest.approx(y.kept, rel=0.1)
