"""Problem files (`jsonl`, `json`, `parquet`, optionally `.gz`) and Hugging Face datasets (`datasets:NAME[:SPLIT]`).

A file is read as far as it can be: a line that is not JSON, a compressed file that ends early or bytes that are no text
become `BadRow`s with their line number, and reading goes on behind them where there is a behind.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from gumption.problems.rows import BadRow, RowReader
from gumption.problems.sets import ProblemSet

if TYPE_CHECKING:
    from gumption.config import ProblemsConfig

SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet")
MAX_LINE_BYTES = 1 << 26
"""A longer line is not read but skipped."""

Numbered = tuple[int, Any]
_BROKEN = (EOFError, zlib.error, gzip.BadGzipFile)  # what a damaged .gz raises
_CONTAINERS = ("data", "rows", "problems", "examples", "questions")


def load(config: ProblemsConfig, *, argument: str, seed: int, held_out: bool) -> ProblemSet:
    """Read the problems of a file.

    Args:
        config: Field names, template, `size` (the first so many), `strict`.
        argument: Path.
        seed: Not used: a file is what it is.
        held_out: A file has no held-out part of its own.

    Raises:
        ValueError: no such file, another format, a malformed row with `strict`, or no problem left.
    """
    path = Path(argument).expanduser()
    if held_out:
        return ProblemSet((), str(path))
    return RowReader(config, argument).read(read_rows(path), config.size)


def read_rows(path: Path) -> Iterator[Numbered]:
    """(line or row number, row) of a file; what cannot be read comes as a `BadRow`.

    Raises:
        ValueError: no such file, or another format.
    """
    suffixes = [s.lower() for s in path.suffixes]
    packed = suffixes[-1:] == [".gz"]
    kind = suffixes[-2 if packed else -1] if len(suffixes) > packed else ""
    if kind not in SUFFIXES:
        raise ValueError(f"{path}: unknown format; problem files are {', '.join(SUFFIXES)}, optionally with .gz")
    if not path.is_file():
        raise ValueError(f"no file at {path}")
    try:
        # The JSON lines and tables below are read lazily, so errors of the file itself surface inside this block.
        with _open(path, packed) as file:
            if kind == ".parquet":
                yield from _parquet(io.BytesIO(file.read()) if packed else path)
            elif kind == ".json":
                yield from _json(file)
            else:
                yield from _lines(file)
    except (OSError, *_BROKEN) as error:
        yield 0, BadRow(f"cannot be read: {error}")


def _open(path: Path, packed: bool) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if packed else path.open("rb")


def _lines(file: IO[bytes]) -> Iterator[Numbered]:
    number = 0
    while True:
        number += 1
        try:
            line = file.readline(MAX_LINE_BYTES + 1)
        except _BROKEN as error:
            yield number, BadRow(f"the compressed file is damaged from here on: {error}")
            return
        if not line:
            return
        if len(line) > MAX_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = file.readline(MAX_LINE_BYTES)
            yield number, BadRow(f"the line is longer than {MAX_LINE_BYTES >> 20} MiB")
        elif line.strip():
            yield number, _parse(line, "utf-8-sig" if number == 1 else "utf-8")


def _parse(line: bytes, encoding: str) -> Any:
    try:
        return json.loads(line.decode(encoding))
    except UnicodeDecodeError as error:
        return BadRow(f"not UTF-8 text: {error.reason} at byte {error.start + 1}")
    except json.JSONDecodeError as error:
        return BadRow(f"not JSON: {error.msg} at column {error.colno}")
    except (ValueError, RecursionError) as error:
        return BadRow(f"not JSON: {error}")


def _json(file: IO[bytes]) -> Iterator[Numbered]:
    """An array of rows, an object that holds one under one of `_CONTAINERS`, or JSON lines under another name."""
    damage = None
    chunks = []
    try:
        while chunk := file.read(1 << 16):
            chunks.append(chunk)
    except _BROKEN as error:
        damage = f"the compressed file is damaged from here on: {error}"
    data = b"".join(chunks)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        yield data[: error.start].count(b"\n") + 1, BadRow(f"not UTF-8 text: {error.reason}")
        return
    start = len(text) - len(text.lstrip())
    if not text.strip():
        if damage:
            yield 1, BadRow(damage)
        return
    if text[start] == "[":
        yield from _array(text, start, damage)
        return
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        yield from _lines(io.BytesIO(data))
        return
    inner = [whole[k] for k in _CONTAINERS if isinstance(whole.get(k), list)] if isinstance(whole, dict) else []
    yield from enumerate(inner[0] if inner else [whole], 1)


_SPACE = re.compile(r"\s*")


def _array(text: str, start: int, damage: str | None) -> Iterator[Numbered]:
    """Rows of a JSON array one by one, each with the line on which it starts."""
    decode = json.JSONDecoder().raw_decode
    line, counted = 1, 0
    position = _skip(text, start + 1)
    if text.startswith("]", position):
        return
    while True:
        line, counted = line + text.count("\n", counted, position), position
        try:
            row, position = decode(text, position)
        except json.JSONDecodeError as error:
            reason = damage or f"not JSON from here on: {error.msg}, line {error.lineno}"
            yield line, BadRow(reason)
            return
        except (ValueError, RecursionError) as error:
            yield line, BadRow(f"not JSON from here on: {error}")
            return
        yield line, row
        position = _skip(text, position)
        if text.startswith("]", position):
            return
        if not text.startswith(",", position):
            line += text.count("\n", counted, position)
            yield line, BadRow(damage or "not JSON from here on: ',' or ']' expected")
            return
        position = _skip(text, position + 1)


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    assert match is not None  # \s* matches the empty string
    return match.end()


def _parquet(source: Path | io.BytesIO) -> Iterator[Numbered]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(source) as table:
            for batch in table.iter_batches(batch_size=4096):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (pa.ArrowException, *_BROKEN) as error:
        yield number + 1, BadRow(f"not a parquet file, or damaged: {' '.join(str(error).split())[:200]}")


_SPLIT = re.compile(r"(?P<name>.+?)(?::(?P<split>[A-Za-z_][\w.-]*(?:\[[^\]]*\])?(?:\+[\w.-]+(?:\[[^\]]*\])?)*))?")


def load_dataset(config: ProblemsConfig, *, argument: str, seed: int, held_out: bool) -> ProblemSet:
    """Read a Hugging Face dataset: `datasets:openai/gsm8k:train[:1000]`, a local folder too.

    Args:
        config: As for `load`; `options` go to `datasets.load_dataset` (`name`, `revision`, `data_files`, …).
        argument: Name or folder, and the split behind a colon (default "train").
        seed: Not used.
        held_out: A split has no held-out part of its own.

    Raises:
        ValueError: `datasets` is not installed, or it cannot load that, or no problem is left.
    """
    source = f"datasets:{argument}"
    match = _SPLIT.fullmatch(argument)
    if match is None:
        raise ValueError(f"{source!r}: write datasets:NAME or datasets:NAME:SPLIT")
    if held_out:
        return ProblemSet((), source)
    try:
        import datasets
    except ImportError:
        raise ValueError(f"{source} needs the datasets package: pip install 'gumption[datasets]'") from None
    name, split = match["name"], match["split"] or "train"
    folder = Path(name).expanduser()
    try:
        if any((folder / f).is_file() for f in ("dataset_dict.json", "state.json")):
            table = datasets.load_from_disk(str(folder))
            if isinstance(table, datasets.DatasetDict):
                table = table[split]
        else:
            table = datasets.load_dataset(str(folder) if folder.exists() else name, split=split, **config.options)
    except Exception as error:  # datasets raises dozens of types, for a wrong name, split, option or the network
        raise ValueError(f"{source} cannot be loaded: {type(error).__name__}: {_line(error)}") from None
    return RowReader(config, source).read(enumerate(table, 1), config.size)


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else text[:297] + "…"
