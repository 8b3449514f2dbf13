"""Selection: which rollouts of a batch are trained on.

all.py        every one
leverage.py   per group, the smallest set that holds a share of the group's leverage
"""

from __future__ import annotations

from gumption.config import RunConfig
from gumption.selection.all import All
from gumption.selection.leverage import Leverage
from gumption.types import Selector

__all__ = ["All", "Leverage", "make_selector"]


def make_selector(config: RunConfig) -> Selector:
    """The selector that a run's `selection` table names.

    >>> from gumption.config import RunConfig
    >>> make_selector(RunConfig())
    Leverage(share=0.5)
    """
    if config.selection.rule == "leverage":
        return Leverage(config.selection.share)
    return All()
