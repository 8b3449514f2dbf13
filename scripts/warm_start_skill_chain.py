"""Make the shipped `skill_chain` model and its two problem sets (about a quarter of an hour on one core).

    python scripts/warm_start_skill_chain.py                 # everything, into src/gumption/data
    python scripts/warm_start_skill_chain.py --model-only    # stop after the warm start
    python scripts/warm_start_skill_chain.py --sets-only     # sample the model that is already there

1. Supervised warm start, stopped early, on prompts of the `warm_start` split: operation i has frequency ∝ 0.8^i, so
   that skills run from mastered to almost unseen; depth 1–3 in 85 %, 4–6 in 15 %.
2. A pool of random problems (depth and operations uniform) of the `train` split, and one of the `held_out` split, each
   sampled `--pool-samples` times.
3. Those that the pool's samples solved at least once and place near a bucket are sampled `--samples` times afresh.
   The fresh numbers alone are shipped and decide the bucket; of the problems that fall into it, 64 are drawn.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tiny_model import make_model, make_tokenizer, save_folder, warm_start
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast

from gumption.config import RewardsConfig, RolloutsConfig
from gumption.problems.skill_chain import (
    BUCKETS,
    MAX_DEPTH,
    NAME,
    SYMBOLS,
    Split,
    draw_prompts,
    make_problem,
    solve,
)
from gumption.randomness import generator, key
from gumption.rewards import Scorer
from gumption.rollouts.engine import TorchEngine
from gumption.training.evaluate import evaluate
from gumption.training.model import model_shape

log = logging.getLogger("warm_start_skill_chain")

DATA = Path(__file__).resolve().parents[1] / "src" / "gumption" / "data"
DEPTH_WEIGHTS = (0.85 / 3,) * 3 + (0.15 / 3,) * 3
FREQUENCY_DECAY = 0.8
EDGES = (0.0, 0.02, 0.1, 0.5, 0.96)
PER_BUCKET = 64
# Which pool problems are sampled again for each bucket: wider than the bucket, since the pool's numbers are rough.
WINDOWS = ((0.0, 0.05, 150), (0.02, 0.13, 110), (0.08, 0.55, 110), (0.45, 0.98, 150))  # low, high, at most
MAX_TOKENS = 3 * MAX_DEPTH + 2
SLOTS = 512
Pair = tuple[str, str]


def draw_pairs(rng: np.random.Generator, n: int) -> list[Pair]:
    """Warm-start examples."""
    prompts = draw_prompts(
        rng, n, split_name="warm_start", depth_weights=DEPTH_WEIGHTS, frequency_decay=FREQUENCY_DECAY
    )
    return [(p, solve(p)) for p in prompts]


def count_successes(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, prompts: list[str], n: int, seed: int
) -> np.ndarray:
    """How many of `n` sampled completions of each prompt are right: exact length, last state equal to the gold one."""
    start = time.perf_counter()
    engine = TorchEngine(
        model,
        tokenizer,
        config=RolloutsConfig(max_tokens=MAX_TOKENS, in_flight=SLOTS),
        seed=seed,
        stage="warm_start",
        shape=model_shape(model),
    )
    scorer = Scorer(RewardsConfig(), max_tokens=MAX_TOKENS)
    rows = evaluate(engine, scorer, [make_problem(p) for p in prompts], n, visit=0)
    scorer.close()
    counts = np.array([r.successes for r in rows])
    tokens, seconds = engine.tokens_generated, time.perf_counter() - start
    log.info("%d problems × %d: mean %.3f, %.0f tokens/s", len(prompts), n, counts.mean() / n, tokens / seconds)
    return counts


def histogram(counts: np.ndarray, n: int) -> str:
    """Counts of pass rates, with unsolved and saturated problems apart."""
    rates = counts / n
    inside, _ = np.histogram(rates[rates > 0], bins=[*EDGES, 1.0 + 1e-9])
    names = [*BUCKETS, "saturated"]
    return ", ".join([f"unsolved {(counts == 0).sum()}", *(f"{k} {v}" for k, v in zip(names, inside, strict=True))])


def make_the_model(args: argparse.Namespace) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Step 1."""
    tokenizer = make_tokenizer(list(SYMBOLS), max_length=64)
    model = make_model(
        len(tokenizer), hidden=args.hidden, layers=args.layers, heads=4, max_positions=64, seed=args.seed
    )
    log.info("%d parameters", sum(p.numel() for p in model.parameters()))
    probe = draw_prompts(generator(args.seed, "warm_start/probe"), 300, split_name="train")

    def look(step: int) -> None:
        if args.look_every and step % args.look_every == 0:
            counts = count_successes(model, tokenizer, probe, 32, seed=step)
            log.info("step %d: %s", step, histogram(counts, 32))

    warm_start(
        model,
        tokenizer,
        draw_pairs,
        steps=args.steps,
        batch_size=args.batch_size,
        learning_rate=args.learning_rate,
        seed=args.seed,
        on_step=look,
    )
    return model, tokenizer


def between(counts: np.ndarray, n: int, low: float, high: float) -> np.ndarray:
    """Indices of the problems solved at least once with a pass rate in [low, high)."""
    return np.flatnonzero((counts > 0) & (counts / n >= low) & (counts / n < high))


def make_set(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, split_name: Split, args: argparse.Namespace
) -> list[dict[str, object]]:
    """Steps 2 and 3: 64 problems in each bucket, buckets interleaved so that any first part has all of them."""
    rng = generator(args.seed, "warm_start/pool", split_name)
    pool = list(dict.fromkeys(draw_prompts(rng, args.pool, split_name=split_name)))
    rough = count_successes(
        model, tokenizer, pool, args.pool_samples, seed=key(args.seed, "warm_start/rough", split_name) >> 1
    )
    log.info("%s pool: %s", split_name, histogram(rough, args.pool_samples))
    wanted: set[int] = set()
    for low, high, most in WINDOWS:
        wanted.update(rng.permutation(between(rough, args.pool_samples, low, high))[:most].tolist())
    candidates = [pool[i] for i in sorted(wanted)]
    counts = count_successes(
        model, tokenizer, candidates, args.samples, seed=key(args.seed, "warm_start/final", split_name) >> 1
    )
    columns: list[list[dict[str, object]]] = []
    for name, low, high in zip(BUCKETS, EDGES[:-1], EDGES[1:], strict=True):
        indices = between(counts, args.samples, low, high)
        if len(indices) < PER_BUCKET:
            raise SystemExit(f"{split_name}: only {len(indices)} {name} problems; raise --pool")
        taken = rng.permutation(indices)[:PER_BUCKET]
        log.info("%s %s: %d candidates, mean %.3f", split_name, name, len(indices), counts[taken].mean() / args.samples)
        columns.append([row(candidates[i], int(counts[i]), args.samples, name) for i in taken])
    return [r for together in zip(*columns, strict=True) for r in together]


def row(prompt: str, successes: int, n: int, bucket: str) -> dict[str, object]:
    """One line of the shipped parquet files."""
    problem = make_problem(prompt)
    meta = {**problem.meta, "bucket": bucket}
    return {
        "prompt": prompt,
        "answer": problem.answer,
        "meta": json.dumps(meta, ensure_ascii=False),
        "n": n,
        "successes": successes,
    }


def parse() -> argparse.Namespace:
    """Command line; the defaults made the shipped files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=DATA, help="folder that gets models/ and problems/")
    parser.add_argument("--model-only", action="store_true")
    parser.add_argument("--sets-only", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--look-every", type=int, default=0, help="steps between looks at 300 problems; 0: never")
    parser.add_argument("--pool", type=int, default=2500, help="random problems per set")
    parser.add_argument("--pool-samples", type=int, default=48)
    parser.add_argument("--samples", type=int, default=256, help="fresh samples that decide the bucket")
    return parser.parse_args()


def main() -> None:
    """Run the steps."""
    args = parse()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    torch.set_num_threads(1)
    folder = args.out / "models" / NAME
    if not args.sets_only:
        model, tokenizer = make_the_model(args)
        log.info("wrote %s", save_folder(model, tokenizer, folder))
    if args.model_only:
        return
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    (args.out / "problems").mkdir(parents=True, exist_ok=True)
    for split_name, file in (("train", f"{NAME}.parquet"), ("held_out", f"{NAME}_held_out.parquet")):
        rows = make_set(model, tokenizer, split_name, args)
        path = args.out / "problems" / file
        pq.write_table(pa.Table.from_pylist(rows), path, compression="zstd")
        log.info("wrote %s", path)


if __name__ == "__main__":
    main()
