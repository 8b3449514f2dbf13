"""Finite automata, and their translation into programs: the reference solutions of the regular families."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from gumption.problems.manufactoria.dsl import Node, Program

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True)
class Dfa:
    """States 0 … n − 1, start state 0; `steps[state][color]` is total."""

    colors: str
    steps: tuple[Mapping[str, int], ...]
    accepting: frozenset[int]

    def accepts(self, tape: str) -> bool:
        """Run the automaton."""
        state = 0
        for color in tape:
            state = self.steps[state][color]
        return state in self.accepting

    def final(self, state: int) -> bool | None:
        """True or False where every continuation is accepted or rejected, else None (minimal automata only)."""
        if any(target != state for target in self.steps[state].values()):
            return None
        return state in self.accepting


def explore(start: S, step: Callable[[S, str], S], accepting: Callable[[S], bool], colors: str) -> Dfa:
    """The minimal automaton of a step function over any hashable states.

    >>> even = explore(0, lambda s, c: s ^ (c == "R"), lambda s: s == 0, "RB")
    >>> len(even.steps), even.accepts("RBR"), even.accepts("R")
    (2, True, False)
    """
    index = {start: 0}
    order = [start]
    steps: list[dict[str, int]] = []
    for state in order:
        row = {}
        for color in colors:
            target = step(state, color)
            if target not in index:
                index[target] = len(order)
                order.append(target)
            row[color] = index[target]
        steps.append(row)
    return _minimal(Dfa(colors, tuple(steps), frozenset(i for i, s in enumerate(order) if accepting(s))))


def _minimal(dfa: Dfa) -> Dfa:
    """Merge states that no continuation tells apart (Moore); number them in the order of a first visit."""
    block = [int(i in dfa.accepting) for i in range(len(dfa.steps))]
    while True:
        names: dict[tuple[int, ...], int] = {}
        finer = []
        for i, row in enumerate(dfa.steps):
            signature = (block[i], *(block[row[c]] for c in dfa.colors))
            finer.append(names.setdefault(signature, len(names)))
        if len(names) == len(set(block)):
            break
        block = finer
    member: dict[int, int] = {}
    for i, b in enumerate(block):
        member.setdefault(b, i)
    number = {block[0]: 0}
    queue = [block[0]]
    steps = []
    for b in queue:
        row = {}
        for c in dfa.colors:
            target = block[dfa.steps[member[b]][c]]
            if target not in number:
                number[target] = len(queue)
                queue.append(target)
            row[c] = number[target]
        steps.append(row)
    return Dfa(dfa.colors, tuple(steps), frozenset(number[b] for b in queue if member[b] in dfa.accepting))


def compile_dfa(dfa: Dfa) -> Program:
    """One puller per state; four colours take two, the second on EMPTY of the first.

    States from which everything is accepted become `end`, those from which nothing is become NONE. An empty tape in an
    accepting state goes to `end`.

    >>> ends = explore(0, lambda s, c: int(c == "B"), bool, "RB")
    >>> program = compile_dfa(ends)
    >>> program.run("RB").finished, program.run("BR").finished, len(program.nodes)
    (True, False, 4)
    """

    def target(state: int) -> str:
        decided = dfa.final(state)
        return f"s{state}" if decided is None else "end" if decided else "NONE"

    nodes = [Node("START", "start", {"NEXT": target(0)})]
    for state, row in enumerate(dfa.steps):
        if dfa.final(state) is not None:
            continue
        empty = {"EMPTY": "end"} if state in dfa.accepting else {}
        routes = {c: target(row[c]) for c in dfa.colors if target(row[c]) != "NONE"}
        red_blue = {c: t for c, t in routes.items() if c in "RB"}
        if dfa.colors == "RB":
            nodes.append(Node("PULLER_RB", f"s{state}", red_blue | empty))
            continue
        yellow_green = {c: t for c, t in routes.items() if c in "YG"}
        nodes.append(Node("PULLER_RB", f"s{state}", red_blue | {"EMPTY": f"t{state}"}))
        nodes.append(Node("PULLER_YG", f"t{state}", yellow_green | empty))
    nodes.append(Node("END", "end"))
    return Program(nodes)
