"""Verifier of `skill_chain`: right iff the last state is right.

Strict about form, since a model that may ramble finds its own way to be right: the completion is exactly three digits
0–9 for each operation, nothing before, between or after (no blanks, no line end). Lenient about the way: earlier states
may be wrong, as a reader of the answer would see only the last one; `parts` tells how the way went.
"""

from __future__ import annotations

import re

from gumption.types import Problem, Reward

_DIGITS = re.compile(r"(?:[0-9]{3})+")


class SkillChainVerifier:
    """Scores completions: value 1.0 or 0.0; parts = for each operation, is the state after it the gold one.

    >>> from gumption.problems.skill_chain import make_problem
    >>> problem = make_problem("407BAM=")
    >>> SkillChainVerifier().score(problem, "518185158").value
    1.0
    >>> SkillChainVerifier().score(problem, "518999158")
    Reward(value=1.0, parts=(1.0, 0.0, 1.0), status='ok', detail='', task=None)
    >>> SkillChainVerifier().score(problem, "518185").detail
    '6 characters, wanted 9 digits'
    """

    def score(self, problem: Problem, completion: str) -> Reward:
        """The reward of one completion.

        Args:
            problem: Its `answer` is the gold completion (the state after each operation).
            completion: What the model wrote, without the end token.

        Returns:
            Value 1.0 if the form is exact and the last state is right, else 0.0. Parts compare state by state at their
            places, whatever the form. A problem whose `answer` is no gold completion gets no value: status `error`.
        """
        gold = problem.answer
        if not isinstance(gold, str) or not _DIGITS.fullmatch(gold):
            return Reward(None, status="error", detail=f"answer {gold!r} is not three digits for each operation")
        parts = tuple(float(completion[i : i + 3] == gold[i : i + 3]) for i in range(0, len(gold), 3))
        if len(completion) != len(gold) or not _DIGITS.fullmatch(completion):
            return Reward(0.0, parts, detail=f"{len(completion)} characters, wanted {len(gold)} digits")
        return Reward(parts[-1], parts)


def gold_completion(problem: Problem) -> str:
    """A completion that must get the full score."""
    return str(problem.answer)


def mutated_completion(problem: Problem) -> str:
    """A completion that must not: the last digit is one too high.

    >>> from gumption.problems.skill_chain import make_problem
    >>> mutated_completion(make_problem("407BAM="))
    '518185159'
    """
    gold = str(problem.answer)
    return f"{gold[:-1]}{(int(gold[-1]) + 1) % 10}"
