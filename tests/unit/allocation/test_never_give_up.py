"""NGU (arXiv 2609.13443), rule by rule: algorithms.md 1.3."""

import numpy as np
import pytest

from gumption.allocation import NeverGiveUp
from gumption.testing import ListStream, answer, copy_state, problem

FAIL = [0.0] * 8


def ngu(*, problems=1, **options):
    stream = ListStream([problem(f"p{i}") for i in range(problems)])
    return NeverGiveUp(stream, **{"group_size": 8, "retry_probability": 1.0, **options})


def play(allocator, *attempts, version=None, fresh=True):
    """Tell these rewards one attempt after the other; versions count up with the attempts unless given."""
    verdict = None
    for i, rewards in enumerate(attempts):
        [request] = allocator.ask(len(rewards))
        now = i if version is None else version
        verdict = allocator.tell(answer(request, rewards, version=now), now, fresh=fresh)
    return verdict


def one_success(n=8):
    return [1.0] + [0.0] * (n - 1)


def test_worked_example_of_the_design():
    """Three all-wrong attempts, one success in the fourth, the first two too old: 16 trained, 32 counted, b = 1/32."""
    allocator = ngu(max_age=4)
    finals = []
    for version in (0, 1, 4):
        [request] = allocator.ask(8)
        verdict = allocator.tell(answer(request, FAIL, version=version), version)
        assert (verdict.kind, verdict.train) == ("retry", False)
        finals += verdict.finals
    [request] = allocator.ask(8)
    verdict = allocator.tell(answer(request, one_success(), version=6), 6)
    finals += verdict.finals
    assert (verdict.kind, verdict.reason, verdict.train, verdict.counts) == ("accept", "better", True, True)
    group = verdict.group
    assert (group.size, group.count, group.successes, group.attempts) == (16, 32, 1, 4)
    assert group.baseline == 1 / 32
    assert group.attempt_values == (8, 1.0)
    assert sorted(group.rewards_G.tolist()) == [0.0] * 15 + [1.0]
    assert [m.attempt.request.attempt for m in group.members] == [2] * 8 + [3] * 8
    assert [(f.fate, f.reason, f.member.attempt.request.attempt) for f in finals] == [
        ("stale", "max_age", attempt) for attempt in (0, 1) for _ in range(8)
    ]
    raw_G = group.rewards_G - group.baseline
    assert raw_G.max() == 31 / 32
    others = raw_G[raw_G < raw_G.max()]
    np.testing.assert_allclose(others * -(31 / 32) / others.sum(), -0.064583, atol=1e-6)


def test_mixed_first_attempt_is_accepted():
    verdict = play(ngu(), one_success())
    assert (verdict.kind, verdict.reason, verdict.group.size, verdict.finals) == ("accept", "mixed", 8, ())


def test_solved_first_attempt_is_dropped():
    verdict = play(ngu(), [1.0] * 8)
    assert (verdict.kind, verdict.reason, verdict.train, verdict.counts) == ("drop", "solved", False, False)
    assert [(f.fate, f.reason) for f in verdict.finals] == [("solved", "solved")] * 8
    assert verdict.group.size == 8 and verdict.group.successes == 8


def test_solved_means_max_score():
    assert play(ngu(max_score=2.0), [1.0] * 8).kind == "retry"
    assert play(ngu(max_score=2.0), [2.0] * 8).reason == "solved"


def test_float_noise_is_not_variance():
    allocator = ngu()
    assert play(allocator, [0.3, 0.1 + 0.2, 0.3 + 5e-7, *[0.3] * 5]).reason == "all_equal"
    assert play(allocator, [0.3 + 9e-7] * 8).reason == "not_better"
    assert play(ngu(), [1.0 - 5e-7, *[1.0] * 7]).reason == "solved"
    assert play(ngu(), [1.0 - 5e-5, *[1.0] * 7]).reason == "mixed"


@pytest.mark.parametrize(
    ("accept_on", "first", "second", "expected"),
    [
        ("better", 0.0, [0.5] * 8, "accept"),
        ("better", 0.5, [0.5] * 7 + [0.25], "retry"),  # rewards differ, the best does not rise
        ("better", 0.5, [0.25] * 8, "retry"),
        ("better", 0.5, [0.5] * 8, "retry"),
        ("better", 0.0, [0.0] * 7 + [1.0], "accept"),
        ("different", 0.5, [0.5] * 7 + [0.25], "accept"),
        ("different", 0.5, [0.25] * 8, "accept"),  # all equal, but not to the chain's best
        ("different", 0.5, [0.75] * 8, "accept"),
        ("different", 0.5, [0.5] * 8, "retry"),
    ],
)
def test_accept_rules_of_later_attempts(accept_on, first, second, expected):
    assert play(ngu(accept_on=accept_on), [first] * 8, second).kind == expected


def test_better_climbs_from_the_chains_best():
    """The best of all attempts is what has to be beaten, not the last one's."""
    allocator = ngu(max_score=2.0)
    kinds = [play(allocator, r).kind for r in ([0.5] * 8, [0.25] * 8, [0.5] * 8, [0.25] * 7 + [0.75])]
    assert kinds == ["retry", "retry", "retry", "accept"]


def test_retry_is_the_same_problem_at_once():
    allocator = ngu(problems=3)
    requests = allocator.ask(16)
    for request in reversed(requests):
        allocator.tell(answer(request, FAIL), 0)
    again = allocator.ask(24)
    assert [(r.problem.id, r.attempt) for r in again] == [("p1", 1), ("p0", 1), ("p2", 0)]


def test_give_up_by_coin_settles_the_whole_chain():
    """With 1 − p_retry close to 1 the coin says stop; buffered and current members are all `gave_up`."""
    allocator = NeverGiveUp(ListStream([problem()]), group_size=8, retry_probability=1e-12, max_age=-1)
    verdict = play(allocator, FAIL)
    assert (verdict.kind, verdict.reason, verdict.train, verdict.counts) == ("give_up", "coin", False, False)
    assert {(f.fate, f.reason) for f in verdict.finals} == {("gave_up", "coin")} and len(verdict.finals) == 8
    assert allocator.drain() == []


def test_max_attempts_comes_before_the_coin():
    allocator = ngu(max_attempts=3, max_age=-1)
    verdicts = [play(allocator, FAIL, version=0) for _ in range(3)]
    assert [v.kind for v in verdicts] == ["retry", "retry", "give_up"]
    assert verdicts[-1].reason == "max_attempts"
    assert len(verdicts[-1].finals) == 24 and verdicts[-1].group.size == 24
    assert allocator.ask(8)[0].visit == 1  # the stream goes on


def test_success_in_the_last_allowed_attempt_is_accepted():
    assert play(ngu(max_attempts=2), FAIL, one_success()).kind == "accept"


def test_max_attempts_one_never_retries():
    assert play(ngu(max_attempts=1), FAIL).reason == "max_attempts"


@pytest.mark.parametrize(("max_age", "size", "stale"), [(-1, 40, 0), (0, 8, 32), (1, 16, 24), (3, 32, 8), (4, 40, 0)])
def test_age_filter(max_age, size, stale):
    """Attempts at versions 0 … 4: an age of exactly `max_age` is kept."""
    allocator = ngu(max_age=max_age)
    finals = []
    for version in range(5):
        [request] = allocator.ask(8)
        rewards = FAIL if version < 4 else one_success()
        verdict = allocator.tell(answer(request, rewards, version=version), version)
        finals += verdict.finals
    assert verdict.kind == "accept"
    assert (verdict.group.size, verdict.group.count) == (size, 40)
    assert [f.fate for f in finals] == ["stale"] * stale


def test_old_members_leave_and_their_siblings_stay():
    """Versions differ inside an attempt: each rollout has its own age."""
    allocator = ngu(max_age=2)
    [request] = allocator.ask(8)
    allocator.tell(answer(request, FAIL, version=[0, 0, 0, 1, 1, 2, 2, 2]), 2)
    [request] = allocator.ask(8)
    verdict = allocator.tell(answer(request, one_success(), version=3), 3)
    assert (verdict.group.size, verdict.group.count) == (13, 16)
    assert [f.member.position for f in verdict.finals] == [0, 1, 2]


def test_told_too_late_in_part():
    """Members of the told attempt itself that are too old: counted, not judged, not trained on."""
    allocator = ngu(max_age=1)
    [request] = allocator.ask(8)
    verdict = allocator.tell(answer(request, one_success(), version=[0] * 3 + [2] * 5), 2)
    assert (verdict.kind, verdict.reason) == ("retry", "all_equal")  # the success is too old to be judged
    assert (verdict.group.size, verdict.group.count, verdict.group.successes) == (5, 8, 1)
    assert [(f.member.position, f.fate) for f in verdict.finals] == [(0, "stale"), (1, "stale"), (2, "stale")]


def test_attempt_not_fresh_moves_counts_only():
    """`fresh=False`: counts move, the best does not, retried without a coin, nothing of it is trained on."""
    allocator = NeverGiveUp(ListStream([problem()]), group_size=8, retry_probability=1e-12, max_age=-1)
    verdict = play(allocator, one_success(), fresh=False)
    assert (verdict.kind, verdict.reason) == ("retry", "stale_attempt")
    assert (verdict.group.size, verdict.group.count, verdict.group.reward_sum) == (0, 8, 1.0)
    assert [f.fate for f in verdict.finals] == ["stale"] * 8
    verdict = play(allocator, one_success())
    assert (verdict.kind, verdict.reason) == ("accept", "mixed")  # still the rule of a first attempt
    assert (verdict.group.size, verdict.group.count, verdict.group.attempts) == (8, 16, 2)


def test_stale_attempt_in_mid_chain_leaves_the_best_alone():
    allocator = ngu(max_age=-1)
    play(allocator, [0.25] * 8)
    assert play(allocator, [0.75] * 8, fresh=False).reason == "stale_attempt"
    verdict = play(allocator, [0.5] * 8)
    assert (verdict.kind, verdict.reason) == ("accept", "better")
    assert (verdict.group.size, verdict.group.count) == (16, 24)


def test_all_older_than_max_age_is_not_fresh_either():
    allocator = ngu(max_age=2)
    [request] = allocator.ask(8)
    verdict = allocator.tell(answer(request, one_success(), version=0), 3)
    assert (verdict.kind, verdict.reason) == ("retry", "stale_attempt")


def test_missing_rewards_leave_every_count_alone():
    verdict = play(ngu(), [1.0, None, 0.0, None, 0.0, 0.0, 0.0, 0.0])
    assert verdict.kind == "accept"
    assert (verdict.group.size, verdict.group.count, verdict.group.reward_sum) == (6, 6, 1.0)
    assert [(f.member.position, f.fate, f.reason) for f in verdict.finals] == [
        (1, "error", "error"),
        (3, "error", "error"),
    ]


def test_fewer_than_two_rewards_is_resampled_without_a_coin_and_bounded():
    allocator = NeverGiveUp(ListStream([problem()]), group_size=8, retry_probability=1e-12, max_resamples=2)
    lonely = [None] * 7 + [0.0]
    verdicts = [play(allocator, lonely, version=0) for _ in range(3)]
    assert [(v.kind, v.reason) for v in verdicts] == [
        ("retry", "too_few_rewards"),
        ("retry", "too_few_rewards"),
        ("give_up", "too_few_rewards"),
    ]
    last = verdicts[-1]
    assert (last.group.count, last.group.size) == (3, 3)
    assert [f.fate for f in last.finals] == ["error"] * 7 + ["gave_up"] * 3


def test_resamples_are_counted_in_a_row():
    """A judged attempt in between starts the bound again."""
    allocator = ngu(max_resamples=1, max_attempts=None)
    empty = [None] * 8
    kinds = [play(allocator, r, version=0).kind for r in (empty, FAIL, empty, FAIL, empty, empty)]
    assert kinds == ["retry"] * 5 + ["give_up"]


def test_lonely_reward_is_judged_with_the_next_attempt():
    """A success among errors is not lost: it counts as part of the attempt that follows."""
    allocator = ngu()
    assert play(allocator, [1.0] + [None] * 7).kind == "retry"
    verdict = play(allocator, FAIL)
    assert (verdict.kind, verdict.reason) == ("accept", "mixed")
    assert (verdict.group.size, verdict.group.count, verdict.group.attempt_values) == (9, 9, (9, 1.0))


def test_lonely_reward_in_mid_chain_can_be_better():
    allocator = ngu()
    play(allocator, FAIL)
    assert play(allocator, [1.0] + [None] * 7).kind == "retry"
    assert play(allocator, FAIL).reason == "better"


def test_max_attempts_bounds_resamples_too():
    allocator = ngu(max_attempts=2, max_resamples=9)
    kinds = [play(allocator, [None] * 8, version=0).kind for _ in range(2)]
    assert kinds == ["retry", "give_up"]


def test_numpy_rewards_become_plain_numbers():
    """A verifier may return numpy floats; counts and state hold Python's (they are written as JSON)."""
    allocator = ngu(max_score=2.0)
    play(allocator, [np.float32(0.5), *[None] * 7])
    verdict = play(allocator, [np.float32(0.5)] * 8)
    assert type(verdict.group.reward_sum) is float and type(verdict.group.attempt_values[1]) is float
    assert type(next(iter(allocator._chains.values())).best) is float


def test_groups_of_one():
    """group_size 1 is sampling one at a time until a success: one reward is enough to judge."""
    allocator = ngu(group_size=1, max_age=-1)
    assert [play(allocator, [0.0], version=0).kind for _ in range(3)] == ["retry"] * 3
    verdict = play(allocator, [1.0], version=0)
    assert (verdict.kind, verdict.group.size, verdict.group.baseline) == ("accept", 4, 0.25)


def test_metrics_name_what_happened():
    allocator = ngu(problems=4, max_attempts=2)
    requests = allocator.ask(32)
    for request, rewards in zip(requests, (FAIL, FAIL, [1.0] * 8, one_success()), strict=True):
        allocator.tell(answer(request, rewards), 0)
    first, second = allocator.ask(16)
    allocator.tell(answer(first, one_success()), 0)
    allocator.tell(answer(second, FAIL), 0)
    metrics = allocator.metrics()
    assert metrics["allocation/retries"] == 2 and metrics["allocation/solved"] == 1
    assert metrics["allocation/gave_up"] == 1 and metrics["allocation/accepted"] == 2
    assert metrics["allocation/attempts_per_group"] == 1.5
    assert metrics["frac_reward_zero_std"] == 4 / 6
    assert (metrics["solved_none"], metrics["solved_all"]) == (3 / 6, 1 / 6)


def test_shares_start_again_after_an_update():
    allocator = ngu(problems=4)
    first, second = allocator.ask(16)
    allocator.tell(answer(first, FAIL), 0)
    assert allocator.metrics()["solved_none"] == 1.0
    allocator.tell(answer(second, one_success(), version=1), 1)
    metrics = allocator.metrics()
    assert (metrics["solved_none"], metrics["allocation/retries"], metrics["allocation/attempts"]) == (0.0, 1.0, 2.0)


@pytest.mark.parametrize(
    "options",
    [
        {"retry_probability": 0.0},
        {"retry_probability": 1.5},
        {"accept_on": "worse"},
        {"max_attempts": 0},
        {"group_size": 0},
        {"max_age": -2},
        {"max_resamples": -1},
        {"filter_on": "shaped"},
    ],
)
def test_wrong_options(options):
    [name] = options
    with pytest.raises(ValueError, match=name):
        ngu(**options)


def test_saved_retries_keep_their_order():
    """Several chains wait for the next `ask`, in the order of their verdicts, which is not that of their problems."""
    allocator, twin = ngu(problems=4), ngu(problems=4)
    requests = allocator.ask(32)
    for i in (2, 0, 3, 1):
        allocator.tell(answer(requests[i], FAIL), 0)
    twin.load_state_dict(copy_state(allocator.state_dict()))
    expected = ["p2", "p0", "p3", "p1"]
    assert [r.problem.id for r in twin.ask(32)] == [r.problem.id for r in allocator.ask(32)] == expected
