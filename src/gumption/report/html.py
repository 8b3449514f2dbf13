"""One self-contained HTML page from a ledger: plotly.js is in it once, nothing is fetched, it works offline.

Prompts and completions are whatever somebody's data and a language model wrote, so they are escaped, figures are handed
over as JSON that cannot close its script element, and a content security policy lets no script run but the page's two.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any, Final

import polars as pl
from plotly.offline import get_plotlyjs

from gumption.config import RunConfig
from gumption.ledger.reader import Ledger
from gumption.ledger.redaction import redact
from gumption.report import tables
from gumption.report.figures import Data, panels
from gumption.report.page import write_page
from gumption.report.style import (
    BUCKET_COLOURS,
    BUCKET_LABELS,
    BUCKET_RANGES,
    FATE_LABELS,
    Panel,
    amount,
    percent,
    rate,
    seconds,
)

LONGEST_TEXT: Final = 2000
"""Characters of a prompt or completion that the page shows."""

CSS: Final = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")

DRAW: Final = """
for (const place of document.querySelectorAll("[data-figure]")) {
  const spec = JSON.parse(document.getElementById("spec-" + place.dataset.figure).textContent);
  Plotly.newPlot(place, spec.data, spec.layout, {
    responsive: true, displaylogo: false, modeBarButtons: [["toImage", "resetScale2d"]],
  });
}
"""


def write_report(run_folder: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a run.

    Args:
        run_folder: The run's folder (or its `ledger` folder). The run may be unfinished.
        out: The page; default `report.html` in the run folder.

    Returns:
        The page's path.

    Raises:
        ValueError: there is no ledger, or the page cannot be written.
    """
    ledger = Ledger(run_folder)
    path = Path(out) if out is not None else ledger.run_folder / "report.html"
    return write_page(path, render(ledger), "the report to ")


def render(ledger: Ledger) -> str:
    """The page as text."""
    data = Data(ledger)
    figures = panels(data)
    plotly = get_plotlyjs().replace("\r\n", "\n")
    title = f"{ledger.run_folder.resolve().name} · gumption"
    policy = (
        f"default-src 'none'; script-src {_hash(plotly)} {_hash(DRAW)}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    body = "\n".join(
        [
            _header(ledger),
            _warnings(ledger),
            _cards(data),
            *(_section(p) for p in figures),
            _samples(data),
            _config(ledger),
            _footer(ledger),
        ]
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{CSS}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        f"<script>{plotly}</script>\n<script>{DRAW}</script>\n</body>\n</html>\n"
    )


def _hash(script: str) -> str:
    """How a content security policy names an inline script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _json(figure: Any) -> str:
    """A figure as JSON in which no character can end the element that holds it."""
    text: str = figure.to_json()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _section(panel: Panel) -> str:
    key = escape(panel.key)
    if panel.figure is None:
        drawing = '<p class="missing">not in this ledger</p>'
    else:
        height = int(panel.figure.layout.height)
        drawing = (
            f'<div class="figure" data-figure="{key}" style="height:{height}px"></div>'
            f'<script type="application/json" id="spec-{key}">{_json(panel.figure)}</script>'
        )
    return (
        f'<section id="{key}"><h2>{escape(panel.title)}</h2>{drawing}<p class="note">{escape(panel.note)}</p></section>'
    )


def _header(ledger: Ledger) -> str:
    c, s = ledger.config, ledger.summary
    facts = [
        _get(c, "model.path"),
        f"problems {_get(c, 'problems.source')}" if _get(c, "problems.source") else None,
        _get(c, "allocation.rule"),
        f"selection {_get(c, 'selection.rule')}" if _get(c, "selection.rule") else None,
        f"seed {c['seed']}" if "seed" in c else None,
        f"ended: {s['reason']}" if "reason" in s and not ledger.open else "not finished",
    ]
    line = " · ".join(escape(str(f)) for f in facts if f is not None)
    return f"<header><h1>{escape(ledger.run_folder.resolve().name)}</h1><p>{line}</p></header>"


def _warnings(ledger: Ledger) -> str:
    lines = ledger.check()  # names damaged segments too
    if not lines:
        return ""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines[:20])
    more = f"<li>… and {len(lines) - 20} more</li>" if len(lines) > 20 else ""
    return f'<section class="warning"><h2>The ledger does not add up</h2><ul>{items}{more}</ul></section>'


def cards(data: Data) -> list[tuple[str, str, str]]:
    """The numbers at the top: (name, value, explanation), from the ledger's rows alone."""
    result = [_pass_card(data, "train", "all", "Pass rate"), _pass_card(data, "train", "extra_hard", "Extra hard")]
    result.append(_pass_card(data, "held_out", "all", "Held out"))
    sums = data.ledger.counters()
    steps, groups = data.ledger.steps(), data.ledger.groups()
    flops, rollouts = float(sums["flops"].sum()), int(sums["rollouts"].sum())
    tokens, trained = (
        int(sums["completion_tokens"].sum()),
        int(sums.filter(pl.col("fate") == "trained")["rollouts"].sum()),
    )
    wasted = float(sums.filter(~pl.col("fate").is_in(["trained", "not_selected"]))["flops"].sum())
    bits = float((groups["bits"].fill_null(0.0) * groups["count"]).sum())
    wall = max([*steps["wall"].tail(1), *data.rollouts["wall"].sort().tail(1)], default=None)
    updates = max(steps["version"].to_list(), default=0)
    missing = "–"
    result += [
        ("Wall time", missing if wall is None else seconds(wall), f"{updates:,} update{'s' if updates != 1 else ''}"),
        ("FLOPs", amount(flops) if flops else missing, "generation, scoring, training"),
        ("Rollouts", f"{rollouts:,}", f"{amount(tokens)} tokens"),
        ("Trained on", percent(trained / rollouts) if rollouts else missing, f"{trained:,} rollouts"),
        ("Wasted FLOPs", percent(wasted / flops) if flops else missing, "outside accepted groups"),
        ("Bits", amount(bits), f"{1e3 * bits / tokens:.3g} per 1,000 tokens" if tokens else "reward entropy"),
    ]
    trained_rows = data.rollouts.filter(pl.col("fate") == "trained")
    ages = (trained_rows["update"] - trained_rows["version_start"]).to_list()
    if ages:
        result.append(("Staleness", f"{sum(ages) / len(ages):.2f}", f"updates on average, {max(ages)} at most"))
    return [card for card in result if card is not None]


def _pass_card(data: Data, where: str, bucket: str, name: str) -> Any:
    rows = data.gains.filter((pl.col("set") == where) & (pl.col("bucket") == bucket))
    if rows.height:
        row = rows.row(0, named=True)
        gain = 100 * row["gain"]
        return name, f"{rate(row['before'])} → {rate(row['after'])}", f"{gain:+.1f} points, {row['problems']} problems"
    first = data.rates.filter((pl.col("set") == where) & (pl.col("bucket") == bucket))
    if first.height:
        return name, rate(first["pass_rate"][0]), f"{first['problems'][0]} problems, evaluated once"
    return ("Pass rate", "–", "no evaluation in this ledger") if (where, bucket) == ("train", "all") else None


def _cards(data: Data) -> str:
    items = "".join(
        f'<div class="card"><span>{escape(name)}</span><strong>{escape(value)}</strong>'
        f"<small>{escape(what)}</small></div>"
        for name, value, what in cards(data)
    )
    return f'<section class="cards">{items}</section>'


def _samples(data: Data) -> str:
    chosen = _chosen(data)
    if chosen.height == 0:
        body = '<p class="missing">not in this ledger</p>'
    else:
        body = "".join(_sample_bucket(bucket, chosen) for bucket in chosen["bucket"].unique(maintain_order=True))
    note = (
        "The last success and the last failure of each initial bucket whose text the ledger kept "
        f"(ledger.text; at most {LONGEST_TEXT:,} characters are shown)."
    )
    return f'<section id="samples"><h2>Sample completions</h2>{body}<p class="note">{escape(note)}</p></section>'


def _chosen(data: Data) -> pl.DataFrame:
    """The sample completions with their texts; only the chosen texts are held in memory."""
    score = float(_get(data.ledger.config, "rewards.max_score") or 1.0)
    rows = data.ledger.lazy("rollouts").filter(pl.col("text").is_not_null())
    try:
        chosen = tables.samples(rows.select(tables.SAMPLE).collect(), data.ledger.problems(), data.levels, score)
        keys = chosen.lazy().select(tables.ROLLOUT)
        texts = rows.select(*tables.ROLLOUT, "text").join(keys, on=tables.ROLLOUT, how="semi").collect()
    except pl.exceptions.PolarsError:  # a damaged page: the segment is named at the top
        return pl.DataFrame()
    return chosen.join(texts.unique(tables.ROLLOUT), on=tables.ROLLOUT, maintain_order="left")


def _sample_bucket(bucket: str, chosen: pl.DataFrame) -> str:
    boxes = []
    for row in chosen.filter(pl.col("bucket") == bucket).iter_rows(named=True):
        verdict = "success" if row["success"] else "failure"
        fate = FATE_LABELS.get(row["fate"], row["fate"])
        facts = f"reward {row['reward']:.3g}, {fate} ({row['reason']}), policy version {row['version_start']}"
        prompt = "(prompt not in this ledger)" if row["prompt"] is None else _shorten(row["prompt"])
        boxes.append(
            f'<div class="sample {verdict}"><h4>{verdict} <small>{escape(facts)}</small></h4>'
            f"<pre class='prompt'>{escape(prompt)}</pre><pre>{escape(_shorten(row['text']))}</pre></div>"
        )
    colour = BUCKET_COLOURS.get(bucket, "#555555")
    extent = escape(BUCKET_RANGES.get(bucket, ""))
    label = escape(BUCKET_LABELS.get(bucket, bucket))
    title = f'<h3><i style="background:{colour}"></i>{label} <small>{extent}</small></h3>'
    return f'{title}<div class="pair">{"".join(boxes)}</div>'


def _shorten(text: str) -> str:
    return (
        text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]} … ({len(text) - LONGEST_TEXT:,} more characters)"
    )


def _config(ledger: Ledger) -> str:
    settings = _flat(redact(ledger.config))
    if not settings:
        return '<section id="config"><h2>Configuration</h2><p class="missing">not in this ledger</p></section>'
    defaults = _flat(RunConfig().model_dump(mode="json", exclude_none=True))
    changed = {k: v for k, v in settings.items() if defaults.get(k) != v}
    same = {k: v for k, v in settings.items() if k not in changed}
    return (
        '<section id="config"><h2>Configuration</h2>'
        f"<h3>Changed from the defaults</h3>{_pairs(changed)}"
        f"<details><summary>All other settings</summary>{_pairs(same)}</details></section>"
    )


def _pairs(settings: Mapping[str, Any]) -> str:
    if not settings:
        return '<p class="note">none</p>'
    rows = "".join(f"<tr><th>{escape(k)}</th><td>{escape(str(v))}</td></tr>" for k, v in settings.items())
    return f'<table class="pairs">{rows}</table>'


def _footer(ledger: Ledger) -> str:
    parts = [f"gumption {ledger.summary['gumption']}"] if "gumption" in ledger.summary else []
    convention = _get(ledger.summary, "flops.convention")
    if convention:
        parts.append(f"One FLOP: {convention}")
    parts.append("Fates, columns and metric names: docs/ledger.md.")
    return f"<footer><p>{escape(' · '.join(parts))}</p></footer>"


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _get(tree: Any, key: str) -> Any:
    for part in key.split("."):
        tree = tree.get(part) if isinstance(tree, Mapping) else None
    return tree
