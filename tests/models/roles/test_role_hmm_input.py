"""What the role HMM refuses: models that make no sense, data that do not fit, before anything compiles."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from numpyro.handlers import seed, trace

from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.emissions import (
    AutoregressiveGaussianEmission,
    CategoricalEmission,
    GaussianEmission,
    GaussianMixtureEmission,
    ProductEmission,
)
from ethogram.models.families.exponential_family import Known
from ethogram.models.roles.role_hmm import RoleHMM

NAN = float("nan")


def gaussian_data(**changes):
    x = np.zeros((4, 3, 2))
    data = Trajectories(
        x, None, None, np.full(4, 3, np.int32), np.ones((4, 3), bool),
        agent=np.array([0, 1, 0, 1]), group=np.array([0, 0, 1, 1]),
    )  # fmt: skip
    return data._replace(**changes)


BAD_MODELS = {
    "a sticky for every role": (
        lambda: RoleHMM(2, CategoricalEmission(2), sticky=[1.0, 2.0]),
        ValueError,
        "sticky must be a number",
    ),
    "a simulation of nothing": (
        lambda: RoleHMM(2, CategoricalEmission(2)).simulate(jax.random.key(0), 0),
        ValueError,
        "num_groups must be at least 1",
    ),
    "no roles": (
        lambda: RoleHMM(0, GaussianEmission(2)),
        ValueError,
        "num_roles must be",
    ),
    "no emission": (lambda: RoleHMM(2), TypeError, "emission must be one of"),
    "unknown mode": (
        lambda: RoleHMM(2, GaussianEmission(2), exclusive="always"),
        (ValueError, TypeError),
        "exclusive",
    ),
    "exclusive and initial": (
        lambda: RoleHMM(2, GaussianEmission(2), initial=1.0, exclusive="per_sequence"),
        ValueError,
        "initial is not a parameter of exclusive='per_sequence'",
    ),
    "exclusive and transition": (
        lambda: RoleHMM(2, GaussianEmission(2), transition=1.0, exclusive="per_sequence"),
        ValueError,
        "transition is not a parameter",
    ),
    "exclusive and sticky": (
        lambda: RoleHMM(2, GaussianEmission(2), sticky=1.0, exclusive="per_sequence"),
        ValueError,
        "sticky is not a parameter",
    ),
    "too many exclusive roles": (
        lambda: RoleHMM(17, GaussianEmission(2), exclusive="per_sequence"),
        ValueError,
        "num_roles is 17",
    ),
    "negative stickiness": (
        lambda: RoleHMM(2, GaussianEmission(2), sticky=-1.0),
        ValueError,
        "sticky must be",
    ),
    "sticky and all known": (
        lambda: RoleHMM(2, GaussianEmission(2), transition=Known(np.eye(2)), sticky=1.0),
        ValueError,
        "sticky has no effect where every row of transition is Known",
    ),
    "negative concentration": (
        lambda: RoleHMM(2, GaussianEmission(2), initial=-1.0),
        ValueError,
        "is negative",
    ),
    "a row of zeros": (
        lambda: RoleHMM(2, GaussianEmission(2), transition=np.array([[1.0, 1.0], [0.0, 0.0]])),
        ValueError,
        "row of zeros",
    ),
    "a shape that does not broadcast": (
        lambda: RoleHMM(2, GaussianEmission(2), transition=np.ones((3, 3))),
        ValueError,
        r"transition has shape \(3, 3\), which does not broadcast to \(2, 2\)",
    ),
    "whole numbers as concentrations": (
        lambda: RoleHMM(2, GaussianEmission(2), initial=np.array([1, 2])),
        TypeError,
        "initial has dtype int64",
    ),
    "concentration not finite": (
        lambda: RoleHMM(2, GaussianEmission(2), initial=np.array([1.0, NAN])),
        ValueError,
        "is not finite",
    ),
    "known of another shape": (
        lambda: RoleHMM(2, GaussianEmission(2), initial=Known(np.array([1.0]))),
        ValueError,
        "initial is Known with",
    ),
    "known that does not sum to one": (
        lambda: RoleHMM(2, GaussianEmission(2), transition=Known(np.array([[0.9, 0.2], [NAN, NAN]]))),
        ValueError,
        "is not 1",
    ),
}


@pytest.mark.parametrize("name", BAD_MODELS)
def test_bad_models_are_refused(name):
    make, error, message = BAD_MODELS[name]
    with pytest.raises(error, match=message):
        make()


PLAIN = dict(exclusive=None)
EXCLUSIVE = dict(exclusive="per_sequence")
WITH_NAN = np.zeros((4, 3, 2))
WITH_NAN[1, 2] = NAN
EMPTY = Trajectories(
    np.zeros((0, 3, 2)),
    None,
    None,
    np.zeros(0, np.int32),
    np.zeros((0, 3), bool),
    group=np.zeros(0, np.int32),
)
BAD_DATA = {
    "NaN where observed": (
        PLAIN,
        gaussian_data(observations=WITH_NAN),
        ValueError,
        r"observations\[1, 2, 0\]",
    ),
    "length beyond the padding": (
        PLAIN,
        gaussian_data(lengths=np.array([3, 3, 4, 3])),
        ValueError,
        r"lengths\[2\] exceeds the padding",
    ),
    "no sequences": (PLAIN, EMPTY, ValueError, "lengths is empty"),
    "booleans for a Gaussian": (
        PLAIN,
        gaussian_data(observations=np.zeros((4, 3, 2), bool)),
        TypeError,
        "observations has dtype bool: pass floats or integers",
    ),
    "three features": (
        PLAIN,
        gaussian_data(observations=np.zeros((4, 3, 3))),
        ValueError,
        "has 3 features, but the emission",
    ),
    "no observations": (
        PLAIN,
        gaussian_data(observations=None, states=np.zeros((4, 3), int)),
        ValueError,
        "observations is None",
    ),
    "known roles, no states": (dict(known_roles=True), gaussian_data(), ValueError, "data.states is None"),
    "a known role too many": (
        dict(known_roles=True),
        gaussian_data(states=np.full((4, 3), 3)),
        ValueError,
        "but there are num_roles=3",
    ),
    "no groups": (EXCLUSIVE, gaussian_data(group=None), ValueError, "data.group is None"),
    "ragged groups": (
        EXCLUSIVE,
        gaussian_data(group=np.array([0, 0, 0, 1])),
        ValueError,
        "ragged groups: group 1 has 1 agents",
    ),
    "an unknown group": (
        EXCLUSIVE,
        gaussian_data(group=np.array([0, 0, 1, -1])),
        ValueError,
        r"data.group\[3\] is -1: exclusive roles need the group",
    ),
    "more agents than roles": (
        EXCLUSIVE,
        gaussian_data(group=np.zeros(4, int), agent=None),
        ValueError,
        "groups have 4 agents for num_roles=3",
    ),
    "an agent twice": (
        EXCLUSIVE,
        gaussian_data(agent=np.array([0, 1, 1, 1])),
        ValueError,
        "agent 1 appears twice in group 1",
    ),
    "an agent twice, by name": (
        EXCLUSIVE,
        gaussian_data(
            agent=np.array([0, 1, 1, 1]),
            metadata=Metadata(agent_names=("Ann", "Bob"), group_names=("trip a", "trip b")),
        ),
        ValueError,
        "agent 'Bob' appears twice in group 'trip b'",
    ),
}


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[1.0, 0.5], [0.0, 1.0]], "is not symmetric"),
        ([[1.0, 2.0], [2.0, 1.0]], "is not positive definite"),
        ([[1.0, NAN], [NAN, 1.0]], "is not finite"),
    ],
)
def test_covariances_of_given_parameters_are_checked(matrix, message):
    """Before anything compiles; of any emission that has some, and of parts of a product."""
    given = np.tile(np.eye(2), (2, 1, 1))
    given[1] = matrix
    chain = {"initial": np.full(2, 0.5), "transition": np.full((2, 2), 0.5)}
    parts = [
        (GaussianEmission(2), "covariance", given, r"\[1\]"),
        (AutoregressiveGaussianEmission(2), "covariance", given, r"\[1\]"),
        (GaussianMixtureEmission(2, 2), "covariance", np.stack([given[[0, 0]], given]), r"\[1, 1\]"),
        (ProductEmission({"pose": GaussianEmission(2)}), "pose_covariance", given, r"\[1\]"),
    ]
    for emission, site, covariance, place in parts:
        model, parameters = RoleHMM(2, emission), chain | {site: covariance}
        expected = rf"^parameters\['{site}'\] of role {place} {message}"
        with pytest.raises(ValueError, match=expected):
            model.observation(parameters, gaussian_data())
        with pytest.raises(ValueError, match=expected):
            model.simulate(jax.random.key(0), 2, parameters=parameters)


@pytest.mark.parametrize("call", ["model", "engine"])
@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data_are_refused(name, call):
    """By the numpyro model and by the engine alike, before anything compiles."""
    options, data, error, message = BAD_DATA[name]
    model = RoleHMM(3, GaussianEmission(2), **options)
    with pytest.raises(error, match=message):
        if call == "model":
            trace(seed(model, 0)).get_trace(data)
        else:
            ConjugateSVI(model).run(jax.random.key(0), data, 1, progress_bar=False)
