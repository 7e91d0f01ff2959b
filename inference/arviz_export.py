"""One door to ArviZ: every fit, by whatever algorithm, as the object that the installed ArviZ speaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ethogram.inference.conjugate_svi import ConjugateResult
from ethogram.inference.export.draws import Draws, flat_draws, read_draws
from ethogram.inference.export.labelled_arrays import Layout, relabel
from ethogram.inference.export.observed_sites import (
    counted_entries,
    observed_sites,
    site_log_likelihood,
    site_predictive,
)
from ethogram.inference.export.pointwise import Pointwise
from ethogram.inference.posterior import Posterior
from ethogram.models import trajectories
from ethogram.models.trajectories import Trajectories

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
    log_likelihood: str | None = "sequence",
    posterior_predictive: bool = True,
    coords: Mapping[str, Any] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    align: Any = None,
) -> Any:
    """A fit as ArviZ reads it: an ``InferenceData`` (ArviZ 0.x) or an xarray ``DataTree`` (ArviZ 1.x).

    Groups, those below ``fit_stats`` only where there are data:

    - ``posterior``: the sites (chain, draw, ...). A variational fit gives independent draws from q, in one
      chain. The free parts (``NAME_free``) of partly known sites are left out.
    - ``sample_stats``: of MCMC, what its run was told to collect, under ArviZ's names (``diverging``, ``energy``,
      ``n_steps``, ...), and ``lp``, minus the potential energy.
    - ``fit_stats``: of variational fits, ``elbo`` (step) in nats, and the final ``restart_elbos`` (restart). Of a
      `RewardFit`, whose ``elbo`` is on a fixed set of draws, attributes have that on fresh ones, ``final_elbo``, with
      its standard error, and Laplace's.
    - ``log_likelihood``: one entry a sequence; one a group where roles are exclusive. ``"step"`` gives the
      increments log p(y_t given y_<t), stacked over the steps on which something is known in one dim
      ``observation`` with coordinates ``sequence`` and ``time``; they add up to the sequence's entry. Of decisions, one
      entry a decision whose choice is known and whose weight is above 0, with its number as coordinate ``decision``.
    - ``posterior_predictive``: one new data set a draw, on the lengths of the data, 0 beyond them.
    - ``observed_data``, ``constant_data``: the arrays of the trajectories. Merged, they are again what
      ``Trajectories.from_xarray`` reads; names and units are coordinates and attributes of both.

    Parameters
    ----------
    result : `ConjugateResult`, `Posterior`, `RewardFit`, `RewardPosterior`, numpyro's ``MCMC`` after its run, or what
        numpyro's ``SVI.run`` returned.
    data : what was fitted, or other data to score; without them there are no groups about data.
    model : the model object; needed for results of numpyro's SVI. An MCMC and a posterior know theirs.
    guide : of numpyro's SVI.
    key : for draws from q and for new data; ``jax.random.key(0)`` where None.
    num_draws : draws from q; an MCMC keeps its own.
    log_likelihood : ``"sequence"``, ``"step"``, or None for none.
    posterior_predictive : whether to simulate; the group has ``num_draws`` times the size of the data.
    coords : coordinates by dim, in place of those from the metadata; states are 0 to K - 1 if nothing is said.
        What is said of ``state`` or ``feature`` holds for ``next_state`` and ``next_feature`` too.
    dims : names of the axes after (chain, draw), by site, in place of those of ``model.site_dims()``.
    align : parameters by site, without a draw axis (``posterior.mean()``), or a `Posterior` or
        `ConjugateResult`, whose mean is taken. The state labels of every draw are permuted, on all axes named
        ``state`` and ``next_state``, to those whose state probabilities on the data are nearest to the
        reference's. Chains that switched labels, and fits by other algorithms, mean nothing side by side
        without it. It needs the data.

    Raises
    ------
    ValueError, TypeError
        For a result of another type, an SVI result without model, guide or data, ``num_draws`` below 1, a
        ``log_likelihood`` that is none of the three, ``"step"`` or ``align`` without data or on a model without
        chains, a reference of other shapes, and dims or coords that do not fit a site.

    Notes
    -----
    ``az.loo`` takes the draws for draws from the posterior. Those of a variational fit come from q: the
    estimate is then of the leave-one-out score under q, reweighted, not under the posterior. Because q is too
    narrow, ``p_loo`` comes out too small and the Pareto k diagnostics look better than they should. Use it to
    compare models that were fitted in the same way, and check the order against a held-out score.

    Examples
    --------
    >>> import jax
    >>> from ethogram.inference.conjugate_svi import ConjugateSVI
    >>> from ethogram.models.emissions import GaussianEmission
    >>> from ethogram.models.role_hmm import RoleHMM
    >>> model = RoleHMM(2, GaussianEmission(1))
    >>> data = model.simulate(jax.random.key(0), num_groups=6, lengths=20).data
    >>> fit = ConjugateSVI(model).run(jax.random.key(1), data, 50, restarts=2, progress_bar=False)
    >>> tree = to_arviz(fit, data, num_draws=50)
    >>> tree.posterior["transition"].dims, tree.log_likelihood["observations"].shape
    (('chain', 'draw', 'state', 'next_state'), (1, 50, 6))
    """
    _check_arguments(data, key, num_draws, log_likelihood, align)
    key = jax.random.key(0) if key is None else key
    key_draws, key_new = jax.random.split(key)
    drawn = read_draws(key_draws, result, data, model, guide, num_draws)
    if data is not None and hasattr(drawn.model, "bound_to"):
        drawn = drawn._replace(model=drawn.model.bound_to(data))
    layout = Layout(drawn.model, data, coords, dims)
    sites = {name: site for name, site in drawn.sites.items() if not _is_free_part(name, drawn.sites)}
    layout.check_sites(sites)
    groups: dict[str, Variables] = {"fit_stats": drawn.fit}
    groups["sample_stats"] = {name: layout.sampled(name, value) for name, value in drawn.statistics.items()}
    labels: dict[str, Any] = {}
    if data is not None and (log_likelihood or posterior_predictive or align is not None):
        if drawn.model is None:
            raise ValueError("model is None, and result does not know its own: give model=")
        if _is_direct(drawn.model):
            sites, labels = _ask_model(
                groups, layout, drawn.model, sites, data, key_new, log_likelihood, posterior_predictive, align
            )
        else:
            labels = _ask_numpyro(
                groups, layout, drawn, data, key_new, log_likelihood, posterior_predictive, align
            )
    groups["posterior"] = {name: layout.sampled(name, value) for name, value in sites.items()}
    if data is not None:
        groups["observed_data"], groups["constant_data"] = layout.data_variables(groups)
    return layout.assemble(groups, labels, drawn.attributes)


def _check_arguments(data: Any, key: Any, num_draws: int, log_likelihood: str | None, align: Any) -> None:
    if key is not None and not (
        isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    ):
        raise TypeError(f"key must come from jax.random.key, not {type(key).__name__}")
    if isinstance(num_draws, bool) or num_draws < 1:
        raise ValueError(f"num_draws must be an integer of at least 1, not {num_draws!r}")
    if log_likelihood not in ("sequence", "step", None):
        raise ValueError(f'log_likelihood is {log_likelihood!r}: choose "sequence", "step" or None')
    if data is None:
        needs = {'log_likelihood="step"': log_likelihood == "step", "align": align is not None}
        for name, needed in needs.items():
            if needed:
                raise ValueError(f"{name} needs data, which is None: give the trajectories")
    if isinstance(data, Trajectories):
        trajectories.check(data)
        if data.num_sequences == 0:
            raise ValueError("data holds no sequences")


def _is_free_part(name: str, sites: dict[str, Any]) -> bool:
    return name.endswith("_free") and name.removesuffix("_free") in sites


def _is_direct(model: Any) -> bool:
    return all(callable(getattr(model, part, None)) for part in ("observation", "observed_value"))


def _ask_model(
    groups: dict[str, Variables],
    layout: Layout,
    model: Any,
    sites: dict[str, np.ndarray],
    data: Any,
    key: Array,
    log_likelihood: str | None,
    posterior_predictive: bool,
    align: Any,
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Fill the groups by the model's own distribution; sites, aligned, and labels of the entries."""
    if hasattr(model, "check"):
        model.check(data)
    chains, draws = next(iter(sites.values())).shape[:2]
    asked = Pointwise(model, flat_draws(sites), data)
    name = getattr(model, "observed_site", "observations")
    labels: dict[str, Any] = {}
    if align is not None:
        reference = _reference(align, sites, layout)
        order = asked.state_order(reference).reshape(chains, draws, -1)
        sites = {
            site: relabel(value, layout.site_dims(site, value), layout.label_dims, order)
            for site, value in sites.items()
        }
    if log_likelihood == "sequence":
        entries = asked.log_likelihood()
        unit = "group" if asked.by_group else "sequence"
        labels = {"group": ("group", asked.group_numbers())} if asked.by_group else layout.agent_label()
        groups["log_likelihood"] = {name: ((*layout.lead, unit), entries.reshape(chains, draws, -1))}
    elif log_likelihood == "step":
        steps = asked.steps()
        labels = {"sequence": ("observation", steps.sequence), "time": ("observation", steps.time)}
        increment = steps.increment.reshape(chains, draws, -1)
        groups["log_likelihood"] = {name: ((*layout.lead, "observation"), increment)}
    if posterior_predictive:
        values = asked.predictive(key)
        field = np.shape(getattr(data, name))
        groups["posterior_predictive"] = {name: layout.sampled(name, values.reshape(chains, draws, *field))}
    groups.setdefault("observed_data", {name: layout.field(name)})
    return sites, labels


def _ask_numpyro(
    groups: dict[str, Variables],
    layout: Layout,
    drawn: Draws,
    data: Any,
    key: Array,
    log_likelihood: str | None,
    posterior_predictive: bool,
    align: Any,
) -> dict[str, Any]:
    """Fill the groups by handlers of numpyro, for a model that is just a numpyro model; labels of the entries."""
    for argument, asked in {
        'log_likelihood="step"': log_likelihood == "step",
        "align": align is not None,
    }.items():
        if asked:
            raise ValueError(
                f"{argument} needs a model with methods observation and observed_value: leave it out"
            )
    sites, labels = drawn.sites, {}
    chains, draws = next(iter(sites.values())).shape[:2]
    flat = flat_draws(sites)
    # What was learned of rewards in double precision is not worked out anew from variables behind them.
    asked = getattr(drawn.model, "given_reward", drawn.model)
    observed = observed_sites(asked, flat, data)

    def in_chains(values):
        return {name: value.reshape(chains, draws, *value.shape[1:]) for name, value in values.items()}

    if log_likelihood is not None:
        scores = in_chains(site_log_likelihood(asked, flat, data))
        entries = counted_entries(observed)
        for plate in entries:
            if plate in layout.coords:
                raise ValueError(
                    f"coords name every {plate}, and some are unknown or count for nothing, so that they have no log "
                    f"likelihood: leave {plate} out of coords, or these out of data"
                )
        groups["log_likelihood"] = {}
        for name, score in scores.items():
            plates = observed[name].plates if len(observed[name].plates) == score.ndim - 2 else ()
            for axis, plate in enumerate(plates, start=2):
                score = score.take(entries[plate], axis=axis) if plate in entries else score
            groups["log_likelihood"][name] = layout.sampled(name, score, plates)
        labels = {plate: (plate, numbers) for plate, numbers in entries.items()}
    if posterior_predictive:
        new = in_chains(site_predictive(key, asked, flat, data, list(observed)))
        groups["posterior_predictive"] = {name: layout.sampled(name, value) for name, value in new.items()}
    groups["observed_data"] = {name: layout.plain(name, site.value) for name, site in observed.items()}
    return labels


def _reference(align: Any, sites: dict[str, np.ndarray], layout: Layout) -> dict[str, np.ndarray]:
    posterior = align.posterior if isinstance(align, ConjugateResult) else align
    given = posterior.mean() if isinstance(posterior, Posterior) else posterior
    if not isinstance(given, Mapping):
        raise TypeError(
            f"align is {type(align).__name__}: give parameters by site, a Posterior or a ConjugateResult"
        )
    word = layout.label_dims[0]
    labelled = {
        name for name, site in sites.items() if {*layout.label_dims} & {*layout.site_dims(name, site)}
    }
    if not labelled:
        raise ValueError(f"align permutes axes named {word}, and no site has one: name them by dims=")
    reference = {}
    for name, site in sites.items():
        if name not in given and name not in labelled:
            continue  # not a parameter that labels have a say in, such as the sticks behind weights
        if name not in given:
            raise ValueError(f"align has no site {name}: it has {', '.join(sorted(given))}")
        value = np.asarray(given[name])
        if value.shape != site.shape[2:]:
            raise ValueError(
                f"align[{name!r}] has shape {value.shape}, a draw of the result {site.shape[2:]}"
            )
        if not np.isfinite(value).all():
            raise ValueError(
                f"align[{name!r}] is not finite (a mean that does not exist is infinite): give one draw instead"
            )
        reference[name] = value
    return reference
