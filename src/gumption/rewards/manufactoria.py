"""Verifier of `manufactoria`: run the program on the problem's tests.

The answer is the last fenced block of the completion (three backticks, nothing or `manufactoria` behind them), else
the whole completion. A text that is not a program passes no test. Departs from the published verifier only in how
blocks are found: fences are paired line by line, so a block in another language before the answer does no harm.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Literal

from gumption.problems.manufactoria.compact import END, NONE, from_compact, to_compact
from gumption.problems.manufactoria.dsl import DslError, Program, parse
from gumption.problems.manufactoria.families import get_family
from gumption.problems.manufactoria.solver import solve
from gumption.problems.manufactoria.testgen import hidden_tests
from gumption.problems.manufactoria.verdict import Test, has_regex, read_tests, run_tests
from gumption.types import Problem, Reward

_FENCE = "```"
_KEPT_PROBLEMS = 4096
_PARAMETERS = {"problem_family", "parameters"}


class ManufactoriaVerifier:
    r"""Scores completions; parts = the result of each test, in order.

    Args:
        mode: "all_pass": 1.0 iff every test passes, else 0.0. "per_test": the share of tests that pass.
        tests: "visible": those of the problem's `answer`. "hidden": tests that no reward has shown, made from family
            and parameters in the problem's `meta`; a program fitted to the visible ones fails some. "all": both.

    >>> problem = Problem("x-0", "…", [{"input": "R", "check_output": False}], "manufactoria")
    >>> ManufactoriaVerifier().score(problem, "START start:\n    NEXT end\nEND end")
    Reward(value=1.0, parts=(1.0,), status='ok', detail='', task=None)
    >>> ManufactoriaVerifier().score(problem, "hm").detail
    "not a node declaration: 'hm'"
    """

    def __init__(
        self,
        mode: Literal["all_pass", "per_test"] = "all_pass",
        tests: Literal["visible", "hidden", "all"] = "visible",
    ) -> None:
        if mode not in ("all_pass", "per_test"):
            raise ValueError(f"manufactoria: mode = {mode!r}; choose 'all_pass' or 'per_test'")
        if tests not in ("visible", "hidden", "all"):
            raise ValueError(f"manufactoria: tests = {tests!r}; choose 'visible', 'hidden' or 'all'")
        self.mode = mode
        self.tests = tests
        self._tests_of: OrderedDict[str, tuple[Test, ...]] = OrderedDict()

    def score(self, problem: Problem, completion: str) -> Reward:
        """The reward of one completion.

        Args:
            problem: `answer` is the list of tests; `meta["notation"] == "compact"` asks for the compact notation.
            completion: What the model wrote.

        Returns:
            A value in [0, 1]; 0 for a text that is not a program, with the mistake as `detail`. A problem without
            usable tests gets no value: status `error`.
        """
        try:
            tests = self._tests(problem)
        except Exception as error:  # a bad row must not stop the run
            return Reward(None, status="error", detail=f"{type(error).__name__}: {error}")
        try:
            program = read_program(completion, compact=problem.meta.get("notation") == "compact")
        except DslError as error:
            return Reward(0.0, (0.0,) * len(tests), detail=str(error)[:200])
        passed = run_tests(program, tests)
        value = sum(passed) / len(passed) if self.mode == "per_test" else float(all(passed))
        return Reward(value, tuple(map(float, passed)))

    def in_process(self, problem: Problem) -> bool:
        """Visits bound every run, but not the time of a regex that a row may give as expected output."""
        try:
            return not any(has_regex(test) for test in self._tests(problem))
        except Exception:
            return True  # such a row gets no value and costs nothing

    def _tests(self, problem: Problem) -> tuple[Test, ...]:
        if problem.id in self._tests_of:
            self._tests_of.move_to_end(problem.id)
            return self._tests_of[problem.id]
        visible = read_tests(problem.answer)
        chosen = visible
        if self.tests != "visible":
            hidden = _hidden(problem, visible)
            chosen = hidden if self.tests == "hidden" else visible + hidden
        self._tests_of[problem.id] = chosen
        if len(self._tests_of) > _KEPT_PROBLEMS:
            self._tests_of.popitem(last=False)
        return chosen


def _hidden(problem: Problem, visible: tuple[Test, ...]) -> tuple[Test, ...]:
    if not set(problem.meta) >= _PARAMETERS:
        raise ValueError("hidden tests need 'problem_family' and 'parameters' in the problem's meta")
    family = get_family(problem.meta["problem_family"])
    return hidden_tests(family, family.parameters_type.from_dict(problem.meta["parameters"]), visible)


def gold_completion(problem: Problem) -> str | None:
    """A completion that must get the full score; None for rows without family and parameters."""
    if not set(problem.meta) >= _PARAMETERS:
        return None
    family = get_family(problem.meta["problem_family"])
    program = solve(family.name, family.parameters_type.from_dict(problem.meta["parameters"]))
    if problem.meta.get("notation") == "compact":
        return to_compact(program)
    return f"```manufactoria\n{program.to_text()}\n```"


def mutated_completion(problem: Problem) -> str | None:
    """A completion that must not: the same program with every way to its end cut off."""
    gold = gold_completion(problem)
    if gold is None:
        return None
    if problem.meta.get("notation") == "compact":
        return gold.replace(END, NONE)
    return re.sub(r"^( +\S+) end$", r"\1 NONE", gold, flags=re.MULTILINE)


def read_program(completion: str, *, compact: bool = False) -> Program:
    """The program in a completion.

    Raises:
        DslError: there is none, or it has a mistake.
    """
    text = last_block(completion)
    return from_compact(text) if compact else parse(text)


def last_block(completion: str) -> str:
    r"""The content of the last closed code block without a language or with `manufactoria`, else the whole text.

    >>> last_block("First:\n```python\nx\n```\nthen\n```manufactoria\nSTART\n```\nbye")
    'START'
    >>> last_block("START")
    'START'
    """
    found: str | None = None
    opened: int | None = None
    wanted = False
    lines = completion.split("\n")
    for i, line in enumerate(lines):
        content = line.strip()
        if not content.startswith(_FENCE):
            continue
        tag = content[len(_FENCE) :].strip()
        if opened is None:
            opened, wanted = i, tag in ("", "manufactoria")
        elif not tag:
            if wanted:
                found = "\n".join(lines[opened + 1 : i])
            opened = None
        else:  # a new block opens although the one before was never closed
            opened, wanted = i, tag == "manufactoria"
    return completion if found is None else found
