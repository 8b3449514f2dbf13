"""`gumption eval`: pass rate per problem, pass@k, buckets by initial difficulty."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from gumption.config import RunConfig
    from gumption.training.evaluate import EvalRow
    from gumption.types import Problem


def eval_command(
    model: Annotated[
        str, typer.Argument(help="Shipped model (tiny/…), Hugging Face folder, hub id, or a run's model/.")
    ],
    problems: Annotated[str, typer.Option("--problems", "-p", help="Source, as for `gumption train`.")] = "skill_chain",
    samples: Annotated[int, typer.Option("--samples", "-n", min=1, help="Completions per problem.")] = 64,
    held_out: Annotated[bool, typer.Option("--held-out", help="Evaluate the source's held-out set.")] = False,
    initial: Annotated[
        Path | None,
        typer.Option("--initial", help="Pass-rate profile (parquet, jsonl) that the difficulty buckets come from."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the profile here (.parquet or .jsonl).")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first so many problems.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="Set one key, like rollouts.max_tokens=512. Repeatable.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Another seed draws other samples.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON, problem by problem.")] = False,
) -> None:
    """Measure a model: pass rate of each problem, unbiased pass@k, buckets by initial difficulty.

    Buckets come from --initial, else from the profile that ships with the problems, else from this evaluation.

    [bold]Examples[/]

    gumption eval tiny/skill_chain

    gumption eval runs/latest/model --problems skill_chain --held-out --samples 256

    gumption eval Qwen/Qwen3-0.6B -p gsm8k_test.jsonl -n 16 -s rollouts.max_tokens=512 -o before.parquet

    gumption eval runs/latest/model -p gsm8k_test.jsonl -n 16 --initial before.parquet
    """
    from gumption.config import RunConfig, apply_overrides

    given = {"seed": seed, "model": {"path": model}, "problems": {"source": problems}}
    config = RunConfig.from_dict(apply_overrides(given, settings or []))
    chosen, rows = _run(config, samples, held_out, limit, quiet=as_json)
    result = _result(rows, chosen, initial, config.eval.max_k)
    if out is not None:
        import polars as pl

        from gumption.ledger.profile import write_profile

        write_profile(
            out,
            pl.DataFrame(
                [{"problem_id": r.problem_id, "n": r.n, "successes": r.successes, "version": 0} for r in rows]
            ),
        )
    if as_json:
        typer.echo(json.dumps({"model": model, "samples": samples, **result}))
    else:
        _print(result, out)


def _run(
    config: RunConfig, samples: int, held_out: bool, limit: int | None, *, quiet: bool
) -> tuple[tuple[Problem, ...], list[EvalRow]]:
    from gumption.cli.display import Display
    from gumption.problems import load_problems
    from gumption.rewards import Scorer
    from gumption.training.evaluate import evaluate
    from gumption.training.parts import make_engines

    loaded = load_problems(config.problems, seed=config.seed, held_out=held_out)
    chosen = loaded.problems[:limit]
    if not chosen:
        raise ValueError(f"{config.problems.source!r} has no held-out problems" if held_out else "no problems")
    with Display(quiet=quiet) as display:
        display.phase("loading")
        engine = make_engines(config, None).make_eval_engine()
        scorer = Scorer(config.rewards, max_tokens=config.rollouts.max_tokens)
        display.phase(f"{len(chosen):,} problems × {samples}")
        try:
            rows = evaluate(
                engine,
                scorer,
                chosen,
                samples,
                visit=0,
                max_score=config.rewards.max_score,
                on_progress=display.progress,
            )
        finally:
            scorer.close()
            engine.close()
    return chosen, rows


def _result(rows: list[EvalRow], problems: tuple[Problem, ...], initial: Path | None, max_k: int) -> dict[str, Any]:
    from dataclasses import asdict

    from gumption.ledger.profile import bucket, read_profile
    from gumption.training.summary import initial_buckets, pass_rates, pass_table

    data = [asdict(r) for r in rows]
    if initial is not None:
        profile = {r["problem_id"]: r for r in read_profile(initial).iter_rows(named=True)}
        buckets = {k: bucket(r["successes"] / r["n"], r["n"]) for k, r in profile.items()}
        if not any(p.id in buckets for p in problems):
            raise ValueError(f"{initial} names none of these problems: it was made from another source")
    else:
        buckets = initial_buckets(problems, data)
    counts: dict[str, int] = {}
    for p in problems:
        label = buckets.get(p.id, "unknown")
        counts[label] = counts.get(label, 0) + 1
    return {
        "pass_rate": pass_rates(data, buckets),
        "pass_at_k": pass_table(data, max_k),
        "problems": counts,
        "mean_length": sum(r["mean_length"] for r in data) / len(data),
        "flops": sum(r["flops"] for r in data),
        "profile": [{"problem_id": r["problem_id"], "n": r["n"], "successes": r["successes"]} for r in data],
    }


def _print(result: dict[str, Any], out: Path | None) -> None:
    from rich.table import Table

    from gumption.cli.display import stdout_console
    from gumption.cli.summary import ROWS

    console = stdout_console()
    table = Table(title="Pass rate by initial difficulty", title_justify="left", title_style="bold")
    table.add_column("initial difficulty")
    table.add_column("problems", justify="right")
    table.add_column("pass rate", justify="right")
    for key, label in (*ROWS, ("unknown", "not in the initial profile")):
        if key in result["pass_rate"]:
            n = sum(result["problems"].values()) if key == "all" else result["problems"].get(key, 0)
            table.add_row(label, str(n), f"{result['pass_rate'][key]:.3f}")
    console.print(table)
    console.print("  ".join(f"pass@{k} {v:.3f}" for k, v in result["pass_at_k"].items()))
    console.print(f"mean completion length {result['mean_length']:.1f} tokens")
    if out is not None:
        console.print(f"profile  {out}")
