"""Planning: what a configuration will do, before it is paid for.

What is optimised:

enumeration.py   every way in which a chain can end, by driving the real allocator, credit and selector
sampling.py      the same by simulation, where there are too many ways or the rule looks at the whole batch
objective.py     w(p), E[N](p), trained share, effective rollouts and variance per FLOP; the objective in words
caveats.py       where a configuration breaks the identity E[g] = w(p)·∇p
explanation.py   all of it for one recipe, as `gumption explain` prints it
polynomial.py    coefficients that make a rule estimate a chosen objective exactly
exact.py         these coefficients as credit and selection of a run

What it costs:

simulator.py     `pipeline.py` on a virtual clock
counting.py      the simulator's recorder: counters instead of rows
staleness.py     closed forms of the age of what is trained on
hardware.py      peaks of accelerators, with sources
speed.py         tokens per second of a generator and a trainer
screening.py     closed forms of what an allocation rule costs and brings
planner.py       searches a setting for a budget
"""

from __future__ import annotations

from gumption.planning.exact import make_stages

__all__ = ["make_stages"]
