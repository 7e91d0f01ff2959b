r"""Errors of a learned agent with latent intent against the true one, weighted by the visits of the true one.

.. math:: \mathrm{wKL} = \sum_r w_r \sum_k p_r(k) \ln \frac{p_r(k)}{\hat p_r(k)}, \qquad
          \mathrm{wL2} = \sum_r w_r \lVert p_r - \hat p_r \rVert_2

Rows r are those that occur in the data: (x, s, a) for transitions, (x, s) for policies, with true intents x. Unhelkar
and Shah (2019), section 5; here the weights are normalised and the learned probabilities floored, since otherwise the
divergence grows with the length of the data, and one learned zero makes it infinite.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ethogram.models.arguments import require
from ethogram.models.data import trajectories
from ethogram.models.data.state_action_steps import read_steps
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.intents.intent_agent import IntentAgent
from ethogram.models.printing import short_repr

__all__ = ["FLOOR", "IntentErrors", "intent_errors"]

FLOOR = 1e-12
"""Floor of the learned probabilities in a divergence."""

TOLERANCE = 1e-4
"""Tolerance for sums of rows, which may be in single precision."""


@short_repr
class IntentErrors(NamedTuple):
    """Errors of a learned agent; zero for the true agent under any labelling.

    Attributes
    ----------
    wkl_transition, wkl_policy, wkl_initial : weighted KL(true || learned), in nats.
    wl2_transition, wl2_policy, wl2_initial : weighted Euclidean distances.
    """

    wkl_transition: float
    wkl_policy: float
    wkl_initial: float
    wl2_transition: float
    wl2_policy: float
    wl2_initial: float


def intent_errors(
    true: IntentAgent, learned: IntentAgent, data: Trajectories, intents: ArrayLike, permutation: ArrayLike
) -> IntentErrors:
    """Weighted KL divergences and Euclidean distances of a learned agent's tables from the true ones.

    Rows over intents keep the entries of matched learned intents and are not renormalised: mass on other intents is
    lost to the divergence, and is one more coordinate of the distance. A true intent without a match has uniform rows
    of transition and policy, and initial probability 0.

    Parameters
    ----------
    true : tables over X intents.
    learned : tables over K intents, such as posterior means, with the states and actions of `true`; rows over intents
        have K + 1 entries, the last for all beyond a truncation, or only the first K.
    data : the training data: states, actions (a missing one, -1, weighs no transition) and lengths.
    intents : (sequence, time) integers, the true intent of every step; entries beyond a length are ignored.
    permutation : (learned intent,) integers, the true intent matched to each, -1 for none, as
        :func:`ethogram.inference.roles.align_states` finds it on the training data. A learned intent that is not
        listed, or whose match is beyond X, is unmatched.

    Raises
    ------
    ValueError
        For tables, intents or a permutation whose shapes disagree, tables whose rows are no probabilities, and data
        without a transition that has a known action.
    TypeError
        For intents or a permutation that are not integers.

    References
    ----------
    Unhelkar and Shah (2019), section 5.

    Examples
    --------
    >>> true = IntentAgent([0.5, 0.5], np.full((2, 1, 2, 2), 0.5), np.full((2, 1, 2), 0.5))
    >>> data = Trajectories.from_list(states=[[0, 0, 0]], actions=[[0, 1, 1]])
    >>> round(intent_errors(true, true._replace(initial=[0.9, 0.1]), data, [[0, 0, 1]], [0, 1]).wkl_initial, 4)
    0.5108
    """
    trajectories.check(data)
    true, learned = (IntentAgent(*(np.asarray(table) for table in agent)) for agent in (true, learned))
    num_intents, num_states, num_actions = _shapes(true, learned)
    matched = _learned_labels(permutation, num_intents, len(learned.policy))
    steps = read_steps(data, num_states, num_actions)
    intents = _intents(intents, steps.inside, num_intents)
    acted = steps.leaving & (steps.action >= 0)
    if not acted.any():
        raise ValueError("data has no step with a known action and a next step: no transition has weight")

    (x, s, a), weight = _visited(acted, intents, steps.state, steps.action)
    label = matched[x]
    rows, lost = _matched_columns("learned.transition", learned.transition[label, s, a], matched)
    rows = np.where(label[:, None] < 0, 1 / num_intents, rows)
    transition = _errors(
        _probabilities("true.transition", true.transition[x, s, a]),
        rows,
        np.where(label < 0, 0, lost),
        weight,
    )

    (x, s), weight = _visited(steps.inside, intents, steps.state)
    label = matched[x]
    rows = _probabilities("learned.policy", learned.policy[label, s])
    rows = np.where(label[:, None] < 0, 1 / num_actions, rows)
    policy = _errors(_probabilities("true.policy", true.policy[x, s]), rows, np.zeros(len(x)), weight)

    rows, lost = _matched_columns("learned.initial", learned.initial[None], matched)
    initial = _errors(_probabilities("true.initial", true.initial[None]), rows, lost, np.ones(1))
    divergences, distances = zip(transition, policy, initial, strict=True)
    return IntentErrors(*divergences, *distances)


def _errors(
    true: np.ndarray, learned: np.ndarray, lost: np.ndarray, weight: np.ndarray
) -> tuple[float, float]:
    """Weighted divergence and distance of rows (row, entry)."""
    some = true > 0
    log_ratio = np.log(np.where(some, true, 1)) - np.log(np.where(some, np.maximum(learned, FLOOR), 1))
    distance = np.sqrt(((true - learned) ** 2).sum(-1) + lost**2)
    return float(weight @ (true * log_ratio).sum(-1)), float(weight @ distance)


def _visited(where: np.ndarray, *labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct rows of labels (label, row) among steps, and the share of steps of each."""
    rows, counts = np.unique(np.stack([x[where] for x in labels]), axis=1, return_counts=True)
    return rows, counts / counts.sum()


def _matched_columns(name: str, rows: np.ndarray, matched: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows over learned intents as rows over true ones, zero for unmatched ones, and the mass that each loses."""
    kept = np.where(matched < 0, 0, _probabilities(name, rows, may_lack=True)[:, matched])
    return kept, 1 - kept.sum(-1)


def _probabilities(name: str, rows: np.ndarray, may_lack: bool = False) -> np.ndarray:
    """The rows in double precision; ValueError unless they are probabilities."""
    rows = rows.astype(np.float64)
    if not (rows >= 0).all():
        raise ValueError(f"{name} has the entry {rows[~(rows >= 0)][0]}: probabilities are at least 0")
    sums = rows.sum(-1)
    wrong = (sums > 1 + TOLERANCE) | (not may_lack and sums < 1 - TOLERANCE)
    if wrong.any():
        raise ValueError(
            f"{name} has a row that sums to {sums[wrong][0]:.6g}, not 1: divide each row by its sum"
        )
    return rows


def _shapes(true: IntentAgent, learned: IntentAgent) -> tuple[int, int, int]:
    """Numbers of true intents, states and actions; ValueError unless the shapes of the tables agree."""
    for name, agent, more in (("true", true, 0), ("learned", learned, 1)):
        if agent.policy.ndim != 3:
            raise ValueError(f"{name}.policy has shape {agent.policy.shape}, not (intent, state, action)")
        count, *sizes = agent.policy.shape
        if sizes != list(true.policy.shape[1:]):
            raise ValueError(
                f"learned.policy has shape {agent.policy.shape}, true.policy {true.policy.shape}: "
                "give both agents the same states and actions"
            )
        for part, rows in (("transition", (count, *sizes)), ("initial", ())):
            came, fits = getattr(agent, part).shape, [(*rows, count + extra) for extra in range(more + 1)]
            if came not in fits:
                raise ValueError(f"{name}.{part} has shape {came}, not {' or '.join(map(str, fits))}")
    return true.policy.shape


def _learned_labels(permutation: ArrayLike, num_true: int, num_learned: int) -> np.ndarray:
    """Learned intent matched to every true intent, -1 for none."""
    match = np.asarray(permutation)
    if not np.issubdtype(match.dtype, np.integer):
        raise TypeError(
            f"permutation has dtype {match.dtype}: give integers, -1 for a learned intent without match"
        )
    if match.ndim != 1 or (match < -1).any():
        raise ValueError(
            f"permutation is {match.tolist()}: give a true intent, or -1, for every learned intent"
        )
    (labels,) = np.nonzero(match >= 0)
    if len(np.unique(match[labels])) < len(labels):
        raise ValueError(f"permutation is {match.tolist()}: no two learned intents may match one true intent")
    labels = labels[(labels < num_learned) & (match[labels] < num_true)]
    matched = np.full(num_true, -1)
    matched[match[labels]] = labels
    return matched


def _intents(intents: ArrayLike, inside: np.ndarray, num_intents: int) -> np.ndarray:
    labels = np.asarray(intents)
    if not np.issubdtype(labels.dtype, np.integer):
        raise TypeError(f"intents has dtype {labels.dtype}: give integers, the true intent of every step")
    if labels.shape != inside.shape:
        raise ValueError(f"intents has shape {labels.shape}, not (sequence, time) {inside.shape} as the data")
    wrong = inside & ((labels < 0) | (labels >= num_intents))
    require(~wrong, "intents", labels, f", outside 0..{num_intents - 1}")
    return labels
