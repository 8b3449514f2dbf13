"""Selection: which rollouts of a batch are trained on.

all.py          every one
leverage.py     per group, the smallest set that holds a share of the group's leverage
pods.py         per group, the subset of rewards that varies most
cppo.py         all but the smallest advantages of the batch
cost_aware.py   a weighted sample that favours much advantage in few tokens
top.py          per group, the largest advantages
"""

from __future__ import annotations

from gumption.config import RunConfig
from gumption.credit.advantage import GROUP_ADVANTAGES
from gumption.selection.all import All
from gumption.selection.cost_aware import CostAware
from gumption.selection.cppo import Cppo
from gumption.selection.leverage import Leverage
from gumption.selection.pods import Pods
from gumption.selection.top import Top
from gumption.types import Selector

__all__ = ["All", "CostAware", "Cppo", "Leverage", "Pods", "Top", "make_selector"]


def make_selector(config: RunConfig) -> Selector:
    """The selector that a run's `selection` table names.

    Raises:
        ValueError: `share = "auto"`: it is a running trainer that sets it (`gumption.training.share`).

    >>> from gumption.config import RunConfig
    >>> make_selector(RunConfig())
    Leverage(share=0.5)
    """
    s = config.selection
    if s.rule == "leverage":
        if s.share == "auto":
            raise ValueError('selection.share = "auto" follows the times of a run: give a number here')
        return Leverage(s.share)
    if s.rule == "pods":
        return Pods(s.keep, GROUP_ADVANTAGES[config.advantage] if s.recompute else None)
    if s.rule == "cppo":
        return Cppo(s.rate)
    if s.rule == "cost_aware":
        return CostAware(s.keep, s.scope)
    return Top(s.keep) if s.rule == "top" else All()
