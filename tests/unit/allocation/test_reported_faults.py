"""Faults that users of RL trainers have reported, tried on every rule: what is equal, what is mixed, what is kept."""

import numpy as np
import pytest

from gumption.allocation import Dynamic, Estimate, Fixed, NeverGiveUp, PilotCommit, ReinforceAda, Screen, UntilSuccess
from gumption.credit.advantage import rloo
from gumption.testing import ListStream, answer, problem
from gumption.types import Reward

N = 8
RULES = {
    "fixed": lambda s: Fixed(s, group_size=N),
    "dynamic": lambda s: Dynamic(s, group_size=N),
    "never_give_up": lambda s: NeverGiveUp(s, group_size=N, max_attempts=1),
    "ada_positive": lambda s: ReinforceAda(s, round_size=N, max_rounds=1, exit="positive"),
    "ada_balanced": lambda s: ReinforceAda(s, round_size=N, max_rounds=1, exit="balanced"),
    "screen": lambda s: Screen(s, screen_size=N, continue_size=N),
    "pilot_commit": lambda s: PilotCommit(s, pilot_size=N, commit_size=N, pilot_low=0, pilot_high=1),
    "until_success": lambda s: UntilSuccess(s, round_size=N, max_rounds=1),
    "estimate": lambda s: Estimate(s, counts={}),
}


@pytest.fixture(params=RULES)
def verdict_of(request):
    """The end of a chain whose every attempt brings these rewards."""

    def tell(rewards):
        allocator = RULES[request.param](ListStream([problem()]))
        while True:
            [asked] = allocator.ask(1)
            verdict = allocator.tell(answer(asked, rewards), 0)
            if verdict.kind != "retry":
                return verdict

    return tell


@pytest.mark.parametrize("value", [0.0, 0.3, 0.5, 1.0])
def test_the_spread_decides_not_the_mean(verdict_of, value):
    """A group whose mean is neither 0 nor 1 can be one of equal rewards all the same."""
    verdict = verdict_of([value] * N)
    assert not verdict.train
    assert {f.fate for f in verdict.finals} == {"solved" if value == 1 else "gave_up"}


@pytest.mark.parametrize("successes", range(1, N))
def test_a_mixed_group_is_trained_on_as_one_group(verdict_of, successes):
    """Testing each member's leave-one-out baseline instead of the group would split it.

    With one failure, the failure's own baseline is exactly 1: a group of "equal others".
    """
    rewards = [1.0] * successes + [0.0] * (N - successes)
    verdict = verdict_of(rewards)
    assert verdict.train
    assert {0.0, 1.0} == set(verdict.group.rewards_G.tolist())
    assert np.all(rloo(verdict.group.rewards_G) != 0)


def test_float_noise_is_not_variance(verdict_of):
    assert not verdict_of([0.1 + 0.2, 0.3, *[0.3 + 4e-7] * (N - 2)]).train
    assert {f.fate for f in verdict_of([1.0 - 5e-7, *[1.0] * (N - 1)]).finals} == {"solved"}


def test_a_length_penalty_does_not_let_all_fail_groups_through(verdict_of):
    assert not verdict_of([Reward(-0.1 * i, task=0.0) for i in range(N)]).train


def test_every_rollout_has_one_fate(verdict_of):
    for rewards in ([0.0] * N, [1.0] * N, [1.0] + [0.0] * (N - 1), [1.0, 1.0, *[0.0] * (N - 3), None]):
        verdict = verdict_of(rewards)
        settled = [(id(f.member.attempt), f.member.position) for f in verdict.finals]
        trained = [(id(m.attempt), m.position) for m in verdict.group.members] if verdict.train else []
        assert len(set(settled + trained)) == len(settled + trained)
        valued = sum(f.fate != "error" for f in verdict.finals) + len(trained)
        assert valued == verdict.group.count
