"""How completions are checked: verifiers by name, and the `Scorer` that shields the run from them.

verifier           what it accepts                                       where it runs
exact              the answer itself                                     here
math               an equal final answer (math-verify)                   here if plain numbers decide, else a worker
gym                what the reasoning-gym generator's score says         here if it compares text, else a worker
skill_chain        the right last state                                  here
manufactoria       a program that passes the tests                       here
scripted           what the scripted engine wrote                        here
module:function    what your function says (TRL's signature)             a worker
"""

from gumption.rewards.base import TRUSTED, VERIFIERS, hooks, make_verifier
from gumption.rewards.scorer import Scorer

__all__ = ["TRUSTED", "VERIFIERS", "Scorer", "hooks", "make_verifier"]
