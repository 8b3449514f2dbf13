r"""Verifier `math`: is the final answer of a solution equal to the gold answer?

The final answer is the last complete `\boxed{…}`; without one, what stands after the last `####`; without that, the
last number of the text where the gold answer is a number, else what math-verify finds in its last lines.

Most answers are plain numbers or the gold answer's own spelling; those are decided exactly and at once (`quick`). The
rest goes to math-verify (sympy), which can hang on what a model writes: the scorer runs it in a worker process with a
time limit. math-verify's own time limit uses signals and is off.
"""

from __future__ import annotations

import functools
import logging
import re
from typing import Any, Literal, NamedTuple

from gumption.rewards.latex import canonical, changed
from gumption.rewards.numbers import PlainNumber, equal, last_boxed, last_number, plain_number
from gumption.types import Problem, Reward

Rule = Literal["any", "boxed"]
_TAIL = 400  # characters of a text without a box that math-verify looks at
_ROOM = 300  # an answer this much longer than the gold one is wrong without a look


class Gold(NamedTuple):
    """A gold answer, read once."""

    text: str
    canonical: str
    number: PlainNumber | None


class MathVerifier:
    r"""Scores solutions: 1.0 or 0.0, with the final answer as `detail`.

    Args:
        rule: "any" (see the module) or "boxed": an answer that is not in a box is wrong.
        float_rounding: Decimals to which math-verify rounds floats.

    >>> problem = Problem("x-0", "…", "1,080", "math")
    >>> texts = (r"so \boxed{1080}", "He earns $1,080.00", r"\boxed{\$1080 \text{ dollars}}", "1,080 and then 7")
    >>> [MathVerifier().score(problem, t).value for t in texts]
    [1.0, 1.0, 1.0, 0.0]
    """

    def __init__(self, rule: Rule = "any", float_rounding: int = 6) -> None:
        if rule not in ("any", "boxed"):
            raise ValueError(f"math: rule = {rule!r}; choose 'any' or 'boxed'")
        self.rule = rule
        self.float_rounding = int(float_rounding)

    def prepare(self) -> None:
        """Import math-verify and sympy.

        Raises:
            ValueError: math-verify is not installed.
        """
        _tools()

    def quick(self, problem: Problem, completion: str) -> Reward | None:
        """The reward where plain numbers or spelling decide it, else `None`."""
        try:
            golds = _golds(problem.answer)
        except ValueError as error:
            return Reward(None, status="error", detail=str(error))
        answer = self.final_answer(completion, golds)
        if answer is None:
            return Reward(0.0, detail="no final answer") if self._numeric(golds) else None
        verdicts = [_quick_equal(gold, answer) for gold in golds]
        if any(verdicts):
            return Reward(1.0, detail=answer[:80])
        return Reward(0.0, detail=answer[:80]) if all(v is False for v in verdicts) else None

    def score(self, problem: Problem, completion: str) -> Reward:
        """The reward of one completion; may take long, use a `Scorer` for what models write."""
        reward = self.quick(problem, completion)
        if reward is not None:
            return reward
        golds = _golds(problem.answer)
        answer = self.final_answer(completion, golds)
        found = _parse_text(completion[-_TAIL:]) if answer is None else _parse_answer(answer)
        right = any(_same(_parse_gold(gold.text), found, self.float_rounding) for gold in golds)
        shown = answer if answer is not None else (str(found[0]) if found else "no final answer")
        return Reward(float(right), detail=shown[:80])

    def final_answer(self, completion: str, golds: tuple[Gold, ...]) -> str | None:
        """The final answer of a solution as text, or `None`."""
        if (boxed := last_boxed(completion)) is not None:
            return boxed
        if self.rule == "boxed":
            return None
        _, mark, tail = completion.rpartition("####")
        if mark and tail.strip():
            return tail.strip().splitlines()[0].strip()
        if any(gold.number is not None for gold in golds):
            number = last_number(completion)
            if number is not None:
                return f"{number.value}{'%' if number.percent else ''}"
        return None

    def _numeric(self, golds: tuple[Gold, ...]) -> bool:
        return self.rule == "boxed" or all(gold.number is not None for gold in golds)


def _golds(answer: Any) -> tuple[Gold, ...]:
    """Gold answers: one, or a list of which any is right.

    Raises:
        ValueError: there is none.
    """
    answers = answer if isinstance(answer, (list, tuple)) else (answer,)
    if not answers or any(isinstance(a, bool) or not isinstance(a, (str, int, float)) for a in answers):
        raise ValueError(f"the problem's answer {answer!r} is neither a text nor a number"[:200])
    return tuple(_gold(a if isinstance(a, str) else _written(a)) for a in answers)


def _written(number: float) -> str:
    """142.0 is written 142."""
    return str(int(number)) if float(number).is_integer() else repr(number)


@functools.lru_cache(maxsize=65_536)
def _gold(text: str) -> Gold:
    boxed = last_boxed(text)  # a whole solution as answer: its box
    if boxed is None and "####" in text:
        boxed = text.rpartition("####")[2].strip()
    text = text.strip() if boxed is None else boxed
    return Gold(text, canonical(text), plain_number(text))


def _quick_equal(gold: Gold, answer: str) -> bool | None:
    if len(answer) > len(gold.text) * 4 + _ROOM:
        return False
    if gold.number is not None:
        number = plain_number(answer)
        if number is not None:
            return equal(gold.number, number)
    spelling = canonical(answer)
    return True if spelling == gold.canonical else _same_base(gold, spelling)


_BASED = re.compile(r"(\d[0-9A-Za-z]*)_(?:\{(\d+)\}|(\d))")


def _same_base(gold: Gold, answer: str) -> bool | None:
    """Numbers written with their base, like 52_8 (math-verify drops the base); `None` where neither is."""
    mine, other = _BASED.fullmatch(gold.canonical), _BASED.fullmatch(answer)
    if mine is not None:
        if other is None:
            return True if answer == mine[1] else None
        return mine[1].lower() == other[1].lower() and (mine[2] or mine[3]) == (other[2] or other[3])
    if other is not None and gold.number is not None:
        base = int(other[2] or other[3])
        try:
            return 2 <= base <= 36 and gold.number.value == int(other[1], base)
        except ValueError:
            return False
    return None


@functools.cache
def _tools() -> Any:
    try:
        import math_verify
        from math_verify.parser import ExprExtractionConfig, LatexExtractionConfig
    except ImportError:
        raise ValueError("the math verifier needs math-verify: pip install 'gumption[math]'") from None
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns on every call that its time limit is off
    boxed = (LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig())
    return math_verify.parse, math_verify.verify, boxed


def _parse_answer(answer: str) -> list[Any]:
    parse, _, boxed = _tools()
    found: list[Any] = parse(f"\\boxed{{{answer.strip('$')}}}", boxed, parsing_timeout=None)
    return found


_parse_gold = functools.lru_cache(maxsize=4096)(_parse_answer)


def _parse_text(text: str) -> list[Any]:
    parse, _, boxed = _tools()
    found: list[Any] = parse(text, boxed, parsing_timeout=None)
    return found


def _same(gold: list[Any], answer: list[Any], float_rounding: int) -> bool:
    _, verify, _ = _tools()
    return bool(verify(gold, answer, float_rounding=float_rounding, timeout_seconds=None))


def gold_completion(problem: Problem) -> str | None:
    """A one-line solution with the gold answer in a box."""
    return None if problem.answer is None else f"The final answer is \\boxed{{{_first(problem.answer)}}}."


def mutated_completion(problem: Problem) -> str | None:
    """The same with another answer: a number one larger, another word, or one more."""
    return None if problem.answer is None else f"The final answer is \\boxed{{{changed(_first(problem.answer))}}}."


def _first(answer: Any) -> str:
    return _golds(answer)[0].text
