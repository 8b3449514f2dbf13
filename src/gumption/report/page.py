"""Writes a page so that nobody ever sees half of it."""

from __future__ import annotations

import os
from pathlib import Path


def write_page(path: Path, page: str, what: str) -> Path:
    """Write beside the path, then rename.

    Args:
        path: Where to; its folder exists.
        page: The text.
        what: Names it in the error ("the report to ").

    Raises:
        ValueError: the page cannot be written.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(page, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise ValueError(f"cannot write {what}{path}: {error.strerror or error}") from None
    return path
