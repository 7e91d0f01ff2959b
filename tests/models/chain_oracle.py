"""Chains in float64 NumPy: by enumeration of every path where few, by log-space recursions where many."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Enumerated(NamedTuple):
    """What one chain's paths add up to; time axes are padded with zeros, the best path with -1."""

    log_normalizer: np.ndarray  # ()
    state: np.ndarray  # (time, state)
    pair: np.ndarray  # (time - 1, state, state)
    entropy: np.ndarray  # ()
    best_path: np.ndarray  # (time,)
    best_weight: np.ndarray  # ()
    covariance: np.ndarray  # of the visits to each state at each step: (time * state, time * state)


def paths_of(num_states, length):
    """Every path (path, length), in an order that ranks late steps first and low states first."""
    return np.indices((num_states,) * length).reshape(length, num_states**length).T[:, ::-1]


def weights_of(paths, log_initial, log_transition, log_likelihood):
    """Log weight of each path; transitions fixed or one per step."""
    length = paths.shape[1]
    weight = np.zeros(len(paths))
    for t in range(length):
        if t == 0:
            weight = weight + log_initial[paths[:, 0]]
        else:
            matrix = log_transition if log_transition.ndim == 2 else log_transition[t - 1]
            weight = weight + matrix[paths[:, t - 1], paths[:, t]]
        weight = weight + log_likelihood[t, paths[:, t]]
    return weight


def log_sum(x, axis):
    """Log of summed exponentials along one axis, with exact ``-inf``."""
    return np.logaddexp.reduce(x, axis=axis)


def enumerate_chain(log_initial, log_transition, log_likelihood, length):
    """All that is asked of one chain, from its list of paths."""
    num_steps, num_states = log_likelihood.shape
    paths = paths_of(num_states, length)
    weight = weights_of(paths, log_initial, log_transition, log_likelihood)
    log_normalizer = log_sum(weight, 0)
    state = np.zeros((num_steps, num_states))
    pair = np.zeros((num_steps - 1, num_states, num_states))
    visits = np.zeros((len(paths), num_steps, num_states))
    best = np.full(num_steps, -1)
    if log_normalizer == -np.inf:
        zero = np.zeros((num_steps * num_states,) * 2)
        return Enumerated(log_normalizer, state, pair, np.array(0.0), best, np.array(-np.inf), zero)
    share = np.exp(weight - log_normalizer)
    for t in range(length):
        np.add.at(state[t], paths[:, t], share)
        visits[np.arange(len(paths)), t, paths[:, t]] = 1
    for t in range(1, length):
        np.add.at(pair[t - 1], (paths[:, t - 1], paths[:, t]), share)
    visits = visits.reshape(len(paths), -1)
    mean = share @ visits
    covariance = (visits - mean).T @ (share[:, None] * (visits - mean))
    best[:length] = paths[np.argmax(weight)]
    used = share[share > 0]
    return Enumerated(
        log_normalizer, state, pair, -np.sum(used * np.log(used)), best, weight.max(), covariance
    )


def enumerate_batch(log_initial, log_transition, log_likelihood, length):
    """:func:`enumerate_chain` over ``(chain, sequence)``, where fixed parameters are ``(chain, 1, ...)``."""
    driven = log_transition.ndim == log_likelihood.ndim + 1
    num_chains, num_sequences = log_likelihood.shape[:2]
    results = [
        enumerate_chain(
            log_initial[r, 0], log_transition[r, n if driven else 0], log_likelihood[r, n], length[r, n]
        )
        for r in range(num_chains)
        for n in range(num_sequences)
    ]
    return Enumerated(
        *(
            np.reshape(part, (num_chains, num_sequences, *np.shape(part[0])))
            for part in zip(*results, strict=True)
        )
    )


class Chains(NamedTuple):
    """Potentials of ``(chain, sequence)`` problems, one parameter set a chain."""

    log_initial: np.ndarray  # (chain, 1, state)
    log_transition: np.ndarray  # (chain, 1, state, state) or (chain, sequence, time - 1, state, state)
    log_likelihood: np.ndarray  # (chain, sequence, time, state)
    length: np.ndarray  # (chain, sequence)


def random_chains(seed, driven, num_chains=10, num_sequences=6, num_steps=6, num_states=3):
    """Unnormalised, with zeros in each potential, missing steps, ragged lengths and some impossible data."""
    random = np.random.default_rng(seed)
    many, steps = (num_chains, num_sequences), (num_steps, num_states)
    square = (num_states, num_states)
    log_initial = 2 * random.normal(size=(num_chains, 1, num_states))
    log_transition = 2 * random.normal(
        size=(*many, num_steps - 1, *square) if driven else (num_chains, 1, *square)
    )
    log_likelihood = 2 * random.normal(size=(*many, *steps)) - 1
    log_likelihood[random.random((*many, num_steps)) < 0.15] = 0
    log_initial[1::4][random.random(log_initial[1::4].shape) < 0.5] = -np.inf
    log_transition[2::4][random.random(log_transition[2::4].shape) < 0.4] = -np.inf
    log_transition[3, ..., np.tril(np.ones(square, bool), -1)] = -np.inf
    labelled = random.random((*many, num_steps)) < 0.2
    log_likelihood[labelled, 0] = -np.inf
    log_likelihood[4, 1, 2] = -np.inf
    log_initial[5] = -np.inf
    length = np.arange(num_chains * num_sequences).reshape(many) % (num_steps + 1)
    return Chains(log_initial, log_transition, log_likelihood, length)


def broadcast_chains(seed, batch, initial, transition, likelihood, length, num_steps=4, num_states=2):
    """Random potentials with the named batch axes each; first broadcast to `batch`, then as they are.

    `transition` may be "driven": it then has the axes of the likelihood, and one matrix per step. Empty axes for
    `length` leave it out.
    """
    random = np.random.default_rng(seed)
    square = (num_states, num_states)
    inner = (num_steps - 1, *square) if transition == "driven" else square
    log_initial = random.normal(size=(*initial, num_states))
    log_transition = random.normal(size=(*(likelihood if transition == "driven" else transition), *inner))
    log_likelihood = random.normal(size=(*likelihood, num_steps, num_states))
    given = [log_initial, log_transition, log_likelihood]
    lengths = np.array(num_steps)
    if length:
        lengths = random.integers(0, num_steps + 1, size=length)
        given.append(lengths)
    whole = Chains(
        np.broadcast_to(log_initial, (*batch, num_states)),
        np.broadcast_to(log_transition, (*batch, *inner)),
        np.broadcast_to(log_likelihood, (*batch, num_steps, num_states)),
        np.broadcast_to(lengths, batch),
    )
    return whole, given


def central_moment(chain, direction, order):
    """Central posterior moment of what a path's weight gains along a direction in potential space.

    The derivative of that order of the log normaliser along the direction, for orders two and three.
    """
    log_initial, log_transition, log_likelihood, length = chain
    paths = paths_of(log_likelihood.shape[-1], length)
    weight = weights_of(paths, log_initial, log_transition, log_likelihood)
    if weight.max() == -np.inf:
        return 0.0
    share = np.exp(weight - log_sum(weight, 0))
    gain = weights_of(paths, *direction)
    return share @ (gain - share @ gain) ** order


class Recursion(NamedTuple):
    """Log-space forward-backward over any batch axes."""

    log_normalizer: np.ndarray  # (...)
    state: np.ndarray  # (..., time, state)
    pair: np.ndarray  # (..., time - 1, state, state)


def log_space_recursion(log_initial, log_transition, log_likelihood):
    """Evidence and marginals of whole sequences with fixed transitions; impossible ones have zero marginals."""
    num_steps = log_likelihood.shape[-2]
    alpha, beta = np.zeros(log_likelihood.shape), np.zeros(log_likelihood.shape)
    alpha[..., 0, :] = log_initial + log_likelihood[..., 0, :]
    for t in range(1, num_steps):
        alpha[..., t, :] = (
            log_sum(alpha[..., t - 1, :, None] + log_transition, -2) + log_likelihood[..., t, :]
        )
    for t in range(num_steps - 2, -1, -1):
        ahead = log_likelihood[..., t + 1, :] + beta[..., t + 1, :]
        beta[..., t, :] = log_sum(log_transition + ahead[..., None, :], -1)
    log_normalizer = log_sum(alpha[..., -1, :], -1)
    offset = np.where(log_normalizer > -np.inf, log_normalizer, 0)
    state = np.exp(alpha + beta - offset[..., None, None])
    entering = log_transition[..., None, :, :] + (log_likelihood + beta)[..., 1:, None, :]
    pair = np.exp(alpha[..., :-1, :, None] + entering - offset[..., None, None, None])
    return Recursion(log_normalizer, state, pair)


def best_weight(log_initial, log_transition, log_likelihood):
    """Log weight of the best path of one sequence with fixed transitions."""
    best = log_initial + log_likelihood[0]
    for step in log_likelihood[1:]:
        best = np.max(best[:, None] + log_transition, 0) + step
    return best.max()
