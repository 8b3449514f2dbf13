"""The ledger: what happened in a run, one row for each rollout, verdict, group, step and evaluation.

`LedgerWriter` writes it, `Ledger` reads it; `docs/ledger.md` is its schema. Nothing is imported until it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gumption.ledger.profile import BUCKETS, bucket, read_profile, write_profile
    from gumption.ledger.reader import Ledger
    from gumption.ledger.segments import LedgerError
    from gumption.ledger.writer import LedgerWriter

_HOMES = {
    "Ledger": "reader",
    "LedgerError": "segments",
    "LedgerWriter": "writer",
    "BUCKETS": "profile",
    "bucket": "profile",
    "read_profile": "profile",
    "write_profile": "profile",
}

__all__ = ["BUCKETS", "Ledger", "LedgerError", "LedgerWriter", "bucket", "read_profile", "write_profile"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
