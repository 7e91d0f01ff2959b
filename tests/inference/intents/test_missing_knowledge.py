"""Missing labels of when an intent stayed, and an empty region without switches, say nothing."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from ethogram.domains import line_world
from ethogram.inference.conjugate import ConjugateSVI
from ethogram.models.intents import AgentMarkov, IntentConstraints


@pytest.mark.slow
def test_missing_labels_and_an_empty_region_change_no_number():
    data = line_world.simulate(jax.random.key(3), 4).data
    options = {"rows": "all", "truncation": 3}
    informed = AgentMarkov(
        5, 3, stay_accuracy=0.9, constraints=IntentConstraints.never_switch([False] * 5), **options
    )
    unlabelled = data._replace(stay=np.full(data.states.shape, -1, np.int32))
    bounds = [
        ConjugateSVI(model)
        .run(jax.random.key(4), given, 10, restarts=2, init="sticky", progress_bar=False)
        .restart_elbos
        for model, given in ((informed, unlabelled), (AgentMarkov(5, 3, **options), data))
    ]
    np.testing.assert_allclose(*bounds, rtol=1e-5)
