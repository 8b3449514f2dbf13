"""What every problem family has: parameters, a criterion in words, a predicate or function, test inputs.

A family never builds programs (`solver.py` does) and never labels tests (`testgen.py` does, by the family's own
predicate), so the three can be checked against each other.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from itertools import product
from typing import Any, ClassVar, Generic, Self, TypeVar

Case = tuple[str, str]
"""(description, input tape)"""

DIFFICULTIES = ("easy", "medium", "hard")
WORDS = {"R": "red", "B": "blue", "Y": "yellow", "G": "green"}


@dataclass(frozen=True, slots=True)
class Parameters:
    """What distinguishes two problems of one family. `colors` is the input alphabet, "RB" or "RBYG"."""

    colors: str

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict` (JSON turns tuples into lists; here they are tuples again).

        Raises:
            ValueError: a field is missing or unknown.
        """
        names = {f.name for f in fields(cls)}
        if set(data) != names:
            raise ValueError(f"{cls.__name__} needs the fields {sorted(names)}, got {sorted(data)}")
        return cls(**{key: _tuples(value) for key, value in data.items()})

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, (list, tuple)) else value


P = TypeVar("P", bound=Parameters)


class Family(ABC, Generic[P]):
    """One problem family. Acceptance families implement `accepts`, output families `transform`."""

    name: ClassVar[str]
    output: ClassVar[bool] = False
    """The tape that is left is checked; every input is to be accepted."""
    default_difficulty: ClassVar[str] = "easy"
    default_colors: ClassVar[str] = "RB"
    parameters_type: type[P]

    @abstractmethod
    def criterion(self, p: P) -> str:
        """The task in one sentence."""

    def accepts(self, p: P, tape: str) -> bool:
        """Is this input to be accepted? (acceptance families)"""
        raise NotImplementedError(f"{self.name} checks the output")

    def transform(self, p: P, tape: str) -> str:
        """The tape that is to be left. (output families)"""
        raise NotImplementedError(f"{self.name} checks acceptance only")

    @abstractmethod
    def cases(self, p: P, rng: random.Random) -> list[Case]:
        """Inputs that are telling for these parameters; they need not be labelled or distinct."""

    def hidden_cases(self, p: P, rng: random.Random) -> list[Case]:
        """More such inputs, for the hidden tests; the default draws `cases` again."""
        return self.cases(p, rng)

    @abstractmethod
    def parameters(self, difficulty: str, colors: str) -> list[P]:
        """All parameters of one difficulty, in a fixed order.

        Raises:
            ValueError: this family has no such difficulty or alphabet.
        """


def words(colors: str, lengths: Iterable[int]) -> Iterator[str]:
    """All strings over `colors` of these lengths.

    >>> list(words("RB", (1, 2)))
    ['R', 'B', 'RR', 'RB', 'BR', 'BB']
    """
    for length in lengths:
        for letters in product(colors, repeat=length):
            yield "".join(letters)


def noise(rng: random.Random, colors: str, length: int) -> str:
    """A random string; empty over an empty alphabet."""
    return "".join(rng.choice(colors) for _ in range(length)) if colors else ""


def other(rng: random.Random, colors: str, avoid: str) -> str:
    """A random colour that is not in `avoid`; "" if there is none."""
    return noise(rng, without(colors, avoid), 1)


def without(colors: str, avoid: str) -> str:
    """The colours that are not in `avoid`.

    >>> without("RBYG", "BG")
    'RY'
    """
    return "".join(c for c in colors if c not in avoid)


def shuffled(rng: random.Random, text: str) -> str:
    """A random order of the same letters."""
    letters = list(text)
    rng.shuffle(letters)
    return "".join(letters)


def check_difficulty(name: str, difficulty: str, known: Iterable[str] = DIFFICULTIES) -> None:
    """Raise `ValueError` for a difficulty that a family does not have."""
    known = tuple(known)
    if difficulty not in known:
        raise ValueError(f"manufactoria family {name!r} has no difficulty {difficulty!r}; it has {', '.join(known)}")


def check_colors(name: str, colors: str, known: Iterable[str] = ("RB", "RBYG")) -> None:
    """Raise `ValueError` for an alphabet that a family does not have."""
    known = tuple(known)
    if colors not in known:
        raise ValueError(f"manufactoria family {name!r} has no alphabet {colors!r}; it has {', '.join(known)}")
