"""KV caches of all rows in one place: preallocated slots whose sequences all end at the same column.

Row r's token at position p lies in column `starts_S[r] + p`, and every active row's next token goes to `column`: a
decode step writes one slice, and attention reads one rectangle. New prompts are placed so that they end there too. A
mask hides the columns that are not a row's own.

Columns only ever count up; the buffers hold them modulo `columns`, as a ring. Reading is bound by memory, so the ring
is kept as small as the longest rollout in flight. A model that needs its keys in order (`ordered`) never sees the ring
close: when the buffers are full, the live columns move to the left edge.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gumption.types import BoolArray, IntArray

GROWTH = 1.25
"""Buffers that are too small become this much larger than what must fit."""


class SlotCache:
    """Key and value buffers of shape (planes, rows, heads, columns, dim), and where each row starts.

    Args:
        device: Where the buffers live.
        dtype: Their type.
        mask_heads: The additive mask is stored repeated this often, (rows, mask_heads, columns), so that a batched
            matrix product over rows × heads can add it without a copy.
        ordered: Keep live columns in order and in one piece.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype, *, mask_heads: int = 1, ordered: bool = False) -> None:
        self.device, self.dtype, self.mask_heads, self.ordered = device, dtype, mask_heads, ordered
        self.rows = self.columns = 0
        self.column = 0
        self.starts_S: IntArray = np.zeros(0, np.int64)
        self.buffers: list[Tensor] = []
        self.mask = self._new_mask(0, 0)

    def add_buffer(self, planes: int, heads: int, dim: int) -> Tensor:
        """A further buffer (zeros: hidden columns must hold finite numbers)."""
        buffer = torch.zeros(planes, self.rows, heads, self.columns, dim, dtype=self.dtype, device=self.device)
        self.buffers.append(buffer)
        return buffer

    def left(self, active: int) -> int:
        """First column that any of the rows 0 … active − 1 uses."""
        return int(self.starts_S[:active].min()) if active else self.column

    def here(self) -> int:
        """Where in the buffers `column` lies."""
        return self.column % self.columns

    def live(self, active: int) -> slice:
        """The part of the buffers that holds the rows' tokens, `column` included."""
        left = self.left(active)
        if left // self.columns == self.column // self.columns:
            return slice(left % self.columns, self.here() + 1)
        return slice(0, self.columns)

    def prepare(self, active: int, new: int, longest: int, bound: int) -> None:
        """Make room for one more column, and for `new` more rows whose sequences end at `column`.

        Args:
            active: Rows in use, 0 … active − 1.
            new: Rows about to be placed behind them.
            longest: Tokens of the longest of their sequences (0 without new rows).
            bound: No row, active or new, will ever hold more tokens than this.
        """
        if active + new > self.rows:
            rows = max(active + new, self.rows + self.rows // 8 + 8)
            self._rebuild(active, rows, self.columns, self.column - self.left(active))
        if not active:
            self.column = 0
        before = self.column - self.left(active)  # columns that must stay readable
        need = max(before + 1, longest)
        if need > self.columns:
            columns = max(need, min(bound, int(need * GROWTH) + 8))
            self._rebuild(active, self.rows, columns, max(before, longest - 1))
        elif self.column < longest - 1:
            self._rebuild(active, self.rows, self.columns, longest - 1)
        elif self.here() == 0 and self.column and (self.ordered or 2 * need <= self.columns):
            if self.ordered and need * GROWTH > self.columns:  # do not move at every other step
                self._rebuild(active, self.rows, int(need * GROWTH * GROWTH) + 64, before)
            else:
                self._rebuild(active, self.rows, self.columns, max(before, longest - 1))

    def place(self, first: int, lengths_B: IntArray) -> None:
        """Rows first, first + 1, … now hold sequences of these lengths that end at `column`."""
        last = first + len(lengths_B)
        self.starts_S[first:last] = self.column + 1 - lengths_B
        self._write_mask(first, last, self.column)

    def open_column(self, active: int) -> None:
        """The active rows' next tokens go to `column`: let them see it."""
        if self.columns:
            self.mask[:active, :, self.here()] = 0

    def pieces(self, tokens: int) -> list[tuple[slice, slice]]:
        """Where the last `tokens` columns up to `column` lie: (part of the sequence, part of the buffers), in order."""
        first = (self.column + 1 - tokens) % self.columns
        until_edge = self.columns - first
        if tokens <= until_edge:
            return [(slice(0, tokens), slice(first, first + tokens))]
        return [(slice(0, until_edge), slice(first, None)), (slice(until_edge, tokens), slice(0, tokens - until_edge))]

    def move(self, to_B: IntArray, from_B: IntArray, active: int) -> None:
        """Copy rows (their live columns, starts and masks); `active` rows were in use before."""
        if not len(to_B):
            return
        live = self.live(active)
        for to, source in zip(to_B.tolist(), from_B.tolist(), strict=True):  # plain copies: faster than one indexed one
            for buffer in self.buffers:
                buffer[:, to, :, live].copy_(buffer[:, source, :, live])
            self.mask[to].copy_(self.mask[source])
        self.starts_S[to_B] = self.starts_S[from_B]

    def erase(self, rows_B: IntArray) -> None:
        """Zero rows that may hold NaN: a hidden NaN would still poison the next owner of the slot (0 · NaN)."""
        index = torch.from_numpy(rows_B).to(self.device)
        for buffer in self.buffers:
            buffer[:, index] = 0

    def _rebuild(self, active: int, rows: int, columns: int, column: int) -> None:
        """Buffers of another size, or the same, with the live columns in one piece that ends before `column`."""
        count = self.column - self.left(active)
        old_columns = torch.arange(self.column - count, self.column, device=self.device) % max(self.columns, 1)
        same = rows == self.rows and columns == self.columns
        for i, old in enumerate(self.buffers):
            planes, _, heads, _, dim = old.shape
            live = old[:, :active].index_select(3, old_columns) if active else None
            new = old if same else torch.zeros(planes, rows, heads, columns, dim, dtype=self.dtype, device=self.device)
            if live is not None:
                new[:, :active, :, column - count : column] = live
            self.buffers[i] = new
        starts_S = np.zeros(rows, np.int64)
        starts_S[:active] = self.starts_S[:active] + column - self.column
        self.starts_S, self.rows, self.columns, self.column = starts_S, rows, columns, column
        if not same:
            self.mask = self._new_mask(rows, columns)
        self._write_mask(0, active, column - 1)

    def _new_mask(self, rows: int, columns: int) -> Tensor:
        return torch.zeros(rows, self.mask_heads, columns, dtype=self.dtype, device=self.device)

    def _write_mask(self, first: int, last: int, newest: int) -> None:
        """Show each row its own columns, from its start to `newest`."""
        if first == last:
            return
        age_C = (newest - np.arange(self.columns)) % max(self.columns, 1)  # steps since each column was last written
        own: BoolArray = age_C <= newest - self.starts_S[first:last, None]
        hidden = torch.from_numpy(~own).to(self.device)
        self.mask[first:last] = torch.zeros_like(hidden, dtype=self.dtype).masked_fill_(hidden, -torch.inf)[:, None]
