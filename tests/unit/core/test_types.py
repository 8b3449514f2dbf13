"""The nouns: views into array-backed attempts, groups, state trees."""

import json
import subprocess
import sys

import numpy as np
import pytest

from gumption import randomness
from gumption.types import (
    Attempt,
    Group,
    Member,
    Message,
    Problem,
    Request,
    Reward,
    attempt_from_state,
    attempt_state,
)

PROBLEM = Problem.from_row({"prompt": "2+2=", "answer": "4", "family": "sum"}, verifier="exact")


def make_attempt() -> Attempt:
    return Attempt(
        request=Request(PROBLEM, n=3, visit=2, attempt=1),
        prompt_ids_T=np.array([5, 6], np.int32),
        completion_ids_T=np.array([1, 2, 3, 4, 9], np.int32),
        logprobs_T=np.array([-0.1, -0.2, -0.3, -0.4, -0.5], np.float32),
        offsets_G1=np.array([0, 2, 2, 5]),
        version_start_G=np.array([0, 1, 1], np.int32),
        version_end_G=np.array([1, 1, 2], np.int32),
        finish_G=("stop", "error", "length"),
        texts_G=("ab", "", "cde"),
        flops_prefill_G=np.array([10, 0, 0]),
        flops_decode_G=np.array([4, 0, 6]),
        loss_mask_T=np.array([True, False, True, True, True]),
        rewards_G=(Reward(1.0, (1.0, 0.0)), Reward(None, status="error", detail="boom"), Reward(0.3, task=0.8)),
    )


def test_rollouts_are_views_of_their_part():
    attempt = make_attempt()
    first, second, third = attempt
    assert first.completion_ids_T.tolist() == [1, 2]
    assert np.shares_memory(first.completion_ids_T, attempt.completion_ids_T)
    assert first.trained_tokens == 1 and third.trained_tokens == 3 and second.trained_tokens == 0
    assert third.version_end == 2 and third.finish == "length" and third.text == "cde"
    assert attempt.lengths_G.tolist() == [2, 0, 3]


def test_values_and_task_values():
    attempt = make_attempt()
    np.testing.assert_array_equal(attempt.values_G, [1.0, np.nan, 0.3])
    np.testing.assert_array_equal(attempt.task_G, [1.0, np.nan, 0.8])


def test_state_tree_round_trip_through_json_scalars():
    attempt = make_attempt()
    state = attempt_state(attempt)
    json.dumps({k: v for k, v in state.items() if not isinstance(v, np.ndarray)})
    again = attempt_from_state(state, PROBLEM)
    for name in ("completion_ids_T", "logprobs_T", "offsets_G1", "version_start_G", "flops_decode_G", "loss_mask_T"):
        np.testing.assert_array_equal(getattr(again, name), getattr(attempt, name))
    assert (again.request, again.finish_G, again.rewards_G) == (attempt.request, attempt.finish_G, attempt.rewards_G)


def test_group_keeps_counts_when_members_leave():
    attempt = make_attempt()
    group = Group(attempt.request.chain_id, PROBLEM, (Member(attempt, 0), Member(attempt, 2)), 9, 1.3, 1, 2, (2, 1.3))
    kept = group.keep(np.array([False, True]))
    assert kept.size == 1 and kept.count == 9 and kept.rewards_G.tolist() == [0.3] and group.size == 2
    assert kept.lengths_G.tolist() == [3] and kept.versions_G.tolist() == [1]


def test_problem_ids_depend_on_content_and_occurrence_only():
    same = Problem.from_row({"prompt": "2+2=", "answer": "4", "other": 1}, verifier="exact")
    assert same.id == PROBLEM.id
    others = [
        Problem.from_row({"prompt": "2+2=", "answer": "5"}, verifier="exact"),
        Problem.from_row({"prompt": "2+2=", "answer": "4"}, verifier="math"),
        Problem.from_row({"prompt": "2+2=", "answer": "4"}, verifier="exact", occurrence=1),
    ]
    assert len({PROBLEM.id, *(p.id for p in others)}) == 4


@pytest.mark.parametrize("prompt", [None, "", "  ", [], 3, [{"role": "user"}], ["hi"]])
def test_bad_prompts_are_refused(prompt):
    with pytest.raises(ValueError, match="prompt"):
        Problem.from_row({"prompt": prompt, "answer": "4"}, verifier="exact")


def test_chat_prompts_become_messages():
    p = Problem.from_row({"prompt": [{"role": "user", "content": "hi"}], "answer": None}, verifier="exact")
    assert p.prompt == (Message("user", "hi"),) and p.text == "hi"


def test_uniforms_are_uniform_and_keyed():
    keys = np.array([randomness.key(0, "t", i) for i in range(64)], np.uint64)
    u = randomness.uniforms(np.repeat(keys, 512), np.tile(np.arange(512), 64))
    # 32,768 draws in 16 bins: chi-square with 15 degrees of freedom exceeds 50 with probability 1e-5.
    counts = np.histogram(u, bins=16, range=(0, 1))[0]
    assert ((counts - 2048) ** 2 / 2048).sum() < 50
    # Correlation of neighbouring counters: standard error 1/√n = .0055; 6 sigma.
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.033
    again = randomness.uniforms(keys[:1], np.array([3]))
    assert again[0] == u[3]


def test_importing_gumption_is_light():
    code = (
        "import sys, gumption, gumption.cli.main, gumption.pipeline, gumption.rollouts.scripted, gumption.allocation\n"
        "gumption.RunConfig\n"
        "heavy = {'torch', 'transformers', 'plotly', 'datasets', 'reasoning_gym', 'math_verify', 'peft'}\n"
        "heavy &= set(sys.modules)\n"
        "print(sorted(heavy))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
