r"""Effective sample size and R-hat of posterior draws, and the warning of every summary that they are too few.

Rank-normalised split R-hat and bulk effective sample size, by ArviZ: Vehtari, Gelman, Simpson, Carpenter, Bürkner
(2021), "Rank-normalization, folding, and localization".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpyro.infer import MCMC

from ethogram.models.arguments import warn_user
from ethogram.models.held_warnings import FILTERS, import_quietly

__all__ = [
    "LARGEST_R_HAT",
    "LEAST_ESS",
    "Convergence",
    "convergence",
    "grouped_draws",
    "pooled_draws",
    "warn_of_convergence",
]

LEAST_ESS = 100
LARGEST_R_HAT = 1.01


class Convergence(NamedTuple):
    """Convergence of the entries of one site.

    Attributes
    ----------
    ess : (...) bulk effective sample size over all chains; at most four draws count as one each.
    r_hat : (...) rank-normalised split R-hat; NaN for a single chain.
    """

    ess: Float[np.ndarray, "..."]
    r_hat: Float[np.ndarray, "..."]

    @property
    def enough(self) -> bool:
        """Whether every entry has the effective samples and the R-hat that a summary needs."""
        return not (
            self.ess.min(initial=np.inf) < LEAST_ESS or np.nanmax(self._known(), initial=0) > LARGEST_R_HAT
        )

    def __str__(self) -> str:
        words = f"smallest ESS {self.ess.min():.0f}"
        known = self._known()
        return f"{words}, largest r_hat {known.max():.3f}" if known.size else words

    def _known(self) -> np.ndarray:
        return self.r_hat[~np.isnan(self.r_hat)]


def grouped_draws(draws: Any) -> dict[str, Any] | None:
    """Sites (chain, draw, ...) of a numpyro `MCMC` object that has run; None for anything else."""
    return draws.get_samples(group_by_chain=True) if isinstance(draws, MCMC) else None


def convergence(chains: Any) -> Convergence:
    """Bulk effective sample size and R-hat of draws (chain, draw, ...)."""
    values = np.asarray(chains, float)
    shape, (num_chains, num_draws) = values.shape[2:], values.shape[:2]
    if num_draws < 4:
        return Convergence(np.full(shape, float(num_chains * num_draws)), np.full(shape, np.nan))
    arviz = import_quietly("arviz", FutureWarning)  # it announces its successor
    each = values.reshape(num_chains, num_draws, -1)
    columns = [each[..., number] for number in range(each.shape[-1])]
    moving = [np.ptp(column) > 0 for column in columns]
    with FILTERS:
        ess = [
            float(arviz.ess(column, method="bulk")) if moves else float(column.size)
            for column, moves in zip(columns, moving, strict=True)
        ]
        r_hat = [
            float(arviz.rhat(column, method="rank")) if moves and num_chains > 1 else np.nan
            for column, moves in zip(columns, moving, strict=True)
        ]
    return Convergence(np.array(ess).reshape(shape), np.array(r_hat).reshape(shape))


def warn_of_convergence(chains: Mapping[str, Any], otherwise: str = "") -> dict[str, Convergence]:
    """Convergence of every site (chain, draw, ...), with one UserWarning that names those that have not converged.

    Draws that are not grouped by chain count as one chain. The warning points at the caller outside the package, and
    ends with what else to do.
    """
    found = {name: convergence(site) for name, site in chains.items()}
    poor = [f"{name} ({one})" for name, one in found.items() if not one.enough]
    if poor:
        warn_user(
            f"the draws have not converged: {'; '.join(poor)}, where a summary needs an ESS of {LEAST_ESS} and, of "
            f"several chains, an r_hat of at most {LARGEST_R_HAT}: run a longer warm-up and more draws{otherwise}"
        )
    return found


def pooled_draws(name: str, draws: np.ndarray) -> np.ndarray:
    """Draws (draw, point), of one chain or of (chain, draw, point), with the warning where they have not converged."""
    chains = draws if draws.ndim == 3 else draws[None]
    warn_of_convergence({name: chains})
    return chains.reshape(-1, draws.shape[-1])
