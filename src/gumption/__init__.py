"""gumption: reinforcement learning for language models that spends every rollout, token and FLOP where it teaches most.

Importing this package loads neither torch nor plotly.

>>> import gumption
>>> config = gumption.RunConfig.from_dict({"allocation": {"rule": "never_give_up", "group_size": 8}})
>>> config.allocation.retry_probability
0.875
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from gumption.config import RunConfig
    from gumption.planning.simulator import simulate
    from gumption.training.run import RunResult, resume, train
    from gumption.types import Attempt, Credit, Group, Problem, Request, Reward, Rollout, Selection, Verdict

_TYPES = ("Attempt", "Credit", "Group", "Problem", "Request", "Reward", "Rollout", "Selection", "Verdict")
_HOMES = {
    "RunConfig": "gumption.config",
    "RunResult": "gumption.training.run",
    "train": "gumption.training.run",
    "resume": "gumption.training.run",
    "simulate": "gumption.planning.simulator",
    **dict.fromkeys(_TYPES, "gumption.types"),
}

__all__ = [
    "Attempt",
    "Credit",
    "Group",
    "Problem",
    "Request",
    "Reward",
    "Rollout",
    "RunConfig",
    "RunResult",
    "Selection",
    "Verdict",
    "__version__",
    "resume",
    "simulate",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'gumption' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
