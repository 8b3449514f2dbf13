"""Make the shipped `skill_chain` model and its two problem sets (about a quarter of an hour on one core).

    python scripts/warm_start_skill_chain.py                 # everything, into src/gumption/data
    python scripts/warm_start_skill_chain.py --model-only    # stop after the warm start
    python scripts/warm_start_skill_chain.py --sets-only     # sample the model that is already there

1. Supervised warm start, stopped early, on prompts of the `warm_start` split: operation i has frequency ∝ 0.8^i, so
   that skills run from mastered to almost unseen; depth 1–3 in 85 %, 4–6 in 15 %.
2. A pool of random problems (depth and operations uniform) of the `train` split, and one of the `held_out` split, each
   sampled `--pool-samples` times.
3. Candidates near each bucket are sampled `--samples` times afresh. Those numbers, not the pool's, are shipped and
   decide the bucket; of the candidates that fall into a bucket, 64 are drawn.
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
from tiny_model import make_model, make_tokenizer, sample, save_folder, warm_start
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast

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

log = logging.getLogger("warm_start_skill_chain")

DATA = Path(__file__).resolve().parents[1] / "src" / "gumption" / "data"
DEPTH_WEIGHTS = (0.85 / 3,) * 3 + (0.15 / 3,) * 3
FREQUENCY_DECAY = 0.8
EDGES = (0.0, 0.02, 0.1, 0.5, 0.96)
PER_BUCKET = 64
MAX_TOKENS = 3 * MAX_DEPTH + 2
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
    texts = sample(model, tokenizer, prompts, n=n, max_tokens=MAX_TOKENS, seed=seed)
    gold = [solve(p) for p in prompts]
    counts = np.array(
        [sum(len(t) == len(g) and t[-3:] == g[-3:] for t in row) for row, g in zip(texts, gold, strict=True)]
    )
    tokens = sum(len(t) + 1 for row in texts for t in row)
    seconds = time.perf_counter() - start
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


def bucket_indices(counts: np.ndarray, n: int, *, slack: float = 1.0) -> list[np.ndarray]:
    """Indices of the problems in each bucket; with `slack` > 1, of those that could be in it."""
    rates = counts / n
    chosen = []
    for name, low, high in zip(BUCKETS, EDGES[:-1], EDGES[1:], strict=True):
        above = rates > 0 if name == "extra_hard" else rates >= low / slack
        chosen.append(np.flatnonzero(above & (rates < high * slack)))
    return chosen


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
    for indices in bucket_indices(rough, args.pool_samples):
        wanted.update(rng.permutation(indices)[: args.candidates].tolist())
    candidates = [pool[i] for i in sorted(wanted)]
    counts = count_successes(
        model, tokenizer, candidates, args.samples, seed=key(args.seed, "warm_start/final", split_name) >> 1
    )
    columns: list[list[dict[str, object]]] = []
    for name, indices in zip(BUCKETS, bucket_indices(counts, args.samples), strict=True):
        if len(indices) < PER_BUCKET:
            raise SystemExit(f"{split_name}: only {len(indices)} {name} problems; raise --pool or --candidates")
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
    parser.add_argument("--pool", type=int, default=2000, help="random problems per set")
    parser.add_argument("--pool-samples", type=int, default=48)
    parser.add_argument("--candidates", type=int, default=110, help="per bucket, sampled again")
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
