r"""Coordinated imitation of moving agents without an expert: recurrent policies, trained on roll-outs.

Le, Yue, Carr, Lucey (2017), Algorithms 1 and 2: the horizon of the roll-outs is raised stage by stage; after each stage
the role model is fitted to the roll-outs, and the demonstrations are assigned to roles anew. The loss is the mean
squared distance of the roll-outs from the demonstrations.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Float, Int

from ethogram.inference import storage
from ethogram.inference.checkpoint import CURE, Checkpoint
from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.inference.conjugate.posterior import ConjugateResult
from ethogram.inference.imitation.motion import (
    MotionFeatures,
    Scenes,
    by_role,
    centred_plays,
    new_recurrent,
    num_features,
    read_scenes,
    recurrent_step,
    roll_motion,
)
from ethogram.inference.imitation.rounds import run_rounds
from ethogram.inference.imitation.weighted_assignments import (
    WeightedAssignments,
    game_log_likelihood,
    known_assignments,
    shuffled_roles,
    weighted_assignments,
)
from ethogram.inference.imitation.world import sequences_of_games
from ethogram.models.arguments import (
    as_list,
    read_array,
    require_integer,
    require_key,
    require_number,
    require_one_of,
)
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.numpy_generator import numpy_generator
from ethogram.models.printing import short_repr
from ethogram.models.roles.role_hmm import RoleHMM

__all__ = ["MotionResult", "fit_linear_motion", "imitate_motion", "residual_scale"]

WINDOW, OVERLAP = 50, 25
"""Frames of the pieces that plays are trained in, as in the paper.

Whole plays, padded to the longest, took 1.5 times the CPU seconds on 27 plays of 5 to 191 frames.
"""

STRUCTURE_STEPS, FIRST_STEPS = 50, 200
"""Iterations of the role model after a stage, and before the first one."""


@short_repr
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


class MotionState(NamedTuple):
    """State after whole stages; what a checkpoint holds."""

    horizons: tuple[int, ...]  # of the stages done
    parameters: dict[str, Array]  # of `recurrent_step`, leaves leading with the roles
    loss: np.ndarray  # (stage, step)
    log_likelihood: (
        np.ndarray | None
    )  # (play, agent, role) of the plays, for the last stage; None unless learned
    fit: ConjugateResult | None  # role model, fitted to the latest roll-outs; None unless learned

    @property
    def done(self) -> int:
        """Stages done."""
        return len(self.horizons)


class MotionRun(NamedTuple):
    """What does not change from stage to stage; see `imitate_motion`."""

    key: Array
    model: RoleHMM | ConjugateResult | None
    scenes: Scenes
    data: Trajectories | None  # the plays as the role model observes them; None unless roles are learned
    horizons: tuple[int, ...]
    features: MotionFeatures
    num_steps: int
    num_units: int
    learning_rate: float
    weight_decay: float


class Pieces(NamedTuple):
    """Pieces of plays, to be trained on.

    Attributes
    ----------
    scenes : at most `WINDOW` frames each.
    before : positions (piece, agent, 2) and context (piece, object, 2) one frame earlier; at the first frame of a play,
        where nobody has a velocity yet, the first frame itself.
    weight : (piece, time, role) of the frames.
    """

    scenes: Scenes
    before: tuple[np.ndarray, np.ndarray]
    weight: Float[np.ndarray, "piece time role"]


def imitate_motion(
    key: Array,
    model: RoleHMM | ConjugateResult | None,
    scenes: Scenes,
    *,
    roles: str = "learned",
    horizons: Sequence[int] = (1, 2, 5, 10),
    features: MotionFeatures,
    num_steps: int = 60,
    num_units: int = 8,
    learning_rate: float = 3e-3,
    weight_decay: float = 10.0,
    progress_bar: bool = True,
    checkpoint: str | os.PathLike | None = None,
) -> MotionResult:
    """Recurrent policies of all roles, trained together on joint roll-outs of growing horizon.

    Parameters
    ----------
    key : a typed key.
    model : a `RoleHMM` with as many roles as agents, or a fit of it to begin with, which observes positions about the
        centroid of the agents (`centred_plays`); None for the baseline.
    scenes : the plays.
    roles : ``"learned"``, or ``"shuffled"``: an arbitrary assignment of agents to policies in each play.
    horizons : steps of the roll-outs in each stage.
    features : what policies see, as of `roll_motion`.
    num_steps : gradient steps (Adam with weight decay) in each stage.
    num_units, learning_rate, weight_decay : of the networks and their training.
    checkpoint : file written after every stage. The same call resumes after the last whole stage, and returns what an
        uninterrupted run returns; more `horizons` extend it.
    """
    require_key(key)
    if not callable(features):
        raise TypeError(f"features is {type(features).__name__}: give a function of positions and velocities")
    horizons = as_list("horizons", horizons, "the steps of each stage")
    if not horizons:
        raise ValueError("horizons is empty: give the steps of one stage at least")
    require_one_of("roles", roles, ("learned", "shuffled"))
    for name, count in (
        ("num_steps", num_steps),
        ("num_units", num_units),
        *(("horizons", h) for h in horizons),
    ):
        require_integer(name, count, 1)
    rate = require_number("learning_rate", learning_rate, above=0)
    decay = require_number("weight_decay", weight_decay, 0)
    scenes = read_scenes(scenes)
    num_agents = scenes.positions.shape[2]
    num_features(features, num_agents, scenes.context.shape[2])
    if roles == "learned":
        if model is None:
            raise ValueError("model is None: roles='learned' needs a RoleHMM, or a fit of one")
        found_model = model.posterior.model if isinstance(model, ConjugateResult) else model
        if not isinstance(found_model, RoleHMM):
            raise TypeError(f"model is {type(found_model).__name__}: give a RoleHMM, or a fit of one")
        if found_model.num_roles != num_agents:
            raise ValueError(f"num_roles is {found_model.num_roles}, the scenes have {num_agents} agents")
    else:
        model = None
    data = None if model is None else centred_plays(scenes)
    steps = tuple(int(horizon) for horizon in horizons)
    run = MotionRun(key, model, scenes, data, steps, features, num_steps, num_units, rate, decay)
    signature, first, refuse = (
        partial(_signature, run),
        partial(_first, run),
        partial(_refuse_other_horizons, steps),
    )
    with Checkpoint(checkpoint) as store:
        state = run_rounds(
            "imitate_motion",
            store.resumed(signature, MotionState, refuse, first),
            partial(_one_stage, run),
            len(steps),
            lambda state: store.save(state, state.done),
            lambda state: f"horizon {state.horizons[-1]}, {np.sqrt(state.loss[-1, -1]):.2f} m",
            progress_bar,
        )
    assignments = _assignments(run, state)
    return MotionResult(
        state.parameters, num_units, assignments.best, assignments.probability, state.fit, state.loss
    )


def _signature(run: MotionRun) -> str:
    """Digest of what a stage depends on, but for the stages before; the features are represented by their name."""
    model = run.model
    return storage.fingerprint(
        jax.random.key_data(run.key),
        tuple(np.asarray(part) for part in run.scenes),
        model.posterior if isinstance(model, ConjugateResult) else model,
        getattr(run.features, "__qualname__", type(run.features).__qualname__),
        [run.num_steps, run.num_units, run.learning_rate, run.weight_decay],
    )


def _refuse_other_horizons(horizons: tuple[int, ...], name: str, state: MotionState) -> None:
    done = tuple(state.horizons)
    if done != horizons[: len(done)]:
        raise ValueError(
            f"{name} is a checkpoint after the horizons {done}, with which horizons={horizons} does not begin: {CURE}"
        )


def _first(run: MotionRun) -> MotionState:
    """State before the first stage, with the role model fitted to the plays."""
    key_roles, key_networks = jax.random.split(run.key)
    fit = run.model if isinstance(run.model, ConjugateResult) else None
    if run.model is not None and fit is None:
        assert run.data is not None
        fit = ConjugateSVI(run.model).run(key_roles, run.data, FIRST_STEPS, progress_bar=False)
    num_agents, num_objects = run.scenes.positions.shape[2], run.scenes.context.shape[2]
    width = num_features(run.features, num_agents, num_objects)
    parameters = new_recurrent(key_networks, num_agents, width, run.num_units)
    return MotionState((), parameters, np.zeros((0, run.num_steps)), None, fit)


def _one_stage(run: MotionRun, state: MotionState, number: int) -> MotionState:
    """Assign, learn on roll-outs of one horizon, and learn the structure (Algorithms 1 and 2)."""
    horizon = run.horizons[number - 1]
    if state.fit is not None:
        assert run.data is not None
        sequences = sequences_of_games(run.data, run.scenes.positions.shape[2])
        state = state._replace(log_likelihood=game_log_likelihood(state.fit, run.data, sequences))
    assignments = _assignments(run, state)
    ordered = by_role(run.scenes, assignments.game, assignments.role)
    pieces = windows(ordered, _weight_of_roles(assignments))
    parameters, loss = _train(
        state.parameters,
        pieces,
        horizon,
        run.features,
        run.num_steps,
        run.num_units,
        run.learning_rate,
        run.weight_decay,
    )
    loss = np.asarray(loss)
    if not all(np.isfinite(x).all() for x in (loss, *parameters.values())):
        raise ValueError(
            f"the loss of horizon {horizon} is {loss[-1]} after {len(loss)} steps, or parameters are not finite: "
            "give a smaller learning_rate, or features that are finite"
        )
    state = state._replace(
        horizons=run.horizons[:number],
        parameters=parameters,
        loss=np.concatenate([state.loss, loss[None]]),
    )
    return state if state.fit is None else state._replace(fit=_learn_structure(run, state, assignments))


def _assignments(run: MotionRun, state: MotionState) -> WeightedAssignments:
    """Those that the last stage was trained by."""
    if state.log_likelihood is not None:
        return weighted_assignments(state.log_likelihood)
    num_plays, _, num_agents, _ = run.scenes.positions.shape
    rng = numpy_generator(jax.random.split(run.key)[0])
    return known_assignments(shuffled_roles(rng, num_plays, num_agents, num_agents), num_agents)


def _learn_structure(run: MotionRun, state: MotionState, assignments: WeightedAssignments) -> ConjugateResult:
    """The role model, fitted to the roll-outs about their centroids, from the fit before."""
    assert run.data is not None and state.fit is not None
    best = assignments.best
    ordered = by_role(run.scenes, np.arange(len(best)), best)
    rolled = roll_motion(
        recurrent_step,
        state.parameters,
        ordered,
        state.horizons[-1],
        num_units=run.num_units,
        features=run.features,
    )
    whole = np.concatenate(
        [ordered.positions[:, :1], np.moveaxis(np.asarray(rolled.positions), 0, 1)], axis=1
    )
    of_agents = np.take_along_axis(whole, best[:, None, :, None], axis=2)
    data = centred_plays(run.scenes._replace(positions=of_agents))
    key = jax.random.fold_in(jax.random.split(run.key)[0], state.done - 1)
    engine = ConjugateSVI(state.fit.posterior.model)
    return engine.run(key, data, STRUCTURE_STEPS, init=state.fit, progress_bar=False)


def _weight_of_roles(assignments: WeightedAssignments) -> Float[np.ndarray, "assignment role"]:
    weight = np.zeros_like(assignments.weight)
    np.put_along_axis(weight, assignments.role, assignments.weight, axis=1)
    return weight


def windows(scenes: Scenes, weight: Float[np.ndarray, "play role"]) -> Pieces:
    """Pieces of at most `WINDOW` frames that overlap by `OVERLAP`.

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
    positions, context = np.asarray(scenes.positions), np.asarray(scenes.context)
    then = np.maximum(start - 1, 0)
    return Pieces(
        Scenes(positions[play[:, None], times], context[play[:, None], times], size),
        (positions[play, then], context[play, then]),
        share[..., None] * weight[play][:, None],
    )


@functools.partial(jax.jit, static_argnames=("features", "num_steps", "num_units"))
def _train(parameters, pieces, horizon, features, num_steps, num_units, learning_rate, weight_decay):
    """Parameters after Adam on the mean squared distance, and its trace."""
    optimiser = optax.adamw(optax.cosine_decay_schedule(learning_rate, num_steps), weight_decay=weight_decay)
    target = jnp.moveaxis(jnp.asarray(pieces.scenes.positions), 1, 0)[1:]
    share = jnp.moveaxis(jnp.asarray(pieces.weight), 1, 0)[1:]

    def loss(parameters):
        rolled = roll_motion(
            recurrent_step,
            parameters,
            pieces.scenes,
            horizon,
            num_units=num_units,
            before=pieces.before,
            features=features,
        )
        distance = jnp.sum((rolled.positions - target) ** 2, axis=-1)
        return jnp.sum(share * distance) / jnp.sum(share)

    def update(carry, _):
        parameters, state = carry
        value, gradient = jax.value_and_grad(loss)(parameters)
        change, state = optimiser.update(gradient, state, parameters)
        return (optax.apply_updates(parameters, change), state), value

    (parameters, _), trace = jax.lax.scan(update, (parameters, optimiser.init(parameters)), length=num_steps)
    return parameters, trace


@functools.partial(jax.jit, static_argnames="features")
def _one_step(scenes: Scenes, features: MotionFeatures) -> tuple[Array, Array]:
    """Features (play, time, role, feature) at true positions, and the changes of velocity, from time 1 on."""
    positions, context = jnp.asarray(scenes.positions), jnp.asarray(scenes.context)
    velocity, after = positions[:, 1:-1] - positions[:, :-2], positions[:, 2:] - positions[:, 1:-1]
    objects = context[:, 1:-1]
    phi = jax.vmap(jax.vmap(features))
    return phi(positions[:, 1:-1], velocity, objects, objects - context[:, :-2]), after - velocity


def fit_linear_motion(
    scenes: Scenes,
    weight: Float[np.ndarray, "play role"] | None = None,
    ridge: float = 10.0,
    *,
    features: MotionFeatures,
) -> Float[np.ndarray, "role row 2"]:
    """One linear autoregression for each role, of its change of velocity on the features, by ridge regression.

    A large `ridge`, which is above 0, gives constant velocity. `weight` of a role in a play is 1 where None. `features`
    are as of `roll_motion`.
    """
    scenes = read_scenes(scenes)
    num_features(features, scenes.positions.shape[2], scenes.context.shape[2])
    ridge = require_number("ridge", ridge, above=0)
    if weight is not None:
        weight, expected = read_array("weight", weight), scenes.positions.shape[::2]
        if weight.shape != expected:
            raise ValueError(f"weight has shape {weight.shape}: give {expected}, (play, role)")
        if not (np.isfinite(weight).all() and (weight >= 0).all()):
            raise ValueError("weight must be finite, and not negative")
    seen, change = (np.asarray(x, float) for x in _one_step(scenes, features))
    num_plays, num_times, num_roles, width = seen.shape
    inside = np.arange(num_times) + 2 < np.asarray(scenes.lengths)[:, None]
    for play, time, role, _ in np.argwhere(inside[..., None, None] & ~np.isfinite(seen))[:1]:
        raise ValueError(f"features of role {role} in play {play} at time {time + 1} are not finite")
    share = inside[..., None] * (np.ones((num_plays, num_roles)) if weight is None else weight)[:, None]
    seen = np.where(inside[..., None, None], seen, 0)
    design = np.concatenate([seen, np.ones((*seen.shape[:-1], 1))], axis=-1)
    penalty = ridge * np.eye(width + 1)
    gram = np.einsum("ptrf,ptr,ptrg->rfg", design, share, design) + penalty
    return np.linalg.solve(gram, np.einsum("ptrf,ptr,ptrd->rfd", design, share, change))


def residual_scale(
    step: Any, parameters: Any, scenes: Scenes, num_units: int = 1, *, features: MotionFeatures
) -> Float[np.ndarray, "role 2 2"]:
    """Cholesky factors of the covariance of one-step errors of each role, for sampled futures.

    Arguments are those of `roll_motion`; one play has three frames at least.
    """
    rolled = roll_motion(step, parameters, scenes, 1, num_units=num_units, features=features)
    true = np.moveaxis(np.asarray(scenes.positions), 1, 0)[1:]
    error = true - np.asarray(rolled.positions)
    inside = np.arange(1, len(true) + 1)[:, None] < np.asarray(scenes.lengths)
    inside[0] = False  # nobody has a velocity yet
    chosen = error[inside]
    if not len(chosen):
        raise ValueError("scenes.lengths are 2: errors of a step need three frames of one play at least")
    covariance = np.einsum("nrd,nre->rde", chosen, chosen) / len(chosen)
    return np.linalg.cholesky(covariance + 1e-9 * np.eye(2))
