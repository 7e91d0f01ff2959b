"""Each subject's own estimates of its values beside those of the fit, which the population draws towards its mean."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from ethogram.inference.draws import flat_draws
from ethogram.plots.axes import figure_or_new, show_plainly
from ethogram.plots.choices import shrinkage_panels

__all__ = ["own_estimates", "plot_shrinkage"]

WIDER = 5.0
"""Prior standard deviation of a subject's own estimate, in root mean squares of the values of all subjects."""


def plot_shrinkage(fit: Any, figure: Any = None) -> Any:
    """The figure of shrinkage that `Fit.plot` describes."""
    from ethogram.models.choices import NoisyMDP

    if not isinstance(fit.model, NoisyMDP) or fit.data.subject is None:
        raise TypeError(
            'plot("shrinkage") shows the values of subjects: fit a NoisyMDP to decisions that have subjects'
        )
    if fit.model.noise == "covariance":
        raise TypeError(
            'plot("shrinkage") takes subjects\' own estimates from independent noise, and noise is "covariance"'
        )
    draws = flat_draws({name: fit.result.sites[name] for name in ("theta", "loc")})
    fitted, loc = (np.asarray(draws[name], float).mean(0) for name in ("theta", "loc"))
    own = own_estimates(fit, fitted)
    parts = [fit.model.parts(values, fit.data) for values in (own, fitted, loc)]
    names = fit.data.metadata.feature_names or range(np.shape(parts[0]["v"])[-1])
    moving = np.flatnonzero(np.ptp(parts[1]["v"], axis=0) > 0)
    figure = figure_or_new(figure, (3.2 * max(min(len(moving), 3), 1), 3.2 * -(-len(moving) // 3 or 1)))
    alone, together, mean = (np.asarray(part["v"])[..., moving] for part in parts)
    shrinkage_panels(figure, alone, together, mean, [str(names[at]) for at in moving])
    show_plainly(figure)
    return figure


def own_estimates(
    fit: Any, fitted: Float[np.ndarray, "subject parameter"]
) -> Float[np.ndarray, "subject parameter"]:
    """Posterior modes of each subject's values from its own decisions alone.

    Their prior is normal about zero, with five times the root mean square of the fitted values of all subjects: a
    maximum of the likelihood need not exist for a subject.
    """
    from ethogram.inference.choices.choice_expansion import chosen_gaps, find_mode

    chosen, unit = chosen_gaps(fit.model, fit.model.check(fit.data))
    variance = WIDER**2 * (fitted**2).mean(0) / unit**2
    return unit * find_mode(chosen, variance, num_subjects=len(fitted))[1].theta
