"""Cuts a batch into micro-batches that waste little: prompts are computed once per group, rows are packed, not padded.

Rollouts of one group share their prompt. Where the model allows it they form a *tree*: the prompt once, then every
completion, each seeing the prompt and itself. Trees are packed into sequences of about equal length (first fit
decreasing). How many completions share a prompt and how long sequences are is chosen by cost: a shared prompt saves
matrix products, a longer sequence pays more attention. The last token of a completion predicts nothing and is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gumption.flops import ModelShape, forward_flops
from gumption.types import IntArray, TrainRow

ATTENTION_PRICE = 3.0
"""Assumed price of a dense attention FLOP in matrix-product FLOPs. It only steers the cut, never the FLOPs booked."""


@dataclass(frozen=True, eq=False)
class Tree:
    """One prompt and some of its completions, as indices into the rows of a batch."""

    prompt_T: IntArray
    rows: tuple[int, ...]
    lengths: tuple[int, ...]  # positions computed per completion: its tokens but the last

    @property
    def size(self) -> int:
        """Positions computed."""
        return len(self.prompt_T) + sum(self.lengths)


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """One forward pass: R sequences of T positions, and the N loss tokens that they predict.

    Args:
        ids_RT: Token ids, padded with 0.
        positions_RT: Position of each token within its own rollout; `None` where it is 0, 1, 2, … in every sequence.
        tree_RT: Which tree of the sequence a token is in (from 1; 0 is padding); `None` when a causal mask is enough.
        branch_RT: 0 for prompt tokens, else which completion of the tree.
        source_N: Flat position (r·T + t) whose output predicts each loss token.
        targets_N: The loss tokens.
        rows_N: Row of the batch that each belongs to.
        behaviour_N: Behaviour log-probs.
        half: Which half of the problems, when gradient noise is measured; else 0.
        tokens: Positions computed, without padding.
    """

    ids_RT: IntArray
    positions_RT: IntArray | None
    tree_RT: IntArray | None
    branch_RT: IntArray | None
    source_N: IntArray
    targets_N: IntArray
    rows_N: IntArray
    behaviour_N: np.ndarray[tuple[int], np.dtype[np.float32]]
    half: int
    tokens: int


def cut(
    rows_B: Sequence[TrainRow], chosen: Sequence[int], shape: ModelShape, *, budget: int, share: bool, halves: bool
) -> tuple[list[MicroBatch], list[Tree]]:
    """Micro-batches for some rows of a batch.

    Args:
        rows_B: All rows of the batch.
        chosen: Indices of the rows to compute.
        shape: Prices of matrix products and attention.
        budget: Positions (padding included) per micro-batch; a longer sequence still gets one of its own.
        share: The model can compute trees; else every rollout is its own causal sequence.
        halves: Do not mix the two halves of the problems in a micro-batch.

    Returns:
        Micro-batches, half 0 before half 1, and the trees in them (what FLOPs are counted from). Rows without a loss
        token are in neither.

    Raises:
        ValueError: a rollout has an empty prompt, so nothing predicts its first token.
    """
    micro: list[MicroBatch] = []
    all_trees: list[Tree] = []
    for half in (0, 1) if halves else (None,):
        members = [
            i for i in chosen if (half is None or rows_B[i].half == half) and rows_B[i].rollout.loss_mask_T.any()
        ]
        trees = _trees(rows_B, members, shape, budget if share else 0)
        all_trees += trees
        sequences = _pack(trees, shape, budget) if share else [[t] for t in sorted(trees, key=lambda t: -t.size)]
        for group in _within(sequences, budget):
            micro.append(_micro(rows_B, group, half or 0))
    return micro, all_trees


def forward_flops_B(trees: Sequence[Tree], shape: ModelShape, size: int) -> list[int]:
    """Forward FLOPs per row of a batch of `size`: the first row of a tree pays for the shared prompt."""
    flops_B = [0] * size
    for tree in trees:
        prompt = len(tree.prompt_T)
        for k, (row, length) in enumerate(zip(tree.rows, tree.lengths, strict=True)):
            flops_B[row] = forward_flops(shape, length, context_start=prompt)
            if k == 0:
                flops_B[row] += forward_flops(shape, prompt)
    return flops_B


def _price(shape: ModelShape, length: int) -> float:
    """Cost of one sequence of `length` positions with dense attention."""
    return length * (2.0 * shape.matmul_params + ATTENTION_PRICE * shape.attention_flops * length)


def _trees(rows_B: Sequence[TrainRow], members: Sequence[int], shape: ModelShape, budget: int) -> list[Tree]:
    """Rows by prompt; a tree stays within `budget` positions (0: every row is its own tree)."""
    by_prompt: dict[bytes, list[int]] = {}
    for i in members:
        prompt = np.ascontiguousarray(rows_B[i].rollout.prompt_ids_T, np.int32)
        by_prompt.setdefault(prompt.tobytes(), []).append(i)
    trees: list[Tree] = []
    for indices in by_prompt.values():
        prompt_T = rows_B[indices[0]].rollout.prompt_ids_T
        if len(prompt_T) == 0:
            raise ValueError(f"problem {rows_B[indices[0]].rollout.request.problem.id}: the prompt has no token")
        lengths = [len(rows_B[i].rollout.completion_ids_T) - 1 for i in indices]
        each = _completions_per_tree(shape, len(prompt_T), lengths, budget) if budget else 1
        for lo in range(0, len(indices), each):
            trees.append(Tree(prompt_T, tuple(indices[lo : lo + each]), tuple(lengths[lo : lo + each])))
    return trees


def _completions_per_tree(shape: ModelShape, prompt: int, lengths: Sequence[int], budget: int) -> int:
    """The cheapest of k, k/2, k/4, … 1 completions per prompt, within the budget."""
    each, best, lowest = len(lengths), 1, float("inf")
    while True:
        sizes = [prompt + sum(lengths[lo : lo + each]) for lo in range(0, len(lengths), each)]
        price = sum(_price(shape, size) for size in sizes)
        if price < lowest and max(sizes) <= budget:
            best, lowest = each, price
        if each == 1:
            return best
        each = -(-each // 2)


def _pack(trees: Sequence[Tree], shape: ModelShape, budget: int) -> list[list[Tree]]:
    """Trees into sequences (first fit decreasing) of the capacity whose padded cost is lowest."""
    if not trees:
        return []
    ordered = sorted(trees, key=lambda t: -t.size)
    longest = ordered[0].size
    best: list[list[Tree]] = []
    lowest = float("inf")
    for factor in (1.0, 1.25, 1.5, 2.0, 3.0, 4.0):
        capacity = int(longest * factor)
        if capacity > max(budget, longest):
            break
        bins = _first_fit(ordered, capacity)
        length = max(sum(t.size for t in b) for b in bins)
        price = len(bins) * _price(shape, length)
        if price < lowest:
            best, lowest = bins, price
        if len(bins) == 1:
            break
    return best


def _first_fit(ordered: Sequence[Tree], capacity: int) -> list[list[Tree]]:
    bins: list[list[Tree]] = []
    room: list[int] = []
    for tree in ordered:
        for b, left in enumerate(room):
            if tree.size <= left:
                bins[b].append(tree)
                room[b] -= tree.size
                break
        else:
            bins.append([tree])
            room.append(capacity - tree.size)
    return bins


def _within(sequences: list[list[Tree]], budget: int) -> list[list[list[Tree]]]:
    """Consecutive sequences (longest first) as long as rows × longest stays within the budget."""
    result: list[list[list[Tree]]] = []
    longest = 0
    for sequence in sorted(sequences, key=lambda s: -sum(t.size for t in s)):
        length = sum(t.size for t in sequence)
        if result and (len(result[-1]) + 1) * longest <= budget:
            result[-1].append(sequence)
        else:
            result.append([sequence])
            longest = length
    return result


def _micro(rows_B: Sequence[TrainRow], sequences: list[list[Tree]], half: int) -> MicroBatch:
    length = max(sum(t.size for t in s) for s in sequences)
    shape = (len(sequences), length)
    ids_RT, positions_RT = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    tree_RT, branch_RT = np.zeros(shape, np.int16), np.zeros(shape, np.int16)
    source, targets, rows, behaviour = [], [], [], []
    for r, sequence in enumerate(sequences):
        at = 0
        for t, tree in enumerate(sequence):
            prompt = len(tree.prompt_T)
            tree_RT[r, at : at + tree.size] = t + 1
            ids_RT[r, at : at + prompt] = tree.prompt_T
            positions_RT[r, at : at + prompt] = np.arange(prompt)
            last = at + prompt - 1
            at += prompt
            for k, (row, n) in enumerate(zip(tree.rows, tree.lengths, strict=True)):
                rollout = rows_B[row].rollout
                ids_RT[r, at : at + n] = rollout.completion_ids_T[:-1]
                positions_RT[r, at : at + n] = np.arange(prompt, prompt + n)
                branch_RT[r, at : at + n] = k + 1
                keep = rollout.loss_mask_T
                before = np.arange(at - 1, at + n)
                before[0] = last
                source.append(r * length + before[keep])
                targets.append(rollout.completion_ids_T[keep])
                behaviour.append(rollout.logprobs_T[keep])
                rows.append(np.full(int(keep.sum()), row))
                at += n
    chains = all(len(s) == 1 and len(s[0].rows) == 1 for s in sequences)
    return MicroBatch(
        ids_RT=ids_RT,
        positions_RT=None if chains else positions_RT,
        tree_RT=None if chains else tree_RT,
        branch_RT=None if chains else branch_RT,
        source_N=np.concatenate(source),
        targets_N=np.concatenate(targets).astype(np.int64),
        rows_N=np.concatenate(rows),
        behaviour_N=np.concatenate(behaviour).astype(np.float32),
        half=half,
        tokens=sum(t.size for s in sequences for t in s),
    )
