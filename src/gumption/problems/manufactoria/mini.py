"""The small Manufactoria of the shipped tiny model: compact prompts, compact programs, seven families.

    prompt       "ends_with:" + "RB" + "="
    completion   "P1-" …                      a program in the compact notation (`compact.py`)

A problem is a family and its parameters. Every one belongs to one of three splits by a hash: `warm_start` (supervised
examples of the shipped model), `train` and `held_out`. So a training problem is never a held-out one, nor one that the
shipped model was shown; tests play no part in the split.
"""

from __future__ import annotations

import json
from typing import Any, Literal, TypeAlias

from gumption.problems.manufactoria.compact import END, LABELS, NONE, to_compact
from gumption.problems.manufactoria.families import Parameters, get_family
from gumption.problems.manufactoria.families.base import words
from gumption.problems.manufactoria.families.regex_pattern import Pattern
from gumption.problems.manufactoria.families.sequences import Sequence
from gumption.problems.manufactoria.solver import solve
from gumption.randomness import key

Split: TypeAlias = Literal["warm_start", "train", "held_out"]

FAMILIES = (
    "starts_with",
    "contains_ordered",
    "append_sequence",
    "exact_sequence",
    "contains_substring",
    "ends_with",
    "regex_pattern",
)
"""From the most to the least frequent in the warm start."""

LONGEST = 7
"""Colours in a sequence, at most."""
NODES = 10
"""Nodes that the shipped model's alphabet can name."""

SYMBOLS: tuple[str, ...] = (*(f"{name}:" for name in FAMILIES), *"RB()+?*=", "P", END, NONE, *LABELS[:NODES])
"""Alphabet of prompts and programs: what the shipped model's tokenizer knows beside end, padding and unknown."""

_SHARES: tuple[Split, ...] = (*("warm_start",) * 2, *("train",) * 3, *("held_out",) * 3)
# A problem's split is its hash modulo this many shares.


def parameters(family: str) -> list[Any]:
    """All parameters of one family of the small set: two-colour sequences up to length 7, patterns of one or two parts.

    >>> len(parameters("ends_with")), len(parameters("regex_pattern"))
    (254, 342)
    """
    if family not in FAMILIES:
        raise ValueError(f"no family {family!r} in the small manufactoria; there are {', '.join(FAMILIES)}")
    if family == "regex_pattern":
        return [p for difficulty in ("easy", "medium") for p in get_family(family).parameters(difficulty, "RB")]
    return [Sequence("RB", text) for text in words("RB", range(1, LONGEST + 1))]


def size(p: Parameters) -> int:
    """Length of a problem: colours of its sequence or of the bases of its parts.

    >>> size(Sequence("RB", "RRB")), size(Pattern("RB", (("RB", "+"), ("B", "?"))))
    (3, 3)
    """
    return len(_plain(p).translate(str.maketrans("", "", "()+?*")))


def _plain(p: Parameters) -> str:
    if isinstance(p, Sequence):
        return p.text
    if isinstance(p, Pattern):
        return p.regex
    raise ValueError(f"the small manufactoria has no problems with {type(p).__name__}")


def prompt(family: str, p: Parameters) -> str:
    """The compact prompt.

    >>> prompt("ends_with", Sequence("RB", "RRB")), prompt("regex_pattern", Pattern("RB", (("RB", "+"), ("B", "?"))))
    ('ends_with:RRB=', 'regex_pattern:(RB)+(B)?=')
    """
    return f"{family}:{_plain(p)}="


def gold(family: str, p: Parameters) -> str:
    """The reference program in the compact notation.

    >>> gold("contains_substring", Sequence("RB", "RB"))
    'P10-P1!-'
    """
    return to_compact(solve(family, p))


def split(family: str, p: Parameters) -> Split:
    """Which split a problem belongs to: a quarter of all warm start, three eighths train, three eighths held out.

    >>> sorted({split("ends_with", p) for p in parameters("ends_with")})
    ['held_out', 'train', 'warm_start']
    """
    get_family(family)
    content = json.dumps(p.to_dict(), sort_keys=True)
    return _SHARES[key(0, "manufactoria/mini/split", family, content) % len(_SHARES)]


def members(split_name: Split) -> list[tuple[str, Parameters]]:
    """All problems of one split, family by family."""
    return [(name, p) for name in FAMILIES for p in parameters(name) if split(name, p) == split_name]
