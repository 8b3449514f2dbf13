"""The scorer: order, finishes, shaping, hostile verifiers, worker processes."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from gumption.config import RewardsConfig
from gumption.rewards import Scorer
from gumption.rewards.base import as_reward, failure
from gumption.rewards.scorer import overlong_penalty
from gumption.types import Attempt, Message, Problem, Request, Reward

PATIENT = 60.0  # a limit that only a hanging verifier reaches, also on a busy machine


def attempt(texts, *, verifier="exact", answer="yes", finish=None, lengths=None, prompt="q", meta=None) -> Attempt:
    made = Attempt.empty(Request(Problem("x-0", prompt, answer, verifier, meta or {}), n=len(texts)))
    made.texts_G = tuple(texts)
    if finish is not None:
        made.finish_G = tuple(finish)
    if lengths is not None:
        made.offsets_G1 = np.concatenate([[0], np.cumsum(lengths)])
        made.completion_ids_T = np.arange(sum(lengths), dtype=np.int32)
    return made


@pytest.fixture
def scorer(monkeypatch):
    """Makes scorers that are closed after the test; `verifier_zoo` can be imported."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    made: list[Scorer] = []

    def make(verifier="auto", *, max_tokens=100, **settings) -> Scorer:
        settings = {"time_limit": PATIENT, "memory_limit_mb": 2048, **settings}
        made.append(Scorer(RewardsConfig(verifier=verifier, **settings), max_tokens=max_tokens))
        return made[-1]

    yield make
    for one in made:
        one.close()


def score(scorer: Scorer, *attempts: Attempt):
    scorer.score(attempts)
    return [[(r.value, r.status) for r in a.rewards_G] for a in attempts]


# -- in process


def test_values_stand_in_the_order_of_the_completions(scorer):
    first, second = attempt(["yes", "no", "yes"]), attempt(["no"])
    s = scorer()
    assert score(s, first, second) == [[(1.0, "ok"), (0.0, "ok"), (1.0, "ok")], [(0.0, "ok")]]
    assert s.counts() == {"ok": 4} and s.seconds > 0 and s.restarts == 0 and s._pool is None


@pytest.mark.parametrize(("truncated", "expected"), [("fail", (0.0, "ok")), ("mask", (None, "masked"))])
def test_what_did_not_finish_is_not_scored(scorer, truncated, expected):
    made = attempt(["yes"] * 4, finish=("stop", "length", "error", "cancelled"))
    s = scorer(truncated=truncated)
    assert score(s, made) == [[(1.0, "ok"), expected, (None, "error"), (None, "cancelled")]]
    assert sum(s.counts().values()) == 4


def test_graded_rewards_become_binary(scorer):
    made = attempt(["0.2", "0.5", "0.9", "x"], verifier="scripted")
    assert score(scorer(binarize_at=0.5), made) == [[(0.0, "ok"), (1.0, "ok"), (1.0, "ok"), (0.0, "ok")]]


def test_the_length_penalty_leaves_the_task_score(scorer):
    made = attempt(["yes", "yes", "no", "yes"], lengths=[80, 90, 95, 100], finish=("stop", "stop", "stop", "length"))
    scorer(overlong_buffer=20, overlong_penalty=0.5).score([made])
    assert [r.value for r in made.rewards_G] == [1.0, 0.75, -0.375, -0.5]
    assert [r.task for r in made.rewards_G] == [None, 1.0, 0.0, 0.0]
    assert made.task_G.tolist() == [1.0, 1.0, 0.0, 0.0]


def test_the_length_penalty_comes_after_the_threshold(scorer):
    made = attempt(["0.6"], verifier="scripted", lengths=[100])
    scorer(overlong_buffer=10, binarize_at=0.5).score([made])
    assert (made.rewards_G[0].value, made.rewards_G[0].task) == (0.0, 1.0)


def test_no_penalty_on_a_missing_value(scorer):
    made = attempt(["yes"], lengths=[100], finish=("cancelled",))
    scorer(overlong_buffer=10).score([made])
    assert made.rewards_G[0] == Reward(None, status="cancelled", detail="stopped before it was finished")


@pytest.mark.parametrize("length", [0, 50, 75, 100, 130])
def test_overlong_penalty_is_the_paper_s(length):
    """DAPO eq. 13 with L_max 100, L_cache 50, written out."""
    expected = 0.0 if length <= 50 else (50 - length) / 50 if length <= 100 else -1.0
    assert -overlong_penalty(length, 100, 50, 1.0) == pytest.approx(expected)


def test_options_reach_the_verifier_and_may_be_named(scorer):
    assert score(scorer(options={"ignore_case": True}), attempt(["YES"])) == [[(1.0, "ok")]]
    s = scorer(options={"exact": {"ignore_case": True}})
    assert score(s, attempt(["YES"]), attempt(["1"], verifier="scripted")) == [[(1.0, "ok")], [(1.0, "ok")]]


def test_unknown_names_and_options_are_errors_with_the_way_out(scorer):
    for settings, reason in (
        ({"verifier": "exac"}, "did you mean 'exact'"),
        ({"verifier": "exact", "options": {"nope": 1}}, "its options: part, ignore_case"),
        ({"verifier": "exact", "options": {"part": "middle"}}, "choose 'whole'"),
    ):
        with pytest.raises(ValueError, match=reason):
            score(scorer(**settings), attempt(["yes"]))
    with pytest.raises(ValueError, match=r"set problems\.answer_field, or rewards\.verifier"):
        scorer().prepare([attempt(["yes"], verifier="none").request.problem])


def test_a_trusted_verifier_that_raises_costs_one_reward(scorer, monkeypatch):
    from gumption.rewards.exact import ExactVerifier

    monkeypatch.setattr(ExactVerifier, "score", lambda self, problem, text: {"yes": Reward(1.0)}[text])
    s = scorer()
    assert score(s, attempt(["yes", "no"])) == [[(1.0, "ok"), (None, "error")]]
    assert s.counts() == {"ok": 1, "error": 1}


def test_scoring_here_costs_little_more_than_the_verifier_alone(scorer):
    """CPU time of `score` against the verifier's own, alternating in this process."""
    from gumption.rewards import make_verifier

    s, verifier = scorer(), make_verifier("exact")
    attempts = [attempt(["yes"] * 8) for _ in range(500)]
    ratios = []
    for _ in range(5):
        start = time.process_time()
        s.score(attempts)
        middle = time.process_time()
        for a in attempts:
            for text in a.texts_G:
                verifier.score(a.request.problem, text)
        ratios.append((middle - start) / (time.process_time() - middle))
    assert min(ratios) < 4


# -- what a verifier may hand back

NONSENSE = [None, "abc", float("nan"), float("inf"), [1.0], {}, 1j, 10**400, Reward(float("nan")), Reward(None),
            Reward(1.0, status="error"), Reward("x"), Reward(1.0, (float("nan"),)), Reward(1.0, ("a",)),
            Reward(None, status="nonsense")]  # fmt: skip


@pytest.mark.parametrize("result", NONSENSE, ids=repr)
def test_nonsense_is_invalid(result):
    reward = as_reward(result)
    assert reward.value is None and reward.status == "invalid" and len(reward.detail) <= 200


@pytest.mark.parametrize(
    "result", [1, True, 1.0, np.float32(1), np.array(1.0), np.int64(1), Reward(1), Reward(np.float64(1))]
)
def test_numbers_are_rewards(result):
    reward = as_reward(result)
    assert reward == Reward(1.0) and type(reward.value) is float


def test_failures_name_the_place():
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        reward = failure(error)
    assert reward.status == "error" and reward.detail.startswith("ValueError: two lines (test_scorer.py:")


# -- worker processes

OUTCOMES = {
    "yes": (1.0, "ok"), "no": (0.0, "ok"), "raise": (None, "error"), "unprintable": (None, "error"),
    "exit": (None, "error"), "interrupt": (None, "error"), "recursion": (None, "error"), "eat": (None, "memory"),
    "die": (None, "error"), "kill": (None, "error"), "print": (0.5, "ok"), "text": (None, "invalid"),
    "nan": (None, "invalid"), "inf": (None, "invalid"), "none": (None, "invalid"), "nones": (None, "masked"),
    "wrong_length": (None, "invalid"), "dict": (None, "invalid"), "number": (None, "invalid"),
    "list": (None, "invalid"), "complex": (None, "invalid"), "huge": (None, "invalid"), "bool": (1.0, "ok"),
    "empty": (None, "invalid"),
}  # fmt: skip


def test_hostile_verifiers_cost_their_own_reward_only(scorer):
    s = scorer("verifier_zoo:zoo", workers=2)
    kinds = list(OUTCOMES)
    first = attempt([*kinds, "yes"])
    second = attempt(["yes", "die", "no"])
    expected = [[OUTCOMES[k] for k in first.texts_G], [OUTCOMES[k] for k in second.texts_G]]
    assert score(s, first, second) == expected
    assert s.restarts >= 4  # eat, die, kill; die again
    by_status: dict[str, int] = {}
    for row in expected:
        for _, status in row:
            by_status[status] = by_status.get(status, 0) + 1
    assert s.counts() == by_status
    details = dict(zip(first.texts_G, (r.detail for r in first.rewards_G), strict=False))
    assert details["raise"].startswith("RuntimeError: boom (verifier_zoo.py:")
    assert details["die"] == "the verifier ended its process with exit code 7"
    assert "SIGKILL" in details["kill"] and "'abc'" in details["text"]


def test_a_hanging_verifier_is_stopped_with_all_that_it_started(scorer):
    s = scorer("verifier_zoo:zoo", workers=1, time_limit=3.0)
    made = attempt(["yes", "child", "loop", "no"])
    assert score(s, made) == [[(1.0, "ok"), (1.0, "ok"), (None, "timeout"), (0.0, "ok")]]
    assert made.rewards_G[2].detail == "took longer than 3 s" and s.restarts == 1
    s.close()
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "sleep 1000" not in left


def test_closing_ends_the_workers_and_scoring_starts_them_again(scorer):
    s = scorer("verifier_zoo:pid", workers=1)
    (((first, _),),) = score(s, attempt(["a"]))
    os.kill(int(first), 0)
    (((same, _),),) = score(s, attempt(["a"]))
    assert same == first
    s.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(first), 0)
    (((other, status),),) = score(s, attempt(["a"]))
    assert other != first and status == "ok"


def test_a_worker_killed_from_outside_is_replaced_without_loss(scorer):
    s = scorer("verifier_zoo:pid", workers=1)
    (((first, _),),) = score(s, attempt(["a"]))
    os.kill(int(first), 9)
    (((other, status),),) = score(s, attempt(["a"]))
    assert status == "ok" and other != first and s.restarts == 1


def test_workers_end_when_their_scorer_is_forgotten(scorer):
    import gc

    s = Scorer(RewardsConfig(verifier="verifier_zoo:pid", workers=1, time_limit=PATIENT), max_tokens=1)
    (((pid, _),),) = score(s, attempt(["a"]))
    del s
    gc.collect()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def test_functions_get_what_trl_would_give_them(scorer):
    s = scorer("verifier_zoo:columns", workers=1, options={"scale": 2.0})
    made = attempt(["yes", "no"], answer="not this", meta={"answer": "yes", "level": 3, "more": 1}, lengths=[5, 7])
    assert score(s, made) == [[(2.005, "ok"), (0.007, "ok")]]


def test_a_function_may_see_the_whole_attempt(scorer):
    s = scorer("verifier_zoo:batch", workers=2, options={"batch": True})
    texts = ["a", "b", "b", "c"] * 10
    assert score(s, attempt(texts), attempt(["a"])) == [[(3.0, "ok")] * 40, [(1.0, "ok")]]


def test_a_class_with_a_score_method_is_a_verifier_too(scorer):
    s = scorer("verifier_zoo:Judge", workers=1, options={"wanted": "no"})
    assert score(s, attempt(["yes", "no"])) == [[(0.0, "ok"), (1.0, "ok")]]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("verifier_zoo:nothing", "has no 'nothing'"),
        ("no_such_module:f", "cannot import module"),
        ("verifier_zoo:not_callable", "not a function"),
    ],
)
def test_a_function_that_cannot_be_made_is_an_error_at_once(scorer, name, reason):
    s = scorer(name, workers=1)
    with pytest.raises(ValueError, match=reason) as error:
        s.prepare([attempt(["a"]).request.problem])
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=reason):
        score(s, attempt(["a"]))


def test_a_problem_that_cannot_be_sent_costs_its_rewards(scorer):
    s = scorer("verifier_zoo:zoo", workers=1)
    made = attempt(["yes", "no"], meta={"here": lambda: None})
    assert score(s, made, attempt(["yes"])) == [[(None, "error")] * 2, [(1.0, "ok")]]


def test_chat_prompts_give_chat_completions(monkeypatch):
    from gumption.rewards.module import ModuleVerifier

    seen = {}
    verifier = ModuleVerifier("verifier_zoo:zoo")
    monkeypatch.setitem(verifier.__dict__, "_target", lambda **kwargs: seen.update(kwargs) or [1.0])
    problem = Problem("x-0", (Message("system", "s"), Message("user", "u")), "a", "x", {"level": 2, "prompt": "hidden"})
    assert verifier.score(problem, "text", (1, 2)).value == 1.0
    assert seen.pop("log_extra")("name", [1]) is None and seen.pop("log_metric")("name", 1.0) is None
    assert seen == {
        "prompts": [[{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]],
        "completions": [[{"role": "assistant", "content": "text"}]],
        "completion_ids": [[1, 2]],
        "answer": ["a"],
        "level": [2],
        "trainer_state": None,
    }


def test_async_functions_are_awaited(monkeypatch):
    from gumption.rewards.module import ModuleVerifier

    async def reward(completions, **kwargs):
        return np.array([0.5] * len(completions))

    verifier = ModuleVerifier("verifier_zoo:zoo")
    monkeypatch.setitem(verifier.__dict__, "_target", reward)
    assert verifier.score(Problem("x-0", "q", "a", "x"), "text") == Reward(0.5)
