"""How a fit of roles may start: statistics of rough labels of every step, made on the host in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from ethogram.models.chains.conjugate_chain import ChainData
from ethogram.models.exclusive_roles import GroupedChains
from ethogram.models.exponential_family import DirichletCoordinates
from ethogram.models.start_states import label_frames

__all__ = ["start_statistics"]


def start_statistics(model: Any, rng: np.random.Generator, kind: str, batches: list[Any]) -> dict[str, Any]:
    """Statistics by block, as if every step's role had been seen.

    Exclusive roles start from a random map a group, whatever the kind. Roles that are known stay.

    Parameters
    ----------
    model : a :class:`~ethogram.models.role_hmm.RoleHMM`.
    rng : source of randomness.
    kind : one of ``"kmeans++"``, ``"sticky"``, ``"segments"``.
    batches : data, as the model's ``arrange`` gives them.
    """
    num_roles, exclusive = model.num_roles, model.exclusive is not None
    chains = [batch.chains if isinstance(batch, GroupedChains) else batch for batch in batches]
    if exclusive:
        labels = [_random_map(rng, batch, num_roles) for batch in batches]
    else:
        labels = _rough_labels(rng, kind, chains, model.emission, num_roles)
    for chain, label in zip(chains, labels, strict=True):
        if chain.states is not None:
            np.copyto(label, chain.states, where=np.asarray(chain.states) >= 0)
    observed = [np.asarray(chain.observed) for chain in chains]
    frames = np.concatenate(
        [np.asarray(c.observations)[seen] for c, seen in zip(chains, observed, strict=True)]
    )
    held = np.concatenate([label[seen] for label, seen in zip(labels, observed, strict=True)])
    statistics = model.emission.label_statistics(rng, frames, held, num_roles)
    if exclusive:
        return statistics
    initial, transition = np.zeros(num_roles), np.zeros((num_roles, num_roles))
    for chain, label in zip(chains, labels, strict=True):
        alive = np.arange(label.shape[1]) < np.asarray(chain.lengths)[:, None]
        np.add.at(initial, label[:, 0][alive[:, 0]], 1)
        np.add.at(transition, (label[:, :-1][alive[:, 1:]], label[:, 1:][alive[:, 1:]]), 1)
    return {
        "initial": DirichletCoordinates(initial),
        "transition": DirichletCoordinates(transition),
        **statistics,
    }


def _random_map(rng: np.random.Generator, batch: GroupedChains, num_roles: int) -> np.ndarray:
    num_sequences, num_steps = batch.chains.observed.shape
    noise = rng.random((num_sequences // batch.num_agents, num_roles))
    roles = np.argsort(noise, axis=-1)[:, : batch.num_agents].reshape(-1, 1)
    return np.repeat(roles, num_steps, axis=1)


def _rough_labels(
    rng: np.random.Generator, kind: str, chains: list[ChainData], emission: Any, num_roles: int
) -> list[np.ndarray]:
    """Labels of every step; a step that was not observed takes that of the one before."""
    observed = [np.asarray(chain.observed) for chain in chains]
    features, sequence, first = [], [], 0
    for chain, seen in zip(chains, observed, strict=True):
        features.append(emission.start_features(np.asarray(chain.observations), seen)[seen])
        sequence.append(first + np.nonzero(seen)[0])
        first += len(seen)
    if sum(map(len, sequence)) == 0:
        return [rng.integers(num_roles, size=seen.shape) for seen in observed]
    held = label_frames(rng, kind, np.concatenate(features), np.concatenate(sequence), num_roles)
    labels, start = [], 0
    for seen in observed:
        label = np.zeros(seen.shape, dtype=np.int64)
        label[seen] = held[start : start + seen.sum()]
        start += seen.sum()
        last = np.maximum.accumulate(np.where(seen, np.arange(seen.shape[1]), -1), axis=1)
        at = np.where(last < 0, np.argmax(seen, axis=1)[:, None], last)
        labels.append(np.take_along_axis(label, at, axis=1))
    return labels
