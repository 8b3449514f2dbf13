"""A compact notation of the language, one character a token, for the shipped tiny model.

    notation                              means
    P <red> <blue> <empty>                PULLER_RB with its three routes
    Q <yellow> <green> <empty>            PULLER_YG with its three routes
    R <next>, B <next>, Y <next>, G …     painter of that colour
    0 … 9, a … z                          node number 0, 1, …: its place in the text
    !                                     the end node
    -                                     NONE

A program is its nodes in a row; the machine enters at node 0 (the texts `!` and `-` are the programs without nodes).
Nothing is implied or left out: every text stands for one program of the real language, which the interpreter runs, and
every program that reaches at most 36 nodes and never leads back to START has a text.

    "P1--P-!-"        START start: NEXT n0      PULLER_RB n0: [R] n1      PULLER_RB n1: [B] end      END end
"""

from __future__ import annotations

from gumption.problems.manufactoria.dsl import COLORS, PAINTER_OF, DslError, Node, Program

LABELS = "0123456789abcdefghijklmnopqrstuvwxyz"
END, NONE = "!", "-"
_ROUTES = {"P": ("R", "B", "EMPTY"), "Q": ("Y", "G", "EMPTY"), **dict.fromkeys(COLORS, ("NEXT",))}
_KIND_OF = {"P": "PULLER_RB", "Q": "PULLER_YG", **PAINTER_OF}
_SIGN_OF = {kind: sign for sign, kind in _KIND_OF.items()}


def from_compact(text: str) -> Program:
    """The program that a compact text stands for; blanks are ignored.

    Raises:
        DslError: an unknown sign, a node cut short, or a route to a node that is not there.

    >>> from_compact("P1--P-!-").run("RBR").finished, from_compact("R1B!").run("").tape
    (True, 'RB')
    """
    signs = "".join(text.split())
    targets = {END: "end", NONE: "NONE"}
    if signs in targets:
        return Program([Node("START", "start", {"NEXT": targets[signs]}), Node("END", "end")])
    blocks: list[str] = []
    at = 0
    while at < len(signs):
        if signs[at] not in _ROUTES:
            raise DslError(f"expected a node (P, Q, R, B, Y or G) at position {at}, found {signs[at]!r}")
        size = 1 + len(_ROUTES[signs[at]])
        blocks.append(signs[at : at + size])
        at += size
    if not blocks:
        raise DslError("the program is empty")
    if len(blocks[-1]) != 1 + len(_ROUTES[blocks[-1][0]]):
        raise DslError(f"the last node {blocks[-1]!r} is cut short")
    targets |= {label: f"n{i}" for i, label in enumerate(LABELS[: len(blocks)])}
    nodes = [Node("START", "start", {"NEXT": "n0"})]
    for i, block in enumerate(blocks):
        if unknown := [sign for sign in block[1:] if sign not in targets]:
            raise DslError(f"node {i} ({block!r}) leads to {unknown[0]!r}, which is not a node")
        routes = {key: targets[sign] for key, sign in zip(_ROUTES[block[0]], block[1:], strict=True)}
        nodes.append(Node(_KIND_OF[block[0]], f"n{i}", routes))
    return Program([*nodes, Node("END", "end")])


def to_compact(program: Program) -> str:
    """The compact text of a program, nodes in the order in which a breadth-first search finds them.

    Nodes that cannot be reached are left out: they change no run. `from_compact` of the text ends every run as the
    program does, with the same tape after the same number of visits.

    Raises:
        ValueError: more than 36 nodes can be reached, or a route leads back to START.

    >>> to_compact(from_compact("Q0-! P0--")), to_compact(from_compact(" P 2 - - R ! B 0"))
    ('Q0-!', 'P1--B0')
    """
    by_id = {node.id: node for node in program.nodes}
    signs = {"end": END}
    order: list[Node] = []

    def sign(target: str) -> str:
        if target == "NONE" or target not in by_id:
            return NONE
        if target not in signs:
            if len(order) == len(LABELS):
                raise ValueError(f"the compact notation has room for {len(LABELS)} nodes")
            signs[target] = LABELS[len(order)]
            order.append(by_id[target])
        return signs[target]

    entry = sign(by_id["start"].routes["NEXT"])
    if entry in (END, NONE):
        return entry
    blocks = []
    for node in order:  # grows while it is walked through
        if node.kind == "START":
            raise ValueError("the compact notation has no route back to START")
        kind = _SIGN_OF[node.kind]
        blocks.append(kind + "".join(sign(node.routes.get(key, "NONE")) for key in _ROUTES[kind]))
    return "".join(blocks)
