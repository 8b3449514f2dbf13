"""One whole RL step (generation, scoring, update) against TRL's `GRPOTrainer`: same model, prompts, groups, lengths.

    python -m venv .venv-trl
    .venv-trl/bin/pip install torch==2.13.0
    .venv-trl/bin/pip install trl==1.16.0 -e ".[train]"
    .venv-trl/bin/python benchmarks/vs_trl.py                       # every case → benchmarks/results/vs_trl.json
    .venv-trl/bin/python benchmarks/vs_trl.py --only tiny --rounds 5

Both sides live in one process and alternate: TRL's `train()` runs, and after a block of its updates (four, or two of
SmolLM2) a callback runs as many of gumption's pipeline. Groups of 8, every rollout trained on (allocator `fixed`,
groups of equal rewards included, selection `all`), one pass, clipped loss, no KL, float32. TRL generates for a whole
block at once (`steps_per_generation`), which is faster than its default of one update, and gumption has as many
rollouts in flight. On the tiny model TRL is also tried with its default, and both sides with one torch thread and with
all, before the timed rounds; each gets its fastest. Cases:

- `tiny`: the shipped skill_chain model and task; completions end where the model ends them.
- `smollm2_equal`: SmolLM2-135M, every completion of 48 tokens (no end token).
- `smollm2_varied`: limits per group drawn log-uniformly from 8 … 96, the same draw for both sides.
- each again with leverage 0.5 on gumption's side: rollouts consumed per second, TRL still training on all.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import trl
from datasets import Dataset
from decode import cores, machine
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PrinterCallback,
    StoppingCriteria,
    StoppingCriteriaList,
    TrainerCallback,
)
from transformers.utils import logging as transformers_logging
from trl import GRPOConfig, GRPOTrainer

import gumption
from gumption.config import RunConfig
from gumption.ledger.writer import LedgerWriter
from gumption.problems import skill_chain
from gumption.rewards import make_verifier
from gumption.training.parts import Parts, build_parts
from gumption.types import Attempt

HERE = Path(__file__).parent
GROUP = 8
LEARNING_RATE = 1e-6
TINY = Path(gumption.__file__).parent / "data" / "models" / "skill_chain"
SMOLLM2 = HERE.parent / "models" / "SmolLM2-135M-Instruct"


@dataclass(frozen=True)
class Case:
    """One comparison."""

    name: str
    model: Path
    groups: int  # per update
    max_tokens: int
    in_flight: int
    bar: float
    updates: int = 4  # in one timed block
    shortest: int | None = None  # None: completions end by themselves; else limits from here to max_tokens

    @property
    def rollouts(self) -> int:
        """Rollouts in one timed block."""
        return self.updates * self.groups * GROUP


CASES = {
    c.name: c
    for c in (
        Case("tiny", TINY, groups=4, max_tokens=32, in_flight=128, bar=2.0),
        Case("smollm2_equal", SMOLLM2, groups=2, max_tokens=48, in_flight=32, bar=1.0, updates=2, shortest=48),
        Case("smollm2_varied", SMOLLM2, groups=2, max_tokens=96, in_flight=32, bar=1.2, updates=2, shortest=8),
    )
}


# -- problems and rewards, for both sides


def sums(size: int = 512) -> Iterator[dict[str, Any]]:
    """Prompts for SmolLM2 (a `module:` source)."""
    rng = np.random.default_rng(5)
    things = ["apples", "minutes", "pages", "coins", "trains", "letters"]
    for i in range(size):
        a, b, c = rng.integers(2, 90, 3).tolist()
        text = f"Tom has {a} {things[i % 6]}, buys {b} more and gives {c} away. How many are left? Explain each step."
        yield {"prompt": text, "answer": str(a + b - c)}


def parity(completions: list[Any], **_: Any) -> list[float]:
    """A reward that about half of any completions get: the task does not matter for the time of a step."""
    return [float(sum(map(ord, c if isinstance(c, str) else c[0]["content"])) % 2) for c in completions]


def limits(case: Case) -> Callable[[], int]:
    """Completion lengths, one per group, the same sequence for both sides."""
    rng = np.random.default_rng(17)
    low, high = np.log(case.shortest or case.max_tokens), np.log(case.max_tokens)
    return lambda: round(float(np.exp(rng.uniform(low, high))))


# -- gumption


class Ours:
    """gumption's pipeline, run a block at a time."""

    def __init__(self, case: Case, selection: str, folder: Path, threads: int) -> None:
        tiny = case.shortest is None
        config = RunConfig.from_dict(
            {
                "model": {"path": str(case.model)},
                "problems": {"source": "skill_chain" if tiny else "vs_trl:sums", "chat": not tiny},
                "rewards": {} if tiny else {"verifier": "vs_trl:parity"},
                "allocation": {"rule": "fixed", "group_size": GROUP, "drop_zero_variance": False},
                "selection": {"rule": selection, "share": 0.5},
                "credit": {"advantage": "grpo"},
                "rollouts": {"in_flight": case.in_flight, "max_tokens": case.max_tokens},
                "training": {"groups_per_update": case.groups, "learning_rate": LEARNING_RATE, "loss": "ppo_clip"},
                "budget": {"updates": 10**6},
            }
        )
        self.case, self.threads, self.trained, self.blocks = case, threads, 0, 0
        self.parts: Parts = build_parts(config, LedgerWriter(folder / "ledger", text="none"))
        if not tiny:
            engine: Any = self.parts.engine
            drawn: dict[Any, int] = {}
            draw = limits(case)

            def limit(request: Any, prompt_tokens: int) -> int:
                if request.chain_id not in drawn:
                    drawn[request.chain_id] = draw()
                return drawn[request.chain_id]

            engine.is_eos_V[:] = False
            engine.limit = limit
            poll = engine.poll

            def ended() -> list[Attempt]:
                attempts: list[Attempt] = poll()
                for attempt in attempts:  # its limit is where a completion ends: it is not cut short
                    attempt.finish_G = ("stop",) * attempt.n
                return attempts

            engine.poll = ended

    def block(self) -> float:
        """Rollouts consumed per second over one block of updates."""
        torch.set_num_threads(self.threads)
        start, updates = time.perf_counter(), 0
        while updates < self.case.updates:
            for result in self.parts.pipeline.cycle():
                updates += 1
                self.trained += len(result.flops_train_B)
        self.blocks += 1
        return self.case.rollouts / (time.perf_counter() - start)

    def shares(self) -> dict[str, float]:
        """What the blocks did: share of the rollouts trained on, mean completion length."""
        engine: Any = self.parts.engine
        generated = self.parts.pipeline.submitted - engine.in_flight
        return {
            "trained_share": round(self.trained / (self.blocks * self.case.rollouts), 3),
            "mean_length": round(engine.tokens_generated / max(1, generated), 1),
        }


# -- TRL


class RowLimits(StoppingCriteria):
    """Row r stops after `limits[r]` new tokens."""

    def __init__(self, limits: list[int], prompt: int) -> None:
        self.limits, self.prompt = torch.tensor(limits), prompt

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        return input_ids.shape[1] - self.prompt >= self.limits


def limit_generate(model: Any, case: Case, eos: int) -> None:
    """Give each group of rows the length that the case wants; TRL finds the end by the end token put there."""
    generate, draw = model.generate, limits(case)

    def limited(*args: Any, **kwargs: Any) -> torch.Tensor:
        kwargs["generation_config"].eos_token_id = None
        rows, prompt = kwargs["input_ids"].shape
        ends = [n for _ in range(rows // GROUP) for n in [draw()] * GROUP]
        out = generate(*args, stopping_criteria=StoppingCriteriaList([RowLimits(ends, prompt)]), **kwargs)
        new = out[:, prompt:]
        new[new == eos] = (eos + 1) % model.config.vocab_size
        for row, n in enumerate(ends):
            new[row, n - 1 :] = eos
        return out

    model.generate = limited


@dataclass
class Blocks(TrainerCallback):  # type: ignore[misc]
    """Times TRL's updates in blocks and calls `between` after each."""

    between: Callable[[int, float], None]
    case: Case
    threads: Callable[[int], int]
    block: int = 0
    start: float = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self.case.updates == 0:
            torch.set_num_threads(self.threads(self.block))
            self.start = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self.case.updates == 0:
            self.between(self.block, self.case.rollouts / (time.perf_counter() - self.start))
            self.block += 1


def run_trl(
    case: Case, per_generation: int, blocks: int, threads: Callable[[int], int], between: Callable[[int, float], None]
) -> dict[str, float]:
    """TRL's training loop for so many blocks. Returns the mean completion length that it logged."""
    tokenizer = AutoTokenizer.from_pretrained(case.model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(case.model, dtype=torch.float32)
    if case.shortest is None:
        problems = {p.text: p for p in skill_chain.load_shipped()}
        rows = [{"prompt": text} for text in problems]
        verifier = make_verifier("skill_chain")

        def reward(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
            return [float(verifier.score(problems[p], c).value or 0) for p, c in zip(prompts, completions, strict=True)]
    else:
        rows = [{"prompt": [{"role": "user", "content": r["prompt"]}]} for r in sums()]
        reward = parity
        limit_generate(model, case, tokenizer.eos_token_id)
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=[reward],
            processing_class=tokenizer,
            train_dataset=Dataset.from_list(rows),
            callbacks=[Blocks(between, case, threads)],
            args=GRPOConfig(
                output_dir=folder, use_cpu=True, bf16=False, gradient_checkpointing=False,
                per_device_train_batch_size=case.groups * GROUP, steps_per_generation=per_generation,
                gradient_accumulation_steps=1, num_generations=GROUP, max_completion_length=case.max_tokens,
                temperature=1.0, top_k=0, top_p=1.0, beta=0.0, learning_rate=LEARNING_RATE,
                max_steps=blocks * case.updates, logging_steps=case.updates,
                save_strategy="no", report_to=[], disable_tqdm=True,
            ),
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    logged = [h["completions/mean_length"] for h in trainer.state.log_history if "completions/mean_length" in h]
    return {"mean_length": round(statistics.mean(logged), 1)}


# -- the comparison


def settings(case: Case, cores: int) -> tuple[int, dict[str, int]]:
    """TRL's updates per generation, and each side's threads: the fastest of short trials, by medians."""
    if case.shortest is not None:
        return case.updates, {"gumption": cores, "trl": cores}
    use = [n for _ in range(5) for n in sorted({1, cores})]
    tried: dict[tuple[int, int], list[float]] = {}
    for per_generation in (1, case.updates):

        def keep(block: int, rate: float, k: int = per_generation) -> None:
            if block:  # the first one warms up
                tried.setdefault((k, use[block - 1]), []).append(rate)

        run_trl(case, per_generation, 1 + len(use), lambda b: use[max(0, b - 1)], keep)
    per_generation, threads = max(tried, key=lambda k: statistics.median(tried[k]))
    mine: dict[int, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        ours = Ours(case, "all", Path(folder), cores)
        ours.block()
        for ours.threads in use:
            mine.setdefault(ours.threads, []).append(ours.block())
    return per_generation, {"gumption": max(mine, key=lambda n: statistics.median(mine[n])), "trl": threads}


def compare(case: Case, rounds: int, cores: int) -> dict[str, Any]:
    """Alternating blocks of TRL, gumption, and gumption with leverage 0.5."""
    per_generation, threads = settings(case, cores)
    print(f"{case.name}: TRL generates for {per_generation} updates at a time; threads {threads}", flush=True)
    rates: dict[str, list[float]] = {"trl": [], "all": [], "leverage": []}
    with tempfile.TemporaryDirectory() as folder:
        ours = {s: Ours(case, s, Path(folder) / s, threads["gumption"]) for s in ("all", "leverage")}

        def between(block: int, trl: float) -> None:
            mine = {name: side.block() for name, side in ours.items()}
            if block == 0:  # warm-up of all three
                return
            for name, rate in {"trl": trl, **mine}.items():
                rates[name].append(rate)
            text = ", ".join(f"{k} {v[-1]:.2f}" for k, v in rates.items())
            print(f"{case.name}: round {block}: rollouts/s: {text}; ratio {mine['all'] / trl:.2f}", flush=True)

        theirs = run_trl(case, per_generation, rounds + 1, lambda _: threads["trl"], between)
        did = {name: side.shares() for name, side in ours.items()}
    ratios = {
        name: [round(a / b, 3) for a, b in zip(rates[name], rates["trl"], strict=True)] for name in ("all", "leverage")
    }
    return {
        "model": case.model.name,
        "group": GROUP,
        "rollouts_per_update": case.groups * GROUP,
        "in_flight": case.in_flight,
        "trl_updates_per_generation": per_generation,
        "threads": threads,
        "rollouts_per_s": {k: [round(x, 3) for x in v] for k, v in rates.items()},
        "ratios": ratios,
        "ratio": statistics.median(ratios["all"]),
        "ratio_leverage": statistics.median(ratios["leverage"]),
        "bar": case.bar,
        "trl": theirs,
        **did,
        "length_cv": None if case.shortest is None else round(variation(case), 3),
    }


def variation(case: Case) -> float:
    """Coefficient of variation of the lengths that a case draws."""
    draw = limits(case)
    lengths = [draw() for _ in range(10_000)]
    return statistics.pstdev(lengths) / statistics.mean(lengths)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(CASES))
    parser.add_argument("--rounds", type=int, help="timed blocks; default: 20 tiny, 3 SmolLM2")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "vs_trl.json")
    args = parser.parse_args()
    transformers_logging.set_verbosity_error()
    result = json.loads(args.out.read_text()) if args.out.exists() else {}
    for name in [args.only] if args.only else list(CASES):
        case = CASES[name]
        found = compare(case, args.rounds or (20 if case.shortest is None else 3), cores())
        result[name] = {"machine": machine(), "trl_version": trl.__version__, **found}
        args.out.write_text(json.dumps(result, indent=2) + "\n")
        print(f"{name}: ratio {found['ratio']} (bar {case.bar}), with leverage 0.5 {found['ratio_leverage']}")


if __name__ == "__main__":
    main()
