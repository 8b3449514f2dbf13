"""Reward functions that go wrong in every way; the completion says how. Imported by name in worker processes."""

import os
import signal
import sys
import time


def zoo(prompts, completions, **kwargs):
    (text,) = completions
    kind = text.split()[0]
    if kind == "raise":
        raise RuntimeError("boom")
    if kind == "unprintable":
        raise Unprintable
    if kind == "exit":
        sys.exit(3)
    if kind == "interrupt":
        raise KeyboardInterrupt
    if kind == "recursion":
        return zoo(prompts, completions, **kwargs)
    if kind == "loop":
        while True:
            pass
    if kind == "sleep":
        time.sleep(1000)
    if kind == "eat":
        hoard = [bytearray(1 << 30) for _ in range(10)]
        return [float(len(hoard))]
    if kind == "die":
        os._exit(7)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "child":
        os.system("sleep 1000 &")
        return [1.0]
    if kind == "print":
        for _ in range(20_000):
            print("x" * 100)
        os.write(1, b"y" * 1_000_000)
        os.write(2, b"z" * 1_000_000)
        return [0.5]
    return {"text": ["abc"], "nan": [float("nan")], "inf": [float("inf")], "none": None, "nones": [None],
            "wrong_length": [1.0, 2.0], "dict": {"reward": 1.0}, "number": 1.0, "list": [[1.0]], "complex": [1j],
            "huge": [10**400], "bool": [True], "empty": []}.get(kind, [1.0 if kind == "yes" else 0.0])  # fmt: skip


class Unprintable(Exception):
    def __str__(self):
        raise ValueError("no text either")


def pid(prompts, completions, **kwargs):
    return [float(os.getpid())]


def columns(prompts, completions, answer, level, completion_ids, scale=1.0):
    assert len(prompts) == len(completions) == len(answer) == len(level) == len(completion_ids)
    return [scale * (c == a) + 0.001 * len(ids) for c, a, ids in zip(completions, answer, completion_ids, strict=True)]


def batch(prompts, completions, **kwargs):
    return [float(len(set(completions)))] * len(completions)


def gold_completion(problem):
    return None if problem.answer == "unknown" else "yes"


def mutated_completion(problem):
    return "yes" if problem.answer == "lax" else "no"


class Judge:
    def __init__(self, wanted="yes"):
        self.wanted = wanted

    def score(self, problem, completion):
        return 1.0 if completion == self.wanted else 0


not_callable = 3
