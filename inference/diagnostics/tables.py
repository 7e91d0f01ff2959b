"""Findings of actions: whether a table of counts explains them better than the model does.

The log evidence of a table of actions by context, under a Dirichlet prior, is known in closed form; that of the model
is at least its ELBO. A table that is above the ELBO is the better explanation, whatever the number of parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from scipy.special import gammaln

from ethogram.inference.diagnostics.finding import Finding, Level

__all__ = [
    "log_evidence",
    "log_loo",
    "of_heldout",
    "of_scores",
    "of_tables",
    "table_evidence",
    "table_scores",
]

CONCENTRATION = 0.5
"""Of the Dirichlet prior of every row (Jeffreys)."""
ERRORS = 2.0
"""Standard errors of a held-out difference beyond which it is one."""
LEAST, LEAST_EACH = 5.0, 0.02
"""Nats by which a table has to be better, and nats per action by which it has to exceed an ELBO."""


def log_evidence(context: np.ndarray, action: np.ndarray, num_actions: int) -> float:
    """Log probability of actions (step,) in nats, given a table with one row per context (step, ...)."""
    _, counts = _counts(context, action, num_actions)
    a, total = CONCENTRATION, CONCENTRATION * num_actions
    each = gammaln(total) - gammaln(total + counts.sum(1))
    return float(np.sum(each) + np.sum(gammaln(a + counts) - gammaln(a)))


def log_loo(context: np.ndarray, action: np.ndarray, num_actions: int) -> np.ndarray:
    """Log probability (step,) of each action given all others, as `log_evidence` has the context and the prior."""
    rows, counts = _counts(context, action, num_actions)
    others = counts[rows, action] - 1 + CONCENTRATION
    return np.log(others / (counts.sum(1)[rows] - 1 + CONCENTRATION * num_actions))


def _counts(context: np.ndarray, action: np.ndarray, num_actions: int) -> tuple[np.ndarray, np.ndarray]:
    """The row (step,) of each context among those that occur, and counts (row, action)."""
    rows = np.unique(context, axis=0, return_inverse=True)[1].ravel()
    counts = np.zeros((rows.max(initial=-1) + 1, num_actions))
    np.add.at(counts, (rows, action), 1)
    return rows, counts


def table_evidence(states: np.ndarray, actions: np.ndarray, num_actions: int) -> dict[str, float]:
    """Log evidence by table, in nats; of states and actions (sequence, time), which are -1 where missing."""
    shifted = [
        np.pad(actions, ((0, 0), (lag, 0)), constant_values=-1)[:, : actions.shape[1]] for lag in (1, 2)
    ]
    known = actions >= 0
    part = {"state": states[known], "last": shifted[0][known], "one before": shifted[1][known]}
    tables = {
        "that has one row": [np.zeros(known.sum(), int)],
        "by state": [part["state"]],
        "by last action": [part["last"]],
        "by the last two actions": [part["last"], part["one before"]],
        "by state and last action": [part["state"], part["last"]],
    }
    return {
        name: log_evidence(np.stack(columns, axis=1), actions[known], num_actions)
        for name, columns in tables.items()
    }


def of_tables(elbo: float, states: np.ndarray, actions: np.ndarray, num_actions: int) -> Iterator[Finding]:
    """The best table of actions, where it is better than a model with this ELBO."""
    each = table_evidence(states, actions, num_actions)
    name = max(each, key=each.__getitem__)
    gain, steps = each[name] - elbo, int((actions >= 0).sum())
    least = max(LEAST, LEAST_EACH * steps)  # the ELBO is below the evidence of the model
    if gain > least:
        yield Finding(
            "baseline",
            Level.WARNING,
            f"A table of actions {name} explains them better than the model, by {gain:.1f} nats ({gain / steps:.3f} "
            "per action).",
            "Do not interpret the fit before it is better than such a table.",
            float(np.log(gain / least)),
        )


def of_heldout(own: float, peers: Mapping[str, tuple[float, float]]) -> Iterator[Finding]:
    """The best of some simpler models, where it predicts held-out actions or choices better than the model.

    Parameters
    ----------
    own : nats per step, or decision, of the model.
    peers : by name, the same, and the standard error of the difference to the model, 0 where it is unknown.
    """
    name = max(peers, key=lambda each: peers[each][0])
    gain, error = peers[name][0] - own, peers[name][1]
    if 0 < ERRORS * error < gain:
        yield Finding(
            "baseline",
            Level.WARNING,
            f"Of held-out data {name} predicts better, by {gain:.3f} (se {error:.3f}) nats each.",
            "Do not interpret the fit before it is better than such a model.",
            float(np.log1p(gain)),
        )


def table_scores(legal: np.ndarray, choice: np.ndarray) -> dict[str, np.ndarray]:
    """Log probabilities (decision,) given all others, by model: equal chances, and shares of slots where all are full.

    Parameters
    ----------
    legal : (decision, option).
    choice : (decision,).
    """
    scores = {"equal chances": -np.log(legal.sum(1))}
    if legal.all():
        scores["shares of the slots"] = log_loo(np.zeros((len(choice), 1)), choice, legal.shape[1])
    return scores


def of_scores(score: np.ndarray, tables: dict[str, np.ndarray], weight: np.ndarray) -> Iterator[Finding]:
    """Whether a table predicts choices as well as the model, each given the others.

    Parameters
    ----------
    score : (decision,) of the model, log probabilities with the penalty of WAIC.
    tables : by name; the first is that of equal chances.
    """
    name = max(tables, key=lambda each: float(weight @ tables[each]))
    gain, total = float(weight @ (tables[name] - score)), float(weight.sum())
    chance = next(iter(tables))
    if gain > LEAST and name != chance:
        yield Finding(
            "baseline",
            Level.WARNING,
            f"The table of {name} predicts better than the model, by {gain:.1f} nats ({gain / total:.3f} each).",
            "Do not interpret the values before the model is better than such a table.",
            float(np.log(gain / LEAST)),
        )
    if (own := float(weight @ (score - tables[chance]))) < LEAST:
        yield Finding(
            "features",
            Level.WARNING,
            f"The features explain nothing beyond chance: predictions are {abs(own):.1f} nats "
            f"{'better' if own > 0 else 'worse'} than {chance}.",
            "Do not interpret the values; look for features on which the choices depend.",
            float(LEAST - own),
        )
