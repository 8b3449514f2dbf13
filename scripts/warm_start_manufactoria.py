"""Make the shipped `manufactoria` model and its two problem sets (some minutes on one core).

    python scripts/warm_start_manufactoria.py                 # everything, into src/gumption/data
    python scripts/warm_start_manufactoria.py --model-only    # stop after the warm start
    python scripts/warm_start_manufactoria.py --sets-only     # sample the model that is already there

1. Supervised warm start, stopped early, on the `warm_start` split of the small manufactoria: family i has frequency
   ∝ decay^i and long problems are rare, so that skills run from mastered to almost unseen.
2. Every problem of the `train` split, and of the `held_out` split, is sampled `--samples` times. Those numbers are
   shipped and decide a problem's bucket; 64 problems of each bucket are drawn.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tiny_model import make_model, make_tokenizer, sample, save_folder, warm_start
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast

from gumption.problems.manufactoria import mini
from gumption.problems.manufactoria.families import Parameters
from gumption.problems.manufactoria.rows import mini_row, problem_from_row
from gumption.randomness import generator, key
from gumption.rewards.manufactoria import ManufactoriaVerifier

log = logging.getLogger("warm_start_manufactoria")

DATA = Path(__file__).resolve().parents[1] / "src" / "gumption" / "data"
NAME = "manufactoria"
BUCKETS = {"extra_hard": (0.0, 0.02), "hard": (0.02, 0.1), "medium": (0.1, 0.5), "easy": (0.5, 0.96)}
PER_BUCKET = 64
MAX_TOKENS = 48
Task = tuple[str, Parameters]


class Examples:
    """Draws warm-start pairs: a family, then a problem of it with probability falling with its length."""

    def __init__(self, family_decay: float, length_decay: float) -> None:
        self._pairs: list[list[tuple[str, str]]] = []
        self._chances: list[np.ndarray] = []
        for family in mini.FAMILIES:
            tasks = [p for name, p in mini.members("warm_start") if name == family]
            sizes = [mini.size(p) for p in tasks]
            count = Counter(sizes)
            # Every length has its share, whatever the number of problems that have it.
            weights = np.array([length_decay**n / count[n] for n in sizes])
            self._pairs.append([(mini.prompt(family, p), mini.gold(family, p)) for p in tasks])
            self._chances.append(weights / weights.sum())
        shares = family_decay ** np.arange(len(mini.FAMILIES))
        self._shares = shares / shares.sum()

    def __call__(self, rng: np.random.Generator, n: int) -> list[tuple[str, str]]:
        """`n` pairs (prompt, program)."""
        pairs = []
        for family in rng.choice(len(self._shares), size=n, p=self._shares):
            at = rng.choice(len(self._pairs[family]), p=self._chances[family])
            pairs.append(self._pairs[family][at])
        return pairs


def count_successes(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, tasks: list[Task], n: int, seed: int
) -> np.ndarray:
    """How many of `n` sampled programs for each problem pass all of its tests."""
    start = time.perf_counter()
    problems = [problem_from_row(mini_row(family, p)) for family, p in tasks]
    texts = sample(model, tokenizer, [p.text for p in problems], n=n, max_tokens=MAX_TOKENS, seed=seed)
    sampled = time.perf_counter() - start
    verifier = ManufactoriaVerifier()
    counts = []
    for problem, row in zip(problems, texts, strict=True):
        values = {text: verifier.score(problem, text).value or 0.0 for text in set(row)}
        counts.append(round(sum(values[text] for text in row)))
    log.info(
        "%d problems × %d: mean %.3f, %.0f tokens/s, scored in %.1f s",
        len(tasks),
        n,
        np.mean(counts) / n,
        sum(len(t) + 1 for row in texts for t in row) / sampled,
        time.perf_counter() - start - sampled,
    )
    return np.array(counts)


def bucket(successes: int, n: int) -> str:
    """The bucket of a problem; "unsolved" and "saturated" are not shipped."""
    if successes == 0:
        return "unsolved"
    return next((name for name, (low, high) in BUCKETS.items() if low <= successes / n < high), "saturated")


def describe(tasks: list[Task], counts: np.ndarray, n: int) -> None:
    """Log the number of problems per bucket, for all and for each family."""
    names = [bucket(int(c), n) for c in counts]
    for family in ("all", *mini.FAMILIES):
        rows = [i for i, (name, _) in enumerate(tasks) if family in ("all", name)]
        found = Counter(names[i] for i in rows)
        shown = ", ".join(f"{k} {found[k]}" for k in ("unsolved", *BUCKETS, "saturated"))
        log.info("%-22s mean %.3f: %s", family, counts[rows].mean() / n, shown)


def make_the_model(args: argparse.Namespace) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Step 1."""
    tokenizer = make_tokenizer(list(mini.SYMBOLS), max_length=64)
    model = make_model(
        len(tokenizer), hidden=args.hidden, layers=args.layers, heads=4, max_positions=64, seed=args.seed
    )
    log.info("%d parameters", sum(p.numel() for p in model.parameters()))
    tasks = mini.members("train")
    probe = [tasks[i] for i in generator(args.seed, "warm_start/probe").permutation(len(tasks))[:150]]

    def look(step: int) -> None:
        if args.look_every and step % args.look_every == 0:
            log.info("step %d", step)
            describe(probe, count_successes(model, tokenizer, probe, 16, seed=step), 16)

    warm_start(
        model,
        tokenizer,
        Examples(args.family_decay, args.length_decay),
        steps=args.steps,
        batch_size=args.batch_size,
        learning_rate=args.learning_rate,
        seed=args.seed,
        on_step=look,
    )
    return model, tokenizer


def make_set(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, split: mini.Split, args: argparse.Namespace
) -> list[dict[str, object]]:
    """Step 2: 64 problems in each bucket, buckets interleaved so that any first part has all of them."""
    tasks = mini.members(split)
    counts = count_successes(model, tokenizer, tasks, args.samples, seed=key(args.seed, "warm_start/final", split) >> 1)
    describe(tasks, counts, args.samples)
    rng = generator(args.seed, "warm_start/draw", split)
    names = np.array([bucket(int(c), args.samples) for c in counts])
    columns = []
    for name in BUCKETS:
        found = np.flatnonzero(names == name)
        if len(found) < PER_BUCKET:
            raise SystemExit(f"{split}: only {len(found)} {name} problems")
        taken = rng.permutation(found)[:PER_BUCKET]
        log.info("%s %s: %d found, mean %.3f", split, name, len(found), counts[taken].mean() / args.samples)
        columns.append([shipped_row(*tasks[i], name, int(counts[i]), args.samples) for i in taken])
    return [row for together in zip(*columns, strict=True) for row in together]


def shipped_row(family: str, p: Parameters, name: str, successes: int, n: int) -> dict[str, object]:
    """One line of the shipped parquet files."""
    problem = problem_from_row(mini_row(family, p))
    return {
        "prompt": problem.prompt,
        "answer": json.dumps(problem.answer),
        "meta": json.dumps({**problem.meta, "bucket": name}),
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
    parser.add_argument("--steps", type=int, default=320)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--family-decay", type=float, default=0.8)
    parser.add_argument("--length-decay", type=float, default=0.8)
    parser.add_argument("--look-every", type=int, default=0, help="steps between looks at 150 problems; 0: never")
    parser.add_argument("--samples", type=int, default=160)
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
    for split, file in (("train", f"{NAME}.parquet"), ("held_out", f"{NAME}_held_out.parquet")):
        path = args.out / "problems" / file
        pq.write_table(pa.Table.from_pylist(make_set(model, tokenizer, split, args)), path, compression="zstd")
        log.info("wrote %s", path)


if __name__ == "__main__":
    main()
