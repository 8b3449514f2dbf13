"""The implied objective w(p)/w(½) of four configurations, and the rollouts that a visit costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from svg import BLUE, GREEN, MUTED, ORANGE, RED, Panel, write

from gumption.config import RunConfig
from gumption.planning.objective import curve

ALL = {"selection": {"rule": "all"}}
FIXED: dict[str, Any] = {"allocation": {"rule": "fixed"}, **ALL}
RULES = (
    ("RLOO: expected reward", FIXED | {"credit": {"advantage": "rloo"}}, MUTED, (0.07, 0.72)),
    ("GRPO", FIXED | {"credit": {"advantage": "grpo"}}, GREEN, (0.87, 1.46)),
    ("NGU", ALL, ORANGE, (0.013, 1.6)),
    ("NGU, leverage ½", {}, BLUE, (0.6, 2.05)),
    ("NGU as MaxRL(12)", ALL | {"credit": {"objective": "max_rl", "truncation": 12}}, RED, (0.13, 3.6)),
)


def main() -> None:
    p = np.round(np.concatenate([np.arange(0.01, 0.1, 0.005), np.arange(0.1, 0.981, 0.02)]), 4)
    weight = Panel(
        "weight w(p)/w(½), groups of 8", (0, 1), (0.5, 20), (0, 0.25, 0.5, 0.75, 1), (0.5, 1, 2, 5, 10, 20),
        "success rate p", log_y=True,
    )  # fmt: skip
    spent = Panel("rollouts per visit", (0, 1), (0, 50), (0, 0.25, 0.5, 0.75, 1), (0, 8, 16, 32, 48), "success rate p")
    for name, tables, colour, at in RULES:
        c = curve(RunConfig.from_dict(tables), p)
        weight.line(p, c.relative_P, colour)
        weight.label(*at, name, colour)
        if name in ("NGU", "GRPO"):
            spent.line(p, c.rollouts_P, colour)
    spent.label(0.06, 22, "NGU: at most 16 attempts of 8", ORANGE)
    spent.label(0.55, 4.2, "GRPO, RLOO: always 8", GREEN)
    write(Path(__file__).with_suffix(".svg"), [weight, spent])


if __name__ == "__main__":
    main()
