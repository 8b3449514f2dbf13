"""Verifier `exact`: the completion is the answer, character by character, blanks around it aside."""

from __future__ import annotations

import re
from typing import Literal

from gumption.rewards.numbers import last_boxed
from gumption.types import Problem, Reward

Part = Literal["whole", "last_line", "tag", "boxed"]
_RIGHT, _WRONG = Reward(1.0), Reward(0.0)
_TAG = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


class ExactVerifier:
    r"""Compares text with text.

    Args:
        part: What is compared: the whole completion, its last line that is not blank, the last `<answer>…</answer>`, or
            the last `\boxed{…}`.
        ignore_case: "Paris" is "paris".

    The problem's answer is a string (numbers are written out), or a list of strings any of which is right.

    >>> problem = Problem("x-0", "Capital of France?", ["Paris", "City of Paris"], "exact")
    >>> [ExactVerifier().score(problem, t).value for t in ("Paris\n", "paris", "It is Paris")]
    [1.0, 0.0, 0.0]
    >>> ExactVerifier(part="tag", ignore_case=True).score(problem, "I say <answer> PARIS </answer>.").value
    1.0
    """

    def __init__(self, part: Part = "whole", ignore_case: bool = False) -> None:
        if part not in ("whole", "last_line", "tag", "boxed"):
            raise ValueError(f"exact: part = {part!r}; choose 'whole', 'last_line', 'tag' or 'boxed'")
        self.part = part
        self.ignore_case = ignore_case

    def score(self, problem: Problem, completion: str) -> Reward:
        """1.0 where the part of the completion equals an answer, else 0.0; status `error` without an answer."""
        answers = problem.answer if isinstance(problem.answer, (list, tuple)) else (problem.answer,)
        if not answers or any(a is None for a in answers):
            return Reward(None, status="error", detail="the problem has no answer")
        part = self._part(completion)
        if part is None:
            return Reward(0.0, detail=f"no {self.part} answer")
        found = part.strip()
        if self.ignore_case:
            return _RIGHT if any(found.casefold() == str(a).strip().casefold() for a in answers) else _WRONG
        return _RIGHT if any(found == str(a).strip() for a in answers) else _WRONG

    def _part(self, completion: str) -> str | None:
        if self.part == "whole":
            return completion
        if self.part == "tag":
            found = _TAG.findall(completion)
            return found[-1] if found else None
        if self.part == "boxed":
            return last_boxed(completion)
        lines = completion.strip().splitlines()
        return lines[-1] if lines else None


def gold_completion(problem: Problem) -> str | None:
    """The answer, in a form that every `part` finds."""
    answer = problem.answer[0] if isinstance(problem.answer, (list, tuple)) and problem.answer else problem.answer
    return None if answer is None else str(answer)


def mutated_completion(problem: Problem) -> str | None:
    """The answer with something behind it."""
    gold = gold_completion(problem)
    return None if gold is None else f"{gold}x"
