"""Groups waiting for a batch, as a state tree (for checkpoints)."""

from __future__ import annotations

from collections.abc import Callable

from gumption.pipeline import Place
from gumption.types import (
    Attempt,
    ChainId,
    Group,
    Member,
    Problem,
    StateTree,
    Verdict,
    attempt_from_state,
    attempt_state,
)


def group_state(group: Group) -> StateTree:
    """A group with the attempts that its members point into (each saved once)."""
    attempts: list[Attempt] = []
    for member in group.members:
        if not any(member.attempt is a for a in attempts):
            attempts.append(member.attempt)
    index = {id(a): i for i, a in enumerate(attempts)}
    return {
        "problem_id": group.chain_id.problem_id,
        "visit": group.chain_id.visit,
        "attempts": [attempt_state(a) for a in attempts],
        "members": [[index[id(m.attempt)], m.position] for m in group.members],
        "count": group.count,
        "reward_sum": group.reward_sum,
        "successes": group.successes,
        "told": group.attempts,
        "attempt_values": list(group.attempt_values),
    }


def group_from_state(state: StateTree, lookup: Callable[[str], Problem]) -> Group:
    """The inverse of `group_state`."""
    problem = lookup(state["problem_id"])
    attempts = [attempt_from_state(a, problem) for a in state["attempts"]]
    n, total = state["attempt_values"]
    return Group(
        chain_id=ChainId(state["problem_id"], state["visit"]),
        problem=problem,
        members=tuple(Member(attempts[a], position) for a, position in state["members"]),
        count=state["count"],
        reward_sum=state["reward_sum"],
        successes=state["successes"],
        attempts=state["told"],
        attempt_values=(n, total),
    )


def places_state(places: list[Place]) -> list[StateTree]:
    """The places of the next batch."""
    return [
        {
            "group": group_state(p.verdict.group),
            "train": p.group is not None,
            "kind": p.verdict.kind,
            "reason": p.verdict.reason,
        }
        for p in places
    ]


def places_from_state(states: list[StateTree], lookup: Callable[[str], Problem]) -> list[Place]:
    """The inverse of `places_state`."""
    places = []
    for state in states:
        group = group_from_state(state["group"], lookup)
        verdict = Verdict(state["kind"], state["reason"], group, state["train"], True)
        places.append(Place(group if state["train"] else None, verdict))
    return places
