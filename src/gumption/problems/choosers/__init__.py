"""Choosers: which problems are asked at all, decided before anything is generated. They go with any allocator.

A chooser is a problem stream around another one: it passes some problems over and learns from the chains that end.

chooser                   module                      lets through
no_positive_resampling    no_positive_resampling.py   what is not solved nearly always
greso                     greso.py                    rarely what gave equal rewards the last times
mopps                     mopps.py                    of some candidates the one whose pass rate may be nearest 1/2
difficulty_pools          difficulty_pools.py         each bucket of difficulty at its own rate
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from gumption.problems.choosers.base import Chooser
from gumption.types import ProblemStream

__all__ = ["CHOOSERS", "Chooser", "choose"]

CHOOSERS: dict[str, str] = {
    "no_positive_resampling": "gumption.problems.choosers.no_positive_resampling:NoPositiveResampling",
    "greso": "gumption.problems.choosers.greso:Greso",
    "mopps": "gumption.problems.choosers.mopps:Mopps",
    "difficulty_pools": "gumption.problems.choosers.difficulty_pools:DifficultyPools",
}
"""Name → `module:class`."""


def choose(
    stream: ProblemStream,
    names: Sequence[str],
    options: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    seed: int = 0,
) -> ProblemStream:
    """Put choosers around a stream, the first one innermost.

    Args:
        stream: Where problems come from.
        names: Names in `CHOOSERS`.
        options: Keyword arguments of each, by name.
        seed: Run seed.

    Raises:
        ValueError: an unknown chooser or option, or a value out of range.

    >>> from gumption.testing import ListStream, problem
    >>> chosen = choose(ListStream([problem("a")]), ["greso", "mopps"], {"mopps": {"candidates": 2}})
    >>> chosen.name, chosen.inner.name, chosen.next()[0].id
    ('mopps', 'greso', 'a')
    """
    for name in names:
        if name not in CHOOSERS:
            raise ValueError(f"unknown chooser {name!r}; known: {', '.join(CHOOSERS)}")
        module, _, made = CHOOSERS[name].partition(":")
        chooser: type[Chooser] = getattr(importlib.import_module(module), made)
        given = dict((options or {}).get(name, {}))
        known = [p for p in inspect.signature(chooser).parameters if p not in ("inner", "seed")]
        for option in given:
            if option not in known:
                close = difflib.get_close_matches(option, known, n=1)
                hint = f"did you mean {close[0]!r}? " if close else ""
                raise ValueError(f"chooser {name} has no option {option!r}; {hint}known: {', '.join(known)}")
        stream = chooser(stream, seed=seed, **given)
    return stream
