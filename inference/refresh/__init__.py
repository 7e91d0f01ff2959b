"""Posterior draws by NUTS that start at a variational fit."""

from ethogram.inference.refresh.refresh_posterior import refresh_posterior

__all__ = ["refresh_posterior"]
