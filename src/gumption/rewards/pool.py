"""The parent side of verifier workers: hands out completions, keeps the time, replaces what died.

Workers are fresh interpreters (never forks: torch may be running here, and no user script is imported again), started
when the first completion needs one. Each gets a few completions of one problem at a time and answers one by one, so a
completion that hangs or kills its worker costs only its own reward; the others go to the next worker. Results stand in
the order of the completions whichever worker was faster.
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
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Pipe, wait
from typing import Any

from gumption.types import Problem, Reward, RewardStatus

START_LIMIT_S = 120.0
"""Importing a verifier may take so long."""
_CHUNK = 16


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
    """One worker process."""

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
        self.served = 0
        self.task: _Task | None = None
        self.opening = False
        self.deadline = math.inf

    def kill(self) -> None:
        """End the process and everything that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.pipe.close()


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
        self._proved: set[int] = set()  # slots that some worker could open
        self._children: list[_Child] = []
        self._tasks: deque[_Task] = deque()
        weakref.finalize(self, _kill_all, self._children)

    def slot(self, name: str, options: dict[str, Any]) -> int:
        """A number for a verifier with its options."""
        entry = (name, options)
        if entry not in self._verifiers:
            self._verifiers.append(entry)
        return self._verifiers.index(entry)

    def prove(self, slot: int) -> None:
        """Start a worker and open the verifier in it.

        Raises:
            ValueError: it cannot be made.
        """
        if slot not in self._proved:
            self.score([Job(slot, Problem("", "", None, ""), [])])

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
            step = max(n, 1) if job.batched else chunk
            self._tasks.extend(_Task(job, list(range(i, min(i + step, n)))) for i in range(0, max(n, 1), step))
        try:
            while self._tasks or any(child.task for child in self._children):
                self._hand_out()
                self._listen()
        except BaseException:  # an interrupt or a verifier that cannot start: nothing half done may stay
            self._tasks.clear()
            _kill_all(self._children)
            raise

    def close(self) -> None:
        """End all workers."""
        _kill_all(self._children)

    def _hand_out(self) -> None:
        while self._tasks:
            child = next((c for c in self._children if c.task is None), None)
            if child is None:
                if len(self._children) >= self.workers:
                    return
                child = _Child(self.memory_mb, 2 * self.time_limit + 30)
                self._children.append(child)
            child.task = self._tasks.popleft()
            self._order(child, child.task)

    def _order(self, child: _Child, task: _Task) -> None:
        job = task.job
        child.opening = job.slot not in child.opened
        try:
            if child.opening:
                child.deadline = time.monotonic() + START_LIMIT_S
                child.pipe.send(("open", job.slot, *self._verifiers[job.slot]))
                return
            if not task.positions:
                child.task = None
                return
            child.deadline = time.monotonic() + self.time_limit * (len(task.positions) if job.batched else 1)
            texts = [job.texts[i] for i in task.positions]
            ids = None if job.ids is None else [job.ids[i] for i in task.positions]
            child.pipe.send(("score", job.slot, job.problem, texts, ids))
        except OSError:
            self._died(child)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            child.task = None
            for i in task.positions:
                job.rewards[i] = Reward(None, status="error", detail=f"the problem cannot be sent: {error}"[:200])

    def _listen(self) -> None:
        busy = [child for child in self._children if child.task is not None]
        if not busy:
            return
        patience = min(child.deadline for child in busy) - time.monotonic()
        ready = set(wait([child.pipe for child in busy], max(0.0, patience)))
        for child in busy:
            if child.pipe in ready:
                self._receive(child)
            elif time.monotonic() >= child.deadline and not child.pipe.poll():
                self._fail(child, "timeout", f"took longer than {self.time_limit:g} s")

    def _receive(self, child: _Child) -> None:
        try:
            message = json.loads(child.pipe.recv_bytes())
            if child.opening:
                self._opened(child, message)
                return
            rewards = [Reward(v, tuple(p), s, d, t) for v, p, s, d, t in message]
        except (EOFError, OSError):
            self._died(child)
            return
        except (ValueError, TypeError, KeyError) as error:
            if child.opening and isinstance(error, ValueError) and not isinstance(error, json.JSONDecodeError):
                raise
            self._fail(child, "error", f"the worker's answer cannot be read: {error}")
            return
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

    def _opened(self, child: _Child, message: dict[str, Any]) -> None:
        task = child.task
        assert task is not None
        slot = task.job.slot
        if "failed" in message:
            if slot not in self._proved:
                raise ValueError(f"verifier {self._verifiers[slot][0]!r} cannot be made: {message['failed']}")
            self._fail(child, "error", f"cannot be made: {message['failed']}")
            return
        child.opened.add(slot)
        self._proved.add(slot)
        self._order(child, task)

    def _died(self, child: _Child) -> None:
        child.process.wait()
        code = child.process.returncode
        if child.opening and child.task is not None and child.task.job.slot not in self._proved:
            name = self._verifiers[child.task.job.slot][0]
            raise ValueError(f"verifier {name!r} cannot be made: {_ending(code)} while it was imported")
        if code == -signal.SIGALRM:
            self._fail(child, "timeout", f"took longer than {self.time_limit:g} s")
        else:
            self._fail(child, "error", _ending(code), retry=True)

    def _fail(self, child: _Child, status: RewardStatus, detail: str, retry: bool = False) -> None:
        """Replace a worker; its current completion gets the status, unless a fresh worker may still score it."""
        task = child.task
        assert task is not None
        child.kill()
        self._children.remove(child)
        self.restarts += 1
        if child.opening and task.job.slot not in self._proved:
            name = self._verifiers[task.job.slot][0]
            raise ValueError(f"verifier {name!r} cannot be made: {detail} while it was imported")
        if not (retry and child.served > 0 and not task.again):
            lost = task.positions if task.job.batched else task.positions[:1]
            for i in lost:
                task.job.rewards[i] = Reward(None, status=status, detail=detail[:200])
            task = _Task(task.job, task.positions[len(lost) :])
        else:
            task = _Task(task.job, task.positions, again=True)
        if task.positions:
            self._tasks.appendleft(task)


def _ending(code: int) -> str:
    if code >= 0:
        return f"the verifier ended its process with exit code {code}"
    name = signal.Signals(-code).name
    return f"the verifier's process was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
