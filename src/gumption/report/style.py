"""The house style of the report's figures: colours, fonts, number formats, labels that do not overlap.

Colours are safe for colour-blind readers: buckets run from dark (hard) to light (easy) along viridis, fates are those
of Okabe and Ito. White ground, light horizontal grid, units on every axis, labels at the line instead of a legend where
there is room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import plotly.graph_objects as go

INK: Final = "#1f2933"
MUTED: Final = "#6b7684"
GRID: Final = "#e8ebef"
ACCENT: Final = "#0072b2"
FONT: Final = 'system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif'

BUCKET_COLOURS: Final[dict[str, str]] = {
    "all": "#111827",
    "unsolved": "#8a8f98",
    "extra_hard": "#46085c",
    "hard": "#3b528b",
    "medium": "#21918c",
    "easy": "#5fb65a",
    "saturated": "#cfa800",
    "unknown": "#b8bdc4",
}
BUCKET_LABELS: Final[dict[str, str]] = {
    "all": "all problems",
    "unsolved": "never solved",
    "extra_hard": "extra hard",
    "hard": "hard",
    "medium": "medium",
    "easy": "easy",
    "saturated": "saturated",
    "unknown": "unknown",
}
BUCKET_RANGES: Final[dict[str, str]] = {
    "unsolved": "0 of n",
    "extra_hard": "(0, .02)",
    "hard": "[.02, .1)",
    "medium": "[.1, .5)",
    "easy": "[.5, .96)",
    "saturated": "≥ .96",
}
FATE_COLOURS: Final[dict[str, str]] = {
    "trained": "#0072b2",
    "not_selected": "#7cc4ee",
    "solved": "#009e73",
    "gave_up": "#e69f00",
    "stale": "#d55e00",
    "cancelled": "#9a6b3f",
    "error": "#cc79a7",
    "masked": "#7f7f7f",
    "unfinished": "#bfc5cc",
    "lost": "#2b2b2b",
}
FATE_LABELS: Final[dict[str, str]] = {
    "trained": "trained on",
    "not_selected": "not selected",
    "solved": "already solved",
    "gave_up": "gave up",
}
SET_LABELS: Final = {"train": "training problems", "held_out": "held-out problems"}


@dataclass(frozen=True)
class Panel:
    """One figure of the report with the words around it.

    Args:
        key: Names the figure in the page.
        title: Says what the figure shows with its number.
        figure: `None`: this ledger does not hold what the figure needs.
        note: One or two sentences that explain it.
    """

    key: str
    title: str
    figure: go.Figure | None
    note: str


def base(figure: go.Figure, *, height: int, right: int = 24, left: int = 64, top: int = 34) -> go.Figure:
    """Apply the house style to a finished figure."""
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": left, "r": right, "t": top, "b": 52},
        font={"family": FONT, "size": 13, "color": INK},
        paper_bgcolor="white",
        plot_bgcolor="white",
        hoverlabel={"font": {"family": FONT, "size": 12}, "bgcolor": "white", "bordercolor": GRID},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", "title": {"text": ""}},
        bargap=0.25,
    )
    figure.update_xaxes(
        showgrid=False, zeroline=False, linecolor=MUTED, showline=True, ticks="outside", ticklen=4, tickcolor=MUTED,
        title={"standoff": 8, "font": {"size": 12, "color": MUTED}}, tickfont={"size": 12},
    )  # fmt: skip
    figure.update_yaxes(
        gridcolor=GRID, zeroline=False, showline=False, ticks="", tickfont={"size": 12},
        title={"standoff": 8, "font": {"size": 12, "color": MUTED}},
    )  # fmt: skip
    for annotation in figure.layout.annotations or ():
        if annotation.font.size is None or annotation.font.size == 16:  # titles of subplots
            annotation.font = {"family": FONT, "size": 13, "color": INK}
    return figure


def note(figure: go.Figure, text: str, **where: Any) -> None:
    """Put words into a figure, without an arrow."""
    figure.add_annotation(
        **{"text": text, "showarrow": False, "font": {"size": 12, "color": MUTED}, "xanchor": "left"} | where
    )


def spread(values: Sequence[float], gap: float, low: float = 0.0, high: float = 1.0) -> list[float]:
    """Positions near `values` that are at least `gap` apart, in the same order, inside [low, high] where they fit.

    >>> spread([0.5, 0.51, 0.1], 0.1)
    [0.455, 0.555, 0.1]
    """
    order = sorted(range(len(values)), key=lambda i: values[i])
    blocks: list[list[Any]] = []  # [centre, members]
    for i in order:
        blocks.append(_inside([values[i], [i]], gap, low, high))
        while len(blocks) > 1 and _top(blocks[-2], gap) + gap > _bottom(blocks[-1], gap):
            centre, members = blocks.pop()
            before, others = blocks.pop()
            merged = others + members
            mean = (before * len(others) + centre * len(members)) / len(merged)
            blocks.append(_inside([mean, merged], gap, low, high))
    result = [0.0] * len(values)
    for block in blocks:
        for place, i in enumerate(block[1]):
            result[i] = round(_bottom(block, gap) + place * gap, 6)
    return result


def _inside(block: list[Any], gap: float, low: float, high: float) -> list[Any]:
    half = _half(block, gap)
    return [min(max(block[0], low + half), high - half), block[1]]


def _half(block: list[Any], gap: float) -> float:
    return gap * (len(block[1]) - 1) / 2


def _top(block: list[Any], gap: float) -> float:
    return float(block[0]) + _half(block, gap)


def _bottom(block: list[Any], gap: float) -> float:
    return float(block[0]) - _half(block, gap)


def rate(value: float) -> str:
    """A pass rate with enough digits to see it.

    >>> rate(0.0042), rate(0.657), rate(1.0), rate(0.0)
    ('.004', '.66', '1.00', '0')
    """
    if value == 0:
        return "0"
    digits = 3 if value < 0.1 else 2
    return f"{value:.{digits}f}".removeprefix("0")


def percent(share: float) -> str:
    """A share as a percentage.

    >>> percent(0.123), percent(0.004), percent(0.0), percent(1.0)
    ('12 %', '0.4 %', '0 %', '100 %')
    """
    value = 100 * share
    return f"{value:.0f} %" if value == 0 or abs(value) >= 9.95 else f"{value:.1f} %"


def amount(value: float) -> str:
    """A count in short: three digits and k, M, G, T, P or E.

    >>> amount(950), amount(12_345), amount(3.79e11), amount(0), amount(2.5e20)
    ('950', '12.3 k', '379 G', '0', '250 E')
    """
    for power, unit in ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if abs(value) >= 0.9995 * 10**power:
            scaled = value / 10**power
            return f"{scaled:.{0 if scaled >= 99.95 else 1 if scaled >= 9.995 else 2}f} {unit}"
    return f"{value:.3g}"


def seconds(value: float) -> str:
    """A duration.

    >>> seconds(4.2), seconds(95), seconds(7300)
    ('4.2 s', '1 min 35 s', '2 h 01 min')
    """
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
