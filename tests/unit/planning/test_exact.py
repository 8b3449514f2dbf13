"""Exact objectives: E[g]/∇p is the chosen one to 1e-9, in the stages that a run really uses."""

import numpy as np
import pytest

from gumption.allocation.base import ChainAllocator, Decision
from gumption.config import RunConfig
from gumption.credit import make_credit
from gumption.planning.enumeration import OneProblem
from gumption.planning.exact import ExactStage, make_stages, published_rule, solution_of, solve_rule
from gumption.selection import All, Leverage
from gumption.testing import group_credit_of, scored_group
from gumption.types import Selection

P = np.array([0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])


def max_rl(p_P, order):
    return (1 - (1 - p_P) ** order) / p_P


@pytest.mark.parametrize("selection", ["all", "leverage"])
@pytest.mark.parametrize("order", [1, 12])
def test_the_gradient_is_the_objectives(rules, rule_name, selection, order):
    """E[g]/∇p over its target is constant. With 8 rollouts MaxRL goes to T = 8."""
    order = min(order, 8) if rule_name == "fixed 8" else order
    rule, solution = rules.exact_rule(rules.RULES[rule_name](selection), order)
    curve = rules.curve_with(rule, P)
    assert solution.order == order
    assert curve.w_P / solution.scale == pytest.approx(max_rl(P, order), rel=1e-9)
    assert (curve.error_P == 0).all()


def test_truncation_beyond_the_largest_chain_is_refused(rules):
    with pytest.raises(ValueError, match="truncation = 12 has no unbiased estimate from at most 8 rollouts: use 1 … 8"):
        solution_of(rules.fixed(8, credit={"objective": "max_rl", "truncation": 12}))


def test_log_likelihood_is_max_rl_of_all_rollouts(rules):
    solution = solution_of(rules.ngu(4, 3, credit={"objective": "log_likelihood"}))
    assert (solution.order, solution.largest) == (12, 12)
    assert solution.pairs == solution_of(rules.ngu(4, 3, credit={"objective": "max_rl"})).pairs


def test_the_default_recipe_can_have_every_objective():
    """16 attempts of 8 with coins, leverage ½: 128 equations."""
    for objective, order in (("expected_reward", 1), ("log_likelihood", 128)):
        assert solution_of(RunConfig.from_dict({"credit": {"objective": objective}})).order == order


def test_fixed_groups_have_advantages_of_rloos_size(rules):
    """At K = 1 of 4, all kept, the success's advantage is α·n/K; RLOO's is 1."""
    credit, _ = make_stages(rules.fixed(4, credit={"objective": "expected_reward"}))
    group = scored_group([1.0, 0.0, 0.0, 0.0])
    assert credit([group])[0].advantages_G[0] == pytest.approx(1.0, rel=0.02)
    published = make_credit(rules.fixed(4))([group])[0]
    assert credit([group])[0].leverage_G.tolist() == published.leverage_G.tolist()


def test_weights_keep_the_sum_of_each_class_whatever_is_kept(rules):
    config = rules.ngu(8, 3, "leverage", credit={"objective": "max_rl"})
    credit, selector = make_stages(config)
    table = solution_of(config).table()
    for successes in range(1, 8):
        group = scored_group([1.0] * successes + [0.0] * (8 - successes))
        credits = credit([group])
        [selection] = selector.select([group], credits, np.random.default_rng(0))
        a_J = selection.weights_J * credits[0].advantages_G[selection.indices_J]
        right_J = group.rewards_G[selection.indices_J] > 0
        alpha, beta = table[8, successes]
        assert (a_J[right_J].sum(), -a_J[~right_J].sum()) == pytest.approx((alpha, beta))
        kept = Leverage(0.5).select([group], [group_credit_of(group)], np.random.default_rng(0))[0]
        assert selection.indices_J.size == kept.indices_J.size


class OnlySolved(ChainAllocator):
    """Trains on groups without a failure."""

    rule = "only_solved"

    def _judge(self, chain, told):
        return Decision("accept" if chain.successes == chain.count else "drop", "test")


class Successes:
    """Keeps successes only."""

    def select(self, groups, credits, rng):
        kept = [np.flatnonzero(g.rewards_G > 0) for g in groups]
        return [Selection(k, np.ones(k.size), "successes") for k in kept]


def test_one_of_the_other_class_is_kept_where_no_solution_is_left(rules):
    rule = published_rule(rules.fixed(4))._replace(selector=Successes())
    exact, solution = rules.exact_rule(rule, 1)
    assert rules.curve_with(exact, P).w_P / solution.scale == pytest.approx(np.ones(10), rel=1e-9)
    group = scored_group([1.0, 1.0, 1.0, 0.0])
    seen = set()
    for seed in range(20):
        [selection] = exact.selector.select([group], exact.credit([group]), np.random.default_rng(seed))
        seen.add(tuple(selection.indices_J.tolist()))
        assert selection.reason == "successes_and_one"
    assert seen == {(0, 1, 2, 3)}


class HalfByChance:
    """Keeps each member with probability ½ and weight 2."""

    def select(self, groups, credits, rng):
        kept = [np.flatnonzero(rng.random(g.size) < 0.5) for g in groups]
        return [Selection(k, np.full(k.size, 2.0), "half") for k in kept]


def test_a_selector_that_weighs_its_picks_keeps_its_weights(rules):
    rule = published_rule(rules.fixed(4))
    stage = ExactStage(rule._replace(selector=HalfByChance()), solve_rule(rule, 1))
    group = scored_group([1.0, 0.0, 0.0, 0.0])
    [selection] = stage.select([group], stage.credit([group]), np.random.default_rng(3))
    assert (selection.weights_J == 2).all() and selection.reason == "half"


def test_stale_members_leave_their_coefficient_to_their_class(rules):
    config = rules.ngu(4, 3, credit={"objective": "expected_reward"})
    credit, _ = make_stages(config)
    full = scored_group([1.0] + [0.0] * 7)
    fresh = full.keep(np.array([True] + [False] * 4 + [True] * 3))
    alpha, beta = solution_of(config).table()[8, 1]
    for group, failures in ((full, 7), (fresh, 3)):
        advantages_G = credit([group])[0].advantages_G
        assert advantages_G[0] == pytest.approx(alpha)
        assert advantages_G[1:] == pytest.approx(np.full(failures, -beta / failures))
    alone = full.keep(np.arange(8) < 1)
    assert credit([alone])[0].advantages_G.tolist() == pytest.approx([alpha])


def test_counts_that_cannot_be_reached_take_the_nearest(rules):
    """A verifier error leaves 7 of 8 rollouts: as (8, 3), never an exception."""
    config = rules.fixed(8, credit={"objective": "expected_reward"})
    credit, _ = make_stages(config)
    seven = credit([scored_group([1.0] * 3 + [0.0] * 4)])[0].advantages_G
    assert seven[:3].sum() == pytest.approx(solution_of(config).table()[8, 3][0])


def test_groups_of_equal_rewards_train_nothing(rules):
    credit, selector = make_stages(rules.fixed(4, credit={"objective": "expected_reward"}))
    for reward in (0.0, 1.0):
        group = scored_group([reward] * 4)
        credits = credit([group])
        assert (credits[0].advantages_G == 0).all()
        [selection] = selector.select([group], credits, np.random.default_rng(0))
        assert selection.indices_J.size == 0 and selection.reason == "no_coefficient"
    assert selector.select([], [], np.random.default_rng(0)) == []


def test_graded_rewards_are_refused(rules):
    credit, _ = make_stages(rules.fixed(2, credit={"objective": "expected_reward"}))
    with pytest.raises(ValueError, match=r"0 or 1.*0\.5.*binarize_at"):
        credit([scored_group([0.5, 0.0])])


def test_as_published_is_the_plain_stages():
    credit, selector = make_stages(RunConfig())
    assert selector == Leverage(0.5)
    group = scored_group([1.0, 0.0])
    assert credit([group])[0].advantages_G.tolist() == make_credit(RunConfig())([group])[0].advantages_G.tolist()
    assert isinstance(make_stages(RunConfig.from_dict({"selection": {"rule": "all"}}))[1], All)


def test_a_selector_whose_share_moves_stays_exact(rules):
    """Coefficients solved for ℓ = ½; at any other share each class still has its sum."""
    config = rules.ngu(8, 3, "leverage", credit={"objective": "expected_reward"})
    for share in (0.2, 0.9):
        credit, selector = make_stages(config, Leverage(share))
        rule = published_rule(config)._replace(credit=credit, selector=selector)
        w_P = rules.curve_with(rule, P).w_P / solution_of(config).scale
        assert w_P == pytest.approx(np.ones(10), rel=1e-9)


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"credit": {"objective": "expected_reward"}, "allocation": {"max_attempts": "none"}}, "max_attempts"),
        ({"credit": {"objective": "max_rl", "advantage": "grpo"}, "allocation": {"rule": "fixed"}}, "leave out"),
        ({"credit": {"objective": "max_rl", "chain_max_rl": True}}, "leave out"),
        ({"credit": {"objective": "expected_reward", "truncation": 4}}, "truncation = 4"),
        ({"credit": {"truncation": 4}}, "needs credit.objective = 'max_rl'"),
        ({"credit": {"objective": "expected_reward"}, "rewards": {"overlong_buffer": 4}}, "overlong_buffer = 4"),
    ],
)
def test_nonsense_is_an_error_with_the_way_out(tables, words):
    with pytest.raises(ValueError, match=words):
        RunConfig.from_dict(tables)


def test_a_rule_with_too_many_paths_says_what_to_lower(rules, monkeypatch):
    from gumption.planning import enumeration

    monkeypatch.setattr(enumeration, "MAX_TOLD", 10)
    with pytest.raises(ValueError, match=r"lower allocation\.max_attempts or allocation\.group_size"):
        solve_rule(published_rule(rules.ngu(8, 5)), 1)


def test_a_rule_without_any_training_has_no_objective(rules):
    class Nothing:
        def select(self, groups, credits, rng):
            return [Selection(np.arange(0), np.ones(0), "nothing") for _ in groups]

    rule = published_rule(rules.fixed(1))._replace(selector=Nothing())
    with pytest.raises(ValueError, match="trains on nothing"):
        solve_rule(rule, 1)
    with pytest.raises(ValueError, match="no non-negative coefficients"):
        solve_rule(rule._replace(make_allocator=lambda: OnlySolved(OneProblem(), group_size=2)), 1)
