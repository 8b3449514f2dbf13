"""Step metrics to TensorBoard, Weights & Biases or trackio as well. Optional: `ledger.track = ["tensorboard"]`.

The ledger is the record; a tracker is a window on it. So a tracker that fails during a run (no network, disk full) is
reported once and dropped, and training goes on. One that cannot start is an error with the extra to install.
"""

from __future__ import annotations

import logging
import math
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from gumption.config import LedgerConfig
from gumption.ledger.redaction import redact

log = logging.getLogger(__name__)


@runtime_checkable
class Tracker(Protocol):
    """Takes the metrics of each optimizer step."""

    def log(self, version: int, metrics: Mapping[str, float]) -> None:
        """Metrics of the step that made policy `version`."""
        ...

    def close(self) -> None:
        """Write what is pending."""
        ...


def make_trackers(config: LedgerConfig, folder: str | Path) -> list[Tracker]:
    """The trackers that `ledger.track` names.

    Args:
        config: `track` and `project` are used.
        folder: The run folder; its name is the run's name, and `config.toml` in it is shown as the run's settings
            (without anything that looks like a secret).

    Raises:
        ValueError: a tracker's package is missing, or it cannot start.

    >>> make_trackers(LedgerConfig(), "runs/none")
    []
    """
    folder = Path(folder)
    trackers: list[Tracker] = []
    for name in config.track:
        try:
            trackers.append(Guarded(name, _MAKERS[name](folder, config.project)))
        except ImportError as error:
            for tracker in trackers:
                tracker.close()
            raise ValueError(
                f"ledger.track names {name!r}, but it cannot be imported ({error}): pip install 'gumption[track]'"
            ) from None
        except Exception as error:
            for tracker in trackers:
                tracker.close()
            raise ValueError(f"ledger.track: {name} cannot start: {error}") from error
    return trackers


class Guarded:
    """A tracker that may fail without stopping the run: the first failure is logged, later calls do nothing."""

    def __init__(self, name: str, tracker: Tracker) -> None:
        self.name = name
        self.tracker: Tracker | None = tracker

    def log(self, version: int, metrics: Mapping[str, float]) -> None:
        """Pass on finite numbers."""
        self._try(lambda t: t.log(version, {k: float(v) for k, v in metrics.items() if _is_number(v)}))

    def close(self) -> None:
        """Close the tracker, once."""
        self._try(lambda t: t.close())
        self.tracker = None

    def _try(self, call: Callable[[Tracker], None]) -> None:
        if self.tracker is None:
            return
        try:
            call(self.tracker)
        except Exception as error:  # whatever a third party raises: the run is worth more than its window
            log.warning("%s failed and is dropped for the rest of the run: %s", self.name, error)
            self.tracker = None


class TensorBoardTracker:
    """Event files in `<run>/tensorboard`, written by tensorboard's own writer (no torch, no tensorflow)."""

    def __init__(self, folder: Path, project: str) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary = Event, Summary
        self._writer = EventFileWriter(str(folder / "tensorboard"))

    def log(self, version: int, metrics: Mapping[str, float]) -> None:
        """One event with a scalar for each metric."""
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        summary = self._summary(value=values)
        self._writer.add_event(self._event(wall_time=time.time(), step=version, summary=summary))

    def close(self) -> None:
        """Flush and close the event file."""
        self._writer.close()


class WandbTracker:
    """A Weights & Biases run; `WANDB_MODE=offline` keeps it on disk under the run folder."""

    def __init__(self, folder: Path, project: str) -> None:
        import wandb

        self._run = wandb.init(project=project, name=folder.name, dir=str(folder), config=_settings(folder))

    def log(self, version: int, metrics: Mapping[str, float]) -> None:
        """One history row."""
        self._run.log(dict(metrics), step=version)

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


class TrackioTracker:
    """A trackio run (local dashboard)."""

    def __init__(self, folder: Path, project: str) -> None:
        import trackio

        self._trackio = trackio
        trackio.init(project=project, name=folder.name, config=_settings(folder))

    def log(self, version: int, metrics: Mapping[str, float]) -> None:
        """One history row."""
        self._trackio.log(dict(metrics), step=version)

    def close(self) -> None:
        """Finish the run."""
        self._trackio.finish()


_MAKERS: dict[str, Callable[[Path, str], Tracker]] = {
    "tensorboard": TensorBoardTracker,
    "wandb": WandbTracker,
    "trackio": TrackioTracker,
}


def _settings(folder: Path) -> dict[str, Any]:
    try:
        settings: dict[str, Any] = redact(tomllib.loads((folder / "config.toml").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
    return settings


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
