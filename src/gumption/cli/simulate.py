"""`gumption simulate`: what a recipe would generate, train on, waste and wait for, on a virtual clock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table


def simulate_command(
    recipe: Annotated[Path | None, typer.Argument(help="TOML recipe, as for `gumption train`.")] = None,
    problems: Annotated[
        str | None,
        typer.Option("--problems", "-p", help="mixture, beta(a, b), pass rates, or a profile (file, run folder)."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="Set one key, like simulation.mean_length=900. Repeatable.")
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Write figures to this HTML file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Run a recipe on a virtual clock with problems of known pass rate: thousands of rollouts per second, no model.

    Allocation, credit, selection and the loop are those of `gumption train`; the [simulation] table of the recipe says
    what is assumed of problems, lengths and speeds (docs/planning.md). Without a budget: 100 updates.

    [bold]Examples[/]

    gumption simulate recipes/skill_chain.toml

    gumption simulate recipe.toml --problems before.parquet --set budget.rollouts=50000 --plot plan.html

    gumption simulate --set allocation.rule=dynamic --set simulation.trainer_tokens_per_second=20000 --json
    """
    from gumption.cli.recipe import read_recipe
    from gumption.planning.simulator import simulate

    overrides = list(settings or [])
    if problems is not None:
        overrides.insert(0, f"simulation.problems={json.dumps(problems)}")
    result = simulate(read_recipe(recipe, overrides))
    if plot is not None:
        try:
            from gumption.report.simulation import write_simulation
        except ImportError as error:
            raise ValueError(f"--plot needs plotly: pip install 'gumption[report]' ({error})") from None
        write_simulation(plot, recipe.stem if recipe else "defaults", result.summary, result.series)
    if as_json:
        typer.echo(json.dumps({**result.summary, "wall_s": round(result.wall, 2), "series": result.series}))
        return
    _print(result.summary, result.wall, plot)


def _print(s: Mapping[str, Any], wall: float, plot: Path | None) -> None:
    from gumption.cli.display import stdout_console

    console = stdout_console()
    console.print(_buckets(s["buckets"]))
    tokens, flops, stale, idle = s["tokens"], s["flops"], s["staleness"], s["idle"]
    n, total = max(s["rollouts"], 1), max(flops["total"], 1)
    fates = ", ".join(f"{fate} {100 * k / n:.0f} %" for fate, k in s["rollouts_by_fate"].items())
    console.print(f"{s['updates']:,} updates, {s['rollouts']:,} rollouts ({fates})")
    console.print(
        f"{tokens['generated']:,} tokens generated, {tokens['trained']:,} trained on; "
        f"{s['seconds'] / 3600:.2f} virtual hours; generator idle {100 * idle['generator']:.0f} %, "
        f"trainer {100 * idle['trainer']:.0f} % (of it weight sync {100 * idle['trainer_sync']:.0f} %)"
    )
    console.print(
        f"{flops['total']:.3g} FLOPs: prefill {100 * flops['prefill'] / total:.0f} %, decode "
        f"{100 * flops['decode'] / total:.0f} %, training {100 * (flops['train'] + flops['score']) / total:.0f} %; "
        f"{100 * s['wasted_share']:.0f} % on rollouts that were not used"
    )
    console.print(
        f"leverage trained on {s['leverage']['trained']:,.0f} of {s['leverage']['accepted']:,.0f} effective rollouts; "
        f"{s['bits']['per_ktok']:.2f} bits per 1,000 tokens, {s['bits']['per_pflop']:,.1f} bits per PFLOP"
    )
    console.print(
        f"staleness {stale['mean']:.2f} updates ({stale['before_queue']:.2f} before the queue, "
        f"{stale['in_queue']:.2f} in it), {stale['max']} at most; {s['attempts_per_group']:.2f} attempts per group"
    )
    console.print(
        f"ended by: {s['reason']}; simulated in {wall:.1f} s ({s['rollouts'] / max(wall, 1e-9):,.0f} rollouts/s)"
    )
    if plot is not None:
        console.print(f"figures  {plot}", soft_wrap=True)


def _buckets(buckets: Mapping[str, Mapping[str, float]]) -> Table:
    from rich.table import Table

    from gumption.cli.summary import ROWS

    table = Table(title="Where the rollouts go", title_justify="left", title_style="bold")
    table.add_column("difficulty")
    for column in ("problems", "rollouts", "trained on", "tokens", "pass rate", "after"):
        table.add_column(column, justify="right")
    for key, label in ROWS:
        if key in buckets:
            row = buckets[key]
            table.add_row(
                label,
                f"{row['problems']:,}",
                f"{row['rollouts']:,}",
                f"{row['trained']:,}",
                f"{100 * row['token_share']:.0f} %",
                f"{row['pass_rate_before']:.3f}",
                f"{row['pass_rate_after']:.3f}",
            )
    return table
