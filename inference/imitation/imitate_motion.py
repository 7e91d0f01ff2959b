r"""Coordinated imitation of moving agents without an expert: recurrent policies, trained on roll-outs.

Le, Yue, Carr, Lucey (2017), Algorithms 1 and 2: the horizon of the roll-outs is raised stage by stage; after each stage
the role model is fitted to the roll-outs, and the demonstrations are assigned to roles anew. The loss is the mean
squared distance of the roll-outs from the demonstrations.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Float, Int

from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.inference.conjugate.posterior import ConjugateResult
from ethogram.inference.imitation.motion import (
    Scenes,
    by_role,
    motion_features,
    new_recurrent,
    recurrent_step,
    roll_motion,
)
from ethogram.inference.imitation.role_maps import (
    RoleMaps,
    certain_probability,
    map_probability,
    shuffled_roles,
    weighted_maps,
)
from ethogram.inference.imitation.world import sequences_of_games
from ethogram.inference.roles.assignment import role_log_likelihood
from ethogram.models.arguments import require_integer, require_key, require_one_of
from ethogram.models.data.trajectories import Trajectories, group_labels
from ethogram.models.roles.role_hmm import RoleHMM

__all__ = ["MotionResult", "fit_linear_motion", "imitate_motion", "residual_scale", "roles_of_plays"]

WINDOW, OVERLAP = 50, 25
"""Frames of the pieces that plays are trained in, as in the paper."""


class MotionResult(NamedTuple):
    """Recurrent policies of roles.

    Attributes
    ----------
    parameters : of `recurrent_step`, leaves leading with the roles.
    num_units : size of the memory of each role.
    role : (play, agent), most probable role of each agent in the training plays.
    role_probability : (play, agent, role).
    fit : the role model; None unless roles were learned.
    loss : (stage, step), mean squared distance in square metres during training.
    """

    parameters: dict[str, Array]
    num_units: int
    role: Int[np.ndarray, "play agent"]
    role_probability: Float[np.ndarray, "play agent role"]
    fit: ConjugateResult | None
    loss: Float[np.ndarray, "stage step"]


def imitate_motion(
    key: Array,
    model: RoleHMM | ConjugateResult | None,
    scenes: Scenes,
    data: Trajectories | None,
    *,
    roles: str = "learned",
    horizons: Sequence[int] = (1, 2, 5, 10),
    num_steps: int = 60,
    num_units: int = 8,
    learning_rate: float = 3e-3,
    weight_decay: float = 10.0,
) -> MotionResult:
    """Recurrent policies of all roles, trained together on joint roll-outs of growing horizon.

    Parameters
    ----------
    key : a typed key.
    model : a `RoleHMM` with as many roles as agents, or a fit of it to begin with; None for the baseline.
    scenes : the plays.
    data : the same plays for the role model, one sequence an agent, with ``group``, relative to the centroid of the
        agents (``data.centred()``), as roll-outs are for the next fit; None for the baseline.
    roles : ``"learned"``, or ``"shuffled"``: an arbitrary map of agents to policies in each play.
    horizons : steps of the roll-outs in each stage.
    num_steps : gradient steps (Adam with weight decay) in each stage.
    num_units, learning_rate, weight_decay : of the networks and their training.

    Raises
    ------
    ValueError, TypeError
        For scenes of inconsistent shapes or with numbers that are not finite, and invalid arguments.
    """
    require_key(key)
    if not len(horizons):
        raise ValueError("horizons is empty: give the steps of one stage at least")
    require_one_of("roles", roles, ("learned", "shuffled"))
    for name, count in (
        ("num_steps", num_steps),
        ("num_units", num_units),
        *(("horizons", h) for h in horizons),
    ):
        require_integer(name, count, 1)
    check_scenes(scenes)
    key_roles, key_networks = jax.random.split(key)
    num_plays, _, num_agents, _ = scenes.positions.shape
    fit = model if isinstance(model, ConjugateResult) else None
    if roles == "learned":
        if model is None or data is None:
            raise ValueError("model or data is None: roles='learned' needs both")
        found_plays = len(np.unique(group_labels(data)))
        if found_plays != num_plays or data.num_sequences != num_plays * num_agents:
            raise ValueError(
                f"data have {found_plays} groups of {data.num_sequences} sequences, the scenes {num_plays} plays of "
                f"{num_agents} agents: give the same plays"
            )
        if fit is None:
            fit = ConjugateSVI(model).run(key_roles, data, 200, progress_bar=False)
        if fit.posterior.model.num_roles != num_agents:
            raise ValueError(
                f"num_roles is {fit.posterior.model.num_roles}, the scenes have {num_agents} agents"
            )
    parameters = new_recurrent(key_networks, num_agents, num_units)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key_roles)).ravel().tolist())
    fixed = certain_probability(shuffled_roles(rng, num_plays, num_agents, num_agents), num_agents)
    losses, probability, maps = [], fixed, weighted_maps(fixed)
    learn = roles == "learned"
    for stage, horizon in enumerate(horizons):
        if learn and fit is not None and data is not None:
            probability, maps = roles_of_plays(fit, data, num_agents)
        pieces, weight = windows(by_role(scenes, maps.game, maps.role), _weight_of_roles(maps))
        parameters, loss = _train(
            parameters, pieces, weight, horizon, num_steps, num_units, learning_rate, weight_decay
        )
        losses.append(np.asarray(loss))
        if learn and fit is not None and data is not None:
            fit = _learn_structure(
                jax.random.fold_in(key_roles, stage), fit, scenes, data, maps, parameters, horizon
            )
    found = fit if learn else None
    return MotionResult(parameters, num_units, maps.best, probability, found, np.stack(losses))


def check_scenes(scenes: Scenes) -> None:
    """Raise ValueError unless scenes have consistent shapes and finite numbers."""
    positions, context, lengths = (np.asarray(x) for x in scenes)
    if positions.ndim != 4 or positions.shape[-1] != 2 or context.ndim != 4 or context.shape[-1] != 2:
        raise ValueError(
            f"scenes have positions {positions.shape} and context {context.shape}: give (play, time, agent, 2) and "
            "(play, time, object, 2)"
        )
    if (
        context.shape[:2] != positions.shape[:2]
        or lengths.shape != positions.shape[:1]
        or context.shape[2] < 2
    ):
        raise ValueError(
            f"scenes have positions {positions.shape}, context {context.shape} and lengths {lengths.shape}: give the "
            "same plays and times, and a ball with one opponent at least"
        )
    if lengths.min() < 2 or lengths.max() > positions.shape[1]:
        raise ValueError(
            f"scenes.lengths is in {lengths.min()}..{lengths.max()}: give 2 to {positions.shape[1]}"
        )
    for name, array in (("positions", positions), ("context", context)):
        if not np.isfinite(array).all():
            raise ValueError(f"scenes.{name}{np.argwhere(~np.isfinite(array))[0].tolist()} is not finite")


def roles_of_plays(fit: Any, data: Trajectories, num_agents: int) -> tuple[np.ndarray, RoleMaps]:
    """Probability (play, agent, role), and weighted maps, of plays under a fit."""
    sequences = sequences_of_games(data, num_agents)
    log_likelihood = np.asarray(role_log_likelihood(fit, data), float)[sequences]
    probability = map_probability(log_likelihood)
    return probability, weighted_maps(probability, log_likelihood)


def _weight_of_roles(maps: RoleMaps) -> Float[np.ndarray, "map role"]:
    weight = np.zeros_like(maps.weight)
    np.put_along_axis(weight, maps.role, maps.weight, axis=1)
    return weight


def windows(scenes: Scenes, weight: Float[np.ndarray, "play role"]) -> tuple[Scenes, np.ndarray]:
    """Pieces of at most `WINDOW` frames that overlap by `OVERLAP`, and weights (piece, time, role) of their frames.

    A frame in two pieces has half its weight in each; the weight of the first frame of a piece is 0.
    """
    lengths = np.asarray(scenes.lengths)
    width = np.arange(min(WINDOW, int(lengths.max())))
    starts = [
        (play, start)
        for play, length in enumerate(lengths)
        for start in range(0, max(int(length) - OVERLAP, 1), WINDOW - OVERLAP)
    ]
    play, start = np.array(starts).T
    size = np.minimum(WINDOW, lengths[play] - start)
    times = np.minimum(start[:, None] + width, lengths[play][:, None] - 1)
    inside = (width < size[:, None]) & (width > 0)
    covered = np.zeros((len(lengths), int(lengths.max()) + WINDOW), int)
    np.add.at(covered, (play[:, None], start[:, None] + width), inside)
    share = inside / np.maximum(covered[play[:, None], start[:, None] + width], 1)
    pieces = Scenes(
        np.asarray(scenes.positions)[play[:, None], times],
        np.asarray(scenes.context)[play[:, None], times],
        size,
    )
    return pieces, share[..., None] * weight[play][:, None]


@functools.partial(jax.jit, static_argnames=("num_steps", "num_units"))
def _train(parameters, scenes, weight, horizon, num_steps, num_units, learning_rate, weight_decay):
    """Parameters after Adam on the mean squared distance, and its trace."""
    optimiser = optax.adamw(optax.cosine_decay_schedule(learning_rate, num_steps), weight_decay=weight_decay)
    target = jnp.moveaxis(jnp.asarray(scenes.positions), 1, 0)[1:]
    share = jnp.moveaxis(jnp.asarray(weight), 1, 0)[1:]

    def loss(parameters):
        rolled = roll_motion(recurrent_step, parameters, scenes, horizon, num_units=num_units)
        distance = jnp.sum((rolled.positions - target) ** 2, axis=-1)
        return jnp.sum(share * distance) / jnp.sum(share)

    def update(carry, _):
        parameters, state = carry
        value, gradient = jax.value_and_grad(loss)(parameters)
        change, state = optimiser.update(gradient, state, parameters)
        return (optax.apply_updates(parameters, change), state), value

    (parameters, _), trace = jax.lax.scan(update, (parameters, optimiser.init(parameters)), length=num_steps)
    return parameters, trace


def _learn_structure(
    key: Array,
    fit: ConjugateResult,
    scenes: Scenes,
    data: Trajectories,
    maps: RoleMaps,
    parameters: Any,
    horizon: int,
) -> ConjugateResult:
    """The role model, fitted to the roll-outs about their centroids, from the fit before."""
    plays = np.arange(len(maps.best))
    ordered = by_role(scenes, plays, maps.best)
    num_units = parameters["output"].shape[1]
    rolled = roll_motion(recurrent_step, parameters, ordered, horizon, num_units=num_units)
    whole = np.concatenate(
        [ordered.positions[:, :1], np.moveaxis(np.asarray(rolled.positions), 0, 1)], axis=1
    )
    of_agents = np.take_along_axis(whole, maps.best[:, None, :, None], axis=2)
    of_agents -= of_agents.mean(axis=2, keepdims=True)
    sequences = sequences_of_games(data, of_agents.shape[2])
    observations = np.array(data.observations)
    width = observations.shape[1]
    observations[sequences] = of_agents.swapaxes(1, 2)[:, :, :width]
    observations[~np.asarray(data.observed)] = 0
    engine = ConjugateSVI(fit.posterior.model)
    return engine.run(key, data._replace(observations=observations), 50, init=fit, progress_bar=False)


@jax.jit
def _one_step(scenes: Scenes) -> tuple[Array, Array]:
    """Features (play, time, role, feature) at true positions, and the changes of velocity, from time 1 on."""
    positions, context = jnp.asarray(scenes.positions), jnp.asarray(scenes.context)
    velocity, after = positions[:, 1:-1] - positions[:, :-2], positions[:, 2:] - positions[:, 1:-1]
    objects = context[:, 1:-1]
    phi = jax.vmap(jax.vmap(motion_features))
    return phi(positions[:, 1:-1], velocity, objects, objects - context[:, :-2]), after - velocity


def fit_linear_motion(
    scenes: Scenes, weight: Float[np.ndarray, "play role"] | None = None, ridge: float = 10.0
) -> Float[np.ndarray, "role row 2"]:
    """One linear autoregression for each role, of its change of velocity on the features, by ridge regression.

    A large `ridge` gives constant velocity. `weight` of a role in a play is 1 where None.
    """
    features, change = (np.asarray(x, float) for x in _one_step(scenes))
    num_plays, num_times, num_roles, width = features.shape
    inside = (np.arange(num_times) + 2 < np.asarray(scenes.lengths)[:, None]).astype(float)
    share = inside[..., None] * (np.ones((num_plays, num_roles)) if weight is None else weight)[:, None]
    design = np.concatenate([features, np.ones((*features.shape[:-1], 1))], axis=-1)
    penalty = ridge * np.eye(width + 1)
    gram = np.einsum("ptrf,ptr,ptrg->rfg", design, share, design) + penalty
    return np.linalg.solve(gram, np.einsum("ptrf,ptr,ptrd->rfd", design, share, change))


def residual_scale(
    step: Any, parameters: Any, scenes: Scenes, num_units: int = 1
) -> Float[np.ndarray, "role 2 2"]:
    """Cholesky factors of the covariance of one-step errors of each role, for sampled futures."""
    rolled = roll_motion(step, parameters, scenes, 1, num_units=num_units)
    true = np.moveaxis(np.asarray(scenes.positions), 1, 0)[1:]
    error = true - np.asarray(rolled.positions)
    inside = np.arange(1, len(true) + 1)[:, None] < np.asarray(scenes.lengths)
    inside[0] = False  # nobody has a velocity yet
    chosen = error[inside]
    covariance = np.einsum("nrd,nre->rde", chosen, chosen) / len(chosen)
    return np.linalg.cholesky(covariance + 1e-9 * np.eye(2))
