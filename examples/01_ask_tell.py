"""Never Give Up in a loop of your own: ask the allocator what to generate, tell it the rewards.

The "engine" below is a coin per problem. Put yours in its place; nothing else changes.

    python examples/01_ask_tell.py
"""

from collections import Counter

import numpy as np

from gumption.allocation import NeverGiveUp
from gumption.credit import group_credit
from gumption.testing import ListStream
from gumption.types import Attempt, Problem, Request, Verdict

RATES = {"easy": 0.97, "medium": 0.5, "hard": 0.02, "impossible": 0.0}
SLOTS = 64  # rollouts that may be generated at the same time
rng = np.random.default_rng(0)


def generate(request: Request, version: int) -> Attempt:
    """Your engine and your verifier: n rollouts of a problem, each with a reward."""
    rewards = (rng.random(request.n) < RATES[request.problem.id]).astype(float)
    return Attempt.empty(request, version=version, rewards=rewards.tolist())


def explain(verdict: Verdict) -> str:
    group = verdict.group
    credit = group_credit(group, advantage="chain")
    text = f"{group.problem.id:>10}: {group.count:3d} rollouts, {group.successes} right"
    text += f" → {verdict.kind} ({verdict.reason})"
    if verdict.train:
        text += f", a success is worth {credit.leverage_G.max():.1f} rollouts"
    return text


def main() -> None:
    problems = [Problem(name, f"a problem called {name}", "42", "exact") for name in RATES]
    allocator = NeverGiveUp(ListStream(problems, epochs=25), group_size=8, retry_probability=0.875, max_attempts=16)
    spent: Counter[str] = Counter()
    trained: Counter[str] = Counter()
    version = 0  # your trainer counts this up with every update
    while requests := allocator.ask(SLOTS):
        for request in requests:
            verdict = allocator.tell(generate(request, version), version)
            spent[request.problem.id] += request.n
            trained[request.problem.id] += verdict.group.size if verdict.train else 0
            if verdict.kind != "retry" and verdict.group.chain_id.visit == 0:
                print(explain(verdict))
    print("\n   problem  solved  rollouts  trained on")
    for name, rate in RATES.items():
        print(f"{name:>10}  {rate:6.2f}  {spent[name]:8d}  {trained[name]:10d}")


if __name__ == "__main__":
    main()
