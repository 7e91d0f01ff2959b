r"""Small MDPs: three states, a clique, a random chain with a noisy agent, and the frozen lake of gymnasium.

*Three states* and a *clique* of ten: action a of a state leads to the a-th of the other states, in their order, and the
only feature of a state is its number. Dilkas (2019), "Variational inference for inverse reinforcement learning with
Gaussian processes". Erratum: its transition table prints T(s1, a2, s3) and T(s1, a2, s2) for T(s2, a2, s3) and
T(s3, a2, s2).

The *toy chain* has rows of transition probabilities from a Dirichlet(1/2) distribution, and an agent that maximises the
expected value of the next state plus standard normal noise. Singh, Chopin and Whiteley, "Bayesian learning of noisy
Markov decision processes", section 5.1. The paper gives neither transitions nor seed, and draws values of variance
2500, with which choices are nearly deterministic and mostly separated: the default here is 16.

*Frozen lake*: from the start S over frozen cells F to the goal G, with reward 1 on reaching it; episodes end there and
in holes H. On slippery ice a move goes in its direction with probability 1/3, and to either side with 1/3 each. A move
off the board leaves the agent where it is. Cell (row, column) is state ``row * columns + column``, rows counted
downwards. The rules are those of gymnasium 1.4 (Towers et al., 2024).

Terminal states are absorbing, with reward zero and one action. The soft value includes the entropy of actions: with
all four a terminal state would be worth :math:`\ln 4 / (1 - \gamma)`, 27.7 at a discount of 0.95, about as much as
walking on indefinitely, and holes would not be avoided. ``dataclasses.replace(world.mdp, action_mask=None)`` has all
actions everywhere. With one action termination also ends the entropy bonus: an agent whose rewards are small compared
with ln 4 per step avoids the goal too.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from ethogram.models.arguments import as_list, require_flag, require_integer, require_number, require_one_of
from ethogram.models.choices.decisions import Decisions
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.mdps.mdp import MDP

__all__ = [
    "LAKE", "LAKE_ACTIONS", "STATE_NAMES", "FrozenLake", "ToyChain", "clique", "clique_demonstrations", "frozen_lake",
    "three_state", "three_state_demonstrations", "toy_chain",
]  # fmt: skip

STATE_NAMES = ("s1", "s2", "s3")
LAKE = ("SFFF", "FHFH", "FFFH", "HFFG")
LAKE_ACTIONS = ("left", "down", "right", "up")
LAKE_MOVES = np.array([[0, -1], [1, 0], [0, 1], [-1, 0]])
"""Rows down and columns right of each action."""


def three_state(discount: float | int = 0.9) -> MDP:
    """The MDP of three states and two actions, whose feature is 1, 2 and 3.

    Examples
    --------
    >>> three_state().probability(0, [0, 1], [1, 2]).tolist()
    [1.0, 1.0]
    """
    return _each_to_every_other(np.arange(1.0, 4.0), discount, state_names=STATE_NAMES)


def three_state_demonstrations(first: int = 1, second: int = 1) -> Trajectories:
    """Single decisions that lead to the middle state, so that the outer states have equal posteriors for equal numbers.

    Parameters
    ----------
    first : number of decisions from s1 to s2, by action 0; they come first.
    second : number of decisions from s3 to s2, by action 1.

    Examples
    --------
    >>> data = three_state_demonstrations(2, 1)
    >>> data.states.tolist(), data.actions.tolist()
    ([[0], [0], [2]], [[0], [0], [1]])
    """
    for name, value in (("first", first), ("second", second)):
        require_integer(name, value, 0)
    if first + second == 0:
        raise ValueError("first and second are both 0: give at least one demonstration")
    states = np.repeat([0, 2], [first, second])
    return _single_steps(states, states // 2, name="three states", state_names=STATE_NAMES)


def clique(num_states: int = 10, discount: float | int = 0.9) -> MDP:
    """An MDP in which every state leads to every other, by one action for each; its features are 0, 1, 2 and so on.

    Parameters
    ----------
    num_states : S, at least 2; there are S - 1 actions.
    discount : gamma in [0, 1].
    """
    require_integer("num_states", num_states, 2)
    return _each_to_every_other(np.arange(float(num_states)), discount)


def clique_demonstrations(
    key: Array, kind: str = "random", num: int = 100, *, num_states: int = 10
) -> Trajectories:
    """Single decisions in a clique, each a sequence of its own.

    Parameters
    ----------
    key : a typed key, ``jax.random.key(seed)``.
    kind : ``"random"``, states and actions uniform; or ``"to_first"``, every action leads to state 0, from states
        that are uniform on the rest.
    num : number of decisions.
    num_states : of the clique.

    Examples
    --------
    >>> data = clique_demonstrations(jax.random.key(0), "to_first", 5)
    >>> data.actions.ravel().tolist(), bool((data.states > 0).all())
    ([0, 0, 0, 0, 0], True)
    """
    require_one_of("kind", kind, ("random", "to_first"))
    require_integer("num", num, 1)
    require_integer("num_states", num_states, 2)
    key_states, key_actions = jax.random.split(key)
    states = np.asarray(jax.random.randint(key_states, (num,), int(kind == "to_first"), num_states))
    actions = np.zeros(num, int)  # leads to state 0 from every other state
    if kind == "random":
        actions = np.asarray(jax.random.randint(key_actions, (num,), 0, num_states - 1))
    return _single_steps(states, actions, name=f"clique, {kind}")


class ToyChain(NamedTuple):
    """A random MDP with a simulated agent.

    Attributes
    ----------
    mdp : the MDP.
    values : (state,), the agent's state values, with mean zero.
    states : (decision,) states of the agent.
    decisions : its choices, with next-state probabilities as features.
    """

    mdp: MDP
    values: Float[np.ndarray, "state"]
    states: Int[np.ndarray, "decision"]
    decisions: Decisions


def toy_chain(
    key: Array,
    num_decisions: int = 20,
    *,
    kappa: float | int = 16.0,
    num_states: int = 7,
    num_actions: int = 3,
) -> ToyChain:
    """A random MDP, and one simulated trajectory of choices in it.

    Parameters
    ----------
    key : a typed key, ``jax.random.key(seed)``.
    kappa : variance of the values before centring.

    Examples
    --------
    >>> toy = toy_chain(jax.random.key(0), 50)
    >>> toy.decisions.features.shape, toy.values.shape
    ((50, 3, 7), (7,))
    """
    require_integer("num_decisions", num_decisions, 1)
    require_integer("num_states", num_states, 2)
    require_integer("num_actions", num_actions, 2)
    scale = math.sqrt(require_number("kappa", kappa, above=0))
    drawn = _chain_of_choices(key, scale, num_decisions, num_states, num_actions)
    table, values, states, actions = map(np.asarray, drawn)
    mdp = MDP.dense(table.astype(float) / table.astype(float).sum(-1, keepdims=True))
    return ToyChain(mdp, values, states, Decisions.from_mdp(mdp, states, actions))


class FrozenLake(NamedTuple):
    """A lake with its reward.

    Attributes
    ----------
    mdp : transitions and start, with one action in terminal states.
    reward : expected r (state, action); 0 in terminal states.
    terminal : (state,), terminal states.
    """

    mdp: MDP
    reward: Float[np.ndarray, "state action"]
    terminal: Bool[np.ndarray, "state"]


def frozen_lake(
    board: Iterable[str] = LAKE, *, slippery: bool = True, discount: float | int = 0.95
) -> FrozenLake:
    """A lake, with actions left, down, right and up.

    Parameters
    ----------
    board : rows of the letters S, F, H and G, of equal length; with several S the start is uniform on them.
    slippery : whether a move may slip to either side.
    discount : gamma in [0, 1].

    Examples
    --------
    >>> lake = frozen_lake()
    >>> np.asarray(lake.reward[14], float).round(2).tolist(), np.flatnonzero(lake.terminal).tolist()
    ([0.0, 0.33, 0.33, 0.33], [5, 7, 11, 12, 15])
    """
    require_flag("slippery", slippery)
    rows = as_list("board", board, "one string per row")
    letters = "".join(row if isinstance(row, str) else "?" for row in rows)
    if "S" not in letters or {*letters} - {*"SFHG"} or len({*map(len, rows)}) != 1:
        raise ValueError(
            f"board is {board!r}: give rows of equal length of the letters S, F, H and G, with an S"
        )
    shape, cells = np.array([len(rows), len(rows[0])]), np.array(list(letters))
    place = np.stack(np.unravel_index(np.arange(cells.size), shape), -1)
    after = np.clip(place[:, None] + LAKE_MOVES, 0, shape - 1)
    reached = np.ravel_multi_index(tuple(np.moveaxis(after, -1, 0)), shape)
    terminal = np.isin(cells, ["H", "G"])
    turns = (-1, 0, 1) if slippery else (0,)  # within LAKE_ACTIONS

    def happens(state: int, action: int) -> list[tuple[float, int, float, bool]]:
        """Probability, next state, reward, and whether the episode ends."""
        if terminal[state]:
            return [(1.0, state, 0.0, True)]
        ends = [int(reached[state, (action + turn) % len(LAKE_ACTIONS)]) for turn in turns]
        return [(1 / len(turns), end, float(cells[end] == "G"), bool(terminal[end])) for end in ends]

    table = [[happens(state, action) for action in range(len(LAKE_ACTIONS))] for state in range(cells.size)]
    start = (cells == "S") / (cells == "S").sum()
    mdp, reward = MDP.from_gymnasium(table, discount=discount, start=start, action_names=LAKE_ACTIONS)
    return FrozenLake(mdp, np.asarray(reward), terminal)


def _each_to_every_other(feature: np.ndarray, discount: float | int, **names: tuple[str, ...]) -> MDP:
    state, action = np.arange(len(feature))[:, None], np.arange(len(feature) - 1)[None]
    next_state = action + (action >= state)
    return MDP.deterministic(next_state, discount=discount, features=feature[:, None], **names)


def _single_steps(states: np.ndarray, actions: np.ndarray, **names: Any) -> Trajectories:
    """Sequences of one step."""
    metadata = Metadata(time_unit="step", **names)
    return Trajectories.from_list(
        states=states[:, None], actions=actions[:, None], metadata=metadata, codes=True
    )


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def _chain_of_choices(
    key: Array, scale: Any, num_decisions: int, num_states: int, num_actions: int
) -> tuple[Array, ...]:
    """Transition probabilities, values, states and actions."""
    key_table, key_values, key_first, key_steps = jax.random.split(key, 4)
    table = jax.random.dirichlet(key_table, jnp.full(num_states, 0.5), (num_states, num_actions))
    values = scale * jax.random.normal(key_values, (num_states,))
    values = values - jnp.mean(values)
    first = jax.random.randint(key_first, (), 0, num_states)

    def decide(state, key):
        key_noise, key_next = jax.random.split(key)
        action = jnp.argmax(table[state] @ values + jax.random.normal(key_noise, (num_actions,)))
        following = jax.random.choice(key_next, num_states, p=table[state, action])
        return following, (state, action)

    _, (states, actions) = lax.scan(decide, first, jax.random.split(key_steps, num_decisions))
    return table, values, states, actions
