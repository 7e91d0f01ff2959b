"""The examples in docstrings of the front door's objects run, and print what they say."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

MODULES = (
    "ethogram",
    "ethogram.inference.alignment",
    "ethogram.inference.assignment",
    "ethogram.inference.conjugate_svi",
    "ethogram.inference.intent_errors",
    "ethogram.inference.max_entropy",
    "ethogram.inference.linear_reward",
    "ethogram.inference.px_da",
    "ethogram.inference.reward_guide",
    "ethogram.inference.reward_posterior",
    "ethogram.inference.step_sizes",
    "ethogram.domains.gridworld5",
    "ethogram.domains.highway",
    "ethogram.domains.labyrinth",
    "ethogram.domains.line_world",
    "ethogram.domains.rust_bus",
    "ethogram.domains.tetris",
    "ethogram.domains.tetris_pieces",
    "ethogram.domains.tetris_records",
    "ethogram.domains.objectworld",
    "ethogram.domains.toy_chain",
    "ethogram.domains.toy_mdps",
    "ethogram.domains.toy_text",
    "ethogram.models.agent_markov",
    "ethogram.models.agents.constraints",
    "ethogram.models.choice",
    "ethogram.models.decisions",
    "ethogram.models.exponential_family",
    "ethogram.models.hidden_markov",
    "ethogram.models.ragged.length_buckets",
    "ethogram.models.log_permanent",
    "ethogram.models.markov_chain",
    "ethogram.models.gp_irl",
    "ethogram.models.hard_values",
    "ethogram.models.mdp",
    "ethogram.models.noisy_mdp",
    "ethogram.models.ragged.choice_tables",
    "ethogram.models.relevance_priors",
    "ethogram.models.soft_policy",
    "ethogram.models.soft_values",
    "ethogram.models.value_difference",
    "ethogram.models.value_rewards",
    "ethogram.models.world_tables",
    "ethogram.models.blocks.partly_known",
    "ethogram.models.role_hmm",
    "ethogram.models.trajectories",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    results = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS)
    assert results.attempted > 0, f"{name} has no example: take it off the list"
    assert results.failed == 0
