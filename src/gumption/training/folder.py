"""Run folders: where they lie, what is in them, and `runs/latest`."""

from __future__ import annotations

import logging
import os
import shutil
import time
from pathlib import Path

log = logging.getLogger(__name__)

WRITTEN = ("config.toml", "summary.json", "report.html", "ledger", "checkpoints", "model", "tensorboard")


def default_folder(stem: str) -> Path:
    """`runs/<stem>-<date>-<time>`, not taken yet."""
    base = Path("runs") / f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder, n = base, 1
    while folder.exists():
        n += 1
        folder = base.with_name(f"{base.name}-{n}")
    return folder


def clear_folder(folder: Path, keep: str = "") -> None:
    """Remove what an earlier run left in a run folder (only names that a run writes)."""
    for name in WRITTEN:
        path = folder / name
        if name == keep or not path.exists():
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def point_latest(folder: Path) -> None:
    """Make `runs/latest` point to the newest run, where the folder lies in `runs/`."""
    if folder.parent.name != "runs":
        return
    link = folder.parent / "latest"
    try:
        temporary = link.with_name(f".latest-{os.getpid()}")
        temporary.symlink_to(folder.name, target_is_directory=True)
        os.replace(temporary, link)
    except OSError as error:
        log.debug("no runs/latest: %s", error)
