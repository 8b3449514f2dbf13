"""The parent side of verifier workers: hands out completions, keeps the time, replaces what died.

Workers are fresh interpreters (never forks: torch may be running here, and no user script is imported again), started
when completions first need them; those that are ready begin while others still import. Each gets a few completions of
one problem at a time and answers one by one, so a completion that hangs or kills its worker costs only its own reward;
the others go to the next worker. Results stand in the order of the completions whichever worker was faster.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import signal
import subprocess
import sys
import time
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Pipe, wait
from typing import Any

from gumption.types import Problem, Reward, RewardStatus

START_LIMIT_S = 120.0
"""Importing a verifier may take so long."""
_CHUNK = 16
_MAX_FAILED_STARTS = 3  # in a row, of a verifier that could be made before: then its completions get status error


@dataclass
class Job:
    """Completions of one problem for one verifier, and their rewards once they are there."""

    slot: int
    problem: Problem
    texts: list[str]
    ids: list[list[int]] | None = None
    batched: bool = False
    rewards: list[Reward | None] = field(default_factory=list)


@dataclass
class _Task:
    """Consecutive completions of a job on their way through one worker."""

    job: Job
    positions: list[int]
    again: bool = False  # its first completion was tried before, in a worker that was not fresh


class _Child:
    """One worker process: making a verifier, scoring a task, or idle."""

    def __init__(self, memory_mb: int, alarm: float) -> None:
        self.pipe, theirs = Pipe()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        environment.pop("PYTHONUNBUFFERED", None)  # what a verifier prints leads nowhere, at least let it be quick
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            environment[name] = "1"
        command = [sys.executable, "-m", "gumption.rewards.worker", str(theirs.fileno()), str(memory_mb), str(alarm)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            env=environment,
            start_new_session=True,
        )
        theirs.close()
        self.opened: set[int] = set()
        self.opening: int | None = None
        self.task: _Task | None = None
        self.served = 0
        self.deadline = math.inf

    @property
    def idle(self) -> bool:
        """Nothing to wait for."""
        return self.task is None and self.opening is None

    def open(self, slot: int, name: str, options: dict[str, Any]) -> None:
        """Order a verifier to be made."""
        self.opening, self.deadline = slot, time.monotonic() + START_LIMIT_S
        self._send(("open", slot, name, options))

    def score(self, task: _Task, time_limit: float) -> None:
        """Order completions to be scored.

        Raises:
            TypeError, AttributeError, pickle.PicklingError: the problem cannot be sent.
        """
        job = task.job
        texts = [job.texts[i] for i in task.positions]
        ids = None if job.ids is None else [job.ids[i] for i in task.positions]
        order = pickle.dumps(("score", job.slot, job.problem, texts, ids))
        self.task, self.deadline = task, time.monotonic() + time_limit * (len(texts) if job.batched else 1)
        self._send_bytes(order)

    def kill(self) -> None:
        """End the process and everything that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.pipe.close()

    def _send(self, order: tuple[Any, ...]) -> None:
        self._send_bytes(pickle.dumps(order))

    def _send_bytes(self, order: bytes) -> None:
        with contextlib.suppress(OSError):  # it died: the pipe's end is noticed when we listen
            self.pipe.send_bytes(order)


def _kill_all(children: list[_Child]) -> None:
    while children:
        children.pop().kill()


class Pool:
    """Up to `workers` processes that score completions.

    Args:
        workers: Processes at most.
        time_limit: Seconds for one completion.
        memory_mb: Address space of a worker.
    """

    def __init__(self, workers: int, time_limit: float, memory_mb: int) -> None:
        self.workers = workers
        self.time_limit = time_limit
        self.memory_mb = memory_mb
        self.restarts = 0
        self._verifiers: list[tuple[str, dict[str, Any]]] = []
        self._failed_starts: dict[int, int | None] = {}  # per slot, in a row; None: never made so far
        self._children: list[_Child] = []
        self._tasks: dict[int, deque[_Task]] = {}
        weakref.finalize(self, _kill_all, self._children)

    def slot(self, name: str, options: dict[str, Any]) -> int:
        """A number for a verifier with its options."""
        entry = (name, options)
        if entry not in self._verifiers:
            self._failed_starts[len(self._verifiers)] = None
            self._tasks[len(self._verifiers)] = deque()
            self._verifiers.append(entry)
        return self._verifiers.index(entry)

    def prove(self, slot: int) -> None:
        """Start workers and wait until the verifier is made in one of them.

        Raises:
            ValueError: it cannot be made.
        """
        with self._all_or_nothing():
            while self._failed_starts[slot] is None:
                self._open(slot, self.workers)
                self._listen()

    def score(self, jobs: Sequence[Job]) -> None:
        """Fill in the rewards of all jobs.

        Raises:
            ValueError: a verifier cannot be made (no such function, an import that fails).
        """
        total = sum(len(job.texts) for job in jobs)
        chunk = max(1, min(_CHUNK, math.ceil(total / (2 * self.workers))))
        for job in jobs:
            n = len(job.texts)
            job.rewards = [None] * n
            step = n if job.batched else chunk
            self._tasks[job.slot].extend(_Task(job, list(range(i, min(i + step, n)))) for i in range(0, n, step))
        with self._all_or_nothing():
            while any(self._tasks.values()) or any(child.task for child in self._children):
                self._hand_out()
                self._listen()

    def close(self) -> None:
        """End all workers."""
        _kill_all(self._children)

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        try:
            yield
        except BaseException:  # an interrupt, or a verifier that cannot be made: nothing half done may stay
            for tasks in self._tasks.values():
                tasks.clear()
            _kill_all(self._children)
            raise

    def _hand_out(self) -> None:
        for slot, tasks in self._tasks.items():
            for child in self._children:
                if tasks and child.idle and slot in child.opened:
                    self._give(child, tasks.popleft())
            if tasks:
                self._open(slot, min(len(tasks), self.workers))

    def _give(self, child: _Child, task: _Task) -> None:
        try:
            child.score(task, self.time_limit)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            for i in task.positions:
                detail = f"the problem cannot be sent to a worker: {error}"
                task.job.rewards[i] = Reward(None, status="error", detail=detail[:200])

    def _open(self, slot: int, wanted: int) -> None:
        """See to it that `wanted` workers have the verifier, or are making it."""
        able = sum(slot in child.opened or child.opening == slot for child in self._children)
        for child in self._children:
            if able < wanted and child.idle and slot not in child.opened:
                child.open(slot, *self._verifiers[slot])
                able += 1
        while able < wanted and len(self._children) < self.workers:
            child = _Child(self.memory_mb, 2 * self.time_limit + 30)
            self._children.append(child)
            child.open(slot, *self._verifiers[slot])
            able += 1

    def _listen(self) -> None:
        active = [child for child in self._children if not child.idle]
        if not active:
            return
        patience = min(child.deadline for child in active) - time.monotonic()
        ready = set(wait([child.pipe for child in active], max(0.0, patience)))
        for child in active:
            if child.pipe in ready:
                self._receive(child)
            elif time.monotonic() >= child.deadline and not child.pipe.poll():
                limit = START_LIMIT_S if child.opening is not None else self.time_limit
                self._fail(child, "timeout", f"took longer than {limit:g} s")

    def _receive(self, child: _Child) -> None:
        try:
            message = json.loads(child.pipe.recv_bytes())
            if child.opening is not None:
                failed = message.get("failed")
            else:
                rewards = [Reward(v, tuple(p), s, d, t) for v, p, s, d, t in message]
        except (EOFError, OSError):
            self._died(child)
        except (ValueError, TypeError, AttributeError) as error:
            self._fail(child, "error", f"the worker's answer cannot be read: {error}")
        else:
            if child.opening is None:
                self._scored(child, rewards)
            elif failed is not None:
                self._fail(child, "error", failed)
            else:
                self._failed_starts[child.opening] = 0
                child.opened.add(child.opening)
                child.opening = None

    def _scored(self, child: _Child, rewards: list[Reward]) -> None:
        task = child.task
        assert task is not None
        if any(r.status == "memory" for r in rewards):
            self._fail(child, "memory", rewards[0].detail, retry=True)
            return
        for reward in rewards:
            task.job.rewards[task.positions.pop(0)] = reward
        child.served += len(rewards)
        task.again = False
        child.deadline = time.monotonic() + self.time_limit
        if not task.positions:
            child.task = None

    def _died(self, child: _Child) -> None:
        child.process.wait()
        code = child.process.returncode
        if code == -signal.SIGALRM:
            self._fail(child, "timeout", f"took longer than {self.time_limit:g} s")
        else:
            self._fail(child, "error", _ending(code), retry=True)

    def _fail(self, child: _Child, status: RewardStatus, detail: str, retry: bool = False) -> None:
        """Drop a worker; its current completion gets the status, unless a fresh worker may still score it."""
        child.kill()
        self._children.remove(child)
        self.restarts += 1
        task = child.task
        if task is None:
            assert child.opening is not None
            self._failed_start(child.opening, detail)
            return
        if retry and child.served > 0 and not task.again:
            task = _Task(task.job, task.positions, again=True)
        else:
            lost = task.positions if task.job.batched else task.positions[:1]
            for i in lost:
                task.job.rewards[i] = Reward(None, status=status, detail=detail[:200])
            task = _Task(task.job, task.positions[len(lost) :])
        if task.positions:
            self._tasks[task.job.slot].appendleft(task)

    def _failed_start(self, slot: int, detail: str) -> None:
        failed = self._failed_starts[slot]
        if failed is None:
            raise ValueError(f"verifier {self._verifiers[slot][0]!r} cannot be made: {detail}")
        self._failed_starts[slot] = failed + 1
        if failed + 1 >= _MAX_FAILED_STARTS and not any(slot in child.opened for child in self._children):
            self._failed_starts[slot] = 0
            lost = Reward(None, status="error", detail=f"the verifier cannot be made any more: {detail}"[:200])
            for task in self._tasks[slot]:
                for i in task.positions:
                    task.job.rewards[i] = lost
            self._tasks[slot].clear()


def _ending(code: int) -> str:
    if code >= 0:
        return f"the verifier ended its process with exit code {code}"
    name = signal.Signals(-code).name
    return f"the verifier's process was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
