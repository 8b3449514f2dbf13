"""The prompt: same structure as the published one (arXiv 2509.21016), in our own words."""

from __future__ import annotations

from typing import Any

from gumption.problems.manufactoria.families import Family, Parameters

_OVERVIEW = """\
# Manufactoria

A machine stands at a conveyor with a tape of coloured marks. You write the program that drives it: a graph of nodes, \
through which the machine walks while it reads and writes the tape.

# How it works

- The tape is a row of colours: red (R), blue (B), yellow (Y), green (G). It may be empty.
- A puller looks at the front of the tape. It takes one of its two colours away and goes where that colour's route \
leads.
- A painter puts one colour at the back of the tape and goes on.
- The machine begins at `start`. It accepts the tape when it reaches `end`. It rejects the tape when a route leads to \
NONE, or when it has visited more than 1000 nodes.
"""

_GOALS = {
    False: """\
# Goal

Write one program that accepts every tape that the task asks to accept and rejects every other one. What is left on \
the tape does not matter.
""",
    True: """\
# Goal

Write one program that, for every tape, ends as the task says and leaves exactly the right tape behind: the colours \
that are left when it reaches `end` are its output and are checked.
""",
}

_LANGUAGE = """\
# Language

Beginning and end, one of each:

    START start:
        NEXT <node>

    END end

Pullers (red/blue, or yellow/green):

    PULLER_RB <name>:
        [R] <node>
        [B] <node>
        [EMPTY] <node>

    PULLER_YG <name>:
        [Y] <node>
        [G] <node>
        [EMPTY] <node>

A puller follows EMPTY when the tape is empty, and also when the front colour is not one of its two; it takes nothing \
then. A route that is left out leads to NONE.

Painters (PAINTER_RED, PAINTER_BLUE, PAINTER_YELLOW, PAINTER_GREEN):

    PAINTER_RED <name>:
        NEXT <node>

Rules:
- Every node begins with a line `TYPE name:`; only `END end` has no colon. Names are letters, digits and underscores, \
and no name is used twice.
- Routes are indented by four spaces.
- A route leads to the name of a node or to NONE.
- Lines that begin with # are comments.

# Example

This program accepts the tapes that begin with red:

```manufactoria
START start:
    NEXT look

PULLER_RB look:
    [R] end

END end
```
"""

_TASK = """\
# Task

Write a program in this language, in one code block, for the following.

{criterion}"""


def dsl_prompt(family: Family[Any], p: Parameters) -> str:
    """The text of the one user message of a problem.

    >>> from gumption.problems.manufactoria.families import get_family
    >>> family = get_family("starts_with")
    >>> dsl_prompt(family, family.parameters("easy", "RB")[1]).splitlines()[-1]
    'Accept exactly the tapes that begin with B. The input tape holds red and blue only.'
    """
    criterion = family.criterion(p)
    if p.colors == "RB":
        criterion += " The input tape holds red and blue only."
    return "\n".join((_OVERVIEW, _GOALS[family.output], _LANGUAGE, _TASK.format(criterion=criterion)))
