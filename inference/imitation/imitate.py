r"""Coordinated imitation: policies of roles and the roles themselves, learned together.

Le, Yue, Carr, Lucey (2017), Algorithm 1: assign the agents of each demonstration to roles, train one policy per role,
roll all policies out together, and learn the structure (the role model) from what was rolled out. The policies are
trained by Algorithm 6 (DAgger: Ross, Gordon, Bagnell 2011) where there is an expert to ask, and otherwise on roll-outs
from the demonstrations whose horizon is raised step by step, as in Algorithm 2.

Corrected here: Algorithm 6 adds the single pair of the state and the expert's answer to it, :math:`(\hat s_t,
a^*_{t+1})`, t = 0, ..., T - 1, once; its first round is the demonstrations. Algorithm 2 starts each segment at the true
state. The entropy term of eq. 1 enters no update, in the paper neither.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import Array

from ethogram.inference.conjugate.posterior import ConjugateResult
from ethogram.inference.imitation.policies import check_policy
from ethogram.inference.imitation.result import ImitationResult
from ethogram.inference.imitation.rounds import Rounds, Settings
from ethogram.inference.imitation.world import check_world, sequences_of_games
from ethogram.models.arguments import read_array, require_integer, require_key
from ethogram.models.conjugate_model import ConjugateModel
from ethogram.models.data import trajectories
from ethogram.models.data.gaps import require_complete
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.roles.role_hmm import RoleHMM

__all__ = ["imitate"]

Expert = Callable[[Any, np.ndarray], np.ndarray]


def imitate(
    key: Array,
    model_or_roles: Any,
    policy: Any,
    world: Any,
    data: Trajectories,
    *,
    expert: Expert | None = None,
    rounds: int,
    horizon: int,
    roles: Any = "learned",
    choose: str = "mode",
    evaluation_games: int = 100,
    fit_steps: int = 200,
    restarts: int = 8,
    progress_bar: bool = True,
    checkpoint: str | os.PathLike | None = None,
) -> ImitationResult:
    """Policies of roles, learned from demonstrations whose roles are hidden, with their curves over rounds.

    A round assigns the demonstrations to roles, trains a new policy for each role on all data so far with the
    probabilities of that role as weights, and rolls the policies out from the first states of the demonstrations. It
    adds the expert's answers there to the data, fits the role model to the roll-outs from the fit before, and plays
    fresh games.

    Parameters
    ----------
    key : a typed key, as ``jax.random.key`` makes it.
    model_or_roles : a `RoleHMM`; a result of `ConjugateSVI` with one, to begin with; or known roles (sequence,). None
        for the baseline.
    policy : an unfitted estimator, of which each role gets a deep copy, or a factory of one: an object with
        ``fit(X, y, sample_weight)``, and ``predict(X)`` or ``predict_proba(X)``. Where its ``random_state`` is None, a
        seed from the key is set.
    world : a :class:`~ethogram.inference.imitation.World`.
    data : demonstrations, one sequence per agent, with ``group``; what `model_or_roles` and the world read.
    expert : ``expert(state, game)`` returns the actions (row, agent) of the demonstrators of the games (row,), numbered
        as in ``world.replay(data)``, at any states of them. None trains on the actions of the demonstrations.
    rounds : rounds of training, the first of which has the demonstrations only.
    horizon : most steps of a game. Without expert, the steps of a segment rise from 1 in the first round to `horizon`
        in the last.
    roles : ``"learned"``; known roles (sequence,), from 0, distinct in each group; or ``"shuffled"``, one arbitrary map
        of agents to policies a demonstration, the baseline without structure on the same data.
    choose : ``"mode"`` takes ``predict`` (or the largest of ``predict_proba``), ``"sample"`` draws from
        ``predict_proba``.
    evaluation_games : fresh games in each round, with an arbitrary map of agents to policies.
    fit_steps, restarts : of the fit to the demonstrations; later fits continue from the one before.
    checkpoint : file written after every round. A run with the same arguments resumes after its last whole round, and
        returns what an uninterrupted run returns if the policies depend on data and ``random_state`` only; more
        `rounds` extend it. World and expert are compared by their class only: pass the same ones.

    Raises
    ------
    ValueError, TypeError
        For invalid arguments, groups of different sizes, policies without these methods, and answers of policies,
        world or expert that have the wrong shape, are not finite, or no legal action.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from ethogram.domains import predator_prey
    >>> from ethogram.domains.predator_prey_world import PredatorPreyExperts, PredatorPreyWorld
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
    if not isinstance(data, Trajectories):
        raise TypeError(f"data is {type(data).__name__}: give Trajectories")
    trajectories.check(data)
    require_complete(data, "demonstrations need")
    sequences = sequences_of_games(data, world.num_agents)
    if expert is not None and not callable(expert):
        raise TypeError(f"expert is {type(expert).__name__}: give a function expert(state, game)")
    model, start, known, num_roles = _read_roles(model_or_roles, roles, sequences, world.num_agents)
    if model is not None:
        model.check(data)
    check_policy(policy, choose, world.num_actions)
    settings = Settings(rounds, horizon, choose, evaluation_games, fit_steps, restarts)
    run = Rounds(key, policy, world, data, sequences, expert, settings, model, start, known, num_roles)
    return run.result(run.advance(progress_bar, checkpoint))


def _read_roles(
    model_or_roles: Any, roles: Any, sequences: np.ndarray, num_agents: int
) -> tuple[RoleHMM | None, ConjugateResult | None, np.ndarray | None, int]:
    """The model to learn roles by, a fit to begin with, known roles (game, agent), and the number of roles."""
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
            return None, None, None, num_roles
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
