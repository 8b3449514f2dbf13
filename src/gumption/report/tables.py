"""From the ledger's frames to the tables that figures draw: pure functions, polars in, polars out.

Every function takes empty frames (tables that a run does not have, or not yet) and gives an empty frame back.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import polars as pl

from gumption.ledger.profile import BUCKETS, bucket_expr

FLOPS: Final = ("flops_prefill", "flops_decode", "flops_score", "flops_train")
ORDER: Final = {name: i for i, name in enumerate(("all", *BUCKETS))}
KEY: Final = ("problem_id", "set")
ROLLOUT: Final = ("problem_id", "visit", "attempt", "member")
SAMPLE: Final = (*ROLLOUT, "fate", "reason", "version_start", "reward", "task_reward")
"""Columns of a rollout that `samples` needs and returns."""


def difficulty(problems: pl.DataFrame, evals: pl.DataFrame) -> pl.DataFrame:
    """Initial pass rate and bucket of each problem.

    From the shipped profile where the problem's meta has one (`n`, `successes`), else from the first evaluation.

    Returns:
        `problem_id`, `set`, `n`, `successes`, `initial` (rate), `bucket`, `source` ("profile" or "first_eval").
    """
    shipped = problems.select(*KEY, "meta").unique(KEY, keep="first", maintain_order=True)
    counts = [_profile(meta) for meta in shipped["meta"].to_list()]
    shipped = shipped.select(KEY).with_columns(
        pl.Series("n", [n for n, _ in counts], pl.Int64),
        pl.Series("successes", [k for _, k in counts], pl.Int64),
        pl.lit("profile").alias("source"),
    )
    first = (
        evaluations(evals)
        .filter(pl.col("n") > 0)
        .sort("version")
        .unique(KEY, keep="first", maintain_order=True)
        .select(*KEY, "n", "successes", pl.lit("first_eval").alias("source"))
    )
    known = shipped.filter(pl.col("n") > 0)
    rest = first.join(known, on=KEY, how="anti")
    return (
        pl.concat([known.select(*KEY, "n", "successes", "source"), rest])
        .with_columns((pl.col("successes") / pl.col("n")).alias("initial"))
        .with_columns(bucket_expr(pl.col("initial")).alias("bucket"))
        .select(*KEY, "n", "successes", "initial", "bucket", "source")
        .sort("set", "problem_id")
    )


def _profile(meta: str | None) -> tuple[int | None, int | None]:
    try:
        data = json.loads(meta or "null")
    except json.JSONDecodeError:
        return None, None
    if not isinstance(data, dict):
        return None, None
    n, k = data.get("n"), data.get("successes")
    good = type(n) is int and type(k) is int and n > 0 and 0 <= k <= n
    return (n, k) if good else (None, None)


def evaluations(evals: pl.DataFrame) -> pl.DataFrame:
    """Counts per evaluated version and problem; evaluations of the same version are pooled.

    Returns:
        `version`, `set`, `problem_id`, `n`, `successes`, `run_flops`, `wall`.
    """
    return (
        evals.group_by("version", *KEY)
        .agg(
            pl.col("n").cast(pl.Int64).sum(),
            pl.col("successes").cast(pl.Int64).sum(),
            pl.col("run_flops").max(),
            pl.col("wall").min(),
        )
        .sort("version", "set", "problem_id")
    )


def pass_rates(evals: pl.DataFrame, levels: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Mean pass rate per set, initial bucket and evaluated version, with what the run had spent by then.

    The standard error is that of the evaluation's sampling: √(Σ p(1 − p)/n)/P over the bucket's P problems.

    Args:
        evals: The ledger's table.
        levels: From `difficulty`.
        steps: The ledger's table; gives rollouts, tokens and wall time of a version.

    Returns:
        `set`, `bucket` ("all" too), `version`, `problems`, `pass_rate`, `se`, `flops`, `rollouts`, `tokens`, `wall`;
        only problems that every evaluation of their set has.
    """
    counts = evaluations(evals).filter(pl.col("n") > 0)
    rounds = counts.group_by("set").agg(pl.col("version").n_unique().alias("rounds"))
    whole = (
        counts.group_by(KEY)
        .agg(pl.len().cast(pl.Int64).alias("seen"))
        .join(rounds, on="set")
        .filter(pl.col("seen") == pl.col("rounds"))
    )
    rate, n = pl.col("successes") / pl.col("n"), pl.col("n")
    rows = (
        counts.join(whole.select(KEY), on=KEY)
        .join(levels.select(*KEY, "bucket"), on=KEY)
        .with_columns(rate.alias("rate"), (rate * (1 - rate) / n).alias("variance"))
    )
    rows = pl.concat([rows, rows.with_columns(pl.lit("all").alias("bucket"))])
    means = rows.group_by("set", "bucket", "version").agg(
        pl.len().cast(pl.Int64).alias("problems"),
        pl.col("rate").mean().alias("pass_rate"),
        (pl.col("variance").sum().sqrt() / pl.len()).alias("se"),
        pl.col("run_flops").max(),
    )
    start = pl.col("version") == 0
    columns = ("flops", "rollouts", "tokens", "wall")
    return (
        means.join(spending(steps), on="version", how="left")
        .with_columns(pl.coalesce(pl.col("run_flops").cast(pl.Float64), "flops").alias("flops"))
        .with_columns(pl.when(start).then(pl.col(c).fill_null(0)).otherwise(pl.col(c)).alias(c) for c in columns)
        .sort("set", pl.col("bucket").replace_strict(ORDER, default=99), "version", descending=[True, False, False])
        .select("set", "bucket", "version", "problems", "pass_rate", "se", *columns)
    )


def spending(steps: pl.DataFrame) -> pl.DataFrame:
    """What a run had spent when it reached a policy version: `version`, `flops`, `rollouts`, `tokens`, `wall`."""
    return (
        steps.group_by("version")
        .agg(
            pl.col("flops/total").max().cast(pl.Float64).alias("flops"),
            pl.col("rollouts").max(),
            pl.col("tokens/generated").max().alias("tokens"),
            pl.col("wall").max(),
        )
        .sort("version")
    )


def gains(rates: pl.DataFrame) -> pl.DataFrame:
    """Before and after, per set and bucket.

    headroom closed = (after − before)/(1 − before)

    Args:
        rates: From `pass_rates`.

    Returns:
        `set`, `bucket`, `problems`, `before`, `after`, `gain`, `headroom` (null where before is 1), `se` of the gain;
        empty when nothing was evaluated twice.
    """
    ends = rates.group_by("set", "bucket", maintain_order=True).agg(
        pl.col("problems").last(),
        pl.col("pass_rate").first().alias("before"),
        pl.col("pass_rate").last().alias("after"),
        (pl.col("se").first() ** 2 + pl.col("se").last() ** 2).sqrt().alias("se"),
        pl.len().cast(pl.Int64).alias("points"),
    )
    gain = pl.col("after") - pl.col("before")
    return (
        ends.filter(pl.col("points") > 1)
        .with_columns(
            gain.alias("gain"),
            pl.when(pl.col("before") < 1).then(gain / (1 - pl.col("before"))).alias("headroom"),
        )
        .select("set", "bucket", "problems", "before", "after", "gain", "headroom", "se")
    )


def token_flow(rollouts: pl.DataFrame, lost: pl.DataFrame, levels: pl.DataFrame) -> pl.DataFrame:
    """Where tokens and FLOPs went: sums by the problem's initial bucket and the rollout's fate.

    Returns:
        `bucket` ("unknown" without an initial rate), `fate`, `rollouts`, `tokens`, `flops` (float).
    """
    wanted = ("problem_id", "fate", "completion_tokens", *FLOPS)
    rows = pl.concat([rollouts.select(wanted), lost.select(wanted)])
    bucket = levels.filter(pl.col("set") == "train").select("problem_id", "bucket")
    return (
        rows.join(bucket, on="problem_id", how="left")
        .with_columns(pl.col("bucket").fill_null("unknown"))
        .group_by("bucket", "fate")
        .agg(
            pl.len().cast(pl.Int64).alias("rollouts"),
            pl.col("completion_tokens").cast(pl.Int64).sum().alias("tokens"),
            pl.sum_horizontal(pl.col(c).cast(pl.Float64) for c in FLOPS).sum().alias("flops"),
        )
        .sort(pl.col("bucket").replace_strict(ORDER, default=99), "fate")
    )


def rate_counts(evals: pl.DataFrame, edges: np.ndarray[Any, Any], where: str = "train") -> pl.DataFrame:
    """How many problems have which pass rate, at the first and the last evaluation.

    Args:
        evals: The ledger's table.
        edges: Bin edges from 0 to 1; a bin holds its lower edge, the last one both.
        where: "train" or "held_out".

    Returns:
        `when` ("start", "end"), `low`, `high`, `problems`; no "end" when nothing was evaluated twice.
    """
    mine = evaluations(evals).filter((pl.col("set") == where) & (pl.col("n") > 0))
    versions = mine["version"].unique().sort().to_list()
    schema = {"when": pl.String, "low": pl.Float64, "high": pl.Float64, "problems": pl.Int64}
    frames = [pl.DataFrame(schema=schema)]
    for when, version in zip(("start", "end"), dict.fromkeys([*versions[:1], *versions[-1:]]), strict=False):
        at = mine.filter(pl.col("version") == version)
        counts, _ = np.histogram((at["successes"] / at["n"]).to_numpy(), edges)
        columns = {"when": [when] * len(counts), "low": edges[:-1], "high": edges[1:], "problems": counts}
        frames.append(pl.DataFrame(columns, schema=schema))
    return pl.concat(frames)


def measured_entropy(groups: pl.DataFrame, edges: np.ndarray[Any, Any]) -> pl.DataFrame:
    """Reward entropy that the run's chains had, by the pass rate seen in the chain (both weighted by rollouts).

    Returns:
        `low`, `high`, `rate`, `bits` (per rollout), `rollouts`; bins without rollouts are left out.
    """
    seen = groups.filter((pl.col("count") > 0) & pl.col("bits").is_not_null())
    rates = (seen["successes"] / seen["count"]).to_numpy()
    index = np.clip(np.searchsorted(edges, rates, side="right") - 1, 0, len(edges) - 2)
    weight = pl.col("count")
    return (
        seen.with_columns(pl.Series("bin", index, pl.Int64), pl.Series("rate", rates, pl.Float64))
        .group_by("bin")
        .agg(
            ((pl.col("rate") * weight).sum() / weight.sum()).alias("rate"),
            ((pl.col("bits") * weight).sum() / weight.sum()).alias("bits"),
            weight.sum().alias("rollouts"),
        )
        .sort("bin")
        .with_columns(
            pl.col("bin").replace_strict(dict(enumerate(edges[:-1].tolist())), return_dtype=pl.Float64).alias("low"),
            pl.col("bin").replace_strict(dict(enumerate(edges[1:].tolist())), return_dtype=pl.Float64).alias("high"),
        )
        .select("low", "high", "rate", "bits", "rollouts")
    )


def lorenz(rollouts: pl.DataFrame, points: int = 300) -> pl.DataFrame:
    """Leverage captured against rollouts trained on, when the rollouts of most leverage come first.

    Args:
        rollouts: The ledger's table; members of groups that came into a batch count.
        points: At most about so many rows.

    Returns:
        `rollouts` and `leverage`, both shares from 0 to 1; empty without leverage.
    """
    values = rollouts.filter(pl.col("update").is_not_null())["leverage"].drop_nulls().sort(descending=True).to_numpy()
    total = float(values.sum())
    if total <= 0:
        return pl.DataFrame(schema={"rollouts": pl.Float64, "leverage": pl.Float64})
    y = np.concatenate([[0.0], np.cumsum(values) / total])
    x = np.arange(len(y)) / len(values)
    keep = np.unique(np.linspace(0, len(y) - 1, min(points, len(y))).round().astype(int))
    return pl.DataFrame({"rollouts": x[keep], "leverage": y[keep]})


def kept_shares(rollouts: pl.DataFrame, levels: pl.DataFrame) -> pl.DataFrame:
    """What the selector really kept, over all groups that came into a batch and by initial bucket.

    Returns:
        `bucket` ("all" too), `members`, `kept`, `rollouts` (share kept), `leverage` (share kept; null without any).
    """
    bucket = levels.filter(pl.col("set") == "train").select("problem_id", "bucket")
    rows = (
        rollouts.filter(pl.col("update").is_not_null() & pl.col("leverage").is_not_null())
        .select("problem_id", "leverage", pl.col("weight").is_not_null().alias("kept"))
        .join(bucket, on="problem_id", how="left")
        .with_columns(pl.col("bucket").fill_null("unknown"))
    )
    rows = pl.concat([rows, rows.with_columns(pl.lit("all").alias("bucket"))])
    total = pl.col("leverage").sum()
    return (
        rows.group_by("bucket")
        .agg(
            pl.len().cast(pl.Int64).alias("members"),
            pl.col("kept").sum().cast(pl.Int64),
            pl.col("kept").mean().alias("rollouts"),
            pl.when(total > 0).then(pl.col("leverage").filter("kept").sum() / total).alias("leverage"),
        )
        .sort(pl.col("bucket").replace_strict(ORDER, default=99))
    )


def attempts(groups: pl.DataFrame, levels: pl.DataFrame) -> pl.DataFrame:
    """How many attempts the accepted chains took: `bucket`, `attempts`, `chains`."""
    bucket = levels.filter(pl.col("set") == "train").select("problem_id", "bucket")
    return (
        groups.filter(pl.col("kind") == "accept")
        .join(bucket, on="problem_id", how="left")
        .with_columns(pl.col("bucket").fill_null("unknown"))
        .group_by("bucket", "attempts")
        .agg(pl.len().cast(pl.Int64).alias("chains"))
        .sort(pl.col("bucket").replace_strict(ORDER, default=99), "attempts")
    )


def endings(groups: pl.DataFrame, levels: pl.DataFrame) -> pl.DataFrame:
    """How chains ended, by initial bucket: `bucket`, `kind`, `chains`, `rollouts`."""
    bucket = levels.filter(pl.col("set") == "train").select("problem_id", "bucket")
    return (
        groups.join(bucket, on="problem_id", how="left")
        .with_columns(pl.col("bucket").fill_null("unknown"))
        .group_by("bucket", "kind")
        .agg(pl.len().cast(pl.Int64).alias("chains"), pl.col("count").sum().alias("rollouts"))
        .sort(pl.col("bucket").replace_strict(ORDER, default=99), "kind")
    )


def information(steps: pl.DataFrame, windows: int = 40) -> pl.DataFrame:
    """Reward bits per thousand tokens and per PFLOP: within a window of steps, and so far.

    Args:
        steps: The ledger's table.
        windows: The steps are cut into at most so many windows of equal length.

    Returns:
        `version` and `flops` (at the end of a window), `per_ktok`, `per_pflop` (in the window), `per_ktok_so_far`,
        `per_pflop_so_far`, `bits` (so far).
    """
    schema = dict.fromkeys(
        ("flops", "per_ktok", "per_pflop", "per_ktok_so_far", "per_pflop_so_far", "bits"), pl.Float64
    )
    needed = ("version", "info/cum_bits", "tokens/generated", "flops/total")
    if any(c not in steps.columns for c in needed):
        return pl.DataFrame(schema={"version": pl.Int32, **schema})
    rows = steps.select(needed).drop_nulls().unique("version", keep="last", maintain_order=True).sort("version")
    ends = np.unique(np.linspace(0, rows.height, min(windows, rows.height) + 1).round().astype(int))[1:] - 1
    rows = rows.select(pl.all().gather(ends.tolist()))
    bits, tokens = pl.col("info/cum_bits"), pl.col("tokens/generated").cast(pl.Float64)
    flops = pl.col("flops/total").cast(pl.Float64)

    def change(column: pl.Expr) -> pl.Expr:
        step = column - column.shift(1, fill_value=0.0)
        return pl.when(step > 0).then(step)  # two updates without a token between them have no rate

    gained = bits - bits.shift(1, fill_value=0.0)
    return rows.select(
        "version",
        flops.alias("flops"),
        (1e3 * gained / change(tokens)).alias("per_ktok"),
        (1e15 * gained / change(flops)).alias("per_pflop"),
        (1e3 * bits / tokens).alias("per_ktok_so_far"),
        (1e15 * bits / flops).alias("per_pflop_so_far"),
        bits.alias("bits"),
    )


def samples(
    rollouts: pl.DataFrame, problems: pl.DataFrame, levels: pl.DataFrame, max_score: float = 1.0
) -> pl.DataFrame:
    """The latest success and failure of each initial bucket.

    Args:
        rollouts: Rollouts whose completion text is in the ledger (the text itself is not needed).
        problems: The ledger's table, for prompts.
        levels: From `difficulty`.
        max_score: Reward from which a rollout is a success.

    Returns:
        `bucket`, `success`, `prompt` and the columns of `SAMPLE`.
    """
    bucket = levels.filter(pl.col("set") == "train").select("problem_id", "bucket")
    prompts = problems.filter(pl.col("set") == "train").select("problem_id", "prompt")
    return (
        rollouts.filter(pl.col("task_reward").is_not_null())
        .with_columns((pl.col("task_reward") >= max_score - 1e-6).alias("success"))
        .join(bucket, on="problem_id", how="left")
        .join(prompts.unique("problem_id", keep="first"), on="problem_id", how="left")
        .with_columns(pl.col("bucket").fill_null("unknown"))
        .sort("version_start", *ROLLOUT)
        .unique(("bucket", "success"), keep="last", maintain_order=True)
        .sort(pl.col("bucket").replace_strict(ORDER, default=99), "success", descending=[False, True])
        .select("bucket", "success", "prompt", *SAMPLE)
    )
