"""`skill_chain`: a 3-digit state and a chain of 1–6 operations; the model writes the state after each operation.

The smallest task with everything that allocation and selection are about: an answer that can be checked, a lucky guess
worth one in a thousand, skills (16 operations) that range from mastered to almost unseen, and problems whose difficulty
grows with depth and with the rarity of their operations.

    prompt       "407" + "BAM" + "="                    state, one letter per operation, "="
    completion   "518" + "185" + "158"                  +1 each, rotate left, sort

A problem is right when the last state is right (`gumption.rewards.skill_chain`). Every possible problem belongs to one
of three splits by a hash of its prompt: `warm_start` (supervised examples of the shipped model), `train` and
`held_out`. So whatever the seed, a generated training problem is never a held-out one, nor one that the shipped model
was shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, TypeAlias

import numpy as np

from gumption.config import ProblemsConfig
from gumption.randomness import generator, key
from gumption.types import FloatArray, Problem

State: TypeAlias = tuple[int, int, int]
Split: TypeAlias = Literal["warm_start", "train", "held_out"]

NAME = "skill_chain"
MAX_DEPTH = 6
DEFAULT_SIZE = 512
BUCKETS = ("extra_hard", "hard", "medium", "easy")
"""Buckets of the shipped sets, 64 problems each, by the shipped model's pass rate: (0, .02), [.02, .1), [.1, .5),
[.5, .96)."""

# A prompt's split is its hash modulo this many shares.
_SHARES: tuple[Split, ...] = ("warm_start", "warm_start", "train", "held_out")


@dataclass(frozen=True, slots=True)
class Operation:
    """One skill: a map from states to states, written as one letter. All arithmetic is modulo 10."""

    symbol: str
    name: str
    apply: Callable[[int, int, int], State]


def _mod(a: int, b: int, c: int) -> State:
    return a % 10, b % 10, c % 10


def _sorted(a: int, b: int, c: int) -> State:
    low, middle, high = sorted((a, b, c))
    return low, middle, high


OPERATIONS: tuple[Operation, ...] = (
    Operation("A", "rotate left", lambda a, b, c: (b, c, a)),
    Operation("B", "+1 each", lambda a, b, c: _mod(a + 1, b + 1, c + 1)),
    Operation("C", "reverse", lambda a, b, c: (c, b, a)),
    Operation("D", "swap first two", lambda a, b, c: (b, a, c)),
    Operation("E", "nines' complement", lambda a, b, c: (9 - a, 9 - b, 9 - c)),
    Operation("F", "first += last", lambda a, b, c: _mod(a + c, b, c)),
    Operation("G", "+3 each", lambda a, b, c: _mod(a + 3, b + 3, c + 3)),
    Operation("H", "swap last two", lambda a, b, c: (a, c, b)),
    Operation("I", "last += middle", lambda a, b, c: _mod(a, b, c + b)),
    Operation("J", "rotate right, then first += 1", lambda a, b, c: _mod(c + 1, a, b)),
    Operation("K", "×3 each", lambda a, b, c: _mod(3 * a, 3 * b, 3 * c)),
    Operation("L", "first −= middle", lambda a, b, c: _mod(a - b, b, c)),
    Operation("M", "sort", _sorted),
    Operation("N", "prefix sums", lambda a, b, c: _mod(a, a + b, a + b + c)),
    Operation("O", "nines' complement, rotate left, +5 each", lambda a, b, c: _mod(14 - b, 14 - c, 14 - a)),
    Operation("P", "×7 each, rotate right, nines' complement", lambda a, b, c: _mod(9 - 7 * c, 9 - 7 * a, 9 - 7 * b)),
)
"""From the most to the least frequent in the warm start."""

BY_SYMBOL: Mapping[str, Operation] = {op.symbol: op for op in OPERATIONS}
SYMBOLS: tuple[str, ...] = (*"0123456789", *BY_SYMBOL, "=")
"""The task's alphabet: what the shipped model's tokenizer knows beside end, padding and unknown."""


def solve(prompt: str) -> str:
    """The gold completion of a prompt: the state after each operation.

    Raises:
        ValueError: not three digits, 1–6 operation letters and "=".

    >>> solve("407BAM=")
    '518185158'
    """
    digits, symbols = prompt[:3], prompt[3:-1]
    if not (
        prompt.endswith("=")
        and len(digits) == 3
        and set(digits) <= set("0123456789")
        and 1 <= len(symbols) <= MAX_DEPTH
        and set(symbols) <= set(BY_SYMBOL)
    ):
        letters = f"{OPERATIONS[0].symbol}–{OPERATIONS[-1].symbol}"
        raise ValueError(f"skill_chain prompt {prompt!r}: write three digits, 1–{MAX_DEPTH} letters {letters} and '='")
    state: State = (int(digits[0]), int(digits[1]), int(digits[2]))
    states = []
    for symbol in symbols:
        state = BY_SYMBOL[symbol].apply(*state)
        states.append("".join(map(str, state)))
    return "".join(states)


def split(prompt: str) -> Split:
    """Which split a prompt belongs to: half of all prompts warm start, a quarter train, a quarter held out.

    >>> split("407BAM="), split("999A=")
    ('warm_start', 'warm_start')
    """
    return _SHARES[key(0, "skill_chain/split", prompt) % len(_SHARES)]


def frequencies(decay: float) -> FloatArray:
    """Probability of each operation, ∝ decay^i for the i-th of `OPERATIONS`; 1.0 is uniform.

    >>> frequencies(0.8).round(4)[[0, 15]].tolist()
    [0.2058, 0.0072]
    """
    if not 0 < decay <= 1:
        raise ValueError(f"frequency_decay = {decay!r}: choose a number in (0, 1]")
    weights = np.power(decay, np.arange(len(OPERATIONS), dtype=np.float64))
    result: FloatArray = weights / weights.sum()
    return result


def draw_prompts(
    rng: np.random.Generator,
    n: int,
    *,
    split_name: Split,
    depth_weights: Sequence[float] = (1.0,) * MAX_DEPTH,
    frequency_decay: float = 1.0,
) -> list[str]:
    """`n` random prompts of one split; a prompt may come twice.

    Args:
        rng: Source of randomness.
        n: How many.
        split_name: Prompts of the other splits are drawn again.
        depth_weights: Relative frequency of depth 1, 2, …; at most six.
        frequency_decay: See `frequencies`.
    """
    weights = np.asarray(depth_weights, np.float64)
    if not (1 <= len(weights) <= MAX_DEPTH and (weights >= 0).all() and weights.sum() > 0):
        raise ValueError(f"depth_weights = {depth_weights!r}: give 1–{MAX_DEPTH} numbers ≥ 0, not all 0")
    chances = frequencies(frequency_decay)
    letters = np.array([op.symbol for op in OPERATIONS])
    prompts: list[str] = []
    while len(prompts) < n:
        depths = rng.choice(len(weights), size=n, p=weights / weights.sum()) + 1
        states = rng.integers(0, 1000, size=n)
        operations = letters[rng.choice(len(letters), size=(n, len(weights)), p=chances)]
        for depth, state, row in zip(depths, states, operations, strict=True):
            prompt = f"{state:03d}{''.join(row[:depth])}="
            if split(prompt) == split_name and len(prompts) < n:
                prompts.append(prompt)
    return prompts


def make_problem(prompt: str, **meta: Any) -> Problem:
    """The problem of a prompt, with its depth and rarest operation in `meta`.

    >>> p = make_problem("407BAM=")
    >>> p.answer, p.verifier, p.meta["depth"], p.meta["rarest"]
    ('518185158', 'skill_chain', 3, 'sort')
    """
    symbols = prompt[3:-1]
    row = {
        "prompt": prompt,
        "answer": solve(prompt),
        "depth": len(symbols),
        "rarest": BY_SYMBOL[max(symbols)].name,
        **meta,
    }
    return Problem.from_row(row, verifier=NAME)


def generate(size: int, *, seed: int, held_out: bool = False, **options: Any) -> list[Problem]:
    """`size` distinct random problems: depth and operations uniform unless `options` say otherwise.

    Args:
        size: How many.
        seed: Same seed, same problems.
        held_out: From the held-out split instead of the training one.
        options: `depth_weights`, `frequency_decay` of `draw_prompts`.

    Raises:
        ValueError: unknown options, or there are not that many distinct problems.
    """
    if unknown := set(options) - {"depth_weights", "frequency_decay"}:
        raise ValueError(f"skill_chain has no option {sorted(unknown)[0]!r}; known: depth_weights, frequency_decay")
    split_name: Split = "held_out" if held_out else "train"
    rng = generator(seed, "problems/skill_chain", split_name)
    prompts: dict[str, None] = {}
    for _ in range(50):
        prompts.update(dict.fromkeys(draw_prompts(rng, size, split_name=split_name, **options)))
        if len(prompts) >= size:
            return [make_problem(p) for p in list(prompts)[:size]]
    raise ValueError(f"found {len(prompts)} distinct skill_chain problems with {options}, not {size}: ask for fewer")


def load_shipped(held_out: bool = False) -> list[Problem]:
    """The shipped set (or its held-out sibling): 256 problems, 64 in each of `BUCKETS`.

    `meta` holds the shipped model's `n` samples and `successes`, and the `bucket` that they give.
    """
    import pyarrow.parquet as pq

    name = f"{NAME}_held_out.parquet" if held_out else f"{NAME}.parquet"
    with resources.as_file(resources.files("gumption") / "data" / "problems" / name) as path:
        rows = pq.read_table(path).to_pylist()
    return [
        Problem.from_row(
            {
                "prompt": row["prompt"],
                "answer": row["answer"],
                **json.loads(row["meta"]),
                "n": row["n"],
                "successes": row["successes"],
            },
            verifier=NAME,
        )
        for row in rows
    ]


def load(config: ProblemsConfig, *, argument: str, seed: int, held_out: bool) -> list[Problem]:
    """Source `skill_chain`: the shipped set; a generated one with `skill_chain:random` or with `problems.size`.

    Raises:
        ValueError: an argument other than "" or "random", or options for the shipped set.
    """
    if argument not in ("", "random"):
        raise ValueError(f"unknown problem source 'skill_chain:{argument}'; known: skill_chain, skill_chain:random")
    if argument == "random" or config.size is not None:
        size = (config.held_out_size if held_out else config.size) or DEFAULT_SIZE
        return generate(size, seed=seed, held_out=held_out, **config.options)
    if config.options:
        raise ValueError("problems.options are for generated problems: write source = 'skill_chain:random'")
    problems = load_shipped(held_out)
    return problems[: config.held_out_size] if held_out else problems
