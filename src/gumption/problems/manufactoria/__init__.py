"""Manufactoria (DELTA, arXiv 2509.21016): write programs that drive a machine along a coloured tape.

`dsl.py` reads and runs programs, `families/` say what is asked, `testgen.py` makes tests, `solver.py` knows a solution
of every problem, `sets.py` rebuilds the published sets, `compact.py` and `mini.py` are the small version that the
shipped tiny model plays. Programs are scored by `gumption.rewards.manufactoria`.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from gumption.config import ProblemsConfig
from gumption.problems.manufactoria import mini
from gumption.problems.manufactoria.dsl import DslError, Outcome, Program, parse
from gumption.problems.manufactoria.families import FAMILIES, Family, get_family
from gumption.problems.manufactoria.rows import VERIFIER, make_row, mini_row, problem_from_row
from gumption.problems.manufactoria.sets import RECIPES, Part, Task, divide, in_hash_order, part_tasks, published_set
from gumption.problems.manufactoria.solver import solve
from gumption.problems.manufactoria.testgen import hidden_tests, visible_tests
from gumption.problems.manufactoria.verdict import Test, passes, run_tests
from gumption.randomness import key
from gumption.types import Problem

__all__ = [
    "FAMILIES",
    "RECIPES",
    "DslError",
    "Family",
    "Outcome",
    "Program",
    "Test",
    "get_family",
    "hidden_tests",
    "load",
    "load_shipped",
    "make_row",
    "parse",
    "passes",
    "problem_from_row",
    "published_set",
    "run_tests",
    "solve",
    "visible_tests",
]

DEFAULT_SIZE = 512
_OPTIONS = {"difficulty", "colors", "train_percent"}


def load(config: ProblemsConfig, *, argument: str, seed: int, held_out: bool) -> list[Problem]:
    """Source `manufactoria` and `manufactoria:ARGUMENT`.

    | argument | problems |
    | --- | --- |
    | "" | the shipped set of the tiny model (with `problems.size`: as `mini`) |
    | `mini` | the small set's training or held-out split, compact notation |
    | a published set (`has`, `regex`, …) | its training or test part; sets without a training part: all of it |
    | a family (`ends_with`, …) | `options.difficulty`, `options.colors`; `options.train_percent` are for training |

    Args:
        config: `size`, `held_out_size` and `options`.
        argument: What stands behind the colon.
        seed: Draws and divides, except for the small set, whose splits are fixed.
        held_out: The other part.

    Raises:
        ValueError: an unknown argument, option, difficulty or alphabet.
    """
    limit = config.held_out_size if held_out else config.size
    if argument in ("", "mini"):
        _no_options(config, argument)
        if argument == "" and config.size is None:
            return load_shipped(held_out)[:limit]
        return _mini(limit, seed, held_out)
    if argument in RECIPES:
        _no_options(config, argument)
        train, test = published_set(argument, seed)
        tasks = test if held_out or not train else train
    elif argument in FAMILIES:
        tasks = _family_tasks(get_family(argument), config.options, seed, held_out)
        limit = limit or DEFAULT_SIZE
    else:
        known = ", ".join(("mini", *RECIPES, *FAMILIES))
        raise ValueError(f"unknown problem source 'manufactoria:{argument}'; known arguments: {known}")
    return [problem_from_row(make_row(task.family, task.parameters, task.difficulty)) for task in tasks[:limit]]


def load_shipped(held_out: bool = False) -> list[Problem]:
    """The shipped set (or its held-out sibling): 256 compact problems, 64 in each bucket.

    `meta` holds the shipped model's `n` samples and `successes`, and the `bucket` that they give.
    """
    import pyarrow.parquet as pq

    name = "manufactoria_held_out.parquet" if held_out else "manufactoria.parquet"
    with resources.as_file(resources.files("gumption") / "data" / "problems" / name) as path:
        rows = pq.read_table(path).to_pylist()
    return [
        Problem.from_row(
            {
                "prompt": row["prompt"],
                "answer": json.loads(row["answer"]),
                **json.loads(row["meta"]),
                "n": row["n"],
                "successes": row["successes"],
            },
            verifier=VERIFIER,
        )
        for row in rows
    ]


def _no_options(config: ProblemsConfig, argument: str) -> None:
    if config.options:
        source = f"manufactoria:{argument}" if argument else "manufactoria"
        raise ValueError(
            f"source {source!r} has no options; problems.options are for a family (manufactoria:ends_with)"
        )


def _mini(limit: int | None, seed: int, held_out: bool) -> list[Problem]:
    members = mini.members("held_out" if held_out else "train")
    members.sort(key=lambda member: key(seed, "manufactoria/mini", mini.prompt(*member)))
    return [problem_from_row(mini_row(name, p)) for name, p in members[:limit]]


def _family_tasks(family: Family[Any], options: dict[str, Any], seed: int, held_out: bool) -> list[Task]:
    if unknown := set(options) - _OPTIONS:
        raise ValueError(f"manufactoria has no option {sorted(unknown)[0]!r}; known: {', '.join(sorted(_OPTIONS))}")
    percent = options.get("train_percent", 85)
    if not isinstance(percent, int) or not 0 <= percent <= 100:
        raise ValueError(f"manufactoria: train_percent = {percent!r}; give a whole number from 0 to 100")
    difficulty = options.get("difficulty", family.default_difficulty)
    chosen = (difficulty,) if isinstance(difficulty, str) else tuple(difficulty)
    tasks = part_tasks(Part(family.name, options.get("colors", family.default_colors), chosen), seed)
    train, test = divide(tasks, percent, seed)
    return in_hash_order(test if held_out else train, "order", seed)
