"""Problems of known difficulty for the scripted engine: the answer is the pass rate.

source = "scripted"                       the mixture below
source = "scripted:beta(0.3, 1.2)"        pass rates drawn from a Beta distribution
source = "scripted:0.01, 0.1, 0.5"        exactly these, one problem each (or in turn, with `problems.size`)
source = "scripted:before.parquet"        rates like those of a pass-rate profile (a file or a run folder)
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from gumption import randomness
from gumption.config import ProblemsConfig
from gumption.types import FloatArray, Problem

MIXTURE: tuple[tuple[float, float, float], ...] = (
    (0.000, 0.000, 0.10),
    (0.002, 0.020, 0.25),
    (0.020, 0.100, 0.25),
    (0.100, 0.500, 0.20),
    (0.500, 0.960, 0.15),
    (0.960, 1.000, 0.05),
)
"""Default difficulties: (lowest pass rate, highest, share). Uniform in the logit within a class."""

_BETA = re.compile(r"beta\(\s*([0-9.eE+-]+)\s*,\s*([0-9.eE+-]+)\s*\)")


def load(config: ProblemsConfig, *, argument: str, seed: int, held_out: bool) -> list[Problem]:
    """Make scripted problems.

    Args:
        config: `size`: how many (default 512, or as many as pass rates are listed).
        argument: "", "mixture", "beta(a, b)", a comma-separated list of pass rates, or the path of a profile.
        seed: Draws the pass rates.
        held_out: Another draw from the same distribution.

    Returns:
        Problems with the answer `{"pass_rate": p}`.

    Raises:
        ValueError: the argument cannot be read, or a pass rate is outside [0, 1].

    >>> [p.answer for p in load(ProblemsConfig(), argument="0.25, 1", seed=0, held_out=False)]
    [{'pass_rate': 0.25}, {'pass_rate': 1.0}]
    """
    rng = randomness.generator(seed, "scripted_problems", "held_out" if held_out else "train")
    argument = argument.strip()
    if argument.endswith((".parquet", ".jsonl", ".json")) or ("," not in argument and Path(argument or "?").is_dir()):
        return [] if held_out else _of_profile(argument, config.size, seed)
    rates_P = _pass_rates(argument, config.size, rng)
    name = "held-out problem" if held_out else "problem"
    rows = [{"prompt": f"scripted {name} {i}", "answer": {"pass_rate": p}} for i, p in enumerate(rates_P.tolist())]
    return [Problem.from_row(row, verifier="scripted") for row in rows]


def _of_profile(path: str, size: int | None, seed: int) -> list[Problem]:
    """Problems with the ids of a profile, rates drawn given its counts, and the counts in `meta`."""
    from gumption.ledger.pass_rates import draw_rates, read_profile

    profile = read_profile(path)
    rates_P = draw_rates(profile, seed)
    chosen_P = randomness.generator(seed, "scripted_problems", "profile").permutation(len(rates_P))[:size]
    return [
        Problem(
            profile.ids[i],
            f"scripted problem {profile.ids[i]}",
            {"pass_rate": float(rates_P[i])},
            "scripted",
            {"n": int(profile.n_P[i]), "successes": int(profile.successes_P[i])},
        )
        for i in chosen_P.tolist()
    ]


def _pass_rates(argument: str, size: int | None, rng: np.random.Generator) -> FloatArray:
    """Pass rates as the argument says."""
    n = size or 512
    if argument in ("", "mixture"):
        return _mixture(n, rng)
    if match := _BETA.fullmatch(argument):
        a, b = (_number(text, argument) for text in match.groups())
        if a <= 0 or b <= 0:
            raise ValueError(f"scripted problems: both parameters of {argument!r} must be above 0")
        return rng.beta(a, b, n)
    rates = [_number(text, argument) for text in argument.split(",")]
    for rate in rates:
        if not 0 <= rate <= 1:
            raise ValueError(f"scripted problems: pass rate {rate} is outside [0, 1]")
    return np.resize(np.array(rates), size or len(rates))


def _mixture(n: int, rng: np.random.Generator) -> FloatArray:
    """Draw from `MIXTURE`; class counts are as exact as n allows, in random order."""
    shares = np.array([share for _, _, share in MIXTURE])
    edges = np.rint(np.concatenate([[0], np.cumsum(shares)]) * n).astype(int)
    parts = []
    for (low, high, _), count in zip(MIXTURE, np.diff(edges).tolist(), strict=True):
        if low == high:
            parts.append(np.full(count, low))
        else:
            clipped = np.clip([low, high], 1e-6, 1 - 1e-3)
            logits = np.log(clipped / (1 - clipped))
            parts.append(1 / (1 + np.exp(-rng.uniform(logits[0], logits[1], count))))
    return rng.permutation(np.concatenate(parts))


def _number(text: str, argument: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(
            f"scripted problems: cannot read {argument!r}; write 'mixture', 'beta(0.3, 1.2)' or '0.01, 0.1, 0.5'"
        ) from None
