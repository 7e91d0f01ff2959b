"""The figures of fits, one function per system; each draws into an empty figure of Matplotlib."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpyro.distributions import Distribution

from ethogram.inference.conjugate import ConjugateResult

__all__ = ["draw_answer", "draw_choices", "draw_imitation", "draw_intents", "draw_rewards", "draw_roles"]

MOST_SEQUENCES = 20
"""Sequences of a figure of roles."""


def draw_roles(fit: Any, figure: Any) -> None:
    from ethogram.plots.roles import elbo_traces, role_ellipses
    from ethogram.plots.timelines import role_timelines

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
    from ethogram.plots.imitation import failure_curves, policy_roles

    curve, loss, shares = figure.subplots(1, 3)
    failure_curves({"policies": fit.result}, curve)
    loss.plot(range(1, len(fit.result.loss) + 1), fit.result.loss, ".-")
    loss.xaxis.get_major_locator().set_params(integer=True)
    loss.set(xlabel="round", ylabel="loss", title="difference from the demonstrators' actions")
    policy_roles(fit.result.policy_role[-1], shares)


def draw_intents(fit: Any, figure: Any) -> None:
    from ethogram.plots.intents import intent_shares, intent_timeline

    found, lengths = fit.states(), np.asarray(fit.data.lengths)
    left, right = figure.subplots(1, 2, width_ratios=(2, 1))
    longest = int(np.argmax(lengths))
    length = int(lengths[longest])
    intent_timeline(found.probability[longest, :length], left, change=found.change[longest, : length - 1])
    left.set_title("intents along the longest trace")
    intent_shares(found.probability, right)
    right.set_title("shares of the steps")


def draw_choices(fit: Any, figure: Any) -> None:
    from ethogram.plots.choices import value_marginals

    names, values = fit._entries()
    value_marginals(values, figure.subplots(), names=names)


def draw_rewards(fit: Any, figure: Any) -> None:
    from ethogram.plots.intents import intent_timeline
    from ethogram.plots.rewards import intent_rewards, relevance_forest, reward_intervals

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
    from ethogram.plots.networks import incumbent_curves

    incumbent_curves({fit.method: fit.result}, figure.subplots())
