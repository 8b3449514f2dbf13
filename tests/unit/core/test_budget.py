"""The clock of a budget stands still outside training."""

from gumption.budget import Budget
from gumption.config import BudgetConfig


def test_the_clock_runs_only_between_start_and_stop():
    now = [100.0]
    budget = Budget(BudgetConfig(wall=10.0), largest_request=8, wall_used=2.0, clock=lambda: now[0])
    now[0] += 50
    assert budget.wall == 2.0
    budget.start()
    now[0] += 3
    assert budget.wall == 5.0 and budget.reached(0) is None
    assert budget.stop() is True
    now[0] += 1000
    assert budget.wall == 5.0 and budget.stop() is False
    budget.start()
    now[0] += 5
    assert budget.reached(0) == "wall"


def test_the_rollout_limit_is_kept_in_whole_requests():
    budget = Budget(BudgetConfig(rollouts=50), largest_request=8)
    assert budget.may_ask(1000) == 43  # six requests of 8 cover 43
    budget.submitted = 40
    assert budget.may_ask(1000) == 3 and budget.may_ask(2) == 2  # one more request
    budget.submitted = 48
    assert budget.may_ask(1000) <= 0
