"""Rows in the published format, rows of the small set, and problems made of either."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from gumption.problems.manufactoria import mini
from gumption.problems.manufactoria.families import Parameters, get_family
from gumption.problems.manufactoria.prompt import dsl_prompt
from gumption.problems.manufactoria.solver import automaton, solve
from gumption.problems.manufactoria.testgen import visible_tests
from gumption.problems.manufactoria.verdict import Test
from gumption.types import Problem

VERIFIER = "manufactoria"


def make_row(family_name: str, p: Parameters, difficulty: str, seed: int = 0) -> dict[str, Any]:
    """One row as published: messages, ground_truth, dataset, difficulty, id, problem_family, name.

    Two columns more: `parameters`, from which hidden tests can be made, and `complexity`.

    >>> from gumption.problems.manufactoria.families.sequences import Sequence
    >>> row = make_row("starts_with", Sequence("RB", "RB"), "easy")
    >>> row["name"], row["messages"][0]["role"], row["complexity"]["states"]
    ('starts_with RB', 'user', 4)
    """
    family = get_family(family_name)
    tests = visible_tests(family, p, seed)
    common = _common(family_name, p, difficulty, tests)
    return {
        "messages": [{"role": "user", "content": dsl_prompt(family, p)}],
        "ground_truth": [test.to_dict() for test in tests],
        "dataset": "manufactoria",
        **common,
    }


def mini_row(family_name: str, p: Parameters) -> dict[str, Any]:
    """One row of the small set: a compact prompt, and `notation` "compact" for the verifier."""
    tests = visible_tests(get_family(family_name), p)
    return {
        "messages": mini.prompt(family_name, p),
        "ground_truth": [test.to_dict() for test in tests],
        **_common(family_name, p, f"length {mini.size(p)}", tests),
        "notation": "compact",
    }


def problem_from_row(row: Mapping[str, Any]) -> Problem:
    """The problem of a row; the prompt is its messages, the answer its tests."""
    return Problem.from_row(row, verifier=VERIFIER, prompt_field="messages", answer_field="ground_truth")


def _common(family: str, p: Parameters, difficulty: str, tests: tuple[Test, ...]) -> dict[str, Any]:
    content = json.dumps(p.to_dict(), sort_keys=True)
    digest = hashlib.blake2b(f"{family} {content}".encode(), digest_size=6).hexdigest()
    return {
        "difficulty": difficulty,
        "id": f"{family}_{digest}",
        "problem_family": family,
        "name": f"{family} {_short(p)}",
        "parameters": json.loads(content),
        "complexity": _complexity(family, p, tests),
    }


def _short(p: Parameters) -> str:
    """The parameters without the alphabet, letter by letter.

    >>> from gumption.problems.manufactoria.families.contains_count import Counts
    >>> _short(Counts("RB", (("R", 2), ("B", 1))))
    'R2 B1'
    """
    values = [value for name, value in p.to_dict().items() if name != "colors"]
    flat = [part for value in values for part in (value if isinstance(value, tuple) else (value,))]
    return " ".join("".join(map(str, part)) if isinstance(part, tuple) else str(part) for part in flat if part != "")


def _complexity(family: str, p: Parameters, tests: tuple[Test, ...]) -> dict[str, int]:
    """What makes a problem hard.

    `states`: of the minimal automaton (regular families), else the nodes of the reference program; the longest input
    tape; the number of colours.
    """
    regular = automaton(family, p)
    return {
        "states": len(regular.steps) if regular else len(solve(family, p).nodes),
        "longest_tape": max(len(test.input) for test in tests),
        "colors": len(p.colors),
    }
