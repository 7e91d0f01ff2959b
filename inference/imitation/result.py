"""What an imitation returns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from ethogram.inference.conjugate.posterior import ConjugateResult
from ethogram.inference.draws import Draws, library_attributes
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.printing import describe_record, printed_as

__all__ = ["ImitationResult"]


@printed_as(lambda result: f"{result.outcome}\n{describe_record(result)}")
class ImitationResult(NamedTuple):
    """How often fresh games fail by round, policies, roles, and roll-outs; ``to_arviz`` reads it.

    Attributes
    ----------
    failure : (round,), share of the fresh games that did not reach their goal within the horizon.
    steps : (round,), mean steps of the fresh games; those that failed count the horizon.
    loss : (round,), at the states of the policies' own roll-outs, the share of actions that differ from the expert's,
        or the mean distance of real-valued ones. It does not say how often games fail.
    policies : (role,) fitted policies of the last round, which played its fresh games.
    role : (sequence,), most probable role of each sequence of the demonstrations, by which `policies` were trained.
    role_probability : (sequence, role), probability of every role of each sequence, which weighted the training.
    fit : the role model, fitted to the roll-outs of the last round; None unless roles were learned.
    elbo : (round,) in nats, of the role model on the roll-outs of the round, which differ between rounds; NaN unless
        roles were learned.
    reached, game_steps : (round, game), of each fresh game.
    policy_role : (round, policy, role), share of each inferred role in the roll-outs of each policy; rows sum to 1, NaN
        unless roles were learned.
    data : the demonstrations as the role model observes them, by sequence.
    rolled : roll-outs of the last round, one group per demonstration, or per segment of one where there is no expert.
    played : fresh games of the last round.
    """

    failure: Float[np.ndarray, "round"]
    steps: Float[np.ndarray, "round"]
    loss: Float[np.ndarray, "round"]
    policies: tuple[Any, ...]
    role: Int[np.ndarray, "sequence"]
    role_probability: Float[np.ndarray, "sequence role"]
    fit: ConjugateResult | None
    elbo: Float[np.ndarray, "round"]
    reached: Bool[np.ndarray, "round game"]
    game_steps: Int[np.ndarray, "round game"]
    policy_role: Float[np.ndarray, "round policy role"]
    data: Trajectories
    rolled: Trajectories
    played: Trajectories

    @property
    def outcome(self) -> str:
        """How the fresh games of the last round ended, in words."""
        rounds, games = self.reached.shape
        return (
            f"{100 * self.failure[-1]:.0f} % of the {games} fresh games of the last of {rounds} rounds failed; "
            f"{self.steps[-1]:.1f} steps per game, loss {self.loss[-1]:.4g}."
        )

    def draws_for_export(self, key: Array, num_draws: int) -> Draws:
        """Draws from the role model, if any, with the curves as statistics of the fit, by round."""
        fit = {
            "failure": (("round",), self.failure),
            "steps": (("round",), self.steps),
            "loss": (("round",), self.loss),
            "reached": (("round", "game"), self.reached),
            "game_steps": (("round", "game"), self.game_steps),
            "role_probability": (("sequence", "role"), self.role_probability),
        }
        if self.fit is None:
            return Draws(None, {}, {}, fit, library_attributes())
        learned = {
            "round_elbo": (("round",), self.elbo),
            "policy_role": (("round", "policy", "role"), self.policy_role),
        }
        drawn = self.fit.draws_for_export(key, num_draws)
        return drawn._replace(fit=drawn.fit | fit | learned)
