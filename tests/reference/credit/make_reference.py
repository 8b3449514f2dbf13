"""Makes `reference.json`: credit values from slow scalar loops and independent packages. Imports nothing of gumption.

    python tests/reference/credit/make_reference.py

Advantages: `fractions` and `statistics`, one member at a time. Entropies: `scipy.stats.entropy`. Beta posteriors:
numerical integration of the density (`scipy.integrate.quad`). Estimators under sampling: exact sums over outcomes.
"""

import json
import math
import statistics
from fractions import Fraction
from pathlib import Path

from scipy import integrate, stats

REWARDS = [
    [1, 0, 0, 0],
    [1, 1, 1, 0],
    [1, 0.6, 0.5, 0.2, 0, 0],
    [0.25, 0.75],
    [0, 0, 0, 0, 0, 0, 0, 1],
    [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7],
    [1] * 9 + [0] * 7,
]
CHAINS = [  # rewards trained on, rollouts of all attempts, their reward sum, mean reward of the accepted attempt
    ([0] * 15 + [1], 32, 1, 0.125),
    ([1, 1, 0, 0, 0, 0], 40, 2, 0.25),
    ([1, 0.6, 0.5, 0.2, 0, 0], 10, 5, 0.4),
    ([1, 0.6, 0.5, 0.2, 0, 0], 20, 4, 0.4),
    ([0.5, 0.2], 4, 2.7, 0.35),
    ([1] * 8, 32, 8, 1.0),
]
BETAS = [(1, 1), (3, 7), (0.5, 0.5), (30, 70), (2, 40)]
RATES = [0.02, 0.05, 0.1, 0.3, 0.5, 0.9]


def group_advantages(rewards):
    exact = [Fraction(r).limit_denominator(1000) for r in rewards]
    size, total = len(exact), sum(exact)
    mean = total / size
    std = statistics.pstdev(float(r) for r in exact)
    return {
        "centered": [float(r - mean) for r in exact],
        "dr_grpo": [float(r - mean) for r in exact],
        "rloo": [float(r - (total - r) / (size - 1)) for r in exact],
        "grpo": [float(r - mean) / (std + 1e-6) for r in exact],
        "max_rl": [float((r - mean) / mean) for r in exact],
    }


def chain_advantages(rewards, count, reward_sum, attempt_rate):
    exact = [Fraction(r).limit_denominator(1000) for r in rewards]
    baseline = Fraction(reward_sum).limit_denominator(1000) / count
    raw = [r - baseline for r in exact]
    best = max(exact)
    top = sum(a for r, a in zip(exact, raw, strict=True) if r == best)
    rest = sum(a for r, a in zip(exact, raw, strict=True) if r != best)
    factor = -top / rest if top > 0 and rest < 0 else Fraction(1)
    constant = min(exact) == best
    anchored = [a if r == best else a * factor for r, a in zip(exact, raw, strict=True)]
    scale = Fraction(1) if constant else Fraction(len(exact), count)
    divisor = 1.0 if constant else float(baseline) + 1e-8
    return {
        "none": [float(a) for a in raw],
        "anchor_pos": [float(a) for a in anchored],
        "ratio": [float(a * scale) for a in raw],
        "count_ratio": [float(a) / divisor for a in raw],
        "max_rl": [float(a) / attempt_rate for a in anchored],
    }


def entropy(p):
    return float(stats.entropy([p, 1 - p], base=2))


def beta_numbers(a, b):
    """Everything by quadrature over the density of Beta(a, b)."""

    def mean_of(f, x, y):
        return integrate.quad(lambda t: f(t) * stats.beta.pdf(t, x, y), 0, 1, epsabs=1e-11, epsrel=1e-11, limit=400)[0]

    def divergence(x, y):
        """KL(Beta(x, y) ‖ Beta(a, b)) in bits."""
        return mean_of(lambda t: math.log2(stats.beta.pdf(t, x, y) / stats.beta.pdf(t, a, b)), x, y)

    m = mean_of(lambda t: t, a, b)
    success, failure = divergence(a + 1, b), divergence(a, b + 1)
    return {
        "expected_entropy": mean_of(entropy, a, b),
        "success": success,
        "failure": failure,
        "pass_rate_information": m * success + (1 - m) * failure,
    }


def binomial_mean(f, p, n):
    return math.fsum(math.comb(n, k) * p**k * (1 - p) ** (n - k) * f(k) for k in range(n + 1))


def miller_madow(p, n):
    return binomial_mean(lambda k: entropy(k / n) + (1 / (2 * math.log(2) * n) if 0 < k < n else 0), p, n)


def noisy_information(p, error):
    """Mutual information of truth and report from their joint table."""
    joint = {(1, 1): p * (1 - error), (1, 0): p * error, (0, 1): (1 - p) * error, (0, 0): (1 - p) * (1 - error)}
    truth = {t: joint[t, 0] + joint[t, 1] for t in (0, 1)}
    report = {r: joint[0, r] + joint[1, r] for r in (0, 1)}
    return sum(v * math.log2(v / (truth[t] * report[r])) for (t, r), v in joint.items() if v > 0)


def main():
    reference = {
        "group": [{"rewards": r, "advantages": group_advantages(r)} for r in REWARDS],
        "chain": [
            {"rewards": r, "count": n, "reward_sum": s, "attempt_rate": a, "advantages": chain_advantages(r, n, s, a)}
            for r, n, s, a in CHAINS
        ],
        "entropy": [[p, entropy(p)] for p in RATES],
        "histogram": [[r, float(stats.entropy([r.count(v) for v in set(r)], base=2))] for r in REWARDS],
        "beta": [{"a": a, "b": b, **beta_numbers(a, b)} for a, b in BETAS],
        "plug_in_at_half": [[n, binomial_mean(lambda k, n=n: entropy(k / n), 0.5, n)] for n in (4, 8, 16, 32)],
        "miller_madow": [[p, n, miller_madow(p, n)] for p in (0.02, 0.1, 0.5) for n in (4, 8, 16, 32)],
        "noisy": [[p, e, noisy_information(p, e)] for p in RATES for e in (0.0, 0.05, 0.2)],
        "first_success": [
            [p, math.fsum(p * (1 - p) ** (n - 1) / n for n in range(1, 4000))] for p in RATES
        ],
    }  # fmt: skip
    path = Path(__file__).with_name("reference.json")
    path.write_text(json.dumps(reference, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
