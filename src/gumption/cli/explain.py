"""`gumption explain`: what a recipe really optimises, and what it costs, before it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from gumption.config import RunConfig
    from gumption.planning.explanation import Explanation


def explain_command(
    recipe: Annotated[
        Path | None, typer.Argument(help="TOML recipe; default: the settings of `gumption train` without one.")
    ] = None,
    against: Annotated[
        list[Path] | None, typer.Option("--against", "-a", help="Another recipe to hold beside it. Repeatable.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="Set one key of the first recipe. Repeatable.")
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", "-p", help="Draw the curves into this HTML page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Say what a recipe optimises: allocation, credit and selection turn ∇p into w(p)·∇p.

    For success rates p: w, rollouts per visit, the share trained on, effective rollouts, and variance × FLOPs against
    plain RLOO with groups of the same size. Then the objective in words, and where the identity does not hold.

    [bold]Examples[/]

    gumption explain

    gumption explain recipes/skill_chain.toml --set selection.rule=all

    gumption explain mine.toml --against grpo.toml --plot objectives.html

    gumption explain mine.toml --set credit.objective=expected_reward --json
    """
    from gumption.cli.recipe import read_recipe
    from gumption.planning.explanation import explain

    named = [(recipe.stem if recipe is not None else "default", read_recipe(recipe, settings or ()))]
    named += [(path.stem, read_recipe(path, ())) for path in against or ()]
    explanations = [explain(name, config) for name, config in _distinct(named)]
    page = _plot(explanations, plot) if plot is not None else None
    if as_json:
        result: dict[str, Any] = {"recipes": [e.as_dict() for e in explanations]}
        typer.echo(json.dumps(result if page is None else result | {"plot": str(page)}, allow_nan=False))
        return
    for explanation in explanations:
        _print(explanation)
    if page is not None:
        typer.echo(f"drawn: {page}")


def _distinct(named: list[tuple[str, RunConfig]]) -> list[tuple[str, RunConfig]]:
    """Names told apart by numbers where files have the same one."""
    names = [name for name, _ in named]
    return [(name if names.count(name) == 1 else f"{name} ({i + 1})", config) for i, (name, config) in enumerate(named)]


def _plot(explanations: list[Explanation], path: Path) -> Path:
    try:
        from gumption.report.objective import write_objectives
    except ImportError as error:
        raise ValueError(f"--plot needs plotly: pip install 'gumption[report]' ({error})") from None
    return write_objectives(explanations, path)


def _print(e: Explanation) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(title=f"{e.name}: {e.rule}", title_justify="left", title_style="bold")
    for column in ("p", "w", "w/w(½)", "rollouts", "trained on", "effective", "variance × FLOPs, RLOO = 1"):
        table.add_column(column, justify="right")
    for row in e.rows():
        error = f" ± {row['w_error']:.2g}" if row["w_error"] > 0 else ""
        relative, beside = row["w_relative"], row["variance_cost_vs_rloo"]
        table.add_row(
            f"{row['p']:g}", f"{row['w']:.3g}{error}", "–" if relative is None else f"{relative:.2f}",
            f"{row['rollouts']:.1f}", f"{100 * row['trained_share']:.0f} %", f"{row['effective_rollouts']:.2f}",
            "–" if beside is None else f"{beside:.2f}",
        )  # fmt: skip
    console.print(table)
    console.print(f"[bold]objective[/]  {e.objective.words}")
    console.print(f"[dim]how        {e.how}[/]")
    for line in e.caveats:
        console.print(f"[yellow]not exact[/]  {line}", soft_wrap=False)
    console.print()
