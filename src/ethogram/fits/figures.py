"""The figures of fits, one function per system, and of comparisons; each draws into an empty figure of Matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpyro.distributions import Distribution

from ethogram.fits.checks import chain_checks, checked
from ethogram.inference.conjugate import ConjugateResult
from ethogram.models.data.parts import taken
from ethogram.models.roles import CovariateEmission
from ethogram.plots.axes import default_title, draw_intervals, figure_or_new, show_plainly
from ethogram.plots.checks import path_check, residual_autocorrelation, residual_quantiles
from ethogram.plots.choices import value_marginals
from ethogram.plots.colours import SERIES, series_colour
from ethogram.plots.imitation import failure_curves, policy_roles
from ethogram.plots.intents import intent_shares
from ethogram.plots.networks import anytime_curves
from ethogram.plots.rewards import grid_cells, relevance_forest, reward_intervals, reward_map
from ethogram.plots.roles import elbo_traces, role_ellipses, role_marginals
from ethogram.plots.timelines import role_timelines

__all__ = [
    "draw_answer",
    "draw_checks",
    "draw_choices",
    "draw_comparison",
    "draw_imitation",
    "draw_intents",
    "draw_rewards",
    "draw_roles",
    "draw_states",
    "draw_switching_rewards",
]

NARROW, MARGINAL = 7.0, 2.4
"""Width of a figure below which its parts stand one below the other, and height of a marginal, in inches."""
MOST_MARKED, LONGEST_MARK = 6, 3
"""Ellipses whose centres have names, and letters of these; more would overlap, and the colours are in the legend."""
MOST_PANELS = 6
"""Units of values that have an axis each."""
MOST_ESTIMATES = 16
"""Estimates of a comparison of algorithms."""
MOST_FRAMES = 2**20
"""Frames, those missing among them, of the histograms of features."""


def draw_roles(fit: Any, figure: Any, **shown: Any) -> None:
    """Timelines with what tells the roles apart beside them, or below them in a narrow figure."""
    data, found, names = fit.data, fit.states(), fit.state_names
    conjugate = isinstance(fit.result, ConjugateResult)
    posterior = fit.result.posterior if conjugate else fit.result
    shapes = [np.shape(posterior.mean().get(name, 0.0)) for name in ("mean", "covariance")]
    ellipses = [len(shape) for shape in shapes] == [2, 3] and shapes[0][-1] >= 2  # a mixture has more axes
    emission = getattr(fit.model, "emission", None)
    of_features = emission is not None and not emission.order and not isinstance(emission, CovariateEmission)
    (width, height), features = figure.get_size_inches(), np.zeros(0, int)
    narrow = width < NARROW
    part, probability = data, found.probability
    if of_features and not ellipses:
        most = max(MOST_FRAMES // data.observed.shape[1], 1)
        if most < data.num_sequences:
            rows = np.linspace(0, data.num_sequences - 1, most).astype(int)
            part, probability = taken(data, rows), probability[rows]
        features = _telling(part, probability)[: max(int((height - 3 * narrow) / MARGINAL), 1)]
    count = len(features) or int(ellipses or conjugate)
    if narrow:
        grid = figure.add_gridspec(count + 1, 1, height_ratios=[*[1] * count, 2])
    else:
        grid = figure.add_gridspec(max(count, 1), 2, width_ratios=[1, 2.6])
    panels = [figure.add_subplot(grid[at, 0]) for at in range(count)]
    if ellipses:
        marked = len(names) <= MOST_MARKED and max(map(len, names)) <= LONGEST_MARK
        role_ellipses(posterior, panels[0], data=data, names=names if marked else [""] * len(names))
        panels[0].set_title("mean, covariance and draws", fontsize="medium")
    for feature, panel in zip(features, panels, strict=False):
        role_marginals(posterior, part, probability, int(feature), panel)
        panel.get_legend().remove()  # the timelines have it
        panel.set_yticks([])
    if len(features):
        default_title(panels[0], "by role; dashed: all")
    elif conjugate and not ellipses:
        elbo_traces(fit.result, panels[0])
    axes = figure.add_subplot(grid[-1, 0] if narrow else grid[:, -1])
    role_timelines(found.path, found.probability, data, axes, names=names, **shown)


def _telling(data: Any, probability: Any) -> np.ndarray:
    """Features that have values, first those of whose variance roles have the largest share."""
    seen = np.asarray(data.observed)
    x, weight = np.asarray(data.observations, float)[seen], np.asarray(probability)[seen]
    known = np.isfinite(x)
    x = np.where(known, x - np.nansum(x, axis=0) / np.maximum(known.sum(0), 1), 0)
    mean = weight.T @ x / np.maximum(weight.sum(0), 1e-9)[:, None]
    share = weight.sum(0) @ mean**2 / np.maximum((x**2).sum(0), 1e-300)
    return np.argsort(-share, kind="stable")[: known.any(0).sum()]


def draw_checks(fit: Any, draws: Mapping[str, np.ndarray], figure: Any) -> None:
    """Pseudo-residuals, their autocorrelation, and numbers of sampled paths beside those of the chain."""
    residuals, names = fit.residuals(), fit.data.metadata.feature_names
    paths = fit.sample_paths(len(draws["initial"]))
    found = chain_checks(fit._key, checked(fit, fit.data), draws, fit.data, paths)
    axes = figure.subplots(4, 1) if figure.get_figwidth() < NARROW else figure.subplots(2, 2).ravel()
    residual_quantiles(residuals, axes[0], names=names)
    residual_autocorrelation(residuals, axes[1], names=names)
    for axis, (quantity, (ours, made)) in zip(axes[2:], found.items(), strict=True):
        path_check(ours, made, fit.state_names, axis, quantity=quantity)


def draw_imitation(fit: Any, figure: Any) -> None:
    curve, loss, shares = figure.subplots(*((3, 1) if figure.get_figwidth() < NARROW else (1, 3)))
    failure_curves({"policies": fit.result}, curve)
    loss.plot(range(1, len(fit.result.loss) + 1), fit.result.loss, ".-")
    loss.xaxis.get_major_locator().set_params(integer=True)
    loss.set(xlabel="round", ylabel="loss", title="difference from the demonstrators' actions")
    policy_roles(fit.result.policy_role[-1], shares)


def draw_intents(fit: Any, figure: Any, **shown: Any) -> None:
    narrow = figure.get_figwidth() < NARROW
    lines, shares = figure.subplots(2, 1) if narrow else figure.subplots(1, 2, width_ratios=(3, 1))
    intent_shares(draw_states(fit, lines, "intent", **shown).probability, shares, names=fit.state_names)


def draw_states(fit: Any, axes: Any, name: str, **shown: Any) -> Any:
    """Timelines of the hidden states of a fit, which come back."""
    found = fit.states()
    role_timelines(found.path, found.probability, fit.data, axes, names=fit.state_names, name=name, **shown)
    return found


def draw_choices(fit: Any, figure: Any) -> None:
    """Values, each unit on an axis of its own; of subjects those of the population."""
    names, draws = fit._entries()
    data, features = fit.data, fit.data.metadata.feature_names or ()
    units = dict(zip(features, data.metadata.feature_units or (), strict=False))
    population = [name for name in names if "_loc[" in name]
    panels: dict[str, dict[str, int]] = {}
    for at, name in enumerate(names):
        site, inside = name.partition("[")[0].removesuffix("_loc"), _inside(name)
        if site not in ("v", "action_rewards") or (population and name not in population):
            continue
        label = "value"
        if fit.model.kind == "features":
            label = f"utility per {units.get(inside) or f'unit of {inside}'}"
        panels.setdefault("constants of the options (utility)" if site != "v" else label, {})[inside] = at
    if len(panels) > MOST_PANELS:
        panels = {"value": {name: at for panel in panels.values() for name, at in panel.items()}}
    sizes = [len(panel) + 1 for panel in panels.values()]
    narrow = figure.get_figwidth() < NARROW
    shape: Any = {"nrows": len(panels), "height_ratios": sizes} if narrow else {"ncols": len(panels)}
    for axes, (label, panel) in zip(
        figure.subplots(squeeze=False, **shape).ravel(), panels.items(), strict=True
    ):
        value_marginals(draws[..., [*panel.values()]], axes, names=[*panel], legend=False)
        axes.set(xlabel=label, title="")
    figure.suptitle("posterior density, mean and 90 % interval", fontsize="medium")


def draw_switching_rewards(
    fit: Any, figure: Any, grid: tuple[int, int] | None = None, cell_noise: bool = False, **shown: Any
) -> None:
    """Maps of the rewards of a grid world, else intervals; with the intents over time."""
    _, _, places, draws, cells = _rewards_of_states(fit, grid, cell_noise)
    narrow = figure.get_figwidth() < NARROW
    above, below = figure.subfigures(2, 1) if narrow or cells is not None else figure.subfigures(1, 2)
    if cells is None:
        shortened = [place.partition(", ")[2] for place in places[: draws.shape[-1]]]
        axes = reward_intervals(draws, above.subplots(), names=shortened)
        axes.set_ylabel(", ".join(("state", "action")[: fit.model.base.features.ndim - 1]))
    else:
        _draw_maps(draws, cells, above, [f"intent {name}" for name in fit.state_names])
    draw_states(fit, below.subplots(), "intent", **shown)


def _rewards_of_states(
    fit: Any, grid: tuple[int, int] | None, cell_noise: bool
) -> tuple[list[str], np.ndarray, list[str], np.ndarray, np.ndarray | None]:
    """Names and draws of centred rewards and relevances; states (and actions), rewards (draw, owner, state), cells."""
    model = getattr(fit.model, "base", fit.model)
    names, values = _reward_draws(fit, cell_noise)
    rewards = [at for at, name in enumerate(names) if "reward[" in name]
    draws = values[:, rewards].reshape(len(values), -1, model.num_points)  # by intent or subject
    cells = grid_cells(model.mdp, grid)
    if cells is not None:  # averages over available actions where these have rewards of their own
        available = np.asarray(model.mdp.allowed_actions()) if model.features.ndim > 2 else True
        draws = draws.reshape(*draws.shape[:2], len(cells), -1).mean(-1, where=available)
    return names, values, [_inside(names[at]) for at in rewards], draws, cells


def draw_rewards(
    fit: Any, figure: Any, grid: tuple[int, int] | None = None, cell_noise: bool = False
) -> None:
    """Maps of the rewards of a grid world, else intervals; with relevances of the features."""
    names, values, places, draws, cells = _rewards_of_states(fit, grid, cell_noise)
    rewards = [at for at, name in enumerate(names) if "reward[" in name]
    narrow, of_pairs = figure.get_figwidth() < NARROW, fit.model.features.ndim > 2
    if cells is not None and draws.shape[1] > 1:
        owners = [place.partition(", ")[0] for place in places[:: fit.model.num_points]]
        _draw_maps(draws, cells, figure, [f"subject {name}" for name in owners])
        return
    relevance = [at for at, name in enumerate(names) if name.startswith("relevance[")]
    learned = fit.has_draws and isinstance(fit.model.relevance_prior, Distribution)
    learned = learned and np.ptp(values[:, relevance]) > 0  # else they are held where they began, or all zero
    spread = cells is not None and bool(np.ptp(draws, axis=0).any())
    count = 1 + spread + learned
    heights = (3, 1)[:count] if narrow and cells is None else None
    shape = (count, 1) if narrow else (1, count)
    panels = figure.subplots(*shape, squeeze=False, height_ratios=heights).ravel()
    if cells is None:
        reward_intervals(values[:, None, rewards], panels[0], names=[f"reward[{place}]" for place in places])
    else:
        label = "reward, centred" + ", mean of actions" * of_pairs
        reward_map(draws[:, 0].mean(0), cells, panels[0], label=label)
        panels[0].set_title("posterior mean" if spread else "estimate", fontsize="medium")
        if spread:
            reward_map(draws[:, 0].std(0), cells, panels[1], label="standard deviation", cmap="magma")
            panels[1].set_title("posterior sd", fontsize="medium")
    if not fit.has_draws:
        panels[0].set_title("rewards of the linear baseline")
    if learned:
        used = [at for at in relevance if (values[:, at] > 0).all()]  # Levine's estimate has zeros
        relevance_forest(values[:, used], panels[-1], names=[_inside(names[at]) for at in used])
        panels[-1].set_title("relevance of the features", fontsize="medium")


def _draw_maps(draws: np.ndarray, cells: np.ndarray, figure: Any, owners: Sequence[str]) -> None:
    """Mean rewards of intents or subjects, of draws (draw, owner, state), in colours of one scale."""
    columns = min(len(owners), 2 if figure.figure.get_figwidth() < NARROW else 4)
    panels = figure.subplots(-(-len(owners) // columns), columns, squeeze=False).ravel()
    means = draws.mean(0)
    for mean, owner, axes in zip(means, owners, panels, strict=False):
        reward_map(mean, cells, axes, label=f"mean reward, {owner}", limits=(means.min(), means.max()))
        axes.set_title("")
    for axes in panels[len(owners) :]:
        axes.set_axis_off()


def _reward_draws(fit: Any, cell_noise: bool) -> tuple[list[str], np.ndarray]:
    """Names and draws (draw, entry) of centred rewards and relevances; one draw of an answer without any."""
    if not fit.has_draws:
        mean = fit.summary()["mean"]
        return mean.index.tolist(), (mean - mean.mean()).to_numpy()[None]
    names, draws = fit._entries(cell_noise=cell_noise)
    kept = [at for at, name in enumerate(names) if name.startswith(("centred_reward[", "relevance["))]
    return [names[at] for at in kept], draws[..., kept].reshape(-1, len(kept))


def _inside(name: str) -> str:
    """The coordinates of an estimate: ``state, action`` of ``reward[state, action]``."""
    return name.partition("[")[2].removesuffix("]")


def draw_answer(fit: Any, figure: Any) -> None:
    anytime_curves({fit.method: fit.result}, figure.subplots()).legend()


def draw_comparison(found: Any, figure: Any = None) -> Any:
    """The figure of a `Comparison`, drawn into one that is empty, or into a new one."""
    height = 6 if found.entries is None or len(found.entries[0]) > 4 else 4
    figure = figure_or_new(figure, (8, height if found.kind == "algorithms" else 3.5))
    if found.kind == "answers":
        anytime_curves({name: fit.result for name, fit in found.fits.items()}, figure.subplots()).legend()
    else:
        (_compare_algorithms if found.kind == "algorithms" else _compare_models)(found, figure)
    show_plainly(figure)
    return figure


def _compare_models(found: Any, figure: Any) -> None:
    axes, table = figure.subplots(), found.scores
    rows = np.arange(len(table))[::-1]
    error = table["se of difference"].fillna(0)
    axes.errorbar(table["difference"], rows, xerr=error, fmt="o", color=SERIES[0], capsize=3)
    axes.axvline(0, color="0.6", linestyle="--", linewidth=1)
    axes.set_yticks(rows, table.index)
    axes.set(xlabel=f"{table.columns[0]}, difference to the best (nats)", title="scores")
    axes.set_ylim(-0.5, len(table) - 0.5)


def _compare_algorithms(found: Any, figure: Any) -> None:
    names, draws = found.entries
    flat = {name: values.reshape(-1, len(names)) for name, values in draws.items()}
    shown = _largest(found, names, list(flat.values()))
    axes, many = figure.subplots(), len(flat)
    rows = np.arange(len(shown))[::-1].astype(float)
    centre, width = _units([values[:, shown] for values in flat.values()])
    for number, (name, values) in enumerate(flat.items()):
        at = rows + 0.15 * ((many - 1) / 2 - number)
        draw_intervals(
            axes, at, (values[:, shown] - centre) / width, series_colour(number), median=True, label=name
        )
    axes.set_yticks(rows, [names[at] for at in shown], fontsize="small")
    axes.set_ylim(-0.6, len(shown) - 0.4)
    axes.set_xlabel(f"distance to the median of {next(iter(flat))},\nin widest intervals")
    default_title(axes, "medians and 90 % intervals, the largest disagreements first")
    figure.legend(loc="outside lower center", ncols=many, frameon=False)


def _largest(found: Any, names: list[str], draws: list[np.ndarray]) -> list[int]:
    """Places of the estimates that disagree most, then of those whose means are furthest apart."""
    spread = np.max([each.std(0) for each in draws], axis=0)
    distance = np.ptp([each.mean(0) for each in draws], axis=0) / np.where(spread > 0, spread, 1)
    first = [names.index(name) for name in dict.fromkeys(found.disagreements["estimate"])]
    rest = np.argsort(-distance, kind="stable").tolist()
    return [at for at in dict.fromkeys(first + rest) if spread[at] > 0 or at in first][:MOST_ESTIMATES]


def _units(draws: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Medians (entry,) of the first draws, and widths of the widest 90 % intervals: entries have units of their own."""
    width = np.max([np.ptp(np.quantile(each, [0.05, 0.95], axis=0), axis=0) for each in draws], axis=0)
    return np.median(draws[0], axis=0), np.where(width > 0, width, 1.0)
