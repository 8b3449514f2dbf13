"""What `gumption explain` says of one recipe, as data: the curve beside RLOO's, the objective in words, the caveats."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gumption.allocation import make_allocator
from gumption.config import RunConfig
from gumption.planning.caveats import caveats
from gumption.planning.enumeration import OneProblem
from gumption.planning.exact import solution_of
from gumption.planning.objective import Curve, Name, curve, name_objective
from gumption.types import FloatArray

FINE: Final = np.round(np.arange(0.02, 0.9601, 0.02), 4)
"""Success rates of the drawn curves."""


@dataclass(frozen=True)
class Explanation:
    """One recipe explained.

    Args:
        name: Of the recipe.
        rule: Its stages in a line.
        table: The curve at `objective.P`.
        fine: The curve at `FINE`; the table's own where it is simulated.
        versus_rloo_P: Variance × cost over that of RLOO with groups of the same size, at `objective.P`.
        objective: In words.
        how: Enumerated or simulated, and in which units.
        caveats: Where w(p) is not exact.
    """

    name: str
    rule: str
    table: Curve
    fine: Curve
    versus_rloo_P: FloatArray
    objective: Name
    how: str
    caveats: tuple[str, ...]

    def rows(self) -> list[dict[str, Any]]:
        """One row per success rate; `None` where nothing is trained on."""
        t = self.table
        columns = {
            "p": t.p_P,
            "w": t.w_P,
            "w_error": t.error_P,
            "w_relative": t.relative_P,
            "rollouts": t.rollouts_P,
            "trained_share": t.share_P,
            "effective_rollouts": t.effective_P,
            "variance_cost_vs_rloo": self.versus_rloo_P,
        }
        return [
            {name: float(column[i]) if math.isfinite(column[i]) else None for name, column in columns.items()}
            for i in range(t.p_P.size)
        ]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        deviation = self.objective.deviation
        return {
            "recipe": self.name,
            "rule": self.rule,
            "rows": self.rows(),
            "objective": self.objective.key,
            "objective_words": self.objective.words,
            "nearest": self.objective.nearest,
            "deviation": deviation if math.isfinite(deviation) else None,
            "exact": self.table.exact,
            "caveats": list(self.caveats),
        }


def explain(name: str, config: RunConfig) -> Explanation:
    """Explain a configuration.

    Args:
        name: What to call it.
        config: A run.

    Raises:
        ValueError: an exact objective that the rule cannot have.

    >>> explain("default", RunConfig()).objective.key
    'none'
    """
    table = curve(config)
    fine = curve(config, FINE) if table.exact else table
    reference = curve(rloo_like(config), table.p_P)
    how = (
        "exact enumeration of every path; nothing stale"
        if table.exact
        else "simulation, ± one standard error (too many paths, or a rule that looks at the whole batch)"
    )
    with np.errstate(invalid="ignore"):
        versus_P = table.variance_cost_P / reference.variance_cost_P
    return Explanation(name, describe(config), table, fine, versus_P, _named(config, fine), how, tuple(caveats(config)))


def rloo_like(config: RunConfig) -> RunConfig:
    """RLOO with groups as large as this configuration's first request, all trained on."""
    return RunConfig.from_dict(
        {
            "allocation": {"rule": "fixed", "group_size": max(2, first_request(config))},
            "credit": {"advantage": "rloo"},
            "selection": {"rule": "all"},
        }
    )


def first_request(config: RunConfig) -> int:
    """Rollouts that a problem is first asked for."""
    [request, *_] = make_allocator(config, OneProblem(), config.seed).ask(1)
    return request.n


def describe(config: RunConfig) -> str:
    """The stages in a line.

    >>> describe(RunConfig())
    'never_give_up (groups of 8), chain, leverage .5'
    """
    a, c, s = config.allocation, config.credit, config.selection
    share = f" {s.share:g}".replace(" 0.", " .") if s.rule == "leverage" and isinstance(s.share, float) else ""
    objective = config.advantage if c.objective == "as_published" else f"objective {c.objective}"
    if c.chain_max_rl:
        objective += " with MaxRL"
    return f"{a.rule} (groups of {first_request(config)}), {objective}, {s.rule}{share}"


def _named(config: RunConfig, fine: Curve) -> Name:
    found = name_objective(fine.p_P, fine.w_P)
    if config.credit.objective == "as_published":
        return found
    order = solution_of(config).order  # by construction; the shape alone cannot tell large orders apart
    words = "expected reward" if order == 1 else f"MaxRL({order})"
    if config.credit.objective == "log_likelihood":
        words += ", the nearest to log-likelihood that so many rollouts can estimate without bias"
    return Name("expected_reward" if order == 1 else "max_rl", words, words.split(",")[0], 0.0)
