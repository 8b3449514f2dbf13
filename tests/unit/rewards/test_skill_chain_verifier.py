"""The verifier of skill_chain: accepts every gold completion, rejects every changed one, never raises."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gumption.problems.skill_chain import BY_SYMBOL, generate, make_problem
from gumption.rewards.base import make_verifier
from gumption.rewards.skill_chain import SkillChainVerifier, gold_completion, mutated_completion

VERIFIER = SkillChainVerifier()
PROMPTS = st.builds(
    "{:03d}{}=".format, st.integers(0, 999), st.text(st.sampled_from(sorted(BY_SYMBOL)), min_size=1, max_size=6)
)


def test_accepts_gold_and_rejects_each_mutated_last_digit() -> None:
    for problem in generate(60, seed=0):
        gold = problem.answer
        states = len(gold) // 3
        assert VERIFIER.score(problem, gold).value == 1.0
        assert VERIFIER.score(problem, gold_completion(problem)).parts == (1.0,) * states
        assert VERIFIER.score(problem, mutated_completion(problem)).value == 0.0
        for place in range(len(gold)):
            for other in set("0123456789") - {gold[place]}:
                reward = VERIFIER.score(problem, gold[:place] + other + gold[place + 1 :])
                # A digit of an earlier state costs that part, one of the last state the reward.
                assert reward.value == float(place < len(gold) - 3)
                assert reward.parts == tuple(float(i != place // 3) for i in range(states))
                assert reward.status == "ok"


@pytest.mark.parametrize(
    "completion",
    ["", "158", "518158", "518185158 ", " 518185158", "518 185 158", "518185158\n", "5181851580", "518185158518",
     "518185158=", "x18185158", "518185１58", "518x85158", "<unk>", "-18185158"],
)  # fmt: skip
def test_form_is_strict(completion: str) -> None:
    reward = VERIFIER.score(make_problem("407BAM="), completion)
    assert (reward.value, reward.status, len(reward.parts)) == (0.0, "ok", 3)
    assert "wanted 9 digits" in reward.detail


@settings(max_examples=60, deadline=None)
@given(
    prompt=PROMPTS,
    completion=st.one_of(st.text("0123456789 =A<\n１²é", max_size=20), st.text("0123456789", max_size=20)),
)
def test_any_text_gets_a_value(prompt: str, completion: str) -> None:
    problem = make_problem(prompt)
    reward = VERIFIER.score(problem, completion)
    right = len(completion) == len(problem.answer) and completion.isascii() and completion.isdigit()
    assert reward.value == float(right and completion[-3:] == problem.answer[-3:])


@pytest.mark.parametrize("answer", [None, 158, "", "15", "15x", "518\n", ["518"]])
def test_a_broken_answer_is_an_error_not_a_failure(answer: object) -> None:
    reward = VERIFIER.score(dataclasses.replace(make_problem("407B="), answer=answer), "518")
    assert (reward.value, reward.status) == (None, "error")
    assert "three digits" in reward.detail


def test_registered() -> None:
    assert isinstance(make_verifier("skill_chain"), SkillChainVerifier)
