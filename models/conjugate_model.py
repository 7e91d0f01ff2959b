"""Base classes of models: the hooks that inference and export call, each with its default.

`Exportable` has the hooks that ``to_arviz`` calls, `ConjugateModel` adds those of ``ConjugateSVI``. A subclass
overrides the hooks it needs. ``ethogram.testing.check_model`` finds misspelt ones, and what is wrong with the others.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from jax import Array
from jaxtyping import Bool, Int

from ethogram.models.arguments import warn_user
from ethogram.models.data import trajectories
from ethogram.models.data.checks import is_readable
from ethogram.models.data.gaps import require_complete
from ethogram.models.data.padding import is_nan
from ethogram.models.data.parts import in_parts
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.families.conjugate_block import ConjugateBlock
from ethogram.models.families.exponential_family import natural_step, total_kl
from ethogram.models.hooks import overrides
from ethogram.models.model_object import model_object, static_field

__all__ = [
    "ConjugateModel",
    "EStep",
    "Entries",
    "Exportable",
    "Growth",
    "Labelling",
    "bound_model",
    "check_data",
    "exact_e_step",
    "group_size",
    "log_likelihood",
    "overrides",
    "require_informative",
    "steps_by_entry",
    "unlabelled",
]


@model_object
class Entries:
    """Data as the likelihood of a model reads them; an entry is what is scored on its own.

    Attributes
    ----------
    value : (entry, ...), what the distribution of the data is evaluated at.
    batch : what `likelihood` takes beside the parameters, such as lengths and covariates: a pytree of arrays.
    sequences : (group, agent), numbers of the sequences behind each entry; None where entries are no groups.
    unit : what an entry is.
    """

    value: Any
    batch: Any
    sequences: Int[np.ndarray, "group agent"] | None = None
    unit: str = static_field(default="sequence")


class EStep(NamedTuple):
    """Local step of a model: q(z) of a batch, given the expected log potentials, as a pair of pure functions.

    Most models have the exact step of :func:`exact_e_step`. One that improves on the q(z) of the iteration before has
    a local state, and returns a lower bound on the log normaliser with the statistics under the q(z) that attains it.

    Attributes
    ----------
    init : ``init(batch) -> local``, the local state before iteration 0, a pytree of arrays.
    step : ``step(expected, batch, local, iteration) -> (value, statistics, local)``: the (bound on the) summed log
        normaliser, its gradient by `expected`, and the local state of the next iteration. Iterations count from 0.
    period : coordinate ascent compares the ELBOs of iterations 0, `period`, ... with those before, to see whether it
        has converged. More than 1 where steps are better in some iterations than in others.
    costly : whether each time step is so much work that padding costs more than compiling another shape.
    """

    init: Callable[[Any], Any]
    step: Callable[[Any, Any, Any, Any], tuple[Array, Any, Any]]
    period: int = 1
    costly: bool = False


def exact_e_step(log_normalizer: Callable[[Any, Any], Array]) -> EStep:
    """The exact step: statistics are the gradient of ``log_normalizer(expected, batch)``; no local state."""

    def step(expected: Any, batch: Any, local: Any, iteration: Any) -> tuple[Array, Any, Any]:
        value, statistics = jax.value_and_grad(log_normalizer)(expected, batch)
        return value, statistics, local

    return EStep(lambda batch: (), step)


class Labelling(NamedTuple):
    """How a model whose every step has a state of its own labels steps, so that a search can edit the labels.

    Attributes
    ----------
    statistics : ``statistics(rng, labels, batches)``, statistics by block of labels (sequence, time) of every step of
        the batches; computed on the host.
    probabilities : ``probabilities(expected, batch)``, the probability (sequence, time, state) of every state at every
        step of a batch, zero beyond each length.
    """

    statistics: Callable[[np.random.Generator, list[np.ndarray], list[Any]], dict[str, Any]]
    probabilities: Callable[[dict[str, Any], Any], Array]


class Growth(NamedTuple):
    """How a bound model that learns how many of its states are used changes their number: unused ones cost no ELBO.

    Attributes
    ----------
    prior_of_first : ``prior_of_first(number)``, blocks of the prior under which q uses the first `number` states only.
        None where fits start with all states.
    narrowed : ``narrowed(number)``, the model with room for `number` states: those that q does not use cost time.
    widened : ``widened(earlier, blocks)``, blocks of a bound model `earlier` with fewer states, with states that no
        step uses added at the end.
    mass : ``mass(blocks)``, expected steps (state,) in every state, of blocks after a global step of size 1.
    """

    prior_of_first: Callable[[int], dict[str, ConjugateBlock]] | None
    narrowed: Callable[[int], Any]
    widened: Callable[[Any, dict[str, ConjugateBlock]], dict[str, ConjugateBlock]]
    mass: Callable[[dict[str, ConjugateBlock]], Array]


def group_size(batch: Any) -> int:
    """How many consecutive sequences of an arranged batch are scored jointly: its `num_agents`, 1 where it has none."""
    return getattr(batch, "num_agents", 1)


class Exportable:
    """A model that describes its sites and scores its data; base class for ``to_arviz``.

    All hooks are optional. Without `likelihood` draws can be exported, but not scored.

    Attributes
    ----------
    observed_site : name of the observed site, which is also the field of the data that it explains.
    label_dims : dims along which the labels of the states may be permuted (``to_arviz(align=)``).
    """

    observed_site: ClassVar[str] = "observations"
    label_dims: ClassVar[tuple[str, ...]] = ("state", "next_state")

    @property
    def is_bound(self) -> bool:
        """Whether the model has all that `likelihood` takes from training data, by `bind`. Default True."""
        return True

    def check(self, data: Any) -> Any:
        """Raise ValueError or TypeError unless `data` fit the model; called once a fit and once an export.

        The default checks trajectories by ``trajectories.check``, and refuses frames that lack some features; an
        override does so too.
        """
        if isinstance(data, Trajectories):
            trajectories.check(data)
            require_complete(data, f"{type(self).__name__} takes")

    def bind(self, data: Any) -> Any:
        """The model with the structure that it takes from the training data. Default: the model itself."""
        return self

    def entries(self, data: Any) -> Entries:
        """The data as `likelihood` reads them, with everything that has to be known outside of compiled code.

        Default: the field of the data that `observed_site` names is the value, and the data themselves are the batch,
        without labels, times and metadata.
        """
        value = getattr(data, self.observed_site)
        return Entries(value, unlabelled(data) if isinstance(data, Trajectories) else data)

    def likelihood(self, parameters: dict[str, Any], batch: Any) -> Any:
        r"""Numpyro distribution of the data given parameters: samplers, scores, exports and predictions use it.

        Its batch entries are those of `entries`. A `LatentChain` has scores step by step, state probabilities and
        forecasts, too. A distribution that is joint with an event D, on which scores are conditioned, has a method
        ``log_prob_of_condition()``, :math:`\ln p(D)` by entry.

        Parameters
        ----------
        parameters : by site.
        batch : of the data, as `entries` gives it; arrays may be traced.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method likelihood")

    def informative_steps(self, data: Any) -> Bool[np.ndarray, "sequence *time"]:
        """Which steps say something about the parameters. Default: those observed."""
        inside = np.arange(data.observed.shape[1]) < np.asarray(data.lengths)[:, None]
        return np.asarray(data.observed) & inside

    def switches_labels(self) -> bool:
        """Whether chains may switch the labels of hidden states, so that those of draws are matched.

        Default: where there are such labels. Where a prior or known values tell states apart, matching would replace
        the posterior of each state by that of whichever it resembles.
        """
        return self.has_labels()

    def site_dims(self) -> Mapping[str, Sequence[str]]:
        """Dims of each site after (chain, draw), all different. Default: none are named."""
        return {}

    def has_labels(self) -> bool:
        """Whether draws have labels of hidden states. Default: sites have `label_dims`, and data a density."""
        labelled = any({*self.label_dims} & {*dims} for dims in self.site_dims().values())
        return labelled and overrides(self, "likelihood")

    def state_positions(self, draws: Mapping[str, np.ndarray], data: Any) -> np.ndarray | None:
        """Numbers (state,) that increase in the order of the states; None keeps the order as it is.

        Parameters
        ----------
        draws : (draw, ...) by site.
        data : of the fit.
        """
        return None

    def needed_sites(self) -> Sequence[str]:
        """Sites that `likelihood` reads from its `parameters`. Default: those of `site_dims`."""
        return tuple(self.site_dims())

    def site_layout(self, data: Any) -> tuple[Mapping[str, Sequence[str]], Mapping[str, Any]]:
        """Dims of the sites, and coordinates by dim, given `data` or None. Default: `site_dims`, and none."""
        return self.site_dims(), {}


class ConjugateModel(Exportable, abc.ABC):
    """A model with conjugate blocks; base class for ``ConjugateSVI``.

    A subclass defines `prior` and `log_normalizer`; every other hook has a default.

    Attributes
    ----------
    start_kinds : starts that ``init="mixed"`` takes in turn. A model that defines `start_statistics` declares the
        kinds that it knows; ``"prior"``, a local step at parameters drawn from the prior, needs no hook.
    """

    start_kinds: ClassVar[tuple[str, ...]] = ("prior",)

    def __init_subclass__(cls, **options: Any) -> None:
        """Raise TypeError for starts that no kind names."""
        super().__init_subclass__(**options)
        if "start_statistics" in vars(cls) and cls.start_kinds is ConjugateModel.start_kinds:
            raise TypeError(
                f"{cls.__name__} defines start_statistics without start_kinds: declare the kinds that it knows, such "
                'as start_kinds: ClassVar = ("sticky",)'
            )

    @abc.abstractmethod
    def prior(self) -> dict[str, ConjugateBlock]:
        """Conjugate blocks of the prior, by name."""

    @abc.abstractmethod
    def log_normalizer(self, expected: dict[str, Any], batch: Any) -> Array:
        r"""Summed :math:`\ln \tilde Z` of a batch, a scalar, whose gradient is the expected statistics.

        Parameters
        ----------
        expected : expected log potentials (expected statistics of the blocks), by name.
        batch : data as `arrange` gives them; empty sequences add nothing.
        """

    @property
    def e_step(self) -> EStep:
        """The local step. Default: the exact one, by the gradient of `log_normalizer`."""
        return exact_e_step(self.log_normalizer)

    def arrange(self, data: Any) -> Any:
        """Data as a pytree of arrays (sequence,) and (sequence, time, ...). Default: the data themselves.

        Where the agents of a group, as consecutive sequences, are scored jointly, the pytree has their `num_agents`.
        """
        return data

    def bind(self, data: Any, like: Any = None) -> Any:
        """The model with the structure that it takes from the training data. Default: the model itself.

        Where a fit continues that of a bound model `like`, priors are taken from it, not from the data; ValueError
        where it cannot be continued. A model that is never continued needs no such argument.
        """
        return self

    @property
    def growth(self) -> Growth | None:
        """How the number of states changes, in a model that learns how many are used. Default None: it does not."""
        return None

    def start_statistics(
        self, rng: np.random.Generator, kind: str, batches: Any, number: int | None = None
    ) -> dict[str, Any]:
        """Statistics by block of a rough first labelling, for each of the `start_kinds`.

        With `number`, which is given where the `growth` has a ``prior_of_first``, labels are of the first states only.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method start_statistics")

    @classmethod
    def starts_of_fits(
        cls,
        fits: Sequence[tuple[Any, Any]],
        words: Sequence[Sequence[int]],
        kinds: Mapping[int, str],
        number: int | None = None,
    ) -> list[dict[str, Any]]:
        """`start_statistics` (start, ...) of one fit or several, whose bound models have one structure.

        Parameters
        ----------
        fits : bound model and its `start_data` of each.
        words : of the key of each fit, which with the number of a start seed it.
        kinds : of the starts, by their numbers.
        number : as of `start_statistics`.
        """
        more = () if number is None else (number,)
        found = []
        for (model, data), own in zip(fits, words, strict=True):
            rngs = [np.random.default_rng([*own, start]) for start in kinds]
            each = [
                model.start_statistics(rng, kind, data, *more)
                for rng, kind in zip(rngs, kinds.values(), strict=True)
            ]
            found.append(jax.tree.map(lambda *x: np.stack(x), *each))
        return found

    def start_data(self, batches: list[Any]) -> Any:
        """What `start_statistics` takes in place of batches, so that all starts share it. Default: the batches."""
        return batches

    @property
    def labelling(self) -> Labelling | None:
        """How steps are labelled, so that a search can edit their labels. Default None: it cannot."""
        return None

    def peers(self) -> Mapping[str, Any]:
        """Simpler models of the same data, by name, that ``heldout_score_curve`` scores beside this one.

        Each is a `ConjugateModel`, or has ``fit(data)``, which gives an object with ``log_prob(data)``, the log
        likelihood of every sequence. Default: none.
        """
        return {}

    def divergence(self, blocks: dict[str, ConjugateBlock], prior: dict[str, ConjugateBlock]) -> Array:
        """Penalty subtracted from the summed log normaliser in the ELBO. Default: KL(blocks || prior)."""
        return total_kl(blocks, prior)

    def update(
        self,
        blocks: dict[str, ConjugateBlock],
        prior: dict[str, ConjugateBlock],
        statistics: dict[str, Any],
        scale: Any,
        step_size: Any,
    ) -> dict[str, ConjugateBlock]:
        """Blocks after one global step. Default: a natural-gradient step of every block."""
        return natural_step(blocks, prior, statistics, scale, step_size)

    def exchangeable_axes(self) -> Mapping[str, tuple[int, ...]]:
        """Axes of the states by block (every array of it), where a permutation of the states changes no ELBO.

        ``ethogram.fit`` then orders the states, by `state_positions`. Default: none, and states keep their numbers.
        """
        return {}

    def step_potentials(self, expected: dict[str, Any], batch: Any) -> Array:
        """Expected log likelihood (sequence, time, state) of every step; with it, paths are drawn by Gibbs sweeps."""
        raise NotImplementedError(f"{type(self).__name__} has no method step_potentials")


def unlabelled(data: Trajectories) -> Trajectories:
    """Trajectories without labels, times, covariates and metadata: parts of compiled programs, or copied in vain."""
    labels: Any = dict.fromkeys(("agent", "group", "subject", "times", "covariates"))
    return data._replace(**labels, metadata=Metadata())


def bound_model(model: Any, data: Any) -> Any:
    """The model itself where it is bound to data, else bound to these."""
    return model if model.is_bound else model.bind(data)


def check_data(model: Any, data: Any) -> None:
    """Raise what the `check` of a model raises; large trajectories are read part by part, which messages then name."""
    if not isinstance(data, Trajectories):
        model.check(data)
        return
    for rows, part in in_parts(data):
        try:
            model.check(part)
        except (ValueError, TypeError) as error:
            if part is data:
                raise
            raise type(error)(f"in the part of sequences {rows[0]} to {rows[-1]}: {error}") from error


def log_likelihood(model: Any, parameters: dict[str, Any], batch: Any, value: Any) -> Array:
    """Log likelihood of every entry in nats, given the condition if there is one: of distinct roles, say."""
    distribution = model.likelihood(parameters, batch)
    condition = getattr(distribution, "log_prob_of_condition", None)
    return distribution.log_prob(value) if condition is None else distribution.log_prob(value) - condition()


def steps_by_entry(model: Exportable, data: Any, entries: Entries | None = None) -> Int[np.ndarray, "entry"]:
    """Informative steps of each entry: of a sequence, or of a group that is scored jointly.

    An entry without any has the same log likelihood at all parameters, and counts as none in scores.
    """
    known = np.asarray(model.informative_steps(data))
    steps = known.reshape(len(known), -1).sum(axis=1)
    groups = (model.entries(data) if entries is None else entries).sequences
    return steps if groups is None else steps[groups].sum(axis=1)


def require_informative(model: Exportable, data: Trajectories, condition: bool = True) -> int:
    """Number of informative steps; a ValueError without one, since a fit would return the prior.

    Traced data, and those of other processes, are not looked at, which gives 0; nor are those that are no `condition`.

    Warns
    -----
    UserWarning
        A feature has no value in any frame.
    """
    if not condition or not is_readable(data):
        return 0
    steps, known = 0, np.False_
    for _, part in in_parts(data):
        steps += int(model.informative_steps(part).sum())
        if part.observations is not None and model.observed_site != "actions":
            seen = ~is_nan(np.asarray(part.observations)) & np.asarray(part.observed)[..., None]
            known = known | seen.any(axis=(0, 1))
    if not steps:
        raise ValueError(
            f"data have no observed {'action' if model.observed_site == 'actions' else 'frame'} to learn from, in any "
            f"of {data.num_sequences} sequences: look where data.observed is False, and what the reader took as missing"
        )
    if known.any() and not known.all():
        lost, names = int(known.argmin()), data.metadata.feature_names
        name = repr(names[lost]) if names else str(lost)
        warn_user(
            f"feature {name} has no value in any frame, and what is learnt of it is its prior: leave it out"
        )
    return steps
