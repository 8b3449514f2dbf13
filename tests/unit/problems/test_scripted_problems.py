"""Scripted problems: difficulties as asked for, reproducible, readable errors."""

import numpy as np
import pytest

from gumption.config import ProblemsConfig
from gumption.problems.scripted import MIXTURE, load
from gumption.rewards.scripted import ScriptedVerifier
from gumption.testing import problem


def rates(argument, *, size=None, seed=0, held_out=False):
    problems = load(ProblemsConfig(size=size), argument=argument, seed=seed, held_out=held_out)
    assert len({p.id for p in problems}) == len(problems)
    assert all(p.verifier == "scripted" for p in problems)
    return [p.answer["pass_rate"] for p in problems]


@pytest.mark.parametrize("argument", ["0.1,0.9", " 0.1 , 0.9 "])
def test_explicit_list(argument):
    assert rates(argument) == [0.1, 0.9]
    assert rates(argument, size=5) == [0.1, 0.9, 0.1, 0.9, 0.1]


@pytest.mark.parametrize("argument", ["", "mixture"])
def test_mixture_has_its_shares(argument):
    drawn = np.array(rates(argument, size=1000))
    assert sum(share for _, _, share in MIXTURE) == pytest.approx(1)
    for low, high, share in MIXTURE:
        inside = (drawn == 0) if high == 0 else (drawn >= low - 1e-12) & (drawn < high)
        assert inside.sum() == pytest.approx(1000 * share, abs=1)


def test_beta_has_its_mean():
    """Beta(.3, 1.2): mean .2, standard deviation .253; |z| < 4.5 over 4,000 draws."""
    drawn = np.array(rates("beta(0.3, 1.2)", size=4000))
    assert abs(drawn.mean() - 0.2) < 4.5 * 0.253 / np.sqrt(4000)
    assert ((drawn >= 0) & (drawn <= 1)).all()


def test_default_size_and_seeds():
    reference = rates("beta(1,1)")
    assert len(reference) == 512 and rates("beta(1,1)") == reference
    assert rates("beta(1,1)", seed=1) != reference
    assert rates("beta(1,1)", held_out=True) != reference


def test_held_out_problems_have_other_ids():
    train, held_out = (load(ProblemsConfig(size=9), argument="0.5", seed=0, held_out=h) for h in (False, True))
    assert not {p.id for p in train} & {p.id for p in held_out}


@pytest.mark.parametrize("argument", ["beta(0,1)", "beta(1)", "1.5", "0.1;0.2", "-0.1", "gamma(1,2)", "0.1,,"])
def test_unreadable_arguments(argument):
    with pytest.raises(ValueError, match="scripted problems"):
        rates(argument)


def test_verifier_reads_the_score():
    verifier = ScriptedVerifier()
    values = [verifier.score(problem(), text).value for text in ("1", "0", "0.5", "", "x", "2", "-1", "nan", "inf")]
    assert values == [1.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
