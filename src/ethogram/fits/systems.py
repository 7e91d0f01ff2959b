"""What the fits of each system answer, and how they are drawn: one entry of a table per kind of model.

A system is imported when a model of it is fitted, or a fit of it is asked for something.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from ethogram.fits import diagnose, effects, figures, findings, latent_classes, methods
from ethogram.fits.choice_methods import choice_methods
from ethogram.fits.class_methods import class_methods
from ethogram.fits.densities import log_densities, log_likelihood
from ethogram.fits.diagnose_choices import of_choices
from ethogram.fits.diagnose_rewards import of_rewards
from ethogram.fits.estimates import entries_of, exported_entries
from ethogram.fits.forecasts import NUM_DRAWS, forecast_covariates, forecast_roles, some_draws
from ethogram.inference.conjugate import ConjugateResult
from ethogram.inference.diagnostics import Finding
from ethogram.inference.draws import flat_draws, one_chain
from ethogram.inference.export import to_arviz
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.arguments import require_integer
from ethogram.models.conjugate_model import ConjugateModel, overrides
from ethogram.models.data import Trajectories
from ethogram.models.numpy_generator import numpy_generator
from ethogram.models.quick_jit import quick_jit
from ethogram.plots.axes import draw_intervals
from ethogram.plots.colours import SERIES

__all__ = [
    "SYSTEMS",
    "System",
    "require_taken",
    "system_of",
]


MOST_ESTIMATES = 30
"""Estimates in the figure of a model of the user's own."""


def _no_states(fit: Any, data: Any) -> Any:
    if hasattr(fit.model, "num_classes"):
        raise TypeError("classes are of subjects, and not hidden states over time: see fit.subjects()")
    raise TypeError(f"a {type(fit.model).__name__} has no hidden states")


def _own_states(fit: Any, data: Any) -> Any:
    """States of a model of the user's own, whose distribution of the data smooths them."""
    if not fit.model.has_labels():
        return _no_states(fit, data)
    from ethogram.inference.roles.assignment import roles_of_draws

    return roles_of_draws(flat_draws(fit.draws(200).sites), data, fit.model, ConjugateModel)


def _own_num_states(fit: Any) -> int:
    """How many states the sites of a model of the user's own are of; 0 where it has no labels."""
    if not fit.model.has_labels():
        return 0
    label, sites = fit.model.label_dims[0], fit.draws(NUM_DRAWS).sites
    dims = {name: tuple(each) for name, each in fit.model.site_dims().items() if name in sites}
    sizes = [sites[name].shape[2 + each.index(label)] for name, each in dims.items() if label in each]
    return sizes[0] if sizes else 0


def _own_predictions(fit: Any, data: Trajectories, steps: int | None = None, num_draws: int = 100) -> Any:
    """The next steps where the model's distribution of the data forecasts them, as of roles; else simulated data."""
    require_integer("num_draws", num_draws, 1)
    first, draws = fit.draws(1), some_draws(fit, num_draws)
    if overrides(first.model, "likelihood"):
        one = {name: site[0] for name, site in draws.items()}
        if hasattr(first.model.likelihood(one, first.model.entries(data).batch), "forecast"):
            return forecast_roles(fit, data, 10 if steps is None else steps, num_draws)
    if steps is not None:
        raise TypeError(
            f"predictions of a {type(fit.model).__name__} take num_draws and no steps: they are as long as data, since "
            "its distribution of the data has no method forecast"
        )
    drawn = SampledPosterior(first.model, one_chain(draws), {})
    tree = to_arviz(drawn, data, key=fit._key, posterior_predictive=True, progress_bar=False)
    return tree.posterior_predictive.isel(chain=0, drop=True)


def _draw_own(fit: Any, figure: Any, **shown: Any) -> None:
    """Means and 90 % intervals of the first estimates, and timelines of the states of a model that has some."""
    names, draws = fit._entries()
    rows = np.arange(min(len(names), MOST_ESTIMATES))
    part = f", the first {len(rows)} of {len(names)}" if len(rows) < len(names) else ""
    if fit.state_names:
        narrow = figure.get_figwidth() < figures.NARROW
        axes, lines = figure.subplots(2, 1) if narrow else figure.subplots(1, 2, width_ratios=(1, 2))
        figures.draw_states(fit, lines, "state", **shown)
    elif shown:
        raise TypeError(
            f"a figure of a {type(fit.model).__name__} without hidden states takes no {', '.join(shown)}"
        )
    else:
        axes = figure.subplots()
    draw_intervals(
        axes, rows[::-1], draws.reshape(-1, len(names))[:, rows], SERIES[0], [names[row] for row in rows]
    )
    axes.set(title=f"means and 90 % intervals{part}", xlabel="estimate", ylim=(-0.6, len(rows) - 0.4))


class System(NamedTuple):
    """What fits of a model can answer; the defaults are those of a `ConjugateModel` of the user's own.

    Attributes
    ----------
    methods : of a model and data, the algorithms that fit them.
    states : of a fit and data, their hidden states.
    predict : of a fit and data, and settings by name, what the agents do next.
    log_densities : of a fit, data and a number of draws, as :func:`log_densities` gives them.
    draw : of a fit, an empty figure and the settings that it takes; draws the fit.
    entries : of a fit and options of `to_arviz`, the names of all estimates and their draws (chain, draw, entry).
    takes_data : False of queries, whose evidence is part of the model.
    num_states : of a fit, how many hidden states it tells apart; 0 for none.
    findings : of a fit, what its report says of it.
    faults : of a fit, and whether to look thoroughly, findings of what is wrong with it beside its search.
    warns_of_rare_states : whether states of few frames are often errors of a device.
    """

    methods: Callable[[Any, Any], methods.Methods] = methods.conjugate_methods
    states: Callable[[Any, Any], Any] = _own_states
    predict: Callable[..., Any] = _own_predictions
    log_densities: Callable[[Any, Any, int], tuple[np.ndarray, np.ndarray]] = log_densities
    draw: Callable[..., None] = _draw_own
    entries: Callable[..., tuple[list[str], np.ndarray]] = exported_entries
    takes_data: bool = True
    num_states: Callable[[Any], int] = _own_num_states
    findings: Callable[[Any], findings.Findings] = findings.of_states
    faults: Callable[[Any, bool], Iterable[Finding]] = lambda fit, thorough: ()
    warns_of_rare_states: bool = False


def _inferred(infer: Callable[..., Any], fit: Any, data: Trajectories) -> Any:
    """Hidden states by `infer_roles` or `infer_intents`: of a posterior, or of draws with their model."""
    if isinstance(fit.result, ConjugateResult):
        return infer(fit.result, data)
    found = fit.draws(200)  # whose model is bound to the data of the fit
    return infer(flat_draws(found.sites), data, model=found.model)


def _role_states(fit: Any, data: Trajectories) -> Any:
    from ethogram.inference.roles import infer_roles

    return _inferred(infer_roles, fit, data)


def _imitated_states(fit: Any, data: Trajectories) -> Any:
    from ethogram.inference.roles import infer_roles

    return infer_roles(fit.result.fit, data)


def _roll_outs(fit: Any, data: Trajectories) -> Trajectories:
    if data is not fit.data:
        raise TypeError(
            "data is new, and policies act in a world: call imitate's policies there (fit.result.policies)"
        )
    return fit.result.rolled


def _imitated_entries(fit: Any, **options: Any) -> tuple[list[str], np.ndarray]:
    """The probability that a fresh game fails, after Jeffreys' prior, and then the entries of the role model."""
    names, draws = exported_entries(fit, **options)
    reached = fit.result.reached[-1]
    failed = (~reached).sum()
    failure = numpy_generator(fit._key).beta(failed + 0.5, len(reached) - failed + 0.5, draws.shape[:2])
    return ["failure", *names], np.concatenate([failure[..., None], draws], axis=-1)


def _intent_states(fit: Any, data: Trajectories) -> Any:
    from ethogram.inference.intents import infer_intents

    return _inferred(infer_intents, fit, data)


@quick_jit(calls=2**7)
def _next_actions(model: Any, batch: Any, value: Any, draws: Any) -> Any:
    """Probabilities of the actions given those before, for each draw."""

    def one(draw: Any) -> Any:
        chain = model.likelihood(draw, batch)
        predicted = chain.filter(value).predicted
        policy = chain.policy[:, jnp.maximum(chain.states, 0)]  # (intent, sequence, time, action)
        return jnp.einsum("nti,inta->nta", predicted, policy)

    return jax.lax.map(one, draws)


def _predict_actions(fit: Any, data: Trajectories) -> Float[np.ndarray, "sequence time action"]:
    model = fit.draws(1).model  # bound to the data of the fit
    model.check(data)
    entries = model.entries(data)
    return np.asarray(_next_actions(model, entries.batch, entries.value, some_draws(fit, 50))).mean(0)


def _check_parameters(fit: Any, data: Any) -> None:
    """Raise ValueError unless decisions have the features, slots and subjects of those of the fit."""
    from ethogram.models.choices.decisions import check_decisions

    needed = fit.result.sites["theta"].shape[2:]
    subjects = () if data.subject is None else (data.num_subjects,)
    found = (*subjects, sum(fit.model.sizes(check_decisions(data))))
    if len(found) != len(needed) or found[-1] != needed[-1] or (subjects and found[0] > needed[0]):
        raise ValueError(
            f"data need parameters of shape {found}, and those of the fit have {needed}, one per subject, if there are "
            "any, by feature and slot: give decisions with the features, slots and subjects of the fit"
        )


def _predict_choices(fit: Any, data: Any) -> Any:
    from ethogram.inference.choices import predict_choice_probabilities

    _check_parameters(fit, data)
    return predict_choice_probabilities(None, fit.model, fit.result.sites, data)


def _choice_log_densities(fit: Any, data: Any, num_draws: int) -> tuple[np.ndarray, np.ndarray]:
    from ethogram.models.choices.decisions import weights_of

    _check_parameters(fit, data)
    counts = np.asarray(weights_of(data, known=True), float)
    values = log_likelihood(fit, data, num_draws, counts)
    return (counts * (logsumexp(values, axis=0) - np.log(len(values))))[None], counts


def _choice_entries(fit: Any, **options: Any) -> tuple[list[str], np.ndarray]:
    """Entries of the values under one name, whatever sites the algorithm has."""
    from ethogram.inference.choices.summary import named_parts

    sites = fit.result.sites
    names, parts = named_parts(fit.model, sites, np.asarray(sites["theta"], float), fit.data)
    return names, np.concatenate([part.reshape(*part.shape[:2], -1) for part in parts.values()], -1)


def _reward_intents(fit: Any, data: Any) -> Any:
    from ethogram.inference.rewards import infer_reward_intents

    return infer_reward_intents(fit._key, fit.result, data)


def _predict_switching(fit: Any, data: Any) -> Any:
    from ethogram.inference.rewards import predictive_agent

    return predictive_agent(fit._key, fit.result).next_actions(data)


def _reward_entries(fit: Any, cell_noise: bool = False, **options: Any) -> tuple[list[str], np.ndarray]:
    """Names and draws; rewards are functions of features, or with `cell_noise` have the noise of single states too."""
    from ethogram.inference.rewards import feature_rewards

    posterior = fit.to_arviz(**options).posterior
    if not (cell_noise or fit.method == "levine"):  # whose estimate is such a function
        sites = flat_draws({str(name): np.asarray(site) for name, site in posterior.data_vars.items()})
        model = getattr(fit.model, "base", fit.model)
        rewards = np.asarray(feature_rewards(fit._key, model, sites))
        rewards = rewards - rewards.mean((*range(1 - model.features.ndim, 0),), keepdims=True)
        dims, shape = posterior["centred_reward"].dims, posterior["centred_reward"].shape
        posterior = posterior.assign(centred_reward=(dims, rewards.reshape(shape)))
    return entries_of(posterior)


def _predict_policies(fit: Any, data: Any, cell_noise: bool = False) -> Any:
    from ethogram.inference.rewards import feature_rewards, policies

    if not fit.has_draws:
        return fit.result.policy
    draws = flat_draws(fit.draws(200).sites)
    model, times = fit.model, draws.get("rationality", fit.model.rationality)
    as_given = cell_noise or fit.method == "levine"
    rewards = draws["reward"] if as_given else feature_rewards(fit._key, model, draws)
    return policies(model.mdp, rewards, rationality=times, pairs=model.features.ndim == 3)


def _reward_log_densities(fit: Any, data: Any, num_draws: int) -> tuple[np.ndarray, np.ndarray]:
    from ethogram.models.mdps.demonstrations import num_experts, read_demonstrations

    fit.model.check(data)
    experts, fitted = num_experts(data), num_experts(fit.data)
    if (experts is None) != (fitted is None) or (experts or 0) > (fitted or 0):
        raise ValueError(
            f"data have {experts or 'no'} experts (subjects), and those of the fit {fitted or 'none'}: number the "
            "subjects as in the fit, or leave them out of both"
        )
    if isinstance(data, Trajectories):
        steps = read_demonstrations(fit.model.mdp, data, fit.model.check_transitions)
        known = steps.inside & (steps.action >= 0)
        counts = known.sum(1).astype(float)
    else:
        each = np.asarray(fit.model.counts(data))
        counts = each.sum(-1).astype(float)
    if fit.has_draws:
        return log_likelihood(fit, data, num_draws, counts), counts
    with np.errstate(divide="ignore", invalid="ignore"):
        log_policy = np.log(np.asarray(fit.result.policy, float))
        if isinstance(data, Trajectories):
            values = np.where(known, log_policy[steps.state * known, steps.action * known], 0)
        else:
            values = np.where(each > 0, each * log_policy, 0)
    return values.sum(1)[None], counts


def _answer(fit: Any, data: Any) -> Any:
    return fit.result.assignment


def _no_density(fit: Any, data: Any, num_draws: int) -> tuple[np.ndarray, np.ndarray]:
    raise TypeError("an assignment has no predictive density: read fit.result.log_probability")


_ROLES = System(
    methods.role_methods,
    _role_states,
    forecast_roles,
    draw=figures.draw_roles,
    num_states=lambda fit: fit.model.num_roles,
    faults=diagnose.of_roles,
    warns_of_rare_states=True,
)
_IMITATIONS = _ROLES._replace(
    states=_imitated_states,
    predict=_roll_outs,
    draw=figures.draw_imitation,
    entries=_imitated_entries,
    num_states=lambda fit: fit.result.fit.posterior.model.num_roles,
    faults=lambda fit, thorough: (),
)

SYSTEMS: Mapping[str, System] = {
    "imitation.ImitationResult": _IMITATIONS,
    "roles.CovariateRoleHMM": _ROLES._replace(
        methods=methods.covariate_methods,
        entries=effects.entries,
        predict=forecast_covariates,
        faults=effects.faults,
    ),
    "roles.RoleHMM": _ROLES,
    "intents.AgentMarkov": System(
        states=_intent_states,
        predict=_predict_actions,
        draw=figures.draw_intents,
        num_states=lambda fit: fit.model.truncation,
        faults=diagnose.of_intents,
    ),
    "choices.NoisyMDP": System(
        choice_methods,
        _no_states,
        _predict_choices,
        _choice_log_densities,
        figures.draw_choices,
        _choice_entries,
        findings=findings.of_choices,
        faults=of_choices,
    ),
    "choices.LatentClasses": System(
        class_methods,
        _no_states,
        latent_classes.predict,
        latent_classes.log_densities,
        latent_classes.draw_classes,
        latent_classes.entries,
        findings=latent_classes.findings,
        faults=latent_classes.faults,
    ),
    "rewards.GPIRL": System(
        methods.reward_methods,
        _no_states,
        _predict_policies,
        _reward_log_densities,
        figures.draw_rewards,
        _reward_entries,
        findings=findings.of_rewards,
        faults=of_rewards,
    ),
    "rewards.SwitchingGPIRL": System(
        methods.switching_methods,
        _reward_intents,
        _predict_switching,
        draw=figures.draw_switching_rewards,
        entries=_reward_entries,
        num_states=lambda fit: fit.model.num_intents,
        findings=findings.of_rewards,
        faults=diagnose.of_actions,
    ),
    "networks.MarginalMAP": System(
        methods.network_methods,
        _no_states,
        _answer,
        _no_density,
        figures.draw_answer,
        takes_data=False,
        findings=findings.of_answer,
    ),
    "conjugate_model.ConjugateModel": System(),
}
"""By subpackage and class of the model, or of the result; a class that inherits from one of these is fitted as that."""


def _kinds(value: Any) -> list[str]:
    """The classes of an object, as the table names those of this package."""
    own = [kind for kind in type(value).__mro__ if kind.__module__.startswith("ethogram.")]
    return [f"{kind.__module__.split('.')[2]}.{kind.__name__}" for kind in own]


def system_of(model: Any, result: Any = None) -> System:
    """The system of a model, or of its result where that has one of its own."""
    found = next((SYSTEMS[kind] for kind in (*_kinds(result), *_kinds(model)) if kind in SYSTEMS), None)
    if found is None:
        raise TypeError(
            f"model is {type(model).__name__}: give a RoleHMM, an AgentMarkov or another ConjugateModel, a NoisyMDP, "
            "LatentClasses, a GPIRL or SwitchingGPIRL, or a MarginalMAP query"
        )
    return found


def require_taken(fit: Any, what: str, function: Callable[..., Any], settings: Mapping[str, Any]) -> None:
    """Raise TypeError where a function of a fit, and of data or a figure, does not take these settings."""
    signature = inspect.signature(function)
    try:
        signature.bind(fit, None, **settings)
    except TypeError:
        taken = ", ".join([*signature.parameters][2:]) or "none"
        raise TypeError(
            f"{what} of a {type(fit.model).__name__} takes no {', '.join(settings)}: it takes {taken}"
        ) from None
