"""Planning: what a configuration will do, before it is paid for.

enumeration.py   every way in which a chain can end, by driving the real allocator, credit and selector
sampling.py      the same by simulation, where there are too many ways or the rule looks at the whole batch
objective.py     w(p), E[N](p), trained share, effective rollouts and variance per FLOP; the objective in words
caveats.py       where a configuration breaks the identity E[g] = w(p)·∇p
explanation.py   all of it for one recipe, as `gumption explain` prints it
polynomial.py    coefficients that make a rule estimate a chosen objective exactly
exact.py         these coefficients as credit and selection of a run
"""

from __future__ import annotations

from gumption.planning.exact import make_stages

__all__ = ["make_stages"]
