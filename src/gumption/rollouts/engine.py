"""`TorchEngine`: continuous batching over in-flight rollouts, in this process, for any Hugging Face causal LM.

One step feeds the last token of every active row, lets the prompts of newly admitted requests ride along (each prompt
once, its keys and values copied to the n members), samples, and removes the rows that ended. Their places are taken in
the next step. Weights change between steps; rollouts in flight go on with the keys and values that they have and record
the span of versions. Random numbers are hashes of (seed, stage, problem, visit, attempt, member; token index): the same
rollout comes out whatever else is in flight, up to the rounding of floating-point sums.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gumption import randomness
from gumption.config import RolloutsConfig
from gumption.flops import ModelShape, decode_flops_B, forward_flops
from gumption.rollouts.decoder import Prefill, make_decoder
from gumption.rollouts.jobs import Job, Rows, Unit
from gumption.rollouts.lag import WeightLag
from gumption.rollouts.prompts import PromptError, encode_prompt
from gumption.rollouts.sampling import sample
from gumption.rollouts.stopping import StopStrings, decode_texts, eos_ids
from gumption.types import Attempt, BoolArray, ChainId, Finish, IntArray, Problem, Request, StateTree

log = logging.getLogger(__name__)

PREFILL_TOKENS = 8192
"""Padded prompt tokens that ride along in one step at most (one sequence always may)."""

PROMPTS_KEPT = 4096
"""Encoded prompts that are remembered: a problem is asked for again and again."""


class EngineError(RuntimeError):
    """A generation step failed; nothing of it was recorded."""


class TorchEngine:
    """Embedded generation engine (the `Engine` protocol of `gumption.types`).

    A request is never split: it is admitted as soon as one slot is free, so up to n − 1 rows more than `in_flight` may
    be active (`free_slots` is then negative). Finished members free their slots at once.

    Args:
        model: Hugging Face causal LM. The engine copies its weights and leaves it alone.
        tokenizer: Its tokenizer.
        config: Sampling and batching.
        seed: Run seed.
        stage: Names the random numbers ("rollouts"; evaluation uses another).
        shape: What the model costs.
        system_prompt: Put before chat prompts.
        in_flight: Slots, instead of `config.in_flight`.
        allow: Asked before each step with its FLOPs and the tokens it will generate; on `False` nothing is done and
            `exhausted` is set.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        config: RolloutsConfig,
        seed: int,
        stage: str = "rollouts",
        shape: ModelShape,
        system_prompt: str | None = None,
        in_flight: int | None = None,
        allow: Callable[[int, int], bool] | None = None,
    ) -> None:
        self.tokenizer, self.config, self.seed, self.stage, self.shape = tokenizer, config, seed, stage, shape
        self.system_prompt, self.slots, self.allow = system_prompt, in_flight or config.in_flight, allow
        self.decoder = make_decoder(model)
        self.max_positions = getattr(model.config, "max_position_embeddings", None)
        self.is_eos_V = np.zeros(self.decoder.vocab, np.bool_)
        self.is_eos_V[[i for i in eos_ids(model, tokenizer) if i < self.decoder.vocab]] = True
        self.stop = StopStrings(tokenizer, config.stop, self.decoder.vocab)
        self.rows = Rows(config.max_tokens)
        self.jobs: dict[int, Job] = {}  # submitted and not yet returned, by submission number
        self.waiting: deque[Unit] = deque()
        self.done: list[Job] = []
        self.submitted = self.flops_prefill = self.flops_decode = self.tokens_generated = self.tokens_prompt = 0
        self.exhausted = False
        self.version = 0
        self.steps = self.row_steps = 0
        self.seconds = 0.0
        self.problems_met: Counter[str] = Counter()  # reasons of rollouts with finish "error"
        self._queued = self._in_flight = 0
        self._prompts: dict[str, IntArray | PromptError] = {}
        self._costs_T: IntArray = np.zeros(0, np.int64)
        self._lag = WeightLag(config.weight_lag, model.state_dict())

    # ------------------------------------------------------------------------------------------------ Engine protocol

    @property
    def free_slots(self) -> int:
        """Rows that are neither active nor spoken for."""
        return self.slots - self.rows.active - self._queued

    @property
    def in_flight(self) -> int:
        """Rollouts submitted and not yet returned."""
        return self._in_flight

    def submit(self, request: Request) -> None:
        """Queue a request. One whose prompt cannot be used comes back from the next `poll` with finish `error`."""
        keys_G = np.array([self._key(request, m) for m in range(request.n)], np.uint64)
        prompt = self._prompt(request.problem)
        failed = isinstance(prompt, PromptError)
        job = Job(request, self.submitted, np.zeros(0, np.int32) if isinstance(prompt, PromptError) else prompt, keys_G)
        self.submitted += 1
        self._register(job)
        if failed:
            self.problems_met[str(prompt)] += request.n
            log.warning("problem %s: %s", request.problem.id, prompt)
            job.end_open("error", self.version)
            self.done.append(job)
        else:
            self._enqueue(Unit.of_job(job))

    def poll(self) -> list[Attempt]:
        """Up to `decode_steps` steps (fewer when slots fall free that nothing waits for), then what has finished.

        Raises:
            EngineError: the model's forward pass failed.
        """
        start = time.perf_counter()
        with torch.inference_mode():
            for _ in range(self.config.decode_steps):
                if not self._step() or self.free_slots > 0:
                    break
        attempts = self._collect()
        self.seconds += time.perf_counter() - start
        return attempts

    def update_weights(self, version: int, state: Mapping[str, Tensor]) -> None:
        """Take new weights, `weight_lag` updates late. Rollouts in flight continue with them.

        Raises:
            ValueError: a weight is missing.
        """
        due = self._lag.push(version, state)
        if due is not None:
            self.version = due[0]
            self.decoder.load(due[1])

    def cancel(self, chain_id: ChainId) -> list[Attempt]:
        """Stop a chain's rollouts; their attempts are returned here, not by `poll`."""
        return self._stop([j for j in self.jobs.values() if j.request.chain_id == chain_id])

    def abandon(self) -> list[Attempt]:
        """End of run: everything submitted and not returned, unfinished members as `cancelled`. The engine is empty."""
        return self._stop(list(self.jobs.values()))

    def state_dict(self) -> StateTree:
        """Partial rollouts, queued requests, counters and (with `weight_lag`) the weights that are held back."""
        for row in range(self.rows.active):
            self.rows.write_back(row)
        return {
            "version": self.version,
            "submitted": self.submitted,
            "flops_prefill": self.flops_prefill,
            "flops_decode": self.flops_decode,
            "tokens_generated": self.tokens_generated,
            "tokens_prompt": self.tokens_prompt,
            "jobs": [job.state() for job in self.jobs.values()],
            "lag": self._lag.state_dict(),
        }

    def load_state_dict(self, state: StateTree, problem: Mapping[str, Problem]) -> None:
        """Take up saved rollouts. Their caches are rebuilt in the next steps, by a prefill that is booked as such.

        Raises:
            ValueError: a problem of the saved rollouts is unknown.
        """
        self.rows.active, self.done, self._queued, self._in_flight = 0, [], 0, 0
        self.jobs.clear()
        self.waiting.clear()
        self.version = int(state["version"])
        for name in ("submitted", "flops_prefill", "flops_decode", "tokens_generated", "tokens_prompt"):
            setattr(self, name, int(state[name]))
        for saved in state["jobs"]:
            if saved["problem_id"] not in problem:
                raise ValueError(f"saved rollouts of problem {saved['problem_id']!r}, which is not in the problem set")
            request = Request(problem[saved["problem_id"]], int(saved["n"]), int(saved["visit"]), int(saved["attempt"]))
            keys_G = np.array([self._key(request, m) for m in range(request.n)], np.uint64)
            job = Job.from_state(saved, request.problem, keys_G)
            self._register(job)
            if job.open:
                self._enqueue(Unit.of_job(job))
            else:
                self.done.append(job)
        weights = self._lag.load_state_dict(state["lag"])
        if weights is not None:
            self.decoder.load(weights)

    def metrics(self) -> dict[str, float]:
        """Tokens generated, steps, mean rows per step, seconds spent in `poll`, rollouts that ended in error."""
        return {
            "tokens": float(self.tokens_generated),
            "steps": float(self.steps),
            "rows": self.row_steps / self.steps if self.steps else 0.0,
            "seconds": self.seconds,
            "errors": float(sum(self.problems_met.values())),
        }

    def close(self) -> None:
        """Free the cache and the weights; the engine cannot be used afterwards."""
        self.abandon()
        del self.decoder

    def limit(self, request: Request, prompt_tokens: int) -> int:
        """Completion tokens of a request at most; a subclass may give each its own (up to `max_tokens`)."""
        return self._room(prompt_tokens)

    # --------------------------------------------------------------------------------------------------------- a step

    def _step(self) -> bool:
        """Admit, feed, sample, remove. `False`: nothing to do, or not allowed."""
        rows, cache = self.rows, self.decoder.cache
        units, active = self._admissible(), self.rows.active
        if not units and not active:
            return False
        prefill_costs = [forward_flops(self.shape, len(u.tokens_T)) for u in units]
        costs_B = self._decode_costs(cache.column - cache.starts_S[:active])
        new = sum(len(u.members) for u in units)
        if self.allow is not None and not self.allow(sum(prefill_costs) + int(costs_B.sum()), active + new):
            self.exhausted = True
            return False
        self.exhausted = False
        logits_BV = self._forward(units, new)
        for unit, cost in zip(units, prefill_costs, strict=True):
            self._admit(unit, cost)
        rows.flops_S[:active] += costs_B
        self.flops_decode += int(costs_B.sum())
        cache.column += 1
        self.steps += 1
        self.row_steps += rows.active
        self._record(logits_BV)
        return True

    def _admissible(self) -> list[Unit]:
        """What enters in this step: first come first served while a slot is free."""
        units: list[Unit] = []
        rows, longest = self.rows.active, 0
        for unit in self.waiting:
            longest = max(longest, len(unit.tokens_T))
            if rows >= self.slots or (units and (len(units) + 1) * longest > PREFILL_TOKENS):
                break
            units.append(unit)
            rows += len(unit.members)
        return units

    def _forward(self, units: list[Unit], new: int) -> Tensor:
        """Logits of the active rows, then of each new one."""
        active, cache = self.rows.active, self.decoder.cache
        prefill, order = None, None
        if units:
            copies_M = np.array([len(u.members) for u in units], np.int64)
            prefill = Prefill(tuple(u.tokens_T.astype(np.int64) for u in units), copies_M)
            order = np.concatenate([np.arange(active), active + np.repeat(np.arange(len(units)), copies_M)])
        try:
            cache.prepare(active, new, int(prefill.lengths_M.max()) if prefill else 0, self._bound(units))
            if prefill is not None:
                cache.place(active, np.repeat(prefill.lengths_M, prefill.copies_M))
            cache.open_column(active)
            logits_BV = self.decoder.forward(self.rows.last_S[:active], prefill)
            return logits_BV if order is None else logits_BV[torch.from_numpy(order).to(logits_BV.device)]
        except RuntimeError as error:
            where = f"{active + new} rows × {cache.columns} columns on {cache.device}"
            raise EngineError(
                f"generation step failed with {where}: {error}. If memory ran out, lower rollouts.in_flight or "
                "rollouts.max_tokens"
            ) from error

    def _bound(self, units: list[Unit]) -> int:
        """Tokens that the longest row can come to hold."""
        new = [len(u.job.prompt_ids_T) + self.limit(u.job.request, len(u.job.prompt_ids_T)) for u in units]
        active = self.rows.active
        return max([*new, int(self.rows.bound_S[:active].max()) if active else 0])

    def _admit(self, unit: Unit, cost: int) -> None:
        assert self.waiting[0] is unit, "units are admitted in order"
        self.waiting.popleft()
        self._queued -= len(unit.members)
        job = unit.job
        job.flops_prefill_G[unit.members[0] if job.prefilled else 0] += cost
        if not job.prefilled:
            self.tokens_prompt += len(job.prompt_ids_T)
            job.prefilled = True
        self.flops_prefill += cost
        self.rows.add(unit, self.limit(job.request, len(job.prompt_ids_T)))

    def _record(self, logits_BV: Tensor) -> None:
        """Sample one token per row, write it down, and remove the rows that ended."""
        rows, config, active = self.rows, self.config, self.rows.active
        count_B = rows.count_S[:active]
        uniforms_B = torch.from_numpy(randomness.uniforms(rows.key_S[:active], count_B)).to(logits_BV.device)
        token, logprob = sample(logits_BV, uniforms_B, config.temperature, config.top_p, config.top_k)
        token_B, logprob_B = token.cpu().numpy(), logprob.float().cpu().numpy()
        row_B = np.arange(active)
        rows.start_S[:active][count_B == 0] = self.version
        good_B = np.isfinite(logprob_B)
        if not good_B.all():
            rows.end_S[:active][count_B == 0] = self.version
            row_B, token_B, logprob_B = row_B[good_B], token_B[good_B], logprob_B[good_B]
        rows.tokens_ST[row_B, count_B[row_B]] = token_B
        rows.logprobs_ST[row_B, count_B[row_B]] = logprob_B
        rows.last_S[row_B] = token_B
        rows.end_S[row_B] = self.version
        count_B[row_B] += 1
        self.tokens_generated += len(row_B)
        stopped_B = self.is_eos_V[token_B]
        if self.stop.stop:
            stopped_B = stopped_B | self.stop.hits(rows.tokens_ST[row_B], count_B[row_B], token_B)
        ended_B = stopped_B | (count_B[row_B] >= rows.limit_S[row_B])
        if not ended_B.any() and good_B.all():
            return
        finishes: dict[int, Finish] = dict.fromkeys(np.flatnonzero(~good_B).tolist(), "error")
        for row, stopped in zip(row_B[ended_B].tolist(), stopped_B[ended_B].tolist(), strict=True):
            finishes[row] = "stop" if stopped else "length"
        self._end_rows(finishes, ~good_B)

    def _end_rows(self, finishes: Mapping[int, Finish], poisoned_B: BoolArray) -> None:
        if poisoned_B.any():
            self.decoder.cache.erase(np.flatnonzero(poisoned_B))
            self.problems_met["logits are not finite"] += int(poisoned_B.sum())
        for row, finish in sorted(finishes.items()):
            job, member = self.rows.write_back(row)
            job.end(member, finish)
            if not job.open:
                self.done.append(job)
        self._free(np.array(sorted(finishes), np.int64))

    def _free(self, rows_B: IntArray) -> None:
        active = self.rows.active
        self.decoder.cache.move(*self.rows.remove(rows_B), active)

    # ----------------------------------------------------------------------------------------------------- the books

    def _register(self, job: Job) -> None:
        self.jobs[job.order] = job
        self._in_flight += job.request.n

    def _enqueue(self, units: list[Unit]) -> None:
        self.waiting.extend(units)
        self._queued += sum(len(u.members) for u in units)

    def _collect(self) -> list[Attempt]:
        done, self.done = self.done, []
        attempts = []
        for job in done:
            del self.jobs[job.order]
            self._in_flight -= job.request.n
            texts = decode_texts(self.tokenizer, job.tokens_G)
            stop = self.config.stop
            job.texts_G = [
                self.stop.cut(t) if stop and f == "stop" else t for t, f in zip(texts, job.finish_G, strict=True)
            ]
            attempts.append(job.attempt())
        return attempts

    def _stop(self, jobs: list[Job]) -> list[Attempt]:
        """Close jobs where they stand and return them in order of submission."""
        stopped = {j.order for j in jobs}
        rows = [r for r in range(self.rows.active) if (job := self.rows.jobs[r]) is not None and job.order in stopped]
        for row in rows:
            self.rows.write_back(row)
        with torch.inference_mode():
            self._free(np.array(rows, np.int64))
        self.waiting = deque(u for u in self.waiting if u.job.order not in stopped)
        self._queued = sum(len(u.members) for u in self.waiting)
        for job in jobs:
            job.end_open("cancelled", self.version)
        others = [j for j in self.done if j.order not in stopped]
        self.done = sorted(jobs, key=lambda job: job.order)
        attempts = self._collect()
        self.done = others
        return attempts

    def _key(self, request: Request, member: int) -> int:
        return randomness.key(self.seed, self.stage, request.problem.id, request.visit, request.attempt, member)

    def _prompt(self, problem: Problem) -> IntArray | PromptError:
        """Encoded prompt, or why there is none."""
        found = self._prompts.get(problem.id)
        if found is None:
            try:
                limit = self.config.max_prompt_tokens
                found = encode_prompt(self.tokenizer, problem, system_prompt=self.system_prompt, max_tokens=limit)
                if self._room(len(found)) < 1:
                    found = PromptError(f"{len(found)} prompt tokens fill the model's {self.max_positions} positions")
            except PromptError as error:
                found = error
            if len(self._prompts) >= PROMPTS_KEPT:
                self._prompts.clear()
            self._prompts[problem.id] = found
        return found

    def _room(self, prompt_tokens: int) -> int:
        """Completion tokens that fit."""
        most = self.config.max_tokens
        return most if self.max_positions is None else min(most, int(self.max_positions) - prompt_tokens)

    def _decode_costs(self, positions_B: IntArray) -> IntArray:
        if positions_B.size and positions_B.max() >= len(self._costs_T):
            self._costs_T = decode_flops_B(self.shape, np.arange(2 * int(positions_B.max()) + 64))
        costs_B: IntArray = self._costs_T[positions_B]
        return costs_B
