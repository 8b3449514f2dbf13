"""The difficulty buckets that reports speak of, from the pass rates of a profile (`gumption.profile`)."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from gumption.profile import COLUMNS, read_profile, write_profile

__all__ = ["BOUNDS", "BUCKETS", "COLUMNS", "bucket", "bucket_expr", "read_profile", "write_profile"]

BUCKETS: Final[tuple[str, ...]] = ("unsolved", "extra_hard", "hard", "medium", "easy", "saturated")
"""Difficulty buckets by initial pass rate, hardest first."""

BOUNDS: Final[dict[str, tuple[float, float]]] = {
    "unsolved": (0.0, 0.0),
    "extra_hard": (0.0, 0.02),
    "hard": (0.02, 0.1),
    "medium": (0.1, 0.5),
    "easy": (0.5, 0.96),
    "saturated": (0.96, 1.0),
}
"""Lower (inclusive; exclusive for `extra_hard`) and upper (exclusive; inclusive for `saturated`) pass rate."""


def bucket(pass_rate: float, n: int) -> str:
    """Difficulty bucket of a problem with this pass rate in `n` samples.

    `unsolved` is 0 of n; a rate of exactly 0 says that no success was seen, not that there is none.

    Raises:
        ValueError: no samples, or a rate outside [0, 1].

    >>> [bucket(p, 128) for p in (0.0, 0.0078, 0.02, 0.1, 0.5, 0.96)]
    ['unsolved', 'extra_hard', 'hard', 'medium', 'easy', 'saturated']
    """
    if n < 1:
        raise ValueError(f"a bucket needs at least one sample, got n = {n}")
    if not 0.0 <= pass_rate <= 1.0:
        raise ValueError(f"pass rate {pass_rate!r} is not in [0, 1]")
    if pass_rate == 0.0:
        return "unsolved"
    return next(name for name in BUCKETS[1:] if pass_rate < BOUNDS[name][1] or name == "saturated")


def bucket_expr(rate: pl.Expr) -> pl.Expr:
    """`bucket` of a whole polars column of pass rates; null stays null.

    >>> pl.DataFrame({"p": [0.0, 0.01, 0.3, None]}).select(bucket_expr(pl.col("p")))["p"].to_list()
    ['unsolved', 'extra_hard', 'medium', None]
    """
    expr: Any = pl.when(rate.is_null()).then(None).when(rate == 0.0).then(pl.lit("unsolved"))
    for name in BUCKETS[1:-1]:
        expr = expr.when(rate < BOUNDS[name][1]).then(pl.lit(name))
    result: pl.Expr = expr.otherwise(pl.lit("saturated")).alias(rate.meta.output_name())
    return result
