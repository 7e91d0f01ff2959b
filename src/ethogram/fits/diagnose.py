"""What is wrong with a fit, as far as its search, its data and simpler models tell."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from scipy.special import gammaln

from ethogram.inference.conjugate import ConjugateResult, ConjugateSVI, heldout_score_curve
from ethogram.inference.conjugate.log_ratios import log_ratios
from ethogram.inference.conjugate.search import EMPTY, mass_of_states
from ethogram.inference.convergence import LARGEST_R_HAT, LEAST_ESS, convergence
from ethogram.inference.diagnostics import Finding, Level
from ethogram.inference.diagnostics.columns import of_columns
from ethogram.inference.diagnostics.paths import of_alike, of_paths, of_rare_states, of_wide_states
from ethogram.inference.diagnostics.residuals import of_residuals
from ethogram.inference.diagnostics.tables import of_heldout, of_tables
from ethogram.inference.diagnostics.weights import FAR, SCALES, of_ratios
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.data import Trajectories
from ethogram.models.data.parts import is_large
from ethogram.models.data.trajectories import group_labels
from ethogram.models.families.exponential_family import Known

__all__ = ["of_actions", "of_intents", "of_peers", "of_roles", "of_search"]

RESTARTS, STEPS = 3, 300
"""Of fits with one state more or fewer."""
LONG = 30.0
"""Seconds of a fit from which on only a thorough diagnosis fits again."""
MORE_GAIN, FEWER_GAIN = 5.0, 0.0
"""Nats of the ELBO by which one state more, or one fewer, has to be better."""
RATIOS, LARGEST = (100, 1000), 2**25
"""Fewest and most draws of q whose weights are looked at, and frames times states times draws between these."""
MOST_MOVED = 0.1
"""Total variation by which other priors may move the actions of a step, on average."""
NEAR = 1.0
"""Nats below the best ELBO within which a restart has found the same fit."""


def of_search(fit: Any) -> Iterator[Finding]:
    """Whether the search has ended, and restarts and chains agree."""
    result = fit.result
    if isinstance(result, ConjugateResult) and not result.converged:
        yield Finding(
            "search",
            Level.CAUTION,
            f"The ELBO still rises after {result.step} steps.",
            "Give a larger num_steps, with init=fit.result to go on from here.",
            0.0,
        )
    elif not getattr(result, "converged", True):  # of rewards
        said = f"The search has not converged: {getattr(result, 'reason', 'the gradient is not zero')}."
        advice = f"Pass {result.status.advice}." if hasattr(result, "status") else "Give it more steps."
        yield Finding("search", Level.CAUTION, said, advice, 0.0)
    reached = getattr(result, "restart_elbos", getattr(result, "restart_heights", None))
    if reached is not None and len(reached) > 1:
        best = float(result.elbo[-1]) if isinstance(result, ConjugateResult) else reached.max()
        below = best - reached
        alike = int((below < NEAR).sum())
        if alike == 1 and np.isfinite(np.sort(below)[1]):
            yield Finding(
                "search",
                Level.NOTE,
                f"One of {len(below)} restarts has found this fit; the next lies {np.sort(below)[1]:.1f} nats below.",
                "Give more restarts, and see whether the fit stays.",
                0.0,
            )
    if isinstance(result, ConjugateResult):
        yield from _of_truncation(result.posterior)
    if hasattr(fit.model, "separation") and not fit.model.flat:
        yield from _of_separation(fit.model, fit.model.check(fit.data))
    if isinstance(result, SampledPosterior):
        each = {name: convergence(site) for name, site in result.sites.items()}
        poor = [name for name, one in each.items() if not one.enough]
        if poor:
            yield Finding(
                "search",
                Level.WARNING,
                f"The draws of {', '.join(poor)} have fewer than {LEAST_ESS} effective samples, or chains that differ "
                f"(r_hat above {LARGEST_R_HAT}).",
                'Give a larger num_warmup and num_samples, by method="nuts" where this one takes neither.',
                float(len(poor)),
            )
        if (k := getattr(result, "pareto_k", 0.0)) > FAR:
            yield Finding(
                "search",
                Level.NOTE,
                f"The Pareto k of the weights of Laplace's approximation is {k:.2f}, above {FAR}: the "
                "weights do not correct its draws.",
                'Compare the intervals with those of method="nuts", which starts from them.',
                float(np.log(k / FAR)),
            )
        diverging = float(np.mean(result.statistics.get("diverging", 0)))
        if diverging > 0:
            yield Finding(
                "search",
                Level.WARNING if diverging > 0.01 else Level.NOTE,
                f"{100 * diverging:.2g} % of the transitions of the sampler diverged.",
                "Give a larger target_accept_prob, such as .95, or a narrower prior.",
                diverging,
            )


def _of_separation(model: Any, problem: Any) -> Iterator[Finding]:
    """Features of choices along which no options differ, or a direction of their values that no choice contradicts."""
    data, found = model.separating(problem)
    if found is not None and model.kind == "features" and not found.agreeing.any():
        names = data.metadata.feature_names or [f"feature {at}" for at in range(data.features.shape[-1])]
        x = np.asarray(data.features, float)
        first = np.take_along_axis(x, np.argmax(data.legal, axis=1)[:, None, None], 1)
        rows, origin = x[data.legal], np.broadcast_to(first, x.shape)[data.legal]
        yield from of_columns(rows, names, "between the options of a decision", origin)
    elif found is not None:
        said = model.separation(problem)
        yield Finding(
            "separation",
            Level.WARNING,
            f"{said[0].upper()}{said[1:]}.",
            "Only the prior bounds the values along it: leave out what separates, or report what another prior gives.",
            0.0,
        )


def _of_truncation(posterior: Any) -> Iterator[Finding]:
    """Whether a fit that learns how many states are used has used all that were offered."""
    if not posterior.model.growth:
        return
    mass = np.asarray(mass_of_states(posterior.model, posterior.blocks))
    if len(mass) > 1 and (mass > EMPTY).all():
        yield Finding(
            "number of states",
            Level.CAUTION,
            f"All {len(mass)} {posterior.model.label_dims[0]}s that the truncation offers are used.",
            "Offer more.",
            0.0,
        )


def of_roles(fit: Any, thorough: bool) -> Iterator[Finding]:
    """Whether states explain their frames, by pseudo-residuals, a sampled path, and other numbers of states."""
    model, data = fit.model, fit.data
    states = fit.states()
    yield from of_rare_states(states.frames, states.names)
    if model.exclusive is not None or model.known_roles or is_large(data):
        return
    recorded, x = np.asarray(data.observed), np.asarray(data.observations, float)
    features = data.metadata.feature_names or [f"feature {at}" for at in range(x.shape[-1])]
    rows = x[recorded]
    yield from of_columns(rows[np.isfinite(rows).all(-1)], features, "from frame to frame")
    yield from _of_approximation(fit)
    try:
        residuals = fit.residuals()
    except TypeError:  # frames depend on those before
        pass
    else:
        kept = np.flatnonzero(np.ptp(rows, axis=0)).tolist()  # of a constant rounding alone is left
        yield from of_residuals(residuals[..., kept], [features[at] for at in kept])
    yield from of_wide_states(x, np.where(recorded, states.path, -1), states.names)
    if len(states.names) > 1:
        yield from of_paths(np.where(recorded, fit.sample_paths(1)[0], -1), len(states.names))
    if isinstance(fit.result, ConjugateResult) and (thorough or fit.seconds < LONG):
        yield from _of_numbers(fit)


def of_actions(fit: Any, thorough: bool) -> Iterator[Finding]:
    """Whether a table explains the actions better than the model; not where its ELBO is of labels too, or unknown."""
    model, data = fit.model, fit.data
    elbo = np.ravel(getattr(fit.result, "elbo", np.nan))[-1]
    labelled = getattr(model, "stay_accuracy", None) is not None
    if labelled or not isinstance(data, Trajectories) or is_large(data) or not np.isfinite(elbo):
        return
    states, actions = np.asarray(data.states), np.asarray(data.actions)
    inside = np.arange(actions.shape[1]) < np.asarray(data.lengths)[:, None]
    actions = np.where(inside & np.asarray(data.observed), actions, -1)
    yield from of_tables(float(elbo), states, actions, getattr(model, "mdp", model).num_actions)


def of_intents(fit: Any, thorough: bool) -> Iterator[Finding]:
    """Tables of actions, q beside the posterior, the prior, and, along a path, changes and intents that are alike."""
    from ethogram.models.intents.updates import prior_given

    yield from of_actions(fit, thorough)
    if is_large(fit.data):
        return
    if thorough:
        yield from of_peers(fit, heldout_score_curve)
    path, data, count = fit.sample_paths(1)[0], fit.data, len(fit.state_names)
    states, actions = np.asarray(data.states), np.asarray(data.actions)
    actions = np.where((path >= 0) & np.asarray(data.observed), actions, -1)
    yield from of_alike(path, states, actions, fit.state_names)
    if isinstance(fit.result, ConjugateResult):
        blocks = fit.result.posterior.blocks
        prior = prior_given(fit.result.posterior.model, blocks["weights"], blocks.get("stickiness"))
        yield from _of_approximation(fit, prior)
        yield from _of_concentrations(fit)
    if count > 1:
        pairs = np.maximum(states, 0) * (fit.model.num_actions + 1) + actions + 1
        yield from of_paths(path, count, pairs)


def _of_approximation(fit: Any, prior: Any = None) -> Iterator[Finding]:
    """How far q of a mean field is from the posterior, by the weights that would correct its draws."""
    if isinstance(fit.result, ConjugateResult):
        key, cells = jax.random.fold_in(fit._key, 3), np.size(fit.data.observed) * len(fit.state_names)
        count = int(np.clip(LARGEST // cells, *RATIOS))
        found = log_ratios(key, fit.result.posterior, fit.data, count, prior)
        yield from of_ratios(found, "Call corrected(), whose intervals do not rest on q.")


def _of_concentrations(fit: Any) -> Iterator[Finding]:
    """Whether steps keep their chances of actions where concentrations are halved and doubled, from this fit on."""
    from ethogram.inference.intents import infer_intents

    states, known = np.maximum(fit.data.states, 0), np.asarray(fit.data.actions) >= 0

    def chances(found: ConjugateResult) -> np.ndarray:
        """Probabilities (step, action) given all actions, which do not depend on the numbers of the intents."""
        carried = np.asarray(found.posterior.model.rows_carried().states)
        row = np.minimum(np.searchsorted(carried, states), len(carried) - 1)
        policy = np.asarray(found.posterior.mean()["policy"])[:, row]
        return np.einsum("nti,inta->nta", infer_intents(found, fit.data).probability, policy)[known]

    moved, own = 0.0, chances(fit.result)
    for scale in SCALES:
        other = dataclasses.replace(fit.model, rho=scale * fit.model.rho, alpha=scale * fit.model.alpha)
        settings: dict[str, Any] = {"init": fit.result, "search": "restarts", "progress_bar": False}
        found = ConjugateSVI(other).run(fit._key, fit.data, fit.result.step + STEPS, **settings)
        moved = max(moved, float(np.abs(chances(found) - own).sum(-1).mean() / 2))
    if moved > MOST_MOVED:
        yield Finding(
            "prior",
            Level.CAUTION,
            f"Concentrations of half or twice the size move probabilities of actions by {moved:.2f} per step (total "
            "variation).",
            "Say in the report how the policies depend on rho and alpha, or record more.",
            float(np.log(moved / MOST_MOVED)),
        )


def of_peers(fit: Any, curve: Callable[..., Any]) -> Iterator[Finding]:
    """Held-out scores of a quarter of the groups beside those of simpler models, by `curve`; none of a single group."""
    if isinstance(fit.data, Trajectories) and len(np.unique(group_labels(fit.data))) > 1:
        found = curve(fit._key, lambda size: fit.model, [1], fit.data, progress_bar=False)
        yield from of_heldout(float(found.heldout[0]), found.peers)


def _of_numbers(fit: Any) -> Iterator[Finding]:
    """Whether a fit with one state more or fewer has a higher ELBO, each given the number of orders of its states."""
    count = fit.model.num_roles
    own = float(fit.result.elbo[-1]) + gammaln(count + 1)
    for number, least in ((count - 1, FEWER_GAIN), (count + 1, MORE_GAIN)):
        other = _with_roles(fit.model, number)
        if other is None:
            continue
        key = jax.random.fold_in(fit._key, number)
        found = ConjugateSVI(other).run(key, fit.data, STEPS, restarts=RESTARTS, progress_bar=False)
        gain = float(found.elbo[-1]) + gammaln(number + 1) - own
        if gain > least:
            yield Finding(
                "number of states",
                Level.CAUTION,
                f"With {number} state{'s' * (number > 1)} in place of {count} the ELBO is {gain:.1f} nats higher, "
                "orders of the states counted.",
                "Compare fits with other numbers of states on held-out data.",
                float(np.log1p(gain - least)),
            )


def _with_roles(model: Any, number: int) -> Any:
    """The model with another number of roles; None where priors tell roles apart, or rows are known or uneven."""
    if number < 1 or model.emission.differs_by_state:
        return None
    rows = {name: getattr(model, name) for name in ("initial", "transition")}
    if any(isinstance(each, Known) or np.ptp(each) > 0 for each in rows.values()):
        return None
    return dataclasses.replace(
        model, num_roles=number, **{name: np.ravel(each)[0] for name, each in rows.items()}
    )
