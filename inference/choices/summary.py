r"""Estimates with credible intervals, log likelihood, AIC and McFadden's R2 of choice models.

.. math:: \mathrm{AIC} = 2 p - 2 \ln L, \qquad R^2 = 1 - \ln L / \ln L_0, \quad
          \ln L_0 = -\sum_t \ln M_t

with ln L at its maximum, M_t the number of legal options of decision t and p the number of parameters. Akaike (1974);
McFadden (1974), "Conditional logit analysis of qualitative choice behavior", section V. Separated choices have no
maximum of the likelihood: ln L is then that of the posterior mode, or mean.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float

from ethogram.inference.choices.choice_expansion import chosen_gaps, find_mode, prior_variance
from ethogram.inference.choices.covariance_mode import covariance_mode
from ethogram.inference.choices.predictions import band_ends, parameters_of, require_noisy_mdp, theta_chains
from ethogram.inference.convergence import grouped_draws, warn_of_convergence
from ethogram.models.arguments import is_concrete
from ethogram.models.choices.choice_distribution import ChoiceDistribution
from ethogram.models.choices.choice_problem import ChoiceProblem
from ethogram.models.choices.decisions import Decisions, weights_of
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.choices.subject_values import POPULATION_AXES, population_of
from ethogram.models.printing import printed_as

__all__ = ["ChoiceSummary", "Mode", "find_choice_mode", "named_parts", "summarize_choices"]


@printed_as(str)
class Mode(NamedTuple):
    """Posterior mode of theta; the maximum likelihood estimate under a flat prior. It prints as a table.

    Attributes
    ----------
    theta : (parameter,).
    values : by site: ``v``, ``action_rewards``, ``noise_covariance``.
    deviation : (parameter,) standard deviations of the Laplace approximation: standard errors under a flat prior.
    log_likelihood : at the mode, in nats.
    names : of the values, in the order of sites: those of features and, of rewards of actions, of options.
    covariance : (value, value) of the Laplace approximation, in the order of `names`.
    refined : the log likelihood there with twice the points, where it is simulated; None elsewhere.
    """

    theta: Float[np.ndarray, "parameter"]
    values: dict[str, np.ndarray]
    deviation: Float[np.ndarray, "parameter"]
    log_likelihood: float
    names: list[str]
    covariance: Float[np.ndarray, "value value"]
    refined: float | None = None

    def to_table(self) -> Any:
        """A pandas DataFrame by name: ``estimate`` and ``sd``, the standard error under a flat prior."""
        import pandas

        estimate = np.concatenate([np.ravel(part) for part in self.values.values()])[: len(self.names)]
        return pandas.DataFrame({"estimate": estimate, "sd": np.sqrt(np.diag(self.covariance))}, self.names)

    def __str__(self) -> str:
        table = self.to_table().to_string(float_format="{:.4g}".format)
        return f"{table}\nlog likelihood {self.log_likelihood:.4f}{_simulated(self.refined)}"


def find_choice_mode(model: NoisyMDP, data: Decisions | ChoiceProblem) -> Mode:
    """The posterior mode, by Newton's method with step halving on the log posterior.

    It is concave where the noise is normal or Gumbel; in Student noise, or with lapses, the search has two starts, and
    the mode may not be the highest. A covariance of alternatives has a flat prior here, and the values have theirs: a
    large kappa gives the maximum of the likelihood, by quasi-Newton steps.

    Parameters
    ----------
    model : with a number for kappa.
    data : decisions without subjects, or what ``model.check`` returned for them.

    Raises
    ------
    ValueError
        As the model's `check`; if kappa or lapse has a prior, or decisions have subjects: joint modes with a variance
        are degenerate.
    RuntimeError
        If Newton's method does not converge in 100 steps.
    """
    problem = model.check(data)
    data = problem.data
    if (
        isinstance(model.kappa, dist.Distribution)
        or data.subject is not None
        or isinstance(model.lapse, dist.Distribution)
        or isinstance(model.nu, dist.Distribution)
    ):
        raise ValueError(
            "the posterior mode is implemented for theta alone: pass numbers for kappa, nu and lapse, and drop subject "
            "from the decisions"
        )
    if not is_concrete(data.features, data.legal, data.choice):
        raise TypeError("data are traced: pass concrete arrays")
    noise = {}
    if model.noise == "covariance":
        start = find_choice_mode(dataclasses.replace(model, noise="normal", nu=None), problem)
        theta, noise["noise_covariance"], covariance = covariance_mode(model, problem, start.theta)
        likelihood, refined = _log_likelihoods(model, {"theta": theta, **noise}, problem)
    else:
        chosen, unit = chosen_gaps(model, problem)
        expansion, found = find_mode(chosen, prior_variance(model, data, model.kappa) / unit**2)
        theta, covariance = unit * found.theta[0], np.outer(unit, unit) * np.linalg.inv(found.precision[0])
        likelihood, refined = float(expansion.value.sum() + expansion.predicted(found.theta[None])[0]), None
    parts = {name: np.asarray(part) for name, part in model.parts(theta, data).items()}
    layout, coords = model.site_layout(data)
    names = [
        str(name) if site == "v" and dim in coords else f"{site}[{name}]"
        for site, part in parts.items()
        for dim in layout[site]
        for name in coords.get(dim, range(len(part)))
    ]
    each = model.parts(np.eye(len(theta)), data)  # linear in theta
    slope = np.concatenate([np.asarray(part) for part in each.values()], axis=1)
    deviation = np.sqrt(np.diag(covariance))
    return Mode(theta, parts | noise, deviation, likelihood, names, slope.T @ covariance @ slope, refined)


def _simulated(refined: float | None) -> str:
    """What to say of a log likelihood beside that with twice the points."""
    return "" if refined is None else f", simulated by GHK ({refined:.4f} with twice the points)"


@printed_as(str)
class ChoiceSummary(NamedTuple):
    """Posterior estimates and goodness of fit; prints as a table.

    Attributes
    ----------
    names : of the parameters, from the metadata of the decisions where given; of subjects, the means and variances of
        the population come first, as far as the draws have them, then each subject's values.
    mean, deviation, lower, upper : (parameter,) of the posterior, and its central credible interval.
    ess, r_hat : (parameter,) bulk effective sample size, and R-hat, which is NaN for a single chain.
    probability : of the interval.
    log_likelihood : in nats, at the point that `evaluated_at` names.
    null_log_likelihood : of uniform choices among the legal options.
    aic, mcfadden_r2 : from these two; parameters are counted after the sum-to-zero constraints.
    num_decisions, num_parameters : the sum of weights of decisions with a known choice, and the free parameters.
    separated : a direction of the values that no choice contradicts, in words; None where the choices overlap, and
        the likelihood has a maximum.
    evaluated_at : ``"maximum"`` of the likelihood, whatever the prior; ``"posterior mode"``, of separated choices;
        ``"posterior mean"``, of separated choices where kappa has a prior, and with subjects. Likelihoods of Student
        noise and lapses may have no maximum: at the posterior mode, or the mean where lapse has a prior. The likelihood
        and R2 at the last two are below their maxima, and AIC is above its minimum.
    noise : of the utilities, in words.
    refined : the log likelihood with twice the points, where it is simulated; None elsewhere.
    """

    names: list[str]
    mean: Float[np.ndarray, "parameter"]
    deviation: Float[np.ndarray, "parameter"]
    lower: Float[np.ndarray, "parameter"]
    upper: Float[np.ndarray, "parameter"]
    ess: Float[np.ndarray, "parameter"]
    r_hat: Float[np.ndarray, "parameter"]
    probability: float
    log_likelihood: float
    null_log_likelihood: float
    aic: float
    mcfadden_r2: float
    num_decisions: float
    num_parameters: int
    separated: str | None
    evaluated_at: str
    noise: str = ""
    refined: float | None = None

    def __str__(self) -> str:
        import pandas

        columns = {"mean": self.mean, "sd": self.deviation, "lower": self.lower, "upper": self.upper}
        table = pandas.DataFrame({**columns, "ess": self.ess, "r_hat": self.r_hat}, index=self.names)
        lines = [table.to_string(float_format="{:.4g}".format, na_rep="-")]
        lines.append(
            f"{self.probability:.0%} credible intervals; {self.num_decisions:g} decisions, "
            f"{self.num_parameters} parameters, {self.noise}"
        )
        place = "its maximum" if self.evaluated_at == "maximum" else f"the {self.evaluated_at}"
        lines.append(
            f"log likelihood at {place} {self.log_likelihood:.3f} (null model {self.null_log_likelihood:.3f}), "
            f"AIC {self.aic:.3f}, McFadden's R2 {self.mcfadden_r2:.4f}{_simulated(self.refined)}"
        )
        if self.separated is not None:
            lines.append(f"separated: {self.separated}")
        return "\n".join(lines)


def summarize_choices(
    model: NoisyMDP, draws: Any, data: Decisions, *, probability: float | int = 0.9
) -> ChoiceSummary:
    """Posterior estimates with central credible intervals, log likelihood, AIC and McFadden's R2.

    Parameters
    ----------
    draws : the `MCMC` object, or its samples, grouped by chain or not, with ``theta (draw, parameter)`` or
        ``(draw, subject, parameter)``; at least two draws. R-hat needs the chains.
    data : the decisions that the model was fitted to.
    probability : of the intervals.

    Raises
    ------
    TypeError, ValueError
        If the probability is not in (0, 1), there is one draw only, or as `draws_of` and the model's `check`.

    Warns
    -----
    UserWarning
        If the draws have fewer than 100 effective samples, or chains an r_hat above 1.01.
    """
    require_noisy_mdp(model)
    ends = band_ends(probability)
    problem = model.check(data)
    data = problem.data
    chains = np.asarray(theta_chains(model, draws, problem), float)
    if chains.shape[0] * chains.shape[1] < 2:
        raise ValueError(
            "draws have one draw of theta: pass at least two, for standard deviations and intervals"
        )
    names, parts = named_parts(model, draws, chains, data)
    found = warn_of_convergence(parts)
    theta = chains.reshape(-1, *chains.shape[2:])
    flat = np.concatenate([part.reshape(len(theta), -1) for part in parts.values()], axis=1)
    lower, upper = np.percentile(flat, ends, axis=0)
    weight = weights_of(data, known=True)
    null = -float(weight @ np.log(np.asarray(data.legal).sum(-1)))
    separated = model.separation(problem)
    noise, sampled = model.choice_noise(), parameters_of(model, draws, problem)
    no_mode = isinstance(model.kappa, dist.Distribution) or len(sampled) > 1
    without_maximum, refined = separated or not noise.log_concave, None
    if data.subject is not None or (without_maximum and no_mode):
        means = {name: np.asarray(site, float).mean(0) for name, site in sampled.items()}
        place, (score, refined) = "posterior mean", _log_likelihoods(model, means, problem)
    elif without_maximum:
        place, score = "posterior mode", find_choice_mode(model, problem).log_likelihood
    else:
        own = np.inf if model.rewards == "own" else model.action_rewards
        flat_prior = dataclasses.replace(model, kappa=np.inf, action_rewards=own)
        place, score = "maximum", find_choice_mode(flat_prior, problem).log_likelihood
    size = theta[0].size + len(sampled) - 1
    return ChoiceSummary(
        names,
        flat.mean(0),
        flat.std(0, ddof=1),
        lower,
        upper,
        np.concatenate([one.ess.ravel() for one in found.values()]),
        np.concatenate([one.r_hat.ravel() for one in found.values()]),
        float(probability),
        score,
        null,
        2 * size - 2 * score,
        1 - score / null if null < 0 else 0.0,
        float(weight.sum()),
        size,
        separated,
        place,
        noise.in_words(),
        refined,
    )


def _log_likelihoods(
    model: NoisyMDP, parameters: dict[str, np.ndarray], problem: ChoiceProblem
) -> tuple[float, float | None]:
    """The log likelihood, and where it is simulated that with twice the points."""
    data, weight = problem.data, weights_of(problem.data, known=True)
    with jax.enable_x64(True):
        offered = model.likelihood(parameters, problem)
        finer = offered.noise.refined(data.legal.shape[1])
        laws = (
            [offered]
            if finer is None
            else [offered, ChoiceDistribution(offered.utilities, data.legal, finer)]
        )
        each = [np.asarray(law.log_prob(np.maximum(data.choice, 0))) for law in laws]
    found = [float(np.where(weight > 0, weight * one, 0).sum()) for one in each]
    return found[0], None if finer is None else found[1]


def named_parts(
    model: NoisyMDP, draws: Any, chains: np.ndarray, data: Decisions
) -> tuple[list[str], dict[str, np.ndarray]]:
    """Names of all estimates, and their draws (chain, draw, ...) by site, in the order of a summary.

    `chains` are theta (chain, draw, ...) of the draws, as `theta_chains` gives them. Means and variances of the
    population are first, where the draws have them.
    """
    known = grouped_draws(draws)
    sites = draws if known is None else known
    lead = chains.shape[:2]
    parts: dict[str, np.ndarray] = {}
    names: list[str] = []
    if data.subject is not None:
        known = {name: axes for name, axes in POPULATION_AXES.items() if name in sites}
        shapes = {name: (*lead, *np.shape(sites[name])[-axes:]) for name, axes in known.items()}
        population = {name: np.asarray(sites[name], float).reshape(shape) for name, shape in shapes.items()}
        parts = population_of(model, population, data)
    if "kappa" in sites:
        parts["kappa"] = np.asarray(sites["kappa"], float).reshape(*lead, *model.shape_of_kappa(data))
    for name in model.needed_sites()[1:]:
        if name in sites:
            event = sites[name].shape[-2:] if name == "noise_covariance" else ()
            parts[name] = np.asarray(sites[name], float).reshape(*lead, *event)
    parts |= {site: np.asarray(part) for site, part in model.parts(chains, data).items()}
    layout, coords = model.site_layout(data)
    for site, part in parts.items():
        dims = layout.get(site, ())
        labels = [coords.get(dim, range(count)) for dim, count in zip(dims, part.shape[2:], strict=True)]
        if dims[:1] == ("subject",):  # those that the decisions do not name are numbered
            labels[0] = [*labels[0], *range(len(labels[0]), part.shape[2])]
        names += [f"{site}[{', '.join(map(str, at))}]" if dims else site for at in itertools.product(*labels)]
    return names, parts
