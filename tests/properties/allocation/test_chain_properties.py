"""Properties of the allocators over random conversations (hypothesis)."""

from collections import Counter

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gumption.allocation import Dynamic, Fixed, NeverGiveUp
from gumption.testing import Conversation, ListStream, answer, copy_state, problem, summary
from gumption.testing.conversation import key

QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])

ngu_options = st.fixed_dictionaries(
    {
        "group_size": st.integers(1, 6),
        "retry_probability": st.sampled_from([0.3, 0.875, 1.0]),
        "accept_on": st.sampled_from(["better", "different"]),
        "max_age": st.integers(-1, 4),
        "max_attempts": st.sampled_from([None, 1, 2, 5]),
        "max_resamples": st.integers(0, 3),
    }
)
fixed_options = st.fixed_dictionaries(
    {"group_size": st.integers(1, 6), "max_age": st.integers(-1, 4), "max_resamples": st.integers(0, 3)}
)
makers = st.one_of(
    ngu_options.map(lambda o: (NeverGiveUp, o)),
    fixed_options.map(lambda o: (Fixed, o)),
    fixed_options.map(lambda o: (Dynamic, o)),
)
scores = st.sampled_from([0.0, 0.5, 1.0])
talks = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32),
        "slots": st.integers(1, 30),
        "missing": st.sampled_from([0.0, 0.1, 0.8]),
        "stale": st.sampled_from([0.0, 0.2, 0.7]),
        "graded": st.booleans(),
    }
)


def new(maker, talk):
    cls, options = maker
    stream = ListStream([problem(f"p{i}") for i in range(7)])
    return Conversation(cls(stream, seed=talk["seed"], **options), **talk)


@QUICK
@given(makers, talks, st.integers(1, 60))
def test_no_rollout_is_lost_or_has_two_fates(maker, talk, turns):
    conversation = new(maker, talk)
    conversation.run(turns)
    conversation.drain()
    once = Counter(conversation.accepted()) + Counter(conversation.finals())
    assert once == Counter(conversation.all_told())


@QUICK
@given(makers, talks, st.integers(0, 40), st.integers(1, 30))
def test_saved_state_continues_identically(maker, talk, before, after):
    conversation, twin = new(maker, talk), new(maker, talk)
    conversation.run(before)
    twin.allocator.load_state_dict(copy_state(conversation.allocator.state_dict()))
    twin.in_flight, twin.version, twin.turn = list(conversation.in_flight), conversation.version, conversation.turn
    asked, told = len(conversation.requests), len(conversation.verdicts)
    conversation.run(after)
    twin.run(after)
    assert twin.requests == conversation.requests[asked:]
    assert [summary(v) for v in twin.verdicts] == [summary(v) for v in conversation.verdicts[told:]]
    assert copy_state(twin.allocator.state_dict()).keys() == conversation.allocator.state_dict().keys()
    assert twin.allocator.metrics() == conversation.allocator.metrics()
    conversation.drain()
    twin.drain()
    assert [key(f.member) for f in conversation.drained] == [key(f.member) for f in twin.drained]


@QUICK
@given(makers, talks)
def test_trained_members_are_young_enough(maker, talk):
    conversation = new(maker, talk)
    max_age = conversation.allocator.max_age
    for _ in range(40):
        conversation.ask()
        now = conversation.version
        verdict = conversation.tell()
        if max_age >= 0:
            assert all(now - m.attempt.version_start_G[m.position] <= max_age for m in verdict.group.members)
        assert len(set(map(key, verdict.group.members))) == verdict.group.size


@QUICK
@given(
    ngu_options, st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=4, max_size=4), min_size=1, max_size=6)
)
def test_chains_do_not_see_each_other(options, rewards):
    """Nothing depends on batch composition: a chain told among others gets the verdicts that it gets alone."""
    options = options | {"group_size": 4}

    def verdicts(others):
        stream = ListStream([problem(f"p{i}") for i in range(others + 1)])
        allocator = NeverGiveUp(stream, seed=5, **options)
        heard, turns = [], iter(rewards)
        requests = allocator.ask(4 * (others + 1))
        rng = np.random.default_rng(0)
        while (row := next(turns, None)) is not None:
            for request in requests:
                mine = request.chain_id == ("p0", 0)
                verdict = allocator.tell(answer(request, row if mine else rng.choice([0.0, 1.0], 4).tolist()), 0)
                if mine:
                    heard.append(summary(verdict))
            if heard[-1][0] != "retry":
                break
            requests = allocator.ask(4 * (others + 1))
        return heard

    assert verdicts(0) == verdicts(3)


@QUICK
@given(st.permutations(range(6)), st.lists(scores, min_size=6, max_size=6))
def test_order_of_members_does_not_matter(order, values):
    def judged(rewards):
        allocator = NeverGiveUp(ListStream([problem()]), group_size=6, seed=1)
        [request] = allocator.ask(6)
        verdict = allocator.tell(answer(request, rewards), 0)
        return verdict.kind, verdict.reason, verdict.group.successes, sorted(verdict.group.rewards_G.tolist())

    assert judged(values) == judged([values[i] for i in order])
