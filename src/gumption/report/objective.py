"""Figure and page of `gumption explain --plot`: implied objectives side by side."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from gumption.report.html import CSS
from gumption.report.page import write_page
from gumption.report.style import GRID, INK, MUTED, base, note

if TYPE_CHECKING:
    from gumption.planning.explanation import Explanation

COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
PANELS: Final = (
    "weight w(p)/w(½)",
    "rollouts per visit",
    "share trained on",
    "variance × rollouts",
)


def objectives(explanations: Sequence[Explanation]) -> go.Figure:
    """Four panels over p: weight with the known objectives behind it, rollouts, trained share, variance × rollouts."""
    figure = make_subplots(2, 2, subplot_titles=PANELS, horizontal_spacing=0.1, vertical_spacing=0.16)
    _known(figure)
    for i, e in enumerate(explanations):
        c = e.fine
        colour = COLOURS[i % len(COLOURS)]
        for k, values in enumerate((c.relative_P, c.rollouts_P, c.share_P, c.variance_rollouts_P)):
            figure.add_trace(
                go.Scatter(
                    x=c.p_P, y=np.where(np.isfinite(values), values, np.nan), name=e.name, legendgroup=e.name,
                    showlegend=k == 0, mode="lines", line={"color": colour, "width": 2.5},
                    hovertemplate=f"{escape(e.name)}, p = %{{x:.2f}}: %{{y:.3g}}<extra></extra>",
                ),
                k // 2 + 1, k % 2 + 1,
            )  # fmt: skip
    base(figure, height=680, top=86)
    figure.update_layout(legend={"y": 1.07})
    figure.update_xaxes(range=[0, 1], title_text="success rate p", row=2)
    figure.update_xaxes(range=[0, 1], row=1)
    figure.update_yaxes(rangemode="tozero")
    highest = max(float(np.max(e.fine.relative_P)) for e in explanations)
    figure.update_yaxes(
        type="log", row=1, col=1, rangemode="normal", tickvals=[0.5, 1, 2, 5, 10, 20, 50],
        range=[np.log10(0.45), np.log10(max(6.0, 1.15 * highest))],
    )  # fmt: skip
    figure.update_yaxes(tickformat=".0%", range=[0, 1.02], row=2, col=1)
    return figure


def _known(figure: go.Figure) -> None:
    """Log-likelihood and expected reward, as grey lines with their names."""
    p_P = np.linspace(0.02, 0.96, 95)
    for y, words, at, anchor in (
        (0.5 / p_P, "log-likelihood, 1/p", (0.135, 3.9), "bottom"),
        (np.ones_like(p_P), "expected reward, 1", (0.03, 0.96), "top"),
    ):
        figure.add_trace(
            go.Scatter(
                x=p_P, y=y, mode="lines", line={"color": MUTED, "width": 1, "dash": "dot"}, showlegend=False,
                hoverinfo="skip",
            ),
            1, 1,
        )  # fmt: skip
        note(figure, words, x=at[0], y=np.log10(at[1]), xref="x", yref="y", yanchor=anchor, font={"size": 11})


def write_objectives(explanations: Sequence[Explanation], path: Path) -> Path:
    """Write the page: figure, what each recipe optimises, where that is not exact. One file, works offline.

    Raises:
        ValueError: the page cannot be written.
    """
    drawing = objectives(explanations).to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False})
    items = "".join(
        f"<li><strong>{escape(e.name)}</strong> ({escape(e.rule)}): {escape(e.objective.words)}"
        f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in e.caveats)}</ul></li>"
        for e in explanations
    )
    text = (
        "Of many visits to a problem that is solved with probability p, the expected gradient is w(p)·∇p. The dotted "
        "lines are known objectives. Variance × rollouts is for the estimate of each rule's own gradient, in a model "
        "in which every rollout is equally noisy; plain RLOO with groups of G has G/(G − 1) everywhere."
    )
    style = f"{CSS}\nul ul {{ color: {MUTED}; }} body {{ color: {INK}; border-color: {GRID}; }}"
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>implied objectives · gumption</title>\n<style>\n{style}</style>\n"
        f"<script>{get_plotlyjs()}</script>\n</head>\n<body>\n<main>\n"
        f"<header><h1>What these recipes optimise</h1></header><section>{drawing}<p class='note'>{escape(text)}</p>"
        f"<ul>{items}</ul></section>\n</main>\n</body>\n</html>\n"
    )
    return write_page(path, page, "")
