"""The stages of one imitation of moving agents, their state between stages, and its checkpoint."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Float

from ethogram.inference import storage
from ethogram.inference.checkpoint import CURE, resumed
from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.inference.conjugate.posterior import ConjugateResult
from ethogram.inference.imitation.motion import (
    Scenes,
    by_role,
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
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.numpy_generator import numpy_generator
from ethogram.models.roles.role_hmm import RoleHMM

__all__ = ["MotionSettings", "MotionState", "Pieces", "Stages", "roles_of_plays", "windows"]

WINDOW, OVERLAP = 50, 25
"""Frames of the pieces that plays are trained in, as in the paper."""

STRUCTURE_STEPS, FIRST_STEPS = 50, 200
"""Iterations of the role model after a stage, and before the first one."""


class MotionSettings(NamedTuple):
    """Numbers of `imitate_motion`."""

    num_steps: int
    num_units: int
    learning_rate: float
    weight_decay: float


class MotionState(NamedTuple):
    """State after a whole stage; what a checkpoint holds."""

    horizons: tuple[int, ...]  # of the stages done
    parameters: dict[str, Array]  # of `recurrent_step`, leaves leading with the roles
    loss: np.ndarray  # (stage, step)
    log_likelihood: (
        np.ndarray | None
    )  # (play, agent, role) of the plays, for the last stage; None unless learned
    fit: ConjugateResult | None  # role model, fitted to the latest roll-outs; None unless learned


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


class Stages:
    """One imitation of moving agents; see `imitate_motion` for the arguments."""

    def __init__(
        self,
        key: Array,
        model: RoleHMM | ConjugateResult | None,
        scenes: Scenes,
        data: Trajectories | None,
        horizons: Sequence[int],
        settings: MotionSettings,
    ):
        self.key, self.model, self.scenes, self.data = key, model, scenes, data
        self.horizons, self.settings = tuple(int(horizon) for horizon in horizons), settings
        self.key_roles, self.key_networks = jax.random.split(key)
        num_plays, _, num_agents, _ = scenes.positions.shape
        rng = numpy_generator(self.key_roles)
        self.shuffled = shuffled_roles(rng, num_plays, num_agents, num_agents)

    def advance(self, progress_bar: bool, checkpoint: str | os.PathLike | None) -> MotionState:
        """State after all stages; the checkpoint is written after each."""
        from tqdm.auto import tqdm

        state, save = resumed(checkpoint, self.signature, MotionState, self._check_saved, self._first)
        total, done = len(self.horizons), len(state.horizons)
        with tqdm(total=total, initial=done, disable=not progress_bar, desc="imitate_motion") as bar:
            for stage in range(done, total):
                state = self._stage(state, stage)
                save(state)
                distance = float(np.sqrt(state.loss[-1, -1]))
                bar.set_postfix_str(f"horizon {self.horizons[stage]}, {distance:.2f} m", refresh=False)
                bar.update()
        return state

    def probability(self, state: MotionState) -> tuple[np.ndarray, RoleMaps]:
        """Probability (play, agent, role), and weighted maps, that the last stage was trained by."""
        if state.log_likelihood is None:
            fixed = certain_probability(self.shuffled, self.shuffled.shape[1])
            return fixed, weighted_maps(fixed)
        probability = map_probability(state.log_likelihood)
        return probability, weighted_maps(probability, state.log_likelihood)

    def signature(self) -> str:
        """Digest of what a stage depends on, but for the stages before."""
        data, model = self.data, self.model
        return storage.fingerprint(
            jax.random.key_data(self.key),
            None if data is None else data._replace(times=None, metadata=Metadata()),
            tuple(np.asarray(part) for part in self.scenes),
            model.posterior if isinstance(model, ConjugateResult) else model,
            list(self.settings),
        )

    def _check_saved(self, name: str, state: MotionState) -> None:
        done = tuple(state.horizons)
        expected = jax.eval_shape(self._new_parameters)
        shapes = [
            {part: np.shape(array) for part, array in found.items()} for found in (state.parameters, expected)
        ]
        learned = {state.log_likelihood is not None, state.fit is not None}
        if (
            shapes[0] != shapes[1]
            or np.shape(state.loss) != (len(done), self.settings.num_steps)
            or learned != {self.model is not None}
        ):
            raise ValueError(f"{name} is damaged: its parameters, losses or stages do not agree; {CURE}")
        if done != self.horizons[: len(done)]:
            raise ValueError(
                f"{name} is a checkpoint after the horizons {done}, with which horizons={self.horizons} does not "
                f"begin: {CURE}"
            )

    def _new_parameters(self) -> dict[str, Array]:
        return new_recurrent(self.key_networks, self.shuffled.shape[1], self.settings.num_units)

    def _first(self) -> MotionState:
        """State before the first stage, with the role model fitted to the plays."""
        fit = self.model if isinstance(self.model, ConjugateResult) else None
        if self.model is not None and fit is None:
            assert self.data is not None
            engine = ConjugateSVI(self.model)
            fit = engine.run(self.key_roles, self.data, FIRST_STEPS, progress_bar=False)
        return MotionState((), self._new_parameters(), np.zeros((0, self.settings.num_steps)), None, fit)

    def _stage(self, state: MotionState, stage: int) -> MotionState:
        """Assign, learn on roll-outs of one horizon, and learn the structure (Algorithms 1 and 2)."""
        horizon = self.horizons[stage]
        if state.fit is not None:
            assert self.data is not None
            log_likelihood = _log_likelihood(state.fit, self.data, self.shuffled.shape[1])
            state = state._replace(log_likelihood=log_likelihood)
        _, maps = self.probability(state)
        pieces = windows(by_role(self.scenes, maps.game, maps.role), _weight_of_roles(maps))
        parameters, loss = _train(state.parameters, pieces, horizon, **self.settings._asdict())
        loss = np.asarray(loss)
        if not all(np.isfinite(x).all() for x in (loss, *parameters.values())):
            raise ValueError(
                f"the loss of horizon {horizon} is {loss[-1]} after {len(loss)} steps, or parameters are not finite: "
                "give a smaller learning_rate"
            )
        fit = state.fit
        if fit is not None:
            fit = self._learn_structure(
                jax.random.fold_in(self.key_roles, stage), fit, maps, parameters, horizon
            )
        losses = np.concatenate([state.loss, loss[None]])
        return MotionState(self.horizons[: stage + 1], parameters, losses, state.log_likelihood, fit)

    def _learn_structure(
        self, key: Array, fit: ConjugateResult, maps: RoleMaps, parameters: Any, horizon: int
    ) -> ConjugateResult:
        """The role model, fitted to the roll-outs about their centroids, from the fit before."""
        assert self.data is not None
        plays = np.arange(len(maps.best))
        ordered = by_role(self.scenes, plays, maps.best)
        num_units = self.settings.num_units
        rolled = roll_motion(recurrent_step, parameters, ordered, horizon, num_units=num_units)
        whole = np.concatenate(
            [ordered.positions[:, :1], np.moveaxis(np.asarray(rolled.positions), 0, 1)], axis=1
        )
        of_agents = np.take_along_axis(whole, maps.best[:, None, :, None], axis=2)
        of_agents -= of_agents.mean(axis=2, keepdims=True)
        sequences = sequences_of_games(self.data, of_agents.shape[2])
        observations = np.array(self.data.observations)
        width = min(observations.shape[1], of_agents.shape[1])
        observations[sequences, :width] = of_agents.swapaxes(1, 2)[:, :, :width]
        observations[~np.asarray(self.data.observed)] = 0
        engine = ConjugateSVI(fit.posterior.model)
        data = self.data._replace(observations=observations)
        return engine.run(key, data, STRUCTURE_STEPS, init=fit, progress_bar=False)


def roles_of_plays(fit: Any, data: Trajectories, num_agents: int) -> tuple[np.ndarray, RoleMaps]:
    """Probability (play, agent, role), and weighted maps, of plays under a fit."""
    log_likelihood = _log_likelihood(fit, data, num_agents)
    probability = map_probability(log_likelihood)
    return probability, weighted_maps(probability, log_likelihood)


def _log_likelihood(fit: Any, data: Trajectories, num_agents: int) -> np.ndarray:
    """Of every agent of the plays in every role (play, agent, role), in nats."""
    sequences = sequences_of_games(data, num_agents)
    return np.asarray(role_log_likelihood(fit, data), float)[sequences]


def _weight_of_roles(maps: RoleMaps) -> Float[np.ndarray, "map role"]:
    weight = np.zeros_like(maps.weight)
    np.put_along_axis(weight, maps.role, maps.weight, axis=1)
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


@functools.partial(jax.jit, static_argnames=("num_steps", "num_units"))
def _train(parameters, pieces, horizon, num_steps, num_units, learning_rate, weight_decay):
    """Parameters after Adam on the mean squared distance, and its trace."""
    optimiser = optax.adamw(optax.cosine_decay_schedule(learning_rate, num_steps), weight_decay=weight_decay)
    target = jnp.moveaxis(jnp.asarray(pieces.scenes.positions), 1, 0)[1:]
    share = jnp.moveaxis(jnp.asarray(pieces.weight), 1, 0)[1:]

    def loss(parameters):
        rolled = roll_motion(
            recurrent_step, parameters, pieces.scenes, horizon, num_units=num_units, before=pieces.before
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
