r"""Posterior of the reward behind demonstrations: natural-gradient VI, Laplace's approximation, or the posterior mode.

At the initial hyper-parameters the search takes Laplace's approximation, and improves it by natural-gradient steps
(`gaussian_vi`). That Gaussian is moved to the hyper-parameters where its ELBO is largest, and fitted again there, until
it gains no more. At nodes around this mode, which are weighted by their ELBOs, the Gaussian of the nearest value is
kept or takes a step, and is fitted anew only where a step gains or moves much (`hyper_parameters`). The returned
ELBO is never below Laplace's on the same draws. Everything is computed in double precision.

Dilkas (2019), "Variational inference for inverse reinforcement learning with Gaussian processes", section 3, for the
bound; Khan and Nielsen (2018), "Fast yet simple natural-gradient descent for variational inference", eq. 7 and 8, for
the steps; Levine, Popovic and Koltun (2011), eq. 8, whose hyper-parameters are the initial ones for more than three
features.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array

from ethogram.inference import storage
from ethogram.inference.checkpoint import Checkpoint, refuse_longer
from ethogram.inference.rewards import gaussian_vi, hyper_parameters
from ethogram.inference.rewards.blas_threads import one_blas_thread
from ethogram.inference.rewards.gaussian_vi import BaseDraws
from ethogram.inference.rewards.laplace import Gaussian, Laplace, laplace
from ethogram.inference.rewards.levine import ROUGH, maximize_levine, takes_levine
from ethogram.inference.rewards.node_fits import NodeFit, Progress, SearchState, Settings, node_fits
from ethogram.inference.rewards.reward_posterior import METHODS, RewardFit, RewardPosterior, as_double
from ethogram.inference.rewards.search_status import Status, advice
from ethogram.inference.rewards.vi_steps import MIN_KEPT, standard_error
from ethogram.models.arguments import require_integer, require_key, require_number, require_one_of, warn_user
from ethogram.models.numpy_generator import numpy_generator
from ethogram.models.quick_jit import quick_jit
from ethogram.models.rewards import kernel as reward_kernel
from ethogram.models.rewards.gp_irl import GPIRL
from ethogram.models.rewards.reward_settings import FEW_FEATURES

__all__ = [
    "FEW_POINTS", "HYPERS", "MAX_CHUNKS", "SHARED", "check_settings", "finished", "fit_reward", "initial_hypers",
    "white_shares",
]  # fmt: skip

HYPERS = ("integrated", "point", "fixed")
"""Treatments of the hyper-parameters."""

MOSTLY_WHITE = 0.5

FEW_POINTS = 500
"""Rewards up to which linear algebra runs in one thread: more threads wait for one another longer than they compute."""

SHARED = 4.0
"""Tolerance at a value of the hyper-parameters, in units of `tol`: values share their draws, so that most of what a
search leaves is common to all, and cancels in their weights and in the search for the mode."""

LIGHT = 0.5
"""Largest tolerance in nats at a node. It is that at the mode over the mass of the node, relative to the mode's: what a
search at a node leaves counts by its weight."""

OPTIMISING = 5
"""Gaussians that a search towards initial hyper-parameters fits, where there is no estimate of Levine's."""

MIN_LOG_START = -8.0
"""Lower limit of the logarithm of an initial hyper-parameter; of a relevance, where its feature has a variance above 1,
in units of one over that."""

MIN_CHUNKS, MAX_CHUNKS = 2, 16
"""Chunks of `num_evaluations` fresh draws for the ELBO that is reported: at each node, and over all nodes."""

TINY = 1e-300
"""Lower limit of the weight of a node, which has a logarithm."""


def fit_reward(
    key: Array,
    model: Any,
    demonstrations: Any,
    method: str = "natural_gradient",
    *,
    hyper: str | None = None,
    start: Any = None,
    num_steps: int = 300,
    num_draws: int = 12,
    num_evaluations: int = 128,
    num_restarts: int = 0,
    tol: float = 0.05,
    checkpoint: str | os.PathLike | None = None,
    progress_bar: bool = True,
) -> RewardFit:
    """Posterior of the reward behind demonstrations.

    Parameters
    ----------
    key : typed PRNG key.
    model : a `GPIRL`.
    demonstrations : `Trajectories` with states and actions, or counts (state, action).
    method : ``"natural_gradient"``; ``"laplace"``, Laplace's approximation; or ``"map"``, the posterior mode.
    hyper : treatment of the hyper-parameters that have priors: ``"integrated"``, with a Gaussian q(w) at each of up to
        21 nodes around their mode (of more than three features the relevances that matter, at most three; the others
        are held at `start`); ``"point"``, at that mode; or ``"fixed"`` at their initial values, all that ``"laplace"``
        and ``"map"`` take. Default: integrated.
    start : initial hyper-parameters ``{"scale": ..., "relevance": ...}``, all that have priors. Default: prior medians
        for up to three features; for more, Levine's estimate, and for rewards of pairs, where there is none, the end of
        a short search from equal relevances.
    num_steps : largest number of natural-gradient steps, each with `num_draws` draws, an even number, at each value of
        the hyper-parameters that the search visits.
    num_evaluations : draws for monitoring the ELBO, an even number.
    num_restarts : starts of the search for the mode drawn from the prior, besides zero: the likelihood is not concave,
        and the mode of highest posterior density is used.
    tol : in nats: the search stops when the ELBO gained less than `tol` over the second half of the steps (paired on
        common draws, with its standard error); sqrt(2 tol) bounds the error of posterior means in standard deviations.
        It is four times `tol` at each of several values of the hyper-parameters, which share their draws, and up to
        half a nat at nodes that weigh little.
    checkpoint : a file that is written after natural-gradient steps, for a twentieth of the time at most; if it exists,
        the same call resumes from it, and ends where an uninterrupted one would. With ``hyper="fixed"`` `num_steps` and
        `tol` may differ; fewer steps than it has are an error. ``"laplace"`` and ``"map"`` take none: they have no such
        steps.

    Raises
    ------
    TypeError, ValueError
        `model` is not a GPIRL, it refuses the demonstrations, a setting is out of range, or the checkpoint is one of
        another model, demonstrations, settings or key.

    Warns
    -----
    UserWarning
        The search has not converged: it says why, names the latest ELBOs, and what to pass. Or more than half of the
        prior variance of rewards is noise: states then carry little information on others.

    Examples
    --------
    >>> from ethogram.models.mdps import MDP
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.9)
    >>> model = GPIRL(corridor, [[0.0], [1.0], [2.0]], scale_prior=5.0, relevance_prior=1.0)
    >>> counts = np.array([[0, 3], [0, 3], [0, 3]])
    >>> fit = fit_reward(jax.random.key(0), model, counts, progress_bar=False)
    >>> fit.converged, fit.elbo >= fit.laplace_elbo
    (True, True)
    """
    if not isinstance(model, GPIRL):
        raise TypeError(
            f"model is {type(model).__name__}: give a GPIRL, or use fit_switching for a SwitchingGPIRL"
        )
    require_key(key)
    hyper = ("integrated" if method == "natural_gradient" else "fixed") if hyper is None else hyper
    settings = Settings(hyper, num_steps, num_draws, num_evaluations, num_restarts, tol)
    check_settings(method, settings)
    if checkpoint is not None and method != "natural_gradient":
        raise ValueError(
            f"checkpoint is given, but method {method!r} takes no steps to resume after: leave it out"
        )
    counts = np.asarray(model.counts(demonstrations), float)
    by_reward = counts if counts.ndim == 3 else counts[None]
    small = model.num_white <= FEW_POINTS
    threads = one_blas_thread() if small else contextlib.nullcontext()
    with jax.enable_x64(True), threads, Checkpoint(checkpoint) as store:
        if method == "natural_gradient":
            found = _fit_by_steps(key, as_double(model), by_reward, start, settings, store, progress_bar)
        else:
            found = _fit_mode(key, as_double(model), by_reward, start, settings, method)
    return finished(found, model, settings)


def finished(fit: RewardFit, model: Any, settings: Settings) -> RewardFit:
    """The fit with the model as it was given, and warnings of what a user should know of it."""
    if not fit.converged:
        fix = advice(Status(fit.status), settings.num_steps, settings.num_draws, settings.num_evaluations)
        latest = ", ".join(f"{bound:.2f}" for bound in fit.trace[-3:])
        warn_user(
            f"the search has not converged after {fit.steps} steps: {fit.reason} (last ELBOs {latest} nats, tolerance "
            f"{settings.tol}, standard error {fit.search_se:.2g}). Pass {fix}"
            if fit.posterior.method == "natural_gradient"
            else f"{fit.reason}: pass {fix}"
        )
    if fit.white_share > MOSTLY_WHITE:
        warn_user(
            f"{fit.white_share:.0%} of the prior variance of rewards is noise, independent between states: use fewer "
            "features, or smaller relevances, to generalise to other states"
        )
    return fit._replace(posterior=fit.posterior.of_model(model))


def _fit_mode(
    key: Array, model: GPIRL, counts: np.ndarray, start: Any, settings: Settings, method: str
) -> RewardFit:
    """Laplace's approximation, or the posterior mode, at the initial hyper-parameters."""
    key_start, key_modes, _, _, key_fresh = jax.random.split(key, 5)
    log_hyper = initial_hypers(key_start, model, counts, start, settings)
    found = _laplace(key_modes, model, counts, log_hyper, settings)
    q, error, elbo, elbo_se = found.q, float("nan"), float("nan"), float("nan")
    if method == "map":
        q = q._replace(root=np.zeros_like(q.root))
    else:
        fresh = _fresh_elbos(key_fresh, model, counts, log_hyper, q, settings, MAX_CHUNKS)
        elbo, elbo_se = float(fresh.mean()), standard_error(fresh)
    status = Status.CONVERGED if found.converged else Status.MODE_NOT_FOUND
    posterior = RewardPosterior(model, q.mean[None], q.root[None], log_hyper[None], np.zeros(1), method)
    share = float(white_shares(model, log_hyper))
    return RewardFit(posterior, elbo, elbo_se, elbo, np.zeros(0), found.objective, status, 0, share, error)


def _fit_by_steps(
    key: Array,
    model: GPIRL,
    counts: np.ndarray,
    start: Any,
    settings: Settings,
    store: Checkpoint,
    progress_bar: bool,
) -> RewardFit:
    """Gaussians at the mode of the hyper-parameters and at nodes around it, or at the initial ones."""
    key_start, key_modes, key_fixed, key_steps, key_fresh = jax.random.split(key, 5)

    def signature() -> str:
        taken = settings._replace(num_steps=0, tol=0.0) if settings.hyper == "fixed" else settings
        return storage.fingerprint(model, counts, jax.random.key_data(key), list(taken), start)

    def check(path: str, state: SearchState) -> None:
        refuse_longer(0 if state.running is None else state.running.steps, settings.num_steps)

    state = store.resumed(signature, SearchState, check, lambda: SearchState([], None))
    log_hyper = initial_hypers(key_start, model, counts, start, settings)
    first = _laplace(key_modes, model, counts, log_hyper, settings)
    fixed = _base_draws(key_fixed, model, counts, settings)
    held = settings.hyper == "fixed"
    active = np.zeros(0, int) if held else hyper_parameters.active_hypers(model, log_hyper)
    with Progress(progress_bar, store.save, state, single=not len(active)) as progress:
        fit_at = _fits_at(key_steps, model, counts, (log_hyper, first.q), fixed, active, settings, progress)
        moved = functools.partial(gaussian_vi.moved_elbo, model, counts, fixed)
        mode = hyper_parameters.find_mode(fit_at, moved, log_hyper, active, 2 * settings.tol)
        fits, curvature = [fit_at(mode.log_hyper)], np.zeros((0, 0))
        if settings.hyper == "integrated":
            curvature = hyper_parameters.curvature_at(
                lambda place: moved(mode.log_hyper, fits[0].q, place)[1], mode.log_hyper, active
            )
        finite = bool(np.isfinite(curvature).all())
        integrated = active if len(curvature) and finite else active[:0]
        nodes = hyper_parameters.integration_nodes(curvature if finite else np.zeros((0, 0)))
        places = np.repeat(mode.log_hyper[None], len(nodes.weights), axis=0)
        places[:, integrated] = nodes.around(mode.log_hyper[integrated])
        masses = nodes.weights / nodes.weights[0]
        fits += [fit_at(place, mass=mass) for place, mass in zip(places[1:], masses[1:], strict=True)]
    at_mode = gaussian_vi.elbo(model, counts, mode.log_hyper, fits[0].q, fixed)
    error = standard_error(at_mode)
    approximation = first
    if not np.array_equal(mode.log_hyper, log_hyper):
        approximation = _laplace(key_modes, model, counts, mode.log_hyper, settings)
    chunks = max(MIN_CHUNKS, MAX_CHUNKS // len(fits))
    fresh = [_fresh_elbos(key_fresh, model, counts, fit.log_hyper, fit.q, settings, chunks) for fit in fits]
    of_laplace = _fresh_elbos(key_fresh, model, counts, mode.log_hyper, approximation.q, settings, chunks)
    gain = float(fresh[0].mean() - of_laplace.mean())
    if not gain >= 0:  # never below Laplace's approximation
        fits[0], fresh[0], gain = fits[0]._replace(q=approximation.q), of_laplace, 0.0
    values = np.array([one.mean() if np.isfinite(one).all() else -np.inf for one in fresh])
    elbo, shares = hyper_parameters.log_integral(nodes, values)
    heaviest = [fits[number].status for number in np.argsort(-shares, kind="stable")]
    doubts = [status for status in heaviest if status != Status.CONVERGED]
    doubts += [Status.NOT_FINITE] * (not finite) + [Status.HYPER_MODE_NOT_FOUND] * (not mode.converged)
    doubts += [Status.OPEN_DIRECTION] * (finite and hyper_parameters.has_open_direction(curvature))
    q = jax.tree.map(lambda *each: np.stack(each), *(fit.q for fit in fits))
    log_weights = np.log(np.maximum(shares, TINY))
    before = float(gaussian_vi.elbo(model, counts, log_hyper, first.q, fixed).mean())
    return RewardFit(
        RewardPosterior(model, q.mean, q.root, places, log_weights),
        elbo,
        standard_error(shares @ np.nan_to_num(np.stack(fresh), posinf=0.0, neginf=0.0)),
        elbo - gain,
        np.array([before, *mode.trace] if len(active) else fits[0].trace),
        approximation.objective,
        doubts[0] if doubts else Status.CONVERGED,
        progress.steps,
        float(shares @ np.asarray(white_shares(model, places))),
        error,
    )


def _fits_at(
    key: Array,
    model: GPIRL,
    counts: np.ndarray,
    first: tuple[np.ndarray, Gaussian],
    fixed: BaseDraws,
    active: np.ndarray,
    settings: Settings,
    progress: Progress,
) -> Callable[..., NodeFit]:
    """The best Gaussian at logarithms (hyper,). All have the same draws, those of `key` and the `fixed` ones.

    Of a node, `mass` is its weight relative to that of the mode.
    """
    tol = SHARED * settings.tol if len(active) else settings.tol

    def maximize(log_hyper, q, state, callback, mass=None):
        moved_tol = None if mass is None else max(tol, min(tol / mass, LIGHT))
        return gaussian_vi.maximize_elbo(
            key, model, counts, log_hyper, q, fixed, num_steps=settings.num_steps, num_draws=settings.num_draws,
            tol=tol, moved_tol=moved_tol, state=state, callback=callback,
        )  # fmt: skip

    return node_fits(first, functools.partial(gaussian_vi.transport, model), maximize, progress)


def initial_hypers(
    key: Array, model: GPIRL, counts: np.ndarray, start: Any, settings: Settings
) -> np.ndarray:
    """Initial logarithms (hyper,) of the hyper-parameters that have priors."""
    if start is not None:
        return hyper_parameters.read_start(model, start)
    medians = hyper_parameters.prior_medians(model)
    many = "relevance" in medians and model.num_features > FEW_FEATURES
    if many and takes_levine(model):
        levine = maximize_levine(key, model, counts.sum(0), ROUGH)
        medians["relevance"] = np.log(np.maximum(levine.relevance, _least_relevance(model)))
        if "scale" in medians:
            medians["scale"] = np.log([levine.scale])
    elif many:  # by the prior alone hardly one of them would matter
        points = np.asarray(model.points)
        width = np.where(np.ptp(points, axis=0) > 0, np.var(points, axis=0), 0.0)
        equal = -np.log(np.where(width > 0, width, 1.0) * model.num_features)
        medians["relevance"] = np.where(width > 0, equal, medians["relevance"])
    joined = np.concatenate([np.zeros(0), *medians.values()])
    if not many or takes_levine(model):
        return joined
    key_modes, key_fixed, key_steps = jax.random.split(key, 3)
    first = _laplace(key_modes, model, counts, joined, settings)
    everything = np.arange(len(joined))
    rough = settings._replace(num_steps=2 * MIN_KEPT, tol=1.0)
    fixed = _base_draws(key_fixed, model, counts, settings)
    with Progress(False, lambda *_: None, SearchState([], None), single=False) as progress:
        fit_at = _fits_at(key_steps, model, counts, (joined, first.q), fixed, everything, rough, progress)
        moved = functools.partial(gaussian_vi.moved_elbo, model, counts, fixed)
        mode = hyper_parameters.find_mode(fit_at, moved, joined, everything, 2 * rough.tol, OPTIMISING)
    least = {name: np.full(len(x), MIN_LOG_START) for name, x in medians.items()}
    least["relevance"] = np.log(_least_relevance(model))
    return np.maximum(mode.log_hyper, np.concatenate([*least.values()]))


def _least_relevance(model: GPIRL) -> np.ndarray:
    """Lower limits (feature,) of initial relevances, which matter little in any unit of the features."""
    return np.exp(MIN_LOG_START) / np.maximum(np.var(np.asarray(model.points), axis=0), 1)


def _laplace(
    key: Array, model: GPIRL, counts: np.ndarray, log_hyper: np.ndarray, settings: Settings
) -> Laplace:
    generator = numpy_generator(key)
    return laplace(model, counts, log_hyper, generator=generator, num_restarts=settings.num_restarts)


def _base_draws(key: Array, model: GPIRL, counts: np.ndarray, settings: Settings) -> BaseDraws:
    return gaussian_vi.base_draws(numpy_generator(key), model, len(counts), settings.num_evaluations)


def _fresh_elbos(
    key: Array, model: GPIRL, counts: np.ndarray, log_hyper: np.ndarray, q: Gaussian, settings: Settings, chunks: int
) -> np.ndarray:  # fmt: skip
    """ELBOs at chunks of antithetic draws; the negatives of the first half are the second half."""
    generator, pairs = numpy_generator(key), []
    for _ in range(chunks):
        draws = gaussian_vi.base_draws(generator, model, len(counts), settings.num_evaluations)
        pairs.append(gaussian_vi.elbo(model, counts, log_hyper, q, draws).reshape(2, -1))
    return np.concatenate(pairs, axis=1).ravel()


@quick_jit
def white_shares(model: GPIRL, log_hyper: Array) -> Array:
    """Share of the prior variance of rewards that is white noise, at logarithms (..., hyper)."""
    return reward_kernel.white_share(hyper_parameters.unpack(model, log_hyper)["relevance"], model.noise)


def check_settings(method: str, settings: Settings) -> None:
    """Raise TypeError or ValueError where a setting is out of range, or two contradict."""
    require_one_of("method", method, METHODS)
    require_one_of("hyper", settings.hyper, HYPERS)
    for name in ("num_steps", "num_draws", "num_evaluations"):
        require_integer(name, getattr(settings, name), 1)
    require_integer("num_restarts", settings.num_restarts, 0)
    require_number("tol", settings.tol, least=0)
    for name in ("num_draws", "num_evaluations"):
        if getattr(settings, name) % 2:
            raise ValueError(
                f"{name} is {getattr(settings, name)}: give an even number, for antithetic draws"
            )
    if settings.hyper != "fixed" and method != "natural_gradient":
        raise ValueError(
            f'hyper="{settings.hyper}" needs method="natural_gradient", not {method!r}, which holds hyper-parameters '
            "at their initial values: leave hyper out"
        )
