"""Progress of a run on a terminal: a live panel where there is one, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from gumption.training.run import Observer

SPARKS = "▁▂▃▄▅▆▇█"
LINE_EVERY_S = 10.0


def sparkline(values: list[float], width: int = 40) -> str:
    """The last values between 0 and 1 as block characters, averaged down to `width`.

    >>> sparkline([0.0, 0.5, 1.0])
    '▁▅█'
    """
    if len(values) > width:
        step = len(values) / width
        values = [
            sum(chunk) / len(chunk)
            for i in range(width)
            if (chunk := values[int(i * step) : max(int(i * step) + 1, int((i + 1) * step))])
        ]
    return "".join(SPARKS[min(7, max(0, round(v * 7)))] for v in values)


class Display(Observer):
    """Shows a run on standard error. Use as a context manager.

    Args:
        quiet: Show nothing but messages.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.quiet = quiet
        self.live_on = self.console.is_terminal and not quiet
        self.bar = Progress(
            TextColumn("[bold]{task.description:<28}"),
            BarColumn(bar_width=40),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
        )
        self.task = self.bar.add_task("starting", total=1.0)
        self.metrics: dict[str, float] = {}
        self.smooth: dict[str, float] = {}
        self.rewards: list[float] = []
        self.name = ""
        self._line_at = 0.0
        self.live = Live(get_renderable=self._render, console=self.console, refresh_per_second=8, transient=True)

    def __enter__(self) -> Display:
        if self.live_on:
            self.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.live_on:
            self.live.stop()

    def phase(self, name: str) -> None:
        """Start a new bar."""
        if name == self.name:
            return
        self.name = name
        self.bar.reset(self.task, description=name, total=1.0)
        if not self.live_on and not self.quiet:
            self.console.print(name)

    def progress(self, done: int, total: int) -> None:
        """Move the bar of an evaluation."""
        self.bar.update(self.task, completed=done / max(total, 1))

    def step(self, metrics: Mapping[str, float], fraction: float | None) -> None:
        """Take in one update."""
        self.metrics = dict(metrics)
        for key in ("reward/mean", "allocation/attempts_per_group", "leverage/kept_rollouts", "off_policy/mean"):
            if key in metrics:
                self.smooth[key] = 0.9 * self.smooth.get(key, metrics[key]) + 0.1 * metrics[key]
        self.rewards.append(self.smooth.get("reward/mean", 0.0))
        if fraction is None:
            self.bar.update(self.task, total=None)
        else:
            self.bar.update(self.task, completed=fraction)
        now = time.perf_counter()
        if not self.live_on and not self.quiet and now - self._line_at > LINE_EVERY_S:
            self._line_at = now
            done = "" if fraction is None else f"{100 * fraction:3.0f} %  "
            self.console.print(done + "  ".join(f"{k} {v}" for k, v in self._facts()), soft_wrap=True)

    def message(self, text: str) -> None:
        """Print a line above the panel."""
        self.console.print(text, style="yellow" if self.console.is_terminal else None, soft_wrap=True)

    def _facts(self) -> list[tuple[str, str]]:
        m, s = self.metrics, self.smooth
        return [
            ("update", f"{m.get('batch/version', 0):.0f}"),
            ("rollouts", f"{m.get('rollouts', 0):,.0f}"),
            ("reward", f"{s.get('reward/mean', 0):.2f}"),
            ("trained on", f"{100 * s.get('leverage/kept_rollouts', 0):.0f} % of accepted"),
            ("attempts/group", f"{s.get('allocation/attempts_per_group', 0):.1f}"),
            ("staleness", f"{s.get('off_policy/mean', 0):.1f}"),
            ("bits/ktok", f"{m.get('info/bits_per_ktok', 0):.1f}"),
            ("TFLOPs", f"{m.get('flops/total', 0) / 1e12:.3g}"),
        ]

    def _render(self) -> Group:
        if not self.metrics or self.name != "training":
            return Group(self.bar)
        table: Any = Table.grid(padding=(0, 2))
        facts = self._facts()
        for row in (facts[:4], facts[4:]):
            table.add_row(*(f"[dim]{name}[/] {value}" for name, value in row))
        return Group(self.bar, table, f"[dim]reward of generated rollouts[/] {sparkline(self.rewards)}")


def stdout_console() -> Console:
    """The console for results."""
    width = None if sys.stdout.isatty() else 110
    return Console(file=sys.stdout, highlight=False, width=width)
