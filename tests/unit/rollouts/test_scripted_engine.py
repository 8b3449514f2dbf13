"""The scripted engine: clock, draws, FLOPs, budget, weights, resume."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gumption.config import RunConfig
from gumption.flops import forward_flops
from gumption.rollouts.scripted import ScriptedEngine, make_scripted, pass_rate
from gumption.testing import EngineTestCase, copy_state, problem
from gumption.types import ChainId, Request

QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def engine(*, seed=0, allow=None, stage="rollouts", in_flight=None, lag=0, steps=8, max_tokens=32, slots=16, **options):
    rollouts = {
        "engine": "scripted",
        "in_flight": slots,
        "max_tokens": max_tokens,
        "decode_steps": steps,
        "weight_lag": lag,
        "options": options,
    }
    config = RunConfig.from_dict({"rollouts": rollouts})
    return ScriptedEngine(config, seed=seed, stage=stage, in_flight=in_flight, allow=allow)


def finish(e):
    done = []
    while e.in_flight:
        done += e.poll()
    return done


def rows(attempts):
    """Everything that a ledger row would hold."""
    return sorted(
        (
            a.request.problem.id,
            a.request.visit,
            a.request.attempt,
            i,
            int(a.lengths_G[i]),
            a.finish_G[i],
            a.texts_G[i],
            int(a.version_start_G[i]),
            int(a.version_end_G[i]),
            int(a.flops_prefill_G[i]),
            int(a.flops_decode_G[i]),
        )
        for a in attempts
        for i in range(a.n)
    )


class TestFixedLengths(EngineTestCase):
    def make(self, slots):
        return engine(slots=slots)


class TestVariedLengths(EngineTestCase):
    def make(self, slots):
        return engine(slots=slots, length_cv=1.0, steps=3)


def test_one_step_is_one_token_of_every_active_rollout():
    e = engine(slots=4, steps=1, mean_length=5, tokens_per_second=10)
    e.submit(Request(problem(), 4))
    assert len(e.poll()) == 1  # nothing can happen before the end, so it is one poll
    assert (e.clock, e.tokens_generated, e.metrics()["seconds"]) == (0.5, 20, 0.5)


def test_poll_stops_at_multiples_of_decode_steps():
    """Lengths 5 and 9 in steps of 4: the first poll ends at 8, the second at 9, where the engine is idle."""
    long = problem("long")
    long.answer["mean_length"] = 9
    e = engine(steps=4, mean_length=5)
    e.submit(Request(problem("short"), 2))
    e.submit(Request(long, 2))
    clocks = []
    for name in ("short", "long"):
        [attempt] = e.poll()
        assert attempt.request.problem.id == name
        clocks.append(e.clock * 50)
    assert clocks == [8, 9]


def test_waiting_rollouts_start_when_a_slot_is_free():
    """Two slots, three rollouts of 4 tokens: the third starts at step 4, with the version of then."""
    e = engine(slots=2, steps=1, mean_length=4)
    e.submit(Request(problem(), 3))
    assert e.poll() == [] and e.free_slots == 1  # two have ended, one is left
    e.update_weights(7, {})
    [attempt] = e.poll()
    assert attempt.version_start_G.tolist() == [0, 0, 7] and attempt.version_end_G.tolist() == [0, 0, 7]


def test_version_span_of_a_rollout_in_flight():
    e = engine(slots=4, steps=2, length_cv=1.0, mean_length=8)
    e.submit(Request(problem(), 4))
    while e.free_slots == 0:
        assert e.poll() == []
    e.update_weights(2, {})
    [attempt] = finish(e)
    assert set(attempt.version_start_G.tolist()) == {0}
    assert set(attempt.version_end_G.tolist()) == {0, 2}


def test_flops_of_a_rollout():
    """The prompt once, on member 0; a completion of L tokens feeds L − 1 of them: the first comes from the prefill."""
    e = engine(mean_length=6, prompt_tokens=10)
    e.submit(Request(problem(), 3))
    [attempt] = e.poll()
    assert attempt.flops_prefill_G.tolist() == [forward_flops(e.shape, 10), 0, 0]
    assert attempt.flops_decode_G.tolist() == [forward_flops(e.shape, 5, 10)] * 3
    assert (e.tokens_prompt, e.tokens_generated) == (10, 18)
    assert e.flops_decode == 3 * forward_flops(e.shape, 5, 10)


@QUICK
@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=8),
    st.integers(1, 12),
    st.integers(1, 9),
    st.sampled_from([0.0, 0.7, 2.0]),
)
def test_totals_are_exact_at_every_moment(work, slots, steps, cv):
    """Rows of what came back and of what is in flight add up to the counters, whenever one stops."""
    e = engine(slots=slots, steps=steps, length_cv=cv, mean_length=6, error_rate=0.1)
    attempts = []
    for visit, (n, polls) in enumerate(work):
        e.submit(Request(problem(f"p{visit % 3}"), n, visit))
        for _ in range(polls):
            attempts += e.poll()
    attempts += e.cancel(ChainId("p0", 0))
    before = e.flops_decode, e.tokens_generated
    attempts += e.abandon()
    assert (e.flops_decode, e.tokens_generated) == before and e.in_flight == 0
    assert len(attempts) == len(work)
    assert sum(int(a.flops_decode_G.sum()) for a in attempts) == e.flops_decode
    assert sum(int(a.flops_prefill_G.sum()) for a in attempts) == e.flops_prefill
    assert sum(int(a.offsets_G1[-1]) for a in attempts) == e.tokens_generated


@QUICK
@given(st.integers(0, 2_000_000_000), st.integers(0, 400), st.integers(1, 9))
def test_budget_is_never_exceeded_and_used_to_the_last_step(flops, tokens, steps):
    """`allow` is asked with the exact cost before it is spent; the refused step would not have fitted."""
    refused = []

    def allow(f, t):
        fits = e.flops_prefill + e.flops_decode + f <= flops and e.tokens_generated + t <= tokens
        if not fits:
            refused.append((f, t))
        return fits

    e = engine(allow=allow, steps=steps, slots=8, length_cv=0.8, mean_length=9)
    for i in range(6):
        e.submit(Request(problem(f"p{i}"), 4))
    attempts = []
    while e.in_flight and not e.exhausted:
        attempts += e.poll()
    assert e.flops_prefill + e.flops_decode <= flops and e.tokens_generated <= tokens
    if e.exhausted:
        f, t = refused[-1]
        assert e.flops_prefill + e.flops_decode + f > flops or e.tokens_generated + t > tokens
        assert t <= 8  # one step: one token of each slot at most
        spent = e.flops_decode, e.tokens_generated
        assert e.poll() == [] and (e.flops_decode, e.tokens_generated) == spent and e.exhausted
    attempts += e.abandon()
    assert sum(int(a.offsets_G1[-1]) for a in attempts) == e.tokens_generated
    assert sum(int(a.flops_decode_G.sum()) for a in attempts) == e.flops_decode
    assert sum(int(a.flops_prefill_G.sum()) for a in attempts) == e.flops_prefill


@QUICK
@given(st.integers(0, 12), st.integers(1, 7), st.sampled_from([0.0, 1.0]), st.integers(0, 3), st.integers(0, 2**32))
def test_resumed_engine_makes_the_same_rollouts(polls, steps, cv, lag, seed):
    def new():
        return engine(seed=seed, slots=7, steps=steps, length_cv=cv, lag=lag, error_rate=0.05)

    problems = {f"p{i}": problem(f"p{i}", pass_rate=0.1 + 0.2 * i) for i in range(4)}

    def drive(e, first, last):
        done = []
        for turn in range(first, last):
            if e.free_slots > 0:
                e.submit(Request(problems[f"p{turn % 4}"], 3, turn))
            done += e.poll()
            if turn % 3 == 0:
                e.update_weights(turn // 3 + 1, {"p1": 0.1 * turn, "p2": -0.2 * turn})
        return done

    whole = new()
    expected = drive(whole, 0, 16)
    first = new()
    done = drive(first, 0, polls)
    state = copy_state(first.state_dict())
    second = new()
    second.load_state_dict(state, problems)
    done += drive(second, polls, 16)
    assert rows(done) == rows(expected)
    assert rows(second.abandon()) == rows(whole.abandon())
    assert (second.flops_decode, second.tokens_prompt, second.clock) == (
        whole.flops_decode,
        whole.tokens_prompt,
        whole.clock,
    )


def test_draws_depend_on_seed_stage_visit_and_attempt():
    def texts(request, **options):
        e = engine(slots=64, **options)
        e.submit(request)
        return finish(e)[0].texts_G

    request = Request(problem(pass_rate=0.5), 64)
    reference = texts(request)
    assert texts(request) == reference
    others = [
        texts(request, seed=1),
        texts(request, stage="eval"),
        texts(Request(request.problem, 64, visit=1)),
        texts(Request(request.problem, 64, attempt=1)),
        texts(Request(problem("other"), 64)),
    ]
    assert all(other != reference for other in others)
    assert texts(Request(request.problem, 5)) == reference[:5]  # a member does not depend on the request's size


@pytest.mark.parametrize("p", [0.0, 0.02, 0.3, 0.9, 1.0])
def test_pass_rates_are_as_given(p):
    """|z| < 4.5 over 4,000 rollouts: a false alarm in 1.5·10⁵ seeds."""
    e = engine(slots=500)
    for visit in range(8):
        e.submit(Request(problem(pass_rate=p), 500, visit))
    right = sum(a.texts_G.count("1") for a in finish(e))
    assert abs(right - 4000 * p) <= 4.5 * np.sqrt(4000 * p * (1 - p))


def test_lengths_have_the_given_mean_and_variation():
    """Mean and coefficient of variation within 4.5 standard errors (n = 8,000, lognormal)."""
    e = engine(slots=1000, mean_length=200, length_cv=0.5, max_tokens=10_000)
    for visit in range(8):
        e.submit(Request(problem(), 1000, visit))
    lengths = np.concatenate([a.lengths_G for a in finish(e)])
    assert abs(lengths.mean() - 200) < 4.5 * 100 / np.sqrt(8000)
    assert abs(lengths.std() / lengths.mean() - 0.5) < 0.05


def test_problem_may_have_its_own_length():
    e = engine(mean_length=4)
    slow = problem("slow")
    slow.answer["mean_length"] = 9
    e.submit(Request(slow, 2))
    assert finish(e)[0].lengths_G.tolist() == [9, 9]


def test_what_passes_max_tokens_is_cut_and_fails():
    e = engine(slots=400, mean_length=30, length_cv=0.6, max_tokens=32)
    e.submit(Request(problem(pass_rate=1.0), 400))
    [attempt] = finish(e)
    cut = [i for i, f in enumerate(attempt.finish_G) if f == "length"]
    assert 0 < len(cut) < 400
    assert all(attempt.texts_G[i] == "0" and attempt.lengths_G[i] == 32 for i in cut)
    assert all(attempt.texts_G[i] == "1" for i in range(400) if i not in cut)


def test_error_rate():
    e = engine(slots=400, error_rate=0.25)
    e.submit(Request(problem(), 400))
    [attempt] = finish(e)
    assert 60 < attempt.finish_G.count("error") < 140  # 100 ± 4.6 standard deviations
    assert all((t == "") == (f == "error") for t, f in zip(attempt.texts_G, attempt.finish_G, strict=True))


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_weight_lag(lag):
    e = engine(lag=lag)
    versions = []
    for version in range(1, 7):
        e.update_weights(version, {})
        e.submit(Request(problem(), 1, version))
        versions += finish(e)[0].version_start_G.tolist()
    assert versions == [max(0, v - lag) for v in range(1, 7)]


def test_evaluation_has_no_lag():
    e = engine(lag=3, stage="eval")
    e.update_weights(5, {})
    assert e.version == 5


def test_shifted_weights_change_the_pass_rate():
    p = problem("x", pass_rate=0.2)
    assert pass_rate(p, {"x": np.log(4)}) == pytest.approx(0.5)  # logit(.2) = −log 4
    assert pass_rate(p, {"y": 3.0}) == 0.2
    assert [pass_rate(problem("x", pass_rate=q), {"x": 5.0}) for q in (0.0, 1.0)] == [0.0, 1.0]
    e = engine(slots=1000)
    e.update_weights(1, {"x": np.log(4)})
    e.submit(Request(p, 1000))
    assert abs(finish(e)[0].texts_G.count("1") - 500) < 4.5 * np.sqrt(250)


def test_cancelled_rollouts_keep_what_they_cost():
    e = engine(slots=2, steps=3, mean_length=10, prompt_tokens=5)
    e.submit(Request(problem("a"), 2))
    e.submit(Request(problem("b"), 2))  # waits
    e.allow = lambda flops, tokens: e.tokens_generated + tokens <= 8
    assert e.poll() == [] and e.exhausted
    [stopped] = e.cancel(Request(problem("a"), 2).chain_id)
    assert stopped.lengths_G.tolist() == [4, 4] and stopped.finish_G == ("cancelled", "cancelled")
    assert stopped.flops_decode_G.tolist() == [forward_flops(e.shape, 3, 5)] * 2
    [waiting] = e.abandon()
    assert waiting.lengths_G.tolist() == [0, 0]
    assert waiting.flops_prefill_G.tolist() == waiting.flops_decode_G.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"pass_rat": 0.5}, "pass_rat.*has pass_rate"), ({"length_cv": -1}, "length_cv"), ({"pass_rate": 2}, "pass_rate")],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        engine(**options)


def test_make_scripted_shares_options():
    config = RunConfig.from_dict({"rollouts": {"options": {"learning_rate": 2.0, "heads": 7}}})
    e, trainer = make_scripted(config, seed=1)
    assert e.shape == trainer.shape and trainer.shape.heads == 7 and trainer.options.learning_rate == 2.0
