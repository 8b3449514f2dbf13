"""Runs a recipe for real and keeps what it did: summary, machine, and whether the same seed gives the same ledger.

    python benchmarks/recipe.py recipes/skill_chain.toml --repeat 2 --seeds 0 1 2
    python benchmarks/recipe.py recipes/manufactoria_tiny.toml
    python benchmarks/recipe.py recipes/smollm2_arithmetic.toml

Result: benchmarks/results/<recipe>.json. `wall_s.total` is the training loop, `command_s` everything from the
first import to the written report.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gumption.ledger import Ledger

HERE = Path(__file__).parent


def machine() -> dict[str, str | int]:
    """Where the numbers were measured."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        cpu = names[0] if names else cpu
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "python": platform.python_version()}


def fingerprint(folder: Path) -> str:
    """Hash of the rollout rows without wall times."""
    rows = Ledger(folder).rollouts().drop("wall").sort("problem_id", "visit", "attempt", "member", "fate")
    buffer = io.BytesIO()
    rows.rechunk().write_ipc(buffer)
    return hashlib.sha256(buffer.getvalue()).hexdigest()


def run(recipe: Path, seed: int, settings: list[str], folder: Path) -> tuple[dict, str]:
    begin = time.perf_counter()
    command = [sys.executable, "-m", "gumption.cli.main", "train", str(recipe), "--out", str(folder), "--json"]
    for item in [f"seed={seed}", *settings]:
        command += ["--set", item]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    summary = json.loads(done.stdout)
    summary.pop("folder")
    summary["command_s"] = round(time.perf_counter() - begin, 1)
    return summary, fingerprint(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--repeat", type=int, default=1, help="runs of the first seed; 2 tests determinism")
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="A.B=C")
    parser.add_argument("--keep", type=Path, help="keep the run folders here")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    out = args.out or HERE / "results" / f"{args.recipe.stem}.json"
    scratch = args.keep or Path(tempfile.mkdtemp(prefix="gumption-bench-"))
    result: dict = {"recipe": str(args.recipe), "settings": args.settings, "machine": machine(), "runs": []}
    for seed in args.seeds:
        prints = set()
        for k in range(args.repeat if seed == args.seeds[0] else 1):
            folder = scratch / f"{args.recipe.stem}-seed{seed}-{k}"
            summary, digest = run(args.recipe, seed, args.settings, folder)
            prints.add(digest)
            if k == 0:
                result["runs"].append({"seed": seed, "ledger_sha256": digest, **summary})
            if not args.keep:
                shutil.rmtree(folder)
        if seed == args.seeds[0] and args.repeat > 1:
            result["same_seed_same_ledger"] = len(prints) == 1
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=1) + "\n")
        rates = summary["pass_rate"]
        print(seed, {k: (round(v, 3), round(rates["after"].get(k, 0), 3)) for k, v in rates["before"].items()})
    print(f"wrote {out}", result.get("same_seed_same_ledger", ""))


if __name__ == "__main__":
    main()
