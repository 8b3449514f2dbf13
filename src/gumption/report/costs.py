"""Figures about what it cost: where tokens went, leverage kept, attempts, staleness, and the health of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from gumption.ledger.metrics import metric
from gumption.report.style import (
    ACCENT,
    BUCKET_COLOURS,
    BUCKET_LABELS,
    FATE_COLOURS,
    FATE_LABELS,
    GRID,
    INK,
    MUTED,
    Panel,
    amount,
    base,
    note,
    percent,
)
from gumption.types import FATES

USEFUL: Final = ("trained", "not_selected")
KINDS: Final = (
    ("accept", "accepted", ACCENT),
    ("drop", "already solved", "#009e73"),
    ("give_up", "given up", "#e69f00"),
)
HEALTH: Final = (
    "reward/mean",
    "frac_reward_zero_std",
    "completions/mean_length",
    "entropy",
    "grad_norm",
    "grad_noise/b_simple",
)


def tokens(flow: pl.DataFrame) -> Panel:
    """Where the generated tokens went: by initial difficulty and fate, and by fate with the FLOPs beside them."""
    text = (
        "Each generated token belongs to one rollout, and each rollout has one fate. Trained and not selected are "
        "useful (the latter set the baseline and were left out on purpose), all other fates count as wasted. FLOPs "
        "include training, so the share of trained rollouts is larger there."
    )
    total = float(flow["tokens"].sum())
    if not total:
        return Panel("tokens", "Where the tokens went", None, text)
    figure = make_subplots(
        1, 2, subplot_titles=["tokens by initial difficulty", "share by fate"], column_widths=[0.55, 0.45],
        horizontal_spacing=0.15,
    )  # fmt: skip
    buckets = flow["bucket"].unique(maintain_order=True).to_list()[::-1]
    seen = set(flow["fate"].to_list())
    fates = [*(f for f in FATES if f in seen), *sorted(seen.difference(FATES))]
    for fate in fates:
        rows = flow.filter(pl.col("fate") == fate)
        by_bucket = dict(zip(rows["bucket"], rows["tokens"], strict=True))
        figure.add_trace(
            go.Bar(
                y=[BUCKET_LABELS[b] for b in buckets], x=[by_bucket.get(b, 0) for b in buckets], orientation="h",
                name=FATE_LABELS.get(fate, fate), marker={"color": _fate_colour(fate)}, legendgroup=fate,
                hovertemplate=f"%{{y}}, {FATE_LABELS.get(fate, fate)}: %{{x:,}} tokens<extra></extra>",
            ),
            1, 1,
        )  # fmt: skip
    _fate_shares(figure, flow, fates[::-1])
    base(figure, height=150 + 38 * max(len(buckets), len(fates)), left=110, top=70)
    figure.update_layout(barmode="stack", legend={"y": 1.12, "traceorder": "normal"})
    figure.update_xaxes(title_text="completion tokens", tickformat="~s", col=1)
    figure.update_xaxes(title_text="share of all tokens (full) and of all FLOPs (hollow)", tickformat=".0%", col=2)
    figure.update_yaxes(showgrid=False)
    useful, trained = (
        float(flow.filter(pl.col("fate").is_in(fates))["tokens"].sum()) for fates in (USEFUL, ("trained",))
    )
    title = (
        f"{percent(useful / total)} of {amount(total)} generated tokens were in accepted groups, "
        f"{percent(trained / total)} were trained on"
    )
    return Panel("tokens", title, figure, text)


def _fate_shares(figure: go.Figure, flow: pl.DataFrame, fates: Sequence[str]) -> None:
    """A row for each fate: full dot for its share of tokens, hollow dot for its share of FLOPs."""
    sums = flow.group_by("fate").agg(pl.col("tokens").sum(), pl.col("flops").sum())
    tokens, flops = (dict(zip(sums["fate"], sums[c] / max(sums[c].sum(), 1), strict=True)) for c in ("tokens", "flops"))
    for fate in fates:
        colour, label = _fate_colour(fate), FATE_LABELS.get(fate, fate)
        ends = [tokens[fate], flops[fate]]
        figure.add_trace(
            go.Scatter(
                x=ends, y=[label, label], mode="lines+markers", showlegend=False, line={"color": colour, "width": 2},
                marker={"size": 12, "color": [colour, "white"], "line": {"color": colour, "width": 2}},
                customdata=["tokens", "FLOPs"], hovertemplate="%{y}: %{x:.1%} of %{customdata}<extra></extra>",
                cliponaxis=False,
            ),
            1, 2,
        )  # fmt: skip
        note(
            figure, f"{percent(ends[0])} of tokens, {percent(ends[1])} of FLOPs", x=max(ends), y=label, xref="x2",
            yref="y2", xshift=12, font={"size": 11, "color": INK},
        )  # fmt: skip
    widest = max([*tokens.values(), *flops.values(), 0.01])
    ticks = [t for t in (0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0) if t <= 1.2 * widest]
    figure.update_xaxes(range=[-0.05 * widest, 2.1 * widest], tickvals=ticks, col=2)


def _fate_colour(fate: str) -> str:
    return FATE_COLOURS.get(fate, "#555555")


def leverage(curve: pl.DataFrame, kept: pl.DataFrame) -> Panel:
    """Leverage captured against rollouts trained on (a Lorenz curve), and what the selector really kept."""
    text = (
        "Leverage is a rollout's squared normalised advantage: rare outcomes weigh most. The curve takes rollouts of "
        "accepted groups from the highest leverage down; the further it bows from the diagonal, the fewer rollouts "
        "carry the signal. Dots: the share of rollouts that the selector kept, and the share of leverage they hold, "
        "over all accepted groups and over those of each initial bucket."
    )
    if curve.height == 0:
        return Panel("leverage", "Leverage captured against rollouts trained on", None, text)
    figure = go.Figure()
    figure.add_trace(
        go.Scatter(x=curve["rollouts"], y=curve["leverage"], mode="lines", line={"color": INK, "width": 2.5},
                   hovertemplate="%{x:.1%} of rollouts hold %{y:.1%} of leverage<extra></extra>")
    )  # fmt: skip
    figure.add_trace(
        go.Scatter(x=[0, 1], y=[0, 1], mode="lines", line={"color": MUTED, "width": 1, "dash": "dot"}, hoverinfo="skip")
    )
    for row in kept.filter(pl.col("leverage").is_not_null()).reverse().iter_rows(named=True):
        whole = row["bucket"] == "all"
        colour, label = BUCKET_COLOURS[row["bucket"]], BUCKET_LABELS[row["bucket"]]
        figure.add_trace(
            go.Scatter(
                x=[row["rollouts"]], y=[row["leverage"]], mode="markers", name=label,
                marker={"size": 15 if whole else 10, "color": ACCENT if whole else colour,
                        "symbol": "diamond" if whole else "circle", "line": {"color": "white", "width": 1.5}},
                hovertemplate=f"{label}: %{{x:.1%}} of {row['members']:,} rollouts kept, %{{y:.1%}} of leverage"
                "<extra></extra>",
            )
        )  # fmt: skip
    base(figure, height=440, right=150)
    for i in (0, 1):
        figure.data[i].showlegend = False
    figure.update_layout(
        legend={"orientation": "v", "x": 1.02, "y": 0.98, "yanchor": "top", "traceorder": "reversed"},
        hovermode="closest",
    )
    figure.update_xaxes(range=[-0.01, 1.01], tickformat=".0%", title_text="share of accepted groups' rollouts")
    figure.update_yaxes(range=[0, 1.02], tickformat=".0%", title_text="share of leverage")
    note(figure, "all rollouts equal", x=0.78, y=0.74, textangle=-22, xanchor="center")
    whole = kept.filter(pl.col("bucket") == "all").row(0, named=True)
    shares = percent(whole["rollouts"]), percent(whole["leverage"])
    title = f"{shares[0]} of the accepted groups' rollouts were kept, with {shares[1]} of the leverage"
    return Panel("leverage", title, figure, text)


def staleness(steps: pl.DataFrame) -> Panel:
    """Age of the trained rollouts and importance ratios over updates."""
    text = (
        "Staleness is the number of updates between a rollout's start and the batch it was trained in. The importance "
        "ratio π/μ compares the policy at the update with the one that generated the token: 1 is on-policy. The "
        "effective sample share says how much of a batch its ratios leave (1: all). Mean, share and maximum are over "
        "a moving window of a fortieth of the run."
    )
    parts = (
        ("staleness, updates", (("off_policy/mean", "mean"), ("off_policy/max", "max"))),
        ("importance ratio", (("importance_ratio/mean", "mean"), ("importance_ratio/max", "max"))),
        ("effective sample share", (("importance_ratio/ess_frac", "share"),)),
    )
    if steps.height == 0 or not any(_has(steps, name) for _, names in parts for name, _ in names):
        return Panel("staleness", "Staleness and importance ratios", None, text)
    window = max(1, steps.height // 40)
    figure = make_subplots(1, 3, subplot_titles=[title for title, _ in parts], horizontal_spacing=0.09)
    for column, (_, names) in enumerate(parts, start=1):
        shown = [(name, label) for name, label in names if _has(steps, name)]
        for name, label in shown:
            strong = label != "max"
            values = _values(steps, name)
            smooth = values.rolling_mean if strong else values.rolling_max
            figure.add_trace(
                go.Scatter(
                    x=steps["version"], y=smooth(window, min_samples=1, center=True),
                    mode="lines" if steps.height > 1 else "markers", name=label,
                    line={"color": ACCENT if strong else "#d55e00", "width": 2 if strong else 1.2},
                    showlegend=column == 1, hovertemplate=f"update %{{x}}: %{{y:.4g}} ({label})<extra></extra>",
                ),
                1, column,
            )  # fmt: skip
        if not shown:
            ref = "" if column == 1 else str(column)
            note(
                figure,
                "not in this ledger",
                x=0.5,
                y=0.5,
                xref=f"x{ref} domain",
                yref=f"y{ref} domain",
                xanchor="center",
            )
    base(figure, height=330, top=64, left=50)
    figure.update_layout(legend={"y": 1.13})
    figure.update_xaxes(title_text="optimizer updates")
    figure.update_yaxes(rangemode="tozero", col=1)
    title = "Staleness and importance ratios"
    if _has(steps, "off_policy/mean"):
        mean, top = _mean(steps["off_policy/mean"]), max(steps["off_policy/max"].drop_nulls().to_list())
        title = f"Trained rollouts were {mean:.1f} updates old on average, {top:.0f} at most"
    return Panel("staleness", title, figure, text)


def attempts(counts: pl.DataFrame, endings: pl.DataFrame) -> Panel:
    """Attempts per accepted group, and how chains ended, by initial difficulty."""
    text = (
        "A chain is one visit to a problem: attempts until one is accepted, the problem turns out solved, or the "
        "allocator gives up. Left: how many attempts the accepted groups took. Right: how the chains of each bucket "
        "ended, with their number."
    )
    if endings.height == 0:
        return Panel("attempts", "Attempts per accepted group", None, text)
    figure = make_subplots(
        1,
        2,
        subplot_titles=["accepted groups that took at least so many attempts", "how chains ended"],
        horizontal_spacing=0.2,
    )
    top = max(counts["attempts"].to_list(), default=1)
    for bucket in counts["bucket"].unique(maintain_order=True):
        taken = dict(counts.filter(pl.col("bucket") == bucket).select("attempts", "chains").iter_rows())
        y = [sum(c for k, c in taken.items() if k >= x) / sum(taken.values()) for x in range(1, top + 1)]
        figure.add_trace(
            go.Scatter(x=list(range(1, top + 1)), y=y, name=BUCKET_LABELS[bucket], mode="lines+markers",
                       line={"color": BUCKET_COLOURS[bucket], "width": 2}, marker={"size": 5}, legend="legend",
                       hovertemplate=f"{BUCKET_LABELS[bucket]}: %{{y:.1%}} took %{{x}} or more<extra></extra>"),
            1, 1,
        )  # fmt: skip
    buckets = endings["bucket"].unique(maintain_order=True).to_list()[::-1]
    totals = dict(endings.group_by("bucket").agg(pl.col("chains").sum()).iter_rows())
    for kind, label, colour in KINDS:
        chains = dict(endings.filter(pl.col("kind") == kind).select("bucket", "chains").iter_rows())
        figure.add_trace(
            go.Bar(y=[f"{BUCKET_LABELS[b]} ({amount(totals[b])})" for b in buckets],
                   x=[chains.get(b, 0) / totals[b] for b in buckets], orientation="h", name=label, legend="legend2",
                   marker={"color": colour}, hovertemplate=f"%{{y}}: %{{x:.1%}} {label}<extra></extra>"),
            1, 2,
        )  # fmt: skip
    base(figure, height=400, top=70)
    low = {"orientation": "h", "y": 1.1, "yanchor": "bottom", "font": {"size": 11}, "traceorder": "normal"}
    figure.update_layout(barmode="stack", legend={**low, "x": 0}, legend2={**low, "x": 0.6})
    figure.update_xaxes(title_text="attempts", dtick=1 if top <= 16 else None, range=[0.7, max(top, 4) + 0.5], col=1)
    figure.update_yaxes(title_text="share of accepted groups", tickformat=".0%", range=[0, 1.03], col=1)
    figure.update_xaxes(title_text="share of chains", tickformat=".0%", range=[0, 1], col=2)
    figure.update_yaxes(showgrid=False, col=2)
    title = "Attempts per accepted group"
    if counts.height:
        mean = float((counts["attempts"] * counts["chains"]).sum()) / int(counts["chains"].sum())
        title = f"An accepted group took {mean:.1f} attempts on average"
    return Panel("attempts", title, figure, text)


def health(steps: pl.DataFrame) -> Panel:
    """Six curves that tell whether training is sound."""
    text = "Light: each update. Dark: mean over a window of a twentieth of the run."
    names = [n for n in HEALTH if _has(steps, n)]
    if not names:
        return Panel("health", "Training over time", None, text)
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure = make_subplots(rows, columns, horizontal_spacing=0.09, vertical_spacing=0.2, subplot_titles=names)
    window = max(1, steps.height // 20)
    for i, name in enumerate(names):
        row, column = divmod(i, columns)
        values = _values(steps, name)
        smooth = values.rolling_mean(window, min_samples=1, center=True)
        for y, colour, width in ((values, "#b9d9ec", 1), (smooth, ACCENT, 2)):
            figure.add_trace(
                go.Scatter(x=steps["version"], y=y, mode="lines" if steps.height > 1 else "markers", showlegend=False,
                           line={"color": colour, "width": width},
                           hovertemplate="update %{x}: %{y:.4g}<extra></extra>"),
                row + 1, column + 1,
            )  # fmt: skip
        known = metric(name)
        figure.update_yaxes(title_text=known.unit if known else "", row=row + 1, col=column + 1)
    base(figure, height=60 + 210 * rows, top=40)
    figure.update_xaxes(title_text="optimizer updates", row=rows)
    figure.update_yaxes(gridcolor=GRID)
    last = steps.tail(max(1, steps.height // 10))
    title = "Training over time"
    if "reward/mean" in names:
        title = f"Mean reward of generated rollouts in the last tenth of the run: {_mean(last['reward/mean']):.2f}"
    return Panel("health", title, figure, text)


def _mean(values: pl.Series) -> float:
    numbers = values.drop_nulls().to_list()
    return float(sum(numbers) / len(numbers)) if numbers else float("nan")


def _values(steps: pl.DataFrame, name: str) -> pl.Series:
    return steps[name].cast(pl.Float64).fill_nan(None)


def _has(steps: pl.DataFrame, name: str) -> bool:
    return name in steps.columns and _values(steps, name).drop_nulls().len() > 0
