"""Where questions come from: sources by name, and the order in which they are asked.

    source                       problems                                    module
    skill_chain                  the shipped set, or generated ones          skill_chain.py
    manufactoria[:FAMILY]        the shipped set, or one family              manufactoria/
    gym:NAME                     a generator of reasoning-gym                gym.py
    datasets:NAME[:SPLIT]        a Hugging Face dataset or folder            files.py
    module:function              your own code                               module.py
    scripted                     known pass rates, for the scripted engine   scripted.py
    a path                       jsonl, json, parquet, optionally .gz        files.py

`load_problems` reads a source or several, `make_stream` orders them; `choosers/` pass some of them over.
"""

from __future__ import annotations

import difflib
import importlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gumption.problems.sets import ProblemSet, SkippedRow, combine, distinct, dress
from gumption.problems.stream import Stream, make_stream
from gumption.types import Problem

if TYPE_CHECKING:
    from gumption.config import ProblemsConfig

__all__ = [
    "SOURCES",
    "ProblemSet",
    "SkippedRow",
    "Stream",
    "combine",
    "load_problems",
    "make_stream",
    "register_source",
]

Loader = Callable[..., "ProblemSet | list[Problem]"]

SOURCES: dict[str, str] = {
    "skill_chain": "gumption.problems.skill_chain:load",
    "manufactoria": "gumption.problems.manufactoria:load",
    "gym": "gumption.problems.gym:load",
    "datasets": "gumption.problems.files:load_dataset",
    "scripted": "gumption.problems.scripted:load",
}
"""Name before the first colon of a source → `module:function` with the signature
`load(config: ProblemsConfig, *, argument: str, seed: int, held_out: bool) -> ProblemSet | list[Problem]`."""

_FILE = "gumption.problems.files:load"
_MODULE = "gumption.problems.module:load"
# These put the template around questions themselves.
_TEMPLATED = (_FILE, _MODULE, SOURCES["datasets"], SOURCES["gym"])
_WHOLE = (_FILE, SOURCES["datasets"])  # these have no held-out part of their own


def register_source(name: str, loader: str) -> None:
    """Add a source. `loader` is `module:function` with the signature given at `SOURCES`.

    Raises:
        ValueError: the name is no identifier, or is taken.
    """
    if not name.isidentifier() or name in SOURCES:
        raise ValueError(f"source name {name!r} is {'taken' if name in SOURCES else 'not an identifier'}")
    SOURCES[name] = loader


def load_problems(config: ProblemsConfig, *, seed: int, held_out: bool = False) -> ProblemSet:
    """Load the problems of a configuration.

    Args:
        config: Source or sources, sizes, fields, template.
        seed: The run's seed: generators draw with it.
        held_out: The held-out set: `config.held_out` where it is given, else the sources' own. A file has none of its
            own; the result is empty then.

    Returns:
        Problems with distinct ids, with the rows that were skipped.

    Raises:
        ValueError: a source is unknown or unreadable, a row is malformed and `strict` is on, or no problems are left.
    """
    if config.template is not None and "{prompt}" not in config.template:
        raise ValueError(f"problems.template = {config.template!r}: write {{prompt}} where the question goes")
    sources = (config.source,) if isinstance(config.source, str) else config.source
    if not sources:
        raise ValueError("problems.source is empty: name a source")
    if not held_out:
        return combine(_load(s, config, seed, held_out=False) for s in sources)
    if config.held_out is not None:
        return _load(config.held_out, config.model_copy(update={"source": config.held_out, "size": None}), seed, True)
    sets = [s for s in (_load(source, config, seed, True) for source in sources) if s.problems]
    if not sets and config.held_out_size is not None:
        raise ValueError(
            f"problems.held_out_size = {config.held_out_size}, but {' + '.join(sources)} has no held-out part: "
            "name another source with problems.held_out"
        )
    return combine(sets) if sets else ProblemSet((), "")


def _load(source: str, config: ProblemsConfig, seed: int, held_out: bool) -> ProblemSet:
    """One source; files that are named as held-out set are read whole."""
    loader, argument = resolve(source)
    if held_out and config.held_out == source and loader in _WHOLE:
        config, held_out = config.model_copy(update={"size": config.held_out_size}), False
    module, _, function = loader.partition(":")
    load: Loader = getattr(importlib.import_module(module), function)
    loaded = load(config, argument=argument, seed=seed, held_out=held_out)
    result = loaded if isinstance(loaded, ProblemSet) else ProblemSet(tuple(loaded), source)
    if not result.problems and not held_out:
        raise ValueError(f"no problems in {source}")
    template = None if loader in _TEMPLATED else config.template
    used: set[str] = set()
    problems = tuple(distinct(dress(p, template, config.chat), used) for p in result.problems)
    return ProblemSet(problems, result.name, result.skipped, result.lines)


def resolve(source: str) -> tuple[str, str]:
    """The loader (`module:function`) of a source and the argument that it gets.

    Raises:
        ValueError: no source of that name, and no file either.

    >>> resolve("gym:chain_sum")
    ('gumption.problems.gym:load', 'chain_sum')
    >>> resolve("my_rows.jsonl")[1], resolve("my_module:rows")[1]
    ('my_rows.jsonl', 'my_module:rows')
    """
    from gumption.problems.files import SUFFIXES

    name, _, argument = source.partition(":")
    if name in SOURCES:
        return SOURCES[name], argument
    path = Path(source).expanduser()
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if path.is_file() or suffix.lower() in SUFFIXES or os.sep in source:
        return _FILE, source
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", source):
        return _MODULE, source
    close = difflib.get_close_matches(name, SOURCES, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise ValueError(
        f"unknown problem source {source!r}; {hint}known: {', '.join(SOURCES)}, module:function, or a file "
        f"({', '.join(SUFFIXES)})"
    )
