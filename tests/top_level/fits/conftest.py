"""Fits of every system, of posteriors made here."""

from __future__ import annotations

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import ethogram
from ethogram import fits
from ethogram.domains import diagnosis
from ethogram.fits.fit_object import Fit
from ethogram.inference.rewards import RewardFit, RewardPosterior, Status
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.data import Metadata
from ethogram.models.mdps import MDP

KEY = jax.random.key(0)


@pytest.fixture(scope="session")
def decisions():
    random = np.random.default_rng(0)
    features = random.normal(size=(60, 2, 1)).astype(np.float32)
    chosen = (2 * features[..., 0] + random.normal(size=(60, 2))).argmax(1)
    return ethogram.Decisions(features, np.ones((60, 2), bool), chosen)


@pytest.fixture(scope="session")
def choices(decisions):
    model = ethogram.NoisyMDP(kind="features")
    theta = np.random.default_rng(2).normal(2.0, 0.3, size=(2, 400, 1))
    return Fit(model, decisions, "px-da", "", SampledPosterior(model, {"theta": theta}, {}), 1.0, KEY)


@pytest.fixture(scope="session")
def people(decisions):
    """A fit of four subjects, whose population has means and variances."""
    features = np.concatenate([decisions.features, decisions.features**2], axis=-1)
    data = decisions._replace(features=features, subject=np.arange(60) % 4)
    data = data._replace(metadata=Metadata(feature_names=["speed", "its square"]))
    model = ethogram.NoisyMDP(dist.InverseGamma(3.0, 2.0), kind="features")
    random = np.random.default_rng(3)
    sites = {"theta": random.normal(2.0, 0.3, size=(2, 400, 4, 2))}
    sites["loc"], sites["kappa"] = (
        random.normal(2.0, 0.3, (2, 400, 2)),
        np.exp(random.normal(size=(2, 400, 2))),
    )
    return Fit(model, data, "nuts", "", SampledPosterior(model, sites, {}), 1.0, KEY)


@pytest.fixture(scope="session")
def rewards():
    corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.9)
    model = ethogram.GPIRL(corridor, [[0.0], [1.0], [2.0]], scale_prior=5.0, relevance_prior=1.0)
    mean, root = np.array([[[-1.0, 0.0, 1.5]]]), 0.5 * np.eye(3)[None, None]
    posterior = RewardPosterior(model, mean, root, np.zeros((1, 0)), np.zeros(1), "laplace")
    result = RewardFit(posterior, -3.0, 0.1, -3.0, np.array([-3.0]), -2.0, Status.CONVERGED, 0, 0.0)
    return Fit(model, np.array([[0, 3], [0, 3], [0, 3]]), "laplace", "", result, 1.0, KEY)


@pytest.fixture(scope="session")
def answer():
    return fits.fit(jax.random.key(4), diagnosis.heating_query(), time_limit=2.0)
