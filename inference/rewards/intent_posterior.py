"""Posterior of the rewards of several intents and of their chain, the result of its fit, and the intents of data."""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from ethogram.inference import storage
from ethogram.inference.draws import Draws, one_chain, variational_attributes
from ethogram.inference.rewards.reward_posterior import RewardPosterior
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.arguments import is_concrete, require_integer, require_key
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.families.conjugate_block import require_finite
from ethogram.models.families.exponential_family import Dirichlet
from ethogram.models.mdps.demonstrations import demonstration_value
from ethogram.models.model_object import model_object
from ethogram.models.printing import short_repr
from ethogram.models.rewards.gp_irl import GPIRL
from ethogram.models.rewards.intent_chain import IntentChain, SwitchingPolicies

__all__ = [
    "IntentFit",
    "IntentPosterior",
    "PredictiveAgent",
    "RewardIntents",
    "infer_reward_intents",
    "predictive_agent",
]


@model_object
class IntentPosterior:
    """Posterior of the rewards of several intents and of the chain between them, with their model.

    Parameters
    ----------
    rewards : that of the rewards, with intents in place of experts.
    chain : Dirichlet blocks ``initial (intent,)`` and ``transition (intent, next_intent)``.
    """

    rewards: RewardPosterior
    chain: dict[str, Dirichlet]

    def __post_init__(self):
        if not isinstance(self.rewards, RewardPosterior):
            raise TypeError(f"rewards is {type(self.rewards).__name__}: give a RewardPosterior")
        if set(self.chain) != {"initial", "transition"}:
            raise ValueError(f"chain has {sorted(self.chain)}: give the blocks initial and transition")
        if not is_concrete(*jax.tree.leaves((self.rewards.latent_mean, self.chain))):
            return
        count = np.shape(self.rewards.latent_mean)[1]
        for name, shape in {"initial": (count,), "transition": (count, count)}.items():
            require_finite(f"chain[{name!r}]", self.chain[name])
            found = np.shape(self.chain[name].natural.concentration)
            if found != shape:
                raise ValueError(f"chain[{name!r}] has shape {found}, expected {shape} of {count} intents")

    @property
    def model(self) -> GPIRL:
        """The model that was fitted."""
        return self.rewards.model

    @property
    def method(self) -> str:
        """That of the fit."""
        return self.rewards.method

    def of_model(self, model: GPIRL) -> IntentPosterior:
        """The same posterior with the model in another precision."""
        return dataclasses.replace(self, rewards=self.rewards.of_model(model))

    def sample(self, key: Array, num_draws: int) -> dict[str, Array]:
        """Independent draws of the sites of the model, with a leading axis ``draw``."""
        require_key(key)
        require_integer("num_draws", num_draws, 1)
        key_rewards, *keys = jax.random.split(key, 3)
        sites = self.rewards.sample(key_rewards, num_draws)
        with jax.enable_x64(True):
            rows = [block.natural.concentration for _, block in sorted(self.chain.items())]
            drawn = _drawn(rows, keys, num_draws, str(self.model.dtype))
        return sites | dict(zip(sorted(self.chain), drawn, strict=True))

    def mean(self) -> dict[str, Array]:
        """Sites of the model at the means of w, of the logarithms of the hyper-parameters, and of the chain."""
        dtype = self.model.dtype
        chain = self.mean_chain()._asdict()
        return self.rewards.mean() | {name: jnp.asarray(x, dtype) for name, x in chain.items()}

    def mean_chain(self) -> IntentChain:
        """Posterior means of the probabilities of the first and of the next intent, in double precision."""
        rows = (np.asarray(self.chain[name].natural.concentration) for name in ("initial", "transition"))
        return IntentChain(*(x / x.sum(-1, keepdims=True) for x in rows))

    def draws_for_export(self, key: Array, num_draws: int) -> Draws:
        """Independent draws from q in one chain."""
        attributes = variational_attributes() | {"method": "natural_gradient"}
        return Draws(self.model, one_chain(self.sample(key, num_draws)), {}, {}, attributes)

    def save(self, path: str | os.PathLike) -> None:
        """Write the posterior and its model to one file, atomically; ``ethogram.load_posterior`` reads it."""
        storage.write(path, {"posterior": self})


@short_repr
class IntentFit(NamedTuple):
    """Result of `fit_reward` for a model of several intents.

    Attributes
    ----------
    posterior : of rewards and chain; `sample` draws from it.
    elbo, elbo_se : evidence lower bound in nats, on fresh draws, and its standard error. With ``hyper="point"`` it has
        the log prior density of the hyper-parameters in place of their divergence.
    trace : (evaluation,) ELBOs of the best start on a fixed set of draws.
    restart_elbos : (restart,) the last of every start on the same draws; all but the best were left after some rounds.
    converged : whether the expected remaining gain of the ELBO is within the tolerance, see `fit_reward`; of the best
        start.
    steps : rounds of the best start.
    white_share : share of the prior variance of rewards that is white noise, independent between states.
    reason : why the search is not converged; empty where it is.
    search_se : standard error of the last ELBO of the search, in nats.
    """

    posterior: IntentPosterior
    elbo: float
    elbo_se: float
    trace: Float[np.ndarray, "evaluation"]
    restart_elbos: Float[np.ndarray, "restart"]
    converged: bool
    steps: int
    white_share: float
    reason: str = ""
    search_se: float = float("nan")

    def draws_for_export(self, key: Array, num_draws: int) -> Draws:
        """Independent draws from q in one chain, with the ELBO trace."""
        attributes: dict[str, Any] = {
            "converged": int(self.converged), "num_steps": int(self.steps), "reason": self.reason,
            "final_elbo": float(self.elbo), "final_elbo_se": float(self.elbo_se),
            "white_share": float(self.white_share),
        }  # fmt: skip
        drawn = self.posterior.draws_for_export(key, num_draws)
        return drawn._replace(
            fit={
                "elbo": (("step",), np.asarray(self.trace)),
                "restart_elbos": (("restart",), np.asarray(self.restart_elbos)),
            },
            attributes=drawn.attributes | attributes,
        )


@short_repr
class RewardIntents(NamedTuple):
    """Posterior of the intents of demonstrations.

    Attributes
    ----------
    probability : posterior probability of each intent given the whole demonstration, zero beyond a length.
    filtered : the same given the actions up to each step.
    path : most likely path of intents, -1 beyond a length.
    log_increment : log predictive density of each action given those before it, in nats; zero where it is missing.
    """

    probability: Float[np.ndarray, "sequence time intent"]
    filtered: Float[np.ndarray, "sequence time intent"]
    path: Int[np.ndarray, "sequence time"]
    log_increment: Float[np.ndarray, "sequence time"]


@short_repr
class PredictiveAgent(NamedTuple):
    """An agent with posterior mean policies and a posterior mean chain: one normalised model, for predictions.

    Attributes
    ----------
    model : the model of the fit.
    policy : posterior mean of the policy of each intent.
    chain : posterior means of the probabilities of the first and of the next intent.
    """

    model: GPIRL
    policy: Float[np.ndarray, "intent state action"]
    chain: IntentChain

    def observation(self, data: Trajectories) -> SwitchingPolicies:
        """Distribution of the actions of data, once these fit the model."""
        self.model.check(data)
        states, lengths = np.asarray(data.states), np.asarray(data.lengths)
        with np.errstate(divide="ignore"):
            log_policy = np.log(self.policy)
        parts = {"length": states.shape[1], "lengths": lengths, "start": states[:, 0]}
        return SwitchingPolicies(self.model.mdp, log_policy, self.chain, **parts)

    def log_prob(self, data: Trajectories) -> np.ndarray:
        """Log predictive density (sequence,) of the known actions, each given those before it, in nats."""
        return np.asarray(_log_prob(self.observation(data), demonstration_value(data)), float)

    def next_actions(self, data: Trajectories) -> np.ndarray:
        """Probability (sequence, time, action) of every action given those before it."""
        predicted = np.asarray(_predicted(self.observation(data), demonstration_value(data)))
        states = np.maximum(np.asarray(data.states), 0)
        return np.einsum("nti,inta->nta", predicted, self.policy[:, states])


def predictive_agent(key: Array, fit: Any, num_draws: int = 200) -> PredictiveAgent:
    """The agent of posterior means: of the policies, of the first intent, and of the next one.

    Parameters
    ----------
    key : typed PRNG key.
    fit : an `IntentFit` or `IntentPosterior`; or a `SampledPosterior`, all of whose draws are averaged: their labels
        have to agree, as those of ``ethogram.fit(key, model, data, "nuts").result`` do.
    num_draws : number of draws of the rewards, whose policies are averaged.

    Raises
    ------
    TypeError, ValueError
        `fit` is none of these, or of a model without intents; `num_draws` is below 1.
    """
    require_key(key)
    require_integer("num_draws", num_draws, 1)
    posterior = fit.posterior if isinstance(fit, IntentFit) else fit
    if isinstance(posterior, SampledPosterior):
        return _sampled_agent(posterior)
    if not isinstance(posterior, IntentPosterior):
        raise TypeError(
            f"fit is {type(fit).__name__}: give an IntentFit, an IntentPosterior or a SampledPosterior, such as the "
            "result of ethogram.fit for a GPIRL with num_intents > 1"
        )
    policy = np.asarray(posterior.rewards.sample(key, num_draws)["policy"], float).mean(0)
    policy = policy if policy.ndim == 3 else policy[None]
    return PredictiveAgent(posterior.model, policy / policy.sum(-1, keepdims=True), posterior.mean_chain())


def _sampled_agent(sampled: SampledPosterior) -> PredictiveAgent:
    """The agent of the means of all draws."""
    model = sampled.model
    if not isinstance(model, GPIRL) or not model.switches:
        raise TypeError(
            "fit is a SampledPosterior of a model without intents: give one of a GPIRL with num_intents > 1"
        )
    means = [
        np.asarray(sampled.sites[name], float).mean((0, 1)) for name in ("policy", "initial", "transition")
    ]
    policy, initial, transition = (x / x.sum(-1, keepdims=True) for x in means)
    return PredictiveAgent(model, policy, IntentChain(initial, transition))


def infer_reward_intents(key: Array, fit: Any, data: Trajectories, *, num_draws: int = 200) -> RewardIntents:
    """Posterior probabilities of the intents of demonstrations, under posterior mean policies and chain.

    Parameters
    ----------
    key : typed PRNG key, of the draws of the policies.
    fit : result of `fit_reward` for a model with several intents, its posterior, or draws, as for `predictive_agent`.
    data : `Trajectories` in the same environment, those of the fit or others.
    num_draws : number of draws of the rewards, whose policies are averaged.

    Raises
    ------
    TypeError, ValueError
        `fit` is of a model without intents, or the model refuses the data.
    """
    agent = predictive_agent(key, fit, num_draws)
    found = _intents(agent.observation(data), demonstration_value(data))
    smoothed, filtered, path, increment = (np.asarray(x) for x in found)
    inside = np.arange(path.shape[1]) < np.asarray(data.lengths)[:, None]
    return RewardIntents(
        np.where(inside[..., None], smoothed, 0), np.where(inside[..., None], filtered, 0), path, increment
    )


@functools.partial(jax.jit, static_argnums=(2, 3))
def _drawn(rows: list[Array], keys: list[Array], num_draws: int, dtype: str) -> list[Array]:
    """Draws of each table of Dirichlet rows, in double precision until they are there."""
    blocks = map(Dirichlet.from_standard, rows)
    return [x.sample(key, (num_draws,)).astype(dtype) for x, key in zip(blocks, keys, strict=True)]


@jax.jit
def _log_prob(acts: SwitchingPolicies, value: Array) -> Array:
    return acts.log_prob(value)


@jax.jit
def _predicted(acts: SwitchingPolicies, value: Array) -> Array:
    return acts.filter(value).predicted


@jax.jit
def _intents(acts: SwitchingPolicies, value: Array) -> tuple[Array, ...]:
    filtered = acts.filter(value)
    return acts.smooth(value).state, filtered.state, acts.most_likely_path(value).path, filtered.log_increment
