"""What a conjugate fit gives back: the best restart, and how all of them went."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ethogram.inference.checkpoint import FitState
from ethogram.inference.posterior import Posterior

__all__ = ["ConjugateResult", "best_restart", "warn_of_falls"]


class ConjugateResult(NamedTuple):
    """What a conjugate fit gives back: the best restart, and how all of them went.

    Attributes
    ----------
    posterior : of the restart with the highest final bound.
    elbo : (evaluation,) its bound in nats, on all data, at the steps ``evaluated``; the last is the posterior's.
    restart_elbos : (restart,) final bounds; ``-inf`` where a start made the data impossible.
    converged : whether the best restart met `tol`.
    step : steps done, those of earlier runs included.
    key : to go on with.
    evaluated : (evaluation,) steps at which bounds were taken.
    restart_traces : (restart, evaluation) bounds of all restarts.
    """

    posterior: Posterior
    elbo: np.ndarray
    restart_elbos: np.ndarray
    converged: bool
    step: int
    key: Array
    evaluated: np.ndarray
    restart_traces: np.ndarray


def best_restart(model: Any, state: FitState, key: Array) -> ConjugateResult:
    """What a fit gives back of the state in which it ended."""
    final = np.asarray(state.latest, dtype=float)
    final = np.where(np.isnan(final), -np.inf, final)
    best = int(np.argmax(final))
    traces = np.stack(state.traces, axis=1)
    posterior = Posterior(model, jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[best]), state.blocks))
    converged = not bool(state.active[best])
    evaluated = np.asarray(state.evaluated)
    return ConjugateResult(posterior, traces[best], final, converged, state.step, key, evaluated, traces)


def warn_of_falls(trace: np.ndarray) -> None:
    """Warn where a bound of coordinate ascent fell, which it never does but for rounding."""
    allowed = 1e-5 if trace.dtype == np.float32 else 1e-9
    falls = -np.diff(trace) / np.maximum(np.maximum(np.abs(trace[1:]), np.abs(trace[:-1])), 1)
    if falls.size and falls.max() > allowed:
        warnings.warn(
            f"the bound fell by {falls.max():.1e} of its size at evaluation {int(falls.argmax()) + 1}, more than "
            "rounding explains: run in float64 (jax.enable_x64), or scale the features to unit spread",
            RuntimeWarning,
            stacklevel=3,
        )
