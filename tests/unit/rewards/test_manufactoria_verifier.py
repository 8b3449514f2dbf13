"""The verifier: gold accepted, changed gold rejected, both modes, both notations, and nothing that makes it raise."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gumption.problems.manufactoria import mini
from gumption.problems.manufactoria.families import FAMILIES
from gumption.problems.manufactoria.rows import make_row, mini_row, problem_from_row
from gumption.problems.manufactoria.solver import solve
from gumption.rewards.manufactoria import ManufactoriaVerifier, gold_completion, last_block, mutated_completion
from gumption.types import Problem, Reward, Verifier

VERIFIER = ManufactoriaVerifier()


def real(name: str, at: int = -1, difficulty: str | None = None) -> tuple[Problem, str]:
    family = FAMILIES[name]
    p = family.parameters(difficulty or family.default_difficulty, family.default_colors)[at]
    return problem_from_row(make_row(name, p, "easy")), solve(name, p).to_text()


def small(name: str, at: int = -1) -> tuple[Problem, str]:
    p = mini.parameters(name)[at]
    return problem_from_row(mini_row(name, p)), mini.gold(name, p)


@pytest.mark.parametrize("name", FAMILIES)
def test_gold_is_accepted_and_changed_gold_is_not(name: str) -> None:
    problem, gold = real(name)
    good = VERIFIER.score(problem, f"Here it is.\n```manufactoria\n{gold}\n```\nDone.")
    assert good == Reward(1.0, (1.0,) * len(problem.answer))
    first_route = gold.index("    ")
    changed = gold[:first_route] + "    NEXT NONE\n" + gold[gold.index("\n", first_route) + 1 :]
    bad = VERIFIER.score(problem, changed)
    assert bad.value == 0.0 and bad.status == "ok" and len(bad.parts) == len(problem.answer)


@pytest.mark.parametrize("name", mini.FAMILIES)
def test_compact_gold_is_accepted_and_changed_gold_is_not(name: str) -> None:
    for at in (0, 17, -1):
        problem, gold = small(name, at)
        assert VERIFIER.score(problem, gold).value == 1.0
        assert VERIFIER.score(problem, gold[:-1]).value == 0.0
        assert VERIFIER.score(problem, gold.replace("!", "-")).value == 0.0
        assert VERIFIER.score(problem, solve(name, mini.parameters(name)[at]).to_text()).value == 0.0  # not compact


def test_hooks_of_the_problem_check() -> None:
    for problem, gold in (real("prepend_sequence"), small("ends_with", 40)):
        assert gold in str(gold_completion(problem))
        assert VERIFIER.score(problem, str(gold_completion(problem))).value == 1.0
        mutated = VERIFIER.score(problem, str(mutated_completion(problem)))
        assert mutated.value == 0.0 and not mutated.detail  # a program still, and a wrong one
    bare = Problem("bare-0", "x", [{"input": "R"}], "manufactoria")
    assert gold_completion(bare) is None and mutated_completion(bare) is None


def test_only_rows_with_a_regex_need_a_worker() -> None:
    assert VERIFIER.in_process(real("append_sequence")[0])
    assert VERIFIER.in_process(
        Problem("x-0", "x", [{"input": "R", "expected_output": "(R", "check_output": False}], "")
    )
    assert not VERIFIER.in_process(Problem("y-0", "x", [{"input": "R", "expected_output": "(R+)+"}], ""))
    assert VERIFIER.in_process(Problem("z-0", "x", None, ""))


def test_modes() -> None:
    problem, gold = small("starts_with")
    accept_all = "!"
    parts = VERIFIER.score(problem, accept_all).parts
    assert 0 < sum(parts) < len(parts)
    per_test = ManufactoriaVerifier(mode="per_test")
    assert VERIFIER.score(problem, accept_all).value == 0.0
    assert per_test.score(problem, accept_all).value == pytest.approx(sum(parts) / len(parts))
    assert per_test.score(problem, gold).value == 1.0
    assert per_test.score(problem, "P").value == 0.0


def test_parse_errors_are_ordinary_failures_with_a_detail() -> None:
    problem, _ = real("ends_with")
    reward = VERIFIER.score(problem, "I do not know.")
    assert (reward.value, reward.status) == (0.0, "ok")
    assert reward.detail == "not a node declaration: 'I do not know.'" and not any(reward.parts)


def test_hidden_tests_catch_a_fitted_program() -> None:
    problem, gold = small("exact_sequence", 100)
    for tests in ("visible", "hidden", "all"):
        assert ManufactoriaVerifier(tests=tests).score(problem, gold).value == 1.0  # type: ignore[arg-type]
    shown = [test["input"] for test in problem.answer if not test["expected_accepted"]]
    p = mini.parameters("exact_sequence")[100]
    # Right on the visible tests, wrong on one tape that they do not hold.
    wrong = next(c for c in ("B" * len(p.text), "R" * len(p.text), p.text + "RRRR") if c not in shown and c != p.text)
    fitted = _accepts_two(p.text, wrong)
    assert VERIFIER.score(problem, fitted).value == 1.0
    hidden = ManufactoriaVerifier(tests="hidden").score(problem, fitted)
    every = ManufactoriaVerifier(tests="all").score(problem, fitted)
    assert len(every.parts) == len(problem.answer) + len(hidden.parts)
    in_hidden = wrong in _hidden_inputs(problem)
    assert (hidden.value == 0.0) == in_hidden


def _accepts_two(first: str, second: str) -> str:
    from gumption.problems.manufactoria.automata import compile_dfa, explore
    from gumption.problems.manufactoria.compact import to_compact

    dfa = explore("", lambda s, c: (s + c)[:20], lambda s: s in (first, second), "RB") if len(first) < 4 else None
    if dfa is None:
        longest = max(len(first), len(second)) + 1
        prefixes = {t[:n] for t in (first, second) for n in range(longest)}
        dfa = explore("", lambda s, c: s + c if s + c in prefixes else "dead", lambda s: s in (first, second), "RB")
    return to_compact(compile_dfa(dfa))


def _hidden_inputs(problem: Problem) -> set[str]:
    from gumption.problems.manufactoria.testgen import hidden_tests
    from gumption.problems.manufactoria.verdict import read_tests

    family = FAMILIES[problem.meta["problem_family"]]
    p = family.parameters_type.from_dict(problem.meta["parameters"])
    return {test.input for test in hidden_tests(family, p, read_tests(problem.answer))}


def test_which_block_is_the_answer() -> None:
    assert last_block("```\nA\n```\n```manufactoria\nB\n```") == "B"
    assert last_block("```manufactoria\nA\n```\n```python\nB\n```") == "A"
    assert last_block("```python\nA\n```\ntext\n```\nB\n```") == "B"
    assert last_block("```manufactoria\nA") == "```manufactoria\nA"  # never closed: the whole text
    assert last_block("```python\nA\n```") == "```python\nA\n```"
    assert last_block("") == ""


@pytest.mark.parametrize("answer", [None, [], "nonsense", [{"inputs": "R"}], [{"input": 1}], 3])
def test_rows_without_usable_tests_get_no_value(answer: Any) -> None:
    reward = VERIFIER.score(Problem("bad-0", "x", answer, "manufactoria"), "START start:")
    assert reward.value is None and reward.status == "error" and reward.detail


def test_hidden_tests_need_the_parameters() -> None:
    problem = Problem("bare-0", "x", [{"input": "R", "check_output": False}], "manufactoria")
    reward = ManufactoriaVerifier(tests="hidden").score(problem, "START start:")
    assert reward.value is None and "parameters" in reward.detail


def test_the_answer_may_be_json_text() -> None:
    problem = Problem("json-0", "x", '[{"input": "R", "check_output": false}]', "manufactoria")
    assert VERIFIER.score(problem, "START start:\n    NEXT end\nEND end").value == 1.0


def test_wrong_options_are_errors() -> None:
    assert isinstance(VERIFIER, Verifier)
    with pytest.raises(ValueError, match="mode = 'some'"):
        ManufactoriaVerifier(mode="some")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tests = 'none'"):
        ManufactoriaVerifier(tests="none")  # type: ignore[arg-type]


WORDS = st.sampled_from(
    [
        "START start:",
        "    NEXT a",
        "PULLER_RB a:",
        "    [R] end",
        "    [EMPTY] a",
        "END end",
        "```",
        "P1--",
        "Q",
        "\t",
        "!",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(max_size=80), st.lists(WORDS, max_size=14).map("\n".join)))
def test_nothing_that_a_model_writes_makes_it_raise(text: str) -> None:
    for problem in (SMALL[0], REAL[0]):
        reward = VERIFIER.score(problem, text)
        assert reward.status == "ok" and reward.value in (0.0, 1.0)


SMALL = small("append_sequence", 20)
REAL = real("append_sequence", 20)
