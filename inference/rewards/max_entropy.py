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
from ethogram.models.quick_jit import quick_jit

__all__ = ["MaxEntropyFit", "fit_max_entropy"]

HORIZONS = ("infinite", "trace")
GRADIENT_TOL, AIM = 1e-6, 1e-8
"""Largest entry of the gradient at a maximum, and the one at which L-BFGS stops."""

NEWTON_STEPS, NEWTON_AT_MOST = 20, 500
"""Newton steps at most after L-BFGS, and weights up to which their Hessian is computed."""

EVALUATIONS = 100
"""Evaluations of the objective in a typical fit, by which `quick_jit` chooses how to compile them."""


@short_repr
class MaxEntropyFit(NamedTuple):
    """Maximum-entropy estimate of a reward.

    Attributes
    ----------
    weights : w (feature,).
    reward : X w less its mean, (state,) or (state, action), so that single precision keeps its digits where features
        are far from zero; the weights where there are no features.
    policy : (state, action), soft-optimal for it. With ``horizon="trace"`` the policy by step, averaged with the
        expected visits of the fitted agent from the first states of the traces; a plain average where it never is.
    log_likelihood : at the end, without the penalty: in nats over an infinite horizon, else the bracket above per step.
        With stochastic transitions the latter is the log likelihood of the actions plus
        :math:`V(s_{t+1}) - E V(s_{t+1})` of every step, of mean zero.
    trace : (evaluation,) log likelihoods during the search, the first at w = 0.
    residual : largest entry of the gradient of the objective at the end, penalty included, by weights of features that
        are centred and scaled to a largest entry of 1.
    converged : whether `residual` is at most 1e-6.
    """

    weights: Float[np.ndarray, "feature"]
    reward: Float[np.ndarray, "*point"]
    policy: Float[np.ndarray, "state action"]
    log_likelihood: float
    trace: Float[np.ndarray, "evaluation"]
    residual: float
    converged: bool


def fit_max_entropy(
    mdp: MDP,
    demonstrations: Any,
    features: Reals | None = None,
    *,
    horizon: str | None = None,
    penalty: float | int = 1e-3,
    num_steps: int = 1000,
) -> MaxEntropyFit:
    """Reward under which a maximum-entropy agent visits states, or features, as often as the demonstrations do.

    By L-BFGS in double precision. With the traces' ends as horizons, visits are shares of all steps, whatever the
    number and length of traces. The reward is determined up to a constant, which the penalty sets.

    Parameters
    ----------
    mdp : S states, A actions.
    demonstrations : `Trajectories` with states and actions, or, over an infinite horizon, counts (state, action). With
        ``horizon="trace"`` the fit depends on the states only: actions may be missing, but must be possible.
    features : X (state, feature), or over an infinite horizon (state, action, feature); None for one weight per state.
    horizon : ``"infinite"``, which needs a discount below 1, or ``"trace"``, the length of each trace, which needs a
        discount of 1. None chooses by the discount.
    penalty : lambda >= 0; above zero where features are collinear, such as several constant ones.
    num_steps : largest number of iterations.

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
    require_integer("num_steps", num_steps, 1)
    table = None if features is None else _read_features(mdp, features, horizon)
    if horizon == "infinite":
        require_discounted(mdp)
        data: Any = (demonstration_counts(mdp, demonstrations),)
    elif float(mdp.discount) != 1:
        raise ValueError(
            f'mdp.discount is {mdp.discount}: horizon="trace" needs a discount of 1, as of MDP(mdp.transitions)'
        )
    else:
        data = _shares(mdp, demonstrations)
    scaled, scale = (None, np.ones(mdp.num_states)) if table is None else _scaled(table)
    with jax.enable_x64(True):
        found = _fitted(mdp, data, scaled, penalty / scale**2, num_steps)
    reward = found.weights if scaled is None else scaled @ found.weights
    found = found._replace(weights=found.weights / scale, reward=reward)
    if not found.converged:
        warn_user(
            f"the search has not converged after {len(found.trace) - 1} evaluations: the largest entry of the gradient "
            f"is {found.residual:.2g}, above {GRADIENT_TOL:g}. Pass num_steps={2 * num_steps} or a larger penalty"
        )
    return found


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


def _fitted(
    mdp: MDP, data: tuple[Any, ...], features: np.ndarray | None, penalties: np.ndarray, num_steps: int
) -> MaxEntropyFit:
    """Estimate by weights of scaled features; `data` are counts, or what `_shares` gives."""
    from scipy.optimize import minimize

    infinite, trace = len(data) == 1, list[float]()
    program = _discounted if infinite else _by_trace

    def loss(weights):
        value, gradient, _ = program(weights, mdp, features, *data)
        trace.append(float(value))
        return 0.5 * float(penalties @ weights**2) - trace[-1], penalties * weights - np.asarray(gradient)

    # The likelihood of many decisions has too few digits for a line search near the maximum; its gradient has enough.
    takes_newton = infinite and len(penalties) <= NEWTON_AT_MOST
    options = {"maxiter": num_steps, "maxfun": 2 * num_steps, "maxcor": 20, "gtol": AIM}
    options["ftol"] = 1e-12 if takes_newton else 0.0
    found = minimize(loss, np.zeros(len(penalties)), jac=True, method="L-BFGS-B", options=options)
    weights, gradient = found.x, found.jac
    left = NEWTON_STEPS if takes_newton and found.nit < num_steps else 0
    while left and np.abs(gradient).max() > GRADIENT_TOL:
        curvature = np.diag(penalties) - _hessian(weights, mdp, features, *data)
        new = weights - np.linalg.lstsq(curvature, gradient, rcond=None)[0]
        new_gradient = loss(new)[1]
        if not np.abs(new_gradient).max() < np.abs(gradient).max():
            break
        weights, gradient, left = new, new_gradient, left - 1
    likelihood, _, policy = program(weights, mdp, features, *data)
    residual = float(np.abs(gradient).max())
    return MaxEntropyFit(
        weights,
        weights,
        np.asarray(policy),
        float(likelihood),
        np.array(trace),
        residual,
        residual <= GRADIENT_TOL,
    )


def _reward(weights: Any, features: Any) -> Any:
    return weights if features is None else features @ weights


@quick_jit(calls=EVALUATIONS)
def _discounted(
    weights: Array, mdp: MDP, features: Array | None, counts: Array
) -> tuple[Array, Array, Array]:
    """Log likelihood of counts (state, action) over an infinite horizon, its gradient, and the policy."""

    def log_likelihood(weights):
        reward = _reward(weights, features)
        solution = soft_values(mdp, reward, pairs=reward.ndim == 2)
        log_policy = jnp.where(counts > 0, solution.log_policy, 0)
        return jnp.sum(jnp.where(counts > 0, counts * log_policy, 0)), solution.policy

    (value, policy), gradient = jax.value_and_grad(log_likelihood, has_aux=True)(weights)
    return value, gradient, policy


def _hessian(weights: np.ndarray, mdp: MDP, features: np.ndarray | None, counts: Array) -> np.ndarray:
    """Hessian (feature, feature) of the log likelihood of counts."""
    reward, basis = _reward(weights, features), None
    if features is not None:
        basis = features.reshape(-1, len(weights))
    return np.asarray(likelihood_curvature(mdp, reward, counts, basis=basis, pairs=reward.ndim == 2).hessian)


def _shares(mdp: MDP, data: Any) -> tuple[np.ndarray, np.ndarray, int]:
    """Share of steps in each state (state,), first states (time, state) over the number of steps, longest length.

    Traces are aligned at their ends: values depend on the steps to go only, so that one backward pass serves every
    length. Its own length is a power of two, which few programs serve.
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
    some, longest = lengths > 0, int(lengths.max())
    entering = np.zeros((1 << (longest - 1).bit_length(), mdp.num_states))
    np.add.at(entering, (len(entering) - lengths[some], steps.state[some, 0]), 1)
    return visited / total, entering / total, longest


@quick_jit(calls=EVALUATIONS)
def _by_trace(
    weights: Array, mdp: MDP, features: Array | None, visited: Array, entering: Array, longest: Array
) -> tuple[Array, Array, Array]:
    """The bracket over the number of steps, its gradient, and the policy averaged over the expected visits."""
    reward, horizon = _reward(weights, features), len(entering)
    solution = soft_values(mdp, reward, pairs=False, horizon=horizon, all_steps=True)

    def step(arriving, now):
        policy, entering = now
        joint = (arriving + entering)[:, None] * policy
        return mdp.push(joint), joint

    _, joint = lax.scan(step, jnp.zeros_like(entering[0]), (solution.policy, entering))
    joint = jnp.sum(joint, 0)
    visits = jnp.sum(joint, 1)
    excess = visited - visits
    used = jnp.arange(horizon) >= horizon - longest
    plain = jnp.sum(solution.policy, 0, where=used[:, None, None]) / longest
    policy = jnp.where((visits > 0)[:, None], joint / jnp.where(visits > 0, visits, 1)[:, None], plain)
    return (
        jnp.sum(visited * reward) - jnp.sum(entering * solution.values),
        excess if features is None else excess @ features,
        policy,
    )
