"""Held-out log predictive density over model sizes (Gelman, Hwang, Vehtari 2014, section 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from ethogram.inference.checkpoint import one_of_several
from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.inference.conjugate.padded_shapes import padded_data
from ethogram.inference.conjugate.posterior import ConjugateResult, posterior_that_fits
from ethogram.models.conjugate_model import ConjugateModel, log_likelihood, steps_by_entry
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.printing import short_repr
from ethogram.models.quick_jit import quick_jit

__all__ = ["PeerScore", "ScoreCurve", "heldout_log_likelihood", "heldout_score_curve"]


class PeerScore(NamedTuple):
    """Held-out score of another model on the same split.

    Attributes
    ----------
    heldout : log likelihood per observed step of the test data, in nats.
    heldout_se : standard error of the difference to the best size of the curve.
    """

    heldout: float
    heldout_se: float


@short_repr
class ScoreCurve(NamedTuple):
    """Scores over model sizes, with the fits.

    Attributes
    ----------
    size : (size,) model sizes.
    elbo : (size,) final ELBOs on the training data, in nats.
    heldout : (size,) held-out log likelihood per observed step, in nats, at the posterior means.
    fits : the result of each size.
    heldout_se : (size,) standard error of the difference of `heldout` to its largest value, over the test sequences (or
        groups), which the sizes share; 0 at the best size.
    train_steps : observed steps of the training data, which put `elbo` on the scale of `heldout`.
    peers : by name, the scores of simpler models that the model names (its hook `peers`), as it is at the best size.
    """

    size: np.ndarray
    elbo: np.ndarray
    heldout: np.ndarray
    fits: tuple[Any, ...]
    heldout_se: np.ndarray
    train_steps: int
    peers: Mapping[str, PeerScore] = MappingProxyType({})

    @property
    def selected_size(self) -> int:
        """Smallest size within one standard error of the best held-out score.

        Breiman, Friedman, Olshen, Stone (1984), "Classification and regression trees", section 3.4.3.
        """
        if not np.isfinite(self.heldout).any():
            raise ValueError("no size gives the test data a positive probability: heldout is -inf everywhere")
        within = self.heldout.max() - self.heldout <= self.heldout_se
        return int(self.size[within].min())

    @property
    def caution(self) -> str:
        """What there is to say where `selected_size` is the largest of several sizes; empty elsewhere.

        With heavy tails, drift, or whatever else a state does not describe, scores go on rising with the number of
        states, which then counts pieces of the misfit.
        """
        if len(self.size) < 2 or self.selected_size < self.size.max():
            return ""
        return (
            f"{self.selected_size} is the largest size offered, and the held-out score still rises: offer larger ones; "
            "if it rises on and on, states fill in for what the model lacks, such as heavy tails, outliers or drift"
        )


def heldout_log_likelihood(result: ConjugateResult, test: Trajectories) -> float:
    """Held-out log likelihood at the posterior means, in nats per observed step.

    A plug-in score: one normalised model, comparable with others. Roles that are distinct in every frame are a
    condition D, whose ln p(D) is subtracted: the score is ln p(x | D), as in `to_arviz`, and beyond 720 maps of agents
    to roles a lower bound. Further evidence
    in the test data, such as ``stay``, is scored with them; set it to missing (-1) to score the actions alone.

    Parameters
    ----------
    result : of :class:`~ethogram.inference.conjugate.ConjugateSVI`, or its posterior.
    test : data that the fit has not seen.

    Raises
    ------
    ValueError, TypeError
        If the test data do not fit the model, or have no observed step, or the posterior mean of a parameter
        does not exist.
    """
    scores, steps = _scores(result, test)
    return float(scores.sum() / steps.sum())


def _scored(model: Any, parameters: Any, data: Trajectories) -> tuple[np.ndarray, np.ndarray]:
    """Log likelihood of each sequence (or group), and its informative steps."""
    steps = steps_by_entry(model, data)
    entries = model.entries(padded_data(model, data))
    # A numpyro distribution is no argument: its leaves have the order of a set, which differs between processes.
    scores = _log_likelihood(model, parameters, entries.batch, entries.value)
    return np.asarray(scores, dtype=float)[: len(steps)], steps


_log_likelihood = quick_jit(log_likelihood)


def _scores(result: ConjugateResult, test: Trajectories) -> tuple[np.ndarray, np.ndarray]:
    """Log likelihood of every test sequence (or group), and the observed steps of each."""
    posterior = posterior_that_fits(result, test, name="result")
    mean = posterior.mean()
    for site, value in mean.items():
        if not np.isfinite(np.asarray(value)).all():
            raise ValueError(
                f"the posterior mean of {site} does not exist: strengthen its prior "
                "(a covariance has a mean if dof > num_features + 1)"
            )
    scores, steps = _scored(posterior.model, mean, test)
    if steps.sum() == 0:
        raise ValueError("test data have no observed step")
    return scores, steps


def heldout_score_curve(
    key: Array,
    make_model: Callable[[int], Any],
    sizes: Iterable[int],
    data: Trajectories,
    *,
    by: str | None = None,
    test_fraction: float = 0.25,
    num_steps: int = 1000,
    peers: bool = True,
    **options: Any,
) -> ScoreCurve:
    """ELBO and held-out log likelihood of a model over several sizes, and the scores of simpler models beside it.

    Stay labels of the test data are hidden: scores are those of the actions, which all models predict.

    Parameters
    ----------
    make_model : function from a size (a number of roles, say) to a model.
    sizes : model sizes.
    by, test_fraction : of the split of `data`, the same for all sizes; see `Trajectories.split`. None holds groups out,
        or sequences where there are no groups.
    num_steps, options : of `ConjugateSVI.run`. Each size, and each peer that is a conjugate model, has a file of its
        own, whose name is `checkpoint` with the size or the peer's name behind it: ``"run.4"``.
    peers : whether to fit and score the peers of the model too: for an `AgentMarkov` one intent, an input-driven hidden
        Markov model, and tables of action frequencies.

    Examples
    --------
    ``heldout_score_curve(key, lambda k: RoleHMM(k, GaussianEmission(2)), [2, 4, 8], data)``
    """
    key_split, key_fits = jax.random.split(key)
    by = by or ("sequence" if data.group is None else "group")
    train, test = data.split(key_split, by=by, test_fraction=test_fraction)
    if test.stay is not None:
        test = test._replace(stay=np.full(np.shape(test.stay), -1, np.int32))
    sizes = np.asarray(list(sizes))
    if sizes.size == 0:
        raise ValueError("sizes is empty: give at least one")
    # One key for all sizes: a larger model then starts from the fits of smaller ones, where it nests them.
    fits = tuple(
        ConjugateSVI(make_model(int(size))).run(
            key_fits, train, num_steps, **one_of_several(options, int(size))
        )
        for size in sizes
    )
    elbo = np.array([fit.restart_elbos.max() for fit in fits])
    found = [_scores(fit, test) for fit in fits]
    scores, steps = np.stack([score for score, _ in found]), found[0][1]
    heldout = scores.sum(axis=1) / steps.sum()
    best, beside = int(heldout.argmax()), {}
    if peers:
        for number, (name, peer) in enumerate(fits[best].posterior.model.peers().items()):
            one = jax.random.fold_in(key_fits, number)
            beside[name] = _peer_scores(one, peer, train, test, num_steps, one_of_several(options, name))
    with np.errstate(invalid="ignore"):  # impossible data have scores of -inf
        error = standard_errors(np.stack([*scores, *beside.values()]) - scores[best], steps)
    known = steps_by_entry(fits[0].posterior.model, train)
    others = {
        name: PeerScore(float(score.sum() / steps.sum()), float(one))
        for (name, score), one in zip(beside.items(), error[len(sizes) :], strict=True)
    }
    return ScoreCurve(sizes, elbo, heldout, fits, error[: len(sizes)], int(known.sum()), others)


def _peer_scores(
    key: Array, peer: Any, train: Trajectories, test: Trajectories, num_steps: int, options: dict[str, Any]
) -> np.ndarray:
    """Log likelihood of every test sequence (or group) under a peer that is fitted to the training data."""
    if isinstance(peer, ConjugateModel):
        if isinstance(options.get("init"), ConjugateResult):  # of the model: its peer starts anew
            options = {name: value for name, value in options.items() if name != "init"}
        return _scores(ConjugateSVI(peer).run(key, train, num_steps, **options), test)[0]
    return peer.fit(train).log_prob(test)


def standard_errors(gaps: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Standard errors of sums of score differences (model, sequence) over the sum of the steps (sequence,).

    Sequences without a step count as none. Zero where a difference is infinite, or there is one sequence only.
    """
    error = np.zeros(len(gaps))
    gaps, steps = gaps[:, steps > 0], steps[steps > 0]
    known = np.isfinite(gaps).all(axis=1) & (len(steps) > 1)
    if not known.any():
        return error
    left = gaps[known] - gaps[known].sum(axis=1, keepdims=True) / steps.sum() * steps  # of a ratio of sums
    error[known] = left.std(axis=1, ddof=1) * np.sqrt(len(steps)) / steps.sum()
    return error
