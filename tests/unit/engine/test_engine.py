import numpy as np
import pytest
import torch

from gumption import flops
from gumption.rollouts.engine import EngineError
from gumption.rollouts.sampling import processed_logprobs
from gumption.types import Engine, Message, Problem, Request


def totals(attempts):
    return (
        sum(int(a.flops_prefill_G.sum()) for a in attempts),
        sum(int(a.flops_decode_G.sum()) for a in attempts),
        sum(len(a.completion_ids_T) for a in attempts),
    )


def engine_totals(engine):
    return engine.flops_prefill, engine.flops_decode, engine.tokens_generated


def same_rollouts(a, b):
    assert a.keys() == b.keys()
    for k in a:
        assert np.array_equal(a[k].offsets_G1, b[k].offsets_G1) and a[k].finish_G == b[k].finish_G
        np.testing.assert_array_equal(a[k].completion_ids_T, b[k].completion_ids_T)
        np.testing.assert_allclose(a[k].logprobs_T, b[k].logprobs_T, atol=1e-5)


# ------------------------------------------------------------------------------------------------ what comes out


@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0.7}, {"top_p": 0.8}, {"top_k": 4, "temperature": 1.3}], ids=str
)
def test_importance_ratio_of_fresh_rollouts_is_one(lab, tokenizer, llama, settings):
    engine = lab.engine(llama, tokenizer, **settings)
    found = lab.run_all(engine, lab.requests(6))
    keywords = {"temperature": 1.0, "top_p": 1.0, "top_k": 0} | settings
    for attempt in found.values():
        for rollout in attempt:
            lab.check_rollout(llama, rollout, 7, max_tokens=10, processed=lambda z: processed_logprobs(z, **keywords))
            chosen = np.arange(len(rollout.completion_ids_T)), rollout.completion_ids_T
            logprobs = lab.full_logprobs(llama, rollout, lambda z: processed_logprobs(z, **keywords))[chosen]
            assert np.abs(np.exp(logprobs - rollout.logprobs_T) - 1).max() < 1e-4


def test_rollouts_do_not_depend_on_what_else_is_in_flight(lab, tokenizer, llama):
    requests = lab.requests(9, n=3)
    alone = lab.run_all(lab.engine(llama, tokenizer, in_flight=1), requests)
    crowd = lab.run_all(lab.engine(llama, tokenizer, in_flight=50), list(reversed(requests)))
    same_rollouts(alone, crowd)
    other_seed = lab.run_all(lab.engine(llama, tokenizer, seed=8), requests)
    assert any(not np.array_equal(alone[k].completion_ids_T, other_seed[k].completion_ids_T) for k in alone)


def test_members_visits_and_attempts_have_their_own_random_numbers(lab, tokenizer, llama):
    problem = lab.problem(0)
    requests = [Request(problem, 4, visit, attempt) for visit in range(2) for attempt in range(2)]
    found = lab.run_all(lab.engine(llama, tokenizer), requests)
    completions = [tuple(r.completion_ids_T.tolist()) for a in found.values() for r in a]
    assert len(set(completions)) > 10


def test_attempts_are_well_formed(lab, tokenizer, llama):
    engine = lab.engine(llama, tokenizer)
    assert isinstance(engine, Engine)
    for attempt in lab.run_all(engine, lab.requests(5)).values():
        assert attempt.prompt_ids_T.dtype == attempt.completion_ids_T.dtype == np.int32
        assert attempt.logprobs_T.dtype == np.float32 and attempt.offsets_G1[-1] == len(attempt.logprobs_T)
        assert tokenizer.decode(attempt.prompt_ids_T) == attempt.request.problem.prompt
        for rollout in attempt:
            visible = rollout.completion_ids_T[:-1] if rollout.finish == "stop" else rollout.completion_ids_T
            words = tokenizer.convert_ids_to_tokens(visible)
            assert rollout.text == "".join(w for w in words if not w.startswith("<"))
            assert rollout.version_start == rollout.version_end == 0


def test_slots_are_refilled_as_soon_as_members_finish(lab, tokenizer, llama):
    engine = lab.engine(llama, tokenizer, in_flight=8, decode_steps=50)
    todo, active = lab.requests(20), []
    step = engine._step
    engine._step = lambda: (step(), active.append(engine.rows.active))[0]
    while todo:
        while todo and engine.free_slots > 0:
            engine.submit(todo.pop(0))
        assert engine.free_slots <= 0
        engine.poll()
    assert engine.free_slots <= engine.slots
    # Right after a step that ended rows there may be fewer; the next step starts with at least 8 again.
    assert max(active) <= 8 + 3 and np.mean(active) > 7


def test_queue_is_first_come_first_served_and_counted(lab, tokenizer, llama):
    engine = lab.engine(llama, tokenizer, in_flight=8)
    for request in lab.requests(5):
        engine.submit(request)
    assert engine.in_flight == 20 and engine.free_slots == 8 - 20
    engine.poll()
    assert sorted({j.request.problem.id for j in engine.rows.jobs[: engine.rows.active]}) <= ["p0-0", "p1-0", "p2-0"]


def test_several_end_tokens(lab, tokenizer):
    model = lab.build_llama()
    model.generation_config.eos_token_id = [5, 6]
    found = lab.run_all(lab.engine(model, tokenizer, max_tokens=12), lab.requests(6))
    finishes = set()
    for attempt in found.values():
        for rollout in attempt:
            lab.check_rollout(model, rollout, 7, max_tokens=12, eos=(1, 5, 6))
            finishes.add(rollout.finish)
    assert finishes == {"stop", "length"}


def test_stop_strings_end_a_completion_and_stay_in_it(lab, tokenizer, llama):
    requests = lab.requests(12)
    free = lab.run_all(lab.engine(llama, tokenizer, max_tokens=12), requests)
    pair = max(
        (t[i : i + 2] for a in free.values() for t in a.texts_G for i in range(len(t) - 1)),
        key=lambda p: sum(p in t for a in free.values() for t in a.texts_G),
    )
    stops = (pair, "zz")
    stopped = lab.run_all(lab.engine(llama, tokenizer, max_tokens=12, stop=stops), requests)
    seen = 0
    for k, attempt in stopped.items():
        for rollout, before in zip(attempt, free[k], strict=True):
            expected = before.text.find(pair)
            if expected < 0:
                assert rollout.text == before.text and rollout.finish == before.finish
            else:
                assert rollout.text == before.text[: expected + 2] and rollout.finish == "stop"
                seen += 1
    assert seen >= 3


def test_context_of_the_model_bounds_a_rollout(lab, tokenizer):
    model = lab.build_llama(max_position_embeddings=16)
    engine = lab.engine(model, tokenizer, max_tokens=40)
    found = lab.run_all(engine, [Request(lab.problem(0, tokens=12), 4), Request(lab.problem(1, tokens=16), 2)])
    long, full = found["p0-0", 0, 0], found["p1-0", 0, 0]
    assert {f for f, n in zip(long.finish_G, long.lengths_G, strict=True) if n == 4} <= {"length", "stop"}
    assert long.lengths_G.max() == 4
    assert full.finish_G == ("error", "error") and not len(full.completion_ids_T)


# ------------------------------------------------------------------------------------------------ costs and budget


def test_costs_are_the_formula_and_add_up(lab, tokenizer, llama):
    engine = lab.engine(llama, tokenizer)
    found = lab.run_all(engine, lab.requests(7, n=3))
    for attempt in found.values():
        prompt = len(attempt.prompt_ids_T)
        assert attempt.flops_prefill_G.tolist() == [flops.forward_flops(lab.shape, prompt), 0, 0]
        for rollout in attempt:  # the last token is never fed back
            want = flops.forward_flops(lab.shape, len(rollout.completion_ids_T) - 1, prompt)
            assert rollout.flops_decode == want
    assert totals(found.values()) == engine_totals(engine)
    assert engine.tokens_prompt == sum(len(a.prompt_ids_T) for a in found.values())


def test_returned_and_abandoned_rollouts_account_for_everything_spent(lab, tokenizer, llama):
    engine = lab.engine(llama, tokenizer, in_flight=6)
    for request in lab.requests(6, n=3):
        engine.submit(request)
    returned = engine.poll() + engine.poll()
    left = engine.abandon()
    assert len(returned) + len(left) == 6 and any(len(a.completion_ids_T) for a in left)
    assert totals(returned + left) == engine_totals(engine)
    assert engine.in_flight == 0 and engine.free_slots == 6 and engine.poll() == []
    untouched = left[-1]
    assert set(untouched.finish_G) == {"cancelled"} and untouched.lengths_G.tolist() == [0, 0, 0]


def test_nothing_is_spent_beyond_what_is_allowed(lab, tokenizer, llama):
    spent, limit = [0, 0], 400_000

    def allow(cost, tokens):
        if spent[0] + cost > limit:
            return False
        spent[0] += cost
        spent[1] += tokens
        return True

    engine = lab.engine(llama, tokenizer, allow=allow)
    todo, got = lab.requests(200), []
    while not engine.exhausted:
        while engine.free_slots > 0:
            engine.submit(todo.pop(0))
        got += engine.poll()
    before = engine_totals(engine)
    assert engine.poll() == [] and engine_totals(engine) == before
    assert spent == [engine.flops_prefill + engine.flops_decode, engine.tokens_generated]
    assert limit - 100_000 < spent[0] <= limit
    assert totals(got + engine.abandon()) == before


# ------------------------------------------------------------------------------------------------ weights in flight


def test_weights_change_in_flight_and_the_span_is_recorded(lab, tokenizer, llama):
    other = lab.build_llama(seed=1)
    engine = lab.engine(llama, tokenizer, in_flight=4, decode_steps=1, max_tokens=8)
    engine.submit(Request(lab.problem(0), 4))
    engine.poll()
    engine.poll()
    engine.update_weights(3, dict(other.named_parameters()))
    done = lab.run_all(engine, [Request(lab.problem(1), 4)])
    spans = {(r.version_start, r.version_end, len(r.completion_ids_T) > 2) for r in done["p0-0", 0, 0]}
    assert (0, 3, True) in spans and all(end == (3 if long else 0) for _, end, long in spans)
    for rollout in done["p1-0", 0, 0]:
        assert (rollout.version_start, rollout.version_end) == (3, 3)
        lab.check_rollout(other, rollout, 7, max_tokens=8)


def test_engine_has_its_own_weights(lab, tokenizer):
    model = lab.build_llama()
    engine = lab.engine(model, tokenizer)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    found = lab.run_all(engine, lab.requests(2))
    for attempt in found.values():
        for rollout in attempt:
            lab.check_rollout(lab.build_llama(), rollout, 7, max_tokens=10)


def test_weight_lag_delays_by_that_many_updates(lab, tokenizer, llama):
    models = [lab.build_llama(seed=s) for s in range(5)]
    engine = lab.engine(models[0], tokenizer, weight_lag=2)
    used = []
    for version in range(1, 5):
        live = {n: p.detach().clone() for n, p in models[version].named_parameters()}
        engine.update_weights(version, live)
        for tensor in live.values():  # trainers change their weights in place
            tensor.zero_()
        attempt = next(iter(lab.run_all(engine, [Request(lab.problem(version), 2)]).values()))
        used.append(int(attempt.version_start_G[0]))
        for rollout in attempt:
            lab.check_rollout(models[used[-1]], rollout, 7, max_tokens=10)
    assert used == [0, 0, 1, 2]


# ------------------------------------------------------------------------------------------------ stop, save, resume


def test_cancel_stops_one_chain_and_leaves_the_others(lab, tokenizer, llama):
    requests = lab.requests(4)
    engine = lab.engine(llama, tokenizer, in_flight=12, decode_steps=1)
    for request in requests:
        engine.submit(request)
    early = engine.poll() + engine.poll()
    cancelled = engine.cancel(requests[1].chain_id)
    assert [a.request.problem.id for a in cancelled] == ["p1-0"] and "cancelled" in cancelled[0].finish_G
    queued = engine.cancel(requests[3].chain_id)
    assert queued[0].finish_G == ("cancelled",) * 4
    assert engine.cancel(requests[1].chain_id) == []
    rest = lab.run_all(engine, [])
    rest |= {(a.request.problem.id, 0, 0): a for a in early}
    undisturbed = lab.run_all(lab.engine(llama, tokenizer), [requests[0], requests[2]])
    same_rollouts(rest, undisturbed)
    assert totals([*rest.values(), *cancelled, *queued]) == engine_totals(engine)


@pytest.mark.parametrize("polls", [0, 1, 3])
def test_resumed_rollouts_continue_as_if_nothing_had_happened(lab, tokenizer, llama, polls):
    requests = lab.requests(6)
    problems = {r.problem.id: r.problem for r in requests}
    straight = lab.run_all(lab.engine(llama, tokenizer), requests)
    first = lab.engine(llama, tokenizer, in_flight=10)
    for request in requests:
        first.submit(request)
    early = [a for _ in range(polls) for a in first.poll()]
    state = first.state_dict()
    again = first.state_dict()  # taking it changes nothing
    assert again["flops_decode"] == state["flops_decode"] and len(again["jobs"]) == len(state["jobs"])

    second = lab.engine(llama, tokenizer, in_flight=10)
    second.load_state_dict(state, problems)
    assert second.in_flight == first.in_flight and second.free_slots == first.free_slots
    late = lab.run_all(second, [])
    found = late | {(a.request.problem.id, 0, 0): a for a in early}
    same_rollouts(found, straight)
    # Rebuilding caches is real compute: booked as prefill on the member that needed it, and the books still balance.
    assert totals(found.values()) == engine_totals(second)
    if polls:
        assert second.flops_prefill > sum(flops.forward_flops(lab.shape, len(a.prompt_ids_T)) for a in found.values())
        assert any(a.flops_prefill_G[1:].any() for a in late.values())
    rest = lab.run_all(first, [])  # the saved engine goes on undisturbed
    same_rollouts(rest | {(a.request.problem.id, 0, 0): a for a in early}, straight)


def test_state_is_a_plain_tree(lab, tokenizer, llama):
    engine = lab.engine(llama, tokenizer, weight_lag=1)
    for request in lab.requests(3):
        engine.submit(request)
    engine.poll()
    engine.update_weights(1, dict(llama.named_parameters()))

    def walk(node):
        if isinstance(node, dict):
            assert all(isinstance(k, str) for k in node)
            return [x for v in node.values() for x in walk(v)]
        if isinstance(node, list):
            return [x for v in node for x in walk(v)]
        assert node is None or isinstance(node, (bool, int, float, str, np.ndarray)), type(node)
        return [node]

    assert any(isinstance(x, np.ndarray) and x.dtype == np.float32 for x in walk(engine.state_dict()))


def test_lagged_weights_survive_a_resume(lab, tokenizer):
    models = [lab.build_llama(seed=s) for s in range(3)]
    first = lab.engine(models[0], tokenizer, weight_lag=1)
    first.update_weights(1, dict(models[1].named_parameters()))
    first.update_weights(2, dict(models[2].named_parameters()))  # in use: 1; held back: 2
    second = lab.engine(models[2], tokenizer, weight_lag=1)  # what a checkpoint's trainer weights would build
    second.load_state_dict(first.state_dict(), {})
    assert second.version == 1
    for rollout in next(iter(lab.run_all(second, lab.requests(1)).values())):
        lab.check_rollout(models[1], rollout, 7, max_tokens=10)
    second.update_weights(3, dict(models[0].named_parameters()))
    assert second.version == 2


def test_unknown_problem_in_a_saved_state_is_named(lab, tokenizer, llama):
    engine = lab.engine(llama, tokenizer)
    engine.submit(lab.requests(1)[0])
    with pytest.raises(ValueError, match="p0-0"):
        engine.load_state_dict(engine.state_dict(), {})


# ------------------------------------------------------------------------------------------------ what goes wrong


def test_unusable_prompts_come_back_as_errors(lab, tokenizer, llama, caplog):
    chat = Problem("chat-0", (Message("user", "12"),), None, "exact")
    engine = lab.engine(llama, tokenizer, max_prompt_tokens=6)
    engine.submit(Request(chat, 2))
    engine.submit(Request(lab.problem(0, tokens=7), 3))
    engine.submit(Request(lab.problem(1, tokens=6), 2))
    assert engine.in_flight == 7
    found = lab.run_all(engine, [])
    assert found["chat-0", 0, 0].finish_G == ("error",) * 2 and found["p0-0", 0, 0].finish_G == ("error",) * 3
    assert "error" not in found["p1-0", 0, 0].finish_G
    assert "chat template" in caplog.text and "max_prompt_tokens" in caplog.text
    assert engine.metrics()["errors"] == 5 and totals(found.values()) == engine_totals(engine)


@pytest.mark.parametrize("generic", [False, True])
def test_logits_that_are_not_finite_end_rollouts_in_error_and_do_not_spread(
    lab, tokenizer, llama, generic, monkeypatch
):
    if generic:
        monkeypatch.setattr("gumption.rollouts.llama.FAMILY", ())
    broken = {n: p.detach().clone() for n, p in llama.named_parameters()}
    broken["model.layers.0.self_attn.v_proj.weight"].fill_(torch.nan)  # NaN gets into the cache
    engine = lab.engine(llama, tokenizer, decode_steps=1, in_flight=4)
    engine.submit(lab.requests(1)[0])
    engine.poll()
    engine.update_weights(1, broken)
    found = lab.run_all(engine, lab.requests(1, start=1))
    assert "error" in found["p0-0", 0, 0].finish_G and found["p1-0", 0, 0].finish_G == ("error",) * 4
    assert np.isfinite(found["p0-0", 0, 0].logprobs_T).all() and found["p1-0", 0, 0].lengths_G.sum() == 0
    engine.update_weights(2, dict(llama.named_parameters()))
    for attempt in lab.run_all(engine, lab.requests(4, start=2)).values():
        for rollout in attempt:
            lab.check_rollout(llama, rollout, 7, max_tokens=10)
    assert engine.metrics()["errors"] >= 5


def test_a_failing_forward_is_one_clear_error_and_leaves_the_books_alone(lab, tokenizer, llama):
    engine = lab.engine(llama, tokenizer)
    for request in lab.requests(3):
        engine.submit(request)
    engine.poll()
    before, forward = engine_totals(engine), engine.decoder.forward

    def out_of_memory(*args):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")

    engine.decoder.forward = out_of_memory
    with pytest.raises(EngineError, match=r"rows × .* columns on cpu: CUDA out of memory.*in_flight"):
        engine.poll()
    assert engine_totals(engine) == before
    engine.decoder.forward = forward
    same_rollouts(lab.run_all(engine, []), lab.run_all(lab.engine(llama, tokenizer), lab.requests(3)))


def test_closing_frees_the_decoder(lab, tokenizer, llama):
    engine = lab.engine(llama, tokenizer)
    engine.submit(lab.requests(1)[0])
    engine.poll()
    engine.close()
    assert engine.in_flight == 0 and not hasattr(engine, "decoder")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("generic", [False, True])
def test_cuda_gives_the_same_rollouts(lab, tokenizer, generic, monkeypatch):
    if generic:
        monkeypatch.setattr("gumption.rollouts.llama.FAMILY", ())
    model = lab.build_llama()
    here = lab.run_all(lab.engine(model, tokenizer), lab.requests(6))
    there = lab.run_all(lab.engine(lab.build_llama().cuda(), tokenizer), lab.requests(6))
    same_rollouts(here, there)
