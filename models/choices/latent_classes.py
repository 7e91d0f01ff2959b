r"""Latent classes of choosers: every subject is of one of a few classes, each with values of its own.

.. math:: p(a \mid s) = \sum_c \pi_c(x_s) \prod_{t\ \mathrm{of}\ s} P(a_t \mid \theta_c)^{w_t}, \qquad
          \pi_c(x) = \frac{e^{\gamma_c' (1, x)}}{\sum_b e^{\gamma_b' (1, x)}}

Classes are summed out. The :math:`\gamma` sum to zero over classes and are normal, so that the prior is the same in
any order of the classes: the log odds of each class against another have the variance `membership_kappa`, at the mean
of the features and per standard deviation of them. Which class is the first is decided after a fit, by their shares.

Train (2009), "Discrete choice methods with simulation", section 6.2; Greene and Hensher (2003), "A latent class
model for discrete choice analysis: contrasts with mixed logit".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, Int
from numpyro.distributions import constraints

from ethogram.models.arguments import is_concrete, require_integer, require_number
from ethogram.models.choices.checks import namespace
from ethogram.models.choices.choice_distribution import ChoiceDistribution
from ethogram.models.choices.choice_problem import ChoiceProblem
from ethogram.models.choices.decisions import Decisions, HostOrDevice, check_decisions, weights_of
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.choices.subject_values import labels_of, read_subject_features, standardised
from ethogram.models.choices.value_priors import normal_prior, sampled_in_units, sum_zero
from ethogram.models.conjugate_model import Entries, Exportable
from ethogram.models.data.formulas import model_matrix, read_terms
from ethogram.models.model_object import model_object, static_field
from ethogram.models.printing import short_repr

__all__ = ["ClassMixture", "ClassProblem", "LatentClasses"]

CONSTANT = "constant"
"""The column of membership that is one for all subjects."""


@short_repr
class ClassProblem(NamedTuple):
    """Decisions that :meth:`LatentClasses.check` has found valid; models take it in place of decisions.

    Attributes
    ----------
    pooled : the decisions without subjects, and their design.
    subject : (decision,), who decided.
    columns : (subject, column) of membership: ones, and features about their means.
    known : (subject,), whose choices say something.
    """

    pooled: ChoiceProblem
    subject: Int[HostOrDevice, "decision"]
    columns: Float[HostOrDevice, "subject column"]
    known: Bool[HostOrDevice, "subject"]


class ClassMixture(dist.Distribution):
    """The choices of every subject, whose class is summed out; a batch entry is a subject.

    The value is choices (decision,), of which those below zero are unknown and say nothing.

    Parameters
    ----------
    offered : choices (class, decision) given the class.
    log_share : (subject, class), log probabilities of the classes.
    subject, weight : (decision,), who decided, and how often the decision counts.
    """

    arg_constraints: ClassVar[dict] = {}
    support = constraints.integer_greater_than(-1)
    pytree_data_fields = ("offered", "log_share", "subject", "weight")

    def __init__(self, offered: ChoiceDistribution, log_share: Any, subject: Any, weight: Any):
        self.offered, self.log_share, self.subject, self.weight = offered, log_share, subject, weight
        super().__init__(jnp.shape(log_share)[:1], (), validate_args=False)

    def log_joint(self, value: Any) -> Float[Array, "subject class"]:
        """Log probabilities of each class with the choices of the subject."""
        value = jnp.asarray(value)
        counts = (value >= 0) & (self.weight > 0)
        each = jnp.where(counts, self.weight * self.offered.log_prob(jnp.maximum(value, 0)), 0)
        return self.log_share + jax.ops.segment_sum(each.T, self.subject, len(self.log_share))

    def log_prob(self, value: Any) -> Float[Array, "subject"]:
        """Log probability of the choices of every subject, each as often as its weight says."""
        return jax.scipy.special.logsumexp(self.log_joint(value), axis=-1)

    def smooth(self, value: Any) -> Float[Array, "subject class"]:
        """Probability of every class given the choices of the subject."""
        return jax.nn.softmax(self.log_joint(value), axis=-1)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Int[Array, "... decision"]:
        """Choices (*sample_shape, decision)."""
        key_class, key_choice = jax.random.split(key)
        shape = (*sample_shape, len(self.log_share))
        owner = jax.random.categorical(key_class, self.log_share, shape=shape)[..., self.subject]
        each = self.offered.sample(key_choice, sample_shape)  # (..., class, decision)
        return jnp.take_along_axis(each, owner[..., None, :], -2)[..., 0, :]


@model_object
class LatentClasses(Exportable):
    """Classes of subjects that choose alike: a mixture of :class:`NoisyMDP` over subjects; a numpyro model.

    Sites: ``theta (class, parameter)``, with the prior of `base` in every class; deterministic ``v``,
    ``action_rewards``, ``membership (class, column)``, log weights of the classes, which sum to zero over them, at the
    mean of the features and per unit of each, and ``share (class,)``, the mean probability of the classes over subjects
    with known choices; ``choice``. Weights are counts of decisions.

    Draws of a fit have the classes in the order of their mean shares, the largest first.

    Parameters
    ----------
    base : the choices within a class, with independent noise and numbers for kappa, nu and lapse: a `NoisyMDP`, by
        `Logit` or `Probit` for short.
    num_classes : at least 1.
    membership : what the probabilities of classes depend on: (subject, column) numbers, columns by name, or a formula
        such as ``"income + C(group)"`` of the columns of `subject_features`. None for shares alone.
    subject_features : a table with a row per subject, for a formula. The index of a pandas table has the names of the
        subjects, by which rows are found; other rows are in the order of ``metadata.subject_names``. Rows of further
        subjects are those of people to predict.
    membership_names : of the columns of an array.
    subject_labels : subjects of the rows; those of the index of a table where None.
    membership_kappa : prior variance of the log odds of a class against another, at the mean of the features and per
        standard deviation of them.

    Examples
    --------
    >>> import ethogram
    >>> model = LatentClasses(ethogram.Logit(), 3, {"income": [1.0, 2.0, 5.0]})
    >>> model.membership_names
    ('income',)
    """

    observed_site: ClassVar[str] = "choice"
    label_dims: ClassVar[tuple[str, ...]] = ("class",)

    base: NoisyMDP
    num_classes: int = static_field(default=2)
    membership: Any = None
    subject_features: Any = None
    membership_names: tuple[str, ...] | None = static_field(default=None)
    subject_labels: tuple[str, ...] | None = static_field(default=None)
    membership_kappa: Any = 4.0

    def __post_init__(self):
        _check_base(self.base)
        require_integer("num_classes", self.num_classes, 1)
        require_number("membership_kappa", self.membership_kappa, above=0)
        given, names, labels = self.membership, self.membership_names, self.subject_labels
        if isinstance(given, str):
            labels = labels or labels_of(self.subject_features)
            given, names = _columns_of(given, self.subject_features)
        elif self.subject_features is not None:
            raise TypeError(
                "subject_features is the table of a formula, and membership is none: pass the columns as membership"
            )
        if given is None:
            if labels is not None or names is not None:
                raise TypeError("membership is None: leave membership_names and subject_labels out")
        else:
            labels = labels or labels_of(given)
            given, names = read_subject_features(given, names, "membership")
            if self.num_classes == 1:
                raise ValueError("num_classes is 1, and membership says what classes depend on: leave it out")
        if labels is not None:
            labels = tuple(map(str, labels))
            if len(labels) != len(given) or len(set(labels)) < len(labels):
                raise ValueError(
                    f"subject_labels has {len(labels)} labels, {len(set(labels))} different ones, for {len(given)} "
                    "rows: give one row per subject"
                )
        found = {"membership": given, "subject_features": None, "membership_names": names}
        for name, value in {**found, "subject_labels": labels}.items():
            object.__setattr__(self, name, value)

    def __call__(self, data: Decisions | ClassProblem, *, condition: bool = True) -> None:
        """Sample values and membership, and the choices given these; ``condition=False`` samples the choices too."""
        problem = self.check(data, condition)
        pooled, count = problem.pooled, self.num_classes
        each = normal_prior(0.0, *self.base.variances(self.base.kappa, pooled.data)).base_dist.scale
        scale = jnp.broadcast_to(each, (count, len(each)))
        theta = sampled_in_units("theta", _normal(scale), pooled.unit)
        columns = problem.columns.shape[1]
        free = numpyro.sample(
            "membership_free", _normal(jnp.full((count - 1, columns), jnp.sqrt(self.membership_kappa / 2)))
        )
        membership = numpyro.deterministic("membership", self.from_free(free))
        sites = {"theta": theta, "membership": membership}
        for name, value in self.parts(sites, problem).items():
            numpyro.deterministic(name, value)
        choices = self.likelihood(sites, problem)
        if condition:  # whose values have another shape than their density
            numpyro.factor("choice", jnp.sum(choices.log_prob(pooled.data.choice)))
        else:
            numpyro.sample("choice", choices)

    def from_free(self, free: Any) -> Any:
        """Membership (..., class, column) per unit of the features, of its free coordinates per standard deviation."""
        xp = namespace(free)
        return xp.einsum("cf,...fk->...ck", sum_zero(self.num_classes), free) / self.deviation()

    def deviation(self) -> Float[HostOrDevice, "column"]:
        """Standard deviations of the columns of membership, one of the constant."""
        if self.membership is None:
            return np.ones(1)
        each = standardised(self.membership)[1]
        return namespace(each).concatenate([np.ones(1), each])

    def parts(self, sites: Mapping[str, Any], problem: ClassProblem) -> dict[str, Any]:
        """Values ``v``, ``action_rewards (..., class, action)`` and ``share (..., class)``, by theta and membership."""
        parts = self.base.parts(sites["theta"], problem.pooled.data)
        xp = namespace(sites["membership"], problem.columns)
        log_odds = xp.einsum("sk,...ck->...sc", problem.columns, sites["membership"])
        chance = xp.exp(log_odds - log_odds.max(-1, keepdims=True))
        chance = chance / chance.sum(-1, keepdims=True)
        return parts | {"share": xp.einsum("s,...sc->...c", problem.known / problem.known.sum(), chance)}

    def entries(self, data: Decisions | ClassProblem) -> Entries:
        """The choices, one entry per subject, and the problem without names."""
        problem = self.check(data, condition=False)
        nameless = problem._replace(pooled=problem.pooled.without_names())
        return Entries(problem.pooled.data.choice, nameless, unit="subject")

    def likelihood(self, parameters: Mapping[str, Any], batch: ClassProblem) -> ClassMixture:
        """Distribution of the choices of every subject at ``theta`` and ``membership``."""
        data, theta, membership = batch.pooled.data, parameters["theta"], parameters["membership"]
        design = jnp.where(data.legal[..., None], batch.pooled.design, 0)
        utilities = jnp.einsum("dop,cp->cdo", design, theta, precision="highest")
        offered = ChoiceDistribution(utilities, data.legal, self.base.choice_noise())
        log_odds = jnp.einsum("sk,ck->sc", batch.columns, membership, precision="highest")
        weight = jnp.ones(data.choice.shape) if data.weight is None else jnp.asarray(data.weight, float)
        return ClassMixture(offered, jax.nn.log_softmax(log_odds, axis=-1), batch.subject, weight)

    def needed_sites(self) -> tuple[str, ...]:
        """Theta and membership, of which all other values are functions."""
        return ("theta", "membership")

    def informative_steps(self, data: Decisions) -> Int[np.ndarray, "subject number"]:
        """Numbers of decisions of each subject with a known choice and a weight, in one column."""
        counts = weights_of(data, known=True) > 0
        return np.bincount(np.asarray(data.subject), counts, data.num_subjects or 0).astype(int)[:, None]

    def state_positions(self, draws: Mapping[str, np.ndarray], data: Any) -> np.ndarray:
        """Minus the mean shares of the classes."""
        return -np.asarray(draws["share"], float).mean(0)

    def check(self, data: Decisions | ClassProblem | Any, condition: bool = True) -> ClassProblem:
        """The decisions by subject, their design and columns of membership, once they are valid for this model.

        Raises
        ------
        TypeError, ValueError
            As the `check` of `base`; if decisions have no subject, fewer subjects than classes have known choices, or
            `membership` lacks the row of a subject.
        """
        if isinstance(data, ClassProblem):
            return data
        data = check_decisions(data)
        if not is_concrete(*jax.tree.leaves(data)):
            raise TypeError("data are traced: pass concrete arrays, or what check returned")
        if data.subject is None:
            raise ValueError(
                "data have no subject, and classes are of subjects: read the decisions with subject=, the column of "
                "who decided"
            )
        pooled = self.base.check(data._replace(subject=None), condition)
        subject, count = np.asarray(data.subject), data.num_subjects or 0
        counts = (weights_of(data, known=True) > 0) & (np.asarray(data.legal).sum(-1) > 1)
        known = np.bincount(subject[counts], minlength=count) > 0
        if condition and known.sum() < self.num_classes:
            raise ValueError(
                f"num_classes is {self.num_classes}, and {known.sum()} subjects have known choices among options: give "
                "fewer classes"
            )
        columns = np.ones((count, 1))
        if self.membership is not None:
            apart = np.asarray(standardised(self.membership)[0])
            columns = np.concatenate([columns, apart[self._rows(data, count, condition)]], axis=1)
        return ClassProblem(pooled, subject, columns, known if known.any() else ~known)

    def _rows(self, data: Decisions, count: int, condition: bool) -> np.ndarray:
        """Rows (subject,) of membership."""
        names, labels = data.metadata.subject_names, self.subject_labels
        if labels is not None and names is not None:
            place = {label: row for row, label in enumerate(labels)}
            if missing := [name for name in names if name not in place]:
                raise ValueError(
                    f"membership has no row of subject {missing[0]!r}: its rows are of {', '.join(labels[:5])}, ..."
                )
            return np.array([place[name] for name in names])
        rows = len(self.membership)
        if rows < count or (condition and rows != count):
            raise ValueError(
                f"membership has {rows} rows, and the decisions have {count} subjects: pass one row each, in the order "
                "of metadata.subject_names, or a table whose index has these"
            )
        return np.arange(count)

    def site_layout(self, data: Decisions | None) -> tuple[dict[str, tuple[str, ...]], dict[str, Any]]:
        """Dims of every site, and their coords."""
        within, coords = self.base.site_layout(None if data is None else data._replace(subject=None))
        own = {site: ("class", *within[site]) for site in ("theta", "v", "action_rewards")}
        dims = own | {"membership": ("class", "column"), "share": ("class",), "choice": ("decision",)}
        coords = coords | {"column": (CONSTANT, *(self.membership_names or ()))}
        if data is not None and data.metadata.subject_names is not None:
            coords["subject"] = data.metadata.subject_names
        return dims, coords

    def site_dims(self) -> dict[str, tuple[str, ...]]:
        """Dims of every site."""
        return self.site_layout(None)[0]

    def switches_labels(self) -> bool:
        """Whether there are several classes."""
        return self.num_classes > 1


def _normal(scale: Any) -> dist.Distribution:
    return dist.Normal(jnp.zeros_like(scale), scale, validate_args=False).to_event(scale.ndim)


def _check_base(base: Any) -> None:
    """Raise unless choices within a class are those of a model that has no laws of its own for subjects or noise."""
    if not isinstance(base, NoisyMDP):
        raise TypeError(f"base is {type(base).__name__}: give a NoisyMDP, such as ethogram.Logit()")
    reasons = {
        'noise="covariance"': base.noise == "covariance",
        "a prior of kappa": isinstance(base.kappa, dist.Distribution),
        "an infinite kappa, under which a class that no subject is of has no posterior": base.flat,
        "a prior of nu": isinstance(base.nu, dist.Distribution),
        "a prior of lapse": isinstance(base.lapse, dist.Distribution),
        "random, correlated or subject_features, which say how subjects differ": base.correlated
        or base.random is not None
        or base.subject_features is not None,
    }
    if found := [reason for reason, holds in reasons.items() if holds]:
        raise ValueError(
            f"base has {found[0]}: within a class subjects are alike, and classes take independent noise with numbers "
            "for kappa, nu and lapse"
        )


def _columns_of(formula: str, table: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    """Columns (subject, column) of a formula, and their names."""
    import pandas

    if not (hasattr(table, "keys") or hasattr(table, "columns")):
        raise TypeError(
            f"membership is the formula {formula!r}, and subject_features {type(table).__name__}: give a table with a "
            "row per subject, such as trips.groupby('person')[['income']].first()"
        )
    terms = read_terms(formula)
    if not terms.has_constant or not terms.variables:
        raise ValueError(
            f"membership is {formula!r}: name columns of subject_features; classes always have a constant"
        )
    present = [*map(str, getattr(table, "columns", table))]
    if missing := [name for name in terms.variables if name not in present]:
        raise ValueError(
            f"membership takes {missing[0]!r}, which subject_features lack: they have {', '.join(present)}"
        )
    frame = pandas.DataFrame({name: np.asarray(table[name]) for name in terms.variables})
    return model_matrix(formula, {}, frame, "subjects")[:2]
