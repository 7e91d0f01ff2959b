"""What the role HMM refuses: models that make no sense, data that do not fit, before anything compiles."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from numpyro.handlers import seed, trace

import ethogram
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


EMPTY = Trajectories(np.zeros((0, 3, 2)), None, None, np.zeros(0, np.int32), np.zeros((0, 3), bool))
EXCLUSIVE = {"exclusive": "per_sequence"}
HALF = np.array([[0.9, 0.2], [NAN, NAN]])


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"num_roles": 0}, ValueError, "num_roles must be"),
        ({"emission": None}, TypeError, "emission must be of a subclass of Emission"),
        ({"emission": ethogram.ChoiceEmission}, TypeError, "emission must be of a subclass of Emission"),
        ({"exclusive": "always"}, (ValueError, TypeError), "exclusive"),
        (EXCLUSIVE | {"initial": 1.0}, ValueError, "initial is not a parameter of exclusive='per_sequence'"),
        (EXCLUSIVE | {"transition": 1.0}, ValueError, "transition is not a parameter"),
        (EXCLUSIVE | {"sticky": 1.0}, ValueError, "sticky is not a parameter"),
        (EXCLUSIVE | {"num_roles": 17}, ValueError, "num_roles is 17"),
        ({"sticky": -1.0}, ValueError, "sticky must be"),
        ({"sticky": [1.0, 2.0]}, ValueError, "sticky must be a number"),
        ({"sticky": 1.0, "transition": Known(np.eye(2))}, ValueError, "no effect where every row of transition is"),
        ({"initial": -1.0}, ValueError, "is negative"),
        ({"initial": np.array([1, 2])}, TypeError, "initial has dtype int64"),
        ({"initial": np.array([1.0, NAN])}, ValueError, "is not finite"),
        ({"initial": Known(np.array([1.0]))}, ValueError, "initial is Known with"),
        ({"transition": np.array([[1.0, 1.0], [0.0, 0.0]])}, ValueError, "row of zeros"),
        ({"transition": np.ones((3, 3))}, ValueError, r"has shape \(3, 3\), which does not broadcast to \(2, 2\)"),
        ({"transition": Known(HALF)}, ValueError, "is not 1"),
    ],
)  # fmt: skip
def test_bad_models_are_refused(settings, error, message):
    with pytest.raises(error, match=message):
        RoleHMM(**{"num_roles": 2, "emission": GaussianEmission(2), **settings})


def test_a_simulation_of_nothing_is_refused():
    with pytest.raises(ValueError, match="num_groups must be at least 1"):
        RoleHMM(2, CategoricalEmission(2)).simulate(jax.random.key(0), 0)


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
            model.likelihood(parameters, gaussian_data())
        with pytest.raises(ValueError, match=expected):
            model.simulate(jax.random.key(0), 2, parameters=parameters)


KNOWN = {"known_roles": True}
WITH_NAN = np.zeros((4, 3, 2))
WITH_NAN[1, 2] = NAN
NAMED = {
    "agent": np.array([0, 1, 1, 1]),
    "metadata": Metadata(agent_names=("Ann", "Bob"), group_names=("trip a", "trip b")),
}


@pytest.mark.parametrize("call", ["model", "engine"])
@pytest.mark.parametrize(
    ("options", "changes", "error", "message"),
    [
        ({}, {"observations": WITH_NAN}, ValueError, r"observations\[1, 2, 0\]"),
        ({}, {"observations": np.zeros((4, 3, 2), bool)}, TypeError, "has dtype bool: pass floats or integers"),
        ({}, {"observations": np.zeros((4, 3, 3))}, ValueError, "has 3 features, but the emission"),
        ({}, {"observations": None, "states": np.zeros((4, 3), int)}, ValueError, "observations is None"),
        ({}, {"lengths": np.array([3, 3, 4, 3])}, ValueError, r"lengths\[2\] exceeds the padding"),
        ({}, None, ValueError, "lengths is empty"),
        (KNOWN, {}, ValueError, "data.states is None"),
        (KNOWN, {"states": np.full((4, 3), 3)}, ValueError, "but there are num_roles=3"),
        (EXCLUSIVE, {"group": None}, ValueError, "data.group is None"),
        (EXCLUSIVE, {"group": np.array([0, 0, 0, 1])}, ValueError, "ragged groups: group 1 has 1 agents"),
        (EXCLUSIVE, {"group": np.array([0, 0, 1, -1])}, ValueError, r"data.group\[3\] is -1: exclusive roles need"),
        (EXCLUSIVE, {"group": np.zeros(4, int), "agent": None}, ValueError, "groups have 4 agents for num_roles=3"),
        (EXCLUSIVE, {"agent": np.array([0, 1, 1, 1])}, ValueError, "agent 1 appears twice in group 1"),
        (EXCLUSIVE, NAMED, ValueError, "agent 'Bob' appears twice in group 'trip b'"),
    ],
)  # fmt: skip
def test_bad_data_are_refused(options, changes, error, message, call):
    """By the numpyro model and by the engine alike, before anything compiles."""
    data = EMPTY if changes is None else gaussian_data(**changes)
    model = RoleHMM(3, GaussianEmission(2), **options)
    with pytest.raises(error, match=message):
        if call == "model":
            trace(seed(model, 0)).get_trace(data)
        else:
            ConjugateSVI(model).run(jax.random.key(0), data, 1, progress_bar=False)
