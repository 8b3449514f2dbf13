"""Requests in flight in the scripted engine: what was drawn for them, how far they are, how they are saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gumption.types import FINISHES, Finish, Problem, Request, StateTree


@dataclass(slots=True, eq=False)
class Job:
    """One request in flight; lists have one entry per member.

    Args:
        lengths: Completion tokens, drawn at submission.
        finishes: How each will end.
        luck: Uniform number; a success iff it is below the pass rate of the weights at the start.
        started: Step of the clock at which it got a slot; −1 while it waits.
        texts: The score, once it has started.
        next: First member that has no slot yet (members start in order).
    """

    request: Request
    lengths: list[int]
    finishes: list[Finish]
    luck: list[float]
    started: list[int]
    done: list[bool]
    texts: list[str]
    version_start: list[int]
    version_end: list[int]
    unfinished: int
    next: int = 0
    prefilled: bool = False

    @classmethod
    def new(cls, request: Request, lengths: list[int], finishes: list[Finish], luck: list[float]) -> Job:
        """A job whose members all wait."""
        n = request.n
        return cls(request, lengths, finishes, luck, [-1] * n, [False] * n, [""] * n, [0] * n, [0] * n, n)


_MEMBER_COLUMNS = {
    "lengths": np.int64,
    "luck": np.float64,
    "started": np.int64,
    "done": np.bool_,
    "version_start": np.int64,
    "version_end": np.int64,
}


def jobs_state(jobs: Mapping[int, Job]) -> StateTree:
    """Jobs as columns, the members of all of them concatenated."""
    rows = list(jobs.values())
    return {
        "sequence": np.array(list(jobs), np.int64),
        "problem_id": [j.request.problem.id for j in rows],
        "n": np.array([j.request.n for j in rows], np.int64),
        "visit": np.array([j.request.visit for j in rows], np.int64),
        "attempt": np.array([j.request.attempt for j in rows], np.int64),
        "prefilled": np.array([j.prefilled for j in rows], np.bool_),
        "finishes": np.array([FINISHES.index(f) for j in rows for f in j.finishes], np.int64),
        "texts": [t for j in rows for t in j.texts],
        **{name: np.array([x for j in rows for x in getattr(j, name)], d) for name, d in _MEMBER_COLUMNS.items()},
    }


def jobs_from_state(state: StateTree, problems: Mapping[str, Problem]) -> dict[int, Job]:
    """The inverse of `jobs_state`."""
    columns = {name: state[name].tolist() for name in (*_MEMBER_COLUMNS, "finishes", "n", "visit", "attempt")}
    sequences, prefilled = state["sequence"].tolist(), state["prefilled"].tolist()
    jobs, first = {}, 0
    for row, problem_id in enumerate(state["problem_id"]):
        n = columns["n"][row]
        part = slice(first, first + n)
        first += n
        done = columns["done"][part]
        jobs[sequences[row]] = Job(
            request=Request(problems[problem_id], n, columns["visit"][row], columns["attempt"][row]),
            finishes=[FINISHES[f] for f in columns["finishes"][part]],
            texts=state["texts"][part],
            unfinished=n - sum(done),
            next=sum(step >= 0 for step in columns["started"][part]),
            prefilled=prefilled[row],
            **{name: columns[name][part] for name in _MEMBER_COLUMNS},
        )
    return jobs
