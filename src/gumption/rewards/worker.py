"""The child side of a verifier worker: `python -m gumption.rewards.worker FD`.

Verifiers run user code on text that a model wrote, so nothing that happens here may reach the trainer: exceptions
(`SystemExit` too) become statuses, standard output and error lead nowhere, memory is limited, and answers go back as
JSON, so that the parent never unpickles anything from here. Time is kept by the parent, which kills the whole process
group; an alarm in the kernel ends a hanging worker whose parent is gone.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

from gumption.rewards.base import as_reward, failure, make_verifier
from gumption.types import Problem, Reward

_MEGABYTE = 1 << 20
_HEADROOM = 64 * _MEGABYTE  # an address space too small for Python itself is widened to what is used plus this


def limit_memory(megabytes: int) -> None:
    """Limit the address space: an allocation beyond it raises `MemoryError`. Without effect on macOS."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        used = 0
    limit = max(megabytes * _MEGABYTE, used + _HEADROOM)
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (OSError, ValueError):  # the system does not allow it: go on without
        pass


def encode(reward: Reward) -> list[Any]:
    """A reward as JSON."""
    return [reward.value, list(reward.parts), reward.status, reward.detail, reward.task]


class Worker:
    """Reads orders from the parent until it hangs up."""

    def __init__(self, parent: Connection, memory_mb: int, alarm: float) -> None:
        self.parent = parent
        self.memory_mb = memory_mb
        self.alarm = alarm
        self.verifiers: dict[int, Any] = {}

    def run(self) -> None:
        """Serve: ("open", slot, name, options), ("score", slot, problem, texts, ids)."""
        while True:
            try:
                order = self.parent.recv()
            except (EOFError, OSError):
                return
            if order[0] == "open":
                self.open(*order[1:])
            else:
                self.score(*order[1:])

    def open(self, slot: int, name: str, options: dict[str, Any]) -> None:
        """Make a verifier and let it import what it needs."""
        try:
            verifier: Any = make_verifier(name, **options)
            if hasattr(verifier, "prepare"):
                verifier.prepare()
        except BaseException as error:
            self.send({"failed": str(error) if isinstance(error, ValueError) else failure(error).detail})
            return
        self.verifiers[slot] = verifier
        limit_memory(self.memory_mb)
        self.send({"opened": slot})

    def score(self, slot: int, problem: Problem, texts: list[str], ids: list[list[int]] | None) -> None:
        """Score texts one by one, sending each reward at once, or all in one call where the verifier is batched."""
        verifier = self.verifiers[slot]
        if getattr(verifier, "batched", False):
            self.send([encode(r) for r in self._many(verifier, problem, texts, ids)])
            return
        for i, text in enumerate(texts):
            self.send([encode(self._one(verifier, problem, text, ids[i] if ids is not None else None))])

    def _one(self, verifier: Any, problem: Problem, text: str, ids: list[int] | None) -> Reward:
        self._set_alarm(self.alarm)
        try:
            result = verifier.score(problem, text) if ids is None else verifier.score(problem, text, ids)
            return as_reward(result)
        except BaseException as error:
            return failure(error)
        finally:
            self._set_alarm(0)

    def _many(self, verifier: Any, problem: Problem, texts: list[str], ids: list[list[int]] | None) -> list[Reward]:
        self._set_alarm(self.alarm * len(texts))
        try:
            return [as_reward(r) for r in verifier.score_many(problem, texts, ids or [])]
        except BaseException as error:
            return [failure(error)] * len(texts)
        finally:
            self._set_alarm(0)

    def _set_alarm(self, seconds: float) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def send(self, message: Any) -> None:
        """Answer the parent; without one there is nothing left to do."""
        try:
            self.parent.send_bytes(json.dumps(message).encode())
        except (OSError, ValueError):
            os._exit(0)


def main(arguments: list[str]) -> None:
    """Take the file descriptor, the memory limit and the alarm from the command line."""
    descriptor, memory_mb, alarm = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the trainer's business
    limit_memory(int(memory_mb))
    Worker(Connection(int(descriptor)), int(memory_mb), float(alarm)).run()


if __name__ == "__main__":
    main(sys.argv[1:])
