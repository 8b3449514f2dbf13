"""Every family: predicate against a slow second definition, tests, reference programs, degenerate programs."""

from __future__ import annotations

import random
import re
from itertools import permutations
from typing import Any

import pytest

from gumption.problems.manufactoria.automata import compile_dfa
from gumption.problems.manufactoria.dsl import Program, parse
from gumption.problems.manufactoria.families import FAMILIES, Family
from gumption.problems.manufactoria.families.base import words
from gumption.problems.manufactoria.solver import automaton, solve
from gumption.problems.manufactoria.testgen import hidden_tests, visible_tests
from gumption.problems.manufactoria.verdict import Test, run_tests

ACCEPT_ALL = parse("START start:\n    NEXT end\nEND end")
REJECT_ALL = parse("START start:\n    NEXT NONE\nEND end")
SHORT = {"RB": ["", *words("RB", range(1, 7))], "RBYG": ["", *words("RBYG", range(1, 5))]}


def some(name: str, n: int, seed: int = 0) -> list[tuple[str, Any]]:
    """(difficulty, parameters) of a family: up to n for each difficulty and alphabet."""
    family = FAMILIES[name]
    rng = random.Random(f"{name}{seed}")
    chosen = []
    for difficulty in ("easy", "medium", "hard"):
        for colors in ("RB", "RBYG"):
            try:
                everything = family.parameters(difficulty, colors)
            except ValueError:
                continue
            chosen += [(difficulty, p) for p in rng.sample(everything, min(n, len(everything)))]
    return chosen


def number(tape: str) -> int:
    total = 0
    for color in tape:
        total = total + total + (1 if color == "B" else 0)
    return total


def bits(number: int) -> str:
    text = ""
    while number > 0:
        text = "RB"[number % 2] + text
        number //= 2
    return text


def slow(name: str, p: Any, tape: str) -> bool | str:
    """A second definition of each family, written to be plain: regular expressions, loops, brute force."""
    match name:
        case "starts_with":
            return re.fullmatch(f"{p.text}.*", tape) is not None
        case "ends_with":
            return re.fullmatch(f".*{p.text}", tape) is not None
        case "exact_sequence":
            return re.fullmatch(p.text, tape) is not None
        case "contains_substring":
            return re.search(p.text, tape) is not None
        case "contains_ordered":
            return re.search(".*".join(p.text), tape) is not None
        case "contains_count":
            return all(len([c for c in tape if c == color]) >= n for color, n in p.counts)
        case "regex_pattern":
            return tape in _language(p.parts, len(tape))
        case "regex_same_num":
            return any(re.fullmatch(_template(p, n), tape) for n in range(1, 12))
        case "numerical_comparison":
            x, t = number(tape), p.threshold
            return {">": x > t, ">=": not x < t, "<": x < t, "<=": not x > t, "=": x == t}[p.op]
        case "append_sequence":
            return "".join([*tape, *p.text])
        case "prepend_sequence":
            return p.text + _mutated(p.mutation, tape)
        case "numerical_operations":
            return bits(_result(p.op, number(tape), p.operand))
        case "numerical_max_min":
            return bits(sorted((number(tape), p.constant))[p.op == "max"])
    raise AssertionError(name)


def _language(parts: tuple[tuple[str, str], ...], longest: int) -> set[str]:
    found = {""}
    for base, operator in parts:
        repeats = {"+": range(1, longest + 2), "*": range(longest + 1), "?": range(2)}[operator]
        found = {head + base * n for head in found for n in repeats if len(head + base * n) <= longest + 2}
    return found


def _template(p: Any, n: int) -> str:
    sizes = {"n": n, "n+1": n + 1, "n+2": n + 2, "n+3": n + 3, "2n": 2 * n}
    return "".join(f"{color}{{{sizes[term]}}}" for color, term in p.blocks)


def _mutated(mutation: tuple[str, str, str], tape: str) -> str:
    kind, old, new = mutation
    result, i = "", 0
    while i < len(tape):
        if kind == "swap":
            result += "B" if tape[i] == "R" else "R"
        elif kind != "keep" and tape[i : i + len(old)] == old:
            result += new
            i += len(old) - 1
        else:
            result += tape[i]
        i += 1
    return result


def _result(op: str, x: int, n: int) -> int:
    def combine(rule: Any) -> int:
        return sum(2**k for k in range(16) if rule(x // 2**k % 2, n // 2**k % 2))

    match op:
        case "and":
            return combine(lambda a, b: a + b == 2)
        case "or":
            return combine(lambda a, b: a + b >= 1)
        case "xor":
            return combine(lambda a, b: a + b == 1)
        case "not":
            width = 8
            while 2**width <= x:
                width += 1
            return 2**width - 1 - x
        case "floor_divide":
            return int((x - x % n) / n)
    return x + n if op == "add" else x - n


def answer(family: Family[Any], p: Any, tape: str) -> bool | str:
    return family.transform(p, tape) if family.output else family.accepts(p, tape)


@pytest.mark.parametrize("name", FAMILIES)
def test_predicate_equals_a_slow_second_definition(name: str) -> None:
    for _, p in some(name, 4):
        for tape in SHORT[p.colors]:
            assert answer(FAMILIES[name], p, tape) == slow(name, p, tape), (p, tape)


@pytest.mark.parametrize("name", FAMILIES)
def test_reference_program_passes_visible_and_hidden_tests(name: str) -> None:
    family = FAMILIES[name]
    for _, p in some(name, 5, seed=1):
        visible = visible_tests(family, p)
        hidden = hidden_tests(family, p, visible)
        program = parse(solve(name, p).to_text())
        assert all(run_tests(program, visible + hidden)), p
        assert max(program.run(test.input).visits for test in visible + hidden) < 700


@pytest.mark.parametrize("name", FAMILIES)
def test_reference_program_is_right_on_every_short_tape(name: str) -> None:
    family = FAMILIES[name]
    for _, p in some(name, 2, seed=2):
        program = solve(name, p)
        for tape in SHORT[p.colors]:
            outcome = program.run(tape)
            got = outcome.tape if family.output else outcome.finished
            assert got == answer(family, p, tape) and (outcome.finished or not family.output), (p, tape)


@pytest.mark.parametrize("name", FAMILIES)
def test_visible_tests(name: str) -> None:
    family = FAMILIES[name]
    for _, p in some(name, 6, seed=3):
        tests = visible_tests(family, p)
        inputs = [test.input for test in tests]
        assert 11 <= len(tests) <= 35
        assert len(set(inputs)) == len(inputs) and "" in inputs and set("".join(inputs)) <= set(p.colors)
        assert tests == visible_tests(family, p)
        assert name.startswith("numerical") or tests != visible_tests(family, p, seed=1)  # numbers are not drawn
        assert {test.check_output for test in tests} == {family.output}
        for test in tests:
            expected = test.expected_output if family.output else test.expected_accepted
            assert expected == slow(name, p, test.input)
            assert test.expected_accepted or not family.output


def test_never_more_than_35_visible_tests() -> None:
    family = FAMILIES["contains_ordered"]
    for length in (20, 40):
        assert len(visible_tests(family, family.parameters_type("RBYG", ("RBYG" * 10)[:length]))) == 35


@pytest.mark.parametrize("name", FAMILIES)
def test_hidden_tests_are_others_than_the_visible_ones(name: str) -> None:
    family = FAMILIES[name]
    for _, p in some(name, 3, seed=4):
        visible = visible_tests(family, p)
        hidden = hidden_tests(family, p, visible)
        inputs = {test.input for test in hidden}
        assert len(inputs) == len(hidden) >= 25
        assert inputs.isdisjoint(test.input for test in visible)
        assert hidden == hidden_tests(family, p, visible)
        for test in hidden:
            expected = test.expected_output if family.output else test.expected_accepted
            assert expected == slow(name, p, test.input)


@pytest.mark.parametrize("name", FAMILIES)
def test_degenerate_programs_never_pass_everything(name: str) -> None:
    family = FAMILIES[name]
    for _, p in some(name, 12, seed=5):
        tests = visible_tests(family, p)
        for program in (ACCEPT_ALL, REJECT_ALL):
            assert not all(run_tests(program, tests)), p
        if not family.output:
            floor = [sum(run_tests(program, tests)) / len(tests) for program in (ACCEPT_ALL, REJECT_ALL)]
            assert sum(floor) == pytest.approx(1)  # the per-test reward has a floor, the all-pass reward has none


def lookup_table(tests: tuple[Test, ...], otherwise: bool) -> Program:
    """A program fitted to acceptance tests: a tree of the tapes that it was shown, one answer for all others."""
    known = {test.input: test.expected_accepted for test in tests}
    prefixes = {tape[:n] for tape in known for n in range(len(tape) + 1)}
    rest = "end" if otherwise else "NONE"
    lines = ["START start:", "    NEXT s"]
    for prefix in sorted(prefixes):
        target = {c: f"s{prefix}{c}" if prefix + c in prefixes else rest for c in "RBYG"}
        empty = "end" if known.get(prefix, otherwise) else "NONE"
        lines += [f"PULLER_RB s{prefix}:", *(f"    [{c}] {target[c]}" for c in "RB"), f"    [EMPTY] t{prefix}"]
        lines += [f"PULLER_YG t{prefix}:", *(f"    [{c}] {target[c]}" for c in "YG"), f"    [EMPTY] {empty}"]
    return parse("\n".join([*lines, "END end"]))


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if not family.output])
def test_hidden_tests_detect_a_program_fitted_to_the_visible_ones(name: str) -> None:
    family = FAMILIES[name]
    for _, p in some(name, 5, seed=6):
        visible = visible_tests(family, p)
        hidden = hidden_tests(family, p, visible)
        for otherwise in (False, True):
            program = lookup_table(visible, otherwise)
            assert all(run_tests(program, visible))
            # Only where finitely many tapes are accepted (or rejected) can a table be the solution.
            if all(run_tests(program, hidden)):
                wrong = [tape for tape in SHORT[p.colors] if program.run(tape).finished != family.accepts(p, tape)]
                assert not wrong, (p, otherwise, wrong)
                assert name in ("exact_sequence", "numerical_comparison", "regex_pattern")


@pytest.mark.parametrize("name", FAMILIES)
def test_a_changed_reference_program_fails(name: str) -> None:
    """One route of the reference program is led elsewhere; most changes must show in the visible tests."""
    family = FAMILIES[name]
    rng = random.Random(name)
    changed = caught = 0
    for _, p in some(name, 3, seed=7):
        text = solve(name, p).to_text()
        lines = text.split("\n")
        routes = [i for i, line in enumerate(lines) if line.startswith("    ")]
        tests = visible_tests(family, p)
        for i in rng.sample(routes, min(6, len(routes))):
            words_of = lines[i].split()
            mutant = [*lines[:i], f"    {words_of[0]} {'NONE' if words_of[1] != 'NONE' else 'end'}", *lines[i + 1 :]]
            changed += 1
            caught += not all(run_tests(parse("\n".join(mutant)), tests))
    assert caught >= 0.5 * changed  # some routes are for tapes that no test holds


def test_automata_are_minimal_and_agree_with_their_programs() -> None:
    for name in FAMILIES:
        for _, p in some(name, 2, seed=8):
            dfa = automaton(name, p)
            if dfa is None:
                continue
            program = compile_dfa(dfa)
            answers = {tape: dfa.accepts(tape) for tape in SHORT[p.colors]}
            assert all(program.run(tape).finished == good for tape, good in answers.items())
            assert _distinguishable(dfa) == {(a, b) for a in range(len(dfa.steps)) for b in range(a)}, (name, p)


def _distinguishable(dfa: Any) -> set[tuple[int, int]]:
    """Pairs of states that some continuation tells apart, by filling the table of pairs."""
    pairs = {(a, b) for a in range(len(dfa.steps)) for b in range(a)}
    apart = {(a, b) for a, b in pairs if (a in dfa.accepting) != (b in dfa.accepting)}
    while True:
        more = {
            (a, b)
            for a, b in pairs - apart
            if any(tuple(sorted((dfa.steps[a][c], dfa.steps[b][c]), reverse=True)) in apart for c in dfa.colors)
        }
        if not more:
            return apart
        apart |= more


def test_order_of_colours_does_not_matter_for_counts() -> None:
    family = FAMILIES["contains_count"]
    p = family.parameters("easy", "RBYG")[60]
    exact = "".join(color * n for color, n in p.counts)
    assert all(family.accepts(p, "".join(order)) for order in permutations(exact))
    assert not any(family.accepts(p, exact[:i] + exact[i + 1 :]) for i in range(len(exact)))


def test_unknown_difficulty_and_alphabet_are_errors() -> None:
    with pytest.raises(ValueError, match="no difficulty 'brutal'; it has easy, medium, hard"):
        FAMILIES["ends_with"].parameters("brutal", "RB")
    with pytest.raises(ValueError, match="no alphabet 'RY'"):
        FAMILIES["numerical_max_min"].parameters("hard", "RY")
    with pytest.raises(ValueError, match="no difficulty 'easy'; it has hard"):
        FAMILIES["regex_same_num"].parameters("easy", "RB")
