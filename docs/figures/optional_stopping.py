"""Stopping at the first success: what the success rate averages to, and Haldane's estimate, which is unbiased."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.stats import nbinom
from svg import BLUE, GREEN, MUTED, ORANGE, RED, Panel, write

from gumption.credit.bits import first_success_mean


def main() -> None:
    p = np.linspace(0.005, 1, 200)
    mean = Panel(
        "average of successes/rollouts", (0, 1), (0, 1), (0, 0.25, 0.5, 0.75, 1), (0, 0.25, 0.5, 0.75, 1),
        "success rate p",
    )  # fmt: skip
    mean.line(p, p, MUTED, dashed=True)
    mean.line(p, first_success_mean(p), RED)
    mean.line(p, [_rounds(x, 8, 4) for x in p], ORANGE)
    mean.label(0.04, 0.74, "one at a time", RED)
    mean.label(0.07, 0.03, "rounds of 8, at most 4", ORANGE)
    mean.label(0.82, 0.74, "unbiased", MUTED)
    p = np.linspace(0.01, 0.5, 100)
    ratio = Panel(
        "over p, stopped at the r-th success", (0, 0.5), (0.5, 5), (0, 0.1, 0.2, 0.3, 0.4, 0.5), (1, 2, 3, 4, 5),
        "success rate p",
    )  # fmt: skip
    ratio.line(p, first_success_mean(p) / p, RED)
    ratio.line(p, [_plain(x, 3) / x for x in p], BLUE)
    ratio.line(p, np.ones_like(p), GREEN)
    ratio.label(0.075, 3.2, "1/N at r = 1", RED)
    ratio.label(0.2, 1.45, "3/N at r = 3", BLUE)
    ratio.label(0.3, 0.66, "Haldane: (r − 1)/(N − 1), r ≥ 2", GREEN, "middle")
    write(Path(__file__).with_suffix(".svg"), [mean, ratio])


def _rounds(p: float, size: int, rounds: int) -> float:
    """E[K/N] where rounds go on until there is a success: a round has `size` and its successes average to p·size."""
    return sum((1 - p) ** (size * r) * p / (r + 1) for r in range(rounds))


def _plain(p: float, r: int) -> float:
    """E[r/N], N the rollouts until the r-th success."""
    failures = np.arange(20_000)
    return float(nbinom.pmf(failures, r, p) @ (r / (failures + r)))


if __name__ == "__main__":
    main()
