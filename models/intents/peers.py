"""Simpler models beside an agent Markov model, whose held-out scores tell whether intents pay."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp

from ethogram.models.data.action_tables import ActionTable
from ethogram.models.intents.constraints import IntentConstraints

__all__ = ["peers_of"]


def peers_of(model: Any) -> dict[str, Any]:
    """One intent, an input-driven hidden Markov model of as many states, and tables of action frequencies.

    The first two have the other settings of `model`, an `AgentMarkov`, and of its constraints those on actions; the
    second has one row per intent (``rows="shared"``), fixed weights, and no stickiness.
    """
    plain = dataclasses.replace(model, visited=None, constraints=_of_actions(model.constraints))
    weights = model.weights
    one = None if weights is None else jnp.stack([jnp.sum(weights[:-1]), weights[-1]])
    # Of one intent labels say nothing; at accuracy 1 those of a change would be refused.
    accuracy = None if model.stay_accuracy is None else 0.5
    shape = model.num_states, model.num_actions
    return {
        "one intent": dataclasses.replace(plain, truncation=1, weights=one, stay_accuracy=accuracy),
        "input-driven HMM": dataclasses.replace(plain, rows="shared", beta_prior="fixed", stickiness=None),
        "p(a | s)": ActionTable(*shape),
        "p(a | s, previous a)": ActionTable(*shape, order=1),
    }


def _of_actions(constraints: IntentConstraints | None) -> IntentConstraints | None:
    """The constraints on actions of every intent; None where there is none."""
    rules = () if constraints is None else constraints.rules
    kept = tuple(rule for rule in rules if rule.kind == "action" and rule.place[0] is None)
    return dataclasses.replace(constraints, rules=kept) if constraints is not None and kept else None
