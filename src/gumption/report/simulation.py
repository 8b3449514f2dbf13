"""The page of a simulated run: who got the rollouts, what became of them, how it went over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from gumption.ledger.profile import BUCKETS
from gumption.report.page import write_page
from gumption.report.style import (
    ACCENT,
    BUCKET_COLOURS,
    BUCKET_LABELS,
    FATE_COLOURS,
    FATE_LABELS,
    Panel,
    base,
    percent,
    seconds,
)


def write_simulation(
    path: str | Path, title: str, summary: Mapping[str, Any], series: Sequence[Mapping[str, float]]
) -> Path:
    """Write the page.

    Args:
        path: Where to.
        title: Name of the recipe.
        summary: `Simulation.summary`.
        series: `Simulation.series`.

    Returns:
        The path.

    Raises:
        ValueError: it cannot be written.
    """
    path = Path(path)
    panels = [_buckets(summary["buckets"]), _fates(summary), _over_time(series)]
    parts: list[str] = []
    for panel in panels:
        if panel.figure is None:
            continue
        drawing = panel.figure.to_html(full_html=False, include_plotlyjs=not parts, config={"displaylogo": False})
        parts.append(f"<h2>{escape(panel.title)}</h2>\n{drawing}\n<p>{escape(panel.note)}</p>")
    body = "\n".join(parts)
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)} · simulated</title>"
        "<style>body{font-family:system-ui,sans-serif;max-width:960px;margin:2em auto;color:#1f2933}</style></head>"
        f"<body><h1>{escape(title)}, simulated</h1>\n{body}\n</body></html>\n"
    )
    return write_page(path, page, "the figure to ")


def _buckets(buckets: Mapping[str, Mapping[str, float]]) -> Panel:
    names = [b for b in BUCKETS if b in buckets]
    total = max(sum(buckets[b]["problems"] for b in names), 1)
    figure = go.Figure()
    for label, share in (
        ("of the problems", [buckets[b]["problems"] / total for b in names]),
        ("of the tokens", [buckets[b]["token_share"] for b in names]),
    ):
        opacity = 0.35 if label.endswith("problems") else 1.0
        figure.add_bar(
            x=[BUCKET_LABELS[b] for b in names],
            y=[100 * s for s in share],
            name=label,
            opacity=opacity,
            marker={"color": [BUCKET_COLOURS[b] for b in names]},
            text=[percent(s) for s in share],
        )
    figure.update_yaxes(title_text="share, %")
    figure.update_layout(showlegend=False)
    most = max(names, key=lambda b: buckets[b]["token_share"]) if names else ""
    title = f"{BUCKET_LABELS[most].capitalize()} problems get {percent(buckets[most]['token_share'])} of the tokens"
    note = "Left bar: share of the problems; right bar: share of the generated tokens. Difficulty by given pass rate."
    return Panel("buckets", title, base(figure, height=340), note)


def _fates(summary: Mapping[str, Any]) -> Panel:
    fates, total = summary["rollouts_by_fate"], max(summary["rollouts"], 1)
    figure = go.Figure()
    for fate, n in fates.items():
        figure.add_bar(
            y=["rollouts"],
            x=[100 * n / total],
            name=FATE_LABELS.get(fate, fate),
            orientation="h",
            marker={"color": FATE_COLOURS[fate]},
            text=[f"{FATE_LABELS.get(fate, fate)} {percent(n / total)}"],
        )
    figure.update_layout(barmode="stack", showlegend=False)
    figure.update_xaxes(title_text="share of the rollouts, %")
    title = f"{percent(fates.get('trained', 0) / total)} of the rollouts are trained on"
    note = f"{percent(summary['wasted_share'])} of all FLOPs go to rollouts that were filtered, given up or stale."
    return Panel("fates", title, base(figure, height=200), note)


def _over_time(series: Sequence[Mapping[str, float]]) -> Panel:
    if not series:
        return Panel("time", "", None, "")
    figure = go.Figure()
    hours = [row["seconds"] / 3600 for row in series]
    figure.add_scatter(x=hours, y=[row["leverage"] for row in series], mode="lines", line={"color": ACCENT})
    figure.update_xaxes(title_text="virtual hours")
    figure.update_yaxes(title_text="leverage trained on (effective rollouts)")
    last = series[-1]
    title = f"{last['leverage']:,.0f} effective rollouts in {seconds(last['seconds'])}"
    note = "Summed leverage of what was trained on: how many average rollouts it is worth."
    return Panel("time", title, base(figure, height=320, left=90), note)
