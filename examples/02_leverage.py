"""What leverage keeps: the fewer succeed, the fewer rollouts hold half of what a group can teach.

python examples/02_leverage.py
"""

import numpy as np

from gumption.credit import bits, group_credit
from gumption.selection import Leverage
from gumption.testing import scored_group

SIZE, SHARES = 32, (0.5, 0.9)
rng = np.random.default_rng(0)


def main() -> None:
    print(f"Groups of {SIZE}. Kept: successes + failures, for half and for nine tenths of the leverage.\n")
    print(" right   L(right)  L(wrong)  bits/rollout   kept for .5   kept for .9")
    for successes in (0, 1, 3, 8, 16, 24, 31, 32):
        rewards = [1.0] * successes + [0.0] * (SIZE - successes)
        group = scored_group(rewards)
        credit = group_credit(group, advantage="centered")
        kept = []
        for share in SHARES:
            [selection] = Leverage(share).select([group], [credit], rng)
            right = int(group.rewards_G[selection.indices_J].sum())
            kept.append(f"{right:2d} + {selection.indices_J.size - right:2d}")
        print(
            f"{successes:3d}/{SIZE}  {credit.leverage_G[0]:8.2f}  {credit.leverage_G[-1]:8.2f}"
            f"  {float(bits.group_entropy(successes, SIZE)):12.2f}   {kept[0]:>11}   {kept[1]:>11}"
        )
    print("\nA random half of a group would hold half of its leverage, and so be worth half of its rollouts.")


if __name__ == "__main__":
    main()
