"""GRPO's fixed groups, DAPO's refills, and what `make_allocator` reads from the configuration."""

import pytest

from gumption.allocation import Dynamic, Fixed, NeverGiveUp, make_allocator
from gumption.config import RunConfig
from gumption.testing import ListStream, answer, problem
from gumption.types import Reward

MIXED = [1.0, 0.0, 0.0, 0.0]


def tell(allocator, rewards, *, version=0, at=0, fresh=True):
    [request] = allocator.ask(len(rewards))
    return allocator.tell(answer(request, rewards, version=version), at, fresh=fresh)


def fixed(**options):
    return Fixed(ListStream([problem(f"p{i}") for i in range(5)]), group_size=4, **options)


def dynamic(**options):
    return Dynamic(ListStream([problem(f"p{i}") for i in range(5)]), group_size=4, **options)


@pytest.mark.parametrize("make", [fixed, dynamic])
def test_mixed_groups_are_trained_on(make):
    verdict = tell(make(), MIXED)
    assert (verdict.kind, verdict.reason, verdict.train, verdict.counts) == ("accept", "mixed", True, True)
    assert (verdict.group.size, verdict.group.count, verdict.finals) == (4, 4, ())


@pytest.mark.parametrize(("make", "counts"), [(fixed, True), (dynamic, False)])
@pytest.mark.parametrize(
    ("value", "fate"), [(0.0, "gave_up"), (0.5, "gave_up"), (1.0, "solved"), (1.0 - 5e-7, "solved")]
)
def test_equal_rewards_are_dropped(make, counts, value, fate):
    """`fixed`: the group keeps its place in the batch; `dynamic`: it does not."""
    verdict = tell(make(), [value] * 4)
    assert (verdict.kind, verdict.reason, verdict.train) == ("drop", "zero_variance", False)
    assert verdict.counts is counts
    assert [(f.fate, f.reason) for f in verdict.finals] == [(fate, "zero_variance")] * 4
    assert verdict.group.size == 4


def test_equal_rewards_can_be_kept():
    verdict = tell(fixed(drop_zero_variance=False), [0.0] * 4)
    assert (verdict.kind, verdict.reason, verdict.counts, verdict.finals) == ("accept", "all_equal", True, ())


def test_fixed_never_asks_twice_for_a_judged_problem():
    allocator = fixed()
    tell(allocator, [0.0] * 4)
    assert [r.problem.id for r in allocator.ask(16)] == ["p1", "p2", "p3", "p4"]


def test_filter_looks_at_the_task_reward():
    """A length penalty makes the totals differ; the task says all fail."""
    shaped = [Reward(-0.1 * i, task=0.0) for i in range(4)]
    assert tell(fixed(), shaped).kind == "drop"
    verdict = tell(fixed(filter_on="total"), shaped)
    assert verdict.kind == "accept"
    assert verdict.group.reward_sum == pytest.approx(-0.6)  # credit is about the total


def test_successes_follow_the_filter():
    shaped = [Reward(0.9, task=1.0), Reward(1.0, task=1.0), Reward(0.0), Reward(0.0)]
    assert tell(fixed(), shaped).group.successes == 2
    assert tell(fixed(filter_on="total"), shaped).group.successes == 1


@pytest.mark.parametrize("make", [fixed, dynamic])
def test_too_few_rewards_is_asked_again(make):
    allocator = make()
    verdict = tell(allocator, [1.0, None, None, None])
    assert (verdict.kind, verdict.reason, verdict.counts) == ("retry", "too_few_rewards", False)
    verdict = tell(allocator, [0.0] * 4)
    assert verdict.group.problem.id == "p0"
    assert (verdict.kind, verdict.group.size, verdict.group.count) == ("accept", 5, 5)


def test_status_gives_the_fate():
    statuses = ("masked", "cancelled", "timeout", "invalid")
    verdict = tell(fixed(), [Reward(None, status=s) for s in statuses])
    assert [(f.fate, f.reason) for f in verdict.finals] == [
        ("masked", "masked"),
        ("cancelled", "cancelled"),
        ("error", "timeout"),
        ("error", "invalid"),
    ]


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "nonsense", [NAN, INF, -INF, Reward(NAN, task=1.0), Reward(1.0, task=NAN), Reward(INF, task=0)]
)
def test_numbers_that_are_none(nonsense):
    """A value that is not finite is no reward (a verifier's 0/0 must not poison a baseline)."""
    verdict = tell(fixed(), [1.0, 0.0, 0.0, nonsense])
    assert (verdict.group.size, verdict.group.count, verdict.group.reward_sum) == (3, 3, 1.0)
    assert [(f.fate, f.reason) for f in verdict.finals] == [("error", "no_value")]


def test_infinities_do_not_cancel():
    verdict = tell(fixed(), [INF, -INF, 1.0, 0.0])
    assert (verdict.group.count, verdict.group.reward_sum, len(verdict.finals)) == (2, 1.0, 2)


def test_dynamic_batch_is_ready_when_full_or_at_the_bound():
    allocator = dynamic(max_refills=2)
    assert allocator.batch_ready(4, 4, 4) and not allocator.batch_ready(3, 11, 4)
    assert allocator.batch_ready(3, 12, 4) and allocator.batch_ready(1, 12, 4)
    assert not allocator.batch_ready(0, 12, 4)  # nothing to train on: go on
    assert dynamic(max_refills=0).batch_ready(1, 4, 4)


def test_refills_are_counted_since_the_last_update():
    allocator = dynamic(groups_per_update=2)
    refills = []
    for at in (0, 0, 0, 0, 0, 1):
        tell(allocator, [0.0] * 4, version=at, at=at)
        refills.append(allocator.metrics()["allocation/refills"])
    assert refills == [0, 0, 1, 1, 2, 0]


def test_other_rules_wait_for_a_full_batch():
    for allocator in (fixed(), NeverGiveUp(ListStream([problem()]))):
        assert not allocator.batch_ready(3, 10_000, 4)


def test_wrong_max_refills():
    with pytest.raises(ValueError, match="max_refills"):
        dynamic(max_refills=-1)


def test_stream_that_repeats_a_visit_is_an_error():
    class Forgetful(ListStream):
        def next(self):
            return self.problems[0], 0

    allocator = Fixed(Forgetful([problem("x")]), group_size=4)
    with pytest.raises(ValueError, match="count the visit up"):
        allocator.ask(8)


def test_state_of_another_rule_is_refused():
    with pytest.raises(ValueError, match="'fixed', not 'dynamic'"):
        dynamic().load_state_dict(fixed().state_dict())


@pytest.mark.parametrize(
    ("allocation", "expected"),
    [
        ({"rule": "fixed", "group_size": 3, "drop_zero_variance": False}, {"drop_zero_variance": False}),
        ({"rule": "dynamic", "max_refills": 7}, {"max_refills": 7, "groups_per_update": 4}),
        (
            {"rule": "never_give_up", "retry_probability": 0.5, "accept_on": "different", "max_attempts": "none"},
            {"retry_probability": 0.5, "accept_on": "different", "max_attempts": None},
        ),
    ],
)
def test_make_allocator_reads_every_option(allocation, expected):
    config = RunConfig.from_dict(
        {
            "allocation": {"max_age": 2, **allocation},
            "rewards": {"max_score": 3.0, "filter_on": "total"},
            "credit": {"advantage": "grpo"},
        }
    )
    allocator = make_allocator(config, ListStream([problem()]), seed=9)
    assert allocator.rule == allocation["rule"]
    assert allocator.group_size == allocation.get("group_size", 8)
    assert (allocator.max_age, allocator.max_score, allocator.filter_on, allocator.seed) == (2, 3.0, "total", 9)
    assert {name: getattr(allocator, name) for name in expected} == expected
