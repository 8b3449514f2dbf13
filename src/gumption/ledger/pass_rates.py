"""How often each problem was solved, read from whatever holds it: a profile, an evaluation, a run.

`gumption.profile` is the file format; this module also reads the JSON of `gumption eval --json` and run folders,
and turns counts into pass rates that are not 0 or 1 by the luck of a small sample.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from gumption import profile as files
from gumption import randomness
from gumption.ledger.reader import Ledger
from gumption.types import FloatArray, IntArray


class Profile(NamedTuple):
    """Counts of one policy, `_P` one entry per problem.

    Args:
        ids: Problem ids.
        n_P: Samples, ≥ 1.
        successes_P: Successes, 0 … n.
    """

    ids: tuple[str, ...]
    n_P: IntArray
    successes_P: IntArray


def read_profile(path: str | Path) -> Profile:
    """Read a pass-rate profile.

    Args:
        path: `.parquet` or `.jsonl` as `gumption eval --out` writes them; the JSON of `gumption eval --json`; or a run
            folder: its first evaluation of the training set, without one its rollouts at policy version 0 … 4.

    Raises:
        ValueError: nothing there, or nothing of the kind.

    >>> path = getfixture("tmp_path") / "before.jsonl"
    >>> _ = path.write_text('{"problem_id": "a", "n": 8, "successes": 2}')
    >>> read_profile(path)
    Profile(ids=('a',), n_P=array([8]), successes_P=array([2]))
    """
    path = Path(path)
    if path.is_dir():
        frame = _of_run(path)
    elif path.suffix == ".json":
        frame = _of_json(path)
    else:
        frame = files.read_profile(path)
    if frame.is_empty():
        raise ValueError(f"{path} has no problem with a sample")
    return Profile(tuple(frame["problem_id"].to_list()), frame["n"].to_numpy(), frame["successes"].to_numpy())


def read_lengths(path: str | Path, points: int = 101) -> tuple[float, ...]:
    """Quantiles of the completion lengths of a run, at evenly spaced probabilities from 0 to 1.

    Raises:
        ValueError: no ledger there, or no finished rollout in it.
    """
    rollouts = Ledger(path).read("rollouts", ["completion_tokens", "finish"])
    lengths = rollouts.filter(pl.col("finish").is_in(["stop", "length"]))["completion_tokens"].to_numpy()
    if not len(lengths):
        raise ValueError(f"{path} has no finished rollout to take lengths from")
    return tuple(np.quantile(lengths, np.linspace(0, 1, points)).tolist())


def fit_beta(profile: Profile) -> tuple[float, float]:
    """The Beta distribution of pass rates that makes the counts likeliest (beta-binomial, both parameters ≥ 0.02).

    Source: empirical Bayes in its textbook form. Where every problem has the same outcome it is not determined, and
    the bound decides.

    >>> rates_P = np.random.default_rng(0).beta(0.5, 2.0, 4000)
    >>> counts_P = np.random.default_rng(1).binomial(32, rates_P)
    >>> a, b = fit_beta(Profile(("",) * 4000, np.full(4000, 32), counts_P))
    >>> abs(a - 0.5) < 0.05, abs(b - 2.0) < 0.2
    (True, True)
    """
    from scipy.optimize import minimize
    from scipy.special import betaln

    pairs, times = np.unique(np.stack([profile.successes_P, profile.n_P]), axis=1, return_counts=True)
    k, n = pairs

    def loss(logs: FloatArray) -> float:
        a, b = np.exp(logs)
        return -float(times @ (betaln(a + k, b + n - k) - betaln(a, b)))

    bounds = [(np.log(0.02), np.log(50.0))] * 2
    a, b = np.exp(minimize(loss, np.log([0.5, 0.5]), bounds=bounds, method="L-BFGS-B").x)
    return float(a), float(b)


def draw_rates(profile: Profile, seed: int) -> FloatArray:
    """A pass rate for each problem, drawn from its posterior Beta(a + K, b + n − K) under `fit_beta`.

    0 of n says that no success was seen, not that there is none: the raw rate would make such problems unsolvable. The
    draws have the spread of the true rates, which neither raw rates (too wide) nor posterior means (too narrow) have.

    Returns:
        Rates in [0, 1], one per problem; the same for the same seed.
    """
    a, b = fit_beta(profile)
    rng = randomness.generator(seed, "profile_rates")
    rates_P: FloatArray = rng.beta(a + profile.successes_P, b + profile.n_P - profile.successes_P)
    return rates_P


def _of_run(folder: Path) -> pl.DataFrame:
    ledger = Ledger(folder)
    evals = ledger.evals().filter(pl.col("set") == "train")
    if not evals.is_empty():
        first = evals.filter(pl.col("version") == evals["version"].min())
        return first.group_by("problem_id", maintain_order=True).agg(pl.col("n").first(), pl.col("successes").first())
    rollouts = ledger.read("rollouts", ["problem_id", "version_start", "task_reward"])
    valued = rollouts.filter((pl.col("version_start") <= 4) & pl.col("task_reward").is_not_null())
    return valued.group_by("problem_id", maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("n"), (pl.col("task_reward") >= 1 - 1e-6).sum().cast(pl.Int64).alias("successes")
    )


def _of_json(path: Path) -> pl.DataFrame:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return pl.DataFrame(
            [{k: row[k] for k in ("problem_id", "n", "successes")} for row in rows["profile"]],
            schema={k: files.COLUMNS[k] for k in ("problem_id", "n", "successes")},
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not what `gumption eval --json` prints: {error}") from None
