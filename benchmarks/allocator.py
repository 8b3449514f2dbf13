"""How long `ask` + `tell` take, and how much memory a live problem needs, at 100,000 live problems.

    python benchmarks/allocator.py            # writes benchmarks/results/allocator.json

Bars: at most 5 µs per rollout with groups of 8, less than 1 kB per live problem besides buffered attempts.

What is measured: `never_give_up` with its defaults over 100,000 problems whose pass rates are those of the scripted
mixture, all of them in flight at once. In each round every live chain is told one attempt and asked again. Attempts are
made outside the clock. Times are CPU time of this process, in slices of 1,000 attempts: mean, median, 10th and 90th
percentile over slices (other processes on the same cores show as a mean far above the 10th percentile). Memory is what
allocations made by `gumption/allocation` still hold (tracemalloc), requests included.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import gumption.allocation
from gumption.allocation import NeverGiveUp
from gumption.config import ProblemsConfig
from gumption.testing import ListStream, scripted_problems
from gumption.types import Attempt, Request, Reward

RESULT = Path(__file__).parent / "results" / "allocator.json"
GROUP, SLICE = 8, 1000
RIGHT, WRONG = Reward(1.0), Reward(0.0)


class Answers:
    """Makes attempts quickly; all of one version share their (empty) arrays."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.templates: dict[int, Attempt] = {}

    def __call__(self, requests: list[Request], version: int) -> list[Attempt]:
        if version not in self.templates:
            self.templates[version] = Attempt.empty(requests[0], version=version)
        t = self.templates[version]
        rates = np.array([r.problem.answer["pass_rate"] for r in requests])
        right = self.rng.random((len(requests), GROUP)) < rates[:, None]
        return [
            Attempt(
                request, t.prompt_ids_T, t.completion_ids_T, t.logprobs_T, t.offsets_G1, t.version_start_G,
                t.version_end_G, t.finish_G, t.texts_G, t.flops_prefill_G, t.flops_decode_G, None,
                tuple([RIGHT if x else WRONG for x in row]),
            )
            for request, row in zip(requests, right.tolist(), strict=True)
        ]  # fmt: skip


def allocator(live: int) -> NeverGiveUp:
    problems = scripted_problems(ProblemsConfig(size=live), argument="mixture", seed=0, held_out=False)
    return NeverGiveUp(ListStream(problems), group_size=GROUP, seed=0)


def slices(items: list[Request]) -> Iterator[list[Request]]:
    return (items[i : i + SLICE] for i in range(0, len(items), SLICE))


def speed(live: int, rounds: int) -> dict[str, float]:
    """µs per rollout of ask and tell."""
    alloc, answers = allocator(live), Answers()
    told = 0
    tell_times, ask_times = [], []
    in_flight: list[Request] = []
    begin_cpu, begin_wall = time.process_time(), time.perf_counter()
    for version in range(rounds):
        while len(in_flight) < live:
            start = time.process_time()
            new = alloc.ask(SLICE * GROUP)
            ask_times.append((time.process_time() - start) / (len(new) * GROUP))
            in_flight += new
        for part in slices(in_flight):
            attempts = answers(part, version)
            start = time.process_time()
            for attempt in attempts:
                alloc.tell(attempt, version)
            tell_times.append((time.process_time() - start) / (len(part) * GROUP))
            told += len(part)
        in_flight = []
    begin_save = time.process_time()
    state = alloc.state_dict()
    save = time.process_time() - begin_save
    del state
    asks, tells = 1e6 * np.array(ask_times), 1e6 * np.array(tell_times)
    return {
        "attempts": told,
        "rollouts": told * GROUP,
        "ask_us_per_rollout_mean": round(float(asks.mean()), 3),
        "tell_us_per_rollout_mean": round(float(tells.mean()), 3),
        "tell_us_per_rollout_p10": round(float(np.percentile(tells, 10)), 3),
        "tell_us_per_rollout_p90": round(float(np.percentile(tells, 90)), 3),
        "us_per_rollout_mean": round(float(asks.mean() + tells.mean()), 3),
        "us_per_rollout_median": round(float(np.median(asks) + np.median(tells)), 3),
        "us_per_attempt_mean": round(float(asks.mean() + tells.mean()) * GROUP, 2),
        "state_dict_s": round(save, 2),
        "cpu_share_of_wall": round((time.process_time() - begin_cpu) / (time.perf_counter() - begin_wall), 2),
    }


def memory(live: int) -> dict[str, float]:
    """Bytes per live problem that `gumption/allocation` holds, after the first and after the second attempt."""
    alloc, answers = allocator(live), Answers()
    only = [tracemalloc.Filter(True, str(Path(gumption.allocation.__file__).parent / "*"))]
    result = {}
    tracemalloc.start()
    for version in range(2):
        requests = alloc.ask(live * GROUP)
        for part in slices(requests):
            for attempt in answers(part, version):
                alloc.tell(attempt, version)
        del requests, part, attempt
        held = sum(s.size for s in tracemalloc.take_snapshot().filter_traces(only).statistics("filename"))
        chains = alloc.metrics()["allocation/open_chains"]
        result[f"open_chains_after_{version + 1}"] = chains
        result[f"bytes_per_open_chain_after_{version + 1}"] = round(held / chains, 1)
    in_flight = alloc.ask(live * GROUP)
    held = sum(s.size for s in tracemalloc.take_snapshot().filter_traces(only).statistics("filename"))
    result["bytes_per_live_problem"] = round(held / len(in_flight), 1)
    tracemalloc.stop()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--live", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--out", type=Path, default=RESULT)
    args = parser.parse_args()
    result = {
        "claim": "ask + tell ≤ 5 µs per rollout with groups of 8 at 100,000 live problems; < 1 kB per live problem",
        "command": f"python benchmarks/allocator.py --live {args.live} --rounds {args.rounds}",
        "machine": {
            "cpu": cpu_name(),
            "cores": os.cpu_count(),
            "load_average": [round(x, 1) for x in os.getloadavg()],
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        "live_problems": args.live,
        "group_size": GROUP,
        "speed": speed(args.live, args.rounds),
        "memory": memory(args.live),
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    print(json.dumps(result, indent=2, ensure_ascii=False))


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


if __name__ == "__main__":
    main()
