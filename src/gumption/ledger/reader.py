"""`Ledger`: reads a run's ledger as polars frames, while it is being written or after a crash too.

What is missing is an empty frame with the right columns. A segment that cannot be read (truncated, flipped bits: page
checksums are verified) is skipped, named in `damaged`, and warned about; nothing is dropped silently.
"""

from __future__ import annotations

import json
import logging
import operator
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from gumption.ledger.schema import FLUSH_ORDER, LOST_COLUMN, TABLES, columns, schema
from gumption.ledger.segments import LOST, META, OPEN, LedgerError, read_meta, segments
from gumption.types import FATES

log = logging.getLogger(__name__)

_Frame = TypeVar("_Frame", pl.DataFrame, pl.LazyFrame)

FLOPS: tuple[str, ...] = ("flops_prefill", "flops_decode", "flops_score", "flops_train")
SUMS: tuple[str, ...] = ("prompt_tokens", "completion_tokens", "trained_tokens", *FLOPS)


@dataclass(frozen=True)
class Damaged:
    """A segment that could not be read: its rows are missing from the table."""

    table: str
    path: Path
    error: str


class Ledger:
    """The ledger of one run.

    Args:
        folder: The run folder (`runs/<name>`), or its `ledger` folder.

    Raises:
        ValueError: there is no ledger, or a newer gumption wrote it.
    """

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        inside = folder / "ledger"
        self.folder = inside if inside.is_dir() or not (folder / META).exists() else folder
        self.run_folder = self.folder.parent
        try:
            self.meta = read_meta(self.folder)
        except LedgerError as error:
            raise ValueError(f"{error}; give the folder that `gumption train` printed") from None
        self.open = (self.folder / OPEN).exists()
        """A run is writing it, or crashed while it did: `summary`, if there is one, is older than the rows."""
        self.damaged: list[Damaged] = []
        self._frames: dict[str, pl.DataFrame] = {}
        # Listed at once and in the reverse of the order in which a flush writes: while a run is being written, a step
        # that we see has its rollouts here too.
        self._paths = {name: [p for _, p in segments(self.folder / name)] for name in reversed(FLUSH_ORDER)}
        self._paths["lost"] = [p for _, p in segments(self.folder / LOST / "rollouts")]

    # -- tables

    def read(self, table: str, only: Sequence[str] | None = None) -> pl.DataFrame:
        """A whole table; its fixed columns first, then the metrics of open tables.

        Args:
            table: A name in `schema.TABLES`, or "lost".
            only: Read just these columns (texts can be large).

        Raises:
            ValueError: there is no such table.
        """
        key = table if only is None else f"{table}:{','.join(only)}"
        if key not in self._frames:
            self._frames[key] = self._read(table, only)
        return self._frames[key]

    def lazy(self, table: str) -> pl.LazyFrame:
        """The table as a lazy frame over its segments, for ledgers that are larger than memory.

        Segments whose footer is broken are skipped and named in `damaged`; pages are not verified. FLOP counters of
        `steps` and `evals` are decimals here.
        """
        known = columns(table)
        scans = []
        for path in self._paths[table]:
            try:
                pq.read_metadata(path)
            except (OSError, pa.ArrowInvalid) as error:
                self._damage(table, path, error)
                continue
            scans.append(pl.scan_parquet(path))
        empty = _empty(table).lazy()
        frame = pl.concat([empty, *scans], how="diagonal_relaxed") if scans else empty
        if table == "lost":
            frame = _as_lost(frame)
        names = frame.collect_schema().names()
        fixed = [c.name for c in known]
        return frame.select([*fixed, *sorted(n for n in names if n not in fixed)])

    def rollouts(self) -> pl.DataFrame:
        """One row per rollout whose fate is settled."""
        return self.read("rollouts")

    def verdicts(self) -> pl.DataFrame:
        """One row per attempt that was judged."""
        return self.read("verdicts")

    def groups(self) -> pl.DataFrame:
        """One row per chain that ended."""
        return self.read("groups")

    def steps(self) -> pl.DataFrame:
        """One row per optimizer step, with its metrics."""
        return self.read("steps")

    def evals(self) -> pl.DataFrame:
        """One row per problem and evaluation."""
        return self.read("evals")

    def problems(self) -> pl.DataFrame:
        """One row per problem."""
        return self.read("problems")

    def lost(self) -> pl.DataFrame:
        """Rollouts that were generated after the last checkpoint before a crash."""
        return self.read("lost")

    # -- the run folder

    @cached_property
    def config(self) -> dict[str, Any]:
        """`config.toml` of the run; empty where there is none that can be read."""
        try:
            return tomllib.loads((self.run_folder / "config.toml").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    @cached_property
    def summary(self) -> dict[str, Any]:
        """`summary.json` of the run; empty where there is none yet."""
        try:
            summary = json.loads((self.run_folder / "summary.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return summary if isinstance(summary, dict) else {}

    # -- sums

    def counters(self) -> pl.DataFrame:
        """Rollouts, tokens and FLOPs by fate, `lost` included; exact (128-bit) sums, in the order of `FATES`."""
        main = self.read("rollouts", ("fate", *SUMS))
        lost = self.read("lost", ("fate", *SUMS))
        both = pl.concat([main, lost]).with_columns(pl.col(c).cast(pl.Int128) for c in SUMS)
        order = {fate: i for i, fate in enumerate(FATES)}
        return (
            both.group_by("fate")
            .agg(pl.len().cast(pl.Int64).alias("rollouts"), *(pl.col(c).sum() for c in SUMS))
            .with_columns(reduce(operator.add, map(pl.col, FLOPS)).alias("flops"))
            .sort(pl.col("fate").replace_strict(order, default=len(order)), "fate")
        )

    def check(self) -> list[str]:
        """Do rows, step counters and summary agree exactly? One line for each place where they do not.

        The ledger of a run that still goes, or crashed, is checked as far as its steps and groups go.
        """
        from gumption.ledger.check import disagreements

        return disagreements(self)

    # -- reading

    def _read(self, table: str, only: Sequence[str] | None) -> pl.DataFrame:
        fixed = [c.name for c in columns(table)]
        wanted = None if only is None else list(only)
        if wanted is not None and table == "lost":  # `lost_fate` is not on disk: it is made from `fate`
            wanted = [c for c in dict.fromkeys([*wanted, "fate"]) if c != LOST_COLUMN.name]
        frames = [_empty(table)]
        for path in self._paths[table]:
            try:
                frame = pl.from_arrow(_read_segment(path, wanted))
            except (OSError, pa.ArrowException, pl.exceptions.PolarsError) as error:
                self._damage(table, path, error)
                continue
            assert isinstance(frame, pl.DataFrame)
            frames.append(frame)
        whole = pl.concat(frames, how="diagonal_relaxed")
        if table == "lost":
            whole = _as_lost(whole)
        wide = [n for n, kind in whole.schema.items() if isinstance(kind, pl.Decimal)]
        whole = whole.with_columns(pl.col(n).cast(pl.Int128) for n in wide)
        names = list(only) if only is not None else [*fixed, *sorted(n for n in whole.columns if n not in fixed)]
        return whole.select(names)

    def _damage(self, table: str, path: Path, error: Exception) -> None:
        if any(d.path == path for d in self.damaged):
            return
        why = "it is gone" if isinstance(error, FileNotFoundError) else " ".join(str(error).split())
        self.damaged.append(Damaged(table, path, why))
        log.warning("ledger segment %s skipped, its rows are missing: %s", path, why)


def _read_segment(path: Path, wanted: list[str] | None) -> Any:
    if wanted is not None:  # an older segment may lack some; one column is read in any case, for the number of rows
        names = pq.read_schema(path).names
        wanted = [c for c in wanted if c in names] or names[:1]
    return pq.read_table(path, columns=wanted, page_checksum_verification=True)


def _empty(table: str) -> pl.DataFrame:
    base = schema(table) if table in TABLES else schema("rollouts")
    frame = pl.from_arrow(base.empty_table())
    assert isinstance(frame, pl.DataFrame)
    return frame


def _as_lost(frame: _Frame) -> _Frame:
    return frame.with_columns(pl.col("fate").alias("lost_fate"), pl.lit("lost").alias("fate"))
