r"""Maximum-entropy inverse reinforcement learning: a reward of states, or linear in features, and its policy.

Over an infinite horizon, with the likelihood of :class:`~ethogram.models.mdps.SoftPolicy`,

.. math:: \max_w\; \ln p(D \mid r = X w) - \frac{\lambda}{2} \lVert w \rVert^2

and where the end of each trace is its horizon,

.. math:: \max_w\; \frac{1}{N} \sum_i \Big(\sum_{t < T_i} r(s_{i,t}) - V_{T_i}(s_{i,0})\Big)
          - \frac{\lambda}{2} \lVert w \rVert^2, \qquad N = \sum_i T_i

with the soft value V of horizon :math:`T_i`: for deterministic transitions the large bracket is
:math:`\ln p(a_{i,0}, \dots, a_{i,T_i - 1} \mid s_{i,0})`, and its gradient is the empirical state visitation minus that
expected under the policy from the same first states. Ziebart, Maas, Bagnell and Dey (2008), "Maximum entropy inverse
reinforcement learning", eq. 6; for stochastic transitions the same gradient is that of Ziebart, Bagnell and Dey (2010),
maximum causal entropy.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ethogram.models.arguments import (
    Reals,
    read_features,
    require_integer,
    require_number,
    require_one_of,
    warn_user,
)
from ethogram.models.data import trajectories
from ethogram.models.data.state_action_steps import read_steps
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.mdps.demonstrations import demonstration_counts, require_possible
from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.soft_curvature import likelihood_curvature
from ethogram.models.mdps.tabular import require_discounted
from ethogram.models.mdps.values import soft_values
from ethogram.models.printing import short_repr

__all__ = ["MaxEntropyFit", "fit_max_entropy"]

HORIZONS = ("infinite", "trace")
CONVERGED = 1e-6
"""Largest entry of the gradient at a maximum."""

POLISHING, NEWTON_AT_MOST = 20, 500
"""Newton steps at most after L-BFGS, and weights up to which their Hessian is computed."""


@short_repr
class MaxEntropyFit(NamedTuple):
    """Maximum-entropy estimate of a reward.

    Attributes
    ----------
    weights : w (feature,); the reward itself where there are no features.
    reward : X w, (state,) or (state, action).
    policy : (state, action), soft-optimal for it. With ``horizon="trace"`` the policy by step, averaged with the
        expected visits of the fitted agent from the first states of the traces; a plain average where it never is.
    log_likelihood : at the end, without the penalty: in nats over an infinite horizon, else the bracket above per step.
        With stochastic transitions the latter is the log likelihood of the actions plus
        :math:`V(s_{t+1}) - E V(s_{t+1})` of every step, of mean zero.
    trace : (evaluation,) log likelihoods during the search, the first at w = 0.
    residual : largest entry of the gradient at the end, penalty included, by weights of features that are centred and
        scaled to a largest entry of 1 (``horizon="trace"``: to at most 1).
    converged : whether the search ended at a maximum.
    """

    weights: Float[Array | np.ndarray, "feature"]
    reward: Float[Array | np.ndarray, "*point"]
    policy: Float[Array | np.ndarray, "state action"]
    log_likelihood: float
    trace: Float[Array | np.ndarray, "evaluation"]
    residual: float
    converged: bool


def fit_max_entropy(
    mdp: MDP,
    demonstrations: Any,
    features: Reals | None = None,
    *,
    horizon: str | None = None,
    penalty: float | int = 1e-3,
    num_steps: int | None = None,
    step_size: float | int | None = None,
) -> MaxEntropyFit:
    """Reward under which a maximum-entropy agent visits states, or features, as often as the demonstrations do.

    Over an infinite horizon by L-BFGS in double precision. With the traces' ends as horizons, by gradient ascent with a
    fixed step, in one compiled program; visits are shares of all steps, whatever the number and length of traces. The
    reward is determined up to a constant, which the penalty sets.

    Parameters
    ----------
    mdp : S states, A actions.
    demonstrations : `Trajectories` with states and actions, or, over an infinite horizon, counts (state, action). With
        ``horizon="trace"`` the fit depends on the states only: actions may be missing, but must be possible.
    features : X (state, feature), or over an infinite horizon (state, action, feature); None for one weight per state.
    horizon : ``"infinite"``, which needs a discount below 1, or ``"trace"``, the length of each trace, which needs a
        discount of 1. None chooses by the discount.
    penalty : lambda >= 0; above zero where features are collinear, such as several constant ones.
    num_steps : largest number of L-BFGS iterations, or number of steps of gradient ascent; 1000 where None.
    step_size : > 0, of gradient ascent (default 0.5), on features scaled to a largest entry of at most 1.

    Raises
    ------
    TypeError, ValueError
        If `mdp` is not an MDP or its discount does not fit the horizon; `demonstrations` are invalid, as for
        :func:`~ethogram.models.mdps.demonstration_counts`, or all traces are empty; features do not fit the MDP; or a
        setting is out of range.

    Warns
    -----
    UserWarning
        The search has not converged: it names the residual, and what to pass.

    Examples
    --------
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.9)
    >>> fit = fit_max_entropy(corridor, np.array([[0, 3], [1, 3], [1, 3]]), np.eye(3), penalty=0.1)
    >>> int(fit.reward.argmax())
    2
    >>> data = Trajectories.from_list(states=[[0, 1, 2, 2, 2]], actions=[[1, 1, 1, 1, 1]])
    >>> fit_max_entropy(MDP.deterministic([[0, 1], [0, 2], [1, 2]]), data, penalty=0.1).policy.argmax(1).tolist()
    [1, 1, 1]
    """
    if not isinstance(mdp, MDP):
        raise TypeError(f"mdp is {type(mdp).__name__}: give an MDP")
    if horizon is None:
        horizon = "trace" if float(mdp.discount) == 1 else "infinite"
    require_one_of("horizon", horizon, HORIZONS)
    require_number("penalty", penalty, least=0)
    if num_steps is not None:
        require_integer("num_steps", num_steps, 1)
    if step_size is not None:
        require_number("step_size", step_size, above=0)
    table = None if features is None else _read_features(mdp, features, horizon)
    if horizon == "infinite":
        if step_size is not None:
            raise ValueError('step_size is that of gradient ascent: leave it out, or pass horizon="trace"')
        num_steps = num_steps or 1000
        found = _fit_infinite(mdp, demonstrations, table, penalty, num_steps)
        _warn_unless_converged(found, f"num_steps={2 * num_steps} or a larger penalty")
        return found
    if float(mdp.discount) != 1:
        raise ValueError(
            f'mdp.discount is {mdp.discount}: horizon="trace" needs a discount of 1, as of MDP(mdp.transitions)'
        )
    visited, entering = _shares(mdp, demonstrations)
    step_size = 0.5 if step_size is None else step_size
    num_steps = num_steps or 1000
    scaled, scale = (None, np.ones(())) if table is None else _scaled(table)
    if table is not None:
        scaled, scale = scaled * np.minimum(scale, 1), np.maximum(scale, 1)
    fit = _ascend(mdp, visited, entering, scaled, step_size, penalty / scale**2, num_steps)
    if table is not None:
        weights = np.asarray(fit.weights, float) / scale
        fit = fit._replace(weights=weights, reward=table @ weights)
    residual = float(fit.residual)
    fit = fit._replace(
        log_likelihood=float(fit.trace[-1]), residual=residual, converged=residual <= CONVERGED
    )
    diverged = not np.isfinite(residual) or fit.log_likelihood < float(np.max(fit.trace)) - CONVERGED
    longer = f"num_steps={10 * num_steps}, or a larger step_size"
    _warn_unless_converged(fit, f"step_size={step_size / 4:g}" if diverged else longer)
    return fit


def _warn_unless_converged(fit: MaxEntropyFit, fix: str) -> None:
    """Warn, at the caller of `fit_max_entropy`, of a gradient that is not zero at the end."""
    if not fit.converged:
        warn_user(
            f"the search has not converged after {len(fit.trace) - 1} evaluations: the largest entry of the gradient "
            f"is {fit.residual:.2g}, above {CONVERGED:g}. Pass {fix}"
        )


def _read_features(mdp: MDP, features: Any, horizon: str) -> np.ndarray:
    """Checked features (state, feature) or (state, action, feature)."""
    table = np.asarray(read_features("features", features), float)
    shape = (mdp.num_states, mdp.num_actions)
    axes = (2, 3) if horizon == "infinite" else (2,)
    if table.ndim not in axes or table.shape[:-1] != shape[: table.ndim - 1]:
        pairs = f" or ({shape[0]}, {shape[1]}, feature)" if horizon == "infinite" else ""
        raise ValueError(f"features has shape {table.shape}: give ({shape[0]}, feature){pairs}")
    return table


def _scaled(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Features centred and scaled to a largest entry of 1, and their scales (feature,).

    Rewards are identified up to a constant, in which digits of features far from zero would be lost.
    """
    lead = tuple(range(features.ndim - 1))
    centred = features - features.mean(lead)
    scale = np.abs(centred).max(lead)
    scale = np.where(scale > 0, scale, 1)
    return centred / scale, scale


def _fit_infinite(
    mdp: MDP, demonstrations: Any, features: np.ndarray | None, penalty: float, num_steps: int
) -> MaxEntropyFit:
    from scipy.optimize import minimize

    require_discounted(mdp)
    counts = demonstration_counts(mdp, demonstrations)
    table = np.eye(mdp.num_states) if features is None else features
    scaled, scale = (table, np.ones(mdp.num_states)) if features is None else _scaled(table)
    penalties = penalty / scale**2
    with jax.enable_x64(True):
        task, trace = (mdp, scaled, counts), list[float]()

        def loss(weights):
            value, gradient = _objective(weights, *task)
            trace.append(float(value))
            cost = 0.5 * float(penalties @ np.square(weights))
            return cost - trace[-1], penalties * weights - np.asarray(gradient)

        options = {"maxiter": num_steps, "maxfun": 2 * num_steps, "ftol": 1e-12, "gtol": CONVERGED}
        found = minimize(loss, np.zeros(table.shape[-1]), jac=True, method="L-BFGS-B", options=options)
        weights, slope = found.x, found.jac
        # Near the maximum the likelihood has too few digits for a line search; the gradient has enough for Newton's.
        # A failed line search is no success, and one of few digits.
        left = POLISHING if found.nit < num_steps and len(weights) <= NEWTON_AT_MOST else 0
        basis = jnp.asarray(scaled.reshape(-1, len(weights)))
        while np.abs(slope).max() > CONVERGED and left:
            found = likelihood_curvature(mdp, scaled @ weights, counts, basis=basis, pairs=table.ndim == 3)
            curvature = np.diag(penalties) - np.asarray(found.hessian)
            new = weights - np.linalg.lstsq(curvature, slope, rcond=None)[0]
            ahead = loss(new)[1]
            if not np.abs(ahead).max() < np.abs(slope).max():
                break
            weights, slope, left = new, ahead, left - 1
        residual = float(np.abs(slope).max())
        policy = np.asarray(soft_values(mdp, scaled @ weights, pairs=table.ndim == 3).policy)
        likelihood = float(_objective(weights, *task)[0])
        weights = weights / scale
    return MaxEntropyFit(
        weights, table @ weights, policy, likelihood, np.array(trace), residual, residual <= CONVERGED
    )


@jax.jit
def _objective(weights: Array, mdp: MDP, features: Array, counts: Array) -> tuple[Array, Array]:
    def log_likelihood(weights):
        log_policy = soft_values(mdp, features @ weights, pairs=features.ndim == 3).log_policy
        return jnp.sum(jnp.where(counts > 0, counts * jnp.where(counts > 0, log_policy, 0), 0))

    return jax.value_and_grad(log_likelihood)(weights)


def _shares(mdp: MDP, data: Any) -> tuple[np.ndarray, np.ndarray]:
    """Share of steps in each state (state,), and first states (time, state), divided by the number of steps too.

    Traces are aligned at their ends: values depend on the steps to go only, so that one backward pass serves every
    length.
    """
    if not isinstance(data, Trajectories):
        raise TypeError(f'demonstrations is {type(data).__name__}: horizon="trace" needs Trajectories')
    trajectories.check(data)
    if data.actions is None and data.states is not None:
        data = data._replace(actions=np.full(np.shape(data.states), -1))
    mdp.require_names_of(data)
    steps = read_steps(data, mdp.num_states, mdp.num_actions)
    total = int(steps.inside.sum())
    if not total:
        raise ValueError("data.lengths is 0 for every trace: give a trace with at least one step")
    require_possible(mdp, steps)
    visited = np.bincount(steps.state[steps.inside], minlength=mdp.num_states)
    lengths = steps.inside.sum(1)
    some, horizon = lengths > 0, int(lengths.max())
    entering = np.zeros((horizon, mdp.num_states))
    np.add.at(entering, (horizon - lengths[some], steps.state[some, 0]), 1)
    return visited / total, entering / total


@functools.partial(jax.jit, static_argnames="num_steps")
def _ascend(mdp, visited, entering, features, step_size, penalty, num_steps):
    horizon = entering.shape[0]

    def reward_of(weights):
        return weights if features is None else features @ weights

    def by_step(weights):
        return soft_values(mdp, reward_of(weights), pairs=False, horizon=horizon, all_steps=True)

    def log_likelihood(weights):
        return jnp.sum(visited * reward_of(weights)) - jnp.sum(entering * by_step(weights).values)

    def evaluate(weights):
        likelihood, gradient = jax.value_and_grad(log_likelihood)(weights)
        return likelihood, gradient - penalty * weights

    def step(weights, _):
        likelihood, gradient = evaluate(weights)
        return weights + step_size * gradient, likelihood

    start = jnp.zeros_like(visited) if features is None else jnp.zeros(features.shape[1], visited.dtype)
    weights, climbed = lax.scan(step, start, None, length=num_steps)
    likelihood, gradient = evaluate(weights)
    policy = _average_policy(mdp, by_step(weights).log_policy, entering)
    trace, residual = jnp.append(climbed, likelihood), jnp.abs(gradient).max()
    return MaxEntropyFit(weights, reward_of(weights), policy, likelihood, trace, residual, False)


def _average_policy(mdp: MDP, log_policy: Array, entering: Array) -> Array:
    """Policy (state, action), averaged over time with the expected visits as weights."""

    def step(arriving, now):
        policy, entering = jnp.exp(now[0]), now[1]
        joint = (arriving + entering)[:, None] * policy
        return mdp.push(joint), joint

    _, joint = lax.scan(step, jnp.zeros_like(entering[0]), (log_policy, entering))
    weight, reached = jnp.sum(joint, 0), jnp.sum(joint, (0, 2)) > 0
    total = jnp.where(reached, jnp.sum(weight, 1), 1)[:, None]
    return jnp.where(reached[:, None], weight / total, jnp.mean(jnp.exp(log_policy), 0))
