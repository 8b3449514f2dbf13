"""Do a ledger's rows add up to its counters? Every comparison is exact, except of sums of floats (1e-9 relative)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from gumption.types import FATES

if TYPE_CHECKING:
    from gumption.ledger.reader import Ledger

USEFUL = ("trained", "not_selected")
KEY = ("problem_id", "visit", "attempt", "member")
_COLUMNS = (
    *KEY, "fate", "update", "version_start", "weight", "prompt_tokens", "trained_tokens",
    "flops_prefill", "flops_score", "flops_train",
)  # fmt: skip
_STEP_SUMS = (
    ("flops/train", "flops_train"),
    ("flops/score", "flops_score"),
    ("tokens/trained", "trained_tokens"),
)


def disagreements(ledger: Ledger) -> list[str]:
    """One line for each place where the rows of a ledger and its counters do not agree."""
    found = [f"{d.path}: {d.error}" for d in ledger.damaged]
    before = len(ledger.damaged)
    found += _rows(ledger) + _steps(ledger) + _groups(ledger)
    if ledger.summary and not ledger.open:
        found += _summary(ledger)
        if ledger.summary.get("reason") != "interrupted":
            found += _verdicts(ledger)
    found += [f"{d.path}: {d.error}" for d in ledger.damaged[before:]]
    return found


def _rollouts(ledger: Ledger) -> pl.DataFrame:
    return ledger.read("rollouts", _COLUMNS)  # not the texts, which can be large


def _rows(ledger: Ledger) -> list[str]:
    """Each rollout has one row, a known fate, and trained tokens only if it was trained."""
    rollouts = _rollouts(ledger)
    found = []
    twice = rollouts.group_by(KEY).len().filter(pl.col("len") > 1).sort(KEY)
    if twice.height:
        first = twice.row(0, named=True)
        found.append(
            f"rollouts: {twice.height} rollouts have more than one row, the first is {first['problem_id']} visit "
            f"{first['visit']} attempt {first['attempt']} member {first['member']} ({first['len']} rows)"
        )
    strange = sorted(set(rollouts["fate"].unique()) - set(FATES))
    if strange:
        found.append(f"rollouts: unknown fates {', '.join(strange)}")
    wrong = rollouts.filter((pl.col("fate") != "trained") & (pl.col("trained_tokens") > 0)).height
    if wrong:
        found.append(f"rollouts: {wrong} rows have trained tokens without the fate `trained`")
    return found


def _steps(ledger: Ledger) -> list[str]:
    """What a step says was trained so far is the sum of the rows of all batches before it; nothing shrinks."""
    steps = ledger.steps()
    found = []
    for name in [c for c in steps.columns if c.startswith(("flops/", "tokens/")) or c in ("version", "rollouts")]:
        shrinks = steps.filter(pl.col(name) < pl.col(name).shift(1))
        if shrinks.height:
            found.append(f"steps: {name} goes down at version {shrinks['version'][0]}")
    sums = (
        _rollouts(ledger)
        .filter(pl.col("update").is_not_null())
        .group_by((pl.col("update") + 1).alias("version"))
        .agg(pl.col(column).cast(pl.Int128).sum() for _, column in _STEP_SUMS)
        .sort("version")
        .with_columns(pl.col(column).cum_sum() for _, column in _STEP_SUMS)
    )
    done = steps.filter(~pl.col("skipped").fill_null(False)).sort("version")
    both = done.join_asof(sums, on="version", check_sortedness=False)
    for counter, column in _STEP_SUMS:
        rows = pl.col(column).fill_null(0)
        differ = both.filter(pl.col(counter).is_not_null() & (pl.col(counter).cast(pl.Int128) != rows))
        if differ.height:
            row = differ.row(0, named=True)
            found.append(
                f"steps: {counter} = {row[counter]} at version {row['version']}, the rows add up to {row[column] or 0} "
                f"({differ.height} steps differ)"
            )
    return found


def _groups(ledger: Ledger) -> list[str]:
    """A group's size and kept members are the rollouts that carry its batch."""
    rows = (
        _rollouts(ledger)
        .filter(pl.col("update").is_not_null())
        .group_by("problem_id", "visit", "update")
        .agg(pl.len().cast(pl.Int64).alias("rows"), pl.col("weight").is_not_null().sum().cast(pl.Int64).alias("chosen"))
    )
    groups = (
        ledger.groups()
        .filter(pl.col("update").is_not_null())
        .group_by("problem_id", "visit", "update")
        .agg(pl.col("size").cast(pl.Int64).sum(), pl.col("kept").cast(pl.Int64).sum())
    )
    # A group's row comes after those of its rollouts, so while a run goes on these may be there without it.
    sides: Literal["left", "full"] = "left" if ledger.open else "full"
    both = groups.join(rows, on=["problem_id", "visit", "update"], how=sides, coalesce=True).fill_null(0)
    differ = both.filter((pl.col("size") != pl.col("rows")) | (pl.col("kept") != pl.col("chosen")))
    if not differ.height:
        return []
    row = differ.sort("update", "problem_id", "visit").row(0, named=True)
    return [
        f"groups: {differ.height} groups differ from their rollouts, the first is {row['problem_id']} visit "
        f"{row['visit']} at version {row['update']}: size {row['size']} and {row['rows']} rows, "
        f"kept {row['kept']} and {row['chosen']} rows with a weight"
    ]


def _verdicts(ledger: Ledger) -> list[str]:
    """Every rollout that was judged has a row."""
    key = ["problem_id", "visit", "attempt"]
    rows = _rollouts(ledger).group_by(key).agg(pl.len().cast(pl.Int64).alias("rows"))
    judged = ledger.verdicts().group_by(key).agg(pl.col("n").cast(pl.Int64).sum())
    differ = judged.join(rows, on=key, how="left").with_columns(pl.col("rows").fill_null(0))
    differ = differ.filter(pl.col("n") != pl.col("rows")).sort(key)
    if not differ.height:
        return []
    row = differ.row(0, named=True)
    return [
        f"verdicts: {differ.height} attempts differ from their rollouts, the first is {row['problem_id']} visit "
        f"{row['visit']} attempt {row['attempt']}: n = {row['n']}, {row['rows']} rows"
    ]


def _summary(ledger: Ledger) -> list[str]:
    """The numbers of summary.json are sums of rows."""
    s = ledger.summary
    by_fate = {row["fate"]: row for row in ledger.counters().iter_rows(named=True)}
    main = [row for fate, row in by_fate.items() if fate != "lost"]
    rollouts, evals, groups = _rollouts(ledger), ledger.evals(), ledger.groups()
    lost = by_fate.get("lost", {"flops": 0, "rollouts": 0})
    steps = ledger.steps().with_columns(pl.col("skipped").fill_null(False))
    expected: dict[str, Any] = {
        "rollouts_lost": lost["rollouts"],
        "flops.score": sum(r["flops_score"] for r in main),
        "flops.train": sum(r["flops_train"] for r in main),
        "flops.lost": lost["flops"],
        "flops.eval": int(evals["flops"].cast(pl.Int128).sum() or 0),
        "tokens.trained": sum(r["trained_tokens"] for r in main),
        "updates": max(steps["version"].to_list(), default=0),
        "skipped_updates": int(steps["skipped"].sum()),
        "bits.cum": float((groups["bits"].fill_null(0.0) * groups["count"]).sum()),
    }
    trained = rollouts.filter(pl.col("fate") == "trained")
    ages = (trained["update"] - trained["version_start"]).to_list()
    expected["staleness.mean"] = sum(ages) / len(ages) if ages else 0.0
    expected["staleness.max"] = max(ages, default=0)
    if s.get("reason") != "interrupted":  # then rollouts in flight have no row yet
        useful = sum(r["flops"] for r in main if r["fate"] in USEFUL)
        total = sum(r["flops"] for r in main) + lost["flops"]
        expected |= {
            "rollouts": rollouts.height,
            "flops.prefill": sum(r["flops_prefill"] for r in main),
            "flops.decode": sum(r["flops_decode"] for r in main),
            "flops.total": total,
            "flops.wasted": total - useful,
            "tokens.generated": sum(r["completion_tokens"] for r in main),
            "tokens.prompt": _prefilled(rollouts),
        }
        expected |= {f"rollouts_by_fate.{fate}": row["rollouts"] for fate, row in by_fate.items() if fate != "lost"}
    found = []
    for key, rows in expected.items():
        said = _lookup(s, key)
        if said is not None and not _equal(said, rows):
            found.append(f"summary.json: {key} = {said}, the rows add up to {rows}")
    return found


def _prefilled(rollouts: pl.DataFrame) -> int:
    """Prompt tokens, once for each attempt whose prompt was really prefilled."""
    attempts = rollouts.group_by("problem_id", "visit", "attempt").agg(
        pl.col("prompt_tokens").max(), pl.col("flops_prefill").cast(pl.Int128).sum()
    )
    return int(attempts.filter(pl.col("flops_prefill") > 0)["prompt_tokens"].cast(pl.Int64).sum())


def _lookup(tree: Any, key: str) -> Any:
    for part in key.split("."):
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree


def _equal(said: Any, rows: Any) -> bool:
    if isinstance(rows, float):
        return math.isclose(float(said), rows, rel_tol=1e-9, abs_tol=1e-9)
    return bool(said == rows)
