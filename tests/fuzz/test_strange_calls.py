"""Every public entry point given anything: a result, or an error of our own that names an argument or a file.

`ETHOGRAM_FUZZ` is the number of calls of each entry point, 12 by default; `.ci/run` takes more of another seed, and
``python -m benchmarks.papers.fuzz`` as many as there is time for.
"""

import functools
import os
import signal
import time
import warnings

import jax
import numpy as np
import pandas
import polars
import pytest
from hypothesis import HealthCheck, given, seed, settings

import ethogram
from benchmarks import strange_calls
from benchmarks.entry_points import entry_points
from benchmarks.strange_calls import Call, outcome
from benchmarks.strange_files import read_content
from ethogram import mdps, networks, tracking
from ethogram.models import emissions
from ethogram.models.chains import markov_chain

NUM_CALLS = int(os.environ.get("ETHOGRAM_FUZZ", "12"))
SEED = int(os.environ.get("ETHOGRAM_FUZZ_SEED", "0"))
POINTS = entry_points()
EYE = np.eye(2)
WALKS = mdps.MDP.deterministic([[0, 1], [0, 1]], discount=0.5, features=EYE)
NET = ethogram.BayesNet(([0.5, 0.5],), ((),))
STEPS = [{"observations": [[0.0], [1.0]], "actions": [0]}]


DEEPLABCUT = b"scorer,a,a,a\nbodyparts,n,n,n\ncoords,x,y,likelihood\n"


def of(function, *values, **options):
    return Call(function, values, options)


STORED = [
    of(ethogram.step_and_turn, 2),
    of(ethogram.BayesNet, 0, ()), of(ethogram.BayesNet, [[0.5, 0.5]], "x"),
    of(ethogram.BayesNet, [[0.5, 0.5]], [()], names=float("nan")),
    of(ethogram.BayesNet, [[0.5, 0.5]], [()], names=[pandas.NA]),
    of(ethogram.BayesNet, [[0.5, 0.5]] * 2, [(), ()], state_names=(({1}, "y"), ("x", "y"))),
    of(ethogram.GPIRL, WALKS, EYE, inducing=["1.5"]), of(ethogram.GPIRL, WALKS, EYE, inducing=[10**30]),
    of(ethogram.Trajectories.from_episodes, STEPS, with_actions=np.zeros(2)),
    of(ethogram.Trajectories.from_episodes, STEPS, as_states=pandas.NA),
    of(emissions.GaussianEmission, 10**400), of(emissions.GaussianEmission, 2**32 + 1),
    of(emissions.GaussianEmission, 2, mean=np.float16(1)), of(emissions.GaussianEmission, 2, strength=None),
    of(emissions.GaussianEmission, 2, strength=np.longdouble(1)), of(emissions.PoissonEmission, 2, shape=None),
    of(emissions.GaussianMixtureEmission, 2, 2, concentration=None),
    of(emissions.ProductEmission, (None,), None),
    of(ethogram.RoleHMM, 2**32 + 1, emissions.GaussianEmission(2)),
    of(ethogram.AgentMarkov, 2**31, 2, constraints=ethogram.IntentConstraints.never_switch(states=[1])),
    of(ethogram.AgentMarkov, 2**63, 2), of(ethogram.AgentMarkov, 2, 2, alpha=np.longdouble(1)),
    of(ethogram.IntentConstraints.stay, states=[1], at_least=10**400),
    of(ethogram.IntentConstraints.stay, states=[1], at_least=jax.random.key(0)),
    of(ethogram.NoisyMDP, None), of(ethogram.NoisyMDP, 4.0, loc_kappa=[[1, 0], [0, 1]]),
    of(ethogram.Decisions.from_list, [EYE], [0], metadata=[1]),
    of(ethogram.Decisions.from_list, [EYE] * 3, [0, 1, 0], subject=[0, 1, 2**32]),
    of(ethogram.Metadata, state_names=np.array("a")),
    of(mdps.MDP.from_gymnasium, {0: {0: [(-(2**70), 0, 0.0, True)]}}, discount=0.5),
    of(mdps.MDP.deterministic, [[0, 1], [0, 1]], action_mask=polars.Series(["a", "b"])),
    of(WALKS.with_history, 2**64), of(mdps.soft_values, WALKS, [0.0, 1.0], all_steps=np.zeros(2)),
    of(ethogram.MarginalMAP, NET, np.array(0), np.array(0)), of(ethogram.MarginalMAP, NET, {}, np.array(0)),
    of(ethogram.align_states, [0, 1], [1, 0], num_states=None), of(ethogram.align_states, [[0], [1, 2]], [0, 1]),
    of(ethogram.HiddenMarkov, True, EYE, None, num_steps=2),
    of(ethogram.ProbitChoice, [[1, None], [{}, 2]]),
    of(markov_chain.log_normalizer, [[0.0], [0.0, 1.0]], np.zeros((2, 2)), np.zeros((3, 2))),
    of(ethogram.fit, jax.random.key(0), ethogram.RoleHMM(1, emissions.GaussianEmission(1)),
       ethogram.Trajectories.from_list([np.arange(4.0)[:, None]]), "cavi", restarts=10**12),
    of(ethogram.Trajectories.from_list, [[0.5, None, 10**400]], missing="nan"),
    of(functools.partial(read_content, networks.read, ""), b"/**/" * 5000),
    of(functools.partial(read_content, tracking.read_deeplabcut, ".csv"), DEEPLABCUT + b'0,1,2,"\n'),
    of(functools.partial(read_content, tracking.read_deeplabcut, ".csv"), DEEPLABCUT + b"10000000000,1,2,1\n"),
]  # fmt: skip
"""What once leaked."""


@pytest.mark.parametrize("number", range(len(STORED)))
def test_what_once_leaked_is_refused_by_name(number):
    found = outcome(STORED[number])
    assert found.kind == "named" or (found.kind == "accepted" and "float16" in repr(STORED[number])), found


@pytest.mark.parametrize("name", POINTS)
def test_strange_calls_are_refused_by_name(name):
    @settings(max_examples=NUM_CALLS, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @seed(SEED)
    @given(POINTS[name])
    def run(call):
        found = outcome(call)
        assert found.kind != "leak", found

    run()


def loud(data):
    raise KeyError("data")


def late(data):
    while True:
        data += 1


def asleep(data):
    time.sleep(60)


def large(data):
    return np.ones(2**31)


def warned(data):
    warnings.warn("of NumPy", RuntimeWarning, stacklevel=1)


LEAKS = {
    "KeyError": loud, "TooSlow": late, "MemoryError": large, "RuntimeWarning": warned, "TypeError": len,
    "TooSlow asleep": asleep,
}  # fmt: skip


@pytest.mark.parametrize("error", LEAKS)
def test_leaks_are_found(error, monkeypatch):
    """A call that does what it may not is a leak, and the process has its own limits back."""
    monkeypatch.setattr(strange_calls, "MOST_SECONDS", 0.1)
    before = [signal.getitimer(each) for each in (signal.ITIMER_PROF, signal.ITIMER_REAL)]
    found = outcome(Call(LEAKS[error], (0,)))
    assert (found.kind, found.error) == ("leak", error.split()[0])
    assert [signal.getitimer(each) for each in (signal.ITIMER_PROF, signal.ITIMER_REAL)] == before
