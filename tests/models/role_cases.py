"""Small problems for every emission: the package's model and data beside the oracle's prior and problem."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
import role_families
import role_oracle
from scipy import stats

from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions import (
    BinomialEmission,
    CategoricalEmission,
    GaussianEmission,
    GaussianMixtureEmission,
    KnownCovarianceEmission,
)
from ethogram.models.families.exponential_family import (
    Beta,
    Dirichlet,
    Normal,
    NormalInverseWishart,
    expected_statistics,
    natural_step,
    total_kl,
)
from ethogram.models.roles.role_hmm import RoleHMM


class Sweep(NamedTuple):
    """One step of the conjugate updates."""

    log_normalizer: Any
    statistics: Any
    bound: Any
    blocks: Any


FAMILIES = ("gaussian", "known_covariance", "categorical", "binomial", "mixture")

MEAN, SCALE = np.array([0.5, -1.0]), np.array([[1.5, 0.3], [0.3, 0.8]])
STRENGTH, DOF = 0.3, 5.0
COVARIANCE, SPREAD = np.array([[0.7, -0.2], [-0.2, 0.5]]), np.array([[2.0, 0.4], [0.4, 1.0]])
SYMBOLS = np.array([0.6, 1.2, 0.9, 2.0])
TOTAL, SUCCESSES, FAILURES = np.array([5, 3]), np.array([0.8, 1.5]), np.array([1.1, 2.0])
WEIGHTS = np.array([1.3, 0.7])
STICKY = 0.7


class Case(NamedTuple):
    """One problem, seen from both sides."""

    model: Any
    data: Trajectories
    prior: Any  # of the oracle
    problem: Any  # of the oracle


def emission(name):
    """The package's emission of a family; to be made under the float type it shall have."""
    gaussian = {"mean": MEAN, "strength": STRENGTH, "dof": DOF, "scale": SCALE}
    if name == "gaussian":
        return GaussianEmission(2, **gaussian)
    if name == "known_covariance":
        return KnownCovarianceEmission(COVARIANCE, mean=MEAN, mean_covariance=SPREAD)
    if name == "categorical":
        return CategoricalEmission(len(SYMBOLS), concentration=SYMBOLS)
    if name == "binomial":
        return BinomialEmission(TOTAL, successes=SUCCESSES, failures=FAILURES, num_features=2)
    return GaussianMixtureEmission(2, len(WEIGHTS), concentration=WEIGHTS, **gaussian)


def oracle_emission(name, num_states, num_components=2):
    """The oracle's family, and its prior by state."""
    gaussian = {"mean": MEAN, "strength": np.array(STRENGTH), "dof": np.array(DOF), "scale": SCALE}
    family, prior = {
        "gaussian": (role_families.Gaussian(), gaussian),
        "known_covariance": (role_families.KnownCovariance(COVARIANCE), {"mean": MEAN, "variance": SPREAD}),
        "categorical": (role_families.Categorical(), {"concentration": SYMBOLS}),
        "binomial": (role_families.Binomial(TOTAL), {"a": SUCCESSES, "b": FAILURES}),
        "mixture": (role_families.Mixture(num_components), gaussian),
    }[name]
    lead = (num_states, num_components) if name == "mixture" else (num_states,)
    rows = {key: np.broadcast_to(value, (*lead, *np.shape(value))) for key, value in prior.items()}
    if name == "mixture":
        rows["concentration"] = np.broadcast_to(WEIGHTS[:num_components], lead)
    return family, rows


def random_frames(rng, name, shape):
    if name == "categorical":
        return rng.integers(0, len(SYMBOLS), (*shape, 1))
    if name == "binomial":
        return rng.binomial(TOTAL, rng.random((*shape, 2)))
    return MEAN + 1.5 * rng.normal(size=(*shape, 2))


def random_problem(name, rng, lengths, group, missing=(), num_steps=6):
    """Frames of a family; those missing hold NaN or -1, and so does the padding."""
    lengths = np.array(lengths)
    x = random_frames(rng, name, (len(lengths), num_steps))
    observed = np.arange(num_steps) < lengths[:, None]
    for place in missing:
        observed[place] = False
    x[~observed] = -1 if x.dtype.kind == "i" else np.nan
    return role_oracle.Problem(x, observed, lengths, np.array(group))


def chain_prior(num_states, forbid=False):
    """Concentrations that are all different, so that no label stands for another."""
    initial = 0.5 + np.arange(num_states)
    transition = 0.4 + np.arange(num_states**2).reshape(num_states, num_states)[:, ::-1] / 3
    if forbid:
        transition[0, num_states - 1] = 0
    return initial, transition


def make(name, seed=0):
    """Four groups of uneven size: sequences of 1 to 5 steps, gaps, a missing first frame, one never seen."""
    num_states = 2 if name in ("mixture", "binomial") else 3
    longest = 4 if name == "mixture" else 5
    lengths = np.minimum([5, 3, 1, 4, 5, 2], longest)
    missing = [(0, 2), (4, 0), (3, slice(None))]
    rng = np.random.default_rng(seed)
    problem = random_problem(name, rng, lengths, [0, 0, 1, 2, 2, 3], missing)
    initial, transition = chain_prior(num_states, forbid=name == "categorical")
    model = RoleHMM(num_states, emission(name), initial, transition, STICKY)
    family, rows = oracle_emission(name, num_states)
    prior = role_oracle.Prior(initial, transition + STICKY * np.eye(num_states), rows, family)
    return Case(model, trajectories(problem), prior, problem)


def trajectories(problem):
    """The same data for the package."""
    return Trajectories(
        problem.x,
        problem.states,
        None,
        problem.lengths.astype(np.int32),
        problem.observed,
        group=problem.group.astype(np.int32),
    )


def start(case, seed=1):
    """The oracle's q after one update by random labels: far from both the prior and the optimum."""
    rng = np.random.default_rng(seed)
    prior, problem = case.prior, case.problem
    num_states, count = len(prior.initial), prior.family.num_components or 1
    weight = rng.dirichlet(np.full(num_states * count, 0.5), problem.observed.sum())
    weight = weight.reshape(-1, num_states, count) if prior.family.num_components else weight
    x = problem.x[problem.observed].astype(float)
    pairs = rng.gamma(1.0, size=prior.transition.shape) * (prior.transition > 0)
    return role_oracle.Prior(
        prior.initial + rng.gamma(1.0, size=num_states),
        prior.transition + pairs,
        prior.family.update(prior.emission, x, weight),
        prior.family,
    )


def draw_emission(name, q, rng, size):
    """Draws (size, state, ...) of the emission's parameters by site, from the oracle's q; by NumPy and scipy."""
    if name == "categorical":
        return {"probability": np.stack([rng.dirichlet(row, size) for row in q["concentration"]], 1)}
    if name == "binomial":
        return {"probability": rng.beta(q["a"], q["b"], (size, *q["a"].shape))}
    if name == "known_covariance":
        rows = zip(q["mean"], q["variance"], strict=True)
        return {"mean": np.stack([rng.multivariate_normal(m, v, size) for m, v in rows], 1)}
    lead = q["strength"].shape
    covariance = np.empty((size, *lead, 2, 2))
    for k in np.ndindex(lead):
        covariance[(slice(None), *k)] = stats.invwishart.rvs(q["dof"][k], q["scale"][k], size, rng)
    noise = rng.normal(size=(size, *lead, 2)) / np.sqrt(q["strength"])[..., None]
    mean = q["mean"] + np.einsum("...ij,...j->...i", np.linalg.cholesky(covariance), noise)
    drawn = {"mean": mean, "covariance": covariance}
    if name == "mixture":
        drawn["weight"] = np.stack([rng.dirichlet(row, size) for row in q["concentration"]], 1)
    return drawn


def draw(name, prior, rng, size):
    """Draws (size, ...) of all parameters by site."""
    rows = np.where(
        prior.transition > 0, rng.gamma(prior.transition + 1e-9, size=(size, *prior.transition.shape)), 0
    )
    return {
        "initial": rng.dirichlet(prior.initial, size),
        "transition": rows / rows.sum(-1, keepdims=True),
        **draw_emission(name, prior.emission, rng, size),
    }


def blocks(model, q):
    """The package's blocks at the oracle's parameters."""
    own, e = model.prior(), q.emission
    made = {}
    if model.exclusive is None:
        made = {
            "initial": Dirichlet.from_standard(q.initial),
            "transition": Dirichlet.from_standard(q.transition),
        }
    if "mean_covariance" in own:
        origin = np.asarray(own["mean_covariance"].origin)
        made["mean_covariance"] = NormalInverseWishart.from_standard(
            e["mean"], e["strength"], e["dof"], e["scale"], origin=origin
        )
    if "weight" in own:
        made["weight"] = Dirichlet.from_standard(e["concentration"])
    if "mean" in own:
        made["mean"] = Normal.from_standard(e["mean"], e["variance"], origin=np.asarray(own["mean"].origin))
    if "probability" in own:
        made["probability"] = (
            Beta.from_standard(e["a"], e["b"]) if "a" in e else Dirichlet.from_standard(e["concentration"])
        )
    return made


def parameters(model, q):
    """The oracle's parameters as the blocks' ``standard()`` gives them, by block name."""
    e = q.emission
    gaussian = tuple(e[name] for name in ("mean", "strength", "dof", "scale") if name in e)
    emission = {
        "gaussian": lambda: {"mean_covariance": gaussian},
        "mixture": lambda: {"mean_covariance": gaussian, "weight": (e["concentration"],)},
        "known_covariance": lambda: {"mean": (e["mean"], e["variance"])},
        "categorical": lambda: {"probability": (e["concentration"],)},
        "binomial": lambda: {"probability": (e["a"], e["b"])},
    }[family_of(model)]()
    chain = {} if model.exclusive else {"initial": (q.initial,), "transition": (q.transition,)}
    return {**chain, **emission}


def family_of(model):
    kinds = (
        GaussianEmission, KnownCovarianceEmission, CategoricalEmission, BinomialEmission,
        GaussianMixtureEmission,
    )  # fmt: skip
    return FAMILIES[kinds.index(type(model.emission))]


def origin_of(emission):
    """What the oracle's sums need to know of the package's coordinates: an origin, or how many symbols."""
    return len(SYMBOLS) if isinstance(emission, CategoricalEmission) else MEAN


@functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})  # compiles faster
def sweep(model, q, prior, batch, scale, step_size):
    """Local log normaliser, its statistics, the bound, and the blocks after one step."""
    value, statistics = jax.value_and_grad(lambda e: model.log_normalizer(e, batch))(expected_statistics(q))
    moved = natural_step(q, prior, statistics, scale, step_size)
    return Sweep(value, statistics, value - total_kl(q, prior), moved)


def only(data, rows):
    """The same shape with all other sequences emptied."""
    keep = np.isin(np.arange(data.num_sequences), rows)
    return data._replace(
        lengths=np.where(keep, data.lengths, 0).astype(np.int32), observed=data.observed & keep[:, None]
    )
