"""The scripted engine: given pass rates, drawn lengths, a virtual clock, exact FLOPs."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Mapping
from itertools import accumulate

import numpy as np

from gumption import randomness
from gumption.config import RunConfig
from gumption.flops import decode_flops_B, forward_flops
from gumption.rollouts.scripted.jobs import Job, jobs_from_state, jobs_state
from gumption.rollouts.scripted.policy import (
    ScriptedOptions,
    Shifts,
    given,
    pass_rate,
    shifts_from_state,
    shifts_state,
)
from gumption.types import Attempt, ChainId, Finish, FloatArray, IntArray, Problem, Request, StateTree


class ScriptedEngine:
    """Slots that emit one token per step. See `gumption.types.Engine`.

    Args:
        config: `rollouts` and its options.
        seed: Run seed.
        stage: Names the draws ("rollouts", "eval"). Only "rollouts" has the configured weight lag.
        in_flight: Slots; default `rollouts.in_flight`.
        allow: Asked with (FLOPs, tokens) before work is done, and must not book anything: if it says no, that step is
            not done and `exhausted` is set.

    Raises:
        ValueError: an option is unknown or wrong.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        seed: int,
        stage: str = "rollouts",
        in_flight: int | None = None,
        allow: Callable[[int, int], bool] | None = None,
    ) -> None:
        self.options = ScriptedOptions.of(config)
        self.shape = self.options.shape
        self.seed, self.stage, self.allow = seed, stage, allow
        self.slots = in_flight or config.rollouts.in_flight
        self.max_tokens = config.rollouts.max_tokens
        self.decode_steps = config.rollouts.decode_steps
        self.weight_lag = config.rollouts.weight_lag if stage == "rollouts" else 0
        self.flops_prefill = self.flops_decode = self.tokens_prompt = self.tokens_generated = 0
        self.exhausted = False
        self.version = 0  # of the weights that generate now
        self._shifts: Shifts = {}
        self._queue: deque[tuple[int, Shifts]] = deque()  # newer weights, held back by the lag
        self._step = 0
        self._alarm = 0  # step at which polls stop, if it is ahead
        self._sequence = 0
        self._jobs: dict[int, Job] = {}
        self._waiting: deque[int] = deque()  # jobs with members that have no slot yet, first come first served
        self._ends: list[tuple[int, int, int]] = []  # heap of (last step, job, member) of active rollouts
        self._in_flight = self._unfinished = 0
        # Cost of the next step in O(1): a token at position t costs fixed + slope · t, and the first token of a rollout
        # comes out of the prefill.
        self._fixed = int(decode_flops_B(self.shape, np.array([0]))[0])
        self._slope = int(decode_flops_B(self.shape, np.array([1]))[0]) - self._fixed
        self._starting = 0  # active rollouts without a token
        self._decoding = 0  # active rollouts with one
        self._positions = 0  # sum of the positions that the decoding ones feed next
        self._prompt_ids = np.zeros(self.options.prompt_tokens, np.int32)
        self._ids, self._logprobs = np.zeros(0, np.int32), np.zeros(0, np.float32)
        self._known_flops = {0: 0}  # decode FLOPs by completion length
        self._counters: dict[int, IntArray] = {}

    # -- protocol

    @property
    def free_slots(self) -> int:
        """Rollouts that can be submitted before the engine is full (may be negative after an overshoot)."""
        return self.slots - self._unfinished

    @property
    def in_flight(self) -> int:
        """Rollouts submitted and not yet returned."""
        return self._in_flight

    @property
    def clock(self) -> float:
        """Virtual seconds."""
        return self._step / self.options.tokens_per_second

    def wait_until(self, seconds: float) -> None:
        """Let polls stop at this time of the virtual clock; with nothing in flight, go there at once."""
        self._alarm = math.ceil(seconds * self.options.tokens_per_second - 1e-9)

    def submit(self, request: Request) -> None:
        """Queue a request."""
        self._jobs[self._sequence] = self._draw(request)
        self._waiting.append(self._sequence)
        self._in_flight += request.n
        self._unfinished += request.n
        self._sequence += 1

    def poll(self) -> list[Attempt]:
        """Advance by `decode_steps`; by a multiple of it, if no rollout ends before (nothing could happen between)."""
        self.exhausted = False
        done: list[Attempt] = []
        if self._waiting and not self._start_waiting():
            return done
        if not self._ends:
            self._step = max(self._step, self._alarm)
            return done
        polls = -(-(self._ends[0][0] - self._step) // self.decode_steps)
        target = self._step + max(1, polls) * self.decode_steps
        if self._alarm > self._step:
            target = min(target, self._alarm)
        while self._advance(min(target, self._ends[0][0]) - self._step):
            self._collect(done)
            if self._step >= target or (self._waiting and not self._start_waiting()) or not self._ends:
                break
        return done

    def update_weights(self, version: int, state: Shifts) -> None:
        """New shifts; with `weight_lag` k they come into use k updates later."""
        self._queue.append((version, state))
        while len(self._queue) > self.weight_lag:
            self.version, self._shifts = self._queue.popleft()

    def cancel(self, chain_id: ChainId) -> list[Attempt]:
        """Stop a chain's rollouts; members that are not done come back with finish `cancelled`."""
        return [self._stop(s) for s in [s for s, job in self._jobs.items() if job.request.chain_id == chain_id]]

    def abandon(self) -> list[Attempt]:
        """End of run: everything in flight comes back as it is; the engine is empty."""
        return [self._stop(s) for s in list(self._jobs)]

    def metrics(self) -> dict[str, float]:
        """Generated tokens, active rollouts, virtual seconds."""
        return {"tokens": self.tokens_generated, "rows": self._starting + self._decoding, "seconds": self.clock}

    def close(self) -> None:
        """Nothing to free."""

    def state_dict(self) -> StateTree:
        """Jobs, weights, clock and totals."""
        return {
            "totals": {name: getattr(self, name) for name in _TOTALS},
            "weights": [{"version": self.version, "shifts": shifts_state(self._shifts)}]
            + [{"version": version, "shifts": shifts_state(shifts)} for version, shifts in self._queue],
            "jobs": jobs_state(self._jobs),
        }

    def load_state_dict(self, state: StateTree, problem: Mapping[str, Problem]) -> None:
        """Return to a saved state; what was in flight before is forgotten."""
        for name in _TOTALS:
            setattr(self, name, state["totals"][name])
        weights = [(w["version"], shifts_from_state(w["shifts"])) for w in state["weights"]]
        (self.version, self._shifts), *newer = weights
        self._queue = deque(newer)
        self._jobs = jobs_from_state(state["jobs"], problem)
        self._in_flight = sum(j.request.n for j in self._jobs.values())
        self._unfinished = sum(j.unfinished for j in self._jobs.values())
        self._waiting.clear()
        self._ends.clear()
        self._starting = self._decoding = self._positions = 0
        for sequence, job in sorted(self._jobs.items()):
            if job.next < job.request.n:
                self._waiting.append(sequence)
            for i in range(job.next):
                if not job.done[i]:
                    self._ends.append((job.started[i] + job.lengths[i], sequence, i))
                    self._count(self._step - job.started[i], 1)
        heapq.heapify(self._ends)

    # -- draws

    def _draw(self, request: Request) -> Job:
        """Decide everything about a request's rollouts but the pass rate, which is that of the weights at the start."""
        n, o = request.n, self.options
        problem = request.problem
        key = randomness.key(self.seed, self.stage, problem.id, request.visit, request.attempt)
        if n not in self._counters:
            self._counters[n] = np.arange(4 * n, dtype=np.uint64)
        u_G4 = randomness.uniforms(np.array([key], np.uint64), self._counters[n]).reshape(n, 4)
        lengths = self._lengths(given(problem).get("mean_length", o.mean_length), u_G4)
        finishes: list[Finish] = ["stop" if length <= self.max_tokens else "length" for length in lengths]
        if o.error_rate:
            finishes = ["error" if u < o.error_rate else f for u, f in zip(u_G4[:, 3].tolist(), finishes, strict=True)]
        return Job.new(request, [min(x, self.max_tokens) for x in lengths], finishes, u_G4[:, 0].tolist())

    def _lengths(self, mean: float | None, u_G4: FloatArray) -> list[int]:
        """Completion lengths before the cut at `max_tokens`."""
        o = self.options
        if o.length_quantiles:
            at_Q, quantiles_Q = np.linspace(0, 1, len(o.length_quantiles)), np.array(o.length_quantiles)
            scale = 1.0 if mean is None else mean / float((quantiles_Q[1:] + quantiles_Q[:-1]).mean() / 2)
            drawn = scale * np.interp(u_G4[:, 1], at_Q, quantiles_Q)
        else:
            mean = max(1.0, self.max_tokens / 2) if mean is None else float(mean)
            if not o.length_cv:
                return [max(1, round(mean))] * len(u_G4)
            # lognormal with this mean and coefficient of variation; the normal by Box–Muller
            variance = math.log1p(o.length_cv**2)
            normal_G = np.sqrt(-2 * variance * np.log1p(-u_G4[:, 1])) * np.cos(2 * np.pi * u_G4[:, 2])
            drawn = np.exp(normal_G + (math.log(mean) - variance / 2))
        return [max(1, round(x)) for x in drawn.tolist()]

    # -- the clock

    def _count(self, tokens: int, sign: int) -> None:
        """An active rollout with so many tokens joins (+1) or leaves (−1)."""
        if tokens:
            self._decoding += sign
            self._positions += sign * (self.options.prompt_tokens + tokens - 1)
        else:
            self._starting += sign

    def _start_waiting(self) -> bool:
        """Give free slots to waiting rollouts. False when the budget refuses a prefill."""
        free = self.slots - self._starting - self._decoding
        while self._waiting and free > 0:
            sequence = self._waiting[0]
            job = self._jobs[sequence]
            if not job.prefilled:
                flops = forward_flops(self.shape, self.options.prompt_tokens)
                if self.allow is not None and not self.allow(flops, 0):
                    self.exhausted = True
                    return False
                self.flops_prefill += flops
                self.tokens_prompt += self.options.prompt_tokens
                job.prefilled = True
            first, end = job.next, min(job.request.n, job.next + free)
            rate = pass_rate(job.request.problem, self._shifts, self.options.pass_rate)
            step, count = self._step, end - first
            job.started[first:end], job.version_start[first:end] = [step] * count, [self.version] * count
            for i in range(first, end):
                finish = job.finishes[i]
                job.texts[i] = "" if finish == "error" else "1" if finish == "stop" and job.luck[i] < rate else "0"
                heapq.heappush(self._ends, (step + job.lengths[i], sequence, i))
            job.next = end
            self._starting += end - first
            free -= end - first
            if end == job.request.n:
                self._waiting.popleft()
        return True

    def _cost(self, steps: int) -> tuple[int, int]:
        """FLOPs and tokens of the next steps, while no rollout ends or starts."""
        active = self._starting + self._decoding
        first = self._fixed * self._decoding + self._slope * self._positions
        later = self._positions + self._decoding + self._starting * self.options.prompt_tokens
        rest = steps - 1
        positions = rest * later + active * (rest * (rest - 1) // 2)
        return first + self._fixed * active * rest + self._slope * positions, active * steps

    def _advance(self, steps: int) -> bool:
        """Go on by so many steps, or as far as the budget allows (then False)."""
        flops, tokens = self._cost(steps)
        if self.allow is not None and not self.allow(flops, tokens):
            if steps > 1:
                half = steps // 2
                return self._advance(half) and self._advance(steps - half)
            self.exhausted = True
            return False
        self.flops_decode += flops
        self.tokens_generated += tokens
        self._positions += self._decoding * steps + self._starting * (self.options.prompt_tokens + steps - 1)
        self._decoding += self._starting
        self._starting = 0
        self._step += steps
        return True

    def _collect(self, done: list[Attempt]) -> None:
        """Free the slots of rollouts that end at this step; attempts that are complete join `done`."""
        ends, step, version = self._ends, self._step, self.version
        while ends and ends[0][0] <= step:
            _, sequence, i = heapq.heappop(ends)
            job = self._jobs[sequence]
            job.done[i], job.version_end[i] = True, version
            job.unfinished -= 1
            self._unfinished -= 1
            self._decoding -= 1
            self._positions -= self.options.prompt_tokens + job.lengths[i] - 1
            if not job.unfinished:
                del self._jobs[sequence]
                self._in_flight -= job.request.n
                done.append(self._attempt(job, job.lengths))

    def _stop(self, sequence: int) -> Attempt:
        """Take a job out, as far as it came."""
        job = self._jobs.pop(sequence)
        self._waiting = deque(w for w in self._waiting if w != sequence)
        self._ends = [e for e in self._ends if e[1] != sequence]
        heapq.heapify(self._ends)
        lengths = list(job.lengths)
        for i in range(job.request.n):
            if job.done[i]:
                continue
            if job.started[i] < 0:
                lengths[i], job.version_start[i] = 0, self.version
            else:
                lengths[i] = self._step - job.started[i]
                self._count(lengths[i], -1)
            job.version_end[i], job.finishes[i], job.texts[i] = self.version, "cancelled", ""
        self._in_flight -= job.request.n
        self._unfinished -= job.unfinished
        return self._attempt(job, lengths)

    def _attempt(self, job: Job, lengths: list[int]) -> Attempt:
        n, prompt = job.request.n, self.options.prompt_tokens
        offsets = [0, *accumulate(lengths)]
        total = offsets[-1]
        if total > len(self._ids):  # token ids say nothing here: all attempts share one read-only block of zeros
            self._ids, self._logprobs = np.zeros(2 * total, np.int32), np.zeros(2 * total, np.float32)
            self._ids.flags.writeable = self._logprobs.flags.writeable = False
        prefill_G = np.zeros(n, np.int64)
        prefill_G[0] = forward_flops(self.shape, prompt) if job.prefilled else 0
        known = self._known_flops
        for length in lengths:
            if length not in known:
                known[length] = forward_flops(self.shape, length - 1, prompt)
        return Attempt(
            request=job.request,
            prompt_ids_T=self._prompt_ids,
            completion_ids_T=self._ids[:total],
            logprobs_T=self._logprobs[:total],
            offsets_G1=np.array(offsets, np.int64),
            version_start_G=np.array(job.version_start, np.int32),
            version_end_G=np.array(job.version_end, np.int32),
            finish_G=tuple(job.finishes),
            texts_G=tuple(job.texts),
            flops_prefill_G=prefill_G,
            flops_decode_G=np.array([known[length] for length in lengths], np.int64),
        )


_TOTALS = ("_step", "_sequence", "flops_prefill", "flops_decode", "tokens_prompt", "tokens_generated")
