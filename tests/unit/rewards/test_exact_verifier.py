"""The exact verifier and its options."""

from __future__ import annotations

import pytest

from gumption.rewards import hooks, make_verifier
from gumption.types import Problem


@pytest.mark.parametrize(
    ("options", "answer", "completion", "value"),
    [
        ({}, "4", " 4\n", 1.0),
        ({}, "4", "4.", 0.0),
        ({}, 4, "4", 1.0),
        ({}, ["a", "b"], "b", 1.0),
        ({}, "", "", 1.0),
        ({"ignore_case": True}, "Straße", "STRASSE", 1.0),
        ({"part": "last_line"}, "4", "2 + 2\n 4 \n\n", 1.0),
        ({"part": "last_line"}, "4", "", 0.0),
        ({"part": "tag"}, "4", "<answer>3</answer> <answer>\n4</answer>", 1.0),
        ({"part": "tag"}, "4", "4", 0.0),
        ({"part": "boxed"}, "{4}", r"\boxed{{4}}", 1.0),
        ({"part": "boxed"}, "4", r"\boxed{4", 0.0),
    ],
)
def test_values(options, answer, completion, value):
    assert make_verifier("exact", **options).score(Problem("x-0", "q", answer, "exact"), completion).value == value


@pytest.mark.parametrize("answer", [None, [], [None]])
def test_without_an_answer_it_is_an_error(answer):
    assert make_verifier("exact").score(Problem("x-0", "q", answer, "exact"), "x").status == "error"


def test_hooks():
    gold, mutated = hooks("exact")
    for answer in ("4", ["a", "b"], ""):
        problem = Problem("x-0", "q", answer, "exact")
        verifier = make_verifier("exact")
        assert verifier.score(problem, gold(problem)).value == 1.0
        assert verifier.score(problem, mutated(problem)).value == 0.0
    assert gold(Problem("x-0", "q", None, "exact")) is None is mutated(Problem("x-0", "q", None, "exact"))
