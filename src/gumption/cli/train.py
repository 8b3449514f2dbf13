"""`gumption train` and `gumption resume`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from gumption.config import RunConfig

# A bare `gumption train`: what recipes/skill_chain.toml says, a few minutes of the shipped model on two cores.
# One thread: on matrices this small a second one gains little, and where another program wants the core it costs much.
DEFAULT = {
    "training": {"threads": 1},
    "eval": {"every": 250, "samples_during": 8},
    "budget": {"flops": 1.4e12},
}

TRAIN_EPILOG = """[bold]Examples[/]

gumption train

gumption train recipes/manufactoria_tiny.toml

gumption train --set allocation.rule=fixed --set allocation.group_size=16 --set selection.rule=all

gumption train --model Qwen/Qwen3-0.6B --problems gsm8k.jsonl --set rollouts.max_tokens=512 --set budget.wall=8h

gumption train recipe.toml --out runs/a --json"""


def train_command(
    recipe: Annotated[
        Path | None, typer.Argument(help="TOML recipe; default: Never Give Up with leverage on the shipped model.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Shipped model (tiny/…), Hugging Face folder or hub id.")
    ] = None,
    problems: Annotated[
        str | None,
        typer.Option("--problems", "-p", help="skill_chain, manufactoria, gym:NAME, a jsonl/json/parquet file, …"),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="Set one key, like training.learning_rate=3e-4. Repeatable.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Run folder; default runs/<recipe>-<time>.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start again in a folder that holds a run.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress display.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON on standard output.")] = False,
) -> None:
    """Train a model with reinforcement learning on checkable problems."""
    config = read_config(recipe, model, problems, settings or [])
    from gumption.cli.display import Display
    from gumption.training.folder import default_folder
    from gumption.training.run import train

    folder = out or default_folder(recipe.stem if recipe else "train")
    with Display(quiet=quiet or as_json) as display:
        result = train(config, out=folder, observer=display, overwrite=overwrite)
    _end(result, as_json)


train_command.__doc__ = f"{train_command.__doc__}\n\n{TRAIN_EPILOG}"


def resume_command(
    folder: Annotated[Path, typer.Argument(help="Run folder, for example runs/latest.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="Change a key, usually the budget: budget.updates=2000.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress display.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON on standard output.")] = False,
) -> None:
    """Go on with a run that was interrupted, killed, or is to run longer.

    [bold]Examples[/]

    gumption resume runs/latest

    gumption resume runs/latest --set budget.flops=4e12
    """
    from gumption.cli.display import Display
    from gumption.training.run import resume

    with Display(quiet=quiet or as_json) as display:
        result = resume(folder.resolve(), observer=display, overrides=tuple(settings or ()))
    _end(result, as_json)


def read_config(recipe: Path | None, model: str | None, problems: str | None, settings: list[str]) -> RunConfig:
    """The recipe with the command line's changes."""
    overrides = list(settings)
    if model is not None:
        overrides.insert(0, f"model.path={json.dumps(model)}")
    if problems is not None:
        overrides.insert(0, f"problems.source={json.dumps(problems)}")
    if recipe is not None:
        return RunConfig.from_toml(recipe, overrides)
    from gumption.config import apply_overrides

    given = apply_overrides({}, overrides)
    if model is not None or problems is not None or "model" in given:
        return RunConfig.from_dict(given)
    limits = {} if given.get("budget") else DEFAULT["budget"]
    return RunConfig.from_dict(apply_overrides({**DEFAULT, "budget": limits}, overrides))


def _end(result: Any, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"folder": str(result.folder), **result.summary}))
    if result.interrupted:
        typer.echo(f"interrupted; go on with: gumption resume {result.folder}", err=True)
        raise typer.Exit(130)
    if not as_json:
        from gumption.cli.summary import print_summary

        print_summary(result)
