"""The figures of fits, one function per system, and of comparisons; each draws into an empty figure of Matplotlib."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpyro.distributions import Distribution

from ethogram.inference.conjugate import ConjugateResult
from ethogram.plots.axes import density_of, draw_intervals, figure_or_new, show_plainly
from ethogram.plots.choices import value_marginals
from ethogram.plots.colours import SERIES, series_colour
from ethogram.plots.imitation import failure_curves, policy_roles
from ethogram.plots.intents import intent_shares, intent_timeline
from ethogram.plots.networks import incumbent_curves
from ethogram.plots.rewards import intent_rewards, relevance_forest, reward_intervals
from ethogram.plots.roles import elbo_traces, role_ellipses
from ethogram.plots.timelines import role_timelines

__all__ = [
    "draw_answer",
    "draw_choices",
    "draw_comparison",
    "draw_imitation",
    "draw_intents",
    "draw_rewards",
    "draw_roles",
]

MOST_SEQUENCES = 20
"""Sequences of a figure of roles."""
MOST_ESTIMATES = 16
"""Estimates of a comparison of algorithms."""
DECADES = 100
"""Ratio of the ends of an interval above which densities are of logs."""


def draw_roles(fit: Any, figure: Any) -> None:
    data, found = fit.data, fit.states()
    conjugate = isinstance(fit.result, ConjugateResult)
    posterior = fit.result.posterior if conjugate else fit.result
    left, right = figure.subplots(1, 2)
    mean = posterior.mean()
    shapes = [np.shape(mean.get(name, 0.0)) for name in ("mean", "covariance")]  # a mixture has more axes
    if [len(shape) for shape in shapes] == [2, 3] and shapes[0][-1] >= 2:
        role_ellipses(posterior, left, data=data)
        left.set_title("roles: mean, covariance and posterior draws")
    elif conjugate:
        elbo_traces(fit.result, left)
    else:
        left.set_axis_off()
    shown = data.take(np.arange(min(data.num_sequences, MOST_SEQUENCES)))
    count = shown.num_sequences
    role_timelines(found.path[:count], found.probability[:count], shown, right)
    part = f", the first {count} sequences" if count < data.num_sequences else ""
    right.set_title(f"most probable roles{part}")


def draw_imitation(fit: Any, figure: Any) -> None:
    curve, loss, shares = figure.subplots(1, 3)
    failure_curves({"policies": fit.result}, curve)
    loss.plot(range(1, len(fit.result.loss) + 1), fit.result.loss, ".-")
    loss.xaxis.get_major_locator().set_params(integer=True)
    loss.set(xlabel="round", ylabel="loss", title="difference from the demonstrators' actions")
    policy_roles(fit.result.policy_role[-1], shares)


def draw_intents(fit: Any, figure: Any) -> None:
    found, lengths = fit.states(), np.asarray(fit.data.lengths)
    left, right = figure.subplots(1, 2, width_ratios=(2, 1))
    longest = int(np.argmax(lengths))
    length = int(lengths[longest])
    intent_timeline(found.probability[longest, :length], left, change=found.change[longest, : length - 1])
    left.set_title("intents along the longest trace")
    intent_shares(found.probability, right)
    right.set_title("shares of the steps")


def draw_choices(fit: Any, figure: Any) -> None:
    names, values = fit._entries()
    value_marginals(values, figure.subplots(), names=names)


def draw_rewards(fit: Any, figure: Any) -> None:
    if not fit.has_draws:
        mean, axes = fit.summary()["mean"], figure.subplots()
        reward_intervals((mean - mean.mean()).to_numpy()[None], axes, names=mean.index.tolist())
        axes.set_title("rewards of the linear baseline")
        return
    names, draws = fit._entries()
    values = draws.reshape(-1, len(names))
    rewards = [at for at, name in enumerate(names) if name.startswith("centred_reward[")]
    relevance = [at for at, name in enumerate(names) if name.startswith("relevance[")]
    if fit.model.switches:
        left, right = figure.subplots(1, 2, width_ratios=(1, 2))
        several = values[:, rewards].reshape(len(values), fit.model.num_intents, -1)
        places = [_inside(names[at]).partition(", ")[2] for at in rewards[: several.shape[-1]]]
        intent_rewards(several, left, names=places)
        left.set_ylabel(", ".join(("state", "action")[: fit.model.features.ndim - 1]))
        found, lengths = fit.states(), np.asarray(fit.data.lengths)
        longest = int(lengths.argmax())
        intent_timeline(found.probability[longest, : lengths[longest]], right)
        right.set_title("intents along the longest demonstration")
        return
    learned = isinstance(fit.model.relevance_prior, Distribution)
    axes = figure.subplots(1, 2 if learned else 1, squeeze=False)[0]
    reward_intervals(
        values[:, rewards], axes[0], names=[names[at].removeprefix("centred_") for at in rewards]
    )
    if not learned:
        return
    used = [at for at in relevance if (values[:, at] > 0).all()]  # Levine's estimate has zeros
    axes[1].set_title("relevance of the features")
    if used:
        relevance_forest(values[:, used], axes[1], names=[_inside(names[at]) for at in used])
    else:
        axes[1].set(xticks=[], yticks=[], xlabel="all are 0")


def _inside(name: str) -> str:
    """The coordinates of an estimate: ``state, action`` of ``reward[state, action]``."""
    return name.partition("[")[2].removesuffix("]")


def draw_answer(fit: Any, figure: Any) -> None:
    incumbent_curves({fit.method: fit.result}, figure.subplots())


def draw_comparison(found: Any, figure: Any = None) -> Any:
    """The figure of a `Comparison`, drawn into one that is empty, or into a new one."""
    height = 6 if found.entries is None or len(found.entries[0]) > 4 else 4
    figure = figure_or_new(figure, (12, height) if found.kind == "algorithms" else (8, 3.5))
    {"algorithms": _compare_algorithms, "models": _compare_models, "answers": _compare_answers}[found.kind](
        found, figure
    )
    show_plainly(figure)
    return figure


def _compare_answers(found: Any, figure: Any) -> None:
    incumbent_curves({name: fit.result for name, fit in found.fits.items()}, figure.subplots())


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
    titles = [names[at] for at in shown]
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.1))
    axes, many = left.subplots(), len(flat)
    rows = np.arange(len(shown))[::-1].astype(float)
    centre, width = _units([values[:, shown] for values in flat.values()])
    for number, (name, values) in enumerate(flat.items()):
        at = rows + 0.15 * ((many - 1) / 2 - number)
        draw_intervals(
            axes, at, (values[:, shown] - centre) / width, series_colour(number), median=True, label=name
        )
    axes.set_yticks(rows, titles, fontsize="small")
    axes.set_ylim(-0.6, len(shown) - 0.4)
    axes.set_xlabel(f"distance to the median of {next(iter(flat))}, in widest intervals")
    axes.set_title("medians and 90 % intervals")
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.1), ncols=many, frameon=False)
    panels = right.subplots(3, 2).ravel()
    for panel, place, title in zip(panels, shown, titles, strict=False):
        for number, values in enumerate(flat.values()):
            _density(panel, values[:, place], series_colour(number))
        panel.set_title(title, fontsize="small")
        panel.set_yticks([])
    for panel in panels[len(shown) :]:
        panel.set_axis_off()
    right.suptitle("marginal densities, the largest disagreements first", fontsize="medium")


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


def _density(axes: Any, values: np.ndarray, colour: str) -> None:
    """A kernel density, of logs where all draws are positive over decades; a line where all are equal."""
    low, high = np.quantile(values, [0.005, 0.995])
    if high - low <= 1e-12 * max(abs(values).max(), 1e-300):
        axes.axvline(values[0], color=colour)
        return
    decades = bool(values.min() > 0 and high > DECADES * low)
    if decades:
        axes.set_xscale("log")
    places, density = density_of(values, log=decades)
    axes.plot(places, density, color=colour)
    axes.fill_between(places, density, color=colour, alpha=0.2, linewidth=0)
