"""The language: grammar, semantics, the visit limit and every verdict rule, on programs written by hand."""

from __future__ import annotations

import pytest

from gumption.problems.manufactoria.dsl import DslError, parse
from gumption.problems.manufactoria.verdict import Test, passes, read_tests, run_tests

ONE_RED = """
START start:
    NEXT look
PULLER_RB look:   # only a red, and nothing behind it
    [R] rest
PULLER_RB rest:
    [EMPTY] other
PULLER_YG other:
\t[EMPTY] end
END end
"""


def test_a_program_that_accepts_exactly_one_red() -> None:
    program = parse(ONE_RED)
    accepted = [tape for tape in ("", "R", "B", "RR", "RB", "RY", "RG", "YR") if program.run(tape).finished]
    assert accepted == ["R"]


def test_pullers_take_only_their_own_pair() -> None:
    program = parse("START start:\n    NEXT a\nPULLER_RB a:\n    [R] end\n    [EMPTY] end\nEND end")
    assert program.run("YR").tape == "YR"  # a colour of the other pair follows EMPTY and stays
    assert program.run("RY").tape == "Y"
    outcome = program.run("BY")  # no route for blue: it is taken, then the machine rejects
    assert (outcome.finished, outcome.tape, outcome.reason) == (False, "Y", "none")


def test_painters_append_to_the_back() -> None:
    program = parse(
        "START start:\n    NEXT a\nPAINTER_RED a:\n    NEXT b\nPAINTER_BLUE b:\n    NEXT c\n"
        "PAINTER_YELLOW c:\n    NEXT d\nPAINTER_GREEN d:\n    NEXT end\nEND end"
    )
    assert program.run("GG").tape == "GGRBYG"


def test_visits_are_limited_to_a_thousand_with_start_and_end() -> None:
    def painters(n: int) -> str:
        nodes = [f"PAINTER_RED p{i}:\n    NEXT {f'p{i + 1}' if i + 1 < n else 'end'}" for i in range(n)]
        return "\n".join(["START start:", "    NEXT p0", *nodes, "END end"])

    longest = parse(painters(998)).run("")
    assert (longest.finished, longest.visits) == (True, 1000)
    over = parse(painters(999)).run("")
    assert (over.finished, over.visits, over.reason) == (False, 1000, "visit_limit")


def test_an_endless_program_is_stopped() -> None:
    program = parse(
        "START start:\n    NEXT a\nPULLER_RB a:\n    [R] b\n    [EMPTY] end\nPAINTER_RED b:\n    NEXT a\nEND end"
    )
    assert program.run("R").reason == "visit_limit"
    assert program.run("").finished
    assert program.run("R", limit=3).visits == 3


def test_uppercase_end_parses_and_then_rejects() -> None:
    program = parse("START start:\n    NEXT END\nEND end")
    assert program.run("").reason == "unknown_node"


def test_the_first_of_two_equal_routes_wins() -> None:
    program = parse("START start:\n    NEXT a\nPULLER_RB a:\n    [R] end\n    [R] NONE\nEND end")
    assert program.run("R").finished


def test_what_the_preprocessing_drops() -> None:
    text = "```\n# a comment\nSTART start:\n\n    # another\n    NEXT end # and one more\nEND end#x\n```"
    assert parse(text).run("").finished
    assert parse("END end\nSTART start :\n\tNEXT  end").run("").finished  # any order, blanks, a tab


GOOD = "START start:\n    NEXT a\nPULLER_RB a:\n    [R] end\nEND end"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("# nothing", "empty"),
        ("hello", "not a node declaration"),
        (GOOD.replace("START start:", "START start"), "missing colon"),
        (GOOD.replace("END end", "END end:"), "END takes no colon"),
        (GOOD.replace("START start", "START begin"), "exactly one START"),
        (GOOD.replace("END end", "END finish"), "exactly one END"),
        (GOOD.replace("END end", ""), "exactly one END"),
        (GOOD + "\nSTART start2:\n    NEXT end", "exactly one START"),
        (GOOD + "\nPULLER_YG a:", "duplicate node id"),
        (GOOD.replace("    NEXT a", "  NEXT a"), "not a node declaration"),
        (GOOD.replace("PULLER_RB a:", "    PULLER_RB a:"), "not a route of START"),
        (GOOD.replace("    NEXT a", ""), "exactly 1 route"),
        (GOOD.replace("    NEXT a", "    NEXT a\n    NEXT a"), "two NEXT routes"),
        (GOOD.replace("[R] end", "[Y] end"), "cannot have a route 'Y'"),
        (GOOD.replace("[R] end", "NEXT end"), "not a route of PULLER_RB"),
        (GOOD.replace("[R] end", "[R]end"), "not a route of PULLER_RB"),
        (GOOD.replace("[R] end", "[P] end"), "not a route of PULLER_RB"),
        (GOOD.replace("[R] end", "[R] nowhere"), "'nowhere', which is not defined"),
        (GOOD.replace("PULLER_RB a", "PULLER_RG a"), "not a node declaration"),
        (GOOD.replace("PULLER_RB a", "PULLER_RB a-b"), "not a node declaration"),
        (GOOD + "\n    NEXT a", "not a route of END"),
        ("```manufactoria\n" + GOOD + "\n```", "not a node declaration"),
    ],
)
def test_what_the_grammar_forbids(text: str, message: str) -> None:
    with pytest.raises(DslError, match=message):
        parse(text)
    assert parse(GOOD).run("R").finished


ACCEPT = parse("START start:\n    NEXT end\nEND end").run("RB")
REJECT = parse("START start:\n    NEXT NONE\nEND end").run("RB")


@pytest.mark.parametrize(
    ("test", "accepting", "rejecting"),
    [
        (Test("RB", check_output=False), True, False),
        (Test("RB", expected_accepted=False, check_output=False), False, True),
        (Test("RB", "RB"), True, False),
        (Test("RB", "RBR"), False, False),
        (Test("RB", "RB", expected_accepted=False), False, True),
        (Test("RB", "RBR", expected_accepted=False), True, True),
        (Test("RB", "R.*"), True, False),
        (Test("RB", "(R|Y)B?"), True, False),
        (Test("RB", "R+"), False, False),  # a full match is needed
        (Test("RB", "R*("), False, False),  # not a regex: compared by equality
        (Test("RB"), False, False),  # defaults: output "" expected
    ],
)
def test_verdict_rules(test: Test, accepting: bool, rejecting: bool) -> None:
    assert (passes(test, ACCEPT), passes(test, REJECT)) == (accepting, rejecting)


def test_reading_tests() -> None:
    row = {"input": "R", "check_output": False, "expected_accepted": False, "expected_output": None, "extra": 1}
    assert read_tests([row]) == (Test("R", "", False, False),) == read_tests('[{"input": "R", "check_output": false, '
                                                                            '"expected_accepted": false}]')  # fmt: skip
    assert run_tests(parse(GOOD), read_tests([row])) == (False,)
    for bad in ([], "[]", {}, None, [{}], [{"input": 3}], [{"input": "R", "check_output": "no"}], [3], "nonsense"):
        with pytest.raises(ValueError):
            read_tests(bad)
