"""`gumption report`: the HTML page of a run."""

from __future__ import annotations

import json
import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer


def report_command(
    folder: Annotated[Path, typer.Argument(help="Run folder; default: the newest run.", show_default=False)] = Path(
        "runs/latest"
    ),
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where to write the page; default: report.html in the run folder."),
    ] = None,
    show: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="Open it in a browser; default: yes at a terminal with a screen."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print path and findings as JSON.")] = False,
) -> None:
    """Write the report of a run: pass rate by difficulty, where the tokens went, bits, leverage, staleness.

    The run may be finished, crashed or still going. One file, works offline. Exit code 1: it was written, but the
    ledger is damaged or does not add up (the page says where).

    [bold]Examples[/]

    gumption report runs/latest

    gumption report runs/a --out a.html --no-open

    gumption report runs/a --json
    """
    from gumption.ledger import Ledger
    from gumption.report import write_report

    try:
        path = write_report(folder, out)
    except ImportError as error:
        raise ValueError(str(error)) from None
    found = Ledger(folder).check()
    if as_json:
        typer.echo(json.dumps({"report": str(path), "agrees": not found, "disagreements": found}))
    else:
        typer.echo(f"report: {path}")
        for line in found[:5]:
            typer.echo(f"gumption: {line}", err=True)
    if show if show is not None else (_has_screen() and not as_json):
        webbrowser.open(path.resolve().as_uri())
    if found:
        raise typer.Exit(1)


def _has_screen() -> bool:
    """A person at a terminal with a graphical browser (a text browser would take the terminal over)."""
    desktop = sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(desktop) and sys.stdout.isatty()
