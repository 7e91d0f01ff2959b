r"""The noisy Markov decision process: a Bayesian multinomial probit, or logit, of the values of an agent.

.. math:: v \sim N(0, \kappa\,\cdot), \qquad a_t = \arg\max_{j\ \mathrm{legal}} (R_t v)_j + \epsilon_{tj}, \quad
          \epsilon_{tj} \sim N(0, 1)

With subjects, each has its own values, :math:`v_i \sim N(\mathrm{loc}, \mathrm{diag}(\kappa)\,\cdot)`, with a variance
for each weight of a feature where kappa has a prior; :mod:`~ethogram.models.choices.subject_values` has more laws.

Rows of :math:`R_t` are transition probabilities, or expected features of the next state. The unit noise variance fixes
the scale of the values; the prior fixes their level (``kind="tabular"``: they sum to zero), since adding a constant to
all states changes no choice. The noise may also be Gumbel (conditional logit) or Student t, with or without lapses.

Singh, Chopin and Whiteley, "Bayesian learning of noisy Markov decision processes": the model is eq. 3-7 and 16, rewards
of actions 4.1.1, features 4.1.2, legal actions 4.1.3. Errata: with rewards of actions the expected values carry the
discount (4.1.1); the flat prior gives a proper posterior only where choices overlap (4.1.2), and is refused elsewhere.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float
from numpyro.handlers import block, mask, scale, seed, substitute, trace

from ethogram.models.arguments import (
    is_concrete,
    read_reals,
    require_key,
    require_one_of,
    require_reals,
    warn_user,
)
from ethogram.models.choices import noises
from ethogram.models.choices.checks import namespace, require_prior
from ethogram.models.choices.choice_distribution import ChoiceDistribution, ChoiceNoise
from ethogram.models.choices.choice_problem import ChoiceProblem, near_zero, utilities_of
from ethogram.models.choices.decisions import Decisions, HostOrDevice, check_decisions, weights_of
from ethogram.models.choices.separation import Separation, find_separation, in_words
from ethogram.models.choices.subject_values import (
    population_coords,
    population_of,
    read_population,
    require_subjects,
    sample_subjects,
    subject_values,
)
from ethogram.models.choices.value_priors import (
    FlatPrior,
    is_flat,
    normal_prior,
    outweighed,
    sampled_in_units,
    sum_zero,
)
from ethogram.models.conjugate_model import Entries, Exportable
from ethogram.models.model_object import model_object, static_field
from ethogram.models.printing import short_repr

__all__ = ["NoisyMDP", "SimulatedChoices"]

KINDS = ("tabular", "features")


@short_repr
class SimulatedChoices(NamedTuple):
    """Simulated choices, and the values that generated them."""

    data: Decisions
    parameters: dict[str, Any]


@model_object
class NoisyMDP(Exportable):
    """Bayesian multinomial probit, or logit, of an agent's choices; a numpyro model.

    Sites: ``theta (parameter,)``, the values in an orthonormal basis; ``kappa`` where it has a prior; deterministic
    ``v`` (one value per state, or one weight per feature) and ``action_rewards``; ``choice`` in the plate ``decision``.
    With subjects, ``theta (subject, parameter)`` is in the plate ``subject`` around ``loc (parameter,)``, with
    deterministic ``v_loc`` and ``action_rewards_loc``; to pool subjects, drop ``subject`` from the decisions. Subjects'
    weights of features have ``kappa (coefficient,)``, one variance per feature, and one for the rewards of actions. A
    lapse probability and degrees of freedom that have priors are the sites ``lapse`` and ``nu``.

    Weights multiply the likelihood of a decision in the posterior; pointwise log likelihoods are unweighted.

    Parameters
    ----------
    kappa : prior variance of the values: a positive number, infinity for the flat prior, or a univariate numpyro
        distribution on the positive reals, with subjects that of the variance of every coefficient. The default is for
        features that differ by about 1 between options; fits warn of those for which it is too narrow.
    kind : ``"tabular"``, features are transition probabilities and the values of states sum to zero; or
        ``"features"``, features are arbitrary and v are their weights.
    action_rewards : whether each slot has a reward of its own, summing to zero over slots (alternative-specific
        constants); a number is their prior variance.
    loc_kappa : prior variance of ``loc``, the mean of the subjects' values: a finite positive number.
    beta : discount of the expected values beside rewards of actions; None for 1.
    noise : of the utilities: ``"normal"`` (multinomial probit), ``"gumbel"`` (conditional logit), ``"student"``,
        multivariate t with one scale per decision, or ``"covariance"``, normal, of labelled alternatives whose errors
        less the last's have a ``noise_covariance`` (p, p) of trace p. Scales of coefficients differ by noise.
    nu : degrees of freedom of Student noise: a number of at least 1, None for 4, or a univariate numpyro distribution
        above 1, such as ``TruncatedNormal(4.0, 8.0, low=1.0)``; or of the prior of a covariance, None for p + 2.
    lapse : probability at which a choice is made at random among the legal options: a number in [0, 1), or a
        univariate numpyro distribution on [0, 1], such as ``Beta(1, 19)``; None for no lapses.
    random : names of the features whose coefficients differ among subjects (``"action_rewards"`` for those of actions),
        others are the same for all; or by name their law: ``"normal"``, ``"lognormal"`` (above zero) or ``"negative
        lognormal"``, of whose logarithm kappa is the variance, and ``loc`` the median. None for all, normal.
    correlated : whether random coefficients are: ``covariance (random, random)`` under Huang and Wand's prior, with
        ``deviation`` and ``correlation``; kappa is the squared scale of half-t standard deviations.
    subject_features, subject_feature_names : (subject, feature) numbers, or columns by name, that move means:
        ``slope (subject_feature, parameter)`` per unit, loc_kappa the prior variance per standard deviation.
    subject_labels : subjects of the rows of `subject_features`, in the order of ``metadata.subject_names``; those of
        the index of a table where None. Decisions with other subjects are refused.

    Raises
    ------
    TypeError, ValueError
        If a variance is not positive, its prior is not univariate on the positive reals, `kind` or `noise` is
        unknown, beta is not in (0, 1], `nu` is below 1 or without Student noise, `lapse` is no probability; or if kappa
        is infinite with Student noise or lapses, whose likelihood does not vanish far out.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from numpyro.infer import Predictive
    >>> data = Decisions.from_list([np.eye(3)[:2], np.eye(3)[1:], np.eye(3)], [0, 1, 2])
    >>> drawn = Predictive(NoisyMDP(4.0), num_samples=5)(jax.random.key(0), data, condition=False)
    >>> drawn["v"].shape, drawn["choice"].shape
    ((5, 3), (5, 3))
    """

    observed_site: ClassVar[str] = "choice"

    kappa: Any = 25.0
    kind: str = static_field(default="tabular")
    action_rewards: Any = False
    beta: Any = None
    loc_kappa: Any = 25.0
    noise: str = static_field(default="normal")
    nu: Any = None
    lapse: Any = None
    random: Any = static_field(default=None)
    correlated: bool = static_field(default=False)
    subject_features: Any = None
    subject_feature_names: tuple[str, ...] | None = static_field(default=None)
    subject_labels: tuple[str, ...] | None = static_field(default=None)
    flat: bool = static_field(default=False, init=False)
    rewards: str = static_field(default="none", init=False)

    def __post_init__(self):
        require_one_of("kind", self.kind, KINDS)
        own = None if isinstance(self.action_rewards, bool) else self.action_rewards
        rewards = "own" if own is not None else "shared" if self.action_rewards else "none"
        for name in ("kappa", "loc_kappa"):
            if getattr(self, name) is None:
                raise TypeError(f"{name} is None: give a positive number")
        variances = {"kappa": self.kappa, "action_rewards": own, "loc_kappa": self.loc_kappa}
        for name, value in variances.items():
            if value is not None and not isinstance(value, dist.Distribution):
                require_reals(name, value)
                if np.ndim(value) or (is_concrete(value) and not np.asarray(value) > 0):
                    raise ValueError(
                        f"{name} must be a positive number, infinity or a distribution, not {value!r}"
                    )
        if isinstance(self.loc_kappa, dist.Distribution) or is_flat(self.loc_kappa):
            raise ValueError(f"loc_kappa must be a finite positive number, not {self.loc_kappa!r}")
        if isinstance(self.kappa, dist.Distribution):
            require_prior("kappa", self.kappa)
        if isinstance(own, dist.Distribution):
            raise TypeError(
                "action_rewards is a distribution: pass True, to share the variance kappa, or a number"
            )
        if self.beta is not None:
            require_reals("beta", self.beta)
            if np.ndim(self.beta) or (is_concrete(self.beta) and not 0 < np.asarray(self.beta) <= 1):
                raise ValueError(f"beta must be a number in (0, 1], not {self.beta!r}")
        flat = is_flat(self.kappa)
        if own is not None and is_flat(own) != flat:
            raise ValueError(
                f"kappa is {self.kappa!r}, action_rewards {own!r}: make both finite, or both infinite"
            )
        nu, lapse = noises.read_noise(self.noise, self.nu, self.lapse, flat)
        found = {"nu": nu, "lapse": lapse, "flat": flat, "rewards": rewards, **read_population(self, rewards)}
        for name, value in found.items():
            object.__setattr__(self, name, value)

    def __call__(self, data: Decisions | ChoiceProblem, *, condition: bool = True) -> None:
        """Sample values, and choices given values; ``condition=False`` samples the choices too.

        Concrete data are checked; traced data, and a problem that `check` returned, are not.

        Raises
        ------
        TypeError, ValueError
            As `check_decisions`; if transition probabilities do not sum to one, the model has no parameter, there is
            no choice to learn from, or the prior is flat and the choices do not overlap.
        NotImplementedError
            If values have to be sampled from a flat prior.
        """
        problem = self.check(data, condition)
        data = problem.data
        kappa = self.kappa
        if isinstance(kappa, dist.Distribution):
            shape = self.shape_of_kappa(data)
            kappa = numpyro.sample("kappa", kappa.expand(shape).to_event(len(shape)) if shape else kappa)
        if data.subject is None:
            theta = sampled_in_units("theta", self._prior(kappa, data), problem.unit)
        else:
            theta = sample_subjects(self, problem, kappa)
        for name, value in self.parts(theta, data).items():
            numpyro.deterministic(name, value)
        own = {name: numpyro.sample(name, prior) for name, prior in noises.noise_priors(self, data).items()}
        offered = self.likelihood({"theta": theta, **own}, problem)
        offers = numpyro.plate("decision", data.num_decisions)
        if not condition:
            with offers:
                numpyro.sample("choice", offered)
            return
        xp = namespace(data.choice, data.weight)
        weight = xp.ones(data.choice.shape) if data.weight is None else xp.asarray(data.weight, float)
        counts = (data.choice >= 0) & (weight > 0)
        with offers, mask(mask=counts), scale(scale=xp.where(counts, weight, 1.0)):
            numpyro.sample("choice", offered, obs=data.choice)

    def entries(self, data: Decisions | ChoiceProblem) -> Entries:
        """The choices, one entry per decision, and the problem without names."""
        problem = self.check(data, condition=False)
        return Entries(problem.data.choice, problem.without_names(self.random is not None), unit="decision")

    def likelihood(self, parameters: dict[str, Any], batch: ChoiceProblem) -> ChoiceDistribution:
        """Distribution of the choices at `needed_sites`, whatever the weights of the decisions."""
        utilities = utilities_of(parameters["theta"], batch)
        return ChoiceDistribution(utilities, batch.data.legal, self.choice_noise(parameters))

    def choice_noise(self, parameters: dict[str, Any] | None = None) -> ChoiceNoise:
        """The noise of utilities, with the parameters that have priors at these values."""
        return noises.make_noise(self, parameters)

    def needed_sites(self) -> tuple[str, ...]:
        """Theta, of which all other values are functions, and what of the noise has a prior."""
        return ("theta", *noises.noise_sites(self))

    def informative_steps(self, data: Decisions) -> Bool[np.ndarray, "decision"]:
        """Which decisions have a known choice and a weight."""
        return np.asarray(weights_of(data, known=True)) > 0

    def simulate(
        self, key: Array, decisions: Decisions, parameters: dict[str, Any] | None = None
    ) -> SimulatedChoices:
        """Choices simulated from the choice sets of given decisions, with the values behind them.

        Parameters
        ----------
        key : a typed key.
        decisions : choice sets, and subjects; their choices and weights are ignored.
        parameters : by site, ``theta (parameter,)``, or ``(subject, parameter)``; or ``v`` and, in a model with them,
            ``action_rewards``, which are centred where they sum to zero; ``lapse`` and ``nu``, where they have priors.
            Sampled from the prior where None.

        Returns
        -------
        SimulatedChoices
            `data`, the decisions with their choices, and `parameters` by site, ``theta`` and its deterministic parts.

        Examples
        --------
        >>> import jax, numpy as np
        >>> offered = Decisions.from_list([np.eye(3)] * 5)
        >>> made = NoisyMDP(4.0).simulate(jax.random.key(0), offered, {"v": np.array([0.0, 60.0, 0.0])})
        >>> made.data.choice.tolist()
        [1, 1, 1, 1, 1]
        """
        require_key(key)
        problem = self.check(decisions, condition=False)
        data = problem.data
        values = dict(parameters or {})
        given = noises.given_noise(self, values, data)
        given |= {} if parameters is None else {"theta": self._theta(values, data)}
        if data.subject is not None or "theta" not in given:
            require_subjects(self, data)
        if self.flat and not given:
            raise ValueError("kappa is infinite, and a flat prior cannot be sampled: pass parameters")
        drawn = _drawn(self, key, given, problem.without_names(self.random is not None))
        chosen = data._replace(choice=np.asarray(drawn.pop("choice")))
        # Parameters that were passed do not come from the variance and mean sampled beside them.
        kept = {name: drawn[name] for name in self.needed_sites()}
        parameters = {**kept, **self.parts(kept["theta"], data)} if given else drawn
        return SimulatedChoices(chosen, parameters)

    def _theta(self, parameters: dict[str, Any], data: Decisions) -> Array:
        """Theta from parameters by site."""
        sites = {"v": data.features.shape[-1]}
        if self.rewards != "none":
            sites["action_rewards"] = data.legal.shape[1]
        sizes = {"theta": sum(self.sizes(data))} if "theta" in parameters else sites
        if set(parameters) != set(sizes):
            raise ValueError(f"parameters are {sorted(parameters)}: pass theta, or {' and '.join(sites)}")
        subjects, found = () if data.subject is None else (data.num_subjects,), []
        for name, size in sizes.items():
            (value,) = read_reals(**{name: parameters[name]})
            if value.shape != (*subjects, size):
                raise ValueError(f"parameters[{name!r}] has shape {value.shape}, not {(*subjects, size)}")
            summing = name == "action_rewards" or (name == "v" and self.kind == "tabular")
            found.append(value @ sum_zero(size).astype(value.dtype) if summing else value)
        return jnp.concatenate(found, axis=-1)

    def utilities(
        self, theta: Any, data: Decisions | ChoiceProblem
    ) -> Float[HostOrDevice, "decision option"]:
        """Utilities given theta (parameter,), or (subject, parameter); zero for options that are not legal."""
        problem = data if isinstance(data, ChoiceProblem) else ChoiceProblem(data, self.design(data))
        found = utilities_of(theta, problem)
        return jax.device_put(found) if isinstance(found, np.ndarray) else found

    def check(self, data: Decisions | ChoiceProblem | Any, condition: bool = True) -> ChoiceProblem:
        """The decisions and their design, once they are valid for this model; see :meth:`__call__`.

        Traced decisions are let through, and so is a problem that was returned before. Concrete arrays are moved to
        the host.
        """
        if isinstance(data, ChoiceProblem):
            return data
        data = check_decisions(data)
        if data.subject is not None and self.flat:
            raise ValueError(
                "kappa is infinite, and data have subjects, whose values have a common mean: pass a finite kappa or "
                "a distribution, or drop subject"
            )
        if condition:
            require_subjects(self, data)
        if sum(self.sizes(data)) == 0:
            raise ValueError(
                f"features has shape {data.features.shape}: values of kind {self.kind!r} have no free parameter "
                '(those of states sum to zero); pass more than one state, or kind="features"'
            )
        if not is_concrete(*jax.tree.leaves(data)):
            return ChoiceProblem(data, self.design(data))
        data = jax.tree.map(np.asarray, data)
        if self.kind == "tabular":
            sums = np.where(data.legal, data.features.sum(-1, dtype=float), 1.0)
            wrong = np.argwhere(np.abs(sums - 1) > (1e-6 if data.features.dtype == np.float64 else 1e-4))
            if len(wrong):
                at = tuple(wrong[0].tolist())
                raise ValueError(
                    f"features{list(at)} sum to {sums[at]:.6g}, not 1: tabular values need transition probabilities; "
                    'use kind="features" for other features'
                )
        if condition and not ((data.legal.sum(-1) > 1) & (weights_of(data, known=True) > 0)).any():
            raise ValueError(
                "no decision has two legal options and a known choice: the data are uninformative; add such decisions"
            )
        noises.check_labels(self, data, condition)
        design = self.design(data)
        problem = ChoiceProblem(
            data, near_zero(np.asarray(design), data.legal) if is_concrete(design) else design
        )
        if condition and self.flat and (found := self.separation(problem)) is not None:
            raise ValueError(
                f"kappa is infinite, and {found}: the posterior is improper. Pass a finite kappa, or more decisions"
            )
        return problem

    def warn_of_separation(self, problem: ChoiceProblem) -> None:
        """Warn, where samplers start, of a direction along which the data leave the prior unbounded or unchanged."""
        if not self.flat and (found := self.separation(problem)) is not None:
            warn_user(f"{found}: only the prior bounds the values along it")

    def warn_of_prior(self, problem: ChoiceProblem) -> None:
        """Warn, where samplers start, of features that vary so little that the prior outweighs the data."""
        several = problem.data.subject is not None
        name, variance = ("loc_kappa", self.loc_kappa) if several else ("kappa", self.kappa)
        if self.kind == "tabular" or self.flat or isinstance(variance, dist.Distribution):
            return
        if listed := outweighed(problem, variance):
            warn_user(
                f"the prior outweighs the data on features that hardly differ between options: {listed}; the prior's "
                f"standard deviation of a coefficient, {math.sqrt(variance):.3g}, leaves them little effect on "
                f"utilities; scale such columns to a standard deviation near 1, or pass a larger {name}"
            )

    def design(self, data: Decisions) -> Float[HostOrDevice, "decision option parameter"]:
        """Design of the decisions: utilities are ``design @ theta``."""
        xp = namespace(data.features, self.beta)
        features = data.features if self.beta is None else data.features * self.beta
        if self.kind == "tabular":
            features = features @ sum_zero(features.shape[-1]).astype(features.dtype)
        if self.rewards == "none":
            return features
        own = sum_zero(features.shape[1]).astype(features.dtype)
        return xp.concatenate([features, xp.broadcast_to(own, (*features.shape[:2], own.shape[1]))], axis=-1)

    def parts(self, theta: Any, data: Decisions) -> dict[str, Any]:
        """Values ``v (..., state or feature)``, ``action_rewards (..., option)`` given theta (..., parameter)."""
        split, own = self.sizes(data)
        parts = {"v": theta[..., :split]}
        if self.kind == "tabular":
            parts["v"] = parts["v"] @ sum_zero(split + 1).T.astype(theta.dtype)
        if self.rewards != "none":
            parts["action_rewards"] = theta[..., split:] @ sum_zero(own + 1).T.astype(theta.dtype)
        return parts

    def with_parts(self, sites: dict[str, Any], data: Decisions) -> dict[str, Any]:
        """Sampled sites (..., parameter) with the deterministic ones, those of the population first."""
        first = {name: site for name, site in sites.items() if name != "theta"}
        theta = sites["theta"]
        return {**first, **population_of(self, sites, data), "theta": theta, **self.parts(theta, data)}

    def sizes(self, data: Decisions) -> tuple[int, int]:
        """Number of parameters of the values, and of the rewards of actions."""
        own = 0 if self.rewards == "none" else data.legal.shape[1] - 1
        return data.features.shape[-1] - (self.kind == "tabular"), own

    def shape_of_kappa(self, data: Decisions) -> tuple[int, ...]:
        """Shape of kappa where it has a prior: (coefficient,) for subjects' weights of several features, else ().

        The basis of values of states is arbitrary, and they share one variance; so do the rewards of actions.
        """
        if data.subject is None:
            return ()
        count = int(subject_values(self, data).owner.max(initial=-1)) + 1
        return (count,) if count > 1 else ()

    def variances(self, kappa: Any, data: Decisions) -> tuple[np.ndarray, Any, Any]:
        """Numbers of values and of rewards of actions, and the prior variances of both."""
        several = np.ndim(kappa) > 0
        own = self.action_rewards if self.rewards == "own" else kappa[-1] if several else kappa
        return np.array(self.sizes(data)), kappa[: data.features.shape[-1]] if several else kappa, own

    def site_layout(self, data: Decisions | None) -> tuple[dict[str, tuple[str, ...]], dict[str, Any]]:
        """Dims of every site, and their coords; without data, those of a single subject."""
        value = "state" if self.kind == "tabular" else "feature"
        dims: dict[str, tuple[str, ...]] = {
            "theta": ("parameter",), "v": (value,), "action_rewards": ("action",), "choice": ("decision",),
            "loc": ("parameter",), "v_loc": (value,), "action_rewards_loc": ("action",),
            "slope": ("subject_feature", "parameter"), "v_slope": ("subject_feature", value),
            "action_rewards_slope": ("subject_feature", "action"), "deviation": ("random",), "correlation": ("pair",),
            "noise_covariance": ("alternative", "other_alternative"),
            "covariance": ("random_parameter", "other_parameter"),
        }  # fmt: skip
        if data is None:
            return dims, {}
        names = data.metadata
        coords = {value: names.feature_names, "action": names.action_names}
        if self.kind == "features" and names.feature_names is not None:
            coords["parameter"] = [
                *names.feature_names,
                *map("constant {}".format, range(self.sizes(data)[1])),
            ]
        coords |= dict.fromkeys(dims["noise_covariance"], (names.action_names or ())[:-1] or None)
        if data.subject is not None:
            dims |= {site: ("subject", *dims[site]) for site in ("theta", "v", "action_rewards")}
            coords["subject"] = names.subject_names
            coords |= population_coords(self, data)
            if "coefficient" in coords:
                dims["kappa"] = ("coefficient",)
        return dims, {dim: labels for dim, labels in coords.items() if labels is not None}

    def _prior(self, kappa: Any, data: Decisions) -> dist.Distribution:
        if self.flat:
            return FlatPrior(dist.constraints.real_vector, (), (sum(self.sizes(data)),))
        return normal_prior(0.0, *self.variances(kappa, data))

    def separation(self, data: Decisions | ChoiceProblem) -> str | None:
        """A direction of the values that no choice contradicts, in words; None where the choices overlap.

        Along it the likelihood never falls: under a flat prior the posterior is improper, and under a proper one only
        the prior bounds the values. Subjects are pooled: what separates all of them separates each.
        """
        made, found = self.separating(data)
        if found is None:
            return None
        return in_words(found, self.parts(found.direction, made))

    def separating(self, data: Decisions | ChoiceProblem) -> tuple[Decisions, Separation | None]:
        """The decisions on the host, and a direction of theta that no choice of them contradicts."""
        known, design = data[:2] if isinstance(data, ChoiceProblem) else (data, None)
        made: Decisions = jax.tree.map(np.asarray, known)
        design = self.design(made) if design is None else design
        choice = np.where(weights_of(made) > 0, made.choice, -1)
        return made, find_separation(np.asarray(design, float), np.asarray(made.legal), choice)


@jax.jit
def _drawn(model: NoisyMDP, key: Array, given: dict[str, Any], problem: ChoiceProblem) -> dict[str, Any]:
    """Values of all sites, with those given in place of draws."""
    with block():
        sites = trace(seed(substitute(model, data=given), key)).get_trace(problem, condition=False)
    return {name: site["value"] for name, site in sites.items() if site["type"] != "plate"}
