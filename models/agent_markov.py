r"""The agent Markov model: an agent whose intent, hidden and of unknown variety, drives what it does.

.. math:: x_0 \sim b, \quad a_t \sim \pi_{x_t, s_t}, \quad x_{t+1} \sim T_{x_t, s_t, a_t}, \\
          b, T_{x,s,a} \sim Dir(\alpha\beta), \quad \pi_{x,s} \sim Dir(\rho_s), \quad \beta \sim GEM(\gamma)

States s of the world are seen, and how they come about is taken as known; actions a are seen, or missing. Rows
over intents have K + 1 entries, the last for all intents beyond the truncation: no step is ever assigned there,
and messages use the first K columns, which sum to less than one. What an observer says about a step, that the
intent stayed or changed, has an accuracy.

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

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from ethogram.models import trajectories
from ethogram.models.agent_starts import start_statistics
from ethogram.models.agent_steps import AgentSteps, read_steps
from ethogram.models.agent_trace import AgentTrace, evidence_of_stay
from ethogram.models.blocks.conjugate_block import is_concrete, read_reals, require
from ethogram.models.blocks.stick_weights import StickWeights, fit_to_counts, fit_to_rows
from ethogram.models.chains.conjugate_chain import ChainData, conjugate_log_normalizer
from ethogram.models.emissions.emission import whole_number
from ethogram.models.exponential_family import (
    ConjugateBlock,
    Dirichlet,
    DirichletCoordinates,
    expected_statistics,
    total_kl,
)
from ethogram.models.model_object import model_object, static_field
from ethogram.models.trajectories import Trajectories

__all__ = ["AgentMarkov", "Visited"]


class Visited(NamedTuple):
    """The rows that a fit carries: what occurs in its data, in order."""

    states: Array  # (visited state,)
    pairs: Array  # (pair,): state * (num_actions + 1) + action, the action after the last for a missing one
    row_pair: Array  # (row,): the pair of every kind of step, by what was said of it
    row_stay: Array  # (row,): 1 the intent stayed, 0 it changed, -1 nothing said


@model_object
class _Policy:
    """Actions as symbols of a table (intent, visited state, action), at observations (state, action)."""

    def expected_log_likelihood(self, expected: dict[str, Any], observations: Array) -> Array:
        table = expected["policy"].concentration
        return jnp.moveaxis(table[:, observations[..., 0], observations[..., 1]], 0, -1)


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
    visited: Visited | None = None
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

    def bind(self, data: Trajectories) -> AgentMarkov:
        """The model that carries the rows that these data need."""
        steps = self._steps(data)
        if not steps.inside.any():
            raise ValueError("data have no steps: there is nothing to carry rows of")
        occurring = np.unique(steps.pair[steps.leaving])
        states, pairs = np.unique(steps.state[steps.inside]), occurring
        if self.rows == "all":
            states, pairs = self._all_rows()
            pairs = np.union1d(pairs, occurring)  # the rows of missing actions, where some are
        if not len(pairs):  # traces of one step have no transition: one row, that no step is left by
            pairs = steps.pair[steps.inside][:1]
        kinds = np.unique(np.stack([steps.pair, steps.stay], axis=-1)[steps.leaving], axis=0)
        if not len(kinds):
            kinds = np.array([[pairs[0], -1]])
        row_pair = np.searchsorted(pairs, kinds[:, 0])
        visited = Visited(*(jnp.asarray(x) for x in (states, pairs, row_pair, kinds[:, 1])))
        return dataclasses.replace(self, visited=visited)

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

    def _all_rows(self) -> tuple[np.ndarray, np.ndarray]:
        states = np.arange(self.num_states)
        pairs = states[:, None] * (self.num_actions + 1) + np.arange(self.num_actions)
        return states, pairs.ravel()

    def rows_carried(self) -> Visited:
        """The rows that the model was bound to; all, with nothing said, before that."""
        if self.visited is not None:
            return self.visited
        states, pairs = self._all_rows()
        stay = np.full(len(pairs), -1)
        return Visited(*(jnp.asarray(x) for x in (states, pairs, np.arange(len(pairs)), stay)))

    def prior(self) -> dict[str, ConjugateBlock]:
        """Blocks ``weights``, ``initial``, ``transition`` (a row a pair and intent), ``policy``.

        Rows over intents stand at equal weights; :meth:`prior_at` has them at those of a fit.
        """
        rows = self.rows_carried()
        weights = StickWeights.uniform(self.truncation, self.gamma, self.beta_prior)
        shape = (self.num_states, self.num_actions)
        rho = jnp.broadcast_to(self.rho, shape)[rows.states]
        policy = jnp.broadcast_to(rho, (self.truncation, *rho.shape))
        return self._around(weights, len(rows.pairs), Dirichlet.from_standard(policy))

    def prior_at(self, blocks: dict[str, ConjugateBlock]) -> dict[str, ConjugateBlock]:
        """The prior given the weights among these blocks."""
        num_pairs = blocks["transition"].natural.concentration.shape[-3]
        rho = self.prior()["policy"]
        return self._around(blocks["weights"], num_pairs, rho)

    def _around(self, weights: Any, num_pairs: int, policy: ConjugateBlock) -> dict[str, ConjugateBlock]:
        row = self.alpha * weights.natural
        rows = jnp.broadcast_to(row, (num_pairs, self.truncation, self.truncation + 1))
        return {
            "weights": weights,
            "initial": Dirichlet(DirichletCoordinates(row)),
            "transition": Dirichlet(DirichletCoordinates(rows)),
            "policy": policy,
        }

    def divergence(self, blocks: dict[str, ConjugateBlock]) -> Array:
        """KL(q || p) of all rows, less the log prior density of the weights, in nats."""
        return total_kl(blocks, self.prior_at(blocks))

    def update(self, blocks: dict[str, Any], statistics: dict[str, Any], scale: Any, step_size: Any) -> Any:
        """Blocks after a natural-gradient step of the counts, and of the weights with them."""
        before = self.prior_at(blocks)
        initial = blocks["initial"].step(before["initial"], statistics["initial"], scale, step_size)
        transition = blocks["transition"].step(
            before["transition"], statistics["transition"], scale, step_size
        )
        policy = blocks["policy"].step(before["policy"], statistics["policy"], scale, step_size)
        weights = blocks["weights"]
        row = before["initial"].natural.concentration

        def counts(block):  # what stands above the prior; rounding may put it below
            return jnp.maximum(block.natural.concentration - row, 0)

        if self.beta_step == "block":
            above = [counts(block).reshape(-1, len(row))[:, :-1] for block in (initial, transition)]
            moved = fit_to_counts(weights, self.alpha, jnp.concatenate(above))
        else:
            held = expected_statistics({name: blocks[name] for name in ("initial", "transition")})
            logs = [held[name].concentration.reshape(-1, len(row)) for name in held]
            moved = fit_to_rows(weights, self.alpha, jnp.concatenate(logs))
        new = self.alpha * moved.natural

        def around(block):
            return Dirichlet(DirichletCoordinates(new + counts(block)))

        return {
            "weights": moved,
            "initial": around(initial),
            "transition": around(transition),
            "policy": policy,
        }

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
        steps, rows = self._steps(data), self.rows_carried()
        states, pairs = np.asarray(rows.states), np.asarray(rows.pairs)
        kinds = pairs[np.asarray(rows.row_pair)] * 3 + np.asarray(rows.row_stay) + 1
        sought = steps.pair * 3 + steps.stay + 1
        order = np.argsort(kinds, kind="stable")
        place = np.minimum(np.searchsorted(kinds[order], sought), len(kinds) - 1)
        row = order[place]
        state = np.minimum(np.searchsorted(states, steps.state), len(states) - 1)
        lost = (steps.inside & (states[state] != steps.state)) | (steps.leaving & (kinds[row] != sought))
        if lost.any():
            at = np.argwhere(lost)[0].tolist()
            raise ValueError(
                f"data{at} has a state, action or evidence that the model was not bound to: bind it to these data"
            )
        known = steps.action >= 0
        observations = np.stack([np.where(steps.inside, state, 0), np.maximum(steps.action, 0)], axis=-1)
        row = np.where(steps.leaving, row, 0)
        return ChainData(
            jnp.asarray(observations.astype(np.int32)),
            jnp.asarray(steps.inside & known),
            jnp.asarray(data.lengths),
            rows=jnp.asarray(row.astype(np.int32)),
        )

    def observation(self, parameters: dict[str, Any], data: Trajectories) -> AgentTrace:
        """Distribution of the actions at given parameters, one batch entry a trace.

        Rows that the model does not carry, and intents beyond the truncation, stand at their prior means.
        """
        rows, count = self.rows_carried(), self.truncation
        weights, shape = parameters["weights"], (self.num_states, self.num_actions)
        carried = jnp.asarray(parameters["transition"])
        table = jnp.broadcast_to(weights, (len(rows.pairs) + 1, count + 1, count + 1))
        table = table.at[:-1, :-1].set(carried)
        rho = jnp.broadcast_to(self.rho, shape)
        policy = jnp.broadcast_to(rho / jnp.sum(rho, axis=-1, keepdims=True), (count + 1, *shape))
        policy = policy.at[:-1, rows.states].set(parameters["policy"])
        row_of = jnp.full(self.num_states * (self.num_actions + 1), len(rows.pairs), jnp.int32)
        row_of = row_of.at[rows.pairs].set(jnp.arange(len(rows.pairs), dtype=jnp.int32))
        stay = None if self.stay_accuracy is None else jnp.asarray(data.stay)
        return AgentTrace(
            parameters["initial"],
            table,
            policy,
            jnp.asarray(data.states),
            row_of.reshape(self.num_states, self.num_actions + 1),
            jnp.asarray(data.lengths),
            stay,
            self.stay_accuracy,
        )

    def observed_value(self, data: Trajectories) -> Array:
        """The actions as the value of :meth:`observation`: -1 where missing or beyond a length."""
        actions = jnp.asarray(data.actions)
        inside = jnp.arange(actions.shape[1]) < jnp.asarray(data.lengths)[:, None]
        return jnp.where(inside & jnp.asarray(data.observed), actions, -1)

    def __call__(self, data: Trajectories, *, condition: bool = True) -> None:
        """The numpyro model; ``condition=False`` keeps states, lengths and evidence and samples the actions.

        Sites: ``sticks`` (not where the weights are fixed), ``weights``, ``initial``, ``transition``, ``policy``,
        and ``actions``, one batch entry a trace.
        """
        if self.visited is None or is_concrete(data.states, data.actions, data.lengths):
            self.check(data)
        model = self.bind(data) if self.visited is None else self
        prior = model.prior()
        weights = prior["weights"].natural
        if self.beta_prior != "fixed":
            unit = jnp.ones(self.truncation, weights.dtype)
            sticks = numpyro.sample("sticks", dist.Beta(unit, self.gamma * unit).to_event(1))
            left = jnp.concatenate([unit[:1], jnp.cumprod(1 - sticks)])
            weights = jnp.concatenate([sticks * left[:-1], left[-1:]])
        weights = numpyro.deterministic("weights", weights)
        rows = jnp.broadcast_to(self.alpha * weights, prior["transition"].natural.concentration.shape)
        parameters = {
            "weights": weights,
            "initial": numpyro.sample("initial", dist.Dirichlet(self.alpha * weights)),
            "transition": numpyro.sample("transition", dist.Dirichlet(rows).to_event(2)),
            "policy": numpyro.sample(
                "policy", dist.Dirichlet(prior["policy"].natural.concentration).to_event(2)
            ),
        }
        distribution = model.observation(parameters, data)
        with numpyro.plate("sequence", distribution.batch_shape[0]):
            numpyro.sample("actions", distribution, obs=self.observed_value(data) if condition else None)

    def check(self, data: Trajectories) -> None:
        """Raise ValueError or TypeError unless the traces have states, actions and evidence in range."""
        trajectories.check(data)
        self._steps(data)

    def _steps(self, data: Trajectories) -> AgentSteps:
        return read_steps(data, self.num_states, self.num_actions, self.stay_accuracy is not None)

    def start_statistics(
        self, rng: np.random.Generator, kind: str, batches: list[ChainData]
    ) -> dict[str, Any]:
        """Counts of a first guess at the intents, as :func:`~ethogram.models.agent_starts.start_statistics`."""
        return start_statistics(self, rng, kind, batches)
