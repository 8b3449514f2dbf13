"""What it costs each allocation rule to train on the same total leverage: rollouts, tokens, FLOPs.

    python benchmarks/allocation_cost.py      # writes benchmarks/results/allocation_cost.json

Two profiles. `gsm8k_like`: Beta(1.2, 0.8), mean .6, few problems never solved: a small instruct model on GSM8K before
training. `unsolved_80`: 40 % of the problems cannot be solved, 40 % have pass rates between .001 and .02 (evenly in the
logarithm), 20 % follow Beta(1, 2). Pass rates do not move. Each rule of `allocation.rule` has its defaults, 16 groups
per update, and runs until the leverage of what it trained on reaches the target; a mixed group has the leverage of its
number of rollouts, so the target is a number of effective rollouts. `estimate` reads a profile of 32 samples a problem.
FLOPs are those of a model of 4e9 parameters, 500 tokens a completion. Rules differ in objective (`gumption explain`):
equal leverage is not equal progress.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import typing
from pathlib import Path

import numpy as np

from gumption.config import AllocationConfig, ProblemsConfig, RunConfig
from gumption.planning.simulator import simulate
from gumption.problems import load_problems

RESULT = Path(__file__).parent / "results" / "allocation_cost.json"
RULES = typing.get_args(AllocationConfig.model_fields["rule"].annotation)
SELECTIONS = {"all": {"rule": "all"}, "leverage .5": {"rule": "leverage", "share": 0.5}}


def profiles(n: int = 500) -> dict[str, str]:
    """Pass rates at evenly spaced probabilities, as the scripted source reads them."""
    from scipy.stats import beta

    at = (np.arange(n) + 0.5) / n
    hard = np.exp(np.interp(np.arange(int(0.4 * n)) / (0.4 * n), [0, 1], np.log([0.001, 0.02])))
    rest = beta(1, 2).ppf((np.arange(n // 5) + 0.5) / (n // 5))
    unsolved = np.concatenate([np.zeros(n - len(hard) - len(rest)), hard, rest])
    return {name: ", ".join(f"{p:.5f}" for p in rates) for name, rates in
            (("gsm8k_like", beta(1.2, 0.8).ppf(at)), ("unsolved_80", unsolved))}  # fmt: skip


def sampled_profile(problems: str, folder: Path) -> Path:
    """A profile of the simulated problems, as `gumption eval --samples 32` would find it."""
    made = load_problems(ProblemsConfig(source=f"scripted:{problems}"), seed=0).problems
    rng, path = np.random.default_rng(0), folder / "profile.jsonl"
    rows = [{"problem_id": p.id, "n": 32, "successes": int(rng.binomial(32, p.answer["pass_rate"]))} for p in made]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def cost(problems: str, allocation: dict[str, object], selection: dict[str, object], target: float, most: int) -> dict:
    """One cell: costs until the target, or why not."""
    try:
        config = RunConfig.from_dict(
            {
                "allocation": allocation,
                "selection": selection,
                "rollouts": {"in_flight": 128, "max_tokens": 4096},
                "training": {"groups_per_update": 16},
                "simulation": {
                    "problems": problems, "mean_length": 500, "length_cv": 0.5, "prompt_tokens": 100,
                    "matmul_params": 4_000_000_000, "layers": 36, "heads": 32, "head_dim": 128,
                },
                "budget": {"rollouts": most},
            }
        )  # fmt: skip
        result = simulate(config, until=lambda r: r.sums.kept >= target)
    except ValueError as error:
        return {"error": str(error)}
    s, reached = result.summary, result.summary["leverage"]["trained"]
    share = min(1.0, target / max(reached, 1e-9))  # the last update overshoots
    return {
        "reached": reached >= target,
        "rollouts": round(share * s["rollouts"]),
        "tokens": round(share * s["tokens"]["generated"]),
        "tokens_trained": round(share * s["tokens"]["trained"]),
        "flops": float(f"{share * s['flops']['total']:.4g}"),
        "leverage_per_rollout": round(reached / s["rollouts"], 3),
        "bits_per_pflop": float(f"{s['bits']['per_pflop']:.4g}"),
        "hard_share_of_tokens": round(
            sum(b["token_share"] for name, b in s["buckets"].items() if name in ("unsolved", "extra_hard", "hard")), 3
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--leverage", type=float, default=2000)
    parser.add_argument("--most-rollouts", type=int, default=60_000)
    parser.add_argument("--rules", nargs="*", default=RULES, choices=RULES)
    parser.add_argument("--out", type=Path, default=RESULT)
    args = parser.parse_args()
    table: dict[str, dict[str, dict[str, object]]] = {}
    for name, problems in profiles().items():
        for rule in args.rules:
            for selected, selection in SELECTIONS.items():
                allocation: dict[str, object] = {"rule": rule}
                with tempfile.TemporaryDirectory() as folder:
                    if rule == "estimate":
                        allocation["profile"] = str(sampled_profile(problems, Path(folder)))
                    cell = cost(problems, allocation, selection, args.leverage, args.most_rollouts)
                table.setdefault(name, {})[f"{rule}, {selected}"] = cell
                print(f"{name:12} {rule:18} {selected:12} {json.dumps(cell)}", flush=True)
    result = {
        "claim": "simulated cost to train on the same total leverage",
        "command": f"python benchmarks/allocation_cost.py --leverage {args.leverage:g}",
        "target_leverage": args.leverage,
        "profiles": table,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
