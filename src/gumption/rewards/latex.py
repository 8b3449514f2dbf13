r"""LaTeX answers as strings: one spelling for what looks the same, and answers changed on purpose."""

from __future__ import annotations

import re

_WORDS = re.compile(
    r"\\(?:text|textrm|textbf|textit|textnormal|mathrm|mathbf|mathit|mbox|operatorname|rm|bf|it)\s*\{([^{}]*)\}"
)
_SHORT_FRACTION = re.compile(r"\\frac\s*(?:(\d)\s*(\d)|(\d)\s*(\{)|\{([^{}]*)\}\s*(\d))")
_SHORT_ROOT = re.compile(r"\\sqrt\s*(\w)")
_SHORT_SCRIPT = re.compile(r"([_^])\{(\w)\}")
_SPACES = re.compile(r"\\[,;:! ]|\\quad|\\qquad|~|\\hspace\{[^{}]*\}")
_BLANKS_BETWEEN_DIGITS = re.compile(r"(?<=\d)\s+(?=\d)")
_CHOICE = re.compile(r"\(?([A-Za-z])\)?")
_WORD = re.compile(r"[A-Za-z][A-Za-z']{2,}")
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def canonical(latex: str) -> str:
    r"""A spelling that does not depend on blanks, fonts, \left, \dfrac or braces around one character.

    >>> canonical(r"\left( 3, \dfrac{\pi}{2} \right)") == canonical(r"(3,\frac{\pi}2)")
    True
    >>> canonical(r"\text{(C)}"), canonical(r"C"), canonical(r"\text{East}"), canonical("1 2") == canonical("12")
    ('C', 'C', 'east', False)
    """
    text = latex.strip().strip("$").strip()
    text = _BLANKS_BETWEEN_DIGITS.sub("\x00", text)  # 1 2 is not 12
    text = text.replace("\\left", "").replace("\\right", "").replace("\\displaystyle", "")
    text = text.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").replace("\\$", "").replace("{,}", ",")
    text = text.replace("−", "-").replace("\\le ", "\\leq ").replace("\\ge ", "\\geq ").replace("\\%", "%")
    text = re.sub(r"\^\s*\{?\s*\\circ\s*\}?|°", "", text)
    text = _SPACES.sub("", text)
    text = _WORDS.sub(r"\1", text)
    text = _SHORT_FRACTION.sub(_long_fraction, text)
    text = _SHORT_ROOT.sub(r"\\sqrt{\1}", text)
    text = _SHORT_SCRIPT.sub(r"\1\2", text)
    text = re.sub(r"\s+", "", text).rstrip(".")
    if match := _CHOICE.fullmatch(text):
        return match[1]
    return text.lower() if _WORD.fullmatch(text) else text


def _long_fraction(match: re.Match[str]) -> str:
    if match[1]:
        return f"\\frac{{{match[1]}}}{{{match[2]}}}"
    if match[3]:
        return f"\\frac{{{match[3]}}}{{"
    return f"\\frac{{{match[5]}}}{{{match[6]}}}"


def changed(answer: str) -> str:
    r"""Another answer that looks alike: its first number one larger, or another word, or one more.

    >>> changed("1,080"), changed(r"\frac{\pi}{2}"), changed(r"\text{(C)}"), changed("p - q"), changed("0.5")
    ('1081', '\\frac{\\pi}{3}', '\\text{(D)}', 'p - q + 1', '1.5')
    """
    if match := _NUMBER.search(answer):
        whole, dot, rest = match.group().rstrip(",").partition(".")
        tail = "," * (len(match.group()) - len(match.group().rstrip(",")))
        return f"{answer[: match.start()]}{int(whole.replace(',', '')) + 1}{dot}{rest}{tail}{answer[match.end() :]}"
    inner = canonical(answer)
    if len(inner) == 1 and inner.isalpha() and (position := _position(answer, inner)) is not None:
        letter = answer[position]
        other = chr(ord(letter) + 1) if letter not in "zZ" else chr(ord(letter) - 1)
        return answer[:position] + other + answer[position + 1 :]
    if _WORD.fullmatch(inner):
        return f"not {inner}"
    return f"{answer} + 1"


def _position(answer: str, letter: str) -> int | None:
    """Where the single letter of an answer stands, LaTeX commands aside."""
    plain = re.sub(r"\\[A-Za-z]+", lambda m: " " * len(m.group()), answer)
    found = [i for i, c in enumerate(plain) if c == letter]
    return found[0] if len(found) == 1 else None
