"""Line figures as small SVG files, without a plotting package: the figures of the docs are text that git can compare.

Colours are those of `gumption.report.style` (Okabe and Ito); labels stand at their lines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

INK, MUTED, GRID = "#1f2933", "#6b7684", "#e8ebef"
BLUE, RED, GREEN, PURPLE, ORANGE = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"
FONT = "system-ui, -apple-system, Segoe UI, Helvetica Neue, Arial, sans-serif"
HEIGHT, LEFT, TOP, BOTTOM = 300, 58, 40, 50


class Panel:
    """One set of axes.

    Args:
        title: Above the panel.
        x: Lowest and highest x; `y` likewise.
        x_ticks: Where x is labelled; `y_ticks` likewise.
        x_label: Below the axis.
        log_x: Logarithmic x; `log_y` likewise.
    """

    def __init__(
        self, title: str, x: tuple[float, float], y: tuple[float, float], x_ticks: Sequence[float],
        y_ticks: Sequence[float], x_label: str, *, log_x: bool = False, log_y: bool = False, width: int = 400,
    ) -> None:  # fmt: skip
        self.x, self.y, self.log_x, self.log_y, self.width = x, y, log_x, log_y, width
        self.parts = [_text(LEFT, 20, title, INK, 14, weight=600)]
        for tick in y_ticks:
            at = self.place(x[0], tick)[1]
            self.parts.append(f'<path d="M{LEFT} {at:.1f}H{width - 14}" stroke="{GRID}"/>')
            self.parts.append(_text(LEFT - 8, at + 4, _number(tick), MUTED, 12, "end"))
        floor = HEIGHT - BOTTOM
        self.parts.append(f'<path d="M{LEFT} {floor}H{width - 14}" stroke="{MUTED}"/>')
        for tick in x_ticks:
            at = self.place(tick, y[0])[0]
            self.parts.append(f'<path d="M{at:.1f} {floor}v4" stroke="{MUTED}"/>')
            self.parts.append(_text(at, floor + 18, _number(tick), MUTED, 12, "middle"))
        self.parts.append(_text((LEFT + width - 14) / 2, floor + 38, x_label, MUTED, 12, "middle"))

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Pixels of a point."""
        across = _along(x, *self.x, self.log_x)
        up = _along(y, *self.y, self.log_y)
        return LEFT + across * (self.width - 14 - LEFT), HEIGHT - BOTTOM - up * (HEIGHT - BOTTOM - TOP)

    def line(self, x: Sequence[float], y: Sequence[float], colour: str, *, dashed: bool = False) -> None:
        """A line; what lies outside the axes is left out."""
        low, high = self.y
        points = [self.place(a, b) for a, b in zip(x, y, strict=True) if low <= b <= high]
        path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
        dash = ' stroke-dasharray="4 4"' if dashed else ""
        width = 1.5 if dashed else 2.5
        self.parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dash}/>')

    def label(self, x: float, y: float, words: str, colour: str, anchor: str = "start") -> None:
        """Words at a point."""
        self.parts.append(_text(*self.place(x, y), words, colour, 12, anchor))


def write(path: Path, panels: Sequence[Panel]) -> None:
    """Panels side by side."""
    at, groups = 0, []
    for panel in panels:
        groups.append(f'<g transform="translate({at} 0)">{"".join(panel.parts)}</g>')
        at += panel.width
    body = "\n".join(groups)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {at} {HEIGHT}" width="{at}" font-family="{FONT}">\n'
        f'<rect width="{at}" height="{HEIGHT}" fill="white"/>\n{body}\n</svg>\n',
        encoding="utf-8",
    )
    print(path)


def _along(value: float, low: float, high: float, log: bool) -> float:
    if log:
        value, low, high = math.log(value), math.log(low), math.log(high)
    return (value - low) / (high - low)


def _number(value: float) -> str:
    return f"{value:g}".removeprefix("0") if 0 < value < 1 else f"{value:g}"


def _text(x: float, y: float, words: str, colour: str, size: int, anchor: str = "start", weight: int = 400) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="{size}" text-anchor="{anchor}" '
        f'font-weight="{weight}">{escape(words)}</text>'
    )
