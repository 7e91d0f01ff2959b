"""The number of intents that default fits use, where it is known; `benchmarks.papers.planted_intents` has more."""

from __future__ import annotations

import pytest

from benchmarks.papers.planted_intents import WORLDS, fitted
from ethogram.models.intents import AgentMarkov


@pytest.mark.slow
def test_a_default_fit_uses_both_intents_where_one_is_rare():
    """In 32 of 32 worlds of all kinds when this was written."""
    found = fitted(0, WORLDS["two, of which one has 4 % of the steps"])
    assert found["converged"] and found["used"] == 2 and found["hamming"] < 0.08


def test_stickiness_is_learned_unless_it_is_given():
    assert "stickiness" in AgentMarkov(16, 4).needed_sites()
    for given in (None, 0, 20.0):
        assert "stickiness" not in AgentMarkov(16, 4, stickiness=given).needed_sites()
