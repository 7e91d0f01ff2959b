"""Posterior draws by NUTS that start at a variational fit."""

from ethogram.inference.refresh.refresh_posterior import refresh_posterior
from ethogram.inference.refresh.refreshed_posterior import RefreshedPosterior

__all__ = ["RefreshedPosterior", "refresh_posterior"]
