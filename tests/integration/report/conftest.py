"""A run folder made up by a small simulation of Never Give Up with leverage: true to the schema, without a model."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gumption.config import RunConfig
from gumption.ledger import LedgerWriter

STARTS = {"unsolved": 0.0, "extra_hard": 0.01, "hard": 0.05, "medium": 0.25, "easy": 0.75, "saturated": 0.98}
GROUP, SHARE, TOKENS_FLOP, COIN, MAX_ATTEMPTS = 8, 0.5, 1_200_000, 0.875, 16
HOSTILE = "<script>document.title='owned'</script></script><img src=x onerror=\"document.title='owned'\">{{7*7}}"


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


class Simulation:
    """Problems whose pass rate rises as their successes are trained on, and the rows that a pipeline would write."""

    def __init__(self, writer: LedgerWriter, per_bucket: int, seed: int, text: Callable[[bool], str]) -> None:
        self.writer = writer
        self.rng = np.random.default_rng(seed)
        self.text = text
        self.version = 0
        self.wall = 0.0
        self.totals = dict.fromkeys(("prefill", "decode", "score", "train", "useful"), 0)
        self.tokens = {"prompt": 0, "generated": 0, "trained": 0}
        self.fates: dict[str, int] = {}
        self.bits = self.eval_flops = 0.0
        self.visits: dict[str, int] = {}
        self.ages: list[int] = []
        self.logits: dict[str, float] = {}
        self.sets: dict[str, list[str]] = {"train": [], "held_out": []}
        for name, start in STARTS.items():
            for i in range(per_bucket):
                for where in ("train", "held_out") if i % 3 == 0 else ("train",):
                    rate = min(max(start * self.rng.uniform(0.5, 1.4), 5e-4 if start else 1e-5), 0.995)
                    self._problem(f"{name}-{where}-{i}", where, rate)

    def _problem(self, problem: str, where: str, rate: float) -> None:
        self.logits[problem] = math.log(rate / (1 - rate))
        self.sets[where].append(problem)
        successes = int(self.rng.binomial(256, rate))
        prompt = f"{problem}: what is 1 < 2 & 3? {HOSTILE}"
        self.writer.append(
            "problems",
            {"problem_id": problem, "set": where, "prompt": prompt, "verifier": "exact",
             "meta": json.dumps({"n": 256, "successes": successes, "family": problem.split("-")[0]})},
        )  # fmt: skip

    def rate(self, problem: str) -> float:
        return _sigmoid(self.logits[problem])

    def evaluate(self, samples: int) -> None:
        total = sum(self.totals[k] for k in ("prefill", "decode", "score", "train"))
        for where, problems in self.sets.items():
            for problem in problems:
                k = int(self.rng.binomial(samples, self.rate(problem)))
                flops = samples * 12 * TOKENS_FLOP
                self.eval_flops += flops
                self.writer.append(
                    "evals",
                    {"version": self.version, "set": where, "problem_id": problem, "n": samples, "successes": k,
                     "mean_reward": k / samples, "mean_length": 12.0, "flops": flops, "run_flops": total,
                     "wall": self.wall},
                )  # fmt: skip

    def chain(self) -> dict[str, Any]:
        """One visit: attempts until something is better, solved or given up."""
        problem = self.sets["train"][int(self.rng.integers(len(self.sets["train"])))]
        visit = self.visits[problem] = self.visits.get(problem, -1) + 1
        rows: list[dict[str, Any]] = []
        for attempt in range(MAX_ATTEMPTS):
            lag = int(min(self.rng.geometric(0.55) - 1, self.version, 5))
            right_G = self.rng.random(GROUP) < self.rate(problem)
            rows += [self._rollout(problem, visit, attempt, i, bool(right_G[i]), lag) for i in range(GROUP)]
            mixed = 0 < right_G.sum() < GROUP or (attempt > 0 and right_G.any())
            kind = "accept" if mixed else "drop" if right_G.all() else "retry"
            if kind == "retry" and (attempt + 1 == MAX_ATTEMPTS or self.rng.random() > COIN):
                kind = "give_up"
            self._verdict(problem, visit, attempt, kind, right_G, rows)
            self.wall += 0.004
            if kind != "retry":
                return {"problem": problem, "visit": visit, "kind": kind, "rows": rows, "attempts": attempt + 1}
        raise AssertionError("a chain ends at the last attempt")

    def _rollout(self, problem: str, visit: int, attempt: int, member: int, right: bool, lag: int) -> dict[str, Any]:
        length = int(self.rng.integers(6, 20))
        prefill = 9 * TOKENS_FLOP if member == 0 else 0
        self.totals["prefill"] += prefill
        self.totals["decode"] += length * TOKENS_FLOP
        self.tokens["generated"] += length
        self.tokens["prompt"] += 9 if member == 0 else 0
        return {
            "problem_id": problem, "visit": visit, "attempt": attempt, "member": member, "fate": "", "reason": "",
            "version_start": self.version - lag, "version_end": self.version, "version_final": self.version,
            "reward": float(right), "task_reward": float(right), "status": "ok", "parts": [],
            "finish": "length" if length == 19 else "stop", "prompt_tokens": 9, "completion_tokens": length,
            "trained_tokens": 0, "flops_prefill": prefill, "flops_decode": length * TOKENS_FLOP, "flops_score": 0,
            "flops_train": 0, "text": self.text(right), "wall": self.wall,
        }  # fmt: skip

    def _verdict(
        self, problem: str, visit: int, attempt: int, kind: str, right_G: np.ndarray, rows: list[dict[str, Any]]
    ) -> None:
        total = sum(r["reward"] for r in rows)
        self.writer.append(
            "verdicts",
            {"problem_id": problem, "visit": visit, "attempt": attempt, "kind": kind, "reason": "mixed",
             "version": self.version, "n": GROUP, "valued": GROUP, "successes": int(right_G.sum()),
             "reward_sum": float(right_G.sum()), "reward_max": float(right_G.max()), "chain_count": len(rows),
             "chain_reward_sum": total, "chain_attempts": attempt + 1, "group_size": len(rows), "wall": self.wall},
        )  # fmt: skip

    def _settle(self, row: dict[str, Any], fate: str, reason: str, **more: Any) -> None:
        row |= {"fate": fate, "reason": reason, **more}
        self.fates[fate] = self.fates.get(fate, 0) + 1
        if fate in ("trained", "not_selected"):
            self.totals["useful"] += sum(row[f"flops_{k}"] for k in ("prefill", "decode", "score", "train"))
        self.writer.append("rollouts", row)

    def _group(self, chain: dict[str, Any], update: int | None, leverage: float, kept: list[dict[str, Any]]) -> None:
        rows = chain["rows"]
        k, n = sum(r["reward"] for r in rows), len(rows)
        p = k / n
        mixed = 0 < p < 1
        bits = -p * math.log2(p) - (1 - p) * math.log2(1 - p) + 1 / (2 * math.log(2) * n) if mixed else 0.0
        self.bits += bits * n
        members = rows if update is None else chain["members"]
        self.writer.append(
            "groups",
            {"problem_id": chain["problem"], "visit": chain["visit"], "kind": chain["kind"], "reason": "mixed",
             "update": update, "size": len(members), "count": n, "reward_sum": k, "successes": int(k),
             "attempts": chain["attempts"], "p_hat": p, "bits": bits, "leverage_sum": leverage, "kept": len(kept),
             "kept_leverage": sum(r["leverage"] for r in kept),
             "kept_tokens": sum(r["completion_tokens"] for r in kept),
             "generated_tokens": sum(r["completion_tokens"] for r in members), "wall": self.wall},
        )  # fmt: skip

    def step(self, groups: int = 4) -> None:
        batch: list[dict[str, Any]] = []
        while len(batch) < groups:
            chain = self.chain()
            if chain["kind"] == "accept":
                batch.append(chain)
                continue
            for row in chain["rows"]:
                self._settle(row, "solved" if chain["kind"] == "drop" else "gave_up", chain["kind"])
            self._group(chain, None, 0.0, [])
        kept_all, size_all, leverage_all = [], 0, 0.0
        for chain in batch:
            fresh = [r for r in chain["rows"] if self.version - r["version_start"] <= 4]
            for row in chain["rows"]:
                if row not in fresh:
                    self._settle(row, "stale", "max_age")
            p = sum(r["reward"] for r in chain["rows"]) / len(chain["rows"])
            for row in fresh:
                odds = (1 - p) / p
                row |= {"leverage": odds if row["reward"] else 1 / odds if p < 1 else 0.0,
                        "advantage": row["reward"] - p, "update": self.version}  # fmt: skip
            kept, total = [], sum(r["leverage"] for r in fresh)
            for row in sorted(fresh, key=lambda r: -r["leverage"]):
                if sum(r["leverage"] for r in kept) < SHARE * total:
                    kept.append(row)
            chain["members"] = fresh
            for row in fresh:
                if row in kept:
                    self._train(row)
                else:
                    self._settle(row, "not_selected", "leverage")
            self._group(chain, self.version, total, kept)
            self.logits[chain["problem"]] += 0.35 * sum(r["reward"] for r in kept) ** 0.5
            kept_all += kept
            size_all += len(fresh)
            leverage_all += total
        for problem in self.logits:
            self.logits[problem] += 0.012 if "unsolved" not in problem else 0.004
        self.version += 1
        self.wall += 0.05
        self._step_row(groups, kept_all, size_all, leverage_all)

    def _train(self, row: dict[str, Any]) -> None:
        tokens = row["completion_tokens"]
        self.totals["train"] += 3 * tokens * TOKENS_FLOP
        self.tokens["trained"] += tokens
        age = self.version - row["version_start"]
        self.ages.append(age)
        ratio = float(np.exp(self.rng.normal(0, 0.02 * age)))
        self._settle(row, "trained", "leverage", trained_tokens=tokens, flops_train=3 * tokens * TOKENS_FLOP,
                     weight=1.0, importance_ratio=ratio)  # fmt: skip

    def _step_row(self, groups: int, kept: list[dict[str, Any]], size: int, leverage: float) -> None:
        ages = [r["update"] - r["version_start"] for r in kept]
        t, total = self.totals, sum(self.totals[k] for k in ("prefill", "decode", "score", "train"))
        noise = float(self.rng.normal(0, 0.03))
        self.writer.append(
            "steps",
            {"version": self.version, "wall": self.wall, "skipped": False, "rollouts": sum(self.fates.values()),
             "tokens/prompt": self.tokens["prompt"], "tokens/generated": self.tokens["generated"],
             "tokens/trained": self.tokens["trained"], "flops/prefill": t["prefill"], "flops/decode": t["decode"],
             "flops/score": t["score"], "flops/train": t["train"], "flops/total": total,
             "flops/wasted": total - t["useful"], "reward/mean": 0.3 + noise,
             "off_policy/mean": float(np.mean(ages)), "off_policy/max": float(max(ages)),
             "importance_ratio/mean": 1 + noise / 10, "importance_ratio/max": 1.4 + abs(noise) * 8,
             "importance_ratio/ess_frac": 0.985 - abs(noise) / 4, "entropy": 0.8 * math.exp(-self.version / 90) + 0.2,
             "frac_reward_zero_std": 0.4 + noise, "completions/mean_length": 12.5 + 10 * noise,
             "grad_norm": 1.2 + 5 * noise, "leverage/kept_share": sum(r["leverage"] for r in kept) / leverage,
             "leverage/kept_rollouts": len(kept) / size, "info/cum_bits": self.bits,
             "info/bits_per_ktok": 1e3 * self.bits / self.tokens["generated"],
             "info/bits_per_pflop": 1e15 * self.bits / total, "grad_noise/b_simple": 40 + 100 * abs(noise),
             "time/generation": 0.3, "time/train": 0.1},
        )  # fmt: skip

    def summary(self) -> dict[str, Any]:
        t = self.totals
        total = t["prefill"] + t["decode"] + t["score"] + t["train"]
        return {
            "gumption": "0.1.0", "reason": "updates", "updates": self.version, "skipped_updates": 0,
            "rollouts": sum(self.fates.values()), "rollouts_by_fate": self.fates, "rollouts_lost": 0,
            "flops": {"prefill": t["prefill"], "decode": t["decode"], "score": 0, "train": t["train"], "lost": 0,
                      "total": total, "wasted": total - t["useful"], "eval": int(self.eval_flops),
                      "convention": "2N + 4LHQ·context per token, causal attention counted once"},
            "tokens": self.tokens, "bits": {"cum": self.bits},
            "staleness": {"mean": float(np.mean(self.ages)) if self.ages else 0.0, "max": max(self.ages, default=0)},
            "wall_s": {"generation": 30.0, "train": 10.0, "total": self.wall},
        }  # fmt: skip


@pytest.fixture(scope="session")
def synthetic_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`synthetic_run(steps=…)` → a run folder with config, ledger and summary; equal arguments share one folder."""
    made: dict[tuple[int, int], Path] = {}

    def make(steps: int = 12, per_bucket: int = 6) -> Path:
        if (steps, per_bucket) not in made:
            folder = tmp_path_factory.mktemp(f"run-{steps}")
            make_run(folder, steps, per_bucket)
            made[steps, per_bucket] = folder
        return made[steps, per_bucket]

    return make


def make_run(folder: Path, steps: int, per_bucket: int, *, text: str = "all", seed: int = 0) -> None:
    """Write a whole run: evaluation before, every quarter and after, `steps` updates."""

    def words(right: bool) -> str:
        return f"123 → 231 = {'right' if right else 'wrong'} {HOSTILE}"

    config = RunConfig.from_dict({"seed": 3, "ledger": {"text": text}, "rewards": {"options": {"api_key": "hush"}}})
    (folder / "config.toml").write_text(config.to_toml(), encoding="utf-8")
    with LedgerWriter(folder / "ledger", text=text, flush_rows=5000) as writer:  # type: ignore[arg-type]
        run = Simulation(writer, per_bucket, seed, words)
        run.evaluate(64)
        for i in range(1, steps + 1):
            run.step()
            if i % max(steps // 4, 1) == 0 and i < steps:
                run.evaluate(16)
        run.evaluate(64)
    (folder / "summary.json").write_text(json.dumps(run.summary()), encoding="utf-8")
