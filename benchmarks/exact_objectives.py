"""What exact objectives cost: variance × rollouts of each rule beside RLOO's, by exact enumeration.

    python benchmarks/exact_objectives.py       # writes benchmarks/results/exact_objectives.json, a few seconds

Bar: E[g]/∇p over its target is constant within 1e-9 at p = .05 … .9.

Variance × rollouts is E[N]·E[Σ a²]/(w²·p(1 − p)): the noise of the estimate of its own gradient, in the model in which
every rollout is equally noisy, times the rollouts that one visit generates. RLOO with groups of n has n/(n − 1) at
every p. Variance × FLOPs adds three forward passes for each rollout trained on, and is divided by that of RLOO with
groups of the same size (its groups of equal rewards are not trained on either). MaxRL is of order 12, of order 8 where
no chain has more rollouts.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np

from gumption.allocation.base import ChainAllocator, Decision, Told
from gumption.allocation.chain import Chain
from gumption.config import RunConfig
from gumption.credit import make_credit
from gumption.planning.enumeration import OneProblem, Rule, enumerate_chains, with_sums
from gumption.planning.exact import ExactStage, published_rule, solve_rule
from gumption.planning.objective import Curve, curve_of
from gumption.planning.polynomial import GRID
from gumption.selection import All, Leverage

RESULT = Path(__file__).parent / "results" / "exact_objectives.json"
P = np.array([0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9])


@final
class UntilMixed(ChainAllocator):
    """Rounds of 4 until the chain holds both classes, at most 12 rollouts."""

    rule: ClassVar[str] = "until_mixed"

    def _judge(self, chain: Chain, told: Told) -> Decision:
        if 0 < chain.successes < chain.count:
            return Decision("accept", "mixed", counts=True)
        return Decision("retry" if chain.attempts < 3 else "drop", "all_equal")


def fixed(size: int, selection: str) -> Rule:
    return published_rule(_config({"rule": "fixed", "group_size": size}, selection))


def ngu(size: int, attempts: int, selection: str) -> Rule:
    allocation = {"rule": "never_give_up", "group_size": size, "retry_probability": 1.0, "max_attempts": attempts}
    return published_rule(_config(allocation, selection))


def until_mixed(selection: str) -> Rule:
    credit = make_credit(_config({"rule": "fixed"}, selection))
    selector = All() if selection == "all" else Leverage(0.5)
    return Rule(lambda: UntilMixed(OneProblem(), group_size=4, max_age=-1), credit, selector)


RULES = {
    "fixed 8": (8, lambda s: fixed(8, s)),
    "fixed 16": (16, lambda s: fixed(16, s)),
    "rounds of 4, cap 12, until a success": (4, lambda s: ngu(4, 3, s)),
    "rounds of 4, cap 12, until both classes": (4, until_mixed),
    "never_give_up, groups of 8, retry 1, 3 attempts": (8, lambda s: ngu(8, 3, s)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULT)
    out = parser.parse_args().out
    rows = [
        measure(name, size, make(selection), selection, objective)
        for name, (size, make) in RULES.items()
        for objective in ("expected reward", "MaxRL")
        for selection in ("all", "leverage .5")
    ]
    result = {
        "claim": "exact objectives hold within 1e-9; for expected reward no stopping rule here beats RLOO on average",
        "command": "python benchmarks/exact_objectives.py",
        "p": P.tolist(),
        "rloo_variance_x_rollouts": {str(n): n / (n - 1) for n in (4, 8, 12, 16, 24)},
        "rows": rows,
    }
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for row in rows:
        values = " ".join(f"{v:5.2f}" for v in row["variance_x_rollouts"])
        print(f"{row['rule']:48} {row['objective']:16} {row['selection']:12} {values}   mean {row['mean']:.2f}")
    assert max(row["identity_error"] for row in rows) < 1e-9


def measure(name: str, size: int, rule: Rule, selection: str, objective: str) -> dict[str, Any]:
    order = 1 if objective == "expected reward" else min(12, max(e.count for e in enumerate_chains(rule)))
    solution = solve_rule(rule, order)
    stage = ExactStage(rule, solution)
    exact = rule._replace(credit=stage.credit, selector=stage)
    curve = _curve(exact)
    target_P = (1 - (1 - P) ** order) / P
    return {
        "rule": name,
        "objective": objective if order == 1 else f"MaxRL({order})",
        "selection": selection,
        "identity_error": float(np.abs(curve.w_P / solution.scale / target_P - 1).max()),
        "rollouts": _rounded(curve.rollouts_P),
        "trained_share": _rounded(curve.share_P),
        "variance_x_rollouts": _rounded(curve.variance_rollouts_P),
        "mean": round(float(curve.variance_rollouts_P.mean()), 3),
        "mean_on_solver_grid": round(float(_curve(exact, np.array(GRID)).variance_rollouts_P.mean()), 3),
        "rloo": round(size / (size - 1), 3),
        "variance_x_flops_vs_rloo": _rounded(curve.variance_cost_P / _curve(_rloo(size)).variance_cost_P),
    }


def _curve(rule: Rule, p_P: np.ndarray = P) -> Curve:
    return curve_of(with_sums(rule, enumerate_chains(rule)), p_P)


def _rloo(size: int) -> Rule:
    config = _config({"rule": "fixed", "group_size": size}, "all")
    return published_rule(config)._replace(credit=make_credit(_with_rloo(config)))


def _with_rloo(config: RunConfig) -> RunConfig:
    return config.model_copy(update={"credit": config.credit.model_copy(update={"advantage": "rloo"})})


def _config(allocation: dict[str, Any], selection: str) -> RunConfig:
    rule = "all" if selection == "all" else "leverage"
    return RunConfig.from_dict({"allocation": allocation, "selection": {"rule": rule, "share": 0.5}})


def _rounded(values: np.ndarray) -> list[float]:
    return [round(float(v), 3) for v in values]


if __name__ == "__main__":
    main()
