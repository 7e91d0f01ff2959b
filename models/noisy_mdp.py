r"""The noisy Markov decision process: values of an agent that maximises them up to Gaussian noise.

.. math:: v \sim N(0, \kappa\,\cdot), \qquad a_t = \arg\max_{j\ \mathrm{legal}} (R_t v)_j + \epsilon_{tj}, \quad
          \epsilon_{tj} \sim N(0, 1)

Where decisions have subjects, each has values of its own, :math:`v_i \sim N(\mathrm{loc}, \kappa\,\cdot)`.

Rows of :math:`R_t` are the probabilities of the next states, or the features expected there. Noise of variance one
fixes the scale of the values; their level is fixed by the prior (``kind="tabular"``: they sum to zero), since adding
a constant to all states changes no choice.

Singh, Chopin and Whiteley, "Bayesian learning of noisy Markov decision processes", sections 2 and 4.1. Printed there
and built otherwise: with rewards of actions the expected values carry the discount (4.1.1); the flat prior is proper
only where choices overlap (4.1.2), and is refused elsewhere.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.handlers import block, mask, scale, seed, substitute, trace
from scipy.linalg import helmert

from ethogram.models.blocks.conjugate_block import is_concrete, read_reals, require_reals
from ethogram.models.choice import ProbitChoice
from ethogram.models.decisions import Decisions, check_decisions, require_key, weights_of
from ethogram.models.model_object import model_object, static_field
from ethogram.models.separation import separation_once

__all__ = ["FlatPrior", "NoisyMDP", "SimulatedChoices"]

KINDS = ("tabular", "features")


class FlatPrior(dist.ImproperUniform):
    """The flat law of values, which has a density to learn with and no draws."""

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """Raises NotImplementedError, as samplers that look for a place to start expect."""
        raise NotImplementedError(
            "kappa is infinite, and a flat prior has no draws: give a finite kappa, or values, such as those of a "
            "posterior in Predictive(model, samples)"
        )


class SimulatedChoices(NamedTuple):
    """Simulated choices, and the values behind them."""

    data: Decisions
    parameters: dict[str, Any]


@model_object
class NoisyMDP:
    """Bayesian multinomial probit of an agent's choices; a numpyro model.

    Sites: ``theta (parameter,)``, values in an orthonormal basis; ``kappa`` where it has a prior; deterministic ``v``
    (a value a state, or a weight a feature) and ``action_rewards``; ``choice`` in the plate ``decision``. Where the
    decisions have subjects, ``theta (subject, parameter)`` stands in the plate ``subject`` about ``loc (parameter,)``,
    with deterministic ``v_loc`` and ``action_rewards_loc``; to pool subjects, leave ``subject`` out of the decisions.

    Where decisions have weights, each counts so often in the posterior; log likelihoods are those of a decision that
    is made once.

    Parameters
    ----------
    kappa : variance of the values: a number above 0, infinity for the flat prior, or a numpyro distribution of one
        number above 0.
    kind : ``"tabular"``, options have the probabilities of next states for features, and values sum to zero; or
        ``"features"``, they have features of any kind, and v are weights.
    action_rewards : whether options have a reward of their own, by slot and summing to zero, also known as constants
        of the alternatives; a number is its variance.
    loc_kappa : variance of ``loc``, what the values of subjects lie about: a finite number above 0.
    beta : discount of the expected values beside rewards of actions; 1 where None.

    Raises
    ------
    TypeError, ValueError
        If a variance is not above 0, or its prior not of one number above 0, `kind` is neither, or beta is not in
        (0, 1].

    Examples
    --------
    >>> import jax, numpy as np
    >>> from numpyro.infer import Predictive
    >>> data = Decisions.from_list([np.eye(3)[:2], np.eye(3)[1:], np.eye(3)], [0, 1, 2])
    >>> drawn = Predictive(NoisyMDP(4.0), num_samples=5)(jax.random.key(0), data, condition=False)
    >>> drawn["v"].shape, drawn["choice"].shape
    ((5, 3), (5, 3))
    """

    kappa: Any = 25.0
    kind: str = static_field(default="tabular")
    action_rewards: Any = False
    beta: Any = None
    loc_kappa: Any = 25.0
    flat: bool = static_field(default=False, init=False)
    rewards: str = static_field(default="none", init=False)

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {KINDS}, not {self.kind!r}")
        rewards = "own"
        if isinstance(self.action_rewards, bool):
            rewards = "shared" if self.action_rewards else "none"
        own = self.action_rewards if rewards == "own" else None
        if isinstance(self.loc_kappa, dist.Distribution) or _is_flat(self.loc_kappa):
            raise ValueError(f"loc_kappa must be a finite variance above 0, not {self.loc_kappa!r}")
        variances = {"kappa": self.kappa, "action_rewards": own, "loc_kappa": self.loc_kappa}
        for name, value in variances.items():
            if value is not None and not isinstance(value, dist.Distribution):
                require_reals(name, value)
                if np.ndim(value) or (is_concrete(value) and not value > 0):
                    raise ValueError(
                        f"{name} must be a variance above 0, infinity or a distribution, not {value!r}"
                    )
        if isinstance(self.kappa, dist.Distribution):
            _check_prior("kappa", self.kappa)
        if isinstance(own, dist.Distribution):
            raise TypeError("action_rewards is a distribution: give True, for that of kappa, or a number")
        if self.beta is not None:
            require_reals("beta", self.beta)
            if np.ndim(self.beta) or (is_concrete(self.beta) and not 0 < self.beta <= 1):
                raise ValueError(f"beta must be a number in (0, 1], not {self.beta!r}")
        flat = _is_flat(self.kappa)
        if own is not None and _is_flat(own) != flat:
            raise ValueError(
                f"kappa is {self.kappa!r}, action_rewards {own!r}: give both a finite variance, or neither"
            )
        object.__setattr__(self, "flat", flat)
        object.__setattr__(self, "rewards", rewards)

    def __call__(self, data: Decisions, *, condition: bool = True) -> None:
        """Sample values, and choices given them; ``condition=False`` draws the choices too.

        Raises
        ------
        TypeError, ValueError
            As `check_decisions`; if probabilities of next states do not sum to one, there is no parameter, or no
            choice to learn from; or if the prior is flat and some direction is contradicted by no choice. What is
            traced is not checked.
        NotImplementedError
            If values are to be drawn from a flat prior.
        """
        data = self.check(data, condition)
        kappa = self.kappa
        if isinstance(kappa, dist.Distribution):
            kappa = numpyro.sample("kappa", kappa)
        if data.subject is None:
            theta = numpyro.sample("theta", self._prior(0.0, kappa, data))
        else:
            zero = jnp.zeros(sum(self.sizes(data)))
            loc = numpyro.sample("loc", dist.Normal(zero, jnp.sqrt(self.loc_kappa)).to_event(1))
            for name, value in self.parts(loc, data).items():
                numpyro.deterministic(f"{name}_loc", value)
            with numpyro.plate("subject", data.num_subjects):
                theta = numpyro.sample("theta", self._prior(loc, kappa, data))
        for name, value in self.parts(theta, data).items():
            numpyro.deterministic(name, value)
        offered = ProbitChoice(self.utilities(theta, data), data.legal)
        choice = jnp.asarray(data.choice)
        if not condition:
            with numpyro.plate("decision", choice.shape[0]):
                numpyro.sample("choice", offered)
            return
        weight = jnp.ones(choice.shape) if data.weight is None else jnp.asarray(data.weight, float)
        counts = (choice >= 0) & (weight > 0)
        with (
            numpyro.plate("decision", choice.shape[0]),
            mask(mask=counts),
            scale(scale=jnp.where(counts, weight, 1)),
        ):
            numpyro.sample("choice", offered, obs=choice)

    def simulate(
        self, key: Any, decisions: Decisions, parameters: dict[str, Any] | None = None
    ) -> SimulatedChoices:
        """Choices among the options of given decisions, with the values behind them.

        Parameters
        ----------
        key : a typed key.
        decisions : options to choose from, and subjects; what was chosen is not looked at, and a decision is made once
            whatever its weight.
        parameters : by site, ``theta (parameter,)``, or ``(subject, parameter)``; or ``v`` and, in a model with them,
            ``action_rewards``, whose level counts for nothing where they sum to zero. Drawn from the prior where None.

        Returns
        -------
        SimulatedChoices
            `data`, the decisions with their choices, and `parameters` by site, ``theta`` and what follows from it.

        Raises
        ------
        TypeError, ValueError
            If the key is not typed, the prior is flat and there are no parameters, these do not fit the decisions, or
            as :meth:`check`.

        Examples
        --------
        >>> import jax, numpy as np
        >>> offered = Decisions.from_list([np.eye(3)] * 5)
        >>> made = NoisyMDP(4.0).simulate(jax.random.key(0), offered, {"v": np.array([0.0, 60.0, 0.0])})
        >>> made.data.choice.tolist()
        [1, 1, 1, 1, 1]
        """
        require_key(key)
        data = self.check(decisions, condition=False)
        given = {} if parameters is None else {"theta": self._theta(parameters, data)}
        if self.flat and not given:
            raise ValueError("kappa is infinite, and a flat prior has no draws: give parameters")
        with block():
            sites = trace(seed(substitute(self, data=given), key)).get_trace(data, condition=False)
        drawn = {name: site["value"] for name, site in sites.items() if site["type"] != "plate"}
        chosen = data._replace(choice=np.asarray(drawn.pop("choice")))
        # What was given has not come from the variance and the mean that were drawn beside it.
        told = {**given, **self.parts(given["theta"], data)} if given else drawn
        return SimulatedChoices(chosen, told)

    def _theta(self, parameters: dict[str, Any], data: Decisions) -> Array:
        """Theta of parameters by site."""
        sites = {"v": data.features.shape[-1]}
        if self.rewards != "none":
            sites["action_rewards"] = data.legal.shape[1]
        sizes = {"theta": sum(self.sizes(data))} if "theta" in parameters else sites
        if set(parameters) != set(sizes):
            raise ValueError(f"parameters are {sorted(parameters)}: give theta, or {' and '.join(sites)}")
        subjects, found = () if data.subject is None else (data.num_subjects,), []
        for name, size in sizes.items():
            (value,) = read_reals(**{name: parameters[name]})
            if value.shape != (*subjects, size):
                raise ValueError(f"parameters[{name!r}] has shape {value.shape}, not {(*subjects, size)}")
            summing = name == "action_rewards" or (name == "v" and self.kind == "tabular")
            found.append(value @ _sum_zero(size).astype(value.dtype) if summing else value)
        return jnp.concatenate(found, axis=-1)

    def utilities(self, theta: Any, data: Decisions) -> Array:
        """Utilities (decision, option) of theta (parameter,), or (subject, parameter); zero where not legal."""
        # What is not legal may be NaN, whose gradient is NaN even where it is masked later.
        design = jnp.where(jnp.asarray(data.legal)[..., None], jnp.asarray(self.design(data)), 0)
        if data.subject is None:
            return design @ theta
        return jnp.einsum("dop,dp->do", design, theta[jnp.asarray(data.subject)], precision="highest")

    def check(self, data: Any, condition: bool = True) -> Decisions:
        """The decisions, once they are found in order for this model; see :meth:`__call__`."""
        data = check_decisions(data)
        if data.subject is not None and self.flat:
            raise ValueError(
                "kappa is infinite, and data have subjects, whose values lie about common ones: give a finite kappa or "
                "a distribution, or leave subject out"
            )
        if sum(self.sizes(data)) == 0:
            raise ValueError(
                f"features has shape {data.features.shape}: values of kind {self.kind!r} then have no parameter (those "
                "of states sum to zero), and there is nothing to learn"
            )
        if not is_concrete(*jax.tree.leaves(data)):
            return data
        if self.kind == "tabular":
            sums = np.where(data.legal, np.asarray(data.features).sum(-1, dtype=float), 1.0)
            coarse = np.asarray(data.features).dtype != np.float64
            wrong = np.argwhere(np.abs(sums - 1) > (1e-4 if coarse else 1e-6))
            if len(wrong):
                at = tuple(wrong[0].tolist())
                raise ValueError(
                    f"features{list(at)} sum to {sums[at]:.6g}, not 1: tabular values take probabilities of the next "
                    'states; use kind="features" for others'
                )
        several = np.asarray(data.legal).sum(-1) > 1
        if condition and not (several & (weights_of(data, known=True) > 0)).any():
            raise ValueError(
                "no decision has two legal options and a known choice: nothing is learned from these data"
            )
        if condition and self.flat and (found := self.separation(data)) is not None:
            raise ValueError(
                f"kappa is infinite, and {found}: there is no posterior. Give a finite kappa, or more decisions"
            )
        return data

    def design(self, data: Decisions) -> Any:
        """Utilities are ``design @ theta``: (decision, option, parameter)."""
        xp = np if is_concrete(data.features) and isinstance(data.features, np.ndarray) else jnp
        features = data.features if self.beta is None else data.features * self.beta
        if self.kind == "tabular":
            features = features @ _sum_zero(features.shape[-1]).astype(features.dtype)
        if self.rewards == "none":
            return features
        own = _sum_zero(features.shape[1]).astype(features.dtype)
        return xp.concatenate([features, xp.broadcast_to(own, (*features.shape[:2], own.shape[1]))], axis=-1)

    def parts(self, theta: Any, data: Decisions) -> dict[str, Any]:
        """Values ``v (..., state or feature)``, ``action_rewards (..., option)`` of theta (..., parameter)."""
        count = data.features.shape[-1]
        if self.kind == "tabular":
            split = count - 1
            parts = {"v": theta[..., :split] @ _sum_zero(count).T.astype(theta.dtype)}
        else:
            split = count
            parts = {"v": theta[..., :split]}
        if self.rewards != "none":
            parts["action_rewards"] = theta[..., split:] @ _sum_zero(data.legal.shape[1]).T.astype(
                theta.dtype
            )
        return parts

    def sizes(self, data: Decisions) -> tuple[int, int]:
        """Number of parameters of the values, and of rewards of actions."""
        own = 0 if self.rewards == "none" else data.legal.shape[1] - 1
        return data.features.shape[-1] - (self.kind == "tabular"), own

    def site_layout(self, data: Decisions | None) -> tuple[dict[str, tuple[str, ...]], dict[str, Any]]:
        """Names of the axes of every site, and of what stands on them; without data, those of one subject."""
        value = "state" if self.kind == "tabular" else "feature"
        dims: dict[str, tuple[str, ...]] = {
            "theta": ("parameter",), "v": (value,), "action_rewards": ("action",), "choice": ("decision",),
            "loc": ("parameter",), "v_loc": (value,), "action_rewards_loc": ("action",),
        }  # fmt: skip
        if data is None:
            return dims, {}
        names = data.metadata
        coords = {value: names.feature_names, "action": names.action_names}
        if data.subject is not None:
            dims |= {site: ("subject", *dims[site]) for site in ("theta", "v", "action_rewards")}
            coords["subject"] = names.subject_names
        return dims, {dim: labels for dim, labels in coords.items() if labels is not None}

    def _prior(self, loc: Any, kappa: Any, data: Decisions) -> dist.Distribution:
        values, own = self.sizes(data)
        variance = self.action_rewards if self.rewards == "own" else kappa
        if self.flat:
            return FlatPrior(dist.constraints.real_vector, (), (values + own,))
        variances = jnp.concatenate([jnp.full(values, kappa, float), jnp.full(own, variance, float)])
        return dist.Normal(loc, jnp.sqrt(variances)).to_event(1)

    def separation(self, data: Decisions) -> str | None:
        """Where the choices leave some direction of the values uncontradicted: that direction in words; else None.

        A flat prior then has no posterior, and under another one the prior alone says how far the values go.
        Decisions of several subjects are taken together: what separates them all separates each.
        """
        data = jax.tree.map(np.asarray, data)
        design = np.asarray(self.design(data), float)
        choice = np.where(weights_of(data) > 0, data.choice, -1)
        found = separation_once(design, np.asarray(data.legal), choice)
        if found is None:
            return None
        parts = {name: np.asarray(part) for name, part in self.parts(found.direction, data).items()}
        told = "; ".join(
            f"{name} + c * {np.array2string(part, precision=3, threshold=12)}" for name, part in parts.items()
        )
        agreeing = np.flatnonzero(found.agreeing)
        said = f"decisions {_some(agreeing)} agree with it" if len(agreeing) else "no option differs along it"
        return f"the data say nothing against {told} for any c > 0 ({said}, none speaks against)"


def _is_flat(variance: Any) -> bool:
    return not isinstance(variance, dist.Distribution) and is_concrete(variance) and bool(np.isinf(variance))


def _check_prior(name: str, prior: dist.Distribution) -> None:
    """Raise ValueError unless a distribution is of one number above zero."""
    if prior.batch_shape or prior.event_shape:
        raise ValueError(
            f"{name} has a prior with batch shape {prior.batch_shape} and event shape {prior.event_shape}: give the "
            "distribution of one number"
        )
    support = prior.support
    least = getattr(support, "lower_bound", None)
    if least is None or support.is_discrete or (is_concrete(least) and not np.all(np.asarray(least) >= 0)):
        raise ValueError(
            f"{name} has a prior with support {support}: give a distribution of numbers above 0, such as HalfNormal"
        )


@functools.lru_cache(maxsize=32)
def _sum_zero(count: int) -> np.ndarray:
    """Orthonormal basis (count, count - 1) of the vectors that sum to zero."""
    return helmert(count).T if count > 1 else np.zeros((1, 0))


def _some(numbers: np.ndarray) -> str:
    return ", ".join(map(str, numbers[:5])) + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")
