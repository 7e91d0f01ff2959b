"""Conversion of any fit to the data structure of the installed ArviZ."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from numpyro.infer import MCMC

from ethogram.inference.conjugate.posterior import ConjugatePosterior, ConjugateResult, posterior_of
from ethogram.inference.draws import HasMean, flat_draws
from ethogram.inference.export.draws import read_draws
from ethogram.inference.export.labelled_arrays import Layout, relabel
from ethogram.inference.export.pointwise import Pointwise
from ethogram.models.arguments import require_integer, require_key, require_one_of, warn_user
from ethogram.models.conjugate_model import Exportable, bound_model, check_data, overrides
from ethogram.models.data.parts import in_parts, is_large
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.memory_bound import require_room

__all__ = ["to_arviz"]

Variables = dict[str, tuple[tuple[str, ...], np.ndarray]]


def to_arviz(
    result: Any,
    data: Any = None,
    *,
    model: Any = None,
    guide: Any = None,
    key: Array | None = None,
    num_draws: int = 1000,
    log_likelihood: str | None = None,
    posterior_predictive: bool = False,
    progress_bar: bool = True,
    coords: Mapping[str, Any] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    align: Any = None,
) -> Any:
    """Convert a fit to ``InferenceData`` (ArviZ 0.x) or an xarray ``DataTree`` (ArviZ 1.x).

    By default draws of the parameters, statistics of the fit and the data; nothing is scored or simulated by default.
    ``az.loo`` and ``az.compare`` need ``log_likelihood="sequence"``, ``az.plot_ppc`` needs
    ``posterior_predictive=True``.

    Groups; those after ``fit_stats`` need data:

    - ``posterior``: the sites (chain, draw, ...). A variational fit gives independent draws from q, in one
      chain. The free parts (``NAME_free``) of partly known sites are left out.
    - ``sample_stats``: the extra fields of an MCMC run, under ArviZ's names (``diverging``, ``energy``,
      ``n_steps``, ...), and ``lp``, minus the potential energy.
    - ``fit_stats``: of variational fits, ``elbo`` (step) in nats, and the final ``restart_elbos`` (restart). The
      ``elbo`` of a `RewardFit` uses a fixed set of draws; attributes have ``final_elbo``, on fresh draws, with its
      standard error, and ``laplace_elbo``.
    - ``log_likelihood``, if requested: one entry per sequence; one per group where roles are exclusive. Where they are
      distinct in every frame, which is a condition D, ln p(D) is subtracted: entries are ln p(x | D), as those of
      `heldout_log_likelihood`, and compare with other choices of ``exclusive``; ELBOs bound ln p(x, D). A sequence
      (group, decision, trajectory) without an observed step (choice, action) has no entry; the coordinate has the
      numbers of the others. ``"step"`` gives the increments log p(y_t given y_<t) of the informative steps, stacked in
      one dim ``observation`` with coordinates ``sequence`` and ``time``; they sum to the sequence's entry. Decisions of
      weight 0 have no entry either.
    - ``posterior_predictive``, if requested: one data set a draw, of the lengths of the data, 0 beyond them.
    - ``observed_data``, ``constant_data``: the arrays of the trajectories. Merged, ``Trajectories.from_xarray``
      reads them again; names and units are coordinates and attributes of both.

    Parameters
    ----------
    result : `ConjugateResult`, `ConjugatePosterior`, `SampledPosterior`, `RewardFit`, `RewardPosterior`, an ``MCMC``
        of numpyro after its run, or the return value of ``SVI.run``. Of a `Fit` its own ``to_arviz`` is called, with
        its data and key where none are given.
    data : the training data, or other data to score; the data groups are left out where None.
    model : the model object; required for results of numpyro's SVI. Other results hold theirs.
    guide : of numpyro's SVI.
    key : for draws from q and predictions; ``jax.random.key(0)`` where None.
    num_draws : number of draws from q; an MCMC keeps its own.
    log_likelihood : ``"sequence"`` or ``"step"``, evaluated at every draw; None for none.
    posterior_predictive : whether to simulate data at every draw; the group has ``num_draws`` times the size of
        the data.
    progress_bar : whether to show one for log likelihoods, simulation and `align`, once they take two seconds.
    coords : coordinates by dim, in place of those from the metadata; states default to 0 to K - 1. Coordinates of
        ``state`` and ``feature`` also apply to ``next_state`` and ``next_feature``.
    dims : dims after (chain, draw), by site, in place of those of ``model.site_dims()``.
    align : parameters by site, without a draw axis (``posterior.mean()``), or a `ConjugatePosterior`,
        `ConjugateResult`, `RewardFit` or `RewardPosterior`, whose mean is taken. The state labels of every draw are
        permuted, on the model's ``label_dims``, to match the state probabilities of this reference on the data.
        Required to compare fits by different algorithms. Needs data. None: draws of an ``MCMC`` are matched to the one
        of highest density, since chains switch labels (the last of the first chain without the extra field
        ``potential_energy``), unless a prior or known states tell them apart; other draws stay as they are; False: all
        do.

    Warns
    -----
    UserWarning
        Labels of several chains cannot be matched, since data are missing.

    Notes
    -----
    ``az.loo`` and ``az.compare`` assume draws from the posterior, but those of a variational fit come from q, which is
    narrower: ``p_loo`` is too small, the Pareto k diagnostics are optimistic, larger models are favoured, and beside
    NUTS the overconfident fit gets the weight. Rank models by held-out log predictive densities
    (``heldout_score_curve``). The attributes ``draws_from`` and ``caution`` of the export say so.

    Examples
    --------
    >>> import jax
    >>> from ethogram.inference.conjugate import ConjugateSVI
    >>> from ethogram.models.emissions import GaussianEmission
    >>> from ethogram.models.roles import RoleHMM
    >>> model = RoleHMM(2, GaussianEmission(1))
    >>> data = model.simulate(jax.random.key(0), num_groups=6, lengths=20).data
    >>> fit = ConjugateSVI(model).run(jax.random.key(1), data, 50, restarts=2, progress_bar=False)
    >>> tree = to_arviz(fit, data, num_draws=50, log_likelihood="sequence")
    >>> tree.posterior["transition"].dims, tree.log_likelihood["observations"].shape
    (('chain', 'draw', 'state', 'next_state'), (1, 50, 6))
    """
    if callable(getattr(result, "to_arviz", None)):
        given = {
            "data": data,
            "model": model,
            "guide": guide,
            "key": key,
            "coords": coords,
            "dims": dims,
            "align": align,
        }
        given = {name: value for name, value in given.items() if value is not None}
        given |= {"num_draws": num_draws, "log_likelihood": log_likelihood, "progress_bar": progress_bar}
        return result.to_arviz(**given, posterior_predictive=posterior_predictive)
    _check_arguments(data, key, num_draws, log_likelihood, align)
    key = jax.random.key(0) if key is None else key
    key_draws, key_new = jax.random.split(key)
    drawn = read_draws(key_draws, result, data, model, guide, num_draws)
    described = drawn.model if isinstance(drawn.model, Exportable) else Exportable()
    if data is not None:
        check_data(described, data)
        described = bound_model(described, data)
    layout = Layout(described, data, coords, dims)
    free = {f"{name}_free" for name in drawn.sites}
    sites = {name: site for name, site in drawn.sites.items() if name not in free}
    layout.check_sites(sites)
    if align is None and isinstance(result, MCMC):
        align = _one_draw(described, sites, drawn.statistics, data)
    align = None if align is False else align
    groups: dict[str, Variables] = {"fit_stats": drawn.fit}
    groups["sample_stats"] = {name: layout.sampled(name, value) for name, value in drawn.statistics.items()}
    labels: dict[str, Any] = {}
    asked = log_likelihood or posterior_predictive or align is not None
    scores = overrides(described, "likelihood")
    if data is not None and asked and not scores:
        raise TypeError(_without_likelihood(drawn.model))
    if data is not None and scores and (asked or not isinstance(data, Trajectories)):
        request = _Request(data, key_new, log_likelihood, posterior_predictive, align, progress_bar)
        sites, labels = _about_data(groups, layout, described, sites, request)
    groups["posterior"] = {name: layout.sampled(name, value) for name, value in sites.items()}
    if data is not None:
        groups["observed_data"], groups["constant_data"] = layout.data_variables(groups)
    return layout.assemble(groups, labels, drawn.attributes)


def _check_arguments(data: Any, key: Any, num_draws: int, log_likelihood: str | None, align: Any) -> None:
    if key is not None:
        require_key(key)
    require_integer("num_draws", num_draws, 1)
    require_one_of("log_likelihood", log_likelihood, ("sequence", "step", None))
    if data is None and (needy := _of_chains(log_likelihood, align)):
        raise ValueError(f"{needy[0]} needs data, which is None: give the trajectories")
    if isinstance(data, Trajectories) and data.num_sequences == 0:
        raise ValueError("data holds no sequences")


def _of_chains(log_likelihood: str | None, align: Any) -> list[str]:
    """The arguments given that need a model's own chains."""
    return ['log_likelihood="step"'] * (log_likelihood == "step") + ["align"] * (
        align is not None and align is not False
    )


class _Request(NamedTuple):
    """What the groups about data are made of: arguments of `to_arviz`."""

    data: Any
    key: Array
    log_likelihood: str | None
    posterior_predictive: bool
    align: Any
    progress_bar: bool


def _without_likelihood(model: Any) -> str:
    if model is None:
        return "model is None, and result holds none: give model="
    if isinstance(model, Exportable):
        return (
            f"{type(model).__name__} has no method likelihood, which log_likelihood, posterior_predictive and align "
            "need: define it, or leave these out"
        )
    return (
        f"model is {getattr(model, '__name__', type(model).__name__)}, which is no model of ethogram: leave "
        "log_likelihood, posterior_predictive and align out, or convert results of numpyro by arviz.from_numpyro"
    )


def _about_data(
    groups: dict[str, Variables],
    layout: Layout,
    model: Exportable,
    sites: dict[str, np.ndarray],
    request: _Request,
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Fill the groups from the model's likelihood; return the aligned sites, and labels of the entries."""
    data, key, log_likelihood, posterior_predictive, align, progress_bar = request
    chains, draws = next(iter(sites.values())).shape[:2]
    name, large = model.observed_site, isinstance(data, Trajectories) and is_large(data)
    if large and (align is not None or log_likelihood == "step" or posterior_predictive):
        shape = (chains * draws, *np.shape(getattr(data, name if posterior_predictive else "observed")))
        require_room(
            "the export of a number per draw and step",
            shape,
            np.float32,
            "give data.take(...), or fewer draws",
        )
    asked = functools.cache(lambda: Pointwise(model, flat_draws(sites), data, progress_bar))
    labels: dict[str, Any] = {}
    if align is not None:
        reference = _reference(align, sites, layout, model.needed_sites())
        order = asked().state_order(reference).reshape(chains, draws, -1)
        dims = {site: layout.site_dims(site, value) for site, value in sites.items()}
        sites = {site: relabel(value, dims[site], layout.label_dims, order) for site, value in sites.items()}
    if log_likelihood == "sequence":
        each = []
        for rows, part in (
            in_parts(data, "log likelihood" if progress_bar else None) if large else [(None, data)]
        ):
            own = Pointwise(model, flat_draws(sites), part, progress_bar) if large else asked()
            numbers = np.arange(own.num_entries) if rows is None else rows
            if own.groups is not None:
                numbers = np.asarray(part.group)[own.groups[:, 0]]
            each.append((own.log_likelihood(), numbers[own.counted], numbers))
            unit = own.unit
        parts = [np.concatenate(found, axis=-1) for found in zip(*each, strict=True)]
        order, numbers = np.argsort(parts[1], kind="stable"), np.sort(parts[2])
        entries, counted = parts[0][:, order], np.isin(numbers, parts[1])
        labels = layout.agent_label() if unit == "sequence" else {}
        labels[unit] = unit, layout.entries(unit, numbers)
        labels = {name: (dim, np.asarray(values)[counted]) for name, (dim, values) in labels.items()}
        groups["log_likelihood"] = {name: ((*layout.lead, unit), entries.reshape(chains, draws, -1))}
    elif log_likelihood == "step":
        steps = asked().steps()
        labels = {"sequence": ("observation", steps.sequence), "time": ("observation", steps.time)}
        increment = steps.increment.reshape(chains, draws, -1)
        groups["log_likelihood"] = {name: ((*layout.lead, "observation"), increment)}
    if posterior_predictive:
        values = asked().predictive(key)
        shape = (chains, draws, *layout.observed(name, values[0])[1].shape)
        groups["posterior_predictive"] = {name: layout.sampled(name, values.reshape(shape))}
    value = None if name in Trajectories._fields else asked().value
    groups.setdefault("observed_data", {name: layout.observed(name, value)})
    return sites, labels


def _one_draw(
    model: Exportable, sites: dict[str, np.ndarray], statistics: Mapping[str, Any], data: Any
) -> dict[str, np.ndarray] | None:
    """Parameters of the draw of highest density, to which labels are matched; None where states have no labels."""
    if not model.has_labels() or (data is not None and not model.switches_labels()):
        return None
    chains, draws = next(iter(sites.values())).shape[:2]
    if data is None:
        if chains > 1:
            warn_user(
                "labels of states may differ from chain to chain, and are matched on data only: call "
                "to_arviz(result, data), or pass align=False to export them as they are"
            )
        return None
    density = statistics.get("lp", np.arange(chains)[::-1, None] + np.arange(draws) / draws)
    best = np.unravel_index(np.argmax(density), density.shape)
    return {name: site[best] for name, site in sites.items()}


def _reference(
    align: Any, sites: dict[str, np.ndarray], layout: Layout, needed: Sequence[str]
) -> dict[str, np.ndarray]:
    posterior = getattr(align, "posterior", align)
    if isinstance(posterior, HasMean):
        given: Mapping[str, Any] = posterior.mean()
    elif isinstance(align, ConjugatePosterior | ConjugateResult):
        given = posterior_of(align).mean()
    elif isinstance(align, Mapping):
        given = align
    else:
        raise TypeError(
            f"align is {type(align).__name__}: give parameters by site, a ConjugatePosterior, a ConjugateResult, a "
            "RewardFit or a RewardPosterior"
        )
    word = layout.label_dims[0]
    permuted = {*layout.label_dims}
    labelled = {name for name, site in sites.items() if permuted & {*layout.site_dims(name, site)}}
    if not labelled:
        raise ValueError(f"align permutes the dim {word}, and no site has it: name the dims by dims=")
    reference = {}
    for name, site in sites.items():
        if name not in given:
            if name not in labelled or name not in needed:
                continue  # a parameter without labels, such as the sticks behind weights, or that chains do not need
            raise ValueError(f"align has no site {name}: it has {', '.join(sorted(given))}")
        value = np.asarray(given[name])
        if value.shape != site.shape[2:]:
            raise ValueError(
                f"align[{name!r}] has shape {value.shape}, a draw of the result {site.shape[2:]}"
            )
        if not np.isfinite(value).all():
            raise ValueError(
                f"align[{name!r}] is not finite (a mean that does not exist is infinite): give a draw instead"
            )
        reference[name] = value
    return reference
