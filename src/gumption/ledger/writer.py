"""`LedgerWriter`: append-only parquet segments that survive a kill at any moment.

Rows wait in memory as tuples. A flush writes one segment per table: to a temporary file, fsync, rename, fsync of the
folder. So a segment on disk is always whole, and a row is in one segment only. `position()` names the last segment of
each table; a checkpoint stores it. On `resume` every segment behind it moves to the `lost` folder: its rollouts were
generated after the checkpoint, were thrown away with the crash, and still cost their FLOPs.

    ledger/ledger.json              schema version, text policy
    ledger/rollouts/000001.parquet  … one folder per table
    ledger/lost/rollouts/…          segments taken back by a resume
    ledger/open                     there while the ledger is being written, or after a crash
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from gumption.ledger.schema import FLUSH_ORDER, OPEN_TABLES, SCHEMA_VERSION, TABLES, TEXT_SAMPLE
from gumption.ledger.segments import (
    LOST,
    META,
    OPEN,
    LedgerError,
    explain,
    read_meta,
    segment_path,
    segments,
    sync_folder,
    to_arrow,
    write_atomic,
)
from gumption.types import StateTree

TextPolicy: TypeAlias = Literal["none", "sample", "all"]
_NULLS: dict[str, dict[str, Any]] = {t: {c.name: None for c in cols if c.nullable} for t, cols in TABLES.items()}
_FLOPS = ("flops_prefill", "flops_decode", "flops_score", "flops_train")
_TEXT = [c.name for c in TABLES["rollouts"]].index("text")


class LedgerWriter:
    """Writes a new ledger into `folder` (usually `runs/<name>/ledger`).

    Args:
        folder: Made if it is missing; must not hold a ledger already (`resume` continues one).
        text: Which rollouts keep their completion text: none, about 1 in 16 (by a hash of chain, attempt and member)
            or all.
        flush_rows: A table with so many rows in memory is written, and the others with it.
        flush_seconds: So is a ledger whose oldest row in memory is older, so that a crash leaves little untold.

    Raises:
        ValueError: unknown text policy.
        LedgerError: the folder cannot be written, or holds a ledger.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        text: TextPolicy = "sample",
        flush_rows: int = 20_000,
        flush_seconds: float = 30.0,
    ) -> None:
        if text not in get_args(TextPolicy):
            raise ValueError(f"ledger.text = {text!r}: write none, sample or all")
        self._start(Path(folder), text, flush_rows, flush_seconds)
        if (self.folder / META).exists():
            raise LedgerError(f"{self.folder} already holds a ledger; resume that run or choose another folder")
        self._make_folders()
        meta = {"schema": SCHEMA_VERSION, "text": text, "flush_rows": flush_rows, "flush_seconds": flush_seconds}
        write_atomic(self.folder / META, (json.dumps(meta, indent=1) + "\n").encode())

    def _start(self, folder: Path, text: str, flush_rows: int, flush_seconds: float) -> None:
        self.folder = folder
        self.text = text
        self.flush_rows = flush_rows
        self.flush_seconds = flush_seconds
        self._rows: dict[str, list[Any]] = {name: [] for name in TABLES}
        self._getters = {name: itemgetter(*(c.name for c in cols)) for name, cols in TABLES.items()}
        self._widths = {name: len(cols) for name, cols in TABLES.items()}
        self._segments = dict.fromkeys(TABLES, 0)
        self._counts = dict.fromkeys(TABLES, 0)
        self._due = time.monotonic() + flush_seconds
        self._closed = False
        self._lost_segments = 0
        self.lost_rollouts = 0
        """Rollouts taken back since the checkpoint that this writer resumed from."""
        self.lost_flops = 0
        """What they had cost."""

    @classmethod
    def resume(
        cls,
        folder: str | Path,
        position: StateTree | None,
        *,
        discard: bool = False,
        text: TextPolicy | None = None,
        flush_rows: int | None = None,
        flush_seconds: float | None = None,
    ) -> LedgerWriter:
        """Continue the ledger of an interrupted run from a checkpoint's `position()`.

        Segments behind the position move to the `lost` folder, half-written temporary files are removed. It can be
        killed and called again, with the same or an older position.

        Args:
            folder: The ledger's folder.
            position: What the checkpoint stored; `None` is the position of an empty ledger.
            discard: Delete the segments behind the position instead: a run that had finished and is continued wrote its
                last rows for rollouts that the checkpoint still holds.
            text: As in the constructor; default: as it was.
            flush_rows: Likewise.
            flush_seconds: Likewise.

        Raises:
            LedgerError: there is no ledger, or segments before the position are missing or damaged.
        """
        folder = Path(folder)
        meta = read_meta(folder)
        self = cls.__new__(cls)
        self._start(
            folder,
            text or meta["text"],
            flush_rows or int(meta["flush_rows"]),
            float(meta["flush_seconds"] if flush_seconds is None else flush_seconds),
        )
        lost_before = 0
        if position is not None:
            self._segments.update({name: int(n) for name, n in position["segments"].items()})
            self._counts.update({name: int(n) for name, n in position["rows"].items()})
            lost_before = int(position["lost"])
        self._make_folders()
        for orphan in folder.rglob(".*.tmp"):
            orphan.unlink(missing_ok=True)
        for name in TABLES:
            self._verify(name)
        for name in TABLES:
            self._take_back(name, discard)
        self._count_lost(lost_before)
        return self

    def append(self, table: str, row: Mapping[str, Any]) -> None:
        """Add one row; nullable columns may be left out.

        Raises:
            ValueError: unknown table or column, or a missing one.
            LedgerError: a flush was due and failed (the rows stay in memory).
        """
        try:
            values: Any = self._getters[table](row)
            if len(row) != self._widths[table]:
                values = self._odd_row(table, row)
        except KeyError:
            values = self._odd_row(table, row)
        if table == "rollouts" and values[_TEXT] is not None and not self._keeps_text(values):
            values = (*values[:_TEXT], None, *values[_TEXT + 1 :])
        rows = self._rows[table]
        rows.append(values)
        if len(rows) >= self.flush_rows or time.monotonic() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Write everything in memory to disk, durably. What cannot be written stays in memory."""
        self._due = time.monotonic() + self.flush_seconds
        for name in FLUSH_ORDER:
            rows = self._rows[name]
            if rows:
                number = self._segments[name] + 1
                write_atomic(segment_path(self.folder, name, number), to_arrow(name, rows))
                self._segments[name] = number
                self._counts[name] += len(rows)
                self._rows[name] = []

    def position(self) -> StateTree:
        """Flush, then name the last segment and the number of rows of each table: what a checkpoint stores."""
        self.flush()
        return {
            "schema": SCHEMA_VERSION,
            "segments": dict(self._segments),
            "rows": dict(self._counts),
            "lost": self._lost_segments,
        }

    def close(self) -> None:
        """Flush; appending afterwards is an error. May be called twice."""
        if not self._closed:
            self.flush()
            (self.folder / OPEN).unlink(missing_ok=True)
            self._closed = True
            self._getters = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _keeps_text(self, values: tuple[Any, ...]) -> bool:
        if self.text == "sample":
            return zlib.crc32("{}/{}/{}/{}".format(*values[:4]).encode()) % TEXT_SAMPLE == 0
        return self.text == "all"

    def _odd_row(self, table: str, row: Mapping[str, Any]) -> Any:
        """A row without some nullable columns, or with metrics in an open table; all else is the caller's error."""
        if self._closed:
            raise ValueError(f"cannot append to {table!r}: the ledger is closed")
        if table not in TABLES:
            raise ValueError(f"unknown ledger table {table!r}; known: {', '.join(TABLES)}")
        full = {**_NULLS[table], **row}
        try:
            values = self._getters[table](full)
        except KeyError:
            missing = [c.name for c in TABLES[table] if c.name not in full]
            raise ValueError(f"a row of ledger table {table!r} misses {', '.join(missing)}") from None
        if len(full) == self._widths[table]:
            return values
        known = {c.name for c in TABLES[table]}
        more = {k: v for k, v in full.items() if k not in known}
        if table not in OPEN_TABLES:
            raise ValueError(f"a row of ledger table {table!r} has unknown columns {', '.join(sorted(more))}")
        return values, more

    def _make_folders(self) -> None:
        try:
            for name in TABLES:
                (self.folder / name).mkdir(parents=True, exist_ok=True)
            (self.folder / OPEN).touch()
        except OSError as error:
            raise explain(error, self.folder) from error

    def _verify(self, table: str) -> None:
        """What lies before the position must be there, whole, with the rows that the checkpoint counted."""
        rows = 0
        for number in range(1, self._segments[table] + 1):
            path = segment_path(self.folder, table, number)
            try:
                rows += int(pq.read_metadata(path).num_rows)
            except (OSError, pa.ArrowInvalid) as error:
                raise LedgerError(f"{path} is part of the checkpoint's ledger but cannot be read: {error}") from error
        if rows != self._counts[table]:
            raise LedgerError(
                f"{self.folder / table} holds {rows} rows up to segment {self._segments[table]}, "
                f"the checkpoint counted {self._counts[table]}: it belongs to another run"
            )

    def _take_back(self, table: str, discard: bool) -> None:
        lost = self.folder / LOST / table
        number = max((n for n, _ in segments(lost)), default=0)
        for n, path in segments(self.folder / table):
            if n > self._segments[table] and discard:
                path.unlink()
            elif n > self._segments[table]:
                lost.mkdir(parents=True, exist_ok=True)
                number += 1
                os.replace(path, lost / f"{number:06d}.parquet")
                sync_folder(lost)
        sync_folder(self.folder / table)

    def _count_lost(self, before: int) -> None:
        """Sum what was lost since the checkpoint, also by an earlier resume from the same one."""
        for number, path in segments(self.folder / LOST / "rollouts"):
            if number > before:
                table = pq.read_table(path, columns=[c.name for c in TABLES["rollouts"] if c.name in _FLOPS])
                self.lost_rollouts += int(table.num_rows)
                self.lost_flops += sum(sum(column.to_pylist()) for column in table.columns)
            self._lost_segments = number
