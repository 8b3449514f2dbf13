"""Leverage of a success and of a failure, and the share of rollouts that holds a share of the leverage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from svg import BLUE, GREEN, MUTED, ORANGE, RED, Panel, write

from gumption.config import RunConfig
from gumption.planning.objective import curve

SHARES = ((0.5, BLUE), (0.75, GREEN), (0.9, ORANGE))


def main() -> None:
    p = np.arange(0.02, 0.981, 0.005)
    worth = Panel(
        "worth of one rollout, in average rollouts", (0, 1), (0.01, 100), (0, 0.1, 0.25, 0.5, 0.75, 1),
        (0.01, 0.1, 1, 10, 100), "success rate p", log_y=True,
    )  # fmt: skip
    worth.line(p, (1 - p) / p, BLUE)
    worth.line(p, p / (1 - p), RED)
    worth.line((0.1, 0.1), (1 / 9, 9), MUTED, dashed=True)
    worth.label(0.12, 14, "a success, (1 − p)/p", BLUE)
    worth.label(0.3, 0.13, "a failure, p/(1 − p)", RED)
    worth.label(0.115, 1.15, "× 81", MUTED)
    kept = Panel(
        "rollouts kept of mixed groups of 32", (0, 1), (0, 1), (0, 0.25, 0.5, 0.75, 1), (0, 0.25, 0.5, 0.75, 1),
        "success rate p",
    )  # fmt: skip
    p = np.round(np.arange(0.03, 0.971, 0.01), 4)
    mixed = 1 - p**32 - (1 - p) ** 32
    for share, colour in SHARES:
        values = curve(_recipe(share), p).share_P / mixed
        kept.line(p, values, colour)
        kept.label(0.5, float(np.interp(0.5, p, values)) + 0.03, f"ℓ = {share:g}".replace("0.", "."), colour, "middle")
    write(Path(__file__).with_suffix(".svg"), [worth, kept])


def _recipe(share: float) -> RunConfig:
    return RunConfig.from_dict(
        {
            "allocation": {"rule": "fixed", "group_size": 32},
            "credit": {"advantage": "centered"},
            "selection": {"rule": "leverage", "share": share},
        }
    )


if __name__ == "__main__":
    main()
