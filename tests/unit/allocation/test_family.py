"""Rules that look at a chain's whole pool, and sizes from a profile: algorithms.md 1.4, rule by rule."""

from collections import Counter

import numpy as np
import pytest

from gumption.allocation import Estimate, PilotCommit, ReinforceAda, Screen, UntilSuccess, make_allocator
from gumption.config import RunConfig
from gumption.credit import make_credit
from gumption.testing import ListStream, answer, copy_state, problem
from gumption.types import Attempt, Request, Reward


def stream(n=1):
    return ListStream([problem(f"p{i}") for i in range(n)])


def play(allocator, *attempts, at=0):
    """Tell these rewards one attempt after the other, all fresh; the last verdict."""
    verdict = None
    for rewards in attempts:
        [request] = allocator.ask(1)
        assert request.n == len(rewards)
        verdict = allocator.tell(answer(request, rewards, version=at), at)
    return verdict


def row(successes, n):
    return [1.0] * successes + [0.0] * (n - successes)


def fates(verdict):
    return Counter((f.fate, f.reason) for f in verdict.finals)


# -- reinforce_ada


def ada(**options):
    return ReinforceAda(stream(), **{"exit": "balanced", **options})


def test_ada_keeps_half_of_each_class_and_the_whole_pools_baseline():
    verdict = play(ada(), row(1, 8), row(2, 8))
    assert (verdict.kind, verdict.reason, verdict.train, verdict.counts) == ("accept", "balanced", True, True)
    assert sorted(verdict.group.rewards_G.tolist()) == [0.0, 0.0, 1.0, 1.0]
    assert (verdict.group.count, verdict.group.baseline) == (16, 3 / 16)
    assert fates(verdict) == {("not_selected", "not_kept"): 12}


@pytest.mark.parametrize(
    ("rounds", "kept", "reason"),
    [
        ([row(1, 8)], [0.0] * 3 + [1.0], "positive"),  # filled up from the failures
        ([row(7, 8)], [0.0] + [1.0] * 3, "positive"),
        ([row(0, 8), row(2, 8)], [0.0, 0.0, 1.0, 1.0], "positive"),
    ],
)
def test_ada_positive_fills_up_from_the_other_class(rounds, kept, reason):
    verdict = play(ada(exit="positive"), *rounds)
    assert (verdict.reason, sorted(verdict.group.rewards_G.tolist())) == (reason, kept)


def test_ada_at_its_last_round():
    """Mixed: trained on although the exit was never reached. All equal: its advantages would be 0, so it ends."""
    verdict = play(ada(), row(0, 8), row(1, 8), row(0, 8), row(0, 8))
    assert (verdict.kind, verdict.reason) == ("accept", "max_rounds")
    assert sorted(verdict.group.rewards_G.tolist()) == [0.0, 0.0, 0.0, 1.0]
    verdict = play(ada(), *[row(0, 8)] * 4)
    assert (verdict.kind, fates(verdict)) == ("give_up", {("gave_up", "max_rounds"): 32})
    verdict = play(ada(), *[row(8, 8)] * 4)
    assert (verdict.kind, fates(verdict)) == ("drop", {("solved", "solved"): 32})
    assert play(ada(exit="positive"), row(8, 8)).reason == "solved"


def test_ada_with_small_pools_keeps_everything():
    verdict = play(ada(round_size=3, keep=8, exit="positive"), row(1, 3))
    assert verdict.group.size == 3 and not verdict.finals


def test_ada_draws_which_members_stay_not_by_position():
    """Each of 8 positions is kept about equally often: the first ones would be the shortest."""
    kept = Counter()
    allocator = ReinforceAda(stream(400), exit="positive", keep=2)
    for request in allocator.ask(8 * 400):
        verdict = allocator.tell(answer(request, [1.0, 0.0] * 4), 0)
        kept.update(m.position for m in verdict.group.members)
    assert set(kept) == set(range(8))
    assert all(abs(n - 100) < 4.5 * np.sqrt(400 * 0.25 * 0.75) for n in kept.values())


def test_ada_draw_depends_on_nothing_but_the_chain():
    verdicts = [play(ReinforceAda(stream(), seed=s), row(4, 8)) for s in (0, 0, 1, 2, 3)]
    places = [[m.position for m in v.group.members] for v in verdicts]
    assert places[0] == places[1] and len({tuple(p) for p in places}) > 1


def test_ada_stale_rollouts_count_in_the_baseline_but_not_towards_the_exit():
    allocator = ReinforceAda(stream(), max_age=1)
    play(allocator, row(1, 8), at=0)
    verdict = play(allocator, row(1, 8), at=5)  # one success is too old: still not two to train on
    assert (verdict.kind, verdict.group.successes, fates(verdict)) == ("retry", 2, {("stale", "max_age"): 8})
    verdict = play(allocator, row(1, 8), at=5)
    assert (verdict.reason, verdict.group.count, verdict.group.baseline) == ("balanced", 24, 3 / 24)


def test_ada_credit_is_pool_baseline_without_rescaling():
    config = RunConfig.from_dict({"allocation": {"rule": "reinforce_ada", "exit": "positive"}})
    assert config.advantage == "chain"
    allocator = make_allocator(config, stream(), seed=0)
    verdict = play(allocator, row(0, 8), row(1, 8))
    [credit] = make_credit(config)([verdict.group])
    assert sorted(credit.advantages_G.tolist()) == [-1 / 16] * 3 + [15 / 16]
    assert credit.p_hat == 1 / 16


def test_graded_rewards_below_the_maximum_are_failures():
    verdict = play(ada(round_size=4, max_rounds=1, exit="positive"), [0.0, 0.5, 0.9, 0.9])
    assert (verdict.kind, verdict.reason) == ("accept", "max_rounds")
    assert play(ada(round_size=4, exit="positive"), [0.9] * 4).kind == "retry"


# -- pilot_commit and screen


@pytest.mark.parametrize(
    ("successes", "kind", "reason", "fate"),
    [
        (1, "give_up", "below_band", "gave_up"),
        (2, "retry", "inside_band", None),
        (12, "retry", "inside_band", None),
        (13, "drop", "above_band", "gave_up"),
        (16, "drop", "above_band", "solved"),
    ],
)
def test_pilot_band(successes, kind, reason, fate):
    allocator = PilotCommit(stream())
    verdict = play(allocator, row(successes, 16))
    assert (verdict.kind, verdict.reason, verdict.counts) == (kind, reason, False)
    assert {f.fate for f in verdict.finals} == ({fate} if fate else set())
    if kind == "retry":
        verdict = play(allocator, row(0, 48))
        assert (verdict.reason, verdict.group.size, verdict.group.count) == ("committed", 64, 64)


def test_screen_continues_only_what_differs():
    assert play(Screen(stream()), row(4, 4)).reason == "solved"
    assert play(Screen(stream()), row(0, 4)).reason == "all_equal"
    allocator = Screen(stream())
    assert play(allocator, row(1, 4)).kind == "retry"
    verdict = play(allocator, row(12, 12))
    assert (verdict.reason, verdict.group.size, verdict.group.successes) == ("continued", 16, 13)


def test_screening_that_got_too_old_does_not_train_on_equal_rewards():
    allocator = Screen(stream(), max_age=0)
    play(allocator, row(1, 4), at=0)
    verdict = play(allocator, row(0, 12), at=1)
    assert (verdict.kind, verdict.group.size, verdict.group.count) == ("give_up", 12, 16)


def test_a_continuation_that_never_comes_back_costs_only_itself():
    """The mixed screening is trained on when the verifier fails for good."""
    allocator = Screen(stream(), max_resamples=1)
    play(allocator, row(1, 4))
    assert play(allocator, [None] * 12).kind == "retry"
    verdict = play(allocator, [None] * 12)
    assert (verdict.kind, verdict.reason, verdict.group.size) == ("accept", "too_few_rewards", 4)
    assert fates(verdict) == {("error", "error"): 12}


# -- until_success


def long_answer(request, rewards, version):
    """An attempt with tokens: member i has i + 1 of them."""
    told = answer(request, rewards, version=version)
    told.prompt_ids_T = np.arange(3, dtype=np.int32)
    told.offsets_G1 = np.cumsum([0, *range(1, request.n + 1)])
    total = int(told.offsets_G1[-1])
    told.completion_ids_T = np.arange(total, dtype=np.int32)
    told.logprobs_T = -np.arange(total, dtype=np.float32)
    told.texts_G = tuple(f"text {i}" for i in range(request.n))
    told.flops_prefill_G = told.flops_decode_G = np.full(request.n, 7)
    return told


def test_remembered_success_is_its_own_rollout():
    allocator = UntilSuccess(stream(), round_size=4, max_rounds=2)
    [first] = allocator.ask(1)
    told = long_answer(first, [0.0, 0.0, 1.0, 0.0], version=3)
    assert allocator.tell(told, 3).reason == "success"
    original = told.rollout(2)
    play(allocator, row(0, 4), at=40)
    verdict = play(allocator, row(0, 4), at=41)
    assert (verdict.kind, verdict.reason, verdict.counts) == ("accept", "remembered", True)
    group = verdict.group
    assert (group.size, group.count, group.successes, group.baseline) == (9, 8, 0, 0.0)
    replay = list(group.members)[-1].rollout
    assert replay.completion_ids_T.tolist() == original.completion_ids_T.tolist() == [3, 4, 5]
    assert replay.logprobs_T.tolist() == original.logprobs_T.tolist()
    assert (replay.text, replay.version_start, replay.reward) == ("text 2", 3, original.reward)
    assert (replay.flops_prefill, replay.flops_decode) == (0, 0)
    assert replay.request == Request(problem("p0"), 1, visit=1, attempt=2)  # a key that no generated rollout has
    assert group.replays_G.tolist() == [False] * 8 + [True]
    assert allocator.metrics()["allocation/replays"] == 1.0


def test_without_a_memory_a_failed_problem_is_given_up():
    assert play(UntilSuccess(stream(), max_rounds=2), row(0, 8), row(0, 8)).reason == "max_rounds"


def test_solved_problems_are_remembered_too():
    allocator = UntilSuccess(stream(), round_size=2, max_rounds=1)
    assert play(allocator, row(2, 2)).reason == "solved"
    assert play(allocator, row(0, 2)).reason == "remembered"


def test_a_replay_is_not_remembered_again_and_ages():
    allocator = UntilSuccess(stream(), round_size=2, max_rounds=1, memory_age=10)
    play(allocator, row(1, 2), at=0)
    assert play(allocator, row(0, 2), at=10).reason == "remembered"
    assert play(allocator, row(0, 2), at=11).kind == "give_up"
    play(allocator, row(1, 2), at=12)
    assert play(allocator, row(0, 2), at=22).group.versions_G.tolist() == [22, 22, 12]


def test_memory_survives_a_checkpoint():
    allocator = UntilSuccess(stream(), round_size=2, max_rounds=1)
    [request] = allocator.ask(1)
    allocator.tell(long_answer(request, [0.0, 1.0], version=4), 4)
    twin = UntilSuccess(stream(), round_size=2, max_rounds=1)
    twin.load_state_dict(copy_state(allocator.state_dict()))
    for one in (allocator, twin):
        [replay] = [m.rollout for m in play(one, row(0, 2), at=9).group.members if m.attempt.replay]
        assert (replay.text, replay.version_start, replay.logprobs_T.tolist()) == ("text 1", 4, [-1.0, -2.0])


def test_which_success_is_remembered_is_drawn():
    seen = set()
    for seed in range(20):
        allocator = UntilSuccess(stream(), round_size=4, max_rounds=1, seed=seed)
        [request] = allocator.ask(1)
        allocator.tell(long_answer(request, [1.0] * 4, version=0), 0)
        seen.add(play(allocator, row(0, 4)).group.members[-1].rollout.text)
    assert seen == {f"text {i}" for i in range(4)}


# -- estimate


def test_estimate_sizes():
    counts = {"p0": (32, 32), "p1": (32, 7), "p2": (32, 2), "p3": (32, 1), "p4": (16, 2)}
    allocator = Estimate(stream(6), counts=counts, unknown_size=5)
    assert [r.n for r in allocator.ask(4 + 8 + 16 + 32 + 8 + 5)] == [4, 8, 16, 32, 8, 5]


def test_estimate_is_one_attempt():
    allocator = Estimate(stream(2), counts={"p0": (32, 32)})
    assert play(allocator, row(1, 4)).kind == "accept"
    verdict = play(allocator, row(0, 8))
    assert (verdict.kind, verdict.reason, verdict.counts) == ("drop", "zero_variance", True)
    assert play(Estimate(stream(), counts={}, drop_zero_variance=False), row(0, 8)).kind == "accept"


def test_estimate_asks_a_failed_attempt_again_in_its_own_size():
    allocator = Estimate(stream(1), counts={"p0": (32, 32)})
    assert play(allocator, [None] * 4).kind == "retry"
    assert [r.n for r in allocator.ask(1)] == [4]


def test_estimate_reads_its_profile(tmp_path):
    path = tmp_path / "before.jsonl"
    path.write_text('{"problem_id": "p0", "n": 32, "successes": 9}\n{"problem_id": "p1", "n": 32, "successes": 0}\n')
    config = RunConfig.from_dict({"allocation": {"rule": "estimate", "profile": str(path), "unknown_size": 3}})
    assert [r.n for r in make_allocator(config, stream(3), 0).ask(39)] == [4, 32, 3]


# -- options


@pytest.mark.parametrize(
    ("rule", "options", "words"),
    [
        (ReinforceAda, {"keep": 3}, "even"),
        (ReinforceAda, {"exit": "both"}, "'positive' or 'balanced'"),
        (ReinforceAda, {"max_rounds": 0}, "max_rounds"),
        (PilotCommit, {"pilot_low": 0.8}, "band"),
        (PilotCommit, {"commit_size": 0}, "commit_size"),
        (Screen, {"screen_size": 1}, "screen_size"),
        (UntilSuccess, {"memory_age": -2}, "memory_age"),
        (Estimate, {"counts": {"p0": (4, 5)}}, "5 successes of 4"),
    ],
)
def test_nonsense_is_refused(rule, options, words):
    with pytest.raises(ValueError, match=words):
        rule(stream(), **options)


@pytest.mark.parametrize(
    ("allocation", "expected"),
    [
        (
            {"rule": "reinforce_ada", "round_size": 5, "max_rounds": 3, "exit": "positive", "keep": 6},
            {"group_size": 5, "max_rounds": 3, "exit": "positive", "keep": 6},
        ),
        (
            {"rule": "pilot_commit", "pilot_size": 4, "commit_size": 9, "pilot_low": 0.2, "pilot_high": 0.6},
            {"group_size": 4, "commit_size": 9, "pilot_low": 0.2, "pilot_high": 0.6},
        ),
        ({"rule": "screen", "screen_size": 3, "continue_size": 7}, {"group_size": 3, "continue_size": 7}),
        (
            {"rule": "until_success", "round_size": 2, "max_rounds": 6, "memory_age": 9},
            {"group_size": 2, "max_rounds": 6, "memory_age": 9},
        ),
    ],
)
def test_make_allocator_reads_every_option(allocation, expected):
    config = RunConfig.from_dict({"allocation": {"max_age": 2, **allocation}, "rewards": {"max_score": 3.0}})
    allocator = make_allocator(config, stream(), seed=9)
    assert allocator.rule == allocation["rule"]
    assert (allocator.max_age, allocator.max_score, allocator.seed) == (2, 3.0, 9)
    assert {name: getattr(allocator, name) for name in expected} == expected


def test_shaped_rewards_do_not_look_like_variance():
    shaped = [Reward(-0.1 * i, task=0.0) for i in range(4)]
    assert play(Screen(stream()), shaped).kind == "give_up"
    assert play(UntilSuccess(stream(), round_size=4, max_rounds=1), shaped).kind == "give_up"
    assert isinstance(play(ada(round_size=4, max_rounds=1), shaped).group.members[0].attempt, Attempt)
