"""Markov decision processes without a reward: transitions, discount, available actions, start distribution.

Puterman (1994), "Markov decision processes", section 2.1; the reward is an argument of every solver.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from ethogram.models.arguments import (
    Reals,
    concretely,
    is_concrete,
    on_host,
    read_array,
    read_features,
    read_reals,
    require,
    require_distributions,
    require_kind,
    require_reals,
    require_representable,
)
from ethogram.models.data.labels import require_vocabulary
from ethogram.models.mdps.from_tables import concentrations, read_counts, read_gymnasium
from ethogram.models.mdps.history import History, history_of
from ethogram.models.mdps.transitions import DenseTransitions, SparseTransitions
from ethogram.models.memory_bound import require_room
from ethogram.models.model_object import model_object, static_field
from ethogram.models.printing import printed_as

__all__ = ["MDP"]


@model_object
@printed_as(
    lambda mdp: "MDP({} states, {} actions, discount {:g})".format(*mdp.transitions.shape, mdp.discount)
)
class MDP:
    """A Markov decision process without its reward.

    Make one by :meth:`dense`, :meth:`sparse`, :meth:`deterministic`, :meth:`from_gymnasium` or :meth:`from_counts`.

    Parameters
    ----------
    transitions : transition probabilities, as those class methods make them of a table.
    discount : gamma in [0, 1]; 1 needs a finite horizon.
    action_mask : (state, action) booleans, which actions are available; None for all. A terminal state should have one:
        with several, a soft-optimal agent collects their entropy in every step.
    start : (state,) start distribution, which sums to one; None if unknown, then uniform.
    features : (state, feature) floats that a reward may depend on; None for none.
    state_names, action_names : unique strings, one for each state and action; None for none. They are static structure:
        MDPs of the same names share compiled programs.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], action_names=("left", "right"))
    >>> corridor.expect(jnp.array([0.0, 1.0, 5.0])).tolist()
    [[0.0, 1.0], [0.0, 5.0], [1.0, 5.0]]
    """

    transitions: Any
    discount: Any = 1.0
    action_mask: Any = None
    start: Any = None
    features: Any = None
    state_names: Any = static_field(default=None)
    action_names: Any = static_field(default=None)

    def __post_init__(self):
        if not isinstance(self.transitions, DenseTransitions | SparseTransitions):
            raise TypeError(
                f"transitions is {type(self.transitions).__name__}: use MDP.dense(probabilities), "
                "MDP.sparse(successors, probabilities) or MDP.deterministic(next_state)"
            )
        require_reals("discount", self.discount)
        if np.ndim(self.discount) or (is_concrete(self.discount) and not 0 <= np.asarray(self.discount) <= 1):
            raise ValueError(f"discount must be a number in [0, 1], not {self.discount!r}")
        num_states, num_actions = self.transitions.shape
        read = {}
        if self.action_mask is not None:
            read["action_mask"] = _read_mask(self.action_mask, self.transitions.shape)
        if self.start is not None:
            read["start"] = _read_start(self.start, num_states)
        if self.features is not None:
            features = read_features("features", self.features)
            if features.ndim != 2 or len(features) != num_states:
                raise ValueError(
                    f"features has shape {features.shape}, not (state, feature) of {num_states} states"
                )
            read["features"] = features
        for name, count in (("state_names", num_states), ("action_names", num_actions)):
            if getattr(self, name) is not None:
                read[name] = _read_names(name, getattr(self, name), count)
        for name, value in read.items():
            object.__setattr__(self, name, value)

    @classmethod
    def dense(cls, probabilities: Any, *, discount: Any = 1.0, action_mask: Any = None, **parts: Any) -> MDP:
        """MDP of probabilities (state, action, next state), rows summing to one (within 1e-6, float32 1e-4).

        Parameters
        ----------
        parts : `start`, `features`, `state_names` and `action_names` of the MDP.
        """
        return cls(DenseTransitions(probabilities), discount, action_mask, **parts)

    @classmethod
    def sparse(
        cls,
        successors: Any,
        probabilities: Any,
        *,
        discount: Any = 1.0,
        action_mask: Any = None,
        **parts: Any,
    ) -> MDP:
        """MDP of next states (state, action, slot), integers, and their probabilities, of the same shape.

        Probabilities sum to one over the slots; those of a next state that is listed twice are added. Where there
        are fewer next states than slots, repeat one with probability zero. No table (state, action, state) is
        ever allocated.
        """
        return cls(SparseTransitions.of(successors, probabilities), discount, action_mask, **parts)

    @classmethod
    def deterministic(
        cls, next_state: Any, *, discount: Any = 1.0, action_mask: Any = None, **parts: Any
    ) -> MDP:
        """MDP of deterministic next states (state, action), integers."""
        return cls(SparseTransitions.deterministic(next_state), discount, action_mask, **parts)

    @classmethod
    def from_gymnasium(
        cls,
        P: Any,
        *,
        discount: float | int,
        terminal_actions: str = "one",
        end_state: bool = False,
        **parts: Any,
    ) -> tuple[MDP, Float[Array, "state action"]]:
        """MDP and expected rewards (state, action) of a gymnasium toy-text environment.

        Probabilities of a next state that is listed twice are added. An action that a state does not list is not
        available there. A terminal state becomes absorbing with reward zero, whatever the table lists for it.

        Parameters
        ----------
        P : ``P[state][action]`` is a list of ``(probability, next state, reward, terminated)``, as
            ``env.unwrapped.P``; states and actions are numbered from 0, in dictionaries or sequences. gymnasium itself
            is not needed.
        discount : gamma in [0, 1].
        terminal_actions : ``"one"``, action 0 alone stays available in terminal states; ``"all"``, all of them do, and
            a soft-optimal agent collects their discounted entropy: ln A / (1 - gamma).
        end_state : whether episodes end in one extra state, the last, instead of in the states of the table. It is
            needed where a terminal state is also entered without termination.
        parts : `start`, `features`, `state_names` and `action_names` of the MDP.

        Raises
        ------
        ValueError : a terminal state is also entered without termination.

        Examples
        --------
        >>> ahead = [(0.5, 1, 1.0, True), (0.25, 0, 0.0, False), (0.25, 0, 0.0, False)]
        >>> mdp, reward = MDP.from_gymnasium({0: {0: ahead}, 1: {0: [(1.0, 1, 0.0, True)]}}, discount=0.9)
        >>> mdp.probability(0, 0, [0, 1]).tolist(), reward.tolist()
        ([0.5, 0.5], [[0.5], [0.0]])
        """
        successors, probabilities, reward, mask = read_gymnasium(P, terminal_actions, end_state)
        require_representable("reward", reward)
        dtype = jnp.result_type(float)
        settings = {"discount": discount, "action_mask": mask, **parts}
        return cls.sparse(successors, probabilities.astype(dtype), **settings), jax.device_put(
            reward.astype(dtype)
        )

    @classmethod
    def from_counts(
        cls,
        counts: Any,
        *,
        prior: float | int,
        discount: float | int,
        successors: Any = None,
        support: Any = None,
        action_mask: Any = None,
        **parts: Any,
    ) -> MDP:
        r"""MDP of the posterior mean transition probabilities, :math:`(n + c) / \sum (n + c)`.

        Rows without a count have the prior's mean, uniform over the possible next states. A prior of zero gives the
        relative frequencies, and refuses rows without a count unless the action is not available.

        Parameters
        ----------
        counts : n (state, action, next state), >= 0; or (state, action, slot) with `successors`.
        prior : c >= 0, concentration of a symmetric Dirichlet prior on the possible next states.
        discount : gamma in [0, 1].
        successors : (state, action, slot) integers, the possible next states, -1 in unused slots. The MDP is then
            sparse, and no table (state, action, state) is allocated.
        support : booleans of the shape of `counts`, which next states are possible; None for all.
        action_mask, parts : of the MDP.

        Examples
        --------
        >>> mdp = MDP.from_counts([[[5, 1]], [[0, 0]]], prior=1.0, discount=0.9)
        >>> mdp.probability(0, 0, [0, 1]).tolist(), mdp.probability(1, 0, [0, 1]).tolist()
        ([0.75, 0.25], [0.5, 0.5])
        """
        read = read_counts(counts, prior, successors, support, action_mask)
        weights = concentrations(read, prior)
        mean = (weights / weights.sum(-1, keepdims=True)).astype(jnp.result_type(float))
        return cls._of_slots(read.successors, mean, discount=discount, action_mask=action_mask, **parts)

    @classmethod
    def _of_slots(cls, successors: Any, probabilities: Any, **settings: Any) -> MDP:
        """:meth:`sparse`, or without successors :meth:`dense`."""
        if successors is None:
            return cls.dense(probabilities, **settings)
        return cls.sparse(successors, probabilities, **settings)

    def with_history(self, k: int, *, of: str = "states") -> History:
        """MDP whose states are histories: an agent whose reward, and actions, depend on what it did before.

        Only histories that are reachable from the start distribution, or where there is none from any state, become
        states, those of the first steps being shorter. Histories of one current state are neighbours; its features and
        available actions are theirs.

        Parameters
        ----------
        k : with ``of="states"`` the number of states in a history, the current one included (0 and 1 are the MDP
            itself); with ``of="actions"`` the number of actions before the current state (0 is the MDP itself).
        of : ``"states"`` or ``"actions"``.

        Returns
        -------
        A :class:`~ethogram.models.mdps.History`: ``.mdp``, and ``.features(...)`` and ``.rewrite(data)``, which take
        features and `Trajectories` there.

        Examples
        --------
        >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.9)
        >>> corridor.with_history(2).states[:4].tolist()  # the current state, and the one before
        [[0, -1], [0, 0], [0, 1], [1, -1]]
        """
        parts, states, actions = history_of(self, k, of)
        make = type(self).deterministic if "next_state" in parts else type(self).sparse
        return History(make(**parts), states, actions, self)

    @property
    def num_states(self) -> int:
        """Number of states."""
        return self.transitions.shape[0]

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return self.transitions.shape[1]

    def expect(self, values: Reals) -> Float[Array, "*batch state action"]:
        r"""Undiscounted expectation (..., state, action) of next values, :math:`\sum_{s'} P(s' \mid s, a) v(s')`."""
        (values,) = read_reals(values=values)
        self._fits("values", values, (self.num_states,))
        return _expected(self.transitions, values)

    def push(self, weights: Reals) -> Float[Array, "*batch state"]:
        r"""Weights (..., state) one step ahead of w (..., state, action), :math:`\sum_{s,a} w(s, a) P(s' \mid s, a)`.

        The transpose of :meth:`expect`.
        """
        (weights,) = read_reals(weights=weights)
        self._fits("weights", weights, (self.num_states, self.num_actions))
        return _pushed(self.transitions, weights)

    def policy_matrix(self, policy: Reals) -> Float[Array, "state next_state"]:
        r"""Transition matrix of a policy (state, action), :math:`\sum_a \pi(a \mid s) P(s' \mid s, a)`."""
        (policy,) = read_reals(policy=policy)
        if policy.shape != self.transitions.shape:
            raise ValueError(
                f"policy has shape {policy.shape}, not (state, action), which is {self.transitions.shape}"
            )
        fix = "use expect and push, which need no table"
        require_room("policy_matrix", (self.num_states, self.num_states), policy.dtype, fix)
        return _matrix(self.transitions, policy)

    def probability(self, states: Any, actions: Any, next_states: Any) -> Float[Array, "..."]:
        """P(next state | state, action), for integers that broadcast; they are not checked."""
        at = (states, actions, next_states)
        if on_host(*jax.tree.leaves((self.transitions, at))):
            with jax.ensure_compile_time_eval():  # on the host, which compiles for no shape
                return jax.device_put(self.transitions.probability(*map(np.asarray, at), xp=np))
        return self.transitions.probability(*map(jnp.asarray, at))

    def allowed_actions(
        self, legal: Any = None, states: Any = ()
    ) -> Bool[np.ndarray | Array, "state action"]:
        """Allowed actions: a given subset of the available ones, or all of them.

        Parameters
        ----------
        legal : (state, action) booleans; None for ``action_mask``, or where there is none, for all actions.
        states : (decision,) integers; the message names the first decision in an affected state.
        """
        shape, mask = (self.num_states, self.num_actions), self.action_mask
        if legal is None:
            return np.ones(shape, bool) if mask is None else mask
        allowed = legal if hasattr(legal, "dtype") else read_array("legal", legal)
        if allowed.shape != shape or allowed.dtype != bool:
            raise ValueError(f"legal is {allowed.dtype} {allowed.shape}: give booleans {shape}")
        if mask is not None and is_concrete(allowed, mask):
            beyond = np.asarray(allowed) & ~np.asarray(mask)
            if beyond.any():
                seen = np.flatnonzero(beyond.any(-1)[np.asarray(states, int)])
                state = np.asarray(states)[seen[0]] if len(seen) else beyond.any(-1).argmax()
                place = f" at decision {seen[0]}" if len(seen) else ""
                raise ValueError(
                    f"legal[{state}, {beyond[state].argmax()}] is True{place}, but that action is not available: "
                    "set it to False, or change the MDP's action_mask"
                )
        return allowed

    def require_names_of(self, data: Any) -> None:
        """Raise ValueError where states or actions of trajectories have other names than those of the MDP.

        So it does where the data have no names and those of the MDP are numerals, other than 0, 1, ...: a 1 may then be
        a number or a name.
        """
        names = {"state_names": self.state_names, "action_names": self.action_names}
        require_vocabulary(data.metadata, "mdp", **names)

    def _fits(self, name: str, values: Array, shape: tuple[int, ...]) -> None:
        if values.shape[-len(shape) :] != shape:
            raise ValueError(
                f"{name} has shape {values.shape}: the last axes must be {shape}, those of the MDP"
            )


@jax.jit
def _expected(transitions: Any, values: Array) -> Array:
    return jnp.vectorize(lambda x: transitions.expected_next(x).T, signature="(s)->(s,a)")(values)


@jax.jit
def _pushed(transitions: Any, weights: Array) -> Array:
    return jnp.vectorize(lambda x: transitions.push(x.T), signature="(s,a)->(s)")(weights)


@jax.jit
def _matrix(transitions: Any, policy: Array) -> Array:
    return transitions.chain(policy.T).matrix()


def _read_mask(mask: Any, shape: tuple[int, int]) -> Array:
    """Checked booleans (state, action)."""
    if not isinstance(getattr(mask, "dtype", None), np.dtype):
        mask = read_array("action_mask", mask)
    require_kind("action_mask", mask, "b", "give booleans, pass action_mask.astype(bool)")
    if mask.shape != shape:
        raise ValueError(f"action_mask has shape {mask.shape}, not (state, action), which is {shape}")
    if is_concrete(mask):
        fix = "give every state at least one, if only to stay"
        require(np.asarray(mask).any(1), "action_mask", mask, "has no available action", fix)
    return concretely(lambda xp, x: xp.asarray(x), mask)


def _read_start(start: Any, num_states: int) -> Array:
    """Checked probabilities (state,)."""
    (start,) = read_reals(start=start)
    if start.shape != (num_states,):
        raise ValueError(f"start has shape {start.shape}, not (state,), which is ({num_states},)")
    if is_concrete(start):
        require_distributions("start", start)
    return start


def _read_names(name: str, names: Any, count: int) -> tuple[str, ...]:
    """A checked tuple of unique strings."""
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise TypeError(f"{name} is {names!r}: give a tuple of strings")
    if len(names) != count:
        raise ValueError(f"{name} has {len(names)} names for {count}: give one each")
    first: dict[str, int] = {}
    for place, one in enumerate(names):
        if not isinstance(one, str):
            raise TypeError(f"{name}[{place}] is {one!r}: give a string")
        if one in first:
            raise ValueError(
                f"{name} must be unique strings; {one!r} is both {name}[{first[one]}] and {name}[{place}]"
            )
        first[one] = place
    return tuple(names)
