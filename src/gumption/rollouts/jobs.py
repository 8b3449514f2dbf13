"""The engine's books: what was asked for (`Job`), and the rows being generated right now (`Rows`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gumption.types import Attempt, Finish, IntArray, Problem, Request, StateTree


class Job:
    """One request and what its members have so far; becomes an `Attempt`.

    Args:
        request: The request.
        order: Submission number.
        prompt_ids_T: Its prompt.
        keys_G: Random keys of the members.
    """

    __slots__ = (
        "finish_G", "flops_decode_G", "flops_prefill_G", "keys_G", "logprobs_G", "open", "order", "prefilled",
        "prompt_ids_T", "request", "texts_G", "tokens_G", "version_end_G", "version_start_G",
    )  # fmt: skip

    def __init__(self, request: Request, order: int, prompt_ids_T: IntArray, keys_G: IntArray) -> None:
        n = request.n
        self.request, self.order, self.prompt_ids_T, self.keys_G = request, order, prompt_ids_T, keys_G
        self.open, self.prefilled = n, False
        self.finish_G: list[Finish | None] = [None] * n
        self.tokens_G = [np.zeros(0, np.int32)] * n
        self.logprobs_G = [np.zeros(0, np.float32)] * n
        self.texts_G = [""] * n
        self.version_start_G = np.zeros(n, np.int32)
        self.version_end_G = np.zeros(n, np.int32)
        self.flops_prefill_G = np.zeros(n, np.int64)
        self.flops_decode_G = np.zeros(n, np.int64)

    def end(self, member: int, finish: Finish) -> None:
        """Close one member."""
        assert self.finish_G[member] is None, "a member ends once"
        self.finish_G[member] = finish
        self.open -= 1

    def end_open(self, finish: Finish, version: int) -> None:
        """Close every member that is still open; those without a token get `version` as their span."""
        for member, done in enumerate(self.finish_G):
            if done is None:
                if not len(self.tokens_G[member]):
                    self.version_start_G[member] = self.version_end_G[member] = version
                self.end(member, finish)

    def attempt(self) -> Attempt:
        """The finished attempt."""
        assert self.open == 0, "members are still being generated"
        offsets_G1 = np.zeros(self.request.n + 1, np.int64)
        np.cumsum([len(t) for t in self.tokens_G], out=offsets_G1[1:])
        return Attempt(
            request=self.request,
            prompt_ids_T=self.prompt_ids_T,
            completion_ids_T=np.concatenate(self.tokens_G),
            logprobs_T=np.concatenate(self.logprobs_G),
            offsets_G1=offsets_G1,
            version_start_G=self.version_start_G,
            version_end_G=self.version_end_G,
            finish_G=tuple(f for f in self.finish_G if f is not None),
            texts_G=tuple(self.texts_G),
            flops_prefill_G=self.flops_prefill_G,
            flops_decode_G=self.flops_decode_G,
        )

    def state(self) -> StateTree:
        """Everything but the random keys, which follow from the request."""
        request = self.request
        return {
            "problem_id": request.problem.id,
            "n": request.n,
            "visit": request.visit,
            "attempt": request.attempt,
            "order": self.order,
            "prefilled": self.prefilled,
            "prompt_ids": self.prompt_ids_T,
            "finish": list(self.finish_G),
            "texts": list(self.texts_G),
            "lengths": np.array([len(t) for t in self.tokens_G], np.int64),
            "tokens": np.concatenate(self.tokens_G),
            "logprobs": np.concatenate(self.logprobs_G),
            "version_start": self.version_start_G.copy(),
            "version_end": self.version_end_G.copy(),
            "flops_prefill": self.flops_prefill_G.copy(),
            "flops_decode": self.flops_decode_G.copy(),
        }

    @classmethod
    def from_state(cls, state: StateTree, problem: Problem, keys_G: IntArray) -> Job:
        """The inverse of `state`."""
        request = Request(problem, int(state["n"]), int(state["visit"]), int(state["attempt"]))
        job = cls(request, int(state["order"]), np.asarray(state["prompt_ids"], np.int32), keys_G)
        ends = np.cumsum(state["lengths"])[:-1]
        job.tokens_G = [t.astype(np.int32) for t in np.split(np.asarray(state["tokens"]), ends)]
        job.logprobs_G = [t.astype(np.float32) for t in np.split(np.asarray(state["logprobs"]), ends)]
        job.finish_G, job.texts_G = list(state["finish"]), list(state["texts"])
        job.open, job.prefilled = job.finish_G.count(None), bool(state["prefilled"])
        job.version_start_G = np.array(state["version_start"], np.int32)
        job.version_end_G = np.array(state["version_end"], np.int32)
        job.flops_prefill_G = np.array(state["flops_prefill"], np.int64)
        job.flops_decode_G = np.array(state["flops_decode"], np.int64)
        return job


class Unit(NamedTuple):
    """Members of a job that enter the cache together: their common tokens are prefilled once."""

    job: Job
    members: tuple[int, ...]
    tokens_T: IntArray  # the prompt, or prompt and partial completion of one resumed member

    @classmethod
    def of_job(cls, job: Job) -> list[Unit]:
        """Open members without tokens share the prompt; each of the others brings its own partial completion."""
        waiting = [m for m, finish in enumerate(job.finish_G) if finish is None]
        empty = tuple(m for m in waiting if not len(job.tokens_G[m]))
        units = [cls(job, empty, job.prompt_ids_T)] if empty else []
        for m in waiting:
            if len(job.tokens_G[m]):
                units.append(cls(job, (m,), np.concatenate([job.prompt_ids_T, job.tokens_G[m]])))
        return units


class Rows:
    """Struct of arrays over the slots; rows 0 … `active` − 1 are being generated."""

    def __init__(self, max_tokens: int) -> None:
        self.active = 0
        self.jobs: list[Job | None] = []
        self.member_S = np.zeros(0, np.int64)
        self.key_S = np.zeros(0, np.uint64)
        self.count_S = np.zeros(0, np.int64)  # completion tokens so far
        self.limit_S = np.zeros(0, np.int64)  # completion tokens at most
        self.bound_S = np.zeros(0, np.int64)  # tokens at most, prompt included
        self.last_S = np.zeros(0, np.int64)  # last token, not yet in the cache
        self.start_S = np.zeros(0, np.int32)  # version at the first token
        self.end_S = np.zeros(0, np.int32)  # version at the last one
        self.flops_S = np.zeros(0, np.int64)
        self.tokens_ST = np.zeros((0, max_tokens), np.int32)
        self.logprobs_ST = np.zeros((0, max_tokens), np.float32)

    def _arrays(self) -> Mapping[str, npt.NDArray[Any]]:
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    def add(self, unit: Unit, max_tokens: int) -> None:
        """Append the members of a unit."""
        first, last = self.active, self.active + len(unit.members)
        if last > len(self.jobs):
            size = max(last, len(self.jobs) * 3 // 2)
            for name, old in self._arrays().items():
                new = np.zeros((size, *old.shape[1:]), old.dtype)
                new[: self.active] = old[: self.active]
                setattr(self, name, new)
            self.jobs += [None] * (size - len(self.jobs))
        job = unit.job
        self.jobs[first:last] = [job] * (last - first)
        self.member_S[first:last] = unit.members
        self.key_S[first:last] = job.keys_G[list(unit.members)]
        self.limit_S[first:last] = max_tokens
        self.bound_S[first:last] = len(job.prompt_ids_T) + max_tokens
        self.count_S[first:last] = 0
        for row, m in enumerate(unit.members, first):
            count = len(job.tokens_G[m])
            if count:
                self.tokens_ST[row, :count], self.logprobs_ST[row, :count] = job.tokens_G[m], job.logprobs_G[m]
                self.last_S[row], self.count_S[row] = job.tokens_G[m][-1], count
            self.start_S[row], self.end_S[row] = job.version_start_G[m], job.version_end_G[m]
            self.flops_S[row] = job.flops_decode_G[m]
        self.active = last

    def write_back(self, row: int) -> tuple[Job, int]:
        """Copy what a row has into its job. Returns the job and the member."""
        job, member, count = self.jobs[row], int(self.member_S[row]), int(self.count_S[row])
        assert job is not None
        job.tokens_G[member] = self.tokens_ST[row, :count].copy()
        job.logprobs_G[member] = self.logprobs_ST[row, :count].copy()
        job.version_start_G[member], job.version_end_G[member] = self.start_S[row], self.end_S[row]
        job.flops_decode_G[member] = self.flops_S[row]
        return job, member

    def remove(self, rows_B: IntArray) -> tuple[IntArray, IntArray]:
        """Free rows and close the gaps with the last ones. Returns the moves (to, from) that the cache must repeat."""
        keep = self.active - len(rows_B)
        to_B = np.sort(rows_B[rows_B < keep])
        stays = np.ones(self.active, np.bool_)
        stays[rows_B] = False
        from_B = np.flatnonzero(stays[keep:]) + keep
        for array in self._arrays().values():
            array[to_B] = array[from_B]
        for to, source in zip(to_B.tolist(), from_B.tolist(), strict=True):
            self.jobs[to] = self.jobs[source]
        self.jobs[keep : self.active] = [None] * len(rows_B)
        self.active = keep
        return to_B, from_B
