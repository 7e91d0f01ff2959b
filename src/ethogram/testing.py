"""What is wrong with a conjugate model of one's own, hook by hook: for its tests, before it is fitted."""

from __future__ import annotations

import itertools
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax import Array

from ethogram.inference.conjugate import ConjugateSVI, load_posterior
from ethogram.inference.conjugate.mini_batches import in_group_order
from ethogram.inference.conjugate.padded_shapes import num_steps_of, pad_batch
from ethogram.inference.export import to_arviz
from ethogram.models.chains.hidden_markov import LatentChain
from ethogram.models.conjugate_model import ConjugateModel, group_size, overrides, unlabelled
from ethogram.models.data import Trajectories
from ethogram.models.families.numpyro_sites import by_site
from ethogram.models.hooks import misspelt
from ethogram.models.quick_jit import quick_jit

__all__ = ["check_model"]

MANY = 5000  # values of a sequence, beyond which they are not enumerated
STEP = 1e-5  # of central differences, relative


def check_model(model: ConjugateModel, data: Trajectories) -> None:
    """Check the hooks of a conjugate model against one another, on small data and in double precision.

    Parameters
    ----------
    model : of one's own.
    data : a few short sequences of different lengths, without known hidden states or stay labels, which are evidence.

    Raises
    ------
    AssertionError
        One line for each fault, which begins with the hook: names that are almost those of hooks; statistics that are
        not the gradient of the log normaliser, by central differences; padding that changes it; a likelihood that
        differs from the log normaliser at a point, or does not sum to one over all values where these are few; an ELBO
        that falls; exports and files that do not work.

    Examples
    --------
    >>> from ethogram.models.emissions import CategoricalEmission
    >>> from ethogram.models.roles import RoleHMM
    >>> check_model(RoleHMM(2, CategoricalEmission(2)), Trajectories.from_list([[[0], [1], [1]], [[1]]]))
    """
    if jax.tree_util.all_leaves([model]):
        raise AssertionError(f"{type(model).__name__} is no pytree: decorate its class with model_object")
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, data = jax.tree.map(_double, (model, data))
        try:
            model.check(data)
            model, data = model.bind(data), in_group_order(data)
            prior = model.prior()
            drawn = {name: prior[name].sample(jax.random.key(0)) for name in sorted(prior)}
        except Exception as error:
            raise AssertionError(f"check, bind or prior: {_raised(error)}") from error
        found = [f"spelling: {fault}" for fault in misspelt(model, *vars(model).values(), *prior.values())]
        for hook, check in CHECKS.items():
            try:
                found += [f"{hook}: {fault}" for fault in check(model, data, drawn)]
            except Exception as error:
                found.append(f"{hook}: {_raised(error)}")
    if found:
        raise AssertionError("\n".join([f"{type(model).__name__} has {len(found)} faults:", *found]))


def _raised(error: Exception) -> str:
    return f"raises {type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _double(leaf: Any) -> Any:
    return np.asarray(leaf, float) if getattr(leaf, "dtype", None) == np.float32 else leaf


def _differs(one: Any, other: Any, tolerance: float = 1e-8) -> bool:
    return not np.allclose(one, other, rtol=tolerance, atol=tolerance)


def _at(model: Any, drawn: dict[str, Any]) -> dict[str, Any]:
    """Statistics of the blocks at draws of their parameters."""
    values = {name: value if isinstance(value, tuple) else (value,) for name, value in drawn.items()}
    return {name: model.prior()[name].statistics(*value) for name, value in values.items()}


def _arranged(model: Any, data: Trajectories) -> Any:
    return model.arrange(data._replace(times=None, metadata=unlabelled(data).metadata))


@quick_jit
def _local_step(model: Any, expected: Any, batch: Any) -> Any:
    return model.e_step.step(expected, batch, model.e_step.init(batch), 0)[:2]


@quick_jit
def _log_prob(model: Any, parameters: Any, batch: Any, value: Any) -> Array:
    distribution = model.likelihood(parameters, batch)
    if isinstance(distribution, LatentChain):  # without paths that q cannot take
        distribution = distribution.within_truncation()
    return distribution.log_prob(value)


def _gradient(model: Any, data: Trajectories, drawn: dict[str, Any]) -> Iterator[str]:
    expected, batch, random = _at(model, drawn), _arranged(model, data), np.random.default_rng(0)
    value, statistics = _local_step(model, expected, batch)
    if not np.isfinite(value):
        yield f"is {value} at parameters drawn from the prior"
    for name, point in expected.items():
        away = jax.tree.map(lambda x: np.where(np.isfinite(x), random.normal(size=x.shape), 0), point)
        ends = [jax.tree.map(lambda x, d, h=h: x + h * d, point, away) for h in (STEP, -STEP)]
        up, down = (_local_step(model, expected | {name: end}, batch)[0] for end in ends)
        parts = jax.tree.map(lambda s, d: np.sum(np.asarray(s) * d), statistics[name], away)
        slope, told = float(up - down) / (2 * STEP), float(sum(jax.tree.leaves(parts)))
        if (
            _differs(slope, told, 1e-5) and model.e_step.period == 1
        ):  # otherwise a bound, whose q(z) is not the best
            yield f"its slope by expected[{name!r}] is {slope:.6g}, its statistics say {told:.6g}"


def _padding(model: Any, data: Trajectories, drawn: dict[str, Any]) -> Iterator[str]:
    expected, batch = _at(model, drawn), _arranged(model, data)
    num_sequences, num_steps = data.num_sequences + 2 * group_size(batch), num_steps_of(batch)
    padded = {
        "empty sequences": pad_batch(batch, num_sequences, num_steps),
        "a longer time axis": pad_batch(batch, data.num_sequences, num_steps + 3),
        "other values beyond the lengths": _arranged(model, _longer(data)),
    }
    value, statistics = _local_step(model, expected, batch)
    for change, other in padded.items():
        found, again = _local_step(model, expected, other)
        if _differs(found, value):
            yield f"is {value:.6g}, with {change} {found:.6g}"
        elif any(map(_differs, jax.tree.leaves(again), jax.tree.leaves(statistics))):
            yield f"its statistics change with {change}"


def _longer(data: Trajectories) -> Trajectories:
    """The data with a longer time axis, on which the values of the last step go on."""

    def longer(x):
        return np.pad(x, [(0, 0), (0, 2), *[(0, 0)] * (x.ndim - 2)], mode="edge") if np.ndim(x) > 1 else x

    return jax.tree.map(longer, data)


def _likelihood(model: Any, data: Trajectories, drawn: dict[str, Any]) -> Iterator[str]:
    if not overrides(model, "likelihood") or model.e_step.period > 1:
        return
    entries, parameters = model.entries(data), by_site(drawn)
    distribution = model.likelihood(parameters, entries.batch)
    if np.shape(entries.value) != distribution.shape():
        yield f"has shape {distribution.shape()}, but data.{model.observed_site} has {np.shape(entries.value)}"
        return
    each = np.asarray(_log_prob(model, parameters, entries.batch, entries.value))
    value = float(_local_step(model, _at(model, drawn), _arranged(model, data))[0])
    if _differs(each.sum(), value, 1e-7):
        yield f"is {each.sum():.6g}, and the log normaliser at the same parameters {value:.6g}"
    longer = model.entries(_longer(data))
    if _differs(_log_prob(model, parameters, longer.batch, longer.value), each):
        yield "changes with other values beyond the lengths"
    total = _over_values(distribution, np.asarray(data.lengths))
    if total is not None and _differs(total, 1, 1e-6):
        yield f"probabilities of all values of the shortest sequence sum to {total:.6g}"


def _over_values(distribution: Any, lengths: np.ndarray) -> float | None:
    """Sum of the probabilities of all values of the shortest sequence; None unless these are few integers."""
    support, row = distribution.support, int(lengths.argmin())
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    if not hasattr(support, "upper_bound") or len(distribution.event_shape) != 1:
        return None
    symbols = np.arange(max(int(support.lower_bound), 0), int(support.upper_bound) + 1)  # -1 is a missing one
    if len(symbols) ** lengths[row] > MANY:
        return None
    values = np.zeros((len(symbols) ** lengths[row], len(lengths), *distribution.event_shape), int)
    values[:, row, : lengths[row]] = list(itertools.product(symbols, repeat=int(lengths[row])))
    return float(np.exp(np.asarray(distribution.log_prob(values))[:, row]).sum())


def _fit(model: Any, data: Trajectories, drawn: dict[str, Any]) -> Iterator[str]:
    fit = ConjugateSVI(model).run(
        jax.random.key(2), data, 30, restarts=2, init="prior", tol=0.0, progress_bar=False
    )
    falls = np.maximum(fit.elbo[:-1] - fit.elbo[1:] - 1e-7 * np.abs(fit.elbo[1:]), 0)
    if falls.any() and model.e_step.period == 1:
        yield f"the ELBO falls by {falls.max():.3g} nats in iteration {falls.argmax() + 1}"
    scores = "sequence" if overrides(model, "likelihood") else None
    tree = to_arviz(fit, data, num_draws=2, log_likelihood=scores, progress_bar=False)
    if scores and not np.isfinite(tree.log_likelihood[model.observed_site]).all():
        yield "exported log likelihoods are not finite"
    with tempfile.TemporaryDirectory() as folder:
        fit.posterior.save(f"{folder}/fit.npz")
        again = load_posterior(f"{folder}/fit.npz").mean()
    if any(_differs(again[name], mean) for name, mean in fit.posterior.mean().items()):
        yield "a fit that was saved and loaded has other means"


CHECKS = {
    "log_normalizer or e_step": _gradient,
    "arrange or log_normalizer": _padding,
    "likelihood": _likelihood,
    "update, divergence, site_layout or save": _fit,
}
