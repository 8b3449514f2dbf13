"""Verifier `gym`: a reasoning-gym problem is scored by its own generator's `score_answer`.

Some generators cannot read every text and raise; where the same generator accepts its own gold answer, such a text is a
wrong answer (0.0), not an error of the verifier.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from gumption.rewards.numbers import last_boxed, last_number
from gumption.types import Problem, Reward

Extract = Literal["auto", "tag", "boxed", "last_line", "last_number", "whole"]
_EXTRACTS = ("auto", "tag", "boxed", "last_line", "last_number", "whole")
_TAG = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)

EXAMPLE_FIELDS = ("example_correct_answer", "example_answer", "possible_answer", "solution")
"""Where a generator without an oracle answer keeps one that is right, in its metadata."""

NO_GOLD: Mapping[str, str] = {
    "boxnet": "the generator gives no answer: any plan that works is right",
    "rush_hour": "the generator gives no answer: any sequence of moves that frees the car is right",
}
"""Generators without any gold answer."""

TAKES_ANYTHING: Mapping[str, str] = {
    "game_of_life_halting": "its score_answer compares bool(text), and every text but the empty one is true",
}
"""Generators whose own `score_answer` (reasoning-gym 0.1.25) accepts wrong answers: do not train on them."""


class GymVerifier:
    r"""Scores completions with `score_answer`, values as the generator gives them (some give partial credit).

    Args:
        extract: The part of the completion that is the answer. "auto": the last `<answer>…</answer>`, else the last
            `\boxed{…}`, else everything. Or one of "tag", "boxed", "last_line", "last_number", "whole".

    >>> entry = {"question": "3 + 4 =", "answer": "7", "metadata": {}}
    >>> problem = Problem("x-0", "3 + 4 =", "7", "gym", {"family": "chain_sum", "options": {}, "entry": entry})
    >>> [GymVerifier().extract(t) for t in ("I think <answer> 7 </answer>.", r"so \boxed{7}", " 7 ")]
    ['7', '7', '7']
    """

    def __init__(self, extract: Extract = "auto") -> None:
        if extract not in _EXTRACTS:
            raise ValueError(f"gym: extract = {extract!r}; choose one of {', '.join(_EXTRACTS)}")
        self.mode = extract
        self._made: dict[str, Any] = {}

    def prepare(self) -> None:
        """Import reasoning-gym.

        Raises:
            ValueError: it is not installed.
        """
        try:
            import reasoning_gym  # noqa: F401
        except ImportError:
            raise ValueError("gym problems need reasoning-gym: pip install 'gumption[gym]'") from None

    def in_process(self, problem: Problem) -> bool:
        """Generators that compare text with text are safe; others evaluate expressions, search, or parse."""
        return bool(problem.meta.get("compares_text", False))

    def extract(self, completion: str) -> str | None:
        """The answer in a completion, `None` where the wanted part is not there."""
        found: str | None = None
        if self.mode in ("auto", "tag"):
            tags = _TAG.findall(completion)
            found = tags[-1] if tags else None
        if self.mode == "boxed" or (self.mode == "auto" and found is None):
            found = last_boxed(completion)
        if self.mode == "last_number":
            number = last_number(completion)
            found = None if number is None else str(number.value)
        if self.mode == "last_line":
            lines = completion.strip().splitlines()
            found = lines[-1] if lines else None
        if self.mode == "whole" or (self.mode == "auto" and found is None):
            found = completion
        return None if found is None else found.strip()

    def score(self, problem: Problem, completion: str) -> Reward:
        """The generator's score of the completion's answer."""
        entry = problem.meta.get("entry")
        if not isinstance(entry, Mapping):
            return Reward(None, status="error", detail="no reasoning-gym entry in the problem's meta")
        answer = self.extract(completion)
        if answer is None:
            return Reward(0.0, detail=f"no {self.mode} answer")
        data = self._data(problem.meta)
        try:
            return Reward(float(data.score_answer(answer, copy.deepcopy(dict(entry)))), detail=answer[:80])
        except MemoryError:
            raise
        except Exception as error:
            gold = gold_answer(problem)
            if gold is None or gold == answer:
                raise
            data.score_answer(gold, copy.deepcopy(dict(entry)))  # raises too where the entry is at fault
            return Reward(0.0, detail=f"unreadable: {type(error).__name__}: {error}"[:200])

    def _data(self, meta: Mapping[str, Any]) -> Any:
        name, options = meta.get("family", ""), meta.get("options") or {}
        key = f"{name} {json.dumps(options, sort_keys=True, default=str)}"
        if key not in self._made:
            from gumption.problems.gym import create

            self.prepare()
            self._made[key] = create(name, options)
        return self._made[key]


def gold_answer(problem: Problem) -> str | None:
    """An answer that is right: the oracle's, else the example in the generator's metadata."""
    if problem.answer is not None:
        return str(problem.answer)
    metadata = (problem.meta.get("entry") or {}).get("metadata") or {}
    for field in EXAMPLE_FIELDS:
        value = metadata.get(field)
        if value is not None:
            return value if isinstance(value, str) else json.dumps(value)
    return None


def gold_completion(problem: Problem) -> str | None:
    """The gold answer between answer tags; `None` for the generators in `NO_GOLD`."""
    answer = gold_answer(problem)
    return None if answer is None else f"<answer>{answer}</answer>"


def mutated_completion(problem: Problem) -> str | None:
    """The gold answer changed, between answer tags."""
    answer = gold_answer(problem)
    if answer is None:
        return None
    return f"<answer>{WRONG.get(problem.meta.get('family', '')) or changed(answer)}</answer>"


WRONG: Mapping[str, str] = {
    "propositional_logic": "no conclusion",  # another letter may follow too; from contradictory premises all does
    "coin_flip": "2.0",  # the tolerance is wider than the smallest probabilities
}
"""Wrong answers for generators where a small change may lead to another right one."""


def changed(answer: str) -> str:
    """Another answer: its first digit one up (a later one may be within a tolerance), else its last letter another.

    >>> changed("1.59"), changed("9"), changed("True"), changed("()")
    ('2.59', '0', 'Truf', '()x')
    """
    for i, char in enumerate(answer):
        if char.isascii() and char.isdigit():
            return answer[:i] + str((int(char) + 1) % 10) + answer[i + 1 :]
    for i in range(len(answer) - 1, -1, -1):
        if answer[i].isascii() and answer[i].isalpha():
            return answer[:i] + ("a" if answer[i] in "zZ" else chr(ord(answer[i]) + 1)) + answer[i + 1 :]
    return answer + "x"
