"""A filled compilation cache serves a second process, whose sets have another order."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import collections
import jax
import numpy as np
import ethogram
from ethogram.inference.conjugate import heldout_log_likelihood

seen = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **_: seen.update([event.rpartition("/")[2]]))
model = ethogram.RoleHMM(2, ethogram.GaussianEmission(1))
data = model.simulate(jax.random.key(0), num_groups=4, lengths=12).data
fit = ethogram.fit(jax.random.key(1), model, data, num_steps=5, restarts=2, progress_bar=False)
fit.states(), fit.score(data), fit.sample_paths(2), heldout_log_likelihood(fit.result, data)
traces = {"states": [np.arange(9) % 3], "actions": [np.arange(9) % 2]}
agents = ethogram.Trajectories.from_list(**traces)
model = ethogram.AgentMarkov(3, 2, truncation=2)
found = ethogram.fit(jax.random.key(1), model, agents, num_steps=5, progress_bar=False)
found.states(), found.score(agents)
print(seen["cache_hits"], seen["cache_misses"])
"""


@pytest.mark.slow
def test_a_second_process_compiles_nothing(tmp_path):
    """Where a distribution is an argument of a program, its leaves have the order of a set."""
    counts = []
    for seed in ("1", "2"):
        environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path), "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", SCRIPT]
        said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        counts.append([int(number) for number in said.stdout.split()[-2:]])
    (_, first), (hits, misses) = counts
    assert misses == 0 and hits >= first > 25
