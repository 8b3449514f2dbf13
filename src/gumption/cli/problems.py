"""`gumption problems show` and `gumption problems check`: look at a source before a run spends compute on it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from gumption.config import RunConfig
    from gumption.problems import ProblemSet
    from gumption.rewards.check import Report

problems_app = typer.Typer(
    help="Look at problems, and check that the verifier knows right from wrong.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

_SOURCE = typer.Argument(
    help="skill_chain, manufactoria[:FAMILY], gym:NAME, datasets:NAME[:SPLIT], module:function, "
    "or a jsonl/json/parquet file (optionally .gz)."
)
_SETTINGS = typer.Option(
    "--set", "-s", help="Set one key, like problems.answer_field=target or rewards.time_limit=5. Repeatable."
)
_SHOWN = 20  # bad rows that are printed
_SIZED = ("gym", "datasets")  # sources that need not make or read more than is looked at


@problems_app.command("show")
def show_command(
    source: Annotated[str, _SOURCE],
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="How many problems.")] = 5,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Draw them with this seed; default: the first ones.")
    ] = None,
    field: Annotated[
        list[str] | None, typer.Option("--field", "-f", help="Show this column of the data too. Repeatable.")
    ] = None,
    held_out: Annotated[bool, typer.Option("--held-out", help="Show the source's held-out set.")] = False,
    settings: Annotated[list[str] | None, _SETTINGS] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the problems as JSON.")] = False,
) -> None:
    """Show a few problems as a model would see them.

    [bold]Examples[/]

    gumption problems show skill_chain

    gumption problems show gym:chain_sum -n 3 -s problems.options.max_terms=8

    gumption problems show gsm8k_train.jsonl --seed 1 --json

    gumption problems show rows.parquet -s problems.prompt_field=text -s problems.answer_field=target -f level
    """
    config = _config(source, settings, seed=seed or 0, size=number)
    problems = _load(config, held_out)
    chosen = _chosen(problems, number, seed)
    rows = [_row(problems, i, field or []) for i in chosen]
    if as_json:
        print(json.dumps(rows, ensure_ascii=False, default=str))
        return
    _print_problems(problems, rows, field or [])


@problems_app.command("check")
def check_command(
    source: Annotated[str, _SOURCE],
    verifier: Annotated[
        str, typer.Option("--verifier", "-v", help="auto (the one each problem names), math, exact, module:function, …")
    ] = "auto",
    limit: Annotated[int | None, typer.Option("--limit", "-l", min=1, help="Only the first so many problems.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first malformed row.")] = False,
    held_out: Annotated[bool, typer.Option("--held-out", help="Check the source's held-out set.")] = False,
    settings: Annotated[list[str] | None, _SETTINGS] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print counts and every bad row as JSON.")] = False,
) -> None:
    """For each problem: does the verifier accept the gold answer and reject a changed one?

    Exit code 0: all is well; 1: some rows are malformed or some verdicts wrong (they are named with file and line).

    [bold]Examples[/]

    gumption problems check gsm8k_test.jsonl

    gumption problems check math.json --limit 100 --json

    gumption problems check gym:countdown --limit 20

    gumption problems check rows.jsonl --verifier my_rewards:reward --strict
    """
    config = _config(source, settings, size=limit, strict=strict, verifier=verifier)
    problems = _load(config, held_out)
    report = _check(config, problems, limit, quiet=as_json)
    if as_json:
        print(json.dumps(report.as_dict(), ensure_ascii=False))
    else:
        _print_report(report)
    if report.bad or report.skipped:
        raise typer.Exit(1)


def _config(
    source: str,
    settings: Sequence[str] | None,
    *,
    seed: int = 0,
    size: int | None = None,
    strict: bool = False,
    verifier: str = "auto",
) -> RunConfig:
    """The configuration of a run with this source; `--set` wins."""
    from gumption.config import RunConfig, apply_overrides

    problems: dict[str, Any] = {"source": source, "strict": strict}
    if size is not None and source.partition(":")[0] in _SIZED:
        problems.update(size=size)
    given = {"seed": seed, "problems": problems, "rewards": {"verifier": verifier}}
    return RunConfig.from_dict(apply_overrides(given, settings or ()))


def _load(config: RunConfig, held_out: bool) -> ProblemSet:
    from gumption.problems import load_problems

    problems = load_problems(config.problems, seed=config.seed, held_out=held_out)
    if not problems.problems:
        raise ValueError(f"{config.problems.source} has no held-out problems of its own: look at another source")
    return problems


def _chosen(problems: ProblemSet, number: int, seed: int | None) -> list[int]:
    if seed is None:
        return list(range(min(number, len(problems))))
    import numpy as np

    from gumption.randomness import generator

    order = generator(seed, "problems/show").permutation(len(problems))
    return [int(i) for i in np.sort(order[:number])]


def _row(problems: ProblemSet, position: int, fields: Sequence[str]) -> dict[str, Any]:
    p = problems.problems[position]
    prompt = p.prompt if isinstance(p.prompt, str) else [m._asdict() for m in p.prompt]
    row: dict[str, Any] = {
        "id": p.id,
        "where": problems.where(position),
        "prompt": prompt,
        "answer": p.answer,
        "verifier": p.verifier,
    }
    for name in fields:
        if name not in p.meta:
            known = ", ".join(p.meta) or "none"
            raise ValueError(f"no column {name!r} in the problem at {row['where']}; its other columns: {known}")
        row[name] = p.meta[name]
    return row


def _print_problems(problems: ProblemSet, rows: Sequence[dict[str, Any]], fields: Sequence[str]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    for row in rows:
        table = Table(
            title=escape(row["where"]), title_justify="left", show_header=False, title_style="bold", expand=True
        )
        table.add_column(style="dim", no_wrap=True)
        table.add_column(ratio=1, overflow="fold")
        prompt = row["prompt"]
        if not isinstance(prompt, str):
            prompt = "\n\n".join(f"[{m['role']}] {m['content']}" for m in prompt)
        cells = [("prompt", prompt), ("answer", row["answer"]), ("verifier", row["verifier"]), ("id", row["id"])]
        for name, value in (*cells, *((f, row[f]) for f in fields)):
            table.add_row(name, escape(_text(value)))
        console.print(table)
    note = f", {len(problems.skipped)} malformed rows skipped" if problems.skipped else ""
    console.print(f"{len(rows)} of {len(problems):,} problems of {escape(problems.name)}{note}")


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 4000 else text[:4000] + "…"


def _check(config: RunConfig, problems: ProblemSet, limit: int | None, *, quiet: bool) -> Report:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from gumption.rewards.check import check

    console = Console(stderr=True)
    columns = (TextColumn("checking"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("checking", total=len(problems.problems[:limit]))
        return check(problems, config.rewards, limit=limit, on_progress=lambda done: bar.update(task, completed=done))


def _print_report(report: Report) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(title=f"{escape(report.source)}, verifier {escape(report.verifier)}", title_justify="left")
    table.add_column("")
    for name in ("accepted", "rejected", "failed", "none given"):
        table.add_column(name, justify="right")
    for label, counts in (("gold answers", report.gold), ("changed answers", report.changed)):
        table.add_row(label, *(f"{counts[k]:,}" for k in ("accepted", "rejected", "failed", "none")))
    console.print(table)
    for line in _bad_lines(report):
        console.print(escape(line), soft_wrap=True)
    verdict = (
        "all good" if not (report.bad or report.skipped) else f"{len(report.bad) + len(report.skipped):,} bad rows"
    )
    console.print(f"{report.problems:,} problems in {report.seconds:.1f} s: {verdict}")


def _bad_lines(report: Report) -> Iterator[str]:
    lines = [*map(str, report.skipped), *(f"{b.where}: {b.reason}" for b in report.bad)]
    yield from lines[:_SHOWN]
    if len(lines) > _SHOWN:
        yield f"… and {len(lines) - _SHOWN:,} more; --json lists all"
