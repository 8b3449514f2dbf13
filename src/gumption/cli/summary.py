"""The closing page of a run or an evaluation, on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from gumption.cli.display import stdout_console
from gumption.training.run import RunResult

ROWS = (
    ("all", "all"),
    ("extra_hard", "extra hard (0, .02)"),
    ("hard", "hard [.02, .1)"),
    ("medium", "medium [.1, .5)"),
    ("easy", "easy [.5, .96)"),
    ("saturated", "saturated ≥ .96"),
    ("unsolved", "never solved before"),
)
REASONS = {
    "updates": "the update budget is used",
    "flops": "the FLOP budget is used",
    "tokens": "the token budget is used",
    "rollouts": "the rollout budget is used",
    "wall": "the time is up",
    "problems": "the problems ran out",
    "nothing_to_learn": "no problem left that teaches anything (all solved, or none solvable)",
}


def pass_table(title: str, data: Mapping[str, Any]) -> Table:
    """Pass rate before and after, by initial difficulty."""
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("initial difficulty")
    for column in ("problems", "before", "after", "gain", "headroom closed"):
        table.add_column(column, justify="right")
    rates, counts = data["pass_rate"], data["problems"]
    before, after = rates["before"], rates.get("after", {})
    for key, label in ROWS:
        if key not in before:
            continue
        n = sum(counts.values()) if key == "all" else counts.get(key, 0)
        cells = [label, str(n), f"{before[key]:.3f}"]
        if key in after:
            closed = data.get("headroom_closed", {}).get(key)
            gain = after[key] - before[key]
            cells += [f"{after[key]:.3f}", f"{gain:+.3f}", "" if closed is None else f"{100 * closed:.0f} %"]
        table.add_row(*cells, *[""] * (6 - len(cells)))
    return table


def print_summary(result: RunResult) -> None:
    """Pass rates, costs, and where the files are."""
    console = stdout_console()
    s = result.summary
    if s.get("pass_rate"):
        console.print(pass_table("Pass rate on the training problems", s))
    if s.get("held_out"):
        console.print(pass_table("Pass rate on held-out problems", s["held_out"]))
    flops, tokens, wall = s["flops"], s["tokens"], s["wall_s"]
    total = max(flops["total"], 1)
    console.print(
        f"{s['updates']:,} updates, {s['rollouts']:,} rollouts, {tokens['generated']:,} tokens generated, "
        f"{tokens['trained']:,} trained on, in {wall['total']:.0f} s (evaluation: {wall['eval']:.0f} s more)"
    )
    console.print(
        f"{flops['total']:.3g} FLOPs: {100 * (flops['prefill'] + flops['decode']) / total:.0f} % generation, "
        f"{100 * flops['train'] / total:.0f} % training; {100 * flops['wasted'] / total:.0f} % on rollouts that were "
        "filtered, given up, stale or unfinished"
    )
    bits = s["bits"]
    console.print(
        f"reward entropy (a ceiling on what was taught): {bits['per_ktok']:.2f} bits per 1,000 tokens, "
        f"{bits['per_pflop']:,.0f} bits per PFLOP; staleness {s['staleness']['mean']:.2f} updates on average, "
        f"{s['staleness']['max']} at most"
    )
    console.print(f"ended because {REASONS.get(s['reason'], s['reason'])}")
    console.print(f"model   {result.folder / 'model'}\nreport  {result.report or '(not written)'}", soft_wrap=True)
