"""A planning problem as a world for `ethogram.imitate`, with a planner as the expert that is asked.

One agent, or several that each take one action of the problem or none; what they do together is the set of their
actions. A state is the events (game, fluent) of the problem, of 0 and 1, and every agent sees all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from ethogram.domains.fluent_world import draw_step
from ethogram.inference.imitation import Demonstrations
from ethogram.inference.imitation.policies import choose_actions
from ethogram.inference.planning import Episodes
from ethogram.inference.planning.action_limits import round_actions
from ethogram.inference.planning.episodes import begin_episode
from ethogram.models.arguments import require_integer
from ethogram.models.planning import PlanningProblem

__all__ = ["FluentTeam", "LearnedTeam", "PlannerExpert"]

States = Float[np.ndarray, "game fluent"]


class FluentTeam:
    """Games of a planning problem, from its initial state; a game reaches its goal where a state ends the episode.

    Next states are drawn as by `fluent_world.draw_step`. Of actions that are not allowed
    together, the first are carried out as long as the rules of the problem allow.

    Parameters
    ----------
    problem : whose world it is.
    num_agents : agents, of which each takes one action at a time or none.

    Attributes
    ----------
    num_actions : 0 is to do nothing, i is action i - 1 of the problem.
    """

    def __init__(self, problem: PlanningProblem, num_agents: int = 1):
        self.problem = problem
        self.num_agents = require_integer("num_agents", num_agents, 1)
        self.num_actions = 1 + len(problem.actions)

    def reset(self, rng: np.random.Generator, num_games: int) -> States:
        """The initial state, in each game."""
        return np.repeat(self.problem.initial[None], num_games, 0)

    def step(
        self, rng: np.random.Generator, state: States, actions: Int[np.ndarray, "game agent"]
    ) -> tuple[States, Bool[np.ndarray, "game"]]:
        """States after the actions that are allowed, and whether they end the episode."""
        following, _, ended = draw_step(self.problem, rng, state, self.joint(state, actions))
        return following, ended

    def joint(
        self, state: States, actions: Int[np.ndarray, "game agent"]
    ) -> Float[np.ndarray, "game action"]:
        """What is carried out of the actions of all agents, of 0 and 1.

        Raises
        ------
        ValueError : no set of actions is allowed in a state.
        """
        wanted = np.zeros((len(state), self.num_actions))
        np.put_along_axis(wanted, np.asarray(actions), 1, 1)
        made = wanted[:, 1:]
        rules, half = self.problem.rules, np.full(len(self.problem.actions), 0.5)
        for game in np.flatnonzero(rules.unmet(state.T, made.T)):
            made[game] = round_actions(rules, state[game], made[game][:, None], half)[:, 0]
        return made

    def deal(self, actions: Sequence[str]) -> list[int]:
        """Number of the action of each agent, given the names of those of all, in order of the problem's actions.

        Raises
        ------
        ValueError : there are more actions than agents.
        """
        numbers = [i for i, name in enumerate(self.problem.actions, 1) if name in actions]
        if len(numbers) > self.num_agents:
            raise ValueError(
                f"{len(numbers)} actions at a time, {', '.join(sorted(actions))}, and num_agents = {self.num_agents}: "
                "give as many agents as there are actions at a time"
            )
        return numbers + [0] * (self.num_agents - len(numbers))

    def observe(
        self, roles: Int[np.ndarray, "game agent"], state: States
    ) -> Float[np.ndarray, "game agent fluent"]:
        """Every agent observes the whole state."""
        return np.repeat(state[:, None], roles.shape[1], 1)

    def role_features(
        self, state: States, actions: Int[np.ndarray, "game agent"]
    ) -> Float[np.ndarray, "game agent fluent"]:
        """The state, of every agent."""
        return np.repeat(state[:, None], self.num_agents, 1)

    def demonstrations(self, episodes: Episodes) -> Demonstrations:
        """Episodes of :func:`ethogram.planning.play_episodes` as demonstrations.

        Raises
        ------
        ValueError : more actions were taken at a time than there are agents.
        """
        lengths = np.array([len(each) for each in episodes.actions])
        states = np.zeros((len(lengths), lengths.max(), len(self.problem.fluents)))
        actions = np.zeros((len(lengths), lengths.max(), self.num_agents), int)
        for game, (true, taken) in enumerate(zip(episodes.states, episodes.actions, strict=True)):
            states[game, : lengths[game]] = np.array(
                [[name in each for name in self.problem.fluents] for each in true]
            )
            actions[game, : lengths[game]] = [self.deal(each) for each in taken]
        return Demonstrations(states, actions, lengths)


class PlannerExpert:
    """What a planner would do at any states: ``expert(state, game)``, for :func:`ethogram.imitate`.

    Each state is planned for once, as the first of an episode; with a planner without a time limit, answers depend on
    the state alone.

    Parameters
    ----------
    team : the world.
    planner : with ``sample_action(state)``, such as :class:`~ethogram.SogbofaPolicy`.
    """

    def __init__(self, team: FluentTeam, planner: Any):
        self.team, self.planner = team, planner
        self._known: dict[bytes, list[int]] = {}

    def __call__(self, state: States, game: Int[np.ndarray, "game"]) -> Int[np.ndarray, "game agent"]:
        """Actions (row, agent) at states (row, fluent)."""
        marks = [row.astype(bool).tobytes() for row in state]
        for mark, row in zip(marks, state, strict=True):
            if mark not in self._known:
                begin_episode(self.planner, 0)
                self._known[mark] = self.team.deal(list(self.planner.sample_action(row)))
        return np.array([self._known[mark] for mark in marks])


class LearnedTeam:
    """Policies that were learned, as an agent for :func:`ethogram.planning.play_episodes`.

    Parameters
    ----------
    team : the world that they were learned in.
    policies : one per agent, as ``ImitationResult.policies``.
    """

    def __init__(self, team: FluentTeam, policies: Sequence[Any]):
        if len(policies) != team.num_agents:
            raise ValueError(f"policies has {len(policies)} entries: expected num_agents = {team.num_agents}")
        self.team, self.policies = team, policies
        self._rng = np.random.default_rng(0)  # policies are deterministic: nothing is drawn

    def sample_action(self, state: Mapping[str, Any]) -> dict[str, bool]:
        """The actions to take in a state, by name."""
        row = self.team.problem.encode_state(state)[None]
        chosen = [
            choose_actions(policy, row, self.team.num_actions, True, self._rng, role)
            for role, policy in enumerate(self.policies)
        ]
        return self.team.problem.decode_action(self.team.joint(row, np.stack(chosen, 1))[0])
