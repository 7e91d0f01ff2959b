r"""The agent Markov model: an agent whose intent, hidden and of unknown variety, drives what it does.

.. math:: x_0 \sim b, \quad a_t \sim \pi_{x_t, s_t}, \quad x_{t+1} \sim T_{x_t, s_t, a_t}, \\
          b, T_{x,s,a} \sim Dir(\alpha\beta), \quad \pi_{x,s} \sim Dir(\rho_s), \quad \beta \sim GEM(\gamma)

States s of the world are seen, and how they come about is taken as known: it would add a constant to every bound, and
is left out. Actions a are seen, or missing; a step with a missing action has a row over intents of its own, as if
missing were one more action. Rows over intents have K + 1 entries, the last for all intents beyond the truncation: no
step is ever assigned there, and messages use the first K columns, which sum to less than one. What an observer says
about a step, that the intent stayed or changed, has an accuracy.

Unhelkar and Shah (2019), "Learning models of sequential decision-making with partial specification of agent
behavior". What is printed there and built otherwise here: q(x) has :math:`\ln\tilde\pi(a_N \mid x_N, s_N)` (eq. 6
leaves it out); counts of a row are those of its own state and action, over all traces (eq. 10); the initial count
is :math:`F_0 B_0 / Z` (eq. 13 lacks :math:`F_0`); evidence of a change has the complements :math:`1 - p_c`, and a
step of which nothing is said has factor 1 (eq. 15); the weights maximise the bound over the simplex (printed:
minimise), under the density of the sticks, see :mod:`ethogram.models.blocks.stick_weights`. Rows of states and
actions that never occur are marginalised, not carried.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from ethogram.models import trajectories
from ethogram.models.agent_trace import AgentTrace, evidence_of_stay
from ethogram.models.agents import sweep
from ethogram.models.agents.constraints import Constraints, check_constraints
from ethogram.models.agents.rows import Visited, arranged, carried_rows, refuse_changes
from ethogram.models.agents.starts import start_statistics
from ethogram.models.agents.steps import AgentSteps, read_steps
from ethogram.models.agents.tables import agent_tables, drawn_parameters
from ethogram.models.blocks.conjugate_block import is_concrete, read_reals, require
from ethogram.models.blocks.stick_weights import weights_of_sticks
from ethogram.models.chains.conjugate_chain import ChainData, conjugate_log_normalizer
from ethogram.models.emissions.emission import whole_number
from ethogram.models.exponential_family import ConjugateBlock, DirichletCoordinates
from ethogram.models.intent_agent import IntentAgent, roll_out, said_of_stay
from ethogram.models.model_object import model_object, static_field
from ethogram.models.parameter_sites import sample_parameters
from ethogram.models.trajectories import Trajectories

__all__ = ["AgentMarkov", "Constraints", "SimulatedAgent"]


@model_object
class _Policy:
    """Actions as symbols, state * num_actions + action, of a table (intent, visited state, action)."""

    def symbol_table(self, expected: dict[str, Any]) -> Array:
        table = expected["policy"].concentration
        return table.reshape(len(table), -1).T


class SimulatedAgent(NamedTuple):
    """Simulated traces and what was behind them.

    Attributes
    ----------
    data : states and actions, and what was said of each step where the model has evidence.
    intents : (sequence, time) integers, -1 beyond a length; the last, K, stands for all beyond the truncation.
    parameters : by site.
    """

    data: Trajectories
    intents: np.ndarray
    parameters: dict[str, Any]


@model_object
class AgentMarkov:
    """Bayesian model of an agent with latent intent; a conjugate model for :class:`ConjugateSVI`.

    Parameters
    ----------
    num_states, num_actions : of the world.
    truncation : K >= 1, intents that q may use.
    alpha : > 0, concentration of the rows over intents around the shared weights.
    gamma : > 1 with ``"stick"``, > 0 otherwise: how much weight intents beyond the first are worth a priori.
    rho : > 0, concentration of the policies, a number, (action,) or (state, action).
    beta_prior : ``"stick"``; ``"gem"``, the paper's, which is unbounded in a block step and therefore only taken
        with ``beta_step="coordinate"``; or ``"fixed"``, equal weights.
    beta_step : ``"block"`` moves the weights with q of all rows profiled out, ``"coordinate"`` with q held.
    rows : ``"visited"``, or ``"all"`` to carry the row of every state and action, as the paper does.
    stay_accuracy : p in (0, 1]: how often what ``data.stay`` says of a step (1 stayed, 0 changed, -1 nothing) is
        right; None leaves ``data.stay`` out.
    constraints : what is known of the agent, :class:`~ethogram.models.agents.constraints.Constraints`.

    Examples
    --------
    >>> model = AgentMarkov(5, 3, truncation=10)
    >>> sorted(model.prior())
    ['initial', 'policy', 'transition', 'weights']
    """

    num_states: int = static_field()
    num_actions: int = static_field()
    truncation: int = static_field(default=10)
    alpha: Any = 3.0
    gamma: Any = 3.0
    rho: Any = 1.0
    beta_prior: str = static_field(default="stick")
    beta_step: str = static_field(default="block")
    rows: str = static_field(default="visited")
    stay_accuracy: Any = None
    constraints: Any = None
    visited: Visited | None = None
    observed_site: ClassVar[str] = "actions"
    label_dims: ClassVar[tuple[str, ...]] = ("intent", "next_intent")
    start_kinds: ClassVar[tuple[str, ...]] = ("sticky", "segments", "prior")

    def __post_init__(self):
        for name in ("num_states", "num_actions", "truncation"):
            whole_number(name, getattr(self, name), 1)
        choices = {
            "beta_prior": ("stick", "gem", "fixed"),
            "beta_step": ("block", "coordinate"),
            "rows": ("visited", "all"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}")
        if self.beta_prior == "gem" and self.beta_step == "block":
            raise ValueError(
                'beta_prior="gem" is unbounded in a block step: give beta_step="coordinate", or "stick"'
            )
        alpha, gamma, rho = read_reals(alpha=self.alpha, gamma=self.gamma, rho=self.rho)
        for name, value in {"alpha": alpha, "gamma": gamma}.items():
            if value.ndim:
                raise ValueError(f"{name} must be a number, not of shape {value.shape}")
        least = 1 if self.beta_prior == "stick" else 0
        for name, value, bound in (("alpha", alpha, 0), ("gamma", gamma, least), ("rho", rho, 0)):
            if is_concrete(value):
                require(np.asarray(value) > bound, name, value, f"is not above {bound}", "give a larger one")
        shape = (self.num_states, self.num_actions)
        if rho.shape not in ((), shape[1:], shape):
            raise ValueError(f"rho must be a number, or of shape {shape[1:]} or {shape}, not {rho.shape}")
        for name, value in {"alpha": alpha, "gamma": gamma, "rho": rho}.items():
            object.__setattr__(self, name, value)
        if self.stay_accuracy is not None:
            (accuracy,) = read_reals(stay_accuracy=self.stay_accuracy)
            if accuracy.ndim or (is_concrete(accuracy) and not 0 < accuracy <= 1):
                raise ValueError(f"stay_accuracy must be a number in (0, 1], not {self.stay_accuracy!r}")
            object.__setattr__(self, "stay_accuracy", accuracy)
        if self.constraints is not None:
            checked = check_constraints(self.constraints, self.num_states, self.num_actions, self.truncation)
            object.__setattr__(self, "constraints", checked)

    def bind(self, data: Trajectories) -> AgentMarkov:
        """The model that carries the rows that these data need."""
        steps = self._steps(data)
        visited = carried_rows(self, steps)
        refuse_changes(self, steps, visited)
        return dataclasses.replace(self, visited=visited)

    def bound_to(self, data: Trajectories) -> AgentMarkov:
        """The model with the rows that it carries; those of these data where it carries none yet."""
        return self if self.visited is not None else self.bind(data)

    def check_continues(self, earlier: Any) -> None:
        """Raise ValueError where another model's blocks have rows of other states or actions, whatever their shapes."""
        if not isinstance(earlier, AgentMarkov):
            raise ValueError(f"init is a result of {type(earlier).__name__}, not of AgentMarkov")
        rows, others = self.rows_carried(), earlier.rows_carried()
        for name in ("states", "pairs"):
            if not np.array_equal(getattr(rows, name), getattr(others, name)):
                raise ValueError(
                    f"init is a result of data with other {name} than these: its rows are not those of this fit; "
                    'give rows="all", or start afresh'
                )
        for name in ("never", "forbidden"):
            if not np.array_equal(getattr(rows, name), getattr(others, name)):
                raise ValueError("init is a result under other constraints than these: start afresh")

    def rows_carried(self) -> Visited:
        """The rows that the model was bound to; all, with nothing said, before that."""
        if self.visited is not None:
            return self.visited
        if not is_concrete(*jax.tree.leaves(self.constraints)):
            raise TypeError("the constraints of an unbound model are traced: bind it to data before jit")
        return carried_rows(self, None)

    def prior(self) -> dict[str, ConjugateBlock]:
        """Blocks ``weights``, ``initial``, ``transition`` (a row a pair and intent), ``policy``.

        Rows over intents stand at equal weights; in a fit they follow the weights.
        """
        return sweep.around(self, sweep.start_weights(self))

    def divergence(self, blocks: dict[str, ConjugateBlock]) -> Array:
        """KL(q || p) of the rows of data, less the log prior density of the weights, in nats."""
        return sweep.divergence(self, blocks)

    def update(self, blocks: dict[str, Any], statistics: dict[str, Any], scale: Any, step_size: Any) -> Any:
        """Blocks after a natural-gradient step of the counts, and of the weights with them."""
        return sweep.update(self, blocks, statistics, scale, step_size)

    def log_normalizer(self, expected: dict[str, Any], batch: ChainData | Trajectories) -> Array:
        r"""Summed :math:`\ln \tilde Z` of a batch of traces under expected log potentials, a scalar.

        Eq. 6-8 and 15-18 of the paper, as the module corrects them.
        """
        if isinstance(batch, Trajectories):
            batch = self.arrange(batch)
        rows, count = self.rows_carried(), self.truncation
        table = expected["transition"].concentration[rows.row_pair, :, :count]
        if self.stay_accuracy is not None:
            table = table + evidence_of_stay(self.stay_accuracy, count)[rows.row_stay]
        chain = {
            "initial": DirichletCoordinates(expected["initial"].concentration[:count]),
            "transition": DirichletCoordinates(table),
            "policy": expected["policy"],
        }
        return conjugate_log_normalizer(_Policy(), chain, batch)

    def arrange(self, data: Trajectories) -> ChainData:
        """Data as :meth:`log_normalizer` reads them; states and rows are numbered as the model carries them."""
        return arranged(self._steps(data), self.rows_carried(), self.num_actions, data.lengths)

    def observation(self, parameters: dict[str, Any], data: Trajectories) -> AgentTrace:
        """Distribution of the actions at given parameters, one batch entry a trace.

        Rows that the model does not carry, and intents beyond the truncation, stand at their prior means.
        """
        table, policy, row_of = agent_tables(self, parameters)
        stay = None if self.stay_accuracy is None else jnp.asarray(data.stay)
        states, lengths = jnp.asarray(data.states), jnp.asarray(data.lengths)
        return AgentTrace(
            parameters["initial"], table, policy, states, row_of, lengths, stay, self.stay_accuracy
        )

    def agent(self, parameters: dict[str, Any]) -> IntentAgent:
        """Tables of the agent at given parameters, such as ``posterior.mean()``, for all states and actions.

        Intents are those within the truncation; rows over intents have one more entry, for all beyond it.
        """
        table, policy, row_of = agent_tables(self, parameters)
        within = slice(self.truncation)
        return IntentAgent.of_rows(parameters["initial"], table[:, within], row_of, policy[within])

    def simulate(
        self,
        key: Array,
        world: Any,
        first_states: Any,
        lengths: Any,
        *,
        parameters: dict[str, Any] | None = None,
    ) -> SimulatedAgent:
        """Traces from the model, with the intents and parameters behind them.

        Parameters
        ----------
        world : what follows a state and action: states (state, action), integers, or their probabilities (state,
            action, next state).
        first_states : (sequence,) integers.
        lengths : steps of a trace, a number or (sequence,).
        parameters : by site; drawn from the prior, with rows for all states and actions, where None.
        """
        key_parameters, key_lives, key_said = jax.random.split(key, 3)
        model = self if parameters is not None else dataclasses.replace(self, visited=None)
        if parameters is None:
            parameters = drawn_parameters(model, key_parameters)
        table, policy, row_of = agent_tables(model, parameters)
        agent = IntentAgent.of_rows(parameters["initial"], table, row_of, policy)
        life = roll_out(key_lives, agent, world, first_states, lengths)
        data = life.data
        if self.stay_accuracy is not None:
            data = data._replace(stay=said_of_stay(key_said, life.intents, float(self.stay_accuracy)))
        return SimulatedAgent(data, life.intents, parameters)

    def observed_value(self, data: Trajectories) -> Array:
        """The actions as the value of :meth:`observation`: -1 where missing or beyond a length."""
        actions = jnp.asarray(data.actions)
        inside = jnp.arange(actions.shape[1]) < jnp.asarray(data.lengths)[:, None]
        return jnp.where(inside & jnp.asarray(data.observed), actions, -1)

    def site_dims(self) -> dict[str, tuple[str, ...]]:
        """Names of the axes of every parameter site; ``next_intent`` has the rest beyond the truncation last."""
        return {
            "weights": ("next_intent",),
            "initial": ("next_intent",),
            "transition": ("pair", "intent", "next_intent"),
            "policy": ("intent", "visited_state", "action"),
            "sticks": ("stick",),
        }

    def site_coords(self) -> dict[str, list[Any]]:
        """What stands on the axes of the sites: pairs as ``"state,action"``, ``"-"`` for a missing action."""
        rows = self.rows_carried()
        states, actions = np.divmod(np.asarray(rows.pairs), self.num_actions + 1)
        named = [f"{s},{'-' if a == self.num_actions else a}" for s, a in zip(states, actions, strict=True)]
        spare = [f"spare {number}" for number in range(rows.num_rows - len(named))]
        return {"pair": named + spare, "visited_state": np.asarray(rows.states).tolist()}

    def __call__(self, data: Trajectories, *, condition: bool = True) -> None:
        """The numpyro model; ``condition=False`` keeps states, lengths and evidence and samples the actions.

        Sites: ``sticks`` (not where the weights are fixed), ``weights``, ``initial``, ``transition``, ``policy``,
        and ``actions``, one batch entry a trace.
        """
        if self.visited is None or is_concrete(data.states, data.actions, data.lengths):
            self.check(data)
        model = self.bound_to(data)
        rows = model.rows_carried()
        if rows.pair_bounds is not None or rows.policy_bounds is not None:
            raise ValueError(
                "constraints on means are on q, not on the model, and have no density to sample: leave out stay, entry "
                "and action but equal=0, or fit by ConjugateSVI"
            )
        weights = sweep.start_weights(model).natural
        if self.beta_prior != "fixed":
            unit = jnp.ones(self.truncation, weights.dtype)
            sticks = numpyro.sample("sticks", dist.Beta(unit, self.gamma * unit).to_event(1))
            weights = weights_of_sticks(sticks)
        weights = numpyro.deterministic("weights", weights)
        free = jnp.broadcast_to(self.alpha * weights, (rows.num_rows, self.truncation, len(weights)))
        initial = numpyro.sample("initial", dist.Dirichlet(self.alpha * weights))
        if self.constraints:
            drawn = numpyro.sample("transition_free", dist.Dirichlet(free).to_event(2))
            own = jnp.eye(self.truncation, self.truncation + 1, dtype=drawn.dtype)
            transition = numpyro.deterministic("transition", jnp.where(rows.never[:, None, None], own, drawn))
        else:
            transition = numpyro.sample("transition", dist.Dirichlet(free).to_event(2))
        parameters = {"weights": weights, "initial": initial, "transition": transition}
        zeros = () if rows.forbidden is None else (("policy", np.asarray(rows.forbidden)),)
        parameters |= sample_parameters({"policy": model.prior()["policy"]}, zeros)
        distribution = model.observation(parameters, data)
        with numpyro.plate("sequence", distribution.batch_shape[0]):
            numpyro.sample("actions", distribution, obs=self.observed_value(data) if condition else None)

    def check(self, data: Trajectories) -> None:
        """Raise ValueError or TypeError unless the traces have states, actions and evidence in range."""
        trajectories.check(data)
        self._steps(data)

    def _steps(self, data: Trajectories) -> AgentSteps:
        steps = read_steps(data, self.num_states, self.num_actions, self.stay_accuracy is not None)
        empty = np.flatnonzero(~steps.inside.any(axis=1))
        if len(empty):
            raise ValueError(f"data.lengths[{empty[0]}] is 0: an empty trace says nothing; leave it out")
        return steps

    def start_statistics(
        self, rng: np.random.Generator, kind: str, batches: list[ChainData]
    ) -> dict[str, Any]:
        """Counts of a first guess at the intents, as :func:`~ethogram.models.agents.starts.start_statistics`."""
        return start_statistics(self, rng, kind, batches)
