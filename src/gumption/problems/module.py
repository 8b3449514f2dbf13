"""Source `module:function`: rows from the user's own code.

    # my_problems.py
    def additions(size=512, seed=0, held_out=False, digits=2):
        ...
        yield {"prompt": "17 + 25 =", "answer": "42"}

    [problems]
    source = "my_problems:additions"
    options = { digits = 3 }

The function gets `problems.options`, and `size`, `seed` and `held_out` where it has parameters of these names. It
returns or yields rows (read like the rows of a file) or `Problem`s. Without a `held_out` parameter there is no held-out
set.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gumption.problems.rows import RowReader
from gumption.problems.sets import ProblemSet

if TYPE_CHECKING:
    from gumption.config import ProblemsConfig

DEFAULT_SIZE = 512
DEFAULT_HELD_OUT = 128


def load(config: ProblemsConfig, *, argument: str, seed: int, held_out: bool) -> ProblemSet:
    """Call the function and read its rows.

    Args:
        config: `size`, `options`, field names, template, `strict`.
        argument: `module:function`.
        seed: Passed on.
        held_out: Passed on; a function without that parameter has no held-out rows.

    Raises:
        ValueError: the function cannot be found or called, or gave no problem.
    """
    function = find(argument)
    parameters = inspect.signature(function).parameters
    if held_out and "held_out" not in parameters:
        return ProblemSet((), argument)
    size = (config.held_out_size or DEFAULT_HELD_OUT) if held_out else (config.size or DEFAULT_SIZE)
    offered = {"size": size, "seed": seed, "held_out": held_out}
    given = {**{k: v for k, v in offered.items() if k in parameters}, **config.options}
    try:
        inspect.signature(function).bind(**given)
    except TypeError as error:
        raise ValueError(f"{argument}: {error} (problems.options = {config.options})") from None
    rows = function(**given)
    if not isinstance(rows, Iterable) or isinstance(rows, (str, bytes, dict)):
        raise ValueError(f"{argument} returned {type(rows).__name__}: it must return or yield rows or Problems")
    # A function that is not told how many it should make is read to its end, unless the configuration says how many.
    limit = size if "size" in parameters else (config.held_out_size if held_out else config.size)
    return RowReader(config, argument).read(enumerate(rows, 1), limit)


def find(name: str) -> Callable[..., Any]:
    """Import `module:function`; the current folder counts as a place for modules.

    Raises:
        ValueError: there is no such module or function.

    >>> find("json:dumps")(1)
    '1'
    """
    module_name, _, path = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(f"{name!r}: cannot import module {module_name!r} ({error})") from None
    for part in path.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{name!r}: module {module_name!r} has no {path!r}")
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(f"{name!r} is {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]
