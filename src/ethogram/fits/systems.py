"""What a fit of each system can answer, and how it is drawn: one class a system."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ethogram.inference.draws import flat_draws
from ethogram.inference.export import to_arviz
from ethogram.models.conjugate_model import ConjugateModel, overrides, steps_by_entry
from ethogram.models.data import Trajectories
from ethogram.models.rewards import GPIRL

__all__ = ["System", "bound_model", "draws_by_site", "has_labels", "log_likelihood_of", "system_of"]


class System:
    """A system whose fits are distributions of parameters; a system overrides what is its own."""

    has_posterior = True
    prediction_settings: tuple[str, ...] = ()

    def states(self, fit: Any, data: Any) -> Any:
        """Hidden states of the data."""
        raise TypeError(f"a {type(fit.model).__name__} has no hidden states")

    def predict(self, fit: Any, data: Any, settings: Mapping[str, int]) -> Any:
        """What the agents do next, or in new data."""
        raise TypeError(f"a {type(fit.model).__name__} has no predictions here: see fit.result")

    def log_densities(self, fit: Any, data: Any, num_draws: int) -> tuple[np.ndarray, np.ndarray]:
        """Log densities (draw, entry) of the entries of data, and what each counts."""
        if isinstance(data, Trajectories) and overrides(fit.model, "observation"):
            fit.model.check(data)
            steps = steps_by_entry(fit.model, data).astype(float)
            return log_likelihood_of(fit, data, num_draws, steps), steps
        values = log_likelihood_of(fit, data, num_draws)
        return values, np.ones(values.shape[1])

    def draw(self, fit: Any, figure: Any) -> None:
        """Draw the fit into a figure."""
        raise TypeError(f"a {type(fit.model).__name__} has no picture here: see ethogram.plots")

    def exported(self, fit: Any) -> Any:
        """What ArviZ reads of a fit without draws."""
        raise TypeError(f"a fit by {fit.method!r} has no draws for ArviZ: read fit.result")


def log_likelihood_of(fit: Any, data: Any, num_draws: int, counts: np.ndarray | None = None) -> np.ndarray:
    """Log likelihoods (draw, entry), one entry a sequence, group or decision.

    Parameters
    ----------
    counts : (entry,), what each counts; the export leaves those of 0 out, whose log likelihoods are 0 here. None: all
        entries are those of the export.
    """
    if not fit.has_draws:
        raise TypeError(f"a fit by {fit.method!r} is one answer, without draws: it has no predictive density")
    tree = to_arviz(
        fit.result, data, key=fit._key, num_draws=num_draws, log_likelihood="sequence", progress_bar=False
    )
    (values,) = (np.asarray(each) for each in tree.log_likelihood.data_vars.values())
    known = values.reshape(values.shape[0] * values.shape[1], -1).astype(float)
    if counts is None:
        return known
    every = np.zeros((len(known), len(counts)))
    every[:, counts > 0] = known
    return every


def has_labels(model: Any) -> bool:
    """Whether the hidden states of a model have labels, which draws have to be aligned in."""
    return isinstance(model, ConjugateModel) or (isinstance(model, GPIRL) and model.switches)


def bound_model(fit: Any) -> Any:
    """The model of the draws: bound to the data of the fit, whatever data it scores."""
    return fit.draws(1).model


def draws_by_site(fit: Any, num_draws: int) -> dict[str, np.ndarray]:
    """Draws (draw, ...) of the parameters by site."""
    return flat_draws(fit.draws(num_draws).sites)


def system_of(model: Any, result: Any) -> System:
    """The system of a fitted model; one without answers of its own for other models with blocks."""
    from ethogram.fits.choice_fits import ChoiceFits
    from ethogram.fits.imitation_fits import ImitationFits
    from ethogram.fits.intent_fits import IntentFits
    from ethogram.fits.network_fits import NetworkFits
    from ethogram.fits.reward_fits import RewardFits
    from ethogram.fits.role_fits import RoleFits
    from ethogram.inference.imitation import ImitationResult
    from ethogram.models.choices import NoisyMDP
    from ethogram.models.intents import AgentMarkov
    from ethogram.models.networks import MarginalMAP
    from ethogram.models.roles import RoleHMM

    if isinstance(result, ImitationResult):
        return ImitationFits()
    known: dict[type, type[System]] = {
        RoleHMM: RoleFits,
        AgentMarkov: IntentFits,
        NoisyMDP: ChoiceFits,
        GPIRL: RewardFits,
        MarginalMAP: NetworkFits,
    }
    return next((system() for kind, system in known.items() if isinstance(model, kind)), System())
