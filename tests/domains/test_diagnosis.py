"""The heating network: its probabilities, its houses, and three answers to one call that differ."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from ethogram.domains import diagnosis
from ethogram.inference.networks.exact_queries import variable_posteriors
from ethogram.inference.networks.solve_mmap import solve_mmap
from ethogram.models.networks.marginal_map import MarginalMAP


def test_small_tables_whose_rows_sum_to_one():
    network = diagnosis.heating()
    assert max(table.size for table in network.tables) == 8
    for table in network.tables:
        np.testing.assert_allclose(table.sum(-1), 1, atol=1e-12)
    assert set(diagnosis.FAULTS) | set(diagnosis.SYMPTOMS) <= set(network.names)


def test_houses_have_faults_as_often_as_the_network_says():
    houses = diagnosis.simulate(jax.random.key(0), 2000)
    for name, chance in diagnosis.FAULTS.items():
        share = np.mean([house.faults[name] == "yes" for house in houses])
        assert abs(share - chance) < 4.5 * np.sqrt(chance * (1 - chance) / 2000)
    query = MarginalMAP(diagnosis.heating(), {}, list(diagnosis.SYMPTOMS))
    for name, (_, chance) in variable_posteriors(query).probabilities.items():
        share = np.mean([house.symptoms[name] == "yes" for house in houses])
        assert abs(share - chance) < 4.5 * np.sqrt(chance * (1 - chance) / 2000)
    with pytest.raises(ValueError, match="num_houses must be at least 1"):
        diagnosis.simulate(jax.random.key(0), 0)


def test_the_best_faults_together_are_neither_those_of_the_explanation_nor_the_likely_ones():
    query = diagnosis.heating_query()
    best, explained, likely = (
        solve_mmap(jax.random.key(0), query, method) for method in ("hybrid", "mpe", "marginal")
    )
    assert best.proved_optimal
    assert best.assignment != explained.assignment
    assert best.assignment != likely.assignment
    assert best.log_probability > max(explained.log_probability, likely.log_probability) + 0.05
    posterior = variable_posteriors(query).probabilities
    assert max(posterior[name][1] for name in diagnosis.FAULTS) > 0.5
