r"""Coordinated imitation: policies of roles and the roles themselves, learned together.

Le, Yue, Carr, Lucey (2017), Algorithm 1: assign the agents of each demonstration to roles, train one policy per role,
roll all policies out together, and learn the structure (the role model) from what was rolled out. The policies are
trained by Algorithm 6 (DAgger: Ross, Gordon, Bagnell 2011) where there is an expert to ask, and otherwise on roll-outs
from the demonstrations whose horizon is raised step by step, as in Algorithm 2.

Corrected here: Algorithm 6 adds the single pair of the state and the expert's answer to it, :math:`(\hat s_t,
a^*_{t+1})`, t = 0, ..., T - 1, once; its first round is the demonstrations. Half of its roll-outs begin at fresh first
states, which Ross et al. draw for all of theirs: in a world without chance, policies that repeat the demonstrations
would never be corrected anywhere else. Algorithm 2 starts each segment at the true state. The entropy term of eq. 1
enters no update, in the paper neither.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from ethogram.inference import storage
from ethogram.inference.checkpoint import CURE, Checkpoint
from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.inference.conjugate.posterior import ConjugateResult
from ethogram.inference.imitation.policies import check_policy, describe_policy, fit_policy, new_policy
from ethogram.inference.imitation.result import ImitationResult
from ethogram.inference.imitation.roll_outs import joint_actions, roll_out
from ethogram.inference.imitation.rounds import run_rounds
from ethogram.inference.imitation.weighted_assignments import (
    WeightedAssignments,
    game_log_likelihood,
    known_assignments,
    shuffled_roles,
    weighted_assignments,
)
from ethogram.inference.imitation.world import (
    Demonstrations,
    check_world,
    observe,
    put,
    read_actions,
    read_demonstrations,
    reset,
    role_trajectories,
    take,
)
from ethogram.inference.roles.assignment import infer_roles
from ethogram.models.arguments import read_array, require_flag, require_integer, require_key, warn_user
from ethogram.models.conjugate_model import ConjugateModel
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.numpy_generator import numpy_generator
from ethogram.models.roles.role_hmm import RoleHMM

__all__ = ["imitate"]

Expert = Callable[[Any, np.ndarray], np.ndarray]

TRAINING, ROLLING, PLAYING, SHUFFLING = range(4)
"""What random numbers of a round are for."""


class ImitationState(NamedTuple):
    """State after whole rounds; a checkpoint holds it without the policies."""

    done: int  # rounds
    leaves: list[np.ndarray]  # states of the demonstrations and roll-outs so far, (row, ...), by leaf
    actions: np.ndarray  # (row, agent, ...) what the demonstrators did there, or the expert would have done
    game: np.ndarray  # (row,) demonstration, whose agents act
    num_trained: int  # first rows, which the policies were trained on
    log_likelihood: np.ndarray | None  # (game, agent, role) by which they were weighted; None unless learned
    fit: ConjugateResult | None  # role model, fitted to the latest roll-outs
    curves: dict[str, np.ndarray]  # by name, leading with the rounds
    rolled: Trajectories | None  # latest roll-outs
    played: Trajectories | None  # latest fresh games
    policies: tuple[Any, ...]  # which played them; none after a checkpoint was read


class Run(NamedTuple):
    """What does not change from round to round; see `imitate`."""

    key: Array
    policy: Any
    world: Any
    expert: Expert | None
    games: Demonstrations
    data: Trajectories  # the demonstrations as the role model observes them, game by game
    model: RoleHMM | None
    start: ConjugateResult | None
    roles: np.ndarray | None  # (game, agent) known or shuffled; None where learned
    num_roles: int
    rounds: int
    horizon: int
    deterministic: bool
    evaluation_games: int
    fit_steps: int
    restarts: int

    def random(self, number: int, purpose: int, *more: int) -> np.random.Generator:
        """Random numbers of a round."""
        return numpy_generator(self.key, number, purpose, *more)

    def sequences(self) -> np.ndarray:
        """Sequences (game, agent) of the demonstrations."""
        return np.arange(self.data.num_sequences).reshape(len(self.games.lengths), -1)


def imitate(
    key: Array,
    model_or_roles: Any,
    policy: Any,
    world: Any,
    data: Any,
    *,
    expert: Expert | None = None,
    rounds: int,
    horizon: int,
    roles: Any = "learned",
    deterministic: bool = True,
    evaluation_games: int = 100,
    fit_steps: int = 200,
    restarts: int = 8,
    progress_bar: bool = True,
    checkpoint: str | os.PathLike | None = None,
) -> ImitationResult:
    """Policies of roles, learned from demonstrations whose roles are hidden, with their curves over rounds.

    A round assigns the demonstrations to roles, trains a new policy for each role on all data so far with the
    probabilities of that role as weights, and rolls the policies out. It adds the expert's answers there to the data,
    fits the role model to the roll-outs from the fit before, and plays fresh games.

    Parameters
    ----------
    key : a typed key, as ``jax.random.key`` makes it.
    model_or_roles : a `RoleHMM`; a result of `ConjugateSVI` with one, to begin with; or known roles (sequence,). None
        for the baseline.
    policy : an unfitted estimator, of which each role gets a deep copy, or a factory of one: an object with
        ``fit(X, y, sample_weight)``, and ``predict(X)`` or ``predict_proba(X)``. Weights go to the last step of a
        pipeline. Where its ``random_state`` is None, a seed from the key is set. Where an estimator refuses data of a
        single class, the policy of that role is its one action.
    world : a :class:`~ethogram.inference.imitation.World`.
    data : :class:`~ethogram.inference.imitation.Demonstrations`; or trajectories, one sequence per agent, with
        ``group``, which ``world.demonstrations`` reads. The role model observes what ``world.role_features`` says of
        them. Sequences go by game, then by agent, or as in the trajectories.
    expert : ``expert(state, game)`` returns the actions (row, agent) of the demonstrators of the games (row,), by
        ascending group, at any states. None trains on the actions of the demonstrations.
    rounds : rounds of training, the first of which has the demonstrations only.
    horizon : most steps of a game. With an expert the agents of each demonstration play one game per round, from its
        first state and from a fresh one in turn. Without, roll-outs are segments of the demonstrations, whose steps
        rise from 1 in the first round to `horizon` in the last.
    roles : ``"learned"``; known roles (sequence,), from 0, distinct in each group; or ``"shuffled"``, one arbitrary
        assignment of agents to policies per demonstration, the baseline without structure on the same data.
    deterministic : whether policies take ``predict`` (or the largest of ``predict_proba``), or draw from
        ``predict_proba``.
    evaluation_games : fresh games in each round, with an arbitrary assignment of agents to policies.
    fit_steps, restarts : of the fit to the demonstrations; later fits continue from the one before.
    checkpoint : file written after every round. A run with the same arguments resumes after its last whole round, and
        returns what an uninterrupted run returns if the policies depend on data and ``random_state`` only; more
        `rounds` extend it. Policies are not in the file: those of a run whose rounds are all done are trained again,
        with a warning. World and expert are compared by their class only: pass the same ones.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from ethogram.domains import predator_prey
    >>> from ethogram.domains.predator_prey import PredatorPreyExperts, PredatorPreyWorld
    >>> class Nearest:
    ...     def fit(self, X, y, sample_weight):
    ...         self.X, self.y = X, y
    ...
    ...     def predict(self, X):
    ...         return self.y[[np.abs(self.X - x).sum(1).argmin() for x in X]]
    >>> data, games = predator_prey.simulate(jax.random.key(0), 10)
    >>> result = imitate(
    ...     jax.random.key(1), games.roles, Nearest(), PredatorPreyWorld(), data, rounds=1, horizon=5,
    ...     expert=PredatorPreyExperts(games.roles), evaluation_games=4, progress_bar=False,
    ... )
    >>> len(result.policies), result.failure.shape
    (4, (1,))
    """
    require_key(key)
    counts = {"rounds": rounds, "horizon": horizon, "evaluation_games": evaluation_games}
    for name, count in (counts | {"fit_steps": fit_steps, "restarts": restarts}).items():
        require_integer(name, count, 1)
    check_world(world)
    if expert is not None and not callable(expert):
        raise TypeError(f"expert is {type(expert).__name__}: give a function expert(state, game)")
    require_flag("deterministic", deterministic)
    check_policy(policy, deterministic, world.num_actions)
    games, recorded, sequences = read_demonstrations(world, data)
    model, start, held, num_roles = _read_roles(key, model_or_roles, roles, sequences)
    if model is not None:
        model.check(recorded)
    run = Run(
        *(key, policy, world, expert, games, recorded, model, start, held, num_roles),
        *(rounds, horizon, deterministic, evaluation_games, fit_steps, restarts),
    )
    signature, first, refuse = (
        partial(_signature, run),
        partial(_first, run),
        partial(_refuse_more_rounds, rounds),
    )
    with Checkpoint(checkpoint) as store:
        state = run_rounds(
            "imitate",
            store.resumed(signature, ImitationState, refuse, first),
            partial(_one_round, run),
            rounds,
            lambda state: store.save(state._replace(policies=()), state.done),
            lambda state: f"failure {state.curves['failure'][-1]:.1%}, {state.curves['steps'][-1]:.1f} steps",
            progress_bar,
        )
    return _result(run, state, sequences)


def _read_roles(
    key: Array, model_or_roles: Any, roles: Any, sequences: np.ndarray
) -> tuple[RoleHMM | None, ConjugateResult | None, np.ndarray | None, int]:
    """The model to learn roles by, a fit to begin with, else roles (game, agent), and the number of roles."""
    num_games, num_agents = sequences.shape
    start = model_or_roles if isinstance(model_or_roles, ConjugateResult) else None
    model, name = (model_or_roles if start is None else start.posterior.model), "roles"
    if model is not None and not isinstance(model, RoleHMM):
        if isinstance(model, ConjugateModel | str):
            raise TypeError(
                f"model_or_roles is {model!r}: give a RoleHMM, a ConjugateResult of one, or known roles (sequence,)"
            )
        if not isinstance(roles, str) or roles != "learned":
            raise ValueError(f"model_or_roles has known roles, and roles is {roles!r}: give one of them")
        model, roles, name = None, model, "model_or_roles"
    num_roles = num_agents if model is None else model.num_roles
    if num_roles < num_agents:
        raise ValueError(
            f"num_roles is {num_roles}, the world num_agents={num_agents}: no two agents of a game share a role"
        )
    if isinstance(roles, str):
        if roles not in ("learned", "shuffled"):
            raise ValueError(f"roles must be 'learned', 'shuffled' or known roles (sequence,), not {roles!r}")
        if roles == "shuffled":
            shuffled = shuffled_roles(numpy_generator(key, 0, SHUFFLING), num_games, num_agents, num_roles)
            return None, None, shuffled, num_roles
        if model is None:
            raise ValueError("model_or_roles is None: roles='learned' needs a RoleHMM")
        return model, start, None, num_roles
    labels = read_array(name, roles)
    if labels.shape != (sequences.size,):
        raise ValueError(
            f"{name} has shape {labels.shape}: give one for each of the {sequences.size} sequences"
        )
    if labels.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {labels.dtype}: give integers")
    held = labels.astype(int)[sequences]
    num_roles = max(num_roles, int(held.max()) + 1)
    if held.min() < 0:
        raise ValueError(f"{name} has {held.min()}: known roles are 0 and up")
    ordered = np.sort(held, axis=1)
    for game in np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))[:1]:
        raise ValueError(
            f"{name} of game {game} are {held[game].tolist()}: no two agents of a game share a role"
        )
    return None, None, held, num_roles


def _signature(run: Run) -> str:
    """Digest of what the rounds depend on; world and expert, which may have a state, are represented by their class."""
    return storage.fingerprint(
        jax.random.key_data(run.key),
        run.data._replace(metadata=Metadata()),
        [run.horizon, run.deterministic, run.evaluation_games, run.fit_steps, run.restarts],
        None if run.expert is not None else run.rounds,  # of which segments depend
        run.model,
        None if run.start is None else run.start.posterior.blocks,
        run.roles,
        run.num_roles,
        type(run.world).__qualname__,
        describe_policy(run.policy),
        None if run.expert is None else type(run.expert).__qualname__,
    )


def _refuse_more_rounds(rounds: int, name: str, state: ImitationState) -> None:
    if state.done > rounds:
        raise ValueError(
            f"{name} is a checkpoint after {state.done} rounds, more than rounds={rounds}: {CURE}"
        )


def _first(run: Run) -> ImitationState:
    """State before the first round, with the role model fitted to the demonstrations."""
    fit = run.start
    if run.model is not None and fit is None:
        key = jax.random.fold_in(run.key, 0)
        fit = ConjugateSVI(run.model).run(
            key, run.data, run.fit_steps, restarts=run.restarts, progress_bar=False
        )
    inside = run.games.inside
    leaves = jax.tree.leaves(take(run.games.states, inside))
    game = np.nonzero(inside)[0]
    return ImitationState(0, leaves, run.games.actions[inside], game, 0, None, fit, {}, None, None, ())


def _one_round(run: Run, state: ImitationState, number: int) -> ImitationState:
    """Assign, learn, roll out, ask the expert, learn the structure, play fresh games (Algorithms 1 and 6)."""
    if state.fit is not None:
        state = state._replace(log_likelihood=game_log_likelihood(state.fit, run.data, run.sequences()))
    state = state._replace(done=number, num_trained=len(state.game))
    assignments = _assignments(run, state)
    policies = _train(run, state, assignments)
    games, times, rolled = _roll(run, number, policies, assignments)
    leaves, answers, rows, loss = _ask(run, state, games, times, rolled)
    rolled_data = role_trajectories(run.world, rolled, run.data.metadata)
    fit, frequency, elbo = state.fit, np.full((run.num_roles, run.num_roles), np.nan), np.nan
    if fit is not None:
        key = jax.random.fold_in(run.key, number)
        fit = ConjugateSVI(run.model).run(key, rolled_data, run.fit_steps, init=fit, progress_bar=False)
        path = infer_roles(fit, rolled_data).path
        frequency = _frequency(path, assignments.best[games].ravel(), run.num_roles)
        elbo = float(fit.elbo[-1])
    played, reached = _play(run, number, policies)
    new = {
        "failure": 1 - reached.mean(),
        "steps": played.lengths.mean(),
        "loss": loss,
        "elbo": elbo,
        "reached": reached,
        "game_steps": played.lengths,
        "policy_role": frequency,
    }
    curves = {name: np.stack([*state.curves.get(name, ()), value]) for name, value in new.items()}
    return state._replace(
        leaves=leaves,
        actions=answers,
        game=rows,
        fit=fit,
        curves=curves,
        rolled=rolled_data,
        played=role_trajectories(run.world, played, run.data.metadata),
        policies=policies,
    )


def _assignments(run: Run, state: ImitationState) -> WeightedAssignments:
    if state.log_likelihood is not None:
        return weighted_assignments(state.log_likelihood)
    assert run.roles is not None
    return known_assignments(run.roles, run.num_roles)


def _train(run: Run, state: ImitationState, assignments: WeightedAssignments) -> tuple[Any, ...]:
    """A new policy for each role, trained on the first rows, for the round that is done by the state."""
    tree, count = jax.tree.structure(run.games.states), state.num_trained
    states = jax.tree.unflatten(tree, state.leaves)
    row, chosen = _assignments_of_rows(state.game[:count], assignments)
    roles, weight = assignments.role[chosen], assignments.weight[chosen]
    features = observe(run.world, roles, take(states, row))
    targets = state.actions[row]
    policies = []
    for role in range(run.num_roles):
        where = (roles == role) & (weight > 0)
        policy = new_policy(run.policy, int(run.random(state.done, TRAINING, role).integers(2**31 - 1)))
        policies.append(fit_policy(policy, features[where], targets[where], weight[where], role))
    return tuple(policies)


def _roll(
    run: Run, number: int, policies: tuple[Any, ...], assignments: WeightedAssignments
) -> tuple[np.ndarray, np.ndarray, Demonstrations]:
    """Games whose agents were rolled out, times at which these began, and the roll-outs."""
    rng, lengths = run.random(number, ROLLING), run.games.lengths
    if run.expert is not None:
        games = np.arange(len(lengths))
        times, limits = np.zeros_like(games), np.full(len(games), run.horizon)
    else:
        segment = 1 + round((run.horizon - 1) * (number - 1) / max(run.rounds - 1, 1))
        games, times = np.nonzero(run.games.inside & (np.arange(run.games.inside.shape[1]) % segment == 0))
        limits = np.minimum(segment, lengths[games] - times)
    first = take(run.games.states, (games, times))
    if run.expert is not None:
        fresh = np.flatnonzero((games + number) % 2) if len(games) > 1 else games
        first = put(first, fresh, reset(run.world, rng, len(fresh), like=take(first, fresh)))

    def act(state: Any, rows: np.ndarray) -> np.ndarray:
        return joint_actions(
            run.world, policies, assignments.best[games[rows]], state, rng, run.deterministic
        )

    return games, times, roll_out(run.world, act, first, rng, limits)[0]


def _ask(
    run: Run, state: ImitationState, games: np.ndarray, times: np.ndarray, rolled: Demonstrations
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray, float]:
    """The rows with the roll-outs and the expert's actions there, and how far the policies were from these."""
    row, time = np.nonzero(rolled.inside)
    visited, game = take(rolled.states, rolled.inside), games[row]
    if run.expert is not None:
        answers = read_actions("expert", run.expert(visited, game), len(game), run.world)
    else:
        answers = run.games.actions[game, times[row] + time]
    chosen, dims = rolled.actions[rolled.inside], run.games.actions.shape[3:]
    for origin, actions in {"the policies": chosen, "expert": answers}.items():
        if actions.shape[2:] != dims:
            raise ValueError(
                f"{origin} gave actions of {actions.shape[2:]} numbers, the demonstrations have {dims}"
            )
    differences = chosen != answers
    if run.world.num_actions is None:
        differences = np.linalg.norm(chosen - answers, axis=-1)
    leaves = [np.concatenate(x) for x in zip(state.leaves, jax.tree.leaves(visited), strict=True)]
    answers = np.concatenate([state.actions, answers])
    return leaves, answers, np.concatenate([state.game, game]), float(differences.mean())


def _play(run: Run, number: int, policies: tuple[Any, ...]) -> tuple[Demonstrations, np.ndarray]:
    """Fresh games, with an arbitrary assignment of agents to policies, and whether they reached their goal."""
    rng, count = run.random(number, PLAYING), run.evaluation_games
    roles = shuffled_roles(rng, count, run.world.num_agents, run.num_roles)

    def act(state: Any, rows: np.ndarray) -> np.ndarray:
        return joint_actions(run.world, policies, roles[rows], state, rng, run.deterministic)

    return roll_out(run.world, act, reset(run.world, rng, count), rng, np.full(count, run.horizon))


def _result(run: Run, state: ImitationState, sequences: np.ndarray) -> ImitationResult:
    """Result of the last round, by the sequences (game, agent) of the user's data."""
    assignments, policies = _assignments(run, state), state.policies
    if not policies:
        warn_user(
            f"all {state.done} rounds were in the checkpoint, which holds no policies: they were trained again, from "
            "the same rows and seeds; failure, steps and loss are of those before"
        )
        policies = _train(run, state, assignments)
    probability, role = np.empty((sequences.size, run.num_roles)), np.empty(sequences.size, int)
    probability[sequences], role[sequences] = assignments.probability, assignments.best
    assert state.rolled is not None and state.played is not None  # at least one round was done
    return ImitationResult(
        policies=policies,
        role=role,
        role_probability=probability,
        fit=state.fit,
        data=run.data.take(np.argsort(sequences.ravel())),
        rolled=state.rolled,
        played=state.played,
        **state.curves,
    )


def _assignments_of_rows(game: np.ndarray, assignments: WeightedAssignments) -> tuple[np.ndarray, np.ndarray]:
    """Row and assignment of each pair of a row and an assignment of its game."""
    order = np.argsort(assignments.game, kind="stable")
    count = np.bincount(assignments.game)
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
