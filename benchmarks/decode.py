"""Embedded decoding against `model.generate`: same model, same prompts, groups of 8, alternating in one run.

    python benchmarks/decode.py                    # both models → benchmarks/results/decode.json
    python benchmarks/decode.py --only tiny --rounds 3
    python benchmarks/decode.py --only tiny --scan # tokens/s of the engine by torch threads and slots

Tiny model: the shipped `skill_chain` model on prompts of its task; completions end where the model ends them. SmolLM2:
short chat prompts; every request has its own limit, drawn log-uniformly, so that lengths vary (coefficient of variation
≥ 0.5) as they do when a model reasons. Neither side knows lengths beforehand, so `generate` takes requests in the order
given; it gets left padding, its own KV cache, no score output, and the best of several batch sizes, tried before the
timed rounds. A token counts up to and including the end token or the limit. The engine records log-probs besides.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, StoppingCriteria, StoppingCriteriaList

import gumption
from gumption.config import RolloutsConfig
from gumption.flops import ModelShape
from gumption.problems import skill_chain
from gumption.rollouts.engine import TorchEngine
from gumption.rollouts.prompts import encode_prompt
from gumption.types import Message, Problem, Request

HERE = Path(__file__).parent
TINY = Path(gumption.__file__).parent / "data" / "models" / "skill_chain"
SMOLLM2 = HERE.parent / "models" / "SmolLM2-135M-Instruct"
GROUP = 8
SHAPE = ModelShape(matmul_params=1, layers=1, heads=1, head_dim=1)  # costs are not measured here

Lengths = list[int]


class LimitedEngine(TorchEngine):
    """An engine with its own limit for each request (`meta["limit"]`)."""

    def limit(self, request: Request, prompt_tokens: int) -> int:
        return int(request.problem.meta["limit"])


class RowLimits(StoppingCriteria):
    """The same for `generate`: row r stops after `limits[r]` new tokens."""

    def __init__(self, limits: list[int], prompt: int) -> None:
        self.limits, self.prompt = torch.tensor(limits), prompt

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        return input_ids.shape[1] - self.prompt >= self.limits


def tiny_problems(count: int, max_tokens: int) -> list[Problem]:
    return [Problem(p.id, p.prompt, None, "x", {"limit": max_tokens}) for p in skill_chain.generate(count, seed=11)]


def chat_problems(count: int, max_tokens: int) -> list[Problem]:
    rng = np.random.default_rng(5)
    limits = np.exp(rng.uniform(np.log(8), np.log(max_tokens), count)).astype(int)
    things = ["apples", "minutes", "pages", "coins", "trains", "letters"]
    problems = []
    for i, limit in enumerate(limits.tolist()):
        a, b, c = rng.integers(2, 90, 3).tolist()
        text = f"Tom has {a} {things[i % 6]}, buys {b} more and gives {c} away. How many are left? Explain each step."
        problems.append(Problem(f"s{i}", (Message("user", text),), None, "x", {"limit": limit}))
    return problems


def run_engine(engine: TorchEngine, problems: list[Problem], visit: int) -> Lengths:
    lengths, todo = [], list(reversed(problems))
    while todo or engine.in_flight:
        while todo and engine.free_slots > 0:
            engine.submit(Request(todo.pop(), GROUP, visit))
        lengths += [n for attempt in engine.poll() for n in attempt.lengths_G.tolist()]
    return lengths


def make_generate(model: Any, tokenizer: Any, problems: list[Problem], rows: int) -> Callable[[int], Lengths]:
    ends = torch.tensor(np.atleast_1d(model.generation_config.eos_token_id))
    prompts = [encode_prompt(tokenizer, p, max_tokens=10_000).tolist() for p in problems]

    def batch(chunk: range) -> Lengths:
        longest = max(len(prompts[i]) for i in chunk)
        pad = tokenizer.pad_token_id or 0
        ids = torch.tensor([[pad] * (longest - len(prompts[i])) + prompts[i] for i in chunk])
        real = torch.tensor([[0] * (longest - len(prompts[i])) + [1] * len(prompts[i]) for i in chunk])
        limits = [problems[i].meta["limit"] for i in chunk for _ in range(GROUP)]
        out = model.generate(
            input_ids=ids, attention_mask=real, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
            num_return_sequences=GROUP, max_new_tokens=max(limits), pad_token_id=pad,
            stopping_criteria=StoppingCriteriaList([RowLimits(limits, longest)]),
        )[:, longest:]  # fmt: skip
        ended = torch.isin(out, ends)
        first = torch.where(ended.any(1), ended.int().argmax(1) + 1, out.shape[1])
        return torch.minimum(first, torch.tensor(limits)).tolist()

    def run(seed: int) -> Lengths:
        torch.manual_seed(seed)
        step = max(1, rows // GROUP)
        with torch.inference_mode():
            chunks = [range(i, min(i + step, len(prompts))) for i in range(0, len(prompts), step)]
            return [n for chunk in chunks for n in batch(chunk)]

    return run


def speed(run: Callable[[int], Lengths], seed: int) -> tuple[float, Lengths]:
    start = time.perf_counter()
    lengths = run(seed)
    return sum(lengths) / (time.perf_counter() - start), lengths


def best(candidates: dict[int, Callable[[int], Lengths]]) -> int:
    """The batch size that decodes fastest, tried once each after a short warm-up."""
    return max(candidates, key=lambda rows: speed(candidates[rows], 0)[0])


def make_engine(model: Any, tokenizer: Any, max_tokens: int, slots: int) -> TorchEngine:
    config = RolloutsConfig(max_tokens=max_tokens, in_flight=slots)
    return LimitedEngine(model, tokenizer, config=config, seed=0, shape=SHAPE)


def compare(name: str, rounds: int, requests: int | None) -> dict[str, Any]:
    if name == "tiny":
        folder, problems, max_tokens = TINY, tiny_problems(requests or 128, 32), 32
        slots_tried, rows_tried = (128, 256, 512), (128, 256, 512, 1024)
    else:
        folder, problems, max_tokens = SMOLLM2, chat_problems(requests or 24, 192), 192
        slots_tried, rows_tried = (64,), (64, 128)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    engines = {s: make_engine(model, tokenizer, max_tokens, s) for s in slots_tried}
    ours = {s: (lambda seed, e=e: run_engine(e, problems, seed)) for s, e in engines.items()}
    theirs = {r: make_generate(model, tokenizer, problems, r) for r in rows_tried}
    few = problems[:8]
    run_engine(engines[slots_tried[0]], few, 1000)
    make_generate(model, tokenizer, few, 64)(0)
    slots, rows = (best(ours) if len(ours) > 1 else slots_tried[0]), best(theirs)
    pairs, lengths = [], []
    for i in range(1, rounds + 1):
        mine, lengths = speed(ours[slots], i)
        other, _ = speed(theirs[rows], i)
        pairs.append((mine, other))
        print(
            f"{name}: round {i}: engine {mine:,.0f} tokens/s, generate {other:,.0f}, ratio {mine / other:.2f}",
            flush=True,
        )
    variation = statistics.pstdev(lengths) / statistics.mean(lengths)
    return {
        "model": folder.name,
        "dtype": "float32",
        "requests": len(problems),
        "group": GROUP,
        "mean_length": round(statistics.mean(lengths), 2),
        "length_cv": round(variation, 3),
        "engine_slots": slots,
        "generate_batch": rows,
        "engine_tokens_per_s": [round(a, 1) for a, _ in pairs],
        "generate_tokens_per_s": [round(b, 1) for _, b in pairs],
        "ratio": round(statistics.median(a / b for a, b in pairs), 3),
        "ratios": [round(a / b, 3) for a, b in pairs],
        "bar": 1.5 if name == "tiny" else 1.1,
    }


def scan(rounds: int) -> list[dict[str, Any]]:
    """Tokens/s of the engine on the tiny model, by threads and slots: medians of interleaved rounds."""
    problems = tiny_problems(192, 32)
    tokenizer, model = AutoTokenizer.from_pretrained(TINY), AutoModelForCausalLM.from_pretrained(TINY).eval()
    settings = [(t, s) for t in range(1, cores() + 1) for s in (64, 128, 256, 512)]
    engines = {s: make_engine(model, tokenizer, 32, s) for _, s in settings}
    found: dict[tuple[int, int], list[float]] = {k: [] for k in settings}
    for i in range(rounds + 1):
        for threads, slots in settings:
            torch.set_num_threads(threads)
            rate, _ = speed(lambda seed, s=slots: run_engine(engines[s], problems, seed), i)
            if i:
                found[threads, slots].append(rate)
    rows = [{"threads": t, "slots": s, "tokens_per_s": round(statistics.median(v))} for (t, s), v in found.items()]
    for row in rows:
        print(row)
    return rows


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> dict[str, Any]:
    name = platform.processor()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), name)
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    return {"cpu": name, "cores": cores(), "threads": torch.get_num_threads(), "load": os.getloadavg()[0], **versions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["tiny", "smollm2"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, help="requests per round; default: 128 tiny, 24 SmolLM2")
    parser.add_argument("--threads", type=int, default=cores(), help="torch threads, for both sides")
    parser.add_argument("--scan", action="store_true", help="only the engine, by threads and slots")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "decode.json")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    result = json.loads(args.out.read_text()) if args.out.exists() else {}
    if args.scan:
        result["tiny_scan"] = {"machine": machine(), "rows": scan(args.rounds)}
    else:
        for name in [args.only] if args.only else ["tiny", "smollm2"]:
            result[name] = {"machine": machine(), **compare(name, args.rounds, args.requests)}
            print(f"{name}: ratio {result[name]['ratio']} (bar {result[name]['bar']})")
    args.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
