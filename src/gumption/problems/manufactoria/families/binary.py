"""Numbers on the tape: blue is 1, red is 0, most significant bit first, the empty tape is 0."""

from __future__ import annotations


def value(tape: str) -> int:
    """The number on a tape; leading zeros are allowed.

    >>> value("RBBR"), value("")
    (6, 0)
    """
    return int(tape.replace("B", "1").replace("R", "0"), 2) if tape else 0


def tape_of(number: int) -> str:
    """The canonical tape of a number: no leading zeros; empty for 0 and below.

    >>> tape_of(6), tape_of(0), tape_of(-3)
    ('BBR', '', '')
    """
    return f"{number:b}".replace("1", "B").replace("0", "R") if number > 0 else ""


BASIC = ("R", "B", "RB", "BR", "RRB", "BBR", "RBRB")
"""Short strings that every numeric family is tested on, with leading zeros among them."""

LONG = (
    "BRRRRRR",  # 64
    "BRRRRRRR",  # 128
    "BRRRRRRRR",  # 256
    "BRBRBRBR",  # 170
    "RBRBRBRB",  # 85 with a leading zero
    "BBBBBBBB",  # 255
    "RRBBBBBB",  # 63 with leading zeros
    "RRRRBRRB",  # 9 with leading zeros
    "BBRRBBRRBB",  # 819
    "RBBBRRRBBB",  # 455 with a leading zero
)
"""Ten longer strings, some with leading zeros."""
