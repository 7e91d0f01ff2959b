"""Fits of role HMMs by coordinated imitation: the roles, and the policies that play them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ethogram.fits.role_fits import RoleFits
from ethogram.inference.roles import InferredRoles, infer_roles
from ethogram.models.data import Trajectories
from ethogram.plots import imitation as plots

__all__ = ["ImitationFits"]


class ImitationFits(RoleFits):
    """Fits of a `RoleHMM` whose roles were learned together with policies."""

    prediction_settings = ()

    def states(self, fit: Any, data: Trajectories) -> InferredRoles:
        return infer_roles(fit.result.fit, data)

    def predict(self, fit: Any, data: Trajectories, settings: Mapping[str, int]) -> Trajectories:
        if data is not fit.data:
            raise TypeError(
                "data is new, and policies act in a world: call imitate's policies there (fit.result.policies)"
            )
        return fit.result.rolled

    def draw(self, fit: Any, figure: Any) -> None:
        curve, loss, shares = figure.subplots(1, 3)
        plots.failure_curves({"policies": fit.result}, curve)
        rounds = range(1, len(fit.result.loss) + 1)
        loss.plot(rounds, fit.result.loss, ".-")
        loss.xaxis.get_major_locator().set_params(integer=True)
        loss.set(xlabel="round", ylabel="loss", title="difference from the demonstrators' actions")
        plots.policy_roles(fit.result.policy_role[-1], shares)
