"""The thirteen problem families of Manufactoria (DELTA, arXiv 2509.21016)."""

from __future__ import annotations

from typing import Any

from gumption.problems.manufactoria.families.append_sequence import AppendSequence
from gumption.problems.manufactoria.families.base import DIFFICULTIES, Family, Parameters
from gumption.problems.manufactoria.families.contains_count import ContainsCount
from gumption.problems.manufactoria.families.contains_ordered import ContainsOrdered
from gumption.problems.manufactoria.families.contains_substring import ContainsSubstring
from gumption.problems.manufactoria.families.ends_with import EndsWith
from gumption.problems.manufactoria.families.exact_sequence import ExactSequence
from gumption.problems.manufactoria.families.numerical_comparison import NumericalComparison
from gumption.problems.manufactoria.families.numerical_max_min import NumericalMaxMin
from gumption.problems.manufactoria.families.numerical_operations import NumericalOperations
from gumption.problems.manufactoria.families.prepend_sequence import PrependSequence
from gumption.problems.manufactoria.families.regex_pattern import RegexPattern
from gumption.problems.manufactoria.families.regex_same_num import RegexSameNum
from gumption.problems.manufactoria.families.starts_with import StartsWith

_ALL: tuple[Family[Any], ...] = (
    StartsWith(),
    EndsWith(),
    ExactSequence(),
    ContainsSubstring(),
    ContainsOrdered(),
    ContainsCount(),
    RegexPattern(),
    RegexSameNum(),
    NumericalComparison(),
    AppendSequence(),
    PrependSequence(),
    NumericalOperations(),
    NumericalMaxMin(),
)
FAMILIES: dict[str, Family[Any]] = {family.name: family for family in _ALL}

__all__ = ["DIFFICULTIES", "FAMILIES", "Family", "Parameters", "get_family"]


def get_family(name: str) -> Family[Any]:
    """The family of this name.

    Raises:
        ValueError: there is none.

    >>> get_family("ends_with").output
    False
    """
    try:
        return FAMILIES[name]
    except KeyError:
        raise ValueError(f"no manufactoria family {name!r}; there are {', '.join(FAMILIES)}") from None
