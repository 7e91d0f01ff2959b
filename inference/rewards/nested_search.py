r"""Posterior of a reward with the hyper-parameters integrated over: one Gaussian at each of a few nodes.

At hyper-parameters :math:`\eta` the best Gaussian q(w | :math:`\eta`) has the ELBO :math:`L(\eta)`, and

.. math:: q(w, \eta_k) \propto \Delta_k\, p(\eta_k)\, e^{L(\eta_k)}\, q(w \mid \eta_k), \qquad
          \ln p(D) \ge \ln \int p(\eta)\, e^{L(\eta)}\, d\eta .

No factorisation of q is between w and the hyper-parameters, whose product the rewards are. The gradient of L at the
best q is its partial derivative in :math:`\eta`, so that a quasi-Newton search finds the mode. The nodes lie around it
in the directions of its curvature. Relevances that hardly bend the kernel are held fixed, and enter the ELBO by their
prior density.

Every place has a search of its own, see `natural_steps`, from the best Gaussian of the nearest place before it.

Rue, Martino and Chopin (2009), "Approximate Bayesian inference for latent Gaussian models by using integrated nested
Laplace approximations", section 3, with Gaussian variational approximations in place of Laplace's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jaxtyping import Float

from ethogram.inference.checkpoint import CURE
from ethogram.inference.rewards.gaussian import (
    Normals,
    RewardGaussian,
    free_hypers,
    white_share_at,
)
from ethogram.inference.rewards.integration_nodes import (
    MOST_HYPERS,
    integration_nodes,
    log_integral,
    open_direction,
)
from ethogram.inference.rewards.natural_gradient import RewardSearch
from ethogram.inference.rewards.natural_steps import (
    begin_climb,
    climb,
    hyper_gradient,
    standard_error,
    with_moved_hypers,
)
from ethogram.inference.rewards.posterior_mode import NOWHERE
from ethogram.inference.rewards.reward_posterior import RewardFit, RewardPosterior, naming
from ethogram.models.rewards.gp_irl import GPIRL
from ethogram.models.rewards.priors import MATTERS
from ethogram.models.rewards.reward_settings import FEW_FEATURES

__all__ = ["NestedState", "Place", "check_places", "nested_fit"]

SHARED = 4.0
"""Tolerance at a place, in units of `tol`: places share their draws, so that most of what a search leaves is common to
all, and cancels in their weights and in the search for the mode."""

MOST_PLACES = 40
"""Places that the search for the mode may visit."""

FLAT = 0.2
"""Largest entry of the gradient, in nats, at a mode; nodes around it need no better one."""

STEEP = 1.0
"""The same where the search for the mode ends for another reason."""

DIFFERENCE = 0.3
"""Step of the central differences of gradients, in logarithms of hyper-parameters."""

TINY = 1e-300
"""Lower limit of the weight of a node, which has a logarithm."""

WRITE_FREELY = 64 * 2**20
"""Bytes of places up to which a checkpoint is written after every place; larger ones wait in proportion."""

FRESH = 4
"""Chunks of `num_evaluations` fresh draws for the ELBO and the weights of the nodes."""


class Place(NamedTuple):
    """The best Gaussian found at given hyper-parameters."""

    q: RewardGaussian
    value: float  # ELBO, with the log prior density of the hyper-parameters
    gradient: np.ndarray  # (hyper,), of `value`
    reason: str  # why its search has not converged, empty where it has
    steps: int


class NestedState(NamedTuple):
    """State of a search: all places visited, in order."""

    places: list[Place]


def check_places(path: str, search: RewardSearch, state: NestedState) -> NestedState:
    """The state that a checkpoint holds; a ValueError, which names the file, where its numbers are damaged."""
    try:
        for number, place in enumerate(state.places):
            with naming(f"state.places[{number}]"):
                found = RewardPosterior(search.model, *place.q)
                if np.shape(found.mean)[:-1] != search.counts.shape[:1]:
                    raise ValueError(f"mean has shape {np.shape(found.mean)}: expected one row per expert")
                if np.shape(place.gradient) != np.shape(place.q.log_hyper):
                    raise ValueError(f"gradient has shape {np.shape(place.gradient)}")
        if not state.places:
            raise ValueError("state.places is empty")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}; {CURE}") from error
    return state


def active_hypers(model: GPIRL, log_hyper: np.ndarray) -> np.ndarray:
    """Numbers of the hyper-parameters to integrate over, at most `MOST_HYPERS`: relevances only where they matter."""
    found: list[int] = []
    first, sizes = 0, free_hypers(model)
    most = MOST_HYPERS - sum(size for name, size in sizes.items() if name != "relevance")
    for name, size in sizes.items():
        if name == "relevance" and size > min(most, FEW_FEATURES):
            bend = np.exp(log_hyper[first : first + size]) * np.var(np.asarray(model.points), axis=0)
            largest = np.argsort(-bend, kind="stable")[:most]
            found += [first + int(one) for one in np.sort(largest) if bend[one] > MATTERS]
        else:
            found += range(first, first + size)
        first += size
    return np.array(found, int)


class _Nested(NamedTuple):
    search: RewardSearch
    first: RewardGaussian  # Laplace's approximation at the initial hyper-parameters
    key: Array  # of the draws of steps, the same at every place
    monitored: Normals
    num_steps: int
    tol: float
    visited: dict[bytes, Place]
    report: Callable[[Place], None]

    def at(self, log_hyper: np.ndarray) -> Place:
        """The best Gaussian at these hyper-parameters, from that of the nearest place visited before."""
        where = np.ascontiguousarray(log_hyper, float)
        if where.tobytes() not in self.visited:
            known = [*(place.q for place in self.visited.values()), self.first]
            apart = [float(np.sum((np.asarray(q.log_hyper) - where) ** 2)) for q in known]
            self.visited[where.tobytes()] = self.climb(known[int(np.argmin(apart))], where)
            self.report(self.visited[where.tobytes()])
        return self.visited[where.tobytes()]

    def climb(self, near: RewardGaussian, where: np.ndarray) -> Place:
        if len(where):
            near = with_moved_hypers(self.search.model, near, where)
            near = near._replace(log_hyper_sd=np.zeros(len(where)))
        start = begin_climb(self.search, near, self.monitored, self.key)
        tol = SHARED * self.tol if len(where) else self.tol
        found = climb(self.search, start, self.monitored, self.num_steps, tol)
        model, counts = self.search.model, self.search.counts
        gradient = np.zeros(0)
        if len(where):
            gradient = np.asarray(hyper_gradient(model, found.best, counts, self.monitored, False)[0])
        return Place(found.best, found.best_elbo, gradient, found.reason, found.step)


def nested_fit(
    search: RewardSearch,
    key_start: Array,
    key_search: Array,
    start: Any,
    num_steps: int,
    tol: float,
    progress_bar: bool,
    saved: NestedState | None,
    save: Callable[[NestedState], None],
) -> RewardFit:
    """Posterior over the hyper-parameters that matter and the reward.

    Parameters
    ----------
    search : model, data and settings.
    key_start, key_search : typed keys, of the start and of all draws.
    start : initial hyper-parameters, or None.
    num_steps : natural-gradient steps at each place, at most.
    tol : in nats; the search at a place stops within `SHARED` times it.
    saved, save : places visited before, or None, and a function that is called after each.
    """
    from tqdm import tqdm

    key_hyper, key_modes = jax.random.split(key_start)
    key_monitored, key_steps, key_fresh = jax.random.split(key_search, 3)
    monitored = search.normals(key_monitored, search.num_evaluations)
    first, objective, _ = search.laplace(key_modes, search.first(key_hyper, start), False)
    bar = tqdm(disable=not progress_bar, desc="nested", unit="place")

    def report(place: Place) -> None:
        bar.update()
        bar.set_postfix_str(f"ELBO {place.value:.2f}", refresh=False)
        size = sum(np.asarray(x).nbytes for x in place.q)
        if len(visited) % (1 + len(visited) * size // WRITE_FREELY) == 0:
            save(NestedState(list(visited.values())))

    visited = {np.asarray(place.q.log_hyper).tobytes(): place for place in (saved.places if saved else ())}
    nested = _Nested(search, first, key_steps, monitored, num_steps, tol, visited, report)
    with bar:
        bar.update(len(visited))
        active = active_hypers(search.model, np.asarray(first.log_hyper))
        mode, trace, mode_converged = _mode(nested, np.asarray(first.log_hyper), active)
        nodes, places, curvature = None, [nested.at(mode)], np.zeros((0, 0))
        if len(active):
            curvature = _curvature(nested, mode, active)
        finite = np.isfinite(curvature).all()
        if len(active) and finite:
            nodes = integration_nodes(curvature)
            moved = np.repeat(mode[None], len(nodes.weights), axis=0)
            moved[:, active] = nodes.places(mode[active])
            places = [nested.at(one) for one in moved]
    fresh = [search.fresh_bounds(key_fresh, one.q, FRESH) for one in places]
    laplace = search.laplace(key_modes, mode, False)[0]
    of_laplace = search.fresh_bounds(key_fresh, laplace, FRESH)
    behind = float(fresh[0].mean() - of_laplace.mean())
    if not behind >= 0:  # never below Laplace's approximation
        places[0], fresh[0], behind = places[0]._replace(q=laplace), of_laplace, 0.0
    values = np.array([one.mean() if np.isfinite(one).all() else -np.inf for one in fresh])
    elbo, shares = (float(values[0]), np.ones(1)) if nodes is None else log_integral(nodes, values)
    error = standard_error(shares @ np.nan_to_num(np.stack(fresh), posinf=0.0, neginf=0.0))
    heaviest = [places[number].reason for number in np.argsort(-shares, kind="stable")]
    reason = next((f"at a node {one}" for one in heaviest if one), "")
    reason = reason or ("" if finite else "gradients around the mode of the hyper-parameters are not finite")
    reason = reason or (
        "" if mode_converged else "the search for the mode of the hyper-parameters did not end"
    )
    if not reason and nodes is not None:
        reason = open_direction(curvature)
    white = [white_share_at(search.model, one.q.log_hyper) for one in places]
    return RewardFit(
        _posterior(search.model, places, shares, len(search.counts) == 1),
        elbo,
        error,
        elbo - behind,
        np.array(trace),
        objective,
        not reason,
        sum(one.steps for one in visited.values()),
        float(shares @ white),
        reason,
        standard_error(np.asarray(search.bounds(places[0].q, monitored))),
    )


def _mode(nested: _Nested, start: np.ndarray, active: np.ndarray) -> tuple[np.ndarray, list[float], bool]:
    """Mode of the posterior of the hyper-parameters that matter, trace from Laplace's ELBO on, and whether it ended."""
    from scipy.optimize import minimize

    first = nested.at(start)
    trace = [float(np.mean(nested.search.bounds(nested.first, nested.monitored))), first.value]
    if not len(active):
        return start, trace, True

    def loss(x):
        where = start.copy()
        where[active] = x
        place = nested.at(where)
        if not np.isfinite([place.value, *place.gradient]).all():
            return NOWHERE, np.zeros(len(active))
        trace.append(place.value)
        return -place.value, -place.gradient[active]

    options = {"maxfun": MOST_PLACES, "ftol": 2 * nested.tol / max(abs(first.value), 1.0), "gtol": FLAT}
    found = minimize(loss, start[active], jac=True, method="L-BFGS-B", options=options)
    mode = start.copy()
    mode[active] = found.x
    steep = float(np.max(np.abs(nested.at(mode).gradient[active])))
    return mode, trace, bool(found.fun < NOWHERE and (found.status == 0 or steep <= STEEP))


def _curvature(nested: _Nested, mode: np.ndarray, active: np.ndarray) -> np.ndarray:
    """Negative Hessian at the mode, by central differences of gradients."""
    columns = []
    for one in active:
        apart = np.zeros(len(mode))
        apart[one] = DIFFERENCE
        rise = nested.at(mode + apart).gradient - nested.at(mode - apart).gradient
        columns.append(-rise[active] / (2 * DIFFERENCE))
    return np.stack(columns)


def _posterior(
    model: GPIRL, places: list[Place], shares: Float[np.ndarray, "node"], single: bool
) -> RewardPosterior:
    q = jax.tree.map(lambda *each: np.stack(each), *(place.q for place in places))
    if single:
        q = q._replace(mean=q.mean[:, 0], root=q.root[:, 0])
    if len(places) == 1:
        return RewardPosterior(model, *jax.tree.map(lambda x: x[0], q))
    return RewardPosterior(
        model, q.mean, q.root, q.log_hyper, q.log_hyper_sd, log_weights=np.log(np.maximum(shares, TINY))
    )
