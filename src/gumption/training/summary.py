"""`summary.json`: what a run did, in one page of numbers (keys: docs/ledger.md)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gumption import __version__
from gumption.config import RunConfig
from gumption.flops import CONVENTION
from gumption.ledger.profile import bucket
from gumption.training.evaluate import pass_at_k
from gumption.types import Problem, StateTree

if TYPE_CHECKING:
    from gumption.training.parts import Parts

SHOWN = ("extra_hard", "hard", "medium", "easy")


def initial_buckets(problems: Sequence[Problem], first_eval: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Bucket of each problem by the initial model's pass rate.

    A shipped profile (`n` and `successes` in the problem's meta, from other samples than this run's evaluations) is
    used where there is one: buckets cut from the same samples as the gains would regress to the mean.
    """
    rows = {r["problem_id"]: (r["n"], r["successes"]) for r in first_eval}
    result = {}
    for problem in problems:
        n, successes = problem.meta.get("n"), problem.meta.get("successes")
        if not isinstance(n, int) or not isinstance(successes, int) or n <= 0:
            if problem.id not in rows:
                continue
            n, successes = rows[problem.id]
        result[problem.id] = bucket(successes / n, n)
    return result


def pass_rates(rows: Sequence[Mapping[str, Any]], buckets: Mapping[str, str]) -> dict[str, float]:
    """Mean pass rate over problems, overall and by initial bucket (only buckets that have problems)."""
    rates: dict[str, list[float]] = {"all": []}
    for row in rows:
        rate = row["successes"] / row["n"]
        rates["all"].append(rate)
        rates.setdefault(buckets.get(row["problem_id"], "unknown"), []).append(rate)
    return {name: float(np.mean(values)) for name, values in rates.items() if values}


def _set_summary(evals: Sequence[StateTree], name: str, problems: Sequence[Problem], max_k: int) -> dict[str, Any]:
    mine = [e for e in evals if e["set"] == name]
    if not mine:
        return {}
    first, last = mine[0], mine[-1]
    buckets = initial_buckets(problems, first["rows"])
    before, after = pass_rates(first["rows"], buckets), pass_rates(last["rows"], buckets)
    counts: dict[str, int] = {}
    for label in buckets.values():
        counts[label] = counts.get(label, 0) + 1
    result: dict[str, Any] = {"pass_rate": {"before": before}, "problems": counts}
    result["pass_at_k"] = {"before": pass_table(first["rows"], max_k)}
    if last is not first:
        result["pass_rate"]["after"] = after
        result["pass_at_k"]["after"] = pass_table(last["rows"], max_k)
        result["headroom_closed"] = {
            k: (after[k] - before[k]) / (1 - before[k]) for k in before if k in after and before[k] < 1
        }
    return result


def pass_table(rows: Sequence[Mapping[str, Any]], max_k: int) -> dict[str, float]:
    """Mean unbiased pass@k over problems, for k = 1, 2, 4, … up to the smallest number of samples."""
    n = np.array([r["n"] for r in rows])
    c = np.array([r["successes"] for r in rows])
    table, k = {}, 1
    while k <= min(max_k, int(n.min())):
        table[str(k)] = float(pass_at_k(n, c, k).mean())
        k *= 2
    return table


def make_summary(
    config: RunConfig, parts: Parts, evals: Sequence[StateTree], *, reason: str, wall_eval: float
) -> dict[str, Any]:
    """Everything that `summary.json` holds."""
    r = parts.recorder
    totals = r.totals()
    total = r.flops_total
    seconds = {k: round(r.seconds.get(k, 0.0), 3) for k in ("generation", "train", "verify", "weight_sync")}
    trained = r.rollouts.get("trained", 0)
    max_k = config.eval.max_k
    return {
        "gumption": __version__,
        "reason": reason,
        **_set_summary(evals, "train", parts.train_set, max_k),
        "held_out": _set_summary(evals, "held_out", parts.held_out, max_k),
        "updates": parts.trainer.version,
        "skipped_updates": r.skipped_updates,
        "rollouts": int(totals["rollouts"]),
        "rollouts_by_fate": dict(sorted(r.rollouts.items())),
        "rollouts_lost": r.rollouts_lost,
        "flops": {
            "prefill": parts.engine.flops_prefill,
            "decode": parts.engine.flops_decode,
            "score": r.flops_score,
            "train": r.flops_train,
            "lost": r.flops_lost,
            "total": total,
            "wasted": total - r.flops_useful,
            "eval": sum(row["flops"] for e in evals for row in e["rows"]),
            "convention": CONVENTION,
        },
        "tokens": {
            "prompt": parts.engine.tokens_prompt,
            "generated": parts.engine.tokens_generated,
            "trained": r.tokens_trained,
        },
        "wall_s": {**seconds, "total": round(parts.budget.wall, 3), "eval": round(wall_eval, 3)},
        "bits": {
            "cum": r.cum_bits,
            "per_ktok": totals["info/bits_per_ktok"],
            "per_pflop": totals["info/bits_per_pflop"],
        },
        "staleness": {"mean": r.staleness_sum / trained if trained else 0.0, "max": r.staleness_max},
        "rewards": parts.scorer.counts(),
        "skipped_problems": parts.skipped_problems,
        "seed": config.seed,
    }


def write_summary(path: Path, summary: Mapping[str, Any]) -> None:
    """Write it whole or not at all."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    os.replace(temporary, path)
