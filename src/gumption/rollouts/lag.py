"""Weights that reach the engine late, so that staleness can be studied on one machine."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from gumption.types import StateTree

Weights = Mapping[str, Tensor]


class WeightLag:
    """A queue that holds back the last `lag` updates.

    Args:
        lag: Updates by which the engine stays behind; 0 keeps nothing.
        weights: What the engine starts with (copied; only read with a lag).

    >>> queue = WeightLag(1, {"w": torch.zeros(1)})
    >>> queue.push(1, {"w": torch.ones(1)}) is None
    True
    >>> version, weights = queue.push(2, {"w": torch.full((1,), 2.0)})
    >>> version, weights["w"].item()
    (1, 1.0)
    """

    def __init__(self, lag: int, weights: Weights) -> None:
        self.lag = lag
        self.current = _copy(weights) if lag else {}
        self.pending: deque[tuple[int, dict[str, Tensor]]] = deque()

    def push(self, version: int, weights: Weights) -> tuple[int, Weights] | None:
        """Take an update. Returns the one that is due now, with its version; `None` while the queue fills."""
        if not self.lag:
            return version, weights
        self.pending.append((version, _copy(weights)))
        if len(self.pending) <= self.lag:
            return None
        due, self.current = self.pending.popleft()
        return due, self.current

    def state_dict(self) -> StateTree:
        """The weights in use and those held back; empty without a lag."""
        pending = [[version, _arrays(weights)] for version, weights in self.pending]
        return {"current": _arrays(self.current), "pending": pending} if self.lag else {}

    def load_state_dict(self, state: StateTree) -> Weights | None:
        """Take up a saved queue. Returns the weights that were in use (`None`: saved or loaded without a lag)."""
        if not self.lag or not state:
            return None
        self.current = _tensors(state["current"])
        self.pending = deque((int(version), _tensors(arrays)) for version, arrays in state["pending"])
        return self.current


def _copy(weights: Weights) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in weights.items()}


def _arrays(weights: Weights) -> StateTree:
    """As numpy; half precision becomes float32, which holds it exactly."""
    half = (torch.bfloat16, torch.float16)
    return {name: (t.float() if t.dtype in half else t).cpu().numpy() for name, t in weights.items()}


def _tensors(arrays: StateTree) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.array(value)) for name, value in arrays.items()}
