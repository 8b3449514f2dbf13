"""The report: one HTML page from a ledger. It reads the ledger and nothing else.

tables.py     the ledger's frames → tables (pure functions)
learning.py   tables → figures: what was learned
costs.py      tables → figures: what it cost
style.py      colours, number formats
html.py       figures and facts → the page
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["write_report"]


def write_report(run_folder: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a run (`report.html` in its folder by default); returns the page's path.

    Raises:
        ImportError: plotly is not installed.
        ValueError: there is no ledger, or the page cannot be written.
    """
    try:
        from gumption.report import html
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("plotly"):
            raise
        raise ImportError("the report needs plotly: pip install 'gumption[report]'") from error
    return html.write_report(run_folder, out)
