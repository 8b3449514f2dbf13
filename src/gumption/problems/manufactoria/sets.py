"""The published problem sets, rebuilt: which families and parameters, and how many of them are for training.

The generator's map from difficulty to parameters was never published; ours reproduces the published numbers of
problems (`tests/unit/problems/test_manufactoria_sets.py`). Sets are split by parameters: a problem is in one part only,
whatever its tests.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from gumption.problems.manufactoria.families import Parameters, get_family
from gumption.randomness import key


@dataclass(frozen=True, slots=True)
class Part:
    """Problems of one family: all of some difficulties, or `count` of them drawn; `ops` keeps those operations."""

    family: str
    colors: str
    difficulties: tuple[str, ...] = ("easy",)
    count: int | None = None
    ops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """Parts, and the percentage of their problems that is for training (rounded down)."""

    parts: tuple[Part, ...]
    train_percent: int


@dataclass(frozen=True, slots=True)
class Task:
    """One problem before its tests are made."""

    family: str
    parameters: Parameters
    difficulty: str


_EASY_MEDIUM = ("easy", "medium")
RECIPES: dict[str, Recipe] = {
    "basic_mix": Recipe(
        (
            Part("append_sequence", "RBYG", count=125),
            Part("exact_sequence", "RB", _EASY_MEDIUM, 125),
            Part("starts_with", "RB", _EASY_MEDIUM, 125),
        ),
        93,
    ),
    "has": Recipe(
        (
            Part("contains_count", "RBYG"),
            Part("contains_ordered", "RBYG"),
            Part("contains_substring", "RBYG"),
        ),
        85,
    ),
    "regex": Recipe((Part("regex_pattern", "RBYG"), Part("regex_pattern", "RBYG", ("medium",), 600)), 85),
    "compr": Recipe((Part("numerical_comparison", "RB", _EASY_MEDIUM),), 85),
    "ends": Recipe((Part("ends_with", "RB", _EASY_MEDIUM),), 85),
    "prepend": Recipe((Part("prepend_sequence", "RB"), Part("prepend_sequence", "RB", ("medium",), 670)), 85),
    "mutate": Recipe((Part("prepend_sequence", "RB", ("hard",)),), 85),
    "minmax": Recipe((Part("numerical_max_min", "RB", ("hard",)),), 98),
    "bit_op": Recipe((Part("numerical_operations", "RB", ("medium",)),), 0),
    "add": Recipe((Part("numerical_operations", "RB", ("hard",), ops=("add", "subtract")),), 0),
    "fdiv": Recipe((Part("numerical_operations", "RB", ("hard",), ops=("floor_divide",)),), 0),
    "symm": Recipe((Part("regex_same_num", "RB", ("hard",)),), 0),
}
"""Published sets by name; `mutate` is published as prepend_sequence. Those with 0 % are for evaluation only."""


def published_set(name: str, seed: int = 0) -> tuple[list[Task], list[Task]]:
    """(training tasks, test tasks) of a published set.

    Raises:
        ValueError: no such set.

    >>> [len(part) for part in published_set("has")]
    [742, 132]
    """
    if name not in RECIPES:
        raise ValueError(f"no manufactoria set {name!r}; there are {', '.join(RECIPES)}")
    recipe = RECIPES[name]
    tasks = [task for part in recipe.parts for task in part_tasks(part, seed)]
    return divide(tasks, recipe.train_percent, seed)


def part_tasks(part: Part, seed: int = 0) -> list[Task]:
    """The tasks of one part; with `count`, those whose hash comes first."""
    family = get_family(part.family)
    tasks = [
        Task(part.family, p, difficulty)
        for difficulty in part.difficulties
        for p in family.parameters(difficulty, part.colors)
        if not part.ops or getattr(p, "op", None) in part.ops
    ]
    if part.count is None:
        return tasks
    if part.count > len(tasks):
        raise ValueError(f"manufactoria family {part.family!r} has {len(tasks)} such problems, not {part.count}")
    return in_hash_order(tasks, "draw", seed)[: part.count]


def divide(tasks: list[Task], train_percent: int, seed: int = 0) -> tuple[list[Task], list[Task]]:
    """(training, test), divided by a hash of family and parameters."""
    ordered = in_hash_order(tasks, "split", seed)
    at = len(tasks) * train_percent // 100
    return ordered[:at], ordered[at:]


def in_hash_order(tasks: list[Task], purpose: str, seed: int) -> list[Task]:
    """The tasks in a random order that depends on the seed and on each task alone."""

    def place(task: Task) -> int:
        return key(seed, f"manufactoria/{purpose}", task.family, json.dumps(task.parameters.to_dict(), sort_keys=True))

    return sorted(tasks, key=place)
