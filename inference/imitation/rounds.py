"""The rounds of one imitation, their state between rounds, and its checkpoint."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from ethogram.inference import storage
from ethogram.inference.checkpoint import CURE, resumed
from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.inference.conjugate.posterior import ConjugateResult
from ethogram.inference.imitation.policies import describe_policy, fit_policy, new_policy
from ethogram.inference.imitation.result import ImitationResult
from ethogram.inference.imitation.role_maps import (
    RoleMaps,
    certain_probability,
    map_probability,
    shuffled_roles,
    weighted_maps,
)
from ethogram.inference.imitation.roll_outs import RollOut, roll_out
from ethogram.inference.imitation.world import observe, read_actions, record, replay, require_state, take
from ethogram.inference.roles.assignment import infer_roles, role_log_likelihood
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.numpy_generator import numpy_generator
from ethogram.models.roles.role_hmm import RoleHMM

__all__ = ["ImitationState", "Rounds", "Settings"]

TRAINING, ROLLING, PLAYING, SHUFFLING = range(4)
"""What random numbers of a round are for."""


class Settings(NamedTuple):
    """Numbers of `imitate`."""

    rounds: int
    horizon: int
    choose: str
    evaluation_games: int
    fit_steps: int
    restarts: int


class ImitationState(NamedTuple):
    """State after a whole round; what a checkpoint holds."""

    round: int  # rounds done
    leaves: list[np.ndarray]  # states of the roll-outs so far, (row, ...), by leaf of the world's state
    actions: np.ndarray  # (row, agent, ...) what the expert did there
    game: np.ndarray  # (row,) demonstration that the roll-out began with
    trained: int  # rows that the policies of the last round were trained on
    probability: np.ndarray  # (game, agent, role) by which they were weighted
    log_likelihood: np.ndarray | None  # (game, agent, role) of the demonstrations; None unless learned
    fit: ConjugateResult | None  # role model, fitted to the latest roll-outs
    curves: dict[str, np.ndarray]  # by name, leading with the rounds
    rolled: Trajectories | None  # latest roll-outs of the demonstrations
    played: Trajectories | None  # latest fresh games


class Rounds:
    """One imitation; see `imitate` for the arguments."""

    def __init__(
        self,
        key: Array,
        policy: Any,
        world: Any,
        data: Trajectories,
        sequences: np.ndarray,
        expert: Any,
        settings: Settings,
        model: RoleHMM | None,
        start: ConjugateResult | None,
        known: np.ndarray | None,
        num_roles: int,
    ):
        self.key, self.policy, self.world, self.expert = key, policy, world, expert
        self.data, self.sequences, self.settings = data, sequences, settings
        self.model, self.start, self.num_roles = model, start, num_roles
        self.replay = replay(world, data, sequences)
        num_games, num_agents = sequences.shape
        self.fixed = known
        if model is None and known is None:
            self.fixed = shuffled_roles(self._random(0, SHUFFLING), num_games, num_agents, num_roles)
        inside = np.arange(self.replay.actions.shape[1]) < self.replay.lengths[:, None]
        self.game, self.time = np.nonzero(inside)
        self.demonstrated = take(self.replay.states, inside)
        self.demonstrated_actions = self.replay.actions[inside]
        self.scored: tuple[int, list[Any]] = (0, [])  # round, and its policies, which played its games

    def _random(self, round: int, purpose: int, *more: int) -> np.random.Generator:
        return numpy_generator(self.key, round, purpose, *more)

    def advance(self, progress_bar: bool, checkpoint: str | os.PathLike | None) -> ImitationState:
        """State after all rounds; the checkpoint is written after each."""
        from tqdm.auto import tqdm

        state, save = resumed(checkpoint, self.signature, ImitationState, self._check_saved, self._first)
        rounds = self.settings.rounds
        with tqdm(total=rounds, initial=state.round, disable=not progress_bar, desc="imitate") as bar:
            while state.round < rounds:
                try:
                    state = self._round(state)
                except Exception as error:
                    error.add_note(f"in round {state.round + 1} of {rounds}")
                    raise
                save(state)
                failure, steps = (state.curves[name][-1] for name in ("failure", "steps"))
                bar.set_postfix_str(f"failure {failure:.1%}, {steps:.1f} steps", refresh=False)
                bar.update()
        return state

    def signature(self) -> str:
        """Digest of what the rounds depend on; world and expert, which may have a state, count by their class."""
        settings = [*self.settings[1:]] if self.expert is not None else [*self.settings]
        origin = None if self.start is None else self.start.posterior.blocks
        return storage.fingerprint(
            jax.random.key_data(self.key),
            self.data._replace(times=None, metadata=Metadata()),
            settings,
            self.model,
            origin,
            self.fixed,
            self.num_roles,
            type(self.world).__qualname__,
            describe_policy(self.policy),
            None if self.expert is None else type(self.expert).__qualname__,
        )

    def _check_saved(self, name: str, state: ImitationState) -> None:
        rows = {len(state.actions), len(state.game), *map(len, state.leaves)}
        done = {len(curve) for curve in state.curves.values()}
        if (
            len(rows) != 1
            or done != {state.round}
            or not 0 < state.trained <= len(self.game) + len(state.game)
        ):
            raise ValueError(f"{name} is damaged: its rows or rounds do not agree; {CURE}")
        if state.round > self.settings.rounds:
            raise ValueError(
                f"{name} is a checkpoint after {state.round} rounds, more than rounds={self.settings.rounds}: {CURE}"
            )

    def _first(self) -> ImitationState:
        """State before the first round, with the role model fitted to the demonstrations."""
        empty = take(self.demonstrated, slice(0, 0))
        fit = self.start
        if self.model is not None and fit is None:
            key = jax.random.fold_in(self.key, 0)
            engine, settings = ConjugateSVI(self.model), self.settings
            fit = engine.run(
                key, self.data, settings.fit_steps, restarts=settings.restarts, progress_bar=False
            )
        return ImitationState(
            0,
            jax.tree.leaves(empty),
            self.demonstrated_actions[:0],
            self.game[:0],
            len(self.game),
            np.zeros((*self.sequences.shape, self.num_roles)),
            None,
            fit,
            {},
            None,
            None,
        )

    def _round(self, state: ImitationState) -> ImitationState:
        """Assign, learn, roll out, ask the expert, learn the structure, play fresh games (Algorithms 1 and 6)."""
        number = state.round + 1
        log_likelihood = self._log_likelihood(state.fit)
        probability = self._probability(log_likelihood)
        maps = weighted_maps(probability, log_likelihood)
        trained = len(self.game) + len(state.game)
        policies = self._train(number, state, maps, trained)
        self.scored = number, policies
        rolled, start = self._roll(number, policies, maps)
        leaves, answers, rows, loss = self._ask(state, rolled, start)
        rolled_data = record(self.world, rolled.states, rolled.actions, rolled.lengths)
        fit, frequency, elbo = state.fit, np.full((self.num_roles, self.num_roles), np.nan), np.nan
        if self.model is not None:
            fit = self._learn_structure(number, state.fit, rolled_data)
            frequency = _frequency(
                infer_roles(fit, rolled_data).path, maps.best[start[0]].ravel(), self.num_roles
            )
            elbo = float(fit.elbo[-1])
        played = self._play(number, policies)
        new = {
            "failure": 1 - played.reached.mean(),
            "steps": played.lengths.mean(),
            "loss": loss,
            "elbo": elbo,
            "reached": played.reached,
            "game_steps": played.lengths,
            "policy_role": frequency,
        }
        curves = {
            name: np.concatenate([state.curves[name], np.asarray(value)[None]])
            if name in state.curves
            else np.asarray(value)[None]
            for name, value in new.items()
        }
        return ImitationState(
            number,
            leaves,
            answers,
            rows,
            trained,
            probability,
            log_likelihood,
            fit,
            curves,
            rolled_data,
            record(self.world, played.states, played.actions, played.lengths),
        )

    def _log_likelihood(self, fit: ConjugateResult | None) -> np.ndarray | None:
        """Of every agent of the demonstrations in every role (game, agent, role), in nats; None unless learned."""
        if self.model is None or fit is None:
            return None
        return np.asarray(role_log_likelihood(fit, self.data), dtype=float)[self.sequences]

    def _probability(self, log_likelihood: np.ndarray | None) -> np.ndarray:
        if log_likelihood is not None:
            return map_probability(log_likelihood)
        assert self.fixed is not None
        return certain_probability(self.fixed, self.num_roles)

    def _train(self, number: int, state: ImitationState, maps: RoleMaps, trained: int) -> list[Any]:
        """A new policy for each role, trained on the demonstrations and the first roll-outs, `trained` rows in all."""
        more = trained - len(self.game)
        tree = jax.tree.structure(self.demonstrated)
        added = [leaf[:more] for leaf in state.leaves]
        states = jax.tree.map(
            lambda *x: np.concatenate(x), self.demonstrated, jax.tree.unflatten(tree, added)
        )
        actions = np.concatenate([self.demonstrated_actions, state.actions[:more]])
        row, chosen = _maps_of_rows(np.concatenate([self.game, state.game[:more]]), maps)
        roles, weight = maps.role[chosen], maps.weight[chosen]
        features = observe(self.world, roles, take(states, row))
        targets = actions[row]
        policies = []
        for role in range(self.num_roles):
            where = (roles == role) & (weight > 0)
            seed = int(self._random(number, TRAINING, role).integers(2**31 - 1))
            policy = new_policy(self.policy, seed)
            policies.append(fit_policy(policy, features[where], targets[where], weight[where], role))
        return policies

    def _roll(
        self, number: int, policies: list[Any], maps: RoleMaps
    ) -> tuple[RollOut, tuple[np.ndarray, np.ndarray]]:
        """Roll-outs from the demonstrations, and the game and time at which each began."""
        horizon, rounds = self.settings.horizon, self.settings.rounds
        if self.expert is not None:
            games, times = np.arange(len(self.sequences)), np.zeros(len(self.sequences), int)
            limits = np.full(len(games), horizon)
        else:
            segment = 1 + round((horizon - 1) * (number - 1) / max(rounds - 1, 1))
            begins = self.time % segment == 0
            games, times = self.game[begins], self.time[begins]
            limits = np.minimum(segment, self.replay.lengths[games] - times)
        first = take(self.replay.states, (games, times))
        rng = self._random(number, ROLLING)
        rolled = roll_out(self.world, policies, maps.best[games], first, rng, limits, self.settings.choose)
        return rolled, (games, times)

    def _ask(
        self, state: ImitationState, rolled: RollOut, start: tuple[np.ndarray, np.ndarray]
    ) -> tuple[list[np.ndarray], np.ndarray, np.ndarray, float]:
        """The data with the roll-outs and the expert's actions there, and how far the policies were from these."""
        inside = np.arange(rolled.actions.shape[1]) < rolled.lengths[:, None]
        row, time = np.nonzero(inside)
        visited, game = take(rolled.states, inside), start[0][row]
        if self.expert is not None:
            answers = read_actions("expert", self.expert(visited, game), len(game), self.world)
        else:
            answers = self.replay.actions[game, start[1][row] + time]
        chosen, dims = rolled.actions[inside], self.demonstrated_actions.shape[2:]
        for origin, actions in {"the policies": chosen, "expert": answers}.items():
            if actions.shape[2:] != dims:
                raise ValueError(
                    f"{origin} returned actions of {actions.shape[2:]} numbers, the demonstrations have {dims}"
                )
        differences = chosen != answers
        if self.world.num_actions is None:
            differences = np.linalg.norm(chosen - answers, axis=-1)
        leaves = [np.concatenate(x) for x in zip(state.leaves, jax.tree.leaves(visited), strict=True)]
        answers = np.concatenate([state.actions, answers])
        return leaves, answers, np.concatenate([state.game, game]), float(differences.mean())

    def _learn_structure(
        self, number: int, fit: ConjugateResult | None, rolled: Trajectories
    ) -> ConjugateResult:
        """Role model fitted to the roll-outs, from the fit before, whose labels it keeps."""
        key = jax.random.fold_in(self.key, number)
        steps = self.settings.fit_steps
        return ConjugateSVI(self.model).run(key, rolled, steps, init=fit, progress_bar=False)

    def _play(self, number: int, policies: list[Any]) -> RollOut:
        """Fresh games, with an arbitrary map of agents to policies."""
        rng, count = self._random(number, PLAYING), self.settings.evaluation_games
        roles = shuffled_roles(rng, count, self.world.num_agents, self.num_roles)
        first = self.world.reset(rng, count)
        for leaf in jax.tree.leaves(first):
            if np.shape(leaf)[:1] != (count,):
                raise ValueError(
                    f"world.reset returned a state of shape {np.shape(leaf)}: give {count} games first"
                )
        require_state(first, "world.reset")
        limits = np.full(count, self.settings.horizon)
        return roll_out(self.world, policies, roles, first, rng, limits, self.settings.choose)

    def result(self, state: ImitationState) -> ImitationResult:
        """Result of the last round; from a checkpoint its policies are trained again, from the same rows and seeds."""
        assert state.rolled is not None and state.played is not None  # at least one round was done
        maps = weighted_maps(state.probability, state.log_likelihood)
        done, policies = self.scored
        if done != state.round:
            policies = self._train(state.round, state, maps, state.trained)
        by_sequence = np.empty((self.sequences.size, self.num_roles))
        by_sequence[self.sequences] = state.probability
        role = np.empty(self.sequences.size, int)
        role[self.sequences] = maps.best
        return ImitationResult(
            policies=tuple(policies),
            role=role,
            role_probability=by_sequence,
            fit=state.fit,
            **state.curves,
            rolled=state.rolled,
            played=state.played,
        )


def _maps_of_rows(game: np.ndarray, maps: RoleMaps) -> tuple[np.ndarray, np.ndarray]:
    """Row and map of each pair of a row and a map of its game."""
    order = np.argsort(maps.game, kind="stable")
    count = np.bincount(maps.game)
    first = np.cumsum(count) - count
    each = count[game]
    row = np.repeat(np.arange(len(game)), each)
    offset = np.arange(len(row)) - np.repeat(np.cumsum(each) - each, each)
    return row, order[first[game[row]] + offset]


def _frequency(path: np.ndarray, policy: np.ndarray, num_roles: int) -> np.ndarray:
    """Share of each inferred role in the steps that each policy played (policy, role); NaN where it played none."""
    sequence, time = np.nonzero(path >= 0)
    cell = policy[sequence] * num_roles + path[sequence, time]
    counts = np.bincount(cell, minlength=num_roles**2).reshape(num_roles, num_roles).astype(float)
    total = counts.sum(axis=1, keepdims=True)
    return np.divide(counts, total, out=np.full_like(counts, np.nan), where=total > 0)
