"""Test cases and what it means to pass one (arXiv 2509.21016, rules of its public verifier)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gumption.problems.manufactoria.dsl import Outcome, Program

_REGEX_SIGNS = frozenset(".+*?|()")


@dataclass(frozen=True, slots=True)
class Test:
    """One test of a program: run it on `input`, look at acceptance and, with `check_output`, at the tape left over."""

    __test__ = False  # not a pytest class

    input: str
    expected_output: str = ""
    expected_accepted: bool = True
    check_output: bool = True
    description: str = ""

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Test:
        """Read one entry of a row's `ground_truth`; missing fields take the published defaults.

        Raises:
            ValueError: `input` is missing, or a field has the wrong type.
        """
        values = {name: data[name] for name in cls.__slots__ if data.get(name) is not None}
        for name, value in values.items():
            wanted = bool if name in ("expected_accepted", "check_output") else str
            if not isinstance(value, wanted):
                raise ValueError(f"test field {name!r} must be a {wanted.__name__}, got {value!r}")
        if "input" not in values:
            raise ValueError(f"a test needs the field 'input', got {sorted(data)}")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """The published form."""
        return asdict(self)


def passes(test: Test, outcome: Outcome) -> bool:
    """Does this outcome pass this test?

    Without `check_output`: finished == expected_accepted. With it: (the tape matches and finished) ==
    expected_accepted, where the tape matches by equality, or by a full regex match if `expected_output` holds one of
    `. + * ? | ( )` (an invalid regex is compared by equality).

    >>> out = Outcome(True, "RB", 3, "end")
    >>> passes(Test("", "RB"), out), passes(Test("", "(RB)+"), out), passes(Test("", "R"), out)
    (True, True, False)
    """
    if not test.check_output:
        return outcome.finished == test.expected_accepted
    return (outcome.finished and _matches(test.expected_output, outcome.tape)) == test.expected_accepted


def has_regex(test: Test) -> bool:
    """Is the expected output read as a regular expression?"""
    return test.check_output and not _REGEX_SIGNS.isdisjoint(test.expected_output)


def _matches(expected: str, tape: str) -> bool:
    if _REGEX_SIGNS.isdisjoint(expected):
        return tape == expected
    try:
        return re.fullmatch(expected, tape) is not None
    except re.error:
        return tape == expected


def run_tests(program: Program, tests: Iterable[Test]) -> tuple[bool, ...]:
    """Which tests a program passes, in order."""
    return tuple(passes(test, program.run(test.input)) for test in tests)


def read_tests(answer: Any) -> tuple[Test, ...]:
    """The tests of a problem's ground truth: a list of mappings, or that list as JSON text.

    Raises:
        ValueError: it is neither, or there is no test.
    """
    if isinstance(answer, str):
        import json

        answer = json.loads(answer)
    if not isinstance(answer, Sequence) or not answer or not all(isinstance(item, Mapping) for item in answer):
        raise ValueError("the ground truth must be a non-empty list of tests")
    return tuple(Test.from_mapping(item) for item in answer)
