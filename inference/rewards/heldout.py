"""Held-out log predictive densities of actions: of rewards, and of simpler models beside them.

A reward explains behaviour as far as it predicts actions that it was not fitted to; tables of action frequencies show
how much is predictable without a reward, and whether the state alone predicts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jax import Array

from ethogram.inference.checkpoint import one_of_several
from ethogram.inference.conjugate.score_curve import PeerScore, ScoreCurve, standard_errors
from ethogram.inference.rewards.fit_reward import fit_reward
from ethogram.inference.rewards.max_entropy import MaxEntropyFit, fit_max_entropy
from ethogram.inference.rewards.reward_posterior import RewardFit, RewardPosterior
from ethogram.inference.rewards.switching_fit import fit_switching
from ethogram.inference.rewards.switching_predictions import predictive_agent
from ethogram.models.arguments import Reals, read_array, require_distributions, require_integer, require_key
from ethogram.models.data.action_tables import ActionTable
from ethogram.models.data.state_action_steps import log_prob_of_actions
from ethogram.models.data.trajectories import Trajectories, check
from ethogram.models.mdps.mdp import MDP
from ethogram.models.printing import short_repr
from ethogram.models.rewards.switching import SwitchingGPIRL

__all__ = ["PolicyScore", "heldout_policy_scores", "heldout_reward_curve", "reward_peers"]


@runtime_checkable
class ScoresTrajectories(Protocol):
    """A model of actions of its own: a table of frequencies, or an agent with memory."""

    def log_prob(self, data: Trajectories) -> Any:
        """Log probability (sequence,) of the known actions, in nats."""


@short_repr
class PolicyScore(NamedTuple):
    """Held-out score of a policy, or of another model of actions.

    Standard errors are 0 where there is one trajectory, or an action is impossible under the model.

    Attributes
    ----------
    log_density : log predictive density of the actions of the test data, in nats per decision.
    se : its standard error over trajectories.
    difference : `log_density` minus the largest of all models, <= 0.
    difference_se : standard error of `difference`, paired over trajectories.
    """

    log_density: float
    se: float
    difference: float
    difference_se: float


def reward_peers(
    mdp: MDP,
    train: Trajectories,
    features: Reals | None = None,
    *,
    order: int = 2,
    penalty: float | int = 1e-3,
) -> dict[str, Any]:
    """Simple models of the same demonstrations: tables of action frequencies, and maximum entropy IRL.

    Parameters
    ----------
    mdp : S states, A actions, a discount below 1.
    train : `Trajectories` with states and actions; subjects are pooled.
    features : (state, feature) or (state, action, feature) of a reward that is linear in them; default: those of `mdp`,
        where it has some. One-hot features of states are a peer in any case.
    order : largest number of earlier actions in a table.
    penalty : of `fit_max_entropy`.

    Returns
    -------
    Fitted :class:`~ethogram.models.data.ActionFrequencies` and `MaxEntropyFit` by name, as `heldout_policy_scores`
    takes them.
    """
    require_integer("order", order, 0)
    features = mdp.features if features is None and isinstance(mdp, MDP) else features
    peers: dict[str, Any] = {"maximum entropy, one-hot": fit_max_entropy(mdp, train, penalty=penalty)}
    if features is not None:
        peers["maximum entropy, features"] = fit_max_entropy(mdp, train, features, penalty=penalty)
    for steps in range(order + 1):
        name = ("p(a | s)", "p(a | s, previous a)", f"p(a | s, previous {steps} a)")[min(steps, 2)]
        peers[name] = ActionTable(mdp.num_states, mdp.num_actions, steps).fit(train)
    return peers


def heldout_policy_scores(
    key: Array, models: Mapping[str, Any], test: Any, *, num_draws: int = 200
) -> dict[str, PolicyScore]:
    """Log predictive density of held-out actions per decision, of rewards and their peers on the same trajectories.

    Of a posterior of rewards it is that of the mean policy, in every decision by itself; of switching rewards, that of
    their mean policies and mean chain, given the earlier actions of the trajectory. A missing action is no decision.

    Parameters
    ----------
    key : typed PRNG key, of the draws of posteriors.
    models : by name, each a `RewardFit` or `RewardPosterior`, a `MaxEntropyFit`, a policy (state, action) such as those
        of `policies`, or an object whose ``log_prob(test)`` is (sequence,) in nats, as those of `reward_peers`, of
        `predictive_agent` and of ``History.agent``.
    test : `Trajectories` with states and actions that no model was fitted to.
    num_draws : number of draws of each posterior.

    Examples
    --------
    >>> import jax
    >>> test = Trajectories.from_list(states=[[0, 0], [0, 0]], actions=[[0, 1], [1, 1]])
    >>> found = heldout_policy_scores(jax.random.key(0), {"fair": [[0.5, 0.5]], "biased": [[0.25, 0.75]]}, test)
    >>> {name: round(score.difference, 3) for name, score in found.items()}
    {'fair': -0.131, 'biased': 0.0}
    """
    require_key(key)
    if not isinstance(models, Mapping) or not models:
        raise TypeError(
            f"models is {type(models).__name__}: give at least one by name, such as {{'GP-IRL': fit}}"
        )
    decisions = known_decisions(test)
    table = np.stack([_log_prob(key, name, model, test, num_draws) for name, model in models.items()])
    mean = table.sum(1) / decisions.sum()
    best = int(mean.argmax())
    with np.errstate(invalid="ignore"):  # impossible actions have scores of -inf
        gaps = np.where(mean == mean[best], 0, mean - mean[best])
        paired = standard_errors(table - table[best], decisions)
    alone = standard_errors(table, decisions)
    columns = zip(models, mean, alone, gaps, paired, strict=True)
    return {name: PolicyScore(*map(float, row)) for name, *row in columns}


def heldout_reward_curve(
    key: Array,
    make_model: Callable[[int], Any],
    sizes: Iterable[int],
    data: Any,
    *,
    by: str = "sequence",
    test_fraction: float = 0.25,
    peers: bool = True,
    score_draws: int = 200,
    **options: Any,
) -> ScoreCurve:
    """ELBO and held-out log predictive density over numbers of intents, and the scores of simpler models beside it.

    Scores are those of `heldout_policy_scores`, per known action; the split is that of
    :func:`~ethogram.heldout_score_curve` with the same key.

    Parameters
    ----------
    key : typed PRNG key.
    make_model : function from a number of intents to a model, such as ``lambda k: SwitchingGPIRL(base, k)``; it may
        give a `GPIRL` for one.
    sizes : numbers of intents.
    data : `Trajectories` with states and actions.
    by, test_fraction : of the split of `data`, the same for all sizes; see `Trajectories.split`.
    peers : whether to fit and score the peers of `reward_peers` too.
    score_draws : number of draws of each posterior for its score.
    options : of `fit_switching`, and of `fit_reward` where a model is a `GPIRL`.

    Returns
    -------
    A :class:`~ethogram.inference.conjugate.ScoreCurve`, whose fits are `RewardFit`.
    """
    require_key(key)
    options = {"hyper": "point"} | options  # of one intent too: other treatments have bounds of another kind
    if not callable(make_model):
        raise TypeError(
            f"make_model is {type(make_model).__name__}: give a function from a number of intents to a model"
        )
    sizes = _numbers_of_intents(sizes)
    if not isinstance(data, Trajectories):
        raise TypeError(f"data is {type(data).__name__}: give Trajectories with states and actions")
    key_split, key_fits = jax.random.split(key)
    train, test = data.split(key_split, by=by, test_fraction=test_fraction)
    decisions, made = known_decisions(test), [make_model(int(size)) for size in sizes]
    fits = tuple(
        (fit_switching if isinstance(model, SwitchingGPIRL) else fit_reward)(
            key_fits, model, train, **one_of_several(options, size)
        )
        for size, model in zip(sizes, made, strict=True)
    )
    models = {f"{size} intents": fit for size, fit in zip(sizes, fits, strict=True)}
    base = getattr(made[0], "base", made[0])
    beside = reward_peers(base.mdp, train, base.features) if peers else {}
    table = np.stack(
        [_log_prob(key_fits, name, model, test, score_draws) for name, model in (models | beside).items()]
    )
    heldout = table.sum(1) / decisions.sum()
    best = int(heldout[: len(sizes)].argmax())
    error = standard_errors(table - table[best], decisions)
    scores = zip(beside, heldout[len(sizes) :], error[len(sizes) :], strict=True)
    return ScoreCurve(
        sizes,
        np.array([fit.elbo for fit in fits]),
        heldout[: len(sizes)],
        fits,
        error[: len(sizes)],
        int(known_decisions(train).sum()),
        {name: PeerScore(float(score), float(one)) for name, score, one in scores},
    )


def _numbers_of_intents(sizes: Any) -> np.ndarray:
    if not isinstance(sizes, Iterable) or isinstance(sizes, str):
        raise TypeError(f"sizes is {sizes!r}: give numbers of intents, such as [1, 2, 3]")
    found = [require_integer(f"sizes[{place}]", size, 1) for place, size in enumerate(sizes)]
    if not found:
        raise ValueError("sizes is empty: give at least one")
    return np.array(found)


def known_decisions(test: Any) -> np.ndarray:
    """Number of known actions (sequence,) of checked test data, of which there must be one."""
    if not isinstance(test, Trajectories):
        raise TypeError(f"test is {type(test).__name__}: give Trajectories with states and actions")
    check(test)
    actions = np.asarray(test.actions)
    inside = np.arange(actions.shape[1]) < np.asarray(test.lengths)[:, None]
    decisions = (inside & np.asarray(test.observed) & (actions >= 0)).sum(1)
    if not decisions.sum():
        raise ValueError("test has no known action: give at least one of 0 or more")
    return decisions


def _log_prob(key: Array, name: str, model: Any, test: Trajectories, num_draws: int) -> Any:
    """Log probability (sequence,) of the known actions."""
    if isinstance(getattr(posterior_of(model), "model", None), SwitchingGPIRL):
        return predictive_agent(key, model, num_draws).log_prob(test)
    if isinstance(model, ScoresTrajectories):
        return model.log_prob(test)
    return log_prob_of_actions(policy_of(key, name, model, num_draws), test)


def posterior_of(model: Any) -> Any:
    """The posterior of a fit; anything else as it is."""
    return model.posterior if isinstance(model, RewardFit) else model


def policy_of(key: Array, name: str, model: Any, num_draws: int) -> np.ndarray:
    """Predictive policy (state, action) of a fit, or a checked table."""
    if isinstance(posterior_of(model), RewardPosterior):
        policy = np.asarray(posterior_of(model).sample(key, num_draws)["policy"]).mean(0)
        if policy.ndim != 2:
            raise ValueError(f"models[{name!r}] has {len(policy)} experts: give the policy of one")
        return policy
    table = model.policy if isinstance(model, MaxEntropyFit) else model
    policy = read_array(f"models[{name!r}]", table)
    if policy.ndim != 2 or policy.dtype.kind != "f":
        raise ValueError(
            f"models[{name!r}] is {policy.dtype} {policy.shape}: give a fit, a policy (state, action), or an object "
            "with log_prob"
        )
    require_distributions(f"models[{name!r}]", policy)
    return policy
