"""Figures about what was learned: pass rates by difficulty against compute, headroom, reward entropy, bits."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from gumption.credit.bits import binary_entropy
from gumption.report.style import (
    ACCENT,
    BUCKET_COLOURS,
    BUCKET_LABELS,
    BUCKET_RANGES,
    GRID,
    INK,
    MUTED,
    SET_LABELS,
    Panel,
    amount,
    base,
    note,
    percent,
    rate,
    spread,
)

AXES: Final = (
    ("flops", "FLOPs spent by the run (evaluation excluded)", "FLOPs"),
    ("rollouts", "rollouts", "rollouts"),
    ("tokens", "tokens generated", "tokens"),
    ("version", "optimizer updates", "updates"),
    ("wall", "seconds of training", "time"),
)
LINEAR_EDGES: Final = np.linspace(0, 1, 21)
LOGIT_EDGES: Final = np.array(
    [0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 1]
)


def matthew(rates: pl.DataFrame, levels: pl.DataFrame) -> Panel:
    """Pass rate by initial difficulty against compute: does it only go up where it was high?"""
    text = (
        "Each line is the mean pass rate of the problems that began in one difficulty bucket. Where easy problems rise "
        "and hard ones do not, the rich get richer: the Matthew effect. Bands are 95 % intervals of the evaluation's "
        "sampling. " + _source(levels)
    )
    if rates.height == 0:
        return Panel("matthew", "Pass rate by initial difficulty", None, text)
    sets = [s for s in ("train", "held_out") if s in rates["set"].unique()]
    figure = make_subplots(
        1, len(sets), shared_yaxes=True, subplot_titles=[SET_LABELS[s] for s in sets], horizontal_spacing=0.17
    )
    xs: dict[str, list[Any]] = {name: [] for name, _, _ in AXES}
    for column, where in enumerate(sets, start=1):
        mine = rates.filter(pl.col("set") == where)
        buckets = mine["bucket"].unique(maintain_order=True).to_list()
        ends = {b: mine.filter(pl.col("bucket") == b)["pass_rate"].to_list() for b in buckets}
        places = spread([ends[b][-1] for b in buckets], 0.062, -0.01, 1.02)
        for bucket, place in zip(buckets, places, strict=True):
            rows = mine.filter(pl.col("bucket") == bucket)
            _bucket_line(figure, rows, bucket, column, xs)
            ref = "" if column == 1 else str(column)
            note(
                figure, f"{BUCKET_LABELS[bucket]} <b>{rate(ends[bucket][-1])}</b>", x=1.015, y=place,
                xref=f"x{ref} domain", yref="y", font={"size": 12, "color": BUCKET_COLOURS[bucket]},
            )  # fmt: skip
    base(figure, height=440, right=128, top=84)
    figure.update_yaxes(range=[-0.02, 1.04], tickvals=[0, 0.2, 0.4, 0.6, 0.8, 1])
    figure.update_yaxes(title_text="mean pass rate", col=1)
    figure.update_xaxes(title_text=AXES[0][1], tickformat="~s", rangemode="tozero")
    figure.update_layout(updatemenus=[_axis_buttons(xs, len(sets))], showlegend=False)
    return Panel("matthew", _matthew_title(rates), figure, text)


def _bucket_line(figure: go.Figure, rows: pl.DataFrame, bucket: str, column: int, xs: dict[str, list[Any]]) -> None:
    """A line with its band; `xs` collects the coordinates of every x axis that the buttons offer."""
    colour, y = BUCKET_COLOURS[bucket], rows["pass_rate"].to_numpy()
    half = 1.96 * rows["se"].to_numpy()
    lines = {name: rows[name].cast(pl.Float64).to_list() for name, _, _ in AXES}
    for name, x in lines.items():
        xs[name] += [[*x, *x[::-1]], x]
    band_y = np.clip(np.concatenate([y + half, (y - half)[::-1]]), 0, 1)
    figure.add_trace(
        go.Scatter(x=xs["flops"][-2], y=band_y, fill="toself", fillcolor=colour, opacity=0.13, line={"width": 0},
                   mode="lines", hoverinfo="skip"),
        1, column,
    )  # fmt: skip
    counts, whole = rows["problems"][0], bucket == "all"
    figure.add_trace(
        go.Scatter(
            x=lines["flops"], y=y, mode="lines+markers", name=BUCKET_LABELS[bucket],
            line={"color": colour, "width": 3 if whole else 2, "dash": "dot" if whole else "solid"},
            marker={"size": 6, "color": colour},
            hovertemplate=f"{BUCKET_LABELS[bucket]} ({counts} problems)<br>pass rate %{{y:.3f}}<extra></extra>",
        ),
        1, column,
    )  # fmt: skip


def _axis_buttons(xs: dict[str, list[Any]], panels: int) -> dict[str, Any]:
    """Buttons that put another measure of cost on the x axis."""
    buttons = []
    for name, title, label in AXES:
        if any(v is None for x in xs[name] for v in x):
            continue
        titles = {f"xaxis{'' if i == 0 else i + 1}.title.text": title for i in range(panels)}
        buttons.append({"label": label, "method": "update", "args": [{"x": xs[name]}, titles]})
    return {
        "type": "buttons", "direction": "right", "buttons": buttons, "x": 0, "xanchor": "left", "y": 1.13,
        "yanchor": "bottom", "pad": {"t": 0, "b": 0}, "font": {"size": 11}, "bgcolor": "white", "bordercolor": GRID,
        "showactive": True,
    }  # fmt: skip


def _matthew_title(rates: pl.DataFrame) -> str:
    hard = rates.filter((pl.col("set") == "train") & (pl.col("bucket") == "extra_hard"))
    rows = hard if hard.height > 1 else rates.filter((pl.col("set") == rates["set"][0]) & (pl.col("bucket") == "all"))
    what = "Extra-hard problems" if hard.height > 1 else "All problems"
    values = rows["pass_rate"].to_list()
    if len(values) < 2:
        return f"{what}: pass rate {rate(values[0])} before training"
    return f"{what} went from a pass rate of {rate(values[0])} to {rate(values[-1])}"


def headroom(gains: pl.DataFrame) -> Panel:
    """Before and after per bucket, with the share of the headroom that was closed."""
    text = (
        "Hollow: before, full: after. Headroom closed is (after − before)/(1 − before): in points alone easy problems "
        "gain least, because of their ceiling. ± is the 95 % interval of the gain from the evaluation's sampling."
    )
    if gains.height == 0:
        return Panel("headroom", "Headroom closed by initial difficulty", None, text)
    sets = [s for s in ("train", "held_out") if s in gains["set"].unique()]
    figure = make_subplots(
        1, len(sets), subplot_titles=[SET_LABELS[s] for s in sets], horizontal_spacing=0.27, shared_yaxes=True
    )
    buckets = [b for b in BUCKET_LABELS if b in gains["bucket"].unique()]
    for column, where in enumerate(sets, start=1):
        for row in gains.filter(pl.col("set") == where).iter_rows(named=True):
            _dumbbell(figure, _bucket_label(row["bucket"]), row, column)
    base(figure, height=110 + 38 * len(buckets), right=185, left=140, top=40)
    figure.update_yaxes(categoryorder="array", categoryarray=[_bucket_label(b) for b in buckets[::-1]])
    figure.update_xaxes(range=[-0.05, 1.04], title_text="mean pass rate", tickvals=[0, 0.2, 0.4, 0.6, 0.8, 1])
    figure.update_layout(showlegend=False)
    first = gains.filter(pl.col("set") == sets[0])
    # Saturated problems have next to no headroom: their share of it is noise.
    closed = first.filter(pl.col("headroom").is_not_null() & ~pl.col("bucket").is_in(["all", "saturated"]))
    title = "Headroom closed by initial difficulty"
    if closed.height:
        best, worst = (closed.sort("headroom").row(i, named=True) for i in (-1, 0))
        title = (
            f"Headroom closed: {percent(worst['headroom'])} ({BUCKET_LABELS[worst['bucket']]}) to "
            f"{percent(best['headroom'])} ({BUCKET_LABELS[best['bucket']]})"
        )
    return Panel("headroom", title, figure, text)


def _bucket_label(bucket: str) -> str:
    extent = BUCKET_RANGES.get(bucket)
    return f"{BUCKET_LABELS[bucket]} {extent}" if extent else BUCKET_LABELS[bucket]


def _dumbbell(figure: go.Figure, y: str, row: dict[str, Any], column: int) -> None:
    colour = BUCKET_COLOURS[row["bucket"]]
    closed = "" if row["headroom"] is None else f"  <b>{percent(row['headroom'])}</b> closed"
    figure.add_trace(
        go.Scatter(
            x=[row["before"], row["after"]], y=[y, y], mode="lines+markers", line={"color": colour, "width": 3},
            marker={"size": 11, "color": ["white", colour], "line": {"color": colour, "width": 2}},
            hovertemplate=f"{y} ({row['problems']} problems)<br>pass rate %{{x:.3f}}<extra></extra>",
        ),
        1, column,
    )  # fmt: skip
    ref = "" if column == 1 else str(column)
    note(
        figure, f"{row['gain']:+.2f} ± {1.96 * row['se']:.2f}{closed}", x=1.02, y=y, xref=f"x{ref} domain",
        yref="y", font={"size": 12, "color": INK},
    )  # fmt: skip


def entropy(measured: pl.DataFrame, linear: pl.DataFrame, logit: pl.DataFrame, levels: pl.DataFrame) -> Panel:
    """Reward entropy against pass rate, over the histogram of the problems; on a linear and a logit axis."""
    text = (
        "A 0/1 reward tells at most H2(p) bits about a rollout, none at p = 0 or 1. Dots: reward entropy per rollout "
        "measured in the run's chains (area: rollouts). Dotted: −log2 p, what being told the right answer would be "
        "worth. The logit axis shows how far from the informative middle problems are; rates of exactly 0 and 1 stand "
        "in the outermost bins."
    )
    if linear.height == 0 and measured.height == 0:
        return Panel("entropy", "Reward entropy against pass rate", None, text)
    figure = make_subplots(
        2, 2, row_heights=[0.34, 0.66], vertical_spacing=0.05, horizontal_spacing=0.1, shared_xaxes=True,
        subplot_titles=["linear axis", "logit axis", "", ""],
    )  # fmt: skip
    p_linear, p_logit = np.linspace(1e-4, 1 - 1e-4, 400), _expit(np.linspace(_logit(0.001), _logit(0.999), 400))
    for column, (counts, p) in enumerate(((linear, p_linear), (logit, p_logit)), start=1):
        place = (lambda v: np.asarray(v)) if column == 1 else _place
        _histogram(figure, counts, column, place)
        _curves(figure, measured, p, column, place)
    base(figure, height=520, left=64, top=64)
    figure.update_layout(barmode="overlay", bargap=0.06)
    figure.update_yaxes(title_text="problems", row=1, col=1, rangemode="tozero")
    figure.update_yaxes(title_text="bits per rollout", row=2, col=1)
    figure.update_yaxes(range=[0, 2.05], dtick=0.5, row=2)
    figure.update_xaxes(range=[-0.01, 1.01], title_text="pass rate p", row=2, col=1)
    figure.update_xaxes(range=[-0.01, 1.01], row=1, col=1)
    ticks = [0.001, 0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99, 0.999]
    for row in (1, 2):
        figure.update_xaxes(
            range=[_logit(0.0007), _logit(0.9993)], tickvals=[_logit(t) for t in ticks],
            ticktext=[rate_tick(t) for t in ticks], row=row, col=2,
        )  # fmt: skip
    figure.update_xaxes(title_text="pass rate p, logit scale", row=2, col=2)
    figure.update_layout(legend={"y": 1.09})
    return Panel("entropy", _entropy_title(measured), figure, text + " " + _source(levels))


def rate_tick(p: float) -> str:
    """A tick of the logit axis.

    >>> rate_tick(0.001), rate_tick(0.5)
    ('.001', '.5')
    """
    return f"{p:g}".removeprefix("0")


def _histogram(figure: go.Figure, counts: pl.DataFrame, column: int, place: Any) -> None:
    for when, colour, fill in (("start", MUTED, "#c9ced6"), ("end", ACCENT, "rgba(0,114,178,0.25)")):
        rows = counts.filter(pl.col("when") == when)
        if rows.height == 0:
            continue
        low, high = place(rows["low"].to_numpy()), place(rows["high"].to_numpy())
        figure.add_trace(
            go.Bar(
                x=(low + high) / 2, y=rows["problems"].to_list(), width=(high - low) * 0.94,
                name=f"problems at the {when}",
                marker={"color": fill, "line": {"color": colour, "width": 1}}, showlegend=column == 1, legendgroup=when,
                customdata=np.stack([rows["low"], rows["high"]], axis=1),
                hovertemplate=f"at the {when}: %{{y}} problems with p from %{{customdata[0]:.3f}} to "
                "%{customdata[1]:.3f}<extra></extra>",
            ),
            1, column,
        )  # fmt: skip


def _curves(figure: go.Figure, measured: pl.DataFrame, p: Any, column: int, place: Any) -> None:
    show = column == 1
    figure.add_trace(
        go.Scatter(x=place(p), y=binary_entropy(p), mode="lines", line={"color": INK, "width": 2.5},
                   name="H2(p), ceiling", showlegend=show, legendgroup="h2", hoverinfo="skip"),
        2, column,
    )  # fmt: skip
    figure.add_trace(
        go.Scatter(x=place(p), y=-np.log2(p), mode="lines", line={"color": MUTED, "width": 1.5, "dash": "dot"},
                   name="−log2 p, supervised", showlegend=show, legendgroup="sup", hoverinfo="skip"),
        2, column,
    )  # fmt: skip
    if measured.height:
        weight = measured["rollouts"].to_numpy()
        figure.add_trace(
            go.Scatter(
                x=place(measured["rate"].to_numpy()), y=measured["bits"].to_list(), mode="markers",
                name="measured", cliponaxis=False,
                marker={"color": "#d55e00", "size": 5 + 13 * np.sqrt(weight / weight.max()), "opacity": 0.75,
                        "line": {"color": "white", "width": 1}},
                customdata=np.stack([measured["rate"], weight], axis=1), showlegend=show, legendgroup="measured",
                hovertemplate="p = %{customdata[0]:.3f}: %{y:.2f} bits, %{customdata[1]:,} rollouts<extra></extra>",
            ),
            2, column,
        )  # fmt: skip


def _entropy_title(measured: pl.DataFrame) -> str:
    total = float(measured["rollouts"].sum())
    if not total:
        return "Reward entropy against pass rate"
    bits = float((measured["bits"] * measured["rollouts"]).sum()) / total
    return f"A rollout's reward carried {bits:.2f} of at most 1 bit, on average"


def information(rows: pl.DataFrame) -> Panel:
    """Bits per thousand tokens and per PFLOP over time."""
    text = (
        "Reward entropy of all generated rollouts, discarded ones too, divided by all tokens and all FLOPs: a ceiling "
        "on what the rewards could teach, not a measure of what was learned."
    )
    if rows.height == 0:
        return Panel("information", "Bits per thousand tokens and per PFLOP", None, text)
    figure = make_subplots(
        1, 2, subplot_titles=["bits per thousand generated tokens", "bits per PFLOP"], horizontal_spacing=0.1
    )
    for column, name in enumerate(("per_ktok", "per_pflop"), start=1):
        x = rows["version"].to_list()
        for suffix, width, dash, label in (("", 2.2, "solid", "window"), ("_so_far", 1.6, "dot", "so far")):
            y = rows[name + suffix].to_list()
            figure.add_trace(
                go.Scatter(x=x, y=y, mode="lines" if len(x) > 1 else "markers",
                           line={"color": ACCENT if not suffix else INK, "width": width, "dash": dash}, name=label,
                           showlegend=column == 1,
                           hovertemplate=f"update %{{x}}: %{{y:.4s}} ({label})<extra></extra>"),
                1, column,
            )  # fmt: skip
    base(figure, height=340, top=64)
    figure.update_layout(legend={"y": 1.13})
    figure.update_yaxes(rangemode="tozero", tickformat="~s", exponentformat="SI")
    figure.update_yaxes(title_text="bits/1000 tokens", col=1)
    figure.update_yaxes(title_text="bits/PFLOP", col=2)
    figure.update_xaxes(title_text="optimizer updates")
    last = rows.row(-1, named=True)
    title = f"{amount(last['per_ktok_so_far'])} bits per thousand tokens, {amount(last['per_pflop_so_far'])} per PFLOP"
    return Panel("information", title, figure, text)


def _source(levels: pl.DataFrame) -> str:
    sources = levels["source"].unique().to_list()
    if "first_eval" in sources:
        return (
            "Buckets are cut from this run's first evaluation, so part of what hard buckets gain is regression to the "
            "mean."
        )
    return "Buckets come from the shipped pass-rate profile, not from the samples shown here." if sources else ""


def _logit(p: Any) -> Any:
    return np.log(p) - np.log1p(-np.asarray(p))


def _expit(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _place(p: Any) -> Any:
    """Pass rates on the logit axis; 0 and 1 stand at its ends."""
    return _logit(np.clip(p, 0.0008, 0.9992))
