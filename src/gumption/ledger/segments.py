"""Segments on disk: where they lie, rows to arrow, and writing a file whole or not at all."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gumption.ledger.schema import OPEN_TABLES, SCHEMA_VERSION, TABLES, Column, arrow_type

META = "ledger.json"
LOST = "lost"
OPEN = "open"
"""Empty file that lies in the folder while a writer has it: of a run that goes on, or that crashed."""


class LedgerError(OSError):
    """The ledger cannot be written or continued; the message says why and what to do."""


def segment_path(folder: Path, table: str, number: int) -> Path:
    """Where segment `number` (from 1) of a table lies."""
    return folder / table / f"{number:06d}.parquet"


def segments(folder: Path) -> list[tuple[int, Path]]:
    """Number and path of each segment in a table's folder, in order; empty where there is none."""
    if not folder.is_dir():
        return []
    return sorted((int(p.stem), p) for p in folder.glob("*.parquet") if p.stem.isdigit())


def read_meta(folder: Path) -> dict[str, Any]:
    """`ledger.json`.

    Raises:
        LedgerError: it is missing or unreadable, or a newer gumption wrote it.
    """
    try:
        meta: dict[str, Any] = json.loads((folder / META).read_text(encoding="utf-8"))
        version = int(meta["schema"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LedgerError(f"{folder} holds no ledger that can be read ({META}: {error})") from error
    if version > SCHEMA_VERSION:
        raise LedgerError(
            f"{folder} has ledger schema {version}, this gumption knows {SCHEMA_VERSION}: upgrade gumption"
        )
    return meta


def to_arrow(table: str, rows: list[Any]) -> Any:
    """Rows (tuples in column order; in open tables with a dict of metrics) as one pyarrow table.

    Raises:
        ValueError: a value does not fit its column; the message names both.
    """
    extra: list[dict[str, Any]] = []
    if table in OPEN_TABLES:
        # A row that has exactly the fixed columns comes without its (empty) dict of metrics.
        pairs = [r if len(r) == 2 and isinstance(r[1], dict) else (r, {}) for r in rows]
        rows, extra = [r for r, _ in pairs], [m for _, m in pairs]
    fields, arrays = [], []
    for column, values in zip(TABLES[table], zip(*rows, strict=True), strict=True):
        fields.append(pa.field(column.name, arrow_type(column), column.nullable))
        arrays.append(_array(table, column, values))
    for name in sorted({k for m in extra for k in m}):
        metric = Column(name, "float64", "", "", nullable=True)
        fields.append(pa.field(name, pa.float64(), True))
        arrays.append(_array(table, metric, [m.get(name) for m in extra], keep_nan=True))
    metadata = {"gumption.schema": str(SCHEMA_VERSION), "gumption.table": table}
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=metadata))


def _array(table: str, column: Column, values: Any, *, keep_nan: bool = False) -> Any:
    try:
        array = pa.array(values, arrow_type(column), from_pandas=not keep_nan)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        array = None
    if array is None or (array.null_count and not column.nullable):
        bad = next((v for v in values if not _fits(column, v)), None)
        raise ValueError(f"ledger column {table}.{column.name} ({column.type}) cannot hold {bad!r}")
    return array


def _fits(column: Column, value: Any) -> bool:
    try:
        null = pa.array([value], arrow_type(column), from_pandas=True).null_count > 0
        return column.nullable or not null
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return False


def write_atomic(path: Path, content: Any) -> None:
    """Write bytes or a pyarrow table so that `path` is either not there or whole, and durable."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "wb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                pq.write_table(content, file, compression="zstd", write_page_checksum=True)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise explain(error, path) from error


def sync_folder(folder: Path) -> None:
    """Make a rename in this folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def explain(error: OSError, path: Path) -> LedgerError:
    """One line with the way out."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        way_out = "free some space and resume the run"
    elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        way_out = "make the folder writable or choose another one with --out"
    else:
        way_out = "choose another folder with --out"
    return LedgerError(f"cannot write the ledger at {path}: {error.strerror or error}; {way_out}")
