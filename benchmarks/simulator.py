"""How many rollouts per second of CPU time the simulator gets through, on one core.

    python benchmarks/simulator.py            # writes benchmarks/results/simulator.json

Bar: ≥ 20,000 rollouts/s. Several recipes, in alternating rounds; best and median round of each. Loading problems and
writing the summary are outside the clock. The best round is what the code can do, the median what a machine with other
work to do made of it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from pathlib import Path

import numpy as np

from gumption.config import RunConfig
from gumption.planning.simulator import _rare_collection, _Run, scripted_config

RESULT = Path(__file__).parent / "results" / "simulator.json"
SHARED = {
    "rollouts": {"in_flight": 512, "max_tokens": 2048},
    "training": {"queue_batches": 2},
    "simulation": {"size": 1000, "mean_length": 500, "length_cv": 0.5, "trainer_tokens_per_second": 50_000},
}
RECIPES = {
    "never_give_up 8, leverage .5": {"allocation": {"rule": "never_give_up"}, "groups": 32},
    "fixed 8, all": {"allocation": {"rule": "fixed"}, "selection": {"rule": "all"}, "groups": 32},
    "fixed 16, leverage .5": {"allocation": {"rule": "fixed", "group_size": 16}, "groups": 32},
    "dynamic 32, leverage .5": {"allocation": {"rule": "dynamic", "group_size": 32}, "groups": 24},
}


def run(recipe: dict[str, object], rollouts: int) -> float:
    """Rollouts per second of CPU time."""
    own = {k: v for k, v in recipe.items() if k != "groups"}
    training = {**SHARED["training"], "groups_per_update": recipe["groups"]}
    config = RunConfig.from_dict({**SHARED, **own, "training": training, "budget": {"rollouts": rollouts}})
    simulation = _Run(scripted_config(config))
    start = time.process_time()
    with _rare_collection():
        simulation.loop()
    return simulation.pipeline.submitted / (time.process_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rollouts", type=int, default=8_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--out", type=Path, default=RESULT)
    args = parser.parse_args()
    speeds: dict[str, list[float]] = {name: [] for name in RECIPES}
    for _ in range(args.rounds):
        for name, recipe in RECIPES.items():
            speeds[name].append(run(recipe, args.rollouts))
    result = {
        "claim": "≥ 20,000 simulated rollouts per second on one core",
        "command": f"python benchmarks/simulator.py --rollouts {args.rollouts} --rounds {args.rounds}",
        "machine": {
            "cores": os.cpu_count(),
            "load_average": [round(x, 1) for x in os.getloadavg()],
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        "rollouts_per_cpu_second": {
            name: {"best": round(max(s)), "median": round(statistics.median(s))} for name, s in speeds.items()
        },
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    print(json.dumps(result, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
