"""KV caches of all rows in one place: preallocated slots whose sequences all end at the same column.

Row r's token at position p lies in column `starts_S[r] + p`, and every active row's next token goes to `column`: a
decode step writes one slice, and attention reads one rectangle from the oldest active start to `column`. New prompts
are placed so that they end there too. Columns in front of a row's start are masked. When the columns run out, the live
rectangle is moved back to the left edge (or to larger buffers).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gumption.types import IntArray

GROWTH = 1.5
"""New buffers are this much larger than what must fit."""


class SlotCache:
    """Key and value buffers of shape (planes, rows, heads, columns, dim), and where each row starts.

    Args:
        device: Where the buffers live.
        dtype: Their type.
        mask_heads: The additive mask is stored repeated this often, (rows, mask_heads, columns), so that a batched
            matrix product over rows × heads can add it without a copy.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype, *, mask_heads: int = 1) -> None:
        self.device, self.dtype, self.mask_heads = device, dtype, mask_heads
        self.rows = self.columns = 0
        self.column = 0
        self.starts_S: IntArray = np.zeros(0, np.int64)
        self.buffers: list[Tensor] = []
        self.mask = self._new_mask(0, 0)

    def add_buffer(self, planes: int, heads: int, dim: int) -> Tensor:
        """A further buffer (zeros: masked columns must hold finite numbers)."""
        buffer = torch.zeros(planes, self.rows, heads, self.columns, dim, dtype=self.dtype, device=self.device)
        self.buffers.append(buffer)
        return buffer

    def left(self, active: int) -> int:
        """First column that any of the rows 0 … active − 1 uses."""
        return int(self.starts_S[:active].min()) if active else self.column

    def prepare(self, active: int, new: int, longest: int) -> None:
        """Make room: for `new` more rows whose longest sequence ends at `column`, and for one more column.

        Args:
            active: Rows in use, 0 … active − 1.
            new: Rows about to be placed behind them.
            longest: Tokens of the longest of their sequences (0 without new rows).
        """
        if active + new > self.rows:
            self._resize(active, max(active + new, int(self.rows * GROWTH)), self.columns)
        if not active:
            self.column = 0
        target = max(self.column, longest - 1)
        if target + 1 > self.columns:
            live = max(self.column - self.left(active), longest - 1)
            target = live
            if live * GROWTH + 16 > self.columns:
                target, columns = live, int(live * GROWTH * GROWTH) + 64
                self._resize(active, self.rows, columns)
        if target != self.column:
            self._shift(active, target - self.column)

    def place(self, first: int, lengths_B: IntArray) -> None:
        """Rows first, first + 1, … now hold sequences of these lengths that end at `column`."""
        last = first + len(lengths_B)
        self.starts_S[first:last] = self.column + 1 - lengths_B
        self._write_mask(first, last)

    def move(self, to_B: IntArray, from_B: IntArray, active: int) -> None:
        """Copy rows (their live columns, starts and masks); `active` rows were in use before."""
        if not len(to_B):
            return
        lo = self.left(active)
        to_i, from_i = torch.from_numpy(to_B).to(self.device), torch.from_numpy(from_B).to(self.device)
        for buffer in self.buffers:
            live = buffer[:, :, :, lo : self.column]
            live[:, to_i] = live[:, from_i]
        self.mask[to_i] = self.mask[from_i]
        self.starts_S[to_B] = self.starts_S[from_B]

    def erase(self, rows_B: IntArray) -> None:
        """Zero rows that may hold NaN: a masked NaN would still poison the next owner of the slot (0 · NaN)."""
        index = torch.from_numpy(rows_B).to(self.device)
        for buffer in self.buffers:
            buffer[:, index] = 0

    def _shift(self, active: int, by: int) -> None:
        lo = self.left(active)
        for buffer in self.buffers if active else ():
            live = buffer[:, :active, :, lo : self.column].clone()
            buffer[:, :active, :, lo + by : self.column + by] = live
        self.column += by
        self.starts_S[:active] += by
        self._write_mask(0, active)

    def _resize(self, active: int, rows: int, columns: int) -> None:
        keep = min(columns, self.columns)
        for i, old in enumerate(self.buffers):
            planes, _, heads, _, dim = old.shape
            new = torch.zeros(planes, rows, heads, columns, dim, dtype=self.dtype, device=self.device)
            new[:, :active, :, :keep] = old[:, :active, :, :keep]
            self.buffers[i] = new
        starts_S = np.zeros(rows, np.int64)
        starts_S[:active] = self.starts_S[:active]
        self.starts_S, self.rows, self.columns = starts_S, rows, columns
        self.mask = self._new_mask(rows, columns)
        self._write_mask(0, active)

    def _new_mask(self, rows: int, columns: int) -> Tensor:
        return torch.zeros(rows, self.mask_heads, columns, dtype=self.dtype, device=self.device)

    def _write_mask(self, first: int, last: int) -> None:
        starts = torch.from_numpy(self.starts_S[first:last]).to(self.device)
        masked = torch.arange(self.columns, device=self.device) < starts[:, None]
        self.mask[first:last] = torch.zeros_like(masked, dtype=self.dtype).masked_fill_(masked, -torch.inf)[:, None]
