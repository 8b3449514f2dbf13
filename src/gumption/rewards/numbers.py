r"""Plain numbers and boxed answers in what models write: exact, without sympy, about linear in the length of the text.

Read as numbers: 1,080 · $18.00 · \$1{,}080 · 3/4 · \frac34 · −5 · 72 dollars · 5\text{ cm}^2 · 30^\circ · 50\%.
Units are dropped. Words that change the value (million, dozen, pi, …) make a text no plain number.
"""

from __future__ import annotations

import re
from collections import deque
from fractions import Fraction
from typing import NamedTuple

MAX_LENGTH = 200
"""Longer texts are no plain numbers."""
_MAX_BOXES = 16  # candidates looked at from the end, so that a text full of "\boxed{" costs no more than a few scans


class PlainNumber(NamedTuple):
    """An exact value, and whether a percent sign stood behind it (its value is then 50 for 50 %)."""

    value: Fraction
    percent: bool = False


_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?:(?P<brace>\{)|(?P<token>-?\d[\d.,]*\d|-?\d|[A-Za-z]))")


def last_boxed(text: str) -> str | None:
    r"""Content of the last complete `\boxed{…}` (braces balanced), or `None`.

    >>> last_boxed(r"so \boxed{\frac{1}{2}} or \boxed{3"), last_boxed(r"\boxed 7."), last_boxed("7")
    ('\\frac{1}{2}', '7', None)
    """
    end = len(text)
    for _ in range(_MAX_BOXES):
        start = max(text.rfind("\\boxed", 0, end), text.rfind("\\fbox", 0, end))
        if start < 0:
            return None
        match = _BOX.match(text, start)
        if match is not None:
            content = match["token"] if match["token"] else _braced(text, match.end())
            if content is not None and content.strip():
                return content.strip()
        end = start
    return None


def _braced(text: str, start: int) -> str | None:
    """Text up to the brace that closes the one before `start`."""
    depth = 1
    for i in range(start, len(text)):
        if text[i] in "{}" and text[i - 1] != "\\":
            depth += 1 if text[i] == "{" else -1
            if depth == 0:
                return text[start:i]
    return None


_DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
_IN_TEXT = re.compile(
    # A minus is a sign only where nothing stands before it that it could be subtracted from: 10-4 ends in 4.
    rf"(?:(?<![\w)\]}}.])[-−])?\\?[$€£]?(?<![A-Za-z0-9_.])[-−]?(?:{_DIGITS})(?:\s?/\s?(?:{_DIGITS}))?"
    r"|(?:(?<![\w)\]}.])[-−])?\\[dt]?frac\s*\{-?\d+\}\s*\{-?\d+\}",
    re.ASCII,
)


def last_number(text: str) -> PlainNumber | None:
    r"""The last number in a text, or `None`.

    >>> last_number("10 - 4 = 6 apples, so $1,006.50.").value, last_number("from 3 to -2").value
    (Fraction(2013, 2), Fraction(-2, 1))
    >>> last_number("none at all") is None, last_number("10-4").value, last_number("x = 3/4").value
    (True, Fraction(4, 1), Fraction(3, 4))
    """
    matches = deque(_IN_TEXT.finditer(text), maxlen=1)
    if not matches:
        return None
    last = matches[0].group()
    return plain_number(last) or plain_number(last.rpartition("/")[2])  # 5/0: what stands behind the bar


_GROUPS = re.compile(r",\\!\s*")  # 11,\! 111 as some solutions write thousands
_NOISE = re.compile(r"\\[!,;: ]|\\left|\\right|\\quad|\^\s*\{?\s*\\circ\s*\}?|°|~")
_PERCENT = re.compile(r"\s*(?:\\?%|percent)$")
_UNIT_TEXT = re.compile(
    r"\s*\\(?:text|textrm|textbf|textit|mathrm|mathit|mbox|operatorname|rm)\s*\{\s*([A-Za-z][A-Za-z ./]*)\}"
    r"(?:\s*\^\s*\{?\s*[23]\s*\}?)?$"
)
_UNIT_WORD = re.compile(r"(?<=[\d\s}])\s*((?:[A-Za-z]{2,}\.?)(?:[ /-][A-Za-z.]{2,}){0,3})$")
_SCALES = re.compile(
    r"\b(?:hundreds?|thousands?|[mbtr]*illions?|millions?|dozens?|percent|pi|sqrt|times|plus|minus|or|and|to|over|half|"
    r"halves|quarters?|thirds?|log|ln|sin|cos|tan|mod|choose)\b",
    re.IGNORECASE,
)
_PLAIN = re.compile(rf"([+-]?)\s*[$€£]?\s*([+-]?)\s*({_DIGITS})\s*[$€£]?", re.ASCII)
_FRACTION = re.compile(
    r"([+-]?)\s*\\[dt]?frac\s*(?:\{\s*(-?\d+)\s*\}|(\d))\s*(?:\{\s*(-?\d+)\s*\}|(\d))"
    rf"|[$€£]?([+-]?)\s*({_DIGITS})\s*/\s*({_DIGITS})",
    re.ASCII,
)


def plain_number(text: str) -> PlainNumber | None:
    r"""The number that a text is, with its dress taken off; `None` if it is anything else.

    >>> [str(plain_number(t).value) for t in (r"\$1{,}080", "72 dollars", r"5\text{ cm}^2", r"-\frac34", "18.00")]
    ['1080', '72', '5', '-3/4', '18']
    >>> [plain_number(t) for t in ("2 million", "5 or 6", "3x", "12,34", "")]
    [None, None, None, None, None]
    """
    if len(text) > MAX_LENGTH:
        return None
    text = text.strip().replace("{,}", ",").replace("\\$", "$").replace("−", "-").replace("\\%", "%")
    for opening, closing in (("\\(", "\\)"), ("\\[", "\\]"), ("$", "$")):
        if text.startswith(opening) and text.endswith(closing) and len(text) > len(opening + closing):
            text = text[len(opening) : -len(closing)]
    text = _NOISE.sub("", _GROUPS.sub(",", text)).strip().rstrip(".").strip()
    text, percent = _PERCENT.subn("", text)
    text = text.strip()
    for pattern in (_UNIT_TEXT, _UNIT_WORD):
        match = pattern.search(text)
        if match is not None:
            if _SCALES.search(match[1]):
                return None
            text = text[: match.start()].strip()
    if (match := _PLAIN.fullmatch(text)) and not (match[1] and match[2]):
        value = Fraction(match[3].replace(",", ""))
        return PlainNumber(-value if "-" in (match[1], match[2]) else value, bool(percent))
    if match := _FRACTION.fullmatch(text):
        upper, lower = match[2] or match[3] or match[7], match[4] or match[5] or match[8]
        bottom = Fraction(lower.replace(",", ""))
        if bottom == 0:
            return None
        value = Fraction(upper.replace(",", "")) / bottom
        return PlainNumber(-value if "-" in (match[1] or "", match[6] or "") else value, bool(percent))
    return None


def equal(gold: PlainNumber, answer: PlainNumber) -> bool | None:
    """Are two plain numbers the same? `None`: too close to call without rounding rules.

    A percent sign on one side only is forgiven whichever way it was meant: 50 % for 50 and for 0.5.

    >>> a, b, c = (PlainNumber(Fraction(x)) for x in ("1/2", "0.5", "0.500001"))
    >>> equal(a, b), equal(a, c), equal(a, PlainNumber(Fraction(50), percent=True)), equal(a, PlainNumber(Fraction(1)))
    (True, None, True, False)
    """
    if gold.value == answer.value:
        return True
    if gold.percent != answer.percent:
        whole, part = (gold.value, answer.value) if gold.percent else (answer.value, gold.value)
        if whole == 100 * part:
            return True
    if gold.value.denominator == answer.value.denominator == 1:
        return False
    if abs(gold.value - answer.value) > Fraction(1, 10_000) * max(Fraction(1), abs(gold.value)):
        return False
    return None
