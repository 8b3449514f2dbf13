"""From a ledger to the report's panels, in the order of the page."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from gumption.ledger.reader import Ledger
from gumption.ledger.schema import TABLES
from gumption.report import costs, learning, tables
from gumption.report.style import Panel


@dataclass
class Data:
    """The tables that several panels share. Completion texts are not read."""

    ledger: Ledger

    @cached_property
    def rollouts(self) -> pl.DataFrame:
        """All rollouts, without texts."""
        return self.ledger.read("rollouts", [c.name for c in TABLES["rollouts"] if c.name not in ("text", "parts")])

    @cached_property
    def levels(self) -> pl.DataFrame:
        """Initial pass rate and bucket of each problem."""
        return tables.difficulty(self.ledger.problems(), self.ledger.evals())

    @cached_property
    def rates(self) -> pl.DataFrame:
        """Pass rates by bucket and version."""
        return tables.pass_rates(self.ledger.evals(), self.levels, self.ledger.steps())

    @cached_property
    def gains(self) -> pl.DataFrame:
        """Before and after by bucket."""
        return tables.gains(self.rates)


def panels(data: Data) -> list[Panel]:
    """Every figure of the report."""
    ledger, levels = data.ledger, data.levels
    groups, steps, evals = ledger.groups(), ledger.steps(), ledger.evals()
    return [
        learning.matthew(data.rates, levels),
        learning.headroom(data.gains),
        costs.tokens(tables.token_flow(data.rollouts, ledger.lost(), levels)),
        costs.leverage(tables.lorenz(data.rollouts), tables.kept_shares(data.rollouts, levels)),
        costs.attempts(tables.attempts(groups, levels), tables.endings(groups, levels)),
        learning.entropy(
            tables.measured_entropy(groups, learning.LOGIT_EDGES),
            tables.rate_counts(evals, learning.LINEAR_EDGES),
            tables.rate_counts(evals, learning.LOGIT_EDGES),
            levels,
        ),
        learning.information(tables.information(steps)),
        costs.staleness(steps),
        costs.health(steps),
    ]
