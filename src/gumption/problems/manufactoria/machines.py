"""Building blocks for programs that go round the tape several times: the reference solutions of the other families.

Two-colour tapes leave yellow and green free as markers. A pass paints a green marker at the back, moves everything in
front of it to the back while it looks at it, and ends when it takes the marker: about two visits per colour.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from gumption.problems.manufactoria.dsl import PAINTER_OF, Node, Program

S = TypeVar("S", bound=Hashable)


class Builder:
    """Collects nodes; every method takes the ids of what comes next and returns the id to enter at."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}

    def fresh(self) -> str:
        """An unused id."""
        return f"n{len(self._nodes)}"

    def reserve(self) -> str:
        """An id for a node that is defined later (for loops)."""
        name = self.fresh()
        self._nodes[name] = Node("END", name)
        return name

    def pull(self, pair: str, routes: dict[str, str], name: str | None = None) -> str:
        """A puller of "RB" or "YG"; missing routes reject."""
        name = name or self.fresh()
        self._nodes[name] = Node("PULLER_RB" if pair == "RB" else "PULLER_YG", name, routes)
        return name

    def paint(self, colors: str, then: str, name: str | None = None) -> str:
        """A row of painters, first colour first; "" leads straight to `then`. `name` is the id of the first one."""
        for i, color in reversed(list(enumerate(colors))):
            own = name if name and i == 0 else self.fresh()
            self._nodes[own] = Node(PAINTER_OF[color], own, {"NEXT": then})
            then = own
        return then

    def rotate(self, marker: str, then: str) -> str:
        """Move red and blue to the back until `marker` ("Y" or "G") has been taken."""
        loop = self.reserve()
        mark = self.pull("YG", {marker: then})
        return self.pull("RB", {"R": self.paint("R", loop), "B": self.paint("B", loop), "EMPTY": mark}, loop)

    def erase(self, marker: str, then: str) -> str:
        """Take red and blue away until `marker` has been taken; with "" until the tape is empty."""
        loop = self.reserve()
        last = self.pull("YG", {marker: then}) if marker else then
        return self.pull("RB", {"R": loop, "B": loop, "EMPTY": last}, loop)

    def strip_zeros(self) -> str:
        """Take leading reds away and end; the tape is a canonical number then."""
        loop = self.reserve()
        rest = self.paint("GB", self.rotate("G", "end"))
        return self.pull("RB", {"R": loop, "B": rest, "EMPTY": "end"}, loop)

    def program(self, first: str) -> Program:
        """Everything that was built, entered at `first`."""
        return Program([Node("START", "start", {"NEXT": first}), *self._nodes.values(), Node("END", "end")])


def from_the_right(
    start: S,
    step: Callable[[S, str], tuple[S, str]],
    is_done: Callable[[S], bool],
    finish: Callable[[S], str | None],
    states: Sequence[S],
) -> Program:
    """A transducer that reads a two-colour number from its last bit, one pass per bit; leading zeros are dropped.

    Tape before each pass: bits that are not read yet, Y, bits that are written. A pass finds the last unread bit by
    holding one bit back.

    Args:
        start: First state.
        step: (state, colour read) → (next state, colours written in its place).
        is_done: From this state on every bit stays as it is.
        finish: Colours to put in front when all bits are read (None: the result is 0).
        states: All states that are not done.
    """
    b = Builder()
    strip = b.strip_zeros()
    done = b.paint("G", _close(b, strip))
    entry = {state: b.reserve() for state in states}

    def enter(state: S) -> str:
        return done if is_done(state) else entry[state]

    for state in states:
        hold = {c: b.reserve() for c in "RB"}
        for c in "RB":
            after, written = step(state, c)
            out = b.paint("Y" + written, b.rotate("G", enter(after)))
            routes = {d: b.paint(c, hold[d]) for d in "RB"}
            b.pull("RB", {**routes, "EMPTY": b.pull("YG", {"Y": out})}, hold[c])
        front = finish(state)
        # All bits are read: Y stands first. What is put in front goes behind the green marker of this pass.
        last = b.erase("G", "end") if front is None else b.paint(front, b.rotate("G", strip))
        first = b.pull("RB", {**hold, "EMPTY": b.pull("YG", {"Y": last})})
        b.paint("G", first, entry[state])
    return b.program(b.paint("Y", enter(start)))


def _close(b: Builder, then: str) -> str:
    """Take the Y out of `unread Y written G`, leaving `unread written`."""
    return b.rotate("Y", b.rotate("G", then))


def one_pass(
    start: S,
    step: Callable[[S, str], tuple[S, str]],
    finish: Callable[[S], str],
    states: Sequence[S],
    before: str = "",
) -> Program:
    """A transducer that reads a two-colour tape once from the left and leaves `before` + what it wrote.

    Args:
        start: First state.
        step: (state, colour read) → (next state, colours written).
        finish: Colours written at the end.
        states: All states.
        before: Colours that stand in front of the result.
    """
    b = Builder()
    entry = {state: b.reserve() for state in states}
    for state in states:
        routes = {}
        for c in "RB":
            after, written = step(state, c)
            routes[c] = b.paint(written, entry[after])
        b.pull("RB", {**routes, "EMPTY": b.pull("YG", {"G": b.paint(finish(state), "end")})}, entry[state])
    return b.program(b.paint("G" + before, entry[start]))
