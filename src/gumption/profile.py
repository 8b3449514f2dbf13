"""Pass-rate profiles: how often each problem is solved.

One format (`problem_id, n, successes, version`; parquet or JSON lines) is what `gumption eval` writes and what buckets,
allocators, choosers, planner and reports read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import polars as pl

COLUMNS: Final[dict[str, Any]] = {
    "problem_id": pl.String,
    "n": pl.Int64,
    "successes": pl.Int64,
    "version": pl.Int64,
}


def pass_counts(path: str | Path) -> dict[str, tuple[int, int]]:
    """A profile as problem id → (samples, successes); samples of several versions are added up.

    Raises:
        ValueError: as `read_profile`.

    >>> path = getfixture("tmp_path") / "before.jsonl"
    >>> _ = path.write_text('{"problem_id": "x-0", "n": 32, "successes": 5}')
    >>> pass_counts(path)
    {'x-0': (32, 5)}
    """
    sums = read_profile(path).group_by("problem_id", maintain_order=True).agg(pl.col("n", "successes").sum())
    return {problem_id: (n, k) for problem_id, n, k in sums.iter_rows()}


def write_profile(path: str | Path, profile: pl.DataFrame) -> Path:
    """Write a profile; the suffix (`.parquet`, `.jsonl`) is the format. Further columns are kept.

    Args:
        path: Where to. Missing folders are made.
        profile: Columns `problem_id`, `n`, `successes` and optionally `version` (policy version; default 0).

    Raises:
        ValueError: another suffix, missing columns, or counts that cannot be.
    """
    path = Path(path)
    profile = _checked(profile, str(path))
    suffix = _suffix(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if suffix == ".parquet":
        profile.write_parquet(path)
    else:
        profile.write_ndjson(path)
    return path


def read_profile(path: str | Path) -> pl.DataFrame:
    """Read a profile.

    Returns:
        `problem_id`, `n`, `successes`, `version` and whatever else the file holds.

    Raises:
        ValueError: no such file, not a profile, or counts that cannot be; the message names the row.
    """
    path = Path(path)
    suffix = _suffix(path)
    if not path.is_file():
        raise ValueError(f"no pass-rate profile at {path}")
    if suffix == ".parquet":
        try:
            profile = pl.read_parquet(path)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise ValueError(f"{path} is not a parquet file: {error}") from error
    else:
        profile = _read_lines(path)
    return _checked(profile, str(path))


def _read_lines(path: Path) -> pl.DataFrame:
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}: not JSON ({error})") from None
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {number}: expected an object, got {line.strip()[:40]!r}")
        rows.append(row)
    return pl.DataFrame(rows, infer_schema_length=None, strict=False) if rows else pl.DataFrame(schema=COLUMNS)


def _checked(profile: pl.DataFrame, where: str) -> pl.DataFrame:
    missing = [c for c in ("problem_id", "n", "successes") if c not in profile.columns]
    if missing:
        raise ValueError(f"{where}: a pass-rate profile needs the columns problem_id, n and successes; no {missing}")
    if "version" not in profile.columns:
        profile = profile.with_columns(pl.lit(0).alias("version"))
    try:
        profile = profile.with_columns(pl.col(c).cast(t) for c, t in COLUMNS.items())
    except pl.exceptions.PolarsError as error:
        raise ValueError(f"{where}: {error}") from None
    n, k = pl.col("n"), pl.col("successes")
    good = (pl.col("problem_id").is_not_null() & (n >= 1) & (k >= 0) & (k <= n)).fill_null(False)
    bad = profile.with_row_index("row").filter(~good)
    if bad.height:
        row = bad.row(0, named=True)
        raise ValueError(
            f"{where}, row {row['row'] + 1}: n = {row['n']}, successes = {row['successes']}, "
            f"problem_id = {row['problem_id']!r} cannot be"
        )
    return profile.select([*COLUMNS, *(c for c in profile.columns if c not in COLUMNS)])


def _suffix(path: Path) -> str:
    if path.suffix not in (".parquet", ".jsonl"):
        raise ValueError(f"{path}: a pass-rate profile ends in .parquet or .jsonl")
    return path.suffix
