"""Reference programs: one for every problem of every family, the gold of the tests.

Regular families are compiled from their minimal automaton. The others go round the tape: once to change or compare it,
or once per bit or per unit that is taken away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gumption.problems.manufactoria.automata import Dfa, compile_dfa, explore
from gumption.problems.manufactoria.dsl import Program
from gumption.problems.manufactoria.families import Parameters
from gumption.problems.manufactoria.families.binary import tape_of
from gumption.problems.manufactoria.families.contains_count import Counts
from gumption.problems.manufactoria.families.numerical_comparison import COMPARE, Comparison
from gumption.problems.manufactoria.families.numerical_max_min import Extreme
from gumption.problems.manufactoria.families.numerical_operations import Operation
from gumption.problems.manufactoria.families.prepend_sequence import Prepend
from gumption.problems.manufactoria.families.regex_pattern import Pattern
from gumption.problems.manufactoria.families.regex_same_num import TERMS, SameNumber
from gumption.problems.manufactoria.families.sequences import Sequence
from gumption.problems.manufactoria.machines import Builder, from_the_right, one_pass


def solve(family: str, p: Parameters) -> Program:
    """A correct program for one problem.

    Args:
        family: Name of the family.
        p: Its parameters.

    Raises:
        ValueError: no such family.

    >>> solve("ends_with", Sequence("RB", "RB")).run("BRB").finished
    True
    """
    if family in _AUTOMATA:
        return compile_dfa(_AUTOMATA[family](p))
    if family in _MACHINES:
        return _MACHINES[family](p)
    raise ValueError(f"no reference solution for a manufactoria family {family!r}")


def automaton(family: str, p: Parameters) -> Dfa | None:
    """The minimal automaton of a regular family's problem; None for the other families."""
    return _AUTOMATA[family](p) if family in _AUTOMATA else None


# ---------------------------------------------------------------------------------------------------------------------
# Regular families


def _overlap(text: str, state: int, color: str) -> int:
    """Longest prefix of `text` that ends here, after `state` colours of it and one more."""
    read = text[:state] + color
    return next(n for n in range(min(len(read), len(text)), -1, -1) if read.endswith(text[:n]))


def _starts_with(p: Sequence) -> Dfa:
    n = len(p.text)

    def step(s: int, c: str) -> int:
        return s if s in (n, -1) else s + 1 if p.text[s] == c else -1

    return explore(0, step, lambda s: s == n, p.colors)


def _exact(p: Sequence) -> Dfa:
    n = len(p.text)

    def step(s: int, c: str) -> int:
        return s + 1 if 0 <= s < n and p.text[s] == c else -1

    return explore(0, step, lambda s: s == n, p.colors)


def _ends_with(p: Sequence) -> Dfa:
    return explore(0, lambda s, c: _overlap(p.text, s, c), lambda s: s == len(p.text), p.colors)


def _substring(p: Sequence) -> Dfa:
    n = len(p.text)
    return explore(0, lambda s, c: n if s == n else _overlap(p.text, s, c), lambda s: s == n, p.colors)


def _ordered(p: Sequence) -> Dfa:
    n = len(p.text)
    return explore(0, lambda s, c: s + (s < n and p.text[s] == c), lambda s: s == n, p.colors)


def _count(p: Counts) -> Dfa:
    wanted = tuple(n for _, n in p.counts)

    def step(s: tuple[int, ...], c: str) -> tuple[int, ...]:
        return tuple(min(n, have + (c == color)) for have, (color, n) in zip(s, p.counts, strict=True))

    return explore((0,) * len(wanted), step, lambda s: s == wanted, p.colors)


def _regex(p: Pattern) -> Dfa:
    """Positions (part, letters of its base already read) that a match may be at; a set of them is a state."""

    def closure(position: tuple[int, int]) -> set[tuple[int, int]]:
        part, _ = position
        if position[1] or part == len(p.parts) or p.parts[part][1] == "+":
            return {position}
        return {position} | closure((part + 1, 0))

    def step(state: frozenset[tuple[int, int]], color: str) -> frozenset[tuple[int, int]]:
        after: set[tuple[int, int]] = set()
        for part, letter in state:
            if part == len(p.parts) or p.parts[part][0][letter] != color:
                continue
            base, operator = p.parts[part]
            if letter + 1 < len(base):
                after.add((part, letter + 1))
                continue
            after |= closure((part + 1, 0))
            if operator != "?":
                after.add((part, 0))
        return frozenset(after)

    end = (len(p.parts), 0)
    return explore(frozenset(closure((0, 0))), step, lambda s: end in s, p.colors)


def _comparison(p: Comparison) -> Dfa:
    top = p.threshold + 1

    def step(number: int, color: str) -> int:
        return min(top, 2 * number + (color == "B"))

    return explore(0, step, lambda number: COMPARE[p.op](number, p.threshold), p.colors)


_AUTOMATA: dict[str, Callable[[Any], Dfa]] = {
    "starts_with": _starts_with,
    "ends_with": _ends_with,
    "exact_sequence": _exact,
    "contains_substring": _substring,
    "contains_ordered": _ordered,
    "contains_count": _count,
    "regex_pattern": _regex,
    "numerical_comparison": _comparison,
}


# ---------------------------------------------------------------------------------------------------------------------
# Families that change the tape, or need several passes


def _append(p: Sequence) -> Program:
    b = Builder()
    return b.program(b.paint(p.text, "end"))


def _prepend(p: Prepend) -> Program:
    kind, old, new = p.mutation
    if kind == "replace":

        def step(held: str, c: str) -> tuple[str, str]:
            if held + c == old:
                return "", new
            return (c, held) if c == old[0] else ("", held + c)

        return one_pass("", step, lambda held: held, ("", old[0]), p.text)
    swap = dict(zip(old, old[::-1], strict=True)) if kind == "swap" else {} if kind == "keep" else {old: new}
    return one_pass(0, lambda s, c: (s, swap.get(c, c)), lambda s: "", (0,), p.text)


def _operation(p: Operation) -> Program:
    if p.op == "not":
        return _not()
    if p.op == "floor_divide":
        shift = p.operand.bit_length() - 1
        return from_the_right(0, lambda s, c: (s + 1, ""), lambda s: s == shift, lambda s: "", tuple(range(shift)))
    return _bit_by_bit(p)


def _bit_by_bit(p: Operation) -> Program:
    """A state is (bits of the operand not used yet, carry or borrow); −1 as carry: everything that follows is zeros."""

    def step(state: tuple[int, int], c: str) -> tuple[tuple[int, int], str]:
        rest, carry = state
        bit, own = rest & 1, int(c == "B")
        if p.op in ("add", "subtract"):
            total = own + bit + carry if p.op == "add" else own - bit - carry
            return (rest >> 1, int(total > 1 or total < 0)), "RB"[total & 1]
        result = own & bit if p.op == "and" else own | bit if p.op == "or" else own ^ bit
        return (rest >> 1, 0), "RB"[result]

    def is_done(state: tuple[int, int]) -> bool:
        return state == (0, 0) and p.op != "and"

    def finish(state: tuple[int, int]) -> str | None:
        rest, carry = state
        if p.op == "subtract":
            return None if rest + carry else ""
        return "" if p.op == "and" else tape_of(rest + carry)

    carries = (0, 1) if p.op in ("add", "subtract") else (0,)
    states = [(p.operand >> k, carry) for k in range(p.operand.bit_length() + 1) for carry in carries]
    return from_the_right((p.operand, 0), step, is_done, finish, [s for s in states if not is_done(s)])


def _not() -> Program:
    """Drop leading zeros, flip while counting to eight, put the missing ones in front."""
    b = Builder()
    strip = b.strip_zeros()
    count = [b.reserve() for _ in range(9)]
    for n, name in enumerate(count):
        # The tape is `unread G flipped`; behind the eighth bit the rest is only flipped.
        missing = b.paint("Y" + "B" * (8 - n), b.rotate("Y", strip)) if n < 8 else strip
        after = count[min(8, n + 1)]
        routes = {"R": b.paint("B", after), "B": b.paint("R", after)}
        b.pull("RB", {**routes, "EMPTY": b.pull("YG", {"G": missing})}, name)
    skip = b.reserve()
    first = b.paint("R", count[1])
    zero = b.pull("YG", {"G": b.paint("B" * 8, "end")})
    b.pull("RB", {"R": skip, "B": first, "EMPTY": zero}, skip)
    return b.program(b.paint("G", skip))


def _extreme(p: Extreme) -> Program:
    """One pass drops leading zeros and compares (a state: bits read, sign so far); then keep the tape or replace it."""
    constant = tape_of(p.constant)
    width = len(constant)
    b = Builder()
    replace = b.erase("", b.paint(constant, "end"))
    states = [(0, 0), *((n, sign) for n in range(1, width + 1) for sign in (-1, 0, 1)), (width + 1, 1)]
    entry = {state: b.reserve() for state in states}
    for n, sign in states:
        routes = {}
        for c in "RB":
            if n >= width:
                after = (width + 1, 1)
            else:
                after = (n + 1, sign or (c == "B") - (constant[n] == "B"))
            routes[c] = b.paint(c, entry[after]) if n or c == "B" else entry[0, sign]
        order = -1 if n < width else sign
        keep = order >= 0 if p.op == "max" else order <= 0
        b.pull("RB", {**routes, "EMPTY": b.pull("YG", {"G": "end" if keep else replace})}, entry[n, sign])
    return b.program(b.paint("G", entry[0, 0]))


def _same_number(p: SameNumber) -> Program:
    """Take n's share of every block in each pass; accept when all blocks run out in the same pass.

    The first pass also checks the order of the blocks, takes the constants and puts Y between the blocks.
    """
    b = Builder()
    again = b.reserve()
    b.paint("G", _take_shares(b, p, again), again)
    then = ""
    for i in range(len(p.blocks) - 1, -1, -1):
        color, term = p.blocks[i]
        factor, constant = TERMS[term]
        move = b.reserve()
        routes = {color: b.paint(color, move)}
        if then:
            routes[p.blocks[i + 1][0]] = b.paint("Y", then)
        else:
            routes["EMPTY"] = b.pull("YG", {"G": again})
        b.pull("RB", routes, move)
        then = move
        for k, kept in enumerate([color] * factor + [""] * constant):
            if k:
                then = b.pull("RB", {color: then})
            then = b.paint(kept, then)
    return b.program(b.paint("G", b.pull("RB", {p.blocks[0][0]: then})))


def _take_shares(b: Builder, p: SameNumber, again: str) -> str:
    """A pass over `block Y block … G`: all blocks are empty (accept), or each gives n's share."""
    empty, take = "end", again
    for i in range(len(p.blocks) - 1, -1, -1):
        color, term = p.blocks[i]
        marker = "G" if i == len(p.blocks) - 1 else "Y"
        kept = "" if marker == "G" else "Y"
        gone = b.pull("YG", {marker: empty})
        move = b.reserve()
        b.pull("RB", {color: b.paint(color, move), "EMPTY": b.pull("YG", {marker: b.paint(kept, take)})}, move)
        for _ in range(TERMS[term][0] - 1):
            move = b.pull("RB", {color: move})
        take = b.pull("RB", {color: move} | ({} if i else {"EMPTY": gone}))
        empty = b.pull("RB", {"EMPTY": gone})
    return take


_MACHINES: dict[str, Callable[[Any], Program]] = {
    "append_sequence": _append,
    "prepend_sequence": _prepend,
    "numerical_operations": _operation,
    "numerical_max_min": _extreme,
    "regex_same_num": _same_number,
}
