"""The report's tables, by value, from ledger frames small enough to check by hand."""

import json
import math

import numpy as np
import polars as pl
import pytest

from gumption.ledger import schema
from gumption.report import tables


def frame(table, rows, **fill):
    """A ledger table from partial rows: what a row does not say is `fill`, else null."""
    names = [c.name for c in schema.columns(table)]
    types = {
        "string": pl.String, "int32": pl.Int32, "int64": pl.Int64, "int128": pl.Int128, "float64": pl.Float64,
        "bool": pl.Boolean, "list<float32>": pl.List(pl.Float32),
    }  # fmt: skip
    kinds = {c.name: types[c.type] for c in schema.columns(table)}
    more = sorted({k for r in rows for k in r} - set(names))
    full = [{n: r.get(n, fill.get(n)) for n in [*names, *more]} for r in rows]
    return pl.DataFrame(full, schema=kinds | dict.fromkeys(more, pl.Float64))


def evaluation(version, problem, successes, n=10, where="train", **more):
    return {"version": version, "set": where, "problem_id": problem, "n": n, "successes": successes, "wall": 0.0} | more


def levels(**buckets):
    return pl.DataFrame(
        {"problem_id": list(buckets), "set": ["train"] * len(buckets), "bucket": list(buckets.values()),
         "source": ["profile"] * len(buckets)}
    )  # fmt: skip


NO_STEPS = frame("steps", [])


def test_difficulty_prefers_the_shipped_profile_and_falls_back_to_the_first_evaluation():
    meta = [
        json.dumps({"n": 128, "successes": 1}),
        '{"n": 0, "successes": 0}',
        "not json",
        None,
        '{"n": 4, "successes": 9}',
    ]
    problems = frame(
        "problems", [{"problem_id": p, "set": "train", "meta": m} for p, m in zip("abcde", meta, strict=True)]
    )
    evals = frame("evals", [evaluation(v, p, 5 + v) for v in (3, 0) for p in "abc"] + [evaluation(0, "d", 0, n=0)])
    got = tables.difficulty(problems, evals)
    assert got.select("problem_id", "n", "successes", "bucket", "source").rows() == [
        ("a", 128, 1, "extra_hard", "profile"),
        ("b", 10, 5, "easy", "first_eval"),
        ("c", 10, 5, "easy", "first_eval"),
    ]
    assert got["initial"].to_list() == [1 / 128, 0.5, 0.5]


def test_pass_rates_pool_an_evaluation_and_join_what_was_spent():
    evals = frame("evals", [
        evaluation(0, "a", 1), evaluation(0, "b", 3),
        evaluation(2, "a", 2), evaluation(2, "a", 4), evaluation(2, "b", 10, run_flops=70),
    ])  # fmt: skip
    steps = frame("steps", [
        {"version": 1, "wall": 1.0, "flops/total": 10, "rollouts": 8, "tokens/generated": 80},
        {"version": 2, "wall": 2.0, "flops/total": 20, "rollouts": 16, "tokens/generated": 160},
    ])  # fmt: skip
    rates = tables.pass_rates(evals, levels(a="hard", b="easy"), steps)
    assert rates.select("bucket", "version", "problems").rows() == [
        ("all", 0, 2), ("all", 2, 2), ("hard", 0, 1), ("hard", 2, 1), ("easy", 0, 1), ("easy", 2, 1),
    ]  # fmt: skip
    assert rates["pass_rate"].to_list() == pytest.approx([0.2, 0.65, 0.1, 0.3, 0.3, 1.0])
    # √(Σ p(1−p)/n)/P: p = .1 and .3 of 10; then p = .3 of 20 and 1 of 10.
    assert rates["se"].to_list()[:2] == pytest.approx([math.sqrt(0.009 + 0.021) / 2, math.sqrt(0.0105) / 2])
    assert rates["flops"].to_list()[:2] == [0.0, 70.0], "an evaluation's own run_flops counts before the step's"
    assert rates["flops"].to_list()[2:4] == [0.0, 20.0]
    assert rates.row(1, named=True)["rollouts"] == 16
    assert rates.row(1, named=True)["tokens"] == 160
    assert rates.row(1, named=True)["wall"] == 2.0


def test_pass_rates_compare_the_same_problems_at_every_version():
    evals = frame("evals", [evaluation(0, "a", 1), evaluation(0, "b", 9), evaluation(5, "a", 4)])
    rates = tables.pass_rates(evals, levels(a="hard", b="easy"), NO_STEPS)
    assert rates.select("bucket", "version", "pass_rate").rows() == [
        ("all", 0, 0.1), ("all", 5, 0.4), ("hard", 0, 0.1), ("hard", 5, 0.4),
    ]  # fmt: skip


def test_gains_and_headroom():
    evals = frame(
        "evals", [evaluation(0, "a", 2), evaluation(0, "b", 10), evaluation(1, "a", 6), evaluation(1, "b", 10)]
    )
    gains = tables.gains(tables.pass_rates(evals, levels(a="medium", b="saturated"), NO_STEPS))
    assert gains.select("bucket", "before", "after").rows() == [
        ("all", 0.6, 0.8), ("medium", 0.2, 0.6), ("saturated", 1.0, 1.0),
    ]  # fmt: skip
    assert gains["gain"].to_list() == pytest.approx([0.2, 0.4, 0.0])
    assert gains["headroom"].to_list() == [pytest.approx(0.5), pytest.approx(0.5), None]
    assert gains["se"].to_list() == pytest.approx([0.1, math.sqrt(0.016 + 0.024), 0.0])
    once = tables.pass_rates(evals.filter(pl.col("version") == 0), levels(a="medium", b="saturated"), NO_STEPS)
    assert tables.gains(once).height == 0


def rollout(problem, fate, tokens, **more):
    return {"problem_id": problem, "fate": fate, "completion_tokens": tokens} | more


FLOPS = {"flops_prefill": 1, "flops_decode": 10, "flops_score": 100, "flops_train": 1000}


def test_token_flow_adds_up_by_bucket_and_fate_with_what_was_lost():
    rollouts = frame("rollouts", [
        rollout("a", "trained", 3), rollout("a", "trained", 4), rollout("b", "stale", 5), rollout("x", "gave_up", 6),
    ], **FLOPS)  # fmt: skip
    lost = frame("lost", [rollout("b", "lost", 7)], **FLOPS)
    flow = tables.token_flow(rollouts, lost, levels(a="hard", b="easy"))
    assert flow.rows() == [
        ("hard", "trained", 2, 7, 2222.0),
        ("easy", "lost", 1, 7, 1111.0),
        ("easy", "stale", 1, 5, 1111.0),
        ("unknown", "gave_up", 1, 6, 1111.0),
    ]


def test_rate_counts_at_the_first_and_the_last_evaluation():
    edges = np.array([0.0, 0.5, 1.0])
    evals = frame("evals", [evaluation(v, p, k) for v, ks in ((0, (0, 5)), (2, (1, 1)), (4, (10, 5)))
                            for p, k in zip("ab", ks, strict=True)])  # fmt: skip
    assert tables.rate_counts(evals, edges).rows() == [
        ("start", 0.0, 0.5, 1), ("start", 0.5, 1.0, 1), ("end", 0.0, 0.5, 0), ("end", 0.5, 1.0, 2),
    ]  # fmt: skip
    assert tables.rate_counts(evals.filter(pl.col("version") == 0), edges)["when"].unique().to_list() == ["start"]
    assert tables.rate_counts(evals, edges, where="held_out").height == 0


def test_measured_entropy_is_weighted_by_rollouts():
    groups = frame("groups", [
        {"count": 8, "successes": 1, "bits": 0.6}, {"count": 24, "successes": 0, "bits": 0.0},
        {"count": 8, "successes": 8, "bits": 0.0}, {"count": 0, "successes": 0, "bits": 0.0},
        {"count": 8, "successes": 4, "bits": None},
    ])  # fmt: skip
    got = tables.measured_entropy(groups, np.array([0.0, 0.5, 1.0]))
    assert got.select("low", "high", "rollouts").rows() == [(0.0, 0.5, 32), (0.5, 1.0, 8)]
    assert got["rate"].to_list() == pytest.approx([1 / 32, 1.0])
    assert got["bits"].to_list() == pytest.approx([0.15, 0.0])


LEVERAGE = [
    rollout("a", "trained", 1, update=0, leverage=7.0, weight=1.0),
    rollout("a", "not_selected", 1, update=0, leverage=1.0),
    rollout("b", "trained", 1, update=0, leverage=2.0, weight=1.0),
    rollout("b", "not_selected", 1, update=0, leverage=0.0),
    rollout("b", "gave_up", 1),
]


def test_lorenz_takes_the_largest_leverage_first():
    curve = tables.lorenz(frame("rollouts", LEVERAGE))
    assert curve["rollouts"].to_list() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert curve["leverage"].to_list() == pytest.approx([0.0, 0.7, 0.9, 1.0, 1.0])
    assert tables.lorenz(frame("rollouts", LEVERAGE * 100), points=7).height == 7
    assert tables.lorenz(frame("rollouts", LEVERAGE[3:])).height == 0, "no leverage, no curve"


def test_kept_shares_overall_and_by_bucket():
    shares = tables.kept_shares(frame("rollouts", LEVERAGE), levels(a="hard", b="easy"))
    assert shares.rows() == [
        ("all", 4, 2, 0.5, pytest.approx(0.9)),
        ("hard", 2, 1, 0.5, 0.875),
        ("easy", 2, 1, 0.5, 1.0),
    ]


def test_attempts_and_endings():
    groups = frame("groups", [
        {"problem_id": "a", "kind": "accept", "attempts": 3, "count": 24},
        {"problem_id": "a", "kind": "accept", "attempts": 3, "count": 24},
        {"problem_id": "a", "kind": "give_up", "attempts": 5, "count": 40},
        {"problem_id": "b", "kind": "accept", "attempts": 1, "count": 8},
        {"problem_id": "b", "kind": "drop", "attempts": 1, "count": 8},
    ])  # fmt: skip
    where = levels(a="hard", b="easy")
    assert tables.attempts(groups, where).rows() == [("hard", 3, 2), ("easy", 1, 1)]
    assert tables.endings(groups, where).rows() == [
        ("hard", "accept", 2, 48), ("hard", "give_up", 1, 40), ("easy", "accept", 1, 8), ("easy", "drop", 1, 8),
    ]  # fmt: skip


def test_information_in_windows_and_so_far():
    steps = frame("steps", [
        {"version": v, "tokens/generated": 1000 * v, "flops/total": 10**15 * v, "info/cum_bits": float(v * v)}
        for v in (1, 2, 3, 4)
    ], wall=0.0)  # fmt: skip
    two = tables.information(steps, windows=2)
    assert two["version"].to_list() == [2, 4]
    assert two["per_ktok"].to_list() == [2.0, 6.0], "4 bits in 2 ktok, then 12 in 2"
    assert two["per_pflop"].to_list() == [2.0, 6.0]
    assert two["per_ktok_so_far"].to_list() == [2.0, 4.0]
    still = steps.with_columns(pl.lit(1000, pl.Int64).alias("tokens/generated"))
    assert tables.information(still)["per_ktok"].to_list() == [1.0, None, None, None]
    assert tables.information(steps.drop("info/cum_bits")).height == 0


def test_samples_are_the_latest_success_and_failure_of_each_bucket():
    rollouts = frame("rollouts", [
        rollout("a", "trained", 1, task_reward=1.0, version_start=0),
        rollout("a", "solved", 1, task_reward=1.0, version_start=5),
        rollout("a", "stale", 1, task_reward=0.0, version_start=1),
        rollout("b", "error", 1, task_reward=None, version_start=1),
    ], visit=0, attempt=0, member=0)  # fmt: skip
    problems = frame("problems", [{"problem_id": "a", "set": "train", "prompt": "2+2="}])
    got = tables.samples(rollouts, problems, levels(a="hard", b="easy"))
    assert got.select("bucket", "success", "prompt", "fate", "version_start").rows() == [
        ("hard", True, "2+2=", "solved", 5),
        ("hard", False, "2+2=", "stale", 1),
    ]
    graded = tables.samples(rollouts, problems, levels(a="hard"), max_score=2.0)
    assert graded["success"].to_list() == [False]


def test_every_table_of_an_empty_ledger_is_empty():
    problems, evals, groups = (frame(t, []) for t in ("problems", "evals", "groups"))
    rollouts, lost = frame("rollouts", []), frame("lost", [])
    nobody = tables.difficulty(problems, evals)
    rates = tables.pass_rates(evals, nobody, NO_STEPS)
    edges = np.array([0.0, 1.0])
    for table in (
        nobody, rates, tables.gains(rates), tables.token_flow(rollouts, lost, nobody), tables.rate_counts(evals, edges),
        tables.measured_entropy(groups, edges), tables.lorenz(rollouts), tables.attempts(groups, nobody),
        tables.endings(groups, nobody), tables.information(NO_STEPS), tables.samples(rollouts, problems, nobody),
    ):  # fmt: skip
        assert table.height == 0
    shares = tables.kept_shares(rollouts, nobody)
    assert shares.filter(pl.col("members") > 0).height == 0
