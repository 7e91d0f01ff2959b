"""A tiny model and ragged data of one shape, which all fits in these tests share, so that few programs compile."""

from __future__ import annotations

import collections

import jax
import numpy as np
import pytest

from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions import CategoricalEmission
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP
from ethogram.models.roles.role_hmm import RoleHMM

LENGTHS = np.array([12, 5, 3, 0, 4, 11, 6, 2, 9], dtype=np.int32)
GROUPS = np.array([3, 3, 0, 0, 0, 5, 9, 9, 4], dtype=np.int32)


def make_symbols(seed=0, lengths=LENGTHS, group=GROUPS):
    """Symbols of two sticky roles: ragged groups, missing frames, an empty sequence and one that is all missing."""
    rng = np.random.default_rng(seed)
    shape = (len(lengths), max(int(lengths.max()), 1))
    roles = np.cumsum(rng.random(shape) < 0.2, axis=1) % 2
    noise = rng.random(shape) < 0.3
    x = np.where(noise, rng.integers(3, size=shape), 2 * roles)[..., None]
    inside = np.arange(shape[1]) < lengths[:, None]
    observed = inside & (rng.random(shape) < 0.9)
    observed[2 % len(lengths)] = False
    return Trajectories(np.where(inside[..., None], x, -1), None, None, lengths, observed, None, group)


def make_model(concentration=1.0, sticky=2.0):
    """Two roles that emit three symbols."""
    return RoleHMM(2, CategoricalEmission(3, concentration=concentration), sticky=sticky)


@pytest.fixture(scope="session")
def symbols():
    """The function `make_symbols`."""
    return make_symbols


@pytest.fixture(scope="session")
def symbol_model():
    """The function `make_model`."""
    return make_model


@jax.jit
def _gradient(model, expected, batch):
    return jax.grad(lambda e: model.log_normalizer(e, batch))(expected)


@pytest.fixture(scope="session")
def sequence_statistics():
    """Statistics of every sequence by itself, a list: one program for all of them."""
    return lambda model, expected, data: [
        _gradient(model, expected, model.arrange(data.take([row]))) for row in range(data.num_sequences)
    ]


@pytest.fixture
def float64():
    """Double precision for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def compiler_events():
    """A counter of what the compiler did, by event."""
    seen = collections.Counter()

    def listen(event, duration, **details):
        seen[event.rpartition("/")[2]] += 1

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield seen
    jax.monitoring.unregister_event_duration_listener(listen)


def draw_query(seed, count=7):
    """A network of two to four states a variable, a fifth of the entries of which are zero, and a question."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 5, count)
    parents, tables = [], []
    for number in range(count):
        some = random.permutation(number)[: random.integers(0, min(number, 3) + 1)]
        table = random.dirichlet(np.ones(sizes[number]), sizes[some]) * (
            random.random((*sizes[some], sizes[number])) > 0.2
        )
        table[..., 0] += table.sum(-1) == 0
        parents.append(tuple(some.tolist()))
        tables.append(table / table.sum(-1, keepdims=True))
    network = BayesNet(tuple(tables), tuple(parents))
    order = random.permutation(count).tolist()
    evidence = {order[0]: int(random.integers(sizes[order[0]])), order[1]: random.random(sizes[order[1]])}
    return network, MarginalMAP(network, evidence, order[2:5])


def enumerate_query(network, query):
    """p(d, e) as a table of the MAP variables in the order of the query, soft evidence included."""
    count = network.num_variables
    axes = list("abcdefghij"[:count])
    tables = [*network.tables, *(np.array(likelihoods) for _, likelihoods in query.soft)]
    scopes = [(*each, i) for i, each in enumerate(network.parents)] + [(i,) for i, _ in query.soft]
    words = ["".join(axes[i] for i in scope) for scope in scopes]
    seen = [np.eye(network.sizes[i])[state] for i, state in query.observed]
    words += [axes[i] for i, _ in query.observed]
    asked = "".join(axes[i] for i in query.map_variables)
    joint = np.einsum(",".join(words) + "->" + "".join(axes), *tables, *seen)
    return np.einsum("".join(axes) + "->" + asked, joint)


@pytest.fixture(scope="session")
def drawn():
    """The function `draw_query`."""
    return draw_query


@pytest.fixture(scope="session")
def enumerated():
    """The function `enumerate_query`."""
    return enumerate_query
