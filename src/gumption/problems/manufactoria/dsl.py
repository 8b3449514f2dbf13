"""The Manufactoria language: parser and interpreter.

A program is a finite graph of nodes over one tape, a queue of colours R, B, Y, G. *Pullers* take colours from the
front, *painters* append them to the back; a program accepts its input when it reaches its `end` node, and what is left
on the tape is its output. Source of the rules: arXiv 2509.21016 (DELTA); grammar and verdicts follow its public
verifier, letter by letter.

    START start:
        NEXT look
    PULLER_RB look:
        [R] end
    END end
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

COLORS = "RBYG"
COLOR_NAMES = {"R": "RED", "B": "BLUE", "Y": "YELLOW", "G": "GREEN"}
VISIT_LIMIT = 1000
"""Nodes that one run may visit, `start` and `end` included."""

Kind: TypeAlias = Literal[
    "START", "END", "PULLER_RB", "PULLER_YG", "PAINTER_RED", "PAINTER_BLUE", "PAINTER_YELLOW", "PAINTER_GREEN"
]
PAINTER_OF: dict[str, Kind] = {
    "R": "PAINTER_RED", "B": "PAINTER_BLUE", "Y": "PAINTER_YELLOW", "G": "PAINTER_GREEN",
}  # fmt: skip
_PAINTED = {kind: color for color, kind in PAINTER_OF.items()}
_PULLED = {"PULLER_RB": "RB", "PULLER_YG": "YG"}

_DECLARATION = re.compile(
    r"(?P<kind>START|END|PULLER_RB|PULLER_YG|PAINTER_(?:RED|BLUE|YELLOW|GREEN))\s+(?P<id>\w+)\s*(?P<colon>:?)\s*(?:#.*)?"
)
_PULLER_ROUTE = re.compile(r"\[(?P<key>R|B|Y|G|EMPTY)\]\s+(?P<target>\w+)\s*(?:#.*)?")
_NEXT_ROUTE = re.compile(r"(?P<key>NEXT)\s+(?P<target>\w+)\s*(?:#.*)?")


class DslError(ValueError):
    """A text that is not a Manufactoria program."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node: its routes map a colour, `EMPTY` or `NEXT` to a node id or `NONE`."""

    kind: Kind
    id: str
    routes: Mapping[str, str] = field(default_factory=dict)


class Outcome(NamedTuple):
    """How a run ended: `finished` (reached `end`), the tape that was left, nodes visited, and why it stopped."""

    finished: bool
    tape: str
    visits: int
    reason: Literal["end", "none", "unknown_node", "visit_limit"]


_Step: TypeAlias = tuple[int, str, str, int, int, int]
"""(operation, first colour, second colour, target on first, target on second, target otherwise)"""
_PULL, _PAINT, _JUMP, _END = range(4)
_NONE, _UNKNOWN = -1, -2


class Program:
    r"""A parsed program, compiled to a table of steps.

    >>> p = parse("START start:\n    NEXT a\nPULLER_RB a:\n    [R] end\nEND end")
    >>> p.run("RBB"), p.run("BR").reason
    (Outcome(finished=True, tape='BB', visits=3, reason='end'), 'none')
    """

    __slots__ = ("_start", "_steps", "nodes")

    def __init__(self, nodes: Iterable[Node]) -> None:
        """Check the rules that concern the whole program and compile it.

        Raises:
            DslError: a duplicate id, not exactly one START and END, an undefined target, or wrong routes of a node.
        """
        self.nodes: tuple[Node, ...] = tuple(nodes)
        if not self.nodes:
            raise DslError("the program is empty")
        index: dict[str, int] = {}
        for position, node in enumerate(self.nodes):
            if node.id in index:
                raise DslError(f"duplicate node id {node.id!r}")
            index[node.id] = position
        for kind, name in (("START", "start"), ("END", "end")):
            ids = [node.id for node in self.nodes if node.kind == kind]
            if ids != [name]:
                raise DslError(f"needs exactly one {kind} node, named {name!r}; found {ids or 'none'}")
        for node in self.nodes:
            _check_routes(node, index)
        self._start = index["start"]
        self._steps: list[_Step] = [_compile(node, index) for node in self.nodes]

    def run(self, tape: str, limit: int = VISIT_LIMIT) -> Outcome:
        """Run on one input.

        A puller takes the front colour if it is one of its two and follows that route; an empty tape or a colour of
        the other pair follows EMPTY and takes nothing. Routes that are not given lead to NONE, which rejects. More than
        `limit` visits reject too.

        Args:
            tape: Colours, front first. Letters other than R, B, Y, G are colours that no puller takes.
            limit: Largest number of visited nodes, `start` and `end` included.
        """
        steps, cells, head, visits, at = self._steps, list(tape), 0, 0, self._start
        while at >= 0:
            if visits == limit:
                return Outcome(False, "".join(cells[head:]), visits, "visit_limit")
            visits += 1
            operation, first, second, on_first, on_second, other = steps[at]
            if operation == _PULL:
                front = cells[head] if head < len(cells) else ""
                if front == first:
                    head += 1
                    at = on_first
                elif front == second:
                    head += 1
                    at = on_second
                else:
                    at = other
            elif operation == _PAINT:
                cells.append(first)
                at = other
            elif operation == _JUMP:
                at = other
            else:
                return Outcome(True, "".join(cells[head:]), visits, "end")
        return Outcome(False, "".join(cells[head:]), visits, "none" if at == _NONE else "unknown_node")

    def to_text(self) -> str:
        r"""The program in the language; `parse(p.to_text())` behaves the same on every input.

        >>> print(parse("START start:\n\tNEXT end # go\nEND end").to_text())
        START start:
            NEXT end
        END end
        """
        lines: list[str] = []
        for node in self.nodes:
            lines.append(f"{node.kind} {node.id}" + ("" if node.kind == "END" else ":"))
            for key, target in node.routes.items():
                lines.append(f"    {key if key == 'NEXT' else f'[{key}]'} {target}")
        return "\n".join(lines)


def parse(text: str) -> Program:
    r"""Read a program.

    Comment lines, blank lines and a first or last line of three backticks are dropped. A line that starts with a tab
    or four spaces is a route of the node above it; any other line declares a node.

    Args:
        text: The program.

    Raises:
        DslError: anything that the grammar does not allow; the message names the line.

    >>> parse("START start:\n  NEXT end\nEND end")
    Traceback (most recent call last):
        ...
    gumption.problems.manufactoria.dsl.DslError: not a node declaration: 'NEXT end'
    """
    lines = text.strip().split("\n")
    if lines and lines[0].strip() == "```":
        lines = lines[1:]
    if lines and lines[-1].strip() == "```":
        lines = lines[:-1]
    declared: list[tuple[Kind, str]] = []
    routes: list[dict[str, str]] = []
    for line in lines:
        content = line.strip()
        if not content or content.startswith("#"):
            continue
        if line.startswith(("    ", "\t")):
            if not declared:
                raise DslError(f"a route before any node: {content!r}")
            key, target = _route(declared[-1][0], content)
            count = len(routes[-1])
            routes[-1].setdefault(key, target)  # the first of two equal routes wins
            if key == "NEXT" and count:
                raise DslError(f"{declared[-1][0]} {declared[-1][1]} has two NEXT routes")
        else:
            declared.append(_declaration(content))
            routes.append({})
    return Program(Node(kind, name, own) for (kind, name), own in zip(declared, routes, strict=True))


def _declaration(content: str) -> tuple[Kind, str]:
    match = _DECLARATION.fullmatch(content)
    if match is None:
        raise DslError(f"not a node declaration: {content!r}")
    kind: Kind = match["kind"]  # type: ignore[assignment]
    if (kind == "END") == bool(match["colon"]):
        raise DslError(f"END takes no colon: {content!r}" if kind == "END" else f"missing colon: {content!r}")
    return kind, match["id"]


def _route(kind: Kind, content: str) -> tuple[str, str]:
    match = (_PULLER_ROUTE if kind in _PULLED else _NEXT_ROUTE).fullmatch(content)
    if match is None or kind == "END":
        raise DslError(f"not a route of {kind}: {content!r}")
    return match["key"], match["target"]


def _check_routes(node: Node, index: Mapping[str, int]) -> None:
    allowed: Sequence[str]
    if node.kind in _PULLED:
        allowed = (*_PULLED[node.kind], "EMPTY")
    else:
        allowed = () if node.kind == "END" else ("NEXT",)
        if len(node.routes) != len(allowed):
            raise DslError(f"{node.kind} {node.id} needs exactly {len(allowed)} route(s), has {len(node.routes)}")
    for key, target in node.routes.items():
        if key not in allowed:
            raise DslError(f"{node.kind} {node.id} cannot have a route {key!r}")
        # An uppercase END passes the published check and then names a node that is not there.
        if target not in index and target not in ("NONE", "END"):
            raise DslError(f"{node.kind} {node.id} leads to {target!r}, which is not defined")


def _compile(node: Node, index: Mapping[str, int]) -> _Step:
    def at(key: str) -> int:
        target = node.routes.get(key, "NONE")
        return _NONE if target == "NONE" else index.get(target, _UNKNOWN)

    if node.kind in _PULLED:
        first, second = tuple(_PULLED[node.kind])
        return (_PULL, first, second, at(first), at(second), at("EMPTY"))
    if node.kind in _PAINTED:
        return (_PAINT, _PAINTED[node.kind], "", _NONE, _NONE, at("NEXT"))
    if node.kind == "START":
        return (_JUMP, "", "", _NONE, _NONE, at("NEXT"))
    return (_END, "", "", _NONE, _NONE, _NONE)
