"""Source `gym:NAME`: every generator of reasoning-gym, with any of its options, size and seed.

Items come from a child process with a fixed hash seed, and the global generators are seeded before each one: some
generators order sets or draw from `random` itself, so that the same seed gave other problems in the next process.
Item i of a reasoning-gym data set depends on `seed + i` alone, so neighbouring seeds share items: seeds here are hashes
of the run's seed and the purpose, and held-out questions that stand in the training rows are left out.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from gumption.problems.sets import ProblemSet, SkippedRow
from gumption.randomness import key
from gumption.types import Problem

if TYPE_CHECKING:
    from gumption.config import ProblemsConfig

TEMPLATE = "{prompt}\n\nPut the final answer between <answer> and </answer>."
DEFAULT_SIZE = 512
DEFAULT_HELD_OUT = 128
_ROUNDS = 8  # draws of held-out items, until enough are not among the training rows

Entry = dict[str, Any]


def load(config: ProblemsConfig, *, argument: str, seed: int, held_out: bool) -> ProblemSet:
    """Generate problems; `meta["entry"]` is the generator's own record, which its `score_answer` reads.

    Args:
        config: `size` (default 512), `held_out_size` (default 128), `options` of the generator, `template`.
        argument: Name of the generator.
        seed: The run's seed.
        held_out: Other items, none of which asks a question of the training rows.

    Raises:
        ValueError: reasoning-gym is not installed, or has no such generator or option, or it made no problem.
    """
    source = f"gym:{argument}"
    if not argument:
        raise ValueError("source 'gym': write gym:NAME, for example gym:chain_sum")
    if {"seed", "size"} & set(config.options):
        raise ValueError(f"{source}: set problems.size and the run's seed, not problems.options")
    options = json.dumps(config.options, sort_keys=True)
    size = config.size or DEFAULT_SIZE
    made = _items(argument, options, _start(seed, "train", argument, 0), size)
    rows = list(made.rows)
    if held_out:
        asked = {_question(row) for row in rows}
        rows = _other(argument, options, seed, asked, config.held_out_size or DEFAULT_HELD_OUT)
    return _problems(rows, made.compares_text, config, argument)


def _problems(rows: list[Entry | str], compares_text: bool, config: ProblemsConfig, name: str) -> ProblemSet:
    source = f"gym:{name}"
    problems, lines, skipped = [], [], []
    for number, entry in enumerate(rows, 1):
        if isinstance(entry, str):
            row = SkippedRow(source, number, entry)
            if config.strict:
                raise ValueError(str(row))
            skipped.append(row)
            continue
        problems.append(make_problem(entry, name, config.options, config.template, compares_text))
        lines.append(number)
    if not problems:
        why = f"; the first: {skipped[0]}" if skipped else ""
        raise ValueError(f"no problems from {source}: all {len(rows)} items failed{why}")
    return ProblemSet(tuple(problems), source, tuple(skipped), tuple(lines))


def make_problem(
    entry: Entry, name: str, options: Mapping[str, Any], template: str | None = None, compares_text: bool = False
) -> Problem:
    """The problem of one reasoning-gym entry.

    Args:
        entry: `question`, `answer` and `metadata`, as the generator made them.
        name: The generator.
        options: Its options.
        template: Text around the question; default `TEMPLATE`.
        compares_text: The generator scores by comparing strings, so that scoring needs no worker process.

    >>> p = make_problem({"question": "3 + 4?", "answer": "7", "metadata": {}}, "chain_sum", {}, "{prompt}")
    >>> p.prompt, p.answer, p.verifier, p.meta["family"]
    ('3 + 4?', '7', 'gym', 'chain_sum')
    """
    prompt = (TEMPLATE if template is None else template).replace("{prompt}", entry["question"])
    meta = {"family": name, "options": dict(options), "entry": entry, "compares_text": compares_text}
    return Problem.from_row({"prompt": prompt, "answer": entry["answer"], **meta}, verifier="gym")


def _other(name: str, options: str, seed: int, taken: set[str], size: int) -> list[Entry | str]:
    """`size` items that ask none of the questions `taken`, nor the same one twice."""
    rows: list[Entry | str] = []
    for attempt in range(_ROUNDS):
        for row in _items(name, options, _start(seed, "held_out", name, attempt), size).rows:
            if len(rows) < size and _question(row) not in taken:
                taken.add(_question(row))
                rows.append(row)
        if len(rows) == size:
            return rows
    if not rows:
        raise ValueError(f"gym:{name} makes no question that is not among the training rows: lower problems.size")
    return rows


def _question(row: Entry | str) -> str:
    return row if isinstance(row, str) else str(row["question"])


def _start(seed: int, purpose: str, name: str, attempt: int) -> int:
    return key(seed, f"problems/gym/{purpose}", name, attempt) % (1 << 31)


@functools.lru_cache(maxsize=4)  # a run asks for the training rows twice: for themselves, and to keep the others apart
def _items(name: str, options: str, seed: int, size: int) -> Generated:
    (made,) = generate([(name, json.loads(options), seed, size)])
    if isinstance(made, str):
        raise ValueError(f"gym:{name}: {made}")
    return made


Spec = tuple[str, dict[str, Any], int, int]


class Generated(NamedTuple):
    """What one generator made."""

    rows: tuple[Entry | str, ...]  # an error text in the place of each item that failed
    compares_text: bool


def generate(specs: list[Spec]) -> list[Generated | str]:
    """Generate data sets in a child process.

    Args:
        specs: (generator, options, seed, size) of each.

    Returns:
        For each what it made, or an error text.

    Raises:
        ValueError: the child process died (reasoning-gym is not installed, for example).
    """
    path = os.pathsep.join(p for p in sys.path if p)
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "gumption.problems.gym"],
        input=pickle.dumps(specs),
        capture_output=True,
        env=environment,
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        if "No module named 'reasoning_gym'" in lines[-1]:
            raise ValueError("gym: problems need reasoning-gym: pip install 'gumption[gym]'")
        raise ValueError(f"the reasoning-gym process ended with code {done.returncode}: {lines[-1]}")
    return [made if isinstance(made, str) else Generated(*made) for made in pickle.loads(done.stdout)]


def create(name: str, options: Mapping[str, Any], seed: int = 0, size: int = 1) -> Any:
    """The reasoning-gym data set `name` (imports reasoning-gym).

    Raises:
        ValueError: no such generator or option.
    """
    from reasoning_gym.factory import DATASETS, create_dataset

    if name not in DATASETS:
        close = difflib.get_close_matches(name, DATASETS, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are {len(DATASETS)}, e.g. chain_sum"
        raise ValueError(f"reasoning-gym has no generator {name!r}; {hint}")
    given = dict(options)
    if name == "composite":
        from reasoning_gym.composite import DatasetSpec

        given["datasets"] = [DatasetSpec(**{"weight": 1.0, "config": {}, **d}) for d in given.get("datasets", ())]
    known = [f.name for f in dataclasses.fields(DATASETS[name][1]) if f.name not in ("seed", "size")]
    if unknown := set(given) - set(known):
        raise ValueError(f"no option {sorted(unknown)[0]!r}; known: {', '.join(known)}")
    try:
        return create_dataset(name, seed=seed, size=size, **given)
    except (AssertionError, TypeError, ValueError, KeyError) as error:
        raise ValueError(f"options {dict(options)}: {error or type(error).__name__}") from None


def _generate_here(spec: Spec) -> tuple[tuple[Entry | str, ...], bool] | str:
    import random

    import numpy as np
    from reasoning_gym.dataset import ProceduralDataset

    name, options, seed, size = spec
    random.seed(seed)
    np.random.seed(seed)
    try:
        data = create(name, options, seed, size)
    except ValueError as error:
        return str(error)
    rows: list[Entry | str] = []
    for i in range(size):
        random.seed(seed + i)
        np.random.seed((seed + i) % (1 << 32))
        try:
            entry = data[i]
            pickle.dumps(entry)
            rows.append(entry)
        except Exception as error:  # a generator's own mistake costs one item, not the run
            rows.append(f"{type(error).__name__}: {error}")
    return tuple(rows), type(data).score_answer is ProceduralDataset.score_answer


def _child() -> None:
    """Read specs from standard input, write their entries to what was standard output; generators may print."""
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    result = [_generate_here(spec) for spec in pickle.load(sys.stdin.buffer)]
    with answer:
        pickle.dump(result, answer)


if __name__ == "__main__":
    _child()
