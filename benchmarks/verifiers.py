"""Does the math verifier accept every gold answer of the shared problem files and reject every changed one?

    python benchmarks/verifiers.py [--data ../shared/data]

Writes counts (never data) to benchmarks/results/verifiers.json; exit code 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from gumption.config import ProblemsConfig, RewardsConfig
from gumption.problems import load_problems
from gumption.rewards.check import check

FILES = (
    "gsm8k_train.jsonl",
    "gsm8k_test.jsonl",
    "math_test.json",
    "aime_test.json",
    "amc_test.json",
    "deepscaler_aime_train.json",
)
HERE = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "verifiers.json")
    args = parser.parse_args()
    results, good = {}, True
    for name in FILES:
        problems = load_problems(ProblemsConfig(source=str(args.data / name)), seed=0)
        report = check(problems, RewardsConfig(workers=0))
        results[name] = {
            "problems": report.problems,
            "gold": report.gold,
            "changed": report.changed,
            "skipped": len(report.skipped),
            "bad_lines": [bad.where.rpartition(":")[2] for bad in report.bad],
        }
        good &= not report.bad and not report.skipped
        print(
            f"{name:28} {report.problems:6} gold {report.gold['accepted']:6} "
            f"changed rejected {report.changed['rejected']:6}"
        )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
