r"""From a data row to a `Problem`: which column is the question, which the answer, what stands around it.

    {"question": "Natalia sold …", "answer": "… #### 72"}     GSM8K: the answer is what stands after ####
    {"problem": "…", "answer": "\\frac{1}{2}", "level": 3}    MATH, DeepScaleR
    {"prompt": [{"role": "user", "content": "…"}], "reward_model": {"ground_truth": "34"}}     verl

Every column but the question's is kept in `meta` as it was, so that a reward function with TRL's signature sees the
columns it was written for.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gumption.problems.sets import ProblemSet, SkippedRow, distinct
from gumption.types import Problem

if TYPE_CHECKING:
    from gumption.config import ProblemsConfig

PROMPT_FIELDS = ("prompt", "question", "problem", "messages")
ANSWER_FIELDS = ("answer", "solution", "ground_truth", "reward_model.ground_truth")
"""Looked for in this order. A dot steps into a nested column."""

MATH_TEMPLATE = "{prompt}\n\nReason step by step and put the final answer in \\boxed{}."
"""Stands around bare questions (columns `question`, `problem`) that the `math` verifier checks."""

UNVERIFIED = "none"
"""Verifier name of rows without an answer column: they need `rewards.verifier`."""

_MISSING = object()
_READY_MADE = ("prompt", "messages")  # these columns hold whole prompts, nothing is put around them
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BadRow:
    """Stands in for a row that could not even be read."""

    reason: str


class RowReader:
    """Turns rows into problems, one source at a time.

    Args:
        config: Field names, template, `strict`.
        source: Name of the file or source, for messages.

    >>> from gumption.config import ProblemsConfig
    >>> reader = RowReader(ProblemsConfig(), "a.jsonl")
    >>> s = reader.read([(1, {"question": "2+2?", "answer": "two and two ... #### 4"}), (2, {"question": "3+3?"})])
    >>> s.problems[0].answer, s.problems[0].prompt[:4], str(s.skipped[0])[:20]
    ('4', '2+2?', 'a.jsonl:2: no answer')
    """

    def __init__(self, config: ProblemsConfig, source: str) -> None:
        self.config = config
        self.source = source
        self._prompt_fields = PROMPT_FIELDS if config.prompt_field is None else (config.prompt_field,)
        self._answer_fields = ANSWER_FIELDS if config.answer_field is None else (config.answer_field,)

    def read(self, rows: Iterable[tuple[int, Any]], limit: int | None = None) -> ProblemSet:
        """Read rows until `limit` problems are found.

        Args:
            rows: (line or row number, row); a `Problem` is taken as it is, a `BadRow` is skipped.
            limit: Problems wanted at most.

        Raises:
            ValueError: a row is malformed and `strict` is on, or no problem is left.
        """
        found: list[tuple[int, Problem]] = []
        unanswered: list[tuple[int, Problem]] = []
        skipped: list[SkippedRow] = []
        used: set[str] = set()
        for line, row in rows:
            try:
                problem = row if isinstance(row, Problem) else self.problem(row)
            except ValueError as error:
                self._skip(skipped, line, error)
                continue
            (unanswered if problem.verifier == UNVERIFIED else found).append((line, distinct(problem, used)))
            if limit is not None and max(len(found), len(unanswered)) >= limit:
                break
        if found:  # where some rows have an answer, those without are malformed
            for line, _ in unanswered:
                self._skip(skipped, line, ValueError(self._no_answer()))
            skipped.sort(key=lambda s: s.line)
        else:
            found = unanswered
        if not found:
            raise ValueError(self._nothing(skipped))
        if skipped:
            _log.warning("%s: skipped %d of %d rows; first: %s", self.source, len(skipped), len(found), skipped[0])
        return ProblemSet(tuple(p for _, p in found), self.source, tuple(skipped), tuple(line for line, _ in found))

    def problem(self, row: Any) -> Problem:
        """One row as a problem.

        Raises:
            ValueError: why it is none.
        """
        if isinstance(row, BadRow):
            raise ValueError(row.reason)
        if not isinstance(row, Mapping):
            raise ValueError(f"not an object with columns but {type(row).__name__}: {_short(row)}")
        column, prompt = _first(row, self._prompt_fields)
        if prompt is _MISSING:
            raise ValueError(f"no question: {_none_of(self._prompt_fields)} is there; set problems.prompt_field")
        answer_column, answer = _first(row, self._answer_fields)
        if answer is not _MISSING:
            answer = final_answer(answer)
        verifier = _verifier(row, answered=answer is not _MISSING)
        given = {"prompt": prompt, "answer": None if answer is _MISSING else answer}
        template = self.config.template
        if isinstance(prompt, str) and prompt.strip() and column not in _READY_MADE and template is None:
            template = MATH_TEMPLATE if verifier == "math" else None
        if isinstance(prompt, str) and prompt.strip() and template is not None:
            given["prompt"] = template.replace("{prompt}", prompt)
        problem = Problem.from_row(given, verifier=verifier)
        meta = {str(k): v for k, v in row.items() if k != column}
        if "." in answer_column and answer is not _MISSING:
            meta.setdefault(answer_column.rpartition(".")[2], answer)
        return Problem(problem.id, problem.prompt, problem.answer, verifier, meta)

    def _skip(self, skipped: list[SkippedRow], line: int, error: ValueError) -> None:
        entry = SkippedRow(self.source, line, " ".join(str(error).split()))
        if self.config.strict:
            raise ValueError(str(entry)) from None
        skipped.append(entry)

    def _no_answer(self) -> str:
        return f"no answer: {_none_of(self._answer_fields)} is there; set problems.answer_field"

    def _nothing(self, skipped: list[SkippedRow]) -> str:
        if not skipped:
            return f"no problems in {self.source}: it has no rows"
        return f"no problems in {self.source}: all {len(skipped)} rows were skipped; the first: {skipped[0]}"


def final_answer(answer: Any) -> Any:
    r"""The checkable part of an answer column: what stands after the last `####` (GSM8K), else the column as it is.

    Raises:
        ValueError: there is nothing in it.

    >>> final_answer("6 × 3 = 18\n#### 1,018"), final_answer(142.0)
    ('1,018', 142.0)
    """
    if answer is None or (isinstance(answer, float) and answer != answer):
        raise ValueError("the answer is empty")
    if isinstance(answer, str):
        _, mark, tail = answer.rpartition("####")
        if mark:
            if not tail.strip():
                raise ValueError("nothing stands after '####' in the answer")
            return tail.strip()
        if not answer.strip():
            raise ValueError("the answer is empty")
    elif isinstance(answer, (list, tuple, Mapping)) and not answer:
        raise ValueError("the answer is empty")
    return answer


def _verifier(row: Mapping[str, Any], answered: bool) -> str:
    """The row's own `verifier` column (a name, never code), else `math`."""
    name = row.get("verifier")
    if isinstance(name, str) and name.isidentifier():
        return name
    return "math" if answered else UNVERIFIED


def _first(row: Mapping[str, Any], fields: Iterable[str]) -> tuple[str, Any]:
    for name in fields:
        value = _lookup(row, name)
        if value is not _MISSING:
            return name, value
    return "", _MISSING


def _lookup(row: Mapping[str, Any], name: str) -> Any:
    if name in row:
        return row[name]
    head, dot, rest = name.partition(".")
    inner = row.get(head) if dot else None
    return _lookup(inner, rest) if isinstance(inner, Mapping) else _MISSING


def _none_of(fields: tuple[str, ...]) -> str:
    if len(fields) == 1:
        return f"no column {fields[0]!r}"
    return f"none of the columns {', '.join(repr(f) for f in fields if '.' not in f)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
