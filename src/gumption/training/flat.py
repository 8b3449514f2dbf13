"""All trainable weights as one vector, so that a step of a small model is a handful of operations, not hundreds.

The module's parameters become views into one buffer, their gradients views into another: the norm, clipping, the copy
that gradient noise needs and AdamW each touch one tensor. Weights below float32 get a float32 master copy, which is
what the optimizer moves (an update of 1e-4 of a weight is lost in bfloat16), and float32 gradient sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ALIGN = 16  # elements: keeps every view on a 64-byte line


@dataclass(frozen=True)
class _Slot:
    name: str
    parameter: torch.nn.Parameter
    start: int

    @property
    def stop(self) -> int:
        return self.start + self.parameter.numel()


class FlatParameters:
    """The trainable parameters of a module, as flat vectors.

    Args:
        model: Its trainable parameters are moved into one buffer (names, shapes and values stay).

    Attributes:
        values: What the optimizer moves: float32 or float64.
        grads: Gradient sums, same dtype and layout.
        matrices: Elements before this one belong to weights of two or more dimensions (weight decay is for those).

    Raises:
        ValueError: nothing is trainable, or the parameters are spread over several devices.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        named = [(n, p) for n, p in model.named_parameters() if p.requires_grad and p.numel()]
        if not named:
            raise ValueError("the model has no trainable parameter")
        if len({p.device for _, p in named}) > 1:
            raise ValueError(f"parameters on several devices: {sorted({str(p.device) for _, p in named})}")
        named.sort(key=lambda item: item[1].dim() < 2)  # stable: matrices first
        self._slots: list[_Slot] = []
        end = 0
        self.matrices = 0
        for name, parameter in named:
            self._slots.append(_Slot(name, parameter, end))
            end = -(-(end + parameter.numel()) // ALIGN) * ALIGN
            if parameter.dim() >= 2:
                self.matrices = end
        device, dtypes = named[0][1].device, {p.dtype for _, p in named}
        dtype = torch.float64 if torch.float64 in dtypes else torch.float32
        self.values = torch.zeros(end, dtype=dtype, device=device)
        self.grads = torch.zeros_like(self.values)
        self._low: list[_Slot] = []  # of lower precision than the master
        for slot in self._slots:
            self._adopt(slot)

    def _adopt(self, slot: _Slot) -> None:
        p = slot.parameter
        self._view(self.values, slot).copy_(p.data)
        if p.dtype == self.values.dtype:
            p.data = self._view(self.values, slot)
            p.grad = self._view(self.grads, slot)
        else:
            self._low.append(slot)
            p.grad = None

    @staticmethod
    def _view(flat: Tensor, slot: _Slot) -> Tensor:
        return flat[slot.start : slot.stop].view(slot.parameter.shape)

    def zero_grads(self) -> None:
        """Start a new sum."""
        self.grads.zero_()
        for slot in self._low:
            slot.parameter.grad = None

    @torch.no_grad()
    def collect(self) -> None:
        """After a backward pass: add low-precision gradients to the float32 sums."""
        for slot in self._low:
            if slot.parameter.grad is not None:
                self._view(self.grads, slot).add_(slot.parameter.grad)
                slot.parameter.grad = None

    @torch.no_grad()
    def publish(self) -> None:
        """After a step: round the master copy into the low-precision weights."""
        for slot in self._low:
            slot.parameter.copy_(self._view(self.values, slot))

    def named(self, flat: Tensor) -> dict[str, Tensor]:
        """A flat vector of this layout as one view per parameter."""
        return {slot.name: self._view(flat, slot) for slot in self._slots}

    @torch.no_grad()
    def load(self, flat: Tensor, tensors: dict[str, Any], what: str) -> None:
        """Fill a flat vector from tensors by name.

        Raises:
            ValueError: a name is missing or too many, or a shape differs.
        """
        views = self.named(flat)
        if views.keys() != tensors.keys():
            odd = sorted(views.keys() ^ tensors.keys())[:3]
            raise ValueError(f"saved {what} are of another model: {', '.join(odd)} …")
        for name, view in views.items():
            tensor = torch.as_tensor(tensors[name])
            if tensor.shape != view.shape:
                raise ValueError(f"saved {what} of {name}: shape {tuple(tensor.shape)} instead of {tuple(view.shape)}")
            view.copy_(tensor)


class FlatAdamW:
    """AdamW (arXiv 1711.05101) over a `FlatParameters`; weight decay on matrices only.

    Args:
        flat: The parameters.
        betas: Decay of the two moments.
        weight_decay: Per step, times the learning rate.
    """

    def __init__(self, flat: FlatParameters, betas: tuple[float, float], weight_decay: float) -> None:
        self.flat = flat
        split = flat.matrices
        groups = []
        for lo, hi, decay in ((0, split, weight_decay), (split, len(flat.values), 0.0)):
            if hi > lo:
                part = flat.values[lo:hi]
                part.grad = flat.grads[lo:hi]
                groups.append({"params": [part], "weight_decay": decay})
        self._optimizer = torch.optim.AdamW(groups, lr=0.0, betas=betas, fused=True)
        self._moments = [torch.zeros_like(flat.values) for _ in range(2)]
        for group in self._optimizer.param_groups:
            part = group["params"][0]
            lo = part.storage_offset() - flat.values.storage_offset()
            first, second = (m[lo : lo + len(part)] for m in self._moments)
            steps = torch.zeros((), dtype=torch.float32, device=part.device)
            self._optimizer.state[part] = {"step": steps, "exp_avg": first, "exp_avg_sq": second}

    def step(self, learning_rate: float) -> None:
        """One step along `flat.grads`."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        self.flat.publish()

    @property
    def steps(self) -> int:
        """Steps made."""
        return int(next(iter(self._optimizer.state.values()))["step"].item())

    def state_dict(self) -> dict[str, Any]:
        """Steps and moments by parameter name (live views)."""
        first, second = self._moments
        return {"steps": self.steps, "exp_avg": self.flat.named(first), "exp_avg_sq": self.flat.named(second)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Return to a saved state."""
        for name, moment in zip(("exp_avg", "exp_avg_sq"), self._moments, strict=True):
            self.flat.load(moment, state[name], "optimizer moments")
        for item in self._optimizer.state.values():
            item["step"].fill_(float(state["steps"]))
