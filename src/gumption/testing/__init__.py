"""Public test tools: builders, fakes, and conformance suites for your own allocators, choosers, selectors and engines.

Subclass a suite in a test file and give it a `make` method; pytest runs every check against what it returns.
"""

from __future__ import annotations

from gumption.problems.scripted import load as scripted_problems
from gumption.rewards.scripted import ScriptedVerifier
from gumption.rollouts.scripted import ScriptedEngine, ScriptedTrainer, make_scripted
from gumption.testing.allocators import AllocatorTestCase
from gumption.testing.builders import ListStream, RewardLike, answer, attempt, problem
from gumption.testing.choosers import ChooserTestCase
from gumption.testing.conversation import Conversation, copy_state, summary
from gumption.testing.engines import EngineTestCase, check_attempt
from gumption.testing.selectors import SelectorTestCase, group_credit_of, scored_group

__all__ = [
    "AllocatorTestCase",
    "ChooserTestCase",
    "Conversation",
    "EngineTestCase",
    "ListStream",
    "RewardLike",
    "ScriptedEngine",
    "ScriptedTrainer",
    "ScriptedVerifier",
    "SelectorTestCase",
    "answer",
    "attempt",
    "check_attempt",
    "copy_state",
    "group_credit_of",
    "make_scripted",
    "problem",
    "scored_group",
    "scripted_problems",
    "summary",
]
