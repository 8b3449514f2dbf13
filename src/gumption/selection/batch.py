"""From selections to what the trainer receives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gumption.types import Credit, Group, Member, Selection, TrainBatch, TrainRow


def make_batch(
    groups: Sequence[Group], credits: Sequence[Credit], selections: Sequence[Selection], version: int, *, count: str
) -> TrainBatch:
    """Kept rollouts of all groups, with the counts that the loss is divided by.

    `count = "generated"` counts the full groups, so that dropping only rescales w(p); `"kept"` counts what is kept.
    A selection's own advantages go before the credit's. Groups alternate between the two halves that gradient noise is
    measured from.
    """
    rows: list[TrainRow] = []
    sequences = tokens = 0
    for g, (group, credit, selection) in enumerate(zip(groups, credits, selections, strict=True)):
        members = tuple(group.members)
        kept = [members[i].rollout for i in selection.indices_J.tolist()]
        advantages_J = selection.advantages_J
        if advantages_J is None:
            advantages_J = credit.advantages_G[selection.indices_J]
        rows += [
            TrainRow(rollout, float(a), float(w), g % 2)
            for rollout, a, w in zip(kept, advantages_J, selection.weights_J, strict=True)
        ]
        sequences += len(members) if count == "generated" else len(kept)
        tokens += sum(map(_loss_tokens, members)) if count == "generated" else sum(r.trained_tokens for r in kept)
    return TrainBatch(tuple(rows), version, sequences, tokens)


def _loss_tokens(member: Member) -> int:
    """Tokens of one member that carry loss (making the rollout's view would cost more)."""
    attempt, i = member
    first, end = int(attempt.offsets_G1[i]), int(attempt.offsets_G1[i + 1])
    return end - first if attempt.loss_mask_T is None else int(np.count_nonzero(attempt.loss_mask_T[first:end]))
