"""Bits per rollout: the ceiling of a 0/1 reward beside being told the answer, and what small groups estimate of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.stats import binom
from svg import BLUE, GREEN, MUTED, ORANGE, RED, Panel, write

from gumption.credit.bits import group_entropy


def main() -> None:
    p = np.exp(np.linspace(np.log(0.001), np.log(0.99), 200))
    entropy = -p * np.log2(p) - (1 - p) * np.log2(1 - p)
    told = Panel(
        "bits in one rollout, at most", (0.001, 1), (0, 10), (0.001, 0.01, 0.1, 1), (0, 2, 4, 6, 8, 10),
        "success rate p", log_x=True,
    )  # fmt: skip
    told.line(p, -np.log2(p), GREEN)
    told.line(p, entropy, BLUE)
    told.label(0.012, 7.0, "told the answer: −log₂ p", GREEN)
    told.label(0.02, 0.9, "a 0/1 reward: H₂(p)", BLUE)
    p = np.linspace(0.005, 0.5, 100)
    entropy = -p * np.log2(p) - (1 - p) * np.log2(1 - p)
    small = Panel(
        "estimated from groups of 8", (0, 0.5), (0, 1), (0, 0.1, 0.2, 0.3, 0.4, 0.5), (0, 0.25, 0.5, 0.75, 1),
        "success rate p",
    )  # fmt: skip
    k = np.arange(9)
    share = k / 8
    with np.errstate(divide="ignore", invalid="ignore"):
        plain = np.nan_to_num(-share * np.log2(share) - (1 - share) * np.log2(1 - share))
    corrected = np.array([group_entropy(i, 8) for i in k])
    chance = binom.pmf(k, 8, p[:, None])
    small.line(p, entropy, MUTED, dashed=True)
    small.line(p, chance @ plain, RED)
    small.line(p, chance @ corrected, ORANGE)
    small.label(0.06, 0.66, "H₂(p)", MUTED, "end")
    small.label(0.3, 0.66, "H₂(K/G)", RED)
    small.label(0.17, 0.38, "with Miller–Madow's correction", ORANGE)
    write(Path(__file__).with_suffix(".svg"), [told, small])


if __name__ == "__main__":
    main()
