"""`ProblemSet`: problems with the name of their source, where each one stands in it, and the rows that were skipped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from gumption.types import Message, Problem, problem_id


@dataclass(frozen=True, slots=True)
class SkippedRow:
    """A row that is no problem, and why.

    Args:
        file: The file, or the source where there is none.
        line: Line of a text file, row number of a table (both from 1); 0: the file as a whole.
        reason: One line for people.

    >>> str(SkippedRow("a.jsonl", 7, "not JSON"))
    'a.jsonl:7: not JSON'
    """

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}" if self.line else f"{self.file}: {self.reason}"


@dataclass(frozen=True)
class ProblemSet:
    """Problems of one or several sources, in the sources' order.

    Args:
        problems: Every id is there once.
        name: The source, several joined by " + ".
        skipped: Rows that are no problems.
        lines: Line or row number of each problem in its source; empty where there are none.
        parts: (source, number of problems), one per source; the numbers add up to all problems.

    >>> p = Problem.from_row({"prompt": "2+2=", "answer": "4"}, verifier="math")
    >>> s = ProblemSet((p,), "a.jsonl", lines=(3,))
    >>> s.where(0), s.by_id[p.id] is p, s.parts
    ('a.jsonl:3', True, (('a.jsonl', 1),))
    """

    problems: tuple[Problem, ...]
    name: str
    skipped: tuple[SkippedRow, ...] = ()
    lines: tuple[int, ...] = ()
    parts: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if not self.parts:
            object.__setattr__(self, "parts", ((self.name, len(self.problems)),))

    def __len__(self) -> int:
        return len(self.problems)

    @cached_property
    def by_id(self) -> Mapping[str, Problem]:
        """Problems by id."""
        return {p.id: p for p in self.problems}

    def where(self, position: int) -> str:
        """File and line (or source and row) of the problem at `position`."""
        first = 0
        for source, size in self.parts:
            if position < first + size:
                return f"{source}:{self.lines[position] if self.lines else position - first + 1}"
            first += size
        raise IndexError(f"{self.name} has {len(self)} problems, asked for number {position}")

    @property
    def sections(self) -> list[tuple[Problem, ...]]:
        """The problems of each source."""
        result, first = [], 0
        for _, size in self.parts:
            result.append(self.problems[first : first + size])
            first += size
        return result


def combine(sets: Iterable[ProblemSet]) -> ProblemSet:
    """Several sets as one; equal problems of different sets stay different ones (their occurrence number is raised)."""
    sets = list(sets)
    if len(sets) == 1:
        return sets[0]
    problems: list[Problem] = []
    lines: list[int] = []
    used: set[str] = set()
    for part in sets:
        for position, problem in enumerate(part.problems):
            problems.append(distinct(problem, used))
            lines.append(part.lines[position] if part.lines else position + 1)
    return ProblemSet(
        tuple(problems),
        " + ".join(s.name for s in sets),
        tuple(row for s in sets for row in s.skipped),
        tuple(lines),
        tuple(p for s in sets for p in s.parts),
    )


def distinct(problem: Problem, used: set[str]) -> Problem:
    """The problem under an id that is not in `used` yet; that id joins `used`.

    >>> p = Problem.from_row({"prompt": "2+2=", "answer": "4"}, verifier="math")
    >>> used = set()
    >>> [distinct(p, used).id[-2:] for _ in range(3)]
    ['-0', '-1', '-2']
    """
    name = problem.id
    if name in used:
        content, _, number = name.rpartition("-")
        occurrence = int(number) + 1
        while (name := f"{content}-{occurrence}") in used:
            occurrence += 1
        problem = replace(problem, id=name)
    used.add(name)
    return problem


def dress(problem: Problem, template: str | None, chat: bool) -> Problem:
    """The problem with text around its plain prompt, or with the prompt as one user message; chat prompts stay.

    >>> p = Problem.from_row({"prompt": "2+2=", "answer": "4"}, verifier="math")
    >>> dress(p, "Q: {prompt}", chat=True).prompt
    (Message(role='user', content='Q: 2+2='),)
    """
    if not isinstance(problem.prompt, str) or not (template or chat):
        return problem
    text = problem.prompt if template is None else template.replace("{prompt}", problem.prompt)
    prompt = (Message("user", text),) if chat else text
    occurrence = int(problem.id.rpartition("-")[2])
    return replace(problem, prompt=prompt, id=problem_id(prompt, problem.answer, problem.verifier, occurrence))
