r"""The agent Markov model: a latent intent, with an unknown number of values, drives the actions of an agent.

.. math:: x_0 \sim b, \quad a_t \sim \pi_{x_t, s_t}, \quad x_{t+1} \sim T_{x_t, s_t, a_t}, \\
          b, T_{x,s,a} \sim Dir(\alpha\beta), \quad \pi_{x,s} \sim Dir(\rho_s), \quad \beta \sim GEM(\gamma)

States s are observed, and their dynamics are known: these would add a constant to the evidence, and are left out.
Actions a are observed or missing; a missing action has transition rows of its own, like one more action. Rows over
intents have K + 1 entries, the last for all intents beyond the truncation: q assigns no step to it, and messages of a
fit use the first K columns, which sum to less than one. The distribution of the actions, `AgentMarkov.likelihood`, has
all K + 1, and is normalised. Labels that the intent stayed or changed at a step are evidence of known accuracy.

Source: Unhelkar and Shah (2019), "Learning models of sequential decision-making with partial specification of agent
behavior", eq. 1-18. Corrected here: q(x) includes :math:`\ln\tilde\pi(a_N \mid x_N, s_N)` (missing in eq. 6); the
counts of a row are those of its own state and action, over all traces (eq. 10); the initial count is
:math:`F_0 B_0 / Z` (eq. 13 lacks :math:`F_0`); the label "changed" has the complementary probabilities
:math:`1 - p_c`, and a step without a label has factor 1 (eq. 15); the weights maximise the ELBO over the simplex
(printed: minimise), under the density of the sticks, see :mod:`ethogram.models.intents.stick_weights`. Rows of states
and actions that do not occur are marginalised, not carried.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array
from jaxtyping import Bool, Float, Int

from ethogram.models.arguments import (
    concretely,
    is_concrete,
    read_reals,
    require,
    require_integer,
    require_one_of,
    warn_user,
)
from ethogram.models.chains.conjugate_chain import (
    ChainData,
    ChainEmission,
    conjugate_log_normalizer,
    state_marginals,
)
from ethogram.models.conjugate_model import (
    ConjugateModel,
    Entries,
    Growth,
    Labelling,
    require_informative,
    unlabelled,
)
from ethogram.models.data import Metadata, trajectories
from ethogram.models.data.state_action_steps import AgentSteps, earlier, known_actions, read_steps
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.families.exponential_family import ConjugateBlock, DirichletCoordinates
from ethogram.models.families.numpyro_sites import sample_parameters
from ethogram.models.intents import updates
from ethogram.models.intents.agent_trace import AgentTrace, log_stay_evidence
from ethogram.models.intents.constraints import check_constraints
from ethogram.models.intents.intent_agent import IntentAgent, noisy_stay_labels, roll_out
from ethogram.models.intents.known_weights import check_weights
from ethogram.models.intents.peers import peers_of
from ethogram.models.intents.row_sites import sample_rows
from ethogram.models.intents.rows import (
    Visited,
    arranged,
    carried_rows,
    check_shared_rows,
    check_visited,
    refuse_changes,
    row_coords,
)
from ethogram.models.intents.starts import label_statistics, start_statistics
from ethogram.models.intents.stickiness import StickinessPrior, read_stickiness
from ethogram.models.memory_bound import require_room
from ethogram.models.model_object import changed, computed_once, model_object, static_field
from ethogram.models.printing import short_repr

__all__ = ["AgentMarkov", "SimulatedAgent"]


@model_object
class _Policy(ChainEmission):
    """The emission of the chain kernel: symbols state * num_actions + action."""

    def symbol_table(self, expected: dict[str, Any]) -> Array:
        table = expected["policy"].concentration
        return table.reshape(len(table), -1).T


@short_repr
class SimulatedAgent(NamedTuple):
    """Simulated traces, with their latent intents and parameters.

    Attributes
    ----------
    data : states and actions, and stay labels where the model has a `stay_accuracy`.
    intents : (sequence, time) integers, -1 beyond a length; the last, K, stands for all beyond the truncation.
    parameters : by site.
    """

    data: Trajectories
    intents: Int[np.ndarray, "sequence time"]
    parameters: dict[str, Any]


@functools.partial(jax.jit, static_argnums=4, inline=True)
def _agent_of(initial: Any, table: Array, row_of: Array, policy: Array, count: int | None) -> IntentAgent:
    """The agent of the first `count` intents; of all where None."""
    return IntentAgent.of_rows(initial, table[:, :count], row_of, policy[:count])


@model_object
class AgentMarkov(ConjugateModel):
    """Bayesian nonparametric model of an agent with latent intent; a numpyro model, and one for `ConjugateSVI`.

    Parameters
    ----------
    num_states, num_actions : of the environment.
    truncation : K >= 1, truncation level of the hierarchical Dirichlet process: intents that q may use.
    alpha : > 0, concentration of the rows over intents around the shared weights.
    gamma : > 1 with ``"stick"``, > 0 with ``"fixed"``: concentration of the stick-breaking prior of the weights.
    rho : > 0, Dirichlet concentration of the policies, a number, (action,) or (state, action).
    beta_prior : ``"stick"`` learns the weights, under the density of the sticks; ``"fixed"`` holds them.
    rows : ``"visited"``, the rows of states and actions that occur, or all where at least half of them do, so that fits
        of other data share compiled programs; ``"all"``, as the paper has them; or ``"shared"``, one row per intent for
        all states and actions: an input-driven hidden Markov model, whose actions depend on states, and changes of
        intent do not.
    stay_accuracy : p in (0, 1], probability that a label in ``data.stay`` (1 stayed, 0 changed, -1 unknown) is right;
        None ignores ``data.stay``.
    constraints : partial specification of the agent, :class:`~ethogram.models.intents.IntentConstraints`.
    weights : (truncation + 1,) known weights, above 0, the last for all intents beyond the truncation, with
        ``beta_prior="fixed"``; None means equal ones.
    stickiness : kappa, prior pseudo-counts of staying in every row of `transition`: ``"learn"``, or a
        `StickinessPrior`, to learn it; a number >= 0; None for none, where fits of more than some hundred steps tend to
        find one intent; see :mod:`ethogram.models.intents.stickiness`.

    Examples
    --------
    >>> model = AgentMarkov(5, 3, truncation=10)
    >>> sorted(model.prior())
    ['initial', 'policy', 'stickiness', 'transition', 'weights']
    """

    num_states: int = static_field()
    num_actions: int = static_field()
    truncation: int = static_field(default=10)
    alpha: Any = 3.0
    gamma: Any = 3.0
    rho: Any = 1.0
    beta_prior: str = static_field(default="stick")
    rows: str = static_field(default="visited")
    stay_accuracy: Any = None
    constraints: Any = None
    weights: Any = None
    visited: Visited | None = None
    stickiness: Any = "learn"
    observed_site: ClassVar[str] = "actions"
    label_dims: ClassVar[tuple[str, ...]] = ("intent", "next_intent")
    start_kinds: ClassVar[tuple[str, ...]] = ("sticky", "segments", "prior")

    def __post_init__(self):
        for name in ("num_states", "num_actions", "truncation"):
            require_integer(name, getattr(self, name), 1)
        policies = (self.truncation, self.num_states, self.num_actions)
        require_room("the policies of all intents", policies, float, "give fewer states, actions or intents")
        require_room("the transitions of intents", (self.truncation,) * 2, float, "give a smaller truncation")
        require_one_of("beta_prior", self.beta_prior, ("stick", "fixed"))
        require_one_of("rows", self.rows, ("visited", "all", "shared"))
        known = {} if self.weights is None else {"weights": self.weights}
        alpha, gamma, rho, *weights = read_reals(alpha=self.alpha, gamma=self.gamma, rho=self.rho, **known)
        for given in weights:
            check_weights(given, self.truncation, self.beta_prior)
            object.__setattr__(self, "weights", given)
        for name, value in {"alpha": alpha, "gamma": gamma}.items():
            if value.ndim:
                raise ValueError(f"{name} must be a scalar, not of shape {value.shape}")
        least = 1 if self.beta_prior == "stick" else 0
        for name, value, bound in (("alpha", alpha, 0), ("gamma", gamma, least), ("rho", rho, 0)):
            if is_concrete(value):
                require(np.asarray(value) > bound, name, value, f"is not above {bound}", "give a larger one")
            object.__setattr__(self, name, value)
        shape = (self.num_states, self.num_actions)
        if rho.shape not in ((), shape[1:], shape):
            raise ValueError(f"rho must be a scalar, or of shape {shape[1:]} or {shape}, not {rho.shape}")
        if self.stay_accuracy is not None:
            (accuracy,) = read_reals(stay_accuracy=self.stay_accuracy)
            if accuracy.ndim or (is_concrete(accuracy) and not 0 < np.asarray(accuracy) <= 1):
                raise ValueError(f"stay_accuracy must be a scalar in (0, 1], not {self.stay_accuracy!r}")
            object.__setattr__(self, "stay_accuracy", accuracy)
        if self.constraints is not None:
            checked = check_constraints(self.constraints, self.num_states, self.num_actions, self.truncation)
            object.__setattr__(self, "constraints", checked)
        if self.rows == "shared":
            check_shared_rows(self.constraints)
        object.__setattr__(self, "stickiness", read_stickiness(self.stickiness))
        if self.visited is not None and is_concrete(*jax.tree.leaves(self.visited)):
            check_visited(self, self.visited)

    def bind(self, data: Trajectories, like: Any = None) -> AgentMarkov:
        """The model with the rows that these data need; ValueError where those of a bound model `like` are others."""
        steps = self._steps(data)
        visited = carried_rows(self, steps)
        refuse_changes(self, steps, visited)
        bound = changed(self, visited=visited)
        if like is not None:
            bound._check_continues(like)
        return bound

    @property
    def is_bound(self) -> bool:
        """Whether the rows that the model carries are those of data."""
        return self.visited is not None

    def _check_continues(self, earlier: Any) -> None:
        """Raise ValueError unless the blocks of `earlier` have rows of the same states and actions."""
        if not isinstance(earlier, AgentMarkov):
            raise ValueError(f"init is a result of {type(earlier).__name__}: give one of AgentMarkov")
        rows, others = self.rows_carried(), earlier.rows_carried()
        for name in ("states", "pairs"):
            if not np.array_equal(getattr(rows, name), getattr(others, name)):
                raise ValueError(
                    f"init is a result of data with other {name}: its rows are not those of this fit; give "
                    'rows="all" to both models, or another init'
                )
        for name in ("never", "forbidden"):
            if not np.array_equal(getattr(rows, name), getattr(others, name)):
                raise ValueError("init is a result under other constraints: give another init")
        learned = [isinstance(model.stickiness, StickinessPrior) for model in (self, earlier)]
        if learned[0] != learned[1]:
            raise ValueError(
                "init is a result with another kind of stickiness: give both models the same, or another init"
            )
        if self.beta_prior == "fixed":
            mine, theirs = (np.asarray(updates.start_weights(model).natural) for model in (self, earlier))
            if mine.shape != theirs.shape or not np.allclose(mine, theirs):
                raise ValueError(
                    "init is a result with other fixed weights, which no fit moves: give another init"
                )

    def rows_carried(self) -> Visited:
        """Rows of the data that the model is bound to; all rows, without stay labels, if it is not."""
        if self.visited is not None:
            return self.visited
        if not is_concrete(*jax.tree.leaves(self.constraints)):
            raise TypeError(
                "constraints are traced and the model is not bound: call model.bind(data) before jit"
            )
        return carried_rows(self, None)

    def prior(self) -> dict[str, ConjugateBlock]:
        """Blocks ``weights``, ``initial``, ``transition`` (a row per pair and intent) and ``policy``.

        Rows over intents are given equal weights; in a fit they follow the weights.
        """
        return {**self._prior()}

    @computed_once
    def _prior(self) -> dict[str, ConjugateBlock]:
        return updates.prior_given(self, updates.start_weights(self))

    def divergence(self, blocks: dict[str, ConjugateBlock], prior: Any = None) -> Float[Array, ""]:
        """KL(q || p) of the rows with data, minus the log prior density of the weights, in nats.

        With ``beta_prior="stick"`` the density is relative to its largest value, so that ELBOs compare across
        truncations (:mod:`ethogram.models.intents.stick_weights`).

        The prior of the rows follows from the weights in `blocks`; `prior` is ignored.
        """
        return updates.divergence(self, blocks)

    def update(
        self, blocks: dict[str, Any], prior: Any, statistics: dict[str, Any], scale: Any, step_size: Any
    ) -> Any:
        """Blocks after a natural-gradient step on the rows, and the step of the weights (eq. 9, 12 and 14)."""
        return updates.update(self, blocks, statistics, scale, step_size)

    def log_normalizer(self, expected: dict[str, Any], batch: ChainData | Trajectories) -> Float[Array, ""]:
        r"""Summed :math:`\ln \tilde Z` of a batch of traces under expected log potentials.

        Eq. 6-8 and 15-18, corrected as the module says; the gradient has the counts of eq. 10, 13 and 14.
        """
        if isinstance(batch, Trajectories):
            batch = self.arrange(batch)
        return conjugate_log_normalizer(_Policy(), self._chain(expected), batch)

    def _chain(self, expected: dict[str, Any]) -> dict[str, Any]:
        """Expected log potentials within the truncation, with a transition row for every kind of step."""
        rows, count = self.rows_carried(), self.truncation
        table = expected["transition"].concentration[rows.row_pair, :, :count]
        if self.stay_accuracy is not None:
            table = table + log_stay_evidence(self.stay_accuracy, count)[rows.row_stay]
        return {
            "initial": DirichletCoordinates(expected["initial"].concentration[:count]),
            "transition": DirichletCoordinates(table),
            "policy": expected["policy"],
        }

    def exchangeable_axes(self) -> dict[str, tuple[int, ...]]:
        """Axes of the intents by block, where their sticks are free: the density of these knows no order."""
        return {**updates.LABEL_AXES, "weights": (0,)} if updates.is_free(self) else {}

    def state_positions(self, draws: Any, data: Trajectories) -> np.ndarray:
        """Minus the weight of every intent."""
        return -draws["weights"].mean(0)[: self.truncation]

    @property
    def growth(self) -> Growth:
        """Intents that no step uses cost no ELBO.

        Fits start with all of them where weights are no sticks, rows have bounds, or some intent may not take an
        action.
        """
        free = updates.is_free(self)
        return Growth(
            prior_of_first=functools.partial(updates.prior_of_first, self) if free else None,
            narrowed=self._narrowed,
            widened=functools.partial(updates.widened, self),
            mass=functools.partial(updates.state_mass, self),
        )

    @property
    def labelling(self) -> Labelling:
        """Counts of labels, see :mod:`ethogram.models.intents.starts`, and probabilities of the intents of steps."""
        return Labelling(
            lambda rng, labels, batches: label_statistics(self, labels, batches),
            lambda expected, batch: state_marginals(_Policy(), self._chain(expected), batch),
        )

    def arrange(self, data: Trajectories) -> ChainData:
        """Data for :meth:`log_normalizer`; states and rows are renumbered as the model carries them."""
        return arranged(self._steps(data), self.rows_carried(), self.num_actions, data.lengths)

    def entries(self, data: Trajectories) -> Entries:
        """The actions, -1 where missing or beyond a length, and the traces without labels."""
        value = concretely(known_actions, data.actions, data.lengths, data.observed)
        return Entries(value, unlabelled(data)._replace(observations=None))

    def likelihood(self, parameters: dict[str, Any], batch: Trajectories) -> AgentTrace:
        """Distribution of the actions of traces given parameters, states and, with a `stay_accuracy`, stay labels.

        Rows that the model does not carry, and intents beyond the truncation, are at their prior means.
        """
        table, policy, row_of = updates.agent_tables(self, parameters)
        stay = None if self.stay_accuracy is None else jnp.asarray(batch.stay)
        given = batch.states, row_of, batch.lengths, stay, self.stay_accuracy
        return AgentTrace(parameters["initial"], table, policy, *given)

    def agent(self, parameters: dict[str, Any]) -> IntentAgent:
        """Tables of the agent for all states and actions, given parameters such as ``posterior.mean()``.

        Intents are those within the truncation; rows over intents have one more entry, for all beyond it.
        """
        table, policy, row_of = updates.agent_tables(self, parameters)
        return _agent_of(parameters["initial"], table, row_of, policy, self.truncation)

    def simulate(
        self,
        key: Array,
        dynamics: Any,
        first_states: Any,
        lengths: Any,
        *,
        parameters: dict[str, Any] | None = None,
    ) -> SimulatedAgent:
        """Simulated traces, with their latent intents and parameters.

        Parameters
        ----------
        dynamics : next states (state, action), integers, or their probabilities (state, action, next state).
        first_states : (sequence,) integers.
        lengths : steps of a trace, a number or (sequence,).
        parameters : by site; None samples them from the prior, for all states and actions.
        """
        key_parameters, key_traces, key_labels = jax.random.split(key, 3)
        model = self if parameters is not None else dataclasses.replace(self, visited=None)
        if parameters is None:
            parameters = updates.drawn_parameters(model, key_parameters)
        table, policy, row_of = updates.agent_tables(model, parameters)
        agent = _agent_of(parameters["initial"], table, row_of, policy, None)
        data, intents = roll_out(key_traces, agent, dynamics, first_states, lengths)
        if self.stay_accuracy is not None:
            data = data._replace(stay=noisy_stay_labels(key_labels, intents, float(self.stay_accuracy)))
        return SimulatedAgent(data, intents, parameters)

    def informative_steps(self, data: Trajectories) -> Bool[np.ndarray, "sequence time"]:
        """Which steps have an action, or a stay label on the step before that the model reads."""
        steps = self._steps(data)
        return (steps.action >= 0) | (steps.inside & (earlier(steps.stay, 1) >= 0))

    def site_dims(self) -> dict[str, tuple[str, ...]]:
        """Dims of every parameter site; the last ``next_intent`` stands for all beyond the truncation."""
        dims = {
            "weights": ("next_intent",),
            "initial": ("next_intent",),
            "transition": ("pair", "intent", "next_intent"),
            "policy": ("intent", "visited_state", "action"),
            "sticks": ("stick",),
            "stickiness": (),
        }
        return {name: dims[name] for name in (*self.needed_sites(), "sticks")}

    def needed_sites(self) -> tuple[str, ...]:
        """Sites that :meth:`likelihood` reads: all but the sticks, which fixed weights and q lack."""
        learned = ("stickiness",) if isinstance(self.stickiness, StickinessPrior) else ()
        return "weights", "initial", "transition", "policy", *learned

    def site_layout(self, data: Any) -> tuple[dict[str, tuple[str, ...]], dict[str, list[Any]]]:
        """Dims, and coordinates by the names of states and actions that data have, or by numbers.

        Pairs are ``"state,action"``, with ``"-"`` for a missing action.
        """
        return self.site_dims(), row_coords(self, Metadata() if data is None else data.metadata)

    def __call__(self, data: Trajectories, *, condition: bool = True) -> None:
        """The numpyro model; ``condition=False`` keeps states, lengths and stay labels, and samples the actions.

        Sites: those of :mod:`ethogram.models.intents.row_sites`, ``policy``, and ``actions``, one entry per trace.
        """
        if self.visited is None or is_concrete(data.states, data.actions, data.lengths):
            self.check(data)
        require_informative(self, data, condition)
        model = self if self.is_bound else self.bind(data)
        rows = model.rows_carried()
        if rows.pair_bounds is not None or rows.policy_bounds is not None:
            raise ValueError(
                "constraints on means (stay, entry, action) restrict q and have no density under NUTS: leave them out "
                "(never_switch and action(..., equal=0) may stay), or fit with ConjugateSVI"
            )
        parameters = sample_rows(model)
        zeros = () if rows.forbidden is None else (("policy", rows.forbidden),)
        parameters |= sample_parameters({"policy": model.prior()["policy"]}, zeros)
        entries = model.entries(data)
        with numpyro.plate(entries.unit, data.num_sequences):
            traces = model.likelihood(parameters, entries.batch)
            numpyro.sample("actions", traces, obs=entries.value if condition else None)

    def check(self, data: Trajectories) -> None:
        """Raise ValueError or TypeError unless the traces have states, actions and stay labels in range.

        Warns where there are stay labels and the model has no `stay_accuracy`.
        """
        trajectories.check(data)
        steps = self._steps(data)
        for empty in np.flatnonzero(~steps.inside.any(axis=1))[:1]:
            raise ValueError(f"data.lengths[{empty}] is 0: leave empty traces out")
        unread = self.stay_accuracy is None and data.stay is not None
        if unread and (np.asarray(data.stay)[steps.inside] >= 0).any():
            warn_user(
                "data.stay is ignored, since the model has no stay_accuracy: pass it to AgentMarkov, or drop the "
                "labels by data._replace(stay=None)"
            )

    def _steps(self, data: Trajectories) -> AgentSteps:
        steps = read_steps(data, self.num_states, self.num_actions, self.stay_accuracy is not None)
        return steps._replace(pair=np.zeros_like(steps.pair)) if self.rows == "shared" else steps

    def peers(self) -> dict[str, Any]:
        """Simpler models to compare with, see :mod:`ethogram.models.intents.peers`."""
        return peers_of(self)

    def _narrowed(self, number: int) -> AgentMarkov:
        """The model with a smaller truncation, the same at every call; rows over intents do not depend on it."""
        kept = vars(self).setdefault("_narrowed_kept", {})
        if number not in kept:
            kept[number] = changed(self, truncation=number)
        return kept[number]

    def start_statistics(
        self, rng: np.random.Generator, kind: str, batches: list[ChainData], number: int | None = None
    ) -> dict[str, Any]:
        """Statistics of an initial assignment of intents, see :mod:`ethogram.models.intents.starts`."""
        if number is None or number >= self.truncation:
            return start_statistics(self, rng, kind, batches)
        found = start_statistics(self._narrowed(number), rng, kind, batches)
        for name, axes in updates.LABEL_AXES.items():
            counts = updates.with_unused(found[name].concentration, axes, number, self.truncation - number)
            found[name] = DirichletCoordinates(counts)
        return found
