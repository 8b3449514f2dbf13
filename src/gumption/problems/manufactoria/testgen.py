"""Visible and hidden tests of one problem, a function of family and parameters alone.

Visible tests follow the published generator (11–35 of them). Hidden tests are inputs that no visible test has: a
program fitted to the visible ones, such as a look-up table, fails some of them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

from gumption.problems.manufactoria.families.base import Case, Family, Parameters, noise, words
from gumption.problems.manufactoria.verdict import Test
from gumption.randomness import key

MOST_VISIBLE = 35
MOST_HIDDEN = 80
_CORNERS = ("RB", "BR", "RBR", "BRB", "RRB", "BBR", "")
_LEAST_PER_CLASS = 3
_LEAST_OUTPUT = 6
_LONGEST_HIDDEN = 14


def visible_tests(family: Family[Any], p: Parameters, seed: int = 0) -> tuple[Test, ...]:
    """The tests that the reward looks at: fixed and corner inputs, the family's own cases, then random padding.

    Args:
        family: The family.
        p: Its parameters.
        seed: Another seed draws other tests for the same parameters.

    >>> from gumption.problems.manufactoria.families import get_family
    >>> family = get_family("ends_with")
    >>> tests = visible_tests(family, family.parameters("easy", "RB")[3])
    >>> 11 <= len(tests) <= 35, len({t.input for t in tests}) == len(tests)
    (True, True)
    """
    rng = _random(family, p, "tests", seed)
    cases: list[Case] = [("nothing", ""), ("one colour", p.colors[0]), ("two colours", p.colors[:2])]
    drawn = [rng.choice(["", *words(p.colors, (1, 2))]) for _ in range(5)]
    cases += [("a corner case", tape) for tape in (*drawn, *_CORNERS)]
    cases += family.cases(p, rng)
    tests = _label(family, p, cases)
    _pad(family, p, tests, rng)
    return tuple(tests[:MOST_VISIBLE])


def hidden_tests(family: Family[Any], p: Parameters, visible: Iterable[Test], seed: int = 0) -> tuple[Test, ...]:
    """Further tests, none of them visible: all short tapes, telling cases, accepted tapes with one change, random ones.

    Accepting and rejecting tests alternate as far as there are both, so that neither is crowded out.

    Args:
        family: The family.
        p: Its parameters.
        visible: Tests whose inputs are left out.
        seed: As in `visible_tests`.
    """
    rng = _random(family, p, "hidden", seed)
    cases = family.hidden_cases(p, rng)
    if not family.output:
        good = [tape for _, tape in cases if family.accepts(p, tape)]
        cases += [("one change away", _edited(rng, p.colors, tape)) for tape in good for _ in range(2)]
    longest = 4 if p.colors == "RB" else 2
    cases += [("short", tape) for tape in words(p.colors, range(longest + 1))]
    cases += [("random", noise(rng, p.colors, rng.randint(3, _LONGEST_HIDDEN))) for _ in range(24)]
    seen = {test.input for test in visible}
    tests = [test for test in _label(family, p, cases) if test.input not in seen]
    if family.output:
        return tuple(tests[:MOST_HIDDEN])
    good_tests = [t for t in tests if t.expected_accepted]
    bad_tests = [t for t in tests if not t.expected_accepted]
    mixed = [t for pair in zip_longest(good_tests, bad_tests) for t in pair if t is not None]
    return tuple(mixed[:MOST_HIDDEN])


def _random(family: Family[Any], p: Parameters, purpose: str, seed: int) -> random.Random:
    content = json.dumps(p.to_dict(), sort_keys=True)
    return random.Random(key(seed, f"manufactoria/{purpose}", family.name, content))


def _label(family: Family[Any], p: Parameters, cases: Iterable[Case]) -> list[Test]:
    distinct = {tape: description for description, tape in reversed(list(cases))}
    # Reversed twice: the order is that of first occurrences, the description that of the first one.
    return [_test(family, p, description, tape) for tape, description in reversed(distinct.items())]


def _test(family: Family[Any], p: Parameters, description: str, tape: str) -> Test:
    if family.output:
        return Test(tape, family.transform(p, tape), True, True, description)
    return Test(tape, "", family.accepts(p, tape), False, description)


def _pad(family: Family[Any], p: Parameters, tests: list[Test], rng: random.Random) -> None:
    """Add random inputs until each class has three tests (output families: six tests in all), in at most 50 draws."""
    seen = {test.input for test in tests}
    for draw in range(50):
        wanted = {True, False}
        if not family.output:
            accepted = sum(test.expected_accepted for test in tests)
            wanted = {c for c, n in ((True, accepted), (False, len(tests) - accepted)) if n < _LEAST_PER_CLASS}
        elif len(tests) >= _LEAST_OUTPUT:
            return
        if not wanted:
            return
        tape = noise(rng, p.colors, rng.randint(1, min(12, 3 + draw // 10)))
        test = _test(family, p, "random", tape)
        if tape not in seen and test.expected_accepted in wanted:
            seen.add(tape)
            tests.append(test)


def _edited(rng: random.Random, colors: str, tape: str) -> str:
    at = rng.randrange(len(tape) + 1)
    kind = rng.choice(("insert", "delete", "change"))
    return tape[:at] + ("" if kind == "delete" else rng.choice(colors)) + tape[at + (kind != "insert") :]
