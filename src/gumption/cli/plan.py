"""`gumption plan`: a setting for a model, problems, hardware and a budget, with its reasons and a recipe."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from gumption.planning.planner import Setting

_BUDGET = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*")
_HOURS = {"h": 1.0, "hour": 1.0, "hours": 1.0, "m": 1 / 60, "min": 1 / 60, "d": 24.0, "day": 24.0, "days": 24.0}
_FLOPS = {"": 1.0, "flop": 1.0, "flops": 1.0, "pflop": 1e15, "pflops": 1e15, "eflop": 1e18, "eflops": 1e18}


def parse_budget(text: str) -> tuple[float | None, float | None]:
    """FLOPs or hours.

    Returns:
        (FLOPs, None) or (None, hours).

    Raises:
        ValueError: neither, or not above 0.

    >>> parse_budget("1e20"), parse_budget("500 PFLOPs"), parse_budget("24h"), parse_budget("90m")
    ((1e+20, None), (5e+17, None), (None, 24.0), (None, 1.5))
    """
    match = _BUDGET.fullmatch(text)
    unit = match[2].lower() if match else ""
    if match is None or (unit not in _HOURS and unit not in _FLOPS):
        raise ValueError(f"budget {text!r}: write FLOPs (1e20, 500PFLOPs) or time (24h, 90m, 2d)")
    value = float(match[1])
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"budget {text!r} must be above 0")
    if unit in _HOURS:
        return None, value * _HOURS[unit]
    if unit == "" and value < 1e9:
        raise ValueError(f"budget {text!r} has no unit: {text.strip()}h for hours, or FLOPs like 1e20")
    return value * _FLOPS[unit], None


def plan_command(
    profile: Annotated[
        str,
        typer.Option("--profile", help="Pass rates: what `gumption eval --out` wrote, a run folder, or beta(a, b)."),
    ],
    model_params: Annotated[float, typer.Option("--model-params", help="Parameters of the model, like 4e9.")],
    budget: Annotated[str, typer.Option("--budget", help="FLOPs (1e20, 500PFLOPs) or time (24h, 90m, 2d).")],
    hardware: Annotated[str, typer.Option("--hardware", help="Preset: a100, h100, h200, b200, l4, l40s, …")] = "h100",
    gpus: Annotated[int, typer.Option("--gpus", help="How many of them, shared by generation and training.")] = 8,
    mean_length: Annotated[float, typer.Option("--mean-length", help="Mean completion tokens.")] = 1000.0,
    length_cv: Annotated[float, typer.Option("--length-cv", help="Coefficient of variation of lengths.")] = 0.6,
    max_tokens: Annotated[int, typer.Option("--max-tokens", help="Completion tokens at most.")] = 4096,
    prompt_tokens: Annotated[int, typer.Option("--prompt-tokens", help="Tokens of a prompt.")] = 128,
    max_staleness: Annotated[float, typer.Option("--max-staleness", help="Bound on the mean staleness.")] = 4.0,
    model: Annotated[str | None, typer.Option("--model", "-m", help="Written into the recipe.")] = None,
    problems: Annotated[str | None, typer.Option("--problems", "-p", help="Written into the recipe.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the recipe here.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the simulations.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print ranking, reasons and recipe as JSON.")] = False,
) -> None:
    """Choose allocation, group and batch size, share of leverage, staleness bound and the train/rollout split.

    Closed forms screen some thousand settings, the simulator ranks the few best by leverage per FLOP (or per hour).
    What is assumed of hardware and models is in docs/planning.md.

    [bold]Examples[/]

    gumption plan --profile before.parquet --model-params 4e9 --budget 24h --hardware h100 --gpus 8

    gumption plan --profile runs/latest --model-params 1.7e9 --budget 1e20 --out recipe.toml

    gumption plan --profile "beta(0.3, 1.2)" --model-params 8e9 --budget 500PFLOPs --hardware h200 --json
    """
    from dataclasses import asdict

    from gumption.config import dump_toml
    from gumption.planning.hardware import preset
    from gumption.planning.planner import Task, plan, reasons, recipe

    flops, hours = parse_budget(budget)
    card = preset(hardware)
    task = Task(
        _pass_rates(profile, seed), model_params, card, gpus, flops, hours, mean_length, length_cv, max_tokens,
        prompt_tokens, max_staleness,
    )  # fmt: skip
    ranked = plan(task, seed=seed)
    why = reasons(task, ranked)
    extra: dict[str, dict[str, Any]] = {"simulation": {"problems": profile}}
    for table, key, value in (("model", "path", model), ("problems", "source", problems)):
        if value is not None:
            extra[table] = {key: value}
    comment = "".join(f"# {line}\n" for line in ("Written by `gumption plan`:", *(f"- {line}" for line in why)))
    decided = recipe(task, ranked[0], extra).model_dump(mode="json", exclude_unset=True)
    text = f"{comment}\n{dump_toml(decided)}"
    if out is not None:
        out.write_text(text, encoding="utf-8")
    if as_json:
        settings = [{k: None if v != v else v for k, v in asdict(s).items()} for s in ranked]
        hard = {"name": hardware.lower(), "count": gpus, **asdict(card)}
        typer.echo(json.dumps({"ranking": settings, "reasons": why, "recipe": text, "hardware": hard}))
        return
    _print(ranked, why, text, out)


def _pass_rates(profile: str, seed: int) -> Any:
    """Pass rates of a profile, or of what `simulation.problems` also reads."""
    import numpy as np

    from gumption.config import ProblemsConfig
    from gumption.problems.scripted import load

    made = load(ProblemsConfig(), argument=profile, seed=seed, held_out=False)
    return np.array([p.answer["pass_rate"] for p in made])


def _print(ranked: Sequence[Setting], why: Sequence[str], text: str, out: Path | None) -> None:
    from rich.box import SIMPLE
    from rich.table import Table

    from gumption.cli.display import stdout_console

    console = stdout_console()
    table = Table(title="Settings, best first (simulated)", title_justify="left", title_style="bold", box=SIMPLE)
    for column in ("rule", "group", "ℓ", "batch", "t:r", "slots"):
        table.add_column(column, no_wrap=True)
    for column in ("lev/PFLOP", "lev/h", "bits/PF", "stale", "updates"):
        table.add_column(column, justify="right", no_wrap=True)
    for s in ranked:
        table.add_row(
            s.rule, str(s.group_size), "all" if s.share == 1 else f"{s.share:g}", str(s.groups),
            f"{s.trainers}:{s.generators}", str(s.slots), f"{s.leverage_per_pflop:,.1f}", f"{s.leverage_per_hour:,.0f}",
            f"{s.bits_per_pflop:,.1f}", f"{s.stale:.2f}", f"{s.updates:,.0f}",
        )  # fmt: skip
    console.print(table)
    console.print("ℓ: share of leverage kept; batch: groups per update; t:r: trainers, generators;")
    console.print("lev: leverage trained on, in effective rollouts; bits/PF: bits per PFLOP; stale: mean staleness")
    console.print("Why the first one:")
    for line in why:
        console.print(f"  - {line}")
    if out is not None:
        console.print(f"recipe  {out}", soft_wrap=True)
    else:
        console.print("\n" + text, markup=False, soft_wrap=True)
