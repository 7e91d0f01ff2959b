r"""How the values of subjects vary about those of their population: random coefficients.

.. math:: x_i = B z_i + \delta_i, \quad \delta_i \sim N(0, \Omega), \qquad \theta_{ik} = x_{ik} \ \text{or}\
          \pm e^{x_{ik}},

with :math:`z_i` one and the features of a subject, about their means. Coefficients that are the same for all subjects
have no :math:`\delta`. Train (2009), "Discrete choice methods with simulation", sections 6.2, 11 and 12.

Variances are given, have priors, or :math:`\Omega` is full under the prior of Huang and Wand (2013), "Simple marginally
noninformative prior distributions for covariance matrices": standard deviations are half-t with two degrees of
freedom, correlations uniform between -1 and 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.linalg import solve_triangular
from numpyro.distributions.transforms import LowerCholeskyAffine

from ethogram.models.arguments import as_list, read_reals, require_flag, require_one_of
from ethogram.models.choices.checks import namespace
from ethogram.models.choices.covariance_noise import inverse_wishart
from ethogram.models.choices.value_priors import is_flat, normal_prior, sampled_in_units
from ethogram.models.data.formulas import combined_column

__all__ = [
    "DEGREES",
    "POPULATION_AXES",
    "HuangWand",
    "SubjectValues",
    "labels_of",
    "population_coords",
    "population_of",
    "read_population",
    "read_subject_features",
    "require_rows",
    "require_subjects",
    "sample_subjects",
    "standardised",
    "subject_values",
]

LAWS = {"normal": 0, "lognormal": 1, "negative lognormal": -1}
CONSTANTS = "action_rewards"
"""The name of all rewards of actions in `random`."""
POPULATION_AXES = {"loc": 1, "slope": 2, "covariance": 2}
"""Sites that all others of the population are functions of, and their axes in one draw."""
DEGREES = 2.0
"""Of the half-t priors of standard deviations; with two, correlations are uniform."""


class HuangWand(dist.Distribution):
    r"""A covariance :math:`\Omega \sim IW(\nu + p - 1, 2 \nu\, \mathrm{diag}(1 / a))`, :math:`a_k \sim IG(1/2, 1/A^2)`.

    With the a summed out; :math:`\nu` is 2, and A the scale of the half-t priors of the standard deviations.
    """

    arg_constraints = {"scale": dist.constraints.positive}
    support = dist.constraints.positive_definite
    pytree_data_fields = ("scale",)
    pytree_aux_fields = ("count",)

    def __init__(self, count: int, scale: Any, *, validate_args: Any = None):
        self.count, self.scale = count, scale
        super().__init__((), (count, count), validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        key_rate, key_matrix = jax.random.split(key)
        shape = (*sample_shape, self.count)
        inverse = jax.random.gamma(key_rate, 0.5, shape) * self.scale**2  # of the a
        root = jnp.sqrt(2 * DEGREES * inverse)[..., None] * jnp.eye(self.count)
        return inverse_wishart(key_matrix, DEGREES + self.count - 1, root)

    def log_prob(self, value: Array) -> Array:
        """Up to a constant."""
        root = jnp.linalg.cholesky(value)
        inverse = solve_triangular(
            root, jnp.broadcast_to(jnp.eye(self.count, dtype=root.dtype), root.shape), lower=True
        )
        known = jnp.sum(inverse**2, axis=-2)  # the diagonal of the precision
        log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)), axis=-1)
        return -(DEGREES + 2 * self.count) / 2 * log_det - (DEGREES + self.count) / 2 * jnp.sum(
            jnp.log(DEGREES * known + 1 / self.scale**2), axis=-1
        )


def read_population(model: Any, rewards: str) -> dict[str, Any]:
    """The fields of a model that say how subjects differ, once they are valid: `random` as pairs of names and laws."""
    require_flag("correlated", model.correlated)
    random, features, names = _read_random(model.random), model.subject_features, None
    labels = model.subject_labels
    for name in ("subject_feature_names", "subject_labels"):
        if features is None and getattr(model, name) is not None:
            raise ValueError(
                f"{name} is given without subject_features, whose {name[8:].replace('_', ' ')} they are"
            )
    if features is not None:
        labels = labels or labels_of(features)
        features, names = read_subject_features(features, model.subject_feature_names)
        if labels is not None and len(labels) != len(features):
            raise ValueError(f"subject_labels has {len(labels)} labels for {len(features)} subjects")
    has_prior = isinstance(model.kappa, dist.Distribution)
    if model.correlated and (
        has_prior or model.kind == "tabular" or rewards == "own" or is_flat(model.kappa)
    ):
        raise ValueError(
            "correlated takes kind='features', a finite number for kappa, the squared scale of the half-t priors of "
            "standard deviations, and no variance of their own for action_rewards"
        )
    if random is not None and model.kind == "tabular":
        raise ValueError("random names features, and values of states have none: pass kind='features'")
    if not (has_prior or model.correlated) and any(law != "normal" for _, law in random or ()):
        raise ValueError(
            f"kappa is {model.kappa!r}, the variance of the logarithm of a log-normal coefficient: pass a prior, such "
            "as HalfNormal(1.0), or correlated=True"
        )
    found = {"random": random, "subject_features": features, "subject_feature_names": names}
    return found | {"subject_labels": None if labels is None else tuple(map(str, labels))}


def labels_of(table: Any) -> tuple[str, ...] | None:
    """Subjects by the index of a pandas table; None where it only counts rows, and for what has none."""
    if not hasattr(table, "iloc") or [*table.index] == [*range(len(table.index))]:
        return None
    return tuple(map(str, table.index))


def _read_random(random: Any) -> tuple[tuple[str, str], ...] | None:
    """Names of coefficients that differ among subjects, and their laws."""
    if random is None:
        return None
    listed = random.items() if isinstance(random, Mapping) else as_list("random", random, "names")
    # Pairs are those that a model has, whose copies are made from its fields.
    pairs = [one if isinstance(one, tuple) and len(one) == 2 else (one, "normal") for one in listed]
    for name, _ in pairs:
        if not isinstance(name, str):
            raise TypeError(f"random has {name!r}: name features of the decisions, or {CONSTANTS!r}")
    named = dict(pairs)
    if len(named) < len(pairs):
        raise ValueError(f"random has {', '.join(name for name, _ in pairs)}: give each name once")
    for name, law in named.items():
        require_one_of(f"random[{name!r}]", law, tuple(LAWS))
    if named.get(CONSTANTS, "normal") != "normal":
        raise ValueError(f"random[{CONSTANTS!r}] is {named[CONSTANTS]!r}: rewards of actions are normal")
    return tuple(named.items())


def read_subject_features(
    given: Any, names: Any, argument: str = "subject_features"
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Features (subject, feature) and their names, from a mapping or table of columns, or an array."""
    if hasattr(given, "to_frame") and np.ndim(given) == 1:  # a column of a table
        given = given.to_frame()
    columns = {str(name): np.asarray(given[name]) for name in given} if hasattr(given, "keys") else None
    if columns is not None:
        shapes = {each.shape for each in columns.values()}
        if len(shapes) != 1 or len(next(iter(shapes))) != 1:
            raise ValueError(
                f"{argument} has columns of shapes {sorted(shapes)}: pass one number per subject in each"
            )
        given = np.stack([*columns.values()], axis=-1)
    (found,) = read_reals(**{argument: given})
    array = np.asarray(found, float)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{argument} has shape {array.shape}: pass (subject, feature), or columns by name")
    names = tuple(columns or names or map(str, range(array.shape[1])))
    if len(names) != array.shape[1]:
        raise ValueError(f"{argument} has {len(names)} names for {array.shape[1]} features")
    for name, column in zip(names, array.T, strict=True):
        if np.ptp(column) == 0:
            raise ValueError(f"{argument}[{name!r}] is the same for all subjects: leave it out")
    apart, deviation = standardised(array)
    combined = combined_column(apart / deviation) if len(array) > array.shape[1] else None
    if combined is not None:
        raise ValueError(
            f"{argument}[{names[combined]!r}] is a combination of those before it: leave one of them out"
        )
    return array, names


class SubjectValues(NamedTuple):
    """Which parameters differ among subjects, and their laws."""

    random: np.ndarray  # (random,) places among the parameters
    signs: np.ndarray  # (parameter,): 0 of normal coefficients, and those of log-normal ones
    owner: np.ndarray  # (random,) the entry of kappa that is the variance; -1 for rewards with their own
    site: str  # that is sampled, (subject, random)

    def transformed(self, x: Any) -> Any:
        """Values of normal x (..., parameter)."""
        if not self.signs.any():
            return x
        xp = namespace(x)
        return xp.where(self.signs == 0, x, self.signs * xp.exp(xp.where(self.signs == 0, 0, x)))

    def whole(self, loc: Any, part: Any) -> Any:
        """Values (subject, parameter) from means (..., parameter) and the random part (subject, random)."""
        if self.site == "theta":
            return part
        x = jnp.broadcast_to(loc, (len(part), loc.shape[-1])).at[:, self.random].set(part)
        return self.transformed(x)

    def variance(self, kappa: Any, own: Any) -> Any:
        """Variances (random,) given kappa and that of rewards of their own."""
        xp = namespace(kappa, own)
        return xp.where(self.owner < 0, own, xp.atleast_1d(xp.asarray(kappa))[np.maximum(self.owner, 0)])


def subject_values(model: Any, data: Any) -> SubjectValues:
    """What differs among the subjects of decisions. A ValueError if `random` names what is no feature of these."""
    values, own = model.sizes(data)
    one_by_one = model.kind == "features"
    # Of each parameter its coefficient; those of the basis of states share one, and so do rewards of actions.
    coefficient = np.append(np.arange(values) * one_by_one, np.full(own, values if one_by_one else 0))
    signs, random = np.zeros(values + own, int), np.arange(values + own)
    if model.random is not None:
        given = data.metadata.feature_names or range(values)
        names = [*map(str, given), *([CONSTANTS] if own else [])]
        laws = dict(model.random)
        if unknown := [name for name in laws if name not in names]:
            raise ValueError(f"random names {', '.join(unknown)}, and the features are {', '.join(names)}")
        each = [laws.get(names[at]) for at in coefficient]
        random = np.flatnonzero([law is not None for law in each])
        signs = np.array([LAWS[law or "normal"] for law in each])
    owner = np.unique(coefficient[random], return_inverse=True)[1]
    if model.rewards == "own":
        owner = np.where(random < values, owner, -1)
    plain = len(random) == len(signs) and not signs.any()
    return SubjectValues(random, signs, owner, "theta" if plain else "theta_normal")


def sample_subjects(model: Any, problem: Any, kappa: Any) -> Any:
    """The sites of the population and of subjects in a numpyro model; theta (subject, parameter) comes back."""
    data, unit = problem.data, problem.unit
    require_rows(model, data)
    found = subject_values(model, data)
    skewed = bool(found.signs.any())
    if unit is not None and skewed:
        unit = namespace(unit).where(found.signs == 0, unit, 1.0)
    prior = normal_prior(0.0, np.array([len(found.signs)]), model.loc_kappa)
    loc = means = sampled_in_units("loc_normal" if skewed else "loc", prior, unit)
    sites: dict[str, Any] = {
        "loc": loc if not skewed else numpyro.deterministic("loc", found.transformed(loc))
    }
    if model.subject_features is not None:
        apart, deviation = standardised(model.subject_features)
        scale = jnp.sqrt(model.loc_kappa) / deviation[:, None] * jnp.ones(len(found.signs))
        prior = dist.Normal(jnp.zeros_like(scale), scale, validate_args=False).to_event(2)
        sites["slope"] = sampled_in_units("slope", prior, None if unit is None else unit / deviation[:, None])
        means = loc + apart @ sites["slope"]
    centre, count = means[..., found.random], len(found.random)
    if model.correlated:
        sites["covariance"] = numpyro.sample("covariance", HuangWand(count, jnp.sqrt(kappa)))
        root = jnp.linalg.cholesky(sites["covariance"])
        noise = dist.Normal(jnp.zeros(count), 1.0, validate_args=False).to_event(1)
        law: Any = dist.TransformedDistribution(noise, LowerCholeskyAffine(centre, root), validate_args=False)
    else:
        own = model.action_rewards if model.rewards == "own" else 1.0
        scales = namespace(kappa, own).sqrt(found.variance(kappa, own))
        law = dist.Normal(centre, scales, validate_args=False).to_event(1)
    for name, value in population_of(model, sites, data).items():
        numpyro.deterministic(name, value)
    with numpyro.plate("subject", data.num_subjects):
        theta = numpyro.sample(found.site, law)
    return theta if found.site == "theta" else numpyro.deterministic("theta", found.whole(means, theta))


def standardised(features: Any) -> tuple[Any, Any]:
    """Features (subject, feature) about their means, and their standard deviations."""
    apart = features - features.mean(0)
    return apart, namespace(features).sqrt((apart**2).mean(0))


def population_of(model: Any, sites: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """Deterministic sites of the population, given those of its mean, slopes and covariance."""
    found: dict[str, Any] = {}
    for name in ("loc", "slope"):
        if name in sites:
            found |= {f"{part}_{name}": value for part, value in model.parts(sites[name], data).items()}
    if "covariance" in sites:
        covariance, xp = sites["covariance"], namespace(sites["covariance"])
        random = subject_values(model, data).random
        features = int((random < model.sizes(data)[0]).sum())
        inside = xp.sqrt(xp.diagonal(covariance, axis1=-2, axis2=-1)[..., :features])
        found["deviation"] = inside
        if features < len(random):  # those of the rewards, from that in their basis
            basis = model.parts(np.eye(sum(model.sizes(data))), data)["action_rewards"][random[features:]]
            variance = xp.einsum("...pq,pa,qa->...a", covariance[..., features:, features:], basis, basis)
            found["deviation"] = xp.concatenate([inside, xp.sqrt(variance)], axis=-1)
        if features > 1:
            rows, columns = np.tril_indices(features, -1)
            found["correlation"] = covariance[..., rows, columns] / (inside[..., rows] * inside[..., columns])
    return found


def population_coords(model: Any, data: Any) -> dict[str, Any]:
    """Labels of the dims of the population's sites, as far as the model has these."""
    names = data.metadata
    found, (values, _) = subject_values(model, data), model.sizes(data)
    labels = [*map(str, names.feature_names or range(data.features.shape[-1])), CONSTANTS]
    coords: dict[str, Any] = {}
    if isinstance(model.kappa, dist.Distribution) and (shape := model.shape_of_kappa(data)):
        coords["coefficient"] = [labels[min(at, values)] for at in found.random[: shape[0]]]
    if model.subject_features is not None:
        coords["subject_feature"] = model.subject_feature_names
    if model.correlated:
        random = [labels[at] for at in found.random if at < values]
        rest = names.action_names or [f"action {at}" for at in range(data.legal.shape[1])]
        coords["random"] = [*random, *(rest if len(random) < len(found.random) else ())]
        basis = [f"constant {number}" for number in range(len(found.random) - len(random))]
        coords["random_parameter"] = coords["other_parameter"] = [*random, *basis]
        rows, columns = np.tril_indices(len(random), -1)
        coords["pair"] = [
            f"{random[row]}, {random[column]}" for row, column in zip(rows, columns, strict=True)
        ]
    return coords


def require_subjects(model: Any, data: Any) -> None:
    """Raise ValueError unless the decisions have the subjects and features of which a model says how they differ."""
    given = model.random is not None or model.correlated or model.subject_features is not None
    if given and data.subject is None:
        raise ValueError(
            "random, correlated and subject_features say how subjects differ, and the decisions have no subject"
        )
    if given and not len(subject_values(model, data).random):
        raise ValueError("random names no feature: name those that differ among subjects, or drop subject")
    if model.subject_features is not None and len(model.subject_features) < data.num_subjects:
        require_rows(model, data)  # held-out decisions may lack some subjects
    rows, names = model.subject_labels, data.metadata.subject_names
    if rows is not None and names is not None and rows[: len(names)] != names[: len(rows)]:
        at = next(i for i, (row, name) in enumerate(zip(rows, names, strict=False)) if row != name)
        raise ValueError(
            f"subject_features has {rows[at]!r} in row {at}, where the decisions have subject {names[at]!r}: bring the "
            "rows into the order of metadata.subject_names, such as table.loc[list(data.metadata.subject_names)]"
        )


def require_rows(model: Any, data: Any) -> None:
    """Raise ValueError unless there are features of each subject whose values are sampled, and of no others."""
    if model.subject_features is not None and len(model.subject_features) != data.num_subjects:
        raise ValueError(
            f"subject_features has {len(model.subject_features)} rows, and the decisions have {data.num_subjects} "
            "subjects: pass one row each, in the order of metadata.subject_names"
        )
