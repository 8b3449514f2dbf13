"""Rules that the planning tests share."""

from types import SimpleNamespace
from typing import ClassVar, final

import pytest

from gumption.allocation.base import ChainAllocator, Decision
from gumption.config import RunConfig
from gumption.credit import make_credit
from gumption.planning.enumeration import OneProblem, Rule, enumerate_chains, with_sums
from gumption.planning.exact import ExactStage, Solution, published_rule, solve_rule
from gumption.planning.objective import Curve, curve_of
from gumption.selection import All, Leverage


@final
class UntilMixed(ChainAllocator):
    """Rounds until the chain holds both classes, at most `rounds`; equal ones are dropped."""

    rule: ClassVar[str] = "until_mixed"

    def __init__(self, stream, *, rounds=3, **shared):
        super().__init__(stream, **shared)
        self.rounds = rounds

    def _judge(self, chain, told):
        if 0 < chain.successes < chain.count:
            return Decision("accept", "mixed", counts=True)
        if chain.attempts >= self.rounds:
            return Decision("drop", "all_equal")
        return Decision("retry", "all_equal")


def config(**tables):
    return RunConfig.from_dict(tables)


def fixed(n, selection="all", share=0.5, **tables):
    chosen = {"rule": selection} | ({"share": share} if selection == "leverage" else {})
    return config(allocation={"rule": "fixed", "group_size": n}, selection=chosen, **tables)


def ngu(size, attempts, selection="all", *, retry=1.0, **tables):
    allocation = {"rule": "never_give_up", "group_size": size, "retry_probability": retry, "max_attempts": attempts}
    return config(allocation=allocation, selection={"rule": selection}, **tables)


def until_mixed(selection="all"):
    credit = make_credit(config(allocation={"rule": "fixed"}))
    selector = All() if selection == "all" else Leverage(0.5)
    return Rule(lambda: UntilMixed(OneProblem(), group_size=4, max_age=-1), credit, selector)


def exact_rule(rule: Rule, order: int | None) -> tuple[Rule, Solution]:
    """The rule with the coefficients of an exact objective."""
    solution = solve_rule(rule, order)
    stage = ExactStage(rule, solution)
    return rule._replace(credit=stage.credit, selector=stage), solution


def curve_with(rule: Rule, p_P) -> Curve:
    return curve_of(with_sums(rule, enumerate_chains(rule)), p_P)


RULES = {
    "fixed 8": lambda selection: published_rule(fixed(8, selection)),
    "fixed 16": lambda selection: published_rule(fixed(16, selection)),
    "rounds of 4, cap 12, one success": lambda selection: published_rule(ngu(4, 3, selection)),
    "rounds of 4, cap 12, both classes": until_mixed,
    "NGU, retry 1, three attempts": lambda selection: published_rule(ngu(8, 3, selection)),
}
"""The rules on which exact objectives are held to their bar, by selection."""


@pytest.fixture(scope="session")
def rules():
    return SimpleNamespace(
        RULES=RULES, config=config, fixed=fixed, ngu=ngu, until_mixed=until_mixed, exact_rule=exact_rule,
        curve_with=curve_with,
    )  # fmt: skip


@pytest.fixture(params=RULES)
def rule_name(request):
    return request.param
